//! Small writes to a file go before large ones.
//!
//! # Problem
//! A file system lets only one thread write to a file at a time, and a thread that releases the
//! file's lock and takes it again at once is faster than those that sleep for it. A large
//! background write would delay a small write of a request for milliseconds.
//!
//! # Mechanism
//! Small writes are counted. Before each of its calls, a large write waits until none is under way,
//! but not longer than [`PATIENCE`].

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long a large write waits for small ones at most: those take a few microseconds each.
const PATIENCE: Duration = Duration::from_millis(2);

/// The writes to a file that are under way.
#[derive(Debug, Default)]
pub(crate) struct WriteTurns {
    /// Small writes under way.
    small: AtomicU32,
    /// Large writes under way.
    large: AtomicU32,
    waits: Mutex<bool>,
    turn: Condvar,
}

impl WriteTurns {
    /// A small write, before large ones.
    pub(crate) fn small<T>(&self, write: impl FnOnce() -> T) -> T {
        self.small.fetch_add(1, Ordering::SeqCst);
        let done = write();
        if self.small.fetch_sub(1, Ordering::SeqCst) == 1 && self.is_busy() {
            let waits = self.waits.lock();
            if *waits {
                self.turn.notify_one();
            }
        }
        done
    }

    /// A large write, in several calls; before each of them, `write` waits for its turn
    /// ([`WriteTurns::wait_turn`]).
    pub(crate) fn large<T>(&self, write: impl FnOnce() -> T) -> T {
        self.large.fetch_add(1, Ordering::SeqCst);
        let done = write();
        self.large.fetch_sub(1, Ordering::SeqCst);
        done
    }

    /// Lets small writes go first.
    pub(crate) fn wait_turn(&self) {
        if self.small.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut waits = self.waits.lock();
        *waits = true;
        let others = |_: &mut bool| self.small.load(Ordering::SeqCst) > 0;
        let _ = self.turn.wait_while_for(&mut waits, others, PATIENCE);
        *waits = false;
    }

    /// Whether a large write is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.large.load(Ordering::SeqCst) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_large_write_waits_for_a_small_one_but_not_for_ever() {
        let turns = Arc::new(WriteTurns::default());
        turns.wait_turn();
        turns.large(|| {
            assert!(turns.is_busy());
            // This one does not end.
            turns.small.fetch_add(1, Ordering::SeqCst);
            turns.wait_turn();
            turns.small.fetch_sub(1, Ordering::SeqCst);
        });
        let other = turns.clone();
        let small = std::thread::spawn(move || (0..1000).for_each(|_| other.small(|| ())));
        (0..1000).for_each(|_| turns.large(|| turns.wait_turn()));
        small.join().unwrap();
        assert!(!turns.is_busy());
    }
}
