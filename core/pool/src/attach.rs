//! `zpool attach` and `zpool replace`.
//!
//! # Mechanism
//! One txg makes the device a member. From then on writes go to it. In a data vdev its dirty time
//! log has all births up to the txgs that were open then, so reads prefer its siblings, and a
//! resilver fills it. A device that replaces another joins it below a `replacing` vdev (a hot spare
//! below a `spare` vdev), which [`replacing`](crate::replacing) dissolves after the resilver.
//!
//! A device that joins for a [sequential rebuild](crate::rebuild) is filled by that instead.
//!
//! An emptied log vdev holds nothing ([`log_devices`](crate::log_devices)), so a device that joins
//! it, or replaces another, need not be resilvered: one txg stores the vdev with the new device,
//! and after it blocks are allocated there again.
//!
//! # After a crash
//! The pool is found without the new device, or with it and its dirty time log. In the first case
//! the new device has a label of txg 0, so it belongs to no pool; in the second a replaced log
//! device may still have its labels, but no configuration has it.

use crate::config;
use crate::create::new_guid;
use crate::detach::label_of_none;
use crate::error::{ImportError, VdevChangeError};
use crate::events::class;
use crate::fill::TXGS_AT_ONCE;
use crate::log_holds::LogHold;
use crate::pool::Pool;
use crate::rebuild::control;
use crate::vdev_objects;
use std::path::Path;
use std::time::Duration;
use tarn_dataset::task::InternalEvent;
use tarn_host::OpenMode;
use tarn_ondisk::features::Feature;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::units::{Guid, Txg, VdevId};
use tarn_probe::Operation;
use tarn_vdev::labels::create_labels;
use tarn_vdev::membership::Left;
use tarn_vdev::sizes::{self, SectorShifts};
use tarn_vdev::{Change, NewLeaf, VdevConfig, VdevKind, open_window};

/// How often a new device is opened again that cannot be opened at once, and how long after.
const OPEN_TRIES: usize = 10;
const OPEN_INTERVAL: Duration = Duration::from_millis(20);

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

    /// The top-level vdev with the new device, and the device that left it. `parent` is the guid of
    /// a vdev above both devices, where there was none.
    fn change(self, top: &VdevConfig, new: &VdevConfig, parent: Guid) -> Option<Left> {
        let is_log = top.top_level.as_ref().is_some_and(|top| top.is_log);
        let config = match self {
            Joining::InsteadOf(old) if is_log => return top.with_replaced(old, new.clone()),
            Joining::InsteadOf(old) => top.with_replacing(old, new.clone(), parent)?,
            Joining::Beside(to) => top.with_attached(to, new.clone(), parent)?,
        };
        Some(Left {
            config,
            // A device of no pool has no objects to free.
            leaf: VdevConfig::new(new.kind, Guid::ZERO),
            heir: None,
            kept_spare: None,
        })
    }

    /// The text for the history.
    fn text(self, new: &VdevConfig, old: &VdevConfig) -> String {
        let is_spare = new.is_spare;
        let path = |vdev: &VdevConfig| vdev.path.as_ref().map(ToString::to_string);
        let (new, old) = (path(new), path(old));
        let (new, old) = (new.unwrap_or_default(), old.unwrap_or_default());
        match self {
            Joining::Beside(_) => format!("attach vdev={new} to vdev={old}"),
            Joining::InsteadOf(_) if is_spare => format!("spare in vdev={new} for vdev={old}"),
            Joining::InsteadOf(_) => format!("replace vdev={new} for vdev={old}"),
        }
    }

    fn refusal(self, is_log: bool) -> VdevChangeError {
        VdevChangeError::WrongKind {
            why: match self {
                Joining::Beside(_) => "can only attach to mirrors and top-level disks",
                Joining::InsteadOf(_) if is_log => "invalid target vdev",
                Joining::InsteadOf(_) => {
                    "already in replacing/spare config; wait for completion or use 'zpool detach'"
                }
            },
        }
    }
}

/// A device that joins a vdev.
#[derive(Debug, Clone, Copy)]
pub struct Newcomer<'a> {
    /// Where it is.
    pub path: &'a str,
    /// The hot spare of the pool that it is.
    pub spare: Option<&'a VdevConfig>,
    /// `-s`: a sequential rebuild fills it, and no resilver. A log vdev is emptied instead.
    pub is_sequential: bool,
}

impl Pool {
    /// Adds a device to a vdev, waits until that is stored, and starts a resilver or rebuild.
    ///
    /// # Errors
    /// The device cannot be used, the vdev cannot be changed like this, a log that is not replayed
    /// has a block on it, or the pool stores nothing: nothing has changed.
    #[doc(alias = "spa_vdev_attach")]
    pub fn join(
        &self,
        joining: Joining,
        new: Newcomer<'_>,
        operation: &Operation,
    ) -> Result<(), VdevChangeError> {
        self.require_writable()?;
        self.refuse_for_checkpoint()?;
        let target = joining.target();
        let top_id = self.vdevs().top_of(target);
        let id = top_id.ok_or_else(|| joining.refusal(false))?;
        let parent = new_guid(self.host());
        let root = self.vdevs().config();
        let top = &root.children[id.index()];
        let is_log = top.top_level.as_ref().is_some_and(|top| top.is_log);
        let old = top.find(target).cloned();
        let old = old.ok_or_else(|| joining.refusal(is_log))?;
        if is_log && new.spare.is_some() {
            let why = "cannot replace a log with a spare";
            return Err(VdevChangeError::WrongKind { why });
        }
        let is_sequential = new.is_sequential && !is_log;
        if is_sequential {
            self.check_rebuild(joining, top)?;
        } else if !is_log && self.is_rebuilding() {
            return Err(VdevChangeError::Rebuilding);
        }
        let new = self.new_leaf(new, &old, top)?;
        if joining.change(top, &new, parent).is_none() {
            return Err(joining.refusal(is_log));
        }
        let hold = match is_log {
            true => Some(self.empty_log(id, operation)?),
            false => None,
        };
        if !is_log && self.is_the_same(&old, &new) && !self.vdevs().give_way(target) {
            return Err(VdevChangeError::NoReplicas);
        }
        let leaf = self.label_new(joining, &new, id, parent)?;
        let (newcomer, is_spare) = (new.guid, new.is_spare);
        let joined = self.run_in_sync(operation, move |scope| {
            let pool = scope.pool;
            let root = pool.vdevs().config();
            let (txg, mut new) = (scope.writer.tx.txg(), new);
            if !is_log {
                let last = Txg::new(txg.get() + TXGS_AT_ONCE - 1);
                leaf.leaf().add_to_dtl(Txg::INITIAL..=last);
                match is_sequential {
                    true => new.set_rebuild_txg(Some(txg)),
                    false => new.set_resilver_txg(Some(txg)),
                }
            }
            // A resilver may have ended meanwhile, and changed the vdev.
            let Some(change) = joining.change(&root.children[id.index()], &new, parent) else {
                return Ok(Ok(None));
            };
            let departed = pool.vdevs().reshape(Change {
                config: change.config,
                joining: Some(leaf),
                heir: change.heir,
            });
            assert!(
                pool.vdevs().leaf(new.guid).is_some(),
                "a device that joined is in the tree"
            );
            assert!(
                is_log || departed.is_empty(),
                "no device leaves a data vdev because another joins"
            );
            if !departed.is_empty() {
                let label = label_of_none(&pool.facts(), &root, id, old.guid);
                pool.depart(departed, Some(label));
            }
            vdev_objects::free(scope, &change.leaf)?;
            let has_root_zap = scope.features.now().is_active(Feature::VdevZapsV2.guid());
            config::create_vdev_objects(scope.writer, pool.vdevs(), has_root_zap)?;
            if is_sequential {
                control::begin(scope, id)?;
            }
            scope.context.record(InternalEvent {
                name: "vdev attach",
                dataset: None,
                text: joining.text(&new, &old),
            });
            Ok(Ok(Some(hold)))
        });
        let joined: Option<Option<LogHold>> = joined?;
        joined.ok_or_else(|| joining.refusal(is_log))?;
        if is_spare {
            self.post_event(class::VDEV_SPARE, Some(newcomer), NvList::new());
        }
        self.post_event(class::VDEV_ATTACH, Some(newcomer), NvList::new());
        if is_sequential {
            self.resume_rebuilds();
        } else if !is_log {
            self.fill_devices(operation)?;
        }
        Ok(())
    }

    /// Refuses a sequential rebuild of a vdev of another kind, and one beside a resilver.
    fn check_rebuild(&self, joining: Joining, top: &VdevConfig) -> Result<(), VdevChangeError> {
        let is_mirrored = top.kind == VdevKind::Mirror || top.kind.is_leaf();
        let is_enabled = self
            .features()
            .count(Feature::DeviceRebuild.guid())
            .is_some();
        match joining {
            Joining::Beside(_) if !is_enabled => return Err(VdevChangeError::NoDeviceRebuild),
            Joining::Beside(_) if !is_mirrored => return Err(joining.refusal(false)),
            Joining::InsteadOf(_) if !is_enabled || !is_mirrored => {
                let why = "only mirror and dRAID vdevs support sequential reconstruction";
                return Err(VdevChangeError::WrongKind { why });
            }
            Joining::Beside(_) | Joining::InsteadOf(_) => {}
        }
        match self.is_resilver_due() {
            true => Err(VdevChangeError::Resilvering),
            false => Ok(()),
        }
    }

    /// The configuration of a new device with the roles of `old`.
    fn new_leaf(
        &self,
        new: Newcomer<'_>,
        old: &VdevConfig,
        top: &VdevConfig,
    ) -> Result<VdevConfig, VdevChangeError> {
        let window = open_window(self.host(), Path::new(new.path), OpenMode::ReadOnly);
        let window = window.map_err(ImportError::from)?;
        let info = window.info();
        let facts = top.top_level.as_ref().ok_or(VdevChangeError::WrongKind {
            why: "invalid target vdev",
        })?;
        let room = tarn_ondisk::label::data_size(window.size_bytes());
        let count = top.children.len().try_into().unwrap_or(u64::MAX).max(1);
        let least = sizes::child_size_min(top.kind, facts.asize, count);
        if room.is_none_or(|room| room < least) {
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
        // A larger physical sector is only slower.
        if sectors.logical > facts.ashift {
            return Err(VdevChangeError::LargerSectors);
        }
        let guid = new.spare.map(|spare| spare.guid);
        let guid = guid.unwrap_or_else(|| new_guid(self.host()));
        let mut config = VdevConfig::new(kind, guid);
        if let Some(spare) = new.spare {
            config.is_spare = true;
            config.device_id.clone_from(&spare.device_id);
            config.physical_path.clone_from(&spare.physical_path);
            config.enclosure_path.clone_from(&spare.enclosure_path);
            config.whole_disk = spare.whole_disk;
        }
        config.path = Some(new.path.into());
        config.create_txg = old.create_txg;
        if kind == VdevKind::Disk {
            config.whole_disk.get_or_insert(false);
        }
        Ok(config)
    }

    /// Whether a new device is the very one that it replaces, and is open. It has lost its labels:
    /// the caller has looked.
    fn is_the_same(&self, old: &VdevConfig, new: &VdevConfig) -> bool {
        let opened = self.vdevs().leaf(old.guid).and_then(|leaf| leaf.window());
        let path = new.path.as_ref().and_then(|path| path.as_str());
        let (Some(opened), Some(path)) = (opened, path) else {
            return false;
        };
        let found = open_window(self.host(), Path::new(path), OpenMode::ReadOnly);
        found.is_ok_and(|found| found.info().identity == opened.info().identity)
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
        let mut leaf = self.vdevs().open_new(new, sector_bytes);
        for _ in 0..OPEN_TRIES {
            if leaf.is_ok() {
                break;
            }
            // A request under way may still hold the device that gave way.
            self.host().sleep(OPEN_INTERVAL);
            leaf = self.vdevs().open_new(new, sector_bytes);
        }
        let leaf = leaf.map_err(ImportError::from)?;
        let change = joining.change(&root.children[id.index()], new, mirror);
        root.children[id.index()] = change.ok_or_else(|| joining.refusal(false))?.config;
        let label = self
            .facts()
            .first_label_of(&root, id.index(), new, self.txgs().open_txg());
        let window = leaf.leaf().window();
        let window = window.expect("it was opened just now");
        create_labels(&window, &label).map_err(ImportError::from)?;
        Ok(leaf)
    }
}
