//! Mounts, and the front end that makes them.
//!
//! The engine decides what is mounted where; a front end makes the mount ([`Mounter`]).
//!
//! # Served and mounted
//! A file system is *served* as long as the system has it: mounted in some folder, bound to another, copied into another mount
//! namespace, or with an open file that was left behind by a lazy unmount. It is *mounted* when the mount table of the daemon's
//! own namespace shows all of it in some folder, wherever that is by now. Only the system knows, so it is asked each time; what is noted
//! here is what is served, and how. A file system that is served and not mounted is mounted again as what it is: a second copy of it with a state
//! of its own would lose what the first one changes.

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

/// Names one mount towards its [`Mounter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MountKey(pub u64);

impl MountKey {
    /// No mount has this one: the mounter has not given one yet.
    pub const NONE: MountKey = MountKey(0);
}

/// What is told of a mount's end, when the system ended it.
pub type Ended = Box<dyn Fn() + Send + Sync>;

/// What to mount where.
pub struct MountRequest<'a> {
    /// The dataset's name, which the system shows as the source.
    pub source: &'a str,
    /// A folder that exists, by a path without links. Nothing is mounted when the path leads elsewhere by now.
    pub path: &'a Path,
    /// How.
    pub options: MountOptions,
    /// The files.
    pub tree: Arc<dyn Tree>,
    /// Told when the system ends the mount without being asked by us.
    pub ended: Ended,
}

/// Why a mount could not be made or undone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MountRefusal {
    /// A program uses it.
    #[error("pool or dataset is busy")]
    Busy,
    /// The system has ended it meanwhile.
    #[error("no such device or address")]
    Ended,
    /// Something else.
    #[error("{0}")]
    Failed(String),
}

/// Which mounts of a file system end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The file system's own mount in this namespace. Others go on being served.
    Own,
    /// All in this namespace, so also what is bound to other folders.
    OfNamespace,
    /// All mounts everywhere, also those in use.
    Everywhere,
}

/// What is left of a file system when a mount has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// Nothing: it is not served any more.
    Nothing,
    /// Other mounts, or open files of them. It is still served.
    InUse,
}

/// Where a file system is that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is mounted in this namespace.
    Mounted,
    /// It is not, and is still in use: in another namespace, bound to another folder, or by open files.
    Elsewhere,
    /// The system has ended it, and has not told yet.
    Ended,
}

/// What a path leads to.
#[derive(Debug)]
pub enum Found {
    /// A file system of ours, and the folder of the mount by which the path leads into it, where that is known.
    Mount(MountKey, Option<PathBuf>),
    /// Something else.
    Foreign,
    /// Nothing: what the system says of the path.
    Missing(String),
}

/// Makes mounts. A front end is one.
pub trait Mounter: Send + Sync {
    /// Mounts a tree.
    ///
    /// # Errors
    /// Why not.
    fn mount(&self, request: MountRequest<'_>) -> Result<MountKey, MountRefusal>;

    /// Mounts a file system once more that is served and [not mounted](Standing::Elsewhere). `path` is as in [`MountRequest`].
    ///
    /// # Errors
    /// Why not: `Ended` when the kernel has ended the file system, so that it can be mounted anew.
    fn attach(
        &self,
        key: MountKey,
        source: &str,
        path: &Path,
        options: MountOptions,
    ) -> Result<(), MountRefusal>;

    /// Ends mounts of a file system; `path` is the folder on which it was mounted last. With [`Ending::Everywhere`] also what is in use;
    /// what programs have stored in mapped files is written before.
    /// When nothing is left the file system is not served any more.
    ///
    /// # Errors
    /// Why not. It is still served then, and mounted unless the system has ended that meanwhile. What could not be
    /// written is lost all the same: asked again, it is unmounted.
    fn unmount(&self, key: MountKey, path: &Path, ending: Ending) -> Result<Left, MountRefusal>;

    /// Where a file system is that was mounted on `path` last. Asks no file system.
    fn standing(&self, key: MountKey, path: &Path) -> Standing;

    /// Where all that is mounted is now, by paths without links.
    fn places(&self) -> Vec<(MountKey, PathBuf)>;

    /// The number of the mount that a path is in; none where that is not known.
    fn mount_number(&self, path: &Path) -> Option<u64>;

    /// What a path leads to, by any name that it may have.
    fn find(&self, path: &Path) -> Found;

    /// Has what programs have stored in mapped files of a mount written, while it is used. Nothing,
    /// where they cannot be mapped.
    ///
    /// # Errors
    /// What could not be written is lost; `Busy` when it takes too long.
    fn write_back(&self, _: MountKey) -> Result<(), MountRefusal> {
        Ok(())
    }

    /// Properties of a mounted file system have changed, and have their effect: what the system
    /// keeps of it and follows from them is dropped. Nothing, where it keeps nothing.
    fn properties_changed(&self, _: MountKey) {}

    /// All that was changed through a mount is stored: what the system keeps of it and was not the
    /// last word is dropped. Nothing, where it keeps nothing.
    fn group_stored(&self, _: MountKey) {}

    /// Undoes mounts of a pool that was given up, also those in use: calls there fail. Waits for no
    /// call for long.
    fn abandon(&self, mounts: &[(MountKey, &Path)]);

    /// Gives a mount other options, while it is used.
    ///
    /// # Errors
    /// Why not; it has the options that it had. `Busy` when files are open for writing and the mount
    /// is to be read-only.
    fn change_options(
        &self,
        key: MountKey,
        path: &Path,
        options: MountOptions,
    ) -> Result<(), MountRefusal>;

    /// The mount whose file system has this number, if it is one of ours.
    fn mount_of(&self, device: DeviceNumber) -> Option<MountKey> {
        let _ = device;
        None
    }

    /// Removes what a daemon that died left mounted on this folder. Gives whether there was anything.
    fn clear_remains(&self, path: &Path) -> bool;
}

/// A dataset that is served, and how it is mounted or was last.
#[derive(Clone)]
pub(crate) struct Mounted {
    /// Where, as its mount point says; where it was found, if it is elsewhere by now.
    pub(crate) path: PathBuf,
    /// The folder that this leads to: a path without links.
    pub(crate) place: PathBuf,
    /// It was mounted by hand in this folder, by mount(8), and not where its mount point says.
    pub(crate) is_by_hand: bool,
    /// Its name towards the mounter; none until the mounter has given one.
    pub(crate) key: MountKey,
    /// How.
    pub(crate) options: MountOptions,
    /// Options given with `-o`, which override properties as long as it is mounted.
    pub(crate) temporary: TemporaryOptions,
    /// Its hold on the files.
    pub(crate) held: Arc<Held>,
}

impl Mounted {
    /// What is to be remembered of it when it is undone for a change.
    pub(crate) fn before(&self) -> MountedBefore {
        MountedBefore {
            path: self.path.clone(),
            place: self.place.clone(),
            is_by_hand: self.is_by_hand,
            temporary: TemporaryOptions {
                // It had its effect.
                discards_log: false,
                ..self.temporary
            },
        }
    }
}

/// A mount that was undone for a change.
#[derive(Debug, Clone)]
pub(crate) struct MountedBefore {
    /// Where it was.
    pub(crate) path: PathBuf,
    /// The folder that this led to.
    pub(crate) place: PathBuf,
    /// It is not where its mount point says.
    pub(crate) is_by_hand: bool,
    /// What stood above its properties, and does so again when it is mounted again.
    pub(crate) temporary: TemporaryOptions,
}
