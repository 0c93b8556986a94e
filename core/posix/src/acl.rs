//! Trivial NFSv4 lists, which follow from the mode, and POSIX access control lists.
//!
//! # Mechanism
//! Every file has an NFSv4 list. Where the mode decides about access, the list is a *trivial* one
//! that is made from the mode: it allows owner, group and everyone their bits, and denies the owner
//! or the group what a class behind it is allowed and it is not. Other lists are the subject of
//! `nfs4_acl`.
//!
//! With `acltype=posix` a file may have a POSIX list beside it, and a directory a default list for
//! new files within. They are stored as extended attributes in the form of Linux: a version, and
//! entries of tag, permissions and id. The three classes of the mode are in the list as well; the
//! group's bits of the mode are then the list's mask.

use tarn_ondisk::acl::{AclEntry, AclWho, kind, permission};

use crate::error::PosixError;
use crate::types::Credentials;

/// The attribute of a file's own POSIX list.
pub(crate) const ACCESS_NAME: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory's default list, for new files within.
pub(crate) const DEFAULT_NAME: &[u8] = b"system.posix_acl_default";

/// The entries of the trivial list of a mode.
#[doc(alias("acl_trivial_access_masks", "zfs_acl_chmod"))]
pub(crate) fn trivial_entries(mode: u32) -> Vec<AclEntry> {
    const EVERYONE: u32 = permission::READ_ACL
        | permission::READ_ATTRIBUTES
        | permission::READ_XATTRS
        | permission::SYNCHRONIZE;
    const OWNER: u32 = EVERYONE
        | permission::WRITE_ATTRIBUTES
        | permission::WRITE_OWNER
        | permission::WRITE_ACL
        | permission::WRITE_XATTRS;
    let is_directory = mode & 0o170_000 == 0o040_000;
    let rights = |bits: u32| {
        let mut rights = 0;
        if bits & 4 != 0 {
            rights |= permission::READ_DATA;
        }
        if bits & 2 != 0 {
            rights |= permission::WRITE_DATA | permission::APPEND_DATA;
            if is_directory {
                rights |= permission::DELETE_CHILD;
            }
        }
        if bits & 1 != 0 {
            rights |= permission::EXECUTE;
        }
        rights
    };
    let (owner, group, other) = ((mode >> 6) & 7, (mode >> 3) & 7, mode & 7);
    // Bits that the owner is allowed although the group is denied them below, bits that the owner
    // is denied, and bits that the group is denied.
    let allowed_first = owner & !group & other;
    let owner_denied = !owner & (group | other);
    let group_denied = !group & other;
    let entry = |kind, mask, who| AclEntry {
        kind,
        flags: 0,
        mask,
        who,
        object_types: None,
    };
    let mut entries = Vec::new();
    if allowed_first != 0 {
        entries.push(entry(kind::ALLOW, rights(allowed_first), AclWho::Owner));
    }
    if owner_denied != 0 {
        entries.push(entry(kind::DENY, rights(owner_denied), AclWho::Owner));
    }
    if group_denied != 0 {
        entries.push(entry(kind::DENY, rights(group_denied), AclWho::Group));
    }
    entries.push(entry(kind::ALLOW, OWNER | rights(owner), AclWho::Owner));
    entries.push(entry(kind::ALLOW, EVERYONE | rights(group), AclWho::Group));
    entries.push(entry(
        kind::ALLOW,
        EVERYONE | rights(other),
        AclWho::Everyone,
    ));
    assert!(
        (3..=6).contains(&entries.len()),
        "a mode has three entries that allow, and at most three before them"
    );
    entries
}

/// The principal of an entry of a POSIX list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tag {
    Owner,
    User,
    Group,
    NamedGroup,
    Mask,
    Other,
}

impl Tag {
    const ALL: [(Tag, u16); 6] = [
        (Tag::Owner, 0x01),
        (Tag::User, 0x02),
        (Tag::Group, 0x04),
        (Tag::NamedGroup, 0x08),
        (Tag::Mask, 0x10),
        (Tag::Other, 0x20),
    ];

    fn from_number(number: u16) -> Option<Tag> {
        Tag::ALL
            .iter()
            .find(|(_, other)| *other == number)
            .map(|(tag, _)| *tag)
    }

    fn number(self) -> u16 {
        Tag::ALL
            .iter()
            .find(|(tag, _)| *tag == self)
            .map_or(0, |(_, number)| *number)
    }
}

/// An entry of a POSIX list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PosixAclEntry {
    pub tag: Tag,
    /// 4 to read, 2 to write, 1 to execute.
    pub permissions: u32,
    /// The user or group, where the tag has one.
    pub id: u32,
}

/// A POSIX list. It has each of owner, group and others once, and a mask if it names a user or
/// group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PosixAcl {
    entries: Vec<PosixAclEntry>,
}

impl PosixAcl {
    const VERSION: u32 = 2;
    const ENTRY_SIZE: usize = 8;

    /// From the value of its attribute.
    pub fn decode(bytes: &[u8]) -> Result<PosixAcl, PosixError> {
        let invalid = || PosixError::Invalid("not a POSIX access control list");
        let (version, rest) = bytes.split_first_chunk::<4>().ok_or_else(invalid)?;
        let (chunks, tail) = rest.as_chunks::<{ PosixAcl::ENTRY_SIZE }>();
        if u32::from_le_bytes(*version) != PosixAcl::VERSION || !tail.is_empty() {
            return Err(invalid());
        }
        let mut entries = Vec::with_capacity(chunks.len());
        for &[tag_low, tag_high, bits_low, bits_high, id @ ..] in chunks {
            let tag =
                Tag::from_number(u16::from_le_bytes([tag_low, tag_high])).ok_or_else(invalid)?;
            let permissions = u32::from(u16::from_le_bytes([bits_low, bits_high]));
            if permissions & !7 != 0 {
                return Err(invalid());
            }
            entries.push(PosixAclEntry {
                tag,
                permissions,
                id: u32::from_le_bytes(id),
            });
        }
        let acl = PosixAcl { entries };
        if acl.is_whole() {
            Ok(acl)
        } else {
            Err(invalid())
        }
    }

    /// As [`decode`](Self::decode); none for a list without entries, which removes the list.
    pub fn decode_or_empty(bytes: &[u8]) -> Result<Option<PosixAcl>, PosixError> {
        match bytes.is_empty() || bytes == PosixAcl::VERSION.to_le_bytes() {
            true => Ok(None),
            false => PosixAcl::decode(bytes).map(Some),
        }
    }

    fn is_whole(&self) -> bool {
        let count = |tag| self.entries.iter().filter(|entry| entry.tag == tag).count();
        let names = count(Tag::User) + count(Tag::NamedGroup);
        let is_sorted = self.entries.is_sorted_by_key(|entry| entry.tag);
        let each_once = [Tag::Owner, Tag::Group, Tag::Other]
            .iter()
            .all(|tag| count(*tag) == 1);
        is_sorted && each_once && count(Tag::Mask) <= 1 && (names == 0 || count(Tag::Mask) == 1)
    }

    /// The value of its attribute.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = PosixAcl::VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend(entry.tag.number().to_le_bytes());
            bytes.extend(
                u16::try_from(entry.permissions)
                    .unwrap_or_default()
                    .to_le_bytes(),
            );
            let has_id = matches!(entry.tag, Tag::User | Tag::NamedGroup);
            let id = if has_id { entry.id } else { u32::MAX };
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    fn of(&self, tag: Tag) -> Option<u32> {
        self.entries
            .iter()
            .find(|entry| entry.tag == tag)
            .map(|entry| entry.permissions)
    }

    /// The permission bits of the list, and whether it has entries that those bits cannot express.
    #[doc(alias = "posix_acl_equiv_mode")]
    pub fn mode_bits(&self) -> (u32, bool) {
        let bits = |tag| self.of(tag).unwrap_or(0);
        let group = self.of(Tag::Mask).unwrap_or_else(|| bits(Tag::Group));
        let says_more = self.entries.len() > 3;
        (
            (bits(Tag::Owner) << 6) | (group << 3) | bits(Tag::Other),
            says_more,
        )
    }

    /// The list after the permission bits of its file were set.
    #[doc(alias = "posix_acl_chmod")]
    pub fn with_mode(&self, permissions: u32) -> PosixAcl {
        let has_mask = self.of(Tag::Mask).is_some();
        let mut acl = self.clone();
        for entry in &mut acl.entries {
            match entry.tag {
                Tag::Owner => entry.permissions = (permissions >> 6) & 7,
                Tag::Mask => entry.permissions = (permissions >> 3) & 7,
                Tag::Group if !has_mask => entry.permissions = (permissions >> 3) & 7,
                Tag::Other => entry.permissions = permissions & 7,
                _ => {}
            }
        }
        acl
    }

    /// The list of a new file with these permission bits in a directory whose default list this is.
    #[doc(alias = "posix_acl_create_masq")]
    pub fn inherited(&self, permissions: u32) -> PosixAcl {
        let (bits, _) = self.mode_bits();
        self.with_mode(bits & permissions)
    }

    /// Whether it grants the rights (4 read, 2 write, 1 execute) to these credentials, where
    /// `owner` and `group` are the file's.
    #[doc(alias = "posix_acl_permission")]
    pub fn grants(&self, credentials: &Credentials, owner: u32, group: u32, wanted: u32) -> bool {
        let mask = self.of(Tag::Mask).unwrap_or(7);
        let has = |permissions: u32| permissions & wanted == wanted;
        let of = |tag| self.of(tag).unwrap_or(0);
        if credentials.uid == owner {
            return has(of(Tag::Owner));
        }
        let named = |entry: &&PosixAclEntry| entry.tag == Tag::User && entry.id == credentials.uid;
        if let Some(entry) = self.entries.iter().find(named) {
            return has(entry.permissions & mask);
        }
        let groups = self.entries.iter().filter(|entry| match entry.tag {
            Tag::Group => credentials.is_member(group),
            Tag::NamedGroup => credentials.is_member(entry.id),
            _ => false,
        });
        let mut is_in_any = false;
        for entry in groups {
            is_in_any = true;
            if has(entry.permissions & mask) {
                return true;
            }
        }
        !is_in_any && has(of(Tag::Other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn someone(uid: u32, gid: u32) -> Credentials {
        Credentials::user(uid, gid, Vec::new())
    }

    /// The list that the fixture `basic` has on a directory, as OpenZFS stored it.
    const GOLDEN: [u8; 44] = [
        2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 7, 0, 0xd2, 4, 0, 0, 4, 0, 7, 0, 255,
        255, 255, 255, 8, 0, 4, 0, 0x37, 0, 0, 0, 16, 0, 7, 0, 255, 255, 255, 255,
    ];

    fn golden() -> PosixAcl {
        let others = [32, 0, 7, 0, 255, 255, 255, 255];
        PosixAcl::decode(&[&GOLDEN[..], &others].concat()).expect("OpenZFS wrote it")
    }

    #[test]
    fn a_list_of_openzfs_is_read_and_written_back() {
        assert!(
            PosixAcl::decode(&GOLDEN).is_err(),
            "without others it is not whole"
        );
        let acl = golden();
        assert_eq!(acl.encode()[..44], GOLDEN);
        assert_eq!(acl.mode_bits(), (0o777, true));
        assert_eq!(acl.with_mode(0o750).mode_bits(), (0o750, true));
    }

    #[test]
    fn the_first_entry_that_is_about_somebody_decides() {
        let acl = golden().with_mode(0o740);
        assert!(acl.grants(&someone(1, 1), 1, 1, 7));
        assert!(
            acl.grants(&someone(1234, 9), 1, 1, 4),
            "named, and within the mask"
        );
        assert!(
            !acl.grants(&someone(1234, 9), 1, 1, 2),
            "the mask limits him"
        );
        assert!(acl.grants(&someone(5, 55), 1, 1, 4), "of a named group");
        assert!(
            !acl.grants(&someone(5, 6), 1, 1, 4),
            "others may do nothing"
        );
    }

    #[test]
    fn a_trivial_list_denies_where_those_further_away_may_more() {
        let plain = trivial_entries(0o100_644);
        assert_eq!(plain.len(), 3);
        assert!(plain.iter().all(|entry| entry.kind == kind::ALLOW));
        let masks: Vec<u32> = plain.iter().map(|entry| entry.mask).collect();
        assert_eq!(masks, [0x1e_019f, 0x12_0089, 0x12_0089]);
        let kinds = |mode| {
            let entries = trivial_entries(mode);
            entries
                .iter()
                .map(|entry| (entry.kind, entry.who))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            kinds(0o100_604)[..2],
            [(kind::ALLOW, AclWho::Owner), (kind::DENY, AclWho::Group)]
        );
        assert_eq!(kinds(0o100_066)[0], (kind::DENY, AclWho::Owner));
        assert_eq!(kinds(0o040_755).len(), 3);
    }
}
