//! The properties of a file system that matter to its mount, as typed values.
//!
//! Each property's word becomes a value in one place, when the properties are read
//! ([`Values::read`]); mounting, remounting and unmounting ask for the values.

use super::mountpoint::{self, MOUNTPOINT, MountPoint};
use crate::mount_options::TemporaryOptions;
use crate::mounts::MountOptions;
use tarn_dataset::contents::Contents;
use tarn_dataset::dataset::Dataset;
use tarn_dataset::error::DatasetError;
use tarn_dataset::properties::native::{self, NativeValue, Shown};
use tarn_ondisk::units::LogicalSize;
use tarn_posix::{
    AccessTimes, AclInherit, AclMode, AclType, MountProperties, SnapshotDirectory, XattrStore,
};
use tarn_zil::{LogBias, SyncPolicy};

/// `recordsize` where the property cannot be read.
const RECORD_BYTES: u64 = 128 << 10;

/// The property `canmount`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CanMount {
    /// `on`: with all others.
    On,
    /// `off`: never.
    Off,
    /// `noauto`: only by name.
    NoAuto,
}

impl CanMount {
    fn of(word: &str) -> CanMount {
        match word {
            "off" => CanMount::Off,
            "noauto" => CanMount::NoAuto,
            _ => CanMount::On,
        }
    }
}

/// The properties that matter to a mount.
#[derive(Debug, Clone)]
pub struct Values {
    atime: bool,
    relatime: bool,
    devices: bool,
    exec: bool,
    setuid: bool,
    read_only: bool,
    pub(super) can_mount: CanMount,
    pub(super) is_zoned: bool,
    /// A folder that is not empty can be mounted on.
    pub(super) may_overlay: bool,
    snapshot_directory: SnapshotDirectory,
    xattrs: XattrStore,
    acl_type: AclType,
    acl_mode: AclMode,
    acl_inherit: AclInherit,
    record_size: LogicalSize,
    dnode_slots: usize,
    has_long_names: bool,
    sync: SyncPolicy,
    log_bias: LogBias,
}

impl Default for Values {
    /// The values of a dataset without any of the properties, such as one that is gone.
    fn default() -> Values {
        Values {
            atime: false,
            relatime: false,
            devices: false,
            exec: false,
            setuid: false,
            read_only: false,
            can_mount: CanMount::On,
            is_zoned: false,
            may_overlay: false,
            snapshot_directory: SnapshotDirectory::Hidden,
            xattrs: XattrStore::Attributes,
            acl_type: AclType::Off,
            acl_mode: AclMode::Discard,
            acl_inherit: AclInherit::Restricted,
            record_size: LogicalSize::from(RECORD_BYTES),
            dnode_slots: 1,
            has_long_names: false,
            sync: SyncPolicy::Standard,
            log_bias: LogBias::Latency,
        }
    }
}

impl Values {
    const NAMES: [&'static str; 19] = [
        "atime",
        "relatime",
        "devices",
        "exec",
        "setuid",
        "readonly",
        "canmount",
        "zoned",
        "overlay",
        "snapdir",
        "xattr",
        "acltype",
        "aclmode",
        "aclinherit",
        "recordsize",
        "dnodesize",
        "longname",
        "sync",
        "logbias",
    ];

    /// Whether a property matters to what is mounted.
    pub fn concerns(property: &str) -> bool {
        Values::NAMES.contains(&property)
    }

    /// Reads them.
    pub(super) fn read(dataset: &Dataset<'_>) -> Result<Values, DatasetError> {
        let natives = native::of_dataset(dataset, |row| Values::concerns(row.name))?;
        Ok(Values::of(natives))
    }

    /// Reads them, and the mount point.
    pub(super) fn read_with_mount_point(
        dataset: &Dataset<'_>,
        contents: Contents,
        altroot: Option<&str>,
    ) -> Result<(Values, MountPoint), DatasetError> {
        let is_wanted = |name: &str| Values::concerns(name) || name == MOUNTPOINT;
        let natives = native::of_contents(dataset, contents, |row| is_wanted(row.name))?;
        let point = natives.iter().find(|one| one.property.name == MOUNTPOINT);
        let (point, _) = mountpoint::of_value(dataset.directory().name(), point, altroot);
        Ok((Values::of(natives), point))
    }

    fn of(natives: Vec<NativeValue>) -> Values {
        let mut values = Values::default();
        for native in natives {
            match native.value {
                Shown::Text(word) => values.set(native.property.name, &word),
                Shown::Number(bytes) if native.property.name == "recordsize" => {
                    values.record_size = LogicalSize::from(bytes);
                }
                Shown::Number(_) => {}
            }
        }
        values
    }

    /// Takes the word of a property. Words that no version has mean what the default means.
    fn set(&mut self, name: &str, word: &str) {
        let is_on = word == "on";
        match name {
            "atime" => self.atime = is_on,
            "relatime" => self.relatime = is_on,
            "devices" => self.devices = is_on,
            "exec" => self.exec = is_on,
            "setuid" => self.setuid = is_on,
            "readonly" => self.read_only = is_on,
            "canmount" => self.can_mount = CanMount::of(word),
            "zoned" => self.is_zoned = is_on,
            "overlay" => self.may_overlay = is_on,
            "longname" => self.has_long_names = is_on,
            "snapdir" => self.snapshot_directory = snapshot_directory(word),
            "xattr" => self.xattrs = xattr_store(word),
            "acltype" => self.acl_type = acl_type(word),
            "aclmode" => self.acl_mode = acl_mode(word),
            "aclinherit" => self.acl_inherit = acl_inherit(word),
            "dnodesize" => self.dnode_slots = dnode_slots(word),
            "sync" => self.sync = sync_policy(word),
            "logbias" => self.log_bias = log_bias(word),
            _ => debug_assert!(!Values::concerns(name), "{name} is a word"),
        }
    }

    /// The properties as `posix` needs them, with the overrides of a mount.
    pub(super) fn mount_properties(&self, temporary: &TemporaryOptions) -> MountProperties {
        let atime = temporary.atime.unwrap_or(self.atime);
        let relatime = temporary.relatime.unwrap_or(self.relatime);
        MountProperties {
            is_read_only: temporary.read_only.unwrap_or(self.read_only),
            access_times: match (atime, relatime) {
                (false, _) => AccessTimes::Never,
                (true, true) => AccessTimes::Relative,
                (true, false) => AccessTimes::Always,
            },
            xattrs: match temporary.xattr {
                Some(false) => XattrStore::Off,
                Some(true) | None => self.xattrs,
            },
            acl_type: match temporary.posix_acl {
                Some(true) => AclType::Posix,
                Some(false) => AclType::Off,
                None => self.acl_type,
            },
            acl_mode: self.acl_mode,
            acl_inherit: self.acl_inherit,
            record_size: self.record_size,
            snapshot_directory: self.snapshot_directory,
            dnode_slots: self.dnode_slots,
            has_long_names: self.has_long_names,
            keeps_directory_times: temporary.keeps_directory_times,
            sync: match temporary.is_synchronous {
                true => SyncPolicy::Always,
                false => self.sync,
            },
            log_bias: self.log_bias,
        }
    }

    /// The options that the kernel enforces.
    pub(super) fn mount_options(&self, temporary: &TemporaryOptions) -> MountOptions {
        MountOptions {
            read_only: temporary.read_only.unwrap_or(self.read_only),
            devices: temporary.devices.unwrap_or(self.devices),
            exec: temporary.exec.unwrap_or(self.exec),
            setuid: temporary.setuid.unwrap_or(self.setuid),
            atime: temporary.atime.unwrap_or(self.atime),
        }
    }
}

fn snapshot_directory(word: &str) -> SnapshotDirectory {
    match word {
        "visible" => SnapshotDirectory::Visible,
        "disabled" => SnapshotDirectory::Disabled,
        _ => SnapshotDirectory::Hidden,
    }
}

fn xattr_store(word: &str) -> XattrStore {
    match word {
        "off" => XattrStore::Off,
        "dir" => XattrStore::Directory,
        _ => XattrStore::Attributes,
    }
}

fn acl_type(word: &str) -> AclType {
    match word {
        "posix" | "posixacl" => AclType::Posix,
        "nfsv4" => AclType::Nfs4,
        _ => AclType::Off,
    }
}

fn acl_mode(word: &str) -> AclMode {
    match word {
        "groupmask" => AclMode::GroupMask,
        "passthrough" => AclMode::Passthrough,
        "restricted" => AclMode::Restricted,
        _ => AclMode::Discard,
    }
}

fn acl_inherit(word: &str) -> AclInherit {
    match word {
        "discard" => AclInherit::Discard,
        "noallow" => AclInherit::NoAllow,
        "passthrough" => AclInherit::Passthrough,
        "passthrough-x" => AclInherit::PassthroughX,
        _ => AclInherit::Restricted,
    }
}

fn dnode_slots(word: &str) -> usize {
    match word {
        "auto" | "1k" => 2,
        "2k" => 4,
        "4k" => 8,
        "8k" => 16,
        "16k" => 32,
        _ => 1,
    }
}

fn sync_policy(word: &str) -> SyncPolicy {
    match word {
        "always" => SyncPolicy::Always,
        "disabled" => SyncPolicy::Disabled,
        _ => SyncPolicy::Standard,
    }
}

fn log_bias(word: &str) -> LogBias {
    match word {
        "throughput" => LogBias::Throughput,
        _ => LogBias::Latency,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_dataset::properties::table;

    #[test]
    fn each_name_is_a_property_whose_word_is_taken() {
        for name in Values::NAMES {
            assert!(table::find(name).is_some(), "{name}");
            // It asserts that the name is known to it.
            if name != "recordsize" {
                Values::default().set(name, "on");
            }
        }
    }

    #[test]
    fn options_of_a_mount_stand_above_properties() {
        let mut values = Values::default();
        for (name, word) in [
            ("xattr", "dir"),
            ("acltype", "nfsv4"),
            ("sync", "disabled"),
            ("atime", "on"),
        ] {
            values.set(name, word);
        }
        let plain = values.mount_properties(&TemporaryOptions::default());
        assert_eq!(plain.xattrs, XattrStore::Directory);
        assert_eq!(plain.acl_type, AclType::Nfs4);
        assert_eq!(plain.sync, SyncPolicy::Disabled);
        assert_eq!(plain.access_times, AccessTimes::Always);
        let overridden = values.mount_properties(&TemporaryOptions {
            xattr: Some(false),
            posix_acl: Some(false),
            is_synchronous: true,
            atime: Some(false),
            ..TemporaryOptions::default()
        });
        assert_eq!(overridden.xattrs, XattrStore::Off);
        assert_eq!(overridden.acl_type, AclType::Off);
        assert_eq!(overridden.sync, SyncPolicy::Always);
        assert_eq!(overridden.access_times, AccessTimes::Never);
    }
}
