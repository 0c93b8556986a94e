//! Worst-case space of txgs that are not stored yet, per object set.
//!
//! # Problem
//! Space must be refused long before it is used: dirty data is allocated when its group is stored,
//! seconds later. Whether there is room depends on the space of all dirty data, and the space of a
//! byte varies by a factor of hundreds: a record of 512 bytes in three copies takes 12 KiB on
//! sectors of 4 KiB, and its pointers as much again.
//!
//! # Mechanism
//! Everything that a transaction makes dirty is counted in its group, once, by its worst case
//! ([`BlockIo::worst_size`](tarn_block::BlockIo::worst_size)): a data block, the indirect blocks
//! above it, the block of dnodes with the object, a spill block, and once for each set its objset
//! block and its entries in the MOS. An indirect block compresses to its pointers, so it counts as
//! long as the object is. Frees before the group is stored are subtracted, but for the indirect
//! blocks.
//!
//! A group counts until it is stored, not until its blocks are written: by then the datasets are
//! charged. In between both count.
//!
//! # Invariants
//! - At most four groups are not stored: one is open, one quiescing, one waits to be stored, one is
//!   syncing. So four counters suffice.

use crate::ranks;
use tarn_host::lock::Mutex;
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::dnode::POINTER_SHIFT;
use tarn_ondisk::units::{ObjectId, Txg};

/// How many groups are not stored at most.
#[doc(alias = "TXG_SIZE")]
pub(crate) const GROUPS: usize = 4;

/// How many dnodes of one slot a block has.
pub(crate) const DNODES_PER_BLOCK: u64 = 32;

/// The size of blocks of pointers to dnodes, and how many pointers one has, as powers of two.
pub(crate) const DNODE_INDIRECT_SHIFT: u32 = 17;
pub(crate) const DNODE_FANOUT_SHIFT: u32 = DNODE_INDIRECT_SHIFT - POINTER_SHIFT;

/// The slot of a group.
pub(crate) fn slot_of(txg: Txg) -> usize {
    narrow(txg.get() % widen(GROUPS))
}

/// What the groups of one set take.
pub(crate) struct InFlight {
    groups: Mutex<[(Txg, u64); GROUPS]>,
}

impl InFlight {
    /// Nothing.
    pub fn new() -> InFlight {
        InFlight {
            groups: Mutex::new(ranks::IN_FLIGHT, [(Txg::ZERO, 0); GROUPS]),
        }
    }

    /// Changes what a txg takes.
    pub fn change(&self, txg: Txg, change: impl FnOnce(u64) -> u64) {
        let mut groups = self.groups.lock();
        let group = &mut groups[slot_of(txg)];
        if group.0 != txg {
            *group = (txg, 0);
        }
        group.1 = change(group.1);
    }

    /// All of groups after the one that is stored.
    pub fn after(&self, stored: Txg) -> u64 {
        let groups = self.groups.lock();
        let open = groups.iter().filter(|(txg, _)| *txg > stored);
        open.fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }
}

/// What of its group a dirty object is the first of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FirstOf {
    /// Of its block of dnodes.
    pub block: bool,
    /// Of the block of pointers above that.
    pub pointers: bool,
    /// Of the set.
    pub set: bool,
}

impl FirstOf {
    /// Says what an object is the first of, where these are dirty already.
    pub fn among<T>(objects: &std::collections::BTreeMap<ObjectId, T>, id: ObjectId) -> FirstOf {
        let is_first = |count: u64| {
            let start = id.get() - id.get() % count;
            let end = start.saturating_add(count);
            let mut others = objects.range(ObjectId::new(start)..ObjectId::new(end));
            others.next().is_none()
        };
        FirstOf {
            block: is_first(DNODES_PER_BLOCK),
            pointers: is_first(DNODES_PER_BLOCK << DNODE_FANOUT_SHIFT),
            set: objects.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_group_counts_until_it_is_stored() {
        let in_flight = InFlight::new();
        for (txg, bytes) in [(7, 10), (8, 20), (9, 40)] {
            in_flight.change(Txg::from(txg), |sum| sum + bytes);
        }
        in_flight.change(Txg::from(9), |sum| sum - 1);
        for (stored, sum) in [(6, 69), (7, 59), (8, 39), (9, 0)] {
            assert_eq!(in_flight.after(Txg::from(stored)), sum);
        }
        in_flight.change(Txg::from(11), |sum| sum + 5);
        assert_eq!(in_flight.after(Txg::from(8)), 44, "the place of group 7");
    }

    #[test]
    fn an_object_is_the_first_of_its_block_where_no_neighbour_is_dirty() {
        let dirty: BTreeMap<ObjectId, ()> = [(ObjectId::new(40), ())].into();
        let first_of = |id| FirstOf::among(&dirty, ObjectId::new(id));
        let of = |block, pointers| FirstOf {
            block,
            pointers,
            set: false,
        };
        assert_eq!(first_of(33), of(false, false));
        assert_eq!(first_of(64), of(true, false));
        assert_eq!(first_of(40_000), of(true, true));
    }
}
