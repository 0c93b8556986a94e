//! Looks a property up, with its source.
//!
//! # Mechanism
//! A directory's property ZAP has a number or a text under the property's name when it was set
//! there. Names with a suffix have more: `$recvd` the received value, `$inherit` a mark that the
//! received value does not count, and `$iuv` the real value of a word that older programs do not
//! know. A value is looked for in the directory, then, if the property is inherited, in its
//! ancestors. A snapshot has a ZAP of its own, which comes first.

use super::table;
use super::value::{Form, Property};
use crate::dataset::Dataset;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::stored::{Reading, number_of, text_of};
use std::collections::BTreeMap;
use std::ops::Bound;
use tarn_object::zap::ZapValue;
use tarn_ondisk::units::ObjectId;

/// Says that a received value shall not count.
pub const INHERIT_SUFFIX: &str = "$inherit";

/// The value that came with a stream.
pub const RECEIVED_SUFFIX: &str = "$recvd";

/// The value itself, where older programs would not understand it, and the name without a suffix
/// has one that they do.
#[doc(alias = "ZPROP_IUV_SUFFIX")]
pub const REAL_VALUE_SUFFIX: &str = "$iuv";

/// A value found in a property ZAP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A number.
    Number(u64),
    /// Text.
    Text(String),
}

/// Where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// On the dataset that was asked.
    Local,
    /// Came with a stream, on the dataset that was asked.
    Received,
    /// On this ancestor.
    Inherited(String),
}

/// What one property ZAP says of a name.
enum Here {
    Nothing,
    /// Explicitly not set here: go on with the parent, whatever was received.
    Inherit,
    Set(Found),
    Received(Found),
}

/// The value of a native property, where it was set.
pub fn find(
    dataset: &Dataset<'_>,
    property: &Property,
) -> Result<Option<(Found, Place)>, DatasetError> {
    let is_text = matches!(property.form, Form::Text);
    find_by_name(dataset, property.name, is_text, property.is_inheritable())
}

/// The value of a property by name.
pub(crate) fn find_by_name(
    dataset: &Dataset<'_>,
    name: &str,
    is_text: bool,
    is_inheritable: bool,
) -> Result<Option<(Found, Place)>, DatasetError> {
    Lineage::of(dataset)?.find_by_name(name, is_text, is_inheritable)
}

/// The property ZAPs in which a dataset's properties are looked for, its own first.
pub(crate) struct Lineage<'a> {
    steps: Vec<Step<'a>>,
}

/// One of them.
struct Step<'a> {
    /// The directory's name; none of a snapshot's own ZAP.
    name: Option<String>,
    properties: ObjectId,
    mos: Reading<'a>,
    /// All of it, where it was read.
    entries: Option<BTreeMap<String, ZapValue>>,
}

impl Step<'_> {
    /// Whether it may say something of a name, with a suffix or without.
    fn may_have(&self, name: &str) -> bool {
        let Some(entries) = &self.entries else {
            return !self.properties.is_zero();
        };
        let from_name = (Bound::Included(name), Bound::Unbounded);
        let mut entries = entries.range::<str, _>(from_name);
        entries
            .next()
            .is_some_and(|(entry, _)| entry.starts_with(name))
    }

    fn lookup(&self, name: &str) -> Result<Option<ZapValue>, DatasetError> {
        match &self.entries {
            Some(entries) => Ok(entries.get(name).cloned()),
            None => self.mos.lookup(self.properties, name),
        }
    }
}

impl<'a> Lineage<'a> {
    /// That of a dataset. Each look reads what it needs.
    fn of(dataset: &Dataset<'a>) -> Result<Lineage<'a>, DatasetError> {
        let mos = dataset.directory().view().mos();
        let step = |name, properties| Step {
            name,
            properties,
            mos,
            entries: None,
        };
        let mut steps = Vec::new();
        if dataset.is_snapshot() {
            steps.push(step(None, dataset.stored()?.snapshot_properties));
        }
        for directory in dataset.directory().lineage()? {
            let name = directory.name().to_string();
            steps.push(step(Some(name), directory.stored()?.properties));
        }
        Ok(Lineage { steps })
    }

    /// The same, for looking up many properties: each ZAP is read once, as a whole. Of one that
    /// cannot be, the entries that are asked for are looked up.
    pub(crate) fn read(dataset: &Dataset<'a>) -> Result<Lineage<'a>, DatasetError> {
        let mut lineage = Lineage::of(dataset)?;
        for step in &mut lineage.steps {
            let entries = step.mos.entries(step.properties);
            step.entries = entries.ok().map(|entries| entries.into_iter().collect());
        }
        Ok(lineage)
    }

    /// The value of a native property, where it is set.
    pub(crate) fn find(&self, property: &Property) -> Result<Option<(Found, Place)>, DatasetError> {
        let is_text = matches!(property.form, Form::Text);
        self.find_by_name(property.name, is_text, property.is_inheritable())
    }

    fn find_by_name(
        &self,
        name: &str,
        is_text: bool,
        is_inheritable: bool,
    ) -> Result<Option<(Found, Place)>, DatasetError> {
        let steps = match is_inheritable {
            true => self.steps.len(),
            false => 1,
        };
        for (index, step) in self.steps.iter().enumerate().take(steps) {
            let place = |own: Place| match (index, &step.name) {
                (1.., Some(name)) => Place::Inherited(name.clone()),
                _ => own,
            };
            match here(step, name, is_text)? {
                Here::Set(value) => return Ok(Some((value, place(Place::Local)))),
                Here::Received(value) => return Ok(Some((value, place(Place::Received)))),
                Here::Nothing | Here::Inherit => {}
            }
        }
        Ok(None)
    }
}

/// What one property ZAP says.
fn here(step: &Step<'_>, name: &str, is_text: bool) -> Result<Here, DatasetError> {
    if !step.may_have(name) {
        return Ok(Here::Nothing);
    }
    let get = |name: &str| value(step, name, is_text);
    if let Some(Found::Number(real)) = get(&format!("{name}{REAL_VALUE_SUFFIX}"))?
        && table::find(name).is_some_and(|property| property.word_of(real).is_some())
    {
        return Ok(Here::Set(Found::Number(real)));
    }
    if let Some(found) = get(name)? {
        return Ok(Here::Set(found));
    }
    if step.lookup(&format!("{name}{INHERIT_SUFFIX}"))?.is_some() {
        return Ok(Here::Inherit);
    }
    let received = get(&format!("{name}{RECEIVED_SUFFIX}"))?;
    Ok(received.map_or(Here::Nothing, Here::Received))
}

/// One value of a property ZAP, in the form the property has.
fn value(step: &Step<'_>, name: &str, is_text: bool) -> Result<Option<Found>, DatasetError> {
    let found = step.lookup(name)?;
    Ok(found.and_then(|found| match is_text {
        true => text_of(&found).map(Found::Text),
        false => number_of(&found).map(Found::Number),
    }))
}

/// A number set on this directory itself, or received with it.
pub fn local_number(directory: &Directory<'_>, name: &str) -> Result<Option<u64>, DatasetError> {
    number_in(directory.view().mos(), directory.stored()?.properties, name)
}

/// The same, by the directory's ZAP of properties.
pub(crate) fn number_in(
    mos: Reading<'_>,
    properties: ObjectId,
    name: &str,
) -> Result<Option<u64>, DatasetError> {
    // Asked with every write: most often there is nothing, which two questions tell.
    if let Some(local) = mos.number(properties, name)? {
        return Ok(Some(local));
    }
    let Some(received) = mos.number(properties, &format!("{name}{RECEIVED_SUFFIX}"))? else {
        return Ok(None);
    };
    let inherits = mos.lookup(properties, &format!("{name}{INHERIT_SUFFIX}"))?;
    Ok(inherits.is_none().then_some(received))
}

/// Which properties of a dataset are given on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Given {
    /// Those that are set here, or were received here and not set otherwise since.
    InEffect,
    /// Those that were received here, whatever was set since.
    Received,
}

/// The properties that are set on a dataset itself and could be set on another one, in the order in
/// which they are stored.
#[doc(alias = "send_iterate_prop")]
pub fn given(dataset: &Dataset<'_>, which: Given) -> Result<Vec<(String, Found)>, DatasetError> {
    let mos = dataset.directory().view().mos();
    let properties = match dataset.is_snapshot() {
        true => dataset.stored()?.snapshot_properties,
        false => dataset.directory().stored()?.properties,
    };
    let entries = mos.entries(properties)?;
    let has = |name: &str| entries.iter().any(|(other, _)| other == name);
    let mut given = Vec::new();
    for (stored, value) in &entries {
        let (name, suffix) = match stored.find('$') {
            Some(at) => stored.split_at(at),
            None => (stored.as_str(), ""),
        };
        let is_in_effect = !has(name) && !has(&format!("{name}{INHERIT_SUFFIX}"));
        let is_given = match (which, suffix) {
            (Given::InEffect, "") => true,
            (Given::InEffect, RECEIVED_SUFFIX) => is_in_effect,
            (Given::Received, RECEIVED_SUFFIX) => true,
            _ => false,
        };
        let is_known = |name: &str| {
            given
                .iter()
                .any(|(other, _): &(String, Found)| other == name)
        };
        if !is_given || is_known(name) || !is_settable(dataset, name) {
            continue;
        }
        let real = real_value(&entries, name).filter(|_| suffix.is_empty());
        let found = match (real.or(value.as_word()), value.as_text()) {
            (_, Some(text)) => Found::Text(String::from_utf8_lossy(text).into_owned()),
            (Some(number), None) => Found::Number(number),
            (None, None) => continue,
        };
        given.push((name.to_string(), found));
    }
    Ok(given)
}

/// The number that a property really has, where the one under its name is for older programs.
fn real_value(entries: &[(String, ZapValue)], name: &str) -> Option<u64> {
    let real = format!("{name}{REAL_VALUE_SUFFIX}");
    let found = entries.iter().find(|(other, _)| *other == real);
    let number = found.and_then(|(_, value)| value.as_word())?;
    table::find(name)?.word_of(number).map(|_| number)
}

/// Whether a property can be set on another dataset; of snapshots no limits of space.
fn is_settable(dataset: &Dataset<'_>, name: &str) -> bool {
    const LIMITS: [&str; 4] = ["quota", "reservation", "refquota", "refreservation"];
    if name.contains(':') {
        return true;
    }
    let is_limit_of_snapshot = dataset.is_snapshot() && LIMITS.contains(&name);
    table::find(name).is_some_and(|property| property.is_settable()) && !is_limit_of_snapshot
}

/// The user properties that a dataset has or inherits.
pub fn user_properties(
    dataset: &Dataset<'_>,
) -> Result<BTreeMap<String, (String, Place)>, DatasetError> {
    let mos = dataset.directory().view().mos();
    let mut names = std::collections::BTreeSet::new();
    let mut zaps: Vec<ObjectId> = Vec::new();
    if dataset.is_snapshot() {
        zaps.push(dataset.stored()?.snapshot_properties);
    }
    for step in dataset.directory().lineage()? {
        zaps.push(step.stored()?.properties);
    }
    for zap in zaps {
        for (name, _) in mos.entries(zap)? {
            let name = name.split('$').next().unwrap_or_default();
            if name.contains(':') {
                names.insert(name.to_string());
            }
        }
    }
    let mut found = BTreeMap::new();
    for name in names {
        if let Some((Found::Text(text), place)) = find_by_name(dataset, &name, true, true)? {
            found.insert(name, (text, place));
        }
    }
    Ok(found)
}
