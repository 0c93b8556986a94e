//! [`Numbers`] and [`Taken`]: free object numbers as far as memory knows. Their allocation:
//! [`numbers`](crate::numbers).

use std::collections::BTreeMap;

use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::units::{ObjectId, Txg};

/// Where numbers are given out.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// The next number to look at.
    pub cursor: u64,
    /// The slots of the block the cursor is in: true for those in use.
    pub current: Option<(u64, Vec<bool>)>,
    /// Objects freed since the cursor was at the start.
    pub freed: u64,
}

/// Numbers whose state in memory is not that in the blocks.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Allocated, not stored yet: number to slots.
    pub fresh: BTreeMap<u64, usize>,
    /// Freed, not stored yet: number to slots and the group that freed it.
    pub freed: BTreeMap<u64, (usize, Txg)>,
}

impl Taken {
    /// Whether it is freed, and that is not stored.
    pub fn is_freed(&self, id: ObjectId) -> bool {
        self.freed.contains_key(&id.get())
    }

    /// The first number from `from` on that is allocated and not stored.
    pub fn next_fresh(&self, from: u64) -> Option<u64> {
        self.fresh.range(from..).next().map(|(id, _)| *id)
    }

    /// The object was freed in this group.
    pub fn free(&mut self, id: ObjectId, slots: usize, txg: Txg) {
        self.fresh.remove(&id.get());
        let before = self.freed.insert(id.get(), (slots, txg));
        assert!(before.is_none(), "an object is freed once");
    }

    /// The object's dnode, or that there is none, is in the blocks now.
    pub fn stored(&mut self, id: ObjectId, txg: Txg) {
        self.fresh.remove(&id.get());
        if self
            .freed
            .get(&id.get())
            .is_some_and(|(_, freed)| *freed == txg)
        {
            self.freed.remove(&id.get());
        }
    }

    /// Marks the slots from `first` on that belong to these numbers.
    pub fn mark(&self, first: u64, used: &mut [bool]) {
        let end = first + widen(used.len());
        let fresh = self
            .fresh
            .range(first..end)
            .map(|(id, slots)| (*id, *slots));
        let freed = self
            .freed
            .range(first..end)
            .map(|(id, (slots, _))| (*id, *slots));
        for (id, slots) in fresh.chain(freed) {
            let start = narrow(id - first);
            let stop = (start + slots).min(used.len());
            used[start..stop].fill(true);
        }
    }
}
