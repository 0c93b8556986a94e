//! How many connections users may have open at a time.
//!
//! # Problem
//! All users may connect, and each connection takes a descriptor of the daemon and, while its call
//! runs, a thread. A user with enough of them would keep commands of root waiting, and mounts from
//! being made.
//!
//! # Mechanism
//! Connections are counted for each user and for all users together. Root and the user that runs
//! the daemon are counted apart: what others do takes nothing of theirs. A connection has a
//! [`Room`]; a call that runs on after its caller hung up keeps it, because it keeps the thread.
//!
//! # Invariants
//! - Users without full rights have an eighth of the daemon's descriptors at most.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The most of one user without full rights. A guess: more than programs run commands
/// side by side.
pub const OF_USER_MAX: usize = 64;

/// So many may all of them have together: a user may have many identities, as those of containers.
pub const OF_OTHERS_MAX: usize = 256;

/// The most of root and the daemon's user together. A guess: far more than commands that wait for a
/// pool that hangs.
pub const OF_OWNERS_MAX: usize = 2048;

/// How many connections there may be, and whose.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// The user that may do everything, beside root.
    pub owner_uid: u32,
    /// Of one other user.
    pub of_user: usize,
    /// Of all other users.
    pub of_others: usize,
    /// Of root and the daemon's user.
    pub of_owners: usize,
}

impl Bounds {
    /// For a daemon of this user that may have so many descriptors.
    pub fn new(owner_uid: u32, descriptors: usize) -> Bounds {
        let of_others = OF_OTHERS_MAX.min(descriptors / 8).max(1);
        Bounds {
            owner_uid,
            of_user: OF_USER_MAX.min(of_others),
            of_others,
            of_owners: OF_OWNERS_MAX.min(descriptors / 4).max(1),
        }
    }

    /// Whether this user may do everything.
    pub fn is_owner(&self, uid: u32) -> bool {
        uid == 0 || uid == self.owner_uid
    }
}

/// Counts connections.
#[derive(Debug)]
pub struct Admission {
    bounds: Bounds,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    of_owners: usize,
    of_others: usize,
    of_user: BTreeMap<u32, usize>,
}

impl Admission {
    /// Without connections.
    pub fn new(bounds: Bounds) -> Arc<Admission> {
        Arc::new(Admission {
            bounds,
            counts: Mutex::default(),
        })
    }

    /// A place for a connection of this user; none while there are too many.
    pub fn admit(self: &Arc<Self>, uid: u32) -> Option<Room> {
        let bounds = &self.bounds;
        let mut counts = self.counts();
        if bounds.is_owner(uid) {
            if counts.of_owners >= bounds.of_owners {
                return None;
            }
            counts.of_owners += 1;
        } else {
            let of_user = counts.of_user.get(&uid).copied().unwrap_or(0);
            if counts.of_others >= bounds.of_others || of_user >= bounds.of_user {
                return None;
            }
            counts.of_others += 1;
            counts.of_user.insert(uid, of_user + 1);
        }
        Some(Room {
            admission: self.clone(),
            uid,
        })
    }

    /// How many connections there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        let counts = self.counts();
        counts.of_owners + counts.of_others
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, Counts> {
        // No thread panics while it holds it.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the connections, until it is dropped.
#[derive(Debug)]
pub struct Room {
    admission: Arc<Admission>,
    uid: u32,
}

impl Room {
    /// Whose it is.
    pub fn uid(&self) -> u32 {
        self.uid
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut counts = self.admission.counts();
        if self.admission.bounds.is_owner(self.uid) {
            counts.of_owners -= 1;
            return;
        }
        counts.of_others -= 1;
        let left = counts.of_user.get(&self.uid).map_or(0, |count| count - 1);
        match left {
            0 => counts.of_user.remove(&self.uid),
            left => counts.of_user.insert(self.uid, left),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: u32 = 1000;

    fn all(admission: &Arc<Admission>, uid: u32) -> Vec<Room> {
        std::iter::from_fn(|| admission.admit(uid)).collect()
    }

    #[test]
    fn others_leave_room_for_root_and_the_owner() {
        let admission = Admission::new(Bounds::new(OWNER, 1 << 20));
        let first = all(&admission, 1);
        assert_eq!(first.len(), OF_USER_MAX);
        let others: Vec<Room> = (2..100).flat_map(|uid| all(&admission, uid)).collect();
        assert_eq!(first.len() + others.len(), OF_OTHERS_MAX);
        assert!(admission.admit(0).is_some() && admission.admit(OWNER).is_some());
        drop(first);
        assert!(admission.admit(1).is_some());
        drop(others);
        assert_eq!(admission.count(), 0);
        assert_eq!(all(&admission, OWNER).len(), OF_OWNERS_MAX);
    }

    #[test]
    fn others_have_a_part_of_few_descriptors() {
        let admission = Admission::new(Bounds::new(OWNER, 80));
        let others: Vec<Room> = (1..100).flat_map(|uid| all(&admission, uid)).collect();
        assert_eq!(others.len(), 10);
    }
}
