//! Writing blocks, in batches.
//!
//! # Mechanism
//! A batch goes through four stages, each for all of its blocks:
//!
//! 1. *shape*, on all processors: zeros become a hole; the others are compressed, and those small
//!    enough go into their pointer; the rest is padded to whole sectors and summed.
//! 2. *place*, in order: a block that this txg wrote before is rewritten where it is if it fits
//!    exactly, in one piece or as the gang it is; others get new places, so that neighbours in the batch become neighbours on disk;
//!    where there is no room in one piece, a gang.
//! 3. *write*, as one batch of the devices.
//! 4. *point*: the pointers go back, in the order of the requests.
//!
//! A batch that is too large to be held twice goes through in chunks; while the devices write one, the
//! next is shaped.
//!
//! Compression must pay: at least an eighth must be saved, counted in whole allocations. From the
//! eighth pass on what is rewritten is no longer compressed, so that sizes stay and storing ends.
//! A block that shrank since an earlier pass is padded to the size it had, for the same reason.
//!
//! What has the same contents as before stays where it is, and its pointer as it was: where its checksum is strong enough to know that, and nothing
//! else about the block would change ([`WritePolicy::may_stay`]).
//!
//! What the slot held before is not freed here: whoever owns the slot knows whether a snapshot needs it.
//! A block rewritten in place has the births and places it had
//! ([`BlockPointer::is_same_block`]).
//!
//! # Invariants
//! - Nothing is rewritten in place but what was born in this txg, from the second pass on.
//! - If anything fails, no pointer is given out, and all space taken for the batch is given back.
//!
//! # After a crash
//! What was written is in space that the newest uberblock calls free.

use crate::data::Block;
use crate::embed;
use crate::error::WriteError;
use crate::gang::{self, GangPolicy, dva_of};
use crate::io::{BlockIo, HoleBirth, VdevShapes, WritePhase};
use crate::policy::WritePolicy;
use std::sync::Arc;
use tarn_host::JoinHandle;
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::{BlockPointer, Dva, PointerKind, SECTOR_BYTES, StoredBlock};
use tarn_ondisk::checksum::{Checksum, ChecksumKind};
use tarn_ondisk::compression::Compression;
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::embedded::PAYLOAD_BYTES_MAX;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::sealing::{self, Sealing};
use tarn_ondisk::units::{LogicalSize, PhysicalSize, Txg};
use tarn_probe::{Operation, Stage};
use tarn_space::{Allocation, Class, NoSpace};
use tarn_transform::{CompressionAlgorithm, checksum, compress};
use tarn_vdev::{PhysicalWrite, VdevWriteError};

/// From this pass on, a block may be rewritten where it is.
#[doc(alias = "zfs_sync_pass_rewrite")]
pub const PASS_REWRITE: u32 = 2;
/// From this pass on, what is rewritten is not compressed.
#[doc(alias = "zfs_sync_pass_dont_compress")]
pub const PASS_DONT_COMPRESS: u32 = 8;
/// From this pass on, frees wait for the next txg.
#[doc(alias = "zfs_sync_pass_deferred_free")]
pub const PASS_DEFER_FREES: u32 = 2;

/// How many bytes are shaped and held at once. A guess: large enough to keep devices and processors
/// busy, small beside the data of a txg.
const CHUNK_BYTES: usize = 32 << 20;

/// One block to write.
#[derive(Debug, Clone)]
pub struct WriteRequest {
    /// Its contents, as long as `logical_size`; or what is stored of them, if it is given.
    pub data: Block,
    /// How large it is: whole sectors.
    pub logical_size: LogicalSize,
    /// How it is to be written.
    pub policy: WritePolicy,
    /// What its slot holds now.
    pub previous: BlockPointer,
    /// What is stored of its contents, if that is given.
    pub given: Option<GivenForm>,
    /// How it is sealed, if its dataset is encrypted.
    pub sealing: Option<Sealing>,
}

/// That the data of a block are what is stored of it: whoever sent it has compressed and perhaps encrypted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenForm {
    /// How it was compressed.
    pub compression: CompressionAlgorithm,
    /// In which byte order it was.
    pub order: ByteOrder,
}

/// What became of the contents.
enum Shape {
    /// Nothing is stored.
    InPointer(BlockPointer),
    /// These bytes are.
    Stored {
        bytes: Arc<Buffer>,
        compression: CompressionAlgorithm,
        checksum: checksum::Checksum,
        order: ByteOrder,
    },
}

/// Where the time of a device write goes.
const DEVICE_STAGES: [Stage; 3] = [Stage::DeviceQueue, Stage::Device, Stage::Transform];

/// Device writes that another thread waits for. Must be finished before space is given back.
struct Underway(Option<JoinHandle<TimedOutcome>>);

/// How a device write ended, and how long it took, by stage.
type TimedOutcome = (Result<(), VdevWriteError>, [u64; 3]);

impl Underway {
    /// Waits for the writes, if there are any.
    fn finish(&mut self, operation: &Operation) -> Result<(), WriteError> {
        let Some(handle) = self.0.take() else {
            return Ok(());
        };
        let (outcome, times) = handle.join().unwrap_or_else(|panicked| panicked.resume());
        for (stage, nanoseconds) in DEVICE_STAGES.into_iter().zip(times) {
            operation.add(stage, nanoseconds);
        }
        Ok(outcome?)
    }
}

/// Device writes being gathered, and the space taken for them.
pub(crate) struct Batch {
    /// The txg in which the blocks get their places.
    birth: Txg,
    pub(crate) writes: Vec<PhysicalWrite>,
    pub(crate) taken: Vec<Allocation>,
}

impl Batch {
    /// Nothing yet, for blocks that get their places in this txg.
    pub(crate) fn new(birth: Txg) -> Batch {
        Batch {
            birth,
            writes: Vec::new(),
            taken: Vec::new(),
        }
    }

    /// Adds one block, in all its places.
    pub(crate) fn push(
        &mut self,
        shapes: &VdevShapes,
        dvas: &[Dva],
        size: PhysicalSize,
        data: Arc<Buffer>,
    ) {
        for &dva in dvas {
            let place = shapes
                .place(dva, size, self.birth)
                .expect("space hands out places on vdevs that are there");
            let whole = PhysicalSize::new(place.size).to_usize();
            let data = if data.len() == whole {
                data.clone()
            } else {
                let mut padded = Buffer::from_slice(&data);
                padded.resize(whole);
                Arc::new(padded)
            };
            self.writes.push(PhysicalWrite { place, data });
        }
    }
}

impl BlockIo {
    /// Writes blocks, and gives back their pointers in the same order.
    ///
    /// # Panics
    /// When a request's data is not as long as it says, or not whole sectors: we made it.
    ///
    /// # Errors
    /// No room, or a device failed beyond redundancy. What was written before is not referenced by anybody.
    pub fn write(
        &self,
        requests: Vec<WriteRequest>,
        phase: WritePhase,
        operation: &Operation,
    ) -> Result<Vec<BlockPointer>, WriteError> {
        let mut pointers = Vec::with_capacity(requests.len());
        let mut taken = Vec::new();
        let outcome = self.write_chunks(requests, phase, &mut pointers, &mut taken, operation);
        if let Err(error) = outcome {
            self.space.undo(&taken, phase.txg);
            return Err(error);
        }
        Ok(pointers)
    }

    /// Shapes and places one chunk while the devices write the one before.
    fn write_chunks(
        &self,
        requests: Vec<WriteRequest>,
        phase: WritePhase,
        pointers: &mut Vec<BlockPointer>,
        taken: &mut Vec<Allocation>,
        operation: &Operation,
    ) -> Result<(), WriteError> {
        let mut chunks = chunks(requests).into_iter().peekable();
        let mut earlier = Underway(None);
        while let Some(chunk) = chunks.next() {
            let mut batch = Batch::new(phase.txg);
            let placed = self.place_chunk(chunk, phase, &mut batch, pointers, operation);
            taken.append(&mut batch.taken);
            earlier.finish(operation)?;
            placed?;
            if batch.writes.is_empty() {
                continue;
            }
            if chunks.peek().is_none() {
                self.vdevs.write(batch.writes, operation)?;
            } else {
                earlier = self.begin_write(batch.writes, operation);
            }
        }
        earlier.finish(operation)
    }

    pub(crate) fn place_chunk(
        &self,
        requests: Vec<WriteRequest>,
        phase: WritePhase,
        batch: &mut Batch,
        pointers: &mut Vec<BlockPointer>,
        operation: &Operation,
    ) -> Result<(), NoSpace> {
        let shapes = self.shapes();
        let shaped = {
            let _timer = operation.stage(Stage::Transform);
            self.host.compute().map(requests, |request| {
                let shape = self.shape(&request, phase, shapes.allocation_min);
                (request.into_slot(phase), shape)
            })
        };
        for (slot, shape) in shaped {
            self.probes.writes.increment();
            self.probes.logical_bytes.add(slot.logical_size.get());
            pointers.push(self.place(&slot, shape, phase, &shapes, batch, operation)?);
        }
        Ok(())
    }

    /// Has the devices write while the caller goes on.
    fn begin_write(&self, writes: Vec<PhysicalWrite>, operation: &Operation) -> Underway {
        let vdevs = self.vdevs.clone();
        let (clock, kind) = (operation.clock(), operation.what().kind);
        Underway(Some(self.host.spawn_background(
            "tarn-block-write",
            move || {
                let operation = Operation::internal(clock, kind);
                let outcome = vdevs.write(writes, &operation);
                let times = DEVICE_STAGES.map(|stage| operation.stage_ns(stage));
                (outcome, times)
            },
        )))
    }

    /// Decides what of a block is stored, and prepares that.
    fn shape(&self, request: &WriteRequest, phase: WritePhase, allocation_min: u64) -> Shape {
        let data = &request.data;
        let policy = &request.policy;
        if let Some(given) = request.given {
            let whole = LogicalSize::of(data).round_up(SECTOR_BYTES).to_usize();
            let mut bytes = data.shared().clone();
            if bytes.len() != whole {
                Arc::make_mut(&mut bytes).resize(whole);
            }
            return self.summed(request, bytes, given.compression, given.order);
        }
        assert_eq!(
            LogicalSize::of(data),
            request.logical_size,
            "a block is as long as it says"
        );
        assert!(
            request.logical_size.is_multiple_of(SECTOR_BYTES) && !data.is_empty(),
            "a block is whole sectors"
        );
        let rewritten_size = request.rewritable_size(phase);
        let compression = if request.is_written_again(phase) && phase.pass >= PASS_DONT_COMPRESS {
            CompressionAlgorithm::Off
        } else {
            policy.compression
        };
        // Dnodes of encrypted datasets are not compressed, but those of no objects are not stored either.
        let is_sealed_dnodes = policy.object_type == ObjectType::Dnode && request.sealing.is_some();
        let may_be_hole = compression != CompressionAlgorithm::Off || is_sealed_dnodes;
        if may_be_hole && compress::is_zero(data) {
            return Shape::InPointer(self.hole(request, phase.txg));
        }
        let limit = compressed_size_max(compression, data.len(), allocation_min);
        let compressed = compress::compress(compression, data, limit);
        if let Some(bytes) = &compressed
            && embed::is_embeddable(policy, bytes.len())
        {
            let pointer = embed::pointer(bytes, request.logical_size, policy, phase);
            return Shape::InPointer(pointer);
        }
        let stored = compressed.and_then(|bytes| {
            let size = stored_size(bytes.len(), data.len(), allocation_min, rewritten_size)?;
            let mut buffer = Buffer::from_slice(&bytes);
            buffer.resize(size);
            Some(Arc::new(buffer))
        });
        let (bytes, compression) = match stored {
            Some(bytes) => (bytes, compression),
            None => (data.shared().clone(), CompressionAlgorithm::Off),
        };
        self.summed(request, bytes, compression, ByteOrder::Little)
    }

    /// What is stored, with its checksum.
    fn summed(
        &self,
        request: &WriteRequest,
        bytes: Arc<Buffer>,
        compression: CompressionAlgorithm,
        order: ByteOrder,
    ) -> Shape {
        let algorithm = request.policy.checksum;
        let sum_order = match order {
            ByteOrder::Little => checksum::ByteOrder::Little,
            ByteOrder::Big => checksum::ByteOrder::Big,
        };
        let mut checksum = checksum::checksum(algorithm, &bytes, sum_order, self.salt());
        let is_truncated =
            request.sealing.is_some() && request.policy.object_type != ObjectType::Objset;
        if is_truncated {
            let [a, b] = sealing::truncated(checksum.0, algorithm.identifies_blocks());
            checksum.0 = [a, b, 0, 0];
        }
        Shape::Stored {
            bytes,
            compression,
            checksum,
            order,
        }
    }

    /// The pointer to a block of zeros.
    fn hole(&self, request: &WriteRequest, txg: Txg) -> BlockPointer {
        let was_never_filled = request.previous.birth().is_zero();
        if was_never_filled || self.options.holes == HoleBirth::Unrecorded {
            return BlockPointer::HOLE;
        }
        let policy = &request.policy;
        BlockPointer::punched(request.logical_size, policy.object_type, policy.level, txg)
    }

    /// Finds places for one block, and makes its pointer.
    fn place(
        &self,
        slot: &Slot,
        shape: Shape,
        phase: WritePhase,
        shapes: &VdevShapes,
        batch: &mut Batch,
        operation: &Operation,
    ) -> Result<BlockPointer, NoSpace> {
        let (bytes, compression, checksum, order) = match shape {
            Shape::InPointer(pointer) => {
                self.probes.in_pointer.increment();
                return Ok(pointer);
            }
            Shape::Stored {
                bytes,
                compression,
                checksum,
                order,
            } => (bytes, compression, checksum, order),
        };
        let policy = &slot.policy;
        let size = PhysicalSize::of(&bytes);
        let new = NewForm {
            size,
            compression: Compression::from_code(compression.code()),
            checksum: Checksum(checksum.0),
            order,
        };
        if slot.is_unchanged(&new, phase.txg) {
            self.probes.unchanged.increment();
            return Ok(slot.previous);
        }
        self.probes.physical_bytes.add(size.get());
        let gang_policy = GangPolicy {
            checksum: policy.checksum,
            copies: policy.copies,
            header_copies: policy.gang_copies,
            class: policy.class,
            txg: phase.txg,
        };
        let in_place = if slot.rewritable_size != Some(size) {
            None
        } else if slot.previous.is_gang() {
            gang::rewrite(self, &slot.previous, &bytes, gang_policy, batch, operation)
        } else {
            let dvas: Vec<Dva> = slot.previous.dvas().collect();
            batch.push(shapes, &dvas, size, bytes.clone());
            Some(dvas)
        };
        let dvas = if let Some(dvas) = in_place {
            self.probes.rewrites.increment();
            dvas
        } else {
            match self.allocate(policy.class, policy.copies, &[], size, phase.txg) {
                Ok(places) => {
                    batch.taken.extend(&places);
                    let dvas: Vec<Dva> = places.iter().map(dva_of).collect();
                    batch.push(shapes, &dvas, size, bytes);
                    dvas
                }
                Err(_) => {
                    self.probes.gangs.increment();
                    gang::write(self, &bytes, gang_policy, batch)?
                }
            }
        };
        let mut pointer = BlockPointer::stored(&StoredBlock {
            dvas: &dvas,
            logical_size: slot.logical_size,
            physical_size: size,
            compression: Compression::from_code(compression.code()),
            checksum_kind: ChecksumKind::from_code(policy.checksum.code()),
            checksum: Checksum(checksum.0),
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
        Ok(pointer)
    }

    /// Places for all copies of `size` bytes in one piece.
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
                size: tarn_ondisk::units::AllocatedSize::new(size.get()),
            });
        }
        let size_on = |vdev| self.size_on(vdev, size);
        self.space.allocate(class, copies, near, &size_on, txg)
    }
}

/// What is left of a request when its data went its way.
struct Slot {
    logical_size: LogicalSize,
    policy: WritePolicy,
    previous: BlockPointer,
    rewritable_size: Option<PhysicalSize>,
    sealing: Option<Sealing>,
}

/// What is stored of a block, and how it will be known.
struct NewForm {
    size: PhysicalSize,
    compression: Compression,
    checksum: Checksum,
    order: ByteOrder,
}

impl Slot {
    /// Whether the slot leads to these contents already, stored by an earlier txg as they would be stored now.
    #[doc(alias = "zio_nop_write")]
    fn is_unchanged(&self, new: &NewForm, txg: Txg) -> bool {
        let (policy, previous) = (&self.policy, &self.previous);
        policy.may_stay()
            && self.sealing.is_none()
            && previous.kind() == PointerKind::Stored
            && previous.birth() < txg
            && !previous.is_dedup()
            && !previous.uses_encryption()
            && previous.dva_count() == policy.copies
            && previous.object_type() == policy.object_type
            && previous.level() == policy.level
            && previous.byte_order() == new.order
            && previous.compression() == new.compression
            && previous.checksum_kind() == ChecksumKind::from_code(policy.checksum.code())
            && previous.logical_size() == self.logical_size
            && previous.physical_size() == new.size
            && previous.checksum() == new.checksum
    }
}

impl WriteRequest {
    /// True if this txg wrote the slot before.
    fn is_written_again(&self, phase: WritePhase) -> bool {
        !self.previous.is_hole() && self.previous.birth() == phase.txg
    }

    /// Whether it may be written over what the slot leads to now, which readers may be on their way to.
    pub fn may_rewrite(&self, phase: WritePhase) -> bool {
        self.rewritable_size(phase).is_some()
    }

    /// The size the block must have to be rewritten where it is; `None` if it may not be.
    fn rewritable_size(&self, phase: WritePhase) -> Option<PhysicalSize> {
        let previous = &self.previous;
        let copies = match previous.is_gang() {
            true => self.policy.gang_copies.max(self.policy.copies),
            false => self.policy.copies,
        };
        let may_rewrite = phase.pass >= PASS_REWRITE
            && previous.kind() == PointerKind::Stored
            && !previous.is_dedup()
            && previous.birth() == phase.txg
            && previous.physical_birth() == phase.txg
            && previous.dva_count() == copies;
        may_rewrite.then(|| previous.physical_size())
    }

    fn into_slot(self, phase: WritePhase) -> Slot {
        Slot {
            rewritable_size: self.rewritable_size(phase),
            logical_size: self.logical_size,
            policy: self.policy,
            previous: self.previous,
            sealing: self.sealing,
        }
    }
}

/// How small a block must get for its compression to count: an eighth less, in whole allocations.
/// What is smaller than one allocation can only be embedded.
#[doc(alias = "zio_get_compression_max_size")]
fn compressed_size_max(
    compression: CompressionAlgorithm,
    size: usize,
    allocation_min: u64,
) -> usize {
    let limit = size - size / 8;
    if compression == CompressionAlgorithm::Zle {
        return limit;
    }
    let step = PhysicalSize::new(allocation_min).to_usize();
    match limit - limit % step {
        0 => PAYLOAD_BYTES_MAX,
        whole => whole,
    }
}

/// How large a compressed block is stored; `None` if it is better stored plain.
fn stored_size(
    compressed: usize,
    logical: usize,
    allocation_min: u64,
    rewritten_size: Option<PhysicalSize>,
) -> Option<usize> {
    let step = PhysicalSize::new(allocation_min).to_usize();
    let whole = compressed.next_multiple_of(step);
    match rewritten_size.map(PhysicalSize::to_usize) {
        // It shrank since the last pass: padding keeps it where it is.
        Some(before) if whole <= before && before < logical => Some(before),
        Some(before) if before == logical => None,
        _ if whole < logical => Some(whole),
        _ => None,
    }
}

/// Cuts a batch to what is worked on at once.
fn chunks(requests: Vec<WriteRequest>) -> Vec<Vec<WriteRequest>> {
    let mut all = Vec::new();
    let mut chunk = Vec::new();
    let mut bytes = 0;
    for request in requests {
        bytes += request.data.len();
        chunk.push(request);
        if bytes >= CHUNK_BYTES {
            all.push(std::mem::take(&mut chunk));
            bytes = 0;
        }
    }
    if !chunk.is_empty() {
        all.push(chunk);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_must_save_an_eighth_in_whole_allocations() {
        let max = |size, min| compressed_size_max(CompressionAlgorithm::Lz4, size, min);
        assert_eq!(max(131072, 512), 114688);
        assert_eq!(max(131072, 4096), 114688);
        assert_eq!(max(16384, 4096), 12288);
        assert_eq!(max(4096, 4096), 112);
        assert_eq!(max(512, 512), 112);
        assert_eq!(
            compressed_size_max(CompressionAlgorithm::Zle, 16384, 4096),
            14336
        );
    }

    #[test]
    fn a_block_keeps_the_size_of_its_earlier_pass_if_it_can() {
        let size = |bytes| Some(PhysicalSize::new(bytes));
        assert_eq!(stored_size(100, 16384, 512, None), Some(512));
        assert_eq!(stored_size(100, 16384, 512, size(4096)), Some(4096));
        assert_eq!(stored_size(5000, 16384, 512, size(4096)), Some(5120));
        assert_eq!(stored_size(100, 16384, 512, size(16384)), None);
        assert_eq!(stored_size(100, 4096, 4096, None), None);
    }
}
