//! The intent log (ZIL): changes that are durable before their txg is stored.
//!
//! # Mechanism
//! The log of a file system or volume is a chain of blocks that begins in its
//! [`IntentLogHead`](crate::objset::IntentLogHead). Each block has a [`LogChain`], which points at
//! the next block before that is written, and carries the block's own checksum:
//!
//! ```text
//!   zilog    | record | record | …                      | chain |
//!   zilog2   | chain | record | record | …                      |
//! ```
//!
//! Which of the two forms a block has is in the checksum kind of the pointer to it. The log ends
//! at the first block whose checksum or sequence number is not the expected one: writing ahead of
//! a crash leaves just that.
//!
//! A record is a header of 32 bytes (type, length, txg, sequence number), the fields of its type,
//! and what follows them without a fixed place: names, data, pointers. Lengths are multiples of
//! eight, filled up with zeros.
//!
//! # Invariants
//! - Records are decoded in the byte order of their block; all numbers in a [`LogRecord`] are
//!   already turned.
//! - A record that OpenZFS wrote encodes to the same bytes again.
//!
//! # Map
//! `block` has the blocks and their chain, `record` what all records have, `change` the record
//! types; `create`, `rename`, `log_write` and `set_attributes` the types with many fields, and
//! `logged_acl` the access control lists in them. `encoding` reads and writes what follows the
//! fixed fields.
//!
//! # Knows nothing about
//! Checksums and the order of replay.

mod block;
mod change;
mod create;
mod encoding;
mod log_write;
mod logged_acl;
mod record;
mod rename;
#[cfg(test)]
mod samples;
mod set_attributes;

pub use block::{
    BLOCK_BYTES_MIN, LogBlock, LogChain, LogForm, OBJECT_SET_WORD, Records, SEQUENCE_WORD,
};
pub use change::LoggedChange;
pub use create::{CreateKind, LoggedCreate};
pub use log_write::LoggedWrite;
pub use logged_acl::LoggedAcl;
pub use record::LogRecord;
pub use rename::{LoggedRename, LoggedWhiteout, RenameKind};
pub use set_attributes::{LoggedAttributes, LoggedExtended, mask};
