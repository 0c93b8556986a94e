//! Files, for front ends that serve them.
//!
//! A front end gets a [`Tree`] for each mounted dataset: the file system itself, and a way to the snapshots below
//! its `.zfs/snapshot`. It calls the file system's operations directly, in its own threads, with an
//! [`Operation`] that it began when the request came in.

use std::sync::Arc;
pub use tarn_host::buffer::Buffer;
pub use tarn_host::{Actor, actor_of_process, call_before_waits, groups_of_process, monotonic_ns};
pub use tarn_object::Caching;
pub use tarn_ondisk::units::ObjectId;
pub use tarn_ondisk::znode::ZnodeFlags as FileFlags;
pub use tarn_posix::PosixError;
pub use tarn_posix::control_directory::ControlEntry;
pub use tarn_posix::types::*;
pub use tarn_posix::{FileSystem, NO_PROJECT, NewContents, ReadData, Unsynced, WriteAt};
pub use tarn_probe::{ClientId, Operation, OperationKind, Outcome, Protocol, What, Who};

/// What is served of one mounted dataset.
pub trait Tree: Send + Sync {
    /// The file system.
    fn files(&self) -> &Arc<FileSystem>;

    /// The file system of a snapshot.
    ///
    /// # Errors
    /// `ENOENT` when there is none of this name.
    fn snapshot(&self, name: &[u8], operation: &Operation) -> Result<Arc<FileSystem>, PosixError>;

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
