//! An operation: made where a request enters, handed down by reference, finished where it is
//! answered.
//!
//! All that changes is atomic and relaxed, because a batch adds times from several threads. The
//! sums are read once, when the operation is finished, after all of its batches.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

use crate::dataset_table::DatasetId;
use crate::error_code::ErrorCode;
use crate::kind::{OperationKind, Outcome, Stage};
use crate::missing_names;
use crate::record::OperationRecord;
use crate::recorder::recorder;
use crate::request::{What, Who};
use crate::statistics::OperationStatistics;
use crate::usdt;

/// Gives nanoseconds of a clock that never goes back. `tarn_host::monotonic_ns` is one.
pub type Clock = fn() -> u64;

/// The story of one request. Every call that may reach a device takes one by reference.
#[derive(Debug)]
pub struct Operation {
    clock: Clock,
    started_ns: u64,
    /// See [`looked_up_ns`](Operation::looked_up_ns).
    looked_up_ns: AtomicU64,
    who: Who,
    what: What,
    stages_ns: [AtomicU64; Stage::COUNT],
    outcome: AtomicU16,
    /// The [`ErrorCode`] that it failed with.
    error: AtomicU8,
    /// The number of the name that it looked for in vain, 0 if there is none.
    missing_name: AtomicU64,
    /// How long its thread had waited for locks when it began.
    lock_waits: LockWaits,
}

/// How long a thread has waited for locks since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LockWaits {
    /// Which thread, of those of this process; 0 for none.
    pub thread: u32,
    /// Nanoseconds.
    pub waited_ns: u64,
}

impl Operation {
    /// Begins now.
    pub fn begin(clock: Clock, who: Who, what: What) -> Operation {
        Operation::begun_at(clock, clock(), who, what)
    }

    /// Began at `started_ns` of `clock`, for a request that waited before it was taken up.
    pub fn begun_at(clock: Clock, started_ns: u64, who: Who, what: What) -> Operation {
        let operation = Operation {
            clock,
            started_ns,
            looked_up_ns: AtomicU64::new(started_ns),
            who,
            what,
            stages_ns: Default::default(),
            outcome: AtomicU16::new(0),
            error: AtomicU8::new(0),
            missing_name: AtomicU64::new(0),
            lock_waits: LockWaits::default(),
        };
        usdt::operation_begin(|| {
            [
                what.kind.number().into(),
                who.protocol.number().into(),
                who.client.0.into(),
                who.user.into(),
                what.dataset.0.into(),
                what.object,
                what.offset,
                what.size,
            ]
        });
        operation
    }

    /// With what its thread had waited for locks before it.
    #[must_use]
    pub fn after_lock_waits(self, lock_waits: LockWaits) -> Operation {
        Operation { lock_waits, ..self }
    }

    /// Adds what its thread has waited for locks since it began, if it is that thread: the time of
    /// no other stage is lock time, so that stages add up.
    pub fn add_lock_waits(&self, now: LockWaits) {
        let waited_ns = now.waited_ns.saturating_sub(self.lock_waits.waited_ns);
        if waited_ns == 0 || now.thread == 0 || now.thread != self.lock_waits.thread {
            return;
        }
        let latency_ns = (self.clock)().saturating_sub(self.started_ns);
        let elsewhere_ns = self.others_ns(Stage::Lock);
        let lock_ns = waited_ns.min(latency_ns.saturating_sub(elsewhere_ns));
        self.add(Stage::Lock, lock_ns);
        if lock_ns > 0 && lock_ns >= latency_ns / 4 {
            self.mark(Outcome::Lock);
        }
    }

    /// Tarn's own work: a txg, a scan, an import.
    pub fn internal(clock: Clock, kind: OperationKind) -> Operation {
        Operation::begin(clock, Who::INTERNAL, What::plain(kind, DatasetId::NONE, 0))
    }

    /// An operation of a test, or one that is not measured: its clock stands still.
    pub fn unmeasured() -> Operation {
        Operation::internal(|| 0, OperationKind::Other)
    }

    /// On whose behalf.
    pub fn who(&self) -> &Who {
        &self.who
    }

    /// What was asked for.
    pub fn what(&self) -> &What {
        &self.what
    }

    /// When it began, in nanoseconds of its clock.
    pub fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// Since when it has looked up what it reads by, in nanoseconds of its clock: nothing that
    /// leads it to a device is older. That is since it began, unless it [looks up
    /// anew](Operation::look_up_anew).
    pub fn looked_up_ns(&self) -> u64 {
        self.looked_up_ns.load(Ordering::Relaxed)
    }

    /// From now on it reads only by what it looks up from now on, or by what is held for as
    /// long as it reads.
    pub fn look_up_anew(&self) {
        self.looked_up_ns.store((self.clock)(), Ordering::Relaxed);
    }

    /// The clock it is measured with.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Measures a stage until the timer is dropped.
    #[must_use = "the stage ends when the timer is dropped"]
    pub fn stage(&self, stage: Stage) -> StageTimer<'_> {
        StageTimer {
            operation: self,
            stage,
            started_ns: (self.clock)(),
            others_ns: None,
        }
    }

    /// As [`stage`](Operation::stage), without the time that other stages take meanwhile: of the
    /// intent log what its devices do not take, so that stages add up.
    #[must_use = "the stage ends when the timer is dropped"]
    pub fn stage_alone(&self, stage: Stage) -> StageTimer<'_> {
        StageTimer {
            operation: self,
            stage,
            started_ns: (self.clock)(),
            others_ns: Some(self.others_ns(stage)),
        }
    }

    /// The time that all stages but one have taken so far.
    fn others_ns(&self, stage: Stage) -> u64 {
        let others = Stage::ALL.iter().filter(|other| **other != stage);
        others.map(|other| self.stage_ns(*other)).sum()
    }

    /// Adds time to a stage.
    pub fn add(&self, stage: Stage, nanoseconds: u64) {
        self.stages_ns[stage.index()].fetch_add(nanoseconds, Ordering::Relaxed);
        usdt::stage_end(|| {
            [
                stage.number().into(),
                nanoseconds,
                self.what.kind.number().into(),
                self.who.protocol.number().into(),
                self.who.client.0.into(),
                self.what.dataset.0.into(),
                self.what.object,
            ]
        });
    }

    /// The time a stage has taken so far.
    pub fn stage_ns(&self, stage: Stage) -> u64 {
        self.stages_ns[stage.index()].load(Ordering::Relaxed)
    }

    /// Remembers something that happened.
    pub fn mark(&self, outcome: Outcome) {
        if !self.is_marked(outcome) {
            self.outcome.fetch_or(outcome.bit(), Ordering::Relaxed);
        }
    }

    /// Whether it happened.
    pub fn is_marked(&self, outcome: Outcome) -> bool {
        self.outcome.load(Ordering::Relaxed) & outcome.bit() != 0
    }

    /// It fails with this error; where that is [no answer](ErrorCode::is_an_answer), it is marked
    /// as failed.
    pub fn fail(&self, error: ErrorCode) {
        self.error.store(error.number(), Ordering::Relaxed);
        if error != ErrorCode::NONE && !error.is_an_answer() {
            self.mark(Outcome::Error);
        }
    }

    /// It fails, as the directory that it is about has no such name: its record is about the name
    /// instead.
    pub fn found_no_name(&self, name: &[u8]) {
        let number = missing_names::intern(self.what.dataset, self.what.object, name);
        self.missing_name.store(number, Ordering::Relaxed);
    }

    /// Says what was really read or written, where that is known only at the end.
    pub fn set_size(&mut self, size: u64) {
        self.what.size = size;
    }

    /// Ends it: one record into this thread's ring, one count for its kind.
    pub fn finish(self) -> OperationRecord {
        self.finish_for(None)
    }

    /// Ends it, and counts it for its dataset as well, whose statistics these are.
    pub fn finish_with(self, statistics: &OperationStatistics) -> OperationRecord {
        self.finish_for(Some(statistics))
    }

    fn finish_for(self, statistics: Option<&OperationStatistics>) -> OperationRecord {
        let record = self.record((self.clock)());
        usdt::operation_end(|| {
            [
                record.latency_ns(),
                self.what.kind.number().into(),
                self.who.protocol.number().into(),
                record.client.0.into(),
                record.dataset.0.into(),
                record.object(),
                record.outcome_bits().into(),
                record.error().number().into(),
            ]
        });
        recorder().record(&record, statistics);
        record
    }

    /// What it looks like if it ends at `now_ns`.
    fn record(&self, now_ns: u64) -> OperationRecord {
        let stages_ns = std::array::from_fn(|i| self.stages_ns[i].load(Ordering::Relaxed));
        let what = match self.missing_name.load(Ordering::Relaxed) {
            0 => self.what,
            object => What {
                object,
                ..self.what
            },
        };
        let record = OperationRecord::new(
            self.started_ns,
            now_ns.saturating_sub(self.started_ns),
            &self.who,
            &what,
            self.outcome.load(Ordering::Relaxed),
            &stages_ns,
        );
        match self.error.load(Ordering::Relaxed) {
            0 if record.is_marked(Outcome::Error) => record.with_error(ErrorCode::UNKNOWN),
            0 => record,
            error => record.with_error(ErrorCode::from_number(error)),
        }
    }
}

/// Adds the time between its making and its dropping to a stage.
#[derive(Debug)]
pub struct StageTimer<'a> {
    operation: &'a Operation,
    stage: Stage,
    started_ns: u64,
    /// What other stages had taken, where their time does not count.
    others_ns: Option<u64>,
}

impl Drop for StageTimer<'_> {
    fn drop(&mut self) {
        let now_ns = (self.operation.clock)();
        let others = self.others_ns.map(|before| {
            let now = self.operation.others_ns(self.stage);
            now.saturating_sub(before)
        });
        let took_ns = now_ns.saturating_sub(self.started_ns);
        let own_ns = took_ns.saturating_sub(others.unwrap_or(0));
        self.operation.add(self.stage, own_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_id::ClientId;
    use crate::kind::Protocol;
    use crate::request::HolderId;
    use std::cell::Cell;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(1000) };
    }

    fn clock() -> u64 {
        NOW.get()
    }

    fn advance(nanoseconds: u64) {
        NOW.set(NOW.get() + nanoseconds);
    }

    fn read_4k() -> Operation {
        let who = Who {
            client: ClientId(7),
            protocol: Protocol::Fuse,
            user: 1000,
            holder: HolderId::NONE,
        };
        let what = What {
            kind: OperationKind::Read,
            dataset: DatasetId(3),
            object: 42,
            offset: 8192,
            size: 4096,
        };
        Operation::begin(clock, who, what)
    }

    #[test]
    fn a_record_has_client_kind_stage_times_and_outcome() {
        let operation = read_4k();
        {
            let _timer = operation.stage(Stage::Cache);
            advance(300);
        }
        operation.add(Stage::Device, 50);
        operation.add(Stage::Device, 25);
        operation.mark(Outcome::Disk);
        operation.mark(Outcome::Disk);
        advance(100);
        let record = operation.finish();
        assert_eq!(record.latency_ns(), 400);
        assert_eq!(record.stage_ns(Stage::Cache), 300);
        assert_eq!(record.stage_ns(Stage::Device), 75);
        assert_eq!(record.stage_ns(Stage::Log), 0);
        assert!(record.is_marked(Outcome::Disk));
        assert!(!record.is_marked(Outcome::Error));
        assert_eq!(record.kind(), Some(OperationKind::Read));
        assert_eq!(record.protocol(), Some(Protocol::Fuse));
        assert_eq!(
            (record.object(), record.offset, record.size),
            (42, 8192, 4096)
        );
        assert_eq!((record.client, record.user), (ClientId(7), 1000));
    }

    #[test]
    fn an_error_is_recorded_and_a_failure_unless_it_is_an_answer() {
        let failed = |error: ErrorCode| {
            let operation = read_4k();
            operation.fail(error);
            let record = operation.finish();
            assert_eq!(record.error(), error);
            record.is_marked(Outcome::Error)
        };
        assert!(failed(ErrorCode::of_errno(13)));
        assert!(!failed(ErrorCode::of_errno(2)));
        assert!(!failed(ErrorCode::NONE));
        let operation = read_4k();
        operation.mark(Outcome::Error);
        assert_eq!(operation.finish().error(), ErrorCode::UNKNOWN);
    }

    #[test]
    fn a_lookup_in_vain_is_about_the_name() {
        let directory = What::plain(OperationKind::Lookup, DatasetId(901), 34);
        let look_up = || Operation::begin(clock, Who::INTERNAL, directory);
        let (first, second, third) = (look_up(), look_up(), look_up());
        first.found_no_name(b".elinks");
        second.found_no_name(b".elinks");
        let record = first.finish();
        assert_eq!(second.finish().object(), record.object());
        assert_eq!(third.finish().object(), 34);
        let found = crate::missing_name(record.object()).unwrap();
        assert_eq!((found.dataset, found.directory), (DatasetId(901), 34));
        assert_eq!(&*found.name, b".elinks");
        let number = crate::missing_number(DatasetId(901), 34, b".elinks");
        assert_eq!(number, Some(record.object()));
    }

    #[test]
    fn a_stage_alone_leaves_out_what_others_take_meanwhile() {
        let operation = read_4k();
        operation.add(Stage::Device, 70);
        {
            let _timer = operation.stage_alone(Stage::Log);
            advance(100);
            let _device = operation.stage(Stage::Device);
            advance(40);
        }
        let record = operation.finish();
        assert_eq!(record.stage_ns(Stage::Log), 100);
        assert_eq!(record.stage_ns(Stage::Device), 110);
        assert_eq!(record.latency_ns(), 140);
    }

    #[test]
    fn lock_time_is_what_no_other_stage_has_and_of_one_thread() {
        let before = LockWaits {
            thread: 3,
            waited_ns: 1000,
        };
        let after = |thread, waited_ns| LockWaits { thread, waited_ns };
        let finished = |now: LockWaits, device_ns: u64| {
            let operation = read_4k().after_lock_waits(before);
            operation.add(Stage::Device, device_ns);
            advance(400);
            operation.add_lock_waits(now);
            let record = operation.finish();
            (
                record.stage_ns(Stage::Lock),
                record.is_marked(Outcome::Lock),
            )
        };
        assert_eq!(finished(after(3, 1000), 0), (0, false));
        assert_eq!(finished(after(3, 1100), 0), (100, true));
        assert_eq!(finished(after(3, 1099), 0), (99, false));
        assert_eq!(finished(after(3, 1300), 350), (50, false));
        assert_eq!(finished(after(3, 1300), 500), (0, false));
        assert_eq!(finished(after(4, 1300), 0), (0, false));
    }

    #[test]
    fn what_it_reads_by_is_as_old_as_itself_unless_it_looks_up_anew() {
        let waited = Operation::begun_at(clock, 400, Who::INTERNAL, *read_4k().what());
        assert_eq!(waited.looked_up_ns(), 400);
        advance(100);
        waited.look_up_anew();
        assert_eq!((waited.started_ns(), waited.looked_up_ns()), (400, clock()));
    }

    #[test]
    fn times_added_by_several_threads_are_all_counted() {
        let operation = Operation::unmeasured();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| operation.add(Stage::Transform, 1)));
            }
        });
        assert_eq!(operation.stage_ns(Stage::Transform), 4000);
    }
}
