//! One shared file system: its files, its options, and the requests under way.
//!
//! # Mechanism
//! A request [enters](SharedFiles::enter) the share of its file and leaves when its reply was sent.
//! Ending a share closes it for new requests and waits for those under way, so that nothing uses
//! the file system when it is unmounted.
//!
//! Each time that a file system is shared it gets a new write verifier. Clients then write again
//! what they have written and not committed: a daemon that was killed, or a pool that was given up
//! by force, has lost it.

use crate::recall_queue::RecallQueue;
use crate::share_options::ShareOptions;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tarn_engine::files::{
    Change, FileSystem, Holding, ObjectId, Operation, PosixError, Tree, Verifier, Watcher,
};

/// Set when a share takes no more requests.
const CLOSED: u64 = 1 << 63;

/// How often the end of requests under way is looked for. A guess: too short to be noticed.
const LOOK_EVERY: Duration = Duration::from_micros(200);

/// Most snapshots of one share that are kept open. A guess; others are opened anew.
const SNAPSHOTS_MAX: usize = 64;

/// A file system as it is shared. Changed options make a new one with the same files.
pub(crate) struct Share {
    /// The dataset's name, for messages.
    pub(crate) dataset: String,
    /// The folder by which clients mount it.
    pub(crate) path: PathBuf,
    pub(crate) options: ShareOptions,
    pub(crate) shared: Arc<SharedFiles>,
}

/// The files of a share.
pub(crate) struct SharedFiles {
    pub(crate) tree: Arc<dyn Tree>,
    /// The share as a holder of the file system.
    pub(crate) holding: Holding,
    _watch: Arc<dyn Watcher>,
    pub(crate) verifier: Verifier,
    under_way: AtomicU64,
    snapshots: Mutex<BTreeMap<ObjectId, Arc<dyn Tree>>>,
}

/// NFS clients look for changes themselves: the server caches nothing that must be dropped. What
/// clients have delegated is asked for.
struct Watch {
    shared: Weak<SharedFiles>,
    recalls: Arc<RecallQueue<SharedFiles>>,
}

impl Watcher for Watch {
    fn changed(&self, _: &Change<'_>) {}

    fn recall(&self, file: ObjectId) {
        self.recalls.ask_for(self.shared.clone(), file);
    }
}

impl SharedFiles {
    pub(crate) fn new(
        tree: Arc<dyn Tree>,
        recalls: Arc<RecallQueue<SharedFiles>>,
    ) -> Arc<SharedFiles> {
        Arc::new_cyclic(|shared: &Weak<SharedFiles>| {
            let watch: Arc<dyn Watcher> = Arc::new(Watch {
                shared: shared.clone(),
                recalls,
            });
            SharedFiles {
                holding: tree.files().hold(Arc::downgrade(&watch)),
                _watch: watch,
                tree,
                verifier: new_verifier(),
                under_way: AtomicU64::new(0),
                snapshots: Mutex::default(),
            }
        })
    }

    pub(crate) fn files(&self) -> &Arc<FileSystem> {
        self.tree.files()
    }

    /// Begins a request. None when the share has ended.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Pass> {
        let before = self.under_way.fetch_add(1, Ordering::SeqCst);
        let pass = Pass {
            shared: self.clone(),
        };
        (before & CLOSED == 0).then_some(pass)
    }

    /// Takes no more requests.
    pub(crate) fn close(&self) {
        self.under_way.fetch_or(CLOSED, Ordering::SeqCst);
    }

    /// Takes requests again.
    pub(crate) fn open_again(&self) {
        self.under_way.fetch_and(!CLOSED, Ordering::SeqCst);
    }

    /// Waits until no request is under way. False when that takes longer.
    pub(crate) fn wait_until_quiet(&self, patience: Duration) -> bool {
        let began = Instant::now();
        while self.under_way.load(Ordering::SeqCst) & !CLOSED > 0 {
            if began.elapsed() >= patience {
                return false;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.snapshots().clear();
        true
    }

    /// The tree of a snapshot.
    ///
    /// # Errors
    /// There is no such snapshot.
    pub(crate) fn snapshot(
        &self,
        dataset: ObjectId,
        operation: &Operation,
    ) -> Result<Arc<dyn Tree>, PosixError> {
        if let Some(known) = self.snapshots().get(&dataset)
            && !known.files().is_ending()
        {
            return Ok(known.clone());
        }
        // Opened without the lock, since it reads from devices.
        let tree = self.tree.snapshot_numbered(dataset, operation)?;
        let mut snapshots = self.snapshots();
        snapshots.retain(|_, tree| !tree.files().is_ending());
        if snapshots.len() >= SNAPSHOTS_MAX {
            snapshots.pop_first();
        }
        snapshots.insert(dataset, tree.clone());
        Ok(tree)
    }

    fn snapshots(&self) -> std::sync::MutexGuard<'_, BTreeMap<ObjectId, Arc<dyn Tree>>> {
        // A thread that panicked under the lock was inserting or removing one entry.
        self.snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request under way.
pub(crate) struct Pass {
    shared: Arc<SharedFiles>,
}

impl Clone for Pass {
    fn clone(&self) -> Pass {
        // The share stays open for what is under way.
        self.shared.under_way.fetch_add(1, Ordering::SeqCst);
        Pass {
            shared: self.shared.clone(),
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.shared.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A verifier that no earlier share of this machine had: the clock, and a count for shares that
/// are made at the same time.
fn new_verifier() -> Verifier {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_micros());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let low = u64::try_from(seconds & u128::from(u64::MAX)).unwrap_or_default();
    low.wrapping_add(count).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifiers_differ() {
        assert_ne!(new_verifier(), new_verifier());
    }
}
