//! Users and groups as this machine knows them: names for numbers, and numbers for names.
//!
//! # Mechanism
//! The C library is asked, since only it knows where a machine has its users from. It may wait for
//! a server; no lock is held meanwhile. A simulated machine has no users.

use crate::host::Host;
use std::ffi::{CStr, CString};
use std::ptr;

/// The most that the library is given to put an answer into. A guess: a group of many thousand
/// members fits.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// What it is given first.
const ANSWER_BYTES: usize = 4 << 10;
/// The most groups of one user that are looked at: what Linux allows.
const GROUPS_MAX: usize = 65_536;

/// Whether a name is that of a user or of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccountKind {
    /// A user's.
    User,
    /// A group's.
    Group,
}

impl Host {
    /// The number of the user or group of this name.
    #[doc(alias("getpwnam_r", "getgrnam_r"))]
    pub fn find_account(&self, kind: AccountKind, name: &str) -> Option<u32> {
        match self.simulation().is_some() {
            true => None,
            false => find_account(kind, name),
        }
    }

    /// The name of the user or group of this number.
    #[doc(alias("getpwuid_r", "getgrgid_r"))]
    pub fn account_name(&self, kind: AccountKind, id: u32) -> Option<String> {
        match self.simulation().is_some() {
            true => None,
            false => account_name(kind, id),
        }
    }

    /// Whether a user whose own group is `gid` is in a group.
    #[doc(alias = "getgrouplist")]
    pub fn is_member(&self, uid: u32, gid: u32, group: u32) -> bool {
        if gid == group || self.simulation().is_some() {
            return gid == group;
        }
        let Some(found) = user(Key::Id(uid)) else {
            return false;
        };
        groups_of(&found.name, gid).contains(&group)
    }
}

/// The number that this machine knows a user or group of this name by.
pub fn find_account(kind: AccountKind, name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let found = match kind {
        AccountKind::User => user(Key::Name(&name)),
        AccountKind::Group => group(Key::Name(&name)),
    };
    found.map(|found| found.id)
}

/// The name that this machine knows a user or group by.
pub fn account_name(kind: AccountKind, id: u32) -> Option<String> {
    let found = match kind {
        AccountKind::User => user(Key::Id(id)),
        AccountKind::Group => group(Key::Id(id)),
    };
    found?.name.into_string().ok()
}

/// A user of this machine with all groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// The user's own group.
    pub gid: u32,
    /// All groups, that one among them.
    pub groups: Vec<u32>,
}

/// The user that this machine knows by a name.
pub fn account_of_user(name: &str) -> Option<Account> {
    let name = CString::new(name).ok()?;
    let found = user(Key::Name(&name))?;
    Some(Account {
        uid: found.id,
        gid: found.own_group,
        groups: groups_of(&found.name, found.own_group),
    })
}

/// By what it is looked for.
#[derive(Clone, Copy)]
enum Key<'a> {
    Name(&'a CStr),
    Id(u32),
}

/// What was found.
struct Found {
    id: u32,
    /// A user's own group; a group itself.
    own_group: u32,
    name: CString,
}

/// Calls with more and more room, as long as the library says that its answer does not fit.
fn with_room<T>(ask: impl Fn(&mut [libc::c_char]) -> Result<Option<T>, libc::c_int>) -> Option<T> {
    let mut bytes = ANSWER_BYTES;
    loop {
        let mut room = vec![0; bytes];
        match ask(&mut room) {
            Ok(answer) => return answer,
            Err(libc::EINTR) => {}
            Err(libc::ERANGE) if bytes < ANSWER_BYTES_MAX => bytes *= 2,
            Err(_) => return None,
        }
    }
}

#[allow(unsafe_code)]
fn user(key: Key<'_>) -> Option<Found> {
    with_room(|room| {
        let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
        let mut found: *mut libc::passwd = ptr::null_mut();
        let (place, length) = (room.as_mut_ptr(), room.len());
        // SAFETY: the name ends with a zero; the library writes into `entry`, at most `length`
        // bytes at `place`, and `found`, all of which outlive the call.
        let error = unsafe {
            match key {
                Key::Name(name) => {
                    libc::getpwnam_r(name.as_ptr(), entry.as_mut_ptr(), place, length, &mut found)
                }
                Key::Id(id) => libc::getpwuid_r(id, entry.as_mut_ptr(), place, length, &mut found),
            }
        };
        match (error, found.is_null()) {
            (0, true) => Ok(None),
            // SAFETY: the library has filled `entry`, to which `found` points; its name ends with a
            // zero and lies in `room`.
            (0, false) => Ok(Some(unsafe {
                Found {
                    id: (*found).pw_uid,
                    own_group: (*found).pw_gid,
                    name: CStr::from_ptr((*found).pw_name).to_owned(),
                }
            })),
            (error, _) => Err(error),
        }
    })
}

#[allow(unsafe_code)]
fn group(key: Key<'_>) -> Option<Found> {
    with_room(|room| {
        let mut entry = std::mem::MaybeUninit::<libc::group>::uninit();
        let mut found: *mut libc::group = ptr::null_mut();
        let (place, length) = (room.as_mut_ptr(), room.len());
        // SAFETY: as for users.
        let error = unsafe {
            match key {
                Key::Name(name) => {
                    libc::getgrnam_r(name.as_ptr(), entry.as_mut_ptr(), place, length, &mut found)
                }
                Key::Id(id) => libc::getgrgid_r(id, entry.as_mut_ptr(), place, length, &mut found),
            }
        };
        match (error, found.is_null()) {
            (0, true) => Ok(None),
            // SAFETY: as for users.
            (0, false) => Ok(Some(unsafe {
                Found {
                    id: (*found).gr_gid,
                    own_group: (*found).gr_gid,
                    name: CStr::from_ptr((*found).gr_name).to_owned(),
                }
            })),
            (error, _) => Err(error),
        }
    })
}

/// The groups of a user, his own among them.
#[allow(unsafe_code)]
fn groups_of(name: &CStr, own: u32) -> Vec<u32> {
    let mut room = vec![0; 64];
    loop {
        let mut count = libc::c_int::try_from(room.len()).expect("at most GROUPS_MAX");
        // SAFETY: the name ends with a zero; the library writes at most `count` groups, for which
        // there is room.
        let outcome =
            unsafe { libc::getgrouplist(name.as_ptr(), own, room.as_mut_ptr(), &mut count) };
        let wanted = usize::try_from(count).unwrap_or(0);
        if outcome >= 0 || room.len() >= GROUPS_MAX {
            room.truncate(wanted);
            return room;
        }
        room.resize(wanted.clamp(room.len() * 2, GROUPS_MAX), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::RealOptions;

    #[test]
    fn the_users_of_this_machine_have_names_and_numbers() {
        let host = Host::real(RealOptions::default());
        for kind in [AccountKind::User, AccountKind::Group] {
            assert_eq!(host.find_account(kind, "root"), Some(0));
            assert_eq!(host.account_name(kind, 0).as_deref(), Some("root"));
            assert_eq!(host.find_account(kind, "nobody of this name"), None);
            assert_eq!(host.find_account(kind, "a\0b"), None);
            assert_eq!(host.account_name(kind, 3_999_999_999), None);
        }
        let root = account_of_user("root").expect("each machine has root");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert_eq!(account_of_user("nobody of this name"), None);
        assert!(host.is_member(0, 0, 0));
        assert!(!host.is_member(0, 0, 3_999_999_999));
    }
}
