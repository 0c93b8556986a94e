//! The pool checkpoint: one earlier state of the whole pool that is kept, to rewind to it.
//!
//! # Mechanism
//! A checkpoint is the uberblock of the newest stored txg, copied into the pool directory. From the
//! next txg on, blocks that were born up to then are not freed any more: they stay allocated in the
//! space maps of their metaslabs, and their ranges are appended to one more space map of their
//! top-level vdev ([`maps`]). `space` tells these frees from others by the block's birth.
//!
//! To discard a checkpoint, one txg removes the uberblock from the directory; from then on blocks
//! are freed as ever. Later txgs free the ranges in the vdevs' maps, from their ends, a bounded
//! number in each ([`discard`]). The feature `zpool_checkpoint` is active until nothing is left.
//!
//! To rewind to a checkpoint, the import writes its uberblock with a txg behind the newest
//! ([`rewind`]).
//!
//! # Invariants
//! - No block of the checkpoint is freed or overwritten while its uberblock is in the directory.
//! - Devices do not leave, join vdevs or move to other pools while the feature is active: the
//!   configuration of the checkpoint has them.
//!
//! # After a crash
//! Creating is one txg, and so is each step of discarding, which goes on after the next import. The
//! rewind is done once the uberblock is on one device: the next import takes it for the newest.

pub(crate) mod control;
pub(crate) mod discard;
pub(crate) mod maps;
pub(crate) mod rewind;

use crate::directory::Directory;
use crate::error::PoolError;
use crate::log_space_maps::top_zap;
use crate::pool::{Mode, Pool};
use crate::size::deflated;
use crate::space_maps::head_of;
pub use control::CheckpointError;
use discard::ENTRIES_MAX;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::bpobj::PointerListHead;
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::features::Feature;
use tarn_ondisk::pool_directory as name;
use tarn_ondisk::units::{ObjectId, Txg, VdevId};
use tarn_probe::Operation;

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
    object: ObjectId,
    /// The sum of its ranges.
    bytes: u64,
}

/// The uberblock in the directory.
#[derive(Debug, Clone, Copy)]
struct Taken {
    txg: Txg,
    timestamp_s: u64,
}

#[derive(Debug, Default)]
struct Known {
    /// The feature is active.
    is_active: bool,
    taken: Option<Taken>,
    maps: BTreeMap<VdevId, KeptMap>,
}

/// The checkpoint of an open pool.
pub(crate) struct Checkpoint {
    known: Mutex<Known>,
    /// How many ranges one txg frees at most.
    entries_max: AtomicUsize,
}

impl Checkpoint {
    /// Of a pool without one.
    pub(crate) fn none() -> Checkpoint {
        Checkpoint {
            known: Mutex::new(CHECKPOINT, Known::default()),
            entries_max: AtomicUsize::new(ENTRIES_MAX),
        }
    }

    fn entries_max(&self) -> usize {
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

    fn maps(&self) -> BTreeMap<VdevId, KeptMap> {
        self.known.lock().maps.clone()
    }
}

impl Pool {
    /// The checkpoint; none where there is none.
    #[doc(alias = "spa_checkpoint_get_stats")]
    pub fn checkpoint_status(&self) -> Option<CheckpointStatus> {
        let state = self.checkpoint.state()?;
        let known = self.checkpoint.known.lock();
        let bytes = known.maps.values().map(|map| map.bytes);
        Some(CheckpointStatus {
            state,
            created_s: known.taken.map_or(0, |taken| taken.timestamp_s),
            bytes: bytes.fold(0, u64::saturating_add),
        })
    }

    /// Limits how many ranges one txg frees while a checkpoint is discarded.
    #[doc(alias = "zfs_spa_discard_memory_limit")]
    pub fn set_discarded_ranges_max(&self, count: usize) {
        assert!(count > 0, "each txg discards something");
        self.checkpoint.entries_max.store(count, Ordering::Relaxed);
    }

    /// Refuses while the devices of the pool are needed for a checkpoint.
    ///
    /// # Errors
    /// There is one, or one is being discarded.
    pub fn refuse_for_checkpoint(&self) -> Result<(), CheckpointRefusal> {
        self.checkpoint.refusal().map_or(Ok(()), Err)
    }

    /// Reads what there is of a checkpoint. Called before the first txg begins.
    ///
    /// # Errors
    /// It cannot be read: then the pool must not be written.
    #[doc(alias = "spa_ld_read_checkpoint_txg")]
    pub(crate) fn load_checkpoint(&self, operation: &Operation) -> Result<(), PoolError> {
        let directory = self.directory(operation);
        let taken = rewind::stored(directory)?.map(|uberblock| Taken {
            txg: uberblock.txg,
            timestamp_s: uberblock.timestamp_s,
        });
        let feature = Feature::ZpoolCheckpoint.guid();
        let maps = self.kept_maps(directory)?;
        let is_active = taken.is_some() || !maps.is_empty() || self.features().is_active(feature);
        if self.mode() == Mode::ReadWrite {
            self.space().set_checkpoint(taken.map(|taken| taken.txg));
        }
        let known = Known {
            is_active,
            taken,
            maps,
        };
        *self.checkpoint.known.lock() = known;
        let deferred = self.deferred_bytes(operation)?;
        let kept = self.checkpoint_bytes().saturating_add(deferred);
        self.namespace().set_kept_bytes(kept);
        Ok(())
    }

    /// The map of each vdev that has one.
    #[doc(alias = "vdev_checkpoint_sm_object")]
    fn kept_maps(&self, directory: Directory<'_>) -> Result<BTreeMap<VdevId, KeptMap>, PoolError> {
        let mut maps = BTreeMap::new();
        let root = self.vdevs().config();
        for top in self.vdevs().top_levels() {
            let Some(zap) = top_zap(&root, top.id) else {
                continue;
            };
            let map = directory.value_in(zap, name::VDEV_CHECKPOINT_SPACE_MAP)?;
            if let Some(object) = map.and_then(|value| value.as_word()).map(ObjectId::new) {
                let (head, _) = head_of(&*directory.object(object)?)?;
                // It has only frees, so its sum is negative.
                let bytes = head.allocated.unsigned_abs();
                maps.insert(top.id, KeptMap { object, bytes });
            }
        }
        Ok(maps)
    }

    /// What is kept, deflated: datasets cannot use it.
    fn checkpoint_bytes(&self) -> u64 {
        let tops = self.vdevs().top_levels();
        let maps = self.checkpoint.maps();
        let kept = tops.iter().map(|top| {
            let map = maps.get(&top.id);
            deflated(top, map.map_or(0, |map| map.bytes))
        });
        kept.fold(0, u64::saturating_add)
    }

    /// Publishes how much is kept, when that has changed.
    fn publish_checkpoint(&self) {
        self.namespace().set_kept_bytes(self.checkpoint_bytes());
    }

    /// Space of blocks that the next txg will free.
    fn deferred_bytes(&self, operation: &Operation) -> Result<u64, PoolError> {
        let directory = self.directory(operation);
        let Some(list) = directory.find(name::SYNC_POINTER_LIST)? else {
            return Ok(0);
        };
        let object = directory.object(list)?;
        let head = PointerListHead::from_bonus(&object.bonus(), ByteOrder::Little);
        let (head, _) = head.map_err(|cause| PoolError::Corrupt {
            object: list,
            cause,
        })?;
        Ok(head.allocated.get())
    }
}
