//! Adding top-level vdevs to a pool.
//!
//! The devices are labelled as of no txg, opened behind the last vdev, and given their objects in the MOS. They take
//! blocks from the txg after the one that stores all that: until its uberblock is written, no block may be on a
//! device that the last uberblock does not know.

use crate::config;
use crate::create::{NewVdev, complete_vdev, write_first_label};
use crate::error::ImportError;
use crate::jobs::TaskError;
use crate::pool::Pool;
use crate::space_maps::geometry_of;
use tarn_dataset::task::InternalEvent;
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::VdevId;
use tarn_probe::Operation;

/// Why vdevs were not added.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AddError {
    /// A device cannot be used.
    #[error(transparent)]
    Device(#[from] ImportError),
    /// The pool could not be changed.
    #[error(transparent)]
    Pool(#[from] TaskError),
}

impl Pool {
    /// Adds top-level vdevs, and waits until they are part of the pool.
    ///
    /// # Errors
    /// When a device cannot be opened or labelled, or the pool not changed.
    #[doc(alias = "spa_vdev_add")]
    pub fn add(
        &self,
        new: &[NewVdev],
        ashift: Option<u32>,
        operation: &Operation,
    ) -> Result<(), AddError> {
        self.require_writable()?;
        let mut added: Vec<VdevId> = Vec::new();
        for vdev in new {
            // The next group to be stored cannot be earlier.
            let txg = self.txgs().open_txg();
            let config = complete_vdev(self.host(), vdev, ashift, txg)?;
            let id = self.vdevs().add(&config).map_err(ImportError::from)?;
            write_first_label(self.vdevs(), &self.facts(), id, txg)?;
            added.push(id);
        }
        let ids = added.clone();
        self.run_in_sync(operation, move |scope| {
            let has_root_zap = scope.features.now().is_active(Feature::VdevZapsV2.guid());
            config::create_vdev_objects(scope.writer, scope.pool.vdevs(), has_root_zap)?;
            for top in scope.pool.vdevs().top_levels() {
                if ids.contains(&top.id) {
                    scope.pool.arrays.add(&top);
                    scope.context.record(InternalEvent {
                        name: "vdev add",
                        dataset: None,
                        text: format!("{} vdev", top.name),
                    });
                }
            }
            Ok(Ok(()))
        })?;
        for top in self.vdevs().top_levels() {
            if added.contains(&top.id) {
                let geometry = geometry_of(&top);
                self.space().add_vdev(top.id, geometry, Vec::new());
            }
        }
        self.io().vdevs_changed();
        self.publish_facts();
        Ok(())
    }
}
