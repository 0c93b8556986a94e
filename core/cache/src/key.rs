//! How a block is known in the cache.

use crate::fixed_state::FixedState;
use std::hash::{BuildHasher, Hash};
use tarn_ondisk::block_pointer::{BlockPointer, Dva};
use tarn_ondisk::units::Txg;

/// A place and a time that no two blocks share: the first place of a block, and the txg that wrote
/// it there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    /// The pool, by its number in this process.
    pub(crate) pool: u64,
    vdev: u64,
    offset: u64,
    birth: u64,
}

impl Key {
    /// That of a stored block.
    pub(crate) fn of(pool: u64, pointer: &BlockPointer) -> Key {
        Key::at(pool, pointer.dva_words[0], pointer.physical_birth())
    }

    /// That of a block at a place, written there by a txg.
    pub(crate) fn at(pool: u64, first: Dva, birth: Txg) -> Key {
        Key {
            pool,
            vdev: first.vdev().get(),
            offset: first.offset().get(),
            birth: birth.get(),
        }
    }

    /// Which of `count` shards it belongs to.
    pub(crate) fn shard(&self, count: usize) -> usize {
        let hash = FixedState.hash_one(self) >> 40;
        usize::try_from(hash).expect("24 bits fit") % count
    }
}

/// What else a pointer says of its block: the same for all honest pointers with the same key.
pub(crate) fn fingerprint(pointer: &BlockPointer) -> u64 {
    FixedState.hash_one((
        pointer.logical_size().get(),
        pointer.physical_size().get(),
        pointer.compression().code(),
        pointer.checksum_kind().code(),
        pointer.checksum().0,
    ))
}
