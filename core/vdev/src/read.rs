//! Reading: copies, columns and reconstructions are tried until the caller's checksum accepts one.
//!
//! # Mechanism
//! All requests of a call become one batch over all devices: of each data column the best copy, and
//! as many parity columns as data columns are known to be missing. Nearly always that suffices. A
//! request that does not verify is then tried alone, with rising effort: the other copies one after
//! the other, where there is no parity; all parity, with every combination of columns that may be
//! wrong; and at last the devices that miss the block by their dirty time logs, whose bytes may
//! still be right.
//!
//! A device that returned wrong bytes gets a checksum error, and the right bytes are written to it:
//! *self-healing*.
//!
//! # Invariants
//! - All bytes that a read returns were accepted by `verify`.
//! - Self-healing writes only bytes of a block that verified, and only while its place is not freed
//!   or being written (`is_settled`).

use crate::error::{LeafFailure, VdevReadError};
use crate::layout::mirror;
use crate::layout::{Column, Layout, Row, column_offset};
use crate::leaf::Leaf;
use crate::place::Place;
use crate::queue::{self, LeafIo, Outcome};
use crate::reconstruct::{self, GivenRow, Solved};
use crate::reports::ReportedIo;
use crate::top::TopVdev;
use crate::tree::{AllocationBias, VdevTree};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tarn_host::buffer::Buffer;
use tarn_host::device::{Request, WriteData};
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::units::{AllocatedSize, Guid, Txg};
use tarn_probe::{IoKind, Operation, OperationKind, Outcome as Happened};

/// Says whether these are the bytes that were written, by their checksum.
pub type Verify<'a> = dyn Fn(&[u8]) -> bool + Sync + 'a;

/// Says whether a place may be self-healed with the bytes that were written there.
pub type Settled<'a> = dyn Fn() -> bool + Sync + 'a;

/// A place to be read, and how to know that it was read right.
#[derive(Clone, Copy)]
pub struct ReadRequest<'a> {
    /// Where.
    pub place: Place,
    /// Accepts the right bytes only.
    pub verify: &'a Verify<'a>,
    /// Whether the block still belongs at this place, and is not being written. Otherwise bytes
    /// that do not verify may be newer ones: no device is to blame, and nothing is self-healed.
    /// Asked when bytes do not verify, for a read may take long.
    pub is_settled: &'a Settled<'a>,
    /// Set when a device had wrong bytes or none, and others the right ones. Then nothing is
    /// self-healed: the caller decides which bytes are right.
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
            assert_eq!(results.len(), requests.len(), "each request has one result");
            let errors = results.iter().filter_map(|result| result.as_ref().err());
            let mut may_come =
                errors.filter(|error| self.suspension.wait_to_read(operation, error));
            if may_come.next().is_none() {
                drop(may_come);
                return results;
            }
        }
    }

    /// Marks an operation as reading from special vdevs, or from others.
    fn note_read(&self, requests: &[ReadRequest<'_>], operation: &Operation) {
        let state = self.state.read();
        let bias = |request: &ReadRequest<'_>| state.biases.get(request.place.vdev.index());
        for bias in requests.iter().map(bias) {
            operation.mark(match bias {
                Some(AllocationBias::Special) => Happened::Special,
                _ => Happened::Disk,
            });
        }
    }

    fn try_read_many(
        &self,
        requests: &[ReadRequest<'_>],
        operation: &Operation,
    ) -> Vec<Result<Buffer, VdevReadError>> {
        self.note_read(requests, operation);
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
                let (top, rows) = plan?;
                let read = OneRead {
                    tree: self,
                    top: &top,
                    layout: top.layout()?,
                    request,
                    operation,
                };
                match rows.as_slice() {
                    [plan] if plan.row.parity == 0 => {
                        let column = plan.row.columns[0];
                        match plan.slots[0] {
                            Some((leaf, slot)) => {
                                read.finish_copy(column, leaf, take(&mut outcomes, slot))
                            }
                            None => read.all_copies(column, Vec::new()),
                        }
                    }
                    _ => {
                        let mut block = BlockRead::default();
                        for RowPlan { row, slots } in rows {
                            let index = block.add(row);
                            for (column, slot) in slots.into_iter().enumerate() {
                                if let Some((leaf, slot)) = slot {
                                    block.put(index, column, leaf, take(&mut outcomes, slot));
                                }
                            }
                        }
                        read.finish_rows(block)
                    }
                }
            })
            .collect()
    }

    /// Plans the first attempt for a place.
    fn plan(
        &self,
        place: Place,
        batch: &mut FirstBatch,
    ) -> Result<(Arc<TopVdev>, Vec<RowPlan>), VdevReadError> {
        let vdev = place.vdev;
        let top = self.top(vdev).ok_or(VdevReadError::NoSuchVdev { vdev })?;
        let (layout, whole) = top.check_range(place)?;
        let rows = layout.rows(&whole).into_iter();
        let rows = rows.map(|row| plan_row(&top, layout, row, place.birth, batch));
        let rows = rows.collect();
        Ok((top, rows))
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

/// The first attempt of a row.
struct RowPlan {
    row: Row,
    /// For each column that is read, of which leaf, and which request of the batch it is.
    slots: Vec<Option<(usize, usize)>>,
}

/// The data columns, and a parity for each of them that cannot be read.
fn plan_row(
    top: &TopVdev,
    layout: &dyn Layout,
    row: Row,
    birth: Txg,
    batch: &mut FirstBatch,
) -> RowPlan {
    let mut slots: Vec<Option<(usize, usize)>> = vec![None; row.columns.len()];
    // Without parity, a device that misses the block by its dirty time log is better than none.
    let trust = match row.parity {
        0 => Trust::Any,
        _ => Trust::HasBlock,
    };
    let mut parity_wanted = 0;
    // Data first, then a parity column for each data column that cannot be read.
    let order = (row.parity..row.columns.len()).chain(0..row.parity);
    for index in order {
        let is_parity = index < row.parity;
        if is_parity && parity_wanted == 0 {
            break;
        }
        let column = row.columns[index];
        let offset = column_offset(column);
        let copies = &layout.children()[column.child];
        match top.column_leaf(copies, offset, birth, trust, batch) {
            Some(leaf) => {
                slots[index] = Some((leaf, batch.read(&top.leaves[leaf], offset, column.size)));
                parity_wanted -= usize::from(is_parity);
            }
            None => parity_wanted += usize::from(!is_parity),
        }
    }
    RowPlan { row, slots }
}

/// Which leaves of a column may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// Those that have the block by their dirty time logs.
    HasBlock,
    /// Those that miss the block by their dirty time logs, too.
    Any,
}

impl TopVdev {
    /// Its layout, for readers.
    fn layout(&self) -> Result<&dyn Layout, VdevReadError> {
        let layout = self.layout.as_deref();
        layout.map_err(|_| VdevReadError::NoSuchVdev { vdev: self.id })
    }

    /// Refuses a place outside the vdev, or between sectors. Gives the layout, and the place in
    /// whole sectors.
    pub(crate) fn check_range(&self, place: Place) -> Result<(&dyn Layout, Place), VdevReadError> {
        let Place {
            vdev, offset, size, ..
        } = place;
        let refused = VdevReadError::OutOfRange { vdev, offset, size };
        let layout = self.layout()?;
        // Blocks are at most 16 MiB; a larger size is no block, and its allocated size could
        // overflow.
        if size == 0 || size > self.asize.get() || !offset.is_multiple_of(self.sector_bytes()) {
            return Err(refused);
        }
        let end = offset.checked_add(layout.allocated_size(size));
        let size = size.next_multiple_of(self.sector_bytes());
        match end {
            Some(end) if end.get() <= self.asize.get() => Ok((layout, Place { size, ..place })),
            _ => Err(refused),
        }
    }

    /// The leaf from which to read a column, as an index into all leaves.
    fn column_leaf(
        &self,
        copies: &[usize],
        offset: u64,
        birth: Txg,
        trust: Trust,
        batch: &FirstBatch,
    ) -> Option<usize> {
        let may_be_read = |leaf: &Leaf| trust == Trust::Any || !leaf.misses(birth);
        if let [only] = copies {
            let leaf = &self.leaves[*only];
            return (leaf.is_usable() && may_be_read(leaf)).then_some(*only);
        }
        let leaves: Vec<_> = copies.iter().map(|&copy| &self.leaves[copy]).collect();
        let planned = |leaf: &Leaf| batch.planned_bytes(leaf);
        let order = mirror::preference(&leaves, offset, birth, planned);
        let mut order = order.into_iter().filter(|&copy| may_be_read(leaves[copy]));
        order.next().map(|copy| copies[copy])
    }
}

/// A block of rows while it is read.
#[derive(Default)]
struct BlockRead {
    rows: Vec<RowRead>,
    failures: Vec<LeafFailure>,
}

/// A row while it is read.
struct RowRead {
    row: Row,
    columns: Vec<Option<Buffer>>,
    /// For each column, the leaf that was asked.
    asked: Vec<Option<usize>>,
}

impl BlockRead {
    fn add(&mut self, row: Row) -> usize {
        let columns: Vec<Option<Buffer>> = row.columns.iter().map(|_| None).collect();
        self.rows.push(RowRead {
            asked: vec![None; columns.len()],
            columns,
            row,
        });
        self.rows.len() - 1
    }

    fn put(&mut self, row: usize, column: usize, leaf: usize, outcome: Outcome) {
        let row = &mut self.rows[row];
        row.asked[column] = Some(leaf);
        match outcome {
            Ok(buffer) => row.columns[column] = buffer,
            Err(failure) => self.failures.push(failure),
        }
    }

    fn given(&self) -> Vec<GivenRow<'_>> {
        self.rows
            .iter()
            .map(|read| GivenRow {
                row: &read.row,
                columns: &read.columns,
            })
            .collect()
    }
}

impl RowRead {
    fn lacks_data(&self) -> bool {
        self.columns[self.row.parity..].iter().any(Option::is_none)
    }
}

/// One request, with the outcomes of the first batch.
struct OneRead<'a> {
    tree: &'a VdevTree,
    top: &'a TopVdev,
    layout: &'a dyn Layout,
    request: &'a ReadRequest<'a>,
    operation: &'a Operation,
}

impl OneRead<'_> {
    fn finish_copy(
        &self,
        column: Column,
        leaf: usize,
        outcome: Outcome,
    ) -> Result<Buffer, VdevReadError> {
        match self.check_copy(leaf, column_offset(column), outcome) {
            Ok(buffer) => Ok(buffer),
            Err(failure) => self.all_copies(column, vec![(leaf, failure)]),
        }
    }

    /// The bytes, if they verify, without the padding to the end of the sector.
    fn check_copy(
        &self,
        leaf: usize,
        offset: u64,
        outcome: Outcome,
    ) -> Result<Buffer, LeafFailure> {
        let buffer = outcome?.expect("a read gives its buffer back");
        let leaf = &self.top.leaves[leaf];
        let bytes = widen(buffer.len());
        self.accept(buffer).ok_or_else(|| {
            if self.blames() {
                self.note_mismatch(leaf, offset, bytes);
            }
            leaf.checksum_failure()
        })
    }

    /// Counts bytes of a device that do not verify, and reports them.
    fn note_mismatch(&self, leaf: &Leaf, offset: u64, bytes: u64) {
        leaf.note_mismatch(ReportedIo {
            kind: IoKind::Read,
            priority: queue::read_class(self.operation),
            offset,
            bytes,
            begun_ns: self.operation.started_ns(),
        });
    }

    /// Whether bytes that do not verify count as a checksum error of a device. Not while the block
    /// may be newer, nor in the search for the end of an intent log.
    fn blames(&self) -> bool {
        (self.request.is_settled)() && self.operation.what().kind != OperationKind::LogSearch
    }

    fn accept(&self, mut buffer: Buffer) -> Option<Buffer> {
        assert!(
            widen(buffer.len()) >= self.request.place.size,
            "a read gives all bytes of its place"
        );
        buffer.truncate(narrow(self.request.place.size));
        (self.request.verify)(&buffer).then_some(buffer)
    }

    /// Reads the copies that were not tried, one after the other.
    fn all_copies(
        &self,
        column: Column,
        tried: Vec<(usize, LeafFailure)>,
    ) -> Result<Buffer, VdevReadError> {
        let mut tried = tried;
        let (start, size) = (column_offset(column), column.size);
        let indices = &self.layout.children()[column.child];
        let copies: Vec<_> = indices.iter().map(|&leaf| &self.top.leaves[leaf]).collect();
        let order = mirror::preference(&copies, start, self.request.place.birth, |_| 0);
        for leaf in order.into_iter().map(|copy| indices[copy]) {
            if tried.iter().any(|(other, _)| *other == leaf) {
                continue;
            }
            let outcome = self.read_one(leaf, start, size);
            match self.check_copy(leaf, start, outcome) {
                Ok(buffer) => {
                    let bad: Vec<usize> = tried.iter().map(|(leaf, _)| *leaf).collect();
                    self.self_heal_copies(&bad, start, size, &buffer);
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
        let is_relied_on = |tried: &(usize, LeafFailure)| self.top.leaves[tried.0].is_whole();
        let are_all = tried.iter().all(mismatched);
        if !are_all
            && !tried
                .iter()
                .any(|tried| mismatched(tried) && is_relied_on(tried))
        {
            // Devices that missed writes prove nothing about a block that an absent device may
            // have: the error is that of absent devices, not a checksum error.
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

    /// Writes the right bytes to the leaves that gave wrong ones, or none.
    fn self_heal_copies(&self, bad: &[usize], offset: u64, size: usize, right: &[u8]) {
        assert!(right.len() <= size, "a copy has room for its block");
        let mut padded = Buffer::zeroed(size);
        padded[..right.len()].copy_from_slice(right);
        let data = WriteData::from(padded);
        let write = |&leaf: &usize| (leaf, Request::write(offset, data.clone()));
        self.self_heal(bad.iter().map(write).collect());
    }

    /// Self-healing that fails changes nothing: the error is counted, and the next reader tries
    /// again.
    fn self_heal(&self, writes: Vec<(usize, Request)>) {
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
        if !self.tree.may_self_heal() {
            return;
        }
        let io = |(leaf, request): (usize, Request)| LeafIo {
            leaf: self.top.leaves[leaf].clone(),
            request,
            birth: None,
        };
        let ios = writes.into_iter().map(io).collect();
        queue::run(ios, queue::write_class(self.operation), self.operation);
    }

    /// Assembles or reconstructs a block of rows, with rising effort.
    fn finish_rows(&self, mut block: BlockRead) -> Result<Buffer, VdevReadError> {
        let is_missing = block.rows.iter().any(RowRead::lacks_data);
        if !is_missing
            && let Some(assembled) = reconstruct::assemble(&block.given())
            && let Some(accepted) = self.accept(assembled)
        {
            return Ok(accepted);
        }
        if is_missing && let Some(solved) = self.solve(&block) {
            return Ok(self.accept_rows(&block, solved));
        }
        for trust in [Trust::HasBlock, Trust::Any] {
            if self.read_more(&mut block, trust)
                && let Some(solved) = self.solve(&block)
            {
                return Ok(self.accept_rows(&block, solved));
            }
        }
        Err(self.rows_failed(block))
    }

    fn solve(&self, block: &BlockRead) -> Option<Solved> {
        let size = narrow(self.request.place.size);
        reconstruct::solve(&block.given(), &|found| {
            (self.request.verify)(&found[..size])
        })
    }

    /// Reads the columns that were not asked for yet. False if there are none, except the first
    /// time: then the columns at hand were not solved yet.
    fn read_more(&self, block: &mut BlockRead, trust: Trust) -> bool {
        let nothing = FirstBatch::default();
        let birth = self.request.place.birth;
        let mut ios = Vec::new();
        let mut wanted = Vec::new();
        for (row, read) in block.rows.iter().enumerate() {
            for (index, column) in read.row.columns.iter().enumerate() {
                if read.columns[index].is_some() {
                    continue;
                }
                let offset = column_offset(*column);
                // After an error another leaf of the column may do better.
                let copies: Vec<usize> = self.layout.children()[column.child]
                    .iter()
                    .copied()
                    .filter(|leaf| read.asked[index] != Some(*leaf))
                    .collect();
                let leaf = self
                    .top
                    .column_leaf(&copies, offset, birth, trust, &nothing);
                if let Some(leaf) = leaf {
                    ios.push(LeafIo::read(&self.top.leaves[leaf], offset, column.size));
                    wanted.push((row, index, leaf));
                }
            }
        }
        let is_new = !ios.is_empty();
        let outcomes = queue::run(ios, queue::read_class(self.operation), self.operation);
        for ((row, index, leaf), outcome) in wanted.into_iter().zip(outcomes) {
            block.put(row, index, leaf, outcome);
        }
        is_new || trust == Trust::HasBlock
    }

    /// Counts checksum errors of wrong columns, and self-heals them.
    fn accept_rows(&self, block: &BlockRead, solved: Solved) -> Buffer {
        let mut writes = Vec::new();
        for correction in solved.wrong {
            let read = &block.rows[correction.row];
            // A column that was not read is not known to be wrong.
            let Some(leaf) = read.asked[correction.column] else {
                continue;
            };
            let column = read.row.columns[correction.column];
            let offset = column_offset(column);
            if correction.has_lied && self.blames() {
                self.note_mismatch(&self.top.leaves[leaf], offset, widen(column.size));
            }
            writes.push((
                leaf,
                Request::write(offset, WriteData::from(correction.truth)),
            ));
        }
        if !writes.is_empty() {
            self.self_heal(writes);
        }
        let mut accepted = solved.block;
        assert!(
            widen(accepted.len()) >= self.request.place.size,
            "a solved block has all bytes of its place"
        );
        accepted.truncate(narrow(self.request.place.size));
        accepted
    }

    fn rows_failed(&self, block: BlockRead) -> VdevReadError {
        let mut failures = block.failures;
        let mut read: Vec<(&Arc<Leaf>, Column)> = Vec::new();
        let mut are_enough = true;
        for row in &block.rows {
            let given = row.columns.iter().zip(&row.asked).zip(&row.row.columns);
            let given = given.filter_map(|((bytes, asked), column)| {
                Some((&self.top.leaves[bytes.as_ref().and(*asked)?], *column))
            });
            let given: Vec<(&Arc<Leaf>, Column)> = given.collect();
            let relied_on = given.iter().filter(|(leaf, _)| leaf.is_whole()).count();
            are_enough &= relied_on + row.row.parity >= row.columns.len();
            read.extend(given);
        }
        // Where more columns are lacking than parity rebuilds, the others cannot be judged: no
        // device gets a checksum error.
        if are_enough {
            for (leaf, column) in read {
                if self.blames() {
                    self.note_mismatch(leaf, column_offset(column), widen(column.size));
                }
                failures.push(leaf.checksum_failure());
            }
        }
        let unusable = self.top.leaves.iter().filter(|leaf| !leaf.is_usable());
        failures.extend(unusable.map(|leaf| leaf.not_usable()));
        self.failed(failures)
    }

    /// Describes an error that redundancy could not make good. A vdev with children counts reads
    /// that devices did not answer; wrong bytes are counted at the devices alone.
    fn failed(&self, devices: Vec<LeafFailure>) -> VdevReadError {
        let Place {
            vdev, offset, size, ..
        } = self.request.place;
        if devices.iter().any(LeafFailure::is_checksum) {
            return VdevReadError::Checksum {
                vdev,
                offset,
                size,
                devices,
            };
        }
        if self.top.standing().state.is_usable() {
            self.top.errors.count_read();
        }
        VdevReadError::Unreadable {
            vdev,
            offset,
            size,
            devices,
        }
    }
}

/// Checks of places before they are read.
impl VdevTree {
    /// Whether a block of this size could be at this place at all.
    pub fn is_place_possible(&self, place: Place) -> bool {
        self.top(place.vdev)
            .is_some_and(|top| top.check_range(place).is_ok())
    }

    /// The allocated size of the block at a place. None when the place is outside its vdev.
    pub fn place_size(&self, place: Place) -> Option<AllocatedSize> {
        let top = self.top(place.vdev)?;
        let (layout, _) = top.check_range(place).ok()?;
        Some(layout.allocated_size(place.size))
    }
}
