//! What `zpool` and `zfs` share at the terminal: numbers as people read them, tables, JSON frames.
//!
//!
//! The forms follow OpenZFS 2.3 to the letter, since scripts cut columns out of them.

pub mod number;
pub mod table;
