//! Searches for pools: in folders, under device names, or at the paths of a cache file.

use super::cache_file::cached_pools;
use crate::engine::Engine;
use crate::importing::requests::Search;
use crate::refusals::{Refusal, RefusalKind};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tarn_ondisk::units::Guid;
use tarn_vdev::import_search::{CandidatePool, DEFAULT_PLACES, DevicePaths, pools, search};
use tarn_vdev::{PoolState, VdevKind};

/// The result of a search.
pub struct Found {
    /// Pools, by name and guid.
    pub candidates: Vec<CandidatePool>,
    /// The paths of their devices.
    pub paths: DevicePaths,
}

impl Engine {
    /// Searches for pools that are not open here.
    pub fn look_for_pools(&self, wanted: &Search) -> Result<Found, Refusal> {
        let mut found = match &wanted.cache_file {
            Some(path) => self.look_where_cached(Path::new(path), &wanted.places)?,
            None => self.look_in(places(&wanted.places)),
        };
        let open: BTreeSet<_> = self
            .pools()
            .iter()
            .map(|open| open.pool.facts().guid)
            .collect();
        found.candidates.retain(|candidate| {
            let is_destroyed = candidate.facts.state == PoolState::Destroyed;
            is_destroyed == wanted.destroyed && !open.contains(&candidate.facts.guid)
        });
        Ok(found)
    }

    /// Searches for pools in these places.
    pub fn look_in(&self, places: Vec<PathBuf>) -> Found {
        let result = search(&self.host, &places);
        let (candidates, _) = pools(&result);
        Found {
            candidates,
            paths: DevicePaths::of(&result),
        }
    }

    /// These places, and the folders of the devices of pools that are not complete there: devices
    /// may have other names by now, as disks do after a reboot.
    #[doc(alias = "discover_cached_paths")]
    pub fn with_folders(&self, mut places: Vec<PathBuf>, pools: &BTreeSet<Guid>) -> Vec<PathBuf> {
        let found = self.look_in(places.clone());
        let is_whole = |pool: &CandidatePool| {
            let mut tops = pool.root.children.iter();
            pool.missing.is_empty() && tops.all(|top| top.kind != VdevKind::Missing)
        };
        let is_there = |guid: &Guid| {
            let mut candidates = found.candidates.iter();
            candidates.any(|pool| pool.facts.guid == *guid && is_whole(pool))
        };
        if !pools.iter().all(is_there) {
            let folders: BTreeSet<_> = places.iter().filter_map(|path| path.parent()).collect();
            let folders: Vec<PathBuf> = folders.into_iter().map(Path::to_path_buf).collect();
            places.extend(folders);
        }
        places
    }

    /// Searches for the pools of a cache file at its device paths and in `more` places.
    fn look_where_cached(&self, file: &Path, more: &[String]) -> Result<Found, Refusal> {
        let cached = cached_pools(self, file)?;
        if cached.is_empty() && self.host.read_file(file).is_err() {
            let action = format!("failed to open cache file '{}'", file.display());
            let reason = "No such file or directory";
            return Err(Refusal::new(RefusalKind::NotFound, action, reason));
        }
        let mut places: Vec<PathBuf> = more.iter().map(PathBuf::from).collect();
        places.extend(cached.iter().flat_map(|pool| pool.paths.clone()));
        let guids: BTreeSet<_> = cached.iter().map(|pool| pool.facts.guid).collect();
        let mut found = self.look_in(self.with_folders(places, &guids));
        found
            .candidates
            .retain(|candidate| guids.contains(&candidate.facts.guid));
        Ok(found)
    }
}

/// The named places, or the usual ones.
fn places(named: &[String]) -> Vec<PathBuf> {
    match named {
        [] => DEFAULT_PLACES.iter().map(PathBuf::from).collect(),
        named => named.iter().map(PathBuf::from).collect(),
    }
}
