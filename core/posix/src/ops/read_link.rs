//! Reading the target of a symbolic link.

use tarn_object::Caching;
use tarn_ondisk::attributes::FileAttribute;
use tarn_ondisk::declare::narrow;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::facts::Form;
use crate::filesystem::FileSystem;
use crate::types::{Credentials, FileKind};

/// The longest target, as Linux has it.
const TARGET_BYTES_MAX: u64 = 4096;

impl FileSystem {
    /// The target of a symbolic link: an attribute, or, of old files, what follows the structure in
    /// the bonus, or the contents.
    ///
    /// # Errors
    /// `Invalid` for what is no symbolic link, `NotFound`, or what could not be read.
    pub fn read_link(
        &self,
        _credentials: &Credentials,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<Vec<u8>, PosixError> {
        let node = self.node(id, operation)?;
        let facts = node.facts();
        if facts.kind() != FileKind::SymbolicLink {
            return Err(PosixError::Invalid("not a symbolic link"));
        }
        self.note_access_and_tell(&node, operation);
        let tables = self.tables.current();
        if let Some(target) = facts.value(FileAttribute::LinkTarget, &tables) {
            return Ok(target.to_vec());
        }
        if facts.size > TARGET_BYTES_MAX {
            return Err(PosixError::Damaged {
                object: id,
                why: "a link's target is too long",
            });
        }
        let size = narrow(facts.size);
        if let Form::OldFile { tail } = &facts.form
            && let Some(target) = tail.get(..size)
        {
            return Ok(target.to_vec());
        }
        Ok(self
            .read_node(&node, 0, size, Caching::Ours, operation)?
            .to_vec())
    }
}
