//! The `zdb` command.

fn main() {}
