//! A volume of a pool as the storage of a logical unit.

use crate::storage::{Contents, Durability, Storage, StorageError};
use std::cell::Cell;
use std::sync::{Arc, Weak};
use tarn_engine::Engine;
use tarn_engine::files::ClientId;
use tarn_engine::volumes::{
    Durable, HeldVolume, NewContents, Operation, OperationKind, Protocol, VolumeError, Who,
};

/// The property of a volume that keeps its persistent reservations.
pub const RESERVATIONS: &str = "tarn:iscsi_reservations";

/// The property of a volume that keeps that its write cache is off.
pub const WRITE_CACHE: &str = "tarn:iscsi_write_cache";

thread_local! {
    /// The initiator whose command this thread carries out.
    static INITIATOR: Cell<ClientId> = const { Cell::new(ClientId::INTERNAL) };
}

/// Carries out a command of an initiator: what it asks of volumes is recorded as this client's.
pub(crate) fn on_behalf_of<T>(initiator: ClientId, carry_out: impl FnOnce() -> T) -> T {
    INITIATOR.set(initiator);
    let done = carry_out();
    INITIATOR.set(ClientId::INTERNAL);
    done
}

/// Requests of initiators have no user.
fn who() -> Who {
    Who {
        client: INITIATOR.get(),
        protocol: Protocol::Iscsi,
        user: 0,
        holder: tarn_engine::files::HolderId::NONE,
    }
}

/// A held volume.
pub struct ServedVolume {
    engine: Weak<Engine>,
    held: Arc<HeldVolume>,
}

impl ServedVolume {
    /// Of a volume that is held.
    pub fn new(engine: Weak<Engine>, held: Arc<HeldVolume>) -> ServedVolume {
        ServedVolume { engine, held }
    }

    /// Carries out a request with its record.
    fn with<T>(
        &self,
        kind: OperationKind,
        range: (u64, u64),
        carry_out: impl FnOnce(&Operation) -> Result<T, VolumeError>,
    ) -> Result<T, StorageError> {
        let operation = self.held.begin(who(), kind, range);
        let done = carry_out(&operation);
        if let Err(error) = &done {
            operation.fail(error.code());
        }
        self.held.finish(operation);
        done.map_err(|error| match error_of(&error) {
            // The devices may come back.
            StorageError::Io if self.held.is_suspended() => StorageError::Suspended,
            error => error,
        })
    }

    /// Changes of a suspended pool would wait until it is resumed: the initiator is told to try
    /// again, so that its commands do not pile up here.
    fn change<T>(
        &self,
        kind: OperationKind,
        range: (u64, u64),
        carry_out: impl FnOnce(&Operation) -> Result<T, VolumeError>,
    ) -> Result<T, StorageError> {
        match self.held.is_suspended() {
            true => Err(StorageError::Suspended),
            false => self.with(kind, range, carry_out),
        }
    }
}

/// What is kept with the volume.
impl ServedVolume {
    fn save(&self, property: &str, value: Option<&str>) -> Result<(), StorageError> {
        let engine = self.engine.upgrade().ok_or(StorageError::Ended)?;
        if self.held.is_suspended() {
            return Err(StorageError::Suspended);
        }
        let operation = engine.operation(0);
        let set = engine.set_volume_property(&self.held, property, value, &operation);
        operation.finish();
        set.map_err(|_| StorageError::Io)
    }

    fn saved(&self, property: &str) -> Result<Option<String>, StorageError> {
        let engine = self.engine.upgrade().ok_or(StorageError::Ended)?;
        let operation = engine.operation(0);
        let found = engine.volume_property(&self.held, property, &operation);
        operation.finish();
        found.map_err(|_| StorageError::Io)
    }
}

fn error_of(error: &VolumeError) -> StorageError {
    match error {
        VolumeError::OutOfRange { .. } => StorageError::OutOfRange,
        VolumeError::ReadOnly => StorageError::ReadOnly,
        VolumeError::NoSpace | VolumeError::QuotaExceeded => StorageError::NoSpace,
        VolumeError::Suspended => StorageError::Suspended,
        VolumeError::Gone => StorageError::Ended,
        _ => StorageError::Io,
    }
}

fn durable(durability: Durability) -> Durable {
    match durability {
        Durability::Later => Durable::Later,
        Durability::Now => Durable::Now,
    }
}

impl Storage for ServedVolume {
    fn size_bytes(&self) -> u64 {
        self.held.size_bytes()
    }

    fn block_bytes(&self) -> u64 {
        self.held.block_size()
    }

    fn is_read_only(&self) -> bool {
        self.held.is_read_only()
    }

    fn read(&self, offset: u64, length: u64) -> Result<Contents, StorageError> {
        let count = usize::try_from(length).map_err(|_| StorageError::OutOfRange)?;
        let read = self.with(OperationKind::Read, (offset, length), |operation| {
            self.held.read(offset, count, operation)
        });
        read.map(Contents::Cached)
    }

    fn write(&self, offset: u64, bytes: &[u8], durability: Durability) -> Result<(), StorageError> {
        let length = u64::try_from(bytes.len()).map_err(|_| StorageError::OutOfRange)?;
        let (contents, durable) = (NewContents::Bytes(bytes), durable(durability));
        self.change(OperationKind::Write, (offset, length), |operation| {
            self.held.write(offset, contents, durable, operation)
        })
    }

    fn discard(
        &self,
        offset: u64,
        length: u64,
        durability: Durability,
    ) -> Result<(), StorageError> {
        let durable = durable(durability);
        self.change(OperationKind::Write, (offset, length), |operation| {
            self.held.discard(offset, length, durable, operation)
        })
    }

    fn write_zeros(
        &self,
        offset: u64,
        length: u64,
        durability: Durability,
    ) -> Result<(), StorageError> {
        let durable = durable(durability);
        self.change(OperationKind::Write, (offset, length), |operation| {
            let held = &self.held;
            held.write_zeros(offset, length, false, durable, operation)
        })
    }

    fn flush(&self) -> Result<(), StorageError> {
        self.change(OperationKind::Sync, (0, 0), |operation| {
            self.held.flush(operation)
        })
    }

    fn copy_from(
        &self,
        (source, from): (&dyn Storage, u64),
        to: u64,
        length: u64,
    ) -> Result<(), StorageError> {
        // All units that are served are volumes of pools.
        let source = source.held().ok_or(StorageError::Io)?;
        self.change(OperationKind::Write, (to, length), |operation| {
            let copied = self.held.copy_from((source, from), to, length, operation);
            copied.map(drop)
        })
    }

    fn held(&self) -> Option<&HeldVolume> {
        Some(&self.held)
    }

    fn allocated(&self, offset: u64, length: u64) -> Result<Vec<(u64, bool)>, StorageError> {
        self.with(OperationKind::Read, (offset, 0), |operation| {
            self.held.allocated(offset, length, operation)
        })
    }

    fn save_reservations(&self, saved: Option<&str>) -> Result<(), StorageError> {
        self.save(RESERVATIONS, saved)
    }

    fn saved_reservations(&self) -> Result<Option<String>, StorageError> {
        self.saved(RESERVATIONS)
    }

    fn save_write_cache(&self, is_on: bool) -> Result<(), StorageError> {
        match is_on == self.saved_write_cache()? {
            true => Ok(()),
            false => self.save(WRITE_CACHE, (!is_on).then_some("off")),
        }
    }

    fn saved_write_cache(&self) -> Result<bool, StorageError> {
        Ok(self.saved(WRITE_CACHE)?.as_deref() != Some("off"))
    }
}
