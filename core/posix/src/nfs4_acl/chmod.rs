//! The NFSv4 list after `chmod` (property `aclmode`).
//!
//! # Mechanism
//! The new mode always gets the entries of a trivial list. Denials of the mode come first and its
//! grants last. With `discard` nothing else stays. With `passthrough` and `groupmask` the entries
//! for named users and groups stay between them; `groupmask` limits what those allow to what the
//! mode gives the group. Entries for owner@, group@ and everyone@ that directories hand down stay
//! as entries that are only handed down. With `restricted` the list of a file must be trivial, or
//! the mode is not changed.

use tarn_ondisk::acl::{AclEntry, AclWho, flag, kind};

use super::HANDED_DOWN;
use crate::acl::trivial_entries;
use crate::properties::AclMode;

/// Whether entries for owner@, group@ and everyone@ stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModeEntries {
    /// The mode replaces them, but for inherit-only ones (`chmod`).
    Replaced,
    /// They stay: they were inherited by a new file.
    Kept,
}

/// The list of a file after it got this mode, type bits included. `limits` says whether entries
/// that allow are limited to what the mode gives the group.
#[doc(alias = "zfs_acl_chmod")]
pub(crate) fn with_mode(
    entries: &[AclEntry],
    mode: u32,
    mode_entries: ModeEntries,
    limits: bool,
) -> Vec<AclEntry> {
    let is_directory = mode & 0o170_000 == 0o040_000;
    let mut first = trivial_entries(mode);
    // The last three entries are those that allow owner, group and everyone their bits.
    let last = first.split_off(first.len() - 3);
    let group_mask = last[1].mask;
    let kept = entries.iter().filter_map(|entry| {
        let mut entry = *entry;
        let is_of_mode = matches!(entry.who, AclWho::Owner | AclWho::Group | AclWho::Everyone);
        if is_of_mode && mode_entries == ModeEntries::Replaced {
            if !is_directory || entry.flags & HANDED_DOWN == 0 {
                return None;
            }
            entry.flags |= flag::INHERIT_ONLY;
        }
        let counts_here = entry.flags & flag::INHERIT_ONLY == 0;
        if limits && entry.kind == kind::ALLOW && counts_here {
            entry.mask &= group_mask;
        }
        Some(entry)
    });
    let mut list = first;
    list.extend(kept);
    list.extend(last);
    assert!(
        (3..=entries.len() + 6).contains(&list.len()),
        "a mode adds three to six entries"
    );
    list
}

/// The list after `chmod` of a file that has this one; none where the property does not let the
/// mode change (`restricted`). `is_trivial` says whether the list is.
#[doc(alias = "zfs_acl_chmod_setattr")]
pub(crate) fn after_chmod(
    entries: &[AclEntry],
    is_trivial: bool,
    mode: u32,
    property: AclMode,
) -> Option<Vec<AclEntry>> {
    let kept: &[AclEntry] = match property {
        AclMode::Discard => &[],
        AclMode::Restricted if !is_trivial => return None,
        AclMode::GroupMask | AclMode::Passthrough | AclMode::Restricted => entries,
    };
    let limits = property == AclMode::GroupMask;
    Some(with_mode(kept, mode, ModeEntries::Replaced, limits))
}
