//! The guid of the pool, where devices name two pools.
//!
//! # Mechanism
//! A device that misses `zpool reguid`, or comes back as it was before, still has the old guid.
//! There are two pools of one name then, and `zpool import` wants a guid. An administrator knows
//! which disks are sound; so does the world.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use tarn_engine::Host;
use tarn_hostile::house::DISKS;
use tarn_ondisk::units::Guid;
use tarn_vdev::PoolState;
use tarn_vdev::import_search::{FoundDevice, pools, search};

/// By what the pool of this name is found: its name, or its guid where several pools have the name.
/// Labels of `victims` do not count.
pub fn name_or_guid(host: &Host, name: &str, victims: &BTreeSet<String>) -> String {
    let found = search(host, &[PathBuf::from(DISKS)]);
    let is_named = |text: &[u8]| text == name.as_bytes();
    let (candidates, _) = pools(&found);
    let named = candidates.iter().filter(|pool| {
        is_named(pool.facts.name.as_bytes()) && pool.facts.state != PoolState::Destroyed
    });
    if named.count() < 2 {
        return name.to_string();
    }
    // A sound disk that left the pool may still have a label, of an earlier group.
    let is_victim = |path: &Path| {
        let disk = path.file_name().and_then(|disk| disk.to_str());
        disk.is_none_or(|disk| victims.contains(disk))
    };
    let sound = found.devices.iter();
    let sound = sound.filter(|device| !is_victim(&device.path));
    let guids: BTreeMap<u64, Guid> = sound
        .filter_map(|device| txg_and_pool(device, name))
        .collect();
    let newest = guids.last_key_value();
    newest.map_or(name.to_string(), |(_, guid)| guid.to_string())
}

/// The txg and the pool in the label of a member of the pool of this name.
fn txg_and_pool(device: &FoundDevice, name: &str) -> Option<(u64, Guid)> {
    let label = &device.label;
    let number = |field: &str| label.optional_u64(field).ok().flatten();
    let own_name = label.optional_text("name").ok().flatten()?;
    (own_name.as_bytes() == name.as_bytes())
        .then_some((number("txg")?, Guid::from(number("pool_guid")?)))
}
