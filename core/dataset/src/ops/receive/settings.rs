//! Properties that a receive sets: received ones, and those of the command.

use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::ops::create::apply_settings_to;
use crate::ops::set::{Source, check_limit_of, check_received, check_user_name, store_with_limits};
use crate::properties::inherit::INHERIT_SUFFIX;
use crate::properties::parse::Checked;
use crate::properties::set::{Entry, note_received};
use crate::task::{TaskContext, TaskRefusal};

/// The properties that a receive sets on its target.
#[derive(Debug, Clone, Default)]
pub struct ReceiveSettings {
    /// Properties that are set (`-o`).
    pub local: Vec<Checked>,
    /// What came with the stream.
    pub received: Vec<Checked>,
    /// Properties that are inherited whatever came (`-x`), unless they are set at the target.
    pub inherited: Vec<String>,
}

/// A property that could not be set. The received dataset is complete without it.
#[derive(Debug)]
pub struct NotSet {
    /// The property.
    pub property: String,
    /// Why.
    pub why: TaskRefusal,
}

/// Refuses settings whose names cannot be stored with the suffixes that they get.
pub(super) fn check_names(settings: &ReceiveSettings) -> Result<(), TaskRefusal> {
    check_received(&settings.received)?;
    let mut inherited = settings.inherited.iter();
    inherited.try_for_each(|name| check_user_name(name, INHERIT_SUFFIX))
}

/// Whether a received value is set only when the contents are there: a snapshot may be larger than
/// what the file system was limited to later.
#[doc(alias = "extract_delay_props")]
pub(super) fn waits_for_contents(received: &Checked) -> bool {
    received.name == "refquota"
}

/// Gives a head what came with the stream, what is set, and what is to be inherited. What
/// limits do not allow is left out, and told.
pub(super) fn set_all(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    settings: &ReceiveSettings,
) -> Result<Vec<NotSet>, DatasetError> {
    let properties = head.directory().stored()?.properties;
    if !settings.received.is_empty() {
        note_received(context.writing(), properties)?;
    }
    let mut not_set = set_possible(context, head, &settings.received, Source::Received)?;
    not_set.extend(set_possible(context, head, &settings.local, Source::Local)?);
    for name in &settings.inherited {
        if !is_set_here(head, name)? {
            store_with_limits(context, head, name, &Entry::Inherited)?;
        }
    }
    context.namespace.policies_changed(head.directory().id());
    Ok(not_set)
}

/// Sets what limits allow. What is refused is tried again after the others.
fn set_possible(
    context: &TaskContext<'_>,
    head: &Dataset<'_>,
    settings: &[Checked],
    source: Source,
) -> Result<Vec<NotSet>, DatasetError> {
    let mut waiting: Vec<&Checked> = settings.iter().collect();
    loop {
        let (count, mut refused, mut not_set) = (waiting.len(), Vec::new(), Vec::new());
        for checked in waiting {
            // What came with a stream does not count where something else is set.
            let counts = source == Source::Local || !is_set_here(head, &checked.name)?;
            match check_limit_of(head, checked) {
                Err(TaskRefusal::Dataset(error)) => return Err(error),
                Err(why) if counts => {
                    refused.push(checked);
                    not_set.push(NotSet {
                        property: checked.name.clone(),
                        why,
                    });
                }
                _ => apply_settings_to(context, head, std::slice::from_ref(checked), source)?,
            }
        }
        if refused.is_empty() || refused.len() == count {
            return Ok(not_set);
        }
        waiting = refused;
    }
}

/// Whether a property is set on the head itself.
fn is_set_here(head: &Dataset<'_>, name: &str) -> Result<bool, DatasetError> {
    let properties = head.directory().stored()?.properties;
    let reading = head.directory().view().mos();
    Ok(reading.lookup(properties, name)?.is_some())
}
