//! Mounts, and the front end that makes them.
//!
//! The engine decides which dataset is mounted on which folder; a front end makes the mount
//! ([`Mounter`]).
//!
//! # Served and mounted
//! A file system is *served* as long as the system has it: mounted on some folder, bound to
//! another, copied into another mount namespace, or with an open file that was left behind by a
//! lazy unmount. It is *mounted* when the mount table of the daemon's own namespace shows its root
//! on some folder, wherever that is by now. The engine notes what is served and how; whether it is
//! mounted it asks the system each time. A file system that is served and not mounted is attached
//! again as it is: opening it a second time would lose the changes of the first.

use crate::files::{Held, Tree};
use crate::mount_options::TemporaryOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tarn_host::DeviceNumber;

/// Options of a mount that the system enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountOptions {
    /// `ro`.
    pub read_only: bool,
    /// `nodev` when false.
    pub devices: bool,
    /// `noexec` when false.
    pub exec: bool,
    /// `nosuid` when false.
    pub setuid: bool,
    /// `noatime` when false.
    pub atime: bool,
}

/// Identifies one mount to its [`Mounter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountKey(pub u64);

impl MountKey {
    /// The key before the mounter has given one.
    pub const NONE: MountKey = MountKey(0);
}

/// Called when the system has ended a mount.
pub type Ended = Box<dyn Fn() + Send + Sync>;

/// A mount to make.
pub struct MountRequest<'a> {
    /// The dataset's name, which the system shows as the source.
    pub source: &'a str,
    /// A folder that exists, by a path without symbolic links. Nothing is mounted when the path
    /// resolves to another folder by now.
    pub path: &'a Path,
    /// Options of the mount.
    pub options: MountOptions,
    /// The files.
    pub tree: Arc<dyn Tree>,
    /// Called when the system ends the mount without the engine's request.
    pub ended: Ended,
}

/// Why a mount could not be made or undone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MountRefusal {
    /// A program uses the mount.
    #[error("pool or dataset is busy")]
    Busy,
    /// The system has ended the mount meanwhile.
    #[error("no such device or address")]
    Ended,
    /// Another error, as text.
    #[error("{0}")]
    Failed(String),
}

/// Which mounts of a file system end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The file system's own mount in this namespace. Bind mounts and copies go on being served.
    Own,
    /// All in this namespace, bind mounts included.
    OfNamespace,
    /// All mounts in all namespaces, also those in use.
    Everywhere,
}

/// What uses a file system after a mount has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing: it is not served any more.
    Nothing,
    /// Other mounts, or open files of them: it is still served.
    InUse,
}

/// Where a served file system is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is mounted in this namespace.
    Mounted,
    /// It is not mounted, and still in use: in another namespace, as a bind mount, or by open
    /// files.
    Elsewhere,
    /// The system has ended it; the callback has not run yet.
    Ended,
}

/// What a path resolves to.
#[derive(Debug)]
pub enum Found {
    /// A file system of this daemon, and the mount's folder where that is known.
    Mount(MountKey, Option<PathBuf>),
    /// Another file system.
    Foreign,
    /// Nothing: the system's error for the path.
    Missing(String),
}

/// Makes mounts. A front end is one.
pub trait Mounter: Send + Sync {
    /// Mounts a tree.
    ///
    /// # Errors
    /// Why the tree was not mounted.
    fn mount(&self, request: MountRequest<'_>) -> Result<MountKey, MountRefusal>;

    /// Mounts once more a file system that is served and [not mounted](Standing::Elsewhere). `path`
    /// is as in [`MountRequest`].
    ///
    /// # Errors
    /// `Ended` when the kernel has ended the file system, so that it can be mounted anew.
    fn attach(
        &self,
        key: MountKey,
        source: &str,
        path: &Path,
        options: MountOptions,
    ) -> Result<(), MountRefusal>;

    /// Ends mounts of a file system; `path` is the folder on which it was last mounted.
    /// [`Ending::Everywhere`] also ends those in use; dirty pages of memory-mapped files are
    /// written before. When nothing uses the file system any more it is not served.
    ///
    /// # Errors
    /// The file system is still served then, and mounted unless the system has ended that
    /// meanwhile. Pages that could not be written are lost all the same: the next call unmounts.
    fn unmount(&self, key: MountKey, path: &Path, ending: Ending) -> Result<Left, MountRefusal>;

    /// Where a file system that was last mounted on `path` is now. Asks the mount table, not the
    /// file system.
    fn standing(&self, key: MountKey, path: &Path) -> Standing;

    /// The folders of all mounts, by paths without symbolic links.
    fn places(&self) -> Vec<(MountKey, PathBuf)>;

    /// The system's number of the mount that a path is in; none where that is not known.
    fn mount_number(&self, path: &Path) -> Option<u64>;

    /// What a path resolves to; the path may contain symbolic links.
    fn find(&self, path: &Path) -> Found;

    /// Writes dirty pages of memory-mapped files of a mount, which stays in use. Does nothing where
    /// files cannot be mapped.
    ///
    /// # Errors
    /// Pages that could not be written are lost; `Busy` when writing takes too long.
    fn write_back(&self, _: MountKey) -> Result<(), MountRefusal> {
        Ok(())
    }

    /// Drops what the kernel caches of a mount and what follows from properties that have changed.
    /// Does nothing where the kernel caches nothing.
    fn properties_changed(&self, _: MountKey) {}

    /// All changes made through a mount are stored: drops kernel caches that stored values
    /// supersede, such as block counts. Does nothing where the kernel caches nothing.
    fn group_stored(&self, _: MountKey) {}

    /// Ends the mounts of a pool that was given up, also those in use: calls on them fail. Does not
    /// wait long for any call.
    fn abandon(&self, mounts: &[(MountKey, &Path)]);

    /// Changes the options of a mount while it is used.
    ///
    /// # Errors
    /// Why not; the mount keeps its options. `Busy` when files are open for writing and the mount
    /// is to become read-only.
    fn change_options(
        &self,
        key: MountKey,
        path: &Path,
        options: MountOptions,
    ) -> Result<(), MountRefusal>;

    /// The mount whose file system has this device number, if this daemon serves it.
    fn mount_of(&self, device: DeviceNumber) -> Option<MountKey> {
        let _ = device;
        None
    }

    /// Removes a mount that a dead daemon left on this folder. Says whether there was one.
    fn clear_remains(&self, path: &Path) -> bool;
}

/// A served dataset, and how it is mounted or was last.
#[derive(Clone)]
pub struct Mounted {
    /// Its mount point, or the folder where the mount table last showed it.
    pub path: PathBuf,
    /// The folder that this resolves to: a path without symbolic links.
    pub(crate) place: PathBuf,
    /// mount(8) mounted it on this folder, which is not its mount point.
    pub is_by_hand: bool,
    /// The mounter's key; none until the mounter has given one.
    pub key: MountKey,
    /// Options that the system enforces.
    pub(crate) options: MountOptions,
    /// Options given with `-o`, which override properties while it is mounted.
    pub temporary: TemporaryOptions,
    /// The mount's hold on the file system.
    pub held: Arc<Held>,
}

impl Mounted {
    /// What a remount after a change needs to know.
    pub fn before(&self) -> MountedBefore {
        MountedBefore {
            path: self.path.clone(),
            place: self.place.clone(),
            is_by_hand: self.is_by_hand,
            temporary: TemporaryOptions {
                // The mount has discarded the log already.
                discards_log: false,
                ..self.temporary
            },
        }
    }
}

/// A mount that was unmounted for a change and is to be mounted again.
#[derive(Debug, Clone)]
pub struct MountedBefore {
    /// Its folder, as its mount point named it.
    pub(crate) path: PathBuf,
    /// The folder that this resolved to.
    pub(crate) place: PathBuf,
    /// mount(8) mounted it on a folder that is not its mount point.
    pub is_by_hand: bool,
    /// Options that override properties, and do so again when it is mounted again.
    pub temporary: TemporaryOptions,
}
