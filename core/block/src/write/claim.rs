//! The third stage of writing: a block whose bytes are stored already is not written again.
//!
//! # Mechanism
//! A block with the same contents as before stays in its place, with its pointer (nop write): where
//! its checksum is strong enough to know that, and nothing else about the block would change
//! ([`WritePolicy::may_stay`](crate::WritePolicy::may_stay)). Claiming a twin in the dedup table is
//! planned here.

use super::request::Slot;
use super::seal::StoredContents;
use crate::io::{BlockIo, WritePhase};
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::checksum::ChecksumKind;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::units::Txg;

impl BlockIo {
    /// The pointer to a stored block with these contents, if there is one.
    pub(super) fn claim(
        &self,
        slot: &Slot,
        contents: &StoredContents,
        phase: WritePhase,
    ) -> Option<BlockPointer> {
        if !is_unchanged(slot, contents, phase.txg) {
            return None;
        }
        assert!(slot.rewritable_size.is_none(), "it is of an earlier txg");
        self.probes.unchanged.increment();
        Some(slot.previous)
    }
}

/// Whether the slot leads to these contents already, stored by an earlier txg as they would be
/// stored now.
#[doc(alias = "zio_nop_write")]
fn is_unchanged(slot: &Slot, contents: &StoredContents, txg: Txg) -> bool {
    let (policy, previous) = (&slot.policy, &slot.previous);
    policy.may_stay()
        && slot.sealing.is_none()
        && previous.kind() == PointerKind::Stored
        && previous.birth() < txg
        && !previous.is_dedup()
        && !previous.uses_encryption()
        && previous.dva_count() == policy.copies
        && previous.object_type() == policy.object_type
        && previous.level() == policy.level
        && previous.byte_order() == contents.order
        && previous.compression() == Compression::from_code(contents.compression.code())
        && previous.checksum_kind() == ChecksumKind::from_code(policy.checksum.code())
        && previous.logical_size() == slot.logical_size
        && previous.physical_size() == contents.size()
        && previous.checksum() == contents.checksum
}
