//! A volume that is open, and what its operations share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tarn_dataset::contents::VOLUME_DATA;
use tarn_dataset::space_door::{SpaceDoor, SpaceLeave};
use tarn_object::{Object, ObjectError, ObjectSet, OpenTx, TxEstimate, Txgs};
use tarn_probe::Operation;
use tarn_zil::{IntentLog, LogSource, SyncPolicy};

use crate::changed_ranges::{ChangedRange, ChangedRanges};
use crate::error::VolumeError;
use crate::volume_properties::{PackedProperties, VolumeProperties};

/// The parts that a volume is opened with.
pub struct VolumeParts {
    /// Its objects.
    pub set: Arc<ObjectSet>,
    /// The pool's transaction groups; none where nothing can change, as in a snapshot.
    pub txgs: Option<Arc<Txgs>>,
    /// Its intent log; none where nothing can change.
    pub log: Option<Arc<IntentLog>>,
    /// `volsize`, in bytes.
    pub size_bytes: u64,
    /// Its properties.
    pub properties: VolumeProperties,
    /// How much room it has.
    pub space: SpaceDoor,
}

/// When a change is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// After the next flush; with `sync=always` when the change returns.
    Later,
    /// When the change returns (FUA); with `sync=disabled` later.
    Now,
}

/// A volume, or a snapshot of one.
pub struct Volume {
    pub(crate) data: Arc<Object>,
    pub(crate) set: Arc<ObjectSet>,
    txgs: Option<Arc<Txgs>>,
    pub(crate) log: Option<Arc<IntentLog>>,
    pub(crate) space: SpaceDoor,
    pub(crate) size: AtomicU64,
    properties: PackedProperties,
    /// `volblocksize`, in bytes, which never changes.
    block_size: u64,
    /// A range is taken from before the transaction of a change is opened until its record is in
    /// the log: records of changes that overlap are in the order of the changes. Those of the
    /// object are made by one txg after the other, as the next one is opened when the last
    /// transaction of the one before has ended.
    pub(crate) changes: ChangedRanges,
}

impl Volume {
    /// What its intent log counted, by OpenZFS's names; nothing where it has none.
    pub fn counted_of_log(&self) -> Vec<(&'static str, u64)> {
        let log = self.log.as_ref();
        log.map(|log| log.counted()).unwrap_or_default()
    }

    /// Opens a volume. Its log is not replayed: [`tarn_zil::replay`] does that.
    ///
    /// # Errors
    /// When it has no data object, or that cannot be read.
    pub fn open(parts: VolumeParts, operation: &Operation) -> Result<Arc<Volume>, ObjectError> {
        let data = parts.set.object(VOLUME_DATA, operation)?;
        let block_size = data.block_size().get();
        let volume = Arc::new(Volume {
            data,
            set: parts.set,
            txgs: parts.txgs,
            log: parts.log,
            space: parts.space,
            size: AtomicU64::new(parts.size_bytes),
            properties: PackedProperties::new(parts.properties),
            block_size,
            changes: ChangedRanges::new(),
        });
        if let Some(log) = &volume.log {
            log.set_bias(parts.properties.log_bias);
            let source: std::sync::Weak<dyn LogSource> = Arc::<Volume>::downgrade(&volume);
            log.set_source(source);
        }
        Ok(volume)
    }

    /// `volsize`, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size.load(Ordering::SeqCst)
    }

    /// `volblocksize`, in bytes.
    pub fn block_size(&self) -> u64 {
        self.block_size
    }

    /// Whether changes are refused.
    pub fn is_read_only(&self) -> bool {
        self.txgs.is_none() || self.properties.load().is_read_only
    }

    /// Whether it can be changed, if its properties let it be.
    pub fn is_changeable(&self) -> bool {
        self.txgs.is_some()
    }

    /// Whether the pool is suspended: changes and flushes wait or fail, by its `failmode`.
    pub fn is_suspended(&self) -> bool {
        self.txgs.as_ref().is_some_and(|txgs| txgs.is_suspended())
    }

    /// The object set it is in.
    pub fn object_set(&self) -> &Arc<ObjectSet> {
        &self.set
    }

    /// Its properties, as they are now.
    pub fn properties(&self) -> VolumeProperties {
        self.properties.load()
    }

    /// Changes its properties. True if that changes whether it is read-only.
    pub fn set_properties(&self, properties: VolumeProperties) -> bool {
        if let Some(log) = &self.log {
            log.set_bias(properties.log_bias);
        }
        let old = self.properties.swap(properties);
        self.txgs.is_some() && old.is_read_only != properties.is_read_only
    }

    /// Changes the size. `store` stores it and frees what lies beyond; no other change of the
    /// volume is made meanwhile. It has the smaller of both sizes until that is done.
    ///
    /// # Errors
    /// Those of `store`; the size is as before then.
    pub fn resize<E>(
        &self,
        size_bytes: u64,
        store: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let _changes = self.changes.take_all();
        let before = self.size_bytes();
        self.size.store(before.min(size_bytes), Ordering::SeqCst);
        let stored = store();
        let after = match &stored {
            Ok(()) => size_bytes,
            Err(_) => before,
        };
        self.size.store(after, Ordering::SeqCst);
        stored
    }

    /// Refuses a range beyond the end; gives where it ends.
    pub(crate) fn check_range(&self, offset: u64, length: u64) -> Result<u64, VolumeError> {
        let size_bytes = self.size_bytes();
        let end = offset.checked_add(length);
        end.filter(|end| *end <= size_bytes)
            .ok_or(VolumeError::OutOfRange {
                offset,
                length,
                size_bytes,
            })
    }

    /// Refuses changes of a read-only volume.
    pub(crate) fn check_writable(&self) -> Result<(), VolumeError> {
        match self.is_read_only() {
            true => Err(VolumeError::ReadOnly),
            false => Ok(()),
        }
    }

    /// The right to change the blocks that a range reaches.
    pub(crate) fn change(&self, offset: u64, length: u64) -> ChangedRange<'_> {
        let block_size = self.block_size();
        let end = offset.saturating_add(length);
        let end = end.checked_next_multiple_of(block_size).unwrap_or(u64::MAX);
        self.changes.take(offset - offset % block_size..end)
    }

    /// A transaction for which space is promised. The caller has the right to change the range.
    pub(crate) fn begin(
        &self,
        leave: SpaceLeave,
        estimate: TxEstimate,
        operation: &Operation,
    ) -> Result<OpenTx, VolumeError> {
        let txgs = self.txgs.as_ref().ok_or(VolumeError::ReadOnly)?;
        let mut tx = txgs.assign(&estimate, operation)?;
        if let Some(leave) = leave {
            tx.keep(leave);
        }
        Ok(tx)
    }

    /// Makes a change durable that was just made, where that is due. The caller has neither the
    /// right to change a range nor a transaction.
    pub(crate) fn after_change(
        &self,
        durable: Durable,
        operation: &Operation,
    ) -> Result<(), VolumeError> {
        let sync = self.properties().sync;
        match (sync, durable) {
            (SyncPolicy::Disabled, _) | (SyncPolicy::Standard, Durable::Later) => Ok(()),
            (SyncPolicy::Always, _) | (SyncPolicy::Standard, Durable::Now) => {
                self.commit(operation)
            }
        }
    }
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Volume({:?})", self.set)
    }
}
