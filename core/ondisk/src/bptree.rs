//! Destroyed datasets that are still being freed (feature `async_destroy`).
//!
//! The object's data are entries, each the root of a tree of blocks; those from `begin` to `end`
//! are not yet done. `resume` tells how far the first of them has come.

use crate::block_pointer::BlockPointer;
use crate::bookmark::TraversalMark;
use crate::on_disk;
use crate::units::{AllocatedSize, LogicalSize, PhysicalSize, Txg};

on_disk! {
    /// What is still to be freed.
    #[doc(alias = "bptree_phys_t")]
    #[derive(Copy, Default)]
    pub struct BlockTreeHead [40 bytes] {
        0  => begin: u64,
        8  => end: u64,
        16 => allocated: AllocatedSize,
        24 => compressed: PhysicalSize,
        32 => uncompressed: LogicalSize,
    }
}

on_disk! {
    /// One tree of blocks to free.
    #[doc(alias = "bptree_entry_phys_t")]
    #[derive(Copy)]
    pub struct BlockTreeEntry [168 bytes] {
        0   => root: BlockPointer,
        /// Only blocks born after it are freed.
        128 => birth: Txg,
        /// Where to go on.
        136 => resume: TraversalMark,
    }
}
