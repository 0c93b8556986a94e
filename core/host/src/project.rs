//! The project number of a file of this machine, and whether new files in a directory inherit it.
//!
//! Linux has both, with other flags, in one structure that is read and written as a whole.

use crate::error::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `FS_IOC_FSGETXATTR` and `FS_IOC_FSSETXATTR` of linux/fs.h; libc does not name them.
const GET: libc::c_ulong = 0x801c_581f;
const SET: libc::c_ulong = 0x401c_5820;
/// `FS_XFLAG_PROJINHERIT`.
const HANDS_DOWN: u32 = 0x200;

/// What Linux knows of a file beyond its mode.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "fsxattr")]
pub struct FileProject {
    flags: u32,
    extent_bytes: u32,
    extent_count: u32,
    project: u32,
    copy_extent_bytes: u32,
    reserved: [u32; 2],
}

impl FileProject {
    /// That of an open file.
    ///
    /// # Errors
    /// What the system said; `ENOTTY` where the file system has no projects.
    #[allow(unsafe_code)]
    pub fn of(file: BorrowedFd<'_>) -> Result<FileProject, Errno> {
        let mut found = FileProject {
            flags: 0,
            extent_bytes: 0,
            extent_count: 0,
            project: 0,
            copy_extent_bytes: 0,
            reserved: [0; 2],
        };
        // SAFETY: the call writes one structure of this size to the address and touches nothing
        // else of ours.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), GET as _, &raw mut found) };
        match result {
            0 => Ok(found),
            _ => Err(last_errno()),
        }
    }

    /// Gives it to an open file.
    ///
    /// # Errors
    /// What the system said.
    #[allow(unsafe_code)]
    pub fn set(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        // SAFETY: the call reads one structure of this size from the address and touches nothing
        // else of ours.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), SET as _, &raw const *self) };
        match result {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }

    /// The project's number.
    pub fn project(&self) -> u32 {
        self.project
    }

    /// Whether what is made in it belongs to the project, too.
    pub fn hands_down(&self) -> bool {
        self.flags & HANDS_DOWN != 0
    }

    /// The same, of this project.
    pub fn with_project(self, project: u32) -> FileProject {
        FileProject { project, ..self }
    }

    /// The same, so that it hands its project down or does not.
    pub fn handing_down(self, hands_down: bool) -> FileProject {
        let flags = match hands_down {
            true => self.flags | HANDS_DOWN,
            false => self.flags & !HANDS_DOWN,
        };
        FileProject { flags, ..self }
    }
}

fn last_errno() -> Errno {
    let error = std::io::Error::last_os_error();
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_structure_is_the_one_of_linux() {
        assert_eq!(size_of::<FileProject>(), 28);
        let null = std::fs::File::open("/dev/null").unwrap();
        let refused = FileProject::of(null.as_fd()).unwrap_err();
        assert!(
            [libc::ENOTTY, libc::EOPNOTSUPP].contains(&refused.0),
            "{refused:?}"
        );
    }
}
