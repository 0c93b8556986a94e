//! Holds: metaslabs out of use for allocations, while their free ranges are written or discarded.
//!
//! # Problem
//! `zpool initialize` and `zpool trim` overwrite what is free. A range that is handed out in the
//! middle of that would lose its block.
//!
//! # Mechanism
//! A [`MetaslabHold`] has the free ranges of a metaslab as of when it was taken. Until it is
//! dropped, no range of the metaslab is handed out. A few metaslabs of a vdev are held at a time.
//! When an allocation finds no other room, it waits for the holds, and says so: their owners give
//! them back after the request under way, and take them again behind the allocation.
//!
//! # Invariants
//! - The ranges of a hold are free until it is dropped, so nothing that is allocated is overwritten
//!   by its owner. Ranges that were freed and are deferred are not among them: a rewind still finds
//!   their blocks.
//! - The owner of a hold waits for no allocation and no txg.

use crate::as_index;
use crate::range_tree::{Range, RangeTree};
use crate::space::Space;
use crate::state::VdevGeneration;
use std::sync::Arc;
use tarn_ondisk::units::VdevId;

/// So many metaslabs of a vdev are held at a time. Like OpenZFS.
#[doc(alias = "max_disabled_ms")]
pub(crate) const HELD_MAX: usize = 3;

/// A metaslab from which nothing is allocated, with its free ranges.
pub struct MetaslabHold {
    space: Arc<Space>,
    vdev: VdevId,
    index: u64,
    generation: Option<VdevGeneration>,
    ranges: Vec<Range>,
}

impl MetaslabHold {
    /// The free ranges, in the order of their offsets.
    pub fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    /// Whether an allocation waits for it. The owner then gives it back soon.
    pub fn is_wanted(&self) -> bool {
        self.space.has_waiting_allocations()
    }

    /// The ranges that have blocks, in the order of their offsets, but for blocks that are being
    /// written: those of txgs whose changes were not [taken](Space::take_changes) yet. Ranges that
    /// were freed lately are among them. None when the metaslab is not there any more.
    pub fn settled_ranges(&self) -> Option<RangeTree> {
        let state = self.space.lock_state();
        let is_there = state.generation(self.vdev) == self.generation;
        let metaslab = state.metaslab(self.vdev, as_index(self.index));
        metaslab.filter(|_| is_there)?.settled_ranges()
    }

    /// Takes the ranges that became free since this was last asked, of a vdev that
    /// [keeps them](Space::keep_freed). All of them are free.
    #[doc(alias = "ms_trim")]
    pub fn take_freed(&self) -> RangeTree {
        let mut state = self.space.lock_state();
        let is_there = state.generation(self.vdev) == self.generation;
        let metaslab = state.metaslab_mut(self.vdev, as_index(self.index));
        match metaslab.filter(|_| is_there) {
            Some(metaslab) => metaslab.take_freed(),
            None => RangeTree::new(),
        }
    }
}

impl Drop for MetaslabHold {
    fn drop(&mut self) {
        let mut state = self.space.lock_state();
        // The vdev may have left the pool, and another may have its number.
        if state.generation(self.vdev) == self.generation
            && let Some(metaslab) = state.metaslab_mut(self.vdev, as_index(self.index))
        {
            metaslab.end_hold();
        }
        drop(state);
        self.space.note_hold_ended();
    }
}

impl Space {
    /// Takes a metaslab out of use for allocations, and loads it. Waits while too many of the vdev
    /// are, or an allocation waits for one. None when there is no such metaslab, or it cannot be
    /// loaded.
    #[doc(alias = "metaslab_disable")]
    pub fn hold_metaslab(self: &Arc<Self>, vdev: VdevId, index: u64) -> Option<MetaslabHold> {
        self.hold(vdev, index, true)
    }

    /// Like [`hold_metaslab`](Space::hold_metaslab), for the owner of another hold: it is None
    /// also where that one would wait.
    pub fn try_hold_metaslab(self: &Arc<Self>, vdev: VdevId, index: u64) -> Option<MetaslabHold> {
        self.hold(vdev, index, false)
    }

    fn hold(self: &Arc<Self>, vdev: VdevId, index: u64, waits: bool) -> Option<MetaslabHold> {
        let at = as_index(index);
        let mut state = self.lock_state();
        loop {
            let metaslab = state.metaslab(vdev, at)?;
            if metaslab.is_broken() {
                return None;
            }
            let has_room = metaslab.is_held() || state.held_count(vdev) < HELD_MAX;
            if state.waiting_allocations > 0 || !has_room {
                if !waits {
                    return None;
                }
                self.wait_for_holds(&mut state);
            } else if !metaslab.is_here() {
                state = self.load_if_away(state, vdev, at);
            } else {
                break;
            }
        }
        let generation = state.generation(vdev);
        let metaslab = state.metaslab_mut(vdev, at)?;
        let ranges = metaslab.begin_hold();
        Some(MetaslabHold {
            space: self.clone(),
            vdev,
            index,
            generation,
            ranges,
        })
    }

    /// Has the metaslabs of a vdev keep the ranges that become free, for
    /// [`MetaslabHold::take_freed`], or forget them.
    #[doc(alias = "spa_autotrim")]
    pub fn keep_freed(&self, vdev: VdevId, keeps: bool) {
        self.lock_state().keep_freed(vdev, keeps);
    }

    /// Whether a metaslab has kept ranges that became free.
    pub fn has_freed(&self, vdev: VdevId, index: u64) -> bool {
        let state = self.lock_state();
        let metaslab = state.metaslab(vdev, as_index(index));
        metaslab.is_some_and(|metaslab| metaslab.has_freed())
    }

    /// How many metaslabs a vdev has.
    pub fn metaslab_count(&self, vdev: VdevId) -> u64 {
        self.lock_state().metaslab_count(vdev)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Geometry, SpaceOptions};
    use tarn_ondisk::units::{AllocatedSize, Txg, VdevOffset};

    const VDEV: VdevId = VdevId::ZERO;
    const SHIFT: u32 = 20;

    fn space(metaslabs: u64) -> Arc<Space> {
        let space = Arc::new(Space::new(SpaceOptions::default()));
        let geometry = Geometry {
            size: AllocatedSize::new(metaslabs << SHIFT),
            metaslab_shift: SHIFT,
            ashift: 12,
            class: Class::Normal,
        };
        space.add_vdev(VDEV, geometry, Vec::new());
        space
    }

    fn allocate(space: &Space, bytes: u64, txg: u64) -> VdevOffset {
        let size = |_| AllocatedSize::new(bytes);
        let places = space.allocate(Class::Normal, 1, &[], &size, Txg::new(txg));
        places.unwrap()[0].offset
    }

    fn store(space: &Space, txg: u64) {
        space.take_changes(Txg::new(txg));
        space.txg_stored(Txg::new(txg));
    }

    #[test]
    fn nothing_of_a_held_metaslab_is_handed_out() {
        let space = space(2);
        let hold = space.hold_metaslab(VDEV, 0).unwrap();
        assert_eq!(hold.ranges().len(), 1);
        for _ in 0..256 {
            assert!(allocate(&space, 4096, 1).get() >= 1 << SHIFT);
        }
        assert!(!hold.is_wanted());
        drop(hold);
        assert!(allocate(&space, 4096, 1).get() < 1 << SHIFT);
        assert!(space.hold_metaslab(VDEV, 2).is_none());
    }

    #[test]
    fn an_allocation_without_other_room_waits_for_the_hold() {
        let space = space(1);
        let hold = space.hold_metaslab(VDEV, 0).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| allocate(&space, 4096, 1));
            while !hold.is_wanted() {
                std::thread::yield_now();
            }
            assert!(space.try_hold_metaslab(VDEV, 0).is_none());
            drop(hold);
            assert_eq!(waiting.join().unwrap(), VdevOffset::ZERO);
        });
    }

    #[test]
    fn the_owner_of_holds_gets_no_more_than_there_may_be() {
        let space = space(5);
        let mut holds = Vec::new();
        for index in 0..4 {
            holds.extend(space.try_hold_metaslab(VDEV, index));
        }
        assert_eq!(holds.len(), HELD_MAX);
        holds.pop();
        assert!(space.try_hold_metaslab(VDEV, 4).is_some());
        assert!(space.try_hold_metaslab(VDEV, 5).is_none());
    }

    #[test]
    fn settled_ranges_lack_what_is_being_written_and_have_what_was_just_freed() {
        let space = space(2);
        let first = allocate(&space, 8192, 1);
        store(&space, 1);
        let second = allocate(&space, 4096, 2);
        let size = AllocatedSize::new(4096);
        space
            .free(VDEV, first, size, Txg::new(1), Txg::new(2))
            .unwrap();
        let hold = space.hold_metaslab(VDEV, 0).unwrap();
        let settled: Vec<Range> = hold.settled_ranges().unwrap().iter().collect();
        assert_eq!(settled, [Range::new(first, AllocatedSize::new(8192))]);
        store(&space, 2);
        let settled = hold.settled_ranges().unwrap();
        assert!(settled.contains(Range::new(second, size)));
        assert_eq!(settled.bytes().get(), 3 * 4096);
    }

    #[test]
    fn freed_ranges_are_kept_when_they_are_free_and_until_they_are_handed_out() {
        let space = space(1);
        space.keep_freed(VDEV, true);
        let (first, second) = (allocate(&space, 8192, 1), allocate(&space, 4096, 1));
        store(&space, 1);
        for (offset, bytes) in [(first, 8192), (second, 4096)] {
            let size = AllocatedSize::new(bytes);
            let (birth, txg) = (Txg::new(1), Txg::new(2));
            space.free(VDEV, offset, size, birth, txg).unwrap();
        }
        (2..4).for_each(|txg| store(&space, txg));
        let freed = |space: &Arc<Space>| {
            let hold = space.hold_metaslab(VDEV, 0).unwrap();
            hold.take_freed().bytes().get()
        };
        assert!(!space.has_freed(VDEV, 0));
        assert_eq!(freed(&space), 0);
        store(&space, 4);
        assert!(space.has_freed(VDEV, 0));
        // It goes behind the cursor; all else is taken, so that it comes around.
        while allocate(&space, 4096, 5) != first {}
        assert_eq!(freed(&space), 8192);
        assert_eq!(freed(&space), 0);
        space.keep_freed(VDEV, false);
        assert!(!space.has_freed(VDEV, 0));
    }
}
