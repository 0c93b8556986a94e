//! Errors of this layer, one enum per operation.

use std::fmt;
use tarn_host::DeviceError;
use tarn_ondisk::declare::Corrupt;
use tarn_ondisk::nvlist::{NvError, Text};
use tarn_ondisk::units::{Guid, VdevId, VdevOffset};

use crate::health::Standing;

/// Why a stored configuration is no valid configuration of a vdev.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A pair is lacking in the list, or is not of its type.
    #[error("the configuration of a vdev is incomplete: {0}")]
    List(NvError),
    /// The type of the vdev is unknown.
    #[error("a vdev is of the unknown type '{name}'")]
    UnknownType {
        /// What is stored.
        name: Text,
    },
    /// A RAID-Z with no parity, or more than three.
    #[error("a vdev cannot have {parity} parities")]
    Parity {
        /// What is stored.
        parity: u64,
    },
    /// A vdev with fewer or more children than its kind can have.
    #[error("the {kind} vdev {guid} cannot have {count} children")]
    Children {
        /// What it is.
        kind: &'static str,
        /// Which one it is.
        guid: Guid,
        /// How many it has.
        count: usize,
    },
    /// A number that the format does not allow.
    #[error("the {name} of a vdev cannot be {found}")]
    Number {
        /// The pair.
        name: &'static str,
        /// What is stored.
        found: u64,
    },
    /// A top-level vdev is not where its number says.
    #[error("the top-level vdev {guid} says its index is {id}, but it is at {index}")]
    Misnumbered {
        /// Which one.
        guid: Guid,
        /// What it says.
        id: u64,
        /// Where it is.
        index: u64,
    },
}

/// Why a vdev tree could not be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The configuration is no valid configuration of a pool.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A vdev is of a kind that is not supported.
    #[error("the vdev {name} is of a kind that Tarn cannot read yet: {what}")]
    Unsupported {
        /// As `zpool status` names it.
        name: String,
        /// What is not supported.
        what: &'static str,
    },
    /// Top-level vdevs lack too many of their devices. Attaching these cures it.
    #[error("devices are missing: {}", list(vdevs))]
    Unavailable {
        /// The top-level vdevs, and how they are.
        vdevs: Vec<(String, Standing)>,
    },
}

fn list(vdevs: &[(String, Standing)]) -> String {
    let one = |(name, standing): &(String, Standing)| match standing.reason {
        Some(reason) => format!("{name} is {} ({reason})", standing.state),
        None => format!("{name} is {}", standing.state),
    };
    vdevs.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Why a request to one device failed.
#[derive(Debug, Clone)]
pub struct LeafFailure {
    /// The device.
    pub guid: Guid,
    /// Where it is.
    pub path: Text,
    /// What happened.
    pub why: LeafFailureKind,
}

/// The kind of a failure at a device.
#[derive(Debug, Clone)]
pub enum LeafFailureKind {
    /// It is not there, or not in use.
    NotUsable(Standing),
    /// It reported an error.
    Device(DeviceError),
    /// It gave bytes that did not verify.
    Checksum,
}

impl LeafFailure {
    /// True if bytes were read that did not verify.
    pub fn is_checksum(&self) -> bool {
        matches!(self.why, LeafFailureKind::Checksum)
    }

    /// True if the device did answer: it is there.
    pub fn is_answer(&self) -> bool {
        match &self.why {
            LeafFailureKind::NotUsable(_) => false,
            LeafFailureKind::Device(error) => {
                !error.is_gone() && !matches!(error, DeviceError::GivenUp { .. })
            }
            LeafFailureKind::Checksum => true,
        }
    }

    /// True if nothing was asked of the device, since the lease of this host has expired.
    pub fn is_lease_expired(&self) -> bool {
        let LeafFailureKind::Device(error) = &self.why else {
            return false;
        };
        matches!(error, DeviceError::LeaseExpired { .. })
    }

    /// True if the device has vanished.
    pub fn is_gone(&self) -> bool {
        matches!(&self.why, LeafFailureKind::Device(error) if error.is_gone())
    }
}

impl fmt::Display for LeafFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            LeafFailureKind::NotUsable(standing) => {
                write!(f, "{} is {}", self.path, standing.state)?;
                match standing.reason {
                    Some(reason) => write!(f, " ({reason})"),
                    None => Ok(()),
                }
            }
            LeafFailureKind::Device(error) => write!(f, "{error}"),
            LeafFailureKind::Checksum => write!(f, "{}: checksum error", self.path),
        }
    }
}

fn failures(failures: &[LeafFailure]) -> String {
    failures
        .iter()
        .map(LeafFailure::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Why a place could not be read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum VdevReadError {
    /// There is no such top-level vdev, or it holds no blocks: the pointer is wrong.
    #[error("there is no data on top-level vdev {vdev}")]
    NoSuchVdev {
        /// The index.
        vdev: VdevId,
    },
    /// The place is outside the vdev, or not at a sector: the pointer is wrong.
    #[error("{size} bytes at {offset:#x} are not on top-level vdev {vdev}")]
    OutOfRange {
        /// The index.
        vdev: VdevId,
        /// Where.
        offset: VdevOffset,
        /// How many bytes.
        size: u64,
    },
    /// Too few devices answered the read.
    #[error(
        "{size} bytes at {vdev}:{offset:x} could not be read: {}",
        failures(devices)
    )]
    Unreadable {
        /// The index of the top-level vdev.
        vdev: VdevId,
        /// Where.
        offset: VdevOffset,
        /// How many bytes.
        size: u64,
        /// What happened at each device.
        devices: Vec<LeafFailure>,
    },
    /// No copy that could be read, and no reconstruction, verified.
    #[error(
        "{size} bytes at {vdev}:{offset:x} do not verify: {}",
        failures(devices)
    )]
    Checksum {
        /// The index of the top-level vdev.
        vdev: VdevId,
        /// Where.
        offset: VdevOffset,
        /// How many bytes.
        size: u64,
        /// What happened at each device.
        devices: Vec<LeafFailure>,
    },
}

/// Why a write, a flush or an update of labels failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum VdevWriteError {
    /// A top-level vdev lost more devices than its redundancy covers. The pool must be suspended.
    #[error(
        "top-level vdev {vdev} ({name}) cannot be written: {}",
        failures(devices)
    )]
    LostRedundancy {
        /// Its index.
        vdev: VdevId,
        /// As `zpool status` names it.
        name: String,
        /// What happened at each device.
        devices: Vec<LeafFailure>,
    },
    /// No device could take the uberblock.
    #[error("no device took the new uberblock")]
    NoLabelWritten,
    /// The configuration does not fit in a label: too many devices in one top-level vdev, or paths
    /// that are too long.
    #[error("the configuration does not fit in a label")]
    ConfigurationTooLarge,
    /// The tree was opened for reading.
    #[error("the devices were opened read-only")]
    ReadOnly,
    /// Devices are being opened again after they were gone; an intent log write does not wait for
    /// that.
    #[error("devices are being opened again")]
    Reopening,
    /// This host did not write its heartbeat in time, so another host may have imported the pool:
    /// nothing is written. The pool must be suspended.
    #[error("multihost: no heartbeat was written in time, another host may have imported the pool")]
    LeaseExpired,
    /// The pool was given up: nothing is written any more.
    #[error("the pool was given up")]
    GivenUp,
}

/// Why a label, or a part of it, is not valid.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LabelError {
    /// The device is too small to have labels apart from each other.
    #[error("a device of {size} bytes has no room for labels")]
    TooSmall {
        /// How large it is.
        size: u64,
    },
    /// The device reported an error.
    #[error("the label could not be read: {0}")]
    Device(#[from] DeviceError),
    /// Its checksum does not hold: half written, overwritten, or never a label.
    #[error("the label's checksum does not hold")]
    Checksum,
    /// It verified, and then made no sense.
    #[error("the label is damaged: {0}")]
    Corrupt(#[from] Corrupt),
    /// A pair is lacking in its list, or is not of its type.
    #[error("the label is incomplete: {0}")]
    List(#[from] NvError),
    /// The configuration is too long for a label.
    #[error("the configuration takes {size} bytes and does not fit in a label")]
    TooLarge {
        /// How long it is.
        size: usize,
    },
}
