//! Object sets: a numbered collection of objects, with their intent log and their accounting.
//!
//! # Mechanism
//! A file system, a snapshot, a volume and the pool's own metadata (the MOS) are each an object
//! set. Its head is one block: the *meta dnode*, whose data are the dnodes of all objects; the head
//! of the intent log; and, in larger versions, dnodes of objects that count space by owner. The
//! size of the block tells the version:
//!
//! ```text
//!  0            512      704     720     784      1024      1536       2048      2560     4096
//!  +------------+--------+-------+-------+--------+---------+----------+---------+--------+
//!  | meta dnode | intent | type, | MACs  |        | user    | group    | project |        |
//!  |            | log    | flags |       |        | used    | used     | used    |        |
//!  +------------+--------+-------+-------+--------+---------+----------+---------+--------+
//!                                          1 KiB ^              2 KiB ^            4 KiB ^
//! ```

use crate::block_pointer::BlockPointer;
use crate::declare::{ByteOrder, Corrupt, Reader, Reserved, Stored, Writer, widen};
use crate::dnode::{Dnode, SLOT_BYTES};
use crate::on_disk;
use crate::units::Txg;

on_disk! {
    /// The head of an intent log.
    #[doc(alias = "zil_header_t")]
    #[derive(Copy, Default)]
    pub struct IntentLogHead [192 bytes] {
        /// The txg in which the log's blocks were claimed after a crash; zero when they were not.
        0   => claim_txg: Txg,
        /// The highest record that was replayed.
        8   => replayed_sequence: u64,
        /// The first block of the log; its checksum words name the log and the block's sequence.
        16  => first: BlockPointer,
        /// The highest block that was claimed.
        144 => claimed_block_sequence: u64,
        /// See [`IntentLogHead::REPLAY_NEEDED`].
        152 => flags: u64,
        /// The highest record that was claimed, where a flag says it is valid.
        160 => claimed_record_sequence: u64,
        168 => reserved: Reserved<24>,
    }
}

impl IntentLogHead {
    /// That of an object set without a log.
    pub const EMPTY: IntentLogHead = IntentLogHead {
        claim_txg: Txg::ZERO,
        replayed_sequence: 0,
        first: BlockPointer::HOLE,
        claimed_block_sequence: 0,
        flags: 0,
        claimed_record_sequence: 0,
        reserved: crate::declare::Reserved([0; 24]),
    };
    /// Records wait to be replayed.
    #[doc(alias = "ZIL_REPLAY_NEEDED")]
    pub const REPLAY_NEEDED: u64 = 1;
    /// `claimed_record_sequence` is valid.
    #[doc(alias = "ZIL_CLAIM_LR_SEQ_VALID")]
    pub const CLAIMED_RECORD_VALID: u64 = 2;
}

/// What an object set is.
#[doc(alias = "dmu_objset_type_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjsetType {
    /// Not yet decided.
    None,
    /// The meta object set of the pool.
    Meta,
    /// A file system.
    Zfs,
    /// A volume.
    Zvol,
    /// For tests.
    Other,
    /// A type this program does not know.
    Unknown(u64),
}

impl ObjsetType {
    /// From the stored code.
    pub const fn from_code(code: u64) -> ObjsetType {
        match code {
            0 => ObjsetType::None,
            1 => ObjsetType::Meta,
            2 => ObjsetType::Zfs,
            3 => ObjsetType::Zvol,
            4 => ObjsetType::Other,
            other => ObjsetType::Unknown(other),
        }
    }

    /// The stored code.
    pub const fn code(self) -> u64 {
        match self {
            ObjsetType::None => 0,
            ObjsetType::Meta => 1,
            ObjsetType::Zfs => 2,
            ObjsetType::Zvol => 3,
            ObjsetType::Other => 4,
            ObjsetType::Unknown(code) => code,
        }
    }

    /// The name that `zdb` prints.
    pub const fn name(self) -> &'static str {
        match self {
            ObjsetType::None => "NONE",
            ObjsetType::Meta => "META",
            ObjsetType::Zfs => "ZPL",
            ObjsetType::Zvol => "ZVOL",
            ObjsetType::Other => "OTHER",
            ObjsetType::Unknown(_) => "UNKNOWN",
        }
    }
}

impl Stored for ObjsetType {
    const SIZE: usize = 8;
    const NAME: &'static str = "ObjsetType";

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        reader.u64().map(ObjsetType::from_code)
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.u64(self.code());
    }
}

/// The flags of an object set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ObjsetFlags(pub u64);

impl ObjsetFlags {
    /// Space is counted by user and group for every object.
    #[doc(alias = "OBJSET_FLAG_USERACCOUNTING_COMPLETE")]
    pub const USER_ACCOUNTING_COMPLETE: ObjsetFlags = ObjsetFlags(1);
    /// Objects are counted by user and group.
    #[doc(alias = "OBJSET_FLAG_USEROBJACCOUNTING_COMPLETE")]
    pub const OBJECT_ACCOUNTING_COMPLETE: ObjsetFlags = ObjsetFlags(2);
    /// Both are counted by project.
    #[doc(alias = "OBJSET_FLAG_PROJECTQUOTA_COMPLETE")]
    pub const PROJECT_QUOTA_COMPLETE: ObjsetFlags = ObjsetFlags(4);

    /// True when all of `flags` are set.
    pub const fn contains(self, flags: ObjsetFlags) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These and `flags`.
    pub const fn with(self, flags: ObjsetFlags) -> ObjsetFlags {
        ObjsetFlags(self.0 | flags.0)
    }
}

on_disk! {
    /// What lies between the meta dnode and the accounting dnodes.
    struct Middle [512 bytes] {
        0   => intent_log: IntentLogHead,
        192 => objset_type: ObjsetType,
        200 => flags: u64,
        208 => portable_mac: [u8; 32],
        240 => local_mac: [u8; 32],
        272 => reserved: Reserved<240>,
    }
}

/// The dnodes of the objects that count space by owner, in as far as the version has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accounting {
    /// 1 KiB: none. Also the MOS.
    None,
    /// 2 KiB: by user and by group.
    Users {
        /// A ZAP from user ids to bytes.
        user: Box<Dnode>,
        /// A ZAP from group ids to bytes.
        group: Box<Dnode>,
    },
    /// 4 KiB: by project as well.
    Projects {
        /// A ZAP from user ids to bytes.
        user: Box<Dnode>,
        /// A ZAP from group ids to bytes.
        group: Box<Dnode>,
        /// A ZAP from project ids to bytes.
        project: Box<Dnode>,
    },
}

/// The head of an object set.
#[doc(alias = "objset_phys_t")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objset {
    /// Its data are the dnodes of all objects.
    pub meta_dnode: Dnode,
    /// The head of the intent log.
    pub intent_log: IntentLogHead,
    /// What the object set is.
    pub objset_type: ObjsetType,
    /// See [`ObjsetFlags`].
    pub flags: ObjsetFlags,
    /// Encrypted datasets: a MAC over what raw send carries.
    pub portable_mac: [u8; 32],
    /// Encrypted datasets: a MAC over what it does not.
    pub local_mac: [u8; 32],
    /// Space by owner.
    pub accounting: Accounting,
    reserved: Reserved<240>,
}

impl Objset {
    /// The size of the first version: no accounting.
    #[doc(alias = "OBJSET_PHYS_SIZE_V1")]
    pub const SIZE_V1: usize = 1024;
    /// The size with accounting by user and group.
    #[doc(alias = "OBJSET_PHYS_SIZE_V2")]
    pub const SIZE_V2: usize = 2048;
    /// The size with accounting by project as well.
    #[doc(alias = "OBJSET_PHYS_SIZE_V3")]
    pub const SIZE_V3: usize = 4096;

    /// An empty object set around a meta dnode.
    pub fn new(objset_type: ObjsetType, meta_dnode: Dnode, accounting: Accounting) -> Objset {
        Objset {
            meta_dnode,
            intent_log: IntentLogHead::default(),
            objset_type,
            flags: ObjsetFlags::default(),
            portable_mac: [0; 32],
            local_mac: [0; 32],
            accounting,
            reserved: Reserved::default(),
        }
    }

    /// Decodes a block, whose size tells the version.
    pub fn from_block(block: &[u8], order: ByteOrder) -> Result<Objset, Corrupt> {
        let mut reader = Reader::new("Objset", block, order);
        let meta_dnode = one_slot(&mut reader)?;
        let middle = reader.value::<Middle>()?;
        let mut dnode = || one_slot(&mut reader).map(Box::new);
        let accounting = match block.len() {
            Self::SIZE_V1 => Accounting::None,
            Self::SIZE_V2 => Accounting::Users {
                user: dnode()?,
                group: dnode()?,
            },
            Self::SIZE_V3 => Accounting::Projects {
                user: dnode()?,
                group: dnode()?,
                project: dnode()?,
            },
            other => {
                return Err(Corrupt::Value {
                    what: "Objset",
                    field: "size",
                    offset: 0,
                    found: widen(other),
                });
            }
        };
        Ok(Objset {
            meta_dnode,
            intent_log: middle.intent_log,
            objset_type: middle.objset_type,
            flags: ObjsetFlags(middle.flags),
            portable_mac: middle.portable_mac,
            local_mac: middle.local_mac,
            accounting,
            reserved: middle.reserved,
        })
    }

    /// How many bytes it takes.
    pub fn size(&self) -> usize {
        match self.accounting {
            Accounting::None => Self::SIZE_V1,
            Accounting::Users { .. } => Self::SIZE_V2,
            Accounting::Projects { .. } => Self::SIZE_V3,
        }
    }

    /// Encodes a block.
    ///
    /// # Panics
    /// When one of its dnodes is larger than a slot.
    pub fn to_block(&self) -> Vec<u8> {
        let mut block = vec![0; self.size()];
        put_slot(&mut block, 0, &self.meta_dnode);
        let middle = Middle {
            intent_log: self.intent_log,
            objset_type: self.objset_type,
            flags: self.flags.0,
            portable_mac: self.portable_mac,
            local_mac: self.local_mac,
            reserved: self.reserved,
        };
        middle.write_to(&mut block[SLOT_BYTES..]);
        match &self.accounting {
            Accounting::None => {}
            Accounting::Users { user, group } => {
                put_slot(&mut block, 2, user);
                put_slot(&mut block, 3, group);
            }
            Accounting::Projects {
                user,
                group,
                project,
            } => {
                put_slot(&mut block, 2, user);
                put_slot(&mut block, 3, group);
                put_slot(&mut block, 4, project);
            }
        }
        block
    }
}

fn one_slot(reader: &mut Reader<'_>) -> Result<Dnode, Corrupt> {
    let order = reader.order();
    Dnode::from_slots(reader.take(SLOT_BYTES)?, order)
}

fn put_slot(block: &mut [u8], slot: usize, dnode: &Dnode) {
    assert_eq!(dnode.slots(), 1, "an object set's own dnodes have one slot");
    dnode.write_to_slots(&mut block[slot * SLOT_BYTES..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_type::ObjectType;

    fn dnode() -> Box<Dnode> {
        Box::new(Dnode::new(ObjectType::UserUsed, 1, 1))
    }

    #[test]
    fn every_version_reads_back() {
        let versions = [
            Accounting::None,
            Accounting::Users {
                user: dnode(),
                group: dnode(),
            },
            Accounting::Projects {
                user: dnode(),
                group: dnode(),
                project: dnode(),
            },
        ];
        for accounting in versions {
            let meta = Dnode::new(ObjectType::Dnode, 1, 3);
            let objset = Objset::new(ObjsetType::Zfs, meta, accounting);
            let block = objset.to_block();
            assert_eq!(Objset::from_block(&block, ByteOrder::Little), Ok(objset));
        }
    }

    #[test]
    fn a_block_of_another_size_is_refused() {
        for size in [0, 512, 1023, 1536, 8192] {
            assert!(Objset::from_block(&vec![0; size], ByteOrder::Little).is_err());
        }
    }
}
