//! Reading anew what is on a device, after an import or `zpool online`.
//!
//! # Mechanism
//! The header leads to the two newest log blocks, each of which leads to the one two before it.
//! They are read from the newest to the oldest. What lies between the evicted place and the hand
//! was given up or is half written; all else is *live*, and a log block is taken only if it and the
//! buffers that it lists are live, and before those of the log block that was taken last. So the
//! way ends, also on a device that lies.
//!
//! # Invariants
//! - Entries of a later txg than the pool has are passed over: their keys will be used again.
//! - A device is not written while it is read anew.

use super::index::Entry;
use super::level::SecondLevel;
use super::log::{open_log_block, read_header};
use crate::key::Key;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tarn_ondisk::cache_device::{CacheHeader, CacheLogBlock, CacheLogPointer, LOG_BLOCK_BYTES};
use tarn_ondisk::declare::widen;
use tarn_ondisk::units::Txg;
use tarn_probe::Operation;
use tarn_vdev::CacheDevice;

/// The part of a device that is neither given up nor half written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Live {
    start: u64,
    length: u64,
    /// Where the oldest live byte is, from `start`.
    oldest: u64,
    /// How many bytes are live.
    size: u64,
}

impl Live {
    /// What is live on a device with this room, whose newest log block ends at `hand`.
    fn of(room: &Range<u64>, hand: u64, evicted: u64, header: &CacheHeader) -> Live {
        let (start, length) = (room.start, room.end - room.start);
        let newest = hand - start;
        if header.flags & CacheHeader::FIRST_ROUND != 0 {
            return Live {
                start,
                length,
                oldest: 0,
                size: newest,
            };
        }
        let oldest = (evicted - start) % length;
        let given_up = (oldest + length - newest % length) % length;
        Live {
            start,
            length,
            oldest,
            size: length - given_up,
        }
    }

    /// What is live on a device, by its header alone. None where nothing is, or the header cannot
    /// be.
    pub(super) fn of_header(header: &CacheHeader) -> Option<Live> {
        let room = header.start..header.end;
        let newest = &header.newest;
        let hand = newest.offset.checked_add(newest.stored_bytes())?;
        let is_possible = room.start < room.end
            && (room.start..=room.end).contains(&header.evicted)
            && newest.offset >= room.start
            && hand <= room.end;
        is_possible.then(|| Live::of(&room, hand, header.evicted, header))
    }

    /// How many bytes are live.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Where an offset is, counted from the oldest live byte round the device. None outside of it.
    fn age(&self, offset: u64) -> Option<u64> {
        let place = offset.checked_sub(self.start)?;
        let is_inside = place < self.length;
        is_inside.then(|| (place + self.length - self.oldest) % self.length)
    }

    /// Where the buffers of a log block begin and the log block ends, by age. None if any of that
    /// is not live.
    #[doc(alias = "l2arc_log_blkptr_valid")]
    pub(super) fn ages(&self, log: &CacheLogPointer) -> Option<(u64, u64)> {
        let first = self.age(log.payload_start)?;
        let end = self.age(log.offset)? + log.stored_bytes();
        let fits = log.offset + log.stored_bytes() <= self.start + self.length
            && log.stored_bytes() <= widen(LOG_BLOCK_BYTES);
        (fits && first < end && end <= self.size).then_some((first, end))
    }
}

impl SecondLevel {
    /// Reads those devices anew that wait for it.
    pub(crate) fn rebuild_waiting(&self, operation: &Operation) {
        let _turn = self.turn.lock();
        while let Some(number) = self.first_waiting() {
            self.rebuild(number, operation);
            if let Some(state) = self.index.lock().device_mut(number) {
                state.awaits_rebuild = false;
            }
            self.publish();
        }
    }

    fn first_waiting(&self) -> Option<u32> {
        let index = self.index.lock();
        let mut states = index.devices.iter();
        let waiting = states.find(|state| state.awaits_rebuild)?;
        Some(waiting.number)
    }

    #[doc(alias = "l2arc_rebuild")]
    fn rebuild(&self, number: u32, operation: &Operation) {
        let found = self.stored_header(number, operation);
        let Some((device, header, live)) = found else {
            return self.begin_anew(number, operation);
        };
        let mut next = [header.newest, header.second];
        let mut newer_begins = live.size;
        let mut count = 0u64;
        while let Some((first, end)) = live.ages(&next[0]) {
            if end > newer_begins {
                break;
            }
            let Some(block) = self.read_log_block(&device, &next[0], &header, operation) else {
                break;
            };
            if self.is_short_of_memory() {
                self.probes().rebuilds_short_of_memory.increment();
                break;
            }
            let place = (first, end);
            if !self.restore(number, &device, &next[0], &block, |at| live.age(at), place) {
                return;
            }
            count += 1;
            newer_begins = first;
            next = [next[1], block.previous];
        }
        match count {
            0 => self.begin_anew(number, operation),
            _ => self.probes().rebuilds.increment(),
        }
    }

    /// What a device had is of no use: writes begin at its start.
    fn begin_anew(&self, number: u32, operation: &Operation) {
        let mut index = self.index.lock();
        index.empty(number);
        let is_writable = self.io.vdevs().is_writable();
        drop(index);
        if is_writable {
            self.write_header(number, operation);
        }
    }

    /// The header of a device, with its ring set up as it says.
    fn stored_header(
        &self,
        number: u32,
        operation: &Operation,
    ) -> Option<(Arc<CacheDevice>, CacheHeader, Live)> {
        let device = self.index.lock().device(number)?.device.clone();
        let place = device.header_range();
        let sector = device.read(place.start, place.end - place.start, operation);
        let sector = sector.ok()?;
        let mut index = self.index.lock();
        let state = index.device_mut(number)?;
        let Some(header) = read_header(state, self.pool_guid(), &sector) else {
            self.probes().rebuilds_without_header.increment();
            return None;
        };
        let room = state.ring.room.clone();
        let newest = &header.newest;
        let hand = newest.offset.checked_add(newest.stored_bytes())?;
        let places = [newest.offset, hand, header.evicted];
        let sector_bytes = device.sector_bytes();
        let are_sectors = places.iter().all(|at| at.is_multiple_of(sector_bytes));
        if newest.offset < room.start || hand > room.end || !are_sectors {
            return None;
        }
        let live = Live::of(&room, hand, header.evicted, &header);
        state.ring.is_first_round = header.flags & CacheHeader::FIRST_ROUND != 0;
        state.ring.evicted = match state.ring.is_first_round {
            true => room.start,
            false => header.evicted,
        };
        // When the hand went back to the start, no log block may have been written since.
        let went_back = !state.ring.is_first_round && header.evicted < hand;
        state.ring.hand = if went_back { room.start } else { hand };
        state.log.heads = [header.newest, header.second];
        Some((device, header, live))
    }

    fn read_log_block(
        &self,
        device: &CacheDevice,
        pointer: &CacheLogPointer,
        header: &CacheHeader,
        operation: &Operation,
    ) -> Option<CacheLogBlock> {
        let stored_bytes = pointer.stored_bytes();
        let is_whole = stored_bytes.is_multiple_of(device.sector_bytes())
            && pointer.offset.is_multiple_of(device.sector_bytes());
        if !is_whole {
            return None;
        }
        let Ok(stored) = device.read(pointer.offset, stored_bytes, operation) else {
            self.probes().rebuild_io_errors.increment();
            return None;
        };
        let count = tarn_ondisk::declare::narrow(header.entries_in_block);
        let block = open_log_block(pointer, &stored, count);
        if block.is_none() {
            self.probes().rebuild_checksum_errors.increment();
        }
        block
    }

    /// Takes the entries of a log block that is older than all before it. False if the device has
    /// left.
    #[doc(alias = "l2arc_log_blk_restore")]
    fn restore(
        &self,
        number: u32,
        device: &CacheDevice,
        pointer: &CacheLogPointer,
        block: &CacheLogBlock,
        age: impl Fn(u64) -> Option<u64>,
        (first, end): (u64, u64),
    ) -> bool {
        let stored = Txg::new(self.stored_txg.load(Ordering::Acquire));
        let (mut bytes, mut allocated) = (0, 0);
        let mut index = self.index.lock();
        let Some(state) = index.device_mut(number) else {
            return false;
        };
        state.log_blocks.push_front(*pointer);
        // Entries are in the order of writing, so that they can be given up in that order.
        let mut newer = end;
        for entry in block.entries.iter().rev() {
            let buffer = entry.buffer();
            let allocated_bytes = device.allocated_size(buffer.physical_bytes);
            let is_sound = age(entry.offset)
                .is_some_and(|at| at >= first && at + allocated_bytes <= newer)
                && entry.offset.is_multiple_of(device.sector_bytes())
                && !entry.place.is_empty()
                && entry.birth <= stored;
            if !is_sound {
                continue;
            }
            newer = age(entry.offset).unwrap_or(newer);
            let found = Entry {
                device: number,
                offset: entry.offset,
                logical_bytes: buffer.logical_bytes,
                physical_bytes: buffer.physical_bytes,
                allocated_bytes,
                is_data: buffer.is_data,
                was_frequent: buffer.was_frequent,
                is_written: true,
            };
            let key = Key::at(self.pool, entry.place, entry.birth);
            if !index.add_oldest(key, found) {
                self.probes().rebuilt_known_buffers.increment();
            }
            bytes += buffer.logical_bytes;
            allocated += allocated_bytes;
        }
        drop(index);
        let probes = self.probes();
        probes.rebuilt_log_blocks.increment();
        probes.rebuilt_buffers.add(widen(block.entries.len()));
        probes.rebuilt_bytes.add(bytes);
        probes.rebuilt_allocated_bytes.add(allocated);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_ondisk::cache_device::LogCompression;

    fn log(payload_start: u64, offset: u64) -> CacheLogPointer {
        CacheLogPointer {
            offset,
            payload_start,
            properties: CacheLogPointer::properties_of(512, LogCompression::Off),
            ..CacheLogPointer::NONE
        }
    }

    #[test]
    fn what_is_given_up_lies_between_the_hand_and_the_evicted_place() {
        let room = 4096..12288;
        let mut header = CacheHeader {
            magic: CacheHeader::MAGIC,
            version: CacheHeader::VERSION,
            pool: 1.into(),
            device: 2.into(),
            entries_in_block: 64,
            evicted: 4096,
            flags: CacheHeader::FIRST_ROUND,
            start: room.start,
            end: room.end,
            newest: CacheLogPointer::NONE,
            second: CacheLogPointer::NONE,
            log_bytes: 0,
            log_count: 0,
            trim_time_s: 0,
            trim_state: 0,
        };
        let of = |header: &CacheHeader, hand, evicted| {
            let live = Live::of(&room, hand, evicted, header);
            (live.oldest, live.size)
        };
        assert_eq!(of(&header, 6144, 4096), (0, 2048));
        header.flags = 0;
        assert_eq!(of(&header, 6144, 8192), (4096, 6144));
        assert_eq!(of(&header, 12288, 12288), (0, 8192));
        // The hand went back to the start, and what follows it was given up.
        assert_eq!(of(&header, 11264, 5120), (1024, 6144));
    }

    #[test]
    fn log_blocks_count_while_neither_they_nor_their_buffers_are_written_over() {
        // 4096 to 12288, the hand at 6144, given up to 8192.
        let live = Live {
            start: 4096,
            length: 8192,
            oldest: 4096,
            size: 6144,
        };
        assert_eq!(live.ages(&log(8192, 10240)), Some((0, 2560)));
        assert_eq!(
            live.ages(&log(11264, 5120)),
            Some((3072, 5632)),
            "it goes round"
        );
        assert_eq!(live.ages(&log(7680, 10240)), None, "a buffer was given up");
        assert_eq!(live.ages(&log(5120, 6144)), None, "it is half written");
        assert_eq!(live.ages(&log(5120, 9216)), None, "buffers lie before it");
        assert_eq!(live.ages(&log(0, 9216)), None);
        assert_eq!(live.ages(&log(u64::MAX, u64::MAX - 512)), None);
    }
}
