//! Callbacks that a thread runs before it waits.
//!
//! # Problem
//! A thread that holds something others could use meanwhile, such as a connection from which the
//! next request can be read, need not let go of it for work that does not wait; and only the place
//! that waits knows whether it will.
//!
//! # Mechanism
//! A thread may leave a function, which is called, in that thread, whenever it is about to wait for
//! another thread or a device: at a lock that is taken, a condition, a batch that is under way. In
//! a simulation it is not called.

use crate::clock::real_monotonic_ns;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    static BEFORE_WAIT: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// From now on `call` is called whenever this thread is about to wait. It must not wait itself, nor
/// take locks of this crate.
pub fn call_before_waits(call: fn()) {
    BEFORE_WAIT.set(Some(call));
}

/// How long the calling thread has waited for locks since it began, in nanoseconds, with a number
/// of that thread. Locks that were free within the spinning do not count.
pub fn lock_waits() -> (u32, u64) {
    LOCK_WAITS.try_with(Cell::get).unwrap_or_default()
}

/// Waits for what another thread has, as for a lock: for the thread's [`lock_waits`].
pub fn wait_as_for_lock<T>(wait: impl FnOnce() -> T) -> T {
    let began_ns = real_monotonic_ns();
    let done = wait();
    let waited_ns = real_monotonic_ns().saturating_sub(began_ns);
    // Without a value while the thread ends.
    let _ = LOCK_WAITS.try_with(|waits| {
        let (thread, before) = waits.get();
        waits.set((thread, before.saturating_add(waited_ns)));
    });
    done
}

thread_local! {
    /// The number of the thread, and nanoseconds.
    static LOCK_WAITS: Cell<(u32, u64)> = {
        static LAST: AtomicU32 = AtomicU32::new(0);
        Cell::new((LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1), 0))
    };
}

/// This thread is about to wait.
pub(crate) fn about_to_wait() {
    // Without a value while the thread ends.
    if let Ok(Some(call)) = BEFORE_WAIT.try_with(Cell::get) {
        call();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_locks_are_those_of_the_thread_that_waited() {
        let (before, before_other) = (lock_waits(), std::thread::spawn(lock_waits));
        let (thread, other) = (before.0, before_other.join().unwrap());
        assert!(thread != 0 && thread != other.0 && other.1 == 0);
        let lock = Arc::new(Mutex::new(Rank::new(1, "waited for"), ()));
        let held = lock.lock();
        let contender = lock.clone();
        let (begun, wait_begun) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || {
            call_before_waits_once(begun);
            drop(contender.lock());
            lock_waits().1
        });
        wait_begun.recv().unwrap();
        drop(held);
        assert!(waiting.join().unwrap() > 0);
        assert_eq!(lock_waits(), before, "the holder did not wait");
    }

    /// Sends when the calling thread is about to wait.
    fn call_before_waits_once(begun: std::sync::mpsc::Sender<()>) {
        thread_local! {
            static BEGUN: Cell<Option<std::sync::mpsc::Sender<()>>> = const { Cell::new(None) };
        }
        BEGUN.set(Some(begun));
        call_before_waits(|| {
            let begun = BEGUN.take().expect("it waits once");
            begun.send(()).expect("the test waits for it");
        });
    }
    use crate::lock::{Condvar, Mutex, Rank};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    static WAITS: AtomicU32 = AtomicU32::new(0);

    #[test]
    fn a_thread_is_told_before_it_waits_and_not_before_it_takes_a_free_lock() {
        const RANK: Rank = Rank::new(1, "test");
        let shared = Arc::new((Mutex::new(RANK, 0), Condvar::new()));
        call_before_waits(|| _ = WAITS.fetch_add(1, Ordering::Relaxed));
        drop(shared.0.lock());
        assert_eq!(WAITS.load(Ordering::Relaxed), 0);
        let mut guard = shared.0.lock();
        let timed = shared.1.wait_timeout(&mut guard, Duration::from_millis(1));
        assert!(timed.timed_out());
        assert_eq!(WAITS.load(Ordering::Relaxed), 1);
        let held = shared.clone();
        let (taken, wait_taken) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            let guard = held.0.lock();
            taken.send(()).unwrap();
            while WAITS.load(Ordering::Relaxed) < 2 {
                std::thread::yield_now();
            }
            drop(guard);
        });
        drop(guard);
        wait_taken.recv().unwrap();
        drop(shared.0.lock());
        assert_eq!(WAITS.load(Ordering::Relaxed), 2);
        other.join().unwrap();
    }
}
