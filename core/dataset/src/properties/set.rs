//! Stores properties: the entries of a property in the ZAP of a directory or a snapshot.
//!
//! # Mechanism
//! A property can have up to four entries with different suffixes: its local value, its received
//! value, a mark that the received value does not count, and for a few newer words of old
//! properties the real value beside a local one that older programs understand ([`super::inherit`]
//! has their order). The functions here keep them consistent, and record their changes in the
//! internal history.
//!
//! A snapshot has a ZAP only while a property is set on it.

use super::inherit::{self, Found, INHERIT_SUFFIX, REAL_VALUE_SUFFIX, RECEIVED_SUFFIX};
use super::parse::Setting;
use super::table;
use super::value::{Change, Default, Form, Property};
use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::stored::Reading;
use crate::task::{InternalEvent, TaskContext};
use crate::writing::Writing;
use tarn_object::zap::ZapValue;
use tarn_ondisk as ondisk;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::ObjectId;

/// Says that a dataset was received, so that inheriting must be marked.
#[doc(alias = "ZPROP_HAS_RECVD")]
const HAS_RECEIVED: &str = "$hasrecvd";

/// Which of a property's entries change, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    /// It gets a local value.
    Local(&'a Setting),
    /// It gets a received value.
    Received(&'a Setting),
    /// The value that was received does not come with streams any more.
    Unreceived,
    /// It has no value of its own, whatever was received.
    Inherited,
    /// It goes back to what was received, or to none.
    Reverted,
    /// It has no value of its own, neither local nor received.
    Cleared,
}

/// Changes what is set on a dataset.
#[doc(alias = "dsl_prop_set_sync_impl")]
pub(crate) fn store(
    context: &TaskContext<'_>,
    dataset: &Dataset<'_>,
    name: &str,
    entry: &Entry<'_>,
) -> Result<(), DatasetError> {
    let writing = context.writing();
    let Some(zap) = zap_of(writing, dataset, entry)? else {
        return Ok(());
    };
    match entry {
        Entry::Local(setting) => put_local(writing, zap, name, setting)?,
        Entry::Received(setting) => {
            writing.put(zap, &format!("{name}{RECEIVED_SUFFIX}"), &stored(setting))?;
        }
        Entry::Unreceived => {
            writing.remove(zap, &format!("{name}{RECEIVED_SUFFIX}"))?;
        }
        Entry::Inherited => {
            remove_local(writing, zap, name)?;
            if marks_inheriting(dataset)? {
                let mark = format!("{name}{INHERIT_SUFFIX}");
                writing.put(zap, &mark, &ZapValue::word(0))?;
            }
        }
        Entry::Reverted => {
            remove_local(writing, zap, name)?;
            writing.remove(zap, &format!("{name}{INHERIT_SUFFIX}"))?;
        }
        Entry::Cleared => {
            remove_local(writing, zap, name)?;
            writing.remove(zap, &format!("{name}{INHERIT_SUFFIX}"))?;
            writing.remove(zap, &format!("{name}{RECEIVED_SUFFIX}"))?;
        }
    }
    drop_empty(writing, dataset, zap)?;
    context.record(InternalEvent {
        name: match entry {
            Entry::Inherited | Entry::Reverted | Entry::Unreceived => "inherit",
            Entry::Local(_) | Entry::Received(_) | Entry::Cleared => "set",
        },
        dataset: Some((dataset.name(), dataset.id())),
        text: format!("{name}={}", effective_text(dataset, name)?),
    });
    Ok(())
}

/// Whether a property that a dataset inherits gets a mark, which is stored under the property's
/// name with [`INHERIT_SUFFIX`].
pub(crate) fn marks_inheriting(dataset: &Dataset<'_>) -> Result<bool, DatasetError> {
    Ok(inherit::find_by_name(dataset, HAS_RECEIVED, false, true)?.is_some())
}

/// Gives a property its local value, in a ZAP of properties. Nothing is recorded.
pub(crate) fn put_local(
    writing: Writing<'_>,
    zap: ObjectId,
    name: &str,
    setting: &Setting,
) -> Result<(), DatasetError> {
    writing.remove(zap, &format!("{name}{INHERIT_SUFFIX}"))?;
    let real_value = format!("{name}{REAL_VALUE_SUFFIX}");
    match (setting, understood_instead(name, setting)) {
        (Setting::Number(_), Some(older)) => {
            writing.put(zap, &real_value, &stored(setting))?;
            writing.put(zap, name, &ZapValue::word(older))
        }
        _ => {
            writing.remove(zap, &real_value)?;
            writing.put(zap, name, &stored(setting))
        }
    }
}

/// Says that a directory has values that came with a stream.
#[doc(alias = "dsl_prop_set_hasrecvd")]
pub(crate) fn note_received(writing: Writing<'_>, zap: ObjectId) -> Result<(), DatasetError> {
    writing.put(zap, HAS_RECEIVED, &ZapValue::word(0))
}

/// The properties of a directory that have a received value.
pub(crate) fn received_names(
    reading: Reading<'_>,
    zap: ObjectId,
) -> Result<Vec<String>, DatasetError> {
    let entries = reading.entries(zap)?.into_iter();
    let names = entries.filter_map(|(name, _)| {
        let name = name.strip_suffix(RECEIVED_SUFFIX)?;
        Some(name.to_string())
    });
    Ok(names.collect())
}

fn remove_local(writing: Writing<'_>, zap: ObjectId, name: &str) -> Result<(), DatasetError> {
    writing.remove(zap, name)?;
    writing.remove(zap, &format!("{name}{REAL_VALUE_SUFFIX}"))?;
    Ok(())
}

/// What older programs shall see in place of a word they do not know.
#[doc(alias = "dsl_prop_set_iuv")]
fn understood_instead(name: &str, setting: &Setting) -> Option<u64> {
    /// `redundant_metadata=some` and `none`; `most` is 1.
    const REDUNDANT_SOME: u64 = 2;
    const REDUNDANT_NONE: u64 = 3;
    /// `snapdir=disabled`.
    const SNAPDIR_DISABLED: u64 = 2;
    let Setting::Number(number) = setting else {
        return None;
    };
    let is_newer = match name {
        "redundant_metadata" => [REDUNDANT_SOME, REDUNDANT_NONE].contains(number),
        "snapdir" => *number == SNAPDIR_DISABLED,
        _ => false,
    };
    match table::find(name)?.default {
        Default::Number(default) if is_newer => Some(default),
        _ => None,
    }
}

/// The ZAP that has a dataset's own values. That of a snapshot is made when it is first needed.
fn zap_of(
    writing: Writing<'_>,
    dataset: &Dataset<'_>,
    entry: &Entry<'_>,
) -> Result<Option<ObjectId>, DatasetError> {
    if !dataset.is_snapshot() {
        return Ok(Some(dataset.directory().stored()?.properties));
    }
    let zap = dataset.stored()?.snapshot_properties;
    if !zap.is_zero() {
        return Ok(Some(zap));
    }
    if !matches!(entry, Entry::Local(_) | Entry::Received(_)) {
        return Ok(None);
    }
    let zap = writing.create_zap(ObjectType::DslProperties)?;
    writing.change(dataset.id(), |stored: &mut ondisk::dataset::Dataset| {
        stored.snapshot_properties = zap;
    })?;
    Ok(Some(zap))
}

/// A snapshot on which nothing is set any more needs no ZAP.
fn drop_empty(
    writing: Writing<'_>,
    dataset: &Dataset<'_>,
    zap: ObjectId,
) -> Result<(), DatasetError> {
    if !dataset.is_snapshot() || writing.reading().count(zap)? > 0 {
        return Ok(());
    }
    writing.change(dataset.id(), |stored: &mut ondisk::dataset::Dataset| {
        stored.snapshot_properties = ObjectId::ZERO;
    })?;
    writing.free(zap)
}

/// A value as ZAPs hold it.
pub(crate) fn stored(setting: &Setting) -> ZapValue {
    match setting {
        Setting::Number(number) => ZapValue::word(*number),
        Setting::Text(text) => ZapValue::text(text),
    }
}

/// What a property now is, as the internal history writes it: numbers signed, and nothing for text
/// that was not set.
fn effective_text(dataset: &Dataset<'_>, name: &str) -> Result<String, DatasetError> {
    let property = table::find(name);
    if let Some(number) = match property {
        Some(property) => effective_number(dataset, property)?,
        None => None,
    } {
        return Ok(number.cast_signed().to_string());
    }
    let is_inheritable = property.is_none_or(Property::is_inheritable);
    let found = inherit::find_by_name(dataset, name, true, is_inheritable)?;
    Ok(match (found, property.map(|property| property.default)) {
        (Some((Found::Text(text), _)), _) => text,
        (_, Some(Default::Text(text))) => text.to_string(),
        _ => String::new(),
    })
}

/// The number that a property has on a dataset, set or by default; none for text.
pub(crate) fn effective_number(
    dataset: &Dataset<'_>,
    property: &Property,
) -> Result<Option<u64>, DatasetError> {
    if matches!(property.form, Form::Text) || property.change == Change::ReadOnly {
        return Ok(None);
    }
    Ok(
        match (inherit::find(dataset, property)?, property.default) {
            (Some((Found::Number(number), _)), _) | (None, Default::Number(number)) => Some(number),
            _ => Some(0),
        },
    )
}
