//! The flight recorder: one ring of records a thread, drained by one collector.
//!
//! # Mechanism
//! A ring has one writer, the thread that finishes operations, and one reader, the holder of the
//! [`Collector`]. Its slots are eight atomic words, so no `unsafe` is needed: the writer stores the
//! words and then releases its position, the reader acquires it. When the ring is full the newest
//! record is dropped and counted. A thread's ring is made at its first record and handed on to
//! another thread after its end.
//!
//! Rings take records while a collector says that it drains them ([`Recorder::keep_records`]);
//! otherwise an operation is only counted, and a ring takes no memory.
//!
//! Operations are counted from their records, by kind and by dataset: one set of numbers, from
//! which kstats are made. The collector counts a record when it takes it, and a reader of counts
//! counts those that wait before it reads ([`Recorder::settle`]): so counting takes no time of a
//! request. What is in no ring, as it found it full or nothing drains it, is counted by its own
//! thread.
//!
//! # Invariants
//! - records taken by the collector + records waiting + records dropped = records made.
//! - Each operation is counted once, and a reader finds all that were finished before it read.
//! - A writer never waits; a collector waits only for another collector.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::dataset_table::DatasetId;
use crate::histogram::Writers;
use crate::kind::{OperationKind, Protocol};
use crate::record::OperationRecord;
use crate::registry::{Instance, Value, registry};
use crate::served_counts;
use crate::statistics::{KindStatistics, OperationStatistics, push_values};

/// Records in a ring, a power of two: 1 MiB a thread, 100 ms of it at 160,000 operations a second.
const RING_RECORDS: usize = 16 * 1024;
/// One record.
type Slot = [AtomicU64; 8];

/// One ring.
#[derive(Debug)]
struct Ring {
    /// Made at the first record.
    slots: OnceLock<Box<[Slot]>>,
    capacity: u64,
    writer: WriterSide,
    reader: ReaderSide,
    /// What its threads counted themselves, by kind.
    kinds: OperationStatistics,
}

/// What the writer changes, apart from what the reader does: they would take each other's cache
/// line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct WriterSide {
    /// Records ever written.
    written: AtomicU64,
    /// Records that had been taken when the writer looked.
    seen_taken: AtomicU64,
    /// Records that found it full.
    dropped: AtomicU64,
}

/// What the holder of the right to take changes.
#[derive(Debug, Default)]
#[repr(align(64))]
struct ReaderSide {
    /// Records ever taken.
    taken: AtomicU64,
    /// Records ever counted: at least those that are taken.
    counted: AtomicU64,
}

impl Ring {
    fn new(records: usize) -> Ring {
        Ring {
            slots: OnceLock::new(),
            capacity: u64::try_from(records.next_power_of_two()).expect("a ring is small"),
            writer: WriterSide::default(),
            reader: ReaderSide::default(),
            kinds: OperationStatistics::new(),
        }
    }

    /// Says whether there was room. Only the thread that owns the ring calls this.
    fn push(&self, record: &OperationRecord) -> bool {
        let writer = &self.writer;
        let written = writer.written.load(Ordering::Relaxed);
        if written - writer.seen_taken.load(Ordering::Relaxed) >= self.capacity {
            let taken = self.reader.taken.load(Ordering::Acquire);
            writer.seen_taken.store(taken, Ordering::Relaxed);
            if written - taken >= self.capacity {
                Writers::One.add(&writer.dropped, 1);
                return false;
            }
        }
        let slots = self.slots.get_or_init(|| self.empty_slots());
        for (slot, word) in self.slot(slots, written).iter().zip(record.to_words()) {
            slot.store(word, Ordering::Relaxed);
        }
        writer.written.store(written + 1, Ordering::Release);
        true
    }

    /// Takes all records that wait, and counts those that are not counted. Only the holder of the
    /// right to take calls this.
    fn drain(&self, count: &mut Counting<'_>, take: &mut dyn FnMut(OperationRecord)) {
        self.settle(count);
        let counted = self.reader.counted.load(Ordering::Relaxed);
        self.each_from(
            self.reader.taken.load(Ordering::Relaxed),
            counted,
            |at, record| {
                take(record);
                self.reader.taken.store(at + 1, Ordering::Release);
            },
        );
    }

    /// Counts the records that wait and are not counted. Only the holder of the right to take calls
    /// this.
    fn settle(&self, count: &mut Counting<'_>) {
        let written = self.writer.written.load(Ordering::Acquire);
        let counted = self.reader.counted.load(Ordering::Relaxed);
        self.each_from(counted, written, |_, record| count.add(&record));
        self.reader.counted.store(written, Ordering::Relaxed);
    }

    fn each_from(&self, from: u64, to: u64, mut see: impl FnMut(u64, OperationRecord)) {
        let Some(slots) = self.slots.get() else {
            return;
        };
        for position in from..to {
            let slot = self.slot(slots, position);
            let words = std::array::from_fn(|i| slot[i].load(Ordering::Relaxed));
            see(position, OperationRecord::from_words(words));
        }
    }

    fn empty_slots(&self) -> Box<[Slot]> {
        (0..self.capacity).map(|_| Slot::default()).collect()
    }

    fn slot<'a>(&self, slots: &'a [Slot], position: u64) -> &'a Slot {
        let place = position & (self.capacity - 1);
        &slots[usize::try_from(place).expect("less than its length")]
    }
}

/// Counts records behind their operations. The holder of the right to take has it.
struct Counting<'a> {
    kinds: &'a OperationStatistics,
    /// The dataset of the last record: most records that follow one another are of one.
    last: Option<(DatasetId, Option<Arc<OperationStatistics>>)>,
}

impl Counting<'_> {
    fn add(&mut self, record: &OperationRecord) {
        if record.protocol() == Some(Protocol::Device) {
            return;
        }
        self.kinds.count_by(Writers::One, record);
        if record.dataset == DatasetId::NONE {
            return;
        }
        if self
            .last
            .as_ref()
            .is_none_or(|(id, _)| *id != record.dataset)
        {
            self.last = Some((record.dataset, served_counts::find(record.dataset)));
        }
        if let Some((_, Some(dataset))) = &self.last {
            dataset.count(record);
        }
    }
}

/// Takes every finished operation. There is one for the process: [`recorder`].
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    rings: Mutex<Rings>,
    collecting: Mutex<()>,
    /// Whether a collector drains the rings.
    is_kept: AtomicBool,
    ring_records: usize,
    /// What the holders of `collecting` counted, by kind.
    kinds: OperationStatistics,
}

#[derive(Debug, Default)]
struct Rings {
    all: Vec<Arc<Ring>>,
    /// Rings whose thread has ended, with their number: places in `all`.
    idle: Vec<usize>,
}

/// How many records were made, and what became of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RecorderTotals {
    /// Records put into rings.
    pub recorded: u64,
    /// Records taken by the collector.
    pub collected: u64,
    /// Records that found their ring full.
    pub dropped: u64,
    /// How many rings there are.
    pub rings: u64,
}

/// The recorder of this process.
pub fn recorder() -> &'static Recorder {
    static RECORDER: OnceLock<(Recorder, Arc<Instance>)> = OnceLock::new();
    let known = RECORDER.get_or_init(|| {
        let instance = registry().instance("operations", 0, "all");
        let values = || RECORDER.get().map(|(recorder, _)| recorder.values());
        instance.provide(move || values().unwrap_or_default());
        (Recorder::new(RING_RECORDS), instance)
    });
    &known.0
}

/// A thread's ring, given back for another thread when the thread ends.
struct OwnRing {
    ring: Arc<Ring>,
    number: usize,
    shared: Arc<Shared>,
}

impl Drop for OwnRing {
    fn drop(&mut self) {
        self.shared.rings().idle.push(self.number);
    }
}

thread_local! {
    static OWN_RING: OnceCell<OwnRing> = const { OnceCell::new() };
}

impl Recorder {
    fn new(ring_records: usize) -> Recorder {
        let shared = Shared {
            rings: Mutex::default(),
            collecting: Mutex::new(()),
            is_kept: AtomicBool::new(false),
            ring_records,
            kinds: OperationStatistics::new(),
        };
        Recorder {
            shared: Arc::new(shared),
        }
    }

    /// From now on rings take records, or take none. A collector that ends says the latter: rings
    /// without a reader only fill up.
    pub fn keep_records(&self, is_kept: bool) {
        self.shared.is_kept.store(is_kept, Ordering::Relaxed);
    }

    /// Whether rings take records.
    pub(crate) fn keeps_records(&self) -> bool {
        self.shared.is_kept.load(Ordering::Relaxed)
    }

    /// Takes a record of what is no operation: into this thread's ring alone.
    pub(crate) fn record_uncounted(&self, record: &OperationRecord) {
        let _ = OWN_RING.try_with(|own| {
            let own = own.get_or_init(|| self.shared.adopt_ring());
            own.ring.push(record);
        });
    }

    /// Takes a record into this thread's ring, where it is counted by its kind and dataset later;
    /// or, where it is not kept, counts it now. `statistics` are those of its dataset.
    pub(crate) fn record(
        &self,
        record: &OperationRecord,
        statistics: Option<&OperationStatistics>,
    ) {
        // While a thread is being torn down its ring is gone; the record is then not kept.
        let _ = OWN_RING.try_with(|own| {
            let own = own.get_or_init(|| self.shared.adopt_ring());
            self.record_in(&own.ring, record, statistics);
        });
    }

    /// The same, by the thread that owns the ring.
    fn record_in(
        &self,
        ring: &Ring,
        record: &OperationRecord,
        statistics: Option<&OperationStatistics>,
    ) {
        if self.keeps_records() && ring.push(record) {
            return;
        }
        ring.kinds.count_by(Writers::One, record);
        if let Some(statistics) = statistics {
            statistics.count(record);
        }
    }

    /// Counts the operations whose records wait in rings, so that counts have all that were
    /// finished before. Waits while a collector is at work.
    pub fn settle(&self) {
        let _only = lock(&self.shared.collecting);
        self.shared.settle();
    }

    /// The right to take records. Waits until no other collector is at work.
    pub fn collect(&self) -> Collector<'_> {
        Collector {
            shared: &self.shared,
            _only: lock(&self.shared.collecting),
        }
    }

    /// What was counted for a kind, by all threads since the start.
    pub fn kind(&self, kind: OperationKind) -> KindStatistics {
        self.settle();
        self.settled_kind(kind)
    }

    fn settled_kind(&self, kind: OperationKind) -> KindStatistics {
        let mut sum = self.shared.kinds.snapshot(kind).unwrap_or_default();
        for ring in &self.shared.rings().all {
            if let Some(counts) = ring.kinds.snapshot(kind) {
                sum.merge(&counts);
            }
        }
        sum
    }

    /// How many records were made, and what became of them.
    pub fn totals(&self) -> RecorderTotals {
        let rings = self.shared.rings();
        let sum = |of: fn(&Ring) -> &AtomicU64| {
            rings
                .all
                .iter()
                .map(|ring| of(ring).load(Ordering::Relaxed))
                .sum()
        };
        RecorderTotals {
            recorded: sum(|ring| &ring.writer.written),
            collected: sum(|ring| &ring.reader.taken),
            dropped: sum(|ring| &ring.writer.dropped),
            rings: u64::try_from(rings.all.len()).unwrap_or(u64::MAX),
        }
    }

    fn values(&self) -> Vec<(String, Value)> {
        self.settle();
        let totals = self.totals();
        let mut values = vec![
            (
                "records_recorded".to_owned(),
                Value::Counter(totals.recorded),
            ),
            (
                "records_collected".to_owned(),
                Value::Counter(totals.collected),
            ),
            ("records_dropped".to_owned(), Value::Counter(totals.dropped)),
            ("rings".to_owned(), Value::Counter(totals.rings)),
        ];
        for kind in OperationKind::ALL {
            let counts = self.settled_kind(*kind);
            if counts.operations > 0 {
                push_values(&mut values, *kind, counts);
            }
        }
        values
    }
}

impl Shared {
    fn rings(&self) -> MutexGuard<'_, Rings> {
        lock(&self.rings)
    }

    fn counting(&self) -> Counting<'_> {
        Counting {
            kinds: &self.kinds,
            last: None,
        }
    }

    /// Counts what waits. The caller has the right to take.
    fn settle(&self) {
        let rings: Vec<Arc<Ring>> = self.rings().all.clone();
        let mut counting = self.counting();
        rings.iter().for_each(|ring| ring.settle(&mut counting));
    }

    /// Gives the calling thread a ring: one whose thread has ended, or a new one.
    fn adopt_ring(self: &Arc<Shared>) -> OwnRing {
        let mut rings = self.rings();
        let number = rings.idle.pop().unwrap_or_else(|| {
            rings.all.push(Arc::new(Ring::new(self.ring_records)));
            rings.all.len() - 1
        });
        let ring = rings.all[number].clone();
        OwnRing {
            ring,
            number,
            shared: self.clone(),
        }
    }
}

/// Takes records out of the rings.
#[derive(Debug)]
pub struct Collector<'a> {
    shared: &'a Shared,
    _only: MutexGuard<'a, ()>,
}

impl Collector<'_> {
    /// Takes all records that wait. Those of one thread come in the order they were finished.
    pub fn drain(&self, take: &mut dyn FnMut(OperationRecord)) {
        let rings: Vec<Arc<Ring>> = self.shared.rings().all.clone();
        let mut counting = self.shared.counting();
        for ring in rings {
            ring.drain(&mut counting, take);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset_table::DatasetId;
    use crate::request::{What, Who};

    fn numbered(object: u64) -> OperationRecord {
        let what = What::plain(OperationKind::Lookup, DatasetId::NONE, object);
        OperationRecord::new(0, 1, &Who::INTERNAL, &what, 0, &[0; 9])
    }

    fn drained(ring: &Ring) -> Vec<u64> {
        let mut objects = Vec::new();
        let kinds = OperationStatistics::new();
        let mut counting = Counting {
            kinds: &kinds,
            last: None,
        };
        ring.drain(&mut counting, &mut |record| objects.push(record.object()));
        objects
    }

    #[test]
    fn a_full_ring_keeps_the_oldest_and_counts_what_it_drops() {
        let ring = Ring::new(4);
        let had_room = (0..7).filter(|object| ring.push(&numbered(*object)));
        assert_eq!(had_room.count(), 4);
        assert_eq!(drained(&ring), [0, 1, 2, 3]);
        assert_eq!(ring.writer.dropped.load(Ordering::Relaxed), 3);
        assert!(ring.push(&numbered(9)));
        assert_eq!(drained(&ring), [9]);
    }

    /// A writer and a reader at full speed: nothing is torn, doubled or out of order, and the sum
    /// is right.
    #[test]
    fn every_record_is_taken_once_in_order_or_counted_as_dropped() {
        const RECORDS: u64 = 20_000;
        let ring = Ring::new(64);
        let mut seen = Vec::new();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| (0..RECORDS).for_each(|i| _ = ring.push(&numbered(i))));
            while !writer.is_finished() {
                seen.extend(drained(&ring));
            }
        });
        seen.extend(drained(&ring));
        assert!(seen.is_sorted_by(|a, b| a < b));
        let taken = u64::try_from(seen.len()).unwrap();
        assert_eq!(taken + ring.writer.dropped.load(Ordering::Relaxed), RECORDS);
    }

    /// Whether nothing drains rings, records wait, were counted and wait, are taken, or found the
    /// ring full: each operation is counted once, as soon as a reader looks.
    #[test]
    fn each_operation_is_counted_once_wherever_its_record_is() {
        let recorder = Recorder::new(4);
        let own = recorder.shared.adopt_ring();
        let (id, dataset) = (DatasetId(0xfade), Arc::default());
        served_counts::serve(id, &dataset);
        let what = What::plain(OperationKind::Lookup, id, 1);
        let record = OperationRecord::new(0, 100, &Who::INTERNAL, &what, 0, &[0; 9]);
        let counted = || {
            recorder.settle();
            let of_dataset = dataset.snapshot(OperationKind::Lookup);
            let of_dataset = of_dataset.unwrap_or_default().operations;
            let of_kind = recorder.kind(OperationKind::Lookup);
            assert_eq!(of_kind.operations, of_dataset);
            assert_eq!(of_kind.latency.sum(), 100 * of_dataset);
            of_dataset
        };
        let finish = |times: u64| {
            (0..times).for_each(|_| {
                recorder.record_in(&own.ring, &record, Some(&dataset));
            });
        };
        finish(2);
        assert_eq!((counted(), recorder.totals().recorded), (2, 0));
        recorder.keep_records(true);
        finish(3);
        assert_eq!(
            (counted(), counted(), recorder.totals().recorded),
            (5, 5, 3)
        );
        finish(3);
        assert_eq!(counted(), 8);
        assert_eq!(recorder.totals().dropped, 2);
        let mut taken = 0;
        recorder.collect().drain(&mut |_| taken += 1);
        assert_eq!((counted(), taken), (8, 4));
        finish(1);
        recorder.collect().drain(&mut |_| taken += 1);
        assert_eq!((counted(), taken), (9, 5));
    }

    #[test]
    fn the_ring_of_a_thread_that_ended_is_used_again() {
        let shared = Recorder::new(4).shared;
        let first = shared.adopt_ring();
        let second = shared.adopt_ring();
        assert_ne!(first.number, second.number);
        drop(first);
        assert_eq!(shared.adopt_ring().number, 0);
    }
}
