//! [`HeldBlocks`]: blocks that prepared changes have read before their transactions. How they are
//! read: [`prepare`](crate::prepare).
//!
//! # Invariants
//! - A held block is the newest contents of its block: a change drops the entries of its block.

use std::ops::Range;
use std::sync::Arc;

use tarn_host::buffer::Buffer;

/// Blocks that are held for changes to come. Few at a time.
#[derive(Debug, Default)]
pub(crate) struct HeldBlocks {
    held: Vec<Held>,
    next_number: u64,
}

#[derive(Debug)]
struct Held {
    number: u64,
    block: u64,
    /// None while it is being read.
    contents: Option<Arc<Buffer>>,
}

impl HeldBlocks {
    /// Announces a block that is about to be read, and gives its number.
    pub fn announce(&mut self, block: u64) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.held.push(Held {
            number,
            block,
            contents: None,
        });
        number
    }

    /// The block of this number was read. Drops the contents if the block was changed meanwhile.
    pub fn hold(&mut self, number: u64, contents: Arc<Buffer>) {
        if let Some(held) = self.held.iter_mut().find(|held| held.number == number) {
            held.contents = Some(contents);
        }
    }

    /// Whether a block is held.
    pub fn has(&self, block: u64) -> bool {
        let mut of_block = self.held.iter().filter(|held| held.block == block);
        of_block.any(|held| held.contents.is_some())
    }

    /// What is held of a block that is about to be changed. It is held no longer.
    pub fn take(&mut self, block: u64) -> Option<Arc<Buffer>> {
        let mut taken = None;
        self.held.retain_mut(|held| {
            if held.block == block {
                taken = taken.take().or(held.contents.take());
            }
            held.block != block
        });
        taken
    }

    /// Blocks are changed: drops what is held for them.
    pub fn drop_range(&mut self, blocks: Range<u64>) {
        self.held.retain(|held| !blocks.contains(&held.block));
    }

    /// The change was made, or will not be: drops what is held by this number.
    pub fn drop_number(&mut self, number: u64) {
        self.held.retain(|held| held.number != number);
    }
}
