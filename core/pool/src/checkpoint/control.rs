//! Creating a checkpoint, and beginning to discard it.
//!
//! Both are the first thing in their txg ([`run_early`](Pool::run_early)): no block is freed before
//! it in this txg, so what is kept is exactly what the checkpoint has.

use super::state::{CheckpointRefusal, CheckpointState, Taken};
use crate::error::{PoolError, TaskError};
use crate::pool::Pool;
use crate::space_maps::version_of;
use crate::sync_scope::SyncScope;
use tarn_dataset::task::{FeatureCounts, InternalEvent, Room};
use tarn_object::zap::ZapValue;
use tarn_ondisk::declare::Stored;
use tarn_ondisk::features::Feature;
use tarn_ondisk::pool_directory::{CHECKPOINT, POOL_DIRECTORY};
use tarn_ondisk::space_map::{ONE_WORD_OFFSET_END, SpaceMapVersion};
use tarn_ondisk::uberblock::Uberblock;
use tarn_probe::Operation;

/// About how many blocks of the MOS a new checkpoint changes.
const BLOCKS: usize = 3;

/// Why the checkpoint of a pool was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// It was refused.
    #[error(transparent)]
    Refused(#[from] CheckpointRefusal),
    /// The pool stores nothing.
    #[error(transparent)]
    Task(#[from] TaskError),
}

impl Pool {
    /// Keeps the present state of the pool, and waits until that is stored. All changes that were
    /// made before the call are a part of that state.
    ///
    /// # Errors
    /// There is a checkpoint, or one is being discarded; the feature is not enabled; the pool is
    /// full, or stores nothing.
    #[doc(alias("spa_checkpoint", "spa_checkpoint_sync"))]
    pub fn create_checkpoint(&self, operation: &Operation) -> Result<(), CheckpointError> {
        self.require_writable()?;
        self.refuse_for_checkpoint()?;
        self.sync_all(operation)?;
        self.run_early(operation, |scope| create(scope).map(Ok))??;
        Ok(())
    }

    /// Gives the checkpoint up, and waits until that is stored; its space is freed by and by.
    ///
    /// # Errors
    /// There is none, or it is being discarded already; the pool stores nothing.
    #[doc(alias("spa_checkpoint_discard", "spa_checkpoint_discard_sync"))]
    pub fn discard_checkpoint(&self, operation: &Operation) -> Result<(), CheckpointError> {
        self.require_writable()?;
        self.run_early(operation, |scope| begin_discard(scope).map(Ok))??;
        Ok(())
    }
}

#[doc(alias = "spa_checkpoint_check")]
fn check(scope: &SyncScope<'_>) -> Result<(), CheckpointRefusal> {
    if !scope.features.is_enabled(Feature::ZpoolCheckpoint) {
        return Err(CheckpointRefusal::NotEnabled);
    }
    let features = scope.features.now();
    if version_of(features.is_active(Feature::SpacemapV2.guid())) == SpaceMapVersion::V1 {
        let tops = scope.pool.vdevs().top_levels();
        let is_too_large = |units: u64| units > ONE_WORD_OFFSET_END;
        let mut units = tops.iter().map(|top| top.asize.get() >> top.ashift);
        if units.any(is_too_large) {
            return Err(CheckpointRefusal::TooLarge);
        }
    }
    scope.pool.refuse_for_checkpoint()?;
    let namespace = scope.context.namespace;
    let room = namespace.check_room(Room::normal(BLOCKS), scope.context.operation);
    room.map_err(|_| CheckpointRefusal::NoSpace)
}

fn create(scope: &SyncScope<'_>) -> Result<Result<(), CheckpointRefusal>, PoolError> {
    if let Err(refusal) = check(scope) {
        return Ok(Err(refusal));
    }
    let (pool, writer) = (scope.pool, scope.writer);
    let stored = pool.uberblock();
    assert!(
        writer.tx.pass() == 1 && stored.txg < writer.tx.txg(),
        "a checkpoint is a stored txg, taken before the next one frees anything"
    );
    let kept = Uberblock {
        checkpoint_txg: stored.txg,
        ..stored
    };
    let value = ZapValue::Words(words_of(&kept));
    writer.put(POOL_DIRECTORY, CHECKPOINT, &value)?;
    scope.features.increment(Feature::ZpoolCheckpoint)?;
    scope.context.record(InternalEvent {
        name: "spa checkpoint",
        dataset: None,
        text: format!("checkpointed uberblock txg={}", kept.txg),
    });
    pool.space().set_checkpoint(Some(kept.txg));
    let mut known = pool.checkpoint.known.lock();
    assert!(
        known.maps.is_empty(),
        "nothing is left of an earlier checkpoint"
    );
    known.is_active = true;
    known.taken = Some(Taken {
        txg: kept.txg,
        timestamp_s: kept.timestamp_s,
    });
    Ok(Ok(()))
}

fn begin_discard(scope: &SyncScope<'_>) -> Result<Result<(), CheckpointRefusal>, PoolError> {
    let (pool, writer) = (scope.pool, scope.writer);
    match pool.checkpoint.state() {
        None => return Ok(Err(CheckpointRefusal::Absent)),
        Some(CheckpointState::Discarding) => return Ok(Err(CheckpointRefusal::Discarding)),
        Some(CheckpointState::Exists) => {}
    }
    writer.remove(POOL_DIRECTORY, CHECKPOINT)?;
    scope.context.record(InternalEvent {
        name: "spa discard checkpoint",
        dataset: None,
        text: "started discarding checkpointed state from the pool".to_string(),
    });
    pool.space().set_checkpoint(None);
    pool.checkpoint.known.lock().taken = None;
    Ok(Ok(()))
}

/// An uberblock as the directory has it.
fn words_of(uberblock: &Uberblock) -> Vec<u64> {
    let bytes = uberblock.to_bytes();
    let (words, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty(), "an uberblock is whole words");
    words.iter().map(|word| u64::from_le_bytes(*word)).collect()
}
