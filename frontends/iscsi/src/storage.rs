//! What a logical unit is kept in: a volume.
//!
//! The SCSI layer asks for no more than this, so that its tests and its fuzzing run on memory
//! ([`memory_volume`](crate::memory_volume)); what is served is a volume of a pool
//! ([`served_volume`](crate::served_volume)).

use std::sync::Arc;
use tarn_engine::files::ReadData;
use tarn_engine::volumes::HeldVolume;

/// Why a volume did not do what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageError {
    /// The volume or its pool is closed, or not writable any more.
    Ended,
    /// The pool is suspended or does not answer: to be tried again.
    Suspended,
    /// There is no room in the pool.
    NoSpace,
    /// The volume is read-only.
    ReadOnly,
    /// The range is not in the volume: it was made smaller meanwhile.
    OutOfRange,
    /// No copy of a block could be read, or it could not be stored.
    Io,
}

/// When a change must be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// After the next flush.
    Later,
    /// When the call returns.
    Now,
}

/// Bytes that were read.
pub enum Contents {
    /// Blocks of the cache.
    Cached(ReadData),
    /// Bytes of their own.
    Bytes(Vec<u8>),
}

impl Contents {
    /// The parts, in their order.
    pub fn parts(&self) -> Vec<&[u8]> {
        match self {
            Contents::Cached(data) => data.parts().collect(),
            Contents::Bytes(bytes) => vec![bytes],
        }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of them in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        self.parts().concat()
    }
}

/// A volume. All offsets and lengths are in bytes.
pub trait Storage: Send + Sync {
    /// Its size.
    fn size_bytes(&self) -> u64;

    /// `volblocksize`.
    fn block_bytes(&self) -> u64;

    /// Nothing may be written.
    fn is_read_only(&self) -> bool;

    /// Reads a range, which is in the volume.
    ///
    /// # Errors
    /// See [`StorageError`]; the same for the others.
    fn read(&self, offset: u64, length: u64) -> Result<Contents, StorageError>;

    /// Writes.
    fn write(&self, offset: u64, bytes: &[u8], durability: Durability) -> Result<(), StorageError>;

    /// Frees a range, which reads as zeros then. Blocks that it covers in part are zeroed there.
    fn discard(&self, offset: u64, length: u64, durability: Durability)
    -> Result<(), StorageError>;

    /// Writes zeros. Whether it frees blocks is its own affair.
    fn write_zeros(
        &self,
        offset: u64,
        length: u64,
        durability: Durability,
    ) -> Result<(), StorageError>;

    /// Makes all changes so far durable.
    fn flush(&self) -> Result<(), StorageError>;

    /// Copies a range of another volume, or of this one, here; both are in their volumes.
    fn copy_from(
        &self,
        source: (&dyn Storage, u64),
        to: u64,
        length: u64,
    ) -> Result<(), StorageError>;

    /// The volume of a pool that it is, if it is one.
    fn held(&self) -> Option<&HeldVolume> {
        None
    }

    /// Which parts of a range have blocks: lengths in their order, each with whether it has.
    fn allocated(&self, offset: u64, length: u64) -> Result<Vec<(u64, bool)>, StorageError>;

    /// Keeps the persistent reservations of the unit over restarts and takeovers; nothing removes
    /// them.
    fn save_reservations(&self, saved: Option<&str>) -> Result<(), StorageError>;

    /// Keeps over restarts and takeovers whether the write cache is on.
    fn save_write_cache(&self, is_on: bool) -> Result<(), StorageError>;

    /// What was saved last; true where nothing was.
    fn saved_write_cache(&self) -> Result<bool, StorageError>;

    /// What was saved last.
    fn saved_reservations(&self) -> Result<Option<String>, StorageError>;
}

/// A volume that several sessions use.
pub type SharedStorage = Arc<dyn Storage>;
