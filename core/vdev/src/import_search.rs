//! Import search: finds pools by the labels of devices, as `zpool import` does.
//!
//! # Mechanism
//! The search reads the labels of every device in the folders. Each label has the configuration of
//! one top-level vdev, and the number of top-level vdevs. A candidate pool is put together from the
//! latest label of each of its top-level vdevs; those without a label are marked as missing. Paths
//! in labels may be outdated, and are replaced by those at which the devices were found.
//!
//! One device may be found under several names, which lead to the same device identity. The search
//! keeps the name that the label has, or else the name from the folder that was given first. Two
//! different devices with one label are copies of each other; the candidate gets the one with the
//! later label, and both are reported.
//!
//! `zpool reguid` may have been interrupted: then labels of a device name two pool guids. The later
//! label counts if a device that it counts for has its uberblock; otherwise the pool still has its
//! old guid, which the earlier label names.
//!
//! # Invariants
//! - A label that does not verify or cannot be parsed is passed over; it cannot hide another one.
//! - The order of the results does not depend on the order in which devices are found.

use crate::config::{VdevConfig, VdevKind};
use crate::error::LabelError;
use crate::health::VdevHealth;
use crate::label_config::{PoolFacts, PoolState};
use crate::labels::{Label, best_label, read_labels, read_uberblocks};
use crate::leaf::{Window, open_window};
use crate::sizes::DEVICE_BYTES_MIN;
use crate::tree::{ExpectedLabels, Need, OpenOptions, VdevTree};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tarn_host::Host;
use tarn_host::{DeviceIdentity, FileKind, OpenMode};
use tarn_ondisk::declare::narrow;
use tarn_ondisk::nvlist::{NvList, Text};
use tarn_ondisk::units::{Guid, Txg};

/// Folders that are searched without `-d`. Names in earlier ones are preferred.
#[doc(alias = "zpool_default_search_paths")]
pub const DEFAULT_PLACES: &[&str] = &[
    "/dev/disk/by-vdev",
    "/dev/mapper",
    "/dev/disk/by-partlabel",
    "/dev/disk/by-partuuid",
    "/dev/disk/by-label",
    "/dev/disk/by-uuid",
    "/dev/disk/by-id",
    "/dev/disk/by-path",
    "/dev",
];

/// No pool has more top-level vdevs; a label that claims more is damaged.
const TOP_LEVELS_MAX: u64 = 1 << 12;

/// A device with a valid label.
#[derive(Debug, Clone)]
pub struct FoundDevice {
    /// The name under which it was found.
    pub path: PathBuf,
    /// The identity of the device, whatever its names.
    pub identity: DeviceIdentity,
    /// The index of the folder in which the name was found: lower ones are preferred.
    pub order: usize,
    /// Its latest label.
    pub label: NvList,
    /// How many of its four labels verify.
    pub label_count: usize,
    /// Where its labels name two pools.
    disputed: Option<Box<Disputed>>,
}

/// The labels of a device whose labels name two pools.
#[derive(Debug, Clone)]
struct Disputed {
    /// The latest label that names another pool than the latest one.
    earlier: NvList,
    /// The txg of the newest uberblock.
    newest: Txg,
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct SearchResult {
    /// All devices with a label.
    pub devices: Vec<FoundDevice>,
    /// Files that the search may not open: they may be devices of a pool.
    pub denied: Vec<PathBuf>,
}

/// A pool that can perhaps be imported, by its labels.
#[derive(Debug, Clone)]
pub struct CandidatePool {
    /// The facts in its latest label.
    pub facts: PoolFacts,
    /// Its tree, with the paths at which its devices were found.
    pub root: VdevConfig,
    /// Leaves that were found on several devices, and their paths; the first is used.
    pub duplicates: Vec<(Guid, Vec<PathBuf>)>,
    /// Devices of the tree that were not found.
    pub missing: Vec<Guid>,
}

impl CandidatePool {
    /// The health of the tree, as `zpool import` shows it.
    pub fn health(&self, host: &Host) -> Option<VdevHealth> {
        let options = OpenOptions {
            mode: OpenMode::ReadOnly,
            need: Need::Nothing,
            labels: ExpectedLabels::OfPool(self.facts.guid),
        };
        let tree = VdevTree::open(host, &self.root, &options).ok()?;
        Some(tree.health())
    }
}

/// The paths of found devices, by the pool guid in their labels and their own guid. A copy of a
/// pool that got another pool guid has devices of the same guids: each pool has its own.
#[derive(Debug, Clone, Default)]
pub struct DevicePaths(BTreeMap<(Option<Guid>, Guid), PathBuf>);

impl DevicePaths {
    /// The paths that a search found.
    pub fn of(result: &SearchResult) -> DevicePaths {
        let mut by_pool: BTreeMap<Option<Guid>, Vec<&FoundDevice>> = BTreeMap::new();
        for device in &result.devices {
            by_pool.entry(device.pool()).or_default().push(device);
        }
        let paths = by_pool.into_iter().flat_map(|(pool, devices)| {
            let best = best_devices(devices.into_iter()).into_iter();
            best.map(move |(guid, found)| ((pool, guid), found[0].path.clone()))
        });
        DevicePaths(paths.collect())
    }

    /// The path of a device of a pool. The labels of idle hot spares and of cache devices name no
    /// pool: each pool that lists them has them.
    pub fn path(&self, pool: Guid, guid: Guid) -> Option<&Path> {
        let own = self.0.get(&(Some(pool), guid));
        own.or_else(|| self.0.get(&(None, guid)))
            .map(PathBuf::as_path)
    }

    /// Replaces the paths in the tree of a pool, hot spares and caches included. Gives the leaves
    /// that were not found.
    #[doc(alias = "fix_paths")]
    pub fn fix(&self, pool: Guid, config: &mut VdevConfig) -> Vec<Guid> {
        let mut missing = Vec::new();
        config.change_each(&mut |vdev| {
            if !vdev.kind.is_leaf() {
                return;
            }
            match self.path(pool, vdev.guid) {
                Some(path) => vdev.path = Some(Text::from(path.as_os_str().as_bytes())),
                None => missing.push(vdev.guid),
            }
        });
        missing
    }
}

/// Looks for devices in folders; a place that is no folder is looked at itself.
pub fn search(host: &Host, places: &[PathBuf]) -> SearchResult {
    let mut paths = Vec::new();
    for (order, place) in places.iter().enumerate() {
        match host.list_directory(place) {
            Ok(entries) => {
                let may_be = |kind| matches!(kind, FileKind::File | FileKind::BlockDevice);
                let devices = entries.into_iter().filter(|entry| may_be(entry.kind));
                let mut found: Vec<PathBuf> = devices.map(|entry| entry.path).collect();
                found.sort();
                paths.extend(found.into_iter().map(|path| (order, path)));
            }
            Err(_) => paths.push((order, place.clone())),
        }
    }
    let probed = host
        .compute()
        .map(paths, |(order, path)| probe(host, order, path));
    let mut result = SearchResult::default();
    for probed in probed {
        match probed {
            Probed::Device(device) => result.devices.push(*device),
            Probed::Denied(path) => result.denied.push(path),
            Probed::Nothing => {}
        }
    }
    settle_disputed(&mut result.devices);
    result
}

/// Decides which label counts of devices whose labels name two pools.
fn settle_disputed(devices: &mut [FoundDevice]) {
    let mut newest: BTreeMap<Option<Guid>, Txg> = BTreeMap::new();
    for device in devices.iter() {
        // A device whose labels all name one pool has the uberblock of the latest: the last of its
        // labels are written behind that.
        let disputed = device.disputed.as_ref();
        let stored = disputed.map_or(txg_of(&device.label), |disputed| disputed.newest);
        let known = newest.entry(device.pool()).or_insert(stored);
        *known = (*known).max(stored);
    }
    for device in devices {
        let (pool, txg) = (device.pool(), txg_of(&device.label));
        if let Some(disputed) = device.disputed.take()
            && newest[&pool] < txg
        {
            device.label = disputed.earlier;
        }
    }
}

fn txg_of(label: &NvList) -> Txg {
    Txg::from(label.optional_u64("txg").ok().flatten().unwrap_or(0))
}

enum Probed {
    Device(Box<FoundDevice>),
    Denied(PathBuf),
    Nothing,
}

fn probe(host: &Host, order: usize, path: PathBuf) -> Probed {
    let window = match open_window(host, &path, OpenMode::ReadOnly) {
        Ok(window) => window,
        Err(tarn_host::OpenError::PermissionDenied { .. }) => return Probed::Denied(path),
        Err(_) => return Probed::Nothing,
    };
    if window.size_bytes() < DEVICE_BYTES_MIN {
        return Probed::Nothing;
    }
    let labels = read_labels(&window);
    let Some(best) = best_label(&labels) else {
        return Probed::Nothing;
    };
    Probed::Device(Box::new(FoundDevice {
        identity: window.info().identity,
        order,
        label: best.list.clone(),
        label_count: labels.iter().flatten().count(),
        disputed: disputed(&labels, best, &window),
        path,
    }))
}

/// Whether labels of a device name two pools for the same leaf: the pool was getting another guid.
fn disputed(
    labels: &[Result<Label, LabelError>],
    best: &Label,
    window: &Window,
) -> Option<Box<Disputed>> {
    let is_other = |label: &&Label| {
        label.pool_guid() != best.pool_guid()
            && label.guid() == best.guid()
            && label.guid().is_some()
    };
    let others = labels.iter().flatten().filter(is_other);
    let earlier = others.max_by_key(|label| label.txg())?;
    let found = read_uberblocks(window, best.ashift()?);
    let newest = found.iter().map(|found| found.uberblock.txg).max()?;
    Some(Box::new(Disputed {
        earlier: earlier.list.clone(),
        newest,
    }))
}

/// The candidate pools of these devices, by name and guid, and the errors of pools whose labels
/// cannot be used.
pub fn pools(result: &SearchResult) -> (Vec<CandidatePool>, Vec<(Guid, LabelError)>) {
    let paths = DevicePaths::of(result);
    let mut members: BTreeMap<Guid, Vec<&FoundDevice>> = BTreeMap::new();
    for device in &result.devices {
        if let Some(member) = Member::of(device) {
            members.entry(member.pool).or_default().push(device);
        }
    }
    let mut candidates = Vec::new();
    let mut refused = Vec::new();
    for (guid, devices) in members {
        match candidate(guid, &devices, &paths) {
            Ok(candidate) => candidates.push(candidate),
            Err(error) => refused.push((guid, error)),
        }
    }
    candidates.sort_by(|one, other| {
        let key = |pool: &CandidatePool| (pool.facts.name.clone(), pool.facts.guid);
        key(one).cmp(&key(other))
    });
    (candidates, refused)
}

/// The pool, top-level vdev and txg in a label. Hot spares and devices that never joined are no
/// members.
struct Member {
    pool: Guid,
    top: Guid,
    txg: Txg,
}

impl Member {
    fn of(device: &FoundDevice) -> Option<Member> {
        let number = |name: &str| device.label.optional_u64(name).ok().flatten();
        let state = PoolState::from_number(number("state")?);
        let txg = number("txg").filter(|txg| *txg != 0)?;
        number("guid")?;
        let member = Member {
            pool: Guid::from(number("pool_guid")?),
            top: Guid::from(number("top_guid")?),
            txg: Txg::from(txg),
        };
        (!state.is_auxiliary()).then_some(member)
    }
}

/// The candidate pool of these members.
#[doc(alias = "get_configs")]
fn candidate(
    guid: Guid,
    devices: &[&FoundDevice],
    paths: &DevicePaths,
) -> Result<CandidatePool, LabelError> {
    let mut tops: BTreeMap<Guid, (Txg, &NvList)> = BTreeMap::new();
    for device in devices {
        let member = Member::of(device).expect("only members were gathered");
        let latest = tops
            .entry(member.top)
            .or_insert((member.txg, &device.label));
        if latest.0 < member.txg {
            *latest = (member.txg, &device.label);
        }
    }
    let newest = tops
        .values()
        .max_by_key(|(txg, _)| *txg)
        .expect("a pool has devices")
        .1;
    let facts = PoolFacts::parse(newest)?;
    let mut root = VdevConfig::new(VdevKind::Root, guid);
    root.children = top_level_vdevs(newest, &tops)?;
    let missing = paths.fix(guid, &mut root);
    let duplicates = best_devices(devices.iter().copied()).into_iter();
    let duplicates = duplicates.filter_map(|(guid, found)| {
        let other = found
            .iter()
            .any(|device| device.identity != found[0].identity);
        other.then(|| {
            (
                guid,
                found.iter().map(|device| device.path.clone()).collect(),
            )
        })
    });
    Ok(CandidatePool {
        facts,
        duplicates: duplicates.collect(),
        missing,
        root,
    })
}

/// The top-level vdevs by index: found, holes, or missing.
fn top_level_vdevs(
    newest: &NvList,
    tops: &BTreeMap<Guid, (Txg, &NvList)>,
) -> Result<Vec<VdevConfig>, LabelError> {
    let mut by_index: BTreeMap<u64, (Txg, VdevConfig)> = BTreeMap::new();
    for (txg, label) in tops.values() {
        // A vdev whose configuration cannot be parsed is a missing vdev, not a missing pool.
        let Ok(config) = VdevConfig::parse(label.list("vdev_tree")?) else {
            continue;
        };
        match by_index.get(&config.id) {
            Some((other, _)) if other >= txg => {}
            _ => {
                by_index.insert(config.id, (*txg, config));
            }
        }
    }
    let last = by_index
        .keys()
        .last()
        .map_or(0, |last| last.saturating_add(1));
    let count = newest
        .optional_u64("vdev_children")?
        .unwrap_or(last)
        .min(TOP_LEVELS_MAX);
    let holes = newest.optional_u64s("hole_array")?.unwrap_or(&[]);
    let mut vdevs = Vec::with_capacity(narrow(count));
    for index in 0..count {
        let mut vdev = match by_index.remove(&index) {
            _ if holes.contains(&index) => VdevConfig::new(VdevKind::Hole, Guid::ZERO),
            Some((_, config)) => config,
            None => VdevConfig::new(VdevKind::Missing, Guid::ZERO),
        };
        vdev.id = index;
        vdevs.push(vdev);
    }
    Ok(vdevs)
}

/// The devices of each guid, best first: with the latest and most labels, under the name that its
/// label has, or else the preferred name.
fn best_devices<'a>(
    devices: impl Iterator<Item = &'a FoundDevice>,
) -> BTreeMap<Guid, Vec<&'a FoundDevice>> {
    let mut by_guid: BTreeMap<Guid, Vec<&FoundDevice>> = BTreeMap::new();
    for device in devices {
        if let Ok(guid) = device.label.u64("guid") {
            by_guid.entry(Guid::from(guid)).or_default().push(device);
        }
    }
    for found in by_guid.values_mut() {
        found.sort_by_key(|device| {
            let txg = device.label.optional_u64("txg").ok().flatten().unwrap_or(0);
            let is_own_name = device.path_in_label() == Some(device.path.as_os_str().as_bytes());
            let worst_first = (txg, device.label_count, is_own_name);
            (
                std::cmp::Reverse(worst_first),
                device.order,
                device.path.clone(),
            )
        });
    }
    by_guid
}

impl FoundDevice {
    /// The pool guid in its label.
    fn pool(&self) -> Option<Guid> {
        let pool = self.label.optional_u64("pool_guid").ok().flatten();
        pool.map(Guid::from)
    }

    /// The path in its label.
    fn path_in_label(&self) -> Option<&[u8]> {
        if let Ok(Some(path)) = self.label.optional_text("path") {
            return Some(path.as_bytes());
        }
        let own = self.label.optional_u64("guid").ok().flatten()?;
        path_below(self.label.optional_list("vdev_tree").ok().flatten()?, own)
    }
}

/// The path of the vdev of this guid, in a tree as it is stored.
fn path_below(tree: &NvList, guid: u64) -> Option<&[u8]> {
    if tree.optional_u64("guid").ok().flatten() == Some(guid)
        && let Ok(Some(path)) = tree.optional_text("path")
    {
        return Some(path.as_bytes());
    }
    let children = tree.optional_lists("children").ok().flatten()?;
    children.iter().find_map(|child| path_below(child, guid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::TopLevelConfig;
    use tarn_ondisk::units::{AllocatedSize, ObjectId};

    /// A mirror of devices `10 * id + 1` and `+ 2`.
    fn mirror(id: u64) -> VdevConfig {
        let leaf = |guid: u64| {
            let mut leaf = VdevConfig::new(VdevKind::File, Guid::from(guid));
            leaf.path = Some(Text::from(format!("/old/{guid}")));
            leaf
        };
        let mut mirror = VdevConfig::new(VdevKind::Mirror, Guid::from(10 * id));
        mirror.children = vec![leaf(10 * id + 1), leaf(10 * id + 2)];
        mirror.top_level = Some(TopLevelConfig {
            metaslab_array: ObjectId::from(1),
            metaslab_shift: 24,
            ashift: 9,
            asize: AllocatedSize::from(1 << 26),
            is_log: false,
            non_allocating: false,
            removing: false,
        });
        mirror
    }

    fn root(count: u64) -> VdevConfig {
        let mut root = VdevConfig::new(VdevKind::Root, Guid::from(7));
        root.children = (1..=count).map(mirror).collect();
        root.number_children();
        root
    }

    fn device(root: &VdevConfig, top: usize, leaf: usize, txg: u64, path: &str) -> FoundDevice {
        let facts = PoolFacts {
            version: 5000,
            name: Text::from("tank"),
            state: PoolState::Exported,
            txg: Txg::from(txg),
            guid: Guid::from(7),
            errata: 0,
            comment: None,
            compatibility: None,
            host_id: 0,
            host_name: Text::default(),
            features_for_read: NvList::new(),
        };
        FoundDevice {
            path: PathBuf::from(path),
            identity: DeviceIdentity::Simulated(
                txg * 100 + u64::try_from(10 * top + leaf).unwrap(),
            ),
            order: 0,
            label: facts.label_of(root, top, &root.children[top].children[leaf]),
            label_count: 4,
            disputed: None,
        }
    }

    fn found(devices: Vec<FoundDevice>) -> CandidatePool {
        let result = SearchResult {
            devices,
            denied: Vec::new(),
        };
        let (mut pools, refused) = pools(&result);
        assert!(refused.is_empty());
        assert_eq!(pools.len(), 1);
        pools.remove(0)
    }

    #[test]
    fn a_pool_is_put_together_and_its_paths_are_mended() {
        let root = root(2);
        let pool = found(vec![
            device(&root, 1, 1, 9, "/new/d"),
            device(&root, 0, 0, 9, "/new/a"),
            device(&root, 0, 1, 9, "/new/b"),
        ]);
        assert_eq!(pool.root.guid, Guid::from(7));
        let paths: Vec<_> = pool
            .root
            .leaves()
            .iter()
            .map(|leaf| leaf.path.clone().unwrap().to_string())
            .collect();
        assert_eq!(paths, ["/new/a", "/new/b", "/old/21", "/new/d"]);
        assert_eq!(pool.missing, [Guid::from(21)]);
    }

    #[test]
    fn what_is_lacking_altogether_is_missing() {
        let pool = found(vec![device(&root(3), 1, 0, 9, "/b")]);
        let kinds: Vec<_> = pool.root.children.iter().map(|top| top.kind).collect();
        assert_eq!(
            kinds,
            [VdevKind::Missing, VdevKind::Mirror, VdevKind::Missing]
        );
    }

    #[test]
    fn a_label_that_claims_vdevs_without_end_is_believed_up_to_a_bound() {
        let mut device = device(&root(1), 0, 0, 9, "/a");
        device.label.set("vdev_children", u64::MAX);
        let pool = found(vec![device]);
        assert_eq!(pool.root.children.len(), narrow(TOP_LEVELS_MAX));
    }

    #[test]
    fn the_latest_label_decides_how_many_vdevs_there_are() {
        let pool = found(vec![
            device(&root(3), 2, 0, 5, "/old-third"),
            device(&root(1), 0, 0, 9, "/first"),
        ]);
        assert_eq!(pool.root.children.len(), 1);
        assert_eq!(pool.facts.txg, Txg::from(9));
    }

    #[test]
    fn one_device_under_two_names_gets_the_one_its_label_has() {
        let root = root(1);
        let mut other = device(&root, 0, 0, 9, "/old/11");
        other.order = 1;
        let pool = found(vec![device(&root, 0, 0, 9, "/a"), other]);
        assert_eq!(pool.root.leaves()[0].path, Some(Text::from("/old/11")));
        assert!(pool.duplicates.is_empty());
    }

    #[test]
    fn a_copy_of_a_device_is_reported_and_the_later_is_used() {
        let root = root(1);
        let old = device(&root, 0, 0, 8, "/copy");
        let pool = found(vec![old, device(&root, 0, 0, 9, "/it")]);
        assert_eq!(pool.root.leaves()[0].path, Some(Text::from("/it")));
        let both = vec![PathBuf::from("/it"), PathBuf::from("/copy")];
        assert_eq!(pool.duplicates, [(Guid::from(11), both)]);
    }

    #[test]
    fn hot_spares_and_devices_that_never_joined_make_no_pool() {
        let root = root(1);
        let mut spare = device(&root, 0, 0, 9, "/spare");
        spare.label = crate::label_config::spare_label(5000, &root.children[0].children[0]);
        let half_made = device(&root, 0, 1, 0, "/half");
        let result = SearchResult {
            devices: vec![spare, half_made],
            denied: Vec::new(),
        };
        assert!(pools(&result).0.is_empty());
        let paths = DevicePaths::of(&result);
        let spare = paths.path(Guid::from(7), Guid::from(11));
        assert_eq!(spare, Some(Path::new("/spare")));
    }

    #[test]
    fn a_copy_of_a_pool_under_another_guid_has_devices_of_its_own() {
        let root = root(1);
        let mut devices = Vec::new();
        for (pool, txg, folder) in [(7u64, 9, "one"), (8, 20, "other")] {
            for leaf in 0..2 {
                let path = format!("/{folder}/{leaf}");
                let mut device = device(&root, 0, leaf, txg, &path);
                device.label.set("pool_guid", pool);
                devices.push(device);
            }
        }
        let result = SearchResult {
            devices,
            denied: Vec::new(),
        };
        let (found, _) = pools(&result);
        let paths = |pool: &CandidatePool| {
            let leaves = pool.root.leaves().into_iter();
            let paths = leaves.map(|leaf| leaf.path.clone().unwrap().to_string());
            paths.collect::<Vec<_>>()
        };
        assert_eq!(found.len(), 2);
        assert_eq!(paths(&found[0]), ["/one/0", "/one/1"]);
        assert_eq!(paths(&found[1]), ["/other/0", "/other/1"]);
        assert!(found.iter().all(|pool| pool.duplicates.is_empty()));
    }
}
