//! Errors of commits.

use tarn_object::AssignError;

/// Why a commit could not make changes durable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    /// The pool is suspended or being closed: the changes may be stored or not.
    #[error("the changes are not stored, and will perhaps not be: {cause}")]
    NotStored {
        /// Why not.
        cause: AssignError,
    },
}
