//! The door [`SpaceDoor`]: the room of a file system or volume, and whether a change may take more.
//!
//! # Mechanism
//! A dataset's room follows from its quotas, those above it, and the pool's free space, which are
//! known where the pool is ([`limits`](crate::limits)). A front end asks through this door before
//! it opens a transaction: room is reserved for the worst case of a change, until the change is
//! counted as dirty.

use std::any::Any;
use std::sync::Arc;

/// Reserved room, until this is dropped. `None` where nothing has to be kept.
pub type SpaceLeave = Option<Box<dyn Any + Send>>;

/// The kind of space that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpaceUse {
    /// A request that can be repeated in smaller pieces, should it be refused.
    Divisible,
    /// A request that is granted whole or not at all.
    Whole,
    /// A request of an operation that frees more than it takes (a `netfree` transaction): neither
    /// quotas nor a full pool refuse it, only a pool with hardly any room to store anything does.
    Freeing,
}

/// Why a request for space is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SpaceRefusal {
    /// The pool is full (`ENOSPC`).
    #[error("no space left in the pool")]
    NoSpace,
    /// A quota of the dataset, or of one above it, is used up (`EDQUOT`).
    #[error("the quota of the dataset is used up")]
    QuotaExceeded,
}

/// Used and available space, in bytes as users see them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpaceTotals {
    /// Used and available bytes.
    pub total_bytes: u64,
    /// Available bytes.
    pub available_bytes: u64,
}

/// The owner counts that a file system lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uncounted {
    /// Something was made that is to be counted some time.
    Something,
    /// A file is to get a project: projects are to be counted when the answer comes, if they can
    /// be.
    Projects,
}

/// Answers whether so much may be written.
type MayWrite = dyn Fn(u64, SpaceUse) -> Result<SpaceLeave, SpaceRefusal> + Send + Sync;

/// What is left where nothing is limited: more than any file can have, and what every sum of it
/// still holds.
const UNLIMITED_BYTES: u64 = 1 << 63;

/// Asks the layers that know quotas and pool.
#[derive(Clone)]
pub struct SpaceDoor {
    /// What there is.
    pub totals: Arc<dyn Fn() -> SpaceTotals + Send + Sync>,
    /// Whether so many more bytes may be written, as they take at worst.
    pub may_write: Arc<MayWrite>,
    /// Objects or projects are not counted for owners: if they can be by now, has them counted.
    pub count_owners: Arc<dyn Fn(Uncounted) + Send + Sync>,
}

impl SpaceDoor {
    /// A door without limits, for tests and read-only file systems.
    pub fn unlimited() -> SpaceDoor {
        SpaceDoor {
            totals: Arc::new(|| SpaceTotals {
                total_bytes: UNLIMITED_BYTES,
                available_bytes: UNLIMITED_BYTES,
            }),
            may_write: Arc::new(|_, _| Ok(None)),
            count_owners: Arc::new(|_| {}),
        }
    }
}

impl std::fmt::Debug for SpaceDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SpaceDoor({:?})", (self.totals)())
    }
}
