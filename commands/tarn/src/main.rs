//! The `tarn` command.

fn main() {}
