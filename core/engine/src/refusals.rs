//! Refusals, and errors of the layers below as refusals.

use serde::{Deserialize, Serialize};
use tarn_dataset::task::TaskRefusal;
use tarn_pool::TaskError;
use utoipa::ToSchema;

/// Why an operation was refused or failed, in OpenZFS's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refusal {
    /// What kind of refusal it is: programs branch on this and not on the text.
    pub kind: RefusalKind,
    /// The headline: `cannot create 'tank'`. Empty when OpenZFS prints none.
    pub action: String,
    /// The reason: `pool already exists`. Printed as `action: reason`.
    pub reason: String,
    /// Further lines, printed as they are (hints, `use '-f' to override ...`).
    #[serde(default)]
    pub hints: Vec<String>,
}

impl Refusal {
    /// A refusal without hints.
    pub fn new(kind: RefusalKind, action: impl Into<String>, reason: impl Into<String>) -> Self {
        Refusal {
            kind,
            action: action.into(),
            reason: without_error_numbers(&reason.into()),
            hints: Vec::new(),
        }
    }

    /// The same with one more line for people.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(without_error_numbers(&hint.into()));
        self
    }
}

/// A text without the numbers that the standard library appends to the system's errors:
/// ` (os error 2)`.
pub fn without_error_numbers(text: &str) -> String {
    const BEGINNING: &str = " (os error ";
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(BEGINNING) {
        let (before, number) = (&rest[..at], &rest[at + BEGINNING.len()..]);
        kept.push_str(before);
        let end =
            number.trim_start_matches(|letter: char| letter == '-' || letter.is_ascii_digit());
        rest = match end.strip_prefix(')') {
            Some(after) if end.len() < number.len() => after,
            _ => {
                kept.push_str(BEGINNING);
                number
            }
        };
    }
    kept.push_str(rest);
    kept
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.action.is_empty(), self.reason.is_empty()) {
            (false, false) => write!(f, "{}: {}", self.action, self.reason)?,
            (false, true) => write!(f, "{}", self.action)?,
            (true, _) => write!(f, "{}", self.reason)?,
        }
        for hint in &self.hints {
            write!(f, "\n{hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

/// Kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RefusalKind {
    /// No such pool, dataset, property or vdev.
    NotFound,
    /// The name is taken.
    Exists,
    /// A name, number or option that cannot be.
    Invalid,
    /// Mounted, in use, has children, has clones.
    Busy,
    /// The caller may not.
    Denied,
    /// No room: pool full, quota, reservation.
    NoSpace,
    /// The pool was imported read-only.
    ReadOnly,
    /// A device could not be read or written.
    Device,
    /// The pool is suspended.
    Suspended,
    /// Contents that make no sense on disk.
    Corrupt,
    /// Tarn cannot do this; the text says what.
    Unsupported,
    /// Last used by another host.
    OtherHost,
}

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
