//! The second level of one pool: its devices, and reads from them.

use super::eligibility::Eligibilities;
use super::index::Index;
use super::log::header_of;
use crate::cache::{Cache, Lent};
use crate::key::Key;
use crate::ranks;
use crate::second_probes::{SecondProbes, SecondSizes};
use crate::shard::{Candidate, Origin};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tarn_block::{Block, BlockIo, BlockScope};
use tarn_host::lock::Mutex;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::widen;
use tarn_ondisk::units::{Guid, Txg};
use tarn_probe::{Operation, Outcome};
use tarn_vdev::CacheDevice;

/// What is offered by readers that keep blocks themselves, and waits to be written, in bytes.
const OFFERED_BYTES_MAX: u64 = 32 << 20;

/// Of a device that joins: what is on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// Nothing of use.
    Empty,
    /// Perhaps what it had when the pool was last open, which is looked for later.
    Stored,
}

/// Blocks that are offered to be written, oldest first.
#[derive(Default)]
pub(super) struct Offered {
    pub(super) blocks: VecDeque<Candidate>,
    pub(super) bytes: u64,
}

/// See the module.
pub(crate) struct SecondLevel {
    /// The pool, by its number in this process.
    pub(super) pool: u64,
    pub(super) cache: Arc<Cache>,
    pub(super) io: Arc<BlockIo>,
    pub(super) index: Mutex<Index>,
    /// Held while a device is written or read anew. The number of the device that was written last.
    pub(super) turn: Mutex<u32>,
    pub(super) offered: Mutex<Offered>,
    eligibilities: Eligibilities,
    /// Whether there are devices, so that what is read is offered.
    has_devices: AtomicBool,
    /// The guid of the pool, which headers name.
    guid: AtomicU64,
    /// The newest txg that is stored: later blocks do not enter.
    pub(super) stored_txg: AtomicU64,
    /// Memory of the index.
    lent: Lent,
    /// What the statistics have of this pool.
    published: Mutex<SecondSizes>,
}

impl SecondLevel {
    pub(crate) fn new(pool: u64, cache: &Arc<Cache>, io: &Arc<BlockIo>) -> SecondLevel {
        SecondLevel {
            pool,
            cache: cache.clone(),
            io: io.clone(),
            index: Mutex::new(ranks::SECOND_INDEX, Index::default()),
            turn: Mutex::new(ranks::FEEDING, 0),
            offered: Mutex::new(ranks::OFFERED, Offered::default()),
            eligibilities: Eligibilities::new(),
            has_devices: AtomicBool::new(false),
            guid: AtomicU64::new(0),
            stored_txg: AtomicU64::new(0),
            lent: cache.lend(),
            published: Mutex::new(ranks::PUBLISHED, SecondSizes::default()),
        }
    }

    pub(super) fn probes(&self) -> &SecondProbes {
        &self.cache.probes.second
    }

    /// Whether it has devices.
    pub(crate) fn is_used(&self) -> bool {
        self.has_devices.load(Ordering::Acquire)
    }

    /// Which object sets use it.
    pub(crate) fn eligibilities(&self) -> &Eligibilities {
        &self.eligibilities
    }

    /// What must be known of a block in memory for it to enter. None for a block that may not.
    pub(crate) fn origin_of(
        &self,
        pointer: &BlockPointer,
        scope: BlockScope,
    ) -> Option<Arc<Origin>> {
        let may_enter = self.is_used() && self.eligibilities.allow(&scope);
        may_enter.then(|| {
            let pointer = *pointer;
            Arc::new(Origin { pointer, scope })
        })
    }

    pub(super) fn pool_guid(&self) -> Guid {
        Guid::from(self.guid.load(Ordering::Acquire))
    }

    /// The guid of the pool is this. Headers that are written from now on have it.
    pub(crate) fn set_pool_guid(&self, guid: Guid) {
        self.guid.store(guid.get(), Ordering::Release);
    }

    /// All groups up to this one are stored.
    pub(crate) fn note_stored(&self, txg: Txg) {
        self.stored_txg.fetch_max(txg.get(), Ordering::AcqRel);
    }

    /// Takes a device in. One that is empty gets a header that says so.
    #[doc(alias = "l2arc_add_vdev")]
    pub(crate) fn join(&self, device: &Arc<CacheDevice>, fresh: Fresh, operation: &Operation) {
        let Some(room) = device.room() else {
            return;
        };
        let _turn = self.turn.lock();
        let mut index = self.index.lock();
        if let Some(before) = index.number_of(device.guid()) {
            index.leave(before);
        }
        let number = index.join(device.clone(), room);
        if let (Fresh::Stored, Some(state)) = (fresh, index.device_mut(number)) {
            state.awaits_rebuild = true;
        }
        drop(index);
        self.has_devices.store(true, Ordering::Release);
        if fresh == Fresh::Empty {
            self.write_header(number, operation);
        }
        self.publish();
    }

    /// Lets a device go, after what is being written to it.
    #[doc(alias = "l2arc_remove_vdev")]
    pub(crate) fn leave(&self, guid: Guid) {
        let _turn = self.turn.lock();
        let mut index = self.index.lock();
        if let Some(number) = index.number_of(guid) {
            index.leave(number);
        }
        let has_devices = !index.devices.is_empty();
        drop(index);
        self.has_devices.store(has_devices, Ordering::Release);
        if !has_devices {
            *self.offered.lock() = Offered::default();
        }
        self.publish();
    }

    /// Lets all devices go: the pool is closed. What is being written meanwhile is not kept.
    pub(crate) fn leave_all(&self) {
        let mut index = self.index.lock();
        let devices = index.devices.iter();
        let numbers: Vec<u32> = devices.map(|state| state.number).collect();
        numbers.into_iter().for_each(|number| index.leave(number));
        drop(index);
        self.has_devices.store(false, Ordering::Release);
        *self.offered.lock() = Offered::default();
        self.publish();
    }

    /// The block of this pointer, if a device has it.
    #[doc(alias = "l2arc_read_done")]
    pub(crate) fn read(
        &self,
        pointer: &BlockPointer,
        scope: BlockScope,
        operation: &Operation,
    ) -> Option<Block> {
        if !self.is_used() {
            return None;
        }
        let key = Key::of(self.pool, pointer);
        let found = self.index.lock().find(&key);
        let probes = self.probes();
        let found = found.filter(|(entry, device)| {
            entry.physical_bytes == pointer.physical_size().get() && device.is_usable()
        });
        let Some((entry, device)) = found else {
            probes.misses.increment();
            return None;
        };
        let place = (entry.device, entry.offset);
        let Ok(form) = device.read(entry.offset, entry.allocated_bytes, operation) else {
            self.index.lock().remove_at(&key, place);
            probes.io_errors.increment();
            probes.misses.increment();
            return None;
        };
        match self.io.open_stored_form(pointer, scope, form) {
            Some(Ok(block)) => {
                operation.mark(Outcome::SecondLevel);
                probes.hits.increment();
                probes.read_bytes.add(entry.physical_bytes);
                Some(block)
            }
            // The pool says what is wrong with the block.
            Some(Err(_)) => None,
            None => {
                let mut index = self.index.lock();
                // If it is gone, its place may have been written over during the read.
                let is_wrong = index.is_at(&key, place);
                index.remove_at(&key, place);
                drop(index);
                if is_wrong {
                    probes.checksum_errors.increment();
                    device.note_mismatch(entry.offset, entry.allocated_bytes, operation);
                }
                probes.misses.increment();
                None
            }
        }
    }

    /// A reader that keeps blocks itself has one that is not in memory here any more. It is dropped
    /// if many wait.
    pub(crate) fn offer(&self, block: Candidate) {
        let bytes = block.bytes();
        let mut offered = self.offered.lock();
        if offered.bytes + bytes <= OFFERED_BYTES_MAX {
            offered.bytes += bytes;
            offered.blocks.push_back(block);
        }
    }

    /// Forgets a block that was freed, or is about to be written in place.
    pub(crate) fn forget(&self, key: &Key) {
        if self.is_used() {
            self.index.lock().remove(key);
        }
    }

    /// Writes the header of a device. An error is counted by the device.
    pub(super) fn write_header(&self, number: u32, operation: &Operation) {
        let index = self.index.lock();
        let Some(state) = index.device(number) else {
            return;
        };
        let (place, header) = header_of(state, self.pool_guid());
        let device = state.device.clone();
        drop(index);
        debug_assert!(
            device.header_range().start == place
                && widen(header.len()) <= device.header_range().end - place,
            "a header is in its place"
        );
        drop(device.write(vec![(place, Arc::new(header))], operation));
    }

    /// Brings statistics and the memory that is lent up to date.
    pub(super) fn publish(&self) {
        let index = self.index.lock();
        let sizes = index.totals();
        index.devices.iter().for_each(|state| state.publish());
        drop(index);
        self.lent.set(|| sizes.memory_bytes);
        self.publish_sizes(&sizes);
    }

    fn publish_sizes(&self, sizes: &SecondSizes) {
        let before = std::mem::replace(&mut *self.published.lock(), *sizes);
        self.probes().change_sizes(&before, sizes);
    }
}

impl Drop for SecondLevel {
    fn drop(&mut self) {
        self.publish_sizes(&SecondSizes::default());
    }
}
