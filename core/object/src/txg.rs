//! Transaction groups: the open, quiescing and syncing txg, and the write throttle.
//!
//! # Problem
//! Many threads make changes faster than they can be stored. They must become durable in a
//! consistent order, in groups large enough to be efficient, and memory must not fill up.
//!
//! # Mechanism
//! The groups are numbered. One is *open*: [`Txgs::assign`] gives out holds on it. The sync thread
//! *quiesces* it: new holds wait until the last of the old ones is dropped, then the next group is
//! open. So the changes of two groups never interleave, and a later group always builds on an
//! earlier one. The quiesced group is then *synced* (stored), while the next one is open.
//!
//! The throttle counts dirty bytes. When the open group has made [`TxgLimits::sync_percent`] of the
//! limit dirty, the sync thread is woken. From [`TxgLimits::delay_percent`] on every assignment is
//! delayed, by a time that grows without bound towards the limit (`delay_scale * (dirty - from) /
//! (limit - dirty)`); all writers share one clock, so that ten writers are delayed in turn, not at
//! once. At the limit they wait until something has been stored. What is dirty beyond
//! [`DIRTY_BYTES_FREE`] is memory that the cache does without.
//!
//! A txg that was filled slowly is stored slowly, unless a thread waits for it ([`Pace`]): so other
//! requests are hardly delayed.
//!
//! # Invariants
//! - Holders never wait for the sync thread, so quiescing ends.
//! - `stored < syncing < open`; waiting for a group wakes the sync thread, so it ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tarn_cache::{Cache, Lent};
use tarn_host::background::Pace;
use tarn_host::lock::{Condvar, Mutex, MutexGuard};
use tarn_ondisk::declare::widen;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::{Counter, Operation, OperationKind, Outcome, Stage};

use crate::error::AssignError;
use crate::in_flight::{GROUPS, slot_of};
use crate::objset::ObjectSet;
use crate::ranks;
use crate::tx::{OpenTx, SyncTx, TxEstimate, Urgency};

/// Dirty bytes before the cache has to shrink for them. A guess: the dirty data of a pool with fast
/// devices under steady load.
const DIRTY_BYTES_FREE: u64 = 128 << 20;

/// A txg that was filled in less time comes from a writer at full speed, and is stored at full
/// speed.
const EASY_FILL_NS: u64 = 500_000_000;

/// Writing begins in earnest when this part of what closes a group is dirty: the little before it
/// may have been there for long.
const FILLING_PART: u64 = 8;

/// The part of the time a group took to be filled that it has to be stored: little enough for the
/// next one not to wait.
const EASY_PART: u64 = 8;

/// The cache is told of what is dirty in steps of this size.
const DIRTY_STEP: u64 = 32 << 20;

/// The numbers of the throttle. The defaults are OpenZFS's, which were measured.
#[derive(Debug, Clone, Copy)]
pub struct TxgLimits {
    /// So many bytes may be dirty.
    #[doc(alias = "zfs_dirty_data_max")]
    pub dirty_bytes_max: u64,
    /// A group that has made this part of the limit dirty is stored before its time.
    #[doc(alias = "zfs_dirty_data_sync_percent")]
    pub sync_percent: u64,
    /// A group that has made so much dirty is stored before its time, whatever the limit: storing
    /// begins while the next is filled, so waiting for the last takes less.
    #[doc(alias = "zfs_dirty_data_sync")]
    pub sync_bytes_max: u64,
    /// From this part of the limit on, writers are delayed.
    #[doc(alias = "zfs_delay_min_dirty_percent")]
    pub delay_percent: u64,
    /// How steep the delay grows.
    #[doc(alias = "zfs_delay_scale")]
    pub delay_scale_ns: u64,
    /// The longest delay.
    pub delay_ns_max: u64,
    /// How long a group stays open when nothing else ends it.
    #[doc(alias = "zfs_txg_timeout")]
    pub timeout: Duration,
}

impl TxgLimits {
    /// For a machine with this much memory: a tenth of it may be dirty, but not more than 4 GiB,
    /// nor more than there is together with the cache, which does without what is dirty.
    pub fn for_memory(memory_bytes: u64, cache_bytes: u64) -> TxgLimits {
        let lendable = (cache_bytes / 2).saturating_add(DIRTY_BYTES_FREE);
        TxgLimits {
            dirty_bytes_max: (memory_bytes / 10).clamp(64 << 20, 4 << 30).min(lendable),
            ..TxgLimits::default()
        }
    }
}

impl Default for TxgLimits {
    fn default() -> Self {
        TxgLimits {
            dirty_bytes_max: 1 << 30,
            sync_percent: 20,
            sync_bytes_max: 64 << 20,
            delay_percent: 60,
            delay_scale_ns: 500_000,
            delay_ns_max: 100_000_000,
            timeout: Duration::from_secs(5),
        }
    }
}

/// How often a thread that waits for a txg checks whether the pool was given up.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Why the sync thread was woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The group was open long enough.
    Timeout,
    /// There is much to store.
    Dirty,
    /// A thread waits for the open group to be stored or closed.
    Asked,
    /// There will be no more transactions.
    Stopped,
}

/// What becomes of writers while the pool is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailMode {
    /// They wait.
    Wait,
    /// They get an error.
    Continue,
}

/// The transaction groups of a pool.
pub struct Txgs {
    limits: TxgLimits,
    dirty_bytes: AtomicU64,
    /// What the open group has made dirty. What holders of the one before add late counts here: it
    /// is a hint.
    group_bytes: AtomicU64,
    /// What indirect log writes have written of the open group and was changed since: places that
    /// are in use until it is stored.
    superseded_bytes: AtomicU64,
    /// How much more than otherwise the open group may have dirty, because commits are likely to
    /// write it early.
    early_bytes: AtomicU64,
    counts: Counters,
    /// What each group that is not stored takes at worst: see [`in_flight`](crate::in_flight).
    in_flight: [AtomicU64; GROUPS],
    /// What the cache does without, for as much as is dirty.
    lent: OnceLock<Lent>,
    /// When writing to the open group began in earnest; zero if it has not.
    filling_since_ns: AtomicU64,
    /// How much time the group that is being stored has.
    pace: Arc<Pace>,
    state: Mutex<State>,
    /// Something in the state has changed that others may wait for.
    changed: Condvar,
    /// Something has changed that the sync thread may wait for.
    work: Condvar,
}

/// What the throttle counts.
#[derive(Debug, Default)]
struct Counters {
    assigned: Counter,
    delayed: Counter,
    delay_ns: Counter,
    full: Counter,
    cleaned_bytes: Counter,
}

/// What the throttle did since the pool was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThrottleStatistics {
    /// Holds given out.
    pub assigned: u64,
    /// Holds that were delayed, because much was dirty.
    pub delayed: u64,
    /// The sum of their delays.
    pub delay_ns: u64,
    /// Waits until something was stored, because as much was dirty as may be.
    pub full: u64,
    /// Bytes that were dirty and are stored, or need not be any more.
    pub cleaned_bytes: u64,
}

#[derive(Debug)]
struct State {
    open: Txg,
    stored: Txg,
    /// The highest group that a thread waits for to be stored.
    wanted: Txg,
    /// The highest group that a thread waits for to be open.
    wanted_open: Txg,
    /// How many threads wait for a group to be stored or open.
    waiters: u64,
    holds: u64,
    is_quiescing: bool,
    suspended: Option<FailMode>,
    is_stopped: bool,
    /// When the writer delayed last may go on.
    last_wakeup_ns: u64,
    /// When the open group was opened.
    opened_ns: u64,
    /// The newest closed group, and how long it was filled.
    filled: (Txg, u64),
    /// Object sets with changes, by group.
    dirty_sets: BTreeMap<Txg, BTreeMap<ObjectId, Arc<ObjectSet>>>,
}

impl Txgs {
    /// The groups of a pool whose newest stored group is `stored`.
    pub fn new(stored: Txg, limits: TxgLimits) -> Arc<Txgs> {
        Arc::new(Txgs {
            limits,
            dirty_bytes: AtomicU64::new(0),
            group_bytes: AtomicU64::new(0),
            superseded_bytes: AtomicU64::new(0),
            early_bytes: AtomicU64::new(0),
            counts: Counters::default(),
            in_flight: Default::default(),
            lent: OnceLock::new(),
            filling_since_ns: AtomicU64::new(0),
            pace: Arc::default(),
            state: Mutex::new(
                ranks::TXG,
                State {
                    open: stored.next(),
                    stored,
                    wanted: Txg::ZERO,
                    wanted_open: Txg::ZERO,
                    waiters: 0,
                    holds: 0,
                    is_quiescing: false,
                    suspended: None,
                    is_stopped: false,
                    last_wakeup_ns: 0,
                    opened_ns: 0,
                    filled: (Txg::ZERO, 0),
                    dirty_sets: BTreeMap::new(),
                },
            ),
            changed: Condvar::new(),
            work: Condvar::new(),
        })
    }

    /// Goes on behind a later group, as if that and all before it were stored: a log has blocks of
    /// groups that never were, and their numbers must not come again. Before the first group is
    /// begun.
    ///
    /// # Panics
    /// When another sync has begun already.
    #[doc(alias = "spa_claim_max_txg")]
    pub fn skip_to(&self, txg: Txg) {
        let mut state = self.state.lock();
        let is_untouched = state.holds == 0 && state.open == state.stored.next();
        assert!(
            is_untouched && state.dirty_sets.is_empty(),
            "groups are skipped before any is begun"
        );
        if txg > state.stored {
            state.stored = txg;
            state.open = txg.next();
        }
    }

    /// The limits.
    pub fn limits(&self) -> &TxgLimits {
        &self.limits
    }

    /// A hold on the open group. Waits while there is too much dirty data, and while a group is
    /// being quiesced.
    pub fn assign(
        self: &Arc<Self>,
        estimate: &TxEstimate,
        operation: &Operation,
    ) -> Result<OpenTx, AssignError> {
        let is_throttled = estimate.urgency == Urgency::Throttled;
        let mut state = self.state.lock();
        let mut timer = None;
        let mut was_delayed = !is_throttled;
        loop {
            if state.is_stopped {
                return Err(AssignError::Stopped);
            }
            let is_administration = operation.what().kind == OperationKind::Administration;
            let may_wait = estimate.urgency != Urgency::Now && !is_administration;
            if state.suspended == Some(FailMode::Continue)
                || (state.suspended.is_some() && !may_wait)
            {
                return Err(AssignError::Suspended);
            }
            let is_full = is_throttled && self.dirty_bytes() >= self.limits.dirty_bytes_max;
            let must_wait = state.suspended.is_some() || state.is_quiescing || is_full;
            if !must_wait && (was_delayed || self.delay_ns() == 0) {
                state.holds += 1;
                self.counts.assigned.increment();
                return Ok(OpenTx::new(state.open, self.clone()));
            }
            timer.get_or_insert_with(|| operation.stage(Stage::TxWait));
            self.pace.hurry();
            if must_wait {
                if is_full {
                    self.counts.full.increment();
                    operation.mark(Outcome::Throttled);
                    self.work.notify_all();
                }
                self.changed.wait(&mut state);
            } else {
                operation.mark(Outcome::Throttled);
                self.wait_turn(&mut state);
                was_delayed = true;
            }
        }
    }

    /// Waits until it is this writer's turn. Writers are let through one after the other.
    fn wait_turn(&self, state: &mut MutexGuard<'_, State>) {
        let delay_ns = self.delay_ns();
        let now_ns = tarn_host::monotonic_ns();
        let wakeup_ns = (now_ns + delay_ns).max(state.last_wakeup_ns + delay_ns);
        state.last_wakeup_ns = wakeup_ns;
        self.counts.delayed.increment();
        self.counts.delay_ns.add(wakeup_ns.saturating_sub(now_ns));
        loop {
            let now_ns = tarn_host::monotonic_ns();
            if now_ns >= wakeup_ns || state.is_stopped || state.suspended.is_some() {
                return;
            }
            let _ = self
                .changed
                .wait_timeout(state, Duration::from_nanos(wakeup_ns - now_ns));
        }
    }

    /// How long a writer is delayed at the present amount of dirty data.
    fn delay_ns(&self) -> u64 {
        let (dirty, max) = (self.dirty_bytes(), self.limits.dirty_bytes_max);
        let from = max / 100 * self.limits.delay_percent;
        if dirty <= from {
            return 0;
        }
        if dirty >= max {
            return self.limits.delay_ns_max;
        }
        let delay = u128::from(self.limits.delay_scale_ns) * u128::from(dirty - from)
            / u128::from(max - dirty);
        u64::try_from(delay)
            .unwrap_or(u64::MAX)
            .min(self.limits.delay_ns_max)
    }

    /// A hold on the open group is given back.
    pub(crate) fn release(&self) {
        let mut state = self.state.lock();
        assert!(state.holds > 0, "a hold is dropped once");
        state.holds -= 1;
        if state.holds == 0 && state.is_quiescing {
            self.changed.notify_all();
        }
    }

    /// The open group.
    pub fn open_txg(&self) -> Txg {
        self.state.lock().open
    }

    /// The newest group that is stored.
    pub fn stored_txg(&self) -> Txg {
        self.state.lock().stored
    }

    /// How many bytes wait to be stored.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes.load(Ordering::Relaxed)
    }

    /// What the throttle did so far.
    pub fn throttle_statistics(&self) -> ThrottleStatistics {
        ThrottleStatistics {
            assigned: self.counts.assigned.value(),
            delayed: self.counts.delayed.value(),
            delay_ns: self.counts.delay_ns.value(),
            full: self.counts.full.value(),
            cleaned_bytes: self.counts.cleaned_bytes.value(),
        }
    }

    /// What the groups that are not stored take at worst, all sets together, in deflated bytes.
    pub fn in_flight_bytes(&self) -> u64 {
        let (stored, open) = {
            let state = self.state.lock();
            (state.stored, state.open)
        };
        let (mut txg, mut sum) = (stored.next(), 0_u64);
        while txg <= open {
            let bytes = self.in_flight[slot_of(txg)].load(Ordering::Relaxed);
            sum = sum.saturating_add(bytes);
            txg = txg.next();
        }
        sum
    }

    /// The group takes so much more.
    pub(crate) fn count_in_flight(&self, txg: Txg, bytes: u64) {
        self.in_flight[slot_of(txg)].fetch_add(bytes, Ordering::Relaxed);
    }

    /// The group does not take so much after all.
    pub(crate) fn uncount_in_flight(&self, txg: Txg, bytes: u64) {
        let less = |sum: u64| Some(sum.saturating_sub(bytes));
        let slot = &self.in_flight[slot_of(txg)];
        let _ = slot.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// So many more bytes are dirty.
    pub(crate) fn add_dirty(&self, bytes: u64) {
        let before = self.dirty_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.note_step(before, before + bytes);
        let before = self.group_bytes.fetch_add(bytes, Ordering::Relaxed);
        let threshold = self.sync_bytes();
        let is_earnest = threshold / FILLING_PART;
        if before < is_earnest && before + bytes >= is_earnest {
            let now_ns = tarn_host::monotonic_ns();
            self.filling_since_ns.store(now_ns, Ordering::Relaxed);
        }
        if before < threshold && before + bytes >= threshold {
            let _state = self.state.lock();
            self.work.notify_all();
        }
    }

    /// Indirect log writes have written so many bytes of the open group: storing it takes so much
    /// less.
    pub(crate) fn note_written_early(&self, bytes: u64) {
        let less = |sum: u64| Some(sum.saturating_sub(bytes));
        let _ = (self.group_bytes).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// So many bytes of the open group that were written early have changed: they are to be written
    /// again, and their place is in use until the group is stored.
    pub(crate) fn note_superseded(&self, bytes: u64) {
        self.group_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.superseded_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A commit of so many bytes has come, which the log writes early where their group is open:
    /// the next groups stay open for twice as much, so that such commits need not wait for groups.
    pub fn expect_early_writes(&self, bytes: u64) {
        let more = bytes.saturating_mul(2).min(self.sync_part());
        self.early_bytes.fetch_max(more, Ordering::Relaxed);
    }

    /// Asks for the open group to be stored soon, where much space is in use for what was written
    /// early and has changed since. Best after a commit: then there is little else to write.
    pub fn store_much_superseded(&self) {
        if self.superseded_bytes.load(Ordering::Relaxed) >= self.sync_part() {
            self.kick();
        }
    }

    /// So many bytes are stored, or need not be any more.
    pub(crate) fn remove_dirty(&self, bytes: u64) {
        self.counts.cleaned_bytes.add(bytes);
        let before = self.dirty_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "what becomes clean was dirty");
        self.note_step(before, before - bytes);
        let max = self.limits.dirty_bytes_max;
        if before >= max && before - bytes < max {
            let _state = self.state.lock();
            self.changed.notify_all();
        }
    }

    /// From now on the cache does without what is dirty beyond [`DIRTY_BYTES_FREE`]. Once.
    pub(crate) fn borrow_from(&self, cache: &Arc<Cache>) {
        let _ = self.lent.set(cache.lend());
    }

    fn note_step(&self, before: u64, now: u64) {
        if before / DIRTY_STEP == now / DIRTY_STEP {
            return;
        }
        if let Some(lent) = self.lent.get() {
            lent.set(|| {
                let steps = self.dirty_bytes() / DIRTY_STEP;
                (steps * DIRTY_STEP).saturating_sub(DIRTY_BYTES_FREE)
            });
        }
    }

    /// How much the open group may have dirty.
    fn sync_bytes(&self) -> u64 {
        let early = self.early_bytes.load(Ordering::Relaxed);
        let max = self.limits.sync_bytes_max.saturating_add(early);
        self.sync_part().min(max)
    }

    fn sync_part(&self) -> u64 {
        self.limits.dirty_bytes_max / 100 * self.limits.sync_percent
    }

    /// For the sync thread: waits until the open group should be stored, at most for the timeout.
    pub fn wait_for_work(&self) -> Wake {
        let deadline_ns = tarn_host::monotonic_ns()
            .saturating_add(u64::try_from(self.limits.timeout.as_nanos()).unwrap_or(u64::MAX));
        let mut state = self.state.lock();
        loop {
            if state.is_stopped {
                return Wake::Stopped;
            }
            if state.wanted >= state.open || state.wanted_open > state.open {
                return Wake::Asked;
            }
            if self.group_bytes.load(Ordering::Relaxed) >= self.sync_bytes() {
                return Wake::Dirty;
            }
            let now_ns = tarn_host::monotonic_ns();
            if now_ns >= deadline_ns {
                return Wake::Timeout;
            }
            let _ = self
                .work
                .wait_timeout(&mut state, Duration::from_nanos(deadline_ns - now_ns));
        }
    }

    /// For the sync thread: closes the open group, waits until its last hold is dropped, opens the
    /// next one. Gives back the closed one.
    pub fn quiesce(&self) -> Txg {
        let mut state = self.state.lock();
        assert!(!state.is_quiescing, "one thread quiesces");
        state.is_quiescing = true;
        self.changed.wait_while(&mut state, |state| state.holds > 0);
        let closed = state.open;
        assert!(state.stored < closed, "the open txg is not stored");
        assert!(
            closed.get() - state.stored.get() < widen(GROUPS),
            "few txgs are in flight"
        );
        state.open = closed.next();
        // What had this place is stored.
        self.in_flight[slot_of(state.open)].store(0, Ordering::Relaxed);
        state.is_quiescing = false;
        self.group_bytes.store(0, Ordering::Relaxed);
        self.superseded_bytes.store(0, Ordering::Relaxed);
        let halved = |bytes: u64| Some(bytes / 2);
        let _ = (self.early_bytes).fetch_update(Ordering::Relaxed, Ordering::Relaxed, halved);
        let now_ns = tarn_host::monotonic_ns();
        let opened_ns = std::mem::replace(&mut state.opened_ns, now_ns);
        let since_ns = match self.filling_since_ns.swap(0, Ordering::Relaxed) {
            0 => opened_ns,
            filling_since_ns => filling_since_ns,
        };
        state.filled = (closed, now_ns.saturating_sub(since_ns));
        // The one before shall not keep it waiting.
        self.pace.hurry();
        self.changed.notify_all();
        closed
    }

    /// For the sync thread: begins to store a quiesced group.
    pub fn begin_sync(&self, txg: Txg) -> SyncTx {
        let state = self.state.lock();
        assert!(txg < state.open, "a group is quiesced before it is stored");
        assert!(txg > state.stored, "a group is stored once");
        let (newest, filled_ns) = state.filled;
        let is_waited_for = state.wanted >= txg || state.is_stopped || newest != txg;
        if !is_waited_for && filled_ns >= EASY_FILL_NS {
            let timeout_ns = u64::try_from(self.limits.timeout.as_nanos()).unwrap_or(u64::MAX);
            let time_ns = filled_ns.min(timeout_ns) / EASY_PART;
            let now_ns = tarn_host::monotonic_ns();
            self.pace.ease_until(now_ns.saturating_add(time_ns));
        }
        SyncTx::new(txg)
    }

    /// How much time the group that is being stored has. The thread that stores it keeps this pace.
    pub fn pace(&self) -> &Arc<Pace> {
        &self.pace
    }

    /// For the sync thread: the group is stored, durably.
    pub fn finish_sync(&self, tx: SyncTx) {
        let mut state = self.state.lock();
        assert!(tx.txg() > state.stored, "groups are stored in order");
        let left = state.dirty_sets.remove(&tx.txg());
        assert!(
            left.is_none_or(|sets| sets.is_empty()),
            "a stored group leaves nothing dirty"
        );
        state.stored = tx.txg();
        self.pace.hurry();
        self.changed.notify_all();
    }

    /// Waits until the group is stored, and sees to it that it will be. On a suspended pool
    /// applications wait or fail as writers do; administration fails at once.
    pub fn wait_stored(&self, txg: Txg, operation: &Operation) -> Result<(), AssignError> {
        self.wait_stored_unless(txg, &|| false, operation)
    }

    /// The same, for as long as it is not hopeless: then it fails as on a suspended pool.
    pub fn wait_stored_unless(
        &self,
        txg: Txg,
        is_hopeless: &dyn Fn() -> bool,
        operation: &Operation,
    ) -> Result<(), AssignError> {
        self.state.lock().waiters += 1;
        let stored = self.wait_stored_counted(txg, is_hopeless, operation);
        self.state.lock().waiters -= 1;
        stored
    }

    fn wait_stored_counted(
        &self,
        txg: Txg,
        is_hopeless: &dyn Fn() -> bool,
        operation: &Operation,
    ) -> Result<(), AssignError> {
        let _stage = operation.stage(Stage::TxWait);
        let mut state = self.state.lock();
        loop {
            if state.stored >= txg {
                return Ok(());
            }
            if state.is_stopped {
                return Err(AssignError::Stopped);
            }
            let may_wait = operation.what().kind != OperationKind::Administration;
            match state.suspended {
                Some(FailMode::Wait) if may_wait => {}
                Some(_) => return Err(AssignError::Suspended),
                None => {}
            }
            operation.mark(Outcome::Txg);
            self.pace.hurry();
            if state.wanted < txg {
                state.wanted = txg;
                self.work.notify_all();
            }
            let late = self.changed.wait_timeout(&mut state, LOOK_INTERVAL);
            if late.timed_out() {
                drop(state);
                if is_hopeless() {
                    return Err(AssignError::Suspended);
                }
                state = self.state.lock();
            }
        }
    }

    /// Waits until this group is open, and sees to it that it will be.
    pub fn wait_open(&self, txg: Txg, operation: &Operation) -> Result<(), AssignError> {
        let _stage = operation.stage(Stage::TxWait);
        let mut state = self.state.lock();
        state.waiters += 1;
        while state.open < txg && !state.is_stopped {
            state.wanted_open = state.wanted_open.max(txg);
            self.pace.hurry();
            self.work.notify_all();
            self.changed.wait(&mut state);
        }
        state.waiters -= 1;
        match state.open < txg {
            true => Err(AssignError::Stopped),
            false => Ok(()),
        }
    }

    /// Whether something waits for the group that is being stored, or for the next: a thread, as
    /// much as is stored at a time, or the end.
    pub fn is_waited_for(&self) -> bool {
        let state = self.state.lock();
        let is_dirty = self.group_bytes.load(Ordering::Relaxed) >= self.sync_bytes();
        state.waiters > 0 || is_dirty || state.is_stopped
    }

    /// Asks for the open group to be stored soon, without waiting for it.
    pub fn kick(&self) {
        let mut state = self.state.lock();
        state.wanted = state.wanted.max(state.open);
        self.pace.hurry();
        self.work.notify_all();
    }

    /// The pool cannot be written for now: writers wait or fail.
    pub fn suspend(&self, mode: FailMode) {
        self.state.lock().suspended = Some(mode);
        self.changed.notify_all();
    }

    /// Whether the pool cannot be written for now.
    pub fn is_suspended(&self) -> bool {
        self.state.lock().suspended.is_some()
    }

    /// The pool can be written again.
    pub fn resume(&self) {
        self.state.lock().suspended = None;
        self.changed.notify_all();
    }

    /// There will be no more transactions: waiting threads get an error. A group that is being
    /// stored goes on being stored.
    pub fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.pace.hurry();
        self.changed.notify_all();
        self.work.notify_all();
    }

    /// Drops what is dirty, after the last group: nothing is stored any more.
    pub fn forget_dirty(&self) {
        let dropped = std::mem::take(&mut self.state.lock().dirty_sets);
        drop(dropped);
    }

    /// Whether there are no more transactions.
    pub fn is_stopped(&self) -> bool {
        self.state.lock().is_stopped
    }

    /// The object set has changes in this group.
    pub(crate) fn add_dirty_set(&self, txg: Txg, set: &Arc<ObjectSet>) {
        let mut state = self.state.lock();
        assert!(
            txg > state.stored && txg <= state.open,
            "a change is part of a txg that is not stored"
        );
        let sets = state.dirty_sets.entry(txg).or_default();
        sets.entry(set.id()).or_insert_with(|| set.clone());
    }

    /// The object sets with changes in this group that are not stored yet, by their numbers. Object
    /// sets stay in the list until [`sync_objsets`](crate::sync_objsets) has stored them.
    pub fn dirty_sets(&self, txg: Txg) -> Vec<Arc<ObjectSet>> {
        let state = self.state.lock();
        let sets = state.dirty_sets.get(&txg);
        sets.map(|sets| sets.values().cloned().collect())
            .unwrap_or_default()
    }

    /// The object set has no more changes in this group.
    pub(crate) fn remove_dirty_set(&self, txg: Txg, set: ObjectId) {
        let removed = {
            let mut state = self.state.lock();
            state
                .dirty_sets
                .get_mut(&txg)
                .and_then(|sets| sets.remove(&set))
        };
        drop(removed);
    }
}

impl std::fmt::Debug for Txgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Txgs({} dirty bytes)", self.dirty_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_cache::CacheOptions;
    use tarn_host::{Host, RealOptions};
    use tarn_probe::Registry;

    fn txgs() -> Arc<Txgs> {
        Txgs::new(
            Txg::from(9),
            TxgLimits {
                dirty_bytes_max: 1000,
                ..TxgLimits::default()
            },
        )
    }

    fn assign(txgs: &Arc<Txgs>) -> OpenTx {
        txgs.assign(&TxEstimate::default(), &Operation::unmeasured())
            .unwrap()
    }

    #[test]
    fn groups_follow_each_other() {
        let txgs = txgs();
        let tx = assign(&txgs);
        assert_eq!(tx.txg(), Txg::from(10));
        drop(tx);
        let closed = txgs.quiesce();
        assert_eq!(closed, Txg::from(10));
        assert_eq!(assign(&txgs).txg(), Txg::from(11));
        let sync = txgs.begin_sync(closed);
        assert!(sync.is_syncing());
        txgs.finish_sync(sync);
        assert_eq!(txgs.stored_txg(), closed);
        txgs.wait_stored(closed, &Operation::unmeasured()).unwrap();
    }

    /// Closes a group and begins to store it; whether it has time then.
    fn begins_easily(txgs: &Txgs) -> (SyncTx, bool) {
        let closed = txgs.quiesce();
        let sync = txgs.begin_sync(closed);
        let has_time = has_time(txgs);
        (sync, has_time)
    }

    fn has_time(txgs: &Txgs) -> bool {
        txgs.pace().is_easy(tarn_host::monotonic_ns())
    }

    #[test]
    fn a_group_has_time_unless_it_was_filled_fast_or_somebody_waits() {
        let txgs = txgs();
        // How long the first was filled is not known: since the machine was started.
        let (sync, is_easy) = begins_easily(&txgs);
        assert!(is_easy);
        txgs.finish_sync(sync);
        assert!(!has_time(&txgs), "it is stored");
        let (sync, is_easy) = begins_easily(&txgs);
        assert!(!is_easy, "the next followed at once");
        txgs.finish_sync(sync);

        let as_if_filled_slowly = || txgs.state.lock().opened_ns = 0;
        // Much came at its end.
        as_if_filled_slowly();
        txgs.add_dirty(txgs.sync_bytes());
        let (sync, is_easy) = begins_easily(&txgs);
        assert!(!is_easy);
        txgs.remove_dirty(txgs.sync_bytes());
        txgs.finish_sync(sync);

        let interruptions: [(&str, &dyn Fn()); 3] = [
            ("the next is closed", &|| {
                txgs.quiesce();
            }),
            ("somebody wants the open one stored", &|| txgs.kick()),
            ("the pool is closed", &|| txgs.stop()),
        ];
        for (why, interrupt) in interruptions {
            txgs.state.lock().wanted = Txg::ZERO;
            as_if_filled_slowly();
            let (sync, is_easy) = begins_easily(&txgs);
            assert!(is_easy);
            interrupt();
            assert!(!has_time(&txgs), "{why}");
            txgs.finish_sync(sync);
        }
    }

    #[test]
    fn a_group_that_somebody_waits_for_has_no_time() {
        let txgs = txgs();
        txgs.kick();
        let (sync, is_easy) = begins_easily(&txgs);
        assert!(!is_easy);
        let wanted = sync.txg();
        txgs.pace().ease_until(u64::MAX);
        let waiting = {
            let txgs = txgs.clone();
            std::thread::spawn(move || txgs.wait_stored(wanted, &Operation::unmeasured()))
        };
        while has_time(&txgs) {
            std::thread::yield_now();
        }
        txgs.finish_sync(sync);
        waiting.join().unwrap().unwrap();
    }

    #[test]
    fn quiescing_waits_for_those_inside_and_holds_up_those_outside() {
        let txgs = txgs();
        let inside = assign(&txgs);
        std::thread::scope(|scope| {
            let quiescer = scope.spawn(|| txgs.quiesce());
            while !txgs.state.lock().is_quiescing {
                std::thread::yield_now();
            }
            let outside = scope.spawn(|| assign(&txgs).txg());
            drop(inside);
            assert_eq!(quiescer.join().unwrap(), Txg::from(10));
            assert_eq!(outside.join().unwrap(), Txg::from(11));
        });
    }

    #[test]
    fn the_delay_begins_at_sixty_percent_and_grows_to_its_bound() {
        let txgs = txgs();
        txgs.add_dirty(600);
        assert_eq!(txgs.delay_ns(), 0);
        txgs.add_dirty(200);
        assert_eq!(txgs.delay_ns(), 500_000);
        txgs.add_dirty(199);
        assert!(txgs.delay_ns() > 50_000_000);
        txgs.add_dirty(1);
        assert_eq!(txgs.delay_ns(), txgs.limits.delay_ns_max);
    }

    #[test]
    fn the_limit_is_a_tenth_of_memory_and_what_the_cache_can_do_without() {
        let limit = |memory: u64, cache: u64| {
            TxgLimits::for_memory(memory << 20, cache << 20).dirty_bytes_max >> 20
        };
        assert_eq!(limit(10_000, 2_500), 1_000);
        assert_eq!(limit(10_000, 512), 384);
        assert_eq!(limit(100, 25), 64);
        assert_eq!(limit(1 << 20, 1 << 18), 4096);
    }

    #[test]
    fn the_cache_does_without_what_is_dirty_and_has_it_back_when_the_pool_is_gone() {
        const MIB: u64 = 1 << 20;
        let host = Host::real(RealOptions::from_environment().unwrap());
        let options = CacheOptions {
            budget_bytes: 1024 * MIB,
            ..CacheOptions::default()
        };
        let cache = Cache::new(&host, options, &Registry::default());
        let txgs = Txgs::new(Txg::from(9), TxgLimits::default());
        txgs.borrow_from(&cache);
        let target = || cache.target_bytes() / MIB;
        txgs.add_dirty(130 * MIB);
        assert_eq!(target(), 1024, "so much is free");
        txgs.add_dirty(100 * MIB);
        assert_eq!(
            target(),
            928,
            "230 MiB are 7 steps, 96 MiB more than are free"
        );
        txgs.remove_dirty(60 * MIB);
        assert_eq!(target(), 992);
        drop(txgs);
        assert_eq!(target(), 1024);
    }

    #[test]
    fn a_full_pool_of_dirty_data_holds_up_writers_until_some_is_stored() {
        let txgs = txgs();
        txgs.add_dirty(1000);
        assert_eq!(txgs.wait_for_work(), Wake::Dirty);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| assign(&txgs).txg());
            txgs.remove_dirty(900);
            assert_eq!(writer.join().unwrap(), Txg::from(10));
        });
        let counts = txgs.throttle_statistics();
        assert_eq!((counts.assigned, counts.cleaned_bytes), (1, 900));
    }

    #[test]
    fn who_has_another_way_does_not_wait_for_a_suspended_pool() {
        let txgs = txgs();
        txgs.suspend(FailMode::Wait);
        let estimate = TxEstimate {
            urgency: Urgency::Now,
            ..TxEstimate::default()
        };
        let refused = txgs.assign(&estimate, &Operation::unmeasured());
        assert!(matches!(refused, Err(AssignError::Suspended)));
    }

    #[test]
    fn who_waits_for_a_group_that_will_not_come_gets_an_error() {
        let txgs = txgs();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| txgs.wait_stored(Txg::from(10), &Operation::unmeasured()));
            assert_eq!(txgs.wait_for_work(), Wake::Asked);
            txgs.stop();
            assert!(matches!(waiter.join().unwrap(), Err(AssignError::Stopped)));
        });
        let refused = txgs.assign(&TxEstimate::default(), &Operation::unmeasured());
        assert!(matches!(refused, Err(AssignError::Stopped)));
    }
}
