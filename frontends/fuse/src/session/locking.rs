//! Lock requests that wait, and the locks taken through handles without `FLUSH`.
//!
//! # Mechanism
//! A waiting request has no thread: its answer is written by the thread that releases the
//! conflicting lock. Until then it is in a table by its number, where an interruption (`INTERRUPT`)
//! finds it. The kernel may interrupt a request that another serving thread is about to begin. So
//! numbers that are not in the table are remembered for a while, and a request looks for its own
//! before it waits.
//!
//! # Closing files
//! The kernel sends `FLUSH` for each descriptor that is closed, which costs a round trip, except
//! for files opened with `FOPEN_NOFLUSH`. These are files opened only for reading or only for
//! writing, as long as no program has locked any file of the mount. (Files opened for both may be
//! mapped, and the kernel writes their pages back with `FLUSH`.) A lock that is taken through one
//! of them ends with the open file, and so does a lock of an open file description, which `FLUSH`
//! does not name.
//!
//! # Invariants
//! - A request is answered exactly once: by the callback of its lock, by its interruption, or at
//!   once.
//! - No lock of this module is held while the file system is called.

use super::{Place, Session};
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tarn_engine::files::{FileSystem, LockRequest, LockScope, LockWait, Locked, ObjectId};

use crate::handles::Handle;

/// How many interruptions of unknown requests are remembered. A guess: far more than requests that
/// were read and have not begun.
const INTERRUPTED_MAX: usize = 256;

/// A lock request, from its call of the file system to its answer.
enum Waiting {
    /// The call is under way.
    Asking,
    /// The call is under way, and the request was interrupted.
    Interrupted,
    /// It waits.
    For(Arc<FileSystem>, ObjectId, LockWait),
}

#[derive(Default)]
struct Table {
    waiting: BTreeMap<u64, Waiting>,
    /// Numbers of interrupted requests that were not in the table.
    interrupted: VecDeque<u64>,
    /// The handle through which an owner has locked a file last, by node and owner, until `FLUSH`
    /// tells that the owner has closed it.
    owners: BTreeMap<(u64, u64), u64>,
}

/// The state of locks in a session. The file system has the locks themselves.
#[derive(Default)]
pub(crate) struct SessionLocks {
    table: Mutex<Table>,
    /// Whether a program has taken an `fcntl` lock.
    are_used: AtomicBool,
    last_handle: AtomicU64,
}

impl SessionLocks {
    fn table(&self) -> MutexGuard<'_, Table> {
        // A thread that panicked under the lock was inserting or removing one entry.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle of a file that is opened with these flags.
    pub(crate) fn handle(&self, flags: i32) -> Handle {
        let handle = Handle::opened_with(flags);
        match handle.may_be_mapped() || self.are_used.load(Ordering::Relaxed) {
            true => handle,
            false => handle.unflushed(),
        }
        .numbered(self.last_handle.fetch_add(1, Ordering::Relaxed))
    }

    /// Notes a lock of a file that is about to be taken through this handle.
    pub(crate) fn note(&self, node: u64, handle: u64, request: &LockRequest) {
        if request.scope == LockScope::File {
            return;
        }
        self.are_used.store(true, Ordering::Relaxed);
        let owner = (node, request.owner.number);
        self.table().owners.insert(owner, handle);
    }

    /// An owner has closed one of its descriptors of a file, and has no locks on it any more.
    pub(crate) fn forget_owner(&self, node: u64, owner: u64) {
        if self.are_used.load(Ordering::Relaxed) {
            self.table().owners.remove(&(node, owner));
        }
    }

    /// The owners whose locks end with an open file: open file descriptions, which `FLUSH` does not
    /// name, and processes of which no `FLUSH` came. An owner that has locked through another
    /// handle since is not among them: the kernel may tell late of a file that is released.
    pub(crate) fn take_owners(&self, node: u64, handle: Handle) -> Vec<u64> {
        if !self.are_used.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut table = self.table();
        let of_file = table.owners.range((node, 0)..=(node, u64::MAX));
        let ended = of_file.filter(|(_, by)| **by == handle.number());
        let ended: Vec<u64> = ended.map(|((_, owner), _)| *owner).collect();
        for owner in &ended {
            table.owners.remove(&(node, *owner));
        }
        ended
    }
}

impl Session {
    pub(crate) fn locks(&self) -> &SessionLocks {
        &self.locks
    }

    /// Locks, or waits. True when the request has the lock and is to be answered; otherwise the
    /// callback of the lock answers it.
    pub(crate) fn wait_for_lock(
        &self,
        file: &Place,
        unique: u64,
        request: &LockRequest,
    ) -> Result<bool, Errno> {
        {
            let mut table = self.locks.table();
            if let Some(at) = table.interrupted.iter().position(|other| *other == unique) {
                table.interrupted.remove(at);
                return Err(Errno::INTR);
            }
            table.waiting.insert(unique, Waiting::Asking);
        }
        let (session, device) = (self.itself.clone(), self.device());
        let granted = Box::new(move || {
            forget(&session, unique);
            if let Some(device) = device {
                device.reply(unique, &[]);
            }
        });
        let locked = file.files.lock_or_wait(file.id, request, granted);
        let mut table = self.locks.table();
        let wait = match locked {
            Ok(Locked::Later(wait)) => wait,
            at_once => {
                table.waiting.remove(&unique);
                drop(table);
                let locked = at_once.map(|_| true);
                return locked.map_err(|refusal| Errno::from_raw_os_error(refusal.errno()));
            }
        };
        match table.waiting.remove(&unique) {
            // It was granted, and answered, already.
            None => Ok(false),
            Some(Waiting::Interrupted) => {
                drop(table);
                match file.files.cancel_lock_wait(file.id, wait) {
                    true => Err(Errno::INTR),
                    false => Ok(false),
                }
            }
            Some(_) => {
                let waiting = Waiting::For(file.files.clone(), file.id, wait);
                table.waiting.insert(unique, waiting);
                Ok(false)
            }
        }
    }

    /// A program that waits for an answer got a signal. Only lock requests end.
    pub(super) fn interrupted(&self, unique: u64) {
        let mut table = self.locks.table();
        match table.waiting.remove(&unique) {
            None => {
                if table.interrupted.len() == INTERRUPTED_MAX {
                    table.interrupted.pop_front();
                }
                table.interrupted.push_back(unique);
            }
            Some(Waiting::Asking | Waiting::Interrupted) => {
                table.waiting.insert(unique, Waiting::Interrupted);
            }
            Some(Waiting::For(files, id, wait)) => {
                drop(table);
                if files.cancel_lock_wait(id, wait)
                    && let Some(device) = self.device()
                {
                    device.refuse(unique, Errno::INTR);
                }
            }
        }
    }
}

/// Removes a request that has its lock.
fn forget(session: &Weak<Session>, unique: u64) {
    if let Some(session) = session.upgrade() {
        session.locks.table().waiting.remove(&unique);
    }
}
