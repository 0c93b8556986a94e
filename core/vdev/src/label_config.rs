//! The configuration in a label: the pool, and the top-level vdev that the device belongs to.
//!
//! # Mechanism
//! The label of each device has, in a name-value list, the pool's name and guid, how many top-level
//! vdevs there are, and the whole configuration of its own one. Together, the labels of a pool's
//! devices suffice to read the MOS, which has the whole configuration.
//!
//! A hot spare belongs to no top-level vdev, and may be shared by pools. Its label has its guid and
//! paths.

use crate::config::VdevConfig;
use crate::error::LabelError;
use tarn_ondisk::nvlist::{NvList, Text};
use tarn_ondisk::units::{Guid, Txg};

/// What the labels say about the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[doc(alias = "pool_state_t")]
pub enum PoolState {
    /// The pool is in use, or was when its host stopped.
    Active,
    /// The pool was exported.
    Exported,
    /// The pool was destroyed.
    Destroyed,
    /// No pool: the device is a hot spare.
    Spare,
    /// No pool: the device is a second-level cache.
    Cache,
    /// An unknown state.
    Other(u64),
}

impl PoolState {
    /// As it is stored.
    pub const fn number(self) -> u64 {
        match self {
            PoolState::Active => 0,
            PoolState::Exported => 1,
            PoolState::Destroyed => 2,
            PoolState::Spare => 3,
            PoolState::Cache => 4,
            PoolState::Other(number) => number,
        }
    }

    /// From what is stored.
    pub const fn from_number(number: u64) -> PoolState {
        match number {
            0 => PoolState::Active,
            1 => PoolState::Exported,
            2 => PoolState::Destroyed,
            3 => PoolState::Spare,
            4 => PoolState::Cache,
            other => PoolState::Other(other),
        }
    }

    /// True for a device that is no part of a tree of vdevs.
    pub const fn is_auxiliary(self) -> bool {
        matches!(self, PoolState::Spare | PoolState::Cache)
    }
}

/// What every label of a pool has about the pool.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolFacts {
    /// Version of the format: 1 to 28, or 5000 for feature flags.
    pub version: u64,
    /// Its name.
    pub name: Text,
    /// Whether it is in use.
    pub state: PoolState,
    /// The txg of the label; zero while the vdev has not joined the pool.
    pub txg: Txg,
    /// Its name for good.
    pub guid: Guid,
    /// The number of a known defect of the program that wrote the pool (`errata`).
    pub errata: u64,
    /// The property `comment`.
    pub comment: Option<Text>,
    /// The property `compatibility`: the feature sets that the pool is kept to.
    pub compatibility: Option<Text>,
    /// The host that used it last; zero for none.
    pub host_id: u64,
    /// That host's name.
    pub host_name: Text,
    /// The active features that a reader of the MOS must support: a list of flags.
    pub features_for_read: NvList,
}

impl PoolFacts {
    /// The label of a device of `root`, below the top-level vdev of index `top_index`.
    ///
    /// # Panics
    /// When there is no such top-level vdev.
    #[doc(alias = "spa_config_generate")]
    pub fn label_of(&self, root: &VdevConfig, top_index: usize, leaf: &VdevConfig) -> NvList {
        let top = &root.children[top_index];
        let mut list = self.pool_list();
        list.set("top_guid", top.guid.get());
        list.set("guid", leaf.guid.get());
        if leaf.is_spare {
            list.set("is_spare", 1u64);
        }
        // Of a mirror of log devices only the mirror's configuration has `is_log`.
        let is_log = top.top_level.as_ref().is_some_and(|facts| facts.is_log);
        if is_log && leaf.guid == top.guid {
            list.set("is_log", 1u64);
        }
        set_top_levels(&mut list, root);
        list.set("vdev_tree", top.to_label_list());
        list.set("features_for_read", self.features_for_read.clone());
        list
    }

    /// The label of a device that is about to join: of txg 0, so that no import takes the device
    /// for a member yet.
    pub fn first_label_of(
        &self,
        root: &VdevConfig,
        top_index: usize,
        leaf: &VdevConfig,
        create_txg: Txg,
    ) -> NvList {
        let facts = PoolFacts {
            txg: Txg::ZERO,
            ..self.clone()
        };
        facts
            .label_of(root, top_index, leaf)
            .with("create_txg", create_txg.get())
    }

    /// The configuration for the MOS, with the whole tree.
    pub fn mos_list(&self, root: &VdevConfig) -> NvList {
        let mut list = self.pool_list();
        list.set_flag("com.delphix:has_per_vdev_zaps");
        set_top_levels(&mut list, root);
        list.set("vdev_tree", root.to_mos_list());
        list.set("features_for_read", self.features_for_read.clone());
        list
    }

    /// Parses the facts about the pool from a label, the MOS or a cache file.
    pub fn parse(list: &NvList) -> Result<PoolFacts, LabelError> {
        let number = |name: &str| list.optional_u64(name).map(|number| number.unwrap_or(0));
        let text = |name: &str| list.optional_text(name).map(|text| text.cloned());
        Ok(PoolFacts {
            version: list.u64("version")?,
            name: list.text("name")?.clone(),
            state: PoolState::from_number(list.u64("state")?),
            txg: Txg::from(number("txg")?),
            guid: Guid::from(list.u64("pool_guid")?),
            errata: number("errata")?,
            comment: text("comment")?,
            compatibility: text("compatibility")?,
            host_id: number("hostid")?,
            host_name: text("hostname")?.unwrap_or_default(),
            features_for_read: list
                .optional_list("features_for_read")?
                .cloned()
                .unwrap_or_default(),
        })
    }

    fn pool_list(&self) -> NvList {
        let mut list = NvList::new()
            .with("version", self.version)
            .with("name", self.name.clone())
            .with("state", self.state.number())
            .with("txg", self.txg.get())
            .with("pool_guid", self.guid.get())
            .with("errata", self.errata);
        if let Some(comment) = &self.comment {
            list.set("comment", comment.clone());
        }
        if let Some(compatibility) = &self.compatibility {
            list.set("compatibility", compatibility.clone());
        }
        if self.host_id != 0 {
            list.set("hostid", self.host_id);
        }
        list.set("hostname", self.host_name.clone());
        list
    }
}

/// The label of a hot spare that is not in use.
pub fn spare_label(version: u64, spare: &VdevConfig) -> NvList {
    auxiliary_label(version, PoolState::Spare, spare)
}

/// The label of a cache device.
pub fn cache_label(version: u64, cache: &VdevConfig) -> NvList {
    auxiliary_label(version, PoolState::Cache, cache)
}

#[doc(alias = "vdev_aux_label_generate")]
fn auxiliary_label(version: u64, state: PoolState, vdev: &VdevConfig) -> NvList {
    let mut list = NvList::new()
        .with("version", version)
        .with("state", state.number())
        .with("guid", vdev.guid.get());
    if let Some(shift) = vdev.cache_ashift {
        list.set("ashift", u64::from(shift));
    }
    let texts = [
        ("path", &vdev.path),
        ("devid", &vdev.device_id),
        ("phys_path", &vdev.physical_path),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            list.set(name, text.clone());
        }
    }
    list
}

/// How many top-level vdevs there are, and which of them are holes.
#[doc(alias = "vdev_top_config_generate")]
fn set_top_levels(list: &mut NvList, root: &VdevConfig) {
    let tops = (0u64..).zip(&root.children);
    let is_hole = |(_, top): &(u64, &VdevConfig)| top.kind == crate::config::VdevKind::Hole;
    let holes: Vec<u64> = tops.filter(is_hole).map(|(index, _)| index).collect();
    if !holes.is_empty() {
        list.set("hole_array", holes);
    }
    list.set(
        "vdev_children",
        u64::try_from(root.children.len()).expect("vdevs are counted in 64 bits"),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{TopLevelConfig, VdevKind};
    use tarn_ondisk::units::{AllocatedSize, ObjectId};

    fn facts() -> PoolFacts {
        PoolFacts {
            version: 5000,
            name: Text::from("tank"),
            state: PoolState::Active,
            txg: Txg::from(38),
            guid: Guid::from(10),
            errata: 0,
            comment: None,
            compatibility: None,
            host_id: 7,
            host_name: Text::from("here"),
            features_for_read: NvList::new(),
        }
    }

    fn root() -> VdevConfig {
        let mut leaf = VdevConfig::new(VdevKind::File, Guid::from(12));
        leaf.path = Some(Text::from("/a.img"));
        leaf.top_level = Some(TopLevelConfig {
            metaslab_array: ObjectId::from(135),
            metaslab_shift: 24,
            ashift: 12,
            asize: AllocatedSize::from(95_944_704),
            is_log: true,
            non_allocating: false,
            removing: false,
        });
        let mut root = VdevConfig::new(VdevKind::Root, Guid::from(10));
        root.children = vec![leaf, VdevConfig::new(VdevKind::Hole, Guid::ZERO)];
        root.number_children();
        root
    }

    #[test]
    fn a_label_has_its_pairs_in_the_order_of_openzfs() {
        let root = root();
        let label = facts().label_of(&root, 0, &root.children[0]);
        let names: Vec<_> = label.iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(
            names.join(" "),
            "version name state txg pool_guid errata hostid hostname top_guid guid is_log \
             hole_array vdev_children vdev_tree features_for_read"
        );
        assert_eq!(label.u64s("hole_array").unwrap(), [1]);
        assert_eq!(PoolFacts::parse(&label).unwrap(), facts());
    }

    #[test]
    fn a_new_device_is_of_no_txg_yet() {
        let root = root();
        let label = facts().first_label_of(&root, 0, &root.children[0], Txg::INITIAL);
        assert_eq!(label.u64("txg"), Ok(0));
        assert_eq!(label.u64("create_txg"), Ok(4));
    }

    #[test]
    fn a_hot_spare_says_who_it_is_and_no_more() {
        let label = spare_label(5000, &root().children[0]);
        let names: Vec<_> = label.iter().map(|(name, _)| name.to_string()).collect();
        assert_eq!(names, ["version", "state", "guid", "path"]);
    }
}
