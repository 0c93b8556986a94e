//! The properties of one dataset: those in the tree of datasets, and those of its mount.

use super::owners::{Viewer, is_of_owner};
use crate::messages::dataset::{DatasetDescription, DatasetKind};
use crate::messages::{Properties, PropertyValue, Source, Value};
use tarn_dataset::contents::DEFAULT_QUOTAS;
use tarn_dataset::dataset::{Dataset, NamedBookmark};
use tarn_dataset::error::DatasetError;
use tarn_dataset::names::{DatasetName, is_user_property};
use tarn_dataset::ops::receive::resume_list;
use tarn_dataset::properties::inherit::{self, Found, Given, Place};
use tarn_dataset::properties::native::{self, NativeValue, Shown, ShownSource};
use tarn_dataset::properties::table;
use tarn_dataset::properties::value::Property;
use tarn_dataset::space_used;
use tarn_engine::engine::OpenPool;
use tarn_engine::mounting::mountpoint;

/// The requested properties. Names may be short forms of `zfs list` (`avail`).
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    native: Vec<&'static str>,
    user: Vec<String>,
    /// `written@…` and `written#…`.
    written: Vec<String>,
    /// `userused@…` and its kin.
    of_owners: Vec<String>,
    viewer: Viewer,
    all: bool,
}

impl Wanted {
    /// The properties of these names; all when empty.
    pub(super) fn new(names: &[String], viewer: &Viewer) -> Wanted {
        let native = names.iter().filter_map(|name| table::find(name));
        let of = |kind: fn(&str) -> bool| {
            let found = names.iter().filter(|name| kind(name));
            found.cloned().collect::<Vec<String>>()
        };
        Wanted {
            native: native.map(|row| row.name).collect(),
            user: of(is_user_property),
            written: of(is_written),
            of_owners: of(is_of_owner),
            viewer: viewer.clone(),
            all: names.is_empty(),
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.all || self.native.contains(&name)
    }

    /// Whether a property was named, or all are shown.
    fn wants_row(&self, row: &Property) -> bool {
        (self.all && row.visible) || self.native.contains(&row.name)
    }

    fn wants_user(&self, name: &str) -> bool {
        self.all || self.user.iter().any(|wanted| wanted == name)
    }
}

/// Whether a property is `written@…` or `written#…`.
fn is_written(property: &str) -> bool {
    let since = property.strip_prefix("written");
    since.is_some_and(|since| since.len() > 1 && since.starts_with(['@', '#']))
}

/// Bytes of a dataset written since the snapshot or bookmark that this property names, in full or
/// by its short name. None where there is no value.
#[doc(alias = "zfs_prop_get_written_int")]
fn written(dataset: &Dataset<'_>, property: &str) -> Result<Option<u64>, DatasetError> {
    let since = property.trim_start_matches("written");
    let name = match since.get(1..) {
        Some(full) if full.contains(['@', '#']) => full.to_string(),
        _ => format!("{}{since}", dataset.directory().name()),
    };
    let Ok(name) = DatasetName::parse(&name) else {
        return Ok(None);
    };
    match space_used::written_since(dataset, &name) {
        Err(DatasetError::NotFound { .. }) => Ok(None),
        written => written,
    }
}

/// Describes a head or a snapshot.
pub(super) fn describe(
    open: &OpenPool,
    dataset: &Dataset<'_>,
    kind: DatasetKind,
    wanted: &Wanted,
) -> Result<DatasetDescription, DatasetError> {
    let mut properties = Properties::new();
    let natives = native::of_dataset(dataset, |row| wanted.wants_row(row))?;
    for native in natives {
        if !(wanted.all && is_unset_default(&native)) {
            insert(&mut properties, native);
        }
    }
    if kind == DatasetKind::Filesystem {
        add_mount_facts(open, dataset, wanted, &mut properties)?;
    }
    if wanted.all || !wanted.user.is_empty() {
        for (name, (text, place)) in inherit::user_properties(dataset)? {
            if wanted.wants_user(&name) {
                properties.insert(name, value_of_text(text, source_of_place(place)));
            }
        }
    }
    add_received(dataset, &wanted.user, &mut properties)?;
    for name in &wanted.written {
        if let Some(bytes) = written(dataset, name)? {
            properties.insert(name.clone(), asked_for(bytes));
        }
    }
    for name in &wanted.of_owners {
        if let Some(number) = wanted.viewer.answer(open, dataset, name) {
            properties.insert(name.clone(), asked_for(number));
        }
    }
    Ok(DatasetDescription {
        name: dataset.name(),
        kind,
        pool: open.pool.name().to_string(),
        created_txg: dataset.stored()?.creation_txg.get(),
        properties,
    })
}

/// Whether it is a default quota that is not set. OpenZFS 2.3 has no default quotas, so `all` shows
/// them only where they are set.
fn is_unset_default(native: &NativeValue) -> bool {
    let is_default = DEFAULT_QUOTAS.contains(&native.property.name);
    is_default && native.value == Shown::Number(0)
}

/// The value of a property that was asked for by name. OpenZFS calls its source local.
fn asked_for(number: u64) -> PropertyValue {
    PropertyValue {
        value: Value::Number(number),
        source: Source::Local,
        received: None,
    }
}

/// Adds received values to properties, effective or not: also for user properties without a value,
/// where they were `asked` for by name.
#[doc(alias = "zfs_prop_get_recvd")]
fn add_received(
    dataset: &Dataset<'_>,
    asked: &[String],
    properties: &mut Properties,
) -> Result<(), DatasetError> {
    for (name, found) in inherit::given(dataset, Given::Received)? {
        if asked.contains(&name) {
            let absent = || PropertyValue {
                value: Value::Absent,
                source: Source::None,
                received: None,
            };
            properties.entry(name.clone()).or_insert_with(absent);
        }
        if let Some(shown) = properties.get_mut(&name) {
            let word = |number| table::find(&name).and_then(|row| row.word_of(number));
            shown.received = Some(match found {
                Found::Number(number) => word(number).map_or(number.to_string(), str::to_string),
                Found::Text(text) => text,
            });
        }
    }
    Ok(())
}

/// Describes a bookmark.
pub(super) fn describe_bookmark(
    open: &OpenPool,
    head: &Dataset<'_>,
    bookmark: &NamedBookmark,
    wanted: &Wanted,
) -> DatasetDescription {
    let mut properties = Properties::new();
    for native in native::of_bookmark(bookmark) {
        if wanted.wants(native.property.name) {
            insert(&mut properties, native);
        }
    }
    DatasetDescription {
        name: format!("{}#{}", head.name(), bookmark.name),
        kind: DatasetKind::Bookmark,
        pool: open.pool.name().to_string(),
        created_txg: bookmark.stored.creation_txg.get(),
        properties,
    }
}

/// Adds the properties of a mount: whether and where it is mounted, and which options override
/// properties.
fn add_mount_facts(
    open: &OpenPool,
    dataset: &Dataset<'_>,
    wanted: &Wanted,
    properties: &mut Properties,
) -> Result<(), DatasetError> {
    let served = open.served(dataset.directory().name());
    // The mount table is read only where the answer is shown.
    let shows = |served: &tarn_engine::mounts::Mounted| {
        wanted.wants("mounted") || !served.temporary.overridden().is_empty()
    };
    let mounted = served.filter(|served| shows(served) && open.is_mounted(served));
    if wanted.wants("mounted") {
        let word = if mounted.is_some() { "yes" } else { "no" };
        let value = value_of_text(word.to_string(), Source::None);
        properties.insert("mounted".to_string(), value);
    }
    if wanted.wants("receive_resume_token")
        && !dataset.is_snapshot()
        && let Some(list) = resume_list(dataset)?
    {
        let value = value_of_text(tarn_stream::token::encode(&list), Source::None);
        properties.insert("receive_resume_token".to_string(), value);
    }
    if wanted.wants("mountpoint") {
        let (point, source) = mountpoint::of_dataset(dataset, open.altroot.as_deref())?;
        let value = value_of_text(point.text(), source_of(source));
        properties.insert("mountpoint".to_string(), value);
    }
    let Some(mounted) = mounted else {
        return Ok(());
    };
    for (name, word) in mounted.temporary.overridden() {
        let Some(shown) = properties.get_mut(name) else {
            continue;
        };
        if shown.value != Value::Text(word.to_string()) {
            *shown = value_of_text(word.to_string(), Source::Temporary);
        }
    }
    Ok(())
}

fn insert(properties: &mut Properties, native: NativeValue) {
    let source = source_of(native.source);
    let value = match native.value {
        Shown::Number(number) => Value::Number(number),
        Shown::Text(text) => Value::Text(text),
    };
    let value = PropertyValue {
        value,
        source,
        received: None,
    };
    properties.insert(native.property.name.to_string(), value);
}

fn source_of(source: ShownSource) -> Source {
    match source {
        ShownSource::None => Source::None,
        ShownSource::Default => Source::Default,
        ShownSource::Set(place) => source_of_place(place),
    }
}

fn source_of_place(place: Place) -> Source {
    match place {
        Place::Local => Source::Local,
        Place::Received => Source::Received,
        Place::Inherited(from) => Source::Inherited(from),
    }
}

fn value_of_text(text: String, source: Source) -> PropertyValue {
    PropertyValue {
        value: Value::Text(text),
        source,
        received: None,
    }
}
