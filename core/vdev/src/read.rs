//! Reading: whatever it takes, until the bytes verify.
//!
//! # Mechanism
//! All requests of a call become one batch over all devices: of copies the best one, of a RAID-Z row the
//! data columns, and as much parity as columns are known to be missing. Nearly always that is the end of it. A
//! request that does not verify is then worked on alone, with ever more effort: the other copies one after
//! the other; all parity, and every supposition about which columns lie; and at last the devices that
//! missed writes, whose bytes may still be good for this block.
//!
//! A device whose bytes were wrong is counted, and written again with the right ones.
//!
//! # Invariants
//! - What is handed out was accepted by `verify`.
//! - A repair writes only bytes of a block that verified, and only where this block is and nobody writes another one.

use crate::error::{LeafFailure, VdevReadError};
use crate::leaf::Leaf;
use crate::mirror;
use crate::queue::{self, LeafIo, Outcome};
use crate::raidz::{self, Solved};
use crate::raidz_map::{RaidzMap, RaidzShape};
use crate::tree::{Layout, TopVdev, VdevTree};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tarn_host::buffer::Buffer;
use tarn_host::device::{Request, WriteData};
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::label::device_offset;
use tarn_ondisk::units::{AllocatedSize, Guid, VdevId, VdevOffset};
use tarn_probe::{Operation, OperationKind, Outcome as Happened};

/// Where the bytes of a block are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The index of the top-level vdev.
    pub vdev: VdevId,
    /// Where on it, as block pointers count.
    pub offset: VdevOffset,
    /// How many bytes, without parity.
    pub size: u64,
}

/// Says whether bytes are the ones that were written.
pub type Verify<'a> = dyn Fn(&[u8]) -> bool + Sync + 'a;

/// Says whether a place may be repaired with the bytes that were written there.
pub type Settled<'a> = dyn Fn() -> bool + Sync + 'a;

/// A place to be read, and how to know that it was read right.
#[derive(Clone, Copy)]
pub struct ReadRequest<'a> {
    /// Where.
    pub place: Place,
    /// Accepts the right bytes only.
    pub verify: &'a Verify<'a>,
    /// Whether what is to be read is still what belongs there, and nobody is writing it. Otherwise bytes that are not the right ones are no fault of a
    /// device, and are left as they are: they may be newer. Asked when it matters, for a read may take long.
    pub is_settled: &'a Settled<'a>,
    /// Set when a device had wrong bytes or none, and others the right ones. Then nothing is written: who asks decides what is right.
    pub noted: Option<&'a AtomicBool>,
}

impl fmt::Debug for ReadRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadRequest")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl VdevTree {
    /// Reads one place. Tries every copy and every reconstruction until `verify` accepts.
    ///
    /// # Errors
    /// No copy and no reconstruction was accepted.
    pub fn read(
        &self,
        place: Place,
        verify: &Verify<'_>,
        operation: &Operation,
    ) -> Result<Buffer, VdevReadError> {
        let request = ReadRequest {
            place,
            verify,
            is_settled: &|| true,
            noted: None,
        };
        let mut results = self.read_many(&[request], operation);
        results.pop().expect("one request has one result")
    }

    /// Reads many places, with one batch for each device. One result each, in their order.
    pub fn read_many(
        &self,
        requests: &[ReadRequest<'_>],
        operation: &Operation,
    ) -> Vec<Result<Buffer, VdevReadError>> {
        loop {
            let results = self.try_read_many(requests, operation);
            let errors = results.iter().filter_map(|result| result.as_ref().err());
            let mut may_come =
                errors.filter(|error| self.suspension.wait_to_read(operation, error));
            if may_come.next().is_none() {
                drop(may_come);
                return results;
            }
        }
    }

    fn try_read_many(
        &self,
        requests: &[ReadRequest<'_>],
        operation: &Operation,
    ) -> Vec<Result<Buffer, VdevReadError>> {
        let mut batch = FirstBatch::default();
        let plans: Vec<_> = requests
            .iter()
            .map(|request| self.plan(request.place, &mut batch))
            .collect();
        let outcomes = queue::run(batch.ios, queue::read_class(operation), operation);
        let mut outcomes: Vec<Option<Outcome>> = outcomes.into_iter().map(Some).collect();
        let plans = plans.into_iter().zip(requests);
        plans
            .map(|(plan, request)| {
                let (top, plan) = plan?;
                let read = OneRead {
                    tree: self,
                    top: &top,
                    request,
                    operation,
                };
                match plan {
                    Plan::Copy { leaf, slot } => read.finish_copy(leaf, take(&mut outcomes, slot)),
                    Plan::NoCopy => read.all_copies(Vec::new()),
                    Plan::Row { map, slots } => {
                        let mut row = Row::new(map);
                        for (column, slot) in slots.into_iter().enumerate() {
                            if let Some((leaf, slot)) = slot {
                                row.put(column, leaf, take(&mut outcomes, slot));
                            }
                        }
                        read.finish_row(row)
                    }
                }
            })
            .collect()
    }

    /// What to read first for a place.
    fn plan(
        &self,
        place: Place,
        batch: &mut FirstBatch,
    ) -> Result<(Arc<TopVdev>, Plan), VdevReadError> {
        let (vdev, offset) = (place.vdev, place.offset);
        let top = self.top(vdev).ok_or(VdevReadError::NoSuchVdev { vdev })?;
        let rounded = top.check_range(place)?;
        let plan = match &top.layout {
            Layout::Nothing | Layout::Unsupported(_) => {
                return Err(VdevReadError::NoSuchVdev { vdev });
            }
            Layout::Copies => {
                let start = device_offset(offset).expect("the range was checked");
                let copies: Vec<_> = top.leaves.iter().collect();
                let planned = |copy: usize| batch.planned_bytes(copies[copy]);
                match mirror::preference(&copies, start, planned).first() {
                    None => Plan::NoCopy,
                    Some(&leaf) => {
                        let slot = batch.read(copies[leaf], start, narrow(rounded));
                        Plan::Copy { leaf, slot }
                    }
                }
            }
            Layout::Raidz { shape, columns } => {
                plan_row(&top, shape, columns, place, rounded, batch)
            }
        };
        Ok((top, plan))
    }
}

fn take(outcomes: &mut [Option<Outcome>], slot: usize) -> Outcome {
    outcomes[slot].take().expect("every outcome is used once")
}

/// The requests of the first attempt.
#[derive(Debug, Default)]
struct FirstBatch {
    ios: Vec<LeafIo>,
    planned: BTreeMap<Guid, u64>,
}

impl FirstBatch {
    fn read(&mut self, leaf: &Arc<Leaf>, offset: u64, size: usize) -> usize {
        *self.planned.entry(leaf.guid).or_default() += widen(size);
        self.ios.push(LeafIo::read(leaf, offset, size));
        self.ios.len() - 1
    }

    fn planned_bytes(&self, leaf: &Leaf) -> u64 {
        self.planned.get(&leaf.guid).copied().unwrap_or(0)
    }
}

/// What is read first for a request.
enum Plan {
    /// A copy: of which leaf, and which request of the batch it is.
    Copy { leaf: usize, slot: usize },
    /// No copy can be read.
    NoCopy,
    /// A row: for each column that is read, of which leaf, and which request of the batch it is.
    Row {
        map: RaidzMap,
        slots: Vec<Option<(usize, usize)>>,
    },
}

/// The data columns, and a parity for each of them that cannot be read.
fn plan_row(
    top: &TopVdev,
    shape: &RaidzShape,
    columns: &[Vec<usize>],
    place: Place,
    rounded: u64,
    batch: &mut FirstBatch,
) -> Plan {
    let map = shape.map(place.offset, rounded);
    let mut slots: Vec<Option<(usize, usize)>> = vec![None; map.columns.len()];
    let mut parity_wanted = 0;
    // Data first, then parity: what cannot be read of the former is wanted of the latter.
    let order = (map.parity..map.columns.len()).chain(0..map.parity);
    for index in order {
        let is_parity = index < map.parity;
        if is_parity && parity_wanted == 0 {
            break;
        }
        let column = map.columns[index];
        let offset = column_offset(column.offset);
        let leaf = top.column_leaf(&columns[column.child], offset, Trust::UpToDate, batch);
        match leaf {
            Some(leaf) => {
                slots[index] = Some((leaf, batch.read(&top.leaves[leaf], offset, column.size)));
                parity_wanted -= usize::from(is_parity);
            }
            None => parity_wanted += usize::from(!is_parity),
        }
    }
    Plan::Row { map, slots }
}

fn column_offset(offset: u64) -> u64 {
    device_offset(VdevOffset::from(offset)).expect("the range was checked")
}

/// Which leaves of a column may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// Those with everything that was ever written.
    UpToDate,
    /// Those that missed writes, too.
    Any,
}

impl TopVdev {
    /// Refuses a place outside the vdev, or between sectors. Gives the size in whole sectors.
    fn check_range(&self, place: Place) -> Result<u64, VdevReadError> {
        let Place { vdev, offset, size } = place;
        let refused = VdevReadError::OutOfRange { vdev, offset, size };
        let holds_data = matches!(self.layout, Layout::Copies | Layout::Raidz { .. });
        if !holds_data {
            return Err(VdevReadError::NoSuchVdev { vdev });
        }
        // Blocks are at most 16 MiB; more than that is no block, and its room would not be counted.
        if size == 0 || size > self.asize.get() || !offset.is_multiple_of(self.sector_bytes()) {
            return Err(refused);
        }
        let end = offset.checked_add(self.allocated_size(size));
        match end {
            Some(end) if end.get() <= self.asize.get() => {
                Ok(size.next_multiple_of(self.sector_bytes()))
            }
            _ => Err(refused),
        }
    }

    /// The leaf from which to read a column, as an index into all leaves.
    fn column_leaf(
        &self,
        copies: &[usize],
        offset: u64,
        trust: Trust,
        batch: &FirstBatch,
    ) -> Option<usize> {
        let leaves: Vec<_> = copies.iter().map(|&copy| &self.leaves[copy]).collect();
        let planned = |copy: usize| batch.planned_bytes(leaves[copy]);
        let order = mirror::preference(&leaves, offset, planned);
        let may_be_read = |copy: &&usize| trust == Trust::Any || leaves[**copy].is_trusted();
        order.iter().find(may_be_read).map(|&copy| copies[copy])
    }
}

/// A row while it is read.
struct Row {
    map: RaidzMap,
    columns: Vec<Option<Buffer>>,
    /// For each column, the leaf that was asked.
    asked: Vec<Option<usize>>,
    failures: Vec<LeafFailure>,
}

impl Row {
    fn new(map: RaidzMap) -> Row {
        let columns: Vec<Option<Buffer>> = map.columns.iter().map(|_| None).collect();
        Row {
            asked: vec![None; columns.len()],
            columns,
            map,
            failures: Vec::new(),
        }
    }

    fn put(&mut self, column: usize, leaf: usize, outcome: Outcome) {
        self.asked[column] = Some(leaf);
        match outcome {
            Ok(buffer) => self.columns[column] = buffer,
            Err(failure) => self.failures.push(failure),
        }
    }
}

/// One request, after the first batch.
struct OneRead<'a> {
    tree: &'a VdevTree,
    top: &'a TopVdev,
    request: &'a ReadRequest<'a>,
    operation: &'a Operation,
}

impl OneRead<'_> {
    fn finish_copy(&self, leaf: usize, outcome: Outcome) -> Result<Buffer, VdevReadError> {
        match self.check_copy(leaf, outcome) {
            Ok(buffer) => Ok(buffer),
            Err(failure) => self.all_copies(vec![(leaf, failure)]),
        }
    }

    /// The bytes, if they verify; their end, which is only there to fill a sector, is cut off.
    fn check_copy(&self, leaf: usize, outcome: Outcome) -> Result<Buffer, LeafFailure> {
        let buffer = outcome?.expect("a read gives its buffer back");
        let leaf = &self.top.leaves[leaf];
        self.accept(buffer).ok_or_else(|| {
            if self.blames() {
                leaf.errors.count_checksum();
            }
            leaf.checksum_failure()
        })
    }

    /// Whether what does not verify is the fault of a device.
    fn blames(&self) -> bool {
        (self.request.is_settled)() && self.operation.what().kind != OperationKind::LogSearch
    }

    fn accept(&self, mut buffer: Buffer) -> Option<Buffer> {
        buffer.truncate(narrow(self.request.place.size));
        (self.request.verify)(&buffer).then_some(buffer)
    }

    /// Reads the copies that were not tried, one after the other.
    fn all_copies(&self, tried: Vec<(usize, LeafFailure)>) -> Result<Buffer, VdevReadError> {
        let mut tried = tried;
        let start = device_offset(self.request.place.offset).expect("the range was checked");
        let size = narrow(
            self.request
                .place
                .size
                .next_multiple_of(self.top.sector_bytes()),
        );
        let copies: Vec<_> = self.top.leaves.iter().collect();
        for leaf in mirror::preference(&copies, start, |_| 0) {
            if tried.iter().any(|(other, _)| *other == leaf) {
                continue;
            }
            let outcome = self.read_one(leaf, start, size);
            match self.check_copy(leaf, outcome) {
                Ok(buffer) => {
                    let bad: Vec<usize> = tried.iter().map(|(leaf, _)| *leaf).collect();
                    self.repair_copies(&bad, start, size, &buffer);
                    return Ok(buffer);
                }
                Err(failure) => tried.push((leaf, failure)),
            }
        }
        for (index, leaf) in self.top.leaves.iter().enumerate() {
            if !tried.iter().any(|(other, _)| *other == index) {
                tried.push((index, leaf.not_usable()));
            }
        }
        let mismatched = |tried: &(usize, LeafFailure)| tried.1.is_checksum();
        let is_relied_on = |tried: &(usize, LeafFailure)| self.top.leaves[tried.0].is_trusted();
        let are_all = tried.iter().all(mismatched);
        if !are_all
            && !tried
                .iter()
                .any(|tried| mismatched(tried) && is_relied_on(tried))
        {
            // What devices have that missed writes says nothing of a block that another may have.
            tried.retain(|tried| !mismatched(tried));
        }
        Err(self.failed(tried.into_iter().map(|(_, failure)| failure).collect()))
    }

    fn read_one(&self, leaf: usize, offset: u64, size: usize) -> Outcome {
        let io = LeafIo::read(&self.top.leaves[leaf], offset, size);
        let class = queue::read_class(self.operation);
        let mut outcomes = queue::run(vec![io], class, self.operation);
        outcomes.pop().expect("one request has one outcome")
    }

    /// Writes the right bytes where wrong ones, or none, were read.
    fn repair_copies(&self, bad: &[usize], offset: u64, size: usize, right: &[u8]) {
        let mut padded = Buffer::zeroed(size);
        padded[..right.len()].copy_from_slice(right);
        let data = WriteData::from(padded);
        let write = |&leaf: &usize| (leaf, Request::write(offset, data.clone()));
        self.repair(bad.iter().map(write).collect());
    }

    /// A repair that fails changes nothing: the error is counted, and the next reader tries again.
    fn repair(&self, writes: Vec<(usize, Request)>) {
        if writes.is_empty() {
            return;
        }
        if let Some(noted) = self.request.noted {
            noted.store(true, Ordering::Relaxed);
            return;
        }
        if !(self.request.is_settled)() {
            return;
        }
        self.operation.mark(Happened::Repaired);
        if !self.tree.may_repair() {
            return;
        }
        let io = |(leaf, request): (usize, Request)| LeafIo {
            leaf: self.top.leaves[leaf].clone(),
            request,
        };
        let ios = writes.into_iter().map(io).collect();
        queue::run(ios, queue::write_class(self.operation), self.operation);
    }

    /// Puts a row together, with as much effort as it takes.
    fn finish_row(&self, mut row: Row) -> Result<Buffer, VdevReadError> {
        let is_missing = row.columns[row.map.parity..].iter().any(Option::is_none);
        if !is_missing
            && let Some(block) = raidz::assemble(&row.map, &row.columns[row.map.parity..])
            && let Some(block) = self.accept(block)
        {
            return Ok(block);
        }
        if is_missing && let Some(solved) = self.solve(&row) {
            return Ok(self.accept_row(&row, solved));
        }
        for trust in [Trust::UpToDate, Trust::Any] {
            if self.read_more(&mut row, trust)
                && let Some(solved) = self.solve(&row)
            {
                return Ok(self.accept_row(&row, solved));
            }
        }
        Err(self.row_failed(row))
    }

    fn solve(&self, row: &Row) -> Option<Solved> {
        let size = narrow(self.request.place.size);
        raidz::solve(&row.map, &row.columns, &|block| {
            (self.request.verify)(&block[..size])
        })
    }

    /// Reads the columns that were not asked for yet. False if there are none, except the first time:
    /// then what is there was not thought about yet.
    fn read_more(&self, row: &mut Row, trust: Trust) -> bool {
        let Layout::Raidz { columns, .. } = &self.top.layout else {
            unreachable!("only a RAID-Z has rows");
        };
        let nothing = FirstBatch::default();
        let mut ios = Vec::new();
        let mut wanted = Vec::new();
        for (index, column) in row.map.columns.iter().enumerate() {
            if row.columns[index].is_some() {
                continue;
            }
            let offset = column_offset(column.offset);
            // After an error another leaf of the column may do better.
            let copies: Vec<usize> = columns[column.child]
                .iter()
                .copied()
                .filter(|leaf| row.asked[index] != Some(*leaf))
                .collect();
            if let Some(leaf) = self.top.column_leaf(&copies, offset, trust, &nothing) {
                ios.push(LeafIo::read(&self.top.leaves[leaf], offset, column.size));
                wanted.push((index, leaf));
            }
        }
        let is_new = !ios.is_empty();
        let outcomes = queue::run(ios, queue::read_class(self.operation), self.operation);
        for ((index, leaf), outcome) in wanted.into_iter().zip(outcomes) {
            row.put(index, leaf, outcome);
        }
        is_new || trust == Trust::UpToDate
    }

    /// Counts and repairs the columns that were wrong.
    fn accept_row(&self, row: &Row, solved: Solved) -> Buffer {
        let mut writes = Vec::new();
        for correction in solved.wrong {
            // A column that nobody asked for is not known to be wrong.
            let Some(leaf) = row.asked[correction.column] else {
                continue;
            };
            if correction.has_lied && self.blames() {
                self.top.leaves[leaf].errors.count_checksum();
            }
            let offset = column_offset(row.map.columns[correction.column].offset);
            writes.push((
                leaf,
                Request::write(offset, WriteData::from(correction.truth)),
            ));
        }
        if !writes.is_empty() {
            self.repair(writes);
        }
        let mut block = solved.block;
        block.truncate(narrow(self.request.place.size));
        block
    }

    fn row_failed(&self, row: Row) -> VdevReadError {
        let mut failures = row.failures;
        let read = row.columns.iter().zip(&row.asked);
        let read = read.filter_map(|(column, asked)| column.as_ref().and(*asked));
        let read: Vec<&Arc<Leaf>> = read.map(|leaf| &self.top.leaves[leaf]).collect();
        let relied_on = read.iter().filter(|leaf| leaf.is_trusted()).count();
        // Where more is lacking than parity makes good, what is there says nothing of the block, nor who lies.
        if relied_on + row.map.parity >= row.columns.len() {
            for leaf in read {
                if self.blames() {
                    leaf.errors.count_checksum();
                }
                failures.push(leaf.checksum_failure());
            }
        }
        let unusable = self.top.leaves.iter().filter(|leaf| !leaf.is_usable());
        failures.extend(unusable.map(|leaf| leaf.not_usable()));
        self.failed(failures)
    }

    /// Counts an error that redundancy could not make good.
    fn failed(&self, devices: Vec<LeafFailure>) -> VdevReadError {
        let Place { vdev, offset, size } = self.request.place;
        let counters = [&self.top.errors, &self.tree.errors];
        if devices.iter().any(LeafFailure::is_checksum) {
            let blamed = counters.iter().filter(|_| self.blames());
            blamed.for_each(|errors| errors.count_checksum());
            VdevReadError::Checksum {
                vdev,
                offset,
                size,
                devices,
            }
        } else {
            counters.iter().for_each(|errors| errors.count_read());
            VdevReadError::Unreadable {
                vdev,
                offset,
                size,
                devices,
            }
        }
    }
}

/// The size that a place takes on its vdev; for those who check places before they read them.
impl VdevTree {
    /// Whether a block of this size could be at this place at all.
    pub fn is_place_possible(&self, place: Place) -> bool {
        self.top(place.vdev)
            .is_some_and(|top| top.check_range(place).is_ok())
    }

    /// How much room the block at a place takes.
    pub fn place_size(&self, place: Place) -> Option<AllocatedSize> {
        let top = self.top(place.vdev)?;
        top.check_range(place).ok()?;
        Some(top.allocated_size(place.size))
    }
}
