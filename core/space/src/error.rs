//! What can go wrong with space.

use crate::class::Class;
use crate::range_tree::Range;
use tarn_ondisk::units::{AllocatedSize, Txg, VdevId};

/// No place for a block of this size, in its class or those that stand in for it.
///
/// A block that can be cut to pieces may still be stored as a gang. Otherwise the cure is to free
/// space or to add a vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no space for {copies} copies of {size} contiguous bytes in class {class}")]
pub struct NoSpace {
    /// The class that was asked.
    pub class: Class,
    /// How many copies were wanted.
    pub copies: usize,
    /// The size on the vdev where it is smallest.
    pub size: AllocatedSize,
}

/// Why a range was not freed. Pointers come from the disk, and so may these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FreeError {
    /// The pool has no such top-level vdev, or it has no metaslabs.
    #[error("vdev {vdev} has no space to give {range} back to")]
    NoVdev {
        /// The vdev that was named.
        vdev: VdevId,
        /// The range.
        range: Range,
    },
    /// The range is empty, not made of whole sectors, crosses a metaslab, or ends behind the vdev.
    #[error("{range} of vdev {vdev} can not have been allocated")]
    NeverAllocated {
        /// The vdev.
        vdev: VdevId,
        /// The range.
        range: Range,
    },
    /// Some of the range is free, or was freed before: two pointers lead to it.
    #[error("{range} of vdev {vdev} is free already (freed again in txg {txg})")]
    AlreadyFree {
        /// The vdev.
        vdev: VdevId,
        /// The range.
        range: Range,
        /// The txg of the second free.
        txg: Txg,
    },
    /// Some of the range is allocated, and was to be claimed.
    #[error("{range} of vdev {vdev} is in use and cannot be claimed")]
    InUse {
        /// The vdev.
        vdev: VdevId,
        /// The range.
        range: Range,
    },
    /// The metaslab had to be loaded for this, and could not.
    #[error("what is free near {range} of vdev {vdev} is not known")]
    NotLoaded {
        /// The vdev.
        vdev: VdevId,
        /// The range.
        range: Range,
    },
}

/// Why a metaslab could not be loaded. It is not allocated from until the pool is imported again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The space map could not be read.
    #[error("the space map of metaslab {index} of vdev {vdev} cannot be read: {cause}")]
    Unreadable {
        /// The vdev.
        vdev: VdevId,
        /// The metaslab.
        index: u64,
        /// What stood in the way.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The space map has entries that no allocation makes.
    #[error("the space map of metaslab {index} of vdev {vdev} has {range} as allocated")]
    Impossible {
        /// The vdev.
        vdev: VdevId,
        /// The metaslab.
        index: u64,
        /// The first entry that cannot be.
        range: Range,
    },
    /// The pool has not set yet how space maps are read.
    #[error("metaslab {index} of vdev {vdev} was wanted before the pool could load any")]
    NoDoor {
        /// The vdev.
        vdev: VdevId,
        /// The metaslab.
        index: u64,
    },
}
