//! The names of a head's snapshots, with their count and the time of their last change.

use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::filesystem_counts::{self, Counted};
use crate::task::TaskContext;
use tarn_object::zap::ZapValue;
use tarn_ondisk::dataset_dir::SNAPSHOTS_CHANGED;
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::ObjectId;

/// Gives a snapshot its name.
pub(crate) fn add(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    name: &str,
    snapshot: ObjectId,
) -> Result<(), DatasetError> {
    filesystem_counts::adjust(context, head.directory().id(), Counted::Snapshots, 1)?;
    let value = ZapValue::word(snapshot.get());
    let names = head.stored()?.snapshot_names;
    context.writing().put(names, name, &value)?;
    note_change(context, head)
}

/// Takes the name of a snapshot away.
#[doc(alias = "dsl_dataset_snap_remove")]
pub(crate) fn remove(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    name: &str,
) -> Result<(), DatasetError> {
    filesystem_counts::adjust(context, head.directory().id(), Counted::Snapshots, -1)?;
    let names = head.stored()?.snapshot_names;
    context.writing().remove(names, name)?;
    note_change(context, head)
}

/// Gives a snapshot another name.
pub(crate) fn rename(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    from: &str,
    to: &str,
    snapshot: ObjectId,
) -> Result<(), DatasetError> {
    let (writing, names) = (context.writing(), head.stored()?.snapshot_names);
    writing.remove(names, from)?;
    writing.put(names, to, &ZapValue::word(snapshot.get()))?;
    note_change(context, head)
}

/// Stores when snapshots of this head last came, went or were renamed: the property
/// `snapshots_changed`.
#[doc(alias = "dsl_dir_snap_cmtime_update")]
fn note_change(context: &TaskContext<'_>, head: &Dataset<'_>) -> Result<(), DatasetError> {
    if !context.features.is_enabled(Feature::ExtensibleDataset) {
        return Ok(());
    }
    let (writing, directory) = (context.writing(), head.directory().id());
    writing.extend(directory, context.features)?;
    let now = context.mos().env().host.unix_time();
    let seconds = u64::try_from(now.seconds).unwrap_or(0);
    let value = ZapValue::Words(vec![seconds, u64::from(now.nanoseconds)]);
    writing.put(directory, SNAPSHOTS_CHANGED, &value)
}
