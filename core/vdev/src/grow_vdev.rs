//! Expansion of a top-level vdev to the size that its devices have now: `zpool online -e`.
//!
//! # Mechanism
//! A device that grew has its last two labels at its new end, and its leaf a larger window. When
//! every device of the vdev is in use, the vdev's size (asize) becomes what its smallest child
//! allows. The caller adds metaslabs when the txg with the new size is stored.
//!
//! # After a crash
//! The labels at the start of a device suffice: those at its end are found where its present size
//! says, and may not be written yet. With the old size the vdev uses less of its devices.

use crate::health::VdevState;
use crate::reshape::Change;
use crate::sizes;
use crate::top::TopVdev;
use crate::tree::VdevTree;
use tarn_ondisk::units::{AllocatedSize, VdevId};

impl VdevTree {
    /// Gives a top-level vdev the size that its devices allow now. False if it is no larger than
    /// before, or a device is not in use.
    #[doc(alias("vdev_expand", "vdev_online"))]
    pub fn expand(&self, vdev: VdevId) -> bool {
        let Some(top) = self.top(vdev) else {
            return false;
        };
        if top.standing().state != VdevState::Online {
            return false;
        }
        top.leaves.iter().for_each(|leaf| leaf.grow());
        let Some(asize) = top.room().filter(|asize| *asize > top.asize) else {
            return false;
        };
        let mut config = self.config().children[vdev.index()].clone();
        let Some(facts) = &mut config.top_level else {
            return false;
        };
        facts.asize = asize;
        let departed = self.reshape(Change {
            config,
            joining: None,
            heir: None,
        });
        assert!(departed.is_empty(), "an expansion keeps all devices");
        true
    }

    /// How many bytes of metaslabs a top-level vdev would gain by an expansion, as large as its
    /// devices were when they were opened.
    #[doc(alias("vs_esize", "metaslab_class_expandable_space"))]
    pub fn expandable_bytes(&self, vdev: VdevId) -> u64 {
        let root = self.config();
        let facts = root.children.get(vdev.index());
        let facts = facts.and_then(|top| top.top_level.as_ref());
        let (Some(top), Some(facts)) = (self.top(vdev), facts) else {
            return 0;
        };
        let room = top.room().map_or(0, AllocatedSize::get);
        let more = room.saturating_sub(top.asize.get());
        match facts.metaslab_shift {
            0 => 0,
            shift => more >> shift << shift,
        }
    }
}

impl TopVdev {
    /// The size that the vdev can have on its devices. None if some of them are not open.
    fn room(&self) -> Option<AllocatedSize> {
        let layout = self.layout.as_ref().ok()?;
        let room = |copies: &Vec<usize>| {
            let copies = copies.iter().map(|copy| self.leaves[*copy].data_size());
            copies.min().flatten()
        };
        let rooms: Option<Vec<AllocatedSize>> = layout.children().iter().map(room).collect();
        rooms.map(|rooms| sizes::top_level_size(self.kind, &rooms))
    }
}
