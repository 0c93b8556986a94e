//! What programs have stored into mapped memory is asked from the kernel before a mount ends.
//!
//! # Problem
//! Such bytes are in the kernel's pages alone until it writes them back, some half a minute later.
//! When a mount ends while its files are in use (a forced unmount, a daemon that stops), the kernel
//! has nobody left to give them to, and drops them.
//!
//! # Mechanism
//! The kernel is told that the contents of each file that may be mapped are others than it has. It
//! drops their pages, and writes those back before that are dirty (`launder_folio`); then the
//! notice returns. That needs no path to the mount, which may be in another namespace, or in no
//! folder any more. (`syncfs` would need one; it would also keep the mount in use meanwhile.)
//!
//! # Invariants
//! - The mount is served meanwhile: the notice waits for writes, and for reads that hold pages. So
//!   it is sent from a thread of its own, which counts for no bound of threads that serve.
//! - Whoever waits goes on when nothing has been written for some time: a pool that does not answer
//!   keeps nobody.

use super::Server;
use rustix::io::Errno;
use std::sync::mpsc;
use std::time::Duration;
use thiserror::Error;

/// Why something that is in mapped memory was not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotWritten {
    /// Nothing has been written for too long.
    #[error("it takes too long")]
    Late,
    /// The file system refused it, or the system did not let it be asked for.
    #[error("{0}")]
    Refused(Errno),
}

impl Server {
    /// Has the kernel write back what programs have stored into mapped files of a mount, and waits
    /// until that is done.
    ///
    /// # Errors
    /// [`NotWritten`]. What could not be written is lost, and programs that ask (`msync`, `fsync`)
    /// are told so by the kernel.
    pub fn write_back(&self, key: u64, patience: Duration) -> Result<(), NotWritten> {
        let Some(mount) = self.find(key) else {
            return Ok(());
        };
        let nodes = mount.session.mapped_nodes();
        if nodes.is_empty() {
            return Ok(());
        }
        // What was refused before was told to the programs that it belongs to.
        let _ = mount.session.take_refusal();
        let (tell, told) = mpsc::channel();
        let asked = mount.clone();
        let started = std::thread::Builder::new()
            .name("fuse-write-back".to_string())
            .spawn(move || {
                for node in nodes {
                    asked.device.forget_contents(node);
                }
                // Nobody waits any more where it took too long.
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

    /// Has the kernel ask anew for what follows from properties of a mounted file system.
    pub fn properties_changed(&self, key: u64) {
        if let Some(mount) = self.find(key) {
            mount.session.properties_changed(&mount.device);
        }
    }

    /// Has the kernel ask anew for what it was told before all of it was stored.
    pub fn group_stored(&self, key: u64) {
        if let Some(mount) = self.find(key) {
            mount.session.group_stored(&mount.device);
        }
    }
}
