//! Copying a range of a volume to another volume of the pool, or to another place of the same one.
//!
//! # Mechanism
//! Where the range lies on whole blocks of the same size in both volumes, and the blocks are
//! stored, the target gets pointers to them (feature `block_cloning`): nothing is read or written.
//! Blocks that are not stored yet are copied in memory, and so are parts of blocks. Clones take
//! several transactions, each with at most so many blocks.
//!
//! A clone has no record in the intent log, as not every OpenZFS replays one for a volume: a commit
//! after it waits for its txg.
//!
//! # Invariants
//! - While blocks are cloned neither their range in the source nor that in the target changes.
//! - Of two volumes the range of the one with the lower object is taken first, so that two copies
//!   in opposite directions do not wait for each other.

use tarn_dataset::space_door::SpaceUse;
use tarn_object::{NewContents, TxEstimate};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::units::BlockId;
use tarn_probe::Operation;

use crate::changed_ranges::ChangedRange;
use crate::error::VolumeError;
use crate::volume::{Durable, Volume};

/// How many blocks are cloned in one transaction. A guess: both ranges are taken meanwhile.
const CLONED_TOGETHER: u64 = 1000;
/// How much is copied in one transaction. A guess: small beside what may be dirty.
const COPIED_TOGETHER: u64 = 1 << 20;
/// About how much space a block pointer takes.
const POINTER_BYTES: u64 = 128;
/// About how much a transaction writes beside pointers.
const OVERHEAD_BYTES: u64 = 16 << 10;

/// How bytes were copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// So many by references to the same blocks.
    pub cloned_bytes: u64,
    /// So many by reading and writing.
    pub written_bytes: u64,
}

/// What is still to be copied.
#[derive(Debug, Clone, Copy)]
struct Rest {
    from: u64,
    to: u64,
    length: u64,
}

impl Volume {
    /// Copies a range of a volume of the same pool, which may be this one, here. When it fails, a
    /// part may be copied. Ranges that overlap are copied as if all were read first.
    ///
    /// # Errors
    /// Those of [`write`](Self::write), and what cannot be read.
    #[doc(alias = "zvol_clone_range")]
    pub fn copy_from(
        &self,
        (source, from): (&Volume, u64),
        to: u64,
        length: u64,
        durable: Durable,
        operation: &Operation,
    ) -> Result<Copied, VolumeError> {
        self.check_writable()?;
        source.check_range(from, length)?;
        self.check_range(to, length)?;
        let mut rest = Rest { from, to, length };
        let mut copied = Copied::default();
        let overlaps = std::ptr::eq(self, source) && from < to + length && to < from + length;
        while rest.length > 0 {
            let cloned = match overlaps {
                true => 0,
                false => self.clone_part(source, rest, operation)?,
            };
            if cloned > 0 {
                assert!(cloned <= rest.length, "a part of the rest is cloned");
                copied.cloned_bytes += cloned;
                rest = rest.behind(cloned);
                continue;
            }
            let part = self.part_to_write(rest, overlaps);
            let bytes = source.read(part.from, narrow(part.length), operation)?;
            let bytes = bytes.to_vec();
            self.write(
                part.to,
                NewContents::Bytes(&bytes),
                Durable::Later,
                operation,
            )?;
            copied.written_bytes += part.length;
            rest = match part.to == rest.to {
                true => rest.behind(part.length),
                false => Rest {
                    length: rest.length - part.length,
                    ..rest
                },
            };
        }
        self.after_change(durable, operation)?;
        Ok(copied)
    }

    /// Clones blocks at the beginning of a range, in one transaction. Gives how many bytes that
    /// were; none where the first are to be read and written.
    fn clone_part(
        &self,
        source: &Volume,
        rest: Rest,
        operation: &Operation,
    ) -> Result<u64, VolumeError> {
        let block_size = self.block_size();
        let blocks = (rest.length / block_size).min(CLONED_TOGETHER);
        let is_whole = rest.from.is_multiple_of(block_size) && rest.to.is_multiple_of(block_size);
        if blocks == 0 || !is_whole || !self.shares_blocks_with(source) {
            return Ok(0);
        }
        let first = rest.from / block_size;
        let blocks = first..first + blocks;
        let length = (blocks.end - blocks.start) * block_size;
        source.data.look_up_pointers(blocks.clone(), operation)?;
        let _prepared = self.data.prepare_write(rest.to, length, operation)?;
        let room = (blocks.end - blocks.start) * POINTER_BYTES + OVERHEAD_BYTES;
        let worst = self.set.worst_of_metadata(room);
        let leave = (self.space.may_write)(worst, SpaceUse::Whole)?;
        let _ranges = self.take_both(source, rest, length);
        // They may have shrunk while other changes were waited for.
        source.check_range(rest.from, length)?;
        self.check_range(rest.to, length)?;
        let tx = self.begin(leave, TxEstimate::writing(room), operation)?;
        let pointers = source.data.clonable(&tx, blocks, operation)?;
        let pointers: Vec<BlockPointer> = pointers.into_iter().map_while(|found| found).collect();
        if pointers.is_empty() {
            return Ok(0);
        }
        let to = BlockId::from(rest.to / block_size);
        let cloned = self.data.clone_blocks(&tx, to, &pointers, operation);
        if let Some(log) = &self.log {
            log.note_unlogged(&tx);
        }
        cloned?;
        Ok(widen(pointers.len()) * block_size)
    }

    /// Whether blocks of the other volume can be blocks of this one.
    fn shares_blocks_with(&self, source: &Volume) -> bool {
        let is_sealed = self.set.is_sealed() || source.set.is_sealed();
        let is_as_large = self.block_size() == source.block_size();
        !is_sealed && is_as_large && self.set.env().cache.io().shares_blocks()
    }

    /// The right to change both ranges; of one volume that to change all.
    fn take_both<'a>(
        &'a self,
        source: &'a Volume,
        rest: Rest,
        length: u64,
    ) -> (ChangedRange<'a>, Option<ChangedRange<'a>>) {
        if std::ptr::eq(self, source) {
            return (self.changes.take_all(), None);
        }
        match self.set.id() < source.set.id() {
            true => {
                let own = self.change(rest.to, length);
                (own, Some(source.change(rest.from, length)))
            }
            false => {
                let other = source.change(rest.from, length);
                (self.change(rest.to, length), Some(other))
            }
        }
    }

    /// The part that is read and written next: up to where whole blocks begin, or one that may be
    /// cloned; of ranges that overlap the last, where the target is behind the source.
    fn part_to_write(&self, rest: Rest, overlaps: bool) -> Rest {
        let block_size = self.block_size();
        let length = match overlaps {
            true => rest.length.min(COPIED_TOGETHER),
            false => match rest.to % block_size {
                0 => rest.length.min(COPIED_TOGETHER.max(block_size)),
                within => rest.length.min(block_size - within),
            },
        };
        assert!(length > 0, "each part has bytes");
        let skipped = match overlaps && rest.to > rest.from {
            true => rest.length - length,
            false => 0,
        };
        Rest {
            from: rest.from + skipped,
            to: rest.to + skipped,
            length,
        }
    }
}

impl Rest {
    fn behind(self, done: u64) -> Rest {
        Rest {
            from: self.from + done,
            to: self.to + done,
            length: self.length - done,
        }
    }
}
