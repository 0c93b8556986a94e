//! `zfs rollback`: resets a head to a snapshot.
//!
//! # Mechanism
//! Newer snapshots and bookmarks are destroyed first, in the same txg. Then the head leads to the
//! snapshot's object set again. Its blocks born since are freed in the background, as if it had
//! been destroyed; blocks that died since are alive again, so the deadlist is emptied: its lists
//! name blocks that the head has.
//!
//! # Invariants
//! - The caller has made sure that the head is not open for writing.

use super::bookmark::DestroyBookmarks;
use super::clone::{forget_log, is_of_this_group};
use super::destroy::give_away;
use super::destroy_snapshot::{DestroySnapshots, check_unused};
use super::set::find;
use crate::counting_bookmarks;
use crate::dataset::Dataset;
use crate::deadlist;
use crate::error::DatasetError;
use crate::feature_use;
use crate::livelist;
use crate::names::DatasetName;
use crate::namespace::View;
use crate::properties::inherit::local_number;
use crate::space_charge::{Part, SpaceChange, charge, move_between};
use crate::space_used::directory_available;
use crate::task::{FeatureCounts, InternalEvent, SyncTask, TaskContext, TaskRefusal};
use std::collections::BTreeSet;
use tarn_ondisk as ondisk;
use tarn_ondisk::dataset::{DatasetFlags, REMAP_DEADLIST};
use tarn_ondisk::units::{AllocatedSize, Txg};

/// What of a dataset is stored.
type Stored = ondisk::dataset::Dataset;

/// Resets a file system or volume to a snapshot.
#[derive(Debug, Clone)]
pub struct Rollback {
    /// The full name of the snapshot.
    pub snapshot: String,
    /// Full names of the snapshots and bookmarks that are newer. They go, and there are no others.
    pub newer: Vec<String>,
}

impl SyncTask for Rollback {
    type Output = ();

    #[doc(alias = "dsl_dataset_rollback_check")]
    fn check(&self, view: View<'_>, features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let snapshot = find(view, &self.snapshot)?;
        let Some(head) = snapshot
            .directory()
            .head()?
            .filter(|_| snapshot.is_snapshot())
        else {
            return Err(TaskRefusal::BadValue {
                property: "name".to_string(),
                why: "operation not applicable to datasets of this type".to_string(),
            });
        };
        if !self.names_all_newer(&head, &snapshot)? {
            let name = &self.snapshot;
            return Err(TaskRefusal::NotNewest {
                why: format!("there is a snapshot or bookmark more recent than '{name}'"),
            });
        }
        check_unused(view, head.id())?;
        self.destroys_snapshots().check(view, features)?;
        self.destroys_bookmarks().check(view, features)?;
        let stored = head.stored()?;
        if view.is_syncing() && is_of_this_group(view, &snapshot)? {
            return Err(TaskRefusal::NotInThisGroup);
        }
        let has_remapped = head.extension(REMAP_DEADLIST)?.is_some();
        if has_remapped || !deadlist::is_divided(view.mos(), stored.deadlist)? {
            return Err(TaskRefusal::NotSupported {
                what: "going back to a snapshot with blocks on removed vdevs, or of before pool version 26"
                    .to_string(),
            });
        }
        let no_space = |why: &str| TaskRefusal::NoSpace {
            why: why.to_string(),
        };
        let limit = local_number(head.directory(), "refquota")?.unwrap_or(0);
        if limit != 0 && snapshot.stored()?.referenced.get() > limit {
            return Err(no_space("out of space"));
        }
        let reserved = local_number(head.directory(), "refreservation")?.unwrap_or(0);
        let set_aside = head.directory().stored()?.used_by.ref_reservation.get();
        let anew = reserved.saturating_sub(set_aside);
        if anew > 0 && anew > directory_available(head.directory())? {
            return Err(no_space("out of space"));
        }
        Ok(())
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        context.namespace.change(|| {
            let not_found = || DatasetError::NotFound {
                name: self.snapshot.clone(),
            };
            let name = DatasetName::parse(&self.snapshot).map_err(|_| not_found())?;
            self.destroys_bookmarks().apply(context)?;
            self.destroys_snapshots().apply(context)?;
            let snapshot = context.view().dataset(&name)?;
            let head = snapshot.directory().head()?.ok_or_else(not_found)?;
            go_back(context, &head, &snapshot)
        })
    }
}

impl Rollback {
    fn destroys_snapshots(&self) -> DestroySnapshots {
        let snapshots = self.newer.iter().filter(|name| name.contains('@'));
        DestroySnapshots {
            names: snapshots.cloned().collect(),
            defer: false,
        }
    }

    fn destroys_bookmarks(&self) -> DestroyBookmarks {
        let bookmarks = self.newer.iter().filter(|name| name.contains('#'));
        DestroyBookmarks {
            names: bookmarks.cloned().collect(),
        }
    }

    /// Whether all that is newer than the snapshot goes, and nothing else.
    fn names_all_newer(
        &self,
        head: &Dataset<'_>,
        snapshot: &Dataset<'_>,
    ) -> Result<bool, DatasetError> {
        let txg = snapshot.stored()?.creation_txg;
        let mut newer = BTreeSet::new();
        for other in head.snapshots()? {
            if other.stored()?.creation_txg > txg {
                newer.insert(other.name());
            }
        }
        for bookmark in head.bookmarks()? {
            if bookmark.stored.creation_txg > txg {
                newer.insert(format!("{}#{}", head.name(), bookmark.name));
            }
        }
        Ok(newer == self.newer.iter().cloned().collect())
    }
}

/// What of the head's own blocks its refreservation has paid for.
pub(super) fn paid_for(head: &Dataset<'_>) -> Result<u64, DatasetError> {
    let reserved = local_number(head.directory(), "refreservation")?.unwrap_or(0);
    Ok(reserved.min(head.stored()?.unique.get()))
}

fn go_back(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    snapshot: &Dataset<'_>,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let (before, newest) = (head.stored()?, snapshot.stored()?);
    let directory = head.directory();
    let anew = paid_for(head)?;
    context.record(InternalEvent {
        name: "rollback",
        dataset: Some((head.name(), head.id())),
        text: format!("-> @{}", snapshot.snapshot_name().unwrap_or_default()),
    });
    let dead = deadlist::space_in(writing.reading(), before.deadlist, ..)?;
    give_away(context, head, written_since(&before, &newest, dead))?;
    let origin_txg = origin_txg(context, head)?;
    let alive = deadlist::space_in(writing.reading(), before.deadlist, origin_txg..)?;
    move_between(
        writing,
        directory.id(),
        alive.used,
        Part::Snapshots,
        Part::Head,
    )?;
    let deadlist =
        deadlist::create_like(context, before.deadlist, Txg::MAX, before.previous_snapshot)?;
    deadlist::free(context, before.deadlist)?;
    writing.change(head.id(), |stored: &mut Stored| {
        stored.deadlist = deadlist;
        stored.root = newest.root;
        stored.referenced = newest.referenced;
        stored.compressed = newest.compressed;
        stored.uncompressed = newest.uncompressed;
        stored.unique = AllocatedSize::ZERO;
        stored.flags = stored.flags.with(DatasetFlags::UNIQUE_ACCURATE);
    })?;
    writing.change(snapshot.id(), |stored: &mut Stored| {
        stored.unique = AllocatedSize::ZERO;
    })?;
    let anew = SpaceChange::of_used(i128::from(anew));
    charge(writing, directory.id(), Part::RefReservation, anew)?;
    feature_use::deactivate_all(context, head.id())?;
    feature_use::take_over(context, snapshot.id(), head.id())?;
    counting_bookmarks::next_has_changed(context, head.id(), &newest)?;
    livelist::remove(context, directory.id())?;
    // Opening the head from now on finds what the snapshot has.
    context.namespace.forget_head(head.id());
    forget_log(context, head.id())
}

/// What the head has stored since its newest snapshot and still has.
pub(super) fn written_since(head: &Stored, newest: &Stored, dead: SpaceChange) -> SpaceChange {
    let since = |now: u64, dead: i128, before: u64| i128::from(now) + dead - i128::from(before);
    SpaceChange {
        used: since(head.referenced.get(), dead.used, newest.referenced.get()),
        compressed: since(
            head.compressed.get(),
            dead.compressed,
            newest.compressed.get(),
        ),
        uncompressed: since(
            head.uncompressed.get(),
            dead.uncompressed,
            newest.uncompressed.get(),
        ),
    }
}

/// When the snapshot was taken that the head is a clone of.
pub(super) fn origin_txg(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
) -> Result<Txg, DatasetError> {
    match head.directory().stored()?.origin {
        origin if origin.is_zero() => Ok(Txg::ZERO),
        origin => {
            let origin: Stored = context.writing().reading().bonus_of(origin)?;
            Ok(origin.creation_txg)
        }
    }
}
