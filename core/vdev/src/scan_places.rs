//! Scrub and resilver of places: every copy and every column is read and compared, or only the
//! devices that miss a block are written.
//!
//! # Mechanism
//! A *scrub* reads all copies and all columns of a place, parity included, from every device in
//! use, as one batch for each device. The bytes that verify say what each of them should be; a
//! device that gave others gets a checksum error, and the right bytes are written to it, as to a
//! device that gave an error. A device that misses the block by its dirty time log is not blamed.
//!
//! It reads in the gaps that applications leave, unless something waits for it
//! ([`VdevTree::hurry_scrubs`]).
//!
//! A *resilver* reads the block once, from devices that have it, and writes its copy or column to
//! each device in use that misses it.
//!
//! Where the batch gives no bytes that verify, all devices that gave bytes get a checksum error,
//! and the place is read once more as any reader would ([`read`](crate::read)), with all
//! combinations and all error counts: a device counts two errors for a block that nothing repairs,
//! as in OpenZFS.
//!
//! # Invariants
//! - Only bytes of a block that verified are written, and only while its place is settled: the
//!   caller holds the place for as long as the call lasts, so that it is not allocated anew.
//! - A repair that fails is reported with the device ([`Scanned::lacking`]): its dirty time log
//!   keeps the birth.

use crate::dtl::Dtl;
use crate::error::VdevReadError;
use crate::layout::{Row, column_offset};
use crate::leaf::Leaf;
use crate::place::{PhysicalWrite, Place};
use crate::queue::{self, LeafIo, Outcome};
use crate::read::{ReadRequest, Settled, Verify};
use crate::reconstruct::{self, GivenRow};
use crate::reports::ReportedIo;
use crate::top::TopVdev;
use crate::tree::VdevTree;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tarn_host::buffer::Buffer;
use tarn_host::canary::{Canary, sings};
use tarn_host::device::WriteData;
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::units::{Guid, Txg, VdevId};
use tarn_probe::{IoKind, IoPriority, Operation, Outcome as Happened};

/// What a scan does with a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanPurpose {
    /// Reads and compares all copies and columns.
    Scrub,
    /// Writes to the devices that miss the block.
    Resilver,
}

/// A place to be scanned, and how to know its right bytes.
#[derive(Clone, Copy)]
pub struct ScanRequest<'a> {
    /// Where.
    pub place: Place,
    /// Accepts the right bytes only.
    pub verify: &'a Verify<'a>,
    /// Whether the block is at this place, and is not being rewritten.
    pub is_settled: &'a Settled<'a>,
}

impl fmt::Debug for ScanRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanRequest")
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

/// The result for one place.
#[derive(Debug, Default)]
pub struct Scanned {
    /// Why no bytes verified, if none did.
    pub error: Option<VdevReadError>,
    /// Bytes that were written to devices.
    pub repaired_bytes: u64,
    /// Devices that could not be written.
    pub lacking: Vec<Guid>,
}

/// What was read of one column of one row from one leaf.
struct Part {
    row: usize,
    column: usize,
    leaf: usize,
    outcome: Outcome,
}

/// A place while it is scrubbed.
struct Plan {
    top: Arc<TopVdev>,
    rows: Vec<Row>,
    /// The first request of the batch, and how many there are.
    ios: std::ops::Range<usize>,
    /// Row, column and leaf of each request.
    asked: Vec<(usize, usize, usize)>,
}

impl VdevTree {
    /// Scans places, with one batch for each device. One result each, in their order.
    #[doc(alias = "scan_exec_io")]
    pub fn scan_many(
        &self,
        requests: &[ScanRequest<'_>],
        purpose: ScanPurpose,
        operation: &Operation,
    ) -> Vec<Scanned> {
        let results = match purpose {
            ScanPurpose::Scrub => self.scrub_many(requests, operation),
            ScanPurpose::Resilver => self.resilver_many(requests, operation),
        };
        assert_eq!(results.len(), requests.len(), "each request has one result");
        results
    }

    /// Whether a device in use of this vdev misses blocks of this birth.
    #[doc(alias = "vdev_dtl_need_resilver")]
    pub fn needs_resilver(&self, vdev: VdevId, birth: Txg) -> bool {
        let top = self.top(vdev).filter(|top| top.holds_data());
        let mut leaves = top.iter().flat_map(|top| &top.leaves);
        leaves.any(|leaf| leaf.is_usable() && leaf.misses(birth))
    }

    fn scrub_many(&self, requests: &[ScanRequest<'_>], operation: &Operation) -> Vec<Scanned> {
        let mut ios = Vec::new();
        let plans: Vec<Option<Plan>> = requests
            .iter()
            .map(|request| self.plan_scrub(request.place, &mut ios))
            .collect();
        let outcomes = queue::run_in_gaps(ios, operation);
        let mut outcomes: Vec<Option<Outcome>> = outcomes.into_iter().map(Some).collect();
        let mut repairs = Repairs::default();
        let mut results: Vec<Scanned> = Vec::with_capacity(requests.len());
        for (index, (plan, request)) in plans.iter().zip(requests).enumerate() {
            let judged = plan.as_ref().is_some_and(|plan| {
                let parts = plan.asked.iter().zip(&mut outcomes[plan.ios.clone()]);
                let parts = parts.map(|(&(row, column, leaf), outcome)| Part {
                    row,
                    column,
                    leaf,
                    outcome: outcome.take().expect("every outcome is used once"),
                });
                let one = OneScrub {
                    top: &plan.top,
                    rows: &plan.rows,
                    request,
                    index,
                    begun_ns: operation.started_ns(),
                };
                one.judge(parts.collect(), &mut repairs)
            });
            // No bytes verified: the place is read with all effort, which counts the errors.
            results.push(match judged {
                true => Scanned::default(),
                false => self.read_alone(request, operation),
            });
        }
        self.carry_out_repairs(repairs, &mut results, operation);
        results
    }

    /// The requests that read all copies and columns of a place from the devices in use.
    fn plan_scrub(&self, place: Place, ios: &mut Vec<LeafIo>) -> Option<Plan> {
        let top = self.top(place.vdev)?;
        let (layout, whole) = top.check_range(place).ok()?;
        let rows = layout.rows(&whole);
        let (first, mut asked) = (ios.len(), Vec::new());
        for (row_index, row) in rows.iter().enumerate() {
            for (column_index, column) in row.columns.iter().enumerate() {
                for &leaf in &layout.children()[column.child] {
                    let device = &top.leaves[leaf];
                    if device.is_usable() {
                        ios.push(LeafIo::read(device, column_offset(*column), column.size));
                        asked.push((row_index, column_index, leaf));
                    }
                }
            }
        }
        Some(Plan {
            ios: first..ios.len(),
            top,
            rows,
            asked,
        })
    }

    fn read_alone(&self, request: &ScanRequest<'_>, operation: &Operation) -> Scanned {
        let request = ReadRequest {
            place: request.place,
            verify: request.verify,
            is_settled: request.is_settled,
            noted: None,
        };
        let read = self.read_many(&[request], operation).pop();
        Scanned {
            error: read.expect("one request has one result").err(),
            ..Scanned::default()
        }
    }

    fn resilver_many(&self, requests: &[ScanRequest<'_>], operation: &Operation) -> Vec<Scanned> {
        let reads: Vec<ReadRequest<'_>> = requests
            .iter()
            .map(|request| ReadRequest {
                place: request.place,
                verify: request.verify,
                is_settled: request.is_settled,
                noted: None,
            })
            .collect();
        let found = self.read_many(&reads, operation);
        let mut repairs = Repairs::default();
        let mut results: Vec<Scanned> = Vec::with_capacity(requests.len());
        for (index, (request, found)) in requests.iter().zip(found).enumerate() {
            let mut scanned = Scanned::default();
            match found {
                Ok(bytes) if (request.is_settled)() => {
                    self.plan_resilver(request.place, bytes, index, &mut repairs);
                }
                Ok(_) => {}
                Err(error) => scanned.error = Some(error),
            }
            results.push(scanned);
        }
        self.carry_out_repairs(repairs, &mut results, operation);
        results
    }

    /// The writes of a block to the devices in use that miss it.
    fn plan_resilver(&self, place: Place, bytes: Buffer, index: usize, repairs: &mut Repairs) {
        let Some(top) = self.top(place.vdev) else {
            return;
        };
        let misses = |leaf: &Leaf| leaf.is_usable() && leaf.misses(place.birth);
        if !top.leaves.iter().any(|leaf| misses(leaf)) {
            return;
        }
        let mut data = bytes;
        assert!(
            widen(data.len()) >= place.size,
            "a block that was read has all its bytes"
        );
        data.resize(narrow(place.size));
        let write = PhysicalWrite {
            place,
            data: Arc::new(data),
        };
        for io in top.writes_of(write) {
            if misses(&io.leaf) && !sings(Canary::SkipResilverWrite) {
                repairs.add(io, index);
            }
        }
    }

    /// Writes the right bytes, and notes the devices that could not be written.
    fn carry_out_repairs(&self, repairs: Repairs, results: &mut [Scanned], operation: &Operation) {
        if repairs.ios.is_empty() || !self.may_self_heal() {
            return;
        }
        operation.mark(Happened::Repaired);
        let Repairs { ios, of } = repairs;
        assert!(
            ios.len() == of.len() && of.iter().all(|index| *index < results.len()),
            "each repair belongs to a request"
        );
        let leaf_and_size = |io: &LeafIo| (io.leaf.clone(), size_of(io));
        let written: Vec<(Arc<Leaf>, u64)> = ios.iter().map(leaf_and_size).collect();
        let outcomes = queue::run(ios, queue::write_class(operation), operation);
        for (((leaf, size), outcome), index) in written.into_iter().zip(outcomes).zip(of) {
            match outcome {
                Ok(_) => {
                    leaf.note_scan_written(size);
                    results[index].repaired_bytes += size;
                }
                Err(_) => results[index].lacking.push(leaf.guid),
            }
        }
    }
}

fn size_of(io: &LeafIo) -> u64 {
    match &io.request {
        tarn_host::Request::Write { data, .. } => widen(data.len()),
        _ => 0,
    }
}

/// Writes of right bytes, each with the request that it belongs to.
#[derive(Default)]
struct Repairs {
    ios: Vec<LeafIo>,
    of: Vec<usize>,
}

impl Repairs {
    /// Its birth is noted by the scan when it fails, not by the write.
    fn add(&mut self, mut io: LeafIo, request: usize) {
        io.birth = None;
        self.ios.push(io);
        self.of.push(request);
    }
}

/// One place that was read from all its devices.
struct OneScrub<'a> {
    top: &'a TopVdev,
    rows: &'a [Row],
    request: &'a ScanRequest<'a>,
    index: usize,
    /// When the operation began.
    begun_ns: u64,
}

impl OneScrub<'_> {
    /// Finds the right bytes and plans the repair of all others. False if no bytes verify.
    fn judge(&self, parts: Vec<Part>, repairs: &mut Repairs) -> bool {
        let is_judged = match self.rows {
            [row] if row.parity == 0 => self.judge_copies(row, &parts, repairs),
            _ => self.judge_rows(&parts, repairs),
        };
        if !is_judged && self.are_enough(&parts) {
            let given = parts.iter().filter(|part| part.outcome.is_ok());
            given.for_each(|part| self.blame(part));
        }
        is_judged
    }

    /// Whether the parts that were read would give the block if they were right: in each row, no
    /// more columns are lacking than parity rebuilds.
    fn are_enough(&self, parts: &[Part]) -> bool {
        let mut rows = self.rows.iter().enumerate();
        rows.all(|(index, row)| {
            let is_given = |part: &&Part| part.row == index && part.outcome.is_ok();
            let given = parts.iter().filter(is_given);
            let given = given.filter(|part| !self.misses(part.leaf));
            let columns: BTreeSet<usize> = given.map(|part| part.column).collect();
            columns.len() + row.parity >= row.columns.len()
        })
    }

    fn misses(&self, leaf: usize) -> bool {
        self.top.leaves[leaf].misses(self.request.place.birth)
    }

    fn verifies(&self, bytes: &[u8]) -> bool {
        let size = narrow(self.request.place.size);
        bytes
            .get(..size)
            .is_some_and(|bytes| (self.request.verify)(bytes))
    }

    fn judge_copies(&self, row: &Row, parts: &[Part], repairs: &mut Repairs) -> bool {
        let read = |part: &&Part| matches!(&part.outcome, Ok(Some(_)));
        let bytes_of = |part: &Part| match &part.outcome {
            Ok(Some(bytes)) => Buffer::from_slice(bytes),
            _ => unreachable!("only parts that were read are asked"),
        };
        // A device that has the block by its dirty time log is tried first.
        let trusted = parts
            .iter()
            .filter(read)
            .filter(|part| !self.misses(part.leaf));
        let others = parts
            .iter()
            .filter(read)
            .filter(|part| self.misses(part.leaf));
        let Some(right) = trusted
            .chain(others)
            .find(|part| matches!(&part.outcome, Ok(Some(bytes)) if self.verifies(bytes)))
        else {
            return false;
        };
        let truth = bytes_of(right);
        let mut data: Option<WriteData> = None;
        for part in parts {
            let is_right = match &part.outcome {
                Ok(Some(bytes)) => bytes[..] == truth[..] || self.verifies(bytes),
                _ => false,
            };
            if is_right {
                continue;
            }
            if part.outcome.is_ok() {
                self.blame(part);
            }
            let data = data.get_or_insert_with(|| WriteData::from(Buffer::from_slice(&truth)));
            self.repair(
                part.leaf,
                column_offset(row.columns[0]),
                data.clone(),
                repairs,
            );
        }
        true
    }

    fn judge_rows(&self, parts: &[Part], repairs: &mut Repairs) -> bool {
        let Some(block) = self.solve(parts, false).or_else(|| self.solve(parts, true)) else {
            return false;
        };
        let mut start = 0;
        let truths: Vec<Vec<Buffer>> = self
            .rows
            .iter()
            .map(|row| {
                let bytes = &block[start..start + row.data_size()];
                start += row.data_size();
                let mut columns = match row.parity {
                    0 => Vec::new(),
                    _ => reconstruct::parity_of(row, bytes),
                };
                columns.extend(
                    row.data_ranges()
                        .map(|range| Buffer::from_slice(&bytes[range])),
                );
                columns
            })
            .collect();
        let mut shared: BTreeMap<(usize, usize), WriteData> = BTreeMap::new();
        for part in parts {
            let truth = &truths[part.row][part.column];
            if matches!(&part.outcome, Ok(Some(bytes)) if bytes[..] == truth[..]) {
                continue;
            }
            if part.outcome.is_ok() {
                self.blame(part);
            }
            let data = shared
                .entry((part.row, part.column))
                .or_insert_with(|| WriteData::from(Buffer::from_slice(truth)));
            let column = self.rows[part.row].columns[part.column];
            self.repair(part.leaf, column_offset(column), data.clone(), repairs);
        }
        true
    }

    /// The block that verifies, from the columns of devices that have it, or of all.
    fn solve(&self, parts: &[Part], with_missing: bool) -> Option<Buffer> {
        let mut columns: Vec<Vec<Option<Buffer>>> = self
            .rows
            .iter()
            .map(|row| row.columns.iter().map(|_| None).collect())
            .collect();
        for part in parts {
            let place = &mut columns[part.row][part.column];
            if let Ok(Some(bytes)) = &part.outcome
                && place.is_none()
                && (with_missing || !self.misses(part.leaf))
            {
                *place = Some(Buffer::from_slice(bytes));
            }
        }
        let given: Vec<GivenRow<'_>> = self
            .rows
            .iter()
            .zip(&columns)
            .map(|(row, columns)| GivenRow { row, columns })
            .collect();
        if let Some(block) = reconstruct::assemble(&given).filter(|block| self.verifies(block)) {
            return Some(block);
        }
        let solved = reconstruct::solve(&given, &|found| self.verifies(found));
        solved.map(|solved| solved.block)
    }

    fn blame(&self, part: &Part) {
        if (self.request.is_settled)() && !self.misses(part.leaf) {
            let column = self.rows[part.row].columns[part.column];
            self.top.leaves[part.leaf].note_mismatch(ReportedIo {
                kind: IoKind::Read,
                priority: IoPriority::Scrub,
                offset: column_offset(column),
                bytes: widen(column.size),
                begun_ns: self.begun_ns,
            });
        }
    }

    fn repair(&self, leaf: usize, offset: u64, data: WriteData, repairs: &mut Repairs) {
        if (self.request.is_settled)() {
            let io = LeafIo::write(&self.top.leaves[leaf], offset, data, None);
            repairs.add(io, self.index);
        }
    }
}

/// Scrubs do not look for gaps while this lives.
#[derive(Debug)]
pub struct HurriedScrubs(Vec<Arc<Leaf>>);

impl Drop for HurriedScrubs {
    fn drop(&mut self) {
        self.0.iter().for_each(|leaf| leaf.gaps.end_hurry());
    }
}

/// Which births devices miss, and what becomes of that when a scan ends.
impl VdevTree {
    /// Has scrubs go on beside applications while the result lives: something waits for them.
    pub fn hurry_scrubs(&self) -> HurriedScrubs {
        let leaves: Vec<Arc<Leaf>> = self.leaves();
        leaves.iter().for_each(|leaf| leaf.gaps.hurry());
        HurriedScrubs(leaves)
    }

    /// The first and the last birth that a usable device misses, over all vdevs that hold data.
    /// None if no usable device misses any.
    #[doc(alias = "vdev_resilver_needed")]
    pub fn births_to_resilver(&self) -> Option<RangeInclusive<Txg>> {
        let mut bounds: Option<RangeInclusive<Txg>> = None;
        for top in self.tops() {
            if top.is_log || !top.holds_data() {
                continue;
            }
            for leaf in top.leaves.iter().filter(|leaf| leaf.is_usable()) {
                let Some(missed) = leaf.dtl().bounds() else {
                    continue;
                };
                bounds = Some(match bounds {
                    None => missed,
                    Some(known) => {
                        *known.start().min(missed.start())..=*known.end().max(missed.end())
                    }
                });
            }
        }
        bounds
    }

    /// Ends a scan of all births after `after` and before `end`: they leave the dirty time logs of
    /// usable devices, except for those that the scan could not write (`lacking`, which devices get
    /// instead).
    ///
    /// A device whose log has later births came into use after the scan had begun: it keeps all.
    #[doc(alias = "vdev_dtl_reassess")]
    #[doc(alias = "vdev_dtl_should_excise")]
    pub fn end_scan(&self, (after, end): (Txg, Txg), lacking: &BTreeMap<Guid, Dtl>) {
        for top in self.tops() {
            if top.is_log || !top.holds_data() {
                continue;
            }
            for leaf in &top.leaves {
                let nothing = Dtl::new();
                if leaf.end_scan((after, end), lacking.get(&leaf.guid).unwrap_or(&nothing)) {
                    self.note_change();
                }
            }
        }
    }
}
