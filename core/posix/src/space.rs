//! How much room there is: what `statvfs` shows, and whether a change may take more.
//!
//! What a dataset may use is decided above, where its quotas and its pool are known; here it is asked.

use std::sync::Arc;

use crate::error::PosixError;
use crate::types::SpaceFacts;

/// Asks those who know the dataset.
#[derive(Clone)]
pub struct SpaceDoor {
    /// What there is.
    pub facts: Arc<dyn Fn() -> SpaceFacts + Send + Sync>,
    /// Whether so many more bytes may be written.
    pub may_write: Arc<dyn Fn(u64) -> Result<(), SpaceRefusal> + Send + Sync>,
}

impl SpaceDoor {
    /// For file systems that are not limited, as tests and read-only ones are.
    pub fn unlimited() -> SpaceDoor {
        SpaceDoor {
            facts: Arc::new(SpaceFacts::default),
            may_write: Arc::new(|_| Ok(())),
        }
    }
}

/// Why no more may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpaceRefusal {
    /// The pool is full.
    #[error("no space left in the pool")]
    NoSpace,
    /// A quota of the dataset, or of one above it, is used up.
    #[error("the quota of the dataset is used up")]
    QuotaExceeded,
}

impl From<SpaceRefusal> for PosixError {
    fn from(refusal: SpaceRefusal) -> PosixError {
        match refusal {
            SpaceRefusal::NoSpace => PosixError::NoSpace,
            SpaceRefusal::QuotaExceeded => PosixError::QuotaExceeded,
        }
    }
}
