//! A volume in memory, for tests and fuzzing.

use crate::storage::{Contents, Durability, Storage, StorageError};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes in memory, in blocks of 4 KiB that are allocated when they are written.
pub struct MemoryStorage {
    state: Mutex<State>,
    size_bytes: u64,
    is_read_only: bool,
}

#[derive(Default)]
struct State {
    blocks: std::collections::BTreeMap<u64, Vec<u8>>,
    reservations: Option<String>,
    is_write_cache_off: bool,
    flushes: u64,
    unflushed: u64,
    failure: Option<StorageError>,
}

const BLOCK_BYTES: u64 = 4096;

impl MemoryStorage {
    /// A volume of zeros.
    pub fn new(size_bytes: u64) -> MemoryStorage {
        MemoryStorage {
            state: Mutex::default(),
            size_bytes,
            is_read_only: false,
        }
    }

    /// The same, read-only.
    pub fn read_only(size_bytes: u64) -> MemoryStorage {
        MemoryStorage {
            is_read_only: true,
            ..MemoryStorage::new(size_bytes)
        }
    }

    /// From now on reads and writes fail like this, or do not.
    pub fn fail_with(&self, failure: Option<StorageError>) {
        self.state().failure = failure;
    }

    /// How many changes are not durable.
    pub fn unflushed(&self) -> u64 {
        self.state().unflushed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, offset: u64, length: u64) -> Result<MutexGuard<'_, State>, StorageError> {
        let state = self.state();
        if let Some(failure) = state.failure {
            return Err(failure);
        }
        match offset.checked_add(length) {
            Some(end) if end <= self.size_bytes => Ok(state),
            _ => Err(StorageError::OutOfRange),
        }
    }
}

/// The pieces of a range: block, place in the block, length.
fn pieces(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let (mut at, end) = (offset, offset + length);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let within = at % BLOCK_BYTES;
        let count = (BLOCK_BYTES - within).min(end - at);
        let piece = (
            at / BLOCK_BYTES,
            usize::try_from(within).ok()?,
            usize::try_from(count).ok()?,
        );
        at += count;
        Some(piece)
    })
}

impl Storage for MemoryStorage {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn block_bytes(&self) -> u64 {
        BLOCK_BYTES
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn read(&self, offset: u64, length: u64) -> Result<Contents, StorageError> {
        let state = self.check(offset, length)?;
        let mut bytes = Vec::new();
        for (block, at, count) in pieces(offset, length) {
            match state.blocks.get(&block) {
                Some(found) => bytes.extend_from_slice(&found[at..at + count]),
                None => bytes.resize(bytes.len() + count, 0),
            }
        }
        Ok(Contents::Bytes(bytes))
    }

    fn write(&self, offset: u64, bytes: &[u8], durability: Durability) -> Result<(), StorageError> {
        let mut rest = bytes;
        let length = u64::try_from(bytes.len()).map_err(|_| StorageError::OutOfRange)?;
        let mut state = self.check(offset, length)?;
        if self.is_read_only {
            return Err(StorageError::ReadOnly);
        }
        for (block, at, count) in pieces(offset, length) {
            let zeros = || vec![0; BLOCK_BYTES.try_into().expect("4 KiB")];
            let found = state.blocks.entry(block).or_insert_with(zeros);
            let (these, others) = rest.split_at(count);
            found[at..at + count].copy_from_slice(these);
            rest = others;
        }
        if durability == Durability::Later {
            state.unflushed += 1;
        }
        Ok(())
    }

    fn discard(
        &self,
        offset: u64,
        length: u64,
        durability: Durability,
    ) -> Result<(), StorageError> {
        let mut state = self.check(offset, length)?;
        if self.is_read_only {
            return Err(StorageError::ReadOnly);
        }
        for (block, at, count) in pieces(offset, length) {
            if u64::try_from(count).is_ok_and(|count| count == BLOCK_BYTES) {
                state.blocks.remove(&block);
            } else if let Some(found) = state.blocks.get_mut(&block) {
                found[at..at + count].fill(0);
            }
        }
        if durability == Durability::Later {
            state.unflushed += 1;
        }
        Ok(())
    }

    fn write_zeros(
        &self,
        offset: u64,
        length: u64,
        durability: Durability,
    ) -> Result<(), StorageError> {
        let length = usize::try_from(length).map_err(|_| StorageError::OutOfRange)?;
        self.write(offset, &vec![0; length], durability)
    }

    fn flush(&self) -> Result<(), StorageError> {
        let mut state = self.check(0, 0)?;
        state.flushes += 1;
        state.unflushed = 0;
        Ok(())
    }

    fn copy_from(
        &self,
        (source, from): (&dyn Storage, u64),
        to: u64,
        length: u64,
    ) -> Result<(), StorageError> {
        let bytes = source.read(from, length)?.to_vec();
        self.write(to, &bytes, Durability::Later)
    }

    fn allocated(&self, offset: u64, length: u64) -> Result<Vec<(u64, bool)>, StorageError> {
        let state = self.check(offset, length)?;
        let mut found: Vec<(u64, bool)> = Vec::new();
        for (block, _, count) in pieces(offset, length) {
            let (is, count) = (
                state.blocks.contains_key(&block),
                u64::try_from(count).expect("at most a block"),
            );
            match found.last_mut() {
                Some(last) if last.1 == is => last.0 += count,
                _ => found.push((count, is)),
            }
        }
        Ok(found)
    }

    fn save_reservations(&self, saved: Option<&str>) -> Result<(), StorageError> {
        self.check(0, 0)?.reservations = saved.map(str::to_string);
        Ok(())
    }

    fn save_write_cache(&self, is_on: bool) -> Result<(), StorageError> {
        self.check(0, 0)?.is_write_cache_off = !is_on;
        Ok(())
    }

    fn saved_write_cache(&self) -> Result<bool, StorageError> {
        Ok(!self.check(0, 0)?.is_write_cache_off)
    }

    fn saved_reservations(&self) -> Result<Option<String>, StorageError> {
        Ok(self.check(0, 0)?.reservations.clone())
    }
}
