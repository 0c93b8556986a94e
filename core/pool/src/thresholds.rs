//! The thresholds of the fault manager that properties of vdevs set, as they are in memory.

use std::collections::BTreeMap;
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::units::Guid;

/// The thresholds of vdevs.
const THRESHOLDS: Rank = Rank::new(tarn_host::ranks::POOL + 22, "thresholds of vdevs");

/// The thresholds that are set, by vdev and name.
pub(crate) struct Thresholds(pub(crate) Mutex<BTreeMap<(Guid, &'static str), u64>>);

impl Thresholds {
    pub(crate) fn new() -> Thresholds {
        Thresholds(Mutex::new(THRESHOLDS, BTreeMap::new()))
    }
}
