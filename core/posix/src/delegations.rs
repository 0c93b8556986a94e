//! Read delegations: a client of NFS version 4 is promised that no other changes a file, until it
//! is asked to return the promise.
//!
//! # Problem
//! A client with a read delegation opens, reads and closes a file without asking the server, and
//! trusts its cached contents and attributes. So no change of the file may be made while the
//! delegation is there: by other clients of any version, by programs on mounts, by commands.
//!
//! # Mechanism
//! A holder delegates a file to one of its clients (`FileSystem::delegate`), and ends that
//! (`FileSystem::undelegate`) when the client has returned it or when it is revoked. Each operation
//! that changes contents, attributes or names of a file begins by `FileSystem::changing`, before it
//! takes locks. Where the file is delegated, all holders that have delegated it are told
//! ([`Watcher::recall`](crate::Watcher::recall)), and the operation is refused
//! ([`PosixError::Recalling`]) if its protocol has its callers try again (NFS), or else waits. An
//! open for writing is treated so, too (`FileSystem::share`).
//!
//! The client that has the delegation may change the file itself, but not remove it: the holder
//! says in whose name a thread acts ([`act_for`]).
//!
//! A change counts in its shard of the table (`shares`) as long as it is under way, and then looks
//! whether anything is delegated; a delegation is counted first, and is not granted where a change
//! is under way. So one of the two sees the other, and a file system without delegations has two
//! changes of a counter for each operation, and no lock.
//!
//! # Invariants
//! - While a file is delegated, no operation changes it but those of the delegation's client. When
//!   a file was read for the last time is no change.
//! - A holder ends each delegation that it was asked for in a bounded time, so no operation waits
//!   without end.
//!
//! [`PosixError::Recalling`]: crate::PosixError::Recalling

use std::cell::Cell;
use std::marker::PhantomData;

use tarn_probe::HolderId;

use crate::locks::LockOwner;

/// The delegation of a file to a client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delegate {
    pub owner: LockOwner,
    /// The client is asked to return it.
    pub is_recalled: bool,
}

/// Holders that are asked to have a file returned.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    holders: Vec<HolderId>,
}

impl Asked {
    pub fn add(&mut self, holder: HolderId) {
        if !self.holders.contains(&holder) {
            self.holders.push(holder);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.holders.is_empty()
    }

    pub fn holders(&self) -> &[HolderId] {
        &self.holders
    }
}

thread_local! {
    static ACTING: Cell<Option<LockOwner>> = const { Cell::new(None) };
}

/// The client for which this thread acts.
pub(crate) fn acting() -> Option<LockOwner> {
    ACTING.get()
}

/// A thread acts for a client, until this is dropped.
#[must_use = "the thread acts for the client until this is dropped"]
#[derive(Debug)]
pub struct Acting {
    before: Option<LockOwner>,
    /// It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

/// Says that operations of this thread are those of a client: its own delegations do not exclude
/// them.
pub fn act_for(owner: LockOwner) -> Acting {
    Acting {
        before: ACTING.replace(Some(owner)),
        _thread: PhantomData,
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        ACTING.set(self.before);
    }
}
