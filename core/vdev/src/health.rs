//! Health of vdevs: state, reason and error counters, as `zpool status` shows them.
//!
//! # Mechanism
//! A leaf's state follows from its errors and from `zpool offline`. The state of a vdev with
//! children follows from theirs: it is degraded while redundancy covers what is lost, and
//! unavailable beyond that. The root is unavailable when any top-level vdev is.
//!
//! # Invariants
//! - Error counters only grow, until an administrator clears them.

use crate::config::{StoredReason, VdevKind};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::units::{AllocatedSize, Guid};
use tarn_probe::VdevStatisticsSnapshot;

/// The state of a vdev. The order is from worst to best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "vdev_state_t")]
pub enum VdevState {
    /// It could not be opened, or too many of its children are lost.
    Unavailable,
    /// It failed and is out of use.
    Faulted,
    /// It was pulled out.
    Removed,
    /// An administrator took it out of use.
    Offline,
    /// It works with less redundancy than it should have.
    Degraded,
    /// It works, with all its children.
    Online,
}

impl VdevState {
    /// As `zpool status` shows it.
    pub const fn name(self) -> &'static str {
        match self {
            VdevState::Unavailable => "UNAVAIL",
            VdevState::Faulted => "FAULTED",
            VdevState::Removed => "REMOVED",
            VdevState::Offline => "OFFLINE",
            VdevState::Degraded => "DEGRADED",
            VdevState::Online => "ONLINE",
        }
    }

    /// True for a vdev that can be read.
    pub const fn is_usable(self) -> bool {
        matches!(self, VdevState::Degraded | VdevState::Online)
    }
}

impl fmt::Display for VdevState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Why a vdev is not online.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "vdev_aux_t")]
pub enum Reason {
    /// The device could not be opened at its path.
    OpenFailed,
    /// Its label is of another pool or another vdev, or cannot be understood.
    CorruptData,
    /// It has no valid label.
    BadLabel,
    /// Too many children are lost.
    NoReplicas,
    /// A top-level vdev is missing altogether.
    BadGuidSum,
    /// It is smaller than it was.
    TooSmall,
    /// Its sectors are larger than the vdev allows.
    BadAshift,
    /// It made too many errors.
    ErrorsExceeded,
    /// It cannot be written or flushed any more.
    IoFailure,
    /// `zpool offline -f`, or another program, said that it failed.
    External,
    /// It was split off into another pool.
    SplitPool,
    /// All children are offline.
    ChildrenOffline,
    /// It is of a kind that Tarn does not know how to read.
    Unsupported,
}

impl Reason {
    /// As `zpool status` shows it behind the vdev.
    pub const fn text(self) -> &'static str {
        match self {
            Reason::OpenFailed => "cannot open",
            Reason::CorruptData | Reason::BadAshift => "corrupted data",
            Reason::BadLabel => "invalid label",
            Reason::NoReplicas => "insufficient replicas",
            Reason::BadGuidSum => "missing device",
            Reason::TooSmall => "invalid label",
            Reason::ErrorsExceeded => "too many errors",
            Reason::IoFailure => "experienced I/O failures",
            Reason::External => "external device fault",
            Reason::SplitPool => "split into new pool",
            Reason::ChildrenOffline => "all children offline",
            Reason::Unsupported => "unsupported vdev type",
        }
    }

    /// The reason as the configuration stores it (`aux_state`), if it is stored.
    pub const fn stored(self) -> Option<StoredReason> {
        match self {
            Reason::ErrorsExceeded | Reason::IoFailure => Some(StoredReason::ErrorsExceeded),
            Reason::External => Some(StoredReason::External),
            _ => None,
        }
    }
}

impl From<StoredReason> for Reason {
    fn from(stored: StoredReason) -> Reason {
        match stored {
            StoredReason::ErrorsExceeded => Reason::ErrorsExceeded,
            StoredReason::External => Reason::External,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// The state of a vdev, and the reason for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Standing {
    /// How it is.
    pub state: VdevState,
    /// Why, where there is a reason.
    pub reason: Option<Reason>,
}

impl Standing {
    /// Online, without a reason.
    pub const ONLINE: Standing = Standing {
        state: VdevState::Online,
        reason: None,
    };

    /// A state with a reason.
    pub const fn because(state: VdevState, reason: Reason) -> Standing {
        Standing {
            state,
            reason: Some(reason),
        }
    }

    /// The standing of a vdev whose children have these standings.
    #[doc(alias = "vdev_propagate_state")]
    pub fn of_parent(kind: VdevKind, children: &[Standing]) -> Standing {
        let lost = children
            .iter()
            .filter(|child| !child.state.is_usable())
            .count();
        let limping = children
            .iter()
            .filter(|child| child.state != VdevState::Online)
            .count();
        let tolerated = match kind {
            VdevKind::Root => 0,
            VdevKind::Raidz { parity } | VdevKind::Draid { parity } => usize::from(parity),
            _ => children.len().saturating_sub(1),
        };
        if lost > tolerated {
            let all_offline = children
                .iter()
                .all(|child| child.state == VdevState::Offline);
            return match (kind, all_offline) {
                (VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare, true) => {
                    Standing::because(VdevState::Offline, Reason::ChildrenOffline)
                }
                _ => Standing::because(VdevState::Unavailable, Reason::NoReplicas),
            };
        }
        let state = if limping > 0 {
            VdevState::Degraded
        } else {
            VdevState::Online
        };
        Standing {
            state,
            reason: None,
        }
    }
}

/// The error counters of a vdev.
#[derive(Debug, Default)]
pub struct ErrorCounters {
    read: AtomicU64,
    write: AtomicU64,
    checksum: AtomicU64,
    slow: AtomicU64,
}

impl ErrorCounters {
    /// A read failed.
    pub fn count_read(&self) {
        self.read.fetch_add(1, Ordering::Relaxed);
    }

    /// A write or a flush failed.
    pub fn count_write(&self) {
        self.write.fetch_add(1, Ordering::Relaxed);
    }

    /// It gave other bytes than were written.
    pub fn count_checksum(&self) {
        self.checksum.fetch_add(1, Ordering::Relaxed);
    }

    /// A read or write took long.
    pub fn count_slow(&self) {
        self.slow.fetch_add(1, Ordering::Relaxed);
    }

    /// Back to zero: `zpool clear`.
    pub fn clear(&self) {
        for counter in [&self.read, &self.write, &self.checksum, &self.slow] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// The counters now.
    pub fn values(&self) -> ErrorCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ErrorCounts {
            read: load(&self.read),
            write: load(&self.write),
            checksum: load(&self.checksum),
            slow: load(&self.slow),
        }
    }
}

/// Error counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorCounts {
    /// Reads that failed.
    pub read: u64,
    /// Writes and flushes that failed.
    pub write: u64,
    /// Reads that gave other bytes than were written.
    pub checksum: u64,
    /// Reads and writes that took long.
    #[doc(alias = "vs_slow_ios")]
    pub slow: u64,
}

/// A vdev and all below it, as `zpool status` and `zpool iostat -v` show them.
#[derive(Debug, Clone)]
pub struct VdevHealth {
    /// Its name for good.
    pub guid: Guid,
    /// Its index among its siblings.
    pub id: u64,
    /// What it is.
    pub kind: VdevKind,
    /// Where it is, for a leaf.
    pub path: Option<Text>,
    /// The whole disk was given to the pool.
    pub whole_disk: bool,
    /// It could not be found when the pool was opened.
    pub not_present: bool,
    /// It holds the intent log. For top-level vdevs.
    pub is_log: bool,
    /// How it is, and why.
    pub standing: Standing,
    /// How often it erred.
    pub errors: ErrorCounts,
    /// The I/O statistics of the device; for a vdev with children the sum over all leaves.
    pub statistics: VdevStatisticsSnapshot,
    /// The room of a top-level vdev.
    pub asize: AllocatedSize,
    /// The size of a device with its labels, as it was opened; 0 of other vdevs.
    pub device_bytes: u64,
    /// The vdevs it is made of.
    pub children: Vec<VdevHealth>,
}

impl VdevHealth {
    /// As `zpool status` names it: a path, or kind and number.
    pub fn name(&self) -> String {
        vdev_name(self.kind, self.id, self.guid, self.path.as_ref())
    }
}

/// A vdev's name in `zpool status`: the path of a leaf; else kind and index, with the number of
/// parities.
pub fn vdev_name(kind: VdevKind, id: u64, guid: Guid, path: Option<&Text>) -> String {
    match (kind, path) {
        (VdevKind::Root, _) => String::from("root"),
        (_, Some(path)) => path.to_string(),
        (VdevKind::File | VdevKind::Disk, None) => guid.to_string(),
        (VdevKind::Raidz { parity } | VdevKind::Draid { parity }, None) => {
            format!("{}{parity}-{id}", kind.name())
        }
        (_, None) => format!("{}-{id}", kind.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GONE: Standing = Standing::because(VdevState::Unavailable, Reason::OpenFailed);
    const OFF: Standing = Standing {
        state: VdevState::Offline,
        reason: None,
    };

    #[test]
    fn redundancy_decides_between_degraded_and_unavailable() {
        let raidz = VdevKind::Raidz { parity: 2 };
        let of = |kind, children: &[Standing]| Standing::of_parent(kind, children).state;
        assert_eq!(of(raidz, &[Standing::ONLINE; 4]), VdevState::Online);
        let two = [GONE, OFF, Standing::ONLINE, Standing::ONLINE];
        assert_eq!(of(raidz, &two), VdevState::Degraded);
        let three = [GONE, OFF, GONE, Standing::ONLINE];
        let standing = Standing::of_parent(raidz, &three);
        assert_eq!(
            standing,
            Standing::because(VdevState::Unavailable, Reason::NoReplicas)
        );
        assert_eq!(
            of(VdevKind::Mirror, &[GONE, Standing::ONLINE]),
            VdevState::Degraded
        );
        assert_eq!(of(VdevKind::Mirror, &[OFF, OFF]), VdevState::Offline);
        assert_eq!(
            of(VdevKind::Root, &[GONE, Standing::ONLINE]),
            VdevState::Unavailable
        );
    }

    #[test]
    fn vdevs_are_called_as_zpool_calls_them() {
        let name = |kind, path: Option<&str>| {
            vdev_name(kind, 3, Guid::from(77), path.map(Text::from).as_ref())
        };
        assert_eq!(name(VdevKind::Raidz { parity: 2 }, None), "raidz2-3");
        assert_eq!(name(VdevKind::Mirror, None), "mirror-3");
        assert_eq!(name(VdevKind::Disk, Some("/dev/sda1")), "/dev/sda1");
        assert_eq!(name(VdevKind::File, None), "77");
    }
}
