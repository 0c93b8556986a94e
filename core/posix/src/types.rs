//! The values that operations on files take and give.
//!
//! They are the vocabulary between front ends and the file system: plain, free of any protocol.

use tarn_ondisk::units::ObjectId;

pub use crate::credentials::{CheckedByCaller, Credentials};

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A named pipe.
    Fifo,
    /// A character device.
    CharacterDevice,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A regular file.
    Regular,
    /// A symbolic link.
    SymbolicLink,
    /// A socket.
    Socket,
}

impl FileKind {
    /// The type bits of `st_mode`.
    pub const fn mode_bits(self) -> u32 {
        match self {
            FileKind::Fifo => 0o010_000,
            FileKind::CharacterDevice => 0o020_000,
            FileKind::Directory => 0o040_000,
            FileKind::BlockDevice => 0o060_000,
            FileKind::Regular => 0o100_000,
            FileKind::SymbolicLink => 0o120_000,
            FileKind::Socket => 0o140_000,
        }
    }

    /// The kind that `st_mode` names, if it names one.
    pub const fn from_mode(mode: u32) -> Option<FileKind> {
        Some(match mode & 0o170_000 {
            0o010_000 => FileKind::Fifo,
            0o020_000 => FileKind::CharacterDevice,
            0o040_000 => FileKind::Directory,
            0o060_000 => FileKind::BlockDevice,
            0o100_000 => FileKind::Regular,
            0o120_000 => FileKind::SymbolicLink,
            0o140_000 => FileKind::Socket,
            _ => return None,
        })
    }
}

/// An instant: seconds since 1970 UTC, and nanoseconds below a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

impl Timestamp {
    /// All of its nanoseconds as one number, which wraps after 584 years.
    pub(crate) fn change(self) -> u64 {
        const NANOSECONDS: u64 = 1_000_000_000;
        let seconds = self.seconds.cast_unsigned();
        let below = u64::from(self.nanoseconds);
        seconds.wrapping_mul(NANOSECONDS).wrapping_add(below)
    }

    /// The next instant.
    pub(crate) fn next(self) -> Timestamp {
        match self.nanoseconds {
            999_999_999.. => Timestamp {
                seconds: self.seconds.saturating_add(1),
                nanoseconds: 0,
            },
            nanoseconds => Timestamp {
                nanoseconds: nanoseconds + 1,
                ..self
            },
        }
    }
}

/// A device number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// The attributes of a file: what `stat` shows, and more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    /// Object number: the inode number.
    pub id: ObjectId,
    /// Tells this file from earlier ones of the same number.
    pub generation: u64,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, set-id and sticky bits included (`0o7777`).
    pub permissions: u32,
    /// Hard links; for directories 2 and one per subdirectory.
    pub links: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes; for directories the number of entries and 2.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub blocks_512: u64,
    /// Preferred size of I/O in bytes.
    pub block_size: u32,
    /// Device number of device files.
    pub device: DeviceNumber,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of contents.
    pub modified: Timestamp,
    /// Last change of attributes.
    pub changed: Timestamp,
    /// Birth.
    pub created: Timestamp,
    /// ZFS flags: immutable, append-only, no-dump and others, as stored (`ondisk::znode`).
    pub flags: u64,
    /// Project.
    pub project: u64,
    /// Whether the space taken changes when the groups in flight are stored.
    pub is_space_unsettled: bool,
}

impl Attributes {
    /// A number that is another after each change of contents, attributes or entries of the file,
    /// as NFS wants it (`change`): the nanoseconds of the time of the last change.
    ///
    /// That time is stored with the file, and each change moves it on by a nanosecond at least. A
    /// crash takes back changes that were not durable, with their times; those that are made
    /// afterwards have later times as long as the clock does not go back over the crash.
    pub fn change(&self) -> u64 {
        self.changed.change()
    }
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The present.
    Now,
    /// This instant.
    To(Timestamp),
}

/// Attributes to set; what is `None` stays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits (`0o7777`).
    pub permissions: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes: truncates or extends.
    pub size: Option<u64>,
    /// The size changes through a file that is open for writing (`ftruncate`): the mode is not
    /// checked again.
    pub is_open: bool,
    /// Access time.
    pub accessed: Option<SetTime>,
    /// Modification time.
    pub modified: Option<SetTime>,
    /// ZFS flags.
    pub flags: Option<u64>,
    /// Project.
    pub project: Option<u64>,
}

/// A file to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewFile<'a> {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, the caller's umask already applied unless a default ACL decides (`umask`
    /// then says).
    pub permissions: u32,
    /// The caller's umask; used when the parent has a default ACL.
    pub umask: u32,
    /// Device number, for devices.
    pub device: DeviceNumber,
    /// Target, for symbolic links.
    pub target: Option<&'a [u8]>,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Object number.
    pub id: ObjectId,
    /// What it is, from the entry itself (no look at the object).
    pub kind: FileKind,
    /// Name.
    pub name: Vec<u8>,
    /// Where the next call goes on after this entry.
    pub cookie: u64,
}

/// Flags of rename.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces an existing file.
    #[default]
    Replace,
    /// Refuses when the new name exists (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swaps the two files (`RENAME_EXCHANGE`).
    Exchange,
    /// Replaces an existing file, and leaves a character device 0:0 under the old name
    /// (`RENAME_WHITEOUT`), which overlayfs takes for a removed file.
    Whiteout,
    /// As `Whiteout`, but refuses when the new name exists.
    WhiteoutNoReplace,
}

/// Kinds of `fallocate`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// Extends the file when the range ends beyond it.
    Extend,
    /// Reserves without changing the size (`FALLOC_FL_KEEP_SIZE`).
    KeepSize,
    /// Frees the range, which then reads as zeros.
    PunchHole,
    /// The range reads as zeros afterwards.
    ZeroRange,
    /// As `ZeroRange`, and the size stays.
    ZeroRangeKeepSize,
}

/// What to look for with `lseek`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// `SEEK_DATA`.
    Data,
    /// `SEEK_HOLE`.
    Hole,
}

/// Privileges that a file gives to programs that execute it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privileges {
    /// `security.capability`.
    Capabilities,
    /// Capabilities, and the set-id bits.
    All,
}

/// The access that a file is opened for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenRights {
    /// Contents, or the entries of a directory, are read.
    pub reads: bool,
    /// Contents are written.
    pub writes: bool,
    /// Writes go to the end (`O_APPEND`).
    pub appends: bool,
    /// It is executed.
    pub executes: bool,
}

/// Whether reading changes the access time of a file, where the dataset has any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noting {
    /// As the properties of the dataset say.
    Access,
    /// Not at all: the file was opened with `O_NOATIME`.
    Nothing,
}

/// How to set an extended attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// Creates or replaces.
    Any,
    /// `XATTR_CREATE`.
    Create,
    /// `XATTR_REPLACE`.
    Replace,
}

/// Whether a file that gets a POSIX list keeps its set-group-id bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetGroupId {
    /// It stays if the caller is in the file's group, or privileged.
    AsTheyMay,
    /// It is removed: the front end has checked that the caller may not keep it.
    Goes,
}

/// What `statvfs` shows, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpaceFacts {
    /// The whole space of this dataset, used and available.
    pub total_bytes: u64,
    /// The available space.
    pub available_bytes: u64,
    /// Objects that exist or could.
    pub total_objects: u64,
    /// Objects that could still be made.
    pub available_objects: u64,
    /// Preferred block size in bytes.
    pub block_size: u32,
    /// Longest name.
    pub name_bytes_max: u32,
    /// Identity of the file system.
    pub id: u64,
}
