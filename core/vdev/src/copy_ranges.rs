//! Sequential rebuild of mirrors: ranges of a top-level vdev are copied from devices that have
//! everything to devices that joined and have nothing yet.
//!
//! # Mechanism
//! All devices of a mirror, of `replacing` vdevs in it too, have the same bytes at the same
//! offsets, so ranges need no block pointers. The *sources* are the devices in use whose dirty time
//! log is empty; the *targets* those that joined for a rebuild and miss the first births. Each step
//! of a [`RebuildCopier`] is one batch: it reads the next ranges, from all sources in turn, and
//! writes those of the step before to all targets, so that all devices are busy at once.
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

/// The outcome of a step.
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

/// Copies ranges, each in the step after that which reads it.
#[derive(Debug, Default)]
pub struct RebuildCopier {
    /// What was read, and is not written yet: by offsets of the vdev.
    read: Vec<(u64, WriteData)>,
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

impl RebuildCopier {
    /// Whether something was read and is not written yet.
    pub fn has_read(&self) -> bool {
        !self.read.is_empty()
    }

    /// Writes what the last step has read, and reads these ranges of the vdev. None where no device
    /// in use is to be filled any more.
    #[doc(alias("vdev_rebuild_range", "vdev_rebuild_cb"))]
    pub fn step(
        &mut self,
        tree: &VdevTree,
        vdev: VdevId,
        next: &[Range<u64>],
        operation: &Operation,
    ) -> Option<Copied> {
        let devices = tree.rebuild_devices(vdev)?;
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
        let mut ios = Vec::new();
        let mut writes = Vec::new();
        for (offset, data) in self.read.drain(..) {
            for leaf in &devices.targets {
                writes.push((leaf, widen(data.len())));
                ios.push(LeafIo::write(leaf, on_device(offset), data.clone(), None));
            }
        }
        let share = next.len().div_ceil(devices.sources.len().max(1)).max(1);
        if devices.sources.is_empty() {
            copied.unreadable += widen(next.len());
        } else {
            for (index, range) in next.iter().enumerate() {
                ios.push(read_of(&devices.sources[index / share], range));
            }
        }
        let outcomes = queue::run(ios, IoPriority::Rebuild, operation);
        let mut outcomes = outcomes.into_iter();
        for (leaf, bytes) in writes {
            match outcomes.next().expect("each write has an outcome") {
                Ok(_) => {
                    leaf.note_rebuild_written(bytes);
                    copied.written_bytes += bytes;
                }
                Err(_) => copied.failed.push(leaf.guid),
            }
        }
        for (index, (range, outcome)) in next.iter().zip(outcomes).enumerate() {
            let first = index / share;
            match outcome.or_else(|_| read_elsewhere(&devices.sources, first, range, operation)) {
                Ok(Some(bytes)) => {
                    copied.read_bytes += widen(bytes.len());
                    self.read.push((range.start, WriteData::from(bytes)));
                }
                _ => copied.unreadable += 1,
            }
        }
        Some(copied)
    }
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
