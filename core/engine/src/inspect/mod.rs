//! Looking into a pool without changing it: what `zdb` shows.
//!
//! # Mechanism
//! The devices are opened read-only, beside whoever uses the pool, and no daemon is asked: an [`Inspection`] has a pool of its own in
//! memory, as of the newest uberblock when it was opened. What a look finds is given as plain facts ([`label`]), or to a visitor
//! ([`visit`]); a command makes text of them.
//!
//! # Invariants
//! - Nothing is written, to no device and no file.
//! - A pool in use changes below us: blocks freed since the pool was opened may be written anew. What then cannot be read is reported, as
//!   everything that cannot be.

mod error;
pub mod label;
mod open;
pub mod visit;

pub use error::{BAD_CHECKSUM, DEVICE_ERROR, InspectError, errno_of};
pub use open::{Inspection, Source};
