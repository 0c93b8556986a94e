//! Background threads: how they give the processor to threads that serve requests.
//!
//! # Problem
//! Storing a transaction group keeps all processors busy for a while. The kernel lets a running
//! thread go on for some milliseconds, so that a thread which is woken by a request meanwhile waits
//! much longer than the answer takes.
//!
//! # Mechanism
//! The kernel (Linux 6.12) knows how long a turn each thread wants, and lets one that wants short
//! turns interrupt one that wants long ones; over time each gets its share all the same. So threads
//! that work in the background ask for long turns, and do not interrupt others when they are woken
//! (`SCHED_BATCH`). Older kernels do only the latter.
//!
//! A thread that is not chosen when it is woken waits for the end of the turn, which the kernel
//! checks at its clock tick: every 4 ms on many machines. So a background thread offers its
//! processor ([`offer_turn`]) many times in a turn: between pieces of work, and where it releases
//! its last lock, since other threads may wait for that lock.
//!
//! A thread that offers its processor while others want it gives up the rest of its turn. Requests
//! take little of it. Programs that compute take nearly all of it: beside some, storing fell to a
//! fiftieth of its speed. So a thread that was away [long](AWAY_LONG_NS) offers no more for [a
//! while](ALONE_NS), and has the share that the kernel gives it; threads that are woken meanwhile
//! wait for those programs anyway.
//!
//! Work that no request waits for need not take all processors. Its starter gives it a [`Pace`]; a
//! thread that [keeps](keep_pace) it rests longer than it works where it would offer its processor,
//! and takes no helpers. The background threads that it starts, and those that carry out its
//! requests to devices, keep the same pace.
#![allow(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock;

/// The turn of a background thread, in nanoseconds; others have 0.7 to 2.8 ms. Not much longer:
/// what a background thread holds when it is interrupted, others wait for until its turn comes
/// again.
const TURN_NS: u64 = 4_000_000;

/// How long a background thread works before it offers its processor again. Each offer that is
/// taken costs the rest of the turn, so that more of them would be dear.
const OFFER_NS: u64 = 100_000;

/// A background thread that was away so long had offered its processor to a thread that computes: a
/// request takes a tenth of that, and computing threads have turns of 2.8 ms where the kernel was
/// not told otherwise.
const AWAY_LONG_NS: u64 = 1_500_000;

/// How long a background thread keeps what the kernel gives it after that. Ten turns: what offering
/// costs becomes little.
const ALONE_NS: u64 = 40_000_000;

/// How many times as long as it worked a background thread rests, where its work has time. So two
/// of them keep less than one processor busy.
const REST_FACTOR: u64 = 3;

/// The longest rest: a thread that begins to wait for the work waits no longer than this for its
/// next step.
const REST_NS_MAX: u64 = 1_000_000;

/// How slowly some background work is done: shared by the threads that do it and those that may
/// wait for it.
#[derive(Debug, Default)]
pub struct Pace {
    /// Until then it has time; zero when it has none.
    easy_until_ns: AtomicU64,
}

impl Pace {
    /// The work has time until then, on the clock of [`monotonic_ns`](crate::monotonic_ns).
    pub fn ease_until(&self, until_ns: u64) {
        self.easy_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// A thread waits for the work: it is done at full speed.
    pub fn hurry(&self) {
        if self.easy_until_ns.load(Ordering::Relaxed) != 0 {
            self.easy_until_ns.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the work has time.
    pub fn is_easy(&self, now_ns: u64) -> bool {
        now_ns < self.easy_until_ns.load(Ordering::Relaxed)
    }
}

thread_local! {
    /// When this thread last offered its processor; none in threads that do not give way.
    static OFFERED_NS: Cell<Option<u64>> = const { Cell::new(None) };
    /// How much time its work has.
    static PACE: RefCell<Option<Arc<Pace>>> = const { RefCell::new(None) };
    /// How many ranked locks this background thread holds that are not held across waits.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// What the kernel takes about the scheduling of a thread (`sched_setattr`), in its first version.
#[repr(C)]
struct Scheduling {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// The calling thread gives way to others from now on. Where the kernel does not want that, it
/// works as any other.
pub(crate) fn give_way() {
    static IS_REFUSED: AtomicBool = AtomicBool::new(false);
    OFFERED_NS.set(Some(0));
    if IS_REFUSED.load(Ordering::Relaxed) {
        return;
    }
    let scheduling = Scheduling {
        size: u32::try_from(size_of::<Scheduling>()).expect("48 bytes"),
        policy: libc::SCHED_BATCH.cast_unsigned(),
        flags: 0,
        nice: rustix::process::getpriority_process(None).unwrap_or(0),
        priority: 0,
        runtime_ns: TURN_NS,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: the structure is as large as it says and outlives the call, which only reads it.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            0,
            std::ptr::from_ref(&scheduling),
            0,
        )
    };
    if answer != 0 {
        IS_REFUSED.store(true, Ordering::Relaxed);
    }
}

/// The calling thread keeps this pace from now on, if it is a background thread.
pub fn keep_pace(pace: Option<Arc<Pace>>) {
    PACE.set(pace);
}

/// The pace that the calling thread keeps.
pub(crate) fn pace() -> Option<Arc<Pace>> {
    PACE.try_with(|pace| pace.borrow().clone()).ok().flatten()
}

/// Whether the calling thread works in the background, and its work has time.
pub(crate) fn has_time() -> bool {
    OFFERED_NS.get().is_some() && is_easy(clock::real_monotonic_ns())
}

fn is_easy(now_ns: u64) -> bool {
    // While a thread is torn down it has no pace.
    PACE.try_with(|pace| {
        pace.borrow()
            .as_ref()
            .is_some_and(|pace| pace.is_easy(now_ns))
    })
    .unwrap_or(false)
}

/// Between two pieces of work, while this thread holds nothing that others wait for: they go first,
/// if this is a background thread that has not let them for a while.
pub(crate) fn offer_turn() {
    let Some(offered) = OFFERED_NS.get() else {
        return;
    };
    let now_ns = clock::real_monotonic_ns();
    let worked_ns = now_ns.saturating_sub(offered);
    if worked_ns < OFFER_NS {
        return;
    }
    if is_easy(now_ns) {
        let rest_ns = worked_ns.saturating_mul(REST_FACTOR).min(REST_NS_MAX);
        std::thread::sleep(Duration::from_nanos(rest_ns));
        OFFERED_NS.set(Some(clock::real_monotonic_ns()));
    } else {
        std::thread::yield_now();
        OFFERED_NS.set(Some(works_from(now_ns, clock::real_monotonic_ns())));
    }
}

/// From when on the work of a thread counts towards the next offer, when it offered its processor
/// and got it back then.
fn works_from(offered_ns: u64, back_ns: u64) -> u64 {
    match back_ns.saturating_sub(offered_ns) >= AWAY_LONG_NS {
        true => back_ns.saturating_add(ALONE_NS),
        false => back_ns,
    }
}

/// This thread has taken a ranked lock that it must not hold while it waits.
pub(crate) fn lock_taken() {
    if OFFERED_NS.get().is_some() {
        HELD.set(HELD.get() + 1);
    }
}

/// This thread has released one of those.
pub(crate) fn lock_released() {
    if OFFERED_NS.get().is_some() {
        HELD.set(HELD.get() - 1);
        if HELD.get() == 0 {
            offer_turn();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_gives_way_is_a_batch_thread_as_nice_as_before() {
        std::thread::spawn(|| {
            let nice = || rustix::process::getpriority_process(None).unwrap();
            let before = nice();
            give_way();
            // SAFETY: asks for the calling thread.
            let policy = unsafe { libc::sched_getscheduler(0) };
            assert_eq!(policy, libc::SCHED_BATCH);
            assert_eq!(nice(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_background_thread_offers_its_processor_when_it_holds_nothing() {
        let in_background = || {
            give_way();
            lock_taken();
            lock_taken();
            lock_released();
            assert_eq!(OFFERED_NS.get(), Some(0), "one is still held");
            lock_released();
            let offered = OFFERED_NS.get().unwrap();
            assert!(offered > 0);
            OFFERED_NS.set(Some(u64::MAX));
            offer_turn();
            assert_eq!(OFFERED_NS.get(), Some(u64::MAX), "not again at once");
        };
        std::thread::spawn(in_background).join().unwrap();
    }

    #[test]
    fn a_background_thread_stops_offering_its_processor_to_threads_that_compute() {
        assert_eq!(works_from(1_000, 1_300), 1_300, "a request was served");
        let back_ns = 1_000 + AWAY_LONG_NS;
        assert_eq!(works_from(1_000, back_ns), back_ns + ALONE_NS);
    }

    /// A rest is as long as the work before it times so many, up to its bound; work that is hurried
    /// goes on at once.
    #[test]
    fn work_with_a_pace_rests_until_a_thread_waits() {
        let in_background = || {
            give_way();
            let pace = Arc::new(Pace::default());
            keep_pace(Some(pace.clone()));
            assert!(!has_time());
            pace.ease_until(u64::MAX);
            assert!(has_time());
            let before_ns = clock::real_monotonic_ns();
            OFFERED_NS.set(Some(before_ns - OFFER_NS));
            offer_turn();
            assert!(OFFERED_NS.get().unwrap() - before_ns >= REST_FACTOR * OFFER_NS);
            pace.hurry();
            assert!(!has_time());
            pace.ease_until(clock::real_monotonic_ns());
            assert!(!has_time(), "the time is over");
            pace.ease_until(u64::MAX);
            keep_pace(None);
            assert!(!has_time());
        };
        std::thread::spawn(in_background).join().unwrap();
    }

    #[test]
    fn others_keep_theirs() {
        let pace = Arc::new(Pace::default());
        pace.ease_until(u64::MAX);
        keep_pace(Some(pace));
        assert!(!has_time(), "this is no background thread");
        lock_taken();
        lock_released();
        offer_turn();
        assert_eq!(OFFERED_NS.get(), None);
    }
}
