//! Reading contents: blocks of the cache are handed to the front end uncopied.

pub use tarn_object::ReadData;

use tarn_object::Caching;
use tarn_ondisk::declare::widen;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::holders::Change;
use crate::node::Node;
use crate::ops::access::READ;
use crate::properties::AccessTimes;
use crate::types::{Credentials, FileKind, Noting, Timestamp};

impl FileSystem {
    /// Reads up to `size` bytes from `offset` on, as far as the file reaches. The permission to
    /// read was checked when the file was opened.
    ///
    /// # Errors
    /// `IsDirectory`, `NotFound`, or the block that could not be read.
    pub fn read(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        offset: u64,
        size: usize,
        operation: &Operation,
    ) -> Result<ReadData, PosixError> {
        let (caching, noting) = (Caching::Ours, Noting::Access);
        self.read_caching(credentials, id, offset, size, caching, noting, operation)
    }

    /// As [`read`](Self::read), with the choices whether the cache keeps the blocks, and whether
    /// the access time changes.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    #[expect(
        clippy::too_many_arguments,
        reason = "a range of a file, and two choices"
    )]
    pub fn read_caching(
        &self,
        _credentials: &Credentials,
        id: ObjectId,
        offset: u64,
        size: usize,
        caching: Caching,
        noting: Noting,
        operation: &Operation,
    ) -> Result<ReadData, PosixError> {
        let node = self.node(id, operation)?;
        match node.facts().kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(PosixError::IsDirectory),
            _ => return Err(PosixError::Invalid("only regular files have contents")),
        }
        self.have_written_back(id, offset, widen(size), operation);
        let data = self.read_node(&node, offset, size, caching, operation)?;
        if noting == Noting::Access {
            self.note_access_and_tell(&node, operation);
        }
        Ok(data)
    }

    /// Checks that a user may open a file for reading.
    ///
    /// # Errors
    /// `PermissionDenied`, `NotFound`, or what could not be read.
    pub fn check_read(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        self.access(credentials, id, READ, operation)
    }

    /// Reads the contents of a file in memory.
    pub(crate) fn read_node(
        &self,
        node: &Node,
        offset: u64,
        size: usize,
        caching: Caching,
        operation: &Operation,
    ) -> Result<ReadData, PosixError> {
        let _content = node.content.read();
        let end = node
            .facts()
            .size
            .min(offset.saturating_add(u64::try_from(size).unwrap_or(u64::MAX)));
        let data = node.object.read_data(offset..end, caching, operation)?;
        assert_eq!(
            widen(data.len()),
            end.saturating_sub(offset),
            "a read gives all bytes up to its end"
        );
        Ok(data)
    }

    /// Sets the access time of a file that was read, by the property `atime`. It is stored with the
    /// next change of the file, when the file is closed, or when the file system is synced. True if
    /// it changed.
    pub(crate) fn note_access(&self, node: &Node) -> bool {
        let now = self.now();
        let is_due = self.is_access_due(node, now);
        if is_due {
            *node.accessed.lock() = Some(now);
        }
        is_due
    }

    /// As [`note_access`](Self::note_access), and tells the other holders. The caller holds no
    /// locks.
    pub(crate) fn note_access_and_tell(&self, node: &Node, operation: &Operation) {
        if self.note_access(node) {
            self.tell(Change::Attributes { file: node.id }, operation);
        }
    }

    /// Whether reading this file now would change its access time. A front end that answers reads
    /// from a cache of its own asks this.
    ///
    /// # Errors
    /// When there is no such file, or it cannot be read.
    pub fn would_note_access(
        &self,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<bool, PosixError> {
        let node = self.node(id, operation)?;
        Ok(self.is_access_due(&node, self.now()))
    }

    fn is_access_due(&self, node: &Node, now: Timestamp) -> bool {
        let properties = self.properties();
        if properties.is_read_only || properties.access_times == AccessTimes::Never {
            return false;
        }
        let facts = node.facts();
        let accessed = *node.accessed.lock();
        let last = accessed.unwrap_or(facts.accessed).max(facts.accessed);
        let changed = facts.modified.max(facts.changed);
        properties.access_times == AccessTimes::Always || is_stale(last, changed, now)
    }
}

/// Whether an access time is due by the rule of `relatime`.
fn is_stale(last: Timestamp, changed: Timestamp, now: Timestamp) -> bool {
    const DAY_SECONDS: i64 = 24 * 60 * 60;
    last <= changed || now.seconds.saturating_sub(last.seconds) >= DAY_SECONDS
}
