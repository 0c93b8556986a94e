//! The cache file: the pools that the next start imports.
//!
//! # Mechanism
//! A packed name-value list with the configuration of each pool under its name, as in OpenZFS's
//! `zpool.cache`. It is replaced as a whole after each import, export, creation, destruction and
//! change of devices.
//!
//! A pool that could not be imported at the daemon's start stays in the file as it was, for the
//! next start: its disks may be there by then. It leaves the file when a pool of its guid is
//! imported, or when it is exported by its name.
//!
//! # After a crash
//! The file is the old one or the new one. Its contents are a hint: labels decide. It may have the
//! guid that a pool had before `zpool reguid`; the start recognizes the pool by its name and its
//! top-level vdevs then.

use crate::engine::{Engine, OpenPool, Remembered};
use crate::importing::requests::Search;
use crate::refusals::{Refusal, RefusalKind};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tarn_ondisk::nvlist::{Encoding, NvList, NvValue};
use tarn_ondisk::units::Guid;
use tarn_pool::events::class;
use tarn_vdev::import_search::CandidatePool;
use tarn_vdev::{PoolFacts, VdevConfig};

/// A pool in the cache file.
pub struct CachedPool {
    /// The pool's facts in its configuration.
    pub facts: PoolFacts,
    /// The paths of its devices.
    pub paths: Vec<PathBuf>,
    /// Its whole configuration.
    stored: NvList,
}

impl CachedPool {
    /// Whether a candidate is this pool under another guid: it has the name and the top-level
    /// vdevs.
    fn is_under_another_guid(&self, candidate: &CandidatePool) -> bool {
        let tops = |root: &VdevConfig| -> BTreeSet<Guid> {
            let tops = root.children.iter().map(|top| top.guid);
            tops.filter(|guid| *guid != Guid::ZERO).collect()
        };
        let tree = self.stored.list("vdev_tree").ok();
        let root = tree.and_then(|tree| VdevConfig::parse(tree).ok());
        candidate.facts.name == self.facts.name
            && root.is_some_and(|root| tops(&root) == tops(&candidate.root))
    }
}

/// Reads a cache file. A missing file has no pools.
pub fn cached_pools(engine: &Engine, path: &Path) -> Result<Vec<CachedPool>, Refusal> {
    let action = || format!("cannot read cache file '{}'", path.display());
    let bytes = match engine.host.read_file(path) {
        Ok(bytes) => bytes,
        Err(error) if error.errno.0 == NOT_THERE => return Ok(Vec::new()),
        Err(error) => {
            let reason = error.errno.to_string();
            return Err(Refusal::new(RefusalKind::NotFound, action(), reason));
        }
    };
    let damaged = |why: String| Refusal::new(RefusalKind::Corrupt, action(), why);
    let list = NvList::decode(&bytes).map_err(|cause| damaged(cause.to_string()))?;
    let mut pools = Vec::new();
    for (_, value) in list.iter() {
        let NvValue::List(configuration) = value else {
            continue;
        };
        pools.push(parse(configuration).map_err(damaged)?);
    }
    Ok(pools)
}

/// `ENOENT`.
const NOT_THERE: i32 = 2;

fn parse(configuration: &NvList) -> Result<CachedPool, String> {
    let facts = PoolFacts::parse(configuration).map_err(|error| error.to_string())?;
    let tree = configuration
        .list("vdev_tree")
        .map_err(|error| error.to_string())?;
    let root = VdevConfig::parse(tree).map_err(|error| error.to_string())?;
    let devices = root.walk().into_iter().filter(|vdev| vdev.kind.is_leaf());
    let devices = devices.chain(&root.spares);
    let paths = devices
        .filter_map(|vdev| Some(PathBuf::from(vdev.path.as_ref()?.as_str()?)))
        .collect();
    let stored = configuration.clone();
    Ok(CachedPool {
        facts,
        paths,
        stored,
    })
}

impl Engine {
    /// Keeps these pools in the cache file until they are imported.
    pub fn keep_in_cache_file(&self, cached: &[CachedPool]) {
        let mut waiting = self.remembering.lock();
        let entry = |pool: &CachedPool| {
            let name = pool.facts.name.to_string();
            (pool.facts.guid, (name, pool.stored.clone()))
        };
        *waiting = cached.iter().map(entry).collect();
    }

    /// The guid that a pool of the cache file has now, where it is not found under its own: power
    /// failed before `zpool reguid` had written the file. None where it is not found at all.
    pub(crate) fn guid_after_reguid(&self, cached: &CachedPool, places: &Search) -> Option<Guid> {
        let found = self.look_for_pools(places).ok()?;
        let candidates = found.candidates.iter();
        let mut same = candidates.filter(|pool| cached.is_under_another_guid(pool));
        let first = same.next()?;
        same.next().is_none().then_some(first.facts.guid)
    }

    /// Ends that for a pool that is open now, and had this guid in the cache file.
    pub(crate) fn keep_no_longer_as(&self, guid: Guid) -> Result<(), Refusal> {
        self.remembering.lock().remove(&guid);
        self.remember_pools(&[])
    }

    /// Ends that for a pool that is open now: an open pool is in the cache file anyway.
    pub fn keep_no_longer(&self, open: &OpenPool) {
        self.remembering.lock().remove(&open.pool.facts().guid);
    }

    /// Removes pools of this name that could not be imported from the cache file. True when there
    /// were any.
    pub fn give_up_waiting_for(&self, name: &str) -> Result<bool, Refusal> {
        let is_any = {
            let mut waiting = self.remembering.lock();
            let before = waiting.len();
            waiting.retain(|_, (other, _)| other != name);
            waiting.len() < before
        };
        if is_any {
            self.remember_pools(&[])?;
        }
        Ok(is_any)
    }

    /// Writes the cache files with the open pools and their device paths. `left` has files from
    /// which pools were removed, which may have no pools any more.
    pub fn remember_pools(&self, left: &[PathBuf]) -> Result<(), Refusal> {
        let waiting = self.remembering.lock();
        let mut files: BTreeMap<PathBuf, NvList> = BTreeMap::new();
        files.insert(self.instance.cache_file(), NvList::new());
        for path in left {
            files.insert(path.clone(), NvList::new());
        }
        let pools = self.pools();
        for open in &pools {
            if let Some(path) = self.cache_file_of(open) {
                let list = files.entry(path).or_default();
                list.set(open.pool.name(), configuration_of(open));
            }
        }
        let own = files.entry(self.instance.cache_file()).or_default();
        for (guid, (name, stored)) in waiting.iter() {
            let is_open = |open: &Arc<OpenPool>| open.pool.facts().guid == *guid;
            if pools.iter().any(is_open) {
                continue;
            }
            // Readers of the file import all entries and take the pool's name from the
            // configuration.
            match own.contains(name) {
                true => own.set(guid.to_string(), stored.clone()),
                false => own.set(name.as_str(), stored.clone()),
            }
        }
        for (path, list) in files {
            let replaced = self.replace_cache_file(&path, &list);
            if replaced.is_err() {
                let is_listed = |open: &&Arc<OpenPool>| {
                    self.cache_file_of(open)
                        .is_some_and(|listed| listed == path)
                };
                let listed = pools.iter().filter(is_listed);
                listed.for_each(|open| open.pool.post_pool_error(class::CONFIG_CACHE_WRITE));
            }
            replaced?;
        }
        Ok(())
    }

    /// The cache file that lists a pool.
    pub fn cache_file_of(&self, open: &OpenPool) -> Option<PathBuf> {
        match &*open.remembered.lock() {
            Remembered::ByInstance => Some(self.instance.cache_file()),
            Remembered::Nowhere => None,
            Remembered::In(path) => Some(PathBuf::from(path)),
        }
    }

    fn replace_cache_file(&self, path: &Path, list: &NvList) -> Result<(), Refusal> {
        let done = match list.is_empty() {
            true => self.host.remove_file(path),
            false => {
                let bytes = list.encode(Encoding::Xdr);
                self.host.write_file_atomically(path, &bytes)
            }
        };
        done.map_err(|error| {
            let action = format!("cannot write cache file '{}'", path.display());
            Refusal::new(RefusalKind::Device, action, error.errno.to_string())
        })
    }
}

/// The present configuration of an open pool.
fn configuration_of(open: &Arc<OpenPool>) -> NvList {
    let facts = PoolFacts {
        name: open.pool.name().into(),
        txg: open.pool.uberblock().txg,
        ..open.pool.facts()
    };
    facts.mos_list(&open.pool.vdevs().config())
}
