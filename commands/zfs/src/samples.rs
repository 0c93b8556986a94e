//! Descriptions for tests.

use tarn_administration::messages::dataset::{DatasetDescription, DatasetKind};
use tarn_administration::messages::{Properties, PropertyValue, Source, Value};

/// A file system with these values, all without a source.
pub fn dataset(name: &str, values: &[(&str, Value)]) -> DatasetDescription {
    let property = |(name, value): &(&str, Value)| {
        let value = PropertyValue {
            value: value.clone(),
            source: Source::None,
            received: None,
        };
        (name.to_string(), value)
    };
    DatasetDescription {
        name: name.to_string(),
        kind: DatasetKind::Filesystem,
        pool: name
            .split(['/', '@', '#'])
            .next()
            .unwrap_or_default()
            .to_string(),
        created_txg: 1,
        properties: values.iter().map(property).collect::<Properties>(),
    }
}

/// A snapshot of this age and size.
pub fn snapshot(name: &str, created_txg: u64, used: u64) -> DatasetDescription {
    DatasetDescription {
        kind: DatasetKind::Snapshot,
        created_txg,
        ..dataset(name, &[("used", Value::Number(used))])
    }
}

/// The same dataset with one more property.
pub fn with(
    mut dataset: DatasetDescription,
    name: &str,
    value: Value,
    source: Source,
) -> DatasetDescription {
    dataset.properties.insert(
        name.to_string(),
        PropertyValue {
            value,
            source,
            received: None,
        },
    );
    dataset
}
