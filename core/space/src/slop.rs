//! Slop: the space a pool keeps back, so that it can always store what frees space.

use tarn_ondisk::units::AllocatedSize;

/// A thirty-second of the pool is kept back.
#[doc(alias = "spa_slop_shift")]
const SLOP_DIVISOR: u64 = 32;
/// At least so much is kept back, though never more than half of the pool.
const SLOP_MIN: u64 = 128 << 20;
/// At most so much is kept back.
const SLOP_MAX: u64 = 128 << 30;

/// How much of a pool is kept back.
///
/// `usable` is the deflated size of the normal class, `embedded_log` that of the embedded log: what
/// is set apart for the log counts as kept back, up to half.
#[doc(alias = "spa_get_slop_space")]
pub fn slop_size(usable: AllocatedSize, embedded_log: AllocatedSize) -> AllocatedSize {
    let share = (usable.get() / SLOP_DIVISOR).min(SLOP_MAX);
    let beside_log = share - embedded_log.get().min(share / 2);
    AllocatedSize::new(beside_log.max(SLOP_MIN.min(usable.get() / 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slop_of(usable: u64, log: u64) -> u64 {
        slop_size(AllocatedSize::new(usable), AllocatedSize::new(log)).get()
    }

    #[test]
    fn slop_is_a_share_within_bounds() {
        assert_eq!(slop_of(100 << 20, 0), 50 << 20, "half of a tiny pool");
        assert_eq!(slop_of(1 << 30, 0), 128 << 20, "the least");
        assert_eq!(slop_of(1 << 40, 0), 32 << 30, "a thirty-second");
        assert_eq!(slop_of(1 << 50, 0), 128 << 30, "the most");
        assert_eq!(slop_of(1 << 40, 1 << 30), 31 << 30, "the log is part of it");
        assert_eq!(slop_of(1 << 40, 1 << 39), 16 << 30, "but only to half");
    }
}
