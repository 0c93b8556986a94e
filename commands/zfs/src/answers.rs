//! What a description says of one property.

use crate::asked::Asked;
use tarn_administration::messages::dataset::{DatasetDescription, DatasetKind};
use tarn_administration::messages::{PropertyValue, Source, Value};
use tarn_engine::properties::value::{Form, Kinds};
use tarn_terminal::show::{self, Exactness};

/// The value as text; none where the dataset has no such property.
pub fn text(dataset: &DatasetDescription, asked: &Asked, exactness: Exactness) -> Option<String> {
    if asked.name() == "name" {
        return Some(dataset.name.clone());
    }
    let answer = find(dataset, asked)?;
    Some(show::value(asked.name(), answer, exactness))
}

/// What came for it with a stream, as text; none where nothing did. The daemon tells numbers
/// exactly.
pub fn received(
    dataset: &DatasetDescription,
    asked: &Asked,
    exactness: Exactness,
) -> Option<String> {
    // What came may be excluded, so that it has no effect.
    let text = dataset.properties.get(asked.name())?.received.as_ref()?;
    let is_number = matches!(asked, Asked::Native(row) if matches!(row.form, Form::Number));
    match text.parse() {
        Ok(number) if is_number => {
            let number = PropertyValue {
                value: Value::Number(number),
                source: Source::Received,
                received: None,
            };
            Some(show::value(asked.name(), &number, exactness))
        }
        _ => Some(text.clone()),
    }
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
