//! What other holders change of the mounted file system: the kernel is told.
//!
//! # Mechanism
//! A session is a holder of its file system. When another one changes something, the kernel is
//! sent a notice for the attributes and the pages of the file (`FUSE_NOTIFY_INVAL_INODE`), or for
//! the name in the directory (`FUSE_NOTIFY_INVAL_ENTRY`), in the thread of that holder's
//! operation. Notices wait for locks of the kernel, which it holds while requests of this mount
//! are answered. That ends, since the thread serves no request of this mount: what it does itself
//! it is not told of.
//!
//! The kernel orders notices and what it is told otherwise: answers to `GETATTR` and `STATX` that
//! are older than a notice are dropped, lookups and listings hold the lock of the directory that
//! a notice waits for, reads hold the lock of their pages. It does not order attributes that come
//! with a name, or after a change. So, while there are other holders, these may not be kept at
//! all ([`Session::changed_cached_s`]), and the kernel asks for them once more.
//!
//! # Pages that programs have stored into
//! The kernel does not say when a program stores into mapped memory. Before another holder reads
//! or changes a range of a file that is open for reading and writing, the kernel is made to write
//! its pages of the range back, and to drop them. So the holder reads all that was stored before
//! it asked. What a program stores while another holder writes the same page is not ordered with
//! that: the kernel writes back whole pages, and the last writer of a page wins, as with NFS.

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
    /// From now on the kernel is told of changes by this device, which is the only one of the mount.
    pub(crate) fn begin_notices(&self, device: &Arc<Device>) {
        let is_first = self.device.set(Arc::downgrade(device)).is_ok();
        assert!(is_first, "a session is that of one mount");
    }

    pub(super) fn device(&self) -> Option<Arc<Device>> {
        self.device.get()?.upgrade()
    }

    /// Whether other holders change the file system that is mounted.
    fn is_shared(&self, place: &Place) -> bool {
        place.which == Which::Dataset && place.files.is_held_by_others(self.holding.id())
    }

    /// For how long the kernel may keep attributes that it is told after a change.
    pub(crate) fn changed_cached_s(&self, file: &Place, attributes: &Attributes) -> u64 {
        match self.is_shared(file) {
            true => 0,
            false => attributes_cached_s(attributes),
        }
    }

    /// Contents of a file have changed up to `end`. The kernel goes on with the size that it knew
    /// where it does not ask: for the place of an append, and for the end of what is mapped,
    /// copied or spliced. So it is told of a file that may have grown. One that it takes for too
    /// long it finds shorter when it reads; appends are placed here ([`Session::appends`]).
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

    /// Whether a write through a file that was opened with these flags goes to the end of the file,
    /// though the kernel says where that is: another holder may have moved it.
    pub(crate) fn appends(&self, file: &Place, flags: u32) -> bool {
        flags & libc::O_APPEND.cast_unsigned() != 0 && self.is_shared(file)
    }

    /// An append of the kernel's has ended elsewhere than it thinks: it is made to forget the
    /// pages that it has put the bytes into. They are locked until the write is answered.
    pub(crate) fn appended_elsewhere(&self, node: u64) {
        let Some(device) = self.device() else {
            return;
        };
        let forget = move || {
            let _ = device.forget_range(node, 0, TO_END);
        };
        // Without a thread, it finds out by the attributes.
        let _ = std::thread::Builder::new()
            .name("fuse-forget".to_string())
            .spawn(forget);
    }

    /// The kernel does not know this file. If it was a directory that lost its name through another
    /// holder, the kernel will never say that it forgets it.
    fn is_unknown(&self, file: ObjectId) {
        let files = self.tree.files();
        if files.has_removed_directories() {
            let who = Who {
                protocol: Protocol::Internal,
                ..self.who(0)
            };
            let operation = self.tree.begin(who, OperationKind::Close, file, (0, 0));
            // What cannot be freed now is freed by the next mount.
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
