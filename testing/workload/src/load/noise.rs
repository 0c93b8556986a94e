//! Bytes that no compression makes smaller and no two of whose blocks are alike, as fast as memory
//! can be copied.
//!
//! # Mechanism
//! A few MiB are made by a xorshift generator; each MiB that is written is one of them with its
//! number put in front of every page, so that no two pages of a file are the same.

const MIB: usize = 1 << 20;
const PAGE_BYTES: usize = 4096;

/// So many different MiB; more than the caches of a processor hold.
const KEPT: usize = 16;

/// The source of one file's bytes.
pub(super) struct Noise {
    kept: Vec<u8>,
}

impl Noise {
    pub(super) fn new() -> Self {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let words = std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        Self {
            kept: words.take(KEPT * MIB / 8).flatten().collect(),
        }
    }

    /// The MiB of this number; the same for the same number.
    pub(super) fn mib(&mut self, number: u32) -> &[u8] {
        let index = number as usize % KEPT;
        let mib = &mut self.kept[index * MIB..(index + 1) * MIB];
        for page in mib.chunks_mut(PAGE_BYTES) {
            page[..4].copy_from_slice(&number.to_le_bytes());
        }
        mib
    }

    /// So many bytes from a place of their own.
    pub(super) fn some(&self, place: u32, size: usize) -> &[u8] {
        let start = place as usize * 64 % (self.kept.len() - size);
        &self.kept[start..start + size]
    }
}
