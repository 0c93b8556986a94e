//! Opening and closing: a file that is removed while it is open is freed when it is closed.

use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::node::Node;
use crate::types::FileKind;

impl FileSystem {
    /// Counts an open of a file. The file stays in memory, and on disk, until it is closed as
    /// often.
    ///
    /// # Errors
    /// `NotFound`, or what could not be read.
    pub fn opened(&self, id: ObjectId, operation: &Operation) -> Result<(), PosixError> {
        if self.control_entry(id).is_some() {
            return Ok(());
        }
        let node = self.node(id, operation)?;
        if node.open() {
            Ok(())
        } else {
            Err(PosixError::NotFound)
        }
    }

    /// Refuses to open a file for writing on a read-only mount, or where its flags forbid writing,
    /// or all writing but appending. Devices and pipes may be opened on a read-only mount, since
    /// that changes nothing here.
    ///
    /// # Errors
    /// [`PosixError::ReadOnly`], [`PosixError::NotPermitted`]; or when there is no such file, or it
    /// cannot be read.
    pub fn check_writing(
        &self,
        id: ObjectId,
        appends: bool,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if self.control_entry(id).is_some() {
            return Ok(());
        }
        let facts = self.node(id, operation)?.facts();
        if facts.kind() == FileKind::Regular {
            self.check_writable()?;
        }
        FileSystem::check_contents_flags(&facts, appends)
    }

    /// Counts a close of a file. The last close of a file without a name frees it.
    ///
    /// # Errors
    /// When a file without a name cannot be freed now (it stays in the unlinked set, and is freed
    /// at the next mount), or an access time cannot be stored.
    pub fn closed(&self, id: ObjectId, operation: &Operation) -> Result<(), PosixError> {
        let Some(node) = self.nodes.find(id) else {
            return Ok(());
        };
        if !node.close() {
            return Ok(());
        }
        if node.facts().links == 0 && !self.properties().is_read_only {
            return self.free_if_unused(&node, operation);
        }
        self.store_access_time(&node, operation)
    }

    /// Stores the access time of a file that was only read, if there is one to be stored.
    pub(crate) fn store_access_time(
        &self,
        node: &Node,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if node.accessed.lock().is_none() {
            return Ok(());
        }
        let _change = node.change.lock();
        if node.is_gone() || self.properties().is_read_only {
            *node.accessed.lock() = None;
            return Ok(());
        }
        let tx = self.begin_freeing(0, operation)?;
        self.store(node, (*node.facts()).clone(), &tx, operation)
    }
}
