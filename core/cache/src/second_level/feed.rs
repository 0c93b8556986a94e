//! One round of feeding: what is near the ends of the first level's lists is written to a device.
//!
//! # Mechanism
//! Devices take turns. A round makes room at the hand of the device, gathers blocks that are not on
//! any device yet, gets their stored forms, and writes them with their log blocks in batches, then
//! the header. An entry is in the index before its buffer is written, so that a block that is freed
//! meanwhile is found there and forgotten.
//!
//! # Invariants
//! - A round writes no more than [`WRITE_BYTES`], twice that while the first level is not full, and
//!   log blocks.

use super::index::{DeviceState, Entry};
use super::level::SecondLevel;
use super::ring::WRITE_SHARE;
use crate::adaptive::ListName;
use crate::key::Key;
use crate::shard::{Candidate, Position};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tarn_block::{Block, BlockKind};
use tarn_host::Buffer;
use tarn_ondisk::cache_device::{CacheLogEntry, CachedBuffer, LOG_BLOCK_BYTES};
use tarn_ondisk::declare::widen;
use tarn_ondisk::units::Txg;
use tarn_probe::Operation;
use tarn_vdev::CacheDevice;

/// What a round writes at most, in bytes. As OpenZFS 2.3 has it.
#[doc(alias("l2arc_write_max", "l2arc_write_boost"))]
const WRITE_BYTES: u64 = 32 << 20;

/// A round goes along so many times that much of each list.
#[doc(alias = "l2arc_headroom")]
const HEADROOM: u64 = 8;

/// What is gathered in memory before it is written, in bytes.
const BATCH_BYTES: u64 = 4 << 20;

/// The index takes at most one part in so many of the budget of the cache.
#[doc(alias = "l2arc_meta_percent")]
pub(super) const MEMORY_SHARE: u64 = 3;

/// How a round went, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fed {
    /// What could have been written.
    pub(crate) wanted: u64,
    /// What was.
    pub(crate) written: u64,
}

/// A round under way.
struct Round<'a> {
    level: &'a SecondLevel,
    number: u32,
    device: Arc<CacheDevice>,
    operation: &'a Operation,
    /// What may still be written.
    left: u64,
    written: u64,
    batch: Vec<Pending>,
    batch_bytes: u64,
}

/// A buffer or log block about to be written.
struct Pending {
    offset: u64,
    buffer: Arc<Buffer>,
    /// That of a buffer.
    key: Option<Key>,
}

impl SecondLevel {
    /// Whether the index takes its share of memory.
    #[doc(alias = "l2arc_hdr_limit_reached")]
    pub(super) fn is_short_of_memory(&self) -> bool {
        let memory_bytes = self.index.lock().memory_bytes();
        memory_bytes > self.cache.budget_bytes() / MEMORY_SHARE
    }

    /// Writes to the next device.
    pub(crate) fn feed(&self, operation: &Operation) -> Fed {
        let mut turn = self.turn.lock();
        let Some((number, device)) = self.next_device(*turn) else {
            return Fed::default();
        };
        *turn = number;
        if self.is_short_of_memory() {
            self.probes().short_of_memory.increment();
            return Fed::default();
        }
        self.probes().feeds.increment();
        let is_warm = self.cache.has_evicted();
        let mut index = self.index.lock();
        let Some(state) = index.device(number) else {
            return Fed::default();
        };
        let wanted = round_bytes(state, is_warm);
        let has_given_up = index.make_room(number, wanted);
        drop(index);
        if has_given_up {
            // Before it is written over: after a power cut the rebuild passes over it.
            self.write_header(number, operation);
        }
        let mut round = Round {
            level: self,
            number,
            device,
            operation,
            left: wanted,
            written: 0,
            batch: Vec::new(),
            batch_bytes: 0,
        };
        round.take_offered();
        round.take_from_lists(is_warm);
        round.write_batch();
        let written = round.written;
        assert!(written <= wanted, "a round writes what there was room for");
        if written > 0 {
            self.write_header(number, operation);
        }
        self.publish();
        drop(turn);
        Fed { wanted, written }
    }

    /// The device whose turn it is, after the one with this number.
    #[doc(alias = "l2arc_dev_get_next")]
    fn next_device(&self, after: u32) -> Option<(u32, Arc<CacheDevice>)> {
        let index = self.index.lock();
        let ready = || {
            let states = index.devices.iter();
            states.filter(|state| !state.awaits_rebuild && state.device.is_usable())
        };
        let next = ready().find(|state| state.number > after);
        let state = next.or_else(|| ready().next())?;
        Some((state.number, state.device.clone()))
    }

    /// Whether a block may enter, and has not.
    #[doc(alias = "l2arc_write_eligible")]
    fn wants(&self, key: &Key, block: &Candidate) -> bool {
        let stored = Txg::new(self.stored_txg.load(Ordering::Acquire));
        block.pointer().physical_birth() <= stored
            && self.eligibilities().allow(&block.scope())
            && !self.index.lock().contains(key)
            && self.io.has_stored_form(block.pointer())
    }
}

/// What a round may write to a device, log blocks included.
#[doc(alias = "l2arc_write_size")]
fn round_bytes(state: &DeviceState, is_warm: bool) -> u64 {
    let buffers = match is_warm {
        true => WRITE_BYTES,
        false => 2 * WRITE_BYTES,
    };
    let all = buffers + state.log.overhead(buffers);
    let most = state.ring.length() / WRITE_SHARE;
    let sector = state.device.sector_bytes();
    all.min(most) / sector * sector
}

impl Round<'_> {
    fn take_offered(&mut self) {
        while self.has_room() {
            let mut offered = self.level.offered.lock();
            let Some(block) = offered.blocks.pop_front() else {
                return;
            };
            offered.bytes -= block.bytes();
            drop(offered);
            self.take(&block, false);
        }
    }

    fn take_from_lists(&mut self, is_warm: bool) {
        let shards = self.level.cache.shards();
        let headroom = HEADROOM * WRITE_BYTES / widen(shards.len());
        for list in [ListName::Frequent, ListName::Recent] {
            for shard in shards {
                let mut position = Position::start(list, !is_warm);
                let mut passed = 0;
                while passed < headroom && self.has_room() {
                    let (blocks, bytes) = shard.candidates(self.level.pool, &mut position);
                    passed += bytes;
                    for block in &blocks {
                        self.take(block, list == ListName::Frequent);
                    }
                    if position.is_at_end() {
                        break;
                    }
                }
            }
        }
    }

    /// Whether another block may be taken.
    fn has_room(&self) -> bool {
        self.left > widen(LOG_BLOCK_BYTES) && self.device.is_usable()
    }

    /// Takes a block, if it is wanted and there is room for it.
    fn take(&mut self, block: &Candidate, was_frequent: bool) {
        let pointer = block.pointer();
        let key = Key::of(self.level.pool, pointer);
        let physical_bytes = pointer.physical_size().get();
        let allocated_bytes = self.device.allocated_size(physical_bytes);
        // Each block may be the last of a log block.
        if allocated_bytes + widen(LOG_BLOCK_BYTES) > self.left || !self.level.wants(&key, block) {
            return;
        }
        let Some(form) = self.stored_form(block) else {
            return;
        };
        let mut buffer = Buffer::from_slice(&form);
        buffer.resize(tarn_ondisk::declare::narrow(allocated_bytes));
        let is_data = block.scope().kind == BlockKind::Data;
        let about = CachedBuffer {
            logical_bytes: pointer.logical_size().get(),
            physical_bytes,
            compression: u64::from(pointer.compression().code()),
            is_data,
            was_frequent,
        };
        let mut index = self.level.index.lock();
        let Some(state) = index.device_mut(self.number) else {
            return;
        };
        let offset = state.ring.take(allocated_bytes);
        let logged = CacheLogEntry {
            place: pointer.dva_words[0],
            birth: pointer.physical_birth(),
            properties: CacheLogEntry::properties_of(&about),
            offset,
            compression_level: 0,
            reserved: [0; 2],
        };
        let is_full = state.log.add(logged, allocated_bytes);
        let entry = Entry {
            device: self.number,
            offset,
            logical_bytes: about.logical_bytes,
            physical_bytes,
            allocated_bytes,
            is_data,
            was_frequent,
            is_written: false,
        };
        let is_new = index.add_newest(key, entry);
        debug_assert!(is_new, "it was wanted, and there is one round at a time");
        drop(index);
        self.add(offset, Arc::new(buffer), Some(key));
        if is_full {
            self.close_log_block();
        }
        if self.batch_bytes >= BATCH_BYTES {
            self.write_batch();
        }
    }

    /// The bytes to write: made again from the contents, or read from the pool.
    fn stored_form(&self, block: &Candidate) -> Option<Block> {
        let contents = block.contents().clone().into_block();
        let io = &self.level.io;
        let form = io.stored_form(block.pointer(), &contents);
        form.or_else(|| {
            let read = io.read_raw(block.pointer(), block.scope(), self.operation);
            read.ok()
        })
    }

    fn close_log_block(&mut self) {
        let mut index = self.level.index.lock();
        let Some(state) = index.device_mut(self.number) else {
            return;
        };
        let (log, ring) = (&mut state.log, &mut state.ring);
        let (pointer, stored) = log.close(self.device.sector_bytes(), |size| ring.take(size));
        state.log_blocks.push_back(pointer);
        drop(index);
        self.level.probes().log_writes.increment();
        self.add(pointer.offset, Arc::new(stored), None);
    }

    fn add(&mut self, offset: u64, buffer: Arc<Buffer>, key: Option<Key>) {
        let bytes = widen(buffer.len());
        assert!(bytes <= self.left, "a round writes what there is room for");
        self.left -= bytes;
        self.batch_bytes += bytes;
        self.batch.push(Pending {
            offset,
            buffer,
            key,
        });
    }

    fn write_batch(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let bytes = std::mem::take(&mut self.batch_bytes);
        if batch.is_empty() {
            return;
        }
        let writes = batch.iter().map(|item| (item.offset, item.buffer.clone()));
        let outcomes = self.device.write(writes.collect(), self.operation);
        assert_eq!(outcomes.len(), batch.len(), "each write has its outcome");
        let mut failed = 0;
        let mut index = self.level.index.lock();
        for (item, outcome) in batch.iter().zip(outcomes) {
            failed += usize::from(outcome.is_err());
            let Some(key) = &item.key else {
                continue;
            };
            let place = (self.number, item.offset);
            match outcome {
                Ok(()) => index.note_written(key, place),
                Err(_) => index.remove_at(key, place),
            }
        }
        drop(index);
        self.level.probes().count_written(bytes, failed);
        self.written += bytes;
    }
}
