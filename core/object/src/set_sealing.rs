//! The sealing of encrypted object sets, objects and blocks, as a raw stream brings it. Its use:
//! [`encrypted_blocks`](crate::encrypted_blocks).

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use tarn_block::{Block, GivenForm};
use tarn_host::lock::Mutex;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::checksum::ChecksumKind;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::sealing::Sealing;
use tarn_ondisk::units::{BlockId, LogicalSize};

/// Contents as they are stored.
#[derive(Debug, Clone)]
pub struct SealedBlock {
    /// What is stored.
    pub bytes: Block,
    /// How much it is when it is opened and decompressed.
    pub logical_size: LogicalSize,
    /// Its form.
    pub given: GivenForm,
    /// What its owner needs to open it.
    pub sealing: Sealing,
}

/// The form of an object, as its owner will check it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectForm {
    /// The size of its blocks. It can change while the object has none.
    pub block_size: LogicalSize,
    /// The size of its blocks of pointers, as a power of two. The same.
    pub indirect_shift: u8,
    /// How many levels its tree has.
    pub levels: u8,
    /// Its highest block.
    pub max_block: BlockId,
    /// What its bonus is.
    pub bonus_type: ObjectType,
    /// How long its bonus is when it is opened.
    pub bonus_length: usize,
    /// All the room for the bonus. It is encrypted as a whole.
    pub bonus_room: Vec<u8>,
}

/// What is said of an object set at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadSealing {
    /// The code of what travels.
    pub portable_code: [u8; 32],
    /// How dnodes say that they are checksummed.
    pub checksum: ChecksumKind,
    /// How dnodes say that they are compressed.
    pub compression: Compression,
    /// The highest block of dnodes.
    pub max_block: BlockId,
}

/// What a set knows of its sealing.
pub(crate) struct SetSealing {
    pub is_sealed: AtomicBool,
    /// How blocks of dnodes are to be sealed when they are stored next.
    pub dnodes: Mutex<BTreeMap<u64, Sealing>>,
}

impl SetSealing {
    /// Of a set that is stored here.
    pub fn of_root(root: &BlockPointer) -> SetSealing {
        SetSealing {
            is_sealed: AtomicBool::new(root.uses_encryption()),
            dnodes: Mutex::new(crate::ranks::SEALING, BTreeMap::new()),
        }
    }
}

/// A set that is made for a raw stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewSealedSet {
    /// How many levels its tree of dnodes has.
    pub levels: u8,
    /// How large its blocks of dnodes are.
    pub block_size: LogicalSize,
    /// The size of its blocks of pointers to dnodes, as a power of two.
    pub indirect_shift: u8,
}
