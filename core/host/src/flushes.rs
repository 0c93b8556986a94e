//! Flushes of a file, one at a time.
//!
//! # Problem
//! The system reports an error of writing back once for each open file, to the flush that comes
//! first. Another flush that runs at the same time succeeds, though its bytes may be among those
//! that were lost.
//!
//! # Mechanism
//! Only one flush runs at a time. A thread that asks meanwhile waits for the next one, which begins
//! later and so covers its writes; all waiting threads share it. After a failure every flush fails,
//! for good: what the device holds is unknown.
//!
//! A block device that is written past the page cache reports each error to its own write or flush.

use crate::batch::Failure;
use parking_lot::{Condvar, Mutex};

/// The flushes of a file.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    /// How many have ended.
    ended: u64,
    /// What came of one that failed.
    failure: Option<Failure>,
}

impl Flushes {
    /// Carries out `flush`, or waits for another one that begins from now on.
    pub(crate) fn share(&self, flush: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        let mut state = self.state.lock();
        // The one that runs may have begun before the caller's last write.
        let wanted = state.ended + u64::from(state.is_running) + 1;
        self.ended.wait_while(&mut state, |state| {
            state.is_running && state.failure.is_none() && state.ended < wanted
        });
        if let Some(failure) = state.failure {
            return Err(failure);
        }
        if state.ended >= wanted {
            return Ok(());
        }
        state.is_running = true;
        drop(state);
        let done = flush();
        {
            let mut state = self.state.lock();
            state.is_running = false;
            state.ended += 1;
            state.failure = done.err();
        }
        self.ended.notify_all();
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Errno;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    /// What comes of flushes that begin while one is running that ends like this, and how many
    /// there were.
    fn amid(outcome: Result<(), Failure>) -> (Vec<Result<(), Failure>>, u64) {
        let (flushes, count) = (Flushes::default(), AtomicU64::new(0));
        let (has_begun, may_end) = (Barrier::new(2), Barrier::new(2));
        let flush = |outcome| {
            count.fetch_add(1, Ordering::SeqCst);
            outcome
        };
        let done = thread::scope(|scope| {
            let first = scope.spawn(|| {
                flushes.share(|| {
                    has_begun.wait();
                    may_end.wait();
                    flush(outcome)
                })
            });
            has_begun.wait();
            // The error is told to the first only.
            let others = [(); 4].map(|()| scope.spawn(|| flushes.share(|| flush(Ok(())))));
            may_end.wait();
            assert_eq!(first.join().unwrap(), outcome);
            others.map(|other| other.join().unwrap()).to_vec()
        });
        (done, count.into_inner())
    }

    #[test]
    fn an_error_that_is_told_once_fails_every_later_flush() {
        let failed = Err(Failure::Errno(Errno::IO));
        assert_eq!(amid(failed), (vec![failed; 4], 1));
    }

    #[test]
    fn a_flush_that_is_asked_for_during_another_begins_later() {
        let (done, count) = amid(Ok(()));
        assert_eq!(done, [Ok(()); 4]);
        assert!((2..=5).contains(&count), "{count}");
    }
}
