//! Vdevs as `zpool status`, `list -v` and `import` show them.

use crate::messages::pool::{RootStatus, VdevRole, VdevStatus};
use std::collections::BTreeMap;
use std::path::Path;
use tarn_engine::engine::OpenPool;
use tarn_host::Host;
use tarn_ondisk::label::LABEL_BYTES;
use tarn_ondisk::units::{AllocatedSize, Guid};
use tarn_pool::{Mode, Pool};
use tarn_vdev::health::vdev_name;
use tarn_vdev::sizes::child_size_min;
use tarn_vdev::{
    AllocationBias, AuxiliaryDevices, Reason, Standing, TopLevel, VdevConfig, VdevHealth, VdevKind,
    VdevState,
};

/// Space of a top-level vdev.
#[derive(Debug, Clone, Copy, Default)]
struct TopSpace {
    size_bytes: u64,
    allocated_bytes: u64,
    deflated_bytes: u64,
    fragmentation_percent: Option<u64>,
    expandable_bytes: u64,
}

/// The facts of top-level vdevs beyond their health.
#[derive(Default)]
struct Tops<'a> {
    by_guid: BTreeMap<Guid, (&'a TopLevel, TopSpace)>,
}

/// The state of a vdev in `zpool`'s words.
pub(crate) fn state_word(standing: Standing) -> &'static str {
    match (standing.state, standing.reason) {
        (VdevState::Unavailable, Some(Reason::CorruptData)) => "FAULTED",
        (state, _) => state.name(),
    }
}

/// `zpool`'s remark on a bad state.
fn remark_of(standing: Standing) -> Option<String> {
    standing.reason.map(|reason| reason.text().to_string())
}

/// The line of the whole pool.
pub(crate) fn root_status(health: &VdevHealth) -> RootStatus {
    RootStatus {
        state: state_word(health.standing).to_string(),
        remark: remark_of(health.standing),
        read_errors: health.errors.read,
        write_errors: health.errors.write,
        checksum_errors: health.errors.checksum,
    }
}

/// The vdevs of an open pool, spares included.
pub(crate) fn layout_of_pool(open: &OpenPool, health: &VdevHealth) -> Vec<VdevStatus> {
    let pool = &open.pool;
    let top_levels = pool.vdevs().top_levels();
    let mut spaces: BTreeMap<u64, TopSpace> = BTreeMap::new();
    for group in pool.space().group_totals() {
        let space = spaces.entry(group.vdev.get()).or_default();
        space.allocated_bytes += group.totals.allocated.get();
        space.fragmentation_percent = space.fragmentation_percent.or(group.fragmentation);
    }
    let mut tops = Tops::default();
    for top in &top_levels {
        let mut space = spaces.remove(&top.id.get()).unwrap_or_default();
        space.size_bytes = tarn_pool::size::usable_bytes(top);
        space.deflated_bytes = tarn_pool::size::deflated(top, space.size_bytes);
        space.expandable_bytes = pool.vdevs().expandable_bytes(top.id);
        if pool.mode() == Mode::ReadOnly {
            space.fragmentation_percent = Some(0);
        }
        tops.by_guid.insert(top.guid, (top, space));
    }
    let auxiliary = pool.vdevs().auxiliary();
    let mut vdevs = layout(pool.host(), health, &auxiliary, &tops);
    let is_in_tree =
        |vdev: &&mut VdevStatus| !matches!(vdev.role, VdevRole::Spare | VdevRole::Cache);
    let in_tree = vdevs.iter_mut().filter(is_in_tree);
    in_tree.for_each(|vdev| super::free_space::add_status(pool, vdev));
    for (status, _) in cache_devices(pool) {
        if let Some(shown) = vdevs.iter_mut().find(|vdev| vdev.guid == status.guid) {
            *shown = status;
        }
    }
    vdevs
}

/// The cache devices of an open pool that were opened, or could not be.
pub(crate) fn cache_devices(pool: &Pool) -> Vec<(VdevStatus, VdevHealth)> {
    let configs = pool.vdevs().auxiliary().caches.into_iter();
    let shown = configs.filter_map(|config| {
        let device = pool.vdevs().cache_device(config.guid)?;
        let health = device.health(&config);
        let mut status = vdev(&health, VdevRole::Cache);
        status.size_bytes = health.asize.get();
        status.allocated_bytes = device.allocated_bytes();
        status.fragmentation_percent = Some(0);
        Some((status, health))
    });
    shown.collect()
}

/// The vdevs of a pool that is not open.
pub(crate) fn layout_of_candidate(
    host: &Host,
    health: &VdevHealth,
    auxiliary: &AuxiliaryDevices,
) -> Vec<VdevStatus> {
    layout(host, health, auxiliary, &Tops::default())
}

fn layout(
    host: &Host,
    health: &VdevHealth,
    auxiliary: &AuxiliaryDevices,
    tops: &Tops<'_>,
) -> Vec<VdevStatus> {
    let shown = health
        .children
        .iter()
        .filter(|top| !matches!(top.kind, VdevKind::Hole | VdevKind::Indirect));
    let mut layout: Vec<VdevStatus> = shown.map(|top| top_level(top, tops)).collect();
    let spares = auxiliary.spares.iter();
    layout.extend(spares.map(|vdev| auxiliary_device(host, vdev, VdevRole::Spare)));
    let caches = auxiliary.caches.iter();
    layout.extend(caches.map(|vdev| auxiliary_device(host, vdev, VdevRole::Cache)));
    layout
}

fn top_level(health: &VdevHealth, tops: &Tops<'_>) -> VdevStatus {
    let known = tops.by_guid.get(&health.guid);
    let role = match known.map(|(top, _)| top.allocation_bias) {
        _ if health.is_log => VdevRole::Log,
        Some(AllocationBias::Log) => VdevRole::Log,
        Some(AllocationBias::Special) => VdevRole::Special,
        Some(AllocationBias::Dedup) => VdevRole::Dedup,
        Some(AllocationBias::None) | None => VdevRole::Data,
    };
    let mut status = vdev(health, role);
    if let Some((top, space)) = known {
        status.size_bytes = space.size_bytes;
        status.allocated_bytes = space.allocated_bytes;
        status.deflated_bytes = space.deflated_bytes;
        status.fragmentation_percent = space.fragmentation_percent;
        status.expandable_bytes = space.expandable_bytes;
        status.ashift = u64::from(top.ashift);
        let count = u64::try_from(health.children.len()).unwrap_or(u64::MAX);
        let least = child_size_min(health.kind, health.asize, count.max(1));
        set_replacement_bytes(&mut status, least);
    }
    status
}

/// Sets the least size of a leaf's replacement.
fn set_replacement_bytes(status: &mut VdevStatus, least: AllocatedSize) {
    status.replacement_bytes = least.get();
    for child in &mut status.children {
        set_replacement_bytes(child, least);
    }
}

fn vdev(health: &VdevHealth, role: VdevRole) -> VdevStatus {
    let path = health.path.as_ref().map(ToString::to_string);
    let was = path.as_ref().map(|path| format!("was {path}"));
    let remark = match health.not_present {
        true => was,
        false => remark_of(health.standing),
    };
    VdevStatus {
        name: shown_name(health),
        kind: health.kind.name().to_string(),
        path,
        guid: health.guid.get(),
        role,
        state: state_word(health.standing).to_string(),
        remark,
        read_errors: health.errors.read,
        write_errors: health.errors.write,
        checksum_errors: health.errors.checksum,
        slow_ios: health.errors.slow,
        whole_disk: health.whole_disk,
        physical_bytes: health.device_bytes / LABEL_BYTES * LABEL_BYTES,
        id: health.id,
        children: health
            .children
            .iter()
            .map(|child| vdev(child, role))
            .collect(),
        ..VdevStatus::default()
    }
}

/// The name in `zpool status`: whole paths for files, the last part for disks.
fn shown_name(health: &VdevHealth) -> String {
    let name = health.name();
    match health.kind {
        _ if health.not_present => health.guid.to_string(),
        VdevKind::Disk => {
            let last = name.rsplit('/').next().unwrap_or(&name);
            match health.whole_disk {
                true => without_partition(last).to_string(),
                false => last.to_string(),
            }
        }
        _ => name,
    }
}

/// The name of a disk, from that of its first partition.
#[doc(alias = "zfs_strip_partition")]
fn without_partition(name: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if let Some((disk, number)) = name.rsplit_once("-part")
        && is_number(number)
    {
        return disk;
    }
    let disk = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if disk.len() == name.len() {
        return name;
    }
    if ["sd", "hd", "vd", "xvd"]
        .iter()
        .any(|kind| disk.starts_with(kind))
    {
        return disk;
    }
    match disk.strip_suffix('p') {
        Some(disk) if disk.ends_with(|c: char| c.is_ascii_digit()) => disk,
        _ => name,
    }
}

/// A spare or cache device, which is not in the tree.
fn auxiliary_device(host: &Host, vdev: &VdevConfig, role: VdevRole) -> VdevStatus {
    let path = vdev.path.as_ref().map(ToString::to_string);
    let is_there = path.as_ref().is_some_and(|path| {
        let mode = tarn_host::OpenMode::ReadOnly;
        tarn_vdev::open_window(host, Path::new(path), mode).is_ok()
    });
    let (state, remark) = match (is_there, role) {
        (true, VdevRole::Spare) => ("AVAIL", None),
        (true, _) => ("ONLINE", None),
        (false, _) => ("UNAVAIL", Some(Reason::OpenFailed.text().to_string())),
    };
    let whole = vdev_name(vdev.kind, vdev.id, vdev.guid, vdev.path.as_ref());
    let name = match vdev.kind {
        VdevKind::Disk => whole.rsplit('/').next().unwrap_or(&whole).to_string(),
        _ => whole,
    };
    VdevStatus {
        name,
        kind: vdev.kind.name().to_string(),
        path,
        guid: vdev.guid.get(),
        role,
        state: state.to_string(),
        remark,
        whole_disk: vdev.whole_disk.unwrap_or(false),
        id: vdev.id,
        ..VdevStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_disk_is_shown_without_its_partition() {
        for (name, disk) in [
            ("sda1", "sda"),
            ("nvme0n1p1", "nvme0n1"),
            ("ata-WDC_1-part1", "ata-WDC_1"),
            ("vdb", "vdb"),
            ("loop0", "loop0"),
        ] {
            assert_eq!(without_partition(name), disk, "{name}");
        }
    }

    #[test]
    fn a_vdev_whose_label_is_of_another_pool_is_faulted() {
        let standing = Standing::because(VdevState::Unavailable, Reason::CorruptData);
        assert_eq!(state_word(standing), "FAULTED");
        let standing = Standing::because(VdevState::Unavailable, Reason::OpenFailed);
        assert_eq!(state_word(standing), "UNAVAIL");
    }
}
