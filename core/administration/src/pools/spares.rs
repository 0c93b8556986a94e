//! Hot spares that pools share: a device can be a spare of several pools, and be in use in one.

use crate::administrator::Administrator;
use crate::messages::pool::{PoolDescription, VdevRole};
use tarn_ondisk::units::Guid;
use tarn_probe::Operation;
use tarn_vdev::AuxiliaryKind;

impl Administrator {
    /// Shows the hot spares that are in use, and where.
    #[doc(alias = "VDEV_AUX_SPARED")]
    pub(super) fn mark_spares_in_use(&self, described: &mut PoolDescription) {
        let is_spare = |role| role == VdevRole::Spare;
        for vdev in &mut described.layout {
            if !is_spare(vdev.role) {
                continue;
            }
            let Some(open) = self.engine.pool_with_spare_in_use(Guid::from(vdev.guid)) else {
                continue;
            };
            vdev.state = "INUSE".to_string();
            let name = open.pool.name();
            vdev.remark = Some(match name == described.name {
                true => "currently in use".to_string(),
                false => format!("in use by pool '{name}'"),
            });
        }
    }

    /// Removes a device from the hot spares of all pools, because it belongs to a vdev for good.
    pub(super) fn unlist_spare(&self, guid: Guid, operation: &Operation) {
        for open in self.engine.pools() {
            let auxiliary = open.pool.vdevs().auxiliary();
            if auxiliary.spares.iter().any(|spare| spare.guid == guid) {
                // A pool that stores nothing keeps it in its list, where it is shown as in use.
                let kind = AuxiliaryKind::Spare;
                drop(open.pool.remove_auxiliary(kind, guid, operation));
            }
        }
    }
}
