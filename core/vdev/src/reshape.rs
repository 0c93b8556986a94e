//! Reshaping: top-level vdevs leave the tree, and devices join and leave mirrors.
//!
//! # Mechanism
//! The tree is changed in memory by the thread that stores groups, in the midst of a group; labels
//! that say so are written around that group's uberblock. So a crash finds the tree before or
//! after. A device that joins has a label of no txg until then, and one that leaves keeps its old
//! labels, whose vdev is in no newer configuration, until they are cleared after the group.
//!
//! # Invariants
//! - An index is never used again: the vdev that leaves becomes a *hole*. So a block's address
//!   names one vdev for good.
//! - The last device of a mirror takes over its guid, and a device that becomes a mirror leaves its
//!   guid to itself, as in OpenZFS: an old label names the same top-level vdev.
//! - A write during which a vdev changes its shape has gone to the one before, and judged by it
//!   which devices cover each other. It looks afterwards whether it is still that one, and writes
//!   once more if not ([`write`](crate::write)).
//! - A device that joins has to have what the vdev has: the caller sees to it that the vdev has
//!   nothing.

use crate::config::{TopLevelConfig, VdevConfig, VdevKind};
use crate::error::OpenError;
use crate::labels;
use crate::leaf::Leaf;
use crate::top::TopVdev;
use crate::tree::{AllocationBias, VdevTree};
use std::sync::Arc;
use tarn_ondisk::units::{AllocatedSize, Guid, ObjectId, VdevId};

/// Devices that have left the tree and are still open.
#[derive(Debug)]
pub struct Departed {
    leaves: Vec<Arc<Leaf>>,
}

impl Departed {
    /// Clears their labels, so that they are of no pool, and lets them go. What cannot be written
    /// any more keeps its labels: no pool takes it for its own.
    pub fn clear(self) {
        for leaf in &self.leaves {
            if let Some(window) = leaf.window() {
                drop(labels::clear_labels(&window));
            }
            leaf.close();
        }
    }
}

impl VdevTree {
    /// The top-level vdev that this vdev is, or is a part of.
    pub fn top_of(&self, guid: Guid) -> Option<VdevId> {
        let root = &self.state.read().root;
        let has_it = |top: &&VdevConfig| top.find(guid).is_some();
        let top = root.children.iter().find(has_it)?;
        Some(VdevId::from(top.id))
    }

    /// A top-level vdev leaves the pool: its index is a hole from now on.
    ///
    /// # Panics
    /// When there is no such vdev.
    #[doc(alias = "vdev_remove_make_hole_and_free")]
    pub fn remove(&self, vdev: VdevId) -> Departed {
        let mut state = self.state.write();
        let hole = hole(vdev);
        let place = vdev.index();
        let before = std::mem::replace(&mut state.tops[place], Arc::new(TopVdev::new(&hole, &[])));
        state.root.children[place] = hole;
        state.biases[place] = AllocationBias::None;
        drop(state);
        self.note_change();
        Departed {
            leaves: before.leaves.clone(),
        }
    }

    /// Opens a device that is about to join a vdev whose blocks begin at multiples of so many
    /// bytes. Its labels do not matter.
    ///
    /// # Errors
    /// It cannot be used.
    pub fn open_new(&self, config: &VdevConfig, sector_bytes: u64) -> Result<NewLeaf, OpenError> {
        let leaf = Leaf::new(config, sector_bytes);
        leaf.open(&self.host, config, self.mode);
        let standing = leaf.standing();
        match standing.state.is_usable() {
            true => Ok(NewLeaf(Arc::new(leaf))),
            false => Err(OpenError::Unavailable {
                vdevs: vec![(leaf.path.to_string(), standing)],
            }),
        }
    }

    /// A top-level vdev gets another configuration, with the same address, room and contents.
    /// Devices that stay are known by their guids. Gives back those that left.
    ///
    /// # Panics
    /// When there is no such vdev.
    pub fn reshape(&self, change: Change) -> Departed {
        let reshaped = self.reshape_if(change, |_| true);
        reshaped.expect("any devices will do")
    }

    /// The same, unless no device that stays is good enough: then nothing happens. One that is seen
    /// to be good here is so when the vdev has its new shape.
    ///
    /// # Panics
    /// When there is no such vdev.
    pub fn reshape_if(
        &self,
        change: Change,
        is_enough: impl Fn(&Leaf) -> bool,
    ) -> Option<Departed> {
        let Change {
            config,
            joining,
            heir,
        } = change;
        let mut state = self.state.write();
        let place = VdevId::from(config.id).index();
        let before = state.tops[place].clone();
        let mut known = before.leaves.clone();
        known.extend(joining.map(|new| new.0));
        let is_heir = |leaf: &&Arc<Leaf>| Some(leaf.guid) == heir;
        if let Some(old) = before.leaves.iter().find(is_heir) {
            known.push(Arc::new(old.renamed(&config)));
        }
        let top = TopVdev::new(&config, &known);
        if !top.leaves.iter().any(|leaf| is_enough(leaf)) {
            return None;
        }
        assert_eq!(top.id, before.id, "a top-level vdev keeps its index");
        let has_left = |leaf: &&Arc<Leaf>| {
            let mut staying = top.leaves.iter().map(|other| other.guid);
            Some(leaf.guid) != heir && !staying.any(|guid| guid == leaf.guid)
        };
        let departed = before.leaves.iter().filter(has_left).cloned().collect();
        state.tops[place] = Arc::new(top);
        state.root.children[place] = config;
        drop(state);
        self.note_change();
        Some(Departed { leaves: departed })
    }

    /// Whether one of these vdevs has another shape by now.
    pub(crate) fn are_reshaped(&self, tops: &[Arc<TopVdev>]) -> bool {
        let state = self.state.read();
        tops.iter().any(|top| {
            let now = &state.tops[top.id.index()];
            now.holds_data() && !Arc::ptr_eq(now, top)
        })
    }
}

/// How a top-level vdev is to be from now on.
#[derive(Debug)]
pub struct Change {
    /// Its configuration.
    pub config: VdevConfig,
    /// A device that joins it.
    pub joining: Option<NewLeaf>,
    /// The device that is left of a mirror, and becomes the vdev itself: its guid until now.
    pub heir: Option<Guid>,
}

/// A device that is open, and part of nothing yet.
#[derive(Debug)]
pub struct NewLeaf(Arc<Leaf>);

impl NewLeaf {
    /// The device.
    pub fn leaf(&self) -> &Arc<Leaf> {
        &self.0
    }
}

/// An index that is not in use.
fn hole(vdev: VdevId) -> VdevConfig {
    let mut hole = VdevConfig::new(VdevKind::Hole, Guid::ZERO);
    hole.id = vdev.get();
    hole.top_level = Some(TopLevelConfig {
        metaslab_array: ObjectId::ZERO,
        metaslab_shift: 0,
        ashift: 0,
        asize: AllocatedSize::ZERO,
        is_log: false,
        non_allocating: false,
        removing: false,
    });
    hole
}
