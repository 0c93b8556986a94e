//! Errors of reading, writing and freeing blocks.

use crate::scope::BlockScope;
use std::fmt;
use tarn_ondisk::block_pointer::{BlockPointer, Dva};
use tarn_ondisk::declare::Corrupt;
use tarn_ondisk::units::{Level, LogicalSize, PhysicalSize, Txg};
use tarn_space::{FreeError, NoSpace};
use tarn_transform::DecompressError;
use tarn_vdev::reports::{CHECKSUM_ERROR, IO_ERROR};
use tarn_vdev::{VdevReadError, VdevWriteError};

/// The address of a block, in the form of `zdb -R`: `vdev:offset:size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockAddress {
    /// Its first place.
    pub place: Dva,
    /// Its level in its object.
    pub level: Level,
    /// Its size as stored.
    pub physical_size: PhysicalSize,
    /// Its size as its object sees it.
    pub logical_size: LogicalSize,
    /// When it was born.
    pub birth: Txg,
}

impl BlockAddress {
    /// The address of the block of a pointer.
    pub fn of(pointer: &BlockPointer) -> BlockAddress {
        BlockAddress {
            place: pointer.dvas().next().unwrap_or(Dva::EMPTY),
            level: pointer.level(),
            physical_size: pointer.physical_size(),
            logical_size: pointer.logical_size(),
            birth: pointer.birth(),
        }
    }
}

impl fmt::Display for BlockAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{:x}:{:x} (level {}, {} bytes, born in txg {})",
            self.place.vdev(),
            self.place.offset(),
            self.physical_size,
            self.level,
            self.logical_size,
            self.birth
        )
    }
}

/// Why one copy could not be used.
#[derive(Debug, Clone)]
pub struct CopyFailure {
    /// Where it should have been.
    pub place: Dva,
    /// What happened.
    pub why: CopyFailureReason,
}

/// What happened to one copy.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CopyFailureReason {
    /// The vdev could not give bytes that verify.
    #[error("{0}")]
    Vdev(VdevReadError),
    /// The pointer names a vdev that the pool does not have, or a place outside of it.
    #[error("there is no such place in this pool")]
    NoSuchPlace,
}

impl fmt::Display for CopyFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.why)
    }
}

/// Copies in a row, for messages.
struct Copies<'a>(&'a [CopyFailure]);

impl fmt::Display for Copies<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, failure) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{failure}")?;
        }
        Ok(())
    }
}

/// Why a block could not be read. It can be copied, because many may wait for one read.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// No copy could be read or verified. One failure per copy, in the order tried.
    #[error("no copy of block {block} can be read: {}", Copies(.copies))]
    Unreadable {
        /// The block.
        block: BlockAddress,
        /// What was tried.
        copies: Vec<CopyFailure>,
    },
    /// The pointer, or a gang header that verified, is damaged: a checksum guards bytes, not
    /// meaning. It was damaged before its checksum was computed, or by a fault of the program that
    /// wrote it.
    #[error("block {block} is damaged: {what}")]
    Corrupt {
        /// The block.
        block: BlockAddress,
        /// What makes no sense.
        what: Corrupt,
    },
    /// The pieces of a gang verified, and together do not.
    #[error("the pieces of gang block {block} do not make up the block")]
    GangMismatch {
        /// The block.
        block: BlockAddress,
    },
    /// The bytes verified, and cannot be expanded.
    #[error("block {block} cannot be decompressed: {why}")]
    Undecodable {
        /// The block.
        block: BlockAddress,
        /// What the decoder found.
        why: DecompressError,
    },
    /// The block is encrypted. This version of Tarn cannot open encrypted datasets.
    #[error("block {block} at {scope} is encrypted, which is not supported")]
    Encrypted {
        /// The block.
        block: BlockAddress,
        /// Where it belongs: the object set has the key.
        scope: BlockScope,
    },
    /// The contents were left out of the redacted stream this dataset was received from.
    #[error("block {block} was redacted: its contents were never received")]
    Redacted {
        /// The block.
        block: BlockAddress,
    },
    /// The pointer names a checksum that no ZFS we know has.
    #[error("block {block} has checksum number {code}, which is not supported")]
    UnknownChecksum {
        /// The block.
        block: BlockAddress,
        /// The number.
        code: u8,
    },
    /// The pointer names a compression that no ZFS we know has.
    #[error("block {block} has compression number {code}, which is not supported")]
    UnknownCompression {
        /// The block.
        block: BlockAddress,
        /// The number.
        code: u8,
    },
}

impl ReadError {
    /// The error number of its event: that of wrong bytes, or that of input and output.
    pub fn errno(&self) -> i32 {
        let is_wrong = |copy: &CopyFailure| {
            matches!(
                copy.why,
                CopyFailureReason::Vdev(VdevReadError::Checksum { .. })
            )
        };
        match self {
            ReadError::Unreadable { copies, .. } if copies.iter().any(is_wrong) => CHECKSUM_ERROR,
            ReadError::GangMismatch { .. } => CHECKSUM_ERROR,
            _ => IO_ERROR,
        }
    }
}

impl ReadError {
    /// Whether devices answered, for every copy, with bytes that are not the block, or the pointer
    /// is damaged: then it is certain that the block does not exist. Otherwise devices that are
    /// missing or fail may have it.
    pub fn is_mismatch(&self) -> bool {
        let is_answered = |copy: &CopyFailure| {
            let CopyFailureReason::Vdev(why) = &copy.why else {
                return false;
            };
            matches!(
                why,
                VdevReadError::Checksum { .. } | VdevReadError::OutOfRange { .. }
            )
        };
        match self {
            ReadError::Unreadable { copies, .. } => copies.iter().all(is_answered),
            ReadError::Encrypted { .. } | ReadError::Redacted { .. } => false,
            _ => true,
        }
    }

    /// The block.
    pub fn block(&self) -> &BlockAddress {
        match self {
            ReadError::Unreadable { block, .. }
            | ReadError::Corrupt { block, .. }
            | ReadError::GangMismatch { block }
            | ReadError::Undecodable { block, .. }
            | ReadError::Encrypted { block, .. }
            | ReadError::Redacted { block }
            | ReadError::UnknownChecksum { block, .. }
            | ReadError::UnknownCompression { block, .. } => block,
        }
    }
}

/// Why self-healing a block could not make sure that all devices have it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelfHealError {
    /// The block cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Devices failed beyond what redundancy covers.
    #[error(transparent)]
    Vdev(#[from] VdevWriteError),
}

/// Why a batch was not written. Nothing of it is referenced, and its space is given back; the same
/// batch may be tried again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// There is no room, not even in pieces.
    #[error("{0}")]
    NoSpace(#[from] NoSpace),
    /// Devices failed beyond what redundancy covers.
    #[error("{0}")]
    Vdev(#[from] VdevWriteError),
}

/// Why a block was not freed. It stays allocated: space may leak, and nothing is lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockFreeError {
    /// The pointer leads to space that is not allocated.
    #[error("block {block} cannot be freed: {why}")]
    Space {
        /// The block.
        block: BlockAddress,
        /// Why.
        why: FreeError,
    },
    /// A gang's pieces are known from its headers, and those cannot be read.
    #[error("the pieces of gang block {block} cannot be freed: {why}")]
    Gang {
        /// The block.
        block: BlockAddress,
        /// Why.
        why: Box<ReadError>,
    },
    /// The block is in the dedup table, which is not supported.
    #[error("block {block} is deduplicated, which is not supported")]
    Deduplicated {
        /// The block.
        block: BlockAddress,
    },
    /// The table of twins could not be changed.
    #[error("the twins of block {block} cannot be counted: {cause}")]
    RefTable {
        /// The block.
        block: BlockAddress,
        /// What the table says.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}
