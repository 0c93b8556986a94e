//! Hot spares and cache devices leave the pool: they belong to no tree of vdevs, and are listed in
//! objects of their own.

use crate::error::TaskError;
use crate::pool::Pool;
use tarn_dataset::task::InternalEvent;
use tarn_ondisk::nvlist::{NvList, NvValue};
use tarn_ondisk::pool_directory::{CACHE_DEVICES, SPARES};
use tarn_ondisk::units::Guid;
use tarn_probe::Operation;

/// What a device is that belongs to no vdev.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuxiliaryKind {
    /// A hot spare.
    Spare,
    /// A second-level cache.
    Cache,
}

impl AuxiliaryKind {
    /// The name of the object in the pool's directory that lists them.
    const fn object(self) -> &'static str {
        match self {
            AuxiliaryKind::Spare => SPARES,
            AuxiliaryKind::Cache => CACHE_DEVICES,
        }
    }

    /// The name of the list in that object, which is also what history calls such a device.
    const fn list(self) -> &'static str {
        match self {
            AuxiliaryKind::Spare => "spares",
            AuxiliaryKind::Cache => "l2cache",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            AuxiliaryKind::Spare => "spare",
            AuxiliaryKind::Cache => "l2cache",
        }
    }
}

impl Pool {
    /// Takes a hot spare or a cache device out of the configuration, and waits until that is
    /// stored. Nothing, if it is not there.
    ///
    /// # Errors
    /// When the pool could not be changed.
    #[doc(alias = "spa_vdev_remove_aux")]
    pub fn remove_auxiliary(
        &self,
        kind: AuxiliaryKind,
        guid: Guid,
        operation: &Operation,
    ) -> Result<(), TaskError> {
        self.run_in_sync(operation, move |scope| {
            let directory = scope.writer.directory();
            let Some(id) = directory.find(kind.object())?.filter(|id| !id.is_zero()) else {
                return Ok(Ok(()));
            };
            let stored = directory.packed_list(id)?;
            let all = stored.optional_lists(kind.list()).ok().flatten();
            let all: Vec<NvList> = all.unwrap_or(&[]).to_vec();
            let is_it = |device: &NvList| device.optional_u64("guid") == Ok(Some(guid.get()));
            let (gone, left): (Vec<NvList>, Vec<NvList>) = all.into_iter().partition(is_it);
            let mut list = stored.clone();
            list.set(kind.list(), NvValue::Lists(left));
            scope.writer.write_list(id, &list)?;
            for device in gone {
                let path = device.optional_text("path").ok().flatten();
                let path = path.map(ToString::to_string).unwrap_or_default();
                scope.context.record(InternalEvent {
                    name: "vdev remove",
                    dataset: None,
                    text: format!("{} vdev ({}) {path}", scope.pool.name(), kind.name()),
                });
            }
            Ok(Ok(()))
        })
    }
}
