//! `replacing` and `spare` vdevs after a resilver: the device that is not needed any more leaves.
//!
//! # Mechanism
//! When a resilver ends, the dirty time logs of the devices that it filled are empty. Then
//! - the oldest device of a `replacing` vdev leaves, if the newest is whole; if the `replacing`
//!   vdev was below a `spare` vdev in the place of the failed device, the hot spare leaves, too;
//! - the hot spare of a `spare` vdev leaves, if the device that it stood in for came back
//!   (`unspare`), or the other way round;
//! - of several hot spares for one device all but the last leave, if the last is whole.
//!
//! A device that is needed by the dirty time logs stays, and so does a `replacing` vdev whose
//! newest device failed: an administrator decides which device to keep.
//!
//! # Invariants
//! - All of it happens in the txg in which the resilver ends, so a crash finds the vdev with the
//!   dirty time log or without it and without the old device.

use crate::detach::take_out;
use crate::error::{PoolError, TaskError};
use crate::expand_vdevs::expand_automatically;
use crate::pool::Pool;
use crate::sync_scope::SyncScope;
use tarn_ondisk::units::Guid;
use tarn_probe::Operation;
use tarn_vdev::{Needed, VdevConfig, VdevKind};

/// Lets the devices leave that are not needed any more. Called in the sync thread, after the dirty
/// time logs were emptied of what a resilver filled.
#[doc(alias("spa_vdev_resilver_done", "vdev_resilver_done"))]
pub(crate) fn finish(scope: &SyncScope<'_>) -> Result<(), PoolError> {
    scope.pool.vdevs().note_resilvered();
    let mut has_left = false;
    // Each turn removes a device, so that there is a last one.
    loop {
        let root = scope.pool.vdevs().config();
        let leaving = root
            .children
            .iter()
            .find_map(|top| first_leaving(scope.pool, top, None));
        let Some(leaving) = leaving else {
            break;
        };
        assert!(!leaving.is_empty(), "each turn removes a device");
        for guid in leaving {
            if take_out(scope, guid, Needed::AllBlocks)?.is_none() {
                return Ok(());
            }
            has_left = true;
        }
    }
    match has_left {
        // The device that limited the size of the vdev may be gone.
        true => expand_automatically(scope),
        false => Ok(()),
    }
}

/// The first devices that are not needed any more, at or below a vdev.
#[doc(alias = "spa_vdev_resilver_done_hunt")]
fn first_leaving(pool: &Pool, vdev: &VdevConfig, parent: Option<&VdevConfig>) -> Option<Vec<Guid>> {
    let mut children = vdev.children.iter();
    if let Some(found) = children.find_map(|child| first_leaving(pool, child, Some(vdev))) {
        return Some(found);
    }
    let (first, last) = (vdev.children.first()?, vdev.children.last()?);
    if vdev.children.len() < 2 {
        return None;
    }
    let leaves_for = |old: &VdevConfig, new: &VdevConfig| {
        old.kind.is_leaf() && is_whole(pool, new) && !pool.vdevs().is_required(old.guid)
    };
    match vdev.kind {
        VdevKind::Replacing if leaves_for(first, last) => {
            let mut leaving = vec![first.guid];
            if let Some(spare) = parent.filter(|parent| {
                parent.kind == VdevKind::Spare
                    && parent.children.len() == 2
                    && parent.children[0].guid == vdev.guid
                    && vdev.children.len() == 2
            }) {
                leaving.push(spare.children[1].guid);
            }
            Some(leaving)
        }
        VdevKind::Spare => {
            let ended = match (last.is_unspare(), first.is_unspare()) {
                (true, _) => Some((first, last)),
                (false, true) => Some((last, first)),
                (false, false) => None,
            };
            if let Some((old, new)) = ended
                && leaves_for(old, new)
            {
                return Some(vec![old.guid]);
            }
            let second = &vdev.children[1];
            let has_several = vdev.children.len() > 2 && second.is_spare && last.is_spare;
            (has_several && leaves_for(second, last)).then(|| vec![second.guid])
        }
        _ => None,
    }
}

/// Whether all blocks of a vdev below a top-level vdev can be read from one of its devices.
fn is_whole(pool: &Pool, vdev: &VdevConfig) -> bool {
    let mut leaves = vdev.leaves().into_iter();
    leaves.any(|leaf| {
        let leaf = pool.vdevs().leaf(leaf.guid);
        leaf.is_some_and(|leaf| leaf.is_whole())
    })
}

impl Pool {
    /// Lets the devices leave that are not needed any more, and waits until that is stored. For
    /// devices that became whole without a resilver.
    ///
    /// # Errors
    /// The pool is read-only, suspended or being closed.
    #[doc(alias = "SPA_ASYNC_RESILVER_DONE")]
    pub fn finish_replacing(&self, operation: &Operation) -> Result<(), TaskError> {
        let root = self.vdevs().config();
        let mut tops = root.children.iter();
        match tops.any(|top| first_leaving(self, top, None).is_some()) {
            true => self.run_in_sync(operation, |scope| finish(scope).map(Ok)),
            false => Ok(()),
        }
    }
}
