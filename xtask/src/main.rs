//! The `xtask` command.

fn main() {}
