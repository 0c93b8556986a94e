//! The datasets of a scan: in which order they are visited, and what becomes of position and queue
//! when datasets change.
//!
//! # Mechanism
//! A snapshot has the blocks of the one before it, and more. So the chain from a snapshot to the
//! next is followed, and of each dataset only the blocks born after the one before it are visited:
//! every block once. All chains begin at the empty snapshot of the pool (`$ORIGIN`). When a
//! snapshot was visited, the dataset behind it and its clones go into the queue.
//!
//! The datasets change while a scan runs:
//!
//! - A snapshot that is *destroyed* leaves its blocks to the dataset behind it: that takes its
//!   place, and the birth after which its blocks are visited. If it was being visited, the one
//!   behind it is visited once more for what it has besides.
//! - A *snapshot taken* of a dataset has what that had: it takes its place.
//! - Heads that *exchange* their blocks change places.
//!
//! All of it happens in the same txg, to the position and queue in memory and to those that are
//! stored.

use super::progress::{change_queue, has_queued, is_running, put};
use crate::directory::Directory;
use crate::error::PoolError;
use crate::pool::Pool;
use crate::sync_scope::SyncScope;
use tarn_dataset::ChainChange;
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::dataset::Dataset;
use tarn_ondisk::dataset_dir::DatasetDirectory;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::ROOT_DATASET;
use tarn_ondisk::scan::{NO_DATASET, Scan};
use tarn_ondisk::units::ObjectId;

/// The directory of the empty snapshot that all datasets are clones of.
const ORIGIN: &str = "$ORIGIN";

/// Most directories that are followed in a pool without `$ORIGIN`.
const DIRECTORIES_MAX: usize = 1 << 24;

impl Pool {
    /// Has the scan follow the datasets that have changed in this txg.
    pub(super) fn follow_datasets(&self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        let changes = self.namespace().take_chain_changes();
        if changes.is_empty() || self.scans.running().is_none() {
            return Ok(());
        }
        for change in changes {
            self.follow(scope, change)?;
        }
        Ok(())
    }

    fn follow(&self, scope: &SyncScope<'_>, change: ChainChange) -> Result<(), PoolError> {
        let writer = scope.writer;
        let (stored, is_stored_changed) = {
            let mut progress = self.scans.progress.lock();
            let mut now = progress.now.filter(is_running).expect("the scan runs");
            follow_position(&mut now, change);
            progress.now = Some(now);
            let queue = &mut progress.queue;
            match change {
                ChainChange::Destroyed { dataset, next } => {
                    if let Some(after) = queue.remove(&dataset)
                        && let Some(next) = next
                    {
                        let known = queue.get(&next).copied();
                        queue.insert(next, known.map_or(after, |known| known.min(after)));
                    }
                }
                ChainChange::Snapshotted { head, snapshot } => {
                    if let Some(after) = queue.remove(&head) {
                        queue.insert(snapshot, after);
                    }
                }
                ChainChange::Exchanged { one, other } => {
                    let (of_one, of_other) = (queue.remove(&one), queue.remove(&other));
                    of_one.map(|after| queue.insert(other, after));
                    of_other.map(|after| queue.insert(one, after));
                }
            }
            let before = progress.stored;
            follow_position(&mut progress.stored, change);
            (progress.stored, progress.stored != before)
        };
        match change {
            ChainChange::Destroyed { dataset, next } => {
                change_queue(writer, stored.queue, (dataset, next))?;
            }
            ChainChange::Snapshotted { head, snapshot } => {
                change_queue(writer, stored.queue, (head, Some(snapshot)))?;
            }
            ChainChange::Exchanged { one, other } => {
                let has_one = has_queued(writer, stored.queue, one)?;
                let has_other = has_queued(writer, stored.queue, other)?;
                match (has_one, has_other) {
                    (true, false) => change_queue(writer, stored.queue, (one, Some(other)))?,
                    (false, true) => change_queue(writer, stored.queue, (other, Some(one)))?,
                    _ => {}
                }
            }
        }
        match is_stored_changed {
            true => put(writer, &stored),
            false => Ok(()),
        }
    }
}

/// The position of a scan after a change of datasets.
fn follow_position(scan: &mut Scan, change: ChainChange) {
    match change {
        ChainChange::Destroyed { dataset, next } if scan.mark.objset == dataset => match next {
            Some(next) => {
                scan.mark.objset = next;
                scan.flags |= Scan::VISIT_AGAIN;
            }
            None => {
                scan.mark = TraversalMark {
                    objset: NO_DATASET,
                    ..TraversalMark::default()
                };
            }
        },
        ChainChange::Snapshotted { head, snapshot } if scan.mark.objset == head => {
            scan.mark.objset = snapshot;
        }
        ChainChange::Exchanged { one, other } => {
            if scan.mark.objset == one {
                scan.mark.objset = other;
            } else if scan.mark.objset == other {
                scan.mark.objset = one;
            }
        }
        _ => {}
    }
}

/// A dataset of the MOS. None where the object is no dataset, whatever leads to it.
pub(super) fn dataset(
    directory: Directory<'_>,
    id: ObjectId,
) -> Result<Option<Dataset>, PoolError> {
    let Ok(object) = directory.object(id) else {
        return Ok(None);
    };
    match object.info().bonus_type == ObjectType::DslDataset {
        true => directory.bonus(id).map(Some),
        false => Ok(None),
    }
}

/// The datasets behind one that was visited: the next of its chain, and its clones.
pub(super) fn behind(directory: Directory<'_>, dataset: &Dataset) -> Vec<ObjectId> {
    let mut found = Vec::new();
    if !dataset.is_snapshot() {
        return found;
    }
    if !dataset.next_snapshot.is_zero() {
        found.push(dataset.next_snapshot);
    }
    if !dataset.next_clones.is_zero() {
        // A table that cannot be read is found damaged by the scan of the MOS.
        let clones = directory.entries(dataset.next_clones).unwrap_or_default();
        let clones = clones.into_iter();
        found.extend(clones.filter_map(|(_, value)| value.as_word().map(ObjectId::new)));
    }
    found
}

/// The datasets with which a scan begins: the empty snapshot, or in pools that have none the first
/// of each chain.
pub(super) fn first(directory: Directory<'_>) -> Result<Vec<ObjectId>, PoolError> {
    let root = directory.require(ROOT_DATASET)?;
    let of_root: DatasetDirectory = directory.bonus(root)?;
    let origin = directory.value_in(of_root.children, ORIGIN)?;
    if let Some(origin) = origin.and_then(|value| value.as_word()) {
        let of_origin: DatasetDirectory = directory.bonus(ObjectId::new(origin))?;
        if let Some(head) = dataset(directory, of_origin.head_dataset)?
            && !head.previous_snapshot.is_zero()
        {
            return Ok(vec![head.previous_snapshot]);
        }
    }
    first_of_chains(directory, root)
}

/// The oldest dataset of each chain, where no snapshot is common to all.
fn first_of_chains(directory: Directory<'_>, root: ObjectId) -> Result<Vec<ObjectId>, PoolError> {
    let mut waiting = vec![root];
    let mut found = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if !seen.insert(id) || seen.len() > DIRECTORIES_MAX {
            continue;
        }
        let stored: DatasetDirectory = directory.bonus(id)?;
        let mut oldest = stored.head_dataset;
        // Births fall along a chain, so it ends.
        let mut next = dataset(directory, oldest)?;
        while let Some(one) = next.filter(|one| !one.previous_snapshot.is_zero()) {
            let before = dataset(directory, one.previous_snapshot)?;
            if before.is_none_or(|before| before.creation_txg >= one.creation_txg) {
                break;
            }
            oldest = one.previous_snapshot;
            next = before;
        }
        if !oldest.is_zero() {
            found.push(oldest);
        }
        if !stored.children.is_zero() {
            let children = directory.entries(stored.children)?;
            let ids = children
                .into_iter()
                .filter_map(|(_, value)| value.as_word());
            waiting.extend(ids.map(ObjectId::new));
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(dataset: u64) -> Scan {
        let mut scan = Scan::default();
        scan.mark.objset = ObjectId::new(dataset);
        scan.mark.object = ObjectId::new(9);
        scan
    }

    #[test]
    fn the_position_goes_to_the_dataset_that_has_the_blocks() {
        let (one, other) = (ObjectId::new(1), ObjectId::new(2));
        let mut scan = at(1);
        let next = Some(other);
        follow_position(&mut scan, ChainChange::Destroyed { dataset: one, next });
        assert_eq!(
            (scan.mark.objset, scan.mark.object),
            (other, ObjectId::new(9))
        );
        assert_eq!(scan.flags, Scan::VISIT_AGAIN);
        let (dataset, next) = (other, None);
        follow_position(&mut scan, ChainChange::Destroyed { dataset, next });
        assert_eq!(scan.mark.objset, NO_DATASET);
        assert_eq!(scan.mark.object, ObjectId::ZERO);
        let mut scan = at(1);
        let (head, snapshot) = (one, other);
        follow_position(&mut scan, ChainChange::Snapshotted { head, snapshot });
        assert_eq!(scan.mark.objset, other);
        follow_position(&mut scan, ChainChange::Exchanged { one, other });
        assert_eq!(scan.mark.objset, one);
        follow_position(&mut scan, ChainChange::Exchanged { one, other });
        assert_eq!(scan.mark.objset, other);
        let (dataset, next) = (ObjectId::new(7), None);
        follow_position(&mut scan, ChainChange::Destroyed { dataset, next });
        assert_eq!(scan.mark.objset, other);
    }
}
