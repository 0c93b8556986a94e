//! Removing sources: by their front ends, by the other end, or abandoned with threads that hang.

use crate::registered::Registered;
use crate::serving_threads::{ServingThreads, SourceKey};
use rustix::event::epoll;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Interval at which it checks whether a removed source has gone. A guess: longer than a thread
/// lingers, and too short to be noticed in an unmount.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// A source was removed and requests of it are still being served.
#[derive(Debug)]
pub struct StillServed {
    /// Its other end is still there.
    pub is_connected: bool,
}

impl ServingThreads {
    /// Serves a source no longer, and waits until it has gone: requests being served are finished,
    /// others are not taken. When that takes longer than `patience`, the source is told later, as
    /// if the other end had gone.
    ///
    /// # Errors
    /// [`StillServed`] when it took too long. To be called again.
    pub fn remove(&self, key: SourceKey, patience: Duration) -> Result<(), StillServed> {
        let SourceKey(key) = key;
        self.begin_removing(key);
        let Some(registered) = self.leaving().get(&key).cloned() else {
            return Ok(());
        };
        if wait_until_quiet(std::slice::from_ref(&registered), patience) {
            registered.is_to_tell.store(false, Ordering::SeqCst);
            self.leaving().remove(&key);
            return Ok(());
        }
        let is_connected = registered.is_connected();
        registered.is_to_tell.store(true, Ordering::SeqCst);
        self.tell_if_gone(&registered);
        Err(StillServed { is_connected })
    }

    /// Serves sources no longer, and waits a moment for requests that are being served. Those that
    /// are not done then are left alone, and their threads count no more. Gives the sources whose
    /// other end is still there.
    pub fn abandon(&self, keys: &[SourceKey], patience: Duration) -> Vec<SourceKey> {
        keys.iter().for_each(|key| self.begin_removing(key.0));
        let removed: Vec<Arc<Registered>> = keys
            .iter()
            .filter_map(|key| self.leaving().remove(&key.0))
            .collect();
        wait_until_quiet(&removed, patience);
        for registered in &removed {
            registered.is_to_tell.store(false, Ordering::SeqCst);
            registered.is_abandoned.store(true, Ordering::Release);
            self.pools.forget(&registered.pool());
            let held = registered.busy.load(Ordering::SeqCst);
            self.lost.fetch_add(held, Ordering::AcqRel);
        }
        let connected = removed.iter().filter(|one| one.is_connected());
        connected.map(|one| SourceKey(one.key)).collect()
    }

    /// Has no more requests of a source taken.
    pub(crate) fn begin_removing(&self, key: u64) {
        // Both tables at once: a source that was not found in either would be taken for one that
        // has gone.
        let mut sources = self.sources();
        let Some(registered) = sources.remove(&key) else {
            return;
        };
        registered.is_removed.store(true, Ordering::SeqCst);
        let _ = epoll::delete(&self.epoll, registered.source.descriptor());
        self.leaving().insert(key, registered.clone());
        drop(sources);
        // It may have been its turn.
        self.watch_next(&registered.pool());
    }

    /// Tells a source that it has gone, if it is to be told and was not.
    pub(crate) fn tell_if_gone(&self, registered: &Registered) {
        if registered.is_to_tell.load(Ordering::SeqCst)
            && registered.is_quiet()
            && registered.is_to_tell.swap(false, Ordering::SeqCst)
        {
            debug_assert!(registered.is_removed.load(Ordering::SeqCst));
            self.leaving().remove(&registered.key);
            registered.source.gone();
        }
    }
}

/// Waits until nothing of these sources, which were removed, is under way. False when that takes
/// longer.
fn wait_until_quiet(removed: &[Arc<Registered>], patience: Duration) -> bool {
    let began = Instant::now();
    let is_quiet = || removed.iter().all(|registered| registered.is_quiet());
    while !is_quiet() {
        if began.elapsed() >= patience {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    true
}
