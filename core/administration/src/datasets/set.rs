//! `zfs set`: sets properties of one dataset, all or none.
//!
//! Most are stored in the tree of datasets. Two are stored in the dataset itself, and are set
//! apart: the size of a volume, and the version of a file system. Mounts get the new values
//! ([`remount`](tarn_engine::mounting::remount)).

use super::bad_name;
use super::cannot_open;
use super::kind_of;
use super::owners::{QuotaSetting, is_of_owner};
use super::upgrade::{count_owners, upgrade_refusal};
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::command_permissions::{need, of_property};
use crate::messages::dataset::{DatasetKind, Set};
use crate::messages::{Changed, Refusal, RefusalKind};
use std::sync::Arc;
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::set::{SetProperties, Source};
use tarn_dataset::ops::volume_size::{self, VolumeSizeError};
use tarn_dataset::properties::parse::{Checked, Moment, Setting, check};
use tarn_dataset::properties::table;
use tarn_dataset::properties::value::Kinds;
use tarn_engine::Engine;
use tarn_engine::engine::OpenPool;
use tarn_engine::mounting::mount_values::Values;
use tarn_engine::mounting::remount::{
    Back, Extent, Follower, Unmounted, followers, with_those_on_them,
};
use tarn_engine::mounting::share::{SHARENFS, refused_options};
use tarn_engine::refusals::of_task;
use tarn_host::Host;
use tarn_pool::{Mode, TaskError};
use tarn_probe::Operation;

/// The properties to set, by where they are stored.
#[derive(Debug, Default)]
struct Settings {
    stored: Vec<Checked>,
    volume_bytes: Option<u64>,
    version: Option<u64>,
    quotas: Vec<QuotaSetting>,
}

impl Settings {
    /// Checks the given properties. Of several values of one property the last counts.
    fn parse(
        host: &Host,
        given: &[(String, String)],
        kind: DatasetKind,
    ) -> Result<Settings, String> {
        let kinds = match kind {
            DatasetKind::Filesystem => Kinds::FILESYSTEM,
            DatasetKind::Volume => Kinds::VOLUME,
            DatasetKind::Snapshot | DatasetKind::Bookmark => Kinds::SNAPSHOT,
        };
        let mut settings = Settings::default();
        for (name, value) in given {
            let is_own = table::find(name).is_some() || is_of_owner(name);
            if kinds == Kinds::SNAPSHOT && is_own {
                return Err("this property can not be modified for snapshots".to_string());
            }
            if let Some(quota) = QuotaSetting::parse(host, name, value)? {
                if kinds != Kinds::FILESYSTEM {
                    return Err(format!("'{name}' does not apply to datasets of this type"));
                }
                settings.quotas.push(quota);
                continue;
            }
            let checked = check(name, value, kinds, Moment::Later)?;
            match (checked.name.as_str(), &checked.setting) {
                ("volsize", Setting::Number(bytes)) => settings.volume_bytes = Some(*bytes),
                ("version", Setting::Number(version)) => settings.version = Some(*version),
                _ if QuotaSetting::of_default(&checked).is_some() => {
                    settings.quotas.extend(QuotaSetting::of_default(&checked));
                }
                _ => {
                    settings.stored.retain(|other| other.name != checked.name);
                    settings.stored.push(checked);
                }
            }
        }
        Ok(settings)
    }

    /// Whether mounts get the new values.
    fn concern_mounts(&self) -> bool {
        let concerns = |checked: &Checked| {
            let name = checked.name.as_str();
            matches!(name, "mountpoint" | SHARENFS) || Values::concerns(name)
        };
        let opens = self.version.is_some() || !self.quotas.is_empty();
        opens || self.stored.iter().any(concerns)
    }

    /// Whether the command needs the pool's turn, so that other commands neither change the dataset
    /// nor begin to send it.
    fn need_turn(&self) -> bool {
        self.concern_mounts() || self.volume_bytes.is_some()
    }

    fn number(&self, name: &str) -> Option<u64> {
        let found = self.stored.iter().find(|checked| checked.name == name)?;
        match found.setting {
            Setting::Number(number) => Some(number),
            Setting::Text(_) => None,
        }
    }
}

impl Administrator {
    pub(crate) fn set_dataset(
        &self,
        call: &Call,
        request: &Set,
        operation: &Operation,
    ) -> Result<Changed, Refusal> {
        let name = &request.name;
        let open = self.engine.require_pool_of(name)?;
        let kind = kind_named(&open, name, operation)?;
        let settings = Settings::parse(&self.engine.host, &request.properties, kind)
            .map_err(|reason| Refusal::new(RefusalKind::Invalid, cannot_set(name), reason))?;
        if open.pool.mode() == Mode::ReadOnly {
            return Err(of_task(cannot_set(name), &TaskError::ReadOnly));
        }
        let turn = settings.need_turn().then(|| self.engine.turn(&open));
        let _turn = turn.transpose()?;
        let given = request.properties.iter();
        let mut needed: Vec<&str> = given.map(|(property, _)| of_property(property)).collect();
        if let Some(bytes) = settings.volume_bytes
            && new_reservation(&open, name, bytes, &settings, operation)?.is_some()
        {
            needed.push("refreservation");
        }
        let needs = [need(name, &needed)];
        self.permit(call, &open, cannot_set(name), &needs, operation)?;
        self.set_own(call, &open, name, &settings, operation)?;
        if settings.stored.is_empty() {
            return Ok(Changed::default());
        }
        let moved = self.make_room(call, &open, request, &settings, operation)?;
        let task = SetProperties {
            name: name.clone(),
            settings: settings.stored.clone(),
            source: Source::Local,
        };
        let command = self.command_record(call);
        let outcome = open.pool.run_command(task, command, operation);
        let moves = settings.stored.iter().any(|one| one.name == "mountpoint");
        let back = match &outcome {
            Ok(()) if moves => Back::AllThatMay,
            _ => Back::WhatWas,
        };
        let mounted = match &moved {
            Some((followers, unmounted)) if !request.no_mount && self.trusts(&call.caller) => {
                self.engine.put_back(
                    self.beneficiary(call),
                    &open,
                    followers,
                    unmounted,
                    back,
                    operation,
                )
            }
            _ => Ok(()),
        };
        outcome.map_err(|error| of_task(cannot_set(name), &error))?;
        if settings
            .stored
            .iter()
            .any(|one| decides_on_devices(&one.name))
        {
            open.touch_volumes(name);
        }
        let mut warnings = crate::inert::warnings(&request.properties);
        // The property is set, whether or not the file system can be mounted there.
        warnings.extend(mounted.err().map(|refusal| refusal.to_string()));
        if settings.stored.iter().any(|one| one.name == SHARENFS) {
            // The property is set, whether or not the file systems can be shared so.
            let shared = self.engine.refresh_shares(&open, name, operation);
            let refused = shared.err().map(|refusal| refusal.to_string());
            warnings.extend(refused.or_else(|| unserved_options(&self.engine, &settings)));
        }
        let mut told = Ok(());
        for checked in &settings.stored {
            if Values::concerns(&checked.name) {
                let refreshed = self.engine.refresh_mounts(
                    self.beneficiary(call),
                    &open,
                    name,
                    &checked.name,
                    operation,
                );
                told = told.and(refreshed);
            }
        }
        told.map_err(|refusal| {
            refusal.with_hint("property may be set but unable to remount filesystem")
        })?;
        Ok(Changed { warnings })
    }

    /// Unmounts the file systems whose mount points change. None when there are none.
    fn make_room(
        &self,
        call: &Call,
        open: &Arc<OpenPool>,
        request: &Set,
        settings: &Settings,
        operation: &Operation,
    ) -> Result<Option<(Vec<Follower>, Unmounted)>, Refusal> {
        const CANMOUNT_OFF: u64 = 0;
        let name = &request.name;
        let moves = settings.stored.iter().any(|one| one.name == "mountpoint");
        let ends = settings.number("canmount") == Some(CANMOUNT_OFF);
        let found = match moves && !request.no_mount {
            true => followers(open, name, operation),
            // File systems mounted on it are unmounted for a moment.
            false if ends && open.mount_of(name).is_some() => followers(open, name, operation)
                .and_then(|found| with_those_on_them(open, found, operation)),
            false => return Ok(None),
        };
        let followers = found.map_err(|error| cannot_open(name, &error))?;
        self.permit_moves(call, open, followers.iter().map(|one| one.name.as_str()))?;
        let unmounted = self.engine.take_off(
            self.beneficiary(call),
            open,
            &followers,
            Extent::Here,
            operation,
        )?;
        Ok(Some((followers, unmounted)))
    }

    /// Sets the properties that are stored in the dataset itself.
    fn set_own(
        &self,
        call: &Call,
        open: &Arc<OpenPool>,
        name: &str,
        settings: &Settings,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        if let Some(version) = settings.version {
            self.upgrade_one(open, name, version, operation)
                .map_err(|error| upgrade_refusal(cannot_set(name), error))?;
            count_owners(open, name, operation);
            self.record_command(call, open.pool.name(), operation);
        }
        if let Some(bytes) = settings.volume_bytes {
            set_size(open, name, bytes, settings, operation)?;
            self.record_command(call, open.pool.name(), operation);
        }
        if !settings.quotas.is_empty() {
            self.set_quotas(open, name, &cannot_set(name), &settings.quotas, operation)?;
            self.record_command(call, open.pool.name(), operation);
        }
        Ok(())
    }
}

/// Whether a property says which volumes and snapshots have block devices.
pub(super) fn decides_on_devices(property: &str) -> bool {
    ["volmode", "snapdev"].contains(&property)
}

/// Sets a volume's size, and its refreservation with it, which always covers the present size: it
/// grows before the volume, and shrinks after it.
#[doc(alias = "zfs_add_synthetic_resv")]
fn set_size(
    open: &OpenPool,
    name: &str,
    bytes: u64,
    settings: &Settings,
    operation: &Operation,
) -> Result<(), Refusal> {
    let namespace = open.pool.namespace();
    let view = namespace.view(operation);
    let refused = |refusal| of_task(cannot_set(name), &TaskError::Refused(refusal));
    volume_size::check(view, name, bytes).map_err(refused)?;
    let reserved = new_reservation(open, name, bytes, settings, operation)?;
    let head = view.directory(name).and_then(|directory| directory.head());
    let head = head.map_err(|error| cannot_open(name, &error))?;
    let id = head.map(|head| head.id()).unwrap_or_default();
    if open.is_in_other_use(id) {
        let (action, reason) = (cannot_set(name), "dataset is busy");
        return Err(Refusal::new(RefusalKind::Busy, action, reason));
    }
    let set = namespace.head_set(id, operation);
    let set = set.map_err(|error| cannot_open(name, &error))?;
    let reserve = |reserved| {
        let task = SetProperties {
            name: name.to_string(),
            settings: vec![Checked {
                name: "refreservation".to_string(),
                property: table::find("refreservation"),
                setting: Setting::Number(reserved),
            }],
            source: Source::Local,
        };
        let set = open.pool.run(task, operation);
        set.map_err(|error| of_task(cannot_set(name), &error))
    };
    let before = tarn_dataset::properties::inherit::local_number;
    let now = view
        .directory(name)
        .and_then(|directory| before(&directory, "refreservation"))
        .map_err(|error| cannot_open(name, &error))?
        .unwrap_or(0);
    if let Some(reserved) = reserved.filter(|reserved| *reserved > now) {
        reserve(reserved)?;
    }
    open.resize_volume(view, name, &set, bytes)
        .map_err(|error| match error {
            VolumeSizeError::Refused(refusal) => refused(refusal),
            other => Refusal::new(RefusalKind::Device, cannot_set(name), other.to_string()),
        })?;
    match reserved.filter(|reserved| *reserved < now) {
        Some(reserved) => reserve(reserved),
        None => Ok(()),
    }
}

/// The refreservation of a resized volume, where the request sets none.
fn new_reservation(
    open: &OpenPool,
    name: &str,
    bytes: u64,
    settings: &Settings,
    operation: &Operation,
) -> Result<Option<u64>, Refusal> {
    if settings.number("refreservation").is_some() {
        return Ok(None);
    }
    let view = open.pool.namespace().view(operation);
    let found = volume_size::matching_reservation(view, name, bytes);
    found.map_err(|refusal| of_task(cannot_set(name), &TaskError::Refused(refusal)))
}

/// A warning for options of `sharenfs` that are not served, where no mounted file system has them.
fn unserved_options(engine: &Engine, settings: &Settings) -> Option<String> {
    let value = settings.stored.iter().find(|one| one.name == SHARENFS)?;
    let Setting::Text(value) = &value.setting else {
        return None;
    };
    let why = refused_options(engine, value)?;
    Some(format!("warning: nothing is shared: {why}"))
}

fn cannot_set(name: &str) -> String {
    format!("cannot set property for '{name}'")
}

/// The kind of the dataset of this name.
pub(super) fn kind_named(
    open: &OpenPool,
    name: &str,
    operation: &Operation,
) -> Result<DatasetKind, Refusal> {
    let parsed = DatasetName::parse(name).map_err(|bad| bad_name(name, bad))?;
    let view = open.pool.namespace().view(operation);
    let kind = view.dataset(&parsed).and_then(|dataset| kind_of(&dataset));
    kind.map_err(|error| cannot_open(name, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(given: &[(&str, &str)], kind: DatasetKind) -> Result<Settings, String> {
        let own = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let given: Vec<_> = given.iter().map(own).collect();
        Settings::parse(&Host::real(tarn_host::RealOptions::default()), &given, kind)
    }

    #[test]
    fn volsize_and_version_are_set_apart() {
        let settings = parsed(&[("volsize", "1G"), ("copies", "2")], DatasetKind::Volume);
        let settings = settings.unwrap();
        assert_eq!(settings.volume_bytes, Some(1 << 30));
        assert_eq!(settings.stored.len(), 1);
        assert!(!settings.concern_mounts() && settings.need_turn());
        let settings = parsed(&[("version", "4")], DatasetKind::Filesystem).unwrap();
        assert_eq!(settings.version, Some(4));
        assert!(settings.concern_mounts());
    }

    #[test]
    fn snapshots_have_user_properties_only() {
        let kind = DatasetKind::Snapshot;
        assert_eq!(
            parsed(&[("exec", "on")], kind).unwrap_err(),
            "this property can not be modified for snapshots"
        );
        assert!(parsed(&[("a:b", "c")], kind).is_ok());
    }

    #[test]
    fn the_last_value_counts() {
        let given = [("atime", "on"), ("atime", "off")];
        let settings = parsed(&given, DatasetKind::Filesystem).unwrap();
        assert_eq!(settings.number("atime"), Some(0));
        assert_eq!(settings.stored.len(), 1);
    }
}
