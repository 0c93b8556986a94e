//! Writes to the MOS: objects, ZAPs, packed lists.

use crate::directory::Directory;
use crate::error::PoolError;
use std::sync::Arc;
use tarn_object::zap::{NewZap, ObjectZap, ZapError, ZapValue};
use tarn_object::{NewObject, Object, ObjectSet, SyncTx};
use tarn_ondisk::declare::widen;
use tarn_ondisk::nvlist::{Encoding, NvList};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::POOL_DIRECTORY;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

/// The block size of packed lists, and the unit of their length.
#[doc(alias = "SPA_CONFIG_BLOCKSIZE")]
const LIST_BLOCK_BYTES: u64 = 16 << 10;

/// The MOS, to change in the syncing txg.
#[derive(Clone, Copy)]
pub(crate) struct MosWriter<'a> {
    pub(crate) mos: &'a Arc<ObjectSet>,
    pub(crate) tx: &'a SyncTx,
    pub(crate) operation: &'a Operation,
}

impl<'a> MosWriter<'a> {
    /// A reader of the same MOS.
    pub(crate) fn directory(self) -> Directory<'a> {
        Directory::new(self.mos, self.operation)
    }

    /// Creates an object.
    pub(crate) fn create(self, new: NewObject) -> Result<Arc<Object>, PoolError> {
        let made = self.mos.allocate(self.tx, new, self.operation);
        made.map_err(|cause| PoolError::Object {
            object: ObjectId::ZERO,
            cause,
        })
    }

    /// Frees an object with its blocks.
    pub(crate) fn free(self, id: ObjectId) -> Result<(), PoolError> {
        let freed = self.mos.free_object(self.tx, id, self.operation);
        freed.map_err(|cause| PoolError::Object { object: id, cause })
    }

    /// Creates an empty ZAP.
    pub(crate) fn create_zap(self, object_type: ObjectType) -> Result<ObjectId, PoolError> {
        let new = NewObject::plain(object_type, 0);
        let zap = NewZap::micro(self.mos);
        let made = ObjectZap::allocate(self.mos, self.tx, new, zap, self.operation);
        let made = made.map_err(|cause| PoolError::Object {
            object: ObjectId::ZERO,
            cause,
        })?;
        Ok(made.object().id())
    }

    /// The ZAP of an entry of the pool directory, which is created if it is missing.
    pub(crate) fn zap_at(self, name: &str, object_type: ObjectType) -> Result<ObjectId, PoolError> {
        if let Some(found) = self.directory().find(name)? {
            return Ok(found);
        }
        let made = self.create_zap(object_type)?;
        self.link(name, made)?;
        Ok(made)
    }

    /// Sets an entry of a ZAP.
    pub(crate) fn put(self, zap: ObjectId, name: &str, value: &ZapValue) -> Result<(), PoolError> {
        let put = self.directory().zap(zap)?.update(self.tx, name, value);
        put.map_err(|cause| PoolError::Zap { object: zap, cause })
    }

    /// Sets an entry of the pool directory to an object.
    pub(crate) fn link(self, name: &str, id: ObjectId) -> Result<(), PoolError> {
        self.put(POOL_DIRECTORY, name, &ZapValue::word(id.get()))?;
        debug_assert_eq!(
            self.directory().find(name).ok().flatten(),
            Some(id),
            "the pool directory leads to what was linked"
        );
        Ok(())
    }

    /// Removes an entry of a ZAP, if it exists.
    pub(crate) fn remove(self, zap: ObjectId, name: &str) -> Result<(), PoolError> {
        match self.directory().zap(zap)?.remove(self.tx, name) {
            Ok(()) | Err(ZapError::NotFound) => Ok(()),
            Err(cause) => Err(PoolError::Zap { object: zap, cause }),
        }
    }

    /// Creates an object for a packed list.
    pub(crate) fn create_list(self) -> Result<ObjectId, PoolError> {
        let new = NewObject::plain(ObjectType::PackedNvlist, LIST_BLOCK_BYTES)
            .with_bonus(ObjectType::PackedNvlistSize, size_of::<u64>());
        Ok(self.create(new)?.id())
    }

    /// Replaces a packed list. The object is written in whole blocks, the rest zeros.
    #[doc(alias = "spa_sync_nvlist")]
    pub(crate) fn write_list(self, id: ObjectId, list: &NvList) -> Result<(), PoolError> {
        let mut packed = list.encode(Encoding::Xdr);
        let size = widen(packed.len());
        let whole = tarn_ondisk::declare::narrow(size.next_multiple_of(LIST_BLOCK_BYTES));
        assert!(packed.len() <= whole, "a list fits in its whole blocks");
        packed.resize(whole, 0);
        let object = self.directory().object(id)?;
        let in_object = |cause| PoolError::Object { object: id, cause };
        object
            .write(self.tx, 0, &packed, self.operation)
            .map_err(in_object)?;
        object
            .set_bonus(self.tx, &size.to_le_bytes())
            .map_err(in_object)
    }

    /// Replaces the bonus of an object.
    pub(crate) fn set_bonus(self, object: &Object, bonus: &[u8]) -> Result<(), PoolError> {
        let set = object.set_bonus(self.tx, bonus);
        set.map_err(|cause| PoolError::Object {
            object: object.id(),
            cause,
        })
    }

    /// Writes into an object.
    pub(crate) fn write(self, object: &Object, at: u64, bytes: &[u8]) -> Result<(), PoolError> {
        let written = object.write(self.tx, at, bytes, self.operation);
        written.map_err(|cause| PoolError::Object {
            object: object.id(),
            cause,
        })
    }
}
