//! Sequential rebuild of mirrors: ranges of a top-level vdev are copied from devices that have
//! everything to devices that joined and have nothing yet.
//!
//! # Mechanism
//! All devices of a mirror, of `replacing` vdevs in it too, have the same bytes at the same
//! offsets, so ranges need no block pointers. The *sources* are the devices in use whose dirty time
//! log is empty; the *targets* those that joined for a rebuild and miss the first births. Ranges
//! are read in one batch, from all sources in turn, and written in another to all targets. All
//! devices are busy at once while several threads copy.
//!
//! # Invariants
//! - Nothing is read from a device that misses any birth, and nothing is written to a device that
//!   may have the only good copy of a block.
//! - A range that was not read from a source is not written: it is counted.
//!
//! # Knows nothing about
//! what is allocated, and checksums. The caller names ranges whose blocks are not being written,
//! and a scrub verifies the copies.

use crate::leaf::Leaf;
use crate::queue::{self, LeafIo, Outcome};
use crate::top::TopVdev;
use crate::tree::VdevTree;
use crate::{Dtl, VdevConfig};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use tarn_host::device::WriteData;
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::label::device_offset;
use tarn_ondisk::units::{Guid, Txg, VdevId, VdevOffset};
use tarn_probe::{IoPriority, Operation};

/// The devices of a rebuild.
struct Devices {
    sources: Vec<Arc<Leaf>>,
    targets: Vec<Arc<Leaf>>,
}

/// The outcome of copying some ranges.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written, over all targets.
    pub written_bytes: u64,
    /// Ranges that no source could read.
    pub unreadable: u64,
    /// Targets that could not be written, once for each range.
    pub failed: Vec<Guid>,
}

impl VdevTree {
    /// The devices in use of a vdev that wait to be filled by a rebuild. Empty where there are
    /// none, or the vdev is no mirror.
    pub fn rebuild_targets(&self, vdev: VdevId) -> Vec<Guid> {
        let devices = self.rebuild_devices(vdev);
        let targets = devices.iter().flat_map(|devices| &devices.targets);
        targets.map(|leaf| leaf.guid).collect()
    }

    /// The first and the last birth that the devices miss that a rebuild of this vdev would fill.
    pub fn births_to_rebuild(&self, vdev: VdevId) -> Option<RangeInclusive<Txg>> {
        let devices = self.rebuild_devices(vdev)?;
        let bounds = devices
            .targets
            .iter()
            .filter_map(|leaf| leaf.dtl().bounds());
        bounds.reduce(|known, missed| {
            *known.start().min(missed.start())..=*known.end().max(missed.end())
        })
    }

    /// Ends a rebuild in which all ranges were copied: births after `after` and before `end` leave
    /// the dirty time logs of the devices that it filled. A device with a later birth in its log
    /// was out of use meanwhile, and keeps all.
    #[doc(alias = "vdev_dtl_should_excise")]
    pub fn end_rebuild(&self, vdev: VdevId, (after, end): (Txg, Txg)) {
        let devices = self.rebuild_devices(vdev);
        for leaf in devices.iter().flat_map(|devices| &devices.targets) {
            if leaf.end_scan((after, end), &Dtl::new()) {
                self.note_change();
            }
        }
    }

    fn rebuild_devices(&self, vdev: VdevId) -> Option<Devices> {
        let top = self.top(vdev).filter(|top| is_mirrored(top))?;
        let config = self.config();
        let config = config.children.get(vdev.index())?;
        let joined = |leaf: &Leaf| {
            let config = config.find(leaf.guid);
            config.and_then(VdevConfig::rebuild_txg).is_some()
        };
        let usable = || top.leaves.iter().filter(|leaf| leaf.is_usable());
        let targets = usable().filter(|leaf| joined(leaf) && leaf.misses(Txg::INITIAL));
        let sources = usable().filter(|leaf| leaf.is_whole());
        Some(Devices {
            sources: sources.cloned().collect(),
            targets: targets.cloned().collect(),
        })
    }
}

/// Whether all devices have the same bytes.
fn is_mirrored(top: &TopVdev) -> bool {
    let layout = top.layout.as_ref();
    top.holds_data() && layout.is_ok_and(|layout| layout.children().len() == 1)
}

impl VdevTree {
    /// Copies these ranges of the vdev. None where no device in use is to be filled any more.
    #[doc(alias("vdev_rebuild_range", "vdev_rebuild_cb"))]
    pub fn copy_ranges(
        &self,
        vdev: VdevId,
        ranges: &[Range<u64>],
        operation: &Operation,
    ) -> Option<Copied> {
        let devices = self.rebuild_devices(vdev)?;
        if devices.targets.is_empty() {
            return None;
        }
        debug_assert!(
            devices
                .sources
                .iter()
                .all(|leaf| devices.targets.iter().all(|other| other.guid != leaf.guid)),
            "no device is read and filled"
        );
        let mut copied = Copied::default();
        let read = read_all(&devices.sources, ranges, operation);
        copied.unreadable = widen(ranges.len() - read.len());
        copied.read_bytes = read.iter().map(|(_, data)| widen(data.len())).sum();
        let each = read
            .iter()
            .flat_map(|read| devices.targets.iter().map(move |leaf| (leaf, read)));
        let writes = each
            .clone()
            .map(|(leaf, (at, data))| LeafIo::write(leaf, on_device(*at), data.clone(), None));
        let outcomes = queue::run(writes.collect(), IoPriority::Rebuild, operation);
        for ((leaf, (_, data)), outcome) in each.zip(outcomes) {
            let bytes = widen(data.len());
            match outcome {
                Ok(_) => {
                    leaf.note_rebuild_written(bytes);
                    copied.written_bytes += bytes;
                }
                Err(_) => copied.failed.push(leaf.guid),
            }
        }
        Some(copied)
    }
}

/// Reads ranges, each with its offset in the vdev; those that no source has are left out.
fn read_all(
    sources: &[Arc<Leaf>],
    ranges: &[Range<u64>],
    operation: &Operation,
) -> Vec<(u64, WriteData)> {
    if sources.is_empty() {
        return Vec::new();
    }
    let share = ranges.len().div_ceil(sources.len()).max(1);
    let numbered = ranges.iter().enumerate();
    let ios = numbered
        .clone()
        .map(|(index, range)| read_of(&sources[index / share], range));
    let outcomes = queue::run(ios.collect(), IoPriority::Rebuild, operation);
    let mut read = Vec::with_capacity(ranges.len());
    for ((index, range), outcome) in numbered.zip(outcomes) {
        let first = index / share;
        let outcome = outcome.or_else(|_| read_elsewhere(sources, first, range, operation));
        if let Ok(Some(bytes)) = outcome {
            read.push((range.start, WriteData::from(bytes)));
        }
    }
    read
}

/// Reads a range from one source after the other, but for one that failed.
fn read_elsewhere(
    sources: &[Arc<Leaf>],
    failed: usize,
    range: &Range<u64>,
    operation: &Operation,
) -> Outcome {
    let mut outcome = Ok(None);
    for (index, leaf) in sources.iter().enumerate() {
        if index == failed {
            continue;
        }
        let ios = vec![read_of(leaf, range)];
        let mut outcomes = queue::run(ios, IoPriority::Rebuild, operation);
        outcome = outcomes.pop().expect("one request has one outcome");
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn read_of(leaf: &Arc<Leaf>, range: &Range<u64>) -> LeafIo {
    assert!(range.start < range.end, "a range that is copied has bytes");
    LeafIo::read(
        leaf,
        on_device(range.start),
        narrow(range.end - range.start),
    )
}

fn on_device(offset: u64) -> u64 {
    device_offset(VdevOffset::new(offset)).expect("an allocated range is within the vdev")
}
