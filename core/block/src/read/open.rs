//! The second stage of reading: encrypted blocks are opened with the key of their object set.
//!
//! # Mechanism
//! No keys are loaded yet, so what is encrypted is refused, by the name of its object set. Of
//! blocks of dnodes only the bonuses are encrypted: the pointers that lead to blocks are plain,
//! and such blocks pass.

use crate::error::ReadError;
use crate::scope::BlockScope;
use crate::stored::StoredPointer;
use tarn_host::buffer::Buffer;
use tarn_ondisk::object_type::ObjectType;

/// The compressed contents, of bytes that verified; without the padding of the last sector.
///
/// # Errors
/// The block is encrypted.
pub(super) fn open(
    stored: &StoredPointer<'_>,
    scope: BlockScope,
    mut bytes: Buffer,
) -> Result<Buffer, ReadError> {
    let is_dnodes = stored.pointer.object_type() == ObjectType::Dnode;
    if stored.pointer.is_encrypted() && !is_dnodes {
        return Err(ReadError::Encrypted {
            block: stored.address(),
            scope,
        });
    }
    assert!(bytes.len() >= stored.physical_bytes(), "it verified");
    bytes.truncate(stored.physical_bytes());
    Ok(bytes)
}
