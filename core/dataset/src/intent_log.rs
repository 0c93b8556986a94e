//! The intent logs of datasets after a crash: their blocks are reached from the objset block, not
//! from an object, and so are freed apart.
//!
//! Logs are claimed when a pool is opened ([`StoreClaims`]); claimed blocks are freed after the
//! replay ([`ForgetLog`]), or with their dataset.

use crate::error::DatasetError;
use crate::namespace::View;
use crate::task::{FeatureCounts, Room, SyncTask, TaskContext, TaskRefusal};
use tarn_block::WritePhase;
use tarn_object::read_head;
use tarn_ondisk as ondisk;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::objset::IntentLogHead;
use tarn_ondisk::units::{ObjectId, Txg};

/// Frees what the intent log of this object set has, which is destroyed.
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
    match read_head(cache, head, root, context.operation) {
        Ok(objset) => free_blocks(context, &objset.intent_log),
        Err(_) => Ok(()),
    }
}

fn free_blocks(context: &TaskContext<'_>, log: &IntentLogHead) -> Result<(), DatasetError> {
    tarn_zil::free(context.io, log, phase_of(context), context.operation)
        .map_err(|cause| DatasetError::Free { cause })
}

fn phase_of(context: &TaskContext<'_>) -> WritePhase {
    WritePhase {
        txg: context.tx.txg(),
        pass: context.tx.pass(),
    }
}

/// Frees the blocks of a log that a crash left and clears its header. The dataset is not changed
/// meanwhile.
#[derive(Debug, Clone, Copy)]
#[doc(alias = "zil_destroy")]
pub struct ForgetLog {
    /// The dataset.
    pub head: ObjectId,
}

impl SyncTask for ForgetLog {
    type Output = ();

    fn room(&self) -> Room {
        Room::any()
    }

    /// What the head stores after a snapshot of this group would look as old as the snapshot.
    fn check(&self, view: View<'_>, _: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let head: ondisk::dataset::Dataset = view.mos().bonus_of(self.head)?;
        let storing = view.namespace().mos().env().txgs.stored_txg().next();
        match view.is_syncing() && head.previous_snapshot_txg == storing {
            true => Err(TaskRefusal::NotInThisGroup),
            false => Ok(()),
        }
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        let set = context.namespace.head_set(self.head, context.operation)?;
        free_blocks(context, &set.phys().intent_log)?;
        set.change_head(context.tx, |objset| {
            objset.intent_log = IntentLogHead::default();
        });
        Ok(())
    }
}

/// Has heads say that their logs were claimed. For the first group of a pool that is opened, in
/// which their blocks are allocated.
#[derive(Debug, Clone)]
pub struct StoreClaims {
    /// Datasets, and what the heads of their logs are to say.
    pub heads: Vec<(ObjectId, IntentLogHead)>,
    /// The first group that was never stored: what was born before it is allocated.
    pub first: Txg,
}

impl SyncTask for StoreClaims {
    type Output = ();

    fn room(&self) -> Room {
        Room::any()
    }

    fn check(&self, _: View<'_>, _: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        Ok(())
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        for (id, head) in &self.heads {
            let (id, head) = (*id, *head);
            let set = context.namespace.head_set(id, context.operation)?;
            let before = set.phys().intent_log;
            if head.first.is_hole() {
                // It can be on a device that is missing; what cannot be freed is only lost room.
                let _ = self.free_given_up(context, &before);
            }
            set.change_head(context.tx, |objset| objset.intent_log = head);
        }
        Ok(())
    }
}

impl StoreClaims {
    /// Frees a log whose head is emptied, claimed or not.
    fn free_given_up(
        &self,
        context: &TaskContext<'_>,
        log: &IntentLogHead,
    ) -> Result<(), DatasetError> {
        if !log.claim_txg.is_zero() {
            return free_blocks(context, log);
        }
        let phase = phase_of(context);
        tarn_zil::free_unclaimed(context.io, log, self.first, phase, context.operation)
            .map_err(|cause| DatasetError::Free { cause })
    }
}
