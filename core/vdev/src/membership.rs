//! Configurations of a top-level vdev after `zpool attach`, `detach` and `replace`.
//!
//! # Mechanism
//! A device alone becomes a mirror when another joins: the mirror takes over what only a top-level
//! vdev has (its asize, its space maps, its ZAP), and gets a guid of its own. When one device is
//! left, it takes all of this over again, and the mirror's guid, too: the old label of the device
//! that left names that guid, so an import sees that both are of the same vdev.
//!
//! `zpool replace` puts a `replacing` or `spare` vdev with a guid of its own in the place of the
//! old device, at any depth, with the old device as its first child and the new one as its last.
//! When one child is left, it takes the place of the `replacing` or `spare` vdev and keeps its own
//! guid, unless that place is the top level.
//!
//! A device that is replaced by another at the same path is looked for at `PATH/old` from then on,
//! where nothing is; it gets its path back when the new device is detached.

use crate::config::{VdevConfig, VdevKind};
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::units::Guid;

/// Pairs of the configuration that are carried through, and belong to the top-level vdev.
const OF_TOP: &[&str] = &["com.delphix:vdev_zap_top", "min_alloc"];

/// A top-level vdev after a device has left it.
#[derive(Debug, Clone, PartialEq)]
pub struct Left {
    /// Its configuration from then on.
    pub config: VdevConfig,
    /// The device that has left, without the pairs of the top-level vdev.
    pub leaf: VdevConfig,
    /// The device that is alone now, by the guid that it had.
    pub heir: Option<Guid>,
    /// The hot spare that belongs to the vdev for good, because the device that it stood in for has
    /// left: the guid that the list of spares has.
    pub kept_spare: Option<Guid>,
}

impl VdevConfig {
    /// This top-level vdev, with one more copy beside the device `to`. `mirror` is the guid of the
    /// mirror, if there was none. None where nothing can be attached.
    #[doc(alias = "vdev_add_parent")]
    pub fn with_attached(&self, to: Guid, new: VdevConfig, mirror: Guid) -> Option<VdevConfig> {
        let may_attach = match self.kind {
            VdevKind::Mirror => self.leaf_index(to).is_some(),
            kind => kind.is_leaf() && self.guid == to,
        };
        let joined = || self.with_joined(to, new, VdevKind::Mirror, mirror);
        may_attach.then(joined).flatten()
    }

    /// This top-level vdev, with `new` about to replace the device `old`. `parent` is the guid of
    /// the `replacing` or `spare` vdev, if there was none. None where `old` is not there, or a hot
    /// spare and a device that is none would replace each other.
    #[doc(alias("spa_vdev_attach", "vdev_add_parent"))]
    pub fn with_replacing(&self, old: Guid, new: VdevConfig, parent: Guid) -> Option<VdevConfig> {
        let is_spare = self.find(old)?.is_spare;
        if self.parent_kind(old) == Some(VdevKind::Spare) && is_spare != new.is_spare {
            return None;
        }
        let kind = match new.is_spare {
            true => VdevKind::Spare,
            false => VdevKind::Replacing,
        };
        let path = new.path.clone();
        let path =
            path.filter(|path| self.find(old).and_then(|old| old.path.as_ref()) == Some(path));
        let mut config = self.with_joined(old, new, kind, parent)?;
        if let Some(path) = path {
            config.change_each(&mut |vdev| {
                if vdev.guid == old {
                    vdev.path = Some(old_path(&path));
                    vdev.device_id = None;
                }
            });
        }
        Some(config)
    }

    /// This top-level vdev, with another device in the place of `old`. None where `old` is neither
    /// this vdev nor a device of this mirror.
    pub fn with_replaced(&self, old: Guid, new: VdevConfig) -> Option<Left> {
        let (mut config, mut new) = (self.clone(), new);
        let leaf = match self.kind {
            kind if kind.is_leaf() && self.guid == old => {
                hand_over_top(&mut config, &mut new);
                std::mem::replace(&mut config, new)
            }
            VdevKind::Mirror => {
                let index = self.leaf_index(old)?;
                std::mem::replace(&mut config.children[index], new)
            }
            _ => return None,
        };
        config.number_children();
        Some(Left {
            config,
            leaf,
            heir: None,
            kept_spare: None,
        })
    }

    /// This top-level vdev without a device. None for what is in no `mirror`, `replacing` or
    /// `spare` vdev, or has no sibling there.
    #[doc(alias = "vdev_remove_parent")]
    pub fn without(&self, leaf: Guid) -> Option<Left> {
        let mut config = self.clone();
        let (leaf, kept_spare) = config.take_out(leaf)?;
        let mut heir = None;
        if config.kind.is_mirrored() && config.children.len() == 1 {
            let mut last = config.children.remove(0);
            if last.kind.is_leaf() {
                heir = Some(last.guid);
            }
            hand_over_top(&mut config, &mut last);
            last.guid = self.guid;
            config = last;
        }
        config.number_children();
        debug_assert!(
            config.find(leaf.guid).is_none() && !config.leaves().is_empty(),
            "one device leaves, and others stay"
        );
        Some(Left {
            config,
            leaf,
            heir,
            kept_spare,
        })
    }

    /// A device of this mirror as a top-level vdev of another pool, with the space maps of the
    /// mirror. None for a device of another vdev.
    #[doc(alias = "spa_vdev_split_mirror")]
    pub fn split_off(&self, leaf: Guid) -> Option<VdevConfig> {
        let index = self.leaf_index(leaf);
        let index = index.filter(|_| self.kind == VdevKind::Mirror)?;
        let (mut top, mut split) = (self.clone(), self.children[index].clone());
        hand_over_top(&mut top, &mut split);
        Some(split)
    }

    /// The kind of the vdev whose child has this guid.
    pub fn parent_kind(&self, child: Guid) -> Option<VdevKind> {
        let vdevs = self.walk().into_iter();
        let mut parents = vdevs.filter(|vdev| vdev.children.iter().any(|c| c.guid == child));
        parents.next().map(|parent| parent.kind)
    }

    /// This top-level vdev with a device beside `to`: in the vdev of this kind that has `to`, or in
    /// a new one in the place of `to`.
    fn with_joined(
        &self,
        to: Guid,
        new: VdevConfig,
        kind: VdevKind,
        parent: Guid,
    ) -> Option<VdevConfig> {
        let mut config = self.clone();
        if config.guid == to && config.kind.is_leaf() {
            config = config.under(kind, parent);
            config.children.push(new);
        } else if !config.join_below(to, &new, kind, parent) {
            return None;
        }
        config.number_children();
        debug_assert!(config.find(to).is_some(), "the other device stays");
        Some(config)
    }

    /// A new vdev of this kind in the place of this one, which is its only child.
    fn under(mut self, kind: VdevKind, guid: Guid) -> VdevConfig {
        let mut parent = VdevConfig::new(kind, guid);
        parent.create_txg = self.create_txg;
        hand_over_top(&mut self, &mut parent);
        parent.children = vec![self];
        parent
    }

    fn join_below(&mut self, to: Guid, new: &VdevConfig, kind: VdevKind, parent: Guid) -> bool {
        let Some(index) = self.leaf_index(to) else {
            let mut children = self.children.iter_mut();
            return children.any(|child| child.join_below(to, new, kind, parent));
        };
        if self.kind == kind {
            self.children.push(new.clone());
            return true;
        }
        let mut joined = self.children.remove(index).under(kind, parent);
        joined.children.push(new.clone());
        self.children.insert(index, joined);
        true
    }

    /// Removes a device below this vdev. A vdev below this one that has one child left becomes that
    /// child. Gives the device, and the hot spare that is none any more.
    fn take_out(&mut self, leaf: Guid) -> Option<(VdevConfig, Option<Guid>)> {
        let Some(index) = self.leaf_index(leaf) else {
            return self.children.iter_mut().find_map(|child| {
                let taken = child.take_out(leaf)?;
                if child.kind.is_mirrored() && child.children.len() == 1 {
                    *child = child.children.remove(0);
                }
                Some(taken)
            });
        };
        if !self.kind.is_mirrored() || self.children.len() < 2 {
            return None;
        }
        let gone = self.children.remove(index);
        if self.kind == VdevKind::Replacing
            && index > 0
            && let Some(path) = &gone.path
        {
            let moved = old_path(path);
            let mut others = self.children.iter_mut();
            if let Some(old) = others.find(|other| other.path.as_ref() == Some(&moved)) {
                old.path = Some(path.clone());
            }
        }
        let mut kept_spare = None;
        if self.kind == VdevKind::Spare && index == 0 {
            let is_alone = self.children.len() == 1;
            if let Some(last) = self.children.last_mut().filter(|last| last.is_spare) {
                kept_spare = Some(last.guid);
                last.is_spare = false;
                last.set_unspare(!is_alone);
            }
        }
        if self.children.len() == 1 {
            self.children[0].set_unspare(false);
        }
        Some((gone, kept_spare))
    }

    /// The place of a device among the children.
    fn leaf_index(&self, guid: Guid) -> Option<usize> {
        let is_it = |child: &VdevConfig| child.guid == guid && child.kind.is_leaf();
        self.children.iter().position(is_it)
    }
}

/// Where a device is looked for while another at the same path replaces it.
fn old_path(path: &Text) -> Text {
    Text::from([path.as_bytes(), b"/old"].concat().as_slice())
}

/// Moves what only a top-level vdev has from one vdev to the other.
#[doc(alias = "vdev_top_transfer")]
fn hand_over_top(from: &mut VdevConfig, to: &mut VdevConfig) {
    to.id = from.id;
    to.top_level = from.top_level.take();
    let is_of_top = |(name, _): &(_, _)| OF_TOP.iter().any(|known| name == known);
    let (of_top, own) = std::mem::take(&mut from.other)
        .into_iter()
        .partition(is_of_top);
    from.other = own;
    let of_top: Vec<_> = of_top;
    to.other.extend(of_top);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TopLevelConfig;
    use tarn_ondisk::units::{AllocatedSize, ObjectId};

    fn leaf(guid: u64) -> VdevConfig {
        let mut leaf = VdevConfig::new(VdevKind::File, Guid::from(guid));
        leaf.set_other("com.delphix:vdev_zap_leaf", guid + 100);
        leaf
    }

    fn top(guid: u64) -> VdevConfig {
        let mut top = leaf(guid);
        top.id = 3;
        top.top_level = Some(TopLevelConfig {
            metaslab_array: ObjectId::from(7),
            metaslab_shift: 24,
            ashift: 12,
            asize: AllocatedSize::from(1 << 26),
            is_log: true,
            non_allocating: false,
            removing: false,
        });
        top.set_other("com.delphix:vdev_zap_top", 1u64);
        top
    }

    fn guids(vdev: &VdevConfig) -> Vec<u64> {
        vdev.walk().iter().map(|vdev| vdev.guid.get()).collect()
    }

    fn is_whole_top(vdev: &VdevConfig) -> bool {
        let zap = vdev.other_object("com.delphix:vdev_zap_top");
        vdev.id == 3 && vdev.top_level.is_some() && zap == Some(ObjectId::from(1))
    }

    #[test]
    fn a_device_becomes_a_mirror_and_back() {
        let mirror = top(1).with_attached(Guid::from(1), leaf(2), Guid::from(9));
        let mirror = mirror.unwrap();
        assert_eq!(guids(&mirror), [9, 1, 2]);
        assert!(is_whole_top(&mirror) && mirror.kind == VdevKind::Mirror);
        assert!(mirror.children.iter().all(|child| !is_whole_top(child)));
        assert_eq!(mirror.children[1].id, 1);
        let left = mirror.without(Guid::from(1)).unwrap();
        assert_eq!(
            (guids(&left.config), left.heir),
            (vec![9], Some(Guid::from(2)))
        );
        assert!(is_whole_top(&left.config));
        assert_eq!(
            left.config.other_object("com.delphix:vdev_zap_leaf"),
            Some(ObjectId::from(102))
        );
        assert_eq!(guids(&left.leaf), [1]);
    }

    #[test]
    fn of_three_copies_two_stay_a_mirror() {
        let mirror = top(1).with_attached(Guid::from(1), leaf(2), Guid::from(9));
        let mirror = mirror.unwrap();
        let three = mirror.with_attached(Guid::from(2), leaf(3), Guid::from(8));
        let three = three.unwrap();
        assert_eq!(guids(&three), [9, 1, 2, 3]);
        let left = three.without(Guid::from(2)).unwrap();
        assert_eq!((guids(&left.config), left.heir), (vec![9, 1, 3], None));
        assert_eq!(left.config.children[1].id, 1);
    }

    #[test]
    fn a_device_takes_the_place_of_another() {
        let replaced = top(1).with_replaced(Guid::from(1), leaf(2)).unwrap();
        assert!(is_whole_top(&replaced.config));
        assert_eq!(guids(&replaced.config), [2]);
        assert_eq!(replaced.leaf, {
            let mut old = leaf(1);
            old.id = 3;
            old
        });
        let mirror = top(1).with_attached(Guid::from(1), leaf(2), Guid::from(9));
        let replaced = mirror.unwrap().with_replaced(Guid::from(1), leaf(4));
        assert_eq!(guids(&replaced.unwrap().config), [9, 4, 2]);
    }

    #[test]
    fn what_is_no_copy_cannot_leave_and_what_is_not_there_cannot_be_changed() {
        assert_eq!(top(1).without(Guid::from(1)), None);
        assert_eq!(top(1).with_replaced(Guid::from(5), leaf(2)), None);
        assert_eq!(
            top(1).with_attached(Guid::from(5), leaf(2), Guid::from(9)),
            None
        );
        assert_eq!(raidz().without(Guid::from(1)), None);
        let attached = raidz().with_attached(Guid::from(1), leaf(3), Guid::from(9));
        assert_eq!(attached, None);
    }

    fn raidz() -> VdevConfig {
        let mut raidz = VdevConfig::new(VdevKind::Raidz { parity: 1 }, Guid::from(6));
        raidz.children = vec![leaf(1), leaf(2)];
        raidz.number_children();
        raidz
    }

    fn spare(guid: u64) -> VdevConfig {
        let mut spare = leaf(guid);
        spare.is_spare = true;
        spare
    }

    #[test]
    fn a_device_of_a_raidz_is_replaced_below_a_replacing_vdev() {
        let replacing = raidz().with_replacing(Guid::from(2), leaf(3), Guid::from(9));
        let replacing = replacing.unwrap();
        assert_eq!(guids(&replacing), [6, 1, 9, 2, 3]);
        assert_eq!(replacing.children[1].kind, VdevKind::Replacing);
        assert_eq!(replacing.children[1].id, 1);
        // A second replacement joins the same vdev.
        let twice = replacing.with_replacing(Guid::from(3), leaf(4), Guid::from(10));
        assert_eq!(guids(&twice.unwrap()), [6, 1, 9, 2, 3, 4]);
        for (gone, left) in [(2, [6, 1, 3]), (3, [6, 1, 2])] {
            let without = replacing.without(Guid::from(gone)).unwrap();
            assert_eq!(
                (guids(&without.config), without.heir),
                (left.to_vec(), None)
            );
            assert_eq!(without.config.children[1].id, 1);
        }
        assert_eq!(replacing.without(Guid::from(1)), None);
    }

    #[test]
    fn the_new_device_of_a_single_vdev_takes_over_the_guid_of_the_replacing_vdev() {
        let replacing = top(1).with_replacing(Guid::from(1), leaf(2), Guid::from(9));
        let replacing = replacing.unwrap();
        assert_eq!(guids(&replacing), [9, 1, 2]);
        assert!(is_whole_top(&replacing));
        let left = replacing.without(Guid::from(1)).unwrap();
        assert_eq!(guids(&left.config), [9]);
        assert_eq!(left.heir, Some(Guid::from(2)));
        assert!(is_whole_top(&left.config));
    }

    #[test]
    fn a_mirror_that_loses_its_other_device_leaves_its_guid_to_the_replacing_vdev() {
        let mirror = top(1).with_attached(Guid::from(1), leaf(2), Guid::from(9));
        let mirror = mirror.unwrap();
        let replacing = mirror.with_replacing(Guid::from(2), leaf(3), Guid::from(10));
        let replacing = replacing.unwrap();
        assert_eq!(guids(&replacing), [9, 1, 10, 2, 3]);
        let left = replacing.without(Guid::from(1)).unwrap();
        assert_eq!((guids(&left.config), left.heir), (vec![9, 2, 3], None));
        assert!(is_whole_top(&left.config) && left.config.kind == VdevKind::Replacing);
    }

    #[test]
    fn a_device_replaced_at_its_own_path_is_looked_for_elsewhere() {
        let path = |vdev: &VdevConfig| vdev.path.as_ref().map(ToString::to_string);
        let (mut old, mut new) = (top(1), leaf(2));
        old.path = Some(Text::from("/d/a"));
        new.path = Some(Text::from("/d/a"));
        let replacing = old.with_replacing(Guid::from(1), new, Guid::from(9));
        let replacing = replacing.unwrap();
        assert_eq!(path(&replacing.children[0]).unwrap(), "/d/a/old");
        let cancelled = replacing.without(Guid::from(2)).unwrap();
        assert_eq!(path(&cancelled.config).unwrap(), "/d/a");
        let done = replacing.without(Guid::from(1)).unwrap();
        assert_eq!(path(&done.config).unwrap(), "/d/a");
    }

    #[test]
    fn a_hot_spare_is_returned_or_stays_for_good() {
        let spared = raidz().with_replacing(Guid::from(1), spare(7), Guid::from(9));
        let spared = spared.unwrap();
        assert_eq!(spared.children[0].kind, VdevKind::Spare);
        let returned = spared.without(Guid::from(7)).unwrap();
        assert_eq!(
            (guids(&returned.config), returned.kept_spare),
            (vec![6, 1, 2], None)
        );
        assert!(returned.leaf.is_spare);
        let kept = spared.without(Guid::from(1)).unwrap();
        assert_eq!(guids(&kept.config), [6, 7, 2]);
        assert_eq!(kept.kept_spare, Some(Guid::from(7)));
        assert!(!kept.config.children[0].is_spare);
        // The failed device is replaced while the spare stands in; the spare only by a spare.
        let replaced = spared.with_replacing(Guid::from(1), leaf(3), Guid::from(10));
        assert_eq!(guids(&replaced.unwrap()), [6, 9, 10, 1, 3, 7, 2]);
        let refused = spared.with_replacing(Guid::from(7), leaf(3), Guid::from(10));
        assert_eq!(refused, None);
        let refused = spared.with_replacing(Guid::from(1), spare(8), Guid::from(10));
        assert_eq!(refused, None);
        let second = spared.with_replacing(Guid::from(7), spare(8), Guid::from(10));
        assert_eq!(guids(&second.unwrap()), [6, 9, 1, 7, 8, 2]);
    }
}
