//! Freeing the blocks of a log, when it was replayed or its dataset is destroyed.
//!
//! # Mechanism
//! The first block of a log is allocated from the moment the head names it. Later blocks are known
//! to be allocated only in a log that was claimed after a crash: up to the last block claimed, with
//! the blocks that its records of writes name, and the references to those that its records of
//! clones name. A pool with a log that could not be claimed is not opened for writing, so a log
//! that was not claimed has nothing more than the first block once the pool is open.
//!
//! A log that is emptied instead of claimed has more: all blocks of the chain that were allocated
//! before the groups began that were never stored. What its records name is not its own.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use tarn_block::{BlockFreeError, BlockIo, WritePhase};
use tarn_ondisk::block_pointer::{BlockPointer, Dva, PointerKind};
use tarn_ondisk::intent_log::LoggedChange;
use tarn_ondisk::objset::IntentLogHead;
use tarn_ondisk::units::Txg;
use tarn_probe::Operation;

use crate::chain::{Found, walk};

/// Frees the blocks of a log of an earlier run that was never claimed, as far as space maps have
/// them: those that were allocated before `first`, the first group that could be stored. The caller
/// empties the head in the same group.
///
/// What lies behind a block that cannot be read is not freed: its space leaks.
///
/// # Errors
/// When a block is not allocated that should be.
#[doc(alias = "zil_clear_log_block")]
pub fn free_unclaimed(
    io: &BlockIo,
    head: &IntentLogHead,
    first: Txg,
    phase: WritePhase,
    operation: &Operation,
) -> Result<(), BlockFreeError> {
    let mut outcome = Ok(());
    walk(io, head, operation, &mut |found| match found {
        Found::Block(pointer) if pointer.birth() < first => {
            outcome = io.free(pointer, phase, operation);
            match outcome {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        }
        Found::Block(_) => ControlFlow::Break(()),
        Found::Written(_) | Found::Record(_) => ControlFlow::Continue(()),
    });
    outcome
}

/// Frees the blocks of a log of an earlier run, and gives up the references that records of clones
/// have got. The caller empties the head in the same group.
///
/// What lies behind a block that cannot be read is not freed: its space leaks.
///
/// # Errors
/// When a block is not allocated that should be: the pool must not go on storing.
#[doc(alias = "zil_destroy_sync")]
pub fn free(
    io: &BlockIo,
    head: &IntentLogHead,
    phase: WritePhase,
    operation: &Operation,
) -> Result<(), BlockFreeError> {
    let is_claimed = !head.claim_txg.is_zero();
    let mut places: BTreeSet<Option<Dva>> = BTreeSet::new();
    let mut outcome = Ok(());
    let mut free = |pointer: &BlockPointer| -> ControlFlow<()> {
        outcome = io.free(pointer, phase, operation);
        match outcome {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    };
    let mut is_first = |pointer: &BlockPointer| {
        pointer.kind() == PointerKind::Stored && places.insert(pointer.dvas().next())
    };
    walk(io, head, operation, &mut |found| match found {
        Found::Block(pointer) => {
            if is_first(pointer) {
                free(pointer)?;
            }
            match is_claimed {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        }
        Found::Written(_) => ControlFlow::Continue(()),
        Found::Record(record) => match &record.change {
            LoggedChange::Write(write) if write.pointer.logical_birth >= head.claim_txg => {
                match is_first(&write.pointer) {
                    true => free(&write.pointer),
                    false => ControlFlow::Continue(()),
                }
            }
            LoggedChange::CloneRange { pointers, .. } => pointers.iter().try_for_each(&mut free),
            _ => ControlFlow::Continue(()),
        },
    });
    outcome
}
