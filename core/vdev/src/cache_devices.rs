//! The cache devices of a pool: opened, in and out of use, closed.
//!
//! # Mechanism
//! Each [`CacheDevice`] is a leaf beside the tree: no block pointer leads to it, and the state of
//! the pool does not depend on it. A device that cannot be opened, or is out of use, stays listed.

use crate::cache_leaf::CacheDevice;
use crate::config::{StoredCondition, VdevConfig};
use crate::health::{Reason, Standing, VdevHealth, VdevState};
use crate::in_use::labelled_use;
use crate::label_config::PoolState;
use crate::leaf::Leaf;
use crate::out_of_use::OutOfUse;
use crate::tree::{VdevTree, parent_health};
use std::sync::Arc;
use tarn_ondisk::units::Guid;

impl CacheDevice {
    /// As `zpool status` shows it.
    pub fn health(&self, config: &VdevConfig) -> VdevHealth {
        let window = self.leaf.window();
        let room = self.room().map_or(0, |room| room.end - room.start);
        VdevHealth {
            errors: self.leaf.errors.values(),
            statistics: self.leaf.probes.statistics.snapshot(),
            standing: self.leaf.standing(),
            device_bytes: window.map_or(0, |window| window.size_bytes()),
            asize: room.into(),
            ..parent_health(config, Vec::new())
        }
    }

    /// Takes it out of use if its labels do not name it.
    #[doc(alias = "vdev_validate_aux")]
    fn check_label(&self) {
        let Some(window) = self.leaf.window() else {
            return;
        };
        let found = labelled_use(&window);
        let is_it =
            found.is_some_and(|found| found.state == PoolState::Cache && found.guid == self.guid());
        let is_large_enough = self.room().is_some();
        if !is_it || !is_large_enough {
            let reason = match is_it {
                true => Reason::TooSmall,
                false => Reason::CorruptData,
            };
            self.leaf
                .set_standing(Standing::because(VdevState::Unavailable, reason));
        }
    }
}

impl VdevTree {
    /// Opens a cache device of this configuration, which must have its label. The standing has the
    /// result. It is not in the pool yet.
    pub fn open_cache_device(&self, config: &VdevConfig) -> Arc<CacheDevice> {
        let device = CacheDevice::new(config);
        device.leaf.report_to(self.reports());
        device.leaf.open(&self.host, config, self.mode);
        device.check_label();
        Arc::new(device)
    }

    /// Takes an open cache device into the pool, or one that could not be opened.
    ///
    /// # Panics
    /// The pool does not list it.
    pub fn join_cache_device(&self, device: Arc<CacheDevice>) {
        let mut state = self.state.write();
        let mut listed = state.auxiliary.caches.iter();
        assert!(
            listed.any(|config| config.guid == device.guid()),
            "the pool lists its cache devices"
        );
        state
            .cache_devices
            .retain(|other| other.guid() != device.guid());
        state.cache_devices.push(device);
    }

    /// The cache devices, open or not.
    pub fn cache_devices(&self) -> Vec<Arc<CacheDevice>> {
        self.state.read().cache_devices.clone()
    }

    /// The cache device of this guid.
    pub fn cache_device(&self, guid: Guid) -> Option<Arc<CacheDevice>> {
        let devices = self.cache_devices();
        devices.into_iter().find(|device| device.guid() == guid)
    }

    /// Takes a cache device out of use: `zpool offline`. False if there is none of this guid.
    #[doc(alias = "vdev_offline")]
    pub fn take_cache_device_out(&self, guid: Guid, how: OutOfUse) -> bool {
        let Some(device) = self.cache_device(guid) else {
            return false;
        };
        let (standing, is_lasting) = match how {
            OutOfUse::Offline | OutOfUse::OfflineForNow => {
                let state = VdevState::Offline;
                let reason = None;
                (Standing { state, reason }, how == OutOfUse::Offline)
            }
            OutOfUse::Faulted | OutOfUse::FaultedForNow => {
                let faulted = Standing::because(VdevState::Faulted, Reason::External);
                (faulted, how == OutOfUse::Faulted)
            }
        };
        device.leaf.set_standing(standing);
        self.change_cache_condition(guid, |config| {
            config.condition.offline = is_lasting && standing.state == VdevState::Offline;
            config.condition.faulted = is_lasting && standing.state == VdevState::Faulted;
            config.condition.reason = standing.reason.and_then(Reason::stored);
        });
        true
    }

    /// Opens a cache device again that was out of use: `zpool online`, `zpool clear`. Gives the new
    /// standing, none if there is no such device. Its contents are for the caller to find again.
    #[doc(alias = "vdev_online")]
    pub fn bring_cache_device_back(&self, guid: Guid) -> Option<Arc<CacheDevice>> {
        let device = self.cache_device(guid)?;
        if device.is_usable() {
            return Some(device);
        }
        self.change_cache_condition(guid, |config| config.condition = StoredCondition::default());
        let config = self.auxiliary().caches.into_iter();
        let config = config.into_iter().find(|config| config.guid == guid)?;
        let opened = CacheDevice::new(&config);
        opened.leaf.open(&self.host, &config, self.mode);
        opened.check_label();
        device.leaf.adopt(&opened.leaf);
        Some(device)
    }

    /// Closes a cache device that leaves the pool.
    pub(crate) fn close_cache_device(&self, guid: Guid) {
        let mut state = self.state.write();
        let (leaving, left): (Vec<_>, Vec<_>) = std::mem::take(&mut state.cache_devices)
            .into_iter()
            .partition(|device| device.guid() == guid);
        state.cache_devices = left;
        drop(state);
        leaving.iter().for_each(|device| device.leaf.close());
    }

    /// Closes all cache devices.
    pub(crate) fn close_cache_devices(&self) {
        let devices = self.cache_devices();
        devices.iter().for_each(|device| device.leaf.close());
    }

    pub(crate) fn cache_leaves(&self) -> Vec<Arc<Leaf>> {
        let devices = self.cache_devices().into_iter();
        devices.map(|device| device.leaf.clone()).collect()
    }

    pub(crate) fn cache_leaf(&self, guid: Guid) -> Option<Arc<Leaf>> {
        Some(self.cache_device(guid)?.leaf.clone())
    }

    /// Makes requests to cache devices fail instead of waiting for them.
    pub(crate) fn give_up_cache_devices(&self) {
        let devices = self.cache_devices();
        devices.iter().for_each(|device| device.leaf.give_up());
    }

    /// Takes a cache device with too many errors out of use. False if there is none of this guid in
    /// use.
    pub(crate) fn fault_cache_device(&self, guid: Guid) -> bool {
        let device = self.cache_device(guid);
        let Some(device) = device.filter(|device| device.is_usable()) else {
            return false;
        };
        let faulted = Standing::because(VdevState::Faulted, Reason::ErrorsExceeded);
        device.leaf.set_standing(faulted);
        true
    }

    /// Forgets the errors of cache devices, of one or all.
    pub(crate) fn clear_cache_errors(&self, is_meant: impl Fn(Guid) -> bool) {
        let devices = self.cache_devices().into_iter();
        let meant = devices.filter(|device| is_meant(device.guid()));
        meant.for_each(|device| device.leaf.errors.clear());
    }

    fn change_cache_condition(&self, guid: Guid, change: impl FnOnce(&mut VdevConfig)) {
        let mut state = self.state.write();
        let mut caches = state.auxiliary.caches.iter_mut();
        if let Some(config) = caches.find(|config| config.guid == guid) {
            change(config);
        }
    }
}
