//! `zfs set`: sets properties of a dataset.
//!
//! # Mechanism
//! A value arrives parsed ([`parse`](crate::properties::parse)). Most are only stored. The four
//! limits do more: `quota` and `reservation` are also kept in the directory, a reservation is
//! charged to the ancestors as far as it exceeds the used space, and a `refreservation` to the
//! directory itself as far as it exceeds the head's unique space. A limit on counts begins the
//! counting. `compression=zstd` makes the dataset use that feature at once; other features are used
//! from the first block on that needs them.
//!
//! Several properties are set together or not at all. Limits that are set together are checked
//! against each other's new values, in any order.
//!
//! # Knows nothing about
//! `volsize` and `version`, which are kept in the dataset's own objects
//! ([`volume_size`](super::volume_size), [`upgrade`](super::upgrade)); mounting.

use crate::contents::{self, Contents};
use crate::dataset::Dataset;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::feature_use;
use crate::filesystem_counts;
use crate::heads::decides_writing;
use crate::names::{DatasetName, NAME_BYTES_MAX};
use crate::namespace::View;
use crate::properties::inherit::{RECEIVED_SUFFIX, local_number};
use crate::properties::native::kind;
use crate::properties::parse::{Checked, Setting, TEXT_BYTES_MAX};
use crate::properties::set::{Entry, received_names, store};
use crate::properties::value::Kinds;
use crate::properties::{set, table};
use crate::space_charge::{Part, SpaceChange, charge};
use crate::space_used::directory_available;
use crate::task::{FeatureCounts, Room, SyncTask, TaskContext, TaskRefusal};
use crate::volume_reservation::volume_reservation;
use tarn_ondisk as ondisk;
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::AllocatedSize;
use tarn_ondisk::zap::can_hold_name;

/// Stands for "as much as the volume needs" in a parsed `refreservation`.
pub(super) const AUTO: u64 = u64::MAX;

/// The stored number of `dedup=off`.
const DEDUP_OFF: u64 = 2;

/// The stored numbers of `encryption=off`, and of the default.
const ENCRYPTION_OFF: [u64; 2] = [0, 2];

/// The source of set values: local or received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Local values.
    Local,
    /// Received values. A stream brings all of them: earlier received values that are not among
    /// them are removed.
    Received,
}

/// Sets properties of a file system, volume or snapshot.
#[derive(Debug, Clone)]
pub struct SetProperties {
    /// The full name.
    pub name: String,
    /// What to set, parsed for the dataset's kind.
    pub settings: Vec<Checked>,
    /// Where the values come from.
    pub source: Source,
}

impl SyncTask for SetProperties {
    type Output = ();

    fn room(&self) -> Room {
        // Limits are changed to make room.
        match self.settings.iter().all(|one| limit_of(one).is_some()) {
            true => Room::freeing(),
            false => Room::reserved(2 * self.settings.len()),
        }
    }

    fn check(&self, view: View<'_>, features: &dyn FeatureCounts) -> Result<(), TaskRefusal> {
        let dataset = find(view, &self.name)?;
        let kinds = kind(&contents::read(&dataset)?, &dataset);
        check_settings(Some(&dataset), &self.settings, kinds, features)?;
        if self.source == Source::Received {
            check_received(&self.settings)?;
        }
        let resolved = resolve_all(&dataset, &self.settings)?;
        check_limits(Limits::read(&dataset)?, resolved)
    }

    fn apply(self, context: &TaskContext<'_>) -> Result<(), DatasetError> {
        let name = DatasetName::parse(&self.name).map_err(|_| DatasetError::NotFound {
            name: self.name.clone(),
        })?;
        let dataset = context.view().dataset(&name)?;
        for checked in &self.settings {
            apply_one(
                context,
                &dataset,
                &checked.name,
                &checked.setting,
                self.source,
            )?;
        }
        if self.source == Source::Received {
            clear_received(context, &dataset, &self.settings)?;
        }
        let mut changed = self.settings.iter().map(|checked| &checked.name);
        if !dataset.is_snapshot() && changed.any(|name| decides_writing(name)) {
            context.namespace.policies_changed(dataset.directory().id());
        }
        Ok(())
    }
}

/// Takes away what came before and did not come again.
#[doc(alias = "clear_received_props")]
pub(super) fn clear_received(
    context: &TaskContext<'_>,
    dataset: &Dataset<'_>,
    received: &[Checked],
) -> Result<(), DatasetError> {
    let properties = match dataset.is_snapshot() {
        true => dataset.stored()?.snapshot_properties,
        false => dataset.directory().stored()?.properties,
    };
    for name in received_names(context.writing().reading(), properties)? {
        if received.iter().all(|checked| checked.name != name) {
            store_with_limits(context, dataset, &name, &Entry::Unreceived)?;
        }
    }
    Ok(())
}

/// The dataset of a full name.
pub(crate) fn find<'a>(view: View<'a>, name: &str) -> Result<Dataset<'a>, TaskRefusal> {
    let not_found = || TaskRefusal::NotFound {
        name: name.to_string(),
    };
    let parsed = DatasetName::parse(name).map_err(|_| not_found())?;
    view.dataset(&parsed).map_err(|cause| match cause {
        DatasetError::NotFound { .. } => not_found(),
        cause => TaskRefusal::Dataset(cause),
    })
}

/// The limits that are more than values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Quota,
    Reservation,
    RefQuota,
    RefReservation,
}

fn limit_named(name: &str) -> Option<Limit> {
    match name {
        "quota" => Some(Limit::Quota),
        "reservation" => Some(Limit::Reservation),
        "refquota" => Some(Limit::RefQuota),
        "refreservation" => Some(Limit::RefReservation),
        _ => None,
    }
}

fn limit_of(checked: &Checked) -> Option<Limit> {
    limit_named(&checked.name)
}

/// What can be said of settings alone, each by itself. There is no dataset yet when one is made.
pub(super) fn check_settings(
    dataset: Option<&Dataset<'_>>,
    settings: &[Checked],
    kinds: Kinds,
    features: &dyn FeatureCounts,
) -> Result<(), TaskRefusal> {
    let is_new = dataset.is_none();
    settings
        .iter()
        .try_for_each(|checked| check_one(checked, kinds, is_new, features))
}

/// Refuses settings that the root file system of a new pool with these features cannot have.
///
/// # Errors
/// The first reason against one.
pub fn check_root(settings: &[Checked], features: &[Feature]) -> Result<(), TaskRefusal> {
    check_settings(None, settings, Kinds::FILESYSTEM, &ToBeEnabled(features))
}

/// The features of a pool that is about to be made. Those that one of them depends on come with it.
struct ToBeEnabled<'a>(&'a [Feature]);

impl FeatureCounts for ToBeEnabled<'_> {
    fn is_enabled(&self, feature: Feature) -> bool {
        let mut waiting = self.0.to_vec();
        while let Some(enabled) = waiting.pop() {
            if enabled == feature {
                return true;
            }
            waiting.extend(enabled.facts().depends_on);
        }
        false
    }

    fn is_active(&self, _: Feature) -> bool {
        false
    }

    fn increment(&self, _: Feature) -> Result<(), DatasetError> {
        Err(not_made())
    }

    fn decrement(&self, _: Feature) -> Result<(), DatasetError> {
        Err(not_made())
    }
}

fn not_made() -> DatasetError {
    DatasetError::Features {
        cause: "the pool is not made yet".into(),
    }
}

/// Refuses values that came with a stream and cannot be stored: their names get a suffix.
pub(super) fn check_received(settings: &[Checked]) -> Result<(), TaskRefusal> {
    settings
        .iter()
        .try_for_each(|checked| check_user_name(&checked.name, RECEIVED_SUFFIX))
}

fn check_one(
    checked: &Checked,
    kinds: Kinds,
    is_new: bool,
    features: &dyn FeatureCounts,
) -> Result<(), TaskRefusal> {
    let bad = |why: String| TaskRefusal::BadValue {
        property: checked.name.clone(),
        why,
    };
    if checked.name.len() > NAME_BYTES_MAX {
        return Err(bad(format!("property name '{}' is too long", checked.name)));
    }
    if !can_hold_name(&checked.name) {
        return Err(bad(format!("invalid property '{}'", checked.name)));
    }
    if let Setting::Text(text) = &checked.setting {
        if text.len() > TEXT_BYTES_MAX {
            return Err(bad("property value too long".to_string()));
        }
        if text.contains('\0') {
            return Err(bad(format!("invalid value for '{}'", checked.name)));
        }
    }
    let Some(property) = checked.property else {
        return Ok(());
    };
    if kinds == Kinds::SNAPSHOT {
        let why = "this property can not be modified for snapshots";
        return Err(bad(why.to_string()));
    }
    if !property.kinds.meets(kinds) {
        let name = property.name;
        let why = format!("'{name}' does not apply to datasets of this type");
        return Err(bad(why));
    }
    let Setting::Number(number) = checked.setting else {
        return Ok(());
    };
    feature_use::check_enabled(property.name, number, features)?;
    match property.name {
        "dedup" if number != DEDUP_OFF => Err(TaskRefusal::NotSupported {
            what: "writing deduplicated blocks".to_string(),
        }),
        "encryption" if !ENCRYPTION_OFF.contains(&number) => Err(TaskRefusal::NotSupported {
            what: "writing encrypted blocks".to_string(),
        }),
        "volsize" | "version" if !is_new => Err(TaskRefusal::NotSupported {
            what: format!("setting '{}' together with other properties", property.name),
        }),
        _ => Ok(()),
    }
}

/// What limits are measured against, and the limits as they will be.
struct Limits {
    used: u64,
    referenced: u64,
    unique: u64,
    /// What the parent leaves to a larger reservation.
    parent_available: u64,
    /// What the directory leaves to a larger refreservation.
    available: u64,
    quota: u64,
    reservation: u64,
    ref_quota: u64,
    ref_reservation: u64,
}

impl Limits {
    fn read(dataset: &Dataset<'_>) -> Result<Limits, DatasetError> {
        let directory = dataset.directory();
        let stored = directory.stored()?;
        let head = dataset.stored()?;
        let used = stored.used.get();
        let parent_available = match directory.parent()? {
            Some(parent) => directory_available(&parent)?,
            None => directory
                .view()
                .namespace()
                .adjusted_bytes()
                .saturating_sub(used),
        };
        Ok(Limits {
            used,
            referenced: head.referenced.get(),
            unique: head.unique.get(),
            parent_available,
            available: directory_available(directory)?,
            quota: stored.quota.get(),
            reservation: stored.reservation.get(),
            ref_quota: local_number(directory, "refquota")?.unwrap_or(0),
            ref_reservation: local_number(directory, "refreservation")?.unwrap_or(0),
        })
    }

    /// Of something new below this directory.
    fn below(parent: &Directory<'_>) -> Result<Limits, DatasetError> {
        let available = directory_available(parent)?;
        Ok(Limits {
            used: 0,
            referenced: 0,
            unique: 0,
            parent_available: available,
            available,
            quota: 0,
            reservation: 0,
            ref_quota: 0,
            ref_reservation: 0,
        })
    }

    /// Takes a new value, or says why not.
    fn take(&mut self, limit: Limit, value: u64) -> Result<(), TaskRefusal> {
        let is_accepted = match limit {
            Limit::Quota => value == 0 || (value >= self.reservation && value >= self.used),
            Limit::RefQuota => {
                value == 0 || (value >= self.referenced && value >= self.ref_reservation)
            }
            Limit::Reservation => {
                let more = self
                    .used
                    .max(value)
                    .saturating_sub(self.used.max(self.reservation));
                let exceeds_quota = self.quota > 0 && value > self.quota;
                more == 0 || (more <= self.parent_available && !exceeds_quota)
            }
            Limit::RefReservation => {
                let now = self.unique.max(self.ref_reservation);
                let more = self.unique.max(value).saturating_sub(now);
                let exceeds_quota = self.ref_quota > 0 && value > self.ref_quota;
                more == 0 || (more <= self.available && !exceeds_quota)
            }
        };
        if !is_accepted {
            let why = match limit {
                Limit::Quota | Limit::RefQuota => {
                    "size is less than current used or reserved space"
                }
                Limit::Reservation | Limit::RefReservation => {
                    "size is greater than available space"
                }
            };
            return Err(TaskRefusal::NoSpace {
                why: why.to_string(),
            });
        }
        match limit {
            Limit::Quota => self.quota = value,
            Limit::Reservation => self.reservation = value,
            Limit::RefQuota => self.ref_quota = value,
            Limit::RefReservation => self.ref_reservation = value,
        }
        Ok(())
    }
}

/// Checks the limits of something new below this directory.
pub(super) fn check_limits_below(
    parent: &Directory<'_>,
    settings: &[Checked],
) -> Result<(), TaskRefusal> {
    let limits = settings.iter().filter_map(|checked| {
        let Setting::Number(value) = checked.setting else {
            return None;
        };
        // What a new volume needs is set aside, and checked, when it is made.
        Some((limit_of(checked)?, value)).filter(|(_, value)| *value != AUTO)
    });
    check_limits(Limits::below(parent)?, limits.collect())
}

/// The limits among settings, with their numbers.
fn resolve_all(
    dataset: &Dataset<'_>,
    settings: &[Checked],
) -> Result<Vec<(Limit, u64)>, DatasetError> {
    let mut resolved = Vec::new();
    for checked in settings {
        let Some(limit) = limit_of(checked) else {
            continue;
        };
        let setting = match limit {
            Limit::RefReservation => resolve_auto(dataset, &checked.setting)?,
            _ => checked.setting.clone(),
        };
        if let Setting::Number(value) = setting {
            resolved.push((limit, value));
        }
    }
    Ok(resolved)
}

/// Checks limits that are set together. One that is refused is tried again after the others.
fn check_limits(mut limits: Limits, mut waiting: Vec<(Limit, u64)>) -> Result<(), TaskRefusal> {
    loop {
        let mut refused = Vec::new();
        let mut why = None;
        for &(limit, value) in &waiting {
            if let Err(refusal) = limits.take(limit, value) {
                refused.push((limit, value));
                why.get_or_insert(refusal);
            }
        }
        match why {
            None => return Ok(()),
            Some(refusal) if refused.len() == waiting.len() => return Err(refusal),
            Some(_) => waiting = refused,
        }
    }
}

/// Checks one setting against what the limits of a dataset are now. What a volume needs is set
/// aside, and checked, when it is made.
pub(super) fn check_limit_of(dataset: &Dataset<'_>, checked: &Checked) -> Result<(), TaskRefusal> {
    match (limit_of(checked), &checked.setting) {
        (Some(limit), Setting::Number(value)) if *value != AUTO => {
            Limits::read(dataset)?.take(limit, *value)
        }
        _ => Ok(()),
    }
}

/// Checks a limit that goes back to another value.
pub(super) fn check_limit(
    dataset: &Dataset<'_>,
    name: &str,
    value: u64,
) -> Result<(), TaskRefusal> {
    match limit_named(name) {
        Some(limit) => Limits::read(dataset)?.take(limit, value),
        None => Ok(()),
    }
}

/// What `refreservation=auto` stands for on this volume; other settings as they are.
fn resolve_auto(dataset: &Dataset<'_>, setting: &Setting) -> Result<Setting, DatasetError> {
    if *setting != Setting::Number(AUTO) {
        return Ok(setting.clone());
    }
    let copies = match table::find("copies") {
        Some(property) => set::effective_number(dataset, property)?.unwrap_or(1),
        None => 1,
    };
    Ok(Setting::Number(reservation_of(dataset, copies)?))
}

/// What a volume needs, or one that begins as this snapshot of a volume; nothing for a file system.
pub(super) fn reservation_of(dataset: &Dataset<'_>, copies: u64) -> Result<u64, DatasetError> {
    let Contents::Volume(facts) = contents::read(dataset)? else {
        return Ok(0);
    };
    let view = dataset.directory().view();
    let io = view.namespace().mos().env().cache.io();
    let (size, block) = (facts.size_bytes, facts.block_bytes);
    Ok(volume_reservation(io, size, block, copies))
}

/// Stores one setting, and does what belongs to it.
pub(super) fn apply_one(
    context: &TaskContext<'_>,
    dataset: &Dataset<'_>,
    name: &str,
    setting: &Setting,
    source: Source,
) -> Result<(), DatasetError> {
    let directory = dataset.directory();
    let setting = &match limit_named(name) {
        Some(Limit::RefReservation) => resolve_auto(dataset, setting)?,
        _ => setting.clone(),
    };
    match (name, setting) {
        ("filesystem_limit" | "snapshot_limit", Setting::Number(limit)) if *limit != u64::MAX => {
            filesystem_counts::begin_counting(context, directory)?;
        }
        ("compression", Setting::Number(compression)) => {
            if let Some(feature) = feature_use::of_compression(*compression) {
                feature_use::activate(context, dataset.id(), feature)?;
            }
        }
        _ => {}
    }
    let entry = match source {
        Source::Local => Entry::Local(setting),
        Source::Received => Entry::Received(setting),
    };
    store_with_limits(context, dataset, name, &entry)
}

/// Changes what is stored of a property and, for a limit, what depends on its value.
pub(crate) fn store_with_limits(
    context: &TaskContext<'_>,
    dataset: &Dataset<'_>,
    name: &str,
    entry: &Entry<'_>,
) -> Result<(), DatasetError> {
    let Some(limit) = limit_named(name).filter(|_| !dataset.is_snapshot()) else {
        return store(context, dataset, name, entry);
    };
    let directory = dataset.directory();
    let property = table::find(name).expect("limits are in the table");
    let before = set::effective_number(dataset, property)?.unwrap_or(0);
    store(context, dataset, name, entry)?;
    let after = set::effective_number(dataset, property)?.unwrap_or(0);
    match limit {
        Limit::Quota => {
            let change = |stored: &mut ondisk::dataset_dir::DatasetDirectory| {
                stored.quota = AllocatedSize::from(after);
            };
            context.writing().change(directory.id(), change).map(|_| ())
        }
        Limit::Reservation => set_reservation(context, directory, after),
        Limit::RefQuota => Ok(()),
        Limit::RefReservation => {
            let unique = i128::from(dataset.stored()?.unique.get());
            let beyond = |reserved: u64| (i128::from(reserved) - unique).max(0);
            let change = beyond(after) - beyond(before);
            assert!(
                change.unsigned_abs() <= u128::from(after.abs_diff(before)),
                "at most what is reserved more is set aside"
            );
            let change = SpaceChange::of_used(change);
            charge(
                context.writing(),
                directory.id(),
                Part::RefReservation,
                change,
            )
        }
    }
}

/// Gives a directory a reservation, and charges its ancestors.
#[doc(alias = "dsl_dir_set_reservation_sync_impl")]
pub(crate) fn set_reservation(
    context: &TaskContext<'_>,
    directory: &Directory<'_>,
    reserved: u64,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let mut change = 0;
    let stored = writing.change(
        directory.id(),
        |stored: &mut ondisk::dataset_dir::DatasetDirectory| {
            let used = stored.used.get();
            let before = used.max(stored.reservation.get());
            change = i128::from(used.max(reserved)) - i128::from(before);
            let reserved_before = stored.reservation.get();
            assert!(
                change.unsigned_abs() <= u128::from(reserved.abs_diff(reserved_before)),
                "at most what is reserved more is set aside"
            );
            stored.reservation = AllocatedSize::from(reserved);
        },
    )?;
    if stored.parent.is_zero() || change == 0 {
        return Ok(());
    }
    let change = SpaceChange::of_used(change);
    charge(writing, stored.parent, Part::ChildReservations, change)
}

/// The feature that must be enabled before a property may get this number, if there is one.
pub fn needed_feature(property: &str, stored: u64) -> Option<Feature> {
    feature_use::needed_by(property, stored)
}

/// Refuses a user property whose name, with a suffix, is too long for a ZAP.
pub(super) fn check_user_name(name: &str, suffix: &str) -> Result<(), TaskRefusal> {
    match can_hold_name(&format!("{name}{suffix}")) {
        true => Ok(()),
        false => Err(TaskRefusal::NameTooLong {
            why: format!("property name '{name}' is too long"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            used: 100,
            referenced: 80,
            unique: 60,
            parent_available: 1000,
            available: 500,
            quota: 0,
            reservation: 0,
            ref_quota: 0,
            ref_reservation: 0,
        }
    }

    #[test]
    fn a_quota_is_not_less_than_what_is_used_or_reserved() {
        assert!(limits().take(Limit::Quota, 99).is_err());
        assert!(limits().take(Limit::Quota, 100).is_ok());
        let mut reserved = limits();
        reserved.take(Limit::Reservation, 300).unwrap();
        assert!(reserved.take(Limit::Quota, 200).is_err());
        assert!(reserved.take(Limit::Quota, 0).is_ok());
    }

    #[test]
    fn a_reservation_fits_the_parent_and_the_quota() {
        assert!(limits().take(Limit::Reservation, 1100).is_ok());
        let refused = limits().take(Limit::Reservation, 1101).unwrap_err();
        assert_eq!(refused.to_string(), "size is greater than available space");
        let mut limited = limits();
        limited.take(Limit::Quota, 200).unwrap();
        assert!(limited.take(Limit::Reservation, 201).is_err());
    }

    #[test]
    fn a_refreservation_fits_the_directory_and_the_refquota() {
        assert!(limits().take(Limit::RefReservation, 560).is_ok());
        assert!(limits().take(Limit::RefReservation, 561).is_err());
        let mut limited = limits();
        limited.take(Limit::RefQuota, 80).unwrap();
        assert!(limited.take(Limit::RefReservation, 81).is_err());
        assert!(limits().take(Limit::RefQuota, 79).is_err());
    }
}
