//! `INIT`: the capabilities that are negotiated with the kernel when a mount begins.

use super::Session;
use crate::permission_checks::PermissionChecks;
use crate::protocol::{Answer, Arguments, MAJOR, MINOR, WRITE_BYTES_MAX, init_flags};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// The capabilities wanted. Not `AUTO_INVAL_DATA`, which drops pages when a modification time
/// moves: all changes of a mounted file come through its mount or by notices. Not `ASYNC_DIO`: for
/// a direct write the kernel drops the pages of the range when it is sent, and once more after its
/// answer only if the writer waits for that. Reads through the page cache in between would bring
/// the old bytes back and leave them there. A notice cannot repair that: a notice that drops pages
/// waits for reads, and those wait for the answers of the writes.
const WANTED: u64 = init_flags::ASYNC_READ
    | init_flags::POSIX_LOCKS
    | init_flags::FLOCK_LOCKS
    | init_flags::EXPORT_SUPPORT
    | init_flags::BIG_WRITES
    | init_flags::DONT_MASK
    | init_flags::DO_READDIRPLUS
    | init_flags::READDIRPLUS_AUTO
    | init_flags::PARALLEL_DIROPS
    | init_flags::HANDLE_KILLPRIV_V2
    | init_flags::POSIX_ACL
    | init_flags::MAX_PAGES
    | init_flags::CACHE_SYMLINKS
    | init_flags::SETXATTR_EXT
    | init_flags::INIT_EXT
    | init_flags::ALLOW_IDMAP;

/// Capabilities by which the kernel checks permissions itself, or does not name the user.
const OF_KERNEL_CHECKS: u64 = init_flags::POSIX_ACL | init_flags::ALLOW_IDMAP;

/// Requests that the kernel may have in flight in the background (read-ahead, write-back). Linux's
/// default is 12.
const BACKGROUND_MAX: u16 = 64;

/// The kernel's pages in the largest request.
const PAGES_MAX: u16 = 256;

impl Session {
    /// Whether this capability was negotiated.
    pub(crate) fn agreed_on(&self, capability: u64) -> bool {
        // Negotiated before the kernel sends anything else.
        self.agreed.load(Ordering::Relaxed) & capability != 0
    }

    /// Answers the kernel's first request: version and capabilities.
    pub(super) fn initialise(&self, mut arguments: Arguments<'_>) -> Result<Answer, Errno> {
        let (major, minor) = (arguments.u32()?, arguments.u32()?);
        let mut answer = Answer::new();
        if major > MAJOR {
            // The kernel asks again with this version.
            answer.u32(MAJOR).u32(MINOR).zeros(56);
            return Ok(answer);
        }
        if major < MAJOR || minor < 28 {
            return Err(Errno::PROTO);
        }
        let (readahead, low) = (arguments.u32()?, u64::from(arguments.u32()?));
        let high = match low & init_flags::INIT_EXT {
            0 => 0,
            _ => u64::from(arguments.u32()?) << 32,
        };
        let wanted = match self.checks {
            PermissionChecks::Kernel => WANTED,
            PermissionChecks::FileSystem => WANTED & !OF_KERNEL_CHECKS,
        };
        let agreed = (high | low) & wanted;
        self.agreed.store(agreed, Ordering::Relaxed);
        let [low, high] = [agreed & u64::from(u32::MAX), agreed >> 32]
            .map(|half| u32::try_from(half).expect("it has 32 bits"));
        answer.u32(MAJOR).u32(MINOR).u32(readahead).u32(low);
        answer.u16(BACKGROUND_MAX).u16(BACKGROUND_MAX / 4 * 3);
        let write_bytes_max = u32::try_from(WRITE_BYTES_MAX).expect("a constant of one mebibyte");
        answer
            .u32(write_bytes_max)
            .u32(1)
            .u16(PAGES_MAX)
            .u16(0)
            .u32(high)
            .zeros(28);
        Ok(answer)
    }
}
