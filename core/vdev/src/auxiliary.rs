//! Hot spares and cache devices: a pool has them, and they are in no top-level vdev.
//!
//! The MOS lists them in objects of their own; `pool` reads those when it is opened, and changes
//! them. The configuration that labels and the MOS have of the tree does not name them.

use crate::config::VdevConfig;
use crate::tree::VdevTree;
use tarn_ondisk::units::Guid;

/// What a device is that belongs to no top-level vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuxiliaryKind {
    /// A hot spare.
    Spare,
    /// A second-level cache.
    Cache,
}

/// The hot spares and cache devices of a pool.
#[derive(Debug, Clone, Default, PartialEq)]
#[doc(alias = "spa_aux_vdev_t")]
pub struct AuxiliaryDevices {
    /// The hot spares, idle or in use.
    pub spares: Vec<VdevConfig>,
    /// The devices of the second-level cache.
    pub caches: Vec<VdevConfig>,
}

impl AuxiliaryDevices {
    /// Those of one kind.
    pub fn of(&self, kind: AuxiliaryKind) -> &[VdevConfig] {
        match kind {
            AuxiliaryKind::Spare => &self.spares,
            AuxiliaryKind::Cache => &self.caches,
        }
    }

    /// Hot spares, then cache devices.
    pub fn iter(&self) -> impl Iterator<Item = &VdevConfig> {
        self.spares.iter().chain(&self.caches)
    }

    fn of_mut(&mut self, kind: AuxiliaryKind) -> &mut Vec<VdevConfig> {
        match kind {
            AuxiliaryKind::Spare => &mut self.spares,
            AuxiliaryKind::Cache => &mut self.caches,
        }
    }
}

impl VdevTree {
    /// The hot spares and cache devices, with the paths at which they were found.
    pub fn auxiliary(&self) -> AuxiliaryDevices {
        self.state.read().auxiliary.clone()
    }

    /// Says which hot spares and cache devices there are.
    pub fn set_auxiliary(&self, devices: AuxiliaryDevices) {
        self.state.write().auxiliary = devices;
    }

    /// A hot spare or cache device has left the pool.
    pub fn remove_auxiliary(&self, kind: AuxiliaryKind, guid: Guid) {
        let mut state = self.state.write();
        state
            .auxiliary
            .of_mut(kind)
            .retain(|device| device.guid != guid);
    }
}
