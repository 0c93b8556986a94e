//! Another name for a file.

use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::facts::Facts;
use crate::filesystem::FileSystem;
use crate::node::lock_existing;
use crate::ops::create::ENTRY_BYTES;
use crate::types::{Attributes, Credentials};

/// How many names a file may have, as Linux counts.
#[doc(alias = "ZFS_LINK_MAX")]
const LINKS_MAX: u64 = (1 << 31) - 1;

impl FileSystem {
    /// Gives a file another name.
    ///
    /// # Errors
    /// `Exists`, `TooManyLinks`, `NotPermitted` for a directory or an immutable file, `CrossDevice` between
    /// projects, `PermissionDenied`, `NoSpace`, `ReadOnly`; nothing has changed then.
    #[doc(alias = "zfs_link")]
    pub fn link(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        parent: ObjectId,
        name: &[u8],
        operation: &Operation,
    ) -> Result<Attributes, PosixError> {
        if self.control_entry(parent).is_some() || self.control_entry(id).is_some() {
            return Err(PosixError::NotPermitted);
        }
        let (node, directory) = (self.node(id, operation)?, self.node(parent, operation)?);
        let change = lock_existing(&[&node, &directory])?;
        self.check_new_entry(credentials, &directory, name, operation)?;
        let mut facts = (*node.facts()).clone();
        let pinned = ZnodeFlags::IMMUTABLE.and(ZnodeFlags::APPEND_ONLY);
        if facts.is_directory() || facts.flags.has_any(pinned) {
            return Err(PosixError::NotPermitted);
        }
        if facts.links == 0 {
            return Err(PosixError::NotFound);
        }
        if facts.links >= LINKS_MAX {
            return Err(PosixError::TooManyLinks);
        }
        check_project(&directory.facts(), &facts)?;
        let tx = self.begin(ENTRY_BYTES, operation)?;
        let now = self.now();
        let table = self.directory(&directory, operation)?;
        table.insert(&tx, name, id, facts.kind())?;
        facts.links += 1;
        facts.parent = parent;
        facts.attributes_changed(now);
        let stored = self
            .store(&node, facts, &tx, operation)
            .and_then(|()| self.count_entries(&directory, 1, 0, now, &tx, operation));
        if let Err(error) = stored {
            let _ = table.remove(&tx, name);
            return Err(error);
        }
        let txg = tx.txg();
        drop((tx, change));
        self.after_change(txg, operation)?;
        Ok(self.node_attributes(&node))
    }
}

/// Refuses to bring a file into a directory whose project all that is within must have.
pub(crate) fn check_project(directory: &Facts, file: &Facts) -> Result<(), PosixError> {
    let inherits = directory.flags.has(ZnodeFlags::INHERIT_PROJECT);
    match inherits && directory.project != file.project {
        true => Err(PosixError::CrossDevice),
        false => Ok(()),
    }
}
