//! Changes the MOS: stored structures in bonus buffers, values in ZAPs, new and freed objects.
//!
//! The counterpart of [`stored`](crate::stored). Everything here is for the sync thread, which
//! alone changes the MOS. Errors are those of reads before a change, and suspend the pool: the
//! functions are called after a task's check.

use crate::error::DatasetError;
use crate::stored::{Reading, is_zap, read_bonus};
use crate::task::{FeatureCounts, TaskContext};
use std::sync::Arc;
use tarn_object::zap::{NewZap, Normalize, ObjectZap, ZapError, ZapValue};
use tarn_object::{NewObject, Object, ObjectError, ObjectSet, SyncTx};
use tarn_ondisk::declare::Stored;
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

/// The MOS to change.
#[derive(Clone, Copy)]
pub(crate) struct Writing<'a> {
    pub(crate) set: &'a Arc<ObjectSet>,
    pub(crate) tx: &'a SyncTx,
    pub(crate) operation: &'a Operation,
}

impl<'a> TaskContext<'a> {
    /// The MOS, to change.
    pub(crate) fn writing(&self) -> Writing<'a> {
        Writing {
            set: self.namespace.mos(),
            tx: self.tx,
            operation: self.operation,
        }
    }
}

impl<'a> Writing<'a> {
    /// The MOS, to read.
    pub(crate) fn reading(self) -> Reading<'a> {
        Reading {
            set: self.set,
            operation: self.operation,
        }
    }

    /// The object of this number.
    fn object(self, id: ObjectId) -> Result<Arc<Object>, DatasetError> {
        self.reading().object(id)
    }

    /// Changes the structure in the bonus of this object. Gives back what it was made.
    pub(crate) fn change<T: Stored>(
        self,
        id: ObjectId,
        change: impl FnOnce(&mut T),
    ) -> Result<T, DatasetError> {
        let object = self.object(id)?;
        let mut structure: T = read_bonus(&object)?;
        change(&mut structure);
        let bytes = structure.to_bytes();
        assert_eq!(bytes.len(), T::SIZE, "a structure has its size");
        let stored = object.set_bonus(self.tx, &bytes);
        stored.map_err(in_object(id))?;
        debug_assert_eq!(
            read_bonus::<T>(&object).ok().map(|read| read.to_bytes()),
            Some(bytes),
            "the bonus of an object has what was put there"
        );
        Ok(structure)
    }

    /// A ZAP that is there.
    pub(crate) fn zap(self, id: ObjectId) -> Result<ObjectZap<'a>, DatasetError> {
        let upper: Normalize = Arc::new(|name| name.to_ascii_uppercase());
        Ok(ObjectZap::of(&self.object(id)?, self.operation).with_normalize(upper))
    }

    /// Makes an empty ZAP of this type, without normalisation.
    pub(crate) fn create_zap(self, object_type: ObjectType) -> Result<ObjectId, DatasetError> {
        let new = NewObject::plain(object_type, 0);
        let zap = ObjectZap::allocate(
            self.set,
            self.tx,
            new,
            NewZap::micro(self.set),
            self.operation,
        );
        let zap = zap.map_err(in_object(ObjectId::ZERO))?;
        Ok(zap.object().id())
    }

    /// Adds a name that is not there, or changes its value: of that very name, whatever equal ones
    /// there are.
    pub(crate) fn put(
        self,
        id: ObjectId,
        name: &str,
        value: &ZapValue,
    ) -> Result<(), DatasetError> {
        let put = self.zap(id)?.update(self.tx, name, value);
        put.map_err(in_zap(id))
    }

    /// Removes that very name. Says whether it was there.
    pub(crate) fn remove(self, id: ObjectId, name: &str) -> Result<bool, DatasetError> {
        match self.zap(id)?.remove(self.tx, name) {
            Ok(()) => Ok(true),
            Err(ZapError::NotFound) => Ok(false),
            Err(cause) => Err(in_zap(id)(cause)),
        }
    }

    /// Adds a number to a ZAP whose names are numbers.
    #[doc(alias = "zap_add_int")]
    pub(crate) fn add_number(self, id: ObjectId, number: ObjectId) -> Result<(), DatasetError> {
        let number = number.get();
        self.put(id, &format!("{number:x}"), &ZapValue::word(number))
    }

    /// Removes a number from a ZAP whose names are numbers.
    #[doc(alias = "zap_remove_int")]
    pub(crate) fn remove_number(
        self,
        id: ObjectId,
        number: ObjectId,
    ) -> Result<bool, DatasetError> {
        self.remove(id, &format!("{:x}", number.get()))
    }

    /// Frees an object, if there is one.
    pub(crate) fn free(self, id: ObjectId) -> Result<(), DatasetError> {
        if id.is_zero() {
            return Ok(());
        }
        let freed = self.set.free_object(self.tx, id, self.operation);
        freed.map_err(in_object(id))
    }

    /// Makes the data of a directory or dataset a ZAP, if they are not one yet.
    #[doc(alias = "dmu_object_zapify")]
    pub(crate) fn extend(
        self,
        id: ObjectId,
        features: &dyn FeatureCounts,
    ) -> Result<(), DatasetError> {
        let object = self.object(id)?;
        if is_zap(&object) {
            return Ok(());
        }
        // The ZAP first: a reader that sees the type must find one.
        ObjectZap::make(&object, self.tx, NewZap::micro(self.set), self.operation)
            .map_err(in_object(id))?;
        object
            .set_object_type(self.tx, ObjectType::ZapMetadata)
            .map_err(in_object(id))?;
        debug_assert!(is_zap(&object), "an extended object is a ZAP");
        features.increment(Feature::ExtensibleDataset)
    }

    /// Frees a directory or dataset that may have become a ZAP.
    #[doc(alias = "dmu_object_free_zapified")]
    pub(crate) fn free_extended(
        self,
        id: ObjectId,
        features: &dyn FeatureCounts,
    ) -> Result<(), DatasetError> {
        if is_zap(&*self.object(id)?) {
            features.decrement(Feature::ExtensibleDataset)?;
        }
        self.free(id)
    }
}

/// An error of this object.
pub(crate) fn in_object(object: ObjectId) -> impl Fn(ObjectError) -> DatasetError {
    move |cause| DatasetError::Object { object, cause }
}

/// An error of this ZAP.
pub(crate) fn in_zap(object: ObjectId) -> impl Fn(ZapError) -> DatasetError {
    move |cause| DatasetError::Zap { object, cause }
}
