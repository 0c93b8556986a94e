//! Space and object accounting by user, group and project, and the door
//! [`Ownership`](crate::owner_door::Ownership).
//!
//! # Mechanism
//! A file system counts, by user, group and project, the space of its objects and how many they
//! are. The counts are in three ZAPs beside the meta dnode: a user's space is under the user's
//! number in hexadecimal, the number of objects under the same with `obj-` before it. They are
//! brought up to date in the group that stores an object: what the dnode counted for before is
//! taken off, what it counts for now is added. The dnode's flags tell whether it was counted at
//! all, so that a file system from before accounting becomes right object by object.
//!
//! The owner of an object is in its bonus, which only the layer above can read.
//!
//! # Invariants
//! - An object counts its space and one slot, whatever the number of its slots.
//! - The accounting objects themselves, and the meta dnode, are not counted.

use std::collections::BTreeMap;

use tarn_ondisk::declare::widen;
use tarn_ondisk::dnode::{Dnode, DnodeFlags, SLOT_BYTES};
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

use crate::error::ObjectError;
use crate::head::{GROUP_USED, PROJECT_USED, USER_USED};
use crate::objset::{ObjectSet, SetPolicy};
use crate::owner_door::{OBJECT_COUNT_PREFIX, Owner};
use crate::tx::SyncTx;

/// What of an owner is counted. New counts are put into their ZAP in this order, owner by owner,
/// which is what OpenZFS comes to for a file system of one owner: blocks of the same contents then
/// take the same space on both sides of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Counted {
    Objects,
    Bytes,
}

impl Counted {
    fn key(self, owner: u64) -> String {
        match self {
            Counted::Objects => format!("{OBJECT_COUNT_PREFIX}{owner:x}"),
            Counted::Bytes => format!("{owner:x}"),
        }
    }
}

/// Changes of counts, gathered over many objects.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    changes: BTreeMap<(ObjectId, u64, Counted), i64>,
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
                self.change((account, id, Counted::Bytes), sign * bytes);
            }
            if dnode.flags.contains(DnodeFlags::OBJECT_ACCOUNTED) {
                self.change((account, id, Counted::Objects), sign);
            }
        }
    }

    fn change(&mut self, what: (ObjectId, u64, Counted), by: i64) {
        let count = self.changes.entry(what).or_default();
        *count = count.saturating_add(by);
    }

    /// Brings the accounting objects up to date.
    pub fn apply(
        self,
        set: &ObjectSet,
        tx: &SyncTx,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        for ((account, id, counted), by) in self.changes {
            let zap = set.account(account, tx, operation)?;
            zap.increment(tx, counted.key(id).as_bytes(), by)
                .map_err(|why| zap.object().zap_error(why))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_block::{DatasetPolicy, Embedding};
    use tarn_ondisk::object_type::ObjectType;
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
        let changes = usage.changes.into_iter();
        let changes: Vec<_> = changes
            .map(|((account, id, counted), by)| (account, counted.key(id), by))
            .collect();
        let expected = [
            (PROJECT_USED, "obj-0", 0),
            (PROJECT_USED, "0", 4096),
            (GROUP_USED, "obj-5", 0),
            (GROUP_USED, "5", 4096),
            (USER_USED, "obj-a", -1),
            (USER_USED, "a", -4608),
            (USER_USED, "obj-b", 1),
            (USER_USED, "b", 8704),
        ];
        assert_eq!(
            changes,
            expected.map(|(account, key, by)| (account, key.to_owned(), by))
        );
    }
}
