//! Mirrors: which of several equal copies to read first.
//!
//! # Mechanism
//! The copy is read whose device has the least to do, counting what the same batch already asks of
//! it; among equals the one that stands closest to the place, so that a sequential reader stays with
//! one disk; and else, places take turns by mebibytes. A device that missed writes comes last: its copy
//! may be old, and only its checksum would tell.
//!
//! Everything else about mirrors is in [`read`](crate::read) and [`write`](crate::write): a bad copy is
//! followed by the next, and written again from the good one.

use crate::leaf::Leaf;
use std::sync::Arc;
use tarn_host::device::DeviceInfo;

/// What moving to another place costs, in bytes it could have moved meanwhile. Guesses: a disk that
/// turns reads about 1 MiB in the time of a seek; a flash device has a small advantage from
/// continuing.
const SEEK_COST: (u64, u64) = (1 << 20, 4096);
/// Within this distance, a disk need not move far.
#[doc(alias = "zfs_vdev_mirror_rotating_seek_offset")]
const NEAR_BYTES: u64 = 1 << 20;
/// Idle devices take turns by pieces of this many bytes.
#[doc(alias = "vdev_mirror_shift")]
const TURN_SHIFT: u32 = 21;

/// The copies in the order in which to read them. `planned` says how many bytes this batch already asks
/// of a copy.
pub(crate) fn preference(
    copies: &[&Arc<Leaf>],
    offset: u64,
    planned: impl Fn(usize) -> u64,
) -> Vec<usize> {
    let count = copies.len();
    let turn = usize::try_from(offset >> TURN_SHIFT).unwrap_or(0) % count.max(1);
    let mut order: Vec<(bool, u64, usize, usize)> = (0..count)
        .filter(|&copy| copies[copy].is_usable())
        .map(|copy| {
            let leaf = copies[copy];
            let load = leaf.in_flight_bytes() + planned(copy) + seek_cost(leaf, offset);
            (
                leaf.is_out_of_date(),
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
