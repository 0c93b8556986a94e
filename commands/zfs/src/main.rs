//! The `zfs` command.

fn main() {}
