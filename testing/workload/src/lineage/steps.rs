//! The steps, and what is drawn for each.

use super::Change;
use crate::twister::Twister;

/// One command, or what is done to files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// `zfs create`.
    Create {
        /// Its name.
        name: String,
        /// Options of the command.
        properties: String,
    },
    /// Files are changed.
    Write {
        /// In this file system.
        name: String,
        /// How.
        changes: Vec<Change>,
    },
    /// `zfs snapshot`, of all of them at one moment.
    Snapshot {
        /// The file systems.
        names: Vec<String>,
        /// The short name.
        short: String,
    },
    /// `zfs clone`.
    Clone {
        /// The file system,
        of: String,
        /// its snapshot,
        short: String,
        /// and what is made of it.
        name: String,
    },
    /// `zfs promote`.
    Promote {
        /// The clone.
        name: String,
    },
    /// `zfs rollback -r`.
    Rollback {
        /// The file system.
        name: String,
        /// The snapshot.
        short: String,
    },
    /// `zfs destroy` of a snapshot, or of all from one to another.
    DestroySnapshots {
        /// The file system.
        name: String,
        /// The oldest.
        first: String,
        /// The newest, which may be the same.
        last: String,
    },
    /// `zfs destroy -r`.
    Destroy {
        /// The file system.
        name: String,
    },
    /// `zfs rename`.
    Rename {
        /// The old name.
        from: String,
        /// The new one.
        to: String,
    },
    /// `zfs rename` of a snapshot.
    RenameSnapshot {
        /// The file system.
        name: String,
        /// The old short name.
        from: String,
        /// The new one.
        to: String,
    },
    /// `zfs send | zfs receive`.
    Send {
        /// The file system that is sent.
        name: String,
        /// The snapshot to go on from.
        from: Option<String>,
        /// The snapshot that is sent.
        short: String,
        /// Those in between as well.
        is_series: bool,
        /// Where it goes.
        target: String,
        /// How blocks are sent.
        options: &'static str,
        /// What becomes of the stream.
        fate: Fate,
    },
    /// `zpool export` and `import`.
    Export,
}

/// What becomes of a stream on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Whole,
    /// It is cut at these places, each a thousandth of what is left of it, and goes on.
    Resumed(Vec<u32>),
    /// It is cut there, and what arrived is given up (`receive -A`).
    GivenUp(u32),
    /// It is cut there, and refused.
    Refused(u32),
}

impl Fate {
    /// Whether it arrives in the end.
    #[must_use]
    pub fn arrives(&self) -> bool {
        matches!(self, Fate::Whole | Fate::Resumed(_))
    }
}

/// Another way through the write path for each file system.
pub(super) fn properties(chance: &mut Twister) -> String {
    let sizes = ["512", "4k", "16k", "128k", "128k", "1m"];
    let compressions = ["lz4", "off", "zstd", "gzip-1", "zle"];
    let checksums = ["on", "on", "sha256", "skein", "blake3"];
    let dnodes = ["legacy", "auto", "1k"];
    let mut options = format!(
        "-o recordsize={} -o compression={} -o checksum={} -o dnodesize={}",
        sizes[chance.index(sizes.len())],
        compressions[chance.index(compressions.len())],
        checksums[chance.index(checksums.len())],
        dnodes[chance.index(dnodes.len())],
    );
    if chance.below(6) == 0 {
        options += " -o copies=2";
    }
    options
}

/// A file system that was received with large blocks is not to get small ones, so all are sent as
/// they are.
pub(super) fn send_options(chance: &mut Twister) -> &'static str {
    ["-L", "-L", "-L -c", "-L -e", "-L -e -c"][chance.index(5)]
}

pub(super) fn fate(chance: &mut Twister) -> Fate {
    let mut place = || 1 + chance.below(998);
    let (first, second, third) = (place(), place(), place());
    match chance.below(10) {
        0 => Fate::Refused(first),
        1 => Fate::GivenUp(first),
        2 | 3 => Fate::Resumed(vec![first]),
        4 => Fate::Resumed(vec![first, second, third]),
        _ => Fate::Whole,
    }
}
