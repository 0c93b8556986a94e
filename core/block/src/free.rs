//! Giving a block's space back.
//!
//! # Mechanism
//! In the first sync pass, freed blocks go to `space` at once. In later passes they would dirty
//! space maps again, and the sync would not end; so the pointer is deferred, and `pool` stores it
//! to be freed in the next txg ([`BlockIo::take_deferred_frees`]).

use crate::error::BlockFreeError;
use crate::gang;
use crate::io::{BlockIo, WritePhase, address};
use crate::ref_table::Release;
use crate::write::request::PASS_DEFER_FREES;
use tarn_host::canary::{Canary, sings};
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::units::Txg;
use tarn_probe::Operation;
use tarn_space::Allocation;

impl BlockIo {
    /// Frees a block in this phase, or keeps it to be freed in the next txg.
    ///
    /// # Errors
    /// The pointer leads to space that is not allocated, or to a block in the dedup table, or the
    /// references to it cannot be read: the pool must not go on storing.
    pub fn free(
        &self,
        pointer: &BlockPointer,
        phase: WritePhase,
        operation: &Operation,
    ) -> Result<(), BlockFreeError> {
        if pointer.kind() != PointerKind::Stored {
            return Ok(());
        }
        assert!(!phase.txg.is_zero(), "a block is freed in a syncing txg");
        self.probes.frees.increment();
        if phase.pass >= PASS_DEFER_FREES {
            self.deferred_frees.lock().push(*pointer);
            return Ok(());
        }
        self.free_now(pointer, phase.txg, operation)
    }

    /// The pointers whose blocks are to be freed in the next txg. They are forgotten here.
    pub fn take_deferred_frees(&self) -> Vec<BlockPointer> {
        std::mem::take(&mut *self.deferred_frees.lock())
    }

    /// Frees a block whatever the pass.
    ///
    /// # Errors
    /// As [`free`](Self::free).
    pub fn free_now(
        &self,
        pointer: &BlockPointer,
        txg: Txg,
        operation: &Operation,
    ) -> Result<(), BlockFreeError> {
        let block = address(pointer);
        if pointer.kind() != PointerKind::Stored {
            return Ok(());
        }
        if pointer.is_dedup() {
            return Err(BlockFreeError::Deduplicated { block });
        }
        // Only contents of files and volumes are ever shared.
        let is_data = pointer.level().is_data() && !pointer.object_type().is_metadata();
        if let Some(table) = self.ref_table.as_ref().filter(|_| is_data) {
            let released = table.release(pointer, self.deflated_size(pointer), operation);
            let released = released.map_err(|cause| BlockFreeError::RefTable { block, cause })?;
            if released == Release::Shared {
                return Ok(());
            }
        }
        if sings(Canary::ForgetFree) && pointer.birth().get().is_multiple_of(16) {
            return Ok(());
        }
        for dva in pointer.dvas() {
            self.scan_queue.freed(dva.vdev(), dva.offset().get());
        }
        let places = gang::places(self, pointer, operation);
        let places = places.map_err(|why| BlockFreeError::Gang {
            block,
            why: Box::new(why),
        })?;
        self.free_places(&places, txg)
            .map_err(|why| BlockFreeError::Space { block, why })
    }

    /// Frees all that can be freed, and gives back the first refusal.
    fn free_places(
        &self,
        places: &[(Allocation, Txg)],
        txg: Txg,
    ) -> Result<(), tarn_space::FreeError> {
        let mut outcome = Ok(());
        for (place, birth) in places {
            let freed = self
                .space
                .free(place.vdev, place.offset, place.size, *birth, txg);
            outcome = outcome.and(freed);
        }
        outcome
    }
}
