//! Receiving a snapshot: where the contents of a stream go while they come, and what makes a
//! snapshot of them.
//!
//! # Mechanism
//! A stream for a file system that is not there goes into a new one; a stream for one that is there
//! goes into a clone of its snapshot, a directory `%recv` below it. Both are marked inconsistent:
//! they are not opened, and an import destroys them unless the stream may go on ([`resumable`]). At
//! the end, in one group, the clone's contents become those of the file system, with all that is
//! charged for them, the clone is removed, and the snapshot is taken that the stream was of: with
//! its guid, so that the next increment finds it.
//!
//! # Invariants
//! - What is half received is given up as it was made: nothing comes below it, and it is not
//!   promoted or received into a second time.
//! - The clone's contents are what follows its snapshot. So they become the target's only if that
//!   snapshot is still the target's own.
//! - Until that last group, readers of the file system see nothing of the stream.
//! - The caller of [`FinishReceive`] has made sure that the clone is not written any more, and that
//!   the file system is not open.
//!
//! # Map
//! `begin` makes what a stream goes into, `resume` finds what was cut, `finish` makes the snapshot,
//! `abandon` gives up.

mod abandon;
mod begin;
mod finish;
mod resume;

pub use abandon::AbandonReceive;
pub use begin::BeginReceive;
pub use finish::{FinishReceive, target_of};
pub use resume::{resumable, resume_list};

use crate::creation::ORIGIN;
use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::names::{DatasetName, NAME_BYTES_MAX, RECEIVE_COMPONENT};
use crate::namespace::View;
use crate::ops::create::apply_settings_to;
use crate::ops::inherit::check_user_name;
use crate::ops::set::{Source, check_limit_of, check_received, store_with_limits};
use crate::properties::inherit::INHERIT_SUFFIX;
use crate::properties::parse::Checked;
use crate::properties::set::{Entry, note_received};
use crate::properties::value::Kinds;
use crate::task::{TaskContext, TaskRefusal};
use tarn_object::read_head;
use tarn_ondisk as ondisk;
use tarn_ondisk::dataset::{DatasetFlags, RESUME_TO_GUID};
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::stream::StreamFeatures;
use tarn_ondisk::units::ObjectId;

/// What of a dataset is stored.
type Stored = ondisk::dataset::Dataset;

/// What the first record of a stream says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamFacts {
    /// The guid of the snapshot.
    pub to_guid: u64,
    /// The guid of the snapshot before it; zero for a full stream.
    pub from_guid: u64,
    /// The full name of the snapshot at the sender.
    pub to_name: String,
    /// When it was taken there, in seconds since 1970.
    pub creation_time_s: u64,
    /// What it is a snapshot of.
    pub objset_type: ObjsetType,
    /// The snapshot is the first of a clone.
    pub is_clone: bool,
    /// A full stream says what is free, so that it can become a clone.
    pub has_free_records: bool,
    /// Names are not told apart by case.
    pub is_case_insensitive: bool,
    /// What a receiver must know.
    pub features: StreamFeatures,
}

impl StreamFacts {
    pub(super) fn kinds(&self) -> Kinds {
        match self.objset_type {
            ObjsetType::Zvol => Kinds::VOLUME,
            _ => Kinds::FILESYSTEM,
        }
    }
}

/// What the target of a stream gets set.
#[derive(Debug, Clone, Default)]
pub struct ReceiveSettings {
    /// Properties that are set (`-o`).
    pub local: Vec<Checked>,
    /// What came with the stream.
    pub received: Vec<Checked>,
    /// Properties that are inherited whatever came (`-x`), unless they are set at the target.
    pub inherited: Vec<String>,
}

/// A setting that was not made. What is received is whole without it.
#[derive(Debug)]
pub struct NotSet {
    /// The property.
    pub property: String,
    /// Why.
    pub why: TaskRefusal,
}

/// Room for a stream was made.
#[derive(Debug)]
pub struct Begun {
    /// Where the stream goes.
    pub receiver: Receiver,
    /// What of the settings of something new was not made.
    pub not_set: Vec<NotSet>,
}

/// Where a stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receiver {
    /// The head that takes it in.
    pub head: ObjectId,
    /// Whether that is the file system itself, and no clone of it.
    pub is_new: bool,
}

pub(super) fn not_found(name: &str) -> DatasetError {
    DatasetError::NotFound {
        name: name.to_string(),
    }
}

pub(super) fn busy(why: &str) -> TaskRefusal {
    TaskRefusal::Busy {
        why: why.to_string(),
    }
}

pub(super) fn not_supported(what: &str) -> TaskRefusal {
    TaskRefusal::NotSupported {
        what: what.to_string(),
    }
}

/// Refuses settings whose names cannot be stored with the suffixes that they get.
pub(super) fn check_names(settings: &ReceiveSettings) -> Result<(), TaskRefusal> {
    check_received(&settings.received)?;
    let mut inherited = settings.inherited.iter();
    inherited.try_for_each(|name| check_user_name(name, INHERIT_SUFFIX))
}

/// Refuses a snapshot that cannot be named.
pub(super) fn check_snapshot_name(target: &str, short: &str) -> Result<(), TaskRefusal> {
    match DatasetName::parse(&format!("{target}@{short}")) {
        Ok(name) if name.tail() == Some(short) => Ok(()),
        _ => Err(TaskRefusal::BadValue {
            property: "name".to_string(),
            why: "invalid name".to_string(),
        }),
    }
}

/// Refuses a target whose clone could not be named.
pub(super) fn check_name_length(target: &str) -> Result<(), TaskRefusal> {
    match receive_name(target).len() > NAME_BYTES_MAX {
        true => Err(TaskRefusal::NameTooLong {
            why: "dataset name is too long".to_string(),
        }),
        false => Ok(()),
    }
}

/// Whether a received value is set only when the contents are there: a snapshot may be larger than
/// what the file system was limited to later.
#[doc(alias = "extract_delay_props")]
pub(super) fn waits_for_contents(received: &Checked) -> bool {
    received.name == "refquota"
}

/// Gives a head what came with the stream, what is set, and what is to be inherited. What
/// limits do not allow is left out, and told.
pub(super) fn set_all(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    settings: &ReceiveSettings,
) -> Result<Vec<NotSet>, DatasetError> {
    let properties = head.directory().stored()?.properties;
    if !settings.received.is_empty() {
        note_received(context.writing(), properties)?;
    }
    let mut not_set = set_possible(context, head, &settings.received, Source::Received)?;
    not_set.extend(set_possible(context, head, &settings.local, Source::Local)?);
    for name in &settings.inherited {
        if !is_set_here(head, name)? {
            store_with_limits(context, head, name, &Entry::Inherited)?;
        }
    }
    context.namespace.policies_changed(head.directory());
    Ok(not_set)
}

/// Sets what limits allow. What is refused is tried again after the others.
pub(super) fn set_possible(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    settings: &[Checked],
    source: Source,
) -> Result<Vec<NotSet>, DatasetError> {
    let mut waiting: Vec<&Checked> = settings.iter().collect();
    loop {
        let (count, mut refused, mut not_set) = (waiting.len(), Vec::new(), Vec::new());
        for checked in waiting {
            // What came with a stream does not count where something else is set.
            let counts = source == Source::Local || !is_set_here(head, &checked.name)?;
            match check_limit_of(head, checked) {
                Err(TaskRefusal::Dataset(error)) => return Err(error),
                Err(why) if counts => {
                    refused.push(checked);
                    not_set.push(NotSet {
                        property: checked.name.clone(),
                        why,
                    });
                }
                _ => apply_settings_to(context, head, std::slice::from_ref(checked), source)?,
            }
        }
        if refused.is_empty() || refused.len() == count {
            return Ok(not_set);
        }
        waiting = refused;
    }
}

/// Whether a property is set on the head itself.
fn is_set_here(head: &Dataset<'_>, name: &str) -> Result<bool, DatasetError> {
    let properties = head.directory().stored()?.properties;
    let reading = head.directory().view().mos();
    Ok(reading.lookup(properties, name)?.is_some())
}

/// Refuses a head that is half received.
pub(in crate::ops) fn check_whole(head: &Dataset<'_>) -> Result<(), TaskRefusal> {
    let flags = head.stored()?.flags;
    match flags.contains(DatasetFlags::INCONSISTENT) || resumes(head)? {
        true => Err(busy("dataset is busy")),
        false => Ok(()),
    }
}

/// The name of the clone that an increment goes into.
pub fn receive_name(target: &str) -> String {
    format!("{target}/{RECEIVE_COMPONENT}")
}

/// Whether a head began as a snapshot of another.
///
/// # Errors
/// When it cannot be read.
pub fn is_clone(view: View<'_>, head: &Dataset<'_>) -> Result<bool, DatasetError> {
    let Some(beginning) = beginning_of_all(view)? else {
        return Ok(false);
    };
    Ok(head.directory().stored()?.origin != beginning)
}

/// Whether a head waits for a stream that was cut.
fn resumes(head: &Dataset<'_>) -> Result<bool, DatasetError> {
    Ok(head.extension(RESUME_TO_GUID)?.is_some())
}

/// The origin snapshot of the pool (`$ORIGIN`); pools of before version 11 have
/// none.
fn beginning_of_all(view: View<'_>) -> Result<Option<ObjectId>, DatasetError> {
    let Some(origin) = view.root()?.child(ORIGIN)? else {
        return Ok(None);
    };
    let origin: Stored = view.mos().bonus_of(origin.stored()?.head_dataset)?;
    Ok(Some(origin.previous_snapshot))
}

/// Whether a head is not what its snapshot is. Its intent log does not matter.
#[doc(alias = "dsl_dataset_modified_since_snap")]
fn is_modified(head: &Dataset<'_>, snapshot: &Dataset<'_>) -> Result<bool, DatasetError> {
    let (now, then) = (head.stored()?, snapshot.stored()?);
    if now.root.logical_birth <= then.creation_txg {
        return Ok(false);
    }
    if then.root.is_hole() {
        return Ok(true);
    }
    let view = head.directory().view();
    let cache = &view.namespace().mos().env().cache;
    let objset = |id, root| {
        let read = read_head(cache, id, root, view.operation());
        read.map_err(|cause| DatasetError::Object { object: id, cause })
    };
    let now = objset(head.id(), &now.root)?;
    let then = objset(snapshot.id(), &then.root)?;
    Ok(now.meta_dnode != then.meta_dnode)
}
