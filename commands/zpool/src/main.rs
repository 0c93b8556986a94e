//! The `zpool` command.

fn main() {}
