//! `zpool remove` of a log vdev.
//!
//! The vdev is emptied ([`log_devices`](crate::log_devices)); then one txg removes it: its objects
//! are freed, its index becomes a hole, and no label names its devices. Their own labels are
//! cleared after that.
//!
//! # After a crash
//! The pool is found with the vdev, empty, or without it. In the second case its devices may still
//! have labels, but no configuration has the vdev.

use crate::error::VdevChangeError;
use crate::events::class;
use crate::log_holds::LogHold;
use crate::pool::Pool;
use crate::vdev_objects;
use tarn_dataset::task::InternalEvent;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::units::VdevId;
use tarn_probe::Operation;

impl Pool {
    /// Removes a log vdev, and waits until that is stored.
    ///
    /// # Errors
    /// A log that is not replayed has a block on it, or the pool stores nothing: it stays.
    ///
    /// # Panics
    /// It is no log vdev.
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
            pool.depart(departed, None);
            Ok(Ok(hold))
        });
        let _hold: LogHold = removed?;
        self.post_event(class::VDEV_REMOVE_DEV, None, NvList::new());
        Ok(())
    }
}
