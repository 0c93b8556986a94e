//! The table of shares: by guid for handles, by folder for the MOUNT protocol, and where one share
//! is found below another.
//!
//! # Mechanism
//! The table is an unchangeable value that is replaced by each change, so requests look into it
//! without waiting for a change. Where a file system is mounted on a folder of another one that is
//! shared too, a *junction* leads from the object of that folder to the share, and clients cross it
//! by `LOOKUP`. The folder is found by its name in the file system above when the table changes,
//! and then known by its object, so that the junction follows a folder that is renamed.

use crate::share::Share;
use std::collections::BTreeMap;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tarn_engine::files::{ClientId, Credentials, FileKind, ObjectId, OperationKind, Protocol, Who};

/// How long after the start of the daemon the share of a handle may still come. A guess: longer
/// than mounting thousands of file systems takes.
const START_PATIENCE: Duration = Duration::from_secs(90);

/// How long a share that was interrupted may take to come back. A guess, as above.
const INTERRUPTION_PATIENCE: Duration = Duration::from_secs(30);

/// Most ended shares that are remembered. A guess; it bounds memory.
const ENDED_MAX: usize = 64 << 10;

/// All shares.
pub(crate) struct ShareTable {
    present: RwLock<Arc<Shares>>,
    /// Held by the one thread that makes the next table.
    changing: Mutex<()>,
    started: Instant,
    /// Shares that have ended, by guid: until when they may come back.
    ended: Mutex<BTreeMap<u64, Instant>>,
}

impl Default for ShareTable {
    fn default() -> ShareTable {
        ShareTable {
            present: RwLock::default(),
            changing: Mutex::default(),
            started: Instant::now(),
            ended: Mutex::default(),
        }
    }
}

/// The shares at one time.
#[derive(Default)]
pub(crate) struct Shares {
    by_guid: BTreeMap<u64, Arc<Share>>,
    /// A folder of a share, by which another share is found.
    junctions: BTreeMap<(u64, ObjectId), u64>,
}

impl ShareTable {
    /// The shares as they are now.
    pub(crate) fn now(&self) -> Arc<Shares> {
        // A thread that panicked under the lock was replacing a pointer.
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        present.clone()
    }

    /// Whether a share that is not in the table may come in a moment: the daemon has just started,
    /// or its file system is unmounted for a rollback or another change. A client that is told that
    /// its handle is stale gives errors to its programs, so it is told to ask again.
    pub(crate) fn may_come(&self, guid: u64) -> bool {
        match self.ended().get(&guid) {
            Some(until) => Instant::now() < *until,
            None => self.started.elapsed() < START_PATIENCE,
        }
    }

    /// Whether any share that is not in the table may come in a moment.
    pub(crate) fn any_may_come(&self) -> bool {
        self.started.elapsed() < START_PATIENCE || self.is_interrupted()
    }

    /// A share is about to end, and comes back soon.
    pub(crate) fn interrupt(&self, guid: u64) {
        let mut ended = self.ended();
        if ended.len() < ENDED_MAX {
            ended.insert(guid, Instant::now() + INTERRUPTION_PATIENCE);
        }
    }

    /// Whether a share is to come back soon.
    pub(crate) fn is_interrupted(&self) -> bool {
        let now = Instant::now();
        self.ended().values().any(|until| now < *until)
    }

    fn ended(&self) -> MutexGuard<'_, BTreeMap<u64, Instant>> {
        // A thread that panicked under the lock was inserting or removing one entry.
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a share, or replaces the one with its guid.
    pub(crate) fn insert(&self, share: Arc<Share>) {
        self.ended().remove(&share.shared.tree.guid());
        self.change(|by_guid| {
            by_guid.insert(share.shared.tree.guid(), share.clone());
        });
    }

    /// Removes a share.
    pub(crate) fn remove(&self, guid: u64) -> Option<Arc<Share>> {
        let mut removed = None;
        let mut ended = self.ended();
        if ended.len() < ENDED_MAX {
            ended.entry(guid).or_insert_with(Instant::now);
        }
        drop(ended);
        self.change(|by_guid| removed = by_guid.remove(&guid));
        removed
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<u64, Arc<Share>>)) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut by_guid = self.now().by_guid.clone();
        change(&mut by_guid);
        let junctions = junctions_of(&by_guid);
        let next = Arc::new(Shares { by_guid, junctions });
        *self.present.write().unwrap_or_else(PoisonError::into_inner) = next;
    }
}

impl Shares {
    /// The share of the dataset with this guid.
    pub(crate) fn with_guid(&self, guid: u64) -> Option<&Arc<Share>> {
        self.by_guid.get(&guid)
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Share>> {
        self.by_guid.values()
    }

    /// The share that is found at this folder of another.
    pub(crate) fn below(&self, guid: u64, folder: ObjectId) -> Option<&Arc<Share>> {
        self.with_guid(*self.junctions.get(&(guid, folder))?)
    }

    /// The folder of another share at which this one is found.
    pub(crate) fn above(&self, guid: u64) -> Option<(&Arc<Share>, ObjectId)> {
        let leads_here = |(_, below): &(&(u64, ObjectId), &u64)| **below == guid;
        let ((above, folder), _) = self.junctions.iter().find(leads_here)?;
        Some((self.with_guid(*above)?, *folder))
    }

    /// The share of the folder that is the deepest on the way to a path, and the rest of the path.
    pub(crate) fn on_the_way<'p>(&self, path: &'p Path) -> Option<(&Arc<Share>, &'p Path)> {
        self.deepest(path, |_| true)
    }

    fn deepest<'p>(
        &self,
        path: &'p Path,
        may_be: impl Fn(&Share) -> bool,
    ) -> Option<(&Arc<Share>, &'p Path)> {
        let above = self.all().filter(|share| may_be(share));
        let above = above.filter_map(|share| Some((share, path.strip_prefix(&share.path).ok()?)));
        above.max_by_key(|(share, _)| share.path.components().count())
    }
}

fn junctions_of(by_guid: &BTreeMap<u64, Arc<Share>>) -> BTreeMap<(u64, ObjectId), u64> {
    let shares = Shares {
        by_guid: by_guid.clone(),
        junctions: BTreeMap::new(),
    };
    let junction = |(guid, share): (&u64, &Arc<Share>)| {
        if share.options.is_hidden {
            return None;
        }
        let (above, rest) = shares.deepest(&share.path, |other| other.path != share.path)?;
        let folder = folder_of(above, rest)?;
        Some(((above.shared.tree.guid(), folder), *guid))
    };
    by_guid.iter().filter_map(junction).collect()
}

/// The folder at a path below a share's root. None where the file system has none there.
fn folder_of(share: &Share, path: &Path) -> Option<ObjectId> {
    let (tree, _pass) = (&share.shared.tree, share.shared.enter()?);
    if tree.is_suspended() {
        return None;
    }
    let who = Who {
        client: ClientId::ADMINISTRATION,
        protocol: Protocol::Internal,
        user: 0,
        holder: share.shared.holding.id(),
    };
    let root = tree.files().root();
    let operation = tree.begin(who, OperationKind::Lookup, root, (0, 0));
    let mut folder = Some(root);
    for part in path.components() {
        folder = match (folder, part) {
            (Some(folder), Component::Normal(name)) => {
                let name = name.as_encoded_bytes();
                let found = tree
                    .files()
                    .lookup(&Credentials::root(), folder, name, &operation);
                let found = found.ok().filter(|found| found.kind == FileKind::Directory);
                found.map(|found| found.id)
            }
            _ => None,
        };
    }
    tree.finish(operation);
    folder
}
