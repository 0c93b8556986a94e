//! Volumes as block devices of this machine: which there are, and when they go.
//!
//! # Mechanism
//! A front end makes the devices ([`VolumeDevices`]); here is decided for which volumes: those of
//! [`list_volumes`](Engine::list_volumes). Whatever may change that touches the name of a dataset
//! ([`OpenPool::touch_volumes`]), and when the command is done [`Engine::settle_volumes`] looks at
//! the volumes at and below these datasets, makes devices that are missing and removes the others.
//! So a command that has made a volume returns when its device is there.
//!
//! A device holds its volume. A command that needs the volume for itself has the device removed
//! first ([`Engine::remove_devices`]), and is refused as busy where that is open. If it fails, or
//! the volume is still there, the device comes back when the command is done.
//!
//! # Invariants
//! - Devices are made and removed under the pool's turn only.

use super::device_table::{DeviceIsOpen, Entry, VolumeDevices, is_at_or_below};
use super::list::volumes_below;
use super::served::VolumeAccess;
use crate::engine::{Engine, OpenPool};
use crate::mounting::cannot_open;
use crate::refusals::{Refusal, RefusalKind};
use crate::turns::{is_stuck, turn_if_free};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tarn_probe::Operation;

impl OpenPool {
    /// The volumes at and below this dataset, or their snapshots, may have come, gone or got other
    /// properties. [`Engine::settle_volumes`] has their devices follow.
    pub fn touch_volumes(&self, name: &str) {
        let head = name.split('@').next().unwrap_or_default();
        self.devices.touch(head);
    }

    /// The same for those of these datasets whose volumes have devices, for a change that concerns
    /// no others.
    pub fn touch_volumes_with_devices<'a>(&self, names: impl Iterator<Item = &'a str>) {
        for name in names {
            let head = name.split('@').next().unwrap_or_default();
            if !self.devices.chosen(|device| device == head).is_empty() {
                self.devices.touch(head);
            }
        }
    }
}

impl Engine {
    /// From here on this front end makes block devices for volumes.
    ///
    /// # Panics
    /// When there is one already.
    pub fn set_volume_devices(&self, devices: Arc<dyn VolumeDevices>) {
        let is_first = self.volume_devices.set(devices).is_ok();
        assert!(is_first, "an engine has one front end that makes devices");
    }

    /// Makes and removes devices of volumes at and below the touched datasets of all pools. A pool
    /// on which a command is under way is left to that command, which does the same at its end.
    pub fn settle_volumes(&self, operation: &Operation) {
        let pools = self.pools().into_iter();
        for open in pools.filter(|open| open.devices.is_touched()) {
            let Some(_turn) = turn_if_free(&open) else {
                continue;
            };
            // Another command may have exported the pool meanwhile.
            let found = self.find_pool(open.pool.name());
            if found.is_some_and(|found| Arc::ptr_eq(&found, &open)) {
                drop(self.settle_in_turn(&open, operation));
            }
        }
    }

    /// The same for one pool, whose turn is waited for. Returns, as text, why volumes have no
    /// devices.
    pub fn settle_volumes_of(&self, open: &Arc<OpenPool>, operation: &Operation) -> Vec<String> {
        match self.turn(open) {
            Ok(_turn) => self.settle_in_turn(open, operation),
            // The pool is stuck. A later command looks again.
            Err(_) => Vec::new(),
        }
    }

    fn settle_in_turn(&self, open: &Arc<OpenPool>, operation: &Operation) -> Vec<String> {
        let Some(devices) = self.volume_devices.get() else {
            return Vec::new();
        };
        if is_stuck(&open.pool) {
            return Vec::new();
        }
        // Snapshots may have gone from one dataset to another, so all that are too many go first.
        let touched = open.devices.take_touched().into_iter();
        let looked: Vec<_> = touched
            .map(|name| self.remove_unwanted(open, &name, operation))
            .collect();
        let mut missing = Vec::new();
        for looked in looked {
            match looked {
                Ok(lacking) if lacking.is_empty() => {}
                Ok(lacking) => {
                    let made = self.make_devices(open, lacking, &**devices, operation);
                    missing.extend(made.err());
                }
                Err(refusal) => missing.push(refusal.to_string()),
            }
        }
        missing.dedup();
        missing
    }

    /// Removes the devices at and below a dataset that should not be there, unless they are open.
    /// Returns the volumes without devices, and whether each shows partitions.
    fn remove_unwanted(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        operation: &Operation,
    ) -> Result<BTreeMap<String, bool>, Refusal> {
        let wanted = volumes_below(open, name, operation);
        let wanted = wanted.map_err(|error| cannot_open(name, &error))?;
        let mut lacking: BTreeMap<String, bool> = wanted
            .into_iter()
            .map(|volume| (volume.name, volume.has_partitions))
            .collect();
        for entry in open.devices.chosen(|device| is_at_or_below(name, device)) {
            let volume = entry.held.name();
            let is_right = lacking.get(&volume) == Some(&entry.has_partitions);
            let stays = is_right && !entry.held.is_ended();
            // One that is open stays as it is, as in OpenZFS.
            if stays || self.remove_device(open, &entry).is_err() {
                lacking.remove(&volume);
            }
        }
        Ok(lacking)
    }

    /// Makes devices. Gives the first reason why a volume has none.
    fn make_devices(
        &self,
        open: &Arc<OpenPool>,
        lacking: BTreeMap<String, bool>,
        devices: &dyn VolumeDevices,
        operation: &Operation,
    ) -> Result<(), String> {
        devices.check()?;
        let mut first = Ok(());
        for (name, has_partitions) in lacking {
            let made = self.make_device(open, &name, has_partitions, devices, operation);
            first = first.and(made);
        }
        first
    }

    fn make_device(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        has_partitions: bool,
        devices: &dyn VolumeDevices,
        operation: &Operation,
    ) -> Result<(), String> {
        let held = self.hold_in_turn(open, name, VolumeAccess::ReadWrite, operation);
        let held = held.map_err(|refusal| refusal.to_string())?;
        // A snapshot that went to another dataset while its device was open.
        if open.devices.find(held.id()).is_some() {
            drop(self.release_in_turn(Some(open), &held));
            return Ok(());
        }
        match devices.make(&held, has_partitions) {
            Ok(device) => {
                open.devices.insert(Entry {
                    held,
                    device,
                    has_partitions,
                });
                Ok(())
            }
            Err(why) => {
                // What could not be stored stays in the intent log, which is left open.
                drop(self.release_in_turn(Some(open), &held));
                Err(format!("volume '{name}' has no block device: {why}"))
            }
        }
    }

    /// Removes the devices of these datasets, so that a command can have them for itself. The
    /// caller has the pool's turn.
    ///
    /// # Errors
    /// Busy: the first device that is open.
    pub fn remove_devices(
        &self,
        open: &Arc<OpenPool>,
        is_concerned: impl Fn(&str) -> bool,
        refuse: impl FnOnce(&str) -> Refusal,
    ) -> Result<(), Refusal> {
        for entry in open.devices.chosen(is_concerned) {
            let name = entry.held.name();
            // Where the volume stays, its device comes back when the command is done.
            open.touch_volumes(&name);
            if let Err(DeviceIsOpen) = self.remove_device(open, &entry) {
                return Err(refuse(&name));
            }
        }
        Ok(())
    }

    /// As [`remove_devices`](Self::remove_devices) for these names, refused as OpenZFS refuses.
    ///
    /// # Errors
    /// Busy: the first device that is open.
    pub fn remove_devices_of(
        &self,
        open: &Arc<OpenPool>,
        names: &[String],
        action: impl Fn(&str) -> String,
    ) -> Result<(), Refusal> {
        let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        let is_concerned = |device: &str| names.contains(device);
        self.remove_devices(open, is_concerned, |name| {
            Refusal::new(RefusalKind::Busy, action(name), "dataset is busy")
        })
    }

    /// Removes the devices of a pool that are not open; of the others is written back what Linux
    /// caches. The daemon is about to stop.
    pub(crate) fn remove_closed_devices(&self, open: &Arc<OpenPool>) {
        for entry in open.devices.chosen(|_| true) {
            if self.remove_device(open, &entry).is_err() {
                entry.device.drop_cache();
            }
        }
    }

    /// Ends all volumes of a pool that is about to be closed, with their devices.
    pub(crate) fn end_volumes(&self, open: &OpenPool) {
        // The front end hears the end of each volume, and lets its device fail where it is open.
        open.served_volumes.end_all();
        drop(open.devices.take_all());
    }

    fn remove_device(&self, open: &Arc<OpenPool>, entry: &Entry) -> Result<(), DeviceIsOpen> {
        entry.device.remove()?;
        open.devices.remove(entry);
        // Data that could not be stored stays in the intent log, and the next hold has it.
        drop(self.release_in_turn(Some(open), &entry.held));
        Ok(())
    }
}
