//! The space that all datasets of a pool together may use. `pool` sets it at import and after each
//! txg.

use std::sync::atomic::{AtomicU64, Ordering};

/// Sizes in deflated bytes.
#[derive(Debug, Default)]
pub(crate) struct PoolRoom {
    /// The pool's size less slop.
    adjusted_bytes: AtomicU64,
    /// What is kept back of the pool, so that a full pool can still be changed.
    slop_bytes: AtomicU64,
    /// What is kept for a checkpoint, and for frees that are not done yet.
    kept_bytes: AtomicU64,
}

impl PoolRoom {
    pub(crate) fn set_adjusted_bytes(&self, bytes: u64) {
        self.adjusted_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_slop_bytes(&self, bytes: u64) {
        self.slop_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn set_kept_bytes(&self, bytes: u64) {
        self.kept_bytes.store(bytes, Ordering::Relaxed);
    }

    /// What is kept back of the pool.
    pub(crate) fn slop_bytes(&self) -> u64 {
        self.slop_bytes.load(Ordering::Relaxed)
    }

    /// What all datasets together may use: the adjusted size less what is kept.
    pub(crate) fn usable_bytes(&self) -> u64 {
        let kept = self.kept_bytes.load(Ordering::Relaxed);
        self.adjusted_bytes
            .load(Ordering::Relaxed)
            .saturating_sub(kept)
    }
}
