//! Files as ZPL versions before 5 store them, and what all versions share: directory entries and
//! file flags.
//!
//! # Mechanism
//! An old file's bonus is a fixed structure, [`ZnodePhys`]. What follows it in the bonus is a short
//! symbolic link's target, or a virus scanner's stamp. (From version 5 on files have
//! [`attributes`](crate::attributes) instead.)
//!
//! A directory is a ZAP of names. Each value is a word:
//!
//! ```text
//!   64     60           48                                   0
//!   | type |   unused   |              object                |
//! ```

use crate::acl::AclPhys;
use crate::on_disk;
use crate::units::ObjectId;

/// The size of [`ZnodePhys`].
#[doc(alias = "ZFS_OLD_ZNODE_PHYS_SIZE")]
pub const ZNODE_SIZE: usize = 264;

/// The object of a file system that leads to all others: a ZAP.
#[doc(alias = "MASTER_NODE_OBJ")]
pub const MASTER_NODE: ObjectId = ObjectId::new(1);

/// Names in the master node.
pub mod master {
    /// The root directory.
    #[doc(alias = "ZFS_ROOT_OBJ")]
    pub const ROOT: &str = "ROOT";
    /// Files without a name that are still open, or not yet freed.
    #[doc(alias = "ZFS_UNLINKED_SET")]
    pub const UNLINKED: &str = "DELETE_QUEUE";
    /// The version of the file system.
    #[doc(alias = "ZPL_VERSION_STR")]
    pub const VERSION: &str = "VERSION";
    /// The table of [`fuid`](crate::fuid) domains.
    #[doc(alias = "ZFS_FUID_TABLES")]
    pub const FUID_TABLE: &str = "FUID";
    /// The directory of SMB shares.
    #[doc(alias = "ZFS_SHARES_DIR")]
    pub const SHARES: &str = "SHARES";
    /// The master node of [`attributes`](crate::attributes).
    #[doc(alias = "ZFS_SA_ATTRS")]
    pub const ATTRIBUTES: &str = "SA_ATTRS";
    /// How names are normalised.
    pub const NORMALIZATION: &str = "normalization";
    /// Whether names must be UTF-8.
    pub const UTF8_ONLY: &str = "utf8only";
    /// Whether the case of names matters.
    pub const CASE_SENSITIVITY: &str = "casesensitivity";
    /// Quotas of users: a ZAP.
    pub const USER_QUOTA: &str = "userquota@";
    /// Quotas of groups: a ZAP.
    pub const GROUP_QUOTA: &str = "groupquota@";
    /// Quotas of projects: a ZAP.
    pub const PROJECT_QUOTA: &str = "projectquota@";
    /// Object quotas of users: a ZAP.
    pub const USER_OBJECT_QUOTA: &str = "userobjquota@";
    /// Object quotas of groups: a ZAP.
    pub const GROUP_OBJECT_QUOTA: &str = "groupobjquota@";
    /// Object quotas of projects: a ZAP.
    pub const PROJECT_OBJECT_QUOTA: &str = "projectobjquota@";
    /// The default user quota: bytes.
    pub const DEFAULT_USER_QUOTA: &str = "defaultuserquota";
    /// The quota of groups that have no other: bytes.
    pub const DEFAULT_GROUP_QUOTA: &str = "defaultgroupquota";
    /// The quota of projects that have no other: bytes.
    pub const DEFAULT_PROJECT_QUOTA: &str = "defaultprojectquota";
    /// The default user object quota.
    pub const DEFAULT_USER_OBJECT_QUOTA: &str = "defaultuserobjquota";
    /// The object quota of groups that have no other.
    pub const DEFAULT_GROUP_OBJECT_QUOTA: &str = "defaultgroupobjquota";
    /// The object quota of projects that have no other.
    pub const DEFAULT_PROJECT_OBJECT_QUOTA: &str = "defaultprojectobjquota";
}

on_disk! {
    /// A file before ZPL version 5. The attributes of newer files have the same meanings; see
    /// [`FileAttribute`](crate::attributes::FileAttribute).
    #[doc(alias = "znode_phys_t")]
    pub struct ZnodePhys [264 bytes] {
        /// Seconds and nanoseconds.
        0 => access_time: [u64; 2],
        /// Seconds and nanoseconds.
        16 => modification_time: [u64; 2],
        /// Seconds and nanoseconds.
        32 => change_time: [u64; 2],
        /// Seconds and nanoseconds.
        48 => creation_time: [u64; 2],
        /// The txg in which it was made.
        64 => generation: u64,
        /// Type and permissions.
        72 => mode: u64,
        80 => size: u64,
        /// The directory it is in.
        88 => parent: ObjectId,
        96 => links: u64,
        /// The directory of its extended attributes, or 0.
        104 => xattr_directory: ObjectId,
        /// The number of a device.
        112 => device: u64,
        /// [`ZnodeFlags`].
        120 => flag_word: u64,
        /// A [`Fuid`](crate::fuid::Fuid).
        128 => owner: u64,
        /// A [`Fuid`](crate::fuid::Fuid).
        136 => group: u64,
        /// Unused.
        144 => extra_zap: u64,
        /// Unused.
        152 => pad: [u64; 3],
        176 => acl: AclPhys,
    }
}

/// Properties of a file that are one bit each.
#[doc(alias = "z_pflags")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ZnodeFlags(u64);

/// Declares the flags.
macro_rules! znode_flags {
    ($($(#[$attribute:meta])* $name:ident = $bits:literal,)*) => {
        impl ZnodeFlags {
            $($(#[$attribute])* pub const $name: ZnodeFlags = ZnodeFlags($bits);)*
        }
    };
}

znode_flags! {
    /// It is an extended attribute, or the directory of some.
    #[doc(alias = "ZFS_XATTR")]
    XATTR = 0x1,
    /// Its access control list has entries for what is made within.
    #[doc(alias = "ZFS_INHERIT_ACE")]
    INHERITED_ENTRIES = 0x2,
    /// Its access control list says no more than its mode.
    #[doc(alias = "ZFS_ACL_TRIVIAL")]
    ACL_TRIVIAL = 0x4,
    /// Its access control list has entries for object types.
    #[doc(alias = "ZFS_ACL_OBJ_ACE")]
    ACL_OBJECT_ENTRIES = 0x8,
    /// Its access control list does not change with its parent's.
    #[doc(alias = "ZFS_ACL_PROTECTED")]
    ACL_PROTECTED = 0x10,
    /// Its access control list came from a default.
    #[doc(alias = "ZFS_ACL_DEFAULTED")]
    ACL_DEFAULTED = 0x20,
    /// Its access control list was inherited.
    #[doc(alias = "ZFS_ACL_AUTO_INHERIT")]
    ACL_AUTO_INHERIT = 0x40,
    /// A virus scanner's stamp follows the structure in an old file's bonus.
    #[doc(alias = "ZFS_BONUS_SCANSTAMP")]
    BONUS_SCAN_STAMP = 0x80,
    /// The ACL denies execution to no user.
    #[doc(alias = "ZFS_NO_EXECS_DENIED")]
    NO_EXECUTE_DENIED = 0x100,
    /// Not to be written, as DOS has it.
    #[doc(alias = "ZFS_READONLY")]
    READ_ONLY = 0x1_0000_0000,
    /// Not to be shown, as DOS has it.
    #[doc(alias = "ZFS_HIDDEN")]
    HIDDEN = 0x2_0000_0000,
    /// A system file, as DOS has it.
    #[doc(alias = "ZFS_SYSTEM")]
    SYSTEM = 0x4_0000_0000,
    /// Changed since it was archived, as DOS has it.
    #[doc(alias = "ZFS_ARCHIVE")]
    ARCHIVE = 0x8_0000_0000,
    /// Nothing of it may change.
    #[doc(alias = "ZFS_IMMUTABLE")]
    IMMUTABLE = 0x10_0000_0000,
    /// It may not be removed.
    #[doc(alias = "ZFS_NOUNLINK")]
    NO_UNLINK = 0x20_0000_0000,
    /// It may only grow.
    #[doc(alias = "ZFS_APPENDONLY")]
    APPEND_ONLY = 0x40_0000_0000,
    /// Backups leave it out.
    #[doc(alias = "ZFS_NODUMP")]
    NO_DUMP = 0x80_0000_0000,
    /// As union mounts have it.
    #[doc(alias = "ZFS_OPAQUE")]
    OPAQUE = 0x100_0000_0000,
    /// A virus scanner found something.
    #[doc(alias = "ZFS_AV_QUARANTINED")]
    QUARANTINED = 0x200_0000_0000,
    /// Changed since a virus scanner looked.
    #[doc(alias = "ZFS_AV_MODIFIED")]
    NOT_SCANNED = 0x400_0000_0000,
    /// A reparse point, as Windows has it.
    #[doc(alias = "ZFS_REPARSE")]
    REPARSE = 0x800_0000_0000,
    /// Offline, as Windows has it.
    #[doc(alias = "ZFS_OFFLINE")]
    OFFLINE = 0x1000_0000_0000,
    /// Sparse, as Windows has it.
    #[doc(alias = "ZFS_SPARSE")]
    SPARSE = 0x2000_0000_0000,
    /// What is made within gets its project.
    #[doc(alias = "ZFS_PROJINHERIT")]
    INHERIT_PROJECT = 0x4000_0000_0000,
    /// It has the attribute of a project.
    #[doc(alias = "ZFS_PROJID")]
    HAS_PROJECT = 0x8000_0000_0000,
}

impl ZnodeFlags {
    /// No flags.
    pub const NONE: ZnodeFlags = ZnodeFlags(0);

    /// As they are stored. Flags that are not known are kept.
    pub const fn from_word(word: u64) -> ZnodeFlags {
        ZnodeFlags(word)
    }

    /// As they are stored.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// True when all of `other` are set.
    pub const fn has(self, other: ZnodeFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// True when any of `other` is set.
    pub const fn has_any(self, other: ZnodeFlags) -> bool {
        self.0 & other.0 != 0
    }

    /// With all of `other`.
    pub const fn and(self, other: ZnodeFlags) -> ZnodeFlags {
        ZnodeFlags(self.0 | other.0)
    }

    /// Without any of `other`.
    pub const fn without(self, other: ZnodeFlags) -> ZnodeFlags {
        ZnodeFlags(self.0 & !other.0)
    }
}

/// The type of a file as a directory has it. The numbers are those of `d_type`.
#[doc(alias = "ZFS_DIRENT_TYPE")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryType {
    /// Not said: entries made by old versions.
    Unknown,
    /// A named pipe.
    Fifo,
    /// A character device.
    CharacterDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A socket.
    Socket,
    /// A door, or what an overlay hides.
    Other(u8),
}

impl EntryType {
    /// From its four bits, of which others are ignored.
    pub const fn from_number(number: u8) -> EntryType {
        match number & 0xf {
            0 => EntryType::Unknown,
            1 => EntryType::Fifo,
            2 => EntryType::CharacterDevice,
            4 => EntryType::Directory,
            6 => EntryType::BlockDevice,
            8 => EntryType::File,
            10 => EntryType::Link,
            12 => EntryType::Socket,
            other => EntryType::Other(other),
        }
    }

    /// Its four bits.
    pub const fn number(self) -> u8 {
        match self {
            EntryType::Unknown => 0,
            EntryType::Fifo => 1,
            EntryType::CharacterDevice => 2,
            EntryType::Directory => 4,
            EntryType::BlockDevice => 6,
            EntryType::File => 8,
            EntryType::Link => 10,
            EntryType::Socket => 12,
            EntryType::Other(other) => other & 0xf,
        }
    }

    /// The type in a file's mode.
    #[doc(alias = "IFTODT")]
    pub const fn of_mode(mode: u64) -> EntryType {
        let [_, high, ..] = mode.to_le_bytes();
        EntryType::from_number(high >> 4)
    }
}

/// The value of a name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirectoryEntry {
    /// The file.
    pub object: ObjectId,
    /// Its type.
    pub entry_type: EntryType,
}

impl DirectoryEntry {
    /// How many bits the object's number has.
    const OBJECT_BITS: u32 = 48;

    /// As it is stored. The bits between object and type are ignored.
    #[doc(alias = "ZFS_DIRENT_OBJ")]
    pub const fn from_word(word: u64) -> DirectoryEntry {
        let [.., last] = word.to_le_bytes();
        DirectoryEntry {
            object: ObjectId::new(word & ((1 << Self::OBJECT_BITS) - 1)),
            entry_type: EntryType::from_number(last >> 4),
        }
    }

    /// As it is stored.
    ///
    /// # Panics
    /// When the object's number has more than 48 bits: there are no such objects.
    pub fn to_word(self) -> u64 {
        assert!(
            self.object.get() >> Self::OBJECT_BITS == 0,
            "objects have numbers of 48 bits"
        );
        (u64::from(self.entry_type.number()) << 60) | self.object.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_entry_survives_as_a_word() {
        let word = 0x4000_0000_0000_008c;
        let entry = DirectoryEntry::from_word(word);
        assert_eq!(entry.object, ObjectId::new(140));
        assert_eq!(entry.entry_type, EntryType::Directory);
        assert_eq!(entry.to_word(), word);
        assert_eq!(
            DirectoryEntry::from_word(u64::MAX).to_word(),
            0xf000_ffff_ffff_ffff
        );
    }

    #[test]
    fn the_type_of_a_mode_is_that_of_an_entry() {
        assert_eq!(EntryType::of_mode(0o040_755), EntryType::Directory);
        assert_eq!(EntryType::of_mode(0o100_644), EntryType::File);
        assert_eq!(EntryType::of_mode(0o120_777), EntryType::Link);
        for number in 0..16 {
            assert_eq!(EntryType::from_number(number).number(), number);
        }
    }
}
