//! The labels and foreign file systems on a device that is to become part of a pool.
//!
//! # Mechanism
//! A valid label says that the device belongs, or belonged, to a pool; only `engine`, which has the
//! pools open, knows whether that pool is in use here. Formats of other programs are recognized by
//! their magic numbers, and have the names that `blkid` gives them.
//!
//! The caller decides what to refuse. An administrator may override most of it with `-f`.

use crate::label_config::PoolState;
use crate::labels::{best_label, read_labels};
use crate::leaf::Window;
use tarn_host::buffer::Buffer;
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::units::{Guid, Txg};

/// What the labels of a device say about its use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[doc(alias = "zpool_in_use")]
pub struct LabelledUse {
    /// Whether the pool was in use, or what else the device is for.
    pub state: PoolState,
    /// The pool's name; a hot spare does not know it.
    pub pool_name: Option<Text>,
    /// The pool's guid; a hot spare does not know it.
    pub pool_guid: Option<Guid>,
    /// The device's guid.
    pub guid: Guid,
    /// The txg of the label; zero for a device that was labelled and never joined its pool.
    pub txg: Txg,
    /// It is a hot spare that was in use.
    pub is_spare: bool,
}

/// What the labels of a device say about its use. None without a valid label.
pub fn labelled_use(window: &Window) -> Option<LabelledUse> {
    let labels = read_labels(window);
    let label = best_label(&labels)?;
    Some(LabelledUse {
        state: label.state()?,
        pool_name: label.pool_name().cloned(),
        pool_guid: label.pool_guid(),
        guid: label.guid()?,
        txg: label.txg().unwrap_or(Txg::ZERO),
        is_spare: label.list.optional_u64("is_spare").ok().flatten() == Some(1),
    })
}

/// The magic number of a format.
struct Signature {
    name: &'static str,
    offset: u64,
    mark: &'static [u8],
}

const fn signature(name: &'static str, offset: u64, mark: &'static [u8]) -> Signature {
    Signature { name, offset, mark }
}

/// Named as by `blkid`. Where several match, the first counts.
const SIGNATURES: &[Signature] = &[
    signature("crypto_LUKS", 0, b"LUKS\xba\xbe"),
    signature("xfs", 0, b"XFSB"),
    signature("squashfs", 0, b"hsqs"),
    signature("bitlocker", 3, b"-FVE-FS-"),
    signature("ntfs", 3, b"NTFS    "),
    signature("exfat", 3, b"EXFAT   "),
    signature("vfat", 54, b"FAT12   "),
    signature("vfat", 54, b"FAT16   "),
    signature("vfat", 82, b"FAT32   "),
    signature("LVM2_member", 536, b"LVM2 001"),
    signature("LVM2_member", 24, b"LVM2 001"),
    signature("f2fs", 1024, &[0x10, 0x20, 0xf5, 0xf2]),
    signature("erofs", 1024, &[0xe2, 0xe1, 0xf5, 0xe0]),
    signature("hfsplus", 1024, b"H+"),
    signature("hfsplus", 1024, b"HX"),
    signature("linux_raid_member", 4096, &[0xfc, 0x4e, 0x2b, 0xa9]),
    signature("linux_raid_member", 0, &[0xfc, 0x4e, 0x2b, 0xa9]),
    signature("swap", 4086, b"SWAPSPACE2"),
    signature("swap", 4086, b"SWAP-SPACE"),
    signature("iso9660", 32769, b"CD001"),
    signature("reiserfs", 65588, b"ReIsEr"),
    signature("btrfs", 65600, b"_BHRfS_M"),
    signature("gfs2", 65536, &[0x01, 0x16, 0x19, 0x70, 0, 0, 0, 1]),
    signature("ocfs2", 8192, b"OCFSV2"),
    signature("jfs", 32768, b"JFS1"),
    signature("nilfs2", 1030, &[0x34, 0x34]),
    signature(
        "bcachefs",
        4120,
        &[0xc6, 0x85, 0x73, 0xf6, 0x4e, 0x1a, 0x45, 0xca],
    ),
];

/// How much of a device's start has all magic numbers.
const START_BYTES: u64 = 68 << 10;

/// Where ext2, ext3 and ext4 have their magic number, and the feature words that tell them apart.
const EXT_MARK: usize = 1024 + 56;
const EXT_COMPATIBLE: usize = 1024 + 92;
const EXT_INCOMPATIBLE: usize = 1024 + 96;
const EXT_READ_ONLY: usize = 1024 + 100;
/// The feature of a journal, since ext3.
const EXT_HAS_JOURNAL: u32 = 0x4;
/// The incompatible features of ext3: file types, recovery, meta groups.
const EXT3_INCOMPATIBLE: u32 = 0x2 | 0x4 | 0x10;
/// The read-only features of ext3: sparse superblocks, large files, directory trees.
const EXT3_READ_ONLY: u32 = 0x1 | 0x2 | 0x4;

/// The name of the file system or other foreign format on the device. None when no magic number
/// matches; labels of ZFS are not looked at.
pub fn foreign_format(window: &Window) -> Option<&'static str> {
    let length = START_BYTES.min(window.size_bytes());
    let length = tarn_ondisk::declare::narrow(length);
    let start = window
        .device()
        .read_at(window.device_offset(0), length)
        .ok()?;
    format_of(&start)
}

fn format_of(start: &Buffer) -> Option<&'static str> {
    let has = |signature: &&Signature| {
        let offset = tarn_ondisk::declare::narrow(signature.offset);
        let end = offset.saturating_add(signature.mark.len());
        start.get(offset..end) == Some(signature.mark)
    };
    let known = SIGNATURES.iter().find(has).map(|signature| signature.name);
    known.or_else(|| ext_version(start))
}

fn ext_version(start: &[u8]) -> Option<&'static str> {
    let word = |offset: usize| {
        let bytes: [u8; 4] = start.get(offset..offset + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes))
    };
    if start.get(EXT_MARK..EXT_MARK + 2)? != [0x53, 0xef] {
        return None;
    }
    let is_newer = word(EXT_INCOMPATIBLE)? & !EXT3_INCOMPATIBLE != 0
        || word(EXT_READ_ONLY)? & !EXT3_READ_ONLY != 0;
    Some(
        match (is_newer, word(EXT_COMPATIBLE)? & EXT_HAS_JOURNAL != 0) {
            (true, _) => "ext4",
            (false, true) => "ext3",
            (false, false) => "ext2",
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(marks: &[(usize, &[u8])]) -> Option<&'static str> {
        let mut start = Buffer::zeroed(68 << 10);
        for (offset, mark) in marks {
            start[*offset..offset + mark.len()].copy_from_slice(mark);
        }
        format_of(&start)
    }

    #[test]
    fn file_systems_are_known_by_their_marks() {
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[(0, b"XFSB")]), Some("xfs"));
        assert_eq!(with(&[(65600, b"_BHRfS_M")]), Some("btrfs"));
        assert_eq!(with(&[(4086, b"SWAPSPACE2")]), Some("swap"));
        assert_eq!(format_of(&Buffer::zeroed(100)), None);
    }

    #[test]
    fn the_heirs_of_ext2_are_told_apart() {
        let mark: (usize, &[u8]) = (EXT_MARK, &[0x53, 0xef]);
        assert_eq!(with(&[mark]), Some("ext2"));
        assert_eq!(with(&[mark, (EXT_COMPATIBLE, &[4])]), Some("ext3"));
        let extents: (usize, &[u8]) = (EXT_INCOMPATIBLE, &[0x42]);
        assert_eq!(with(&[mark, (EXT_COMPATIBLE, &[4]), extents]), Some("ext4"));
    }
}
