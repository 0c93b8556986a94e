//! A shared mapping of a file: memory that is the file.
//!
//! Mapped files take another way through a kernel than `read` and `write`, and a file system must
//! answer the same by both. This is the one place in the workloads that needs `unsafe`: no safe
//! interface to `mmap` exists, because another process may change the file under a reference. No
//! reference into the mapping is ever made here; bytes are copied in and out by pointer.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

/// The first `length` bytes of a file, shared with it.
#[derive(Debug)]
pub struct Mapping {
    address: *mut libc::c_void,
    length: usize,
}

impl Mapping {
    /// Maps the first `length` bytes, to read and write. The file must be at least so long, and may
    /// not be made shorter while the mapping lives.
    ///
    /// # Errors
    /// What the system says: the file is not open for both, or cannot be mapped.
    ///
    /// # Panics
    /// When `length` is zero.
    pub fn new(file: &File, length: usize) -> io::Result<Self> {
        assert!(length > 0, "an empty mapping does not exist");
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { address, length })
    }

    /// Copies bytes out of the file.
    ///
    /// # Panics
    /// When they are not inside the mapping.
    pub fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        assert!(
            offset + bytes.len() <= self.length,
            "the copy ends inside the mapping"
        );
        // SAFETY: the range is inside the mapping (asserted), which lives as long as `self`;
        // `bytes` is ours alone and cannot overlap memory the kernel chose as free.
        unsafe {
            let from = self.address.cast::<u8>().add(offset);
            ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
    }

    /// Copies bytes into the file.
    ///
    /// # Panics
    /// When they are not inside the mapping.
    pub fn copy_in(&mut self, offset: usize, bytes: &[u8]) {
        assert!(
            offset + bytes.len() <= self.length,
            "the copy ends inside the mapping"
        );
        // SAFETY: as in `copy_out`, and `&mut self` keeps other copies of ours away.
        unsafe {
            let to = self.address.cast::<u8>().add(offset);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Waits until what was copied in has reached the file system.
    ///
    /// # Errors
    /// What of it could not be written.
    pub fn flush(&self) -> io::Result<()> {
        // SAFETY: the address and length are those of a living mapping.
        match unsafe { libc::msync(self.address, self.length, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, nothing points into it, and it is given up once.
        unsafe { libc::munmap(self.address, self.length) };
    }
}
