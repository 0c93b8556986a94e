//! Space accounting: used and available space of datasets and directories.
//!
//! # Mechanism
//! Each directory has one number, `used`, for itself and everything below it. It has five parts:
//! the head's unique space, space held by snapshots only, the children's used space, the children's
//! unused reservations, and a refreservation's unused part. A change in one directory changes every
//! ancestor, but only as far as a reservation does not already count it: with a reservation of 10
//! GiB, the parent is charged 10 GiB until more than that is used.
//!
//! The available space of a directory is the least of what its own quota and those of its ancestors
//! leave; at the root, the size of the pool less slop. An unused reservation adds to what its owner
//! may take from the parent.
//!
//! All sizes here are deflated bytes: the allocated size of a block, divided by its vdev's parity
//! ratio.

use crate::dataset::Dataset;
use crate::deadlist;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::names::{DatasetName, NameKind};
use crate::properties::inherit;
use crate::space_charge::{SpaceChange, felt_by_parent};
use crate::stored_tree::DEPTH_MAX;
use tarn_ondisk as ondisk;
use tarn_ondisk::bookmark::Bookmark;
use tarn_ondisk::units::{ObjectId, Txg};

/// The space columns of a head, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeadSpace {
    /// `referenced`.
    pub referenced: u64,
    /// `available`.
    pub available: u64,
}

/// What is left to a directory, counting only what is stored.
pub fn directory_available(directory: &Directory<'_>) -> Result<u64, DatasetError> {
    available_after(directory, None)
}

/// What would be left to a directory if one of its ancestors used so much less: the change is not
/// positive.
#[doc(alias = "dsl_dir_space_available")]
fn available_after(
    directory: &Directory<'_>,
    relieved: Option<(ObjectId, i128)>,
) -> Result<u64, DatasetError> {
    // From the root down: each step narrows what the one above leaves.
    let mut left = None;
    for step in directory.lineage()?.iter().rev() {
        let stored = step.stored()?;
        let mut used = stored.used.get();
        let own_limit = match stored.quota.get() {
            0 => u64::MAX,
            quota => quota,
        };
        let (limit, parent_left) = match left {
            None => (
                own_limit.min(directory.view().namespace().adjusted_bytes()),
                u64::MAX,
            ),
            Some(parent_left) => {
                let unused_reservation = stored.reservation.get().saturating_sub(used);
                (
                    own_limit,
                    u64::saturating_add(parent_left, unused_reservation),
                )
            }
        };
        let mut parent_left: u64 = parent_left;
        if let Some((ancestor, change)) = relieved
            && ancestor == step.id()
        {
            assert!(change <= 0, "a move relieves what is above both places");
            let less = u64::try_from(-change).unwrap_or(0);
            used = used.saturating_sub(less);
            parent_left = parent_left.saturating_add(less);
        }
        left = Some(limit.saturating_sub(used).min(parent_left));
    }
    Ok(left.unwrap_or(0))
}

/// What would be left to a directory if so much were moved into it that another one, and those
/// above that, have now.
#[doc(alias = "dsl_dir_transfer_possible")]
pub(crate) fn available_to_moved(
    to: &Directory<'_>,
    from: &Directory<'_>,
    space: u64,
) -> Result<u64, DatasetError> {
    let above: Vec<ObjectId> = to.lineage()?.iter().map(Directory::id).collect();
    // What the first directory above both will be relieved of.
    let mut relieved = -i128::from(space);
    for step in from.lineage()? {
        if above.contains(&step.id()) {
            return available_after(to, Some((step.id(), relieved)));
        }
        relieved = felt_by_parent(&step.stored()?, relieved);
        assert!(
            (-i128::from(space)..=0).contains(&relieved),
            "a parent is relieved of at most what moves"
        );
    }
    available_after(to, None)
}

/// The space columns of a head: with its refquota, and the refreservation that only it may use.
pub fn head_space(head: &Dataset<'_>) -> Result<HeadSpace, DatasetError> {
    let stored = head.stored()?;
    let reserved = inherit::local_number(head.directory(), "refreservation")?.unwrap_or(0);
    let quota = inherit::local_number(head.directory(), "refquota")?.unwrap_or(0);
    let referenced = stored.referenced.get();
    let mut available = directory_available(head.directory())?;
    available = available.saturating_add(reserved.saturating_sub(stored.unique.get()));
    if quota != 0 {
        available = available.min(quota.saturating_sub(referenced));
    }
    Ok(HeadSpace {
        referenced,
        available,
    })
}

/// The same of a snapshot, as `statfs` shows it: limits of the head do not bind it.
#[doc(alias = "dsl_dataset_space")]
pub fn snapshot_space(snapshot: &Dataset<'_>) -> Result<HeadSpace, DatasetError> {
    Ok(HeadSpace {
        referenced: snapshot.stored()?.referenced.get(),
        available: directory_available(snapshot.directory())?,
    })
}

/// The `written` property: what changed since the snapshot before.
pub fn written(dataset: &Dataset<'_>) -> Result<u64, DatasetError> {
    let referenced = dataset.stored()?.referenced.get();
    let Some(previous) = dataset.previous()? else {
        return Ok(referenced);
    };
    let since = referenced.saturating_add(dataset.deadlist_used()?);
    Ok(since.saturating_sub(previous.referenced.get()))
}

/// Space that destroying a range of snapshots would free: these two, the older first, and all
/// between them.
#[doc(alias = "dsl_dataset_space_wouldfree")]
pub fn freed_by_range(first: &Dataset<'_>, last: &Dataset<'_>) -> Result<u64, DatasetError> {
    let mos = first.directory().view().mos();
    let since = first.stored()?.previous_snapshot_txg;
    let mut bytes = 0u64;
    let mut id = last.stored()?.next_snapshot;
    while id != first.id() && !id.is_zero() {
        let stored: ondisk::dataset::Dataset = mos.bonus_of(id)?;
        let freed = deadlist::space_in(mos, stored.deadlist, since..)?;
        bytes = bytes.saturating_add(u64::try_from(freed.used).unwrap_or(0));
        id = stored.previous_snapshot;
    }
    Ok(bytes)
}

/// The properties `written@…` and `written#…`: what a dataset has that was written since a snapshot
/// or bookmark. None where that is not in its past, or is a bookmark that does not count.
pub fn written_since(
    dataset: &Dataset<'_>,
    since: &DatasetName,
) -> Result<Option<u64>, DatasetError> {
    let view = dataset.directory().view();
    let sizes = match since.kind() {
        NameKind::Snapshot => {
            let snapshot = view.dataset(since)?;
            sizes_written(dataset, &Since::Snapshot(&snapshot))?
        }
        _ => {
            let head = view.directory(since.head())?.head()?;
            let short = since.tail().unwrap_or_default();
            let found = head.as_ref().map(|head| head.bookmark(short)).transpose()?;
            match (&head, &found.flatten()) {
                (Some(head), Some(found)) => {
                    sizes_written(dataset, &Since::Bookmark(head, &found.stored))?
                }
                _ => None,
            }
        }
    };
    Ok(sizes.map(|sizes| sizes.used))
}

/// A snapshot or bookmark in the past of a dataset.
pub enum Since<'a> {
    /// When this snapshot was taken.
    Snapshot(&'a Dataset<'a>),
    /// When the snapshot was taken that this is a bookmark of, with the head that has the bookmark.
    Bookmark(&'a Dataset<'a>, &'a Bookmark),
}

/// Written bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// As it is charged.
    pub used: u64,
    /// After compression.
    pub compressed: u64,
    /// Before compression.
    pub uncompressed: u64,
}

/// Bytes of a dataset written since then. None where that is not in its past, or is a bookmark
/// without counts.
#[doc(alias = "dsl_dataset_space_written")]
pub fn sizes_written(
    dataset: &Dataset<'_>,
    since: &Since<'_>,
) -> Result<Option<Sizes>, DatasetError> {
    let now = dataset.stored()?;
    let signed = |bytes: u64| i128::from(bytes);
    let (of, txg, before, mut written) = match since {
        Since::Snapshot(snapshot) => {
            let stored = snapshot.stored()?;
            let before = SpaceChange {
                used: signed(stored.referenced.get()),
                compressed: signed(stored.compressed.get()),
                uncompressed: signed(stored.uncompressed.get()),
            };
            (
                *snapshot,
                stored.creation_txg,
                before,
                SpaceChange::default(),
            )
        }
        Since::Bookmark(head, bookmark) => {
            if bookmark.flags & Bookmark::HAS_FREED_BEFORE_NEXT == 0 {
                return Ok(None);
            }
            let before = SpaceChange {
                used: signed(bookmark.referenced.get()),
                compressed: signed(bookmark.compressed.get()),
                uncompressed: signed(bookmark.uncompressed.get()),
            };
            let freed = SpaceChange {
                used: signed(bookmark.referenced_freed_before_next.get()),
                compressed: signed(bookmark.compressed_freed_before_next.get()),
                uncompressed: signed(bookmark.uncompressed_freed_before_next.get()),
            };
            (*head, bookmark.creation_txg, before, freed)
        }
    };
    if !is_before(of, txg, dataset)? {
        return Ok(None);
    }
    // A snapshot counts nothing itself, so what was freed until the next one is asked for, too.
    let is_counted = matches!(since, Since::Bookmark(..));
    let mos = dataset.directory().view().mos();
    let mut link = now;
    loop {
        let is_next = link.previous_snapshot_txg <= txg;
        if !(is_next && is_counted) {
            written.add(deadlist::space_in(mos, link.deadlist, ..txg)?);
        }
        if is_next {
            break;
        }
        link = mos.bonus_of(link.previous_snapshot)?;
    }
    let sum = |now: u64, written: i128, before: i128| {
        u64::try_from((signed(now) + written - before).max(0)).unwrap_or(u64::MAX)
    };
    Ok(Some(Sizes {
        used: sum(now.referenced.get(), written.used, before.used),
        compressed: sum(now.compressed.get(), written.compressed, before.compressed),
        uncompressed: sum(
            now.uncompressed.get(),
            written.uncompressed,
            before.uncompressed,
        ),
    }))
}

/// Whether what a dataset was in a txg is in the past of another: the same one later, or a clone of
/// it.
#[doc(alias = "dsl_dataset_is_before")]
pub fn is_before(
    earlier: &Dataset<'_>,
    earlier_txg: Txg,
    later: &Dataset<'_>,
) -> Result<bool, DatasetError> {
    let view = later.directory().view();
    let of = earlier.directory().id();
    let mut later_txg = later.is_snapshot().then_some(later.stored()?.creation_txg);
    let mut directory = later.directory().clone();
    for step in 0..DEPTH_MAX {
        // What a clone began with is as good as what was before it.
        let is_late = later_txg.is_some_and(|txg| match step {
            0 => earlier_txg >= txg,
            _ => earlier_txg > txg,
        });
        if is_late {
            return Ok(false);
        }
        if directory.id() == of {
            return Ok(true);
        }
        let origin = directory.stored()?.origin;
        if origin.is_zero() {
            return Ok(false);
        }
        let origin = view.dataset_by_id(origin)?;
        later_txg = Some(origin.stored()?.creation_txg);
        directory = origin.directory().clone();
    }
    Ok(false)
}

/// A compression ratio times 100; 100 when nothing is stored.
pub fn ratio(uncompressed: u64, compressed: u64) -> u64 {
    match compressed {
        0 => 100,
        // A product of two sizes on disk can exceed 64 bits.
        _ => u64::try_from(u128::from(uncompressed) * 100 / u128::from(compressed))
            .unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::ratio;

    #[test]
    fn a_ratio_of_nothing_is_one() {
        assert_eq!(ratio(0, 0), 100);
        assert_eq!(ratio(176, 100), 176);
        assert_eq!(ratio(u64::MAX, 1), u64::MAX);
    }
}
