//! What `zpool` and `zfs` share at the terminal: the grammar of options, numbers and values as
//! people read them, columns, JSON frames, and the way to the daemon.
//!
//! The forms follow OpenZFS 2.3 to the letter, since scripts cut columns out of them.
//!
//! # Map
//! - [`program`]: from the arguments to a subcommand and back to an exit code; [`options`],
//!   [`failure`]
//! - [`connection`], [`daemon`]: the way to `tarnd`, which is started when it does not run
//! - [`number`], [`show`]: single values
//! - [`table`], [`json`]: rows of columns, and JSON frames
//! - [`interval`], [`timestamp`]: repeated output
//! - [`process_title`]: what `ps` shows
//! - [`screen`]: its size; [`color`]
//! - [`users`]: names of users
//! - [`version`]: the one subcommand that both have

pub mod color;
pub mod connection;
pub mod daemon;
pub mod failure;
pub mod interval;
pub mod json;
pub mod keyboard;
pub mod number;
pub mod options;
pub mod output;
pub mod process_title;
pub mod program;
pub mod screen;
pub mod show;
pub mod table;
pub mod timestamp;
pub mod users;
pub mod version;

/// The engine's messages, which every command asks and prints.
pub use tarn_administration::messages;
