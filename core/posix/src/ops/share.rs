//! Share reservations of opens: [`shares`](crate::shares) has the table.

use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::shares::Share;
use tarn_ondisk::units::ObjectId;
use tarn_probe::HolderId;

impl FileSystem {
    /// Adds a reservation for an open of a holder, which [`FileSystem::unshare`] removes. This does
    /// not keep the file from being freed: [`FileSystem::opened`] does.
    ///
    /// # Errors
    /// `Busy` when an existing open denies it, or it denies an existing one. `Recalling` when it is
    /// for writing or denies reading, and the file is delegated: its clients are asked to return
    /// it.
    pub fn share(&self, file: ObjectId, holder: HolderId, share: Share) -> Result<(), PosixError> {
        let shared = self.shares.add(file, holder, share);
        shared.map_err(|why| self.refused(file, why))
    }

    /// Removes a reservation, or a part of it, when a holder closes a file or reduces its access.
    /// Parts that the holder does not have are ignored.
    pub fn unshare(&self, file: ObjectId, holder: HolderId, share: Share) {
        self.shares.remove(file, holder, share);
    }
}
