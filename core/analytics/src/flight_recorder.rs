//! The flight recorder: every finished operation of the last while, within a fixed budget.
//!
//! # Problem
//! "Why was it slow at three?" is asked at four. To answer it, what each operation was must be
//! held, not only what was counted; and the memory for it must have a bound.
//!
//! # Mechanism
//! The collector hands over records as it drains the rings of `probe`. They wait in an open part of
//! 32,768 records; when that is full it is packed into a [`Segment`], some 12 bytes for each
//! operation, and the oldest segments go while all of them take more than the budget. A query takes
//! references to segments, so the collector never waits for it longer than for these copies;
//! several processors go over them.
//!
//! # Invariants
//! - Segments, open part and what it is packed with take at most the budget. Notes of drops
//!   take at most 3 MiB besides. A query under way keeps the segments alive that are overwritten
//!   meanwhile.
//! - Each record handed over is in exactly one of: the open part, one segment, the count of
//!   overwritten ones.
//! - Times whose operations are dropped or overwritten are told as such, never as zero.
//!
//! # After a crash
//! Nothing is left: this is memory. The archive has what is kept.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use tarn_host::{Host, Mutex, RwLock};
use tarn_probe::{OperationRecord, RECORD_BYTES};

use crate::column_batch::{Batch, Column, ColumnSet, FillWhole, Mask, TakeBlock};
use crate::coverage::{Collected, Coverage};
use crate::ranks;
use crate::segment::Segment;

/// What the recorder may take if no other number is asked for.
pub const DEFAULT_BUDGET_BYTES: usize = 512 << 20;
/// Records of a segment: 2 MiB before they are packed.
const SEGMENT_RECORDS: usize = 32_768;
/// The least budget: the open part, its copy while it is packed, and room for a few segments.
pub const LEAST_BUDGET_BYTES: usize = 8 << 20;

/// Holds operation records.
#[derive(Debug)]
pub struct FlightRecorder {
    budget_bytes: usize,
    segment_records: usize,
    held: RwLock<Held>,
    /// Whose processors queries use.
    host: OnceLock<Host>,
}

#[derive(Debug)]
struct Held {
    segments: VecDeque<Arc<Segment>>,
    segment_bytes: usize,
    open: Vec<OperationRecord>,
    coverage: Coverage,
    taken: u64,
    overwritten: u64,
    dropped: u64,
}

/// What the recorder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderState {
    /// The oldest time, by the clock of operations, since which all that ended is held; `None`
    /// before the first pass of the collector.
    pub from_ns: Option<u64>,
    /// Up to which time the collector has come.
    pub to_ns: Option<u64>,
    /// Operations held.
    pub held: u64,
    /// Operations overwritten since the start.
    pub overwritten: u64,
    /// Operations that found their ring full, since the start.
    pub dropped: u64,
    /// Memory that is taken.
    pub bytes: usize,
    /// Memory that may be taken.
    pub budget_bytes: usize,
}

/// A part of what is held, as a query takes it.
enum Part {
    Packed(Arc<Segment>),
    Open(Vec<OperationRecord>),
}

impl FlightRecorder {
    /// An empty one. A budget below [`LEAST_BUDGET_BYTES`] is raised to that.
    pub fn new(budget_bytes: usize) -> FlightRecorder {
        FlightRecorder::of_segments(budget_bytes.max(LEAST_BUDGET_BYTES), SEGMENT_RECORDS)
    }

    pub(crate) fn of_segments(budget_bytes: usize, segment_records: usize) -> FlightRecorder {
        let held = Held {
            segments: VecDeque::new(),
            segment_bytes: 0,
            open: Vec::with_capacity(segment_records),
            coverage: Coverage::default(),
            taken: 0,
            overwritten: 0,
            dropped: 0,
        };
        FlightRecorder {
            budget_bytes,
            segment_records,
            held: RwLock::new(ranks::HELD, held),
            host: OnceLock::new(),
        }
    }

    /// Takes records that have ended. Only the collector calls this, one pass at a time.
    pub fn take(&self, mut records: &[OperationRecord]) {
        while !records.is_empty() {
            let mut held = self.held.write();
            let room = self.segment_records - held.open.len();
            let (now, later) = records.split_at(room.min(records.len()));
            held.open.extend_from_slice(now);
            held.taken += count_of(now.len());
            let is_full = held.open.len() == self.segment_records;
            drop(held);
            if is_full {
                self.pack_open();
            }
            records = later;
        }
    }

    /// Notes that a pass of the collector has taken all that ended in this time by the clock of
    /// operations, except `dropped` operations that found their ring full.
    pub fn collected(&self, range_ns: Range<u64>, dropped: u64) {
        let mut held = self.held.write();
        held.dropped += dropped;
        held.coverage.add(range_ns, dropped);
    }

    /// Makes a segment of the open part. Queries find the records in the open part until they find
    /// them in the segment.
    fn pack_open(&self) {
        // Queries read meanwhile; only the collector writes.
        let segment = Segment::pack(&self.held.read().open);
        let mut held = self.held.write();
        assert_eq!(
            count_of(held.open.len()),
            segment.count(),
            "only the collector adds records, and it was packing"
        );
        held.segment_bytes += segment.memory_bytes();
        held.segments.push_back(Arc::new(segment));
        held.open.clear();
        while held.segment_bytes + self.open_bytes() > self.budget_bytes {
            held.overwrite_oldest();
        }
    }

    /// What the open part takes, and what it is packed with: times and places, and bytes.
    fn open_bytes(&self) -> usize {
        2 * self.segment_records * RECORD_BYTES
    }

    /// What it holds now.
    pub fn state(&self) -> RecorderState {
        let held = self.held.read();
        RecorderState {
            from_ns: held.coverage.oldest_ns(),
            to_ns: held.coverage.newest_ns(),
            held: held.taken - held.overwritten,
            overwritten: held.overwritten,
            dropped: held.dropped,
            bytes: held.segment_bytes + self.open_bytes(),
            budget_bytes: self.budget_bytes,
        }
    }

    /// Whether the operations that ended in this time are held, and how many of them were dropped
    /// in passes of the collector that overlap it.
    pub fn coverage(&self, range_ns: &Range<u64>) -> (Collected, u64) {
        self.coverage_of(std::iter::once(range_ns.clone()))
            .remove(0)
    }

    /// As [`coverage`](Self::coverage), for several times at one moment.
    pub(crate) fn coverage_of(
        &self,
        ranges_ns: impl Iterator<Item = Range<u64>>,
    ) -> Vec<(Collected, u64)> {
        let held = self.held.read();
        let of = |range_ns: Range<u64>| {
            (
                held.coverage.of(&range_ns),
                held.coverage.dropped_in(&range_ns),
            )
        };
        ranges_ns.map(of).collect()
    }

    /// Calls `take` with all operations held that ended in this time, a batch at a time, with the
    /// mask of those in the batch that did. The batch has the wanted columns and the ends.
    ///
    /// Segments that were overwritten before are not seen; [`coverage`](Self::coverage) tells, when
    /// it is asked afterwards.
    pub fn scan(
        &self,
        range_ns: &Range<u64>,
        wanted: ColumnSet,
        take: &mut dyn FnMut(&Batch, Mask),
    ) {
        self.scan_blocks(range_ns, wanted, &mut |batch, mask, _| take(batch, mask));
    }

    /// Like [`scan`](Self::scan); what `take` is given besides fills another batch with all columns
    /// of the same operations.
    pub(crate) fn scan_blocks(
        &self,
        range_ns: &Range<u64>,
        wanted: ColumnSet,
        take: &mut TakeBlock<'_>,
    ) {
        let mut batch = Batch::new();
        for part in self.parts(range_ns) {
            part.scan(range_ns, wanted, &mut batch, take);
        }
    }

    /// Has queries use the processors of a machine.
    pub(crate) fn use_processors(&self, host: &Host) {
        // A recorder of a process has one machine.
        let _ = self.host.set(host.clone());
    }

    /// Goes over the operations that ended in this time, on several processors where there are
    /// many: `take` adds those of a batch to a state that `make` made. All states together have
    /// each operation once.
    pub(crate) fn fold<T: Send>(
        &self,
        range_ns: &Range<u64>,
        wanted: ColumnSet,
        make: impl Fn() -> T + Sync,
        take: impl Fn(&mut T, &Batch, Mask) + Sync,
    ) -> Vec<T> {
        let states = Mutex::new(ranks::STATES, Vec::new());
        let work = |part: Part| {
            let idle = states.lock().pop();
            let (mut state, mut batch) = idle.unwrap_or_else(|| (make(), Batch::new()));
            part.scan(range_ns, wanted, &mut batch, &mut |batch, mask, _| {
                take(&mut state, batch, mask);
            });
            states.lock().push((state, batch));
        };
        let parts = self.parts(range_ns);
        drop(self.map(parts, work));
        let states = states.into_inner().into_iter();
        states.map(|(state, _)| state).collect()
    }

    /// Applies a function to parts of what a query found, on the same processors.
    pub(crate) fn map<T: Send, R: Send>(
        &self,
        parts: Vec<T>,
        function: impl Fn(T) -> R + Sync,
    ) -> Vec<R> {
        match self.host.get() {
            Some(host) => host.compute().map(parts, function),
            None => parts.into_iter().map(function).collect(),
        }
    }

    /// How many operations ended in this time, and some more of the same segments.
    pub(crate) fn count_about(&self, range_ns: &Range<u64>) -> u64 {
        let counts = self.parts(range_ns).into_iter().map(|part| match part {
            Part::Packed(segment) => segment.count(),
            Part::Open(records) => count_of(records.len()),
        });
        counts.sum()
    }

    /// What is held of the range.
    fn parts(&self, range_ns: &Range<u64>) -> Vec<Part> {
        let held = self.held.read();
        let overlaps = |segment: &&Arc<Segment>| {
            segment.first_ended_ns() < range_ns.end && segment.last_ended_ns() >= range_ns.start
        };
        let packed = held.segments.iter().filter(overlaps).cloned();
        let open = Part::Open(held.open.clone());
        packed.map(Part::Packed).chain([open]).collect()
    }
}

impl Part {
    fn scan(
        &self,
        range_ns: &Range<u64>,
        wanted: ColumnSet,
        batch: &mut Batch,
        take: &mut TakeBlock<'_>,
    ) {
        let mut take = |batch: &Batch, fill: &FillWhole<'_>| {
            let mask = in_range(batch, range_ns);
            if !mask.is_empty() {
                take(batch, mask, fill);
            }
        };
        match self {
            Part::Packed(segment) => segment.for_each_block(range_ns, wanted, batch, &mut take),
            Part::Open(records) => {
                for part in records.chunks(crate::column_batch::BATCH_RECORDS) {
                    batch.fill(part, wanted.with(Column::Ended));
                    take(batch, &|whole| whole.fill(part, ColumnSet::ALL));
                }
            }
        }
    }
}

impl Held {
    /// Gives up the oldest segment.
    ///
    /// # Panics
    /// If there is none: the least budget has room for one.
    fn overwrite_oldest(&mut self) {
        let oldest = self.segments.pop_front();
        let oldest = oldest.expect("the budget has room for the open part");
        self.segment_bytes -= oldest.memory_bytes();
        self.overwritten += oldest.count();
        self.coverage.forget_before(oldest.last_ended_ns() + 1);
    }
}

/// The operations of a batch that ended in the range.
fn in_range(batch: &Batch, range_ns: &Range<u64>) -> Mask {
    let ended = batch.numbers(Column::Ended);
    Mask::of(|place| range_ns.contains(&ended[place])).and(Mask::first(batch.len()))
}

fn count_of(length: usize) -> u64 {
    u64::try_from(length).expect("fits 64 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_host::sim::Random;
    use tarn_probe::{
        ClientId, DatasetId, ErrorCode, HolderId, MISSING_NAME, OperationKind, Protocol, What, Who,
    };

    /// An operation that ends about then, with anything in its other fields.
    fn any_record(random: &mut Random, ended_ns: u64) -> OperationRecord {
        let who = Who {
            client: ClientId(random.below(5) as u32),
            protocol: Protocol::ALL[random.index(Protocol::COUNT)],
            user: random.draw() as u32,
            holder: HolderId::NONE,
        };
        let what = What {
            kind: OperationKind::ALL[random.index(OperationKind::COUNT)],
            dataset: DatasetId(random.below(3) as u32),
            object: random.magnitude((1 << 48) - 1) | (MISSING_NAME * random.below(2)),
            offset: random.magnitude(u64::MAX),
            size: random.magnitude(1 << 33),
        };
        let stages = std::array::from_fn(|_| random.magnitude(1 << 40));
        let latency_ns = random.magnitude(ended_ns);
        let outcome = random.draw() as u16;
        let started_ns = ended_ns - latency_ns;
        let error = ErrorCode::from_number(random.below(256) as u8);
        OperationRecord::new(started_ns, latency_ns, &who, &what, outcome, &stages)
            .with_error(error)
    }

    fn seen(recorder: &FlightRecorder, range_ns: Range<u64>) -> Vec<OperationRecord> {
        let mut records = Vec::new();
        recorder.scan(&range_ns, ColumnSet::ALL, &mut |batch, mask| {
            mask.for_each(|place| records.push(batch.record(place)));
        });
        records
    }

    fn sorted(mut records: Vec<OperationRecord>) -> Vec<OperationRecord> {
        records.sort_by_key(|record| (record.ended_ns(), record.object(), record.offset));
        records
    }

    /// The model is a vector of all records. What the recorder says to hold must be its end, number
    /// for number, and each range must have just the records that ended in it.
    #[test]
    fn what_is_held_are_the_newest_records_of_a_plain_vector() {
        const BUDGET: usize = 600_000;
        for seed in 0..6 {
            let mut random = Random::new(seed);
            let recorder = FlightRecorder::of_segments(BUDGET, 1000);
            let (mut model, mut now_ns) = (Vec::new(), 1 << 40);
            for _ in 0..300 {
                let mut records = Vec::new();
                for _ in 0..random.below(200) {
                    now_ns += random.below(1000);
                    let ended_ns = now_ns - random.below(5000);
                    records.push(any_record(&mut random, ended_ns));
                }
                recorder.take(&records);
                model.extend(records);
                let state = recorder.state();
                assert!(state.bytes <= BUDGET, "{} bytes, seed {seed}", state.bytes);
                assert_eq!(count_of(model.len()), state.held + state.overwritten);
            }
            let overwritten = usize::try_from(recorder.state().overwritten).unwrap();
            assert!(overwritten > 0 && overwritten % 1000 == 0, "seed {seed}");
            let held = model.split_off(overwritten);
            assert_eq!(sorted(seen(&recorder, 0..u64::MAX)), sorted(held.clone()));
            for _ in 0..20 {
                let one = held[random.index(held.len())].ended_ns();
                let other = held[random.index(held.len())].ended_ns();
                let range_ns = one.min(other)..one.max(other);
                let mut expected = held.clone();
                expected.retain(|record| range_ns.contains(&record.ended_ns()));
                assert_eq!(sorted(seen(&recorder, range_ns)), sorted(expected));
            }
        }
    }

    #[test]
    fn times_that_are_overwritten_are_not_collected() {
        let recorder = FlightRecorder::of_segments(40_000, 100);
        let mut random = Random::new(1);
        for second in 0..100_u64 {
            let range_ns = second * 1000 + 1_000_000..(second + 1) * 1000 + 1_000_000;
            let ended = (0..50).map(|i| range_ns.start + i * 20);
            let records: Vec<_> = ended.map(|ns| any_record(&mut random, ns)).collect();
            recorder.take(&records);
            recorder.collected(range_ns, 0);
        }
        let state = recorder.state();
        let from_ns = state.from_ns.unwrap();
        assert!(state.overwritten > 0 && from_ns > 1_000_000);
        let of = |range_ns: Range<u64>| recorder.coverage(&range_ns).0;
        assert_eq!(of(1_000_000..from_ns), Collected::NotCollected);
        assert_eq!(of(from_ns..1_100_000), Collected::Whole);
        let held = seen(&recorder, from_ns..1_100_000).len();
        assert_eq!(count_of(held), state.held);
    }

    /// Operations of a file server: a few clients and files, pages of 4 KiB, one in fifty from a
    /// disk. Half an hour of 20,000 a second must fit 512 MiB.
    #[test]
    fn operations_of_a_server_take_at_most_fifteen_bytes() {
        let mut random = Random::new(2);
        let mut now_ns = 1 << 40;
        let mut records = Vec::new();
        for _ in 0..SEGMENT_RECORDS {
            now_ns += random.below(100_000);
            let is_slow = random.one_in(50);
            let cache_ns = 500 + random.below(1500);
            let device_ns = if is_slow {
                4_000_000 + random.below(6_000_000)
            } else {
                0
            };
            let stages = [
                800 + random.below(600),
                0,
                cache_ns,
                0,
                0,
                device_ns,
                0,
                1500,
                0,
            ];
            let who = Who {
                client: ClientId(20 + random.below(12) as u32),
                protocol: Protocol::Nfs4,
                user: 1000 + random.below(4) as u32,
                holder: HolderId::NONE,
            };
            let what = What {
                kind: [OperationKind::Read, OperationKind::Write][random.index(2)],
                dataset: DatasetId(random.below(3) as u32),
                object: 1000 + random.below(300),
                offset: random.below(1 << 16) * 4096,
                size: 4096,
            };
            let latency_ns = stages.iter().sum::<u64>() + random.below(2000);
            let outcome = if is_slow { 8 } else { 1 };
            let started_ns = now_ns - latency_ns;
            let record =
                OperationRecord::new(started_ns, latency_ns, &who, &what, outcome, &stages);
            records.push(record);
        }
        let bytes = Segment::pack(&records).memory_bytes();
        let per_record = bytes as f64 / SEGMENT_RECORDS as f64;
        let room = DEFAULT_BUDGET_BYTES - 2 * SEGMENT_RECORDS * RECORD_BYTES;
        assert!(
            per_record * 36_000_000.0 <= room as f64,
            "{per_record} bytes"
        );
    }
}
