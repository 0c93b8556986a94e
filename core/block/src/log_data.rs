//! Data of indirect log writes: blocks that get their places before their txg is stored, because
//! a record of the intent log leads to them (`WR_INDIRECT`).
//!
//! # Mechanism
//! What must be durable at once need not be written twice, into the log and with its txg: the block
//! goes to where it will stay, and the log's record names it. It passes the stages of a write up to
//! its place here, under a transaction of the open txg; its bytes are written together with the
//! log's own blocks ([`BlockIo::write_log`]).
//!
//! # Invariants
//! - Such a block is in one piece, and never in its pointer: after a crash the importer claims its
//!   places from the pointer alone.
//! - Its checksum tells whether it was written: a block without one is not placed.

use crate::io::{BlockIo, WritePhase};
use crate::write::devices::Batch;
use crate::write::request::WriteRequest;
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::units::{PhysicalSize, Txg};
use tarn_probe::Operation;
use tarn_space::Class;
use tarn_transform::ChecksumAlgorithm;
use tarn_vdev::PhysicalWrite;

/// Blocks that have places, and are not written.
#[derive(Debug)]
#[must_use = "contents are to be written, or places to be freed"]
pub struct PlacedBlocks {
    /// Where they go, and what they will be known by.
    pub pointers: Vec<BlockPointer>,
    pub(crate) writes: Vec<PhysicalWrite>,
}

impl BlockIo {
    /// Places for blocks of the open txg, in the order of the requests. The caller holds its
    /// transaction. `None`, and nothing placed, when one of them is better stored with its txg:
    /// zeros, a block without a checksum or with the contents it had, and where there is little
    /// room or none in one piece.
    #[doc(alias = "dmu_sync")]
    pub fn place_log_data(
        &self,
        requests: Vec<WriteRequest>,
        birth: Txg,
        operation: &Operation,
    ) -> Option<PlacedBlocks> {
        let count = requests.len();
        let sizes = requests.iter().map(|request| request.logical_size.get());
        let is_summed = |request: &WriteRequest| {
            let checksum = request.policy.checksum;
            checksum != ChecksumAlgorithm::Off && !checksum.is_embedded()
        };
        let size = PhysicalSize::from(sizes.sum::<u64>());
        if !requests.iter().all(is_summed) || self.take_log_allowance(Class::Normal, size).is_err()
        {
            return None;
        }
        let phase = WritePhase {
            txg: birth,
            pass: 1,
        };
        let (mut batch, mut pointers) = (Batch::new(birth), Vec::new());
        let placed = self.prepare(requests, phase, &mut batch, &mut pointers, operation);
        let is_new_in_one_piece = |pointer: &BlockPointer| {
            let is_new = pointer.birth() == birth;
            pointer.kind() == PointerKind::Stored && is_new && !pointer.is_gang()
        };
        if placed.is_err() || !pointers.iter().all(is_new_in_one_piece) {
            self.space.undo(&batch.taken, birth);
            return None;
        }
        assert_eq!(pointers.len(), count, "each request has its pointer");
        Some(PlacedBlocks {
            pointers,
            writes: batch.writes,
        })
    }

    /// Whether logs have vdevs of their own, with room.
    pub fn has_log_vdevs(&self) -> bool {
        !self.space.admitted_free(Class::Log).is_zero()
    }
}
