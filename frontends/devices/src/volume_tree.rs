//! A FUSE file system whose files are the volumes of one pool.
//!
//! # Mechanism
//! One folder, one file for each volume that has a device, named as the volume is below its pool
//! (`vm+disk` for `tank/vm/disk`: names of datasets have no `+`). It is mounted while the pool has
//! such volumes, below the folder of the instance, and only root can enter it. Files are opened
//! with direct I/O, so Linux keeps nothing of them in its page cache.
//!
//! # Invariants
//! - A node's number is never given to another volume: a file that is open after its volume has
//!   ended gets errors.

use crate::tree_requests::serve;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tarn_engine::mounts::MountOptions;
use tarn_engine::volumes::HeldVolume;
use tarn_fuse::device::Device;
use tarn_fuse::inbox::Request;
use tarn_fuse::{PermissionChecks, mount};
use tarn_serving::{Next, RequestTraits, ServingThreads, Source};

/// The root's node.
pub(crate) const ROOT: u64 = 1;

/// Requests that move more bytes than this take long.
const LONG_BYTES: usize = 64 << 10;

/// Only root may enter the folders.
const FOLDER_MODE: u32 = 0o700;

/// The volumes of one pool as files.
pub struct VolumeTree {
    folder: PathBuf,
    files: Arc<Files>,
}

/// The nodes, which requests are about.
pub(crate) struct Files {
    nodes: Mutex<Nodes>,
}

#[derive(Default)]
struct Nodes {
    by_number: BTreeMap<u64, Node>,
    last: u64,
}

/// A file.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) volume: Arc<HeldVolume>,
}

impl Files {
    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        // A thread that panicked under the lock was inserting or removing one entry.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, number: u64) -> Option<Node> {
        self.nodes().by_number.get(&number).cloned()
    }

    pub(crate) fn named(&self, name: &[u8]) -> Option<(u64, Node)> {
        let nodes = self.nodes();
        let mut all = nodes.by_number.iter();
        let found = all.find(|(_, node)| node.name.as_bytes() == name);
        found.map(|(number, node)| (*number, node.clone()))
    }

    /// All, by their numbers from this one on.
    pub(crate) fn from(&self, number: u64) -> Vec<(u64, String)> {
        let nodes = self.nodes();
        let rest = nodes.by_number.range(number..);
        rest.map(|(number, node)| (*number, node.name.clone()))
            .collect()
    }
}

impl VolumeTree {
    /// Mounts the tree of a pool on a folder below `above`, which is made if it is missing.
    ///
    /// # Errors
    /// What is missing, as text.
    pub fn mount(above: &Path, pool: &str, threads: &ServingThreads) -> Result<VolumeTree, String> {
        let unusable = |error: io::Error| {
            let why = tarn_engine::words_of(&error);
            format!("cannot use {}: {why}", above.display())
        };
        let mut builder = std::fs::DirBuilder::new();
        let builder = builder.recursive(true).mode(FOLDER_MODE);
        builder.create(above.join(pool)).map_err(unusable)?;
        // Mounts are on paths without symbolic links.
        let folder = std::fs::canonicalize(above.join(pool)).map_err(unusable)?;
        let options = MountOptions {
            read_only: false,
            devices: false,
            exec: false,
            setuid: false,
            atime: false,
        };
        let source = format!("volumes of {pool}");
        let descriptor = mount::mount(&source, &folder, options, PermissionChecks::Kernel)
            .map_err(|error| error.to_string())?;
        let files = Arc::new(Files {
            nodes: Mutex::new(Nodes {
                last: ROOT,
                ..Nodes::default()
            }),
        });
        let mounted = MountedTree {
            device: Device::new(descriptor),
            files: files.clone(),
        };
        if let Err(errno) = threads.add(Arc::new(mounted), pool) {
            let _ = mount::unmount(&folder, true);
            return Err(tarn_engine::words_of(&errno.into()));
        }
        Ok(VolumeTree { folder, files })
    }

    /// Adds a file of a volume. Returns its node and its path.
    pub fn add(&self, volume: &Arc<HeldVolume>) -> (u64, PathBuf) {
        let name = file_name(&volume.name());
        let path = self.folder.join(&name);
        let mut nodes = self.files.nodes();
        nodes.last += 1;
        let number = nodes.last;
        let node = Node {
            name,
            volume: volume.clone(),
        };
        let before = nodes.by_number.insert(number, node);
        assert!(before.is_none(), "numbers are given once");
        (number, path)
    }

    /// Removes a file. Returns whether there are others.
    pub fn remove(&self, number: u64) -> bool {
        let mut nodes = self.files.nodes();
        nodes.by_number.remove(&number);
        !nodes.by_number.is_empty()
    }

    /// The file's volume has another name. Returns its path.
    pub fn rename(&self, number: u64, volume: &str) -> PathBuf {
        let name = file_name(volume);
        let path = self.folder.join(&name);
        if let Some(node) = self.files.nodes().by_number.get_mut(&number) {
            node.name = name;
        }
        path
    }

    /// Where a file is.
    pub fn path_of(&self, number: u64) -> Option<PathBuf> {
        let node = self.files.find(number)?;
        Some(self.folder.join(node.name))
    }

    /// Unmounts it. Files that are still open are served until they are closed.
    pub fn unmount(&self) {
        let _ = mount::unmount(&self.folder, true);
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// The name of a volume's file: its name below the pool.
fn file_name(volume: &str) -> String {
    let (_, below) = volume.split_once('/').unwrap_or(("", volume));
    below.replace('/', "+")
}

/// The mount of a tree, as the serving threads know it.
pub(crate) struct MountedTree {
    pub(crate) device: Device,
    pub(crate) files: Arc<Files>,
}

impl Source for MountedTree {
    type Request = Request;
    type DelayedReply = std::convert::Infallible;

    fn new_request() -> Request {
        Request::room()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.device.descriptor()
    }

    fn take_request(&self, request: &mut Request) -> Next {
        match request.read(self.device.descriptor()) {
            Ok(()) => Next::Request(RequestTraits {
                is_long: request.length() > LONG_BYTES || crate::tree_requests::reads_much(request),
                is_waited_for: true,
                may_delay_reply: false,
            }),
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => Next::Nothing,
            Err(_) => Next::Ended,
        }
    }

    fn serve(&self, request: &mut Request) -> Option<Self::DelayedReply> {
        serve(self, request);
        None
    }

    fn reply_when_durable(&self, delayed: Vec<Self::DelayedReply>) {
        debug_assert!(delayed.is_empty(), "no reply is delayed");
    }

    fn gone(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_as_its_volume_below_the_pool() {
        assert_eq!(file_name("tank/a"), "a");
        assert_eq!(file_name("tank/a/b c@s"), "a+b c@s");
    }
}
