//! Properties of the pool that are stored in the MOS: a ZAP of numbers and texts by name.
//!
//! Their meanings and valid values are known where they are set.

use crate::directory::Directory;
use crate::error::{PoolError, TaskError};
use crate::error_log;
use crate::mos_writer::MosWriter;
use crate::pool::Pool;
use crate::sync_scope::SyncScope;
use std::sync::Arc;
use tarn_dataset::task::{FeatureCounts, InternalEvent, TaskRefusal};
use tarn_object::zap::ZapValue;
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::PROPERTIES;
use tarn_ondisk::zap::{VALUE_BYTES_MAX, can_hold_name};
use tarn_probe::Operation;

/// All stored properties.
pub fn read(directory: Directory<'_>) -> Result<Vec<(String, ZapValue)>, PoolError> {
    match directory.find(PROPERTIES)? {
        None => Ok(Vec::new()),
        Some(zap) => directory.entries(zap),
    }
}

/// Stores properties.
pub(crate) fn store(
    writer: MosWriter<'_>,
    properties: &[(String, ZapValue)],
) -> Result<(), PoolError> {
    let zap = writer.zap_at(PROPERTIES, ObjectType::PoolProperties)?;
    for (name, value) in properties {
        writer.put(zap, name, value)?;
    }
    Ok(())
}

/// Whether a property that is a word has the value *on*.
pub(crate) fn is_on(stored: &[(String, ZapValue)], name: &str) -> bool {
    let stored = stored.iter().find(|(stored, _)| stored == name);
    stored.and_then(|(_, value)| value.as_word()) == Some(1)
}

/// A change of one property of a pool.
#[derive(Debug, Clone)]
pub enum PoolPropertyChange {
    /// A property in the MOS: name, value, and the value as history shows it.
    Stored(String, ZapValue, String),
    /// Removes a user property.
    Clear(String),
    /// `comment`, in the labels.
    Comment(Option<String>),
    /// `compatibility`, in the labels.
    Compatibility(Option<String>),
    /// `feature@…=enabled`.
    Enable(Feature),
}

impl Pool {
    /// Whether a blank device at the path of one that is gone replaces it. False where the property
    /// cannot be read.
    #[doc(alias = "ZPOOL_PROP_AUTOREPLACE")]
    pub fn is_autoreplace(&self, operation: &Operation) -> bool {
        let stored = read(self.directory(operation));
        stored.is_ok_and(|stored| is_on(&stored, "autoreplace"))
    }

    /// Changes properties, and waits until that is stored.
    ///
    /// # Errors
    /// The pool is read-only, suspended or being closed.
    pub fn change_properties(
        self: &Arc<Self>,
        changes: Vec<PoolPropertyChange>,
        operation: &Operation,
    ) -> Result<(), TaskError> {
        self.run_in_sync(operation, move |scope| {
            if let Some(refusal) = changes.iter().find_map(refusal_of) {
                return Ok(Err(refusal));
            }
            for change in changes {
                let text = apply(scope, change)?;
                scope.context.record(InternalEvent {
                    name: "set",
                    dataset: None,
                    text,
                });
            }
            scope.pool.prepare_multihost(scope.writer.directory())?;
            Ok(Ok(()))
        })?;
        self.settle_multihost();
        Ok(())
    }
}

/// Why a change cannot be stored, if it cannot. After the first change none may be refused any
/// more.
fn refusal_of(change: &PoolPropertyChange) -> Option<TaskRefusal> {
    let (name, why) = match change {
        PoolPropertyChange::Stored(name, value, _) if value.size() > VALUE_BYTES_MAX => {
            (name, format!("property value for '{name}' is too long"))
        }
        PoolPropertyChange::Stored(name, ..) | PoolPropertyChange::Clear(name)
            if !can_hold_name(name) =>
        {
            (name, format!("invalid property '{name}'"))
        }
        _ => return None,
    };
    let property = name.clone();
    Some(TaskRefusal::BadValue { property, why })
}

/// Makes one change; returns its text for the history.
fn apply(scope: &SyncScope<'_>, change: PoolPropertyChange) -> Result<String, PoolError> {
    match change {
        PoolPropertyChange::Stored(name, value, shown) => {
            let text = format!("{name}={shown}");
            store(scope.writer, &[(name, value)])?;
            Ok(text)
        }
        PoolPropertyChange::Clear(name) => {
            let zap = scope
                .writer
                .zap_at(PROPERTIES, ObjectType::PoolProperties)?;
            scope.writer.remove(zap, &name)?;
            Ok(format!("{name}="))
        }
        PoolPropertyChange::Comment(comment) => {
            let text = format!("comment={}", comment.as_deref().unwrap_or_default());
            scope.change_facts(move |facts| facts.comment = comment.as_deref().map(Into::into));
            Ok(text)
        }
        PoolPropertyChange::Compatibility(sets) => {
            let text = format!("compatibility={}", sets.as_deref().unwrap_or_default());
            scope.change_facts(move |facts| facts.compatibility = sets.as_deref().map(Into::into));
            Ok(text)
        }
        PoolPropertyChange::Enable(feature) => {
            enable(scope, feature)?;
            Ok(format!("feature@{}=enabled", feature.name()))
        }
    }
}

/// Enables a feature, and converts stored data to the feature's form.
#[doc(alias = "feature_enable_sync")]
fn enable(scope: &SyncScope<'_>, feature: Feature) -> Result<(), PoolError> {
    let was_by_head = scope.features.is_enabled(Feature::HeadErrlog);
    scope.features.enable(feature)?;
    if was_by_head || !scope.features.is_enabled(Feature::HeadErrlog) {
        return Ok(());
    }
    error_log::list_by_head(scope.writer, |dataset| {
        let dataset = scope.context.view().dataset_without_name(dataset).ok()?;
        Some(dataset.directory().head().ok()??.id())
    })
}
