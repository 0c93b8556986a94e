//! What a description says of one property.

use crate::asked::Asked;
use tarn_engine::messages::dataset::{DatasetDescription, DatasetKind};
use tarn_engine::messages::{PropertyValue, Source, Value};
use tarn_engine::properties::value::Kinds;
use tarn_terminal::show::{self, Exactness};

/// The value as text; none where the dataset has no such property.
pub fn text(dataset: &DatasetDescription, asked: &Asked, exactness: Exactness) -> Option<String> {
    if asked.name() == "name" {
        return Some(dataset.name.clone());
    }
    let answer = find(dataset, asked)?;
    Some(show::value(asked.name(), answer, exactness))
}

/// The value and its source; none where the dataset has no such property.
pub fn find<'a>(dataset: &'a DatasetDescription, asked: &Asked) -> Option<&'a PropertyValue> {
    dataset
        .properties
        .get(asked.name())
        .filter(|answer| answer.value != Value::Absent)
}

/// The source; `-` where the dataset has no such property.
pub fn source<'a>(dataset: &'a DatasetDescription, asked: &Asked) -> &'a Source {
    find(dataset, asked).map_or(&Source::None, |answer| &answer.source)
}

/// The kind as the table of properties has it.
pub fn kinds(kind: DatasetKind) -> Kinds {
    match kind {
        DatasetKind::Filesystem => Kinds::FILESYSTEM,
        DatasetKind::Snapshot => Kinds::SNAPSHOT,
        DatasetKind::Volume => Kinds::VOLUME,
        DatasetKind::Bookmark => Kinds::BOOKMARK,
    }
}
