//! Devices that err too often: degraded, or taken out of use as faulted, and restored.
//!
//! # Mechanism
//! A layer above counts errors and decides. A *faulted* device gets no requests, and its dirty time
//! log grows; that needs other devices with all its blocks. A *degraded* device stays in use: it
//! still has good blocks, and only its state says that it should be replaced.
//!
//! A device that is being replaced may well err, and the new one lacks blocks. So neither counts
//! when it is decided whether another device of the vdev may be faulted.

use crate::config::VdevKind;
use crate::health::{Reason, Standing, VdevState};
use crate::leaf::Leaf;
use crate::top::TopVdev;
use crate::tree::VdevTree;
use std::collections::BTreeSet;
use std::sync::Arc;
use tarn_ondisk::units::Guid;

/// The standing of a device with too many errors.
const fn exceeded(state: VdevState) -> Standing {
    Standing::because(state, Reason::ErrorsExceeded)
}

impl VdevTree {
    /// Takes a device with too many errors out of use. False, and nothing happens, if the other
    /// devices of its vdev do not have all its blocks, or it is not in use.
    #[doc(alias = "vdev_fault")]
    pub fn fault(&self, guid: Guid) -> bool {
        let Some((top, leaf)) = self.top_and_leaf(guid) else {
            return self.fault_cache_device(guid);
        };
        leaf.is_usable()
            && self.may_fault(&top, &leaf)
            && self.retire(&top, &leaf, exceeded(VdevState::Faulted))
    }

    /// Whether a device may be faulted: the other devices of its vdev have all its blocks, even
    /// without those in a `replacing` vdev.
    #[doc(alias = "vdev_dtl_required")]
    pub(crate) fn may_fault(&self, top: &TopVdev, leaf: &Leaf) -> bool {
        let replacing: BTreeSet<Guid> = self
            .config()
            .walk()
            .into_iter()
            .filter(|vdev| vdev.kind == VdevKind::Replacing)
            .flat_map(|vdev| vdev.leaves().into_iter().map(|leaf| leaf.guid))
            .collect();
        let is_left = |other: &Leaf| other.guid != leaf.guid && !replacing.contains(&other.guid);
        top.is_log || !top.lacks_blocks(&is_left)
    }

    /// Marks a device in use as degraded because an administrator says that it fails. False, and
    /// nothing happens, if it is not in use.
    #[doc(alias = "vdev_fault")]
    pub fn degrade_by_hand(&self, guid: Guid) -> bool {
        let degraded = Standing::because(VdevState::Degraded, Reason::External);
        let Some(leaf) = self.leaf(guid) else {
            return false;
        };
        let is_degraded = leaf.change_standing(leaf.standing(), degraded);
        if is_degraded {
            self.note_change();
        }
        is_degraded
    }

    /// Marks a device with too many errors as degraded. False, and nothing happens, if it is not
    /// online.
    #[doc(alias = "vdev_degrade")]
    pub fn degrade(&self, guid: Guid) -> bool {
        let standing = exceeded(VdevState::Degraded);
        let leaf = self.leaf(guid).or_else(|| self.cache_leaf(guid));
        let is_degraded = leaf.is_some_and(|leaf| leaf.change_standing(Standing::ONLINE, standing));
        if is_degraded {
            self.note_change();
        }
        is_degraded
    }

    /// Marks degraded devices as online again, one or all: `zpool clear`. Gives those that were
    /// degraded.
    #[doc(alias = "vdev_clear")]
    pub fn restore_degraded(&self, only: Option<Guid>) -> Vec<Guid> {
        let leaves = self.leaves().into_iter().chain(self.cache_leaves());
        let meant = leaves.filter(|leaf| only.is_none_or(|only| only == leaf.guid));
        let degraded = [Reason::ErrorsExceeded, Reason::External]
            .map(|reason| Standing::because(VdevState::Degraded, reason));
        let restored = meant.filter(|leaf| {
            let mut degraded = degraded.into_iter();
            degraded.any(|degraded| leaf.change_standing(degraded, Standing::ONLINE))
        });
        let restored: Vec<Guid> = restored.map(|leaf| leaf.guid).collect();
        if !restored.is_empty() {
            self.note_change();
        }
        restored
    }

    fn top_and_leaf(&self, guid: Guid) -> Option<(Arc<TopVdev>, Arc<Leaf>)> {
        self.tops().into_iter().find_map(|top| {
            let leaf = top.leaves.iter().find(|leaf| leaf.guid == guid)?.clone();
            Some((top, leaf))
        })
    }
}
