//! Volumes: a dataset that is one long row of bytes, for others to put a file system or a database
//! in.
//!
//! # What stands
//! The intent log that an earlier use of a volume left behind is replayed ([`Volume`] answers the
//! door [`Replay`](tarn_zil::Replay)). Serving volumes is planned.
//!
//! # Knows nothing about
//! Pools, protocols.

mod replay;

pub use replay::{RecordError, Volume};
