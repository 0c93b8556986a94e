//! Blocks of intent logs: placed before they are written, written by the thread that commits.
//!
//! # Mechanism
//! The block before it in the chain points to a log block, and is written first; so the pointer is
//! made when the block has a place, and not a byte of contents. In the words of the checksum the
//! pointer has the block's name: two random numbers of the log, its object set, and how many blocks
//! were before it. The block carries its checksum itself ([`embedded`]).
//!
//! Only the used part of a block is written and summed, in steps of 4 KiB; not on RAID-Z, where the
//! rows of a block depend on its size.
//!
//! Logs may take room of the normal class, but not the last of it: a txg that cannot be stored for
//! want of room would suspend the pool. When little is left, allocation fails with [`NoSpace`], and
//! the commit waits for its txg instead.
//!
//! # Invariants
//! - A log block is never split into a gang.
//! - When [`BlockIo::write_log`] succeeds, its blocks are durable on every leaf that was written.

use crate::error::WriteError;
use crate::io::BlockIo;
use crate::log_data::PlacedBlocks;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tarn_host::buffer::Buffer;
use tarn_host::canary::{Canary, sings};
use tarn_ondisk::block_pointer::{BlockPointer, Dva, StoredBlock};
use tarn_ondisk::checksum::{Checksum, ChecksumKind};
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{AllocatedSize, Level, LogicalSize, PhysicalSize, Txg, VdevId};
use tarn_probe::{Operation, Outcome};
use tarn_space::{Admission, Allocation, Class, error::NoSpace};
use tarn_transform::checksum::embedded;
use tarn_transform::{ChecksumAlgorithm, checksum};
use tarn_vdev::{PhysicalWrite, Place};

/// After so many bytes of log blocks the room that is left is counted again.
const ALLOWANCE_BYTES: u64 = 16 << 20;
/// Logs leave this part of the normal class free: twice the slop that datasets leave.
const RESERVE_DIVISOR: u64 = 16;

/// A log block that is ready to be written.
#[derive(Debug)]
pub struct LogBlockWrite {
    /// Where it goes, as [`BlockIo::allocate_log_block`] said.
    pub pointer: BlockPointer,
    /// The used part, in whole steps of 4 KiB, without its checksum.
    pub contents: Buffer,
}

/// Where log blocks are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogPlace {
    /// On log vdevs; without any, in the embedded log.
    LogVdevs,
    /// In the embedded log, so that log vdevs are left to others.
    Embedded,
}

impl BlockIo {
    /// A place for a block of an intent log. `name` is the block's name. The caller holds the
    /// transaction.
    ///
    /// # Errors
    /// No room in one piece, or too little left.
    #[doc(alias = "zio_alloc_zil")]
    pub fn allocate_log_block(
        &self,
        place: LogPlace,
        size: PhysicalSize,
        name: Checksum,
        birth: Txg,
    ) -> Result<BlockPointer, NoSpace> {
        let class = match place {
            LogPlace::LogVdevs => Class::Log,
            LogPlace::Embedded => Class::EmbeddedLog,
        };
        self.take_log_allowance(class, size)?;
        let places = self.allocate(class, 1, &[], size, birth)?;
        assert!(!birth.is_zero(), "a log block is born in an open txg");
        let dvas: Vec<Dva> = places
            .iter()
            .map(|place| Dva::new(place.vdev, place.offset, place.size))
            .collect();
        Ok(BlockPointer::stored(&StoredBlock {
            dvas: &dvas,
            logical_size: LogicalSize::from(size.get()),
            physical_size: size,
            compression: Compression::Off,
            checksum_kind: ChecksumKind::IntentLog2,
            checksum: name,
            object_type: ObjectType::IntentLog,
            level: Level::ZERO,
            birth,
            fill: 0,
        }))
    }

    /// Gives back a place that nothing points to, under the transaction under which it was
    /// allocated.
    pub fn forget_log_block(&self, pointer: &BlockPointer) {
        let places: Vec<Allocation> = pointer
            .dvas()
            .map(|dva| Allocation {
                vdev: dva.vdev(),
                offset: dva.offset(),
                size: dva.allocated_size(),
            })
            .collect();
        self.space.undo(&places, pointer.birth());
    }

    /// Whether a log block is on a log device.
    pub fn is_on_log_device(&self, pointer: &BlockPointer) -> bool {
        let mut places = pointer.dvas();
        places
            .next()
            .is_some_and(|dva| self.vdevs.is_log(dva.vdev()))
    }

    /// Writes log blocks and the data that their records lead to, and returns when they are
    /// durable. The calling thread does the I/O where devices allow it.
    ///
    /// # Errors
    /// Devices failed beyond what redundancy covers: some of it may be stored.
    #[doc(alias = "zil_lwb_write_issue")]
    pub fn write_log(
        &self,
        blocks: Vec<LogBlockWrite>,
        data: Vec<PlacedBlocks>,
        operation: &Operation,
    ) -> Result<(), WriteError> {
        operation.mark(Outcome::Log);
        let shapes = self.shapes();
        let mut writes: Vec<PhysicalWrite> =
            data.into_iter().flat_map(|placed| placed.writes).collect();
        writes.reserve(blocks.len());
        for LogBlockWrite { pointer, contents } in blocks {
            let mut contents = contents;
            assert!(
                PhysicalSize::of(&contents) <= pointer.physical_size() && !pointer.is_gang(),
                "the used part is within the block, which is in one piece"
            );
            let name = checksum::Checksum(pointer.checksum_words.0);
            let order = checksum::ByteOrder::Little;
            embedded::seal(ChecksumAlgorithm::Zilog2, &mut contents, &name, order);
            let dva = pointer.dvas().next().expect("a log block has a place");
            if self.is_on_log_device(&pointer) {
                operation.mark(Outcome::LogDevice);
            }
            let whole = shapes
                .place(dva, pointer.physical_size(), pointer.physical_birth())
                .expect("space hands out places on vdevs that are there");
            let sector = shapes.place(dva, PhysicalSize::new(1), whole.birth);
            let sector = sector.expect("the vdev is there").size;
            let used = widen(contents.len()).next_multiple_of(sector);
            let size = match self.vdevs.may_write_part(whole.vdev) {
                true => used.min(whole.size),
                false => whole.size,
            };
            debug_assert!(
                embedded::verify(ChecksumAlgorithm::Zilog2, &contents, &name).is_ok(),
                "what is written can be read back"
            );
            contents.resize(narrow(size));
            self.probes.log_writes.increment();
            self.probes.log_bytes.add(size);
            writes.push(PhysicalWrite {
                place: Place { size, ..whole },
                data: Arc::new(contents),
            });
        }
        let vdevs: BTreeSet<VdevId> = writes.iter().map(|write| write.place.vdev).collect();
        let written = match sings(Canary::SkipLogFlush) {
            true => self.vdevs.write(writes, operation),
            false => self.vdevs.write_durably(writes, operation),
        };
        if written.is_err() {
            // The next block goes to vdevs that can be written.
            for vdev in vdevs {
                if !self.vdevs.top_standing(vdev).state.is_usable() {
                    self.space.set_admission(vdev, Admission::Closed);
                }
            }
        }
        Ok(written?)
    }

    /// Counts the room that is left once in [`ALLOWANCE_BYTES`], and refuses when it is little.
    pub(crate) fn take_log_allowance(
        &self,
        class: Class,
        size: PhysicalSize,
    ) -> Result<(), NoSpace> {
        let take = |left: u64| left.checked_sub(size.get());
        let taken = self
            .log_allowance
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if taken.is_ok() {
            return Ok(());
        }
        let normal = self.space.class_totals(Class::Normal);
        let reserve = normal.size.get() / RESERVE_DIVISOR;
        // Only logs use the room of log vdevs.
        let free = normal.free().get().saturating_sub(reserve);
        let own_free = match class {
            Class::Log => self.space.admitted_free(Class::Log).get(),
            _ => 0,
        };
        if free.max(own_free) < ALLOWANCE_BYTES + size.get() {
            return Err(NoSpace {
                class,
                copies: 1,
                size: AllocatedSize::new(size.get()),
            });
        }
        self.log_allowance.store(ALLOWANCE_BYTES, Ordering::Relaxed);
        Ok(())
    }
}
