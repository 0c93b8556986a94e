//! How much room there is: what `statvfs` shows, and whether a change may take more.
//!
//! What a dataset may use is decided above, where its quotas and its pool are known; here it is asked.

use std::any::Any;
use std::sync::Arc;

use crate::error::PosixError;
use crate::types::SpaceFacts;

/// Room that was promised; it is while this is kept. `None` where nothing has to be kept.
pub type Leave = Option<Box<dyn Any + Send>>;

/// What room is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceUse {
    /// For what can be asked for in smaller pieces, should it be refused.
    Divisible,
    /// For what is done whole or not at all.
    Whole,
    /// For what gives back more than it takes: neither quotas nor a full pool keep it, but a pool that has hardly room to
    /// store anything does.
    Freeing,
}

/// Answers whether so much may be written.
type MayWrite = dyn Fn(u64, SpaceUse) -> Result<Leave, SpaceRefusal> + Send + Sync;

/// What is left where nothing is limited: more than any file can have, and what every sum of it still holds.
const UNLIMITED_BYTES: u64 = 1 << 63;

/// Asks those who know the dataset.
#[derive(Clone)]
pub struct SpaceDoor {
    /// What there is.
    pub facts: Arc<dyn Fn() -> SpaceFacts + Send + Sync>,
    /// Whether so many more bytes may be written, as they take at worst.
    pub may_write: Arc<MayWrite>,
    /// Objects or projects are not counted for owners: if they can be by now, has them counted.
    pub count_owners: Arc<dyn Fn(Uncounted) + Send + Sync>,
}

/// What is missing of counts for owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uncounted {
    /// Something was made that is to be counted some time.
    Something,
    /// A file is to get a project: projects are to be counted when the answer comes, if they can be.
    Projects,
}

impl SpaceDoor {
    /// For file systems that are not limited, as tests and read-only ones are.
    pub fn unlimited() -> SpaceDoor {
        SpaceDoor {
            facts: Arc::new(|| SpaceFacts {
                total_bytes: UNLIMITED_BYTES,
                available_bytes: UNLIMITED_BYTES,
                ..SpaceFacts::default()
            }),
            may_write: Arc::new(|_, _| Ok(None)),
            count_owners: Arc::new(|_| {}),
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
