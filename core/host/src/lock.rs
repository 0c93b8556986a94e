//! Locks with ranks, known to the simulator.
//!
//! # Problem
//! Two threads that take two locks in opposite orders stop for ever, and no test finds it until it
//! happens. And a run can be replayed from a seed only if the seed also decides which thread gets a
//! lock.
//!
//! # Mechanism
//! Every lock is made with a [`Rank`]. In debug builds each thread keeps the ranks it holds; taking
//! a lock whose rank is not above all of them panics, whether or not another thread wanted it. So
//! the first run through a code path checks its order. Equal ranks are refused too, unless the rank
//! is declared `multi` (then their owner defines an order among them, say by address or number).
//! Waiting, for a device, a channel, another thread or a condition, while holding a lock is refused
//! unless its rank is declared `across_waits`.
//!
//! Below are the locks of the standard library, which let a thread that cannot have one sleep;
//! those that offer their processor to others first (`sched_yield`) lose all of a background
//! thread's turn. A panic does not poison them. If the calling thread belongs to a simulation it
//! never blocks in them: it hands the baton to another thread of the simulation and tries again.
//! For real threads this costs one load of a flag that never changes.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::{self, LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

use crate::background;
use crate::sim::baton;
use crate::waiting::{about_to_wait, wait_as_for_lock};

/// How often a lock that another thread has is tried before the thread sleeps. A pause between two
/// attempts takes 10 to 40 ns.
const ATTEMPTS: u32 = 40;

/// The place of a lock in the order in which locks are taken: low ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    order: u16,
    name: &'static str,
    is_multi: bool,
    is_across_waits: bool,
}

impl Rank {
    /// A rank, declared as a constant beside the lock. See [`crate::ranks`] for the numbers of the
    /// layers.
    pub const fn new(order: u16, name: &'static str) -> Rank {
        Rank {
            order,
            name,
            is_multi: false,
            is_across_waits: false,
        }
    }

    /// Several locks of this rank may be held at once; their owner says in which order they are
    /// taken.
    pub const fn multi(self) -> Rank {
        Rank {
            is_multi: true,
            ..self
        }
    }

    /// May be held while waiting for a device or another thread. Only for locks that say "one at a
    /// time, however long it takes"; the hot path takes none.
    pub const fn across_waits(self) -> Rank {
        Rank {
            is_across_waits: true,
            ..self
        }
    }

    /// The name shown when something is wrong.
    pub const fn name(self) -> &'static str {
        self.name
    }
}

/// The same whether or not a thread panicked with it: invariants are asserted where they matter.
fn whole<T>(result: LockResult<T>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// `None` if another thread has it.
fn taken<T>(result: TryLockResult<T>) -> Option<T> {
    match result {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Tries at once, and again for about a microsecond: most locks are held for less, and a thread
/// that sleeps for one, after it has let go of what others could use meanwhile, loses far more.
fn soon<T>(attempt: impl Fn() -> Option<T>) -> Option<T> {
    attempt().or_else(|| {
        (0..ATTEMPTS).find_map(|_| {
            std::hint::spin_loop();
            attempt()
        })
    })
}

/// This thread has taken a lock.
fn now_held(rank: Rank) {
    held::push(rank);
    if !rank.is_across_waits {
        background::lock_taken();
    }
}

/// This thread has released a lock.
fn no_longer_held(rank: Rank) {
    held::pop(rank);
    if !rank.is_across_waits {
        background::lock_released();
    }
}

/// One at a time.
pub struct Mutex<T: ?Sized> {
    rank: Rank,
    inner: sync::Mutex<T>,
}

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(rank: Rank, value: T) -> Mutex<T> {
        Mutex {
            rank,
            inner: sync::Mutex::new(value),
        }
    }

    /// The value; exclusive access is in the type.
    pub fn into_inner(self) -> T {
        whole(self.inner.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until no other thread has it.
    ///
    /// # Panics
    /// In debug builds, if this thread holds a lock that must not be held before this one.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        held::check(self.rank);
        let inner = match baton::current() {
            None => soon(|| taken(self.inner.try_lock())).unwrap_or_else(|| {
                about_to_wait();
                wait_as_for_lock(|| whole(self.inner.lock()))
            }),
            Some(me) => me.acquire(self.key(), self.rank.name, || taken(self.inner.try_lock())),
        };
        self.guard(inner)
    }

    /// Takes it if no other thread has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        if let Some(me) = baton::current() {
            me.may_switch();
        }
        Some(self.guard(taken(self.inner.try_lock())?))
    }

    /// The value; the borrow shows that no other thread has it.
    pub fn get_mut(&mut self) -> &mut T {
        whole(self.inner.get_mut())
    }

    fn guard<'a>(&'a self, inner: sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        now_held(self.rank);
        MutexGuard {
            inner: ManuallyDrop::new(inner),
            mutex: self,
        }
    }

    /// What the simulator knows this lock by.
    fn key(&self) -> usize {
        (&raw const self.inner).addr()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mutex({}, {:?})", self.rank.name, &self.inner)
    }
}

/// The right to the value of a [`Mutex`], until it is dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    inner: ManuallyDrop<sync::MutexGuard<'a, T>>,
    mutex: &'a Mutex<T>,
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: dropped here and nowhere else, once.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
        no_longer_held(self.mutex.rank);
        if let Some(me) = baton::current() {
            me.wake_all(self.mutex.key());
        }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Many readers or one writer at a time.
pub struct RwLock<T: ?Sized> {
    rank: Rank,
    inner: sync::RwLock<T>,
}

impl<T> RwLock<T> {
    /// A lock around `value`.
    pub const fn new(rank: Rank, value: T) -> RwLock<T> {
        RwLock {
            rank,
            inner: sync::RwLock::new(value),
        }
    }

    /// The value; exclusive access is in the type.
    pub fn into_inner(self) -> T {
        whole(self.inner.into_inner())
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no thread writes.
    ///
    /// # Panics
    /// In debug builds, if this thread holds a lock that must not be held before this one.
    pub fn read(&self) -> ReadGuard<'_, T> {
        held::check(self.rank);
        let inner = match baton::current() {
            None => soon(|| taken(self.inner.try_read())).unwrap_or_else(|| {
                about_to_wait();
                wait_as_for_lock(|| whole(self.inner.read()))
            }),
            Some(me) => me.acquire(self.key(), self.rank.name, || taken(self.inner.try_read())),
        };
        now_held(self.rank);
        ReadGuard {
            inner: ManuallyDrop::new(inner),
            lock: self,
        }
    }

    /// Waits until no thread reads or writes.
    ///
    /// # Panics
    /// In debug builds, if this thread holds a lock that must not be held before this one.
    pub fn write(&self) -> WriteGuard<'_, T> {
        held::check(self.rank);
        let inner = match baton::current() {
            None => soon(|| taken(self.inner.try_write())).unwrap_or_else(|| {
                about_to_wait();
                wait_as_for_lock(|| whole(self.inner.write()))
            }),
            Some(me) => me.acquire(self.key(), self.rank.name, || taken(self.inner.try_write())),
        };
        now_held(self.rank);
        WriteGuard {
            inner: ManuallyDrop::new(inner),
            lock: self,
        }
    }

    /// The value; the borrow shows that no other thread has it.
    pub fn get_mut(&mut self) -> &mut T {
        whole(self.inner.get_mut())
    }

    fn key(&self) -> usize {
        (&raw const self.inner).addr()
    }

    fn released(&self) {
        no_longer_held(self.rank);
        if let Some(me) = baton::current() {
            me.wake_all(self.key());
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RwLock({}, {:?})", self.rank.name, &self.inner)
    }
}

/// The right to read the value of an [`RwLock`], until it is dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadGuard<'a, T: ?Sized> {
    inner: ManuallyDrop<sync::RwLockReadGuard<'a, T>>,
    lock: &'a RwLock<T>,
}

impl<T: ?Sized> Drop for ReadGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: dropped here and nowhere else, once.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
        self.lock.released();
    }
}

impl<T: ?Sized> Deref for ReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

/// The right to change the value of an [`RwLock`], until it is dropped.
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard<'a, T: ?Sized> {
    inner: ManuallyDrop<sync::RwLockWriteGuard<'a, T>>,
    lock: &'a RwLock<T>,
}

impl<T: ?Sized> Drop for WriteGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: dropped here and nowhere else, once.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
        self.lock.released();
    }
}

impl<T: ?Sized> Deref for WriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// A condition that threads wait for, with the [`Mutex`] that guards it.
#[derive(Default)]
pub struct Condvar {
    inner: sync::Condvar,
    /// Two conditions never share an address, not even of no size.
    _place: u8,
}

impl Condvar {
    /// Without waiting threads.
    pub const fn new() -> Condvar {
        Condvar {
            inner: sync::Condvar::new(),
            _place: 0,
        }
    }

    /// Releases the lock, waits until notified, and takes the lock again. May wake without cause:
    /// wait in a loop, or use [`Condvar::wait_while`].
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        held::check_wait("a condition", Some(guard.mutex.rank));
        match baton::current() {
            None => {
                about_to_wait();
                // SAFETY: it is put back at once; the wait does not unwind.
                let inner = unsafe { ManuallyDrop::take(&mut guard.inner) };
                guard.inner = ManuallyDrop::new(whole(self.inner.wait(inner)));
            }
            Some(me) => _ = self.wait_in_simulation(&me, guard, None),
        }
    }

    /// Waits as long as `condition` holds.
    pub fn wait_while<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// Like [`Condvar::wait`], but no longer than `timeout`. Says whether the time has run out.
    pub fn wait_timeout<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> TimedOut {
        held::check_wait("a condition", Some(guard.mutex.rank));
        match baton::current() {
            None => {
                about_to_wait();
                // SAFETY: it is put back at once; the wait does not unwind.
                let inner = unsafe { ManuallyDrop::take(&mut guard.inner) };
                let (inner, waited) = whole(self.inner.wait_timeout(inner, timeout));
                guard.inner = ManuallyDrop::new(inner);
                TimedOut(waited.timed_out())
            }
            Some(me) => TimedOut(self.wait_in_simulation(&me, guard, Some(timeout))),
        }
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        if let Some(me) = baton::current() {
            me.wake_one(self.key());
        }
        self.inner.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        if let Some(me) = baton::current() {
            me.wake_all(self.key());
        }
        self.inner.notify_all();
    }

    fn key(&self) -> usize {
        (&raw const *self).addr()
    }

    /// Between the release of the lock and the wait no other thread runs, so no notification is
    /// lost.
    fn wait_in_simulation<T: ?Sized>(
        &self,
        me: &baton::Member,
        guard: &mut MutexGuard<'_, T>,
        timeout: Option<Duration>,
    ) -> bool {
        let mutex = guard.mutex;
        // SAFETY: the guard is whole again before anything can unwind: `block` and `acquire_halted`
        // do not.
        unsafe { ManuallyDrop::drop(&mut guard.inner) };
        me.wake_all(mutex.key());
        let woken = me.block(self.key(), mutex.rank.name, timeout);
        let inner = me.acquire_halted(mutex.key(), mutex.rank.name, || {
            taken(mutex.inner.try_lock())
        });
        guard.inner = ManuallyDrop::new(inner);
        woken.unwrap_or_else(|halted| halted.unwind()) == baton::Woken::ByTime
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}

/// Whether a wait ended because its time ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct TimedOut(bool);

impl TimedOut {
    /// Whether the time ran out.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// Checks, in debug builds, that this thread holds no lock that must not be held while it waits for
/// `what`. Everything in this crate that waits calls it.
pub fn check_wait(what: &'static str) {
    held::check_wait(what, None);
}

/// The ranks this thread holds; in release builds nothing.
#[cfg(debug_assertions)]
mod held {
    use super::Rank;
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    /// Refuses a lock that must not be taken now. A thread that unwinds is left in peace: it takes
    /// locks in destructors, and a second panic would hide the first.
    pub fn check(wanted: Rank) {
        if std::thread::panicking() {
            return;
        }
        let refused =
            HELD.with_borrow(|held| held.iter().copied().find(|h| !may_follow(*h, wanted)));
        if let Some(holding) = refused {
            panic!(
                "lock order: {} (rank {}) must not be taken while holding {} (rank {})",
                wanted.name, wanted.order, holding.name, holding.order
            );
        }
    }

    fn may_follow(holding: Rank, wanted: Rank) -> bool {
        let is_same_multi = holding.is_multi && wanted.is_multi && holding.order == wanted.order;
        holding.order < wanted.order || is_same_multi
    }

    pub fn check_wait(what: &str, released: Option<Rank>) {
        if std::thread::panicking() {
            return;
        }
        let refused = HELD.with_borrow(|held| {
            let mut released = released;
            // The lock that the wait itself releases is one of those held, once.
            let kept = held
                .iter()
                .rev()
                .filter(|h| released.take_if(|r| r == *h).is_none());
            kept.copied().find(|h| !h.is_across_waits)
        });
        if let Some(Rank { name, order, .. }) = refused {
            panic!("lock order: waiting for {what} while holding {name} (rank {order})");
        }
    }

    pub fn push(rank: Rank) {
        HELD.with_borrow_mut(|held| held.push(rank));
    }

    pub fn pop(rank: Rank) {
        HELD.with_borrow_mut(|held| {
            let place = held
                .iter()
                .rposition(|h| *h == rank)
                .expect("a lock released was held");
            held.remove(place);
        });
    }
}

/// The ranks this thread holds; in release builds nothing.
#[cfg(not(debug_assertions))]
mod held {
    use super::Rank;

    #[inline]
    pub fn check(_wanted: Rank) {}
    #[inline]
    pub fn check_wait(_what: &str, _released: Option<Rank>) {}
    #[inline]
    pub fn push(_rank: Rank) {}
    #[inline]
    pub fn pop(_rank: Rank) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const LOW: Rank = Rank::new(10, "low");
    const HIGH: Rank = Rank::new(20, "high");

    fn refusal(of: impl FnOnce()) -> Option<String> {
        let payload = catch_unwind(AssertUnwindSafe(of)).err()?;
        Some(
            payload
                .downcast_ref::<String>()
                .cloned()
                .unwrap_or_default(),
        )
    }

    #[test]
    fn locks_taken_in_order_of_rank_are_granted() {
        let (low, high) = (Mutex::new(LOW, 1), RwLock::new(HIGH, 2));
        let a = low.lock();
        let b = high.read();
        assert_eq!(*a + *b, 3);
        drop(a);
        drop(b);
        *high.write() += 1;
        assert_eq!(*high.read(), 3);
    }

    /// The canary of the checker: a wrong order must be refused though no other thread wants the
    /// locks.
    #[test]
    #[cfg(debug_assertions)]
    fn a_lock_taken_against_its_rank_is_refused() {
        let (low, high) = (Mutex::new(LOW, ()), Mutex::new(HIGH, ()));
        let message = refusal(|| {
            let _high = high.lock();
            let _low = low.lock();
        });
        assert!(message.is_some_and(|m| m.contains("low (rank 10)") && m.contains("holding high")));
        let _low = low.lock();
        let _high = high.lock();
    }

    #[test]
    #[cfg(debug_assertions)]
    fn equal_ranks_are_refused_unless_declared_multi() {
        let (a, b) = (Mutex::new(LOW, ()), Mutex::new(LOW, ()));
        assert!(
            refusal(|| {
                let _a = a.lock();
                let _b = b.lock();
            })
            .is_some()
        );
        let (a, b) = (Mutex::new(LOW.multi(), ()), Mutex::new(LOW.multi(), ()));
        let _a = a.lock();
        let _b = b.lock();
    }

    #[test]
    #[cfg(debug_assertions)]
    fn waiting_with_a_lock_held_is_refused_unless_declared() {
        let lock = Mutex::new(LOW, ());
        let guard = lock.lock();
        assert!(refusal(|| check_wait("a device")).is_some());
        drop(guard);
        check_wait("a device");
        let patient = Mutex::new(LOW.across_waits(), ());
        let _guard = patient.lock();
        check_wait("a device");
    }

    #[test]
    fn a_waiter_is_woken_when_the_condition_holds() {
        let (ready, condition) = (Mutex::new(LOW, false), Condvar::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *ready.lock() = true;
                condition.notify_all();
            });
            let mut guard = ready.lock();
            condition.wait_while(&mut guard, |ready| !*ready);
            assert!(*guard);
        });
    }

    #[test]
    fn a_wait_ends_when_its_time_runs_out() {
        let (lock, condition) = (Mutex::new(LOW, ()), Condvar::new());
        let mut guard = lock.lock();
        assert!(
            condition
                .wait_timeout(&mut guard, Duration::from_millis(1))
                .timed_out()
        );
    }
}
