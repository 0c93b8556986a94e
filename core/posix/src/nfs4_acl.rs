//! NFSv4 access control lists: what they grant and deny (`acltype=nfsv4`).
//!
//! # Mechanism
//! Every file has a list of entries, each of which allows or denies rights to owner, group,
//! everyone, or a named user or group. For each right that is asked for, the first entry with that
//! right for that user decides; a right without an entry is refused. A *trivial* list is made from
//! the mode and says the same; where a file has the flag of one, the mode decides. Of every other
//! list the mode is made: it shows what owner@, group@ and everyone@ may do.
//!
//! The owner may always read and change the list and the attributes. A privileged user passes.
//!
//! Removing a name asks two lists: `delete_child` of the directory and `delete` of the file. Either
//! allows it; with neither, a directory that denies `delete_child` refuses, and otherwise
//! permission to write into the directory decides. The sticky bit comes on top.
//!
//! Files: `chmod` (property `aclmode`), `inherit` (property `aclinherit`), `wire` (the extended
//! attribute `system.nfs4_acl`).
//!
//! # Invariants
//! - Entries for users and groups of Windows domains are kept, and match no user.

pub(crate) mod chmod;
pub(crate) mod inherit;
pub(crate) mod wire;

use tarn_object::Tx;
use tarn_ondisk::acl::{
    AclEntry, AclVersion, AclWho, ENTRY_COUNT_MAX, decode_entries, encode_entries,
    encode_initial_entries, flag, kind, permission,
};
use tarn_ondisk::attributes::FileAttribute;
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::fuid::Fuid;
use tarn_ondisk::intent_log::LoggedAcl;
use tarn_ondisk::znode::ZnodeFlags;
use tarn_probe::Operation;

use crate::acl::trivial_entries;
use crate::error::PosixError;
use crate::facts::{Facts, Form};
use crate::filesystem::FileSystem;
use crate::node::Node;
use crate::ops::access::may_override;
use crate::tables::AttributeTables;
use crate::types::Credentials;

/// Rights that the owner has whatever the list says.
const ALWAYS_OWNERS: u32 = permission::READ_ACL
    | permission::WRITE_ACL
    | permission::READ_ATTRIBUTES
    | permission::WRITE_ATTRIBUTES;

/// Flags of inheritance.
pub(crate) const INHERIT: u16 =
    flag::FILE_INHERIT | flag::DIRECTORY_INHERIT | flag::NO_PROPAGATE | flag::INHERIT_ONLY;

/// Flags of entries that new files inherit.
const HANDED_DOWN: u16 = flag::FILE_INHERIT | flag::DIRECTORY_INHERIT;

/// In records of the intent log, a flag of lists that are inherited automatically.
#[doc(alias = "ACL_AUTO_INHERIT")]
pub(crate) const LIST_FOLLOWS: u64 = 0x1;

/// The result of looking for rights in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Denied by an entry.
    pub denied: u32,
    /// Neither allowed nor denied.
    pub unmentioned: u32,
}

impl Verdict {
    /// Whether all of them are allowed.
    pub fn allows(self) -> bool {
        self.denied == 0 && self.unmentioned == 0
    }
}

/// Looks for these rights of a user in a list. The first entry with a right decides.
#[doc(alias = "zfs_zaccess_aces_check")]
pub(crate) fn verdict(
    entries: &[AclEntry],
    credentials: &Credentials,
    (owner, group): (Fuid, Fuid),
    wanted: u32,
) -> Verdict {
    let mut verdict = Verdict {
        denied: 0,
        unmentioned: wanted,
    };
    for entry in entries {
        let about = entry.mask & verdict.unmentioned;
        let denies = match entry.kind {
            kind::ALLOW => false,
            kind::DENY => true,
            _ => continue,
        };
        let counts = about != 0 && entry.flags & flag::INHERIT_ONLY == 0;
        if counts && is_about(entry.who, denies, credentials, (owner, group)) {
            verdict.unmentioned &= !about;
            verdict.denied |= if denies { about } else { 0 };
        }
    }
    debug_assert_eq!(verdict.denied & verdict.unmentioned, 0);
    verdict
}

/// Whether an entry applies to a user. A denial applies where the user may be in its group.
fn is_about(
    who: AclWho,
    denies: bool,
    credentials: &Credentials,
    (owner, group): (Fuid, Fuid),
) -> bool {
    let is_user = |fuid: Fuid| fuid.as_posix() == Some(credentials.uid);
    let is_member = |fuid: Fuid| {
        fuid.as_posix().is_some_and(|gid| match denies {
            true => credentials.may_be_member(gid),
            false => credentials.is_member(gid),
        })
    };
    match who {
        AclWho::Owner => is_user(owner),
        AclWho::Group => is_member(group),
        AclWho::Everyone => true,
        AclWho::User(fuid) => is_user(Fuid::from_word(fuid)),
        AclWho::NamedGroup(fuid) => is_member(Fuid::from_word(fuid)),
    }
}

/// The permission bits of a list for a file of this owner and group, and whether no user is denied
/// execution.
#[doc(alias = "zfs_mode_compute")]
pub(crate) fn permission_bits(entries: &[AclEntry], (owner, group): (Fuid, Fuid)) -> (u32, bool) {
    let (mut seen, mut mode) = (0_u32, 0_u32);
    let mut is_execution_denied = false;
    for entry in entries {
        if entry.flags & flag::INHERIT_ONLY != 0 || !matches!(entry.kind, kind::ALLOW | kind::DENY)
        {
            continue;
        }
        let classes: u32 = match entry.who {
            AclWho::Owner => 0o700,
            AclWho::Group => 0o070,
            AclWho::Everyone => 0o777,
            AclWho::User(fuid) if fuid == owner.word() => 0o700,
            AclWho::NamedGroup(fuid) if fuid == group.word() => 0o070,
            AclWho::User(_) | AclWho::NamedGroup(_) => {
                let executes = entry.mask & permission::EXECUTE != 0;
                is_execution_denied |= entry.kind == kind::DENY && executes;
                continue;
            }
        };
        for (right, bits) in [
            (permission::READ_DATA, 0o444),
            (permission::WRITE_DATA, 0o222),
            (permission::EXECUTE, 0o111),
        ] {
            if entry.mask & right != 0 {
                let new = bits & classes & !seen;
                seen |= new;
                mode |= if entry.kind == kind::ALLOW { new } else { 0 };
            }
        }
    }
    let all_execute = mode & 0o111 == 0o111;
    (mode, all_execute && !is_execution_denied)
}

/// Gives a file a list, and the permission bits of that list. Flags of the list stay.
///
/// # Errors
/// `NotSupported` for a list that the structure of a file from before ZPL version 5 has no room
/// for.
#[doc(alias = "zfs_aclset_common")]
pub(crate) fn set_acl(
    facts: &mut Facts,
    entries: &[AclEntry],
    tables: &AttributeTables,
    tx: &Tx,
    operation: &Operation,
) -> Result<(), PosixError> {
    assert!(entries.len() <= ENTRY_COUNT_MAX, "longer lists are refused");
    let (permissions, executes) = permission_bits(entries, (facts.owner, facts.group));
    facts.mode = (facts.mode & !0o777) | permissions;
    match facts.form {
        Form::Attributes => {
            let count = u64::try_from(entries.len()).unwrap_or_default();
            let (count, list) = (count.to_le_bytes().to_vec(), encode_entries(entries));
            facts.set_value(FileAttribute::AclCount, count, tables, tx, operation)?;
            facts.set_value(FileAttribute::AclEntries, list, tables, tx, operation)?;
        }
        Form::OldFile { .. } => facts.set_old_acl(entries, &tables.current())?,
    }
    let has = |is_it: &dyn Fn(&AclEntry) -> bool| entries.iter().any(is_it);
    for (flag, is_set) in [
        (
            ZnodeFlags::ACL_TRIVIAL,
            entries == trivial_entries(facts.mode),
        ),
        (
            ZnodeFlags::INHERITED_ENTRIES,
            facts.is_directory() && has(&|entry| entry.flags & HANDED_DOWN != 0),
        ),
        (
            ZnodeFlags::ACL_OBJECT_ENTRIES,
            has(&|entry| entry.object_types.is_some()),
        ),
        (ZnodeFlags::NO_EXECUTE_DENIED, executes),
    ] {
        facts.flags = match is_set {
            true => facts.flags.and(flag),
            false => facts.flags.without(flag),
        };
    }
    Ok(())
}

/// A list in the form of the intent log; none where it names users of Windows domains or object
/// types, which need further fields of the record.
#[doc(alias = "zfs_log_acl")]
pub(crate) fn logged_acl(entries: &[AclEntry]) -> Option<LoggedAcl> {
    let is_posix = |entry: &AclEntry| match entry.who.fuid() {
        Some(fuid) => Fuid::from_word(fuid).as_posix().is_some(),
        None => true,
    };
    let encoded = entries
        .iter()
        .all(is_posix)
        .then(|| encode_initial_entries(entries));
    Some(LoggedAcl {
        entry_count: u64::try_from(entries.len()).ok()?,
        entries: encoded.flatten()?,
        ..LoggedAcl::default()
    })
}

impl FileSystem {
    /// The NFSv4 list of a file.
    pub(crate) fn nfs4_acl(
        &self,
        node: &Node,
        facts: &Facts,
        operation: &Operation,
    ) -> Result<Vec<AclEntry>, PosixError> {
        if facts.flags.has(ZnodeFlags::ACL_TRIVIAL) {
            return Ok(trivial_entries(facts.mode));
        }
        if facts.form != Form::Attributes {
            return self.old_entries(node.id, facts, operation);
        }
        match facts.value(FileAttribute::AclEntries, &self.tables.current()) {
            None => Ok(trivial_entries(facts.mode)),
            Some(bytes) => {
                let decoded = decode_entries(bytes, ByteOrder::Little, AclVersion::Fuid);
                decoded.map_err(|what| PosixError::Attributes {
                    object: node.id,
                    what,
                })
            }
        }
    }

    /// Refuses rights that the NFSv4 list of a file does not allow.
    ///
    /// # Errors
    /// `PermissionDenied`, or a list that could not be read.
    #[doc(alias = "zfs_zaccess")]
    pub(crate) fn check_nfs4(
        &self,
        credentials: &Credentials,
        node: &Node,
        wanted: u32,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        let facts = node.facts();
        let is_searched = wanted == permission::EXECUTE && facts.is_directory();
        if is_searched && facts.flags.has(ZnodeFlags::NO_EXECUTE_DENIED) {
            // A shortcut: each step of a path asks this, and most directories can be searched by
            // all.
            return Ok(());
        }
        let is_allowed = match credentials.privileged {
            true => may_override(&facts, wanted & permission::EXECUTE != 0),
            false => self
                .nfs4_verdict(credentials, node, wanted, operation)?
                .allows(),
        };
        match is_allowed {
            true => Ok(()),
            false => Err(PosixError::PermissionDenied),
        }
    }

    /// Looks for these rights in the NFSv4 list of a file, and in those that every owner has.
    fn nfs4_verdict(
        &self,
        credentials: &Credentials,
        node: &Node,
        wanted: u32,
        operation: &Operation,
    ) -> Result<Verdict, PosixError> {
        let facts = node.facts();
        let is_owner = facts.owner.as_posix() == Some(credentials.uid);
        let wanted = match is_owner {
            true => wanted & !ALWAYS_OWNERS,
            false => wanted,
        };
        let entries = self.nfs4_acl(node, &facts, operation)?;
        Ok(verdict(
            &entries,
            credentials,
            (facts.owner, facts.group),
            wanted,
        ))
    }

    /// Refuses to remove a file from a directory: by the lists of both.
    #[doc(alias = "zfs_zaccess_delete")]
    pub(crate) fn check_nfs4_delete(
        &self,
        credentials: &Credentials,
        directory: &Node,
        file: &Node,
        operation: &Operation,
    ) -> Result<(), PosixError> {
        self.check_nfs4(credentials, directory, permission::EXECUTE, operation)?;
        if credentials.privileged {
            return Ok(());
        }
        let wanted = permission::DELETE_CHILD;
        let of_directory = self.nfs4_verdict(credentials, directory, wanted, operation)?;
        if of_directory.allows() {
            return Ok(());
        }
        let of_file = self.nfs4_verdict(credentials, file, permission::DELETE, operation)?;
        if of_file.allows() {
            return Ok(());
        }
        if of_directory.denied != 0 {
            return Err(PosixError::PermissionDenied);
        }
        self.check_nfs4(credentials, directory, permission::WRITE_DATA, operation)
    }
}

#[cfg(test)]
mod tests;
