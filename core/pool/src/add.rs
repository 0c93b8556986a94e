//! `zpool add`: adds top-level vdevs to a pool.
//!
//! # Mechanism
//! The devices are opened, and get labels of txg 0, while the pool does not know them: an error
//! there leaves it as it was. All vdevs of a command join the tree in one job of the sync thread,
//! which makes their objects in the MOS in the same txg. Blocks are allocated on them from the next
//! txg on: until the uberblock is written, no block may be on a device that the last uberblock does
//! not know.
//!
//! # Invariants
//! - No stored configuration has a vdev without its space maps. Otherwise the next import could not
//!   know its free space.
//!
//! # After a crash
//! The pool is found without the vdevs, whose labels then belong to no pool, or with all of them
//! and their objects.

use crate::config;
use crate::create::{NewVdev, complete_vdev, write_first_label};
use crate::error::{ImportError, TaskError};
use crate::events::class;
use crate::pool::Pool;
use crate::space_maps::geometry_of;
use tarn_dataset::task::InternalEvent;
use tarn_ondisk::features::Feature;
use tarn_ondisk::nvlist::NvList;
use tarn_probe::Operation;
use tarn_vdev::NewTop;

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
    /// A device cannot be opened or labelled, or the pool not changed: none of the vdevs is part of
    /// it.
    #[doc(alias = "spa_vdev_add")]
    pub fn add(
        &self,
        new: &[NewVdev],
        ashift: Option<u32>,
        operation: &Operation,
    ) -> Result<(), AddError> {
        self.require_writable()?;
        let joining = self.open_and_label(new, ashift)?;
        self.run_in_sync(operation, move |scope| {
            let pool = scope.pool;
            let count = joining.len();
            let ids = pool.vdevs().join(joining);
            assert_eq!(ids.len(), count, "each new vdev has joined");
            let has_root_zap = scope.features.now().is_active(Feature::VdevZapsV2.guid());
            config::create_vdev_objects(scope.writer, pool.vdevs(), has_root_zap)?;
            for top in pool.vdevs().top_levels() {
                if ids.contains(&top.id) {
                    pool.arrays.add(&top);
                    scope.context.record(InternalEvent {
                        name: "vdev add",
                        dataset: None,
                        text: format!("{} vdev", top.name),
                    });
                }
            }
            pool.joined.lock().extend(ids);
            Ok(Ok(()))
        })?;
        self.post_event(class::VDEV_ADD, None, NvList::new());
        Ok(())
    }

    /// Opens the devices of new vdevs, and writes labels of txg 0.
    fn open_and_label(
        &self,
        new: &[NewVdev],
        ashift: Option<u32>,
    ) -> Result<Vec<NewTop>, ImportError> {
        // The next txg to be stored cannot be earlier.
        let txg = self.txgs().open_txg();
        let mut root = self.vdevs().config();
        let first = root.children.len();
        for vdev in new {
            let config = complete_vdev(self.host(), vdev, ashift, txg)?;
            root.children.push(config);
        }
        root.number_children();
        let configs = root.children[first..].iter();
        let opened = configs.map(|config| self.vdevs().open_new_top(config));
        let opened = opened.collect::<Result<Vec<_>, _>>()?;
        for (top, vdev) in (first..).zip(&opened) {
            write_first_label(vdev.leaves(), &self.facts(), (&root, top), txg)?;
        }
        Ok(opened)
    }

    /// Called when the txg is stored in which vdevs joined the pool, or grew: blocks are allocated
    /// there from now on.
    pub(crate) fn open_joined(&self) {
        let grown = std::mem::take(&mut *self.grown.lock());
        for top in self.vdevs().top_levels() {
            if grown.contains(&top.id) {
                self.space().grow_vdev(top.id, top.asize);
            }
        }
        let joined = std::mem::take(&mut *self.joined.lock());
        if joined.is_empty() {
            return;
        }
        // From here on blocks on it are counted deflated.
        self.io().vdevs_changed();
        for top in self.vdevs().top_levels() {
            if joined.contains(&top.id) {
                self.space().add_vdev(top.id, geometry_of(&top), Vec::new());
            }
        }
    }
}
