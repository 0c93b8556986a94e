//! The partition table (GPT) of a disk that a pool was given whole.
//!
//! # Mechanism
//! OpenZFS partitions such a disk: partition 1 is for data, partition 9 keeps 8 MiB free. The
//! kernel shows partitions of a disk as devices. For the image of a disk in a file this module
//! finds the data partition, by the type that OpenZFS gives it.
//!
//! ```text
//!   sector 0       1            2 ..                    last-1   last
//!   | protective | header:    | entries: type, name, .. | copy of | copy of |
//!   | MBR        | CRC, place | first and last sector   | entries | header  |
//! ```
//!
//! A sector is 512 or 4096 bytes; only the place of the header tells which.
//!
//! # Invariants
//! - A table whose checksums do not hold is no table.

use tarn_ondisk::declare::{ByteOrder, Reader, narrow};

/// How much of a disk's start [`find_zfs_partition`] needs: both possible headers and their
/// entries.
pub const START_BYTES: usize = 6 * 4096;

/// How the header begins.
const SIGNATURE: &[u8; 8] = b"EFI PART";
/// 6a898cc3-1dd2-11b2-99a6-080020736631, as it is stored: what OpenZFS gives its partition.
const ZFS_TYPE: [u8; 16] = [
    0xc3, 0x8c, 0x89, 0x6a, 0xd2, 0x1d, 0xb2, 0x11, 0x99, 0xa6, 0x08, 0x00, 0x20, 0x73, 0x66, 0x31,
];
/// 516e7cba-6ecf-11d6-8ff8-00022d09712b, as it is stored: what FreeBSD gives its partition.
const FREEBSD_ZFS_TYPE: [u8; 16] = [
    0xba, 0x7c, 0x6e, 0x51, 0xcf, 0x6e, 0xd6, 0x11, 0x8f, 0xf8, 0x00, 0x02, 0x2d, 0x09, 0x71, 0x2b,
];
/// The header has 92 bytes that mean something.
const HEADER_BYTES: usize = 92;
/// Where the header's own checksum is in it.
const HEADER_CRC: std::ops::Range<usize> = 16..20;
/// An entry has at least this size.
const ENTRY_BYTES_MIN: usize = 128;
/// No tool makes more partitions; a header that claims more is invalid.
const ENTRY_COUNT_MAX: usize = 128;

/// A part of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    /// Its number; the first is 1.
    pub number: usize,
    /// Where it starts, in bytes.
    pub start_bytes: u64,
    /// How large it is, in bytes.
    pub size_bytes: u64,
}

/// The first partition that OpenZFS made for data, on a disk that starts with these bytes.
pub fn find_zfs_partition(start_of_disk: &[u8], disk_bytes: u64) -> Option<Partition> {
    let sizes = [512, 4096].into_iter();
    sizes
        .filter_map(|sector| in_table(start_of_disk, sector, disk_bytes))
        .next()
}

fn in_table(disk: &[u8], sector: usize, disk_bytes: u64) -> Option<Partition> {
    let header = disk.get(sector..)?.get(..HEADER_BYTES)?;
    let mut reader = Reader::new("GPT header", header, ByteOrder::Little);
    if reader.take(8).ok()? != SIGNATURE {
        return None;
    }
    let mut blanked = header.to_vec();
    blanked[HEADER_CRC].fill(0);
    reader.seek(HEADER_CRC.start).ok()?;
    if reader.u32().ok()? != crc32(&blanked) {
        return None;
    }
    reader.seek(72).ok()?;
    let first = narrow(reader.u64().ok()?).checked_mul(sector)?;
    let count = usize::try_from(reader.u32().ok()?).ok()?;
    let size = usize::try_from(reader.u32().ok()?).ok()?;
    let entries_crc = reader.u32().ok()?;
    if count > ENTRY_COUNT_MAX || size < ENTRY_BYTES_MIN || first < 2 * sector {
        return None;
    }
    let entries = disk.get(first..)?.get(..count.checked_mul(size)?)?;
    if crc32(entries) != entries_crc {
        return None;
    }
    let sector = u64::try_from(sector).ok()?;
    let mut numbered = (1..).zip(entries.chunks_exact(size));
    numbered.find_map(|(number, entry)| partition(entry, number, sector, disk_bytes))
}

fn partition(entry: &[u8], number: usize, sector: u64, disk_bytes: u64) -> Option<Partition> {
    let mut reader = Reader::new("GPT entry", entry, ByteOrder::Little);
    let kind: [u8; 16] = reader.array().ok()?;
    if kind != ZFS_TYPE && kind != FREEBSD_ZFS_TYPE {
        return None;
    }
    reader.skip(16).ok()?;
    let (first, last) = (reader.u64().ok()?, reader.u64().ok()?);
    let start_bytes = first.checked_mul(sector)?;
    let end_bytes = last.checked_add(1)?.checked_mul(sector)?;
    let size_bytes = end_bytes.checked_sub(start_bytes)?;
    (end_bytes <= disk_bytes).then_some(Partition {
        number,
        start_bytes,
        size_bytes,
    })
}

/// The checksum of the partition table: CRC-32 as IEEE 802.3 has it, bit by bit, for it covers only
/// some kilobytes.
fn crc32(bytes: &[u8]) -> u32 {
    let each = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            let polynomial = if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
            (crc >> 1) ^ polynomial
        })
    };
    !bytes.iter().fold(!0, each)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with an EFI system partition and one of ZFS.
    fn disk(sector: usize) -> Vec<u8> {
        let mut disk = vec![0; START_BYTES];
        let mut entries = vec![0; 16 * 128];
        entries[..16].fill(0x28);
        entries[128..144].copy_from_slice(&ZFS_TYPE);
        entries[160..168].copy_from_slice(&2048u64.to_le_bytes());
        entries[168..176].copy_from_slice(&9999u64.to_le_bytes());
        let mut header = vec![0; HEADER_BYTES];
        header[..8].copy_from_slice(SIGNATURE);
        header[72..80].copy_from_slice(&2u64.to_le_bytes());
        header[80..84].copy_from_slice(&16u32.to_le_bytes());
        header[84..88].copy_from_slice(&128u32.to_le_bytes());
        header[88..92].copy_from_slice(&crc32(&entries).to_le_bytes());
        let crc = crc32(&header);
        header[HEADER_CRC].copy_from_slice(&crc.to_le_bytes());
        disk[sector..sector + HEADER_BYTES].copy_from_slice(&header);
        disk[2 * sector..2 * sector + entries.len()].copy_from_slice(&entries);
        disk
    }

    #[test]
    fn the_checksum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn the_partition_of_zfs_is_found_for_either_sector_size() {
        for sector in [512, 4096] {
            let bytes = u64::try_from(sector).unwrap();
            let found = find_zfs_partition(&disk(sector), 1 << 40).unwrap();
            assert_eq!(found.number, 2);
            assert_eq!(found.start_bytes, 2048 * bytes);
            assert_eq!(found.size_bytes, (9999 - 2048 + 1) * bytes);
        }
    }

    #[test]
    fn a_damaged_table_and_a_partition_past_the_end_are_refused() {
        let good = disk(512);
        assert_eq!(find_zfs_partition(&good, 1 << 20), None);
        for at in [512, 530, 590, 1024 + 130, 1024 + 165] {
            let mut damaged = good.clone();
            damaged[at] ^= 1;
            assert_eq!(find_zfs_partition(&damaged, 1 << 40), None, "byte {at}");
        }
        assert_eq!(find_zfs_partition(&[], 1 << 40), None);
    }
}
