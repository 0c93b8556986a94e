//! Golden pools: images that OpenZFS made, and what OpenZFS sees in them.
//!
//! # Problem
//! A reader of a foreign format is right when it sees what the format's owner sees. So pools were
//! made by the real OpenZFS, and beside each stands its *truth*: every file of every dataset and
//! snapshot, every property, recorded by the real thing after it had imported the pool read-only.
//!
//! # Mechanism
//! A fixture is an archive, `NAME.tar.zst`. It is unpacked once ([`Fixtures`]), and worked on in
//! copies, because importing changes images. [`truth`] reads what was recorded; [`compare`] holds
//! it against what is seen now and says what differs, by file and property; [`allowed`] lists the
//! few values that must differ.
//!
//! # Knows nothing about
//! how the values seen now were obtained: that is for the driver of the file system under test.

pub mod allowed;
pub mod compare;
mod fixtures;
pub mod truth;
pub mod volume;

pub use fixtures::{Fixture, FixtureError, Fixtures};
