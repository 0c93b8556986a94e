//! Writing: every copy and every column, as far as devices last.
//!
//! # Mechanism
//! All writes of a call become one batch per device, in the order of its surface. Parity is computed
//! first, over all processors. A device that cannot be written is taken out of use if the others of its
//! vdev cover what it has, and the pool goes on; if they do not, it stays as it is and the call fails, for
//! then only a person can help. Who stores a group waits until that has happened ([`suspension`](crate::suspension)); who writes to the log fails, and the group has to do it.
//!
//! # Invariants
//! - When a write succeeds, each block can be read from devices that are in use.
//! - A leaf that missed a write is not in use, or the write failed. It comes back into use whole only if all that it missed is kept ([`suspension`](crate::suspension)).
//! - When a flush succeeds, all that was written before it is durable on every device in use. One follows the other.

use crate::error::{LeafFailure, VdevWriteError};
use crate::health::{Reason, Standing, VdevState};
use crate::leaf::Leaf;
use crate::queue::{self, LeafIo, Outcome};
use crate::raidz;
use crate::raidz_map::RaidzMap;
use crate::read::Place;
use crate::suspension::Verdict;
use crate::tree::{Layout, TopVdev, VdevTree};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use tarn_host::buffer::Buffer;
use tarn_host::device::{Request, WriteData};
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::label::device_offset;
use tarn_ondisk::units::{VdevId, VdevOffset};
use tarn_probe::{Operation, Stage};

/// Bytes for a place.
#[derive(Debug, Clone)]
pub struct PhysicalWrite {
    /// Where.
    pub place: Place,
    /// What. As many bytes as the place has.
    pub data: Arc<Buffer>,
}

/// Writes, taken apart into what each leaf gets of them.
pub(crate) struct PreparedWrites {
    /// The vdevs that places are on.
    pub tops: Vec<Arc<TopVdev>>,
    /// What their leaves get.
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
            // Also what has failed: whoever says that devices are back tries it first.
            is_much.set(self.keep_unflushed(writes.clone()));
            done
        })?;
        match is_much.get() {
            true => self.flush(operation),
            false => Ok(()),
        }
    }

    /// Writes a place anew where wrong bytes were read, as far as devices take them. Nothing is promised and nobody waits for devices that are gone: an
    /// error is counted, and who reads there again tries again.
    pub fn mend(&self, write: PhysicalWrite, operation: &Operation) {
        let vdev = write.place.vdev;
        let Some(top) = self.top(vdev).filter(|_| self.may_repair()) else {
            return;
        };
        let tops = BTreeMap::from([(vdev, top)]);
        let rows = self.rows(&tops, std::slice::from_ref(&write), operation);
        let mut ios = Vec::new();
        for row in rows {
            tops[&vdev].add_writes(write.clone(), row, &mut ios);
        }
        queue::run(ios, queue::write_class(operation), operation);
    }

    /// Does something that stores, and once more as often as devices come back that it lacked.
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
                    error
                    @ (VdevWriteError::LostRedundancy { .. } | VdevWriteError::NoLabelWritten),
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
            // A device that has left may be all that covers one that failed.
            if !self.are_reshaped(&tops) {
                return done;
            }
        }
    }

    /// What writing all places asks of each leaf in use.
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
        involved.iter().for_each(|top| self.note_skipped(top));
        let rows = self.rows(&tops, &writes, operation);
        let mut ios = Vec::new();
        for (write, row) in writes.into_iter().zip(rows) {
            tops[&write.place.vdev].add_writes(write, row, &mut ios);
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
        let owners: Vec<Arc<Leaf>> = ios.iter().map(|io| io.leaf.clone()).collect();
        let outcomes = queue::run(ios, queue::write_class(operation), operation);
        let standing = Standing::because(VdevState::Faulted, Reason::ErrorsExceeded);
        self.judge(&tops, &owners, outcomes, standing)?;
        self.require_usable(&tops)
    }

    /// Fails where a vdev was lost altogether: a pool can do without its log devices, but what was to be written there is not durable.
    fn require_usable(&self, tops: &[Arc<TopVdev>]) -> Result<(), VdevWriteError> {
        match tops.iter().find(|top| !top.standing().state.is_usable()) {
            Some(top) => Err(self.lost(top, Vec::new())),
            None => Ok(()),
        }
    }

    /// Makes durable what was written. A leaf that cannot is taken out of use.
    ///
    /// # Errors
    /// More leaves are out of use than redundancy covers, and the pool is being opened or was given up.
    pub fn flush(&self, operation: &Operation) -> Result<(), VdevWriteError> {
        self.until_devices_are_back(|| self.try_flush(operation))
    }

    /// Makes durable what was written, or fails.
    pub(crate) fn try_flush(&self, operation: &Operation) -> Result<(), VdevWriteError> {
        // A flush under way has taken its devices for flushed: who comes meanwhile must not believe that.
        let _turn = self.flushing.lock();
        let kept = self.kept();
        loop {
            let tops = self.tops();
            let done = self.flush_all(&tops, operation);
            if !self.are_reshaped(&tops) {
                done?;
                // What is on a log vdev is in memory, too.
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
        for leaf in &dirty {
            // Before, not after: what is written meanwhile is not covered.
            leaf.set_unflushed(false);
        }
        let ios = dirty.iter().map(LeafIo::flush).collect();
        let outcomes = queue::run(ios, queue::write_class(operation), operation);
        for (leaf, outcome) in dirty.iter().zip(&outcomes) {
            if outcome.is_err() {
                leaf.set_unflushed(true);
            }
        }
        let standing = Standing::because(VdevState::Faulted, Reason::IoFailure);
        self.judge(tops, &dirty, outcomes, standing)
    }

    /// Writes all places and makes them durable, in the calling thread as far as devices let it. Others may write and flush
    /// meanwhile: what counts is a flush of our own, after our own writes. It is durable then, and so not kept for devices that come back: one that missed it
    /// is not taken back as whole.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    ///
    /// # Errors
    /// More leaves failed than redundancy covers, or devices are being opened again: nobody knows what of it is stored.
    pub fn write_durably(
        &self,
        writes: Vec<PhysicalWrite>,
        operation: &Operation,
    ) -> Result<(), VdevWriteError> {
        let mut vdevs: Vec<VdevId> = writes.iter().map(|write| write.place.vdev).collect();
        vdevs.sort_unstable();
        vdevs.dedup();
        let _writing = self.suspension.begin_promising()?;
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
        // Nobody keeps it: who has it not by now does not get it.
        for leaf in tops.iter().flat_map(|top| &top.leaves) {
            if leaf.note_not_kept() {
                self.note_change();
            }
        }
        Ok(())
    }

    /// Flushes all devices of vdevs that are in use, whatever else was written to them.
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
        self.judge(tops, &written, outcomes, standing)?;
        self.require_usable(tops)
    }

    /// Whether less than the whole of a place may be written, and read with the whole: not where the rows of a block depend
    /// on its size.
    pub fn may_write_part(&self, vdev: VdevId) -> bool {
        self.top(vdev)
            .is_some_and(|top| matches!(top.layout, Layout::Copies))
    }

    /// Takes leaves that failed out of use, or fails where their vdev cannot do without them.
    pub(crate) fn judge(
        &self,
        tops: &[Arc<TopVdev>],
        owners: &[Arc<Leaf>],
        outcomes: Vec<Outcome>,
        standing: Standing,
    ) -> Result<(), VdevWriteError> {
        let mut failed: BTreeMap<tarn_ondisk::units::Guid, LeafFailure> = BTreeMap::new();
        for (leaf, outcome) in owners.iter().zip(outcomes) {
            if let Err(failure) = outcome {
                failed.entry(leaf.guid).or_insert(failure);
            }
        }
        for top in tops {
            let mut devices = Vec::new();
            for leaf in &top.leaves {
                if let Some(failure) = failed.remove(&leaf.guid) {
                    let standing = if failure.is_gone() {
                        Standing {
                            state: VdevState::Removed,
                            reason: None,
                        }
                    } else {
                        standing
                    };
                    if !self.retire(top, leaf, standing) {
                        leaf.note_failed();
                        devices.push(failure);
                    }
                }
            }
            if !devices.is_empty() {
                return Err(self.lost(top, devices));
            }
        }
        Ok(())
    }

    /// Counts and describes what redundancy could not cover.
    fn lost(&self, top: &TopVdev, mut devices: Vec<LeafFailure>) -> VdevWriteError {
        top.errors.count_write();
        if !top.is_log {
            self.errors.count_write();
        }
        let unusable = top.leaves.iter().filter(|leaf| !leaf.is_usable());
        devices.extend(unusable.map(|leaf| leaf.not_usable()));
        VdevWriteError::LostRedundancy {
            vdev: top.id,
            name: top.name.clone(),
            devices,
        }
    }

    /// The map and the parity of each write that goes to a RAID-Z, computed over all processors.
    fn rows(
        &self,
        tops: &BTreeMap<VdevId, Arc<TopVdev>>,
        writes: &[PhysicalWrite],
        operation: &Operation,
    ) -> Vec<Option<(RaidzMap, Vec<Buffer>)>> {
        let row = |write: &PhysicalWrite| {
            let Layout::Raidz { shape, .. } = &tops[&write.place.vdev].layout else {
                return None;
            };
            let map = shape.map(write.place.offset, rounded(&tops[&write.place.vdev], write));
            let parity = match map.data_ranges().last() {
                Some(last) if last.end <= write.data.len() => raidz::parity_of(&map, &write.data),
                _ => raidz::parity_of(&map, &padded(&map, &write.data)),
            };
            Some((map, parity))
        };
        let is_raidz = |top: &Arc<TopVdev>| matches!(top.layout, Layout::Raidz { .. });
        if !tops.values().any(is_raidz) {
            return writes.iter().map(|_| None).collect();
        }
        let _timer = operation.stage(Stage::Transform);
        self.host.compute().map(writes.iter().collect(), row)
    }
}

fn rounded(top: &TopVdev, write: &PhysicalWrite) -> u64 {
    assert_eq!(
        widen(write.data.len()),
        write.place.size,
        "a place has the size of its data"
    );
    write.place.size.next_multiple_of(top.sector_bytes())
}

/// The data, with zeros up to the end of the last sector.
fn padded(map: &RaidzMap, data: &[u8]) -> Buffer {
    let size = map.data().iter().map(|column| column.size).sum();
    zero_extended(data, size)
}

fn zero_extended(data: &[u8], size: usize) -> Buffer {
    let mut buffer = Buffer::zeroed(size);
    buffer[..data.len()].copy_from_slice(data);
    buffer
}

impl TopVdev {
    /// The requests that store a block, to the leaves in use.
    fn add_writes(
        &self,
        write: PhysicalWrite,
        row: Option<(RaidzMap, Vec<Buffer>)>,
        ios: &mut Vec<LeafIo>,
    ) {
        let PhysicalWrite { place, data } = write;
        let size = narrow(place.size.next_multiple_of(self.sector_bytes()));
        assert!(
            place.offset.get() + self.allocated_size(place.size).get() <= self.asize.get(),
            "a place is on its vdev"
        );
        let data = if data.len() == size {
            data
        } else {
            Arc::new(zero_extended(&data, size))
        };
        match (&self.layout, row) {
            (Layout::Copies, _) => {
                let offset = device_offset(place.offset).expect("a place is on its vdev");
                for leaf in self.leaves.iter().filter(|leaf| leaf.is_usable()) {
                    let request = Request::write(offset, data.clone());
                    ios.push(LeafIo {
                        leaf: leaf.clone(),
                        request,
                    });
                }
            }
            (Layout::Raidz { columns, .. }, Some((map, parity))) => {
                let parity = parity.into_iter().map(WriteData::from);
                let parts = map
                    .data_ranges()
                    .map(|range| WriteData::part(data.clone(), range));
                let parts = parity.chain(parts);
                for (column, part) in map.columns.iter().zip(parts) {
                    let offset = device_offset(VdevOffset::from(column.offset));
                    let offset = offset.expect("a place is on its vdev");
                    let copies = columns[column.child].iter().map(|&copy| &self.leaves[copy]);
                    for leaf in copies.filter(|leaf| leaf.is_usable()) {
                        let request = Request::write(offset, part.clone());
                        ios.push(LeafIo {
                            leaf: leaf.clone(),
                            request,
                        });
                    }
                }
            }
            _ => panic!("nothing is placed on a vdev that holds nothing"),
        }
    }
}
