//! The entries of a directory's NFSv4 list that a new file inherits (property `aclinherit`).
//!
//! # Mechanism
//! Entries with `file_inherit` go to files, those with `dir_inherit` to directories, which hand
//! both kinds on unless `no_propagate` says not to. `discard` gives none, `noallow` only denials,
//! `restricted` takes `write_acl` and `write_owner` from entries that allow. With these the mode
//! that the program asked for is put around them as `chmod` would. `passthrough` gives them as they
//! are, and where they are about owner@, group@ or everyone@ they make the mode; `passthrough-x`
//! lets a file be executed only where the program asked for an execute bit.

use tarn_ondisk::acl::{AclEntry, AclWho, flag, kind, permission};

use super::chmod::{ModeEntries, with_mode};
use super::{HANDED_DOWN, INHERIT};
use crate::properties::{AclInherit, AclMode};
use crate::types::FileKind;

/// Rights that `restricted` removes from entries that allow.
#[doc(alias = "RESTRICTED_CLEAR")]
const RESTRICTED: u32 = permission::WRITE_ACL | permission::WRITE_OWNER;

/// The list of a new file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InheritedAcl {
    /// Its entries.
    pub entries: Vec<AclEntry>,
    /// Whether the list includes the mode that the program asked for.
    pub has_asked_mode: bool,
}

/// The list of a new file with this mode, type bits included, in a directory with this list.
#[doc(alias("zfs_acl_inherit", "zfs_acl_ids_create"))]
pub(crate) fn inherited(
    parent: &[AclEntry],
    file_kind: FileKind,
    mode: u32,
    acl_inherit: AclInherit,
    acl_mode: AclMode,
) -> InheritedAcl {
    let passes_through = matches!(
        acl_inherit,
        AclInherit::Passthrough | AclInherit::PassthroughX
    );
    let is_directory = file_kind == FileKind::Directory;
    let gives_none = acl_inherit == AclInherit::Discard || file_kind == FileKind::SymbolicLink;
    let mut entries = Vec::new();
    let mut makes_mode = false;
    for entry in parent.iter().filter(|_| !gives_none) {
        let is_denied_kind = acl_inherit == AclInherit::NoAllow && entry.kind == kind::ALLOW;
        if is_denied_kind || !is_for(entry.flags, is_directory) {
            continue;
        }
        let is_of_mode = matches!(entry.who, AclWho::Owner | AclWho::Group | AclWho::Everyone);
        let counts_there = match file_kind {
            FileKind::Regular => true,
            _ => is_directory && entry.flags & flag::DIRECTORY_INHERIT != 0,
        };
        makes_mode |= passes_through && is_of_mode && counts_there;
        entries.push(handed_down(entry, is_directory, mode, acl_inherit));
    }
    // With `aclmode=restricted` the mode does not change inherited entries either.
    let is_left_alone = acl_mode == AclMode::Restricted && !entries.is_empty();
    if makes_mode || is_left_alone {
        return InheritedAcl {
            entries,
            has_asked_mode: false,
        };
    }
    let limits = acl_mode == AclMode::GroupMask && !passes_through;
    InheritedAcl {
        entries: with_mode(&entries, mode, ModeEntries::Kept, limits),
        has_asked_mode: true,
    }
}

/// Whether an entry with these flags goes to a new file or directory.
#[doc(alias = "zfs_ace_can_use")]
fn is_for(flags: u16, is_directory: bool) -> bool {
    let (files, directories) = (
        flags & flag::FILE_INHERIT != 0,
        flags & flag::DIRECTORY_INHERIT != 0,
    );
    match is_directory {
        true => directories || (files && flags & flag::NO_PROPAGATE == 0),
        false => files,
    }
}

/// An entry as the new file has it.
fn handed_down(
    entry: &AclEntry,
    is_directory: bool,
    mode: u32,
    acl_inherit: AclInherit,
) -> AclEntry {
    let mut entry = *entry;
    if entry.kind == kind::ALLOW {
        match acl_inherit {
            AclInherit::PassthroughX if !is_directory && mode & 0o111 == 0 => {
                entry.mask &= !permission::EXECUTE;
            }
            AclInherit::Restricted => entry.mask &= !RESTRICTED,
            _ => {}
        }
    }
    if !is_directory || entry.flags & flag::NO_PROPAGATE != 0 {
        entry.flags &= !INHERIT;
    } else if entry.flags & HANDED_DOWN == flag::FILE_INHERIT {
        entry.flags |= flag::INHERIT_ONLY;
    } else {
        entry.flags &= !flag::INHERIT_ONLY;
    }
    entry.flags |= flag::INHERITED;
    debug_assert!(
        is_directory || entry.flags & INHERIT == 0,
        "a file hands nothing down"
    );
    entry
}
