//! Whose quota does an object count against? The door [`Ownership`], and counting.
//!
//! # Mechanism
//! A file system counts, by user, group and project, the space of its objects and how many they are. The counts are in three ZAPs beside
//! the meta dnode: a user's space is under his number in hexadecimal, the number of his objects under the same with
//! `obj-` before it. They are brought up to date in the group that stores an object: what the dnode
//! counted for before is taken off, what it counts for now is added. The dnode's flags tell whether it was counted at all, so
//! that a file system from before accounting becomes right object by object.
//!
//! Who owns an object is in its bonus, which only the layer above can read.
//!
//! # Invariants
//! - An object counts its space and one slot, whatever the number of its slots.
//! - The accounting objects themselves, and the meta dnode, count for nobody.

use std::collections::BTreeMap;

use tarn_ondisk::declare::widen;
use tarn_ondisk::dnode::{Dnode, DnodeFlags, SLOT_BYTES};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::error::ObjectError;
use crate::objset::{GROUP_USED, ObjectSet, PROJECT_USED, SetPolicy, USER_USED};
use crate::tx::SyncTx;

/// What the numbers of objects, as opposed to their space, are counted under.
#[doc(alias = "DMU_OBJACCT_PREFIX")]
pub const OBJECT_COUNT_PREFIX: &str = "obj-";

/// Whom an object counts against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// The user's number.
    pub user: u64,
    /// The group's number.
    pub group: u64,
    /// The project's number.
    pub project: u64,
}

/// Tells owners apart. Implemented where the contents of bonuses are known.
pub trait Ownership: Send + Sync {
    /// The owner of an object with this bonus. None for one that counts against nobody. Where the bonus is empty and the
    /// object has a spill block, `bonus` is what that holds.
    fn owner(&self, bonus_type: ObjectType, bonus: &[u8]) -> Option<Owner>;
}

/// Changes of counts, gathered over many objects.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    changes: BTreeMap<(ObjectId, String), i64>,
}

impl Usage {
    /// What a dnode counted for is taken off.
    pub fn remove(&mut self, dnode: &Dnode, owner: Owner, policy: &SetPolicy) {
        self.count(dnode, owner, policy, -1);
    }

    /// What a dnode counts for is added.
    pub fn add(&mut self, dnode: &Dnode, owner: Owner, policy: &SetPolicy) {
        self.count(dnode, owner, policy, 1);
    }

    fn count(&mut self, dnode: &Dnode, owner: Owner, policy: &SetPolicy, sign: i64) {
        let accounts = [
            (USER_USED, owner.user),
            (GROUP_USED, owner.group),
            (PROJECT_USED, owner.project),
        ];
        for (account, id) in accounts {
            if account == PROJECT_USED && !policy.counts_projects {
                continue;
            }
            if dnode.flags.contains(DnodeFlags::USED_ACCOUNTED) {
                let bytes = dnode.used.get().saturating_add(widen(SLOT_BYTES));
                let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
                self.change(account, format!("{id:x}"), sign * bytes);
            }
            if dnode.flags.contains(DnodeFlags::OBJECT_ACCOUNTED) {
                self.change(account, format!("{OBJECT_COUNT_PREFIX}{id:x}"), sign);
            }
        }
    }

    fn change(&mut self, account: ObjectId, key: String, by: i64) {
        let count = self.changes.entry((account, key)).or_default();
        *count = count.saturating_add(by);
    }

    /// Brings the accounting objects up to date.
    pub fn apply(
        self,
        set: &ObjectSet,
        tx: &SyncTx,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        for ((account, key), by) in self.changes {
            let zap = set.account(account, tx, operation)?;
            zap.increment(tx, key.as_bytes(), by)
                .map_err(|why| zap.object().zap_error(why))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_block::{DatasetPolicy, Embedding};
    use tarn_ondisk::units::AllocatedSize;
    use tarn_transform::CompressionAlgorithm;

    #[test]
    fn a_file_that_changes_hands_is_counted_once() {
        let blocks = DatasetPolicy::of_mos(CompressionAlgorithm::Lz4, Embedding::Allowed);
        let policy = SetPolicy::new(blocks);
        let mut dnode = Dnode::new(ObjectType::PlainFile, 1, 1);
        dnode.flags = DnodeFlags::USED_BYTES
            .with(DnodeFlags::USED_ACCOUNTED)
            .with(DnodeFlags::OBJECT_ACCOUNTED);
        dnode.used = AllocatedSize::from(4096);
        let mut usage = Usage::default();
        usage.remove(
            &dnode,
            Owner {
                user: 10,
                group: 5,
                project: 0,
            },
            &policy,
        );
        dnode.used = AllocatedSize::from(8192);
        usage.add(
            &dnode,
            Owner {
                user: 11,
                group: 5,
                project: 0,
            },
            &policy,
        );
        let count = |account, key: &str| usage.changes.get(&(account, key.to_owned())).copied();
        assert_eq!(count(USER_USED, "a"), Some(-4608));
        assert_eq!(count(USER_USED, "b"), Some(8704));
        assert_eq!(count(USER_USED, "obj-b"), Some(1));
        assert_eq!(count(GROUP_USED, "5"), Some(4096));
        assert_eq!(count(GROUP_USED, "obj-5"), Some(0));
        assert_eq!(count(PROJECT_USED, "0"), Some(4096));
    }
}
