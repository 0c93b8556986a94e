//! What an object is for.
//!
//! # Mechanism
//! The first 54 types are a closed list. Later ones say what they are by their bits, so that a
//! program which never heard of the purpose can still carry the object:
//!
//! ```text
//!   7     6      5      4       0
//! +---+------+-------+-----------+
//! | 1 | meta | crypt | byte swap |
//! +---+------+-------+-----------+
//! ```
//!
//! `meta`: metadata, so at least two copies and a strong checksum. `crypt`: encrypted in an
//! encrypted dataset. `byte swap`: how a machine of the other byte order reads it, a [`Layout`].

use crate::declare::stored_codes;

stored_codes! {
    /// What an object, or a bonus buffer, is for.
    #[doc(alias = "dmu_object_type_t")]
    pub enum ObjectType, unknown "UNKNOWN" {
        /// Not allocated.
        0 => None "unallocated",
        /// ZAP: names to objects.
        1 => ObjectDirectory "object directory",
        /// Words.
        2 => ObjectArray "object array",
        /// XDR name-value list.
        3 => PackedNvlist "packed nvlist",
        /// One word: the size of the list in the object.
        4 => PackedNvlistSize "packed nvlist size",
        /// Block pointers to free.
        5 => BlockPointerList "bpobj",
        /// Bonus of the same.
        6 => BlockPointerListHeader "bpobj header",
        /// Bonus of a space map.
        7 => SpaceMapHeader "SPA space map header",
        /// Space map.
        8 => SpaceMap "SPA space map",
        /// Intent log block.
        9 => IntentLog "ZIL intent log",
        /// Dnodes.
        10 => Dnode "DMU dnode",
        /// Head of an object set.
        11 => Objset "DMU objset",
        /// Bonus of a DSL directory.
        12 => DslDirectory "DSL directory",
        /// ZAP: child names to directories.
        13 => DslDirectoryChildMap "DSL directory child map",
        /// ZAP: snapshot names to datasets.
        14 => DslSnapshotMap "DSL dataset snap map",
        /// ZAP: property values set here.
        15 => DslProperties "DSL props",
        /// Bonus of a DSL dataset.
        16 => DslDataset "DSL dataset",
        /// Bonus of a file before ZPL version 5.
        17 => Znode "ZFS znode",
        /// ACL of ZPL version 1.
        18 => OldAcl "ZFS V0 ACL",
        /// A file's bytes.
        19 => PlainFile "ZFS plain file",
        /// ZAP: names to files.
        20 => Directory "ZFS directory",
        /// ZAP: where everything in a file system starts.
        21 => MasterNode "ZFS master node",
        /// ZAP: files to delete.
        22 => DeleteQueue "ZFS delete queue",
        /// A volume's bytes.
        23 => Zvol "zvol object",
        /// ZAP: a volume's size.
        24 => ZvolProperties "zvol prop",
        /// For tests.
        25 => OtherBytes "other uint8[]",
        /// For tests.
        26 => OtherWords "other uint64[]",
        /// For tests.
        27 => OtherZap "other ZAP",
        /// ZAP: blocks that could not be read.
        28 => ErrorLog "persistent error log",
        /// Ring of history records.
        29 => History "SPA history",
        /// Bonus of the same.
        30 => HistoryOffsets "SPA history offsets",
        /// ZAP: properties of the pool.
        31 => PoolProperties "Pool properties",
        /// ZAP: delegated permissions.
        32 => DslPermissions "DSL permissions",
        /// ACL.
        33 => Acl "ZFS ACL",
        /// ACL of the system.
        34 => SystemAcl "ZFS SYSACL",
        /// Domains of foreign user ids.
        35 => ForeignIdTable "FUID table",
        /// One word: the size of the list in the object.
        36 => ForeignIdTableSize "FUID table size",
        /// ZAP: clones of a snapshot.
        37 => DslNextClones "DSL dataset next clones",
        /// ZAP: datasets still to scan.
        38 => ScanQueue "scan work queue",
        /// ZAP: space by user, group and project.
        39 => UserUsed "ZFS user/group/project used",
        /// ZAP: quotas by user, group and project.
        40 => UserQuota "ZFS user/group/project quota",
        /// ZAP: holds on a snapshot.
        41 => UserHolds "snapshot refcount tags",
        /// ZAP: blocks with twins.
        42 => DedupZap "DDT ZAP algorithm",
        /// ZAP: statistics of the same.
        43 => DedupStatistics "DDT statistics",
        /// System attributes, in a bonus or a spill block.
        44 => SystemAttributes "System attributes",
        /// ZAP: where system attributes start.
        45 => SaMasterNode "SA master node",
        /// ZAP: attribute names and sizes.
        46 => SaRegistration "SA attr registration",
        /// ZAP: orders in which attributes are stored.
        47 => SaLayouts "SA attr layouts",
        /// ZAP: datasets that moved while they were scanned.
        48 => ScanTranslations "scan translations",
        /// A block known by the dedup table only.
        49 => DeduplicatedBlock "deduplicated block",
        /// ZAP: birth txgs to lists of dead blocks.
        50 => DeadlistMap "DSL deadlist map",
        /// Bonus of the same.
        51 => DeadlistHeader "DSL deadlist map hdr",
        /// ZAP: clones below a directory.
        52 => DslClones "DSL dir clones",
        /// Object numbers of further block pointer lists.
        53 => BlockPointerSublist "bpobj subobj",
        /// Bytes, data.
        0x80 => BytesData "uint8",
        /// Bytes, metadata.
        0xc0 => BytesMetadata "uint8",
        /// 16-bit words, data.
        0x81 => Words16Data "uint16",
        /// 16-bit words, metadata.
        0xc1 => Words16Metadata "uint16",
        /// 32-bit words, data.
        0x82 => Words32Data "uint32",
        /// 32-bit words, metadata.
        0xc2 => Words32Metadata "uint32",
        /// 64-bit words, data.
        0x83 => Words64Data "uint64",
        /// 64-bit words, metadata.
        0xc3 => Words64Metadata "uint64",
        /// ZAP, data.
        0x84 => ZapData "zap",
        /// ZAP, metadata.
        0xc4 => ZapMetadata "zap",
        /// Bytes, data, encrypted.
        0xa0 => BytesEncryptedData "uint8",
        /// Bytes, metadata, encrypted.
        0xe0 => BytesEncryptedMetadata "uint8",
        /// 16-bit words, data, encrypted.
        0xa1 => Words16EncryptedData "uint16",
        /// 16-bit words, metadata, encrypted.
        0xe1 => Words16EncryptedMetadata "uint16",
        /// 32-bit words, data, encrypted.
        0xa2 => Words32EncryptedData "uint32",
        /// 32-bit words, metadata, encrypted.
        0xe2 => Words32EncryptedMetadata "uint32",
        /// 64-bit words, data, encrypted.
        0xa3 => Words64EncryptedData "uint64",
        /// 64-bit words, metadata, encrypted.
        0xe3 => Words64EncryptedMetadata "uint64",
        /// ZAP, data, encrypted.
        0xa4 => ZapEncryptedData "zap",
        /// ZAP, metadata, encrypted.
        0xe4 => ZapEncryptedMetadata "zap",
    }
}

/// How the bytes of an object are arranged, as far as byte order is concerned.
#[doc(alias = "dmu_object_byteswap_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// No numbers, or numbers whose order the bytes themselves tell.
    Bytes,
    /// 16-bit words.
    Words16,
    /// 32-bit words.
    Words32,
    /// 64-bit words.
    Words64,
    /// A ZAP block, which says its order by its first word.
    Zap,
    /// Dnodes.
    Dnode,
    /// An object set.
    Objset,
    /// An old znode.
    Znode,
    /// An ACL of ZPL version 1.
    OldAcl,
    /// An ACL.
    Acl,
}

impl ObjectType {
    /// True for a type that says what it is by its bits.
    pub const fn is_new_style(self) -> bool {
        self.code() & 0x80 != 0
    }

    /// True for everything that is not content of files and volumes.
    #[doc(alias = "DMU_OT_IS_METADATA")]
    pub const fn is_metadata(self) -> bool {
        use ObjectType::*;
        if self.is_new_style() {
            return self.code() & 0x40 != 0;
        }
        !matches!(
            self,
            PlainFile | Zvol | OtherBytes | OtherWords | DeduplicatedBlock
        )
    }

    /// True for what an encrypted dataset encrypts; the rest it only authenticates.
    #[doc(alias = "DMU_OT_IS_ENCRYPTED")]
    pub const fn is_encrypted(self) -> bool {
        use ObjectType::*;
        if self.is_new_style() {
            return self.code() & 0x20 != 0;
        }
        matches!(
            self,
            IntentLog
                | Dnode
                | OldAcl
                | PlainFile
                | Directory
                | DeleteQueue
                | Zvol
                | OtherBytes
                | OtherWords
                | Acl
                | SystemAcl
                | ForeignIdTable
                | UserUsed
                | UserQuota
                | SystemAttributes
                | SaMasterNode
                | SaRegistration
                | SaLayouts
                | DeduplicatedBlock
        )
    }

    /// True where a level-0 block counts more than itself in its pointer's fill: such a block
    /// cannot be embedded.
    #[doc(alias = "DMU_OT_HAS_FILL")]
    pub const fn counts_its_fill(self) -> bool {
        matches!(self, ObjectType::Dnode | ObjectType::Objset)
    }

    /// True where the object is a ZAP.
    pub fn is_zap(self) -> bool {
        self.layout() == Some(Layout::Zap)
    }

    /// How its bytes are arranged; none for an unknown type.
    #[doc(alias = "DMU_OT_BYTESWAP")]
    pub const fn layout(self) -> Option<Layout> {
        use ObjectType::*;
        if self.is_new_style() {
            return match self.code() & 0x1f {
                0 => Some(Layout::Bytes),
                1 => Some(Layout::Words16),
                2 => Some(Layout::Words32),
                3 => Some(Layout::Words64),
                4 => Some(Layout::Zap),
                5 => Some(Layout::Dnode),
                6 => Some(Layout::Objset),
                7 => Some(Layout::Znode),
                8 => Some(Layout::OldAcl),
                9 => Some(Layout::Acl),
                _ => Option::None,
            };
        }
        Some(match self {
            None | PackedNvlist | PlainFile | Zvol | OtherBytes | History | SystemAcl
            | ForeignIdTable | SystemAttributes | DeduplicatedBlock => Layout::Bytes,
            ObjectArray
            | PackedNvlistSize
            | BlockPointerList
            | BlockPointerListHeader
            | SpaceMapHeader
            | SpaceMap
            | IntentLog
            | DslDirectory
            | DslDataset
            | OtherWords
            | HistoryOffsets
            | ForeignIdTableSize
            | DeadlistHeader
            | BlockPointerSublist => Layout::Words64,
            Dnode => Layout::Dnode,
            Objset => Layout::Objset,
            Znode => Layout::Znode,
            OldAcl => Layout::OldAcl,
            Acl => Layout::Acl,
            Unknown(_) => return Option::None,
            _ => Layout::Zap,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_types_say_what_they_are_by_their_bits() {
        assert_eq!(ObjectType::from_code(0xc4), ObjectType::ZapMetadata);
        assert!(ObjectType::ZapMetadata.is_metadata());
        assert!(!ObjectType::ZapMetadata.is_encrypted());
        assert!(ObjectType::ZapMetadata.is_zap());
        assert!(ObjectType::BytesEncryptedData.is_encrypted());
        assert!(!ObjectType::BytesEncryptedData.is_metadata());
    }

    #[test]
    fn every_code_survives() {
        for code in 0..=u8::MAX {
            assert_eq!(ObjectType::from_code(code).code(), code);
        }
    }

    #[test]
    fn types_of_the_closed_list_have_their_layouts() {
        assert_eq!(ObjectType::DslDataset.layout(), Some(Layout::Words64));
        assert_eq!(ObjectType::Directory.layout(), Some(Layout::Zap));
        assert_eq!(ObjectType::SystemAttributes.layout(), Some(Layout::Bytes));
        assert_eq!(ObjectType::from_code(54).layout(), None);
    }
}
