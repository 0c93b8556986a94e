//! Write-back of memory-mapped files before a mount ends.
//!
//! # Problem
//! A program's stores to mapped memory are only in the kernel's pages until it writes them back,
//! some half a minute later. When a mount ends while its files are in use (a forced unmount, a
//! daemon that stops), the kernel has no server left to send them to, and drops them.
//!
//! # Mechanism
//! The kernel gets a notice that the contents of each possibly mapped file have changed. It drops
//! their pages, and writes dirty ones back before that (`launder_folio`); then the notice returns.
//! That needs no path to the mount, which may be in another namespace, or unmounted everywhere.
//! (`syncfs` would need one; it would also keep the mount in use meanwhile.)
//!
//! # Invariants
//! - The mount is served meanwhile: the notice waits for writes, and for reads that hold pages. So
//!   it is sent from a thread of its own, which does not count as a serving thread.
//! - The wait ends when nothing has been written for some time: a pool that does not answer does
//!   not block the unmount.

use super::Server;
use rustix::io::Errno;
use std::sync::mpsc;
use std::time::Duration;
use thiserror::Error;

/// Why pages of mapped files were not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotWritten {
    /// Nothing was written for too long.
    #[error("it takes too long")]
    Late,
    /// The file system refused the write, or the notice failed.
    #[error("{0}")]
    Refused(Errno),
}

impl Server {
    /// Has the kernel write back dirty pages of mapped files of a mount, and waits for that.
    ///
    /// # Errors
    /// [`NotWritten`]. Pages that could not be written are lost, and the kernel reports that to
    /// programs that ask (`msync`, `fsync`).
    pub fn write_back(&self, key: u64, patience: Duration) -> Result<(), NotWritten> {
        let Some(mount) = self.find(key) else {
            return Ok(());
        };
        let nodes = mount.session.mapped_nodes();
        if nodes.is_empty() {
            return Ok(());
        }
        // Earlier refusals were reported to their programs.
        let _ = mount.session.take_refusal();
        let (tell, told) = mpsc::channel();
        let asked = mount.clone();
        let started = std::thread::Builder::new()
            .name("fuse-write-back".to_string())
            .spawn(move || {
                for node in nodes {
                    asked.device.forget_contents(node);
                }
                // The receiver has gone if it took too long.
                let _ = tell.send(());
            });
        started.map_err(|_| NotWritten::Refused(Errno::AGAIN))?;
        let mut written = mount.session.pages_written();
        while told.recv_timeout(patience) == Err(mpsc::RecvTimeoutError::Timeout) {
            let before = std::mem::replace(&mut written, mount.session.pages_written());
            if before == written {
                return Err(NotWritten::Late);
            }
        }
        match mount.session.take_refusal() {
            None => Ok(()),
            Some(errno) => Err(NotWritten::Refused(errno)),
        }
    }

    /// Has the kernel drop caches that depend on properties of a mounted file system.
    pub fn properties_changed(&self, key: u64) {
        if let Some(mount) = self.find(key) {
            mount.session.properties_changed(&mount.device);
        }
    }

    /// Has the kernel drop attributes that it got before the file's blocks were stored.
    pub fn group_stored(&self, key: u64) {
        if let Some(mount) = self.find(key) {
            mount.session.group_stored(&mount.device);
        }
    }
}
