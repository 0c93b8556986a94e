//! What is asked of a write: [`WriteRequest`], and what of it goes with the block through the
//! stages.

use crate::data::Block;
use crate::io::WritePhase;
use crate::policy::WritePolicy;
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::sealing::Sealing;
use tarn_ondisk::units::{LogicalSize, PhysicalSize};
use tarn_transform::CompressionAlgorithm;

/// From this pass on, a block may be rewritten where it is.
#[doc(alias = "zfs_sync_pass_rewrite")]
pub const PASS_REWRITE: u32 = 2;
/// From this pass on, what is rewritten is not compressed.
#[doc(alias = "zfs_sync_pass_dont_compress")]
pub const PASS_DONT_COMPRESS: u32 = 8;
/// From this pass on, frees wait for the next txg.
#[doc(alias = "zfs_sync_pass_deferred_free")]
pub const PASS_DEFER_FREES: u32 = 2;

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
    /// In which form `data` is, if that is the stored form.
    pub given: Option<GivenForm>,
    /// How it is sealed, if its dataset is encrypted.
    pub sealing: Option<Sealing>,
}

/// That the data of a block are its stored form: the sender of a stream has compressed and perhaps
/// encrypted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenForm {
    /// How it was compressed.
    pub compression: CompressionAlgorithm,
    /// In which byte order it was.
    pub order: ByteOrder,
}

/// What is left of a request when its data went its way.
pub(super) struct Slot {
    pub(super) logical_size: LogicalSize,
    pub(super) policy: WritePolicy,
    pub(super) previous: BlockPointer,
    /// The size the block must have to be rewritten where it is; `None` if it may not be.
    pub(super) rewritable_size: Option<PhysicalSize>,
    pub(super) sealing: Option<Sealing>,
}

impl Slot {
    /// Of a request, whose data is dropped.
    pub(super) fn of(request: WriteRequest, phase: WritePhase) -> Slot {
        Slot {
            rewritable_size: request.rewritable_size(phase),
            logical_size: request.logical_size,
            policy: request.policy,
            previous: request.previous,
            sealing: request.sealing,
        }
    }
}

impl WriteRequest {
    /// True if this txg wrote the slot before.
    pub(super) fn is_written_again(&self, phase: WritePhase) -> bool {
        !self.previous.is_hole() && self.previous.birth() == phase.txg
    }

    /// Whether it may be written over what the slot leads to now, which readers may be on their way
    /// to.
    pub fn may_rewrite(&self, phase: WritePhase) -> bool {
        self.rewritable_size(phase).is_some()
    }

    /// The size the block must have to be rewritten where it is; `None` if it may not be.
    pub(super) fn rewritable_size(&self, phase: WritePhase) -> Option<PhysicalSize> {
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
}
