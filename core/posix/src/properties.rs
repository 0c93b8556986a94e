//! The properties of a dataset that concern its files.

use tarn_ondisk::units::LogicalSize;
use tarn_zil::{LogBias, SyncPolicy};

/// When reading a file changes its access time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessTimes {
    /// Always (`atime=on relatime=off`).
    Always,
    /// When it is older than the last change, or than a day (`relatime=on`).
    Relative,
    /// Never (`atime=off`).
    Never,
}

/// Where extended attributes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrStore {
    /// With the file's other attributes, where they fit (`xattr=sa`).
    Attributes,
    /// In a hidden directory (`xattr=dir`).
    Directory,
    /// The `user` namespace is refused; others are stored in a hidden directory, since access
    /// control lists decide whatever the property says (`xattr=off`).
    Off,
}

/// Which access control lists are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclType {
    /// None.
    Off,
    /// POSIX ones, stored as extended attributes.
    Posix,
    /// NFSv4 ones, which decide about access.
    Nfs4,
}

/// What `chmod` does to the NFSv4 list of a file (`aclmode`). Without effect where the dataset has
/// no such lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclMode {
    /// The list becomes one that says what the mode says.
    Discard,
    /// Entries for named users and groups stay, limited to what the mode gives the group.
    GroupMask,
    /// Entries for named users and groups stay as they are.
    Passthrough,
    /// A list that is not trivial refuses a change of the mode.
    Restricted,
}

/// Which entries of the NFSv4 list of a directory a new file gets (`aclinherit`). Without effect
/// where the dataset has no such lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclInherit {
    /// None.
    Discard,
    /// Entries that deny.
    NoAllow,
    /// All, without the rights to change list and owner.
    Restricted,
    /// All, as they are.
    Passthrough,
    /// All; a file may be executed only where its maker asked for an execute bit.
    PassthroughX,
}

/// How `.zfs` is shown (`snapdir`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotDirectory {
    /// It does not exist.
    Disabled,
    /// It can be looked up, and is not listed.
    Hidden,
    /// It is listed.
    Visible,
}

/// The properties of a mounted file system. Those that are fixed at its creation (case,
/// normalization) are in its master node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountProperties {
    /// The mount is read-only.
    pub is_read_only: bool,
    /// When access times change.
    pub access_times: AccessTimes,
    /// Access times of directories do not change (mount option `nodiratime`).
    pub keeps_directory_times: bool,
    /// Where extended attributes go.
    pub xattrs: XattrStore,
    /// Which access control lists are used.
    pub acl_type: AclType,
    /// What `chmod` does to NFSv4 lists.
    pub acl_mode: AclMode,
    /// Which entries of NFSv4 lists new files get.
    pub acl_inherit: AclInherit,
    /// The largest block of new files.
    pub record_size: LogicalSize,
    /// How `.zfs` is shown.
    pub snapshot_directory: SnapshotDirectory,
    /// How many slots of 512 bytes the dnodes of new files have (`dnodesize`; `auto` is 2).
    pub dnode_slots: usize,
    /// Whether new names may have up to 1023 bytes (feature and property `longname`).
    pub has_long_names: bool,
    /// The property `sync`.
    pub sync: SyncPolicy,
    /// The property `logbias`.
    pub log_bias: LogBias,
}

impl Default for MountProperties {
    fn default() -> Self {
        MountProperties {
            is_read_only: false,
            access_times: AccessTimes::Relative,
            keeps_directory_times: false,
            xattrs: XattrStore::Attributes,
            acl_type: AclType::Off,
            acl_mode: AclMode::Discard,
            acl_inherit: AclInherit::Restricted,
            record_size: LogicalSize::from(128 << 10),
            snapshot_directory: SnapshotDirectory::Hidden,
            dnode_slots: 1,
            has_long_names: false,
            sync: SyncPolicy::Standard,
            log_bias: LogBias::Latency,
        }
    }
}

/// The longest name where long ones are taken, in bytes.
#[doc(alias = "ZAP_MAXNAMELEN_NEW")]
pub const LONG_NAME_BYTES_MAX: usize = tarn_ondisk::zap::LONG_NAME_BYTES_MAX - 1;
/// The longest name elsewhere.
#[doc(alias = "ZAP_MAXNAMELEN")]
pub const NAME_BYTES_MAX: usize = tarn_ondisk::zap::NAME_BYTES_MAX - 1;

impl MountProperties {
    /// The longest name that a new entry can have, in bytes. Longer ones may exist from when
    /// `longname` was on.
    pub fn name_bytes_max(&self) -> usize {
        match self.has_long_names {
            true => LONG_NAME_BYTES_MAX,
            false => NAME_BYTES_MAX,
        }
    }
}
