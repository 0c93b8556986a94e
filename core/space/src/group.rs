//! Groups: the metaslabs of one vdev that serve one class; and the rotor that goes round the groups
//! of a class.
//!
//! # Mechanism
//! The rotor stays at a vdev for an amount of bytes in proportion to the vdev's share of the free
//! space of its class, and goes on. So large runs stay on one vdev, all vdevs are used, and they
//! fill up together whatever their sizes.

use crate::COPIES_MAX;
use crate::class::Class;
use std::collections::BTreeMap;
use tarn_ondisk::units::{AllocatedSize, VdevId};

/// How many bytes go to a vdev before the next has its turn, where all have the same room. Like
/// OpenZFS.
#[doc(alias = "metaslab_aliquot")]
const TURN: u64 = 1 << 20;
/// The shortest turn of a vdev that has less room than others.
const TURN_MIN: u64 = 64 << 10;

/// The metaslabs of a vdev that serve a class.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) class: Class,
    /// For each copy of a block, the metaslab last used.
    pub(crate) active: [Option<Active>; COPIES_MAX],
}

/// A metaslab in use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Active {
    pub(crate) index: usize,
    /// Its weight when it was chosen.
    pub(crate) weight: usize,
}

impl Group {
    pub(crate) fn new(class: Class) -> Group {
        Group {
            class,
            active: [None; COPIES_MAX],
        }
    }
}

/// Whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Rotor {
    members: Vec<VdevId>,
    position: usize,
    /// What is left of this turn, in bytes.
    left: u64,
}

impl Rotor {
    pub(crate) fn join(&mut self, vdev: VdevId) {
        if let Err(place) = self.members.binary_search(&vdev) {
            self.members.insert(place, vdev);
        }
    }

    pub(crate) fn leave(&mut self, vdev: VdevId) {
        self.members.retain(|&member| member != vdev);
        self.position = 0;
    }

    pub(crate) fn members(&self) -> &[VdevId] {
        &self.members
    }

    /// All members, beginning with the one whose turn it is.
    pub(crate) fn order(&self) -> Vec<VdevId> {
        self.order_from_index(self.position)
    }

    /// All members, beginning with `first`, or in turn if it is not a member.
    pub(crate) fn order_from(&self, first: VdevId) -> Vec<VdevId> {
        match self.members.binary_search(&first) {
            Ok(index) => self.order_from_index(index),
            Err(_) => self.order(),
        }
    }

    /// All members, beginning with the one after `last`.
    pub(crate) fn order_after(&self, last: VdevId) -> Vec<VdevId> {
        match self.members.binary_search(&last) {
            Ok(index) => self.order_from_index((index + 1) % self.members.len()),
            Err(_) => self.order(),
        }
    }

    fn order_from_index(&self, index: usize) -> Vec<VdevId> {
        let (front, back) = self.members.split_at(index.min(self.members.len()));
        [back, front].concat()
    }

    /// Counts what was allocated by turn.
    pub(crate) fn charge(
        &mut self,
        vdev: VdevId,
        size: AllocatedSize,
        free: &BTreeMap<VdevId, AllocatedSize>,
    ) {
        let Ok(index) = self.members.binary_search(&vdev) else {
            return;
        };
        assert!(
            self.position < self.members.len(),
            "the turn is that of a member"
        );
        if index != self.position || self.left == 0 {
            self.position = index;
            self.left = turn(vdev, free);
        }
        self.left = self.left.saturating_sub(size.get());
        if self.left == 0 {
            self.position = (self.position + 1) % self.members.len();
        }
    }

    /// True if the next charge begins a turn, and needs to know what is free.
    pub(crate) fn is_turning(&self, vdev: VdevId) -> bool {
        self.left == 0 || self.members.get(self.position) != Some(&vdev)
    }
}

fn turn(vdev: VdevId, free: &BTreeMap<VdevId, AllocatedSize>) -> u64 {
    let all: u128 = free.values().map(|size| u128::from(size.get())).sum();
    let own = free.get(&vdev).map_or(0, |size| u128::from(size.get()));
    let count = u128::try_from(free.len()).expect("a count fits 128 bits");
    let share = (u128::from(TURN) * count * own).checked_div(all);
    debug_assert!(
        own <= all,
        "a vdev has a part of the free space of its class"
    );
    let bytes = share.and_then(|bytes| u64::try_from(bytes).ok());
    bytes.unwrap_or(TURN).max(TURN_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_in_proportion_to_free_space() {
        let mut rotor = Rotor::default();
        let (small, large) = (VdevId::new(0), VdevId::new(1));
        rotor.join(large);
        rotor.join(small);
        let free = BTreeMap::from([
            (small, AllocatedSize::new(10 << 30)),
            (large, AllocatedSize::new(30 << 30)),
        ]);
        let mut blocks = [0_u64; 2];
        for _ in 0..10_000 {
            let vdev = rotor.order()[0];
            blocks[vdev.index()] += 1;
            rotor.charge(vdev, AllocatedSize::new(16384), &free);
        }
        let ratio = blocks[1] * 100 / blocks[0];
        assert!((290..310).contains(&ratio), "{blocks:?}");
    }

    #[test]
    fn the_order_goes_round() {
        let mut rotor = Rotor::default();
        for id in 0..3 {
            rotor.join(VdevId::new(id));
        }
        let ids = |order: Vec<VdevId>| order.iter().map(|id| id.get()).collect::<Vec<_>>();
        assert_eq!(ids(rotor.order_after(VdevId::new(1))), [2, 0, 1]);
        assert_eq!(ids(rotor.order_after(VdevId::new(2))), [0, 1, 2]);
        assert_eq!(ids(rotor.order_from(VdevId::new(1))), [1, 2, 0]);
    }
}
