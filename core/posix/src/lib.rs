//! Files and directories (the ZPL): POSIX semantics on objects.
//!
//! # Problem
//! Programs expect directories, permissions, links, sparse contents, attributes, and that each
//! operation happens wholly or not at all. `object` has numbered objects that change in
//! transactions.
//!
//! # Mechanism
//! A [`FileSystem`] is one mounted dataset or snapshot. Its operations take object numbers and
//! explicit [`types::Credentials`]; no protocol is known here, so FUSE, NFS and tests call the same
//! functions. One file per operation in `ops/`.
//!
//! A file is an object: contents in its blocks, everything else in attributes in its bonus
//! (`facts`, `tables`). A directory is an object too, a ZAP of names (`directory`). The master node
//! leads to the root. Each operation that changes something takes the locks of the files involved,
//! checks, and makes all changes in one transaction; only what can be very large (writing,
//! truncating, freeing) is split over several, in an order in which a crash in between leaves a
//! state that a shorter operation would have left.
//!
//! # Locks
//! In this order, and within a rank in the order of object numbers:
//! 1. `renaming`, for renames of directories to another parent;
//! 2. `change` of each file involved (a file's names are part of the directory, not of the file);
//! 3. **then** a transaction is asked for, which may wait;
//! 4. `content` of a file, while bytes are changed; readers hold it shared, and never ask for a
//!    transaction with it;
//! 5. the attribute tables, the table of files in memory, and below them the locks of `object`.
//!
//! A thread with a transaction takes no lock of 1 or 2, and a thread with a lock of 4 or 5 asks for
//! no transaction: so every transaction ends, its txg can be quiesced, and threads that wait for a
//! transaction get one. The names an operation is about are looked up before the locks are taken,
//! to know which ones to take, and again after; if they changed meanwhile it begins anew, a bounded
//! number of times.
//!
//! # After a crash
//! Operations are whole: those of stored groups happened, others did not. Files without a name are
//! freed when the file system is mounted (`unlinked`).
//!
//! # Knows nothing about
//! Pools, snapshots (but for their names in `.zfs`), protocols.

mod acl;
pub mod control_directory;
mod create_filesystem;
mod credentials;
mod delegations;
pub mod diff;
mod directory;
pub mod error;
mod facts;
mod file_handle;
pub mod filesystem;
mod holders;
mod idle_files;
mod intent;
mod locks;
mod names;
mod nfs4_acl;
mod node;
mod ops;
mod owner;
mod permissions;
pub mod properties;
mod quotas;
mod ranks;
mod removed_directories;
pub mod replay;
mod shares;
mod store;
mod tables;
pub mod types;
mod unlinked;
mod witness;
mod xattrs;

pub use create_filesystem::{EmptyFilesystem, NewFileSystem, create_filesystem};
pub use delegations::{Acting, act_for};
pub use error::{MountError, PosixError};
pub use file_handle::{FileHandle, HandleError};
pub use filesystem::{FileSystem, FileSystemParts, NewContents, ReadData, Unlinked, WriteAt};
pub use holders::{Change, TO_END, Watcher};
pub use locks::{
    Granted, LockKind, LockOwner, LockRange, LockRefusal, LockRequest, LockScope, LockWait, Locked,
};
pub use names::{CaseSensitivity, Naming};
pub use ops::{Holding, Unsynced, Verifier};
pub use owner::FileOwnership;
pub use properties::{
    AccessTimes, AclInherit, AclMode, AclType, MountProperties, SnapshotDirectory, XattrStore,
};
pub use quotas::{NO_PROJECT, QuotaEntry, QuotaKind, Quotas};
pub use shares::Share;
pub use witness::{AttributesBefore, BeforeAndAfter, Witnessed};
