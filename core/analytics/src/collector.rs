//! The collector: one thread that drains the rings of `probe` into the flight recorder and the live
//! instrumentations.
//!
//! # Mechanism
//! A pass takes all records that wait, keeps them, has the live instrumentations count them, and
//! notes the time that it covers. The thread makes a pass every 50 ms: a ring has room for 100 ms
//! at 160,000 operations a second of one thread. A record is pushed a moment after its operation
//! ended, so a pass covers the time up to [`SETTLE_NS`] before it began.
//!
//! # Invariants
//! - A request never waits for a pass: a ring that is full drops, and the pass notes how many.
//! - records drained + records dropped = records that `probe` counted.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tarn_host::{Host, Mutex, RepeatingThread, ThreadPlace};
use tarn_probe::{OperationRecord, Recorder, recorder};

use crate::breakdown::Breakdown;
use crate::column_batch::BATCH_RECORDS;
use crate::compiled::CompiledPredicate;
use crate::error::LiveError;
use crate::flight_recorder::FlightRecorder;
use crate::live::{InstrumentationId, Live, LiveResults, Purpose};
use crate::operation_totals::{OperationTotal, OperationTotals};
use crate::probes::Probes;
use crate::ranks;

/// Between two passes.
const PASS: Duration = Duration::from_millis(50);
/// A record is in its ring so long after its operation ended, unless its thread was stopped
/// between. A guess: a thousand times what a push takes.
const SETTLE_NS: u64 = 10_000_000;
/// Records that are handed over together.
const CHUNK_RECORDS: usize = 16 * BATCH_RECORDS;

/// The flight recorder, the live instrumentations, and what fills them.
#[derive(Debug)]
pub struct Analytics {
    recorder: FlightRecorder,
    live: Mutex<Live>,
    totals: Mutex<OperationTotals>,
    pass: Mutex<Pass>,
    passes: AtomicU64,
    passes_ns: AtomicU64,
}

/// What the passes of the thread took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PassTotals {
    /// How many there were.
    pub passes: u64,
    /// How long all of them took, in nanoseconds.
    pub time_ns: u64,
}

/// What a pass knows of those before it.
#[derive(Debug, Default)]
struct Pass {
    /// Up to when time is covered; `None` before the first pass.
    covered_ns: Option<u64>,
    /// What `probe` had dropped.
    dropped: u64,
}

impl Analytics {
    /// An empty one, with a flight recorder of that budget. Nothing is collected until passes are
    /// made.
    pub fn new(budget_bytes: usize) -> Analytics {
        Analytics {
            recorder: FlightRecorder::new(budget_bytes),
            live: Mutex::new(ranks::LIVE, Live::default()),
            totals: Mutex::new(ranks::TOTALS, OperationTotals::default()),
            pass: Mutex::new(ranks::PASS, Pass::default()),
            passes: AtomicU64::new(0),
            passes_ns: AtomicU64::new(0),
        }
    }

    /// Starts the thread that makes passes. Queries use the processors of this machine.
    pub fn start(self: &Arc<Self>, host: &Host) -> RepeatingThread {
        self.recorder.use_processors(host);
        let (analytics, clock) = (self.clone(), host.clone());
        let name = "tarn-analytics";
        RepeatingThread::start(host, name, ThreadPlace::Plain, move |end| {
            let probes = Probes::register();
            loop {
                let began_ns = clock.monotonic_ns();
                analytics.pass(began_ns);
                let pass_ns = clock.monotonic_ns() - began_ns;
                analytics.passes.fetch_add(1, Ordering::Relaxed);
                (analytics.passes_ns).fetch_add(pass_ns, Ordering::Relaxed);
                probes.passed(pass_ns, &analytics.recorder.state());
                if end.comes_within(PASS) {
                    return analytics.end(clock.monotonic_ns());
                }
            }
        })
    }

    /// The operations held.
    pub fn flight_recorder(&self) -> &FlightRecorder {
        &self.recorder
    }

    /// What the passes of the thread took.
    pub fn pass_totals(&self) -> PassTotals {
        PassTotals {
            passes: self.passes.load(Ordering::Relaxed),
            time_ns: self.passes_ns.load(Ordering::Relaxed),
        }
    }

    /// Takes what the rings of this process have, at `now_ns` of the clock of operations. From the
    /// first pass on they take records.
    pub fn pass(&self, now_ns: u64) {
        recorder().keep_records(true);
        self.pass_over(recorder(), now_ns);
    }

    /// Makes the last pass. Rings take no records any more, so the time after it is not collected.
    fn end(&self, now_ns: u64) {
        self.pass(now_ns);
        recorder().keep_records(false);
        *self.pass.lock() = Pass::default();
    }

    fn pass_over(&self, rings: &Recorder, now_ns: u64) {
        let mut pass = self.pass.lock();
        let collector = rings.collect();
        let mut records = Vec::with_capacity(CHUNK_RECORDS);
        collector.drain(&mut |record| {
            records.push(record);
            if records.len() == CHUNK_RECORDS {
                self.take(&records);
                records.clear();
            }
        });
        self.take(&records);
        let dropped = rings.totals().dropped;
        if let Some(covered_ns) = pass.covered_ns {
            // What was dropped may have ended up to now.
            let dropped_now = dropped - pass.dropped;
            let settle_ns = if dropped_now > 0 { 0 } else { SETTLE_NS };
            let end_ns = now_ns.saturating_sub(settle_ns);
            // Without time between, the next pass tells.
            if end_ns > covered_ns {
                self.recorder.collected(covered_ns..end_ns, dropped_now);
                (pass.covered_ns, pass.dropped) = (Some(end_ns), dropped);
            }
        } else {
            (pass.covered_ns, pass.dropped) = (Some(now_ns), dropped);
        }
        self.live.lock().tend(now_ns);
    }

    /// Keeps and counts records. Passes call it, and importers of records from elsewhere, one
    /// thread at a time.
    pub fn take(&self, records: &[OperationRecord]) {
        self.recorder.take(records);
        self.totals.lock().count(records);
        for part in records.chunks(BATCH_RECORDS) {
            let mut live = self.live.lock();
            if live.is_empty() {
                return;
            }
            live.count(part);
        }
    }

    /// What was counted since the collector began, by protocol, kind and dataset, in no order.
    pub fn totals(&self) -> Vec<OperationTotal> {
        self.totals.lock().all()
    }

    /// Notes that what ended in this time was taken, except `dropped` operations.
    pub fn note_collected(&self, range_ns: Range<u64>, dropped: u64) {
        if !range_ns.is_empty() {
            self.recorder.collected(range_ns, dropped);
        }
    }

    /// Begins to count operations as they come, from `now_ns` of their clock on.
    pub fn instrument(
        &self,
        predicate: CompiledPredicate,
        breakdown: Breakdown,
        keys_max: usize,
        now_ns: u64,
    ) -> Result<InstrumentationId, LiveError> {
        let mut live = self.live.lock();
        live.add(predicate, breakdown, keys_max, Purpose::People, now_ns)
    }

    /// As [`Analytics::instrument`], for the archive: `shift_ns` is added to the times of
    /// operations before they are cut into seconds. It is none of those that people have, is in no
    /// list, and holds a few seconds.
    pub fn instrument_seconds(
        &self,
        predicate: CompiledPredicate,
        breakdown: Breakdown,
        keys_max: usize,
        now_ns: u64,
        shift_ns: u64,
    ) -> Result<InstrumentationId, LiveError> {
        let mut live = self.live.lock();
        let purpose = Purpose::Archive { shift_ns };
        live.add(predicate, breakdown, keys_max, purpose, now_ns)
    }

    /// Ends an instrumentation. Says whether there was one.
    pub fn remove_instrumentation(&self, id: InstrumentationId) -> bool {
        self.live.lock().remove(id)
    }

    /// The instrumentations that count.
    pub fn instrumentations(&self) -> Vec<InstrumentationId> {
        self.live.lock().ids()
    }

    /// What an instrumentation counted from second `from_second` of the clock of operations on;
    /// `None` when it has ended. Reading keeps it from being idle.
    pub fn live_results(
        &self,
        id: InstrumentationId,
        from_second: u64,
        now_ns: u64,
    ) -> Option<LiveResults> {
        self.live.lock().read(id, from_second, now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::Collected;
    use tarn_host::RealOptions;
    use tarn_probe::{ClientId, Operation, OperationKind, Who};

    fn finish(count: u64, client: ClientId) {
        for _ in 0..count {
            let who = Who {
                client,
                ..Who::INTERNAL
            };
            let what = tarn_probe::What::plain(
                OperationKind::Lookup,
                tarn_probe::DatasetId::NONE,
                client.0.into(),
            );
            Operation::begin(tarn_host::monotonic_ns, who, what).finish();
        }
    }

    fn held_of(analytics: &Analytics, client: ClientId) -> u64 {
        let predicate = CompiledPredicate::has_key(crate::Field::Client, client.0.into());
        let recorder = analytics.flight_recorder();
        let all = 0..u64::MAX;
        recorder
            .operations(&all, &predicate, crate::Order::Oldest, 0)
            .count
    }

    /// The only test of this crate that drains the rings of the process. More operations than a
    /// ring holds: what was not drained is told as dropped, and for the time of that pass only.
    #[test]
    fn passes_take_all_operations_of_the_process_or_tell_what_was_dropped() {
        let analytics = Arc::new(Analytics::new(0));
        let client = ClientId(777);
        let began_ns = tarn_host::monotonic_ns();
        analytics.pass(began_ns);
        finish(1000, client);
        analytics.pass(tarn_host::monotonic_ns());
        assert_eq!(held_of(&analytics, client), 1000);
        let before_ns = tarn_host::monotonic_ns();
        finish(40_000, client);
        analytics.pass(tarn_host::monotonic_ns());
        let state = analytics.flight_recorder().state();
        assert!(state.dropped > 0);
        assert_eq!(held_of(&analytics, client) + state.dropped, 41_000);
        let since = before_ns..tarn_host::monotonic_ns();
        let (collected, dropped) = analytics.flight_recorder().coverage(&since);
        assert_eq!((collected, dropped), (Collected::Partly, state.dropped));

        let host = Host::real(RealOptions::default());
        let thread = analytics.start(&host);
        finish(500, client);
        thread.stop();
        analytics.start(&host).stop();
        analytics.pass(tarn_host::monotonic_ns());
        assert_eq!(held_of(&analytics, client) + state.dropped, 41_500);
    }
}
