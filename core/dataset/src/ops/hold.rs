//! Holds (`zfs hold`): a snapshot with a hold is not destroyed.
//!
//! A hold has a tag, and a snapshot any number of them. Holds of several snapshots are made in one
//! txg, or none of them. A snapshot that was destroyed with `-d` is destroyed with its last hold.
//!
//! A hold may be *temporary*: it is also in a table of the pool, and the next import of the pool
//! releases it, if it still exists ([`temporary_holds`]).

use super::destroy_snapshot::{Going, check_stays_or_unused, destroy_if_marked};
use super::set::find;
use super::temporary_holds;
use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::names::DatasetName;
use crate::namespace::View;
use crate::task::{FeatureCounts, InternalEvent, Room, SyncTask, TaskContext, TaskRefusal};
use tarn_object::zap::ZapValue;
use tarn_ondisk as ondisk;
use tarn_ondisk::object_type::ObjectType;

/// Longest tag in bytes: tags are names in a ZAP.
#[doc(alias = "MAXNAMELEN")]
const TAG_BYTES_MAX: usize = tarn_ondisk::zap::NAME_BYTES_MAX - 1;

/// Puts a hold on snapshots (`zfs hold`).
#[derive(Debug, Clone)]
pub struct HoldSnapshots {
    /// Full names, of one pool.
    pub names: Vec<String>,
    /// The tag.
    pub tag: String,
}

/// Releases a hold of snapshots. Those without it are skipped, unless none has it.
#[derive(Debug, Clone)]
pub struct ReleaseHolds {
    /// Full names, of one pool.
    pub names: Vec<String>,
    /// The tag.
    pub tag: String,
}

impl SyncTask for HoldSnapshots {
    type Output = ();

    fn room(&self) -> Room {
        Room::reserved(self.names.len())
    }

    #[doc(alias = "dsl_dataset_user_hold_check_one")]
    fn check(&self, view: View<'_>, _features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        check_tag(&self.tag)?;
        let mut refused = Vec::new();
        for name in &self.names {
            let refusal = match find_snapshot(view, name) {
                Err(refusal) => refusal,
                Ok(_) if self.tag.len() > TAG_BYTES_MAX => TaskRefusal::TagTooLong,
                Ok(snapshot) if has_hold(&snapshot, &self.tag)? => TaskRefusal::TagExists,
                Ok(_) => continue,
            };
            refused.push((name.clone(), refusal));
        }
        TaskRefusal::of_several(refused)
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        context.namespace.change(|| {
            for name in &self.names {
                add(
                    context,
                    &open(context, name)?,
                    &self.tag,
                    Lasts::UntilReleased,
                )?;
            }
            Ok(())
        })
    }
}

/// How long a hold lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasts {
    /// Until it is released.
    UntilReleased,
    /// Until the pool is imported again, at the latest.
    UntilImport,
}

/// Puts a hold on a snapshot that has none of this tag.
#[doc(alias = "dsl_dataset_user_hold_sync_one_impl")]
pub(super) fn add(
    context: &TaskContext<'_>,
    snapshot: &Dataset<'_>,
    tag: &str,
    lasts: Lasts,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let holds = match snapshot.stored()?.user_holds {
        none if none.is_zero() => {
            let made = writing.create_zap(ObjectType::UserHolds)?;
            writing.change(snapshot.id(), |stored: &mut ondisk::dataset::Dataset| {
                stored.user_holds = made;
            })?;
            made
        }
        there => there,
    };
    writing.put(holds, tag, &ZapValue::word(context.now_s))?;
    let is_temporary = lasts == Lasts::UntilImport;
    if is_temporary {
        temporary_holds::note_hold(context, snapshot.id(), tag)?;
    }
    let text = format!(
        "tag={tag} temp={} refs={}",
        u8::from(is_temporary),
        snapshot.hold_count()?
    );
    record(context, "hold", snapshot, text);
    Ok(())
}

/// Takes a hold off a snapshot, and destroys that if it waited for this. Says whether there was
/// such a hold.
#[doc(alias = "dsl_dataset_user_release_sync_one")]
pub(super) fn remove(
    context: &TaskContext<'_>,
    snapshot: &Dataset<'_>,
    tag: &str,
) -> Result<bool, DatasetError> {
    let holds = snapshot.stored()?.user_holds;
    if holds.is_zero() || !context.writing().remove(holds, tag)? {
        return Ok(false);
    }
    temporary_holds::forget_hold(context, snapshot.id(), tag)?;
    let text = format!("tag={tag} refs={}", snapshot.hold_count()?);
    record(context, "release", snapshot, text);
    destroy_if_marked(context, snapshot.id())?;
    Ok(true)
}

impl SyncTask for ReleaseHolds {
    type Output = ();

    fn room(&self) -> Room {
        Room::freeing()
    }

    fn check(&self, view: View<'_>, _features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let going = Going {
            holds: 1,
            clones: 0,
        };
        let mut found = Err(TaskRefusal::NotFound {
            name: self.names.first().cloned().unwrap_or_default(),
        });
        for name in &self.names {
            let why_not = match find_snapshot(view, name) {
                Ok(snapshot) if has_hold(&snapshot, &self.tag)? => {
                    check_stays_or_unused(view, snapshot.id(), going)?;
                    found = Ok(());
                    continue;
                }
                Ok(_) => TaskRefusal::NoSuchTag,
                Err(refusal) => refusal,
            };
            found = found.map_err(|_| why_not);
        }
        found
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        context.namespace.change(|| {
            for name in &self.names {
                match open(context, name) {
                    Err(DatasetError::NotFound { .. }) => {}
                    opened => {
                        remove(context, &opened?, &self.tag)?;
                    }
                }
            }
            Ok(())
        })
    }
}

/// Refuses a tag that is none: empty, or with a zero in it. One that is too long is refused for
/// each snapshot.
fn check_tag(tag: &str) -> Result<(), TaskRefusal> {
    match tag.is_empty() || tag.contains('\0') {
        false => Ok(()),
        true => Err(TaskRefusal::BadValue {
            property: "tag".to_string(),
            why: "operation not applicable to datasets of this type".to_string(),
        }),
    }
}

fn find_snapshot<'a>(view: View<'a>, name: &str) -> Result<Dataset<'a>, TaskRefusal> {
    let found = find(view, name)?;
    match found.is_snapshot() {
        true => Ok(found),
        false => Err(TaskRefusal::BadValue {
            property: "name".to_string(),
            why: "operation not applicable to datasets of this type".to_string(),
        }),
    }
}

fn has_hold(snapshot: &Dataset<'_>, tag: &str) -> Result<bool, DatasetError> {
    let holds = snapshot.holds()?;
    Ok(holds.iter().any(|(other, _)| other == tag))
}

fn open<'a>(context: &TaskContext<'a>, name: &str) -> Result<Dataset<'a>, DatasetError> {
    let parsed = DatasetName::parse(name).map_err(|_| DatasetError::NotFound {
        name: name.to_string(),
    })?;
    context.view().dataset(&parsed)
}

fn record(context: &TaskContext<'_>, name: &'static str, snapshot: &Dataset<'_>, text: String) {
    context.record(InternalEvent {
        name,
        dataset: Some((snapshot.name(), snapshot.id())),
        text,
    });
}
