//! Records of contents: written, cut, cloned.

use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::declare::widen;
use tarn_ondisk::intent_log::LoggedWrite;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;
use tarn_zil::WrittenData;

use super::{RecordError, failed};
use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::node::{Node, lock_all};
use crate::ops::write::SIZE_MAX;
use crate::types::FileKind;

/// About what is written beside the contents.
const OVERHEAD_BYTES: u64 = 16 << 10;

impl FileSystem {
    #[doc(alias("zfs_replay_write", "zfs_replay_write2"))]
    pub(super) fn replay_write(
        &self,
        write: &LoggedWrite,
        data: Option<&WrittenData>,
        operation: &Operation,
    ) -> Result<(), RecordError> {
        let end = check_range(write.offset, write.length)?;
        let node = self.file_of_record(write.object, operation)?;
        match data {
            Some(data) => {
                check_range(data.offset, widen(data.bytes.len()))?;
                self.write_again(&node, data.offset, &data.bytes, end, operation)
            }
            // The block was stored by its group, and perhaps the size was not.
            None => self.write_again(&node, write.offset, &[], end, operation),
        }
        .map_err(failed(write.object))
    }

    /// Puts bytes into a file, which then reaches at least to `end`, and not for the bytes' sake further.
    fn write_again(
        &self,
        node: &std::sync::Arc<Node>,
        offset: u64,
        bytes: &[u8],
        end: u64,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let _change = lock_all(&[node]);
        let mut facts = (*node.facts()).clone();
        if bytes.is_empty() && end <= facts.size {
            return Ok(());
        }
        let length = widen(bytes.len());
        let tx = self.begin_replay(length + OVERHEAD_BYTES, operation)?;
        let _content = node.content.write();
        let reach = end.max(offset.saturating_add(length));
        self.grow_block(node, &facts, reach, &tx, operation)?;
        if !bytes.is_empty() {
            node.object.write(&tx, offset, bytes, operation)?;
        }
        facts.size = facts.size.max(end);
        facts.contents_changed(self.now());
        self.store(node, facts, &tx, operation)?;
        self.note_replayed(&tx);
        Ok(())
    }

    /// Frees a range; up to the end where it has no length. What ends behind the end of the file moves that.
    #[doc(alias = "zfs_replay_truncate")]
    pub(super) fn replay_truncate(
        &self,
        object: ObjectId,
        offset: u64,
        length: u64,
        operation: &Operation,
    ) -> Result<(), RecordError> {
        let end = check_range(offset, length)?;
        let node = self.file_of_record(object, operation)?;
        let _change = lock_all(&[&node]);
        let cut = (|| {
            let size = node.facts().size;
            if length == 0 && offset < size {
                self.free_contents(&node, offset, operation)?;
            }
            let tx = self.begin_freeing(size.saturating_sub(offset), operation)?;
            let _content = node.content.write();
            let mut facts = (*node.facts()).clone();
            match length {
                0 => self.set_size(&node, &mut facts, offset, &tx, operation)?,
                _ => {
                    if offset < size {
                        let stop = match end >= size {
                            // What is beyond the size is zeros already, so the last block can be freed whole.
                            true => self.to_block_end(&node, size),
                            false => end,
                        };
                        node.object
                            .free_range(&tx, offset, stop - offset, operation)?;
                    }
                    facts.contents_changed(self.now());
                    if end > size {
                        self.set_size(&node, &mut facts, end, &tx, operation)?;
                    }
                }
            }
            self.store(&node, facts, &tx, operation)?;
            self.note_replayed(&tx);
            Ok(())
        })();
        cut.map_err(failed(object))
    }

    /// Blocks of another file become blocks of this one. Only what is in the record itself, or zeros, can be done again.
    #[doc(alias = "zfs_replay_clone_range")]
    pub(super) fn replay_clone(
        &self,
        object: ObjectId,
        (offset, length, block_size): (u64, u64, u64),
        pointers: &[BlockPointer],
        operation: &Operation,
    ) -> Result<(), RecordError> {
        let end = check_range(offset, length)?;
        let node = self.file_of_record(object, operation)?;
        let is_own = |pointer: &BlockPointer| {
            matches!(pointer.kind(), PointerKind::Hole | PointerKind::Embedded)
        };
        if !pointers.iter().all(is_own) {
            return Err(RecordError::NotSupported("blocks shared between files"));
        }
        let count = widen(pointers.len());
        if block_size == 0
            || count
                .checked_mul(block_size)
                .is_none_or(|whole| whole < length)
        {
            return Err(RecordError::Nonsense("it has too few blocks"));
        }
        let mut at = offset;
        for pointer in pointers {
            let part = block_size.min(end - at);
            let block = self.set.env().cache.io().read(pointer, operation);
            let block = block.map_err(|_| RecordError::Nonsense("a block cannot be expanded"))?;
            let mut bytes = block.to_vec();
            let size = usize::try_from(part)
                .ok()
                .filter(|_| part <= LENGTH_MAX)
                .ok_or(RecordError::Nonsense("no block has this size"))?;
            bytes.resize(size, 0);
            self.write_again(&node, at, &bytes, at + part, operation)
                .map_err(failed(object))?;
            at += part;
        }
        Ok(())
    }

    fn file_of_record(
        &self,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<std::sync::Arc<Node>, RecordError> {
        let node = self.node_of_record(id, operation)?;
        match node.facts().kind() {
            FileKind::Regular => Ok(node),
            _ => Err(RecordError::Nonsense("it is about what has no contents")),
        }
    }
}

/// Largest block of a file.
const LENGTH_MAX: u64 = 16 << 20;

/// Where a range ends, if files can reach so far.
fn check_range(offset: u64, length: u64) -> Result<u64, RecordError> {
    offset
        .checked_add(length)
        .filter(|end| *end <= SIZE_MAX)
        .ok_or(RecordError::Nonsense("no file reaches so far"))
}
