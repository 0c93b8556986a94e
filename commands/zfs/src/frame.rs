//! What JSON output says of a dataset besides its properties.

use tarn_administration::messages::dataset::{DatasetDescription, DatasetKind};
use tarn_terminal::json::{Numbers, Object};

/// The members that every dataset has, in OpenZFS's order.
pub fn dataset(dataset: &DatasetDescription, numbers: Numbers) -> Object {
    let kind = match dataset.kind {
        DatasetKind::Filesystem => "FILESYSTEM",
        DatasetKind::Volume => "VOLUME",
        DatasetKind::Snapshot => "SNAPSHOT",
        DatasetKind::Bookmark => "BOOKMARK",
    };
    let mut object = Object::new();
    object.insert("name".into(), dataset.name.clone().into());
    object.insert("type".into(), kind.into());
    object.insert("pool".into(), dataset.pool.clone().into());
    object.insert("createtxg".into(), numbers.number(dataset.created_txg));
    if let Some((of, snapshot)) = dataset.name.split_once('@') {
        object.insert("dataset".into(), of.into());
        object.insert("snapshot_name".into(), snapshot.into());
    }
    object
}
