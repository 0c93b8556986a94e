//! Hot spares and cache devices: a pool has them, and they are in no top-level vdev.
//!
//! The MOS lists them in objects of their own; `pool` reads those when it is opened, and changes
//! them. The configuration that labels and the MOS have of the tree does not name them.

use crate::config::VdevConfig;

/// The use of a device that belongs to no top-level vdev.
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
    /// The devices of one kind.
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

    pub(crate) fn of_mut(&mut self, kind: AuxiliaryKind) -> &mut Vec<VdevConfig> {
        match kind {
            AuxiliaryKind::Spare => &mut self.spares,
            AuxiliaryKind::Cache => &mut self.caches,
        }
    }
}
