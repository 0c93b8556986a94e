//! Bytes to bytes: checksums, compression and parity.
//!
//! # Problem
//! Every block of a pool is compressed, checksummed and perhaps spread with parity before it is
//! stored, and the reverse when it is read. All of it is format: one bit of difference from what
//! OpenZFS computes, and a pool cannot be shared with it. All of it is also hot: each byte written
//! passes through here three times.
//!
//! # Mechanism
//! Plain functions from slices to values, without state, I/O or locks, so that a caller may run
//! them on as many processors as it likes:
//!
//! - [`checksum`]: the checksum kinds a block pointer can name, and those embedded in a block
//!   itself.
//! - [`compress`]: the compression kinds a block pointer can name, with their framing.
//! - [`parity`]: RAID-Z rows with one to three parities, and the way back from what is left of
//!   them.
//!
//! Where vector instructions pay (fletcher4 and parity) there is one portable implementation that
//! defines the result, and faster ones picked once by what the processor has. Tests hold all of
//! them against each other.
//!
//! # Invariants
//! - Nothing that comes from a device makes these functions panic or allocate more than the
//!   caller's own sizes call for.
//! - What a function returns depends on its arguments only, never on the processor it runs on.
//!   (Bytes made by a compressor may change with the version of its library; what they mean may
//!   not.)
//!
//! # Knows nothing about
//! block pointers, devices and pools. It uses no other crate of the house.

pub mod checksum;
pub mod compress;
mod error;
pub mod parity;

pub use checksum::{ByteOrder, Checksum, ChecksumAlgorithm, Salt};
pub use compress::{CompressionAlgorithm, GzipLevel, ZstdLevel};
pub use error::{ChecksumError, DecompressError, ParityError, UnknownAlgorithm};
