//! Failures of the layers below, in the words of commands.

use crate::messages::{Refusal, RefusalKind};
use tarn_dataset::task::TaskRefusal;
use tarn_pool::TaskError;

/// Said of a pool that cannot be written at the moment.
pub(crate) const SUSPENDED: &str = "pool I/O is currently suspended";

/// Why a change of a pool was not made. `action` is `cannot create 'tank/a'`.
pub(crate) fn of_task(action: impl Into<String>, error: &TaskError) -> Refusal {
    let action = action.into();
    match error {
        TaskError::Refused(refusal) => Refusal::new(kind_of(refusal), action, refusal.to_string()),
        TaskError::ReadOnly => Refusal::new(RefusalKind::ReadOnly, action, "pool is read-only"),
        TaskError::Suspended { .. } => {
            Refusal::new(RefusalKind::Suspended, action, SUSPENDED).with_hint(error.to_string())
        }
        other => Refusal::new(RefusalKind::Device, action, other.to_string()),
    }
}

fn kind_of(refusal: &TaskRefusal) -> RefusalKind {
    match refusal {
        TaskRefusal::Exists { .. } => RefusalKind::Exists,
        TaskRefusal::NotFound { .. } | TaskRefusal::NoParent { .. } => RefusalKind::NotFound,
        TaskRefusal::Busy { .. } => RefusalKind::Busy,
        TaskRefusal::NoSpace { .. } => RefusalKind::NoSpace,
        TaskRefusal::NotSupported { .. } | TaskRefusal::FeatureDisabled { .. } => {
            RefusalKind::Unsupported
        }
        TaskRefusal::Dataset(_) => RefusalKind::Corrupt,
        _ => RefusalKind::Invalid,
    }
}
