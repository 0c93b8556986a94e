//! What is kept of a block: its bytes, or of a block of pointers only those that are not zeros.
//!
//! # Problem
//! The table of objects of a new dataset has room for all object numbers there can be: several
//! levels of blocks of pointers, 128 KiB each, in each of which one pointer leads anywhere. The
//! disk has them compressed, in a sector. Kept as bytes, they would fill the cache with zeros:
//! three quarters of a MiB for a dataset with six files.
//!
//! # Mechanism
//! Such a block is kept *packed*, when that halves it at least: first the pointers that are not all
//! zeros, one after the other, then the index of each, in the same order. A pointer is found by
//! searching the indexes. A reader of bytes gets them unpacked anew; a reader of pointers never
//! needs them.
//!
//! # Invariants
//! - Packed or not, the same bytes are there. What holes remember of their birth is not zeros, and
//!   kept.

use std::sync::{Arc, Weak};
use tarn_block::Block;
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::dnode::POINTER_SHIFT;

/// The size of a pointer.
const POINTER_BYTES: usize = 1 << POINTER_SHIFT;
/// So many bytes are compared with zeros at once: some pointers.
const RUN_BYTES: usize = 32 * POINTER_BYTES;
/// What is not worth keeping.
static ZEROS: [u8; RUN_BYTES] = [0; RUN_BYTES];
/// The size of an index.
const INDEX_BYTES: usize = 4;

/// A block as the cache keeps it. A copy of it is a pointer.
#[derive(Debug, Clone)]
pub struct Contents {
    block: Block,
    /// How long the block is whose packed form this is; none for bytes as they are.
    packed_of: Option<usize>,
}

impl Contents {
    /// What to keep of the block that a pointer leads to.
    pub(crate) fn of(pointer: &BlockPointer, block: Block) -> Contents {
        let packed = match pointer.level().is_data() {
            true => None,
            false => pack(&block),
        };
        match packed {
            Some(packed) => Contents {
                packed_of: Some(block.len()),
                block: Block::new(packed),
            },
            None => Contents {
                block,
                packed_of: None,
            },
        }
    }

    /// The block's bytes.
    pub fn into_block(self) -> Block {
        let Some(length) = self.packed_of else {
            return self.block;
        };
        let mut bytes = Buffer::zeroed(length);
        for (index, pointer) in self.pointers() {
            assert!(
                index < length / POINTER_BYTES,
                "a packed pointer has its place in the block"
            );
            bytes[index * POINTER_BYTES..][..POINTER_BYTES].copy_from_slice(pointer);
        }
        Block::new(bytes)
    }

    /// How many pointers it holds, those that are all zeros included.
    pub fn pointer_count(&self) -> usize {
        self.packed_of.unwrap_or(self.block.len()) / POINTER_BYTES
    }

    /// One of its pointers; none for zeros.
    ///
    /// # Panics
    /// When it has not so many.
    pub fn pointer(&self, index: usize) -> Option<&[u8]> {
        assert!(
            index < self.pointer_count(),
            "the pointer is inside the block"
        );
        if self.packed_of.is_none() {
            return Some(&self.block[index * POINTER_BYTES..][..POINTER_BYTES]);
        }
        let (pointers, indexes) = self.parts();
        let (mut low, mut high) = (0, indexes.len() / INDEX_BYTES);
        while low < high {
            let middle = low.midpoint(high);
            match index_at(indexes, middle) {
                found if found == index => {
                    return Some(&pointers[middle * POINTER_BYTES..][..POINTER_BYTES]);
                }
                found if found < index => low = middle + 1,
                _ => high = middle,
            }
        }
        None
    }

    /// Its pointers with their indexes, in order. Some that are all zeros may be left out.
    pub fn pointers(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let (pointers, indexes) = self.parts();
        let is_packed = self.packed_of.is_some();
        let each = pointers.chunks_exact(POINTER_BYTES).enumerate();
        each.map(move |(place, pointer)| match is_packed {
            true => (index_at(indexes, place), pointer),
            false => (place, pointer),
        })
    }

    /// What it takes of the machine's memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.block.memory_bytes()
    }

    /// The same, without keeping it.
    pub fn downgrade(&self) -> WeakContents {
        WeakContents {
            buffer: Arc::downgrade(self.block.shared()),
            packed_of: self.packed_of,
        }
    }

    /// The pointers, and the indexes of a packed form.
    fn parts(&self) -> (&[u8], &[u8]) {
        match self.packed_of {
            None => (&self.block, &[]),
            Some(_) => {
                let count = self.block.len() / (POINTER_BYTES + INDEX_BYTES);
                self.block.split_at(count * POINTER_BYTES)
            }
        }
    }
}

/// Contents that another holder may keep.
#[derive(Debug, Clone)]
pub struct WeakContents {
    buffer: Weak<Buffer>,
    packed_of: Option<usize>,
}

impl WeakContents {
    /// The contents, if they are still held.
    pub fn upgrade(&self) -> Option<Contents> {
        Some(Contents {
            block: Block::from(self.buffer.upgrade()?),
            packed_of: self.packed_of,
        })
    }
}

/// The packed form of a block of pointers; none if that is not much smaller.
fn pack(block: &Block) -> Option<Buffer> {
    let count_max = block.len() / 2 / (POINTER_BYTES + INDEX_BYTES);
    let mut indexes: Vec<u32> = Vec::new();
    let runs = block.chunks(RUN_BYTES).enumerate();
    // Almost all of a block that is worth packing are zeros, which are passed over run by run.
    for (run, bytes) in runs.filter(|(_, bytes)| **bytes != ZEROS[..bytes.len()]) {
        let first = run * (RUN_BYTES / POINTER_BYTES);
        for (place, pointer) in bytes.chunks_exact(POINTER_BYTES).enumerate() {
            if pointer != &ZEROS[..POINTER_BYTES] {
                if indexes.len() == count_max {
                    return None;
                }
                indexes.push(u32::try_from(first + place).ok()?);
            }
        }
    }
    let pointers_bytes = indexes.len() * POINTER_BYTES;
    let mut packed = Buffer::zeroed(pointers_bytes + indexes.len() * INDEX_BYTES);
    let (pointers, places) = packed.split_at_mut(pointers_bytes);
    let slots = pointers
        .chunks_exact_mut(POINTER_BYTES)
        .zip(places.chunks_exact_mut(INDEX_BYTES));
    for ((pointer, place), index) in slots.zip(indexes) {
        place.copy_from_slice(&index.to_le_bytes());
        let start = usize::try_from(index).ok()? * POINTER_BYTES;
        pointer.copy_from_slice(&block[start..start + POINTER_BYTES]);
    }
    debug_assert!(
        (1..places.len() / INDEX_BYTES).all(|at| index_at(places, at - 1) < index_at(places, at)),
        "packed pointers are in order"
    );
    assert!(
        2 * packed.len() <= block.len(),
        "packing halves a block at least"
    );
    Some(packed)
}

fn index_at(indexes: &[u8], place: usize) -> usize {
    let bytes = indexes[place * INDEX_BYTES..][..INDEX_BYTES].try_into();
    let index = u32::from_le_bytes(bytes.expect("an index has four bytes"));
    usize::try_from(index).expect("indexes are 32 bits or less")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_ondisk::units::Level;

    const COUNT: usize = 1024;

    fn above_data() -> BlockPointer {
        let mut pointer = BlockPointer::HOLE;
        pointer.set_level(Level::new(1));
        pointer
    }

    /// A block of pointers with something in these.
    fn block(indexes: impl IntoIterator<Item = usize>) -> Block {
        let mut bytes = Buffer::zeroed(COUNT * POINTER_BYTES);
        for index in indexes {
            let value = u8::try_from(index % 255 + 1).unwrap();
            bytes[index * POINTER_BYTES + index % POINTER_BYTES] = value;
        }
        Block::new(bytes)
    }

    #[test]
    fn packed_and_plain_blocks_say_the_same() {
        let all: [Vec<usize>; 5] = [
            vec![],
            vec![0],
            vec![0, 1, 500, COUNT - 1],
            (0..COUNT).step_by(3).collect(),
            (0..COUNT).collect(),
        ];
        for indexes in all {
            let plain = block(indexes.iter().copied());
            let contents = Contents::of(&above_data(), plain.clone());
            let is_dense = indexes.len() > COUNT / 2;
            assert_eq!(contents.packed_of.is_none(), is_dense);
            assert!(is_dense || contents.memory_bytes() * 2 <= plain.memory_bytes());
            assert_eq!(contents.pointer_count(), COUNT);
            for index in 0..COUNT {
                let bytes = &plain[index * POINTER_BYTES..][..POINTER_BYTES];
                let found = contents.pointer(index).unwrap_or(&[0; POINTER_BYTES]);
                assert_eq!(found, bytes, "pointer {index}");
            }
            let listed: Vec<usize> = contents.pointers().map(|(index, _)| index).collect();
            assert_eq!(listed, indexes);
            let again = contents.downgrade().upgrade().unwrap();
            assert_eq!(again.into_block(), plain);
        }
    }

    #[test]
    fn a_few_pointers_take_a_sector() {
        let contents = Contents::of(&above_data(), block([3]));
        assert_eq!(contents.memory_bytes(), 512);
    }

    #[test]
    fn data_are_kept_as_they_are() {
        let plain = block([3]);
        let contents = Contents::of(&BlockPointer::HOLE, plain.clone());
        assert!(contents.into_block().is_same(&plain));
    }

    #[test]
    fn contents_without_a_holder_are_gone() {
        let contents = Contents::of(&above_data(), block([3]));
        let weak = contents.downgrade();
        drop(contents);
        assert!(weak.upgrade().is_none());
    }
}
