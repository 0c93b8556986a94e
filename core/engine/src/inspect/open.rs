//! Finding a pool by its name or guid, and opening it read-only.

use super::error::InspectError;
use crate::instance::Instance;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tarn_cache::{Cache, CacheOptions};
use tarn_dataset::namespace::View;
use tarn_host::Host;
use tarn_ondisk::nvlist::{NvList, NvValue, Text};
use tarn_ondisk::units::Guid;
use tarn_pool::directory::Directory;
use tarn_pool::{ImportRequest, Mode, Pool, PoolOwner};
use tarn_probe::{Operation, OperationKind};
use tarn_vdev::import_search::{
    CandidatePool, DEFAULT_PLACES, DevicePaths, SearchResult, pools, search,
};
use tarn_vdev::{Need, VdevConfig};

/// What the name of a pool ends with while its checkpoint is looked at.
#[doc(alias = "BOGUS_SUFFIX")]
const CHECKPOINTED: &str = "_CHECKPOINTED_UNIVERSE";
/// The rewind policy under which no older uberblock is tried.
#[doc(alias = "ZPOOL_NEVER_REWIND")]
const REWIND_NEVER: u64 = 2;

/// How deep vdevs may nest.
const NESTING_MAX: usize = 8;

/// Where devices are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// At the paths of this cache file (`-U`).
    CacheFile(PathBuf),
    /// In these folders or under these names (`-e -p`); in the usual places when there are none.
    Places(Vec<PathBuf>),
}

impl Source {
    /// The cache file of the instance that the environment names.
    pub fn of_instance() -> Result<Source, InspectError> {
        let instance = Instance::from_environment().map_err(|error| InspectError::CacheFile {
            path: PathBuf::from("zpool.cache"),
            why: error.to_string(),
        })?;
        Ok(Source::CacheFile(instance.cache_file()))
    }

    fn places(&self, host: &Host) -> Result<Vec<PathBuf>, InspectError> {
        match self {
            Source::CacheFile(path) => cached_devices(host, path),
            Source::Places(places) if places.is_empty() => {
                Ok(DEFAULT_PLACES.iter().map(PathBuf::from).collect())
            }
            Source::Places(places) => Ok(places.clone()),
        }
    }
}

/// The configurations in a cache file, by name.
pub fn cached_pools(host: &Host, path: &Path) -> Result<NvList, InspectError> {
    let unusable = |why: String| InspectError::CacheFile {
        path: path.to_path_buf(),
        why,
    };
    let bytes = host
        .read_file(path)
        .map_err(|error| unusable(error.errno.to_string()))?;
    NvList::decode(&bytes).map_err(|error| unusable(error.to_string()))
}

/// The device paths of all pools of a cache file; none where there is no such file.
fn cached_devices(host: &Host, path: &Path) -> Result<Vec<PathBuf>, InspectError> {
    if host.read_file(path).is_err() {
        return Ok(Vec::new());
    }
    let mut devices = Vec::new();
    for (_, value) in cached_pools(host, path)?.iter() {
        let NvValue::List(configuration) = value else {
            continue;
        };
        let tree = configuration.list("vdev_tree").ok();
        let Some(Ok(root)) = tree.map(VdevConfig::parse) else {
            continue;
        };
        let leaves = root.walk().into_iter().filter(|vdev| vdev.kind.is_leaf());
        devices
            .extend(leaves.filter_map(|vdev| Some(PathBuf::from(vdev.path.as_ref()?.as_str()?))));
    }
    Ok(devices)
}

/// A pool that is open for inspection.
pub struct Inspection {
    pool: std::sync::Arc<Pool>,
    operation: Operation,
    found_as: NvList,
}

impl Inspection {
    /// Opens the pool of this name or guid, as of its newest uberblock.
    ///
    /// # Errors
    /// The pool is not found, or a device or feature that it needs is missing, damaged or not
    /// supported.
    pub fn open(host: &Host, source: &Source, name: &str) -> Result<Inspection, InspectError> {
        Inspection::open_state(host, source, name, false)
    }

    /// Opens the pool of this name or guid, as of its checkpoint, under another name.
    ///
    /// # Errors
    /// As [`open`](Self::open), and when it has no checkpoint.
    #[doc(alias = "import_checkpointed_state")]
    pub fn open_checkpoint(
        host: &Host,
        source: &Source,
        name: &str,
    ) -> Result<Inspection, InspectError> {
        Inspection::open_state(host, source, name, true)
    }

    fn open_state(
        host: &Host,
        source: &Source,
        name: &str,
        is_checkpoint: bool,
    ) -> Result<Inspection, InspectError> {
        let places = source.places(host)?;
        let found = search(host, &places);
        let (candidates, _) = pools(&found);
        let candidate = choose(&candidates, name)?;
        let cache = Cache::new(host, CacheOptions::default(), tarn_probe::registry());
        let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::Assembly);
        let checkpointed = format!("{}{CHECKPOINTED}", candidate.facts.name);
        let request = ImportRequest {
            candidate,
            paths: &DevicePaths::of(&found),
            name: is_checkpoint.then_some(&*checkpointed),
            mode: Mode::ReadOnly,
            need: Need::AllButLogs,
            until: tarn_ondisk::units::Txg::MAX,
            rewinds_to_checkpoint: is_checkpoint,
            discards_logs: false,
            goes_on: &|| true,
            owner: PoolOwner::default(),
            split: None,
        };
        let pool = Pool::import(host, &cache, &request, &operation).map_err(|cause| {
            let name = name.to_string();
            let cause = Box::new(cause);
            InspectError::Import { name, cause }
        })?;
        let found_as = match source {
            Source::CacheFile(path) => cached_pools(host, path)?.list(name).cloned(),
            Source::Places(_) => Ok(search_list(candidate, &found)),
        };
        Ok(Inspection {
            pool,
            operation,
            found_as: found_as.unwrap_or_default(),
        })
    }

    /// The configuration by which the pool was found.
    pub fn found_as(&self) -> &NvList {
        &self.found_as
    }

    /// The pool.
    pub fn pool(&self) -> &std::sync::Arc<Pool> {
        &self.pool
    }

    /// The operation of its reads.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// The pool's directory.
    pub fn directory(&self) -> Directory<'_> {
        self.pool.directory(&self.operation)
    }

    /// The tree of datasets.
    pub fn view(&self) -> View<'_> {
        self.pool.namespace().view(&self.operation)
    }

    /// The configuration in the MOS.
    pub fn configuration(&self) -> Result<NvList, InspectError> {
        Ok(self.directory().configuration()?)
    }
}

impl std::fmt::Debug for Inspection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Inspection({})", self.pool.name())
    }
}

/// The configuration as a search makes it from labels, in OpenZFS's order.
fn search_list(candidate: &CandidatePool, found: &SearchResult) -> NvList {
    let facts = &candidate.facts;
    let paths = DevicePaths::of(found);
    let number = |list: &NvList, name: &str| list.optional_u64(name).ok().flatten();
    let mut tops: BTreeMap<u64, (Option<u64>, NvList)> = BTreeMap::new();
    let labels = found.devices.iter().map(|device| &device.label);
    for label in labels.filter(|label| number(label, "pool_guid") == Some(facts.guid.get())) {
        let Ok(tree) = label.list("vdev_tree") else {
            continue;
        };
        let (id, txg) = (number(tree, "id").unwrap_or(0), number(label, "txg"));
        if tops.get(&id).is_none_or(|(newest, _)| *newest < txg) {
            let mut tree = tree.clone();
            set_paths(&mut tree, facts.guid, &paths, NESTING_MAX);
            tops.insert(id, (txg, tree));
        }
    }
    let count = u64::try_from(candidate.root.children.len()).unwrap_or(u64::MAX);
    let mut list = NvList::new()
        .with("vdev_children", count)
        .with("version", facts.version)
        .with("pool_guid", facts.guid.get())
        .with("name", facts.name.clone());
    if let Some(comment) = &facts.comment {
        list.set("comment", comment.clone());
    }
    if let Some(compatibility) = &facts.compatibility {
        list.set("compatibility", compatibility.clone());
    }
    list.set("state", facts.state.number());
    if facts.host_id != 0 {
        list.set("hostid", facts.host_id);
        list.set("hostname", facts.host_name.clone());
    }
    let children: Vec<NvList> = tops.into_values().map(|(_, tree)| tree).collect();
    let tree = NvList::new()
        .with("type", "root")
        .with("id", 0u64)
        .with("guid", facts.guid.get())
        .with("children", children);
    let policy = NvList::new()
        .with("load-request-txg", u64::MAX)
        .with("load-rewind-policy", REWIND_NEVER);
    list.with("vdev_tree", tree).with("load-policy", policy)
}

/// Puts the paths where devices were found into a stored tree.
fn set_paths(tree: &mut NvList, pool: Guid, paths: &DevicePaths, nesting_left: usize) {
    let guid = tree.optional_u64("guid").ok().flatten().map(Guid::from);
    if let Some(path) = guid.and_then(|guid| paths.path(pool, guid)) {
        tree.set("path", Text::from(path.as_os_str().as_encoded_bytes()));
    }
    if let Ok(children) = tree.lists_mut("children")
        && nesting_left > 0
    {
        for child in children {
            set_paths(child, pool, paths, nesting_left - 1);
        }
    }
}

/// The one pool of this name or guid.
fn choose<'a>(
    candidates: &'a [CandidatePool],
    name: &str,
) -> Result<&'a CandidatePool, InspectError> {
    let guid = name.parse::<u64>().ok();
    let is_wanted = |candidate: &&CandidatePool| {
        candidate.facts.name.as_bytes() == name.as_bytes()
            || guid == Some(candidate.facts.guid.get())
    };
    let matching: Vec<&CandidatePool> = candidates.iter().filter(is_wanted).collect();
    match matching.as_slice() {
        [one] => Ok(one),
        [] => Err(InspectError::NoSuchPool {
            name: name.to_string(),
        }),
        _ => Err(InspectError::Ambiguous {
            name: name.to_string(),
        }),
    }
}
