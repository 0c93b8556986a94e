//! The pool directory: object 1 of the MOS, which has the other objects of the pool by name.

use crate::error::PoolError;
use std::sync::Arc;
use tarn_object::zap::{ObjectZap, OwnedName, ZapValue};
use tarn_object::{Object, ObjectSet};
use tarn_ondisk as ondisk;
use tarn_ondisk::declare::{ByteOrder, Stored, narrow};
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::pool_directory::{self as name, POOL_DIRECTORY};
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

/// Largest packed list that is read: the configuration of thousands of devices.
const LIST_BYTES_MAX: u64 = 64 << 20;

/// Name of the ZAP of a leaf in its configuration.
pub(crate) const LEAF_ZAP: &str = "com.delphix:vdev_zap_leaf";
/// Name of the ZAP of a top-level vdev in its configuration.
pub const TOP_ZAP: &str = "com.delphix:vdev_zap_top";

/// A reader of the MOS for one operation.
#[derive(Clone, Copy)]
pub struct Directory<'a> {
    mos: &'a Arc<ObjectSet>,
    operation: &'a Operation,
}

impl<'a> Directory<'a> {
    /// The directory of this MOS.
    pub fn new(mos: &'a Arc<ObjectSet>, operation: &'a Operation) -> Self {
        Directory { mos, operation }
    }

    /// The operation of the reads.
    pub fn operation(self) -> &'a Operation {
        self.operation
    }

    /// An object of the MOS.
    pub fn object(self, id: ObjectId) -> Result<Arc<Object>, PoolError> {
        let found = self.mos.object(id, self.operation);
        found.map_err(|cause| PoolError::Object { object: id, cause })
    }

    /// A ZAP of the MOS.
    pub fn zap(self, id: ObjectId) -> Result<ObjectZap<'a>, PoolError> {
        Ok(ObjectZap::of(&self.object(id)?, self.operation))
    }

    /// The value of an entry of the directory.
    pub fn value(self, name: &str) -> Result<Option<ZapValue>, PoolError> {
        self.value_in(POOL_DIRECTORY, name)
    }

    /// The value of an entry of any ZAP of the MOS.
    pub fn value_in(self, zap: ObjectId, name: &str) -> Result<Option<ZapValue>, PoolError> {
        let found = self.zap(zap)?.lookup(name);
        found.map_err(|cause| PoolError::Zap { object: zap, cause })
    }

    /// The object of an entry of the directory.
    pub fn find(self, name: &str) -> Result<Option<ObjectId>, PoolError> {
        Ok(self
            .value(name)?
            .and_then(|value| value.as_word())
            .map(ObjectId::new))
    }

    /// The object of an entry that every pool has.
    pub fn require(self, name: &'static str) -> Result<ObjectId, PoolError> {
        self.find(name)?.ok_or(PoolError::Missing { name })
    }

    /// All entries of a ZAP of the MOS, by name.
    pub fn entries(self, zap: ObjectId) -> Result<Vec<(String, ZapValue)>, PoolError> {
        let entries = self.zap(zap)?.entries();
        let entries = entries.map_err(|cause| PoolError::Zap { object: zap, cause })?;
        Ok(entries
            .into_iter()
            .filter_map(|entry| match entry.name {
                OwnedName::Text(name) => Some((String::from_utf8(name).ok()?, entry.value)),
                OwnedName::Words(_) => None,
            })
            .collect())
    }

    /// The structure in the bonus of an object.
    pub fn bonus<T: Stored>(self, id: ObjectId) -> Result<T, PoolError> {
        T::from_short_bytes(&self.object(id)?.bonus(), ByteOrder::Little)
            .map_err(|cause| PoolError::Corrupt { object: id, cause })
    }

    /// The packed list in an object; its bonus has the length.
    pub fn packed_list(self, id: ObjectId) -> Result<NvList, PoolError> {
        let object = self.object(id)?;
        let corrupt = |cause| PoolError::Corrupt { object: id, cause };
        let size = ondisk::declare::Reader::new("packed list", &object.bonus(), ByteOrder::Little)
            .u64()
            .map_err(corrupt)?;
        if size > LIST_BYTES_MAX {
            let (what, field) = ("packed list", "size");
            return Err(corrupt(ondisk::declare::Corrupt::Value {
                what,
                field,
                offset: 0,
                found: size,
            }));
        }
        let mut bytes = vec![0; narrow(size)];
        object
            .read(0, &mut bytes, self.operation)
            .map_err(|cause| PoolError::Object { object: id, cause })?;
        NvList::decode(&bytes).map_err(|cause| PoolError::List { object: id, cause })
    }

    /// The pool's configuration with its whole vdev tree.
    pub fn configuration(self) -> Result<NvList, PoolError> {
        self.packed_list(self.require(name::CONFIG)?)
    }
}
