//! Errors of the layers below, as refusals of commands.

use crate::messages::{Refusal, RefusalKind};
use tarn_dataset::task::TaskRefusal;
use tarn_pool::TaskError;

/// The reason while a pool is suspended.
pub const SUSPENDED: &str = "pool I/O is currently suspended";

/// Why a change of a pool was not made. `action` is `cannot create 'tank/a'`.
pub fn of_task(action: impl Into<String>, error: &TaskError) -> Refusal {
    let action = action.into();
    match error {
        // The reason names the first dataset, since the action does not.
        TaskError::Refused(TaskRefusal::Several(refused)) if !refused.is_empty() => {
            let told = |(name, why): &(String, TaskRefusal)| format!("'{name}': {why}");
            let first = Refusal::new(kind_of(&refused[0].1), action, told(&refused[0]));
            let others = refused[1..].iter().map(told);
            others.fold(first, Refusal::with_hint)
        }
        TaskError::Refused(refusal) => Refusal::new(kind_of(refusal), action, refusal.to_string()),
        TaskError::ReadOnly => Refusal::new(RefusalKind::ReadOnly, action, "pool is read-only"),
        TaskError::Suspended { .. } => {
            Refusal::new(RefusalKind::Suspended, action, SUSPENDED).with_hint(error.to_string())
        }
        other => Refusal::new(RefusalKind::Device, action, other.to_string()),
    }
}

/// Why a change of several datasets was not made: a line for each refused dataset. `action` makes
/// `cannot create snapshot 'tank/a@b'` from the name; `all` is for errors of the change as a whole.
pub fn of_tasks(
    all: impl Into<String>,
    action: impl Fn(&str) -> String,
    error: &TaskError,
) -> Refusal {
    let TaskError::Refused(TaskRefusal::Several(refused)) = error else {
        return of_task(all, error);
    };
    let mut refusals = refused
        .iter()
        .map(|(name, refusal)| Refusal::new(kind_of(refusal), action(name), refusal.to_string()));
    match refusals.next() {
        Some(first) => refusals.fold(first, |first, next| first.with_hint(next.to_string())),
        None => of_task(all, error),
    }
}

fn kind_of(refusal: &TaskRefusal) -> RefusalKind {
    match refusal {
        TaskRefusal::Exists { .. }
        | TaskRefusal::Cloned
        | TaskRefusal::SameHead
        | TaskRefusal::NotNewest { .. }
        | TaskRefusal::Conflict { .. }
        | TaskRefusal::TagExists => RefusalKind::Exists,
        TaskRefusal::NotFound { .. } | TaskRefusal::NoParent { .. } | TaskRefusal::NoSuchTag => {
            RefusalKind::NotFound
        }
        TaskRefusal::Busy { .. } | TaskRefusal::NotInThisGroup => RefusalKind::Busy,
        TaskRefusal::NoSpace { .. } | TaskRefusal::LimitReached => RefusalKind::NoSpace,
        TaskRefusal::NotSupported { .. } | TaskRefusal::FeatureDisabled { .. } => {
            RefusalKind::Unsupported
        }
        TaskRefusal::Dataset(_) => RefusalKind::Corrupt,
        _ => RefusalKind::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_several_changes_names_each() {
        let busy = || TaskRefusal::Busy {
            why: "dataset is busy".to_string(),
        };
        let refused = |names: &[&str]| {
            let refused = names.iter().map(|name| (name.to_string(), busy()));
            TaskError::Refused(TaskRefusal::Several(refused.collect()))
        };
        assert_eq!(
            of_task("cannot do it", &refused(&["tank@a", "tank@b"])).to_string(),
            "cannot do it: 'tank@a': dataset is busy\n'tank@b': dataset is busy"
        );
        assert_eq!(
            refused(&["tank@a", "tank@b"]).to_string(),
            "'tank@a': dataset is busy; 'tank@b': dataset is busy"
        );
    }
}
