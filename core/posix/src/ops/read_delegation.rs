//! Read delegations of files: [`delegations`](crate::delegations) has the theory.

use crate::delegations::acting;
use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::locks::LockOwner;
use crate::shares::{Changing, Refused, Share};
use tarn_ondisk::units::ObjectId;
use tarn_probe::{HolderId, Operation, Protocol};

impl FileSystem {
    /// Delegates a regular file to a client of a holder, for reading. Until the holder calls
    /// [`FileSystem::undelegate`], no other client or program changes the file or opens it for
    /// writing; the holder's watcher is told when one wants to.
    ///
    /// # Errors
    /// `Busy` when the file is open for writing, denied to readers or being changed, when another
    /// client is asked to return it, or when this client has it already. `NotFound` when it was
    /// removed.
    pub fn delegate(
        &self,
        file: ObjectId,
        owner: LockOwner,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if !self.shares.delegate(file, owner) {
            return Err(PosixError::Busy);
        }
        // A file that loses its last name from now on is asked for before; so its number does not
        // become that of another file.
        let named = self.node(file, operation).and_then(|node| {
            let has_name = node.facts().links > 0;
            has_name.then_some(()).ok_or(PosixError::NotFound)
        });
        named.inspect_err(|_| self.shares.undelegate(file, owner))
    }

    /// Ends the delegation of a file to a client: it was returned, or is revoked.
    pub fn undelegate(&self, file: ObjectId, owner: LockOwner) {
        self.shares.undelegate(file, owner);
    }

    /// As [`FileSystem::share`], but waits until a delegation that excludes the open has ended.
    ///
    /// # Errors
    /// `Busy` when an existing open denies it, or it denies an existing one.
    pub fn share_when_returned(
        &self,
        file: ObjectId,
        holder: HolderId,
        share: Share,
    ) -> Result<(), PosixError> {
        loop {
            match self.share(file, holder, share) {
                Err(PosixError::Recalling) => self.shares.wait_until_returned(file, acting()),
                shared => return shared,
            }
        }
    }

    /// Begins a change of a file, which is delegated to no other client until the result is
    /// dropped. The caller holds no locks.
    ///
    /// # Errors
    /// `Recalling` for operations of NFS, whose clients try again. Others wait.
    pub(crate) fn changing(
        &self,
        file: ObjectId,
        operation: &Operation,
    ) -> Result<Changing<'_>, PosixError> {
        self.changing_as(acting(), file, operation)
    }

    /// As [`changing`](Self::changing), for a change after which the file may be gone: it is
    /// delegated to no client at all.
    pub(crate) fn removing(
        &self,
        file: ObjectId,
        operation: &Operation,
    ) -> Result<Changing<'_>, PosixError> {
        self.changing_as(None, file, operation)
    }

    fn changing_as(
        &self,
        itself: Option<LockOwner>,
        file: ObjectId,
        operation: &Operation,
    ) -> Result<Changing<'_>, PosixError> {
        loop {
            let asked = match self.shares.begin_change(file, itself) {
                Ok(changing) => return Ok(changing),
                Err(asked) => asked,
            };
            self.holders.recall(file, asked.holders());
            match operation.who().protocol {
                Protocol::Nfs3 | Protocol::Nfs4 => return Err(PosixError::Recalling),
                _ => self.shares.wait_until_returned(file, itself),
            }
        }
    }

    /// What an open that is refused comes to.
    pub(crate) fn refused(&self, file: ObjectId, why: Refused) -> PosixError {
        match why {
            Refused::Busy => PosixError::Busy,
            Refused::Delegated(asked) => {
                self.holders.recall(file, asked.holders());
                PosixError::Recalling
            }
        }
    }
}
