//! Locks of files: byte-range locks (`fcntl`) and whole-file locks (`flock`).
//!
//! # Problem
//! A lock that a program takes through a mount must stop a client of an export, and the reverse. So
//! the file system keeps all locks, not the mount's kernel or the export.
//!
//! # Mechanism
//! Each lock has a [`LockOwner`]: a holder of the file system, and a number that the holder gave. A
//! process, an open file description, and an owner of NFS each are one owner. Ranges of one owner
//! replace each other; those of different owners conflict if one of them is exclusive. `flock` has
//! a table of its own: as on Linux, it is independent of byte ranges.
//!
//! A request that conflicts is refused, or waits: it gets a [`LockWait`], and the thread that
//! releases the conflicting lock calls its callback. Waiting requests of a file are tried in the
//! order in which they came. A wait ends by `FileSystem::cancel_lock_wait` as well.
//!
//! Before a byte-range request waits, the graph of waiting owners is searched; a cycle through its
//! owner refuses it ([`LockRefusal::Deadlock`]). `flock` waits without that, as on Linux.
//!
//! Locks are released with their owner (`FileSystem::release_locks`), with the holder
//! ([`Holding`](crate::Holding)), and with the file. They are in memory only.
//!
//! # Invariants
//! - No two owners have conflicting locks.
//! - A waiting request conflicts with a lock that is held.
//! - No lock of this crate is held while a callback is called.

mod ranges;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};

use tarn_host::lock::{Mutex, MutexGuard};
use tarn_ondisk::units::ObjectId;
use tarn_probe::HolderId;

use crate::ranks;
use ranges::{Held, RangeLocks};

/// The owner of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner {
    /// The holder of the file system through which it came.
    pub holder: HolderId,
    /// The holder's number for it.
    pub number: u64,
}

/// The kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Shared with other owners (`F_RDLCK`, `LOCK_SH`).
    Shared,
    /// For one owner (`F_WRLCK`, `LOCK_EX`).
    Exclusive,
}

impl LockKind {
    /// Whether two owners can have these locks on the same bytes.
    fn goes_with(self, other: LockKind) -> bool {
        self == LockKind::Shared && other == LockKind::Shared
    }
}

/// Bytes of a file, both ends included. They may lie beyond the end of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRange {
    /// The first byte.
    pub first: u64,
    /// The last byte, not before the first; `u64::MAX` for the end of the file, wherever that is.
    pub last: u64,
}

impl LockRange {
    /// All bytes.
    pub const WHOLE: LockRange = LockRange {
        first: 0,
        last: u64::MAX,
    };

    fn overlaps(self, other: LockRange) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether the two overlap or are adjacent.
    fn touches(self, other: LockRange) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }
}

/// What is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockScope {
    /// A range of bytes, as `fcntl` does.
    Range(LockRange),
    /// The file, as `flock` does.
    File,
}

/// A lock that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRequest {
    /// The owner.
    pub owner: LockOwner,
    /// The range or the file.
    pub scope: LockScope,
    /// Shared or exclusive.
    pub kind: LockKind,
    /// The process, as `F_GETLK` shows it; 0 where it is not known.
    pub process: u32,
}

/// Why a lock is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockRefusal {
    /// Another owner has a lock that conflicts with it.
    #[error("another owner has it locked")]
    Conflict,
    /// Waiting would never end: the owners of the conflicting locks wait for this owner.
    #[error("waiting for this lock would be a deadlock")]
    Deadlock,
    /// The range ends before it begins.
    #[error("the range ends before it begins")]
    BadRange,
}

impl LockRefusal {
    /// Linux' number for it.
    pub fn errno(self) -> i32 {
        match self {
            LockRefusal::Conflict => 11,
            LockRefusal::BadRange => 22,
            LockRefusal::Deadlock => 35,
        }
    }
}

/// A request that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LockWait(u64);

/// The result of a request that may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locked {
    /// It has the lock. Its callback is not called.
    Now,
    /// It waits: its callback is called when it has the lock, which may have happened by now.
    Later(LockWait),
}

/// Called when a waiting request has its lock, by the thread that released the conflicting one.
pub type Granted = Box<dyn FnOnce() + Send>;

struct Waiter {
    number: LockWait,
    request: LockRequest,
    granted: Granted,
}

/// The locks of one file.
#[derive(Default)]
struct FileLocks {
    ranges: RangeLocks,
    /// Owners of `flock`, each once.
    whole: Vec<Held>,
    waiting: VecDeque<Waiter>,
}

impl FileLocks {
    fn is_empty(&self) -> bool {
        self.ranges.is_empty() && self.whole.is_empty() && self.waiting.is_empty()
    }

    /// The locks that keep a request from being granted.
    fn conflicts<'a>(
        &'a self,
        request: &'a LockRequest,
    ) -> Box<dyn Iterator<Item = &'a Held> + 'a> {
        match request.scope {
            LockScope::Range(range) => Box::new(self.ranges.conflicts(request, range)),
            LockScope::File => Box::new(self.whole.iter().filter(move |held| {
                held.owner != request.owner && !held.kind.goes_with(request.kind)
            })),
        }
    }

    fn is_free(&self, request: &LockRequest) -> bool {
        self.conflicts(request).next().is_none()
    }

    /// Grants a lock without conflicts.
    fn give(&mut self, request: &LockRequest) {
        debug_assert!(self.is_free(request), "a lock conflicts with no other");
        match request.scope {
            LockScope::Range(range) => self.ranges.set(request, range),
            LockScope::File => {
                self.whole.retain(|held| held.owner != request.owner);
                self.whole.push(Held {
                    owner: request.owner,
                    range: LockRange::WHOLE,
                    kind: request.kind,
                    process: request.process,
                });
            }
        }
    }

    /// Grants waiting requests that conflict no more. Returns their callbacks.
    fn give_to_waiting(&mut self) -> Vec<Granted> {
        let mut granted = Vec::new();
        loop {
            let count = granted.len();
            for waiter in std::mem::take(&mut self.waiting) {
                if self.is_free(&waiter.request) {
                    self.give(&waiter.request);
                    granted.push(waiter.granted);
                } else {
                    self.waiting.push_back(waiter);
                }
            }
            // A granted lock may exclude less than its owner's old one, for which an earlier
            // request waits.
            if granted.len() == count {
                break;
            }
        }
        debug_assert!(
            !(self.waiting.iter()).any(|waiter| self.is_free(&waiter.request)),
            "a request waits only for locks that conflict"
        );
        granted
    }
}

/// The locks of a file system.
pub(crate) struct Locks {
    state: Mutex<State>,
    /// Whether any file has a lock. Closing a file looks here first.
    are_any: AtomicBool,
}

#[derive(Default)]
struct State {
    files: BTreeMap<ObjectId, FileLocks>,
    last_wait: u64,
}

impl State {
    /// Whether waiting for these owners would be a deadlock.
    fn is_deadlock(&self, owner: LockOwner, blockers: impl Iterator<Item = LockOwner>) -> bool {
        let mut next: Vec<LockOwner> = blockers.collect();
        let mut seen = BTreeSet::new();
        while let Some(blocker) = next.pop() {
            if blocker == owner {
                return true;
            }
            if !seen.insert(blocker) {
                continue;
            }
            for file in self.files.values() {
                let waits = file.waiting.iter().filter(|waiter| {
                    let is_range = matches!(waiter.request.scope, LockScope::Range(_));
                    is_range && waiter.request.owner == blocker
                });
                for waiter in waits {
                    next.extend(file.conflicts(&waiter.request).map(|held| held.owner));
                }
            }
        }
        false
    }
}

impl Locks {
    /// No locks.
    pub fn new() -> Locks {
        Locks {
            state: Mutex::new(ranks::LOCKS, State::default()),
            are_any: AtomicBool::new(false),
        }
    }

    /// Changes the locks of a file, and then grants waiting requests that conflict no more.
    fn change<T>(&self, file: ObjectId, change: impl FnOnce(&mut FileLocks) -> T) -> T {
        let mut state = self.state.lock();
        let locks = state.files.entry(file).or_default();
        let outcome = change(locks);
        let granted = locks.give_to_waiting();
        if locks.is_empty() {
            state.files.remove(&file);
        }
        self.note_any(&state);
        drop(state);
        granted.into_iter().for_each(|granted| granted());
        outcome
    }

    fn note_any(&self, state: &MutexGuard<'_, State>) {
        debug_assert!(
            state.files.values().all(|locks| !locks.is_empty()),
            "a file in the table has locks, or requests that wait"
        );
        let are_any = !state.files.is_empty();
        self.are_any.store(are_any, Ordering::SeqCst);
    }

    /// Releases all locks of these owners, and ends their waits, in one file or in all.
    fn release(&self, of: Option<ObjectId>, goes: impl Fn(LockOwner, LockScope) -> bool) {
        if !self.are_any.load(Ordering::SeqCst) {
            return;
        }
        let files: Vec<ObjectId> = match of {
            Some(file) => vec![file],
            None => self.state.lock().files.keys().copied().collect(),
        };
        for file in files {
            let ended = self.change(file, |locks| {
                let range = LockScope::Range(LockRange::WHOLE);
                locks.ranges.remove(|owner| goes(owner, range));
                locks
                    .whole
                    .retain(|held| !goes(held.owner, LockScope::File));
                let is_over = |waiter: &Waiter| goes(waiter.request.owner, waiter.request.scope);
                let waiting = std::mem::take(&mut locks.waiting);
                let (ended, others): (VecDeque<_>, VecDeque<_>) =
                    waiting.into_iter().partition(is_over);
                locks.waiting = others;
                ended
            });
            // Callbacks are dropped uncalled, when no lock is held.
            drop(ended);
        }
    }

    /// Drops the locks of a freed file, so that a new file of its number has none. A freed file is
    /// not open, so no request of a mount waits for them.
    pub fn forget(&self, file: ObjectId) {
        if !self.are_any.load(Ordering::SeqCst) {
            return;
        }
        let mut state = self.state.lock();
        let forgotten = state.files.remove(&file);
        self.note_any(&state);
        drop(state);
        drop(forgotten);
    }

    /// Releases the locks of a holder that has ended.
    pub fn release_holder(&self, holder: HolderId) {
        self.release(None, |owner, _| owner.holder == holder);
    }
}

fn check(request: &LockRequest) -> Result<(), LockRefusal> {
    match request.scope {
        LockScope::Range(range) if range.first > range.last => Err(LockRefusal::BadRange),
        _ => Ok(()),
    }
}

impl Locks {
    /// The lock that a request conflicts with, if there is one (`F_GETLK`).
    pub fn find(&self, file: ObjectId, request: &LockRequest) -> Option<LockRequest> {
        let state = self.state.lock();
        let locks = state.files.get(&file)?;
        let held = *locks.conflicts(request).next()?;
        Some(LockRequest {
            owner: held.owner,
            scope: match request.scope {
                LockScope::Range(_) => LockScope::Range(held.range),
                LockScope::File => LockScope::File,
            },
            kind: held.kind,
            process: held.process,
        })
    }

    /// Locks, or refuses at once (`F_SETLK`, `LOCK_NB`). A `flock` of the other kind that the owner
    /// has is released in either case, as on Linux.
    ///
    /// # Errors
    /// `Conflict`, `BadRange`.
    pub fn lock(&self, file: ObjectId, request: &LockRequest) -> Result<(), LockRefusal> {
        check(request)?;
        self.change(file, |locks| {
            if locks.is_free(request) {
                locks.give(request);
                return Ok(());
            }
            give_up_before(locks, request);
            Err(LockRefusal::Conflict)
        })
    }

    /// Locks, or waits (`F_SETLKW`). `granted` is called when a request that waits has its lock.
    ///
    /// # Errors
    /// `Deadlock`, `BadRange`.
    pub fn lock_or_wait(
        &self,
        file: ObjectId,
        request: &LockRequest,
        granted: Granted,
    ) -> Result<Locked, LockRefusal> {
        check(request)?;
        {
            let mut state = self.state.lock();
            let blockers: Vec<LockOwner> = match state.files.get(&file) {
                Some(locks) => locks.conflicts(request).map(|held| held.owner).collect(),
                None => Vec::new(),
            };
            if !blockers.is_empty() {
                let is_range = matches!(request.scope, LockScope::Range(_));
                if is_range && state.is_deadlock(request.owner, blockers.into_iter()) {
                    return Err(LockRefusal::Deadlock);
                }
                state.last_wait += 1;
                let number = LockWait(state.last_wait);
                let locks = state.files.entry(file).or_default();
                give_up_before(locks, request);
                locks.waiting.push_back(Waiter {
                    number,
                    request: *request,
                    granted,
                });
                let others = locks.give_to_waiting();
                drop(state);
                others.into_iter().for_each(|granted| granted());
                return Ok(Locked::Later(number));
            }
            state.files.entry(file).or_default().give(request);
            self.note_any(&state);
        }
        // The new lock may exclude less than the owner's old one.
        self.change(file, |_| ());
        Ok(Locked::Now)
    }

    /// Ends a wait. True if it was still waiting: then its callback is not called.
    pub fn cancel_wait(&self, file: ObjectId, wait: LockWait) -> bool {
        let ended = self.change(file, |locks| {
            let at = locks
                .waiting
                .iter()
                .position(|waiter| waiter.number == wait);
            at.and_then(|at| locks.waiting.remove(at))
        });
        ended.is_some()
    }

    /// Releases the owner's locks on this range or file.
    ///
    /// # Errors
    /// `BadRange`.
    pub fn unlock(
        &self,
        file: ObjectId,
        owner: LockOwner,
        scope: LockScope,
    ) -> Result<(), LockRefusal> {
        let request = LockRequest {
            owner,
            scope,
            kind: LockKind::Shared,
            process: 0,
        };
        check(&request)?;
        self.change(file, |locks| match scope {
            LockScope::Range(range) => locks.ranges.clear(owner, range),
            LockScope::File => locks.whole.retain(|held| held.owner != owner),
        });
        Ok(())
    }

    /// Releases all locks of one sort that an owner has on a file, and ends its waits for them,
    /// when it has closed the file. `scope` says which sort; its range does not matter.
    pub fn release_owner(&self, file: ObjectId, owner: LockOwner, scope: LockScope) {
        let is_range = |scope: LockScope| matches!(scope, LockScope::Range(_));
        self.release(Some(file), |other, of| {
            other == owner && is_range(of) == is_range(scope)
        });
    }
}

/// A `flock` of the other kind is released before the new one is granted.
fn give_up_before(locks: &mut FileLocks, request: &LockRequest) {
    if request.scope == LockScope::File {
        locks.whole.retain(|held| held.owner != request.owner);
    }
}
