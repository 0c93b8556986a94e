//! Which blocks the devices have, and where.
//!
//! # Mechanism
//! Entries are found by their key. Each device has them in the order in which they were written
//! besides, which is the order of places round its [`Ring`], so that those ahead of the hand are
//! given up from the front of that list. An entry that is forgotten leaves its place in the list,
//! which is passed over later.
//!
//! # Invariants
//! - An entry is found only after its buffer was written. One that was forgotten meanwhile does not
//!   come back.
//! - An entry is gone before its place is written over.

use super::log::DeviceLog;
use super::ring::Ring;
use crate::key::Key;
use crate::second_probes::SecondSizes;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use tarn_ondisk::cache_device::CacheLogPointer;
use tarn_ondisk::units::Guid;
use tarn_vdev::CacheDevice;

/// What an entry takes of memory, in both orders. Rounded up.
#[doc(alias = "HDR_L2ONLY_SIZE")]
pub(super) const ENTRY_BYTES: u64 = 192;

/// Where a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// The number of the device.
    pub(super) device: u32,
    /// In bytes from the start of the device.
    pub(super) offset: u64,
    /// The logical size of the block, in bytes.
    pub(super) logical_bytes: u64,
    /// The physical size of the block, in bytes.
    pub(super) physical_bytes: u64,
    /// What it takes on the device, in bytes.
    pub(super) allocated_bytes: u64,
    /// Whether it is the contents of a file or volume.
    pub(super) is_data: bool,
    /// Whether the first level had it among those used often.
    pub(super) was_frequent: bool,
    /// Its buffer is on the device.
    pub(super) is_written: bool,
}

/// The state of one device.
#[derive(Debug)]
pub(super) struct DeviceState {
    /// Devices are numbered as they join; no number is used again.
    pub(super) number: u32,
    pub(super) device: Arc<CacheDevice>,
    pub(super) ring: Ring,
    /// Places and keys in the order of writing.
    order: VecDeque<(u64, Key)>,
    /// What entries take on it, in bytes.
    pub(super) allocated_bytes: u64,
    /// The log blocks on it, oldest first.
    pub(super) log_blocks: VecDeque<CacheLogPointer>,
    /// The log block to come.
    pub(super) log: DeviceLog,
    /// It is to be read anew before it is written.
    pub(super) awaits_rebuild: bool,
}

impl DeviceState {
    /// What log blocks take on it, in bytes.
    pub(super) fn log_bytes(&self) -> u64 {
        self.log_blocks
            .iter()
            .map(CacheLogPointer::stored_bytes)
            .sum()
    }

    pub(super) fn publish(&self) {
        self.device
            .note_allocated(self.allocated_bytes + self.log_bytes());
    }
}

/// See the module. For one thread at a time.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: BTreeMap<Key, Entry>,
    pub(super) devices: Vec<DeviceState>,
    next_number: u32,
    totals: SecondSizes,
}

impl Index {
    /// Takes a device in, empty. Gives its number.
    pub(super) fn join(&mut self, device: Arc<CacheDevice>, room: Range<u64>) -> u32 {
        let number = self.next_number;
        self.next_number += 1;
        self.devices.push(DeviceState {
            number,
            device,
            log: DeviceLog::new(&room),
            ring: Ring::new(room),
            order: VecDeque::new(),
            allocated_bytes: 0,
            log_blocks: VecDeque::new(),
            awaits_rebuild: false,
        });
        number
    }

    /// Forgets a device and everything on it.
    pub(super) fn leave(&mut self, number: u32) {
        self.empty(number);
        self.devices.retain(|state| state.number != number);
    }

    /// Forgets everything on a device, which is written from its start again.
    pub(super) fn empty(&mut self, number: u32) {
        let Some(state) = self.device_mut(number) else {
            return;
        };
        assert_eq!(state.number, number, "it is the device that was meant");
        state.ring = Ring::new(state.ring.room.clone());
        state.log = DeviceLog::new(&state.ring.room);
        state.log_blocks.clear();
        let order = std::mem::take(&mut state.order);
        for (offset, key) in order {
            self.remove_at(&key, (number, offset));
        }
        debug_assert!(
            self.device(number)
                .is_none_or(|state| state.allocated_bytes == 0),
            "the order has all entries of a device"
        );
    }

    /// The number of the device of this guid.
    pub(super) fn number_of(&self, guid: Guid) -> Option<u32> {
        let mut states = self.devices.iter();
        let state = states.find(|state| state.device.guid() == guid)?;
        Some(state.number)
    }

    pub(super) fn device(&self, number: u32) -> Option<&DeviceState> {
        self.devices.iter().find(|state| state.number == number)
    }

    pub(super) fn device_mut(&mut self, number: u32) -> Option<&mut DeviceState> {
        self.devices.iter_mut().find(|state| state.number == number)
    }

    /// The entry of a block whose buffer is written, with its device.
    pub(super) fn find(&self, key: &Key) -> Option<(Entry, Arc<CacheDevice>)> {
        let entry = *self.entries.get(key).filter(|entry| entry.is_written)?;
        Some((entry, self.device(entry.device)?.device.clone()))
    }

    /// Whether a block has an entry, written or about to be.
    pub(super) fn contains(&self, key: &Key) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether the entry is still there.
    pub(super) fn is_at(&self, key: &Key, (device, offset): (u32, u64)) -> bool {
        let entry = self.entries.get(key);
        entry.is_some_and(|entry| (entry.device, entry.offset) == (device, offset))
    }

    /// Adds an entry behind the newest of its device. False if its block has one.
    pub(super) fn add_newest(&mut self, key: Key, entry: Entry) -> bool {
        self.add(key, entry, |order, item| order.push_back(item))
    }

    /// Adds an entry before the oldest of its device. False if its block has one.
    pub(super) fn add_oldest(&mut self, key: Key, entry: Entry) -> bool {
        self.add(key, entry, |order, item| order.push_front(item))
    }

    fn add(
        &mut self,
        key: Key,
        entry: Entry,
        put: impl FnOnce(&mut VecDeque<(u64, Key)>, (u64, Key)),
    ) -> bool {
        if self.entries.contains_key(&key) {
            return false;
        }
        let Some(state) = self.device_mut(entry.device) else {
            return false;
        };
        assert!(
            state.ring.room.contains(&entry.offset),
            "a buffer is in the room of its device"
        );
        assert!(
            entry.physical_bytes <= entry.allocated_bytes,
            "a buffer takes as much as its block at least"
        );
        put(&mut state.order, (entry.offset, key));
        state.allocated_bytes += entry.allocated_bytes;
        self.entries.insert(key, entry);
        self.count(&entry, u64::wrapping_add);
        true
    }

    /// The buffer of an entry was written; if the entry is still there it is found from now on.
    pub(super) fn note_written(&mut self, key: &Key, place: (u32, u64)) {
        if self.is_at(key, place)
            && let Some(entry) = self.entries.get_mut(key)
        {
            entry.is_written = true;
        }
    }

    /// Forgets a block.
    pub(super) fn remove(&mut self, key: &Key) {
        if let Some(entry) = self.entries.get(key) {
            let place = (entry.device, entry.offset);
            self.remove_at(key, place);
        }
    }

    /// Forgets a block, if it is there.
    pub(super) fn remove_at(&mut self, key: &Key, place: (u32, u64)) {
        if !self.is_at(key, place) {
            return;
        }
        let entry = self.entries.remove(key).expect("it was found just now");
        self.count(&entry, u64::wrapping_sub);
        if let Some(state) = self.device_mut(entry.device) {
            assert!(
                state.allocated_bytes >= entry.allocated_bytes,
                "a device counts each of its entries"
            );
            state.allocated_bytes -= entry.allocated_bytes;
        }
    }

    /// Makes room for a write of `size` bytes at the hand of a device: forgets what lies there.
    /// Gives whether anything was given up for it.
    pub(super) fn make_room(&mut self, number: u32, size: u64) -> bool {
        let Some(state) = self.device_mut(number) else {
            return false;
        };
        let ranges = state.ring.make_room(size);
        let has_given_up = !ranges.is_empty();
        for range in ranges {
            let Some(state) = self.device_mut(number) else {
                return false;
            };
            let mut gone = Vec::new();
            while let Some((offset, key)) = state.order.front()
                && range.contains(offset)
            {
                gone.push((*offset, *key));
                state.order.pop_front();
            }
            // A log block ends with the first of the buffers that it lists, or when it is written
            // over itself.
            let is_in = |log: &CacheLogPointer| {
                range.contains(&log.payload_start) || range.contains(&log.offset)
            };
            while state.log_blocks.front().is_some_and(is_in) {
                state.log_blocks.pop_front();
            }
            for (offset, key) in gone {
                self.remove_at(&key, (number, offset));
            }
        }
        has_given_up
    }

    /// What the entries take of memory, in bytes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let ordered: usize = self.devices.iter().map(|state| state.order.len()).sum();
        let ordered = u64::try_from(ordered).expect("a count fits 64 bits");
        self.totals.entries.max(ordered) * ENTRY_BYTES
    }

    /// What is on all devices, and what that takes of memory.
    pub(super) fn totals(&self) -> SecondSizes {
        let mut totals = self.totals;
        totals.memory_bytes = self.memory_bytes();
        for state in &self.devices {
            totals.log_count += u64::try_from(state.log_blocks.len()).expect("a count fits");
            totals.log_bytes += state.log_bytes();
        }
        totals
    }

    fn count(&mut self, entry: &Entry, change: fn(u64, u64) -> u64) {
        let totals = &mut self.totals;
        totals.entries = change(totals.entries, 1);
        let by = |sum: &mut u64, bytes| *sum = change(*sum, bytes);
        by(&mut totals.logical_bytes, entry.logical_bytes);
        let allocated = entry.allocated_bytes;
        by(&mut totals.allocated_bytes, allocated);
        by(
            match entry.is_data {
                true => &mut totals.data_bytes,
                false => &mut totals.metadata_bytes,
            },
            allocated,
        );
        by(
            match entry.was_frequent {
                true => &mut totals.frequent_bytes,
                false => &mut totals.recent_bytes,
            },
            allocated,
        );
    }
}
