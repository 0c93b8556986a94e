//! Reading a pool without changing it: what `zdb` shows.
//!
//! # Mechanism
//! The devices are opened read-only, even while a daemon or a kernel uses the pool, and no daemon
//! is asked: an [`Inspection`] has a pool of its own in memory, as of the newest uberblock when it
//! was opened. Labels are returned as plain values ([`label`]), blocks go to a visitor ([`visit`]);
//! the command makes text of them.
//!
//! # Invariants
//! - Nothing is written to a device or file.
//! - A pool in use changes meanwhile: blocks freed since the pool was opened may be overwritten.
//!   The reads that fail then are reported like all others.

mod error;
pub mod label;
mod open;
pub mod visit;

pub use error::{BAD_CHECKSUM, DEVICE_ERROR, InspectError, errno_of};
pub use open::{Inspection, Source};
