//! Counts of file systems and snapshots below a directory (feature `filesystem_limits`).
//!
//! # Mechanism
//! The counts are in the directory's own ZAP. They are made for a whole subtree when a limit is
//! first set on its top, and updated from then on by each creation, destruction and move below. An
//! update stops at a directory without counts: no limit was ever set there or above.
//!
//! The head of a receive counts like any other, though it is not listed and no limit stops it:
//! OpenZFS counts it, and panics where it subtracts one that was never counted.
//!
//! The limits themselves bind users without permission to change them, and not administrators of
//! the pool.

use crate::directory::Directory;
use crate::error::DatasetError;
use crate::task::TaskContext;
use tarn_object::zap::ZapValue;
use tarn_ondisk::dataset_dir::{DatasetDirectory, FILESYSTEM_COUNT, SNAPSHOT_COUNT};
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::ObjectId;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// File systems and volumes.
    Filesystems,
    /// Snapshots.
    Snapshots,
}

impl Counted {
    fn name(self) -> &'static str {
        match self {
            Counted::Filesystems => FILESYSTEM_COUNT,
            Counted::Snapshots => SNAPSHOT_COUNT,
        }
    }
}

/// The counts of one directory: of everything below it, and of its own snapshots.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) filesystems: u64,
    pub(crate) snapshots: u64,
}

/// The counts a directory has, if it has any.
pub(crate) fn counts_of(directory: &Directory<'_>) -> Result<Option<Counts>, DatasetError> {
    let Some(filesystems) = directory.extension(FILESYSTEM_COUNT)? else {
        return Ok(None);
    };
    let snapshots = directory.extension(SNAPSHOT_COUNT)?.unwrap_or(0);
    Ok(Some(Counts {
        filesystems,
        snapshots,
    }))
}

/// Whether a directory with this last component counts: those of the pool itself do not.
pub(crate) fn is_counted(component: &str) -> bool {
    !component.starts_with('$')
}

/// Changes the counts of a directory and of all above it. Where fewer were counted than there are,
/// by whatever wrote the pool before, none are left: a number that only limits depend on keeps no
/// txg from being stored.
#[doc(alias = "dsl_fs_ss_count_adjust")]
pub(crate) fn adjust(
    context: &TaskContext<'_>,
    directory: ObjectId,
    counted: Counted,
    change: i128,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let mut id = directory;
    while change != 0 && !id.is_zero() {
        let object = writing.reading().object(id)?;
        if !crate::stored::is_zap(&object) {
            return Ok(());
        }
        let Some(count) = writing.reading().number(id, counted.name())? else {
            return Ok(());
        };
        let count = u64::try_from(i128::from(count) + change).unwrap_or(0);
        writing.put(id, counted.name(), &ZapValue::word(count))?;
        id = writing.reading().bonus_of::<DatasetDirectory>(id)?.parent;
    }
    Ok(())
}

/// Sees to it that the feature is in use, and that everything from this directory down is counted.
#[doc(alias = "dsl_dir_activate_fs_ss_limit")]
pub(crate) fn begin_counting(
    context: &TaskContext<'_>,
    directory: &Directory<'_>,
) -> Result<Counts, DatasetError> {
    if !context.features.is_active(Feature::FilesystemLimits) {
        context.features.increment(Feature::FilesystemLimits)?;
    }
    count(context, directory)
}

/// Counts everything from this directory down that is not counted yet.
#[doc(alias = "dsl_dir_init_fs_ss_count")]
pub(crate) fn count(
    context: &TaskContext<'_>,
    directory: &Directory<'_>,
) -> Result<Counts, DatasetError> {
    if let Some(counts) = counts_of(directory)? {
        return Ok(counts);
    }
    let mut counts = Counts::default();
    for (component, id) in directory.child_ids()? {
        if !is_counted(&component) {
            continue;
        }
        let name = format!("{}/{component}", directory.name());
        let child = Directory::open(directory.view(), id, name)?;
        let below = count(context, &child)?;
        counts.filesystems += 1 + below.filesystems;
        counts.snapshots += below.snapshots;
    }
    if let Some(head) = directory.head()? {
        let names = context
            .writing()
            .reading()
            .names_and_objects(head.stored()?.snapshot_names)?;
        let lasting = names.iter().filter(|(name, _)| !name.starts_with('%'));
        counts.snapshots += u64::try_from(lasting.count()).unwrap_or(u64::MAX);
    }
    let writing = context.writing();
    writing.extend(directory.id(), context.features)?;
    let put = |counted: Counted, count| {
        writing.put(directory.id(), counted.name(), &ZapValue::word(count))
    };
    put(Counted::Filesystems, counts.filesystems)?;
    put(Counted::Snapshots, counts.snapshots)?;
    Ok(counts)
}
