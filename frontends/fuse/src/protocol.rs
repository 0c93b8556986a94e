//! The FUSE protocol: decoding of requests, encoding of replies.
//!
//! Layouts and numbers are those of the kernel's interface, version 7.31 and later
//! (`linux/fuse.h`). Structures only ever grow at their ends, and the kernel sends its version at
//! the start. All numbers are in the machine's order.
//!
//! A request that is shorter than its structure, or whose names do not end, is refused with
//! `EINVAL`; nothing is read beyond it.

use crate::handles::Handle;
use rustix::io::Errno;

/// The protocol's major version.
pub const MAJOR: u32 = 7;

/// The protocol's minor version: with `statx`, files without a name, and idmapped mounts. An older
/// kernel offers fewer capabilities.
pub const MINOR: u32 = 41;

/// The user in requests that create nothing, if the kernel has idmapped mounts: it does not name
/// the caller.
pub const UNKNOWN_USER: u32 = u32::MAX;

/// The largest write, in bytes. The kernel's default limit is 256 pages.
pub const WRITE_BYTES_MAX: usize = 1 << 20;

/// Room for the largest request: a write with its structures.
pub const REQUEST_BYTES_MAX: usize = WRITE_BYTES_MAX + 4096;

/// The structures before the contents of a write: `fuse_in_header` and `fuse_write_in`.
pub const WRITE_HEAD_BYTES: usize = 80;

/// What a request asks for.
pub mod opcode {
    macro_rules! opcodes {
        ($($name:ident = $number:literal,)*) => {
            $(
                #[doc = concat!("`FUSE_", stringify!($name), "`.")]
                pub const $name: u32 = $number;
            )*
        };
    }
    opcodes! {
        LOOKUP = 1, FORGET = 2, GETATTR = 3, SETATTR = 4, READLINK = 5, SYMLINK = 6, MKNOD = 8, MKDIR = 9,
        UNLINK = 10, RMDIR = 11, RENAME = 12, LINK = 13, OPEN = 14, READ = 15, WRITE = 16, STATFS = 17,
        RELEASE = 18, FSYNC = 20, SETXATTR = 21, GETXATTR = 22, LISTXATTR = 23, REMOVEXATTR = 24,
        FLUSH = 25, INIT = 26, OPENDIR = 27, READDIR = 28, RELEASEDIR = 29, FSYNCDIR = 30, GETLK = 31,
        SETLK = 32, SETLKW = 33, ACCESS = 34,
        CREATE = 35, INTERRUPT = 36, DESTROY = 38, IOCTL = 39, BATCH_FORGET = 42, FALLOCATE = 43,
        READDIRPLUS = 44, RENAME2 = 45, LSEEK = 46, COPY_FILE_RANGE = 47, SYNCFS = 50, TMPFILE = 51,
        STATX = 52,
    }
}

/// Capabilities that are negotiated at the start.
pub mod init_flags {
    /// Reads may be sent in parallel.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// The file system keeps `fcntl` locks.
    pub const POSIX_LOCKS: u64 = 1 << 1;
    /// `O_TRUNC` comes with the open.
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    /// `.` and `..` can be looked up: the mount can be exported.
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    /// Writes may be larger than a page.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// The file system applies the umask: default ACLs replace it.
    pub const DONT_MASK: u64 = 1 << 6;
    /// Directories may be read with attributes.
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// The file system keeps `flock` locks.
    pub const FLOCK_LOCKS: u64 = 1 << 10;
    /// The kernel chooses when to read attributes with directories.
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    /// Each part of an asynchronous direct I/O completes by itself, without a thread that waits for
    /// all.
    pub const ASYNC_DIO: u64 = 1 << 15;
    /// Lookups and reads of one directory may be sent in parallel.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// The kernel reads and enforces POSIX ACLs.
    pub const POSIX_ACL: u64 = 1 << 20;
    /// `max_pages` is set.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// Targets of symbolic links may be cached.
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    /// The file system removes set-id bits and capabilities when a file is written, truncated or
    /// given to another owner; writes and truncations say whether the caller may keep the set-id
    /// bits. Otherwise the kernel would ask for the capabilities before each write.
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    /// `SETXATTR` has a flag: whether the caller may keep the set-group-id bit of a file that gets
    /// an ACL.
    pub const SETXATTR_EXT: u64 = 1 << 29;
    /// There are more capabilities than 32 bits have.
    pub const INIT_EXT: u64 = 1 << 30;
    /// A mount may map the users of files to others (`MOUNT_ATTR_IDMAP`). Then requests name the
    /// caller only where something is created, as the mapped user.
    pub const ALLOW_IDMAP: u64 = 1 << 40;
}

/// Bits of `SETATTR`: the attributes to set.
pub mod setattr_bits {
    /// Permissions.
    pub const MODE: u32 = 1 << 0;
    /// Owner.
    pub const UID: u32 = 1 << 1;
    /// Group.
    pub const GID: u32 = 1 << 2;
    /// Size.
    pub const SIZE: u32 = 1 << 3;
    /// Access time.
    pub const ATIME: u32 = 1 << 4;
    /// Modification time.
    pub const MTIME: u32 = 1 << 5;
    /// The file is open, and changed through its handle.
    pub const HANDLE: u32 = 1 << 6;
    /// The access time is now.
    pub const ATIME_NOW: u32 = 1 << 7;
    /// The modification time is now.
    pub const MTIME_NOW: u32 = 1 << 8;
    /// The caller may not keep the set-id bits of the file that is truncated.
    pub const DROP_SET_IDS: u32 = 1 << 11;
}

/// Bits of `STATX`: the attributes in the reply.
pub mod statx_bits {
    /// The attributes of `stat`.
    pub const BASIC: u32 = 0x7ff;
    /// The birth time.
    pub const BIRTH: u32 = 0x800;
}

/// Reply to an open: the kernel keeps its cached pages.
pub const OPEN_KEEP_CACHE: u32 = 1 << 1;

/// Reply to an open: the kernel sends `FLUSH` only when the last descriptor of the open file is
/// closed.
#[doc(alias = "FOPEN_NOFLUSH")]
pub const OPEN_NO_FLUSH: u32 = 1 << 5;

/// A flag of lock requests: it is a `flock`.
#[doc(alias = "FUSE_LK_FLOCK")]
pub const LOCK_IS_FLOCK: u32 = 1 << 0;

/// A flag of `RELEASE`: the open file has `flock` locks.
#[doc(alias = "FUSE_RELEASE_FLOCK_UNLOCK")]
pub const RELEASE_UNLOCKS: u32 = 1 << 1;

/// A flag of `WRITE`: the kernel writes back a page of a mapped file.
pub const WRITE_CACHE: u32 = 1 << 0;

/// A flag of `WRITE`: the caller may not keep the set-id bits.
pub const WRITE_DROP_SET_IDS: u32 = 1 << 2;

/// A flag of `SETXATTR`: the caller may not keep the set-group-id bit.
pub const SETXATTR_DROP_SET_GID: u32 = 1 << 0;

/// A notice to the kernel: drop the caches of a node.
#[doc(alias = "FUSE_NOTIFY_INVAL_INODE")]
pub const NOTIFY_FORGET_NODE: i32 = 2;

/// A notice to the kernel: drop a cached name.
#[doc(alias = "FUSE_NOTIFY_INVAL_ENTRY")]
pub const NOTIFY_FORGET_NAME: i32 = 3;

/// A notice to the kernel: bytes for a file's page cache. The file is at least as long.
#[doc(alias = "FUSE_NOTIFY_STORE")]
pub const NOTIFY_STORE: i32 = 4;

/// The head of every request.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead {
    /// The operation.
    pub opcode: u32,
    /// The request's number, which the reply repeats.
    pub unique: u64,
    /// The node of the request.
    pub node: u64,
    /// The caller's user.
    pub uid: u32,
    /// The caller's group.
    pub gid: u32,
    /// The caller's process.
    pub pid: u32,
}

/// Decodes numbers and names of a request, and cannot run past its end.
#[derive(Debug, Clone)]
pub struct Arguments<'a> {
    bytes: &'a [u8],
}

impl<'a> Arguments<'a> {
    /// The head of a request and what follows it.
    ///
    /// # Errors
    /// `EINVAL` when the request is cut.
    pub fn of_request(bytes: &'a [u8]) -> Result<(RequestHead, Arguments<'a>), Errno> {
        Arguments::of_parts(bytes, 0)
    }

    /// As [`of_request`](Self::of_request), for a request with this many more bytes in other
    /// buffers.
    ///
    /// # Errors
    /// As [`of_request`](Self::of_request).
    pub fn of_parts(
        bytes: &'a [u8],
        elsewhere: usize,
    ) -> Result<(RequestHead, Arguments<'a>), Errno> {
        let mut arguments = Arguments { bytes };
        let length = arguments.u32()?;
        if usize::try_from(length) != Ok(bytes.len() + elsewhere) {
            return Err(Errno::INVAL);
        }
        let head = RequestHead {
            opcode: arguments.u32()?,
            unique: arguments.u64()?,
            node: arguments.u64()?,
            uid: arguments.u32()?,
            gid: arguments.u32()?,
            pid: arguments.u32()?,
        };
        arguments.skip(4)?;
        Ok((head, arguments))
    }

    /// Arguments nested in others.
    pub fn of(bytes: &'a [u8]) -> Arguments<'a> {
        Arguments { bytes }
    }

    /// The next 32 bits.
    pub fn u32(&mut self) -> Result<u32, Errno> {
        let (word, rest) = self.bytes.split_first_chunk::<4>().ok_or(Errno::INVAL)?;
        self.bytes = rest;
        Ok(u32::from_ne_bytes(*word))
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> Result<u64, Errno> {
        let (word, rest) = self.bytes.split_first_chunk::<8>().ok_or(Errno::INVAL)?;
        self.bytes = rest;
        Ok(u64::from_ne_bytes(*word))
    }

    /// The next handle.
    pub(crate) fn handle(&mut self) -> Result<Handle, Errno> {
        Ok(Handle::from_number(self.u64()?))
    }

    /// Skips bytes.
    pub fn skip(&mut self, count: usize) -> Result<(), Errno> {
        self.bytes = self.bytes.get(count..).ok_or(Errno::INVAL)?;
        Ok(())
    }

    /// The next name, which ends with a zero.
    pub fn name(&mut self) -> Result<&'a [u8], Errno> {
        let end = self
            .bytes
            .iter()
            .position(|&byte| byte == 0)
            .ok_or(Errno::INVAL)?;
        let (name, rest) = (&self.bytes[..end], &self.bytes[end + 1..]);
        self.bytes = rest;
        Ok(name)
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: u32) -> Result<&'a [u8], Errno> {
        let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        let bytes = self.bytes.get(..count).ok_or(Errno::INVAL)?;
        self.skip(count)?;
        Ok(bytes)
    }

    /// What is left.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }
}

/// Encodes a reply's structures.
#[derive(Debug, Default)]
pub struct Answer {
    bytes: Vec<u8>,
}

impl Answer {
    /// An empty one.
    pub fn new() -> Self {
        Answer::default()
    }

    /// One with room for so many bytes.
    pub fn with_room(bytes: usize) -> Self {
        Answer {
            bytes: Vec::with_capacity(bytes),
        }
    }

    /// Adds 16 bits.
    pub fn u16(&mut self, number: u16) -> &mut Self {
        self.bytes.extend_from_slice(&number.to_ne_bytes());
        self
    }

    /// Adds 32 bits.
    pub fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes.extend_from_slice(&number.to_ne_bytes());
        self
    }

    /// Adds 64 bits.
    pub fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes.extend_from_slice(&number.to_ne_bytes());
        self
    }

    /// Adds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Adds so many zeros.
    pub fn zeros(&mut self, count: usize) -> &mut Self {
        self.bytes.resize(self.bytes.len() + count, 0);
        self
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Cuts the reply to this length.
    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(length);
    }
}

/// The head of the reply to the request of this number: `body` bytes follow, or an error.
pub fn reply_head(unique: u64, error: Option<Errno>, body: usize) -> [u8; 16] {
    let length = u32::try_from(16 + body).expect("a reply is no larger than the largest read");
    let error = error.map_or(0, |errno| -errno.raw_os_error());
    let mut head = [0; 16];
    head[..4].copy_from_slice(&length.to_ne_bytes());
    head[4..8].copy_from_slice(&error.to_ne_bytes());
    head[8..].copy_from_slice(&unique.to_ne_bytes());
    head
}

/// The head of a notice, a message without a request.
pub fn notice_head(what: i32, body: usize) -> [u8; 16] {
    let mut head = reply_head(0, None, body);
    head[4..8].copy_from_slice(&what.to_ne_bytes());
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(body: &[u8]) -> Vec<u8> {
        let mut bytes = Answer::new();
        let length = u32::try_from(40 + body.len()).unwrap();
        bytes
            .u32(length)
            .u32(opcode::LOOKUP)
            .u64(7)
            .u64(1)
            .u32(1000)
            .u32(100)
            .u32(4242)
            .u32(0);
        bytes.bytes(body);
        bytes.as_slice().to_vec()
    }

    #[test]
    fn a_request_is_taken_apart() {
        let bytes = request(b"name\0");
        let (head, mut arguments) = Arguments::of_request(&bytes).unwrap();
        assert_eq!(
            (head.opcode, head.unique, head.node),
            (opcode::LOOKUP, 7, 1)
        );
        assert_eq!((head.uid, head.gid, head.pid), (1000, 100, 4242));
        assert_eq!(arguments.name(), Ok(&b"name"[..]));
        assert_eq!(arguments.u32(), Err(Errno::INVAL));
    }

    #[test]
    fn a_request_that_is_cut_or_has_no_end_is_refused() {
        let bytes = request(b"name");
        for length in 0..bytes.len() {
            assert!(Arguments::of_request(&bytes[..length]).is_err(), "{length}");
        }
        let (_, mut arguments) = Arguments::of_request(&bytes).unwrap();
        assert_eq!(arguments.name(), Err(Errno::INVAL));
        assert_eq!(arguments.bytes(5), Err(Errno::INVAL));
    }

    #[test]
    fn a_reply_says_its_length_and_its_error() {
        let head = reply_head(9, Some(Errno::NOENT), 0);
        assert_eq!(head[..4], 16u32.to_ne_bytes());
        assert_eq!(head[4..8], (-2i32).to_ne_bytes());
        assert_eq!(head[8..], 9u64.to_ne_bytes());
    }
}
