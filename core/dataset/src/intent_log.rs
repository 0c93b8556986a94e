//! The intent log of a dataset that is destroyed: its blocks hang off the head of the object set, not off an object, and so
//! are freed apart.
//!
//! # Mechanism
//! The first block of a log is allocated from the moment the head names it. Of those after it we know that only for a log
//! that was claimed after a crash: up to the last block claimed, and with the blocks that its records of writes name. A pool
//! with a log that was neither claimed nor replayed is not opened for writing, so a log that was not claimed has nothing
//! more than the first block.

use crate::error::DatasetError;
use crate::task::TaskContext;
use std::collections::BTreeSet;
use tarn_block::WritePhase;
use tarn_object::read_head;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::intent_log::{LogBlock, LogForm, LoggedChange, SEQUENCE_WORD};
use tarn_ondisk::units::ObjectId;

/// Longest log that is followed: a guard against one that bites its tail.
const LOG_BLOCKS_MAX: usize = 1 << 20;

/// Frees what the intent log of this object set has.
#[doc(alias = "zil_destroy_sync")]
pub(crate) fn free(
    context: &TaskContext<'_>,
    head: ObjectId,
    root: &BlockPointer,
) -> Result<(), DatasetError> {
    if root.is_hole() {
        return Ok(());
    }
    let cache = &context.mos().env().cache;
    // A head that cannot be read keeps its log: it leaks a block, and the destruction goes on.
    let Ok(objset) = read_head(cache, head, root, context.operation) else {
        return Ok(());
    };
    let log = objset.intent_log;
    let is_claimed = !log.claim_txg.is_zero();
    let mut freed = BTreeSet::new();
    let mut next = Some(log.first);
    while let Some(pointer) = next.take().filter(|pointer| !pointer.is_hole()) {
        let sequence = pointer.checksum_words.0[SEQUENCE_WORD];
        let is_beyond = is_claimed && sequence > log.claimed_block_sequence;
        if is_beyond || freed.len() >= LOG_BLOCKS_MAX || !freed.insert(place_of(&pointer)) {
            return Ok(());
        }
        let contents = context.io.read(&pointer, context.operation);
        free_one(context, &pointer)?;
        let (Ok(contents), true) = (contents, is_claimed) else {
            return Ok(());
        };
        let Some(form) = LogForm::of_checksum(pointer.checksum_kind()) else {
            return Ok(());
        };
        let Ok(block) = LogBlock::decode(&contents, form) else {
            return Ok(());
        };
        for record in block.records().flatten() {
            if let LoggedChange::Write(write) = &record.change
                && !write.pointer.is_hole()
                && write.pointer.logical_birth >= log.claim_txg
                && freed.insert(place_of(&write.pointer))
            {
                free_one(context, &write.pointer)?;
            }
        }
        next = Some(block.chain.next);
    }
    Ok(())
}

/// What tells blocks apart.
fn place_of(pointer: &BlockPointer) -> Option<(u64, u64)> {
    let dva = pointer.dvas().next()?;
    Some((dva.vdev().get(), dva.offset().get()))
}

fn free_one(context: &TaskContext<'_>, pointer: &BlockPointer) -> Result<(), DatasetError> {
    let phase = WritePhase {
        txg: context.tx.txg(),
        pass: context.tx.pass(),
    };
    context
        .io
        .free(pointer, phase, context.operation)
        .map_err(|cause| DatasetError::Free { cause })
}
