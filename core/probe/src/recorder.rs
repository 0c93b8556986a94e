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
//! Beside each ring are counts by kind of what its thread finished, with one writer as well; a
//! reader adds them up.
//!
//! # Invariants
//! - records taken by the collector + records waiting + records dropped = records made.
//! - A writer never waits; a collector waits only for another collector.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::histogram::Writers;
use crate::kind::OperationKind;
use crate::record::OperationRecord;
use crate::registry::{Instance, Value, registry};
use crate::statistics::{KindStatistics, OperationStatistics, push_values};

/// Records in a ring: 1 MiB a thread, 100 ms of it at 160,000 operations a second.
const RING_RECORDS: usize = 16 * 1024;
/// One record.
type Slot = [AtomicU64; 8];

/// One ring.
#[derive(Debug)]
struct Ring {
    /// Made at the first record.
    slots: OnceLock<Box<[Slot]>>,
    capacity: u64,
    /// Records ever written.
    written: AtomicU64,
    /// Records ever taken.
    taken: AtomicU64,
    /// Records that found it full.
    dropped: AtomicU64,
    /// What its threads finished, by kind.
    kinds: OperationStatistics,
}

impl Ring {
    fn new(records: usize) -> Ring {
        Ring {
            slots: OnceLock::new(),
            capacity: u64::try_from(records).expect("a ring is small"),
            written: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            kinds: OperationStatistics::new(),
        }
    }

    /// Only the thread that owns the ring calls this.
    fn push(&self, record: &OperationRecord) {
        let written = self.written.load(Ordering::Relaxed);
        if written - self.taken.load(Ordering::Acquire) >= self.capacity {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let slots = self.slots.get_or_init(|| self.empty_slots());
        for (slot, word) in self.slot(slots, written).iter().zip(record.to_words()) {
            slot.store(word, Ordering::Relaxed);
        }
        self.written.store(written + 1, Ordering::Release);
    }

    /// Only the collector calls this.
    fn drain(&self, take: &mut dyn FnMut(OperationRecord)) {
        let written = self.written.load(Ordering::Acquire);
        let Some(slots) = self.slots.get() else {
            return;
        };
        for position in self.taken.load(Ordering::Relaxed)..written {
            let slot = self.slot(slots, position);
            let words = std::array::from_fn(|i| slot[i].load(Ordering::Relaxed));
            take(OperationRecord::from_words(words));
            self.taken.store(position + 1, Ordering::Release);
        }
    }

    fn empty_slots(&self) -> Box<[Slot]> {
        (0..self.capacity).map(|_| Slot::default()).collect()
    }

    fn slot<'a>(&self, slots: &'a [Slot], position: u64) -> &'a Slot {
        &slots[usize::try_from(position % self.capacity).expect("less than its length")]
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
    static RECORDER: OnceLock<Recorder> = OnceLock::new();
    static INSTANCE: OnceLock<Arc<Instance>> = OnceLock::new();
    let recorder = RECORDER.get_or_init(|| Recorder::new(RING_RECORDS));
    INSTANCE.get_or_init(|| {
        let instance = registry().instance("operations", 0, "all");
        instance.provide(|| RECORDER.get().map(Recorder::values).unwrap_or_default());
        instance
    });
    recorder
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

    /// Takes a record: into this thread's ring, if it is kept, and into the counts of its kind.
    pub(crate) fn record(&self, record: &OperationRecord) {
        // While a thread is being torn down its ring is gone; the record is then not kept.
        let _ = OWN_RING.try_with(|own| {
            let own = own.get_or_init(|| self.shared.adopt_ring());
            if self.keeps_records() {
                own.ring.push(record);
            }
            own.ring.kinds.count_by(Writers::One, record);
        });
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
        let mut sum = KindStatistics::default();
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
            recorded: sum(|ring| &ring.written),
            collected: sum(|ring| &ring.taken),
            dropped: sum(|ring| &ring.dropped),
            rings: u64::try_from(rings.all.len()).unwrap_or(u64::MAX),
        }
    }

    fn values(&self) -> Vec<(String, Value)> {
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
            let counts = self.kind(*kind);
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
        for ring in rings {
            ring.drain(take);
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
    use crate::operation::{What, Who};

    fn numbered(object: u64) -> OperationRecord {
        let what = What::plain(OperationKind::Lookup, DatasetId::NONE, object);
        OperationRecord::new(0, 1, &Who::INTERNAL, &what, 0, &[0; 8])
    }

    fn drained(ring: &Ring) -> Vec<u64> {
        let mut objects = Vec::new();
        ring.drain(&mut |record| objects.push(record.object));
        objects
    }

    #[test]
    fn a_full_ring_keeps_the_oldest_and_counts_what_it_drops() {
        let ring = Ring::new(4);
        (0..7).for_each(|object| ring.push(&numbered(object)));
        assert_eq!(drained(&ring), [0, 1, 2, 3]);
        assert_eq!(ring.dropped.load(Ordering::Relaxed), 3);
        ring.push(&numbered(9));
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
            let writer = scope.spawn(|| (0..RECORDS).for_each(|i| ring.push(&numbered(i))));
            while !writer.is_finished() {
                seen.extend(drained(&ring));
            }
        });
        seen.extend(drained(&ring));
        assert!(seen.is_sorted_by(|a, b| a < b));
        let taken = u64::try_from(seen.len()).unwrap();
        assert_eq!(taken + ring.dropped.load(Ordering::Relaxed), RECORDS);
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
