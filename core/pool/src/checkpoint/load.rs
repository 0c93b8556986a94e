//! Reading the checkpoint of a pool that is opened, and what is known of it then.

use super::rewind;
use super::state::{CheckpointRefusal, CheckpointStatus, KeptMap, Known, Taken};
use crate::directory::Directory;
use crate::error::PoolError;
use crate::log_space_maps::top_zap;
use crate::pool::{Mode, Pool};
use crate::size::deflated;
use crate::space_maps::head_of;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use tarn_ondisk::bpobj::PointerListHead;
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::features::Feature;
use tarn_ondisk::pool_directory as name;
use tarn_ondisk::units::{ObjectId, VdevId};
use tarn_probe::Operation;

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
    pub(super) fn publish_checkpoint(&self) {
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
