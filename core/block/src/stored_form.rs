//! The stored form of a block beside the pool: made again from plain contents, and verified and
//! opened when it comes back.
//!
//! # Mechanism
//! A device of the second-level cache holds what the pool holds: the compressed bytes that the
//! pointer's checksum is of. The first level keeps plain contents, so they are compressed again by
//! the pointer's algorithm. An encoder of another program, or another level, makes other bytes:
//! then the checksum differs, and the stored form has to be read from the pool.
//!
//! # Invariants
//! - No bytes leave that the pointer's checksum does not confirm. A block without a checksum has no
//!   such form.

use crate::data::Block;
use crate::error::ReadError;
use crate::io::BlockIo;
use crate::read::plain;
use crate::scope::BlockScope;
use crate::stored::StoredPointer;
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_transform::{CompressionAlgorithm, compress};

impl BlockIo {
    /// Whether the stored form of a block can be kept elsewhere: it has a checksum, and can be
    /// opened here.
    pub fn has_stored_form(&self, pointer: &BlockPointer) -> bool {
        pointer.kind() == PointerKind::Stored
            && !pointer.uses_encryption()
            && StoredPointer::parse(pointer).is_ok_and(|stored| stored.is_checked_by_pointer())
    }

    /// The stored form of a block with these plain contents, of its physical size. None if other
    /// bytes come out than the pool has.
    #[doc(alias = "l2arc_apply_transforms")]
    pub fn stored_form(&self, pointer: &BlockPointer, contents: &Block) -> Option<Block> {
        if !self.has_stored_form(pointer) {
            return None;
        }
        let stored = StoredPointer::parse(pointer).ok()?;
        let size = stored.physical_bytes();
        let form = match stored.compression {
            CompressionAlgorithm::Off => contents.clone(),
            algorithm => {
                let bytes = compress::compress(algorithm, contents, size)?;
                let mut buffer = Buffer::from_slice(&bytes);
                buffer.resize(size);
                Block::new(buffer)
            }
        };
        assert!(
            stored.is_checked_by_pointer(),
            "other bytes would be found out"
        );
        let is_it = form.len() == size && stored.verifies(&form, self.salt());
        is_it.then_some(form)
    }

    /// The plain contents of a block, from its stored form as another device gave it. None if these
    /// are other bytes.
    ///
    /// # Errors
    /// The bytes are the right ones, and cannot be opened.
    pub fn open_stored_form(
        &self,
        pointer: &BlockPointer,
        scope: BlockScope,
        form: Buffer,
    ) -> Option<Result<Block, ReadError>> {
        let stored = StoredPointer::parse(pointer).ok()?;
        let is_it = stored.is_checked_by_pointer() && stored.verifies(&form, self.salt());
        assert!(
            !is_it || form.len() >= stored.physical_bytes(),
            "what verifies is as long as the block"
        );
        is_it.then(|| plain(&stored, scope, form))
    }
}
