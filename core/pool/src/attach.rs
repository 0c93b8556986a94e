//! `zpool attach` and `zpool replace` for log vdevs.
//!
//! An emptied log vdev holds nothing ([`log_devices`](crate::log_devices)), so a device that joins
//! it, or replaces another, need not be resilvered: one txg stores the vdev with the new device,
//! and after it blocks are allocated there again.
//!
//! # After a crash
//! The pool is found with the old vdev, empty, or with the new one. In the first case the new
//! device has a label of txg 0, so it belongs to no pool; in the second a replaced device may still
//! have its labels, but no configuration has it.

use crate::config;
use crate::create::new_guid;
use crate::error::{ImportError, VdevChangeError};
use crate::log_holds::LogHold;
use crate::pool::Pool;
use crate::vdev_objects;
use std::path::Path;
use tarn_dataset::task::InternalEvent;
use tarn_host::OpenMode;
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::{Guid, VdevId};
use tarn_probe::Operation;
use tarn_vdev::labels::create_labels;
use tarn_vdev::membership::Left;
use tarn_vdev::sizes::{self, SectorShifts};
use tarn_vdev::{Change, Departed, NewLeaf, VdevConfig, VdevKind, open_window};

/// The role of a new device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joining {
    /// `zpool attach`: one more copy beside this device.
    Beside(Guid),
    /// `zpool replace`: it replaces this device.
    InsteadOf(Guid),
}

impl Joining {
    fn target(self) -> Guid {
        match self {
            Joining::Beside(target) | Joining::InsteadOf(target) => target,
        }
    }

    /// The top-level vdev with the new device, and the device that left it.
    fn change(self, top: &VdevConfig, new: &VdevConfig, mirror: Guid) -> Option<Left> {
        match self {
            Joining::InsteadOf(old) => top.with_replaced(old, new.clone()),
            Joining::Beside(to) => {
                let config = top.with_attached(to, new.clone(), mirror)?;
                // A device of no pool has no objects to free.
                let leaf = VdevConfig::new(new.kind, Guid::ZERO);
                let heir = None;
                Some(Left { config, leaf, heir })
            }
        }
    }

    /// The text for the history.
    fn text(self, new: &VdevConfig, old: &VdevConfig) -> String {
        let path = |vdev: &VdevConfig| vdev.path.as_ref().map(ToString::to_string);
        let (new, old) = (path(new), path(old));
        let (new, old) = (new.unwrap_or_default(), old.unwrap_or_default());
        match self {
            Joining::Beside(_) => format!("attach vdev={new} to vdev={old}"),
            Joining::InsteadOf(_) => format!("replace vdev={new} for vdev={old}"),
        }
    }

    fn refusal(self) -> VdevChangeError {
        VdevChangeError::WrongKind {
            why: match self {
                Joining::Beside(_) => "can only attach to mirrors and top-level disks",
                Joining::InsteadOf(_) => "invalid target vdev",
            },
        }
    }
}

impl Pool {
    /// Adds a device to a log vdev, and waits until that is stored.
    ///
    /// # Errors
    /// The device cannot be used, the vdev cannot be changed like this, a log that is not replayed
    /// has a block on it, or the pool stores nothing: nothing has changed.
    ///
    /// # Panics
    /// It is no log vdev.
    #[doc(alias = "spa_vdev_attach")]
    pub fn join_log(
        &self,
        joining: Joining,
        path: &str,
        ashift: Option<u32>,
        operation: &Operation,
    ) -> Result<(), VdevChangeError> {
        let target = joining.target();
        let Some(id) = self.vdevs().top_of(target) else {
            return Err(joining.refusal());
        };
        let tops = self.vdevs().top_levels();
        assert!(tops[id.index()].is_log, "only log vdevs hold nothing");
        let mirror = new_guid(self.host());
        let root = self.vdevs().config();
        let top = &root.children[id.index()];
        let old = top.find(target).cloned();
        let old = old.ok_or_else(|| joining.refusal())?;
        let new = self.new_leaf(path, ashift, &old, top)?;
        if joining.change(top, &new, mirror).is_none() {
            return Err(joining.refusal());
        }
        let hold = self.empty_log(id, operation)?;
        let leaf = self.label_new(joining, &new, id, mirror)?;
        let changed = self.run_in_sync(operation, move |scope| {
            let pool = scope.pool;
            let root = pool.vdevs().config();
            let change = joining.change(&root.children[id.index()], &new, mirror);
            let change = change.expect("nobody else has changed the vdev");
            let departed = pool.vdevs().reshape(Change {
                config: change.config,
                joining: Some(leaf),
                heir: change.heir,
            });
            vdev_objects::free(scope, &change.leaf)?;
            let has_root_zap = scope.features.now().is_active(Feature::VdevZapsV2.guid());
            config::create_vdev_objects(scope.writer, pool.vdevs(), has_root_zap)?;
            scope.context.record(InternalEvent {
                name: "vdev attach",
                dataset: None,
                text: joining.text(&new, &old),
            });
            Ok(Ok((departed, hold)))
        });
        let (departed, _hold): (Departed, LogHold) = changed?;
        departed.clear();
        Ok(())
    }

    /// The configuration of a new device with the roles of `old`.
    fn new_leaf(
        &self,
        path: &str,
        ashift: Option<u32>,
        old: &VdevConfig,
        top: &VdevConfig,
    ) -> Result<VdevConfig, VdevChangeError> {
        let window = open_window(self.host(), Path::new(path), OpenMode::ReadOnly);
        let window = window.map_err(ImportError::from)?;
        let info = window.info();
        let facts = top.top_level.as_ref().ok_or(VdevChangeError::WrongKind {
            why: "invalid target vdev",
        })?;
        let room = tarn_ondisk::label::data_size(window.size_bytes());
        if room.is_none_or(|room| room < facts.asize) {
            return Err(VdevChangeError::TooSmall);
        }
        let (kind, sectors) = match info.is_block_device {
            false => (VdevKind::File, SectorShifts::FILE),
            true => (
                VdevKind::Disk,
                SectorShifts::from_bytes(
                    u64::from(info.logical_sector_bytes),
                    u64::from(info.physical_sector_bytes),
                ),
            ),
        };
        let shift = ashift.or_else(|| sizes::choose_ashift(&[sectors]));
        if sectors.logical > facts.ashift || shift.is_none_or(|shift| shift > facts.ashift) {
            return Err(VdevChangeError::LargerSectors);
        }
        let mut new = VdevConfig::new(kind, new_guid(self.host()));
        new.path = Some(path.into());
        new.create_txg = old.create_txg;
        Ok(new)
    }

    /// Opens a new device, and writes labels of txg 0.
    fn label_new(
        &self,
        joining: Joining,
        new: &VdevConfig,
        id: VdevId,
        mirror: Guid,
    ) -> Result<NewLeaf, VdevChangeError> {
        let mut root = self.vdevs().config();
        let facts = root.children[id.index()].top_level.as_ref();
        let sector_bytes = facts.map_or(u64::MAX, |facts| 1 << facts.ashift);
        let leaf = self.vdevs().open_new(new, sector_bytes);
        let leaf = leaf.map_err(ImportError::from)?;
        let change = joining.change(&root.children[id.index()], new, mirror);
        root.children[id.index()] = change.ok_or_else(|| joining.refusal())?.config;
        let label = self
            .facts()
            .first_label_of(&root, id.index(), new, self.txgs().open_txg());
        let window = leaf.leaf().window();
        let window = window.expect("it was opened just now");
        create_labels(&window, &label).map_err(ImportError::from)?;
        Ok(leaf)
    }
}
