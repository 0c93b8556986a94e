//! Errors that were found and are not stored yet.

use std::collections::BTreeMap;
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::error_log::ErrorPlace;
use tarn_ondisk::units::Txg;

/// The places, with the births of the blocks.
const FOUND: Rank = Rank::new(tarn_host::ranks::POOL + 48, "errors found");

/// The places of blocks that could not be read, with the births of the blocks.
pub(crate) struct FoundErrors(pub(crate) Mutex<BTreeMap<ErrorPlace, Txg>>);

impl FoundErrors {
    pub(crate) fn new() -> FoundErrors {
        FoundErrors(Mutex::new(FOUND, BTreeMap::new()))
    }
}
