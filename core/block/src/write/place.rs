//! The fourth stage of writing: blocks get their places, and then their pointers.
//!
//! # Mechanism
//! A block that this txg wrote before is rewritten where it is if it fits exactly, in one piece or
//! as the gang it is. Others get new places; where there is no room in one piece, as a gang
//! ([`gang`]).

use super::devices::Batch;
use super::gang::{self, GangPolicy};
use super::request::{PASS_REWRITE, Slot};
use super::seal::StoredContents;
use crate::io::{BlockIo, WritePhase};
use crate::shapes::{VdevShapes, dva_of};
use crate::stored::StoredPointer;
use std::sync::Arc;
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::{BlockPointer, Dva, StoredBlock};
use tarn_ondisk::checksum::{Checksum, ChecksumKind};
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::units::{AllocatedSize, PhysicalSize, Txg};
use tarn_probe::Operation;
use tarn_space::{Allocation, Class, NoSpace};
use tarn_transform::CompressionAlgorithm;

impl BlockIo {
    /// Finds places for one block, adds what is to be written there to the batch, and gives back
    /// the pointer.
    ///
    /// # Errors
    /// No room, not even in pieces.
    pub(super) fn place(
        &self,
        slot: &Slot,
        contents: StoredContents,
        phase: WritePhase,
        shapes: &VdevShapes,
        batch: &mut Batch,
        operation: &Operation,
    ) -> Result<BlockPointer, NoSpace> {
        let size = contents.size();
        let StoredContents {
            bytes,
            compression,
            order,
            checksum,
        } = contents;
        self.probes.physical_bytes.add(size.get());
        let dvas = match self.rewrite(slot, &bytes, phase, shapes, batch, operation) {
            Some(dvas) => {
                self.probes.rewrites.increment();
                dvas
            }
            None => self.place_anew(slot, &bytes, phase, shapes, batch)?,
        };
        let pointer = point(slot, phase, &dvas, size, compression, order, checksum);
        debug_assert!(
            StoredPointer::parse(&pointer).is_ok_and(|stored| stored.verifies(&bytes, self.salt())),
            "the pointer verifies what is written: {pointer}"
        );
        Ok(pointer)
    }

    /// Writes a block over what the slot leads to, if that is allowed and fits exactly. `None`,
    /// and nothing to be written, otherwise.
    fn rewrite(
        &self,
        slot: &Slot,
        bytes: &Arc<Buffer>,
        phase: WritePhase,
        shapes: &VdevShapes,
        batch: &mut Batch,
        operation: &Operation,
    ) -> Option<Vec<Dva>> {
        let size = PhysicalSize::of(bytes);
        if slot.rewritable_size != Some(size) {
            return None;
        }
        assert!(
            phase.pass >= PASS_REWRITE && slot.previous.birth() == phase.txg,
            "only a block of this txg is rewritten in place"
        );
        if slot.previous.is_gang() {
            let policy = gang_policy(slot, phase);
            return gang::rewrite(self, &slot.previous, bytes, policy, batch, operation);
        }
        let dvas: Vec<Dva> = slot.previous.dvas().collect();
        batch.push(shapes, &dvas, size, bytes.clone());
        Some(dvas)
    }

    /// New places for a block, in one piece or as a gang.
    fn place_anew(
        &self,
        slot: &Slot,
        bytes: &Arc<Buffer>,
        phase: WritePhase,
        shapes: &VdevShapes,
        batch: &mut Batch,
    ) -> Result<Vec<Dva>, NoSpace> {
        let (policy, size) = (&slot.policy, PhysicalSize::of(bytes));
        match self.allocate(policy.class, policy.copies, &[], size, phase.txg) {
            Ok(places) => {
                batch.taken.extend(&places);
                let dvas: Vec<Dva> = places.iter().map(dva_of).collect();
                batch.push(shapes, &dvas, size, bytes.clone());
                Ok(dvas)
            }
            Err(_) => {
                self.probes.gangs.increment();
                gang::write(self, bytes, gang_policy(slot, phase), batch)
            }
        }
    }

    /// Places for all copies of `size` bytes in one piece, on different vdevs where it can be.
    ///
    /// # Errors
    /// No room in one piece; or a test wants the block split.
    pub(crate) fn allocate(
        &self,
        class: Class,
        copies: usize,
        near: &[Allocation],
        size: PhysicalSize,
        txg: Txg,
    ) -> Result<Vec<Allocation>, NoSpace> {
        if self.is_forced_to_gang(size) {
            return Err(NoSpace {
                class,
                copies,
                size: AllocatedSize::new(size.get()),
            });
        }
        let size_on = |vdev| self.size_on(vdev, size);
        let places = self.space.allocate(class, copies, near, &size_on, txg)?;
        assert_eq!(places.len(), copies, "each copy has its place");
        debug_assert!(
            places.iter().enumerate().all(|(index, place)| {
                let others = &places[..index];
                !others.iter().any(|other| overlap(place, other))
            }),
            "copies are in different places"
        );
        Ok(places)
    }
}

fn overlap(one: &Allocation, other: &Allocation) -> bool {
    let ends = |place: &Allocation| (place.offset.get(), place.offset.get() + place.size.get());
    let ((start, end), (other_start, other_end)) = (ends(one), ends(other));
    one.vdev == other.vdev && start < other_end && other_start < end
}

fn gang_policy(slot: &Slot, phase: WritePhase) -> GangPolicy {
    let policy = &slot.policy;
    GangPolicy {
        checksum: policy.checksum,
        copies: policy.copies,
        header_copies: policy.gang_copies,
        class: policy.class,
        txg: phase.txg,
    }
}

/// The pointer to a block in its places.
fn point(
    slot: &Slot,
    phase: WritePhase,
    dvas: &[Dva],
    size: PhysicalSize,
    compression: CompressionAlgorithm,
    order: ByteOrder,
    checksum: Checksum,
) -> BlockPointer {
    let policy = &slot.policy;
    let mut pointer = BlockPointer::stored(&StoredBlock {
        dvas,
        logical_size: slot.logical_size,
        physical_size: size,
        compression: Compression::from_code(compression.code()),
        checksum_kind: ChecksumKind::from_code(policy.checksum.code()),
        checksum,
        object_type: policy.object_type,
        level: policy.level,
        birth: phase.txg,
        fill: policy.fill,
    });
    if order == ByteOrder::Big {
        pointer.set_big_endian();
    }
    if let Some(sealing) = &slot.sealing {
        sealing.put_into(&mut pointer);
    }
    pointer
}
