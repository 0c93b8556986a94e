//! The lock ranks of each layer.
//!
//! A caller's locks are taken before those of the layers it calls, so the top of the house has the
//! lowest numbers. Each layer numbers its own locks upwards from here:
//! `Rank::new(ranks::CACHE + 1, "cache shard")`.

/// Front ends.
pub const FRONT_END: u16 = 1_000;
/// `engine`.
pub const ENGINE: u16 = 2_000;
/// `posix`, `zvol`.
pub const POSIX: u16 = 3_000;
/// `pool`.
pub const POOL: u16 = 4_000;
/// `dataset`.
pub const DATASET: u16 = 5_000;
/// `zil`.
pub const ZIL: u16 = 6_000;
/// `object`.
pub const OBJECT: u16 = 7_000;
/// `cache`.
pub const CACHE: u16 = 8_000;
/// `block`.
pub const BLOCK: u16 = 9_000;
/// `space`.
pub const SPACE: u16 = 10_000;
/// `vdev`.
pub const VDEV: u16 = 11_000;
/// `host`.
pub const HOST: u16 = 12_000;
/// Below everything: held for a few instructions, with nothing called meanwhile.
pub const LEAF: u16 = 13_000;
