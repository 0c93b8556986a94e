//! Writing contents.
//!
//! # Mechanism
//! A file begins with one block, which grows with it up to the dataset's record size, or to the
//! next power of two if it is larger already. A longer file has blocks of that size, which then
//! stays. Each part of a write is one transaction: bytes, size, times and permission bits.
//!
//! # Invariants
//! - A file of more than one block has blocks of a power of two bytes.
//! - Bytes beyond the size read as zeros when the size grows.

pub use tarn_object::NewContents;

use std::borrow::Cow;
use tarn_object::{Caching, PreparedChange, Tx, TxEstimate};
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::units::{LogicalSize, ObjectId, Txg};
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::facts::Facts;
use crate::filesystem::FileSystem;
use crate::holders::{Change, TO_END};
use crate::intent::privileges_lost;
use crate::node::{Node, lock_existing};
use crate::permissions::without_set_ids;
use crate::types::{Credentials, FileKind};
use tarn_dataset::space_door::{SpaceLeave, SpaceRefusal, SpaceUse};

/// The largest size of a file.
pub(crate) const SIZE_MAX: u64 = i64::MAX.cast_unsigned();
/// How much is written in one transaction. A guess: small beside what may be dirty.
const PART_BYTES: usize = 4 << 20;
/// About how much is written beside the contents.
const OVERHEAD_BYTES: u64 = 16 << 10;

/// Where to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteAt {
    /// From this offset on.
    Offset(u64),
    /// At the end, wherever that is by then (`O_APPEND`).
    End,
}

/// The offset of a part of a write, and how it is cached.
pub(crate) struct Part {
    pub offset: u64,
    pub caching: Caching,
}

impl FileSystem {
    /// Writes bytes, and gives back how many. Fewer than asked only when space, a quota or the
    /// largest size is reached on the way. The permission to write was checked when the file was
    /// opened.
    ///
    /// # Errors
    /// `NoSpace`, `QuotaExceeded` and `FileTooLarge` when not one byte could be written;
    /// `IsDirectory`, `NotPermitted`, `ReadOnly`, or what could not be read to be changed.
    #[doc(alias = "zfs_write")]
    pub fn write(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        at: WriteAt,
        bytes: &[u8],
        operation: &Operation,
    ) -> Result<usize, PosixError> {
        let contents = NewContents::Bytes(bytes);
        self.write_contents(credentials, id, at, contents, Caching::Ours, operation)
    }

    /// As [`write`](Self::write), without a copy where buffers fill blocks, and with the choice how
    /// the blocks are cached.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_contents(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        at: WriteAt,
        contents: NewContents<'_>,
        caching: Caching,
        operation: &Operation,
    ) -> Result<usize, PosixError> {
        self.check_writable()?;
        let node = self.regular_file(id, operation)?;
        if contents.is_empty() {
            return Ok(0);
        }
        let (first, length) = match at {
            WriteAt::Offset(offset) => (offset, widen(contents.len())),
            WriteAt::End => (0, TO_END),
        };
        self.have_written_back(id, first, length, operation);
        let changed = Change::Contents {
            file: id,
            offset: first,
            length,
        };
        let _told = self.telling(changed, operation);
        let _changing = self.changing(id, operation)?;
        let change = lock_existing(&[&node])?;
        let size = node.facts().size;
        let offset = match at {
            WriteAt::Offset(offset) => offset,
            WriteAt::End => size,
        };
        FileSystem::check_contents_flags(&node.facts(), at == WriteAt::End || offset >= size)?;
        let room = SIZE_MAX.saturating_sub(offset);
        let (length, room) = (contents.len(), usize::try_from(room).unwrap_or(usize::MAX));
        let wanted = length.min(room);
        if wanted == 0 {
            return Err(PosixError::FileTooLarge);
        }
        let parts = match contents {
            NewContents::Bytes(bytes) => Cow::Borrowed(bytes),
            whole if length <= room.min(PART_BYTES) => {
                let write = Part { offset, caching };
                let (txg, written) =
                    self.write_part(credentials, &node, write, whole, operation)?;
                drop(change);
                self.after_change(txg, operation)?;
                return Ok(written);
            }
            buffers => Cow::Owned(buffers.into_bytes()),
        };
        let (mut written, mut txg) = (0, Txg::ZERO);
        for part in parts[..wanted].chunks(PART_BYTES) {
            let offset = offset + widen(written);
            let (write, bytes) = (Part { offset, caching }, NewContents::Bytes(part));
            match self.write_part(credentials, &node, write, bytes, operation) {
                Ok((group, count)) => {
                    txg = group;
                    written += count;
                    if count < part.len() {
                        break;
                    }
                }
                Err(error) if written == 0 => return Err(error),
                Err(_) => break,
            }
        }
        assert!(
            (1..=wanted).contains(&written),
            "a write that succeeds stores some of what was given"
        );
        drop(change);
        self.after_change(txg, operation)?;
        Ok(written)
    }

    /// A regular file.
    pub(crate) fn regular_file(
        &self,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<std::sync::Arc<Node>, PosixError> {
        if self.control_entry(id).is_some() {
            return Err(PosixError::IsDirectory);
        }
        let node = self.node(id, operation)?;
        match node.facts().kind() {
            FileKind::Regular => Ok(node),
            FileKind::Directory => Err(PosixError::IsDirectory),
            _ => Err(PosixError::Invalid("only regular files have contents")),
        }
    }

    /// Writes one part, in a transaction of its own; where there is no space for all of it, as many
    /// blocks as there is space for, each in its own. Gives how many bytes were written: at least
    /// one. The caller holds `change`.
    pub(crate) fn write_part(
        &self,
        credentials: &Credentials,
        node: &Node,
        Part { offset, caching }: Part,
        contents: NewContents<'_>,
        operation: &Operation,
    ) -> Result<(Txg, usize), PosixError> {
        let length = contents.len();
        assert!(length > 0, "each part of a write has bytes");
        self.check_space_quota(&node.facts(), operation)?;
        let object = &node.object;
        let _prepared = object.prepare_write(offset, widen(length), operation)?;
        let part = Part { offset, caching };
        let (asked, block_size) = self.leave_to_write(node, offset, widen(length));
        match asked {
            Ok(leave) => {
                let txg = self.write_whole(credentials, node, part, contents, leave, operation)?;
                return Ok((txg, length));
            }
            // There may be space for a part of it.
            Err(SpaceRefusal::NoSpace | SpaceRefusal::QuotaExceeded)
                if offset % block_size + widen(length) > block_size => {}
            Err(refusal) => return Err(refusal.into()),
        }
        let bytes = contents.into_bytes();
        let (mut written, mut txg) = (0, Txg::ZERO);
        while written < length {
            let at = offset + widen(written);
            let rest = narrow(block_size - at % block_size).min(length - written);
            assert!(rest > 0, "each piece of a write has bytes");
            let piece = NewContents::Bytes(&bytes[written..written + rest]);
            let leave = match self.leave_to_write(node, at, widen(rest)).0 {
                Ok(leave) => leave,
                Err(refusal) if written == 0 => return Err(refusal.into()),
                Err(_) => break,
            };
            let part = Part {
                offset: at,
                caching,
            };
            txg = self.write_whole(credentials, node, part, piece, leave, operation)?;
            written += rest;
        }
        Ok((txg, written))
    }

    /// Asks for space to write these bytes, and gives the block size. Bytes of one block are not
    /// divided.
    fn leave_to_write(
        &self,
        node: &Node,
        offset: u64,
        length: u64,
    ) -> (Result<SpaceLeave, SpaceRefusal>, u64) {
        let block_size = self.block_size_after(node, offset.saturating_add(length));
        let first = offset / block_size;
        let blocks = offset.saturating_add(length).div_ceil(block_size) - first;
        let contents = self.set.worst_of_contents(blocks, block_size);
        let beside = self.set.worst_of_metadata(OVERHEAD_BYTES);
        let space_use = match blocks {
            0 | 1 => SpaceUse::Whole,
            _ => SpaceUse::Divisible,
        };
        let asked = (self.space.may_write)(contents.saturating_add(beside), space_use);
        (asked, block_size)
    }

    /// Writes one part, for which space is promised, in a transaction of its own.
    fn write_whole(
        &self,
        credentials: &Credentials,
        node: &Node,
        Part { offset, caching }: Part,
        contents: NewContents<'_>,
        leave: SpaceLeave,
        operation: &Operation,
    ) -> Result<Txg, PosixError> {
        let length = widen(contents.len());
        let mut facts = (*node.facts()).clone();
        let tx = self.begin_with(leave, TxEstimate::writing(length), operation)?;
        let _content = node.content.write();
        let end = offset + length;
        self.grow_block(node, &facts, end, &tx, operation)?;
        let object = &node.object;
        object.write_contents(&tx, offset, contents, caching, operation)?;
        facts.size = facts.size.max(end);
        facts.contents_changed(self.now());
        if !credentials.passes_posix_rules() {
            self.change_permissions(&mut facts, without_set_ids(credentials, &node.facts()));
        }
        let privileges = privileges_lost(node, &facts);
        self.store(node, facts, &tx, operation)?;
        assert!(
            node.facts().size >= end,
            "the size of a file covers what was written"
        );
        if let Some(privileges) = privileges {
            self.log_own(&tx, node, || privileges);
        }
        self.log_write(&tx, node, offset, length);
        Ok(tx.txg())
    }

    /// Sets permission bits, if they differ. The trivial list of the new mode takes the list's
    /// place, unless only set-id and sticky bits change, which lists do not have.
    pub(crate) fn change_permissions(&self, facts: &mut Facts, permissions: u32) {
        const SAID_BY_LISTS: u32 = 0o777;
        let changed = facts.permissions() ^ (permissions & 0o7777);
        if changed & SAID_BY_LISTS != 0 {
            facts.set_permissions(permissions, &self.tables.current());
        } else {
            facts.mode ^= changed;
        }
    }

    /// Before a file reaches `end`: makes its only block large enough, as long as there is only
    /// one.
    #[doc(alias = "zfs_grow_blocksize")]
    pub(crate) fn grow_block(
        &self,
        node: &Node,
        facts: &Facts,
        end: u64,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let now = node.object.block_size().get();
        let wanted = self.block_size_of(node, facts, end);
        if wanted != now {
            node.object
                .set_block_size(tx, LogicalSize::from(wanted), operation)?;
        }
        Ok(())
    }

    /// The block size of a file after it was written up to `end`.
    fn block_size_after(&self, node: &Node, end: u64) -> u64 {
        self.block_size_of(node, &node.facts(), end)
    }

    fn block_size_of(&self, node: &Node, facts: &Facts, end: u64) -> u64 {
        let now = node.object.block_size().get();
        if end <= now || facts.size > now || !node.object.max_block().is_zero() {
            return now;
        }
        let record = self.properties().record_size.get();
        let limit = if now > record {
            now.next_power_of_two()
        } else {
            record
        };
        let size = LogicalSize::from(end)
            .round_up(512)
            .get()
            .min(limit)
            .max(now);
        debug_assert!(
            size.is_multiple_of(512),
            "a block is a multiple of the smallest block"
        );
        size
    }

    /// Reads what [`set_size`](FileSystem::set_size) needs, before its transaction is opened. The
    /// caller holds `change`.
    pub(crate) fn prepare_size<'a>(
        &self,
        node: &'a Node,
        size: u64,
        operation: &Operation,
    ) -> Result<PreparedChange<'a>, PosixError> {
        let object = &node.object;
        Ok(match size > node.facts().size {
            true => object.prepare_growth(size, operation)?,
            false => object.prepare_free(size, tarn_object::TO_END, operation)?,
        })
    }

    /// Changes the size of a file, in a transaction that frees a bounded number of blocks:
    /// [`FileSystem::free_contents`] has freed the others. The caller holds `change` and `content`,
    /// and stores the facts.
    pub(crate) fn set_size(
        &self,
        node: &Node,
        facts: &mut Facts,
        size: u64,
        tx: &Tx,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        if size > facts.size {
            self.grow_block(node, facts, size, tx, operation)?;
        } else {
            node.object
                .free_range(tx, size, tarn_object::TO_END, operation)?;
        }
        facts.size = size;
        facts.contents_changed(self.now());
        Ok(())
    }
}
