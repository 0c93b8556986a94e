//! What `zpool` and `zfs` share at the terminal: numbers and values as people read them, tables, JSON frames,
//! and the way to the daemon.
//!
//! The forms follow OpenZFS 2.3 to the letter, since scripts cut columns out of them.

pub mod number;
pub mod show;
pub mod table;
