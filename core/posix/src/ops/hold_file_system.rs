//! Holding a file system: [`holders`](crate::holders) has the table of holders.

use crate::filesystem::FileSystem;
use crate::holders::{Change, Telling, Watcher};
use std::sync::{Arc, Weak};
use tarn_ondisk::units::ObjectId;
use tarn_probe::{HolderId, Operation};

/// A registered holder. Dropping it releases its locks and share reservations, and its watcher is
/// not called any more.
#[must_use = "the holder ends when this is dropped"]
pub struct Holding {
    files: Weak<FileSystem>,
    id: HolderId,
}

impl Holding {
    /// The number that the holder's operations carry in their [`Who`](tarn_probe::Who).
    pub fn id(&self) -> HolderId {
        self.id
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if let Some(files) = self.files.upgrade() {
            files.holders.remove(self.id);
            files.locks.release_holder(self.id);
            files.shares.release_holder(self.id);
        }
    }
}

impl std::fmt::Debug for Holding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Holding({})", self.id.0)
    }
}

impl FileSystem {
    /// Registers a holder: `watcher` is told of the changes of others while the [`Holding`] lives.
    pub fn hold(self: &Arc<Self>, watcher: Weak<dyn Watcher>) -> Holding {
        Holding {
            files: Arc::downgrade(self),
            id: self.holders.add(watcher),
        }
    }

    /// Whether there are holders beside this one.
    pub fn is_held_by_others(&self, holder: HolderId) -> bool {
        self.holders.are_others(holder)
    }

    /// Tells all holders but that of this operation of a change, at once. The caller holds no
    /// locks.
    pub(crate) fn tell(&self, change: Change<'_>, operation: &Operation) {
        self.holders.tell(change, operation);
    }

    /// Tells of a change at the end of the scope.
    pub(crate) fn telling<'a>(
        &'a self,
        change: Change<'a>,
        operation: &'a Operation,
    ) -> Telling<'a> {
        self.holders.telling(change, operation)
    }

    /// Has the other holders write back their dirty copies of contents, before these are read or
    /// changed. The caller holds no locks.
    pub(crate) fn have_written_back(
        &self,
        file: ObjectId,
        offset: u64,
        length: u64,
        operation: &Operation,
    ) {
        self.holders
            .have_written_back(file, offset, length, operation);
    }
}
