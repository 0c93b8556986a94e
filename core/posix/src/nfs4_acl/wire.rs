//! The extended attribute `system.nfs4_acl`: an NFSv4 list in the encoding of the Linux NFS client
//! and nfs4-acl-tools.
//!
//! # Mechanism
//! The value is XDR (RFC 4506): the number of entries, then of each the type, the flags and the
//! access mask as 32-bit words, and the principal as a string, padded to four bytes. The principal
//! is `OWNER@`, `GROUP@` or `EVERYONE@`, or a user or group by number, which the flag
//! `IDENTIFIER_GROUP` tells apart. Numbers are shown plain. A principal of a Windows domain is
//! shown as `number@domain`. When a list is set, a domain behind a number is ignored unless it is
//! one of the file system's Windows domains, and a name is looked up on this machine by the caller.
//!
//! # Invariants
//! - [`decode`] gives the same entries that [`encode`] was given.

use tarn_ondisk::acl::{AclEntry, AclWho, ENTRY_COUNT_MAX, flag, kind, permission};
use tarn_ondisk::fuid::{Fuid, FuidTable};

use super::{HANDED_DOWN, INHERIT};
use crate::error::PosixError;

/// The attribute.
pub(crate) const NAME: &[u8] = b"system.nfs4_acl";
/// The longest principal that is taken, in bytes. A guess: names and domains are shorter.
const PRINCIPAL_BYTES_MAX: usize = 1024;

/// How many entries a list may have that is set: a change of the mode adds up to six.
const ENTRY_COUNT_SET_MAX: usize = ENTRY_COUNT_MAX - 6;

/// Flags that an entry may have from outside.
const FLAGS: u16 = INHERIT
    | flag::SUCCESSFUL_ACCESS
    | flag::FAILED_ACCESS
    | flag::IDENTIFIER_GROUP
    | flag::INHERITED;

/// All rights.
const RIGHTS: u32 = permission::READ_DATA
    | permission::WRITE_DATA
    | permission::APPEND_DATA
    | permission::READ_XATTRS
    | permission::WRITE_XATTRS
    | permission::EXECUTE
    | permission::DELETE_CHILD
    | permission::READ_ATTRIBUTES
    | permission::WRITE_ATTRIBUTES
    | permission::DELETE
    | permission::READ_ACL
    | permission::WRITE_ACL
    | permission::WRITE_OWNER
    | permission::SYNCHRONIZE;

/// Rights that RFC 8881 has and the stored form has not (`write_retention`,
/// `write_retention_hold`). They are left out.
const RETENTION: u32 = 0x600;

/// Whether a principal names a user or a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PrincipalKind {
    /// A user's.
    User,
    /// A group's.
    Group,
}

/// The value of the attribute for a list. Entries that the protocol has no type for, those of
/// Windows with object types, are left out.
pub(crate) fn encode(entries: &[AclEntry], domains: &FuidTable) -> Vec<u8> {
    let shown: Vec<&AclEntry> = entries
        .iter()
        .filter(|entry| entry.kind <= kind::ALARM)
        .collect();
    let word = |number: usize| {
        u32::try_from(number)
            .expect("a list is short")
            .to_be_bytes()
    };
    let mut bytes = word(shown.len()).to_vec();
    for entry in shown {
        let is_group = matches!(entry.who, AclWho::Group | AclWho::NamedGroup(_));
        let group_flag = if is_group { flag::IDENTIFIER_GROUP } else { 0 };
        bytes.extend(u32::from(entry.kind).to_be_bytes());
        bytes.extend(u32::from((entry.flags & FLAGS) | group_flag).to_be_bytes());
        bytes.extend((entry.mask & RIGHTS).to_be_bytes());
        let principal = principal_of(entry.who, domains);
        bytes.extend(word(principal.len()));
        bytes.extend(principal.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    assert!(bytes.len().is_multiple_of(4), "XDR is whole words");
    bytes
}

fn principal_of(who: AclWho, domains: &FuidTable) -> String {
    match who {
        AclWho::Owner => "OWNER@".to_string(),
        AclWho::Group => "GROUP@".to_string(),
        AclWho::Everyone => "EVERYONE@".to_string(),
        AclWho::User(word) | AclWho::NamedGroup(word) => {
            let fuid = Fuid::from_word(word);
            match (fuid.as_posix(), domains.domain(fuid.domain())) {
                (Some(id), _) => id.to_string(),
                (None, Some(domain)) => format!("{}@{domain}", fuid.number()),
                (None, None) => format!("{}@domain-{}", fuid.number(), fuid.domain()),
            }
        }
    }
}

/// The list in a value of the attribute, for a directory or another file. `find` looks up users and
/// groups of this machine by name.
///
/// # Errors
/// `Invalid` for a value that is no list, an unknown principal, or flags of inheritance on a file
/// that is no directory.
pub(crate) fn decode(
    bytes: &[u8],
    is_directory: bool,
    domains: &FuidTable,
    find: &dyn Fn(PrincipalKind, &str) -> Option<u32>,
) -> Result<Vec<AclEntry>, PosixError> {
    let mut words = Words { bytes };
    let count = words.next()?;
    let count = usize::try_from(count)
        .ok()
        .filter(|count| (1..=ENTRY_COUNT_SET_MAX).contains(count))
        .ok_or(PosixError::Invalid("an NFSv4 list has 1 to 1018 entries"))?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let (kind, flags, mask) = (words.next()?, words.next()?, words.next()?);
        let principal = words.string()?;
        let (who, flags) = check_entry(kind, flags, mask, principal, is_directory)?;
        entries.push(AclEntry {
            kind: u16::try_from(kind).expect("checked above"),
            flags: flags & !flag::IDENTIFIER_GROUP,
            mask: mask & RIGHTS,
            who: match who {
                Principal::Special(who) => who,
                Principal::Other(kind, text) => {
                    let id = fuid_of(kind, text, domains, find)?.word();
                    match kind {
                        PrincipalKind::User => AclWho::User(id),
                        PrincipalKind::Group => AclWho::NamedGroup(id),
                    }
                }
            },
            object_types: None,
        });
    }
    assert_eq!(entries.len(), count, "each entry was decoded");
    match words.bytes.is_empty() {
        true => Ok(entries),
        false => Err(NOT_A_LIST),
    }
}

const NOT_A_LIST: PosixError = PosixError::Invalid("not an NFSv4 access control list");

/// The principal of an entry, before its number is known.
enum Principal<'a> {
    Special(AclWho),
    Other(PrincipalKind, &'a str),
}

/// Parses an entry, and refuses one that the format does not allow.
fn check_entry(
    kind: u32,
    flags: u32,
    mask: u32,
    principal: &str,
    is_directory: bool,
) -> Result<(Principal<'_>, u16), PosixError> {
    let flags = u16::try_from(flags)
        .ok()
        .filter(|flags| flags & !FLAGS == 0)
        .ok_or(PosixError::Invalid("an entry has flags that there are not"))?;
    if kind > u32::from(kind::ALARM) {
        return Err(PosixError::Invalid("an entry has a type that there is not"));
    }
    if mask & !(RIGHTS | RETENTION) != 0 {
        return Err(PosixError::Invalid(
            "an entry has rights that there are not",
        ));
    }
    let is_handed_down = flags & HANDED_DOWN != 0;
    if flags & INHERIT != 0 && (!is_handed_down || !is_directory) {
        return Err(PosixError::Invalid(
            "entries are handed down by directories, to files or directories",
        ));
    }
    let who = match principal {
        "OWNER@" => Principal::Special(AclWho::Owner),
        "GROUP@" => Principal::Special(AclWho::Group),
        "EVERYONE@" => Principal::Special(AclWho::Everyone),
        text if flags & flag::IDENTIFIER_GROUP != 0 => Principal::Other(PrincipalKind::Group, text),
        text => Principal::Other(PrincipalKind::User, text),
    };
    Ok((who, flags))
}

/// The user or group that a principal names.
fn fuid_of(
    kind: PrincipalKind,
    text: &str,
    domains: &FuidTable,
    find: &dyn Fn(PrincipalKind, &str) -> Option<u32>,
) -> Result<Fuid, PosixError> {
    let (name, domain) = text.split_once('@').unwrap_or((text, ""));
    if let Ok(id) = name.parse::<u32>() {
        let index = domain
            .strip_prefix("domain-")
            .and_then(|index| index.parse().ok());
        return Ok(match index.or_else(|| domains.find(domain)) {
            Some(index) => Fuid::new(index, id),
            None => Fuid::posix(id),
        });
    }
    let found = find(kind, text).or_else(|| find(kind, name));
    found.map(Fuid::posix).ok_or(PosixError::Invalid(
        "an entry names an unknown user or group",
    ))
}

/// Words and strings of XDR, in their order.
struct Words<'a> {
    bytes: &'a [u8],
}

impl<'a> Words<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], PosixError> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(NOT_A_LIST)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn next(&mut self) -> Result<u32, PosixError> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes(bytes.try_into().expect("four bytes")))
    }

    fn string(&mut self) -> Result<&'a str, PosixError> {
        let length = usize::try_from(self.next()?).unwrap_or(usize::MAX);
        if length > PRINCIPAL_BYTES_MAX {
            return Err(NOT_A_LIST);
        }
        let padded = self.take(length.next_multiple_of(4))?;
        std::str::from_utf8(&padded[..length]).map_err(|_| NOT_A_LIST)
    }
}
