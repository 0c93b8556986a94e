//! Handles: what the kernel repeats in each request about an open file.
//!
//! The object is all there is to an open file, and requests name it. But not all of them say how the file was opened, so that is what
//! its handle says.

use tarn_engine::files::Share;

/// How a file was opened, as the kernel knows it (`fh`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handle(u64);

impl Handle {
    /// Nothing that matters later.
    pub const PLAIN: Handle = Handle(0);

    /// The file was opened with `O_SYNC` or `O_DSYNC`.
    const SYNCED: u64 = 1 << 0;
    /// The file was opened for reading and writing.
    const BOTH_WAYS: u64 = 1 << 1;
    /// The file was opened with `O_NOATIME`.
    const UNNOTED: u64 = 1 << 2;
    /// The kernel does not tell when a descriptor is closed.
    const UNFLUSHED: u64 = 1 << 3;
    /// The file was opened for reading.
    const READS: u64 = 1 << 4;
    /// The file was opened for writing.
    const WRITES: u64 = 1 << 5;
    /// From this bit on there is a number of its own.
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

    /// The same, of which the kernel tells only when its last descriptor is closed. The number tells it
    /// from others.
    pub fn unflushed(self, number: u64) -> Handle {
        Handle(self.0 | Handle::UNFLUSHED | (number << Handle::NUMBER_SHIFT))
    }

    /// Whether the kernel tells only when the last descriptor is closed.
    pub fn is_unflushed(self) -> bool {
        self.0 & Handle::UNFLUSHED != 0
    }

    /// How the file is open, for those who would deny that. It denies nothing itself.
    pub fn share(self) -> Share {
        Share {
            reads: self.0 & Handle::READS != 0,
            writes: self.0 & Handle::WRITES != 0,
            ..Share::default()
        }
    }

    /// What a number of the kernel's says.
    pub fn from_number(number: u64) -> Handle {
        Handle(number)
    }

    /// The kernel's number for it.
    pub fn number(self) -> u64 {
        self.0
    }

    /// Whether what is changed through it is answered when it is stored.
    pub fn wants_sync(self) -> bool {
        self.0 & Handle::SYNCED != 0
    }

    /// Whether a program may store into the file without a word to us: into memory that is mapped from it. The kernel lets nobody do so who has not opened it
    /// for reading and writing, and has written all of it back before the file is closed.
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
    fn a_file_is_mapped_by_those_alone_who_may_read_and_write_it() {
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
    fn a_handle_says_whether_reading_is_noted() {
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
    fn a_handle_says_whether_changes_are_to_be_stored_at_once() {
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
