//! Locks by programs on the mount and by owners of the direct holder, compared with a table of
//! locks.

use crate::checks::id_of;
use crate::nfs_clients::range_of;
use crate::world::{Fault, Side, World, no};
use rustix::fs::FlockOperation;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tarn_engine::files::{FileKind, LockKind, LockOwner, LockRequest, LockScope};

/// The ranges that are locked, by their last bytes.
pub const PARTS: [u64; 4] = [99, 199, 299, u64::MAX];

/// How long a `flock` may outlast the close of its open file: the kernel sends `RELEASE` after
/// close(2) has returned.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The owner of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// This process, which is one owner on the mount.
    Process,
    /// An open file of the mount, by its number.
    Open(u64),
    /// An owner of the direct holder.
    Direct(u64),
    /// A client of NFS.
    Nfs(usize),
}

/// The locks of one file.
#[derive(Debug, Default)]
pub struct ModelLocks {
    parts: [BTreeMap<Owner, LockKind>; PARTS.len()],
    whole: BTreeMap<Owner, LockKind>,
}

impl ModelLocks {
    pub fn drop_process(&mut self) {
        for part in &mut self.parts {
            part.remove(&Owner::Process);
        }
    }

    pub fn drop_open(&mut self, number: u64) {
        self.whole.remove(&Owner::Open(number));
    }
}

fn is_free(table: &BTreeMap<Owner, LockKind>, owner: Owner, kind: LockKind) -> bool {
    let mut others = table.iter().filter(|(other, _)| **other != owner);
    others.all(|(_, other)| [kind, *other] == [LockKind::Shared; 2])
}

impl World {
    /// Locks, or unlocks, and compares the outcome.
    pub fn lock(&mut self, side: Side) -> Result<(), Fault> {
        let regular: Vec<u64> = (self.model.files.iter())
            .filter(|(_, file)| file.kind == FileKind::Regular)
            .map(|(id, _)| *id)
            .collect();
        let is_flock = self.chance.below(2) == 0 && !matches!(side, Side::Nfs(_));
        let kind = match self.chance.below(3) {
            0 => None,
            1 => Some(LockKind::Shared),
            _ => Some(LockKind::Exclusive),
        };
        let first = self.chance.index(PARTS.len());
        let last = first + self.chance.index(PARTS.len() - first);
        let (id, owner, open) = match side {
            Side::Mount if self.open.is_empty() => return Ok(()),
            Side::Mount => {
                let at = self.chance.index(self.open.len());
                let open = &self.open[at];
                match is_flock {
                    true => (open.id, Owner::Open(open.number), at),
                    false => (open.id, Owner::Process, at),
                }
            }
            Side::Direct | Side::Nfs(_) if regular.is_empty() => return Ok(()),
            Side::Nfs(which) => {
                let id = regular[self.chance.index(regular.len())];
                if self.model.files[&id].names.is_empty() {
                    return Ok(());
                }
                (id, Owner::Nfs(which), 0)
            }
            Side::Direct => {
                let id = regular[self.chance.index(regular.len())];
                (id, Owner::Direct(1 + u64::from(self.chance.below(2))), 0)
            }
        };
        // `fcntl` as it can be called here locks whole files.
        let parts = match side {
            Side::Mount => 0..PARTS.len(),
            Side::Direct | Side::Nfs(_) => first..last + 1,
        };
        self.tell(format!(
            "{id} for {owner:?}: {kind:?}, flock: {is_flock}, {parts:?}"
        ));
        let locks = self.locks.entry(id).or_default();
        let is_granted = match (is_flock, kind) {
            (_, None) => true,
            (true, Some(kind)) => {
                if locks.whole.get(&owner).is_some_and(|has| *has != kind) {
                    locks.whole.remove(&owner);
                }
                is_free(&locks.whole, owner, kind)
            }
            (false, Some(kind)) => {
                let mut parts = locks.parts[parts.clone()].iter();
                parts.all(|part| is_free(part, owner, kind))
            }
        };
        if is_granted {
            let tables = match is_flock {
                true => std::slice::from_mut(&mut locks.whole),
                false => &mut locks.parts[parts.clone()],
            };
            for table in tables {
                match kind {
                    Some(kind) => table.insert(owner, kind),
                    None => table.remove(&owner),
                };
            }
        }
        let range = range_of(&parts);
        let scope = match is_flock {
            true => LockScope::File,
            false => LockScope::Range(range),
        };
        let began = Instant::now();
        loop {
            let was_granted = match owner {
                Owner::Direct(number) => self.lock_directly(id, number, scope, kind)?,
                Owner::Nfs(which) => self.lock_by_nfs(which, id, range, kind)?,
                _ => self.lock_on_mount(open, is_flock, kind)?,
            };
            match (was_granted, is_granted) {
                (true, true) | (false, false) => return Ok(()),
                (true, false) => return Err(no("a conflicting lock was given".to_string())),
                // The kernel sends `RELEASE` after close(2) has returned.
                (false, true) if is_flock && began.elapsed() < CLOSE_LIMIT => {
                    std::thread::yield_now();
                }
                (false, true) => {
                    return Err(no("a lock is stale: another one is refused".to_string()));
                }
            }
        }
    }

    fn lock_directly(
        &self,
        id: u64,
        number: u64,
        scope: LockScope,
        kind: Option<LockKind>,
    ) -> Result<bool, Fault> {
        let owner = LockOwner {
            holder: self.holding.id(),
            number,
        };
        let Some(kind) = kind else {
            let unlocked = self.files.unlock(id_of(id), owner, scope);
            return unlocked
                .map(|()| true)
                .map_err(|error| no(error.to_string()));
        };
        let request = LockRequest {
            owner,
            scope,
            kind,
            process: 0,
        };
        Ok(self.files.lock(id_of(id), &request).is_ok())
    }

    fn lock_on_mount(
        &self,
        open: usize,
        is_flock: bool,
        kind: Option<LockKind>,
    ) -> Result<bool, Fault> {
        let how = match kind {
            None => FlockOperation::NonBlockingUnlock,
            Some(LockKind::Shared) => FlockOperation::NonBlockingLockShared,
            Some(LockKind::Exclusive) => FlockOperation::NonBlockingLockExclusive,
        };
        let file = &self.open[open].file;
        let locked = match is_flock {
            true => rustix::fs::flock(file, how),
            false => rustix::fs::fcntl_lock(file, how),
        };
        match locked {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => Ok(false),
            Err(errno) => Err(no(format!("locking: {errno}"))),
        }
    }
}
