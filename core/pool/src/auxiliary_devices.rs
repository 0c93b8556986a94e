//! Hot spares and cache devices in the MOS, each kind listed in an object of its own.

use crate::add::AddError;
use crate::create::label_spares;
use crate::error::PoolError;
use crate::error::TaskError;
use crate::events::class;
use crate::pool::Pool;
use crate::sync_scope::SyncScope;
use tarn_dataset::task::InternalEvent;
use tarn_ondisk::nvlist::{NvList, NvValue};
use tarn_ondisk::pool_directory::{CACHE_DEVICES, SPARES};
use tarn_ondisk::units::Guid;
use tarn_probe::Operation;
use tarn_vdev::import_search::DevicePaths;
use tarn_vdev::{AuxiliaryDevices, AuxiliaryKind, VdevConfig};

/// The entry of the pool's directory that lists devices of a kind.
const fn object_of(kind: AuxiliaryKind) -> &'static str {
    match kind {
        AuxiliaryKind::Spare => SPARES,
        AuxiliaryKind::Cache => CACHE_DEVICES,
    }
}

/// The name of the list in that object.
const fn list_of(kind: AuxiliaryKind) -> &'static str {
    match kind {
        AuxiliaryKind::Spare => "spares",
        AuxiliaryKind::Cache => "l2cache",
    }
}

/// The history's word for a device of a kind.
const fn name_of(kind: AuxiliaryKind) -> &'static str {
    match kind {
        AuxiliaryKind::Spare => "spare",
        AuxiliaryKind::Cache => "l2cache",
    }
}

impl Pool {
    /// Reads the hot spares and cache devices, for [`VdevTree::auxiliary`]. Those found at other
    /// paths than the MOS has get the paths where they were found.
    ///
    /// [`VdevTree::auxiliary`]: tarn_vdev::VdevTree::auxiliary
    ///
    /// # Errors
    /// The objects that list them cannot be read.
    #[doc(alias("spa_load_spares", "spa_load_l2cache"))]
    pub fn load_auxiliary(
        &self,
        paths: &DevicePaths,
        operation: &Operation,
    ) -> Result<(), PoolError> {
        let mut devices = AuxiliaryDevices {
            spares: self.listed(AuxiliaryKind::Spare, operation)?,
            caches: self.listed(AuxiliaryKind::Cache, operation)?,
        };
        let pool = self.facts().guid;
        for device in devices.spares.iter_mut().chain(&mut devices.caches) {
            paths.fix(pool, device);
        }
        self.vdevs().set_auxiliary(devices);
        Ok(())
    }

    fn listed(
        &self,
        kind: AuxiliaryKind,
        operation: &Operation,
    ) -> Result<Vec<VdevConfig>, PoolError> {
        let directory = self.directory(operation);
        let id = directory.find(object_of(kind))?;
        let Some(id) = id.filter(|id| !id.is_zero()) else {
            return Ok(Vec::new());
        };
        let packed = directory.packed_list(id)?;
        let devices = packed.optional_lists(list_of(kind)).ok().flatten();
        // A malformed list is not shown; the pool does without it.
        let devices = devices.unwrap_or(&[]).iter();
        Ok(devices.flat_map(VdevConfig::parse).collect())
    }

    /// Removes a hot spare or a cache device, and waits until that is stored. Does nothing if it is
    /// not in the pool.
    ///
    /// # Errors
    /// The pool could not be changed.
    #[doc(alias = "spa_vdev_remove_aux")]
    pub fn remove_auxiliary(
        &self,
        kind: AuxiliaryKind,
        guid: Guid,
        operation: &Operation,
    ) -> Result<(), TaskError> {
        if kind == AuxiliaryKind::Cache {
            self.cache().remove_cache_device(guid);
        }
        self.run_in_sync(operation, move |scope| {
            scope
                .pool
                .post_event(class::VDEV_REMOVE_AUX, Some(guid), NvList::new());
            for device in unlist(scope, kind, guid)? {
                let path = device.optional_text("path").ok().flatten();
                let path = path.map(ToString::to_string).unwrap_or_default();
                scope.context.record(InternalEvent {
                    name: "vdev remove",
                    dataset: None,
                    text: format!("{} vdev ({}) {path}", scope.pool.name(), name_of(kind)),
                });
            }
            Ok(Ok(()))
        })
    }

    /// Adds hot spares, and waits until that is stored. A device that is a hot spare of another
    /// pool keeps its guid, and so its label.
    ///
    /// # Errors
    /// A device cannot be labelled, or the pool could not be changed: none of them is a spare.
    #[doc(alias = "spa_vdev_add")]
    pub fn add_spares(&self, spares: &[VdevConfig], operation: &Operation) -> Result<(), AddError> {
        self.require_writable()?;
        let spares = label_spares(self.host(), self.facts().version, spares)?;
        assert!(
            spares
                .iter()
                .all(|spare| spare.is_spare && !spare.guid.is_zero()),
            "a labelled spare has a guid"
        );
        self.run_in_sync(operation, move |scope| {
            enlist(scope, AuxiliaryKind::Spare, &spares)?;
            Ok(Ok(()))
        })?;
        Ok(())
    }
}

/// Adds devices to the list of hot spares or cache devices in the syncing txg.
#[doc(alias = "spa_set_aux_vdevs")]
pub(crate) fn enlist(
    scope: &SyncScope<'_>,
    kind: AuxiliaryKind,
    new: &[VdevConfig],
) -> Result<(), PoolError> {
    let vdevs = scope.pool.vdevs();
    let mut devices = vdevs.auxiliary();
    match kind {
        AuxiliaryKind::Spare => devices.spares.extend_from_slice(new),
        AuxiliaryKind::Cache => devices.caches.extend_from_slice(new),
    }
    change_list(scope, kind, |all| {
        all.extend(new.iter().map(VdevConfig::to_mos_list));
    })?;
    vdevs.set_auxiliary(devices);
    Ok(())
}

/// Stores the hot spares or cache devices as they are now, in the syncing txg.
pub(crate) fn relist(scope: &SyncScope<'_>, kind: AuxiliaryKind) -> Result<(), PoolError> {
    let devices = scope.pool.vdevs().auxiliary();
    let lists = devices.of(kind).iter().map(VdevConfig::to_mos_list);
    change_list(scope, kind, |all| *all = lists.collect())
}

/// Changes the list of devices of a kind in the MOS; an object for it is made if there is none.
#[doc(alias = "spa_sync_aux_dev")]
fn change_list(
    scope: &SyncScope<'_>,
    kind: AuxiliaryKind,
    change: impl FnOnce(&mut Vec<NvList>),
) -> Result<(), PoolError> {
    let writer = scope.writer;
    let name = object_of(kind);
    let id = match writer.directory().find(name)?.filter(|id| !id.is_zero()) {
        Some(id) => id,
        None => {
            let id = writer.create_list()?;
            writer.write_list(id, &NvList::new())?;
            writer.link(name, id)?;
            id
        }
    };
    let mut list = writer.directory().packed_list(id)?;
    let all = list.optional_lists(list_of(kind)).ok().flatten();
    let mut all: Vec<NvList> = all.unwrap_or(&[]).to_vec();
    change(&mut all);
    list.set(list_of(kind), NvValue::Lists(all));
    writer.write_list(id, &list)
}

/// Removes a device from the list of hot spares or cache devices in the syncing txg. Gives what the
/// list had.
#[doc(alias = "spa_vdev_remove_aux")]
pub(crate) fn unlist(
    scope: &SyncScope<'_>,
    kind: AuxiliaryKind,
    guid: Guid,
) -> Result<Vec<NvList>, PoolError> {
    scope.pool.vdevs().remove_auxiliary(kind, guid);
    let directory = scope.writer.directory();
    let Some(id) = directory.find(object_of(kind))?.filter(|id| !id.is_zero()) else {
        return Ok(Vec::new());
    };
    let mut list = directory.packed_list(id)?;
    let all = list.optional_lists(list_of(kind)).ok().flatten();
    let all: Vec<NvList> = all.unwrap_or(&[]).to_vec();
    let is_it = |device: &NvList| device.optional_u64("guid") == Ok(Some(guid.get()));
    let (gone, left): (Vec<NvList>, Vec<NvList>) = all.into_iter().partition(is_it);
    list.set(list_of(kind), NvValue::Lists(left));
    scope.writer.write_list(id, &list)?;
    Ok(gone)
}
