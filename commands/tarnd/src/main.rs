//! The `tarnd` command.

fn main() {}
