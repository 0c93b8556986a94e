//! Removing a log vdev.
//!
//! It is emptied ([`log_devices`](crate::log_devices)); then one group has it no more: its objects
//! are freed, its index is a hole, its devices are named by no label. Their own labels are cleared
//! after that.
//!
//! # After a crash
//! The pool is found with the vdev, empty, or without it. In the second case its devices may still
//! have labels, of a vdev that no configuration has.

use crate::error::VdevChangeError;
use crate::log_holds::LogHold;
use crate::pool::Pool;
use crate::vdev_objects;
use tarn_dataset::task::InternalEvent;
use tarn_ondisk::units::VdevId;
use tarn_probe::Operation;
use tarn_vdev::Departed;

impl Pool {
    /// Takes a log vdev out of the pool, and waits until that is stored.
    ///
    /// # Errors
    /// A log that was not replayed yet has a block on it, or nothing can be stored: it stays.
    ///
    /// # Panics
    /// When it is no log vdev.
    #[doc(alias = "spa_vdev_remove_log")]
    pub fn remove_log(&self, vdev: VdevId, operation: &Operation) -> Result<(), VdevChangeError> {
        let tops = self.vdevs().top_levels();
        let top = tops.iter().find(|top| top.id == vdev);
        assert!(
            top.is_some_and(|top| top.is_log),
            "only log vdevs are removed"
        );
        let hold = self.empty_log(vdev, operation)?;
        let removed = self.run_in_sync(operation, move |scope| {
            let pool = scope.pool;
            let root = pool.vdevs().config();
            let config = &root.children[vdev.index()];
            vdev_objects::free_space_maps(scope, vdev)?;
            vdev_objects::free(scope, config)?;
            pool.space().remove_vdev(vdev);
            pool.arrays.remove(vdev);
            assert_eq!(config.id, vdev.get(), "a top-level vdev is at its index");
            let departed = pool.vdevs().remove(vdev);
            pool.io().vdevs_changed();
            let path = config.path.as_ref().map(ToString::to_string);
            scope.context.record(InternalEvent {
                name: "vdev remove",
                dataset: None,
                text: format!(
                    "{} vdev (log) {}",
                    pool.name(),
                    path.as_deref().unwrap_or("-")
                ),
            });
            Ok(Ok((departed, hold)))
        });
        let (departed, _hold): (Departed, LogHold) = removed?;
        departed.clear();
        Ok(())
    }
}
