//! Errors of objects.

use tarn_block::{BlockFreeError, ReadError, WriteError};
use tarn_ondisk::declare::Corrupt;
use tarn_ondisk::units::{BlockId, Level, LogicalSize, ObjectId};

/// Why an object could not be read or changed. Objects are named as `zdb -dddd` names them: object
/// set and number.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// There is no object of this number.
    #[error("object set {set} has no object {}", Number(*.object))]
    NoSuchObject {
        /// The object set.
        set: ObjectId,
        /// The number.
        object: ObjectId,
    },
    /// The number asked for belongs to an object already.
    #[error("object {} of object set {set} exists", Number(*.object))]
    Exists {
        /// The object set.
        set: ObjectId,
        /// The number.
        object: ObjectId,
    },
    /// There are no more object numbers.
    #[error("object set {set} has no free object numbers")]
    NumbersExhausted {
        /// The object set.
        set: ObjectId,
    },
    /// A block of the object, or the dnode that leads to it, cannot be read.
    #[error("object {} of object set {set}, level {level}, block {block}: {why}", Number(*.object))]
    Read {
        /// The object set.
        set: ObjectId,
        /// The object; 0 for the dnodes themselves.
        object: ObjectId,
        /// The level of the block.
        level: Level,
        /// Its index.
        block: BlockId,
        /// What the block layer says.
        why: Box<ReadError>,
    },
    /// A block verified, and its contents are malformed.
    #[error("object {} of object set {set} is damaged: {what}", Number(*.object))]
    Corrupt {
        /// The object set.
        set: ObjectId,
        /// The object; 0 for the dnodes themselves.
        object: ObjectId,
        /// The fault.
        what: Corrupt,
    },
    /// The block size can be changed only while there is no second block.
    #[error("object {} of object set {set} has blocks of {size} bytes, which cannot change any more", Number(*.object))]
    BlockSizeFixed {
        /// The object set.
        set: ObjectId,
        /// The object.
        object: ObjectId,
        /// The size of its blocks.
        size: LogicalSize,
    },
    /// The bonus does not fit into the dnode beside what else is there.
    #[error("object {} of object set {set} has room for {room} bytes of bonus, not {wanted}", Number(*.object))]
    BonusTooLarge {
        /// The object set.
        set: ObjectId,
        /// The object.
        object: ObjectId,
        /// How much there is room for.
        room: usize,
        /// How much was wanted.
        wanted: usize,
    },
    /// The ZAP in the object refuses.
    #[error("object {} of object set {set}: {why}", Number(*.object))]
    Zap {
        /// The object set.
        set: ObjectId,
        /// The object.
        object: ObjectId,
        /// What is wrong.
        why: crate::zap::ZapError,
    },
    /// Its contents are encrypted, and no key is loaded.
    #[error("object {} of object set {set} is encrypted, and its key is not loaded", Number(*.object))]
    Encrypted {
        /// The object set.
        set: ObjectId,
        /// The object; 0 for the set as a whole.
        object: ObjectId,
    },
    /// The offset is beyond what an object can have.
    #[error("object {} of object set {set} cannot reach offset {offset}", Number(*.object))]
    TooLarge {
        /// The object set.
        set: ObjectId,
        /// The object.
        object: ObjectId,
        /// The offset.
        offset: u64,
    },
}

/// Object numbers as people know them: those from the end are negative.
struct Number(ObjectId);

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let number = self.0.get().cast_signed();
        if (-16..0).contains(&number) {
            write!(f, "{number}")
        } else {
            write!(f, "{}", self.0)
        }
    }
}

/// Why there is no transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    /// The pool is suspended, and its `failmode` says that writers fail. `zpool clear` resumes it.
    #[error("the pool is suspended after too many device errors; run 'zpool clear'")]
    Suspended,
    /// The pool is being exported, or the process ends.
    #[error("the pool is being closed")]
    Stopped,
}

/// Why a transaction group could not be stored. The uberblock was not written, so none of it
/// counts, and the pool must be suspended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// A block could not be written.
    #[error("{0}")]
    Write(#[from] WriteError),
    /// A block that must be read to store others cannot be.
    #[error("{0}")]
    Object(#[from] ObjectError),
    /// An allocated block cannot be freed.
    #[error("{0}")]
    Free(#[from] BlockFreeError),
}
