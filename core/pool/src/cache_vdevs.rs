//! Cache devices of an open pool: added, opened after an import, out of use, removed.
//!
//! # Mechanism
//! The MOS lists cache devices, and each has a label of its own kind. `vdev` opens them, `cache`
//! fills and reads them, and this file tells both of every change. A device that is missing or bad
//! is shown as such; the pool does without it.
//!
//! # After a crash
//! A device with a label that the MOS does not list belongs to no pool. A pool that went back to an
//! earlier txg does not use what is on its cache devices.

use crate::add::AddError;
use crate::auxiliary_devices::{enlist, relist};
use crate::create::label_caches;
use crate::error::{ImportError, TaskError, VdevChangeError};
use crate::events::class;
use crate::pool::{Mode, Pool};
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::units::Guid;
use tarn_probe::Operation;
use tarn_vdev::{AuxiliaryKind, OpenError, OutOfUse, Standing, VdevConfig};

/// What an import does with the contents of cache devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheContents {
    /// Uses them: they are of the pool's past.
    Keep,
    /// Does not: the pool has gone back to an earlier txg, and may have others at the same places.
    Discard,
}

impl Pool {
    /// Opens the cache devices that the MOS lists, and begins to use them.
    #[doc(alias = "spa_load_l2cache")]
    pub fn start_caches(&self, contents: CacheContents, operation: &Operation) {
        let is_new = contents == CacheContents::Discard;
        if is_new && self.mode() == Mode::ReadOnly {
            return;
        }
        self.cache().set_pool_guid(self.facts().guid);
        self.cache().groups_stored(self.uberblock().txg);
        for config in self.vdevs().auxiliary().caches {
            let device = self.vdevs().open_cache_device(&config);
            self.vdevs().join_cache_device(device.clone());
            let cache = self.cache();
            cache.add_cache_device(self.host(), &device, is_new, operation);
        }
    }

    /// Adds cache devices, and waits until that is stored. `ashift` is for all of them; without it
    /// each has the sectors that it says.
    ///
    /// # Errors
    /// A device cannot be opened or labelled, or the pool could not be changed: none of them is in
    /// the pool.
    #[doc(alias = "spa_vdev_add")]
    pub fn add_caches(
        &self,
        caches: &[VdevConfig],
        ashift: Option<u32>,
        operation: &Operation,
    ) -> Result<(), AddError> {
        self.require_writable()?;
        let caches = label_caches(self.host(), self.facts().version, caches, ashift)?;
        let open = |config| self.vdevs().open_cache_device(config);
        let devices: Vec<_> = caches.iter().map(open).collect();
        let mut pairs = caches.iter().zip(&devices);
        if let Some((config, device)) = pairs.find(|(_, device)| !device.is_usable()) {
            let name = config.path.as_ref().map(ToString::to_string);
            let vdevs = vec![(name.unwrap_or_default(), device.standing())];
            return Err(ImportError::from(OpenError::Unavailable { vdevs }).into());
        }
        let listed = caches.clone();
        self.run_in_sync(operation, move |scope| {
            enlist(scope, AuxiliaryKind::Cache, &listed)?;
            Ok(Ok(()))
        })?;
        self.cache().set_pool_guid(self.facts().guid);
        self.cache().groups_stored(self.uberblock().txg);
        for device in devices {
            self.vdevs().join_cache_device(device.clone());
            let cache = self.cache();
            cache.add_cache_device(self.host(), &device, true, operation);
        }
        self.post_event(class::VDEV_ADD, None, NvList::new());
        Ok(())
    }

    /// Takes a cache device out of use, and waits until that is stored. False if there is none of
    /// this guid.
    pub(crate) fn take_cache_out(
        &self,
        guid: Guid,
        how: OutOfUse,
        operation: &Operation,
    ) -> Result<bool, VdevChangeError> {
        if self.vdevs().cache_device(guid).is_none() {
            return Ok(false);
        }
        // What is on it stays known, and is not read, until it is found anew.
        let is_out = self.vdevs().take_cache_device_out(guid, how);
        self.store_caches(operation)?;
        Ok(is_out)
    }

    /// Brings a cache device back, and waits until that is stored. What is on it is found again.
    /// Gives its state, none if there is no cache device of this guid.
    pub fn bring_cache_back(
        &self,
        guid: Guid,
        operation: &Operation,
    ) -> Result<Option<Standing>, VdevChangeError> {
        let was_usable = self.vdevs().cache_device(guid);
        let was_usable = was_usable.is_some_and(|device| device.is_usable());
        let Some(device) = self.vdevs().bring_cache_device_back(guid) else {
            return Ok(None);
        };
        self.store_caches(operation)?;
        if !was_usable && device.is_usable() {
            let cache = self.cache();
            cache.add_cache_device(self.host(), &device, false, operation);
            self.post_event(class::VDEV_ONLINE, Some(guid), NvList::new());
        }
        Ok(Some(device.standing()))
    }

    fn store_caches(&self, operation: &Operation) -> Result<(), TaskError> {
        self.run_in_sync(operation, |scope| {
            relist(scope, AuxiliaryKind::Cache)?;
            Ok(Ok(()))
        })
    }
}
