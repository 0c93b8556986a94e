//! Files, for front ends that serve them.
//!
//! A front end gets a [`Tree`] for each dataset that it serves: the file system itself, and a way
//! to the snapshots below its `.zfs/snapshot`. It calls the file system's operations directly, in
//! its own threads, with an [`Operation`] that it began when the request came in. One that mounts
//! gets trees with its [mount requests](crate::mounts::MountRequest); others
//! [hold](crate::engine::Engine::hold_files) them.

pub use crate::served::{Held, HoldPurpose};
use std::sync::Arc;
pub use tarn_host::buffer::Buffer;
pub use tarn_host::{Actor, actor_of_process, call_before_waits, groups_of_process, monotonic_ns};
pub use tarn_object::Caching;
pub use tarn_ondisk::units::ObjectId;
pub use tarn_ondisk::znode::ZnodeFlags as FileFlags;
pub use tarn_posix::control_directory::ControlEntry;
pub use tarn_posix::types::*;
pub use tarn_posix::{AclType, PosixError, XattrStore};
pub use tarn_posix::{Acting, act_for};
pub use tarn_posix::{
    AttributesBefore, CaseSensitivity, FileHandle, HandleError, Verifier, Witnessed,
};
pub use tarn_posix::{
    Change, FileSystem, Granted, Holding, LockKind, LockOwner, LockRange, LockRefusal, LockRequest,
    LockScope, LockWait, Locked, NO_PROJECT, NewContents, ReadData, Share, TO_END, Unsynced,
    Watcher, WriteAt,
};
pub use tarn_probe::{
    ClientId, ErrorCode, FrontEnd, HolderId, Operation, OperationKind, Outcome, Protocol, What, Who,
};
pub use tarn_probe::{add_client_alias, client_number};

/// The files of one dataset or snapshot.
pub trait Tree: Send + Sync {
    /// The file system.
    fn files(&self) -> &Arc<FileSystem>;

    /// A snapshot of it. All mounts that enter a snapshot share its file system, which closes when
    /// the last of these trees is dropped.
    ///
    /// # Errors
    /// `ENOENT` when there is no snapshot of this name, and always in a snapshot.
    fn snapshot(&self, name: &[u8], operation: &Operation) -> Result<Arc<dyn Tree>, PosixError>;

    /// The guid of the dataset or snapshot, by which [handles](FileHandle) name it.
    fn guid(&self) -> u64;

    /// A snapshot of it, by the number of its dataset in the MOS, as handles of its files have it.
    ///
    /// # Errors
    /// As [`snapshot`](Tree::snapshot), and where the number is that of another dataset.
    fn snapshot_numbered(
        &self,
        dataset: ObjectId,
        operation: &Operation,
    ) -> Result<Arc<dyn Tree>, PosixError>;

    /// Whether the pool is suspended: operations would wait until it is resumed, or fail.
    fn is_suspended(&self) -> bool;

    /// Begins an operation on this dataset. `range` is offset and size.
    fn begin(
        &self,
        who: Who,
        kind: OperationKind,
        object: ObjectId,
        range: (u64, u64),
    ) -> Operation;

    /// Ends an operation: it is counted for this dataset.
    fn finish(&self, operation: Operation);
}
