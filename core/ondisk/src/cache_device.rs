//! What a device of the second-level cache has behind its front labels: a header, and log blocks
//! that say which blocks of the pool are where.
//!
//! # Mechanism
//! The device is written round and round. A log block lists the buffers that were written since the
//! last one ([`CacheLogEntry`]), and leads to an older log block. There are two chains, each log
//! block in the one that the log block before it is not in; the header has the heads of both. A
//! reader goes down the chains alternately, which gives the log blocks from the newest to the
//! oldest, and ends at the first one whose place was written over since.
//!
//! # Invariants
//! - The header verifies by the checksum at its end, with its place on the device as verifier. A
//!   log block verifies by the checksum in what leads to it.
//!
//! # After a crash
//! The header may lead to log blocks that were not written, and entries to buffers that were not:
//! neither verifies.

use crate::block_pointer::Dva;
use crate::checksum::{Checksum, EmbeddedChecksum};
use crate::declare::{ByteOrder, Corrupt, Stored, bits, with_bits};
use crate::on_disk;
use crate::units::{Guid, Txg};

on_disk! {
    /// Leads to a log block.
    #[doc(alias = "l2arc_log_blkptr_t")]
    #[derive(Copy)]
    pub struct CacheLogPointer [64 bytes] {
        /// Where it is, in bytes from the start of the device.
        0  => offset: u64,
        /// What the buffers that it lists take, in bytes.
        8  => payload_bytes: u64,
        /// Where the first of them is, in bytes from the start of the device.
        16 => payload_start: u64,
        /// Sizes and algorithms.
        24 => properties: u64,
        /// Of the log block as it is stored.
        32 => checksum: Checksum,
    }
}

on_disk! {
    /// The header, without the zeros behind it and the checksum at its end.
    #[doc(alias = "l2arc_dev_hdr_phys_t")]
    pub struct CacheHeader [232 bytes] {
        /// `MAGIC` in the byte order of the machine that wrote it.
        0   => magic: u64,
        8   => version: u64,
        /// The pool.
        16  => pool: Guid,
        /// The device.
        24  => device: Guid,
        /// How many entries each log block has; zero on a device that is too small for log blocks.
        32  => entries_in_block: u64,
        /// Up to here what was written the last time round is given up, in bytes from the start of
        /// the device.
        40  => evicted: u64,
        /// [`CacheHeader::FIRST_ROUND`].
        48  => flags: u64,
        /// Where the room begins, in bytes from the start of the device.
        56  => start: u64,
        /// Where it ends.
        64  => end: u64,
        /// The newest log block, and the one before it.
        72  => newest: CacheLogPointer,
        136 => second: CacheLogPointer,
        /// What all log blocks take, in bytes.
        200 => log_bytes: u64,
        208 => log_count: u64,
        /// When the device was last trimmed as a whole, in seconds since 1970, and how that is.
        216 => trim_time_s: u64,
        224 => trim_state: u64,
    }
}

on_disk! {
    /// What begins a log block; its entries follow.
    #[doc(alias = "l2arc_log_blk_phys_t")]
    pub struct CacheLogHead [128 bytes] {
        /// `MAGIC` in the byte order of the machine that wrote it.
        0  => magic: u64,
        /// The log block before the one before this.
        8  => previous: CacheLogPointer,
        72 => reserved: [u64; 7],
    }
}

on_disk! {
    /// One buffer on the device.
    #[doc(alias = "l2arc_log_ent_phys_t")]
    #[derive(Copy)]
    pub struct CacheLogEntry [64 bytes] {
        /// The first place of the block in the pool.
        0  => place: Dva,
        /// The txg that wrote it there.
        16 => birth: Txg,
        /// Sizes, algorithm, kind.
        24 => properties: u64,
        /// Where it is, in bytes from the start of the device.
        32 => offset: u64,
        /// The level of its compression.
        40 => compression_level: u64,
        48 => reserved: [u64; 2],
    }
}

/// The size of a header with its checksum. A sector is read and written, if that is larger.
pub const HEADER_BYTES: usize = 512;

const _: () = assert!(
    CacheHeader::SIZE + EmbeddedChecksum::SIZE <= HEADER_BYTES,
    "a header and its checksum fit"
);

/// The most entries of a log block.
#[doc(alias = "L2ARC_LOG_BLK_MAX_ENTRIES")]
pub const ENTRIES_MAX: usize = 1022;

/// The size of a log block before compression.
pub const LOG_BLOCK_BYTES: usize = CacheLogHead::SIZE + ENTRIES_MAX * CacheLogEntry::SIZE;

const _: () = assert!(LOG_BLOCK_BYTES == 64 << 10, "a log block has 64 KiB");

/// The code of LZ4, by which log blocks are compressed, and of none.
const COMPRESSION_LZ4: u64 = 15;
const COMPRESSION_OFF: u64 = 2;
/// The code of the checksum of log blocks.
const CHECKSUM_FLETCHER4: u64 = 7;

/// Sizes in properties are counted in sectors, less one.
const SECTOR_SHIFT: u32 = 9;

/// How a log block is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogCompression {
    /// It is not.
    Off,
    /// LZ4.
    Lz4,
}

impl CacheLogPointer {
    /// Leads nowhere.
    pub const NONE: CacheLogPointer = CacheLogPointer {
        offset: 0,
        payload_bytes: 0,
        payload_start: 0,
        properties: 0,
        checksum: Checksum([0; 4]),
    };

    /// The properties of a log block that takes `stored_bytes` on the device, whole sectors.
    ///
    /// # Panics
    /// The size is zero, or larger than a log block.
    pub fn properties_of(stored_bytes: u64, compression: LogCompression) -> u64 {
        assert!(
            stored_bytes != 0 && stored_bytes <= LOG_BLOCK_BYTES as u64,
            "a log block has a size, and is not larger than before compression"
        );
        let code = match compression {
            LogCompression::Off => COMPRESSION_OFF,
            LogCompression::Lz4 => COMPRESSION_LZ4,
        };
        let sizes = with_sizes(LOG_BLOCK_BYTES as u64, stored_bytes);
        with_bits(with_bits(sizes, 32, 7, code), 40, 8, CHECKSUM_FLETCHER4)
    }

    /// What the log block takes on the device, in bytes.
    pub fn stored_bytes(&self) -> u64 {
        (bits(self.properties, 16, 16) + 1) << SECTOR_SHIFT
    }

    /// The code of its compression.
    pub fn compression_code(&self) -> u64 {
        bits(self.properties, 32, 7)
    }

    /// The code of its checksum.
    pub fn checksum_code(&self) -> u64 {
        bits(self.properties, 40, 8)
    }

    /// How it is compressed. None if the algorithm is one that log blocks do not have.
    pub fn compression(&self) -> Option<LogCompression> {
        match self.compression_code() {
            COMPRESSION_OFF => Some(LogCompression::Off),
            COMPRESSION_LZ4 => Some(LogCompression::Lz4),
            _ => None,
        }
    }
}

impl CacheHeader {
    /// Marks a header: "ZFSCACHE".
    #[doc(alias = "L2ARC_DEV_HDR_MAGIC")]
    pub const MAGIC: u64 = 0x5a46_5343_4143_4845;
    /// The version of what is kept on a cache device.
    #[doc(alias = "L2ARC_PERSISTENT_VERSION")]
    pub const VERSION: u64 = 1;
    /// Nothing was written over yet.
    #[doc(alias = "L2ARC_DEV_HDR_EVICT_FIRST")]
    pub const FIRST_ROUND: u64 = 1;

    /// Decodes a header whose checksum was verified, and says in which byte order it is.
    ///
    /// # Errors
    /// It is none.
    pub fn from_sector(sector: &[u8]) -> Result<(CacheHeader, ByteOrder), Corrupt> {
        let Some(order) = ByteOrder::of_magic(sector, Self::MAGIC) else {
            return Err(Corrupt::Magic {
                what: "CacheHeader",
                offset: 0,
                found: u64::from_short_bytes(sector, ByteOrder::Little)?,
                expected: Self::MAGIC,
            });
        };
        let header =
            CacheHeader::from_bytes(sector.get(..CacheHeader::SIZE).unwrap_or(sector), order)?;
        Ok((header, order))
    }

    /// A header of `size` bytes, at least [`HEADER_BYTES`], its checksum still to be computed.
    ///
    /// # Panics
    /// The size is smaller.
    pub fn to_sector(&self, size: usize) -> Vec<u8> {
        assert!(size >= HEADER_BYTES, "a header has its checksum at its end");
        let mut sector = vec![0; size];
        sector[..CacheHeader::SIZE].copy_from_slice(&self.to_bytes());
        sector
    }
}

impl CacheLogHead {
    /// Marks a log block: "LOGBLKHD".
    #[doc(alias = "L2ARC_LOG_BLK_MAGIC")]
    pub const MAGIC: u64 = 0x4c4f_4742_4c4b_4844;
}

/// A log block, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheLogBlock {
    /// The log block before the one before this.
    pub previous: CacheLogPointer,
    /// The buffers that were written since the log block before this, oldest first.
    pub entries: Vec<CacheLogEntry>,
}

impl CacheLogBlock {
    /// Decodes a log block of `count` entries, which was verified and decompressed.
    ///
    /// # Errors
    /// It is none.
    pub fn from_plain(plain: &[u8], count: usize) -> Result<CacheLogBlock, Corrupt> {
        let Some(order) = ByteOrder::of_magic(plain, CacheLogHead::MAGIC) else {
            return Err(Corrupt::Magic {
                what: "CacheLogHead",
                offset: 0,
                found: u64::from_short_bytes(plain, ByteOrder::Little)?,
                expected: CacheLogHead::MAGIC,
            });
        };
        let head = plain.get(..CacheLogHead::SIZE).unwrap_or(plain);
        let head = CacheLogHead::from_bytes(head, order)?;
        let entries = plain.get(CacheLogHead::SIZE..).unwrap_or(&[]);
        let entries = entries.chunks_exact(CacheLogEntry::SIZE);
        let entries = entries.take(count.min(ENTRIES_MAX));
        let entries = entries.map(|entry| CacheLogEntry::from_bytes(entry, order));
        Ok(CacheLogBlock {
            previous: head.previous,
            entries: entries.collect::<Result<Vec<_>, _>>()?,
        })
    }

    /// The log block before compression.
    ///
    /// # Panics
    /// It has more entries than fit.
    pub fn to_plain(&self) -> Vec<u8> {
        assert!(self.entries.len() <= ENTRIES_MAX, "a log block has room");
        let head = CacheLogHead {
            magic: CacheLogHead::MAGIC,
            previous: self.previous,
            reserved: [0; 7],
        };
        let mut plain = head.to_bytes();
        for entry in &self.entries {
            plain.extend_from_slice(&entry.to_bytes());
        }
        plain.resize(LOG_BLOCK_BYTES, 0);
        plain
    }
}

/// What an entry says of a buffer beside where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CachedBuffer {
    /// The logical size of its block, in bytes.
    pub logical_bytes: u64,
    /// The physical size of its block, in bytes, which is that of the buffer.
    pub physical_bytes: u64,
    /// The code of its compression.
    pub compression: u64,
    /// Whether it is the contents of a file or volume, or metadata.
    pub is_data: bool,
    /// Whether its block was used often, or once.
    pub was_frequent: bool,
}

/// The kinds of buffers, one more than their numbers in memory.
const KIND_DATA: u64 = 1;
const KIND_METADATA: u64 = 2;
/// The lists of the first level.
const STATE_RECENT: u64 = 1;
const STATE_FREQUENT: u64 = 3;

impl CacheLogEntry {
    /// The properties of a buffer.
    pub fn properties_of(buffer: &CachedBuffer) -> u64 {
        let kind = match buffer.is_data {
            true => KIND_DATA,
            false => KIND_METADATA,
        };
        let state = match buffer.was_frequent {
            true => STATE_FREQUENT,
            false => STATE_RECENT,
        };
        let sizes = with_sizes(buffer.logical_bytes, buffer.physical_bytes);
        let compressed = with_bits(sizes, 32, 7, buffer.compression);
        with_bits(with_bits(compressed, 48, 8, kind), 57, 4, state)
    }

    /// What it says of its buffer.
    pub fn buffer(&self) -> CachedBuffer {
        CachedBuffer {
            logical_bytes: (bits(self.properties, 0, 16) + 1) << SECTOR_SHIFT,
            physical_bytes: (bits(self.properties, 16, 16) + 1) << SECTOR_SHIFT,
            compression: bits(self.properties, 32, 7),
            is_data: bits(self.properties, 48, 8) != KIND_METADATA,
            was_frequent: bits(self.properties, 57, 4) == STATE_FREQUENT,
        }
    }
}

fn with_sizes(logical_bytes: u64, physical_bytes: u64) -> u64 {
    let sectors = |bytes: u64| (bytes >> SECTOR_SHIFT).saturating_sub(1);
    with_bits(
        with_bits(0, 0, 16, sectors(logical_bytes)),
        16,
        16,
        sectors(physical_bytes),
    )
}
