//! Configurations of a top-level vdev after `zpool attach`, `detach` and `replace`.
//!
//! # Mechanism
//! A device alone becomes a mirror when another joins: the mirror takes over what only a top-level
//! vdev has (its asize, its space maps, its ZAP), and gets a guid of its own. When one device is
//! left, it takes all of this over again, and the mirror's guid, too: the old label of the device
//! that left names that guid, so an import sees that both are of the same vdev.
//!
//! Only devices and mirrors of devices can be changed, not vdevs with a `replacing` or `spare` vdev
//! below.

use crate::config::{VdevConfig, VdevKind};
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
}

impl VdevConfig {
    /// This top-level vdev, with one more copy beside the device `to`. `mirror` is the guid of the
    /// mirror, if there was none. None where nothing can be attached.
    #[doc(alias = "vdev_add_parent")]
    pub fn with_attached(&self, to: Guid, new: VdevConfig, mirror: Guid) -> Option<VdevConfig> {
        let mut config = match self.kind {
            kind if kind.is_leaf() && self.guid == to => {
                let mut first = self.clone();
                let mut parent = VdevConfig::new(VdevKind::Mirror, mirror);
                parent.create_txg = self.create_txg;
                hand_over_top(&mut first, &mut parent);
                parent.children = vec![first];
                parent
            }
            VdevKind::Mirror => {
                self.leaf_index(to)?;
                self.clone()
            }
            _ => return None,
        };
        config.children.push(new);
        config.number_children();
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
        })
    }

    /// This top-level vdev without a device. None for what is no mirror of devices, or has no
    /// other.
    #[doc(alias = "vdev_remove_parent")]
    pub fn without(&self, leaf: Guid) -> Option<Left> {
        let index = match self.kind {
            VdevKind::Mirror if self.children.len() > 1 => self.leaf_index(leaf)?,
            _ => return None,
        };
        let mut config = self.clone();
        let leaf = config.children.remove(index);
        let mut heir = None;
        if config.children.len() == 1 && config.children[0].kind.is_leaf() {
            let mut last = config.children.remove(0);
            heir = Some(last.guid);
            hand_over_top(&mut config, &mut last);
            last.guid = self.guid;
            config = last;
        }
        config.number_children();
        Some(Left { config, leaf, heir })
    }

    /// The place of a device among the children.
    fn leaf_index(&self, guid: Guid) -> Option<usize> {
        let is_it = |child: &VdevConfig| child.guid == guid && child.kind.is_leaf();
        self.children.iter().position(is_it)
    }
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
        let mut raidz = VdevConfig::new(VdevKind::Raidz { parity: 1 }, Guid::from(6));
        raidz.children = vec![leaf(1), leaf(2)];
        assert_eq!(raidz.without(Guid::from(1)), None);
    }
}
