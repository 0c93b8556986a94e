//! What a device says of its own contents: the open log block, and the header.
//!
//! # Mechanism
//! Each buffer that is written gets an entry in the open log block. A full log block is written
//! behind its buffers, and the header, which is written after every round, leads to it. Entries of
//! the open log block are lost when the pool is closed, as with OpenZFS.
//!
//! A device that is too small for log blocks has none, and is empty after an import.

use super::index::DeviceState;
use tarn_host::Buffer;
use tarn_ondisk::cache_device::{
    CacheHeader, CacheLogBlock, CacheLogEntry, CacheLogPointer, ENTRIES_MAX, HEADER_BYTES,
    LOG_BLOCK_BYTES, LogCompression,
};
use tarn_ondisk::checksum::Checksum;
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::units::Guid;
use tarn_transform::checksum::{self, ChecksumAlgorithm, embedded};
use tarn_transform::{ByteOrder, CompressionAlgorithm, compress};

/// A device that ends before this has no log blocks.
#[doc(alias = "l2arc_rebuild_blocks_min_l2size")]
const LOGGED_BYTES_MIN: u64 = 1 << 30;

/// The largest block: a device has room for the buffers of a whole log block, however large.
#[doc(alias = "SPA_MAXBLOCKSHIFT")]
const BLOCK_SHIFT_MAX: u32 = 24;

/// The open log block of a device, and the heads of its chains.
#[derive(Debug)]
pub(super) struct DeviceLog {
    /// How many entries a log block has. Zero: there are none.
    pub(super) entries_in_block: usize,
    /// The newest log block, and the one before it.
    pub(super) heads: [CacheLogPointer; 2],
    open: Vec<CacheLogEntry>,
    payload_bytes: u64,
}

impl DeviceLog {
    /// The empty log of a device with this room.
    pub(super) fn new(room: &std::ops::Range<u64>) -> DeviceLog {
        let entries_in_block = match room.end < LOGGED_BYTES_MIN {
            true => 0,
            false => narrow((room.end - room.start) >> BLOCK_SHIFT_MAX).min(ENTRIES_MAX),
        };
        DeviceLog {
            entries_in_block,
            heads: [CacheLogPointer::NONE; 2],
            open: Vec::new(),
            payload_bytes: 0,
        }
    }

    /// What log blocks take at most beside `bytes` of buffers.
    #[doc(alias = "l2arc_log_blk_overhead")]
    pub(super) fn overhead(&self, bytes: u64) -> u64 {
        match self.entries_in_block {
            0 => 0,
            count => (bytes >> 9).div_ceil(widen(count)) * widen(LOG_BLOCK_BYTES),
        }
    }

    /// Lists a buffer that takes so much. True when the log block is full and must be
    /// [closed](Self::close).
    pub(super) fn add(&mut self, entry: CacheLogEntry, allocated_bytes: u64) -> bool {
        if self.entries_in_block == 0 {
            return false;
        }
        self.open.push(entry);
        self.payload_bytes += allocated_bytes;
        assert!(
            self.open.len() <= self.entries_in_block,
            "a full log block is closed"
        );
        self.open.len() == self.entries_in_block
    }

    /// The full log block as it is stored, whole sectors, for the place that `place_of` gives for
    /// its size. It is the newest from here on. `fits` is what a sector takes.
    #[doc(alias = "l2arc_log_blk_commit")]
    pub(super) fn close(
        &mut self,
        sector_bytes: u64,
        place_of: impl FnOnce(u64) -> u64,
    ) -> (CacheLogPointer, Buffer) {
        let block = CacheLogBlock {
            previous: self.heads[1],
            entries: std::mem::take(&mut self.open),
        };
        let payload_start = block.entries.first().map_or(0, |entry| entry.offset);
        let (stored, compression) = stored_log_block(&block, sector_bytes);
        let stored_bytes = widen(stored.len());
        let sum = checksum::checksum(
            ChecksumAlgorithm::Fletcher4,
            &stored,
            ByteOrder::Little,
            None,
        );
        let pointer = CacheLogPointer {
            offset: place_of(stored_bytes),
            payload_bytes: std::mem::take(&mut self.payload_bytes),
            payload_start,
            properties: CacheLogPointer::properties_of(stored_bytes, compression),
            checksum: Checksum(sum.0),
        };
        self.heads = [pointer, self.heads[0]];
        (pointer, stored)
    }
}

fn stored_log_block(block: &CacheLogBlock, sector_bytes: u64) -> (Buffer, LogCompression) {
    let plain = block.to_plain();
    let limit = plain.len() - plain.len() / 8;
    let limit = limit - limit % narrow(sector_bytes);
    let compressed = compress::compress(CompressionAlgorithm::Lz4, &plain, limit);
    match compressed {
        Some(bytes) => {
            let mut stored = Buffer::from_slice(&bytes);
            stored.resize(bytes.len().next_multiple_of(narrow(sector_bytes)));
            (stored, LogCompression::Lz4)
        }
        None => (Buffer::from_slice(&plain), LogCompression::Off),
    }
}

/// The log block of these stored bytes, if they are what leads to it says.
#[doc(alias = "l2arc_log_blk_read")]
pub(super) fn open_log_block(
    pointer: &CacheLogPointer,
    stored: &[u8],
    count: usize,
) -> Option<CacheLogBlock> {
    let expected = checksum::Checksum(pointer.checksum.0);
    let is_it = [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .any(|order| {
            let algorithm = ChecksumAlgorithm::Fletcher4;
            checksum::verify(algorithm, stored, order, None, &expected).is_ok()
        });
    if !is_it {
        return None;
    }
    let mut plain = vec![0; LOG_BLOCK_BYTES];
    match pointer.compression()? {
        LogCompression::Off => plain.copy_from_slice(stored.get(..LOG_BLOCK_BYTES)?),
        LogCompression::Lz4 => {
            compress::decompress(CompressionAlgorithm::Lz4, stored, &mut plain).ok()?;
        }
    }
    CacheLogBlock::from_plain(&plain, count).ok()
}

/// The header that says what is on a device now, sealed, one sector.
#[doc(alias = "l2arc_dev_hdr_update")]
pub(super) fn header_of(state: &DeviceState, pool: Guid) -> (u64, Buffer) {
    let place = state.device.header_range();
    let size = narrow(place.end - place.start).max(HEADER_BYTES);
    let [newest, second] = state.log.heads;
    let ring = &state.ring;
    let header = CacheHeader {
        magic: CacheHeader::MAGIC,
        version: CacheHeader::VERSION,
        pool,
        device: state.device.guid(),
        entries_in_block: widen(state.log.entries_in_block),
        evicted: ring.evicted,
        flags: match ring.is_first_round {
            true => CacheHeader::FIRST_ROUND,
            false => 0,
        },
        start: ring.room.start,
        end: ring.room.end,
        newest,
        second,
        log_bytes: state.log_bytes(),
        log_count: widen(state.log_blocks.len()),
        trim_time_s: 0,
        trim_state: 0,
    };
    let mut sector = header.to_sector(size);
    let verifier = embedded::label_verifier(place.start);
    embedded::seal(
        ChecksumAlgorithm::Label,
        &mut sector,
        &verifier,
        ByteOrder::Little,
    );
    (place.start, Buffer::from_slice(&sector))
}

/// The header in a sector, if it verifies at its place.
fn verified_header(place: u64, sector: &[u8]) -> Option<CacheHeader> {
    let verifier = embedded::label_verifier(place);
    embedded::verify(ChecksumAlgorithm::Label, sector, &verifier).ok()?;
    let (header, _) = CacheHeader::from_sector(sector).ok()?;
    Some(header)
}

/// The header in a sector, if it is that of this device in this pool.
#[doc(alias = "l2arc_dev_hdr_read")]
pub(super) fn read_header(state: &DeviceState, pool: Guid, sector: &[u8]) -> Option<CacheHeader> {
    let header = verified_header(state.device.header_range().start, sector)?;
    let ring = &state.ring;
    let is_it = header.version == CacheHeader::VERSION
        && header.pool == pool
        && header.device == state.device.guid()
        && header.entries_in_block == widen(state.log.entries_in_block)
        && header.end == ring.room.end
        && (ring.room.start..=ring.room.end).contains(&header.evicted);
    is_it.then_some(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_ondisk::cache_device::CachedBuffer;
    use tarn_ondisk::declare::{ByteOrder as StoredOrder, Stored};
    use tarn_ondisk::label::DATA_START_BYTES;

    /// The header of a device of 1100 MiB that OpenZFS 2.3.2 has filled, and its newest log block.
    const HEADER: &[u8] = include_bytes!("../../tests/golden/cache-device-header.bin");
    const LOG_BLOCK: &[u8] = include_bytes!("../../tests/golden/cache-log-block.bin");

    #[test]
    fn the_header_of_openzfs_is_read_and_written_back_unchanged() {
        let header = verified_header(DATA_START_BYTES, HEADER).unwrap();
        assert_eq!(header.device, Guid::from(707_476_457_623_657_067));
        assert_eq!(header.pool, Guid::from(3_843_266_130_465_674_530));
        assert_eq!((header.start, header.end), (4_194_816, 1_152_909_312));
        assert_eq!((header.log_count, header.log_bytes), (7, 10752));
        assert_eq!(header.flags, CacheHeader::FIRST_ROUND);
        let log = DeviceLog::new(&(header.start..header.end));
        assert_eq!(header.entries_in_block, widen(log.entries_in_block));
        let mut again = header.to_sector(HEADER_BYTES);
        let verifier = embedded::label_verifier(DATA_START_BYTES);
        let algorithm = ChecksumAlgorithm::Label;
        embedded::seal(algorithm, &mut again, &verifier, ByteOrder::Little);
        assert_eq!(again, HEADER);
        let mut damaged = HEADER.to_vec();
        damaged[72] ^= 1;
        assert_eq!(verified_header(DATA_START_BYTES, &damaged), None);
        assert_eq!(verified_header(0, HEADER), None, "it is of another place");
    }

    #[test]
    fn a_log_block_of_openzfs_is_read_and_ours_has_the_same_contents() {
        let header = verified_header(DATA_START_BYTES, HEADER).unwrap();
        let block = open_log_block(&header.newest, LOG_BLOCK, 68).unwrap();
        assert_eq!(block.entries.len(), 68);
        assert_eq!(block.entries[0].offset, header.newest.payload_start);
        let sum = block.entries.iter().map(|entry| {
            let CachedBuffer { physical_bytes, .. } = entry.buffer();
            physical_bytes
        });
        assert_eq!(sum.sum::<u64>(), header.newest.payload_bytes);
        let about = block.entries[0].buffer();
        assert_eq!(
            CacheLogEntry::properties_of(&about),
            block.entries[0].properties
        );
        let mut log = DeviceLog::new(&(header.start..header.end));
        log.heads = [header.second, block.previous];
        let full = block
            .entries
            .iter()
            .map(|entry| log.add(*entry, entry.buffer().physical_bytes));
        assert_eq!(full.filter(|is_full| *is_full).count(), 1);
        let (pointer, stored) = log.close(512, |_| header.newest.offset);
        assert_eq!(pointer.payload_start, header.newest.payload_start);
        assert_eq!(pointer.payload_bytes, header.newest.payload_bytes);
        assert_eq!(open_log_block(&pointer, &stored, 68), Some(block));
        let mut damaged = LOG_BLOCK.to_vec();
        damaged[700] ^= 1;
        assert_eq!(open_log_block(&header.newest, &damaged, 68), None);
    }

    #[test]
    fn stored_structures_have_the_sizes_of_openzfs() {
        assert_eq!(CacheHeader::SIZE, 232);
        assert_eq!(CacheLogEntry::SIZE, 64);
        let swapped: Vec<u8> = HEADER[..232]
            .chunks(8)
            .flat_map(|word| word.iter().rev().copied())
            .collect();
        let (header, order) = CacheHeader::from_sector(&swapped).unwrap();
        assert_eq!(order, StoredOrder::Big);
        assert_eq!(header.log_count, 7);
    }
}
