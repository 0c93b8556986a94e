//! The refreservation with which a volume can always be written to its full size.
//!
//! # Mechanism
//! It has room for every data block and every indirect block above them, times `copies`. On a raidz
//! a small block takes more parity than the 128 KiB block that all sizes are relative to, and the
//! reservation grows by that.

use tarn_block::BlockIo;
use tarn_ondisk::units::PhysicalSize;

/// How many pointers a block of pointers has that is as large as it can be.
const POINTERS_PER_BLOCK: u64 = 1 << (17 - 7);

/// The largest block of pointers.
#[doc(alias = "DN_MAX_INDBLKSHIFT")]
const POINTER_BLOCK_BYTES: u64 = 128 << 10;

/// The block that deflated sizes are relative to.
const TYPICAL_BLOCK_BYTES: u64 = 128 << 10;

/// The deflate ratio of a vdev all of whose room is data.
const WITHOUT_PARITY: u64 = 512;

/// The smallest sector.
const SECTOR_BYTES: u64 = 512;

/// Copies of blocks of pointers a pointer has room for.
const COPIES_MAX: u64 = 3;

/// The levels of dnodes above the volume.
const DNODE_BLOCKS: u64 = 7;

/// What `refreservation=auto` stands for, and what a volume gets that is not sparse.
#[doc(alias = "zvol_volsize_to_reservation")]
pub fn volume_reservation(io: &BlockIo, size_bytes: u64, block_bytes: u64, copies: u64) -> u64 {
    let blocks = size_bytes / block_bytes.max(1);
    let data = data_bytes(io, blocks, block_bytes);
    let mut pointer_blocks = DNODE_BLOCKS;
    let mut level = blocks;
    while level > 1 {
        level = level.div_ceil(POINTERS_PER_BLOCK);
        pointer_blocks = pointer_blocks.saturating_add(level);
    }
    let pointer_blocks = pointer_blocks.saturating_mul(COPIES_MAX.min(copies + 1));
    assert!(
        pointer_blocks >= DNODE_BLOCKS,
        "each volume has blocks of pointers"
    );
    data.saturating_mul(copies)
        .saturating_add(pointer_blocks.saturating_mul(POINTER_BLOCK_BYTES))
}

/// What so many blocks take, on the raidz where they take most.
fn data_bytes(io: &BlockIo, blocks: u64, block_bytes: u64) -> u64 {
    let vdevs = io.vdevs();
    let with_parity = vdevs
        .top_levels()
        .into_iter()
        .filter(|top| top.deflate_ratio < WITHOUT_PARITY);
    let most = with_parity
        .map(|top| {
            let size_of = |bytes| {
                let physical = PhysicalSize::from(bytes);
                u128::from(vdevs.allocated_size(top.id, physical).get())
            };
            let typical_sectors = size_of(TYPICAL_BLOCK_BYTES) / u128::from(SECTOR_BYTES);
            let scaled = u128::from(blocks) * size_of(block_bytes) / typical_sectors.max(1);
            let bytes = scaled * u128::from(TYPICAL_BLOCK_BYTES / SECTOR_BYTES);
            u64::try_from(bytes).unwrap_or(u64::MAX)
        })
        .max();
    match most {
        Some(bytes) if bytes > 0 => bytes,
        _ => blocks.saturating_mul(block_bytes),
    }
}
