//! Mounting, as the engine sees it: somebody who can, and what is mounted.
//!
//! The engine decides what is mounted where; how a mount is made is a front end's business ([`Mounter`]).

use crate::files::Tree;
use crate::tree::MountedTree;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    /// Somebody uses it.
    #[error("pool or dataset is busy")]
    Busy,
    /// Something else.
    #[error("{0}")]
    Failed(String),
}

/// Makes mounts. A front end is one.
pub trait Mounter: Send + Sync {
    /// Mounts a tree.
    ///
    /// # Errors
    /// Why not.
    fn mount(&self, request: MountRequest<'_>) -> Result<MountKey, MountRefusal>;

    /// Undoes a mount; `path` is the one under which it was made. With `force` also one that is in
    /// use. What programs have stored in mapped files is written before.
    ///
    /// # Errors
    /// Why not; it is still mounted then. What could not be written is lost then all the same:
    /// asked again, it is unmounted.
    fn unmount(&self, key: MountKey, path: &Path, force: bool) -> Result<(), MountRefusal>;

    /// Has what programs have stored in mapped files of a mount written, while it is used. Nothing,
    /// where nobody can map them.
    ///
    /// # Errors
    /// What could not be written is lost; `Busy` when it takes too long.
    fn write_back(&self, _: MountKey) -> Result<(), MountRefusal> {
        Ok(())
    }

    /// Properties of a mounted file system have changed, and have their effect: what the system
    /// keeps of it and follows from them is dropped. Nothing, where it keeps nothing.
    fn properties_changed(&self, _: MountKey) {}

    /// Undoes mounts of a pool that was given up, whatever becomes of those who use them: their calls fail. Waits for nobody for long.
    fn abandon(&self, mounts: &[(MountKey, &Path)]);

    /// Gives a mount other options, while it is used.
    ///
    /// # Errors
    /// Why not; it has the options that it had. `Busy` when somebody has files open for writing and the mount is to be
    /// read-only.
    fn change_options(
        &self,
        key: MountKey,
        path: &Path,
        options: MountOptions,
    ) -> Result<(), MountRefusal>;

    /// Removes what a daemon that died left mounted on this folder. Nothing is no error.
    fn clear_remains(&self, path: &Path);
}

/// A mounted dataset.
#[derive(Clone)]
pub(crate) struct Mounted {
    /// Where, as its mount point says.
    pub(crate) path: PathBuf,
    /// The folder that this led to when it was mounted: a path without links.
    pub(crate) place: PathBuf,
    /// Its name towards the mounter; none until the mounter has given one.
    pub(crate) key: MountKey,
    /// How.
    pub(crate) options: MountOptions,
    /// Options given with `-o`, which override properties as long as it is mounted.
    pub(crate) temporary: TemporaryOptions,
    /// The files.
    pub(crate) tree: Arc<MountedTree>,
}

impl Mounted {
    /// What is to be remembered of it when it is undone for a change.
    pub(crate) fn before(&self) -> MountedBefore {
        MountedBefore {
            path: self.path.clone(),
            place: self.place.clone(),
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
    /// What stood above its properties, and does so again when it is mounted again.
    pub(crate) temporary: TemporaryOptions,
}

/// The word of `-o` that gives up what an intent log has that cannot be applied again.
pub(crate) const DISCARD_LOG: &str = "discardlog";

/// Options of one mount that stand above the properties; none where the property counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TemporaryOptions {
    pub(crate) read_only: Option<bool>,
    pub(crate) devices: Option<bool>,
    pub(crate) exec: Option<bool>,
    pub(crate) setuid: Option<bool>,
    pub(crate) atime: Option<bool>,
    pub(crate) relatime: Option<bool>,
    pub(crate) xattr: Option<bool>,
    /// What the intent log has that cannot be applied again is given up. For this mount only, so no property.
    pub(crate) discards_log: bool,
}

impl TemporaryOptions {
    /// As the words of `-o` say; unknown words are passed over, as `mount` does with those that concern others.
    pub(crate) fn parse(words: &[String]) -> TemporaryOptions {
        let mut options = TemporaryOptions::default();
        for word in words.iter().flat_map(|words| words.split(',')) {
            match word {
                "ro" => options.read_only = Some(true),
                "rw" => options.read_only = Some(false),
                "dev" => options.devices = Some(true),
                "nodev" => options.devices = Some(false),
                "exec" => options.exec = Some(true),
                "noexec" => options.exec = Some(false),
                "suid" | "setuid" => options.setuid = Some(true),
                "nosuid" | "nosetuid" => options.setuid = Some(false),
                "atime" => options.atime = Some(true),
                "noatime" => options.atime = Some(false),
                "relatime" => options.relatime = Some(true),
                "norelatime" => options.relatime = Some(false),
                "xattr" => options.xattr = Some(true),
                "noxattr" => options.xattr = Some(false),
                DISCARD_LOG => options.discards_log = true,
                _ => {}
            }
        }
        options
    }

    /// A mount without set-id programs, or without devices, stays so whatever this property says now.
    pub(crate) fn keep_harmless(&mut self, property: &str, options: MountOptions) {
        match property {
            "setuid" if !options.setuid => self.setuid = Some(false),
            "devices" if !options.devices => self.devices = Some(false),
            _ => {}
        }
    }

    /// This property counts again.
    pub(crate) fn forget(&mut self, property: &str) {
        let option = match property {
            "readonly" => &mut self.read_only,
            "devices" => &mut self.devices,
            "exec" => &mut self.exec,
            "setuid" => &mut self.setuid,
            "atime" => &mut self.atime,
            "relatime" => &mut self.relatime,
            "xattr" => &mut self.xattr,
            _ => return,
        };
        *option = None;
    }

    /// The properties that they override, each with its word.
    pub(crate) fn overridden(&self) -> Vec<(&'static str, bool)> {
        [
            ("readonly", self.read_only),
            ("devices", self.devices),
            ("exec", self.exec),
            ("setuid", self.setuid),
            ("atime", self.atime),
            ("relatime", self.relatime),
            ("xattr", self.xattr),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_mount_override_properties() {
        let options = TemporaryOptions::parse(&["ro,noexec".to_string(), "atime".to_string()]);
        assert!(!options.discards_log);
        assert!(TemporaryOptions::parse(&[DISCARD_LOG.to_string()]).discards_log);
        let expected = [("readonly", true), ("exec", false), ("atime", true)];
        assert_eq!(options.overridden(), expected);
        let mut options = options;
        options.forget("readonly");
        assert_eq!(options.overridden(), expected[1..]);
    }
}
