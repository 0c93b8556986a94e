//! `zfs promote`: a clone and the file system of its origin change roles; the latter becomes the
//! clone.
//!
//! # Mechanism
//! The snapshots up to the origin move to the clone: their names, and the charge for their space.
//! No block changes, and of each dataset only its directory. The chains by `previous_snapshot` stay
//! as they are but for one link: after the origin comes the clone's first snapshot, where before
//! the other's came.
//!
//! ```text
//! before   P: p1 ── O ── p2 ── head        D:      └── d1 ── head        D is a clone of P@O
//! after    D: p1 ── O ── d1 ── head        P:      └── p2 ── head        P is a clone of D@O
//! ```
//!
//! A directory is charged for its blocks born after its origin. So what moves is all that was born
//! from P's own origin to O and is still in p1, O or a later one: the referenced space of O, and
//! the blocks that died before it (the deadlists of the moved snapshots), less the referenced space
//! of P's own origin.

use super::bookmark::add as add_bookmark;
use super::receive::half_received::check_whole;
use super::set::find;
use crate::counting_bookmarks::{self, zap_of};
use crate::dataset::Dataset;
use crate::deadlist;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::livelist;
use crate::names::NAME_BYTES_MAX;
use crate::namespace::View;
use crate::snapshot_names;
use crate::space_charge::{Part, SpaceChange, charge};
use crate::space_used::available_to_moved;
use crate::stored::Reading;
use crate::task::{FeatureCounts, InternalEvent, SyncTask, TaskContext, TaskRefusal};
use tarn_ondisk as ondisk;
use tarn_ondisk::dataset::DatasetFlags;
use tarn_ondisk::dataset_dir::{CRYPTO_KEY, DatasetDirectory};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{AllocatedSize, ObjectId, Txg};

/// What of a dataset is stored.
type Stored = ondisk::dataset::Dataset;

/// Promotes a clone.
#[derive(Debug, Clone)]
pub struct Promote {
    /// The full name of the clone.
    pub name: String,
}

impl SyncTask for Promote {
    type Output = ();

    #[doc(alias = "dsl_dataset_promote_check")]
    fn check(&self, view: View<'_>, _features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let clone = find(view, &self.name)?;
        let bad = |why: &str| TaskRefusal::BadValue {
            property: "name".to_string(),
            why: why.to_string(),
        };
        if clone.is_snapshot() {
            return Err(bad("snapshots can not be promoted"));
        }
        check_whole(&clone)?;
        let Some(family) = Family::of(&clone)? else {
            return Err(bad("not a cloned filesystem"));
        };
        if clone.stored()?.flags.contains(DatasetFlags::NO_PROMOTE) {
            return Err(bad("the clone may not be promoted"));
        }
        if family.parent.extension(CRYPTO_KEY)?.is_some() {
            return Err(TaskRefusal::NotSupported {
                what: "promoting an encrypted clone".to_string(),
            });
        }
        family.check_names(&clone)?;
        for link in family
            .shared
            .iter()
            .chain(&family.of_clone)
            .chain(&family.of_parent)
        {
            if !deadlist::is_divided(view.mos(), link.stored.deadlist)? {
                return Err(TaskRefusal::NotSupported {
                    what: "promoting a clone of before pool version 26".to_string(),
                });
            }
        }
        let moved = family.moved_space(view.mos())?;
        let space = u64::try_from(moved.used).unwrap_or(0);
        if available_to_moved(clone.directory(), &family.parent, space)? < space {
            return Err(TaskRefusal::NoSpace {
                why: "out of space".to_string(),
            });
        }
        Ok(())
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        context.namespace.change(|| {
            let directory = context.view().directory(&self.name)?;
            let not_found = || DatasetError::NotFound {
                name: self.name.clone(),
            };
            let clone = directory.head()?.ok_or_else(not_found)?;
            let family = Family::of(&clone)?.ok_or_else(not_found)?;
            family.promote(context, &clone)
        })
    }
}

/// How many snapshots a promotion would give to a clone, and what directory has them now. None for
/// what is no clone.
pub(super) fn moved_by_promotion<'a>(
    clone: &Dataset<'a>,
) -> Result<Option<(Directory<'a>, u64)>, DatasetError> {
    let family = Family::of(clone)?;
    Ok(family.map(|family| {
        let moved = u64::try_from(family.shared.len()).unwrap_or(u64::MAX);
        (family.parent, moved)
    }))
}

/// A dataset of a chain.
struct Link {
    id: ObjectId,
    stored: Stored,
}

/// A clone, and what it is a clone of.
struct Family<'a> {
    /// The directory of what it is a clone of.
    parent: Directory<'a>,
    /// The head of that.
    parent_head: Dataset<'a>,
    /// The full name of the snapshot it is a clone of.
    origin_name: String,
    /// From the origin back to the parent's first snapshot: those that move.
    shared: Vec<Link>,
    /// From the clone's head back to what comes after the origin.
    of_clone: Vec<Link>,
    /// The same of the parent's.
    of_parent: Vec<Link>,
    /// The snapshot that the parent is a clone of, if there is one.
    origin_of_parent: Option<Link>,
}

impl<'a> Family<'a> {
    /// None for what is no clone, or of the pool's empty snapshot only.
    fn of(clone: &Dataset<'a>) -> Result<Option<Family<'a>>, DatasetError> {
        let view = clone.directory().view();
        let mos = view.mos();
        let origin = clone.directory().stored()?.origin;
        if origin.is_zero() {
            return Ok(None);
        }
        let snapshot = view.dataset_by_id(origin)?;
        let parent = snapshot.directory().clone();
        if parent.name().contains('$') {
            return Ok(None);
        }
        let parent_head = parent.head()?.ok_or(DatasetError::Inconsistent {
            object: parent.id(),
            why: "it has snapshots and no head",
        })?;
        let beyond = parent.stored()?.origin;
        let origin_of_parent = match beyond.is_zero() {
            true => None,
            false => Some(Link {
                id: beyond,
                stored: mos.bonus_of(beyond)?,
            }),
        };
        let (shared, of_clone) = (chain(mos, origin, beyond)?, chain(mos, clone.id(), origin)?);
        if shared.is_empty() || of_clone.is_empty() {
            return Err(DatasetError::Inconsistent {
                object: clone.id(),
                why: "its origin is itself, or the origin of its origin's file system",
            });
        }
        Ok(Some(Family {
            shared,
            of_clone,
            of_parent: chain(mos, parent_head.id(), origin)?,
            origin_name: snapshot.name(),
            parent,
            parent_head,
            origin_of_parent,
        }))
    }

    fn origin(&self) -> &Link {
        &self.shared[0]
    }

    /// When the snapshot was taken that the parent is a clone of.
    fn since(&self) -> Txg {
        let origin = self.origin_of_parent.as_ref();
        origin.map_or(Txg::ZERO, |origin| origin.stored.creation_txg)
    }

    /// Refuses names of snapshots and bookmarks that the clone has too, or that are too long below
    /// its name.
    fn check_names(&self, clone: &Dataset<'_>) -> Result<(), TaskRefusal> {
        let limit = NAME_BYTES_MAX.saturating_sub(clone.directory().name().len() + 1);
        let too_long = |name: &str| name.len() > limit;
        let conflict = |name: &str| TaskRefusal::Conflict {
            why: format!(
                "conflicting snapshot '{name}' from parent '{}'",
                self.origin_name
            ),
        };
        let refused_length = || TaskRefusal::NameTooLong {
            why: "dataset name is too long".to_string(),
        };
        for snapshot in self.parent_head.snapshots()? {
            let name = snapshot.snapshot_name().unwrap_or_default();
            if !self.shared.iter().any(|link| link.id == snapshot.id()) {
                continue;
            }
            if too_long(name) {
                return Err(refused_length());
            }
            if clone.snapshot(name)?.is_some() {
                return Err(conflict(name));
            }
        }
        for bookmark in self.parent_head.bookmarks()? {
            if bookmark.stored.creation_txg > self.origin().stored.creation_txg {
                continue;
            }
            if too_long(&bookmark.name) {
                return Err(refused_length());
            }
            if clone.bookmark(&bookmark.name)?.is_some() {
                return Err(conflict(&bookmark.name));
            }
        }
        Ok(())
    }

    /// The space that the clone is charged for from now on, and the parent no more.
    fn moved_space(&self, mos: Reading<'_>) -> Result<SpaceChange, DatasetError> {
        let mut moved = referenced(&self.origin().stored);
        for link in &self.shared {
            if !link.stored.previous_snapshot.is_zero() {
                moved.add(deadlist::space_in(mos, link.stored.deadlist, ..)?);
            }
        }
        if let Some(origin) = &self.origin_of_parent {
            moved.add(referenced(&origin.stored).negated());
        }
        Ok(moved)
    }

    #[doc(alias = "dsl_dataset_promote_sync")]
    fn promote(&self, context: &TaskContext<'_>, clone: &Dataset<'_>) -> Result<(), DatasetError> {
        let reading = context.writing().reading();
        let (own, parent) = (clone.directory(), &self.parent);
        let first = self.of_clone.last().expect("the clone itself is there");
        let origin = self.origin();
        let unique = deadlist::space_in(
            reading,
            first.stored.deadlist,
            origin.stored.previous_snapshot_txg..,
        )?;
        let moved = self.moved_space(reading)?;
        let gained = dead_since(
            reading,
            self.shared.iter().chain(&self.of_clone),
            self.since(),
        )?;
        let kept = dead_since(reading, self.of_parent.iter(), origin.stored.creation_txg)?;
        self.turn_origin(context, clone, first.id, unique.used)?;
        self.move_bookmarks(context, clone)?;
        self.move_snapshots(context, clone)?;
        // What snapshots have of it; the rest is the heads'.
        let of_snapshots = gained - i128::from(own.stored()?.used_by.snapshots.get());
        transfer(context, own.id(), moved, of_snapshots)?;
        let of_snapshots = kept - i128::from(parent.stored()?.used_by.snapshots.get());
        transfer(context, parent.id(), moved.negated(), of_snapshots)?;
        livelist::remove(context, own.id())?;
        livelist::remove(context, parent.id())?;
        context.record(InternalEvent {
            name: "promote",
            dataset: Some((clone.name(), clone.id())),
            text: " ".to_string(),
        });
        Ok(())
    }

    /// The origin leads on to the clone, and clone and origin change places.
    fn turn_origin(
        &self,
        context: &TaskContext<'_>,
        clone: &Dataset<'_>,
        first: ObjectId,
        unique: i128,
    ) -> Result<(), DatasetError> {
        let writing = context.writing();
        let origin = self.origin();
        let unique = u64::try_from(unique).unwrap_or(0);
        writing.change(origin.id, |stored: &mut Stored| {
            stored.next_snapshot = first;
            stored.unique = AllocatedSize::from(unique);
        })?;
        if !origin.stored.next_clones.is_zero() {
            writing.remove_number(origin.stored.next_clones, first)?;
            writing.add_number(origin.stored.next_clones, origin.stored.next_snapshot)?;
        }
        let (own, parent) = (clone.directory().id(), self.parent.id());
        let beyond = self.origin_of_parent.as_ref().map(|link| link.id);
        writing.change(own, |stored: &mut DatasetDirectory| {
            stored.origin = beyond.unwrap_or(ObjectId::ZERO);
        })?;
        writing.change(parent, |stored: &mut DatasetDirectory| {
            stored.origin = origin.id;
        })?;
        if let Some(beyond) = &self.origin_of_parent {
            let directory = beyond.stored.directory;
            remove_clone(context, directory, self.parent_head.id())?;
            add_clone(context, directory, clone.id())?;
        }
        remove_clone(context, parent, clone.id())?;
        add_clone(context, own, self.parent_head.id())
    }

    /// Bookmarks up to the origin go to the clone.
    fn move_bookmarks(
        &self,
        context: &TaskContext<'_>,
        clone: &Dataset<'_>,
    ) -> Result<(), DatasetError> {
        let origin = self.origin();
        if let Some(zap) = zap_of(context, self.parent_head.id())? {
            for bookmark in self.parent_head.bookmarks()? {
                if bookmark.stored.creation_txg <= origin.stored.creation_txg {
                    context.writing().remove(zap, &bookmark.name)?;
                    add_bookmark(context, clone.id(), &bookmark.name, &bookmark.stored)?;
                }
            }
        }
        let origin: Stored = context.writing().reading().bonus_of(origin.id)?;
        counting_bookmarks::next_has_changed(context, clone.id(), &origin)
    }

    /// The snapshots up to the origin, with those that are clones of them, go to the clone.
    fn move_snapshots(
        &self,
        context: &TaskContext<'_>,
        clone: &Dataset<'_>,
    ) -> Result<(), DatasetError> {
        let (writing, own) = (context.writing(), clone.directory().id());
        let names = self.parent_head.snapshots()?;
        let was_next = self.origin().stored.next_snapshot;
        for link in &self.shared {
            let named = names.iter().find(|one| one.id() == link.id);
            let name =
                named
                    .and_then(Dataset::snapshot_name)
                    .ok_or(DatasetError::Inconsistent {
                        object: link.id,
                        why: "its head does not have it among its snapshots",
                    })?;
            snapshot_names::remove(context, &self.parent_head, name)?;
            snapshot_names::add(context, clone, name, link.id)?;
            writing.change(link.id, |stored: &mut Stored| stored.directory = own)?;
            for next in writing.reading().number_names(link.stored.next_clones)? {
                if next == was_next {
                    continue;
                }
                let other: Stored = writing.reading().bonus_of(next)?;
                let directory: DatasetDirectory = writing.reading().bonus_of(other.directory)?;
                remove_clone(context, self.parent.id(), directory.head_dataset)?;
                add_clone(context, own, directory.head_dataset)?;
            }
        }
        Ok(())
    }
}

/// Datasets from `newest` back to, and without, `end`.
#[doc(alias = "snaplist_make")]
fn chain(mos: Reading<'_>, newest: ObjectId, end: ObjectId) -> Result<Vec<Link>, DatasetError> {
    let mut links: Vec<Link> = Vec::new();
    let mut next = newest;
    while next != end && !next.is_zero() {
        let stored: Stored = mos.bonus_of(next)?;
        let is_newer =
            |after: &Link| stored.previous_snapshot_txg >= after.stored.previous_snapshot_txg;
        if links.last().is_some_and(is_newer) {
            return Err(DatasetError::Inconsistent {
                object: next,
                why: "the snapshot before it is not older",
            });
        }
        links.push(Link { id: next, stored });
        next = stored.previous_snapshot;
    }
    debug_assert!(
        links.iter().all(|link| link.id != end),
        "a chain ends before its end"
    );
    Ok(links)
}

fn referenced(dataset: &Stored) -> SpaceChange {
    SpaceChange {
        used: i128::from(dataset.referenced.get()),
        compressed: i128::from(dataset.compressed.get()),
        uncompressed: i128::from(dataset.uncompressed.get()),
    }
}

/// What the deadlists of these have that was born after a txg: what only snapshots have.
#[doc(alias = "snaplist_space")]
fn dead_since<'l>(
    reading: Reading<'_>,
    links: impl Iterator<Item = &'l Link>,
    since: Txg,
) -> Result<i128, DatasetError> {
    let mut bytes = 0;
    for link in links {
        bytes += deadlist::space_in(reading, link.stored.deadlist, since..)?.used;
    }
    Ok(bytes)
}

/// Charges a directory for what moves, of which so much is of snapshots.
fn transfer(
    context: &TaskContext<'_>,
    directory: ObjectId,
    moved: SpaceChange,
    of_snapshots: i128,
) -> Result<(), DatasetError> {
    let snapshots = SpaceChange::of_used(of_snapshots);
    let head = SpaceChange {
        used: moved.used - of_snapshots,
        ..moved
    };
    // First what grows: a part never has less than nothing.
    let mut changes = [(Part::Snapshots, snapshots), (Part::Head, head)];
    assert_eq!(
        changes.iter().map(|(_, change)| change.used).sum::<i128>(),
        moved.used,
        "the parts of a change are the change"
    );
    changes.sort_by_key(|(_, change)| -change.used);
    let writing = context.writing();
    changes
        .into_iter()
        .try_for_each(|(part, change)| charge(writing, directory, part, change))
}

/// The head is a clone of one of the directory's snapshots.
fn add_clone(
    context: &TaskContext<'_>,
    directory: ObjectId,
    head: ObjectId,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let stored: DatasetDirectory = writing.reading().bonus_of(directory)?;
    let clones = match stored.clones {
        none if none.is_zero() => {
            let made = writing.create_zap(ObjectType::DslClones)?;
            writing.change(directory, |stored: &mut DatasetDirectory| {
                stored.clones = made;
            })?;
            made
        }
        there => there,
    };
    writing.add_number(clones, head)
}

/// The head is a clone of none of the directory's snapshots any more.
fn remove_clone(
    context: &TaskContext<'_>,
    directory: ObjectId,
    head: ObjectId,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let stored: DatasetDirectory = writing.reading().bonus_of(directory)?;
    if !stored.clones.is_zero() {
        writing.remove_number(stored.clones, head)?;
    }
    Ok(())
}
