//! The configuration of the pool and its devices in the MOS and the labels.
//!
//! # Mechanism
//! The vdev tree counts its changes; other facts (name, state, host, features needed to read) are
//! compared. In a txg with a change, the packed list in the MOS is replaced, and all labels are
//! written around the uberblock. Otherwise the labels are not written.
//!
//! A device that fails while a txg is stored misses a part of it. A later pass records that in the
//! MOS. If it fails after the last pass, the labels of that txg may record it, but the MOS only in
//! the next txg: so an import takes a device for out of date when either does.
//!
//! A new device gets labels of the pool with its own txg: labels of earlier txgs do not name it.

use crate::directory::{LEAF_ZAP, TOP_ZAP};
use crate::error::PoolError;
use crate::mos_writer::MosWriter;
use crate::pool::Pool;
use crate::sync_scope::SyncScope;
use tarn_object::zap::ZapValue;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::{CONFIG, VDEV_ALLOCATION_BIAS, VDEV_ZAP_MAP};
use tarn_ondisk::units::{ObjectId, VdevId};
use tarn_vdev::{AllocationBias, PoolFacts, VdevConfig, VdevKind, VdevTree};

/// The entry of the root vdev's ZAP.
pub(crate) const ROOT_ZAP: &str = "com.klarasystems:vdev_zap_root";

impl Pool {
    /// Whether the labels and the MOS are out of date.
    pub(crate) fn is_configuration_changed(&self) -> bool {
        let written = *self.configuration.lock();
        written.is_stale || written.changes != Some(self.vdevs().change_count())
    }

    /// Has the next txg write the labels.
    pub(crate) fn mark_configuration_stale(&self) {
        self.configuration.lock().is_stale = true;
    }
}

/// Updates the configuration in the MOS: in the first pass, and in a later one if the state of a
/// device has changed.
#[doc(alias = "spa_sync_config_object")]
pub(crate) fn update(scope: &SyncScope<'_>, facts: &mut PoolFacts) -> Result<(), PoolError> {
    let pool = scope.pool;
    let features_for_read = scope.features.now().label_list();
    if facts.features_for_read != features_for_read {
        facts.features_for_read = features_for_read;
        pool.mark_configuration_stale();
    }
    let change = pool.changed_facts.lock().take();
    if let Some(change) = change {
        change(facts);
        pool.mark_configuration_stale();
    }
    facts.txg = scope.writer.tx.txg();
    if !pool.is_configuration_changed() {
        return Ok(());
    }
    let changes = pool.vdevs().change_count();
    let before = pool.configuration.lock().in_mos.replace(changes);
    if scope.writer.tx.pass() > 1 && before == Some(changes) {
        return Ok(());
    }
    write(scope.writer, facts, pool.vdevs())
}

/// Replaces the packed list in the MOS.
pub(crate) fn write(
    writer: MosWriter<'_>,
    facts: &PoolFacts,
    vdevs: &VdevTree,
) -> Result<(), PoolError> {
    let id = match writer.directory().find(CONFIG)? {
        Some(id) => id,
        None => {
            let id = writer.create_list()?;
            writer.link(CONFIG, id)?;
            id
        }
    };
    writer.write_list(id, &facts.mos_list(&vdevs.config()))
}

/// Creates the objects of vdevs that have none: a ZAP for each, and for top-level vdevs the array
/// of space maps.
#[doc(alias = "vdev_construct_zaps")]
pub(crate) fn create_vdev_objects(
    writer: MosWriter<'_>,
    vdevs: &VdevTree,
    has_root_zap: bool,
) -> Result<(), PoolError> {
    let map = writer.zap_at(VDEV_ZAP_MAP, ObjectType::ZapMetadata)?;
    let mut root = vdevs.config();
    let new_zap = |vdev: &mut VdevConfig, name: &str| -> Result<(), PoolError> {
        if vdev.other_object(name).is_some_and(|id| !id.is_zero()) {
            return Ok(());
        }
        let zap = writer.create_zap(ObjectType::ZapMetadata)?;
        writer.put(map, &format!("{:x}", zap.get()), &ZapValue::word(zap.get()))?;
        vdev.set_other(name, zap.get());
        Ok(())
    };
    if has_root_zap {
        new_zap(&mut root, ROOT_ZAP)?;
    }
    for top in &mut root.children {
        let is_empty = matches!(
            top.kind,
            VdevKind::Hole | VdevKind::Missing | VdevKind::Indirect
        );
        if top.top_level.is_none() || is_empty {
            continue;
        }
        new_zap(top, TOP_ZAP)?;
        create_leaf_zaps(top, &new_zap)?;
        let array = top.top_level.as_mut().expect("it was just seen");
        // A vdev that is not divided into metaslabs yet holds nothing, and has no array.
        if array.metaslab_array.is_zero() && array.metaslab_shift != 0 {
            array.metaslab_array = crate::space_maps::create_array(writer)?;
        }
        let is_log = array.is_log;
        if is_log && let Some(zap) = top.other_object(TOP_ZAP) {
            writer.put(zap, VDEV_ALLOCATION_BIAS, &ZapValue::text("log"))?;
        }
    }
    vdevs.change_config(|config| *config = root);
    Ok(())
}

fn create_leaf_zaps(
    vdev: &mut VdevConfig,
    new_zap: &dyn Fn(&mut VdevConfig, &str) -> Result<(), PoolError>,
) -> Result<(), PoolError> {
    if vdev.kind.is_leaf() {
        return new_zap(vdev, LEAF_ZAP);
    }
    for child in &mut vdev.children {
        create_leaf_zaps(child, new_zap)?;
    }
    Ok(())
}

/// Reads the allocation class of each vdev, which the MOS has and labels do not.
pub(crate) fn read_biases(
    directory: crate::directory::Directory<'_>,
    vdevs: &VdevTree,
) -> Result<(), PoolError> {
    let root = vdevs.config();
    for (index, top) in (0..).zip(&root.children) {
        let zap = top.other_object(TOP_ZAP).unwrap_or(ObjectId::ZERO);
        if zap.is_zero() {
            continue;
        }
        let Some(value) = directory.value_in(zap, VDEV_ALLOCATION_BIAS)? else {
            continue;
        };
        let bias = match value.as_text() {
            Some(b"log") => AllocationBias::Log,
            Some(b"special") => AllocationBias::Special,
            Some(b"dedup") => AllocationBias::Dedup,
            _ => AllocationBias::None,
        };
        vdevs.set_allocation_bias(VdevId::new(index), bias);
    }
    Ok(())
}
