//! The state of the checkpoint of an open pool.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::units::{ObjectId, Txg, VdevId};

/// How many ranges one txg frees at most, as OpenZFS's limit of 16 MiB of entries.
#[doc(alias = "zfs_spa_discard_memory_limit")]
const ENTRIES_MAX: usize = (16 << 20) / 16 / 2;

/// What is known of the checkpoint; held for a moment only.
const CHECKPOINT: Rank = Rank::new(tarn_host::ranks::POOL + 23, "checkpoint");

/// Whether a checkpoint exists, or is being discarded.
#[doc(alias = "checkpoint_state_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointState {
    /// It exists.
    Exists,
    /// Its uberblock is gone, and what was kept for it is being freed.
    Discarding,
}

/// A checkpoint, as `zpool status` shows it.
#[doc(alias = "pool_checkpoint_stat_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointStatus {
    /// Whether it exists.
    pub state: CheckpointState,
    /// When its state was stored, in seconds since 1970; zero while it is being discarded.
    pub created_s: u64,
    /// What is kept for it: bytes of vdevs, parity included.
    pub bytes: u64,
}

/// Why a checkpoint was not created or discarded, or why devices stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointRefusal {
    /// There is one.
    #[error("checkpoint exists")]
    Exists,
    /// One is being discarded.
    #[error("currently discarding checkpoint")]
    Discarding,
    /// There is none.
    #[error("checkpoint does not exist")]
    Absent,
    /// The feature is not enabled.
    #[error("operation not supported on this type of pool")]
    NotEnabled,
    /// Without the feature `spacemap_v2`, the space map of such a vdev cannot be written.
    #[error("device exceeds supported size")]
    TooLarge,
    /// The pool is full.
    #[error("out of space")]
    NoSpace,
}

/// What was kept on one vdev.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptMap {
    /// The space map.
    pub(super) object: ObjectId,
    /// The sum of its ranges.
    pub(super) bytes: u64,
}

/// The uberblock in the directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) txg: Txg,
    pub(super) timestamp_s: u64,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    /// The feature is active.
    pub(super) is_active: bool,
    pub(super) taken: Option<Taken>,
    pub(super) maps: BTreeMap<VdevId, KeptMap>,
}

/// The checkpoint of an open pool.
pub(crate) struct Checkpoint {
    pub(super) known: Mutex<Known>,
    /// How many ranges one txg frees at most.
    pub(super) entries_max: AtomicUsize,
}

impl Checkpoint {
    /// Of a pool without one.
    pub(crate) fn none() -> Checkpoint {
        Checkpoint {
            known: Mutex::new(CHECKPOINT, Known::default()),
            entries_max: AtomicUsize::new(ENTRIES_MAX),
        }
    }

    pub(super) fn entries_max(&self) -> usize {
        self.entries_max.load(Ordering::Relaxed)
    }

    /// The state, if there is a checkpoint or something of one is left.
    pub(crate) fn state(&self) -> Option<CheckpointState> {
        let known = self.known.lock();
        match known.taken {
            Some(_) => Some(CheckpointState::Exists),
            None => known.is_active.then_some(CheckpointState::Discarding),
        }
    }

    /// The refusal of changes of devices.
    pub(crate) fn refusal(&self) -> Option<CheckpointRefusal> {
        self.state().map(|state| match state {
            CheckpointState::Exists => CheckpointRefusal::Exists,
            CheckpointState::Discarding => CheckpointRefusal::Discarding,
        })
    }

    pub(super) fn maps(&self) -> BTreeMap<VdevId, KeptMap> {
        self.known.lock().maps.clone()
    }
}
