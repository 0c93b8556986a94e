//! File handles (`fh`), which the kernel repeats in each request about an open file.
//!
//! The object is all there is to an open file, and requests name it. But not all of them name the
//! flags of the open, so the handle has these.

use tarn_engine::files::Share;

/// How a file was opened, in the kernel's `fh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle(u64);

impl Handle {
    /// No flag that matters later.
    pub const PLAIN: Handle = Handle(0);

    /// The file was opened with `O_SYNC` or `O_DSYNC`.
    const SYNCED: u64 = 1 << 0;
    /// The file was opened with `O_RDWR`.
    const BOTH_WAYS: u64 = 1 << 1;
    /// The file was opened with `O_NOATIME`.
    const UNNOTED: u64 = 1 << 2;
    /// The kernel sends `FLUSH` only when the last descriptor is closed.
    const UNFLUSHED: u64 = 1 << 3;
    /// The file was opened for reading.
    const READS: u64 = 1 << 4;
    /// The file was opened for writing.
    const WRITES: u64 = 1 << 5;
    /// The bits from here on are a number of the handle's own.
    const NUMBER_SHIFT: u32 = 8;

    /// The handle of a file that is opened with these flags.
    pub fn opened_with(flags: i32) -> Handle {
        let mut handle = Handle::PLAIN;
        if flags & libc::O_DSYNC != 0 {
            handle.0 |= Handle::SYNCED;
        }
        if flags & libc::O_ACCMODE == libc::O_RDWR {
            handle.0 |= Handle::BOTH_WAYS;
        }
        if flags & libc::O_NOATIME != 0 {
            handle.0 |= Handle::UNNOTED;
        }
        if flags & libc::O_ACCMODE != libc::O_WRONLY {
            handle.0 |= Handle::READS;
        }
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            handle.0 |= Handle::WRITES;
        }
        handle
    }

    /// The handle of a directory that is opened with these flags.
    pub fn of_directory(flags: i32) -> Handle {
        Handle(Handle::opened_with(flags).0 & Handle::UNNOTED)
    }

    /// The same with `FOPEN_NOFLUSH`: the kernel sends `FLUSH` only for the last descriptor.
    pub fn unflushed(self) -> Handle {
        Handle(self.0 | Handle::UNFLUSHED)
    }

    /// The same with a number of its own, which tells open files apart.
    pub fn numbered(self, number: u64) -> Handle {
        Handle(self.0 | (number << Handle::NUMBER_SHIFT))
    }

    /// Whether the kernel sends `FLUSH` only for the last descriptor.
    pub fn is_unflushed(self) -> bool {
        self.0 & Handle::UNFLUSHED != 0
    }

    /// The share reservation of the open file. It denies nothing to other holders.
    pub fn share(self) -> Share {
        Share {
            reads: self.0 & Handle::READS != 0,
            writes: self.0 & Handle::WRITES != 0,
            ..Share::default()
        }
    }

    /// The handle with this number.
    pub fn from_number(number: u64) -> Handle {
        Handle(number)
    }

    /// The number of the handle.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Whether changes through it are answered when they are durable.
    pub fn wants_sync(self) -> bool {
        self.0 & Handle::SYNCED != 0
    }

    /// Whether a program may change the file through a shared mapping, which sends no request. The
    /// kernel allows that only for files opened for reading and writing, and writes all pages back
    /// before such a file is closed.
    pub fn may_be_mapped(self) -> bool {
        self.0 & Handle::BOTH_WAYS != 0
    }

    /// Whether reading through it changes the access time.
    pub fn notes_access(self) -> bool {
        self.0 & Handle::UNNOTED == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_open_for_reading_and_writing_may_be_mapped() {
        for (flags, may_be) in [
            (libc::O_RDONLY, false),
            (libc::O_WRONLY | libc::O_DSYNC, false),
            (libc::O_RDWR | libc::O_APPEND, true),
        ] {
            let handle = Handle::opened_with(flags);
            assert_eq!(Handle::from_number(handle.number()).may_be_mapped(), may_be);
        }
    }

    #[test]
    fn a_handle_has_o_noatime() {
        for (flags, is_noted) in [
            (libc::O_RDONLY, true),
            (libc::O_RDWR | libc::O_SYNC, true),
            (libc::O_RDONLY | libc::O_NOATIME, false),
        ] {
            let handle = Handle::opened_with(flags);
            let handle = Handle::from_number(handle.number());
            assert_eq!(handle.notes_access(), is_noted);
        }
    }

    #[test]
    fn a_handle_has_o_sync() {
        for (flags, is_wanted) in [
            (libc::O_RDWR, false),
            (libc::O_RDWR | libc::O_DSYNC, true),
            (libc::O_WRONLY | libc::O_SYNC, true),
        ] {
            let handle = Handle::opened_with(flags);
            assert_eq!(Handle::from_number(handle.number()).wants_sync(), is_wanted);
        }
    }
}
