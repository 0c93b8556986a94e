//! Applies pool properties: the changes in the pool, `failmode`, `autotrim`, and which cache file
//! lists it.

use super::settings::PoolSettings;
use crate::engine::{OpenPool, Remembered};
use std::sync::Arc;
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::is_user_property;
use tarn_object::zap::ZapValue;
use tarn_ondisk::pool_directory as name;
use tarn_pool::{Pool, PoolError, PoolPropertyChange};
use tarn_probe::Operation;

/// The stored number of `failmode=continue`.
const FAIL_MODE_CONTINUE: u64 = 1;
/// The stored number of `autotrim=on`.
const AUTOTRIM_ON: u64 = 1;

/// Applies the properties `failmode` and `autotrim` to a pool that was just opened.
///
/// # Errors
/// A property cannot be read.
pub fn apply_properties(pool: &Arc<Pool>, operation: &Operation) -> Result<(), PoolError> {
    let directory = pool.directory(operation);
    if let Some(zap) = directory.find(name::PROPERTIES)? {
        let number = |name| -> Result<Option<u64>, PoolError> {
            let stored = directory.value_in(zap, name)?;
            Ok(stored.and_then(|value| value.as_word()))
        };
        pool.set_fails_writers(number("failmode")? == Some(FAIL_MODE_CONTINUE));
        pool.set_autotrim(number("autotrim")? == Some(AUTOTRIM_ON));
    }
    Ok(())
}

/// The changes to make in the pool.
///
/// # Errors
/// Why one of the values is invalid.
pub fn changes_of(
    open: &OpenPool,
    settings: PoolSettings,
    operation: &Operation,
) -> Result<Vec<PoolPropertyChange>, String> {
    let mut changes = Vec::new();
    if let Some(comment) = settings.comment {
        let comment = Some(comment).filter(|comment| !comment.is_empty());
        changes.push(PoolPropertyChange::Comment(comment));
    }
    if let Some(sets) = settings.compatibility {
        let sets = Some(sets).filter(|sets| sets != "off" && !sets.is_empty());
        changes.push(PoolPropertyChange::Compatibility(sets));
    }
    for (feature, is_wanted) in settings.features {
        if is_wanted {
            changes.push(PoolPropertyChange::Enable(feature));
        }
    }
    for (name, value, shown) in settings.stored {
        if is_user_property(&name) && shown.is_empty() {
            changes.push(PoolPropertyChange::Clear(name));
            continue;
        }
        let value = match name.as_str() {
            "bootfs" => boot_dataset(open, &shown, operation)?,
            _ => value,
        };
        changes.push(PoolPropertyChange::Stored(name, value, shown));
    }
    Ok(changes)
}

/// The object number of the dataset that `bootfs` names.
fn boot_dataset(open: &OpenPool, name: &str, operation: &Operation) -> Result<ZapValue, String> {
    if name.is_empty() {
        return Ok(ZapValue::word(0));
    }
    let view = open.pool.namespace().view(operation);
    let head = view.directory(name).and_then(|directory| directory.head());
    match head {
        Ok(Some(head)) => Ok(ZapValue::word(head.id().get())),
        Ok(None) | Err(DatasetError::NotFound { .. }) => {
            Err(format!("'{name}' is an invalid name"))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The cache file of the pool.
pub fn remembered(settings: &PoolSettings, has_altroot: bool) -> Remembered {
    match settings.cache_file.as_deref() {
        Some("none") => Remembered::Nowhere,
        Some("") => Remembered::ByInstance,
        Some(path) => Remembered::In(path.to_string()),
        None if has_altroot => Remembered::Nowhere,
        None => Remembered::ByInstance,
    }
}
