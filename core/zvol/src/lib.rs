//! Volumes: datasets with one object of data, which clients use as a block device.
//!
//! # What stands
//! At import the intent log of a volume is replayed: [`Volume`] answers the door
//! [`Replay`](tarn_zil::Replay). Serving volumes is planned.
//!
//! # Knows nothing about
//! Pools, protocols.

mod replay;

pub use replay::{RecordError, Volume};
