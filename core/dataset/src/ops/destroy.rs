//! Destroys a file system or volume without snapshots and children. Snapshots:
//! [`destroy_snapshot`](super::destroy_snapshot); a dataset with its dependents, in one txg:
//! [`destroy_together`](super::destroy_together).
//!
//! # Problem
//! A dataset of a terabyte has millions of blocks. They cannot all be found and freed in one txg.
//!
//! # Mechanism
//! The name goes at once, with all the dataset's objects in the MOS: its record, its deadlist, its
//! directory with properties and counts. Its tree of blocks is appended to the list of trees that
//! are freed in the background ([`free_in_background`](crate::free_in_background)), and its space
//! is charged to the pool's directory `$FREE` from then on. In a pool without that feature the tree
//! is freed in the same txg.
//!
//! Every dataset is a clone: of its origin, or of the pool's empty snapshot. So the snapshot before
//! it is updated, and only blocks born after that snapshot are freed.
//!
//! # After a crash
//! All of it is in one txg, so it has happened or not. Older programs destroyed in two steps, and a
//! receive can be interrupted: the datasets that they leave are marked inconsistent, and destroyed
//! at the next import ([`inconsistent`]).
//!
//! # Invariants
//! - The caller has made sure that the dataset is not open for writing.

use super::bookmark;
use super::boot_filesystem::clear_boot_filesystem;
use super::destroy_snapshot::{Going, check_stays_or_unused, check_unused, destroy_if_marked};
use super::going::Gone;
use super::set::{find, set_reservation, store_with_limits};
use crate::chain_changes::ChainChange;
use crate::creation::FREE_DIRECTORY;
use crate::crypto_key;
use crate::dataset::Dataset;
use crate::deadlist;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::feature_use;
use crate::filesystem_counts::{self, Counted};
use crate::intent_log;
use crate::livelist;
use crate::names::{DatasetName, NameKind, RECEIVE_COMPONENT};
use crate::namespace::View;
use crate::properties::inherit::local_number;
use crate::properties::set::Entry;
use crate::space_charge::{Part, SpaceChange, charge};
use crate::stored::is_zap;
use crate::task::{FeatureCounts, InternalEvent, Room, SyncTask, TaskContext, TaskRefusal};
use crate::writing::{Writing, in_object};
use tarn_block::WritePhase;
use tarn_object::zap::ZapValue;
use tarn_object::{BlockTrees, ObjectError, Step, Visit, Visitor, WalkOptions, walk_objset};
use tarn_ondisk as ondisk;
use tarn_ondisk::dataset_dir::DatasetDirectory;
use tarn_ondisk::features::Feature;
use tarn_ondisk::pool_directory::{self, POOL_DIRECTORY};
use tarn_ondisk::units::{AllocatedSize, LogicalSize, ObjectId, PhysicalSize};

/// Destroys a file system or volume.
#[derive(Debug, Clone)]
pub struct Destroy {
    /// The full name.
    pub name: String,
}

impl SyncTask for Destroy {
    type Output = ();

    fn room(&self) -> Room {
        Room::freeing()
    }

    fn check(&self, view: View<'_>, _features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let is_head =
            DatasetName::parse(&self.name).is_ok_and(|name| name.kind() == NameKind::Head);
        if !is_head {
            return Err(TaskRefusal::BadValue {
                property: "name".to_string(),
                why: "it is no file system and no volume".to_string(),
            });
        }
        check_head(view, &find(view, &self.name)?, &Gone::default())
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        context.namespace.change(|| {
            let head = context
                .view()
                .directory(&self.name)?
                .head()?
                .ok_or_else(|| DatasetError::NotFound {
                    name: self.name.clone(),
                })?;
            destroy_with_remains(context, &head)
        })
    }
}

/// Refuses a head that is in use, is being received into, or has something that depends on it and
/// is not gone by then.
#[doc(alias = "dsl_destroy_head_check_impl")]
pub(super) fn check_head(
    view: View<'_>,
    head: &Dataset<'_>,
    gone: &Gone,
) -> Result<(), TaskRefusal> {
    if head.directory().parent()?.is_none() {
        return Err(busy("operation does not apply to pools"));
    }
    check_unchained(view, head, gone)?;
    let remains = remains_of_receive(head)?;
    let remains = remains.filter(|one| !gone.has_directory(one.directory().id()));
    check_children(head, remains.as_ref(), gone)?;
    match remains {
        Some(remains) => {
            check_unchained(view, &remains, gone)?;
            check_children(&remains, None, gone)
        }
        None => Ok(()),
    }
}

/// Refuses to give up what was half received, where something depends on it. A receive asks for
/// that.
pub(super) fn check_abandoned(view: View<'_>, head: &Dataset<'_>) -> Result<(), TaskRefusal> {
    check_without_snapshots(view, head, &Gone::default())?;
    check_children(head, None, &Gone::default())
}

fn busy(why: &str) -> TaskRefusal {
    TaskRefusal::Busy {
        why: why.to_string(),
    }
}

/// Refuses a head that is in use, is being received into, or has snapshots.
fn check_unchained(view: View<'_>, head: &Dataset<'_>, gone: &Gone) -> Result<(), TaskRefusal> {
    match view.namespace().is_receiving(head.id()) {
        true => Err(busy("dataset is busy")),
        false => check_without_snapshots(view, head, gone),
    }
}

/// Refuses a head that is in use or has snapshots.
fn check_without_snapshots(
    view: View<'_>,
    head: &Dataset<'_>,
    gone: &Gone,
) -> Result<(), TaskRefusal> {
    check_unused(view, head.id())?;
    let Some(previous) = head.previous()? else {
        return Ok(());
    };
    let directory = head.directory();
    // A chain that leads to the head counts, whatever the table of names says: unless what it names
    // goes before.
    let has_snapshots = previous.next_snapshot == head.id();
    let gone_before = gone.snapshots_of(directory.id());
    if has_snapshots && (gone_before == 0 || head.snapshot_count()? > gone_before) {
        return Err(busy("dataset is busy"));
    }
    // By then, that is what it leads to.
    let origin = match has_snapshots {
        true => directory.stored()?.origin,
        false => head.stored()?.previous_snapshot,
    };
    let going = Going {
        holds: 0,
        clones: 1 + gone.clones_of(origin),
    };
    check_stays_or_unused(view, origin, going)
}

/// Refuses a head with children, other than one that goes along.
fn check_children(
    head: &Dataset<'_>,
    goes_along: Option<&Dataset<'_>>,
    gone: &Gone,
) -> Result<(), TaskRefusal> {
    let goes_along = goes_along.map(|head| head.directory().id());
    let children = head.directory().child_ids()?;
    let stays = |id: ObjectId| goes_along != Some(id) && !gone.has_directory(id);
    match children.into_iter().any(|(_, id)| stays(id)) {
        true => Err(TaskRefusal::Exists {
            name: head.directory().name().to_string(),
        }),
        false => Ok(()),
    }
}

/// What a cut receive left below a head: it is not among the children, and so it goes along with
/// the head. A receive that is under way has it, too.
#[doc(alias = "recv_clone_name")]
fn remains_of_receive<'a>(head: &Dataset<'a>) -> Result<Option<Dataset<'a>>, DatasetError> {
    match head.directory().child(RECEIVE_COMPONENT)? {
        Some(directory) => directory.head(),
        None => Ok(None),
    }
}

/// Destroys a head on which nothing depends but what a cut receive left, and that before.
pub(super) fn destroy_with_remains(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
) -> Result<(), DatasetError> {
    let remains = remains_of_receive(head)?;
    for head in remains.iter().chain([head]) {
        let origin = head.stored()?.previous_snapshot;
        destroy(context, head)?;
        destroy_if_marked(context, origin)?;
    }
    Ok(())
}

/// Full names of partly received or partly destroyed heads that cannot be completed.
#[doc(alias = "dsl_destroy_inconsistent")]
pub fn inconsistent(view: View<'_>) -> Result<Vec<String>, DatasetError> {
    let mut found = Vec::new();
    let mut waiting = vec![view.root()?];
    while let Some(directory) = waiting.pop() {
        if let Some(head) = directory.head()? {
            let flags = head.stored()?.flags;
            let is_inconsistent = flags.contains(ondisk::dataset::DatasetFlags::INCONSISTENT);
            // A receive that can be resumed is waited for.
            let resumes = head.extension(ondisk::dataset::RESUME_TO_GUID)?.is_some();
            if is_inconsistent && !resumes {
                found.push(head.name());
            }
        }
        for (component, id) in directory.child_ids()? {
            if !component.starts_with('$') {
                let name = format!("{}/{component}", directory.name());
                waiting.push(Directory::open(view, id, name)?);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[doc(alias = "dsl_destroy_head_sync_impl")]
pub(super) fn destroy(context: &TaskContext<'_>, head: &Dataset<'_>) -> Result<(), DatasetError> {
    let directory = head.directory();
    if local_number(directory, "refreservation")?.unwrap_or(0) != 0 {
        store_with_limits(context, head, "refreservation", &Entry::Cleared)?;
    }
    feature_use::deactivate_all(context, head.id())?;
    let stored = head.stored()?;
    deadlist::free(context, stored.deadlist)?;
    release_blocks(context, head, &stored)?;
    free_bookmarks(context, head)?;
    remove(context, head, &stored)
}

/// Removes a head, whose blocks and deadlist belong to another dataset by now, with its directory.
pub(super) fn remove(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    stored: &ondisk::dataset::Dataset,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let directory = head.directory();
    forget_in_origin(writing, head.id(), stored)?;
    livelist::remove(context, directory.id())?;
    writing.change(directory.id(), |stored: &mut DatasetDirectory| {
        stored.head_dataset = ObjectId::ZERO;
    })?;
    writing.free(stored.snapshot_names)?;
    clear_boot_filesystem(writing, head.id())?;
    writing.free_extended(head.id(), context.features)?;
    destroy_directory(context, directory)?;
    free_error_logs(writing, head.id())?;
    context.namespace.forget_head(head.id());
    context.namespace.chain_changed(ChainChange::Destroyed {
        dataset: head.id(),
        next: None,
    });
    Ok(())
}

/// The snapshot that the dataset was made of has one clone less.
fn forget_in_origin(
    writing: Writing<'_>,
    head: ObjectId,
    stored: &ondisk::dataset::Dataset,
) -> Result<(), DatasetError> {
    if stored.previous_snapshot.is_zero() {
        return Ok(());
    }
    let origin: ondisk::dataset::Dataset = writing.change(
        stored.previous_snapshot,
        |origin: &mut ondisk::dataset::Dataset| {
            origin.child_count = origin.child_count.saturating_sub(1);
        },
    )?;
    if !origin.next_clones.is_zero() {
        writing.remove_number(origin.next_clones, head)?;
    }
    let directory: DatasetDirectory = writing.reading().bonus_of(origin.directory)?;
    if !directory.clones.is_zero() {
        writing.remove_number(directory.clones, head)?;
    }
    Ok(())
}

/// Gives the blocks of the dataset away, with all that its directory is charged for.
fn release_blocks(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    stored: &ondisk::dataset::Dataset,
) -> Result<(), DatasetError> {
    let born_after = stored.previous_snapshot_txg;
    let free = free_directory(context)?;
    let on_livelist = match &free {
        Some(_) => livelist::hand_over(context, head.directory())?,
        None => None,
    };
    let way = match (&free, on_livelist) {
        (Some(_), Some(_)) => "livelist",
        (Some(_), None) => "bptree",
        (None, _) => "synchronous",
    };
    context.record(InternalEvent {
        name: "destroy",
        dataset: Some((head.name(), head.id())),
        text: format!("({way}, mintxg={born_after})"),
    });
    let space = SpaceChange::all_of(&head.directory().stored()?);
    match (free, on_livelist) {
        (Some(free), Some(listed)) => {
            intent_log::free(context, head.id(), &stored.root)?;
            let writing = context.writing();
            charge(writing, free.id(), Part::Head, listed)?;
            let directory = head.directory().id();
            charge(writing, directory, Part::Head, space.negated())
        }
        _ => give_away(context, head, space),
    }
}

/// The directory of what is freed in the background; none in pools that free at once.
fn free_directory<'a>(context: &TaskContext<'a>) -> Result<Option<Directory<'a>>, DatasetError> {
    let free = context.view().root()?.child(FREE_DIRECTORY)?;
    Ok(free.filter(|_| context.features.is_enabled(Feature::AsyncDestroy)))
}

/// Gives what a head has stored since its newest snapshot away, to be freed in the background, or
/// frees it at once: its blocks, which take this space, and its intent log. The directory is
/// charged for them no more.
pub(super) fn give_away(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    space: SpaceChange,
) -> Result<(), DatasetError> {
    let stored = head.stored()?;
    intent_log::free(context, head.id(), &stored.root)?;
    match free_directory(context)? {
        Some(free) => {
            let trees = block_trees(context)?;
            let size = |bytes: i128| u64::try_from(bytes).unwrap_or(0);
            let sizes = (
                AllocatedSize::from(size(space.used)),
                PhysicalSize::from(size(space.compressed)),
                LogicalSize::from(size(space.uncompressed)),
            );
            let born_after = stored.previous_snapshot_txg;
            trees
                .append(
                    context.tx,
                    &stored.root,
                    born_after,
                    sizes,
                    context.operation,
                )
                .map_err(in_object(trees.id()))?;
            charge(context.writing(), free.id(), Part::Head, space)?;
        }
        None => free_now(context, head.id(), &stored)?,
    }
    let directory = head.directory().id();
    charge(context.writing(), directory, Part::Head, space.negated())
}

/// The pool's list of trees to free, which is made when it is first needed.
fn block_trees(context: &TaskContext<'_>) -> Result<BlockTrees, DatasetError> {
    let writing = context.writing();
    let name = pool_directory::BLOCK_TREE;
    if let Some(id) = writing.reading().number(POOL_DIRECTORY, name)? {
        let id = ObjectId::new(id);
        return BlockTrees::open(writing.set, id, writing.operation).map_err(in_object(id));
    }
    let trees = BlockTrees::create(writing.set, writing.tx, writing.operation)
        .map_err(in_object(ObjectId::ZERO))?;
    context.features.increment(Feature::AsyncDestroy)?;
    writing.put(POOL_DIRECTORY, name, &ZapValue::word(trees.id().get()))?;
    Ok(trees)
}

/// Frees all blocks of a tree in this group.
#[doc(alias = "old_synchronous_dataset_destroy")]
fn free_now(
    context: &TaskContext<'_>,
    head: ObjectId,
    stored: &ondisk::dataset::Dataset,
) -> Result<(), DatasetError> {
    let options = WalkOptions {
        born_after: stored.previous_snapshot_txg,
        ..WalkOptions::default()
    };
    let mut freer = Freer {
        context,
        failure: None,
    };
    let cache = &context.mos().env().cache;
    walk_objset(
        cache,
        head,
        &stored.root,
        options,
        &mut freer,
        context.operation,
    );
    freer.failure.map_or(Ok(()), Err)
}

/// Frees what it visits. What is below an unreadable block is given up: it stays allocated, and is
/// leaked.
struct Freer<'a, 'b> {
    context: &'a TaskContext<'b>,
    failure: Option<DatasetError>,
}

impl Visitor for Freer<'_, '_> {
    fn leave(&mut self, visit: &Visit<'_>) -> Step {
        let phase = WritePhase {
            txg: self.context.tx.txg(),
            pass: self.context.tx.pass(),
        };
        let freed = self
            .context
            .io
            .free(visit.pointer, phase, self.context.operation);
        match freed {
            Ok(()) => Step::Continue,
            Err(cause) => {
                self.failure = Some(DatasetError::Free { cause });
                Step::Stop
            }
        }
    }

    fn unreadable(&mut self, _visit: &Visit<'_>, _why: &ObjectError) -> Step {
        Step::Continue
    }
}

/// Bookmarks go with their head.
fn free_bookmarks(context: &TaskContext<'_>, head: &Dataset<'_>) -> Result<(), DatasetError> {
    let Some(zap) = head.extension(ondisk::dataset::BOOKMARK_NAMES)? else {
        return Ok(());
    };
    for bookmark in head.bookmarks()? {
        bookmark::end_uses(context, &bookmark.stored)?;
    }
    context.writing().free(ObjectId::new(zap))?;
    context.features.decrement(Feature::Bookmarks)
}

/// Errors known of the dataset are of no interest any more (feature `head_errlog`).
#[doc(alias = "spa_delete_dataset_errlog")]
fn free_error_logs(writing: Writing<'_>, head: ObjectId) -> Result<(), DatasetError> {
    for log in [
        pool_directory::ERROR_LOG_LAST,
        pool_directory::ERROR_LOG_SCRUB,
    ] {
        let zap = writing.reading().number(POOL_DIRECTORY, log)?.unwrap_or(0);
        let zap = ObjectId::new(zap);
        let name = format!("{:x}", head.get());
        if let Some(errors) = writing.reading().number(zap, &name)? {
            writing.remove(zap, &name)?;
            writing.free(ObjectId::new(errors))?;
        }
    }
    Ok(())
}

/// Removes an empty directory from the tree.
#[doc(alias = "dsl_dir_destroy_sync")]
fn destroy_directory(
    context: &TaskContext<'_>,
    directory: &Directory<'_>,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let parent = directory.stored()?.parent;
    let (_, component) = directory.name().rsplit_once('/').unwrap_or_default();
    if filesystem_counts::is_counted(component) {
        filesystem_counts::adjust(context, parent, Counted::Filesystems, -1)?;
    }
    set_reservation(context, directory, 0)?;
    crypto_key::release(context, directory)?;
    let stored = directory.stored()?;
    assert!(
        stored.used.is_zero(),
        "a directory that goes uses nothing any more"
    );
    writing.free(stored.children)?;
    writing.free(stored.properties)?;
    writing.free(stored.clones)?;
    free_permissions(writing, stored.permissions)?;
    let above: DatasetDirectory = writing.reading().bonus_of(parent)?;
    writing.remove(above.children, component)?;
    writing.free_extended(directory.id(), context.features)
}

/// Frees delegated permissions: a ZAP of ZAPs.
#[doc(alias = "dsl_deleg_destroy")]
fn free_permissions(writing: Writing<'_>, permissions: ObjectId) -> Result<(), DatasetError> {
    for (_, inner) in writing.reading().entries(permissions)? {
        if let Some(inner) = inner.as_word() {
            let inner = ObjectId::new(inner);
            if is_zap(&*writing.reading().object(inner)?) {
                writing.free(inner)?;
            }
        }
    }
    writing.free(permissions)
}
