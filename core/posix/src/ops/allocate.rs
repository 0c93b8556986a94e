//! `fallocate`: reserving space, punching holes, and zeroing ranges.
//!
//! # Mechanism
//! Copy-on-write allocates blocks when they are stored, so `fallocate` cannot reserve space: it
//! only checks that enough is free. A hole is punched by freeing the blocks that are wholly in it,
//! and zeroing the rest.

use tarn_ondisk::intent_log::{LoggedChange, mask};
use tarn_ondisk::units::{BlockId, ObjectId, Txg};
use tarn_probe::Operation;

use crate::error::PosixError;
use crate::filesystem::FileSystem;
use crate::holders::Change;
use crate::intent::{AttributesSet, attributes_set, privileges_lost};
use crate::node::{Node, lock_existing};
use crate::ops::write::SIZE_MAX;
use crate::permissions::without_set_ids;
use crate::types::{Allocate, Credentials};
use crate::unlinked::BLOCKS_PER_TX;

/// How much space must be free, in percent of the range, for `fallocate` to succeed.
#[doc(alias = "zfs_fallocate_reserve_percent")]
const RESERVE_PERCENT: u64 = 110;

/// About how much a change of the size, or of the edges of a hole, writes.
const EDGE_BYTES: u64 = 64 << 10;

impl FileSystem {
    /// Carries out `fallocate` on a range. The permission to write was checked when the file was
    /// opened.
    ///
    /// A range is allocated as a hole if, and only if, a tenth more than its length is free now
    /// (`zfs_fallocate_reserve_percent`).
    ///
    /// # Errors
    /// `Invalid` for an empty range, `FileTooLarge`, `NoSpace`, `QuotaExceeded`, `NotPermitted` for
    /// an immutable file, `ReadOnly`, or what could not be read.
    #[doc(alias = "zpl_fallocate_common")]
    pub fn allocate(
        &self,
        credentials: &Credentials,
        id: ObjectId,
        what: Allocate,
        offset: u64,
        length: u64,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        self.check_writable()?;
        let node = self.regular_file(id, operation)?;
        if length == 0 {
            return Err(PosixError::Invalid("the range is empty"));
        }
        let end = offset.checked_add(length).filter(|end| *end <= SIZE_MAX);
        let end = end.ok_or(PosixError::FileTooLarge)?;
        self.have_written_back(id, offset, length, operation);
        let changed = Change::Contents {
            file: id,
            offset,
            length,
        };
        let _told = self.telling(changed, operation);
        let _changing = self.changing(id, operation)?;
        let change = lock_existing(&[&node])?;
        let facts = node.facts();
        let only_grows = matches!(what, Allocate::Extend | Allocate::KeepSize);
        FileSystem::check_contents_flags(&facts, only_grows)?;
        let frees = !only_grows;
        let extends = matches!(what, Allocate::Extend | Allocate::ZeroRange) && end > facts.size;
        if only_grows {
            self.check_space_quota(&facts, operation)?;
            self.check_room(id, length, operation)?;
        }
        let mut txg = Txg::ZERO;
        if frees {
            let stop = end.min(facts.size);
            txg = txg.max(self.free_pieces(credentials, &node, offset, stop, operation)?);
        }
        if extends {
            let mut facts = (*node.facts()).clone();
            let _prepared = self.prepare_size(&node, end, operation)?;
            let tx = self.begin(EDGE_BYTES, operation)?;
            let _content = node.content.write();
            self.set_size(&node, &mut facts, end, &tx, operation)?;
            if !credentials.passes_posix_rules() {
                self.change_permissions(&mut facts, without_set_ids(credentials, &node.facts()));
            }
            let set = AttributesSet {
                mask: mask::SIZE | mask::MODIFICATION_TIME,
                project: false,
            };
            let grown = attributes_set(id, &node.facts(), &facts, set);
            self.store(&node, facts, &tx, operation)?;
            self.log_own(&tx, &node, || grown);
            txg = tx.txg();
        }
        drop(change);
        self.after_change(txg, operation)
    }

    /// Refuses a range for which `statvfs` of the file does not show enough free space.
    fn check_room(
        &self,
        id: ObjectId,
        length: u64,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let space = self.space_at(id, operation)?;
        let block_size = u64::from(space.block_size).max(1);
        let blocks = space.available_bytes / block_size;
        let promised = blocks.saturating_mul(block_size * 100 / RESERVE_PERCENT);
        match length > promised {
            true => Err(PosixError::NoSpace),
            false => Ok(()),
        }
    }

    /// Makes a range read as zeros, in as many transactions as it takes. The caller holds `change`.
    fn free_pieces(
        &self,
        credentials: &Credentials,
        node: &Node,
        offset: u64,
        end: u64,
        operation: &Operation,
    ) -> Result<Txg, PosixError> {
        let block_size = node.object.block_size().get();
        let piece = block_size.saturating_mul(BLOCKS_PER_TX);
        let mut at = offset;
        let mut txg = Txg::ZERO;
        while at < end {
            // Holes cost nothing. Pieces end where blocks do, so that none is zeroed twice.
            let first = BlockId::from(at / block_size);
            let data = node.object.next_data(first, operation)?;
            let stop = data.map_or(end, |data| {
                let behind = data.get().saturating_add(BLOCKS_PER_TX);
                behind.saturating_mul(block_size).min(end)
            });
            assert!(
                at < stop && stop <= end,
                "each piece frees bytes within the range"
            );
            let mut facts = (*node.facts()).clone();
            // Bytes beyond the size are zeros already, so the last block can be freed whole.
            let is_tail = stop >= facts.size;
            let length = if is_tail {
                self.to_block_end(node, stop) - at
            } else {
                stop - at
            };
            let _prepared = node.object.prepare_free(at, length, operation)?;
            let tx = self.begin_freeing((stop - at).min(piece), operation)?;
            let _content = node.content.write();
            node.object.free_range(&tx, at, length, operation)?;
            facts.contents_changed(self.now());
            if !credentials.passes_posix_rules() {
                self.change_permissions(&mut facts, without_set_ids(credentials, &node.facts()));
            }
            let privileges = privileges_lost(node, &facts);
            self.store(node, facts, &tx, operation)?;
            if let Some(privileges) = privileges {
                self.log_own(&tx, node, || privileges);
            }
            let (object, offset, length) = (node.id, at, stop - at);
            self.log_own(&tx, node, || LoggedChange::Truncate {
                object,
                offset,
                length,
            });
            txg = tx.txg();
            at = stop;
        }
        Ok(txg)
    }

    /// The end of the block that has the byte before this offset.
    pub(crate) fn to_block_end(&self, node: &Node, offset: u64) -> u64 {
        let block = node.object.block_size().get();
        offset.div_ceil(block).saturating_mul(block)
    }
}
