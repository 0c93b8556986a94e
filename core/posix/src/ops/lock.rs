//! Locking files: [`locks`](crate::locks) has the table.

use crate::filesystem::FileSystem;
use crate::locks::{Granted, LockOwner, LockRefusal, LockRequest, LockScope, LockWait, Locked};
use tarn_ondisk::units::ObjectId;

impl FileSystem {
    /// The lock that a request conflicts with, if there is one (`F_GETLK`).
    pub fn find_lock(&self, file: ObjectId, request: &LockRequest) -> Option<LockRequest> {
        self.locks.find(file, request)
    }

    /// Locks, or refuses at once (`F_SETLK`, `LOCK_NB`). A `flock` of the other kind that the owner
    /// has is released in either case, as on Linux.
    ///
    /// # Errors
    /// `Conflict`, `BadRange`.
    pub fn lock(&self, file: ObjectId, request: &LockRequest) -> Result<(), LockRefusal> {
        self.locks.lock(file, request)
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
        self.locks.lock_or_wait(file, request, granted)
    }

    /// Ends a wait. True if it was still waiting: then its callback is not called.
    pub fn cancel_lock_wait(&self, file: ObjectId, wait: LockWait) -> bool {
        self.locks.cancel_wait(file, wait)
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
        self.locks.unlock(file, owner, scope)
    }

    /// Releases all locks of one sort that an owner has on a file, and ends its waits for them,
    /// when it has closed the file. `scope` says which sort; its range does not matter.
    pub fn release_locks(&self, file: ObjectId, owner: LockOwner, scope: LockScope) {
        self.locks.release_owner(file, owner, scope);
    }
}
