//! The worst-case size of a block: space is promised to a writer before its blocks have places.
//!
//! # Mechanism
//! In one piece a block takes its size in whole sectors, once for each copy, with parity and
//! padding. Where free space is cut to pieces it becomes a gang of pieces as small as the smallest
//! allocation, each with all its parity, and with a header for every two or three of them: that is
//! the worst case, and no block in one piece takes more. All sizes are deflated, as datasets are
//! charged.
//!
//! # Invariants
//! - What storing a block charges its dataset is at most [`BlockIo::worst_size`] of it, as long as
//!   the vdevs stay the same.

use crate::io::BlockIo;
use crate::policy::WritePolicy;
use crate::shapes::VdevShapes;
use tarn_ondisk::units::{AllocatedSize, PhysicalSize, VdevId};
use tarn_space::Class;

/// A gang has this many headers for each [`PIECES`] pieces at most: a header leads to three pieces,
/// and pieces are as large as each other but for one sector, so that few headers lead to two.
const HEADERS: u64 = 3;
/// See [`HEADERS`].
const PIECES: u64 = 4;

impl BlockIo {
    /// What a block of this size takes at worst, written as the policy says, in deflated bytes: in
    /// pieces, all copies and headers included. Compression is not counted on.
    #[doc(alias = "spa_get_worst_case_asize")]
    pub fn worst_size(&self, policy: &WritePolicy, size_bytes: u64) -> u64 {
        self.shapes().worst_size(policy, size_bytes)
    }

    /// What is free in the normal class on vdevs that take new blocks, in deflated bytes.
    pub fn free_size(&self) -> AllocatedSize {
        let shapes = self.shapes();
        let free = self.space.admitted_free_by_vdev(Class::Normal);
        let sizes = free
            .into_iter()
            .map(|(vdev, size)| shapes.deflated_on(vdev, size));
        sizes.fold(AllocatedSize::ZERO, AllocatedSize::saturating_add)
    }
}

impl VdevShapes {
    fn worst_size(&self, policy: &WritePolicy, size_bytes: u64) -> u64 {
        let pieces = size_bytes.div_ceil(self.allocation_min);
        let copies = u64::try_from(policy.copies).unwrap_or(u64::MAX);
        let header_copies = u64::try_from(policy.gang_copies.max(policy.copies));
        let headers = match pieces {
            // What is one sector is never a gang.
            0 | 1 => 0,
            pieces => (pieces * HEADERS / PIECES).max(1),
        };
        let parts = pieces
            .saturating_mul(copies)
            .saturating_add(headers.saturating_mul(header_copies.unwrap_or(u64::MAX)));
        parts.saturating_mul(self.piece_worst)
    }

    /// What the smallest piece takes where it takes the most, deflated. `piece_on` says what it
    /// takes on a vdev.
    pub(crate) fn find_piece_worst(
        &self,
        ordinary: &[VdevId],
        piece_on: impl Fn(VdevId, PhysicalSize) -> AllocatedSize,
    ) -> u64 {
        let piece = PhysicalSize::new(self.allocation_min);
        let sizes = ordinary
            .iter()
            .map(|&vdev| self.deflated_on(vdev, piece_on(vdev, piece)).get());
        sizes.max().unwrap_or(0).max(self.allocation_min)
    }
}
