//! Credentials: on whose behalf an operation runs, whether privilege overrides permissions, and
//! which checks the caller of `posix` has made.
//!
//! # Mechanism
//! *Privileged* and *already checked* are two statements. A privileged user (root) passes
//! permission checks, and keeps set-id bits that a write takes from others. A front end whose
//! client has checked permissions before the request was sent, as the Linux kernel does for a FUSE
//! mount with `default_permissions`, says so in [`checked`](Credentials::checked), for every user.
//!
//! A front end that has checked nothing, as an NFS server, leaves all of it to `posix`: search
//! permission in every directory that a name is looked up in, read, write and execute permission,
//! the sticky bit, owner-only changes, and set-id bits.

/// On whose behalf an operation runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Whether `groups` has all supplementary groups. Where it may lack some, an access control
    /// entry that denies something to a group denies it to this user.
    pub has_all_groups: bool,
    /// May override permissions, as root may (`CAP_DAC_OVERRIDE`, `CAP_FOWNER` and their kin).
    pub privileged: bool,
    /// What the caller of `posix` has checked before.
    pub checked: CheckedByCaller,
}

/// Which permission checks a front end, or its client, has made before it calls `posix`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckedByCaller {
    /// None: `posix` checks all.
    Nothing,
    /// Those of POSIX: mode bits and POSIX access control lists, the sticky bit, and what only
    /// owners and privileged users may do. The front end also takes set-id bits from files that are
    /// written ([`drop_privileges`](crate::FileSystem::drop_privileges)). `posix` still checks
    /// NFSv4 lists.
    ModeAndPosixAcls,
}

impl Credentials {
    /// Root's, nothing checked before.
    pub fn root() -> Self {
        Credentials {
            privileged: true,
            ..Credentials::user(0, 0, Vec::new())
        }
    }

    /// Those of a user without privileges, nothing checked before.
    pub fn user(uid: u32, gid: u32, groups: Vec<u32>) -> Self {
        Credentials {
            uid,
            gid,
            groups,
            has_all_groups: true,
            privileged: false,
            checked: CheckedByCaller::Nothing,
        }
    }

    /// True when the group is the primary or a supplementary one.
    pub fn is_member(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// True unless the user is known not to be in the group.
    pub fn may_be_member(&self, gid: u32) -> bool {
        !self.has_all_groups || self.is_member(gid)
    }

    /// Whether `posix` skips the rules of POSIX: for privileged users, or since the caller has
    /// checked them.
    pub(crate) fn passes_posix_rules(&self) -> bool {
        self.privileged || self.checked == CheckedByCaller::ModeAndPosixAcls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_whose_groups_are_not_all_known_may_be_in_any() {
        let mut user = Credentials::user(1, 2, vec![3]);
        assert!(user.is_member(2) && user.is_member(3) && !user.is_member(4));
        assert!(!user.may_be_member(4));
        user.has_all_groups = false;
        assert!(!user.is_member(4) && user.may_be_member(4));
    }
}
