//! The facts in a dataset's object set: whether it is a file system or a volume, and the properties
//! fixed at its creation.
//!
//! Object 1 of a file system is its master node, a ZAP with its version and its treatment of names.
//! Object 1 of a volume is its data, and object 2 a ZAP with its size.

use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::stored::Reading;
use std::sync::Arc;
use tarn_object::{ObjectSet, read_head};
use tarn_ondisk as ondisk;
use tarn_ondisk::dataset::DatasetFlags;
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::{MASTER_NODE, master};

/// The data of a volume.
#[doc(alias = "ZVOL_OBJ")]
pub const VOLUME_DATA: ObjectId = ObjectId::new(1);

/// The ZAP of a volume, which has its size.
#[doc(alias = "ZVOL_ZAP_OBJ")]
pub(crate) const VOLUME_ZAP: ObjectId = ObjectId::new(2);

/// What an object set contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Files.
    Filesystem(FilesystemFacts),
    /// A volume.
    Volume(VolumeFacts),
    /// Something else: an object set that was begun and never finished.
    Other,
}

/// Facts fixed when a file system is made (but for its version, which can rise).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilesystemFacts {
    /// ZPL version, 1 to 5.
    pub version: u64,
    /// Names must be UTF-8.
    pub utf8_only: bool,
    /// How names are normalised: the stored number of the property.
    pub normalization: u64,
    /// How names are compared: the stored number of the property.
    pub case: u64,
    /// Default quotas, in the order of [`DEFAULT_QUOTAS`]; 0 for none. They can
    /// change.
    pub default_quotas: [u64; 6],
}

/// Properties that a file system keeps in its own master node, and how they are called there.
pub const DEFAULT_QUOTAS: [&str; 6] = [
    master::DEFAULT_USER_QUOTA,
    master::DEFAULT_GROUP_QUOTA,
    master::DEFAULT_PROJECT_QUOTA,
    master::DEFAULT_USER_OBJECT_QUOTA,
    master::DEFAULT_GROUP_OBJECT_QUOTA,
    master::DEFAULT_PROJECT_OBJECT_QUOTA,
];

/// Facts of a volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeFacts {
    /// `volsize` in bytes.
    pub size_bytes: u64,
    /// `volblocksize` in bytes.
    pub block_bytes: u64,
}

/// The object set of a dataset, to read; a snapshot's never changes.
///
/// # Errors
/// Its object set could not be read.
pub fn objset(dataset: &Dataset<'_>) -> Result<Arc<ObjectSet>, DatasetError> {
    let root = dataset.stored()?.root;
    let view = dataset.directory().view();
    view.namespace()
        .open_set(dataset.id(), &root, view.operation())
        .map_err(|cause| DatasetError::Object {
            object: dataset.id(),
            cause,
        })
}

/// What kind of contents a dataset has, without its facts: they are left at zero. Reads the head of
/// the object set only, and no object in it.
///
/// # Errors
/// Its object set could not be read.
pub fn outline(dataset: &Dataset<'_>) -> Result<Contents, DatasetError> {
    let root = dataset.stored()?.root;
    if root.is_hole() {
        return Ok(Contents::Other);
    }
    let view = dataset.directory().view();
    let cache = &view.namespace().mos().env().cache;
    let head = read_head(cache, dataset.id(), &root, view.operation());
    let head = head.map_err(|cause| DatasetError::Object {
        object: dataset.id(),
        cause,
    })?;
    Ok(match head.objset_type {
        ondisk::objset::ObjsetType::Zfs => Contents::Filesystem(FilesystemFacts::default()),
        ondisk::objset::ObjsetType::Zvol => Contents::Volume(VolumeFacts::default()),
        _ => Contents::Other,
    })
}

/// Reads what a dataset contains.
///
/// # Errors
/// Its object set could not be read, or is of a kind that is not known.
pub fn read(dataset: &Dataset<'_>) -> Result<Contents, DatasetError> {
    let stored = dataset.stored()?;
    if stored.root.is_hole() {
        return Ok(Contents::Other);
    }
    // What is half received may have none of its facts yet.
    if stored.flags.contains(DatasetFlags::INCONSISTENT) {
        return outline(dataset);
    }
    let set = objset(dataset)?;
    let reading = Reading {
        set: &set,
        operation: dataset.directory().view().operation(),
    };
    match set.objset_type() {
        ondisk::objset::ObjsetType::Zfs => {
            let number = |name: &str| reading.number(MASTER_NODE, name);
            let mut default_quotas = [0; 6];
            for (name, quota) in DEFAULT_QUOTAS.iter().zip(&mut default_quotas) {
                *quota = number(name)?.unwrap_or(0);
            }
            Ok(Contents::Filesystem(FilesystemFacts {
                version: number("VERSION")?.unwrap_or(1),
                utf8_only: number("utf8only")?.unwrap_or(0) != 0,
                normalization: number("normalization")?.unwrap_or(0),
                case: number("casesensitivity")?.unwrap_or(0),
                default_quotas,
            }))
        }
        ondisk::objset::ObjsetType::Zvol => {
            let data = reading.object(VOLUME_DATA)?;
            Ok(Contents::Volume(VolumeFacts {
                size_bytes: reading.number(VOLUME_ZAP, "size")?.unwrap_or(0),
                block_bytes: data.block_size().get(),
            }))
        }
        _ => Ok(Contents::Other),
    }
}
