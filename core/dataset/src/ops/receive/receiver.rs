//! The dataset that a stream is received into, and its partial state.

use crate::creation::ORIGIN;
use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::names::{DatasetName, RECEIVE_COMPONENT};
use crate::namespace::View;
use crate::task::TaskRefusal;
use tarn_object::read_head;
use tarn_ondisk as ondisk;
use tarn_ondisk::units::ObjectId;

/// What of a dataset is stored.
pub(super) type Stored = ondisk::dataset::Dataset;

/// The target of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receiver {
    /// The head that takes it in.
    pub head: ObjectId,
    /// Whether that is the file system itself, and no clone of it.
    pub is_new: bool,
}

/// The name of the clone that an increment goes into.
pub fn receive_name(target: &str) -> String {
    format!("{target}/{RECEIVE_COMPONENT}")
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

/// Whether a head is a clone.
///
/// # Errors
/// When it cannot be read.
pub fn is_clone(view: View<'_>, head: &Dataset<'_>) -> Result<bool, DatasetError> {
    let Some(beginning) = beginning_of_all(view)? else {
        return Ok(false);
    };
    Ok(head.directory().stored()?.origin != beginning)
}

/// The origin snapshot of the pool (`$ORIGIN`); pools of before version 11 have
/// none.
pub(super) fn beginning_of_all(view: View<'_>) -> Result<Option<ObjectId>, DatasetError> {
    let Some(origin) = view.root()?.child(ORIGIN)? else {
        return Ok(None);
    };
    let origin: Stored = view.mos().bonus_of(origin.stored()?.head_dataset)?;
    Ok(Some(origin.previous_snapshot))
}

/// Whether a head is not what its snapshot is. Its intent log does not matter.
#[doc(alias = "dsl_dataset_modified_since_snap")]
pub(super) fn is_modified(
    head: &Dataset<'_>,
    snapshot: &Dataset<'_>,
) -> Result<bool, DatasetError> {
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
