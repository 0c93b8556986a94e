//! Access control lists, as NFSv4 has them.
//!
//! # Mechanism
//! A list is a row of entries; each allows or denies something to a principal. Two forms are
//! stored:
//!
//! - version 0 (ZPL before 3): entries of 12 bytes, for uids and gids;
//! - version 1: entries of 8 bytes that allow or deny something to owner, group or everyone, of 48
//!   with object types of Windows, of 16 else: those have a [`Fuid`](crate::fuid::Fuid).
//!
//! Up to ZPL version 4 a file has an [`AclPhys`] with room for six short entries, and an object of
//! its own for longer lists. From version 5 on the entries are an attribute, always version 1.

use crate::declare::{ByteOrder, Corrupt, Reader, Stored, Writer, narrow};
use crate::on_disk;
use crate::units::ObjectId;

/// How many bytes of entries an [`AclPhys`] has room for.
#[doc(alias = "ZFS_ACE_SPACE")]
pub const EMBEDDED_SIZE: usize = 72;
/// How many entries a list may have.
#[doc(alias = "MAX_ACL_ENTRIES")]
pub const ENTRY_COUNT_MAX: usize = 1024;

const WHAT: &str = "access control list";

/// The two forms of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AclVersion {
    /// Entries of one size.
    #[doc(alias = "ZFS_ACL_VERSION_INITIAL")]
    Initial,
    /// Entries of several sizes.
    #[doc(alias = "ZFS_ACL_VERSION_FUID")]
    Fuid,
}

on_disk! {
    /// A list in a file's bonus. Fields mean different things by version; see its methods.
    #[doc(alias = "zfs_acl_phys_t")]
    pub struct AclPhys [88 bytes] {
        /// The object of a list that does not fit here, or 0.
        0 => external: ObjectId,
        /// The count of entries in version 0, their size in bytes in version 1.
        8 => count_or_size: u32,
        12 => version: u16,
        /// Unused in version 0, the count of entries in version 1.
        14 => pad_or_count: u16,
        /// The entries, where they fit.
        16 => entries: AclBytes,
    }
}

/// Stored entries, in the byte order of the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclBytes {
    /// The bytes as they were read.
    pub bytes: [u8; EMBEDDED_SIZE],
    /// Their order.
    pub order: ByteOrder,
}

impl Default for AclBytes {
    fn default() -> Self {
        AclBytes {
            bytes: [0; EMBEDDED_SIZE],
            order: ByteOrder::Little,
        }
    }
}

impl Stored for AclBytes {
    const SIZE: usize = EMBEDDED_SIZE;
    const NAME: &'static str = "access control entries";

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(AclBytes {
            bytes: reader.array()?,
            order: reader.order(),
        })
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.bytes(&self.bytes);
    }
}

impl AclPhys {
    /// The form of the entries.
    pub fn version(&self) -> Result<AclVersion, Corrupt> {
        match self.version {
            0 => Ok(AclVersion::Initial),
            1 => Ok(AclVersion::Fuid),
            other => Err(Corrupt::Value {
                what: WHAT,
                field: "version",
                offset: 12,
                found: u64::from(other),
            }),
        }
    }

    /// The size of the entries, in bytes.
    pub fn size(&self) -> Result<u64, Corrupt> {
        let count_or_size = u64::from(self.count_or_size);
        Ok(match self.version()? {
            AclVersion::Initial => 12 * count_or_size,
            AclVersion::Fuid => count_or_size,
        })
    }

    /// The entries that are here; `None` when they are in an object of their own.
    pub fn embedded(&self) -> Result<Option<Vec<AclEntry>>, Corrupt> {
        if !self.external.is_zero() {
            return Ok(None);
        }
        let size = narrow(self.size()?);
        let Some(bytes) = self.entries.bytes.get(..size) else {
            return Err(Corrupt::Inconsistent {
                what: WHAT,
                offset: 8,
                why: "its entries need more room than there is",
            });
        };
        decode_entries(bytes, self.entries.order, self.version()?).map(Some)
    }
}

/// The user, group or class of users of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AclWho {
    /// The file's owner.
    Owner,
    /// The file's group.
    Group,
    /// Everyone.
    Everyone,
    /// The user of this [`Fuid`](crate::fuid::Fuid).
    User(u64),
    /// The group of this [`Fuid`](crate::fuid::Fuid).
    NamedGroup(u64),
}

/// Object types that an entry is limited to, as Windows has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AclObjectTypes {
    /// The type of objects.
    pub object: [u8; 16],
    /// The type of objects that inherit it.
    pub inherited: [u8; 16],
}

/// An entry.
#[doc(alias("zfs_ace_t", "ace_t"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AclEntry {
    /// What it does: 0 allows, 1 denies, 2 audits, 3 alarms; more for Windows.
    pub kind: u16,
    /// [`flag`]s, except those that name a special principal (`OWNER@` and others).
    pub flags: u16,
    /// What it is about: [`permission`]s.
    pub mask: u32,
    /// The user, group or class of users it is for.
    pub who: AclWho,
    /// Object types, where the kind has them.
    pub object_types: Option<AclObjectTypes>,
}

/// Kinds of entries.
pub mod kind {
    /// Allows.
    #[doc(alias = "ACE_ACCESS_ALLOWED_ACE_TYPE")]
    pub const ALLOW: u16 = 0;
    /// Denies.
    #[doc(alias = "ACE_ACCESS_DENIED_ACE_TYPE")]
    pub const DENY: u16 = 1;
    /// Is recorded.
    #[doc(alias = "ACE_SYSTEM_AUDIT_ACE_TYPE")]
    pub const AUDIT: u16 = 2;
    /// Is reported.
    #[doc(alias = "ACE_SYSTEM_ALARM_ACE_TYPE")]
    pub const ALARM: u16 = 3;

    /// True for kinds whose entries, in version 1, have no id where they are about owner, group or
    /// everyone. Those of all other kinds have one, which then says nothing.
    #[doc(alias = "zfs_ace_fuid_size")]
    pub(super) const fn goes_without_id(kind: u16) -> bool {
        matches!(kind, ALLOW | DENY)
    }

    /// True for kinds that have object types.
    pub const fn has_object_types(kind: u16) -> bool {
        matches!(kind, 5..=8)
    }
}

/// Flags of entries.
pub mod flag {
    /// Files made within get it.
    pub const FILE_INHERIT: u16 = 0x1;
    /// Directories made within get it.
    pub const DIRECTORY_INHERIT: u16 = 0x2;
    /// Those that get it do not pass it on.
    pub const NO_PROPAGATE: u16 = 0x4;
    /// It does not count for the directory itself.
    pub const INHERIT_ONLY: u16 = 0x8;
    /// It is about accesses that succeed.
    pub const SUCCESSFUL_ACCESS: u16 = 0x10;
    /// It is about accesses that fail.
    pub const FAILED_ACCESS: u16 = 0x20;
    /// The FUID is a group's.
    pub const IDENTIFIER_GROUP: u16 = 0x40;
    /// It was inherited.
    pub const INHERITED: u16 = 0x80;
    /// It is about the file's owner.
    pub const OWNER: u16 = 0x1000;
    /// With `IDENTIFIER_GROUP`, it is about the file's group.
    pub const GROUP: u16 = 0x2000;
    /// It is about everyone.
    pub const EVERYONE: u16 = 0x4000;
    /// Those that tell the class of users.
    #[doc(alias = "ACE_TYPE_FLAGS")]
    pub const WHO: u16 = OWNER | GROUP | EVERYONE | IDENTIFIER_GROUP;
}

/// What entries are about.
pub mod permission {
    /// To read a file, or list a directory.
    pub const READ_DATA: u32 = 0x1;
    /// To write a file, or add files to a directory.
    pub const WRITE_DATA: u32 = 0x2;
    /// To append to a file, or add directories to a directory.
    pub const APPEND_DATA: u32 = 0x4;
    /// To read extended attributes.
    pub const READ_XATTRS: u32 = 0x8;
    /// To write extended attributes.
    pub const WRITE_XATTRS: u32 = 0x10;
    /// To execute a file, or search a directory.
    pub const EXECUTE: u32 = 0x20;
    /// To remove what is in a directory.
    pub const DELETE_CHILD: u32 = 0x40;
    /// To read attributes.
    pub const READ_ATTRIBUTES: u32 = 0x80;
    /// To write attributes.
    pub const WRITE_ATTRIBUTES: u32 = 0x100;
    /// To remove it.
    pub const DELETE: u32 = 0x1_0000;
    /// To read the list.
    pub const READ_ACL: u32 = 0x2_0000;
    /// To write the list.
    pub const WRITE_ACL: u32 = 0x4_0000;
    /// To give it to another owner.
    pub const WRITE_OWNER: u32 = 0x8_0000;
    /// To use it synchronously.
    pub const SYNCHRONIZE: u32 = 0x10_0000;
}

impl AclWho {
    /// From the flags of an entry, and the FUID, which only some have.
    fn from_flags(
        flags: u16,
        fuid: impl FnOnce() -> Result<u64, Corrupt>,
    ) -> Result<Self, Corrupt> {
        const OWNING_GROUP: u16 = flag::GROUP | flag::IDENTIFIER_GROUP;
        Ok(match flags & flag::WHO {
            flag::OWNER => AclWho::Owner,
            OWNING_GROUP => AclWho::Group,
            flag::EVERYONE => AclWho::Everyone,
            other if other & flag::IDENTIFIER_GROUP != 0 => AclWho::NamedGroup(fuid()?),
            _ => AclWho::User(fuid()?),
        })
    }

    fn flags(self) -> u16 {
        match self {
            AclWho::Owner => flag::OWNER,
            AclWho::Group => flag::GROUP | flag::IDENTIFIER_GROUP,
            AclWho::Everyone => flag::EVERYONE,
            AclWho::User(_) => 0,
            AclWho::NamedGroup(_) => flag::IDENTIFIER_GROUP,
        }
    }

    /// The FUID, where the entry has one.
    pub const fn fuid(self) -> Option<u64> {
        match self {
            AclWho::User(fuid) | AclWho::NamedGroup(fuid) => Some(fuid),
            _ => None,
        }
    }
}

/// Decodes entries. All of `bytes` must be entries.
pub fn decode_entries(
    bytes: &[u8],
    order: ByteOrder,
    version: AclVersion,
) -> Result<Vec<AclEntry>, Corrupt> {
    let mut reader = Reader::new(WHAT, bytes, order);
    let mut entries = Vec::new();
    while !reader.is_at_end() {
        if entries.len() == ENTRY_COUNT_MAX {
            return Err(reader.inconsistent("it has more entries than a list may have"));
        }
        entries.push(match version {
            AclVersion::Initial => decode_initial(&mut reader)?,
            AclVersion::Fuid => decode_fuid(&mut reader)?,
        });
    }
    Ok(entries)
}

fn decode_initial(reader: &mut Reader<'_>) -> Result<AclEntry, Corrupt> {
    let id = reader.u32()?;
    let mask = reader.u32()?;
    let flags = reader.u16()?;
    let kind = reader.u16()?;
    if kind::has_object_types(kind) {
        // This form has no room for them, and an entry without them cannot be stored in the other.
        return Err(reader.bad_value("type of an entry of version 0", 2, u64::from(kind)));
    }
    let who = AclWho::from_flags(flags, || Ok(u64::from(id)))?;
    Ok(AclEntry {
        kind,
        flags: flags & !who.flags(),
        mask,
        who,
        object_types: None,
    })
}

fn decode_fuid(reader: &mut Reader<'_>) -> Result<AclEntry, Corrupt> {
    let kind = reader.u16()?;
    let flags = reader.u16()?;
    let mask = reader.u32()?;
    let who = AclWho::from_flags(flags, || reader.u64())?;
    if who.fuid().is_none() && !kind::goes_without_id(kind) {
        reader.u64()?;
    }
    let object_types = if kind::has_object_types(kind) {
        Some(AclObjectTypes {
            object: reader.array()?,
            inherited: reader.array()?,
        })
    } else {
        None
    };
    Ok(AclEntry {
        kind,
        flags: flags & !who.flags(),
        mask,
        who,
        object_types,
    })
}

/// Encodes entries in version 1, little-endian.
///
/// # Panics
/// When an entry has object types and its kind has none, or the other way round.
pub fn encode_entries(entries: &[AclEntry]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        bytes.extend(entry.kind.to_le_bytes());
        bytes.extend((entry.flags | entry.who.flags()).to_le_bytes());
        bytes.extend(entry.mask.to_le_bytes());
        match entry.who.fuid() {
            Some(fuid) => bytes.extend(fuid.to_le_bytes()),
            None if kind::goes_without_id(entry.kind) => {}
            None => bytes.extend(u64::MAX.to_le_bytes()),
        }
        assert_eq!(
            entry.object_types.is_some(),
            kind::has_object_types(entry.kind),
            "kind and types agree"
        );
        if let Some(types) = entry.object_types {
            bytes.extend(types.object);
            bytes.extend(types.inherited);
        }
    }
    bytes
}

/// Encodes entries in version 0, little-endian. `None` when an entry cannot be stored so.
pub fn encode_initial_entries(entries: &[AclEntry]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for entry in entries {
        let id = match entry.who.fuid() {
            Some(fuid) => u32::try_from(fuid).ok()?,
            // What OpenZFS stores for those without an id.
            None => u32::MAX,
        };
        if entry.object_types.is_some() {
            return None;
        }
        bytes.extend(id.to_le_bytes());
        bytes.extend(entry.mask.to_le_bytes());
        bytes.extend((entry.flags | entry.who.flags()).to_le_bytes());
        bytes.extend(entry.kind.to_le_bytes());
    }
    Some(bytes)
}

/// Turns big-endian entries of version 1 into little-endian ones, as far as there are whole ones.
#[doc(alias = "zfs_acl_byteswap")]
pub(crate) fn turn_entries(bytes: &mut [u8]) {
    let mut rest = bytes;
    while rest.len() >= 8 {
        rest[..2].reverse();
        rest[2..4].reverse();
        rest[4..8].reverse();
        let kind = u16::from_le_bytes([rest[0], rest[1]]);
        let flags = u16::from_le_bytes([rest[2], rest[3]]);
        let has_fuid = AclWho::from_flags(flags, || Ok(0)).is_ok_and(|who| who.fuid().is_some());
        let size = match has_fuid {
            _ if kind::has_object_types(kind) => 48,
            false if kind::goes_without_id(kind) => 8,
            _ => 16,
        };
        if let (true, Some(fuid)) = (has_fuid, rest.get_mut(8..16)) {
            fuid.reverse();
        }
        let size = size.min(rest.len());
        rest = &mut rest[size..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entries() -> Vec<AclEntry> {
        let entry = |who| AclEntry {
            kind: kind::ALLOW,
            flags: flag::FILE_INHERIT,
            mask: permission::READ_DATA,
            who,
            object_types: None,
        };
        vec![
            entry(AclWho::Owner),
            entry(AclWho::Group),
            entry(AclWho::Everyone),
            entry(AclWho::User(1000)),
            entry(AclWho::NamedGroup(1001)),
        ]
    }

    #[test]
    fn entries_survive_both_versions() {
        let bytes = encode_entries(&entries());
        assert_eq!(bytes.len(), 3 * 8 + 2 * 16);
        assert_eq!(
            decode_entries(&bytes, ByteOrder::Little, AclVersion::Fuid),
            Ok(entries())
        );
        let bytes = encode_initial_entries(&entries()).expect("they have short ids");
        assert_eq!(bytes.len(), 5 * 12);
        assert_eq!(
            decode_entries(&bytes, ByteOrder::Little, AclVersion::Initial),
            Ok(entries())
        );
    }

    #[test]
    fn an_entry_for_object_types_has_them() {
        let types = AclObjectTypes {
            object: [1; 16],
            inherited: [2; 16],
        };
        let entry = AclEntry {
            kind: 5,
            object_types: Some(types),
            ..entries()[3]
        };
        let bytes = encode_entries(&[entry]);
        assert_eq!(bytes.len(), 48);
        assert_eq!(
            decode_entries(&bytes, ByteOrder::Little, AclVersion::Fuid),
            Ok(vec![entry])
        );
        assert_eq!(encode_initial_entries(&[entry]), None);
    }

    /// Only what allows or denies does without an id.
    #[test]
    fn an_entry_about_the_owner_has_an_id_where_its_kind_wants_one() {
        let types = AclObjectTypes {
            object: [1; 16],
            inherited: [2; 16],
        };
        for (kind, object_types, size) in [
            (kind::DENY, None, 8),
            (kind::AUDIT, None, 16),
            (kind::ALARM, None, 16),
            (4, None, 16),
            (7, Some(types), 48),
        ] {
            let entry = AclEntry {
                kind,
                object_types,
                ..entries()[0]
            };
            let bytes = encode_entries(&[entry]);
            assert_eq!(bytes.len(), size, "kind {kind}");
            let decoded = decode_entries(&bytes, ByteOrder::Little, AclVersion::Fuid);
            assert_eq!(decoded, Ok(vec![entry]));
        }
    }

    #[test]
    fn a_list_that_does_not_fit_where_it_is_is_refused() {
        let mut list = AclPhys {
            external: ObjectId::ZERO,
            count_or_size: 56,
            version: 1,
            pad_or_count: 5,
            entries: AclBytes::default(),
        };
        list.entries.bytes[..56].copy_from_slice(&encode_entries(&entries()));
        assert_eq!(list.embedded(), Ok(Some(entries())));
        list.count_or_size = 73;
        assert!(list.embedded().is_err());
        list.version = 0;
        list.count_or_size = u32::MAX;
        assert!(list.embedded().is_err());
        list.external = ObjectId::new(9);
        assert_eq!(list.embedded(), Ok(None));
        list.version = 7;
        assert!(list.version().is_err());
    }

    #[test]
    fn entries_turn_with_the_byte_order() {
        let little = encode_entries(&entries());
        let mut big = Vec::new();
        for entry in entries() {
            let bytes = encode_entries(&[entry]);
            for (start, end) in [(0, 2), (2, 4), (4, 8), (8, 16)] {
                let part = bytes.get(start..end).unwrap_or_default();
                big.extend(part.iter().rev());
            }
        }
        assert_eq!(
            decode_entries(&big, ByteOrder::Big, AclVersion::Fuid),
            Ok(entries())
        );
        turn_entries(&mut big);
        assert_eq!(big, little);
    }

    proptest! {
        #[test]
        fn any_bytes_are_entries_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..99)) {
            for version in [AclVersion::Initial, AclVersion::Fuid] {
                let _ = decode_entries(&bytes, ByteOrder::Little, version);
                let _ = decode_entries(&bytes, ByteOrder::Big, version);
            }
            if let Ok(list) = AclPhys::from_short_bytes(&bytes, ByteOrder::Little) {
                let _ = list.embedded();
            }
            turn_entries(&mut bytes);
        }
    }
}
