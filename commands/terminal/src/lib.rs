//! What `zpool` and `zfs` share at the terminal: numbers as people read them, tables, JSON frames, sizes as
//! people type them.
//!
//! The forms follow OpenZFS 2.3 to the letter, since scripts cut columns out of them.

pub mod number;
pub mod parse;
pub mod table;
