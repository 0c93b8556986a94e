//! Flushes of a file, one at a time.
//!
//! # Problem
//! The system tells an error of writing back once for each open file: to the flush that comes first. Another one that runs at the same time, and whose bytes are among those that were lost, is told that all is well.
//!
//! # Mechanism
//! Only one flush runs. Who comes meanwhile waits for the next, which begins after he came and so covers what he wrote; all who wait share it. After a failure everybody is told of it, for good: what the
//! device holds is unknown.
//!
//! A block device that is written past the page cache tells errors of writing to the writer, and each flush its own.

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
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::sync::{Arc, Barrier};
    use std::thread;
    use std::time::Duration;

    /// As the system has it: the first who asks is told.
    #[derive(Default)]
    struct File {
        has_lost: AtomicBool,
        flushes: AtomicU64,
        at_once: AtomicU64,
    }

    impl File {
        fn flush(&self) -> Result<(), Failure> {
            assert_eq!(self.at_once.fetch_add(1, Ordering::SeqCst), 0);
            self.flushes.fetch_add(1, Ordering::SeqCst);
            let has_lost = self.has_lost.swap(false, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(50));
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            match has_lost {
                true => Err(Failure::Errno(Errno::IO)),
                false => Ok(()),
            }
        }
    }

    /// Many flushes at the same time. Gives how many succeeded, and how many there were.
    fn together(file: &Arc<File>, flushes: &Arc<Flushes>) -> (usize, u64) {
        let all_are_here = Arc::new(Barrier::new(8));
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let (file, flushes) = (file.clone(), flushes.clone());
                let all_are_here = all_are_here.clone();
                thread::spawn(move || {
                    all_are_here.wait();
                    flushes.share(|| file.flush())
                })
            })
            .collect();
        let done: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        let good = done.iter().filter(|done| done.is_ok()).count();
        (good, file.flushes.load(Ordering::SeqCst))
    }

    #[test]
    fn an_error_that_is_told_once_is_told_to_everybody_for_good() {
        let (file, flushes) = (Arc::new(File::default()), Arc::new(Flushes::default()));
        file.has_lost.store(true, Ordering::SeqCst);
        assert_eq!(together(&file, &flushes), (0, 1));
        assert!(flushes.share(|| Ok(())).is_err());
    }

    #[test]
    fn who_waits_shares_a_flush_that_begins_after_he_came() {
        let (file, flushes) = (Arc::new(File::default()), Arc::new(Flushes::default()));
        let (good, count) = together(&file, &flushes);
        assert_eq!(good, 8);
        assert!((2..8).contains(&count), "{count}");
        let written = AtomicBool::new(false);
        flushes
            .share(|| {
                written.store(true, Ordering::SeqCst);
                Ok(())
            })
            .unwrap();
        assert!(written.into_inner(), "nobody else flushes for him");
    }
}
