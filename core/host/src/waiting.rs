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

use std::cell::Cell;

thread_local! {
    static BEFORE_WAIT: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// From now on `call` is called whenever this thread is about to wait. It must not wait itself, nor
/// take locks of this crate.
pub fn call_before_waits(call: fn()) {
    BEFORE_WAIT.set(Some(call));
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
