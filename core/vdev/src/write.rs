//! Writing: every copy and every column, to the devices that are in use.
//!
//! # Mechanism
//! All writes of a call become one batch per device, in the order of its surface. Parity is
//! computed first, over all processors. A device that cannot be written is taken out of use if the
//! other devices of its vdev have all its blocks, and the pool goes on. If they do not, its
//! standing stays and the write fails: the pool is suspended. A write of a transaction group then
//! waits for devices ([`suspension`](crate::suspension)); an intent log write fails, and its txg
//! has to store the change.
//!
//! # Invariants
//! - When a write succeeds, each block can be read from devices that are in use.
//! - A leaf that missed a write is not in use and has the birth in its dirty time log, or the write
//!   failed. It becomes whole again only if all that it missed is in memory
//!   ([`suspension`](crate::suspension)), or its vdev is emptied.
//! - When a flush succeeds, all writes before it are durable on every device in use. Flushes of a
//!   pool do not overlap.

use crate::error::{LeafFailure, VdevWriteError};
use crate::health::{Reason, Standing, VdevState};
use crate::layout::{Row, column_offset, with_ranges};
use crate::leaf::Leaf;
use crate::place::PhysicalWrite;
use crate::queue::{self, LeafIo, Outcome, Owner};
use crate::reconstruct;
use crate::suspension::Verdict;
use crate::top::TopVdev;
use crate::tree::VdevTree;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tarn_host::buffer::Buffer;
use tarn_host::device::WriteData;
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::units::{Guid, Txg, VdevId};
use tarn_probe::{Operation, Stage};

/// Writes, divided into the requests to each leaf.
pub(crate) struct PreparedWrites {
    /// The top-level vdevs of the writes.
    pub tops: Vec<Arc<TopVdev>>,
    /// The requests to their leaves.
    pub ios: Vec<LeafIo>,
}

impl VdevTree {
    /// Writes all places, with one batch for each device.
    ///
    /// # Panics
    /// When a place is not on its vdev, or has another size than its data: places are ours.
    ///
    /// # Errors
    /// More leaves failed than redundancy covers, and the pool is being opened; or it was given up.
    pub fn write(
        &self,
        writes: Vec<PhysicalWrite>,
        operation: &Operation,
    ) -> Result<(), VdevWriteError> {
        let is_much = Cell::new(false);
        self.until_devices_are_back(|| {
            let done = self.try_write(writes.clone(), operation);
            // Failed writes are kept as well: resuming the pool writes them first.
            is_much.set(self.keep_unflushed(writes.clone()));
            done
        })?;
        match is_much.get() {
            true => self.flush(operation),
            false => Ok(()),
        }
    }

    /// Writes the right bytes of a place to its devices in use. It gives no error and does not wait
    /// for devices that are gone: errors are counted, and the next read tries again.
    pub fn self_heal(&self, write: PhysicalWrite, operation: &Operation) {
        let vdev = write.place.vdev;
        let Some(top) = self.top(vdev).filter(|_| self.may_self_heal()) else {
            return;
        };
        let tops = BTreeMap::from([(vdev, top)]);
        let mut ios = Vec::new();
        for mapped in self.map(&tops, vec![write], operation) {
            tops[&vdev].add_writes(mapped, &mut ios);
        }
        // Where it fails, the device lacks no more than before.
        ios.iter_mut().for_each(|io| io.birth = None);
        queue::run(ios, queue::write_class(operation), operation);
    }

    /// Repeats a write, a flush or an update of labels until it succeeds, each time after the pool
    /// was suspended and resumed.
    pub(crate) fn until_devices_are_back(
        &self,
        attempt: impl Fn() -> Result<(), VdevWriteError>,
    ) -> Result<(), VdevWriteError> {
        loop {
            let done = {
                let _writing = self.suspension.begin_storing()?;
                attempt()
            };
            match done {
                Err(
                    error @ (VdevWriteError::LostRedundancy { .. }
                    | VdevWriteError::NoLabelWritten
                    | VdevWriteError::LeaseExpired),
                ) if self.suspension.wait(&error) == Verdict::Again => {}
                done => return done,
            }
        }
    }

    /// Writes all places, or fails.
    pub(crate) fn try_write(
        &self,
        writes: Vec<PhysicalWrite>,
        operation: &Operation,
    ) -> Result<(), VdevWriteError> {
        loop {
            let prepared = self.prepare(writes.clone(), operation)?;
            let tops = prepared.tops.clone();
            let done = self.carry_out(prepared, operation);
            // A device that has left may be the only one that had the blocks of one that failed.
            if !self.are_reshaped(&tops) {
                return done;
            }
        }
    }

    /// The requests of these writes to each leaf in use.
    pub(crate) fn prepare(
        &self,
        writes: Vec<PhysicalWrite>,
        operation: &Operation,
    ) -> Result<PreparedWrites, VdevWriteError> {
        if !self.is_writable() {
            return Err(VdevWriteError::ReadOnly);
        }
        let mut tops: BTreeMap<VdevId, Arc<TopVdev>> = BTreeMap::new();
        for write in &writes {
            let vdev = write.place.vdev;
            tops.entry(vdev)
                .or_insert_with(|| self.top(vdev).expect("a place is on a vdev"));
        }
        let involved: Vec<_> = tops.values().cloned().collect();
        self.require_usable(&involved)?;
        for top in &involved {
            self.note_skipped(top, || births_on(top, &writes));
        }
        let mut ios = Vec::new();
        for mapped in self.map(&tops, writes, operation) {
            tops[&mapped.vdev].add_writes(mapped, &mut ios);
        }
        Ok(PreparedWrites {
            tops: involved,
            ios,
        })
    }

    /// Writes, and takes leaves that fail out of use; or fails.
    pub(crate) fn carry_out(
        &self,
        prepared: PreparedWrites,
        operation: &Operation,
    ) -> Result<(), VdevWriteError> {
        let PreparedWrites { tops, ios } = prepared;
        let owners: Vec<Owner> = ios.iter().map(Owner::of).collect();
        let outcomes = queue::run(ios, queue::write_class(operation), operation);
        let standing = Standing::because(VdevState::Faulted, Reason::ErrorsExceeded);
        self.judge(&tops, &owners, outcomes, standing)?;
        self.require_usable(&tops)
    }

    /// Fails where a top-level vdev is unavailable. For a log vdev, too: the pool can do without
    /// it, but a write to it would not be durable.
    fn require_usable(&self, tops: &[Arc<TopVdev>]) -> Result<(), VdevWriteError> {
        match tops.iter().find(|top| !top.standing().state.is_usable()) {
            Some(top) => Err(Self::lost(top, Vec::new())),
            None => Ok(()),
        }
    }

    /// Flushes all devices with unflushed writes. A leaf whose flush fails is taken out of use.
    ///
    /// # Errors
    /// More leaves are out of use than redundancy covers, and the pool is being opened or was given
    /// up.
    pub fn flush(&self, operation: &Operation) -> Result<(), VdevWriteError> {
        self.until_devices_are_back(|| self.try_flush(operation))
    }

    /// Flushes all devices with unflushed writes, or fails.
    pub(crate) fn try_flush(&self, operation: &Operation) -> Result<(), VdevWriteError> {
        // A flush under way has already marked its devices as flushed: another must not rely on
        // that.
        let _turn = self.flushing.lock();
        let kept = self.kept();
        loop {
            let tops = self.tops();
            let done = self.flush_all(&tops, operation);
            if !self.are_reshaped(&tops) {
                done?;
                // Blocks of a log vdev are in memory, too.
                let with_data = tops.into_iter();
                let with_data = with_data.filter(|top| top.holds_data() && !top.is_log);
                self.require_usable(&with_data.collect::<Vec<_>>())?;
                self.flushed(&kept);
                return Ok(());
            }
        }
    }

    fn flush_all(
        &self,
        tops: &[Arc<TopVdev>],
        operation: &Operation,
    ) -> Result<(), VdevWriteError> {
        let leaves = tops.iter().flat_map(|top| &top.leaves);
        let dirty: Vec<Arc<Leaf>> = leaves
            .filter(|leaf| leaf.is_usable() && leaf.has_unflushed())
            .cloned()
            .collect();
        let unflushed: Vec<_> = dirty.iter().map(|leaf| leaf.begin_flush()).collect();
        let ios = dirty.iter().map(LeafIo::flush).collect();
        let outcomes = queue::run(ios, queue::write_class(operation), operation);
        for ((leaf, unflushed), outcome) in dirty.iter().zip(unflushed).zip(&outcomes) {
            if outcome.is_err() {
                leaf.flush_failed(unflushed);
            }
        }
        let standing = Standing::because(VdevState::Faulted, Reason::IoFailure);
        let owners: Vec<Owner> = dirty.into_iter().map(Owner::of_flush).collect();
        self.judge(tops, &owners, outcomes, standing)
    }

    /// Writes all places and flushes their devices: the intent log write. The calling thread does
    /// it where the device allows. Other threads may write and flush meanwhile: this call flushes
    /// by itself after its own writes. The writes are not kept in memory for devices that come
    /// back: a device that missed them is not taken back as whole.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    ///
    /// # Errors
    /// More leaves failed than redundancy covers, or devices are being opened again: which of the
    /// writes are stored is unknown.
    pub fn write_durably(
        &self,
        writes: Vec<PhysicalWrite>,
        operation: &Operation,
    ) -> Result<(), VdevWriteError> {
        let mut vdevs: Vec<VdevId> = writes.iter().map(|write| write.place.vdev).collect();
        vdevs.sort_unstable();
        vdevs.dedup();
        let _writing = self.suspension.begin_log_write()?;
        let tops = loop {
            self.try_write(writes.clone(), operation)?;
            let tops = vdevs
                .iter()
                .map(|vdev| self.top(*vdev).expect("a place is on a vdev"));
            let tops: Vec<Arc<TopVdev>> = tops.collect();
            self.flush_usable(&tops, operation)?;
            if !self.are_reshaped(&tops) {
                break tops;
            }
        };
        // These writes are not kept in memory: a device that missed them does not get them when it
        // is taken back.
        let lacks_leaf = |top: &&Arc<TopVdev>| top.leaves.iter().any(|leaf| !leaf.is_usable());
        for top in tops.iter().filter(lacks_leaf) {
            let births = births_on(top, &writes);
            for leaf in &top.leaves {
                if leaf.note_not_kept(&births) {
                    self.note_change();
                }
            }
        }
        Ok(())
    }

    /// Flushes all devices in use of these vdevs.
    fn flush_usable(
        &self,
        tops: &[Arc<TopVdev>],
        operation: &Operation,
    ) -> Result<(), VdevWriteError> {
        self.require_usable(tops)?;
        let leaves = tops.iter().flat_map(|top| &top.leaves);
        let written: Vec<Arc<Leaf>> = leaves.filter(|leaf| leaf.is_usable()).cloned().collect();
        let outcomes = match written.as_slice() {
            [leaf] => vec![queue::flush_here(leaf, operation)],
            _ => {
                let ios = written.iter().map(LeafIo::flush).collect();
                queue::run(ios, queue::write_class(operation), operation)
            }
        };
        let standing = Standing::because(VdevState::Faulted, Reason::IoFailure);
        let owners: Vec<Owner> = written.into_iter().map(Owner::of_flush).collect();
        self.judge(tops, &owners, outcomes, standing)?;
        self.require_usable(tops)
    }

    /// Whether a vdev is there for the intent log.
    pub fn is_log(&self, vdev: VdevId) -> bool {
        self.top(vdev).is_some_and(|top| top.is_log)
    }

    /// Whether a write may store only the start of a place: not on RAID-Z, where the rows of a
    /// block depend on its size.
    pub fn may_write_part(&self, vdev: VdevId) -> bool {
        self.top(vdev).is_some_and(|top| {
            top.layout
                .as_ref()
                .is_ok_and(|layout| layout.has_prefixes())
        })
    }

    /// Takes failed leaves out of use, or fails where the other leaves of their vdev do not have
    /// all their blocks.
    pub(crate) fn judge(
        &self,
        tops: &[Arc<TopVdev>],
        owners: &[Owner],
        outcomes: Vec<Outcome>,
        standing: Standing,
    ) -> Result<(), VdevWriteError> {
        let mut failed: BTreeMap<Guid, Failed> = BTreeMap::new();
        for (owner, outcome) in owners.iter().zip(outcomes) {
            if let Err(failure) = outcome {
                if failure.is_lease_expired() {
                    // Devices stay as they are: nothing was asked of them.
                    return Err(VdevWriteError::LeaseExpired);
                }
                let failed = failed.entry(owner.leaf.guid);
                let failed = failed.or_insert_with(|| Failed::new(failure));
                failed.births.extend(owner.birth);
            }
        }
        for top in tops {
            let mut devices = Vec::new();
            for leaf in &top.leaves {
                if let Some(Failed { failure, births }) = failed.remove(&leaf.guid) {
                    if failure.is_answer() {
                        let _ = leaf.probe();
                    }
                    let standing = if failure.is_gone() {
                        Standing {
                            state: VdevState::Removed,
                            reason: None,
                        }
                    } else {
                        standing
                    };
                    match self.retire(top, leaf, standing) {
                        true => births.into_iter().for_each(|birth| leaf.note_missed(birth)),
                        false => {
                            leaf.note_failed();
                            devices.push(failure);
                        }
                    }
                }
            }
            if !devices.is_empty() {
                return Err(Self::lost(top, devices));
            }
        }
        assert!(
            failed.is_empty(),
            "requests go to leaves of the vdevs that are judged"
        );
        Ok(())
    }

    /// Counts a write error that redundancy does not cover, and describes it.
    fn lost(top: &TopVdev, mut devices: Vec<LeafFailure>) -> VdevWriteError {
        top.errors.count_write();
        let unusable = top.leaves.iter().filter(|leaf| !leaf.is_usable());
        devices.extend(unusable.map(|leaf| leaf.not_usable()));
        VdevWriteError::LostRedundancy {
            vdev: top.id,
            name: top.name.clone(),
            devices,
        }
    }

    /// The rows of each write. Where there is parity, it is computed on all processors.
    fn map(
        &self,
        tops: &BTreeMap<VdevId, Arc<TopVdev>>,
        writes: Vec<PhysicalWrite>,
        operation: &Operation,
    ) -> Vec<MappedWrite> {
        let map = |write: PhysicalWrite| tops[&write.place.vdev].map(write);
        let has_parity = |top: &Arc<TopVdev>| {
            let layout = top.layout.as_ref();
            layout.is_ok_and(|layout| layout.parity() > 0)
        };
        if !tops.values().any(has_parity) {
            return writes.into_iter().map(map).collect();
        }
        let _timer = operation.stage(Stage::Transform);
        self.host.compute().map(writes, map)
    }
}

/// The failed writes of a leaf.
struct Failed {
    failure: LeafFailure,
    /// The births of the blocks that were not written.
    births: BTreeSet<Txg>,
}

impl Failed {
    fn new(failure: LeafFailure) -> Failed {
        Failed {
            failure,
            births: BTreeSet::new(),
        }
    }
}

/// The births of what is written to a vdev.
fn births_on(top: &TopVdev, writes: &[PhysicalWrite]) -> Vec<Txg> {
    let here = writes.iter().filter(|write| write.place.vdev == top.id);
    let births: BTreeSet<Txg> = here.map(|write| write.place.birth).collect();
    births.into_iter().collect()
}

/// A write with the rows of its block.
struct MappedWrite {
    vdev: VdevId,
    birth: Txg,
    /// The block, in whole sectors.
    data: Arc<Buffer>,
    /// Each row with its parity.
    rows: Vec<(Row, Vec<Buffer>)>,
}

/// The data, with zeros up to the end of the last sector.
fn zero_extended(data: &[u8], size: usize) -> Buffer {
    let mut buffer = Buffer::zeroed(size);
    buffer[..data.len()].copy_from_slice(data);
    buffer
}

impl TopVdev {
    /// Divides a write into rows, and computes their parity.
    ///
    /// # Panics
    /// When the place is not on this vdev, or has another size than its data.
    fn map(&self, write: PhysicalWrite) -> MappedWrite {
        let PhysicalWrite { mut place, data } = write;
        assert_eq!(
            widen(data.len()),
            place.size,
            "a place has the size of its data"
        );
        let Ok(layout) = &self.layout else {
            panic!("nothing is placed on a vdev that holds nothing")
        };
        assert!(
            place.offset.get() + layout.allocated_size(place.size).get() <= self.asize.get(),
            "a place is on its vdev"
        );
        debug_assert!(
            place.offset.is_multiple_of(self.sector_bytes()),
            "a place begins at a sector"
        );
        place.size = place.size.next_multiple_of(self.sector_bytes());
        let size = narrow(place.size);
        let data = match data.len() == size {
            true => data,
            false => Arc::new(zero_extended(&data, size)),
        };
        let rows = layout.rows(&place);
        debug_assert_eq!(
            rows.iter().map(Row::data_size).sum::<usize>(),
            size,
            "the data columns have the bytes of the block"
        );
        let parity_of = |(row, range): (&Row, std::ops::Range<usize>)| match row.parity {
            0 => Vec::new(),
            _ => reconstruct::parity_of(row, &data[range]),
        };
        let parity: Vec<_> = with_ranges(&rows).map(parity_of).collect();
        MappedWrite {
            vdev: self.id,
            birth: place.birth,
            rows: rows.into_iter().zip(parity).collect(),
            data,
        }
    }

    /// The requests that store one block, to the leaves in use.
    ///
    /// # Panics
    /// As [`map`](Self::map).
    pub(crate) fn writes_of(&self, write: PhysicalWrite) -> Vec<LeafIo> {
        let mut ios = Vec::new();
        self.add_writes(self.map(write), &mut ios);
        ios
    }

    /// The requests that store a block, to the leaves in use.
    fn add_writes(&self, write: MappedWrite, ios: &mut Vec<LeafIo>) {
        let MappedWrite {
            birth, data, rows, ..
        } = write;
        let layout = self.layout.as_ref();
        let layout = layout.expect("a vdev on which a write was mapped has a layout");
        let mut start = 0;
        for (row, parity) in rows {
            assert_eq!(
                parity.len(),
                row.parity,
                "each parity column of a row was computed"
            );
            let parity = parity.into_iter().map(WriteData::from);
            let parts = row
                .data_ranges()
                .map(|range| WriteData::part(data.clone(), range.start + start..range.end + start));
            for (column, part) in row.columns.iter().zip(parity.chain(parts)) {
                let offset = column_offset(*column);
                let leaves = layout.children()[column.child].iter();
                let leaves = leaves.map(|&leaf| &self.leaves[leaf]);
                for leaf in leaves.filter(|leaf| leaf.is_usable()) {
                    ios.push(LeafIo::write(leaf, offset, part.clone(), Some(birth)));
                }
            }
            start += row.data_size();
        }
        assert_eq!(start, data.len(), "the rows have all bytes of the block");
    }
}
