//! Volumes (zvols): datasets that are served as block devices.
//!
//! # What is built
//! The intent log that an earlier use of a volume left behind is replayed ([`Volume`] answers the
//! door [`Replay`](tarn_zil::Replay)). Serving volumes is planned.
//!
//! # Knows nothing about
//! Pools, protocols.

mod replay;

pub use replay::{RecordError, Volume};
