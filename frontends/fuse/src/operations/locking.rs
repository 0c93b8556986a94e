//! Locks of programs: `fcntl` and `flock`.
//!
//! `GETLK`, `SETLK`, `SETLKW`, and `FLUSH`, which the kernel sends when a descriptor is closed.
//!
//! The file system keeps the locks, so that they exclude other holders as well. The kernel names
//! the owner: for `fcntl` the process, or the open file for a lock of an open file description; for
//! `flock` the open file. Locks of a process end with the first of its descriptors of the file that
//! is closed, which `FLUSH` tells; those of `flock` end with the open file (`RELEASE`).

use super::{Call, Reply};
use crate::protocol::{Answer, Arguments, LOCK_IS_FLOCK};
use crate::session::Place;
use rustix::io::Errno;
use tarn_engine::files::{LockKind, LockOwner, LockRange, LockRequest, LockScope};

/// The last offset of a file, which means the end of the file in ranges.
const OFFSET_MAX: u64 = i64::MAX.cast_unsigned();

/// A lock request.
struct Asked {
    handle: u64,
    request: LockRequest,
    /// It unlocks.
    unlocks: bool,
}

impl Call<'_> {
    /// Finds another owner's lock that conflicts with this one.
    pub(super) fn find_lock(&self, file: &Place, arguments: Arguments<'_>) -> Result<Reply, Errno> {
        let Asked { request, .. } = self.asked(file, arguments)?;
        let mut answer = Answer::new();
        match file.files.find_lock(file.id, &request) {
            Some(found) => put_lock(&mut answer, &found),
            None => {
                answer.zeros(16).u32(bits_of(None)).u32(0);
            }
        }
        Ok(Reply::Parts(answer))
    }

    /// Takes a lock, or refuses it.
    pub(super) fn lock(&self, file: &Place, arguments: Arguments<'_>) -> Result<Reply, Errno> {
        let asked = self.asked(file, arguments)?;
        let request = &asked.request;
        if asked.unlocks {
            let unlocked = file.files.unlock(file.id, request.owner, request.scope);
            unlocked.map_err(|refusal| Errno::from_raw_os_error(refusal.errno()))?;
            return Ok(Reply::Parts(Answer::new()));
        }
        self.session.locks().note(self.node, asked.handle, request);
        let locked = file.files.lock(file.id, request);
        locked.map_err(|refusal| Errno::from_raw_os_error(refusal.errno()))?;
        Ok(Reply::Parts(Answer::new()))
    }

    /// Takes a lock, or has the caller wait: then the thread that releases the conflicting lock
    /// replies.
    pub(super) fn lock_or_wait(
        &self,
        file: &Place,
        arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let asked = self.asked(file, arguments.clone())?;
        if asked.unlocks {
            return self.lock(file, arguments);
        }
        self.session
            .locks()
            .note(self.node, asked.handle, &asked.request);
        match self
            .session
            .wait_for_lock(file, self.unique, &asked.request)?
        {
            true => Ok(Reply::Parts(Answer::new())),
            false => Ok(Reply::Nothing),
        }
    }

    /// A process has closed one of its descriptors of a file.
    pub(super) fn flush(&self, file: &Place, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
        arguments.skip(8 + 4 + 4)?;
        let owner = self.owner(file, arguments.u64()?);
        let scope = LockScope::Range(LockRange::WHOLE);
        file.files.release_locks(file.id, owner, scope);
        self.session.locks().forget_owner(self.node, owner.number);
        Ok(Reply::Parts(Answer::new()))
    }

    /// An owner of locks on this mount.
    pub(super) fn owner(&self, file: &Place, number: u64) -> LockOwner {
        LockOwner {
            holder: file.holder,
            number,
        }
    }

    fn asked(&self, file: &Place, mut arguments: Arguments<'_>) -> Result<Asked, Errno> {
        let (handle, owner) = (arguments.u64()?, arguments.u64()?);
        let (first, last) = (arguments.u64()?, arguments.u64()?);
        let (bits, process) = (arguments.u32()?, arguments.u32()?);
        let is_flock = arguments.u32()? & LOCK_IS_FLOCK != 0;
        let kind = match i32::try_from(bits) {
            Ok(libc::F_RDLCK) => Some(LockKind::Shared),
            Ok(libc::F_WRLCK) => Some(LockKind::Exclusive),
            Ok(libc::F_UNLCK) => None,
            _ => return Err(Errno::INVAL),
        };
        let last = match last {
            OFFSET_MAX => u64::MAX,
            last => last,
        };
        let scope = match is_flock {
            true => LockScope::File,
            false => LockScope::Range(LockRange { first, last }),
        };
        let request = LockRequest {
            owner: self.owner(file, owner),
            scope,
            kind: kind.unwrap_or(LockKind::Shared),
            process,
        };
        Ok(Asked {
            handle,
            request,
            unlocks: kind.is_none(),
        })
    }
}

/// The kernel's number of a kind of lock, or of none.
fn bits_of(kind: Option<LockKind>) -> u32 {
    let bits = match kind {
        Some(LockKind::Shared) => libc::F_RDLCK,
        Some(LockKind::Exclusive) => libc::F_WRLCK,
        None => libc::F_UNLCK,
    };
    bits.cast_unsigned()
}

/// Adds a held lock. The process is known only for owners of this mount.
fn put_lock(answer: &mut Answer, lock: &LockRequest) {
    let range = match lock.scope {
        LockScope::Range(range) => range,
        LockScope::File => LockRange::WHOLE,
    };
    answer
        .u64(range.first)
        .u64(range.last.min(OFFSET_MAX))
        .u32(bits_of(Some(lock.kind)))
        .u32(lock.process);
}
