//! Mirrors: all leaves have the same bytes, where the block's pointer says.
//!
//! # Mechanism
//! A read chooses the device with the least load: the bytes in flight, the bytes that the same
//! batch already asks of it, and the cost of a seek from where its last request ended, so that a
//! sequential reader stays with one disk. Devices of equal load take turns by pieces of 2 MiB. A
//! device whose dirty time log has the birth of the block comes last: its copy may be old, and only
//! its checksum would tell. The same rule chooses between the devices of a RAID-Z's child that is
//! being replaced.

use super::{Layout, Row};
use crate::config::VdevKind;
use crate::health::Standing;
use crate::leaf::Leaf;
use crate::place::Place;
use std::sync::Arc;
use tarn_host::device::DeviceInfo;
use tarn_ondisk::units::{AllocatedSize, Txg};

/// The layout of copies.
#[derive(Debug)]
pub(super) struct Mirror {
    kind: VdevKind,
    ashift: u32,
    children: [Vec<usize>; 1],
}

impl Mirror {
    /// Of a mirror, or of what stands for one while a device is replaced or spared.
    pub(super) fn new(kind: VdevKind, ashift: u32, leaves: Vec<usize>) -> Mirror {
        assert!(
            !leaves.is_empty(),
            "the configuration of a mirror has children"
        );
        Mirror {
            kind,
            ashift,
            children: [leaves],
        }
    }
}

impl Layout for Mirror {
    fn rows(&self, place: &Place) -> Vec<Row> {
        vec![Row::of_copies(place)]
    }

    fn allocated_size(&self, physical_bytes: u64) -> AllocatedSize {
        AllocatedSize::from(physical_bytes).round_up(1 << self.ashift)
    }

    fn children(&self) -> &[Vec<usize>] {
        &self.children
    }

    fn parity(&self) -> usize {
        0
    }

    fn standing(&self, leaves: &[Standing]) -> Standing {
        Standing::of_parent(self.kind, leaves)
    }

    fn has_prefixes(&self) -> bool {
        true
    }
}

/// The cost of a seek, in bytes that the device could have transferred meanwhile: of a rotating
/// disk, and of others. Guesses: a rotating disk reads about 1 MiB in the time of a seek; a flash
/// device has a small advantage from continuing.
const SEEK_COST: (u64, u64) = (1 << 20, 4096);
/// A seek of a rotating disk within this distance costs half.
#[doc(alias = "zfs_vdev_mirror_rotating_seek_offset")]
const NEAR_BYTES: u64 = 1 << 20;
/// Idle devices take turns by pieces of this many bytes.
#[doc(alias = "vdev_mirror_shift")]
const TURN_SHIFT: u32 = 21;

/// The usable leaves in the order in which to read them; last those that miss the block by their
/// dirty time logs. `planned_bytes` says how much the caller's batch already asks of a leaf.
pub(crate) fn preference(
    leaves: &[&Arc<Leaf>],
    offset: u64,
    birth: Txg,
    planned_bytes: impl Fn(&Leaf) -> u64,
) -> Vec<usize> {
    let count = leaves.len();
    let turn = usize::try_from(offset >> TURN_SHIFT).unwrap_or(0) % count.max(1);
    let mut order: Vec<(bool, u64, usize, usize)> = (0..count)
        .filter(|&copy| leaves[copy].is_usable())
        .map(|copy| {
            let leaf = leaves[copy];
            let load = leaf.in_flight_bytes() + planned_bytes(leaf) + seek_cost(leaf, offset);
            (
                leaf.misses(birth),
                load,
                (copy + count - turn) % count,
                copy,
            )
        })
        .collect();
    order.sort_unstable();
    order.into_iter().map(|(.., copy)| copy).collect()
}

fn seek_cost(leaf: &Leaf, offset: u64) -> u64 {
    let is_rotational = |info: &DeviceInfo| info.is_rotational == Some(true);
    let turns = leaf
        .window()
        .is_some_and(|window| is_rotational(window.info()));
    let cost = if turns { SEEK_COST.0 } else { SEEK_COST.1 };
    match leaf.distance(offset) {
        0 => 0,
        distance if turns && distance < NEAR_BYTES => cost / 2,
        _ => cost,
    }
}
