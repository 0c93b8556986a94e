//! Notices to the kernel of what other holders change in the mounted file system.
//!
//! # Mechanism
//! A session is a holder of its file system. When another holder changes something, the kernel gets
//! a notice for the attributes and the pages of the file (`FUSE_NOTIFY_INVAL_INODE`), or for the
//! name in the directory (`FUSE_NOTIFY_INVAL_ENTRY`), in the thread of that holder's operation.
//! Notices wait for locks of the kernel, which it holds while requests of this mount are answered.
//! The wait ends, since that thread serves no request of this mount: a session gets no notices of
//! its own changes.
//!
//! The kernel orders notices with most replies: replies to `GETATTR` and `STATX` that are older
//! than a notice are dropped, lookups and listings hold the lock of the directory that a notice
//! waits for, reads hold the lock of their pages. It does not order attributes that come with a
//! name, or after a change. So, while there are other holders, these are not cached at all
//! ([`Session::changed_cached_s`]), and the kernel asks for them once more.
//!
//! # Pages that programs have stored into
//! The kernel does not tell when a program stores into mapped memory. Before another holder reads
//! or changes a range of a file that is open for reading and writing, the kernel is made to write
//! its pages of the range back, and to drop them. So the holder reads all stores before its
//! request. Stores while another holder writes the same page are not ordered with that write: the
//! kernel writes back whole pages, and the last writer of a page wins, as with NFS.

use super::{Place, Session};
use crate::device::Device;
use crate::kept::attributes_cached_s;
use crate::nodes::Which;
use rustix::io::Errno;
use std::sync::Arc;
use tarn_engine::files::{
    Attributes, Caching, Change, Credentials, Noting, ObjectId, OperationKind, Protocol, TO_END,
    Watcher, Who,
};

impl Session {
    /// From here on this device, the only one of the mount, gets notices of changes.
    pub(crate) fn begin_notices(&self, device: &Arc<Device>) {
        let is_first = self.device.set(Arc::downgrade(device)).is_ok();
        assert!(is_first, "a session is that of one mount");
    }

    pub(super) fn device(&self) -> Option<Arc<Device>> {
        self.device.get()?.upgrade()
    }

    /// Whether other holders change the mounted file system.
    fn is_shared(&self, place: &Place) -> bool {
        place.which == Which::Dataset && place.files.is_held_by_others(self.holding.id())
    }

    /// Seconds for which the kernel may cache attributes that it gets after a change.
    pub(crate) fn changed_cached_s(&self, file: &Place, attributes: &Attributes) -> u64 {
        match self.is_shared(file) {
            true => 0,
            false => attributes_cached_s(attributes),
        }
    }

    /// Contents of a file have changed up to `end`. For the position of an append, and for the end
    /// of a mapping, copy or splice, the kernel uses the size that it has cached. So it is told the
    /// new end of a file that may have grown. A file that has shrunk it finds shorter when it
    /// reads; appends are positioned here ([`Session::appends`]).
    fn tell_end(&self, device: &Device, file: ObjectId, end: u64) {
        let files = self.tree.files();
        let operation = (self.tree).begin(self.who(0), OperationKind::Read, file, (0, 0));
        let size = files.attributes(file, &operation).map(|found| found.size);
        if let Ok(size) = size
            && size > 0
            && end >= size
        {
            let (root, caching, noting) = (Credentials::root(), Caching::Ours, Noting::Nothing);
            let read = files.read_caching(&root, file, size - 1, 1, caching, noting, &operation);
            if let Some(last) = read.ok().and_then(|read| read.to_vec().first().copied()) {
                device.tell_end(self.node_of(Which::Dataset, files, file), size, last);
            }
        }
        self.tree.finish(operation);
    }

    /// Whether a write through a file that was opened with these flags is an append, whose position
    /// from the kernel may be out of date: another holder may have moved the end.
    pub(crate) fn appends(&self, file: &Place, flags: u32) -> bool {
        flags & libc::O_APPEND.cast_unsigned() != 0 && self.is_shared(file)
    }

    /// An append was written at another position than the kernel has: it drops the pages into which
    /// it has put the bytes. They are locked until the write is answered.
    pub(crate) fn appended_elsewhere(&self, node: u64) {
        let Some(device) = self.device() else {
            return;
        };
        let forget = move || {
            let _ = device.forget_range(node, 0, TO_END);
        };
        // If no thread can be started, the kernel finds out by the attributes.
        let _ = std::thread::Builder::new()
            .name("fuse-forget".to_string())
            .spawn(forget);
    }

    /// The kernel does not know this file. If it was a directory that another holder removed, the
    /// kernel will never send `FORGET` for it.
    fn is_unknown(&self, file: ObjectId) {
        let files = self.tree.files();
        if files.has_removed_directories() {
            let who = Who {
                protocol: Protocol::Internal,
                ..self.who(0)
            };
            let operation = self.tree.begin(who, OperationKind::Close, file, (0, 0));
            // If it cannot be freed now, the next mount frees it.
            let _ = files.forgotten(file, &operation);
            self.tree.finish(operation);
        }
    }
}

impl Watcher for Session {
    fn changed(&self, change: &Change<'_>) {
        let Some(device) = self.device() else {
            return;
        };
        let node_of = |id| self.node_of(Which::Dataset, self.tree.files(), id);
        match *change {
            Change::Attributes { file } => {
                if device.forget_attributes(node_of(file)) == Err(Errno::NOENT) {
                    self.is_unknown(file);
                }
            }
            Change::Contents {
                file,
                offset,
                length,
            } => match device.forget_range(node_of(file), offset, length) {
                Err(Errno::NOENT) => {}
                _ => self.tell_end(&device, file, offset.saturating_add(length)),
            },
            Change::Entry { directory, name } => {
                let node = node_of(directory);
                let _ = device.forget_attributes(node);
                device.forget_name(node, name);
            }
            Change::Everything => self.properties_changed(&device),
        }
    }

    fn write_back(&self, file: ObjectId, offset: u64, length: u64) {
        if !self.mapped().contains_key(&file) {
            return;
        }
        if let Some(device) = self.device() {
            let node = self.node_of(Which::Dataset, self.tree.files(), file);
            let _ = device.forget_range(node, offset, length);
        }
    }
}
