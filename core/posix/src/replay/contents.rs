//! Replay of records of contents: `TX_WRITE`, `TX_TRUNCATE`, `TX_CLONE_RANGE`.

use tarn_ondisk::block_pointer::{BlockPointer, SECTOR_BYTES};
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::intent_log::LoggedWrite;
use tarn_ondisk::units::{BlockId, LogicalSize, ObjectId};
use tarn_probe::Operation;
use tarn_zil::WrittenData;

use super::{RecordError, failed};
use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::node::{Node, lock_all};
use crate::ops::write::SIZE_MAX;
use crate::types::FileKind;

/// About how much is written beside the contents.
const OVERHEAD_BYTES: u64 = 16 << 10;
/// About how much space a block pointer takes.
const POINTER_BYTES: u64 = 128;

/// A part of a record that takes several transactions. The last part notes the record as applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Earlier,
    Last,
}

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
            // The block was stored by its txg, but perhaps not the size.
            None => self.write_again(&node, write.offset, &[], end, operation),
        }
        .map_err(failed(write.object))
    }

    /// Writes bytes of a record into a file up to `end`, which the file reaches then. Notes the
    /// record as applied.
    fn write_again(
        &self,
        node: &std::sync::Arc<Node>,
        offset: u64,
        bytes: &[u8],
        end: u64,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        self.write_part_again(node, offset, bytes, end, Part::Last, operation)
    }

    /// The same for a part of a record.
    fn write_part_again(
        &self,
        node: &std::sync::Arc<Node>,
        offset: u64,
        bytes: &[u8],
        end: u64,
        part: Part,
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
        if part == Part::Last {
            self.note_replayed(&tx);
        }
        Ok(())
    }

    /// Replays a truncation: frees a range, to the end of the file where the length is zero. A
    /// range that ends behind the end of the file extends the file.
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
                            // Bytes beyond the size are zeros already, so the last block can be
                            // freed whole.
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

    /// Replays a clone of blocks of another file. The claim of the log holds a reference to each of
    /// them until the log is freed.
    #[doc(alias("zfs_replay_clone_range", "zfs_clone_range_replay"))]
    pub(super) fn replay_clone(
        &self,
        object: ObjectId,
        (offset, length, block_size): (u64, u64, u64),
        pointers: &[BlockPointer],
        operation: &Operation,
    ) -> Result<(), RecordError> {
        let end = check_range(offset, length)?;
        let node = self.file_of_record(object, operation)?;
        if !(1..=LENGTH_MAX).contains(&block_size)
            || widen(pointers.len()) != length.div_ceil(block_size)
        {
            return Err(RecordError::Nonsense(
                "its blocks are not what its range has",
            ));
        }
        let is_done = self.clone_again(&node, (offset, end, block_size), pointers, operation);
        match is_done.map_err(failed(object))? {
            true => Ok(()),
            false => self.copy_again(&node, (offset, end, block_size), pointers, operation),
        }
    }

    /// Clones blocks into a file. False where that is not possible; then at most the file's block
    /// size has changed.
    fn clone_again(
        &self,
        node: &std::sync::Arc<Node>,
        (offset, end, block_size): (u64, u64, u64),
        pointers: &[BlockPointer],
        operation: &Operation,
    ) -> Result<bool, PosixError> {
        let _change = lock_all(&[node]);
        let room = widen(pointers.len()) * POINTER_BYTES + OVERHEAD_BYTES;
        let tx = self.begin_replay(room, operation)?;
        let _content = node.content.write();
        let object = &node.object;
        let has = object.block_size().get();
        let may_grow = object.max_block().is_zero() && node.facts().size <= has;
        let has_whole_blocks =
            offset.is_multiple_of(block_size) && block_size.is_multiple_of(SECTOR_BYTES);
        if !has_whole_blocks || has > block_size || has != block_size && !may_grow {
            return Ok(false);
        }
        object.set_block_size(&tx, LogicalSize::from(block_size), operation)?;
        if !pointers.iter().all(|pointer| object.accepts_clone(pointer)) {
            return Ok(false);
        }
        let first = BlockId::from(offset / block_size);
        object.clone_blocks(&tx, first, pointers, operation)?;
        let mut facts = (*node.facts()).clone();
        facts.size = facts.size.max(end);
        facts.contents_changed(self.now());
        self.store(node, facts, &tx, operation)?;
        self.note_replayed(&tx);
        Ok(true)
    }

    /// Copies the contents of blocks of other files into a file.
    fn copy_again(
        &self,
        node: &std::sync::Arc<Node>,
        (offset, end, block_size): (u64, u64, u64),
        pointers: &[BlockPointer],
        operation: &Operation,
    ) -> Result<(), RecordError> {
        let mut at = offset;
        for (index, pointer) in (1..).zip(pointers) {
            let size = narrow(block_size.min(end - at));
            let number = BlockId::from(at / block_size.max(1));
            let block = node.object.read_to_clone(pointer, number, operation);
            let block = block.map_err(|_| RecordError::Nonsense("a block cannot be read"))?;
            let mut bytes = block.to_vec();
            bytes.resize(size, 0);
            let part = match index == pointers.len() {
                true => Part::Last,
                false => Part::Earlier,
            };
            self.write_part_again(node, at, &bytes, at + widen(size), part, operation)
                .map_err(failed(node.id))?;
            at += widen(size);
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

/// The largest block of a file.
const LENGTH_MAX: u64 = 16 << 20;

/// The end of a range, if files can be so large.
fn check_range(offset: u64, length: u64) -> Result<u64, RecordError> {
    offset
        .checked_add(length)
        .filter(|end| *end <= SIZE_MAX)
        .ok_or(RecordError::Nonsense("no file reaches so far"))
}
