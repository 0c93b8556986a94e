//! Changes of the tree: `zpool remove`, `attach`, `detach` and `replace` of vdevs without contents
//! to move.
//!
//! # Mechanism
//! The sync thread changes the tree in memory, in the midst of a txg; the labels around that txg's
//! uberblock have the new configuration. So after a crash the import finds the tree before or after
//! the change. A device that joins has a label of txg 0 until then. A device that leaves keeps its
//! old labels, whose vdev is in no newer configuration, until they are cleared after the txg.
//!
//! # Invariants
//! - An index is never used again: the vdev that leaves becomes a *hole*. So a block's address
//!   names one vdev for good.
//! - The last device of a mirror takes over its guid, and a device that becomes a mirror leaves its
//!   guid to itself, as in OpenZFS: an old label names the same top-level vdev.
//! - A write that overlaps a change of its vdev went to the devices before the change, and judged
//!   redundancy by them. It finds out afterwards that the vdev was replaced, and writes once more
//!   ([`write`](crate::write)).
//! - A device that joins a vdev with blocks has all their births in its dirty time log before the
//!   tree has it. The caller has emptied the vdev, or resilvers the device afterwards.
//! - No device leaves a data vdev while blocks are on it alone, by the dirty time logs.

use crate::config::{TopLevelConfig, VdevConfig, VdevKind};
use crate::error::OpenError;
use crate::labels;
use crate::leaf::Leaf;
use crate::top::TopVdev;
use crate::tree::{AllocationBias, VdevTree};
use std::sync::Arc;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::units::{AllocatedSize, Guid, ObjectId, VdevId};

/// Devices that have left the tree and are still open.
#[derive(Debug)]
pub struct Departed {
    leaves: Vec<Arc<Leaf>>,
}

impl Departed {
    /// Closes the devices, which keep their labels.
    pub fn release(self) {
        self.leaves.iter().for_each(|leaf| leaf.close());
    }

    /// Whether no device has left.
    pub fn is_empty(&self) -> bool {
        self.leaves.is_empty()
    }

    /// Clears the labels of the devices, or writes this one, and closes them. A device that cannot
    /// be written keeps its labels, which no import takes for the pool's.
    pub fn clear(self, label: Option<&NvList>) {
        for leaf in &self.leaves {
            leaf.end_free_space_access();
            if let Some(window) = leaf.window() {
                drop(match label {
                    None => labels::clear_labels(&window),
                    Some(label) => labels::create_labels(&window, label),
                });
            }
            leaf.close();
        }
    }
}

impl VdevTree {
    /// The index of the top-level vdev at or above the vdev of this guid.
    pub fn top_of(&self, guid: Guid) -> Option<VdevId> {
        let root = &self.state.read().root;
        let has_it = |top: &&VdevConfig| top.find(guid).is_some();
        let top = root.children.iter().find(has_it)?;
        Some(VdevId::from(top.id))
    }

    /// Removes a top-level vdev from the pool: its index becomes a hole.
    ///
    /// # Panics
    /// When there is no such vdev.
    #[doc(alias = "vdev_remove_make_hole_and_free")]
    pub fn remove(&self, vdev: VdevId) -> Departed {
        let mut state = self.state.write();
        let hole = hole(vdev);
        let place = vdev.index();
        assert_eq!(
            state.tops[place].id, vdev,
            "a top-level vdev is at its index"
        );
        let before = std::mem::replace(&mut state.tops[place], Arc::new(TopVdev::new(&hole, &[])));
        state.root.children[place] = hole;
        state.biases[place] = AllocationBias::None;
        drop(state);
        self.note_change();
        Departed {
            leaves: before.leaves.clone(),
        }
    }

    /// Opens a device, whatever its labels say, that is about to join a vdev with sectors of this
    /// size.
    ///
    /// # Errors
    /// The device cannot be used.
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

    /// Gives a top-level vdev another configuration, with the same index and contents. Devices with
    /// the same guids stay open. Gives the devices that left.
    ///
    /// # Panics
    /// When there is no such vdev.
    pub fn reshape(&self, change: Change) -> Departed {
        let reshaped = self.reshape_if(change, Needed::Nothing);
        reshaped.expect("any devices will do")
    }

    /// As [`reshape`](Self::reshape), if the new vdev has what is needed; else nothing happens. No
    /// device is taken out of use between the check and the change.
    ///
    /// # Panics
    /// When there is no such vdev.
    pub fn reshape_if(&self, change: Change, needed: Needed) -> Option<Departed> {
        let Change {
            config,
            joining,
            heir,
        } = change;
        let mut state = self.state.write();
        let place = VdevId::from(config.id).index();
        let before = state.tops[place].clone();
        // A device whose path changes is another leaf on the same window.
        let keep = |leaf: &Arc<Leaf>| match config.find(leaf.guid) {
            Some(now) if now.path.as_ref().is_some_and(|path| *path != leaf.path) => {
                Arc::new(leaf.renamed(now))
            }
            _ => leaf.clone(),
        };
        let mut known: Vec<Arc<Leaf>> = before.leaves.iter().map(keep).collect();
        known.extend(joining.map(|new| new.0));
        let is_heir = |leaf: &&Arc<Leaf>| Some(leaf.guid) == heir;
        if let Some(old) = before.leaves.iter().find(is_heir) {
            known.push(Arc::new(old.renamed(&config)));
        }
        let top = TopVdev::new(&config, &known);
        let is_enough = match needed {
            Needed::Nothing => true,
            Needed::UsableDevice => top.leaves.iter().any(|leaf| leaf.is_usable()),
            Needed::AllBlocks => !top.lacks_blocks(&|_| true),
        };
        if !is_enough {
            return None;
        }
        assert_eq!(top.id, before.id, "a top-level vdev keeps its index");
        let has_left = |leaf: &&Arc<Leaf>| {
            let mut staying = top.leaves.iter().map(|other| other.guid);
            Some(leaf.guid) != heir && !staying.any(|guid| guid == leaf.guid)
        };
        let departed = before.leaves.iter().filter(has_left).cloned().collect();
        self.adopt(&top);
        state.tops[place] = Arc::new(top);
        state.root.children[place] = config;
        drop(state);
        self.note_change();
        Some(Departed { leaves: departed })
    }

    /// Notes which devices that joined are whole now: their configuration has no `resilver_txg` and
    /// no `rebuild_txg` any more.
    pub fn note_resilvered(&self) {
        let whole = |guid: Guid| self.leaf(guid).is_some_and(|leaf| leaf.is_whole());
        let root = self.state.read().root.clone();
        let joined = root.leaves().into_iter();
        let is_new =
            |leaf: &VdevConfig| leaf.resilver_txg().is_some() || leaf.rebuild_txg().is_some();
        let joined = joined.filter(|leaf| is_new(leaf) && whole(leaf.guid));
        let filled: Vec<Guid> = joined.map(|leaf| leaf.guid).collect();
        if filled.is_empty() {
            return;
        }
        self.change_config(|root| {
            root.change_each(&mut |vdev| {
                if filled.contains(&vdev.guid) {
                    vdev.set_resilver_txg(None);
                    vdev.set_rebuild_txg(None);
                }
            });
        });
    }

    /// Whether a data vdev's other devices lack blocks that this device has, by the dirty time
    /// logs. True for a device that is not in the tree.
    #[doc(alias = "vdev_dtl_required")]
    pub fn is_required(&self, guid: Guid) -> bool {
        let tops = self.tops();
        let with_leaf = tops.iter().find_map(|top| {
            let leaf = top.leaves.iter().find(|leaf| leaf.guid == guid)?;
            Some((top, leaf))
        });
        with_leaf.is_none_or(|(top, leaf)| !top.can_do_without(leaf))
    }

    /// Whether one of these vdevs was replaced in the tree meanwhile.
    pub(crate) fn are_reshaped(&self, tops: &[Arc<TopVdev>]) -> bool {
        let state = self.state.read();
        tops.iter().any(|top| {
            let now = &state.tops[top.id.index()];
            now.holds_data() && !Arc::ptr_eq(now, top)
        })
    }
}

/// A change of a top-level vdev.
#[derive(Debug)]
pub struct Change {
    /// The new configuration.
    pub config: VdevConfig,
    /// A device that joins the vdev.
    pub joining: Option<NewLeaf>,
    /// The last device of a mirror, which becomes the top-level vdev itself: its guid until now.
    pub heir: Option<Guid>,
}

/// What a top-level vdev must have for a change of its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needed {
    /// Nothing.
    Nothing,
    /// A device that can be used: for a vdev without blocks.
    UsableDevice,
    /// All blocks on usable devices, by their dirty time logs.
    AllBlocks,
}

/// A device that is open and not in the tree.
#[derive(Debug)]
pub struct NewLeaf(Arc<Leaf>);

impl NewLeaf {
    /// The device.
    pub fn leaf(&self) -> &Arc<Leaf> {
        &self.0
    }
}

/// An index that is not in use.
pub fn hole(vdev: VdevId) -> VdevConfig {
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
