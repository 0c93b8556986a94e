//! Properties of vdevs that are stored: in the ZAP of the root, of a top-level vdev or of a leaf,
//! numbers and texts by name, as OpenZFS stores them.
//!
//! The thresholds of the fault manager are kept in memory as well, as errors come with them. The
//! queue depth of a device, which OpenZFS does not know, is stored as the property of a user and
//! holds from the import on, or from when it is set.

use crate::directory::{Directory, LEAF_ZAP, TOP_ZAP};
use crate::error::{PoolError, TaskError};
use crate::pool::Pool;
use std::collections::BTreeMap;
use tarn_dataset::task::{InternalEvent, TaskRefusal};
use tarn_object::zap::ZapValue;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::units::{Guid, ObjectId};
use tarn_ondisk::zap::{VALUE_BYTES_MAX, can_hold_name};
use tarn_probe::Operation;
use tarn_vdev::{VdevConfig, VdevKind};

/// The entry of the root vdev's ZAP.
const ROOT_ZAP: &str = "com.klarasystems:vdev_zap_root";

/// The names of thresholds, and of the values by which errors bring them.
const NAMES: [(&str, &str); 6] = [
    ("checksum_n", "vdev_cksum_n"),
    ("checksum_t", "vdev_cksum_t"),
    ("io_n", "vdev_io_n"),
    ("io_t", "vdev_io_t"),
    ("slow_io_n", "vdev_slow_io_n"),
    ("slow_io_t", "vdev_slow_io_t"),
];

/// The property of a device with the number of requests that it has at most; none, or `auto`,
/// has that found from what the device does. To OpenZFS it is the property of a user.
pub const QUEUE_DEPTH: &str = "tarn:queue_depth";

/// The queue depths that can be set.
pub const QUEUE_DEPTHS: std::ops::RangeInclusive<u32> = 2..=127;

/// A threshold that was set back to none.
#[doc(alias = "ZPROP_BOOLEAN_NA")]
pub const NOT_SET: u64 = u64::MAX;

impl Pool {
    /// The stored properties of a vdev: the native ones of these names, and all texts, among them
    /// those of users. None where the vdev has none.
    ///
    /// # Errors
    /// The ZAP of the vdev cannot be read.
    #[doc(alias = "vdev_prop_get")]
    pub fn vdev_properties(
        &self,
        vdev: Guid,
        operation: &Operation,
    ) -> Result<Vec<(String, ZapValue)>, PoolError> {
        let root = self.vdevs().config();
        match root.find(vdev).and_then(zap_of) {
            Some(zap) => self.directory(operation).entries(zap),
            None => Ok(Vec::new()),
        }
    }

    /// Sets a property of a vdev, or removes it, and waits until that is stored. `shown` is the
    /// value in the history.
    ///
    /// # Errors
    /// The vdev has no ZAP, the name or value cannot be stored, or the pool stores nothing.
    #[doc(alias("vdev_prop_set", "vdev_props_set_sync"))]
    pub fn set_vdev_property(
        &self,
        vdev: Guid,
        name: &str,
        value: Option<ZapValue>,
        shown: &str,
        operation: &Operation,
    ) -> Result<(), TaskError> {
        let text = format!("vdev_guid={vdev}: {name}={shown}");
        let (name, number) = (name.to_string(), value.as_ref().and_then(ZapValue::as_word));
        let depth = value.as_ref().and_then(queue_depth_of);
        let property = name.clone();
        self.run_in_sync(operation, move |scope| {
            let root = scope.pool.vdevs().config();
            let zap = root.find(vdev).and_then(zap_of);
            let is_storable = value
                .as_ref()
                .is_none_or(|value| value.size() <= VALUE_BYTES_MAX);
            let Some(zap) = zap.filter(|_| is_storable && can_hold_name(&name)) else {
                let why = "the vdev cannot have this property".to_string();
                return Ok(Err(TaskRefusal::BadValue {
                    property: name,
                    why,
                }));
            };
            match value {
                Some(value) => scope.writer.put(zap, &name, &value)?,
                None => scope.writer.remove(zap, &name)?,
            }
            scope.context.record(InternalEvent {
                name: "vdev set",
                dataset: None,
                text,
            });
            Ok(Ok(()))
        })?;
        if property == QUEUE_DEPTH
            && let Some(leaf) = self.vdevs().leaf(vdev)
        {
            leaf.set_queue_depth(depth);
        }
        if let Some((known, _)) = NAMES.iter().find(|(known, _)| *known == property) {
            let mut thresholds = self.thresholds.0.lock();
            match number.filter(|number| *number != NOT_SET) {
                Some(number) => _ = thresholds.insert((vdev, known), number),
                None => _ = thresholds.remove(&(vdev, known)),
            }
        }
        Ok(())
    }

    /// Loads the thresholds of all vdevs and the queue depths of devices, when the pool is opened.
    pub(crate) fn load_vdev_properties(&self, operation: &Operation) -> Result<(), PoolError> {
        let root = self.vdevs().config();
        let directory = self.directory(operation);
        let mut thresholds = BTreeMap::new();
        for vdev in root.walk() {
            let Some(zap) = zap_of(vdev) else { continue };
            if let Some(leaf) = self.vdevs().leaf(vdev.guid) {
                let depth = directory.value_in(zap, QUEUE_DEPTH)?;
                leaf.set_queue_depth(depth.as_ref().and_then(queue_depth_of));
            }
            for (name, _) in NAMES {
                if let Some(number) = number_in(directory, zap, name)? {
                    thresholds.insert((vdev.guid, name), number);
                }
            }
        }
        assert!(
            thresholds.values().all(|number| *number != NOT_SET),
            "a threshold that is not set is not kept"
        );
        *self.thresholds.0.lock() = thresholds;
        Ok(())
    }

    /// Adds the thresholds of a vdev that are set, on itself or a vdev above it, to an error.
    #[doc(alias = "vdev_prop_get_inherited")]
    pub(crate) fn add_thresholds(&self, list: &mut NvList, vdev: Guid, error: &str) {
        let root = self.vdevs().config();
        let lineage = lineage(&root, vdev);
        debug_assert!(
            lineage.first().is_none_or(|first| *first == root.guid),
            "a lineage begins with the root"
        );
        let thresholds = self.thresholds.0.lock();
        let prefix = match error {
            "checksum" => "checksum_",
            "io" => "io_",
            "delay" => "slow_io_",
            _ => return,
        };
        for (name, payload) in NAMES.iter().filter(|(name, _)| name.starts_with(prefix)) {
            let mut set = lineage.iter().rev();
            let set = set.find_map(|guid| thresholds.get(&(*guid, *name)));
            if let Some(number) = set {
                list.set(*payload, *number);
            }
        }
    }
}

/// The queue depth that is stored. OpenZFS lets its users store anything there: what is no depth
/// counts as none.
fn queue_depth_of(value: &ZapValue) -> Option<u32> {
    let text = std::str::from_utf8(value.as_text()?).ok()?;
    let depth = text.parse().ok();
    depth.filter(|depth| QUEUE_DEPTHS.contains(depth))
}

fn number_in(
    directory: Directory<'_>,
    zap: ObjectId,
    name: &str,
) -> Result<Option<u64>, PoolError> {
    let value = directory.value_in(zap, name)?;
    let number = value.and_then(|value| value.as_word());
    Ok(number.filter(|number| *number != NOT_SET))
}

/// The ZAP with the properties of a vdev.
fn zap_of(vdev: &VdevConfig) -> Option<ObjectId> {
    let names: &[&str] = match vdev.kind {
        VdevKind::Root => &[ROOT_ZAP],
        _ => &[TOP_ZAP, LEAF_ZAP],
    };
    let mut zaps = names.iter().filter_map(|name| vdev.other_object(name));
    zaps.find(|zap| !zap.is_zero())
}

/// The guids from the root down to a vdev.
fn lineage(vdev: &VdevConfig, guid: Guid) -> Vec<Guid> {
    if vdev.guid == guid {
        return vec![guid];
    }
    let mut children = vdev.children.iter();
    let below = children.find_map(|child| {
        let below = lineage(child, guid);
        (!below.is_empty()).then_some(below)
    });
    match below {
        Some(below) => [vec![vdev.guid], below].concat(),
        None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_of_a_top_level_device_are_in_its_top_level_zap() {
        let mut leaf = VdevConfig::new(VdevKind::File, Guid::from(2));
        assert_eq!(zap_of(&leaf), None);
        leaf.set_other(LEAF_ZAP, 8u64);
        assert_eq!(zap_of(&leaf), Some(ObjectId::from(8)));
        leaf.set_other(TOP_ZAP, 7u64);
        assert_eq!(zap_of(&leaf), Some(ObjectId::from(7)));
        let mut root = VdevConfig::new(VdevKind::Root, Guid::from(1));
        root.children = vec![leaf];
        assert_eq!(zap_of(&root), None);
        let guids: Vec<u64> = lineage(&root, Guid::from(2))
            .iter()
            .map(|guid| guid.get())
            .collect();
        assert_eq!(guids, [1, 2]);
        assert_eq!(lineage(&root, Guid::from(3)), []);
    }
}
