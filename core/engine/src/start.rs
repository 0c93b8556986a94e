//! Start and stop of the daemon: pools of the cache file are imported at the start, and closed
//! without being exported at the stop.

use crate::engine::Engine;
use crate::importing::cache_file::{CachedPool, cached_pools};
use crate::importing::requests::{Import, Search};
use crate::presence::Presence;
use crate::refusals::{Refusal, RefusalKind, of_task};
use std::collections::BTreeSet;
use tarn_ondisk::units::Guid;
use tarn_pool::Leaving;

/// The reason for a pool that does not answer when the daemon stops.
const GIVEN_UP: &str = "it could not be stored, and was given up with what was stored last";

impl Engine {
    /// Imports the pools that were imported when the last daemon of this instance ended, and mounts
    /// their file systems. A pool that cannot be imported is left out, with a warning; it stays in
    /// the cache file for the next start.
    pub fn start(&self) -> Vec<Refusal> {
        let path = self.instance.cache_file();
        let cached = match cached_pools(self, &path) {
            Ok(cached) => cached,
            Err(refusal) => return vec![refusal],
        };
        // If this start is interrupted, the next one still knows all of them.
        self.keep_in_cache_file(&cached);
        let mut warnings = Vec::new();
        for pool in cached {
            warnings.extend(self.import_cached(&pool));
        }
        let operation = self.operation(0);
        warnings.extend(self.mount_by_hand_again(&operation));
        operation.finish();
        warnings
    }

    /// Imports a pool of the cache file. Gives what went wrong.
    fn import_cached(&self, pool: &CachedPool) -> Vec<Refusal> {
        let name = pool.facts.name.to_string();
        // Disks get other names when the machine starts, so their folders are searched too. Files
        // do not: a file beside a missing one may be a copy of it.
        let paths = pool.paths.clone();
        let places = match paths.iter().any(|path| path.starts_with("/dev")) {
            true => self.with_folders(paths, &BTreeSet::from([pool.facts.guid])),
            false => paths,
        };
        let places = places.iter().map(|path| path.display().to_string());
        let search = Search {
            places: places.collect(),
            ..Search::default()
        };
        let operation = self.operation(0);
        let import = |guid: Guid| {
            let request = Import {
                search: search.clone(),
                pool: Some(guid.get().to_string()),
                rename: Some(name.clone()),
                ..Import::default()
            };
            self.import(&Presence::default(), &request, &operation)
        };
        let mut imported = import(pool.facts.guid);
        let is_missing = matches!(&imported, Err(refusal) if refusal.kind == RefusalKind::NotFound);
        if is_missing && let Some(guid) = self.guid_after_reguid(pool, &search) {
            imported = import(guid).and_then(|imported| {
                self.keep_no_longer_as(pool.facts.guid)?;
                Ok(imported)
            });
        }
        operation.finish();
        let warning = |text| Refusal::new(RefusalKind::Busy, format!("pool '{name}'"), text);
        match imported {
            Ok(imported) => imported.warnings.into_iter().map(warning).collect(),
            Err(refusal) => vec![refusal],
        }
    }

    /// The daemon is about to stop and waits for the calls under way: calls that only watch end.
    pub fn begin_to_stop(&self) {
        self.presence.end();
        self.events.close();
    }

    /// Unmounts everything and closes all pools without exporting them: the next start imports them
    /// again. Returns what is lost: pools that could not be stored, and file systems that could not
    /// be unmounted in order.
    pub fn stop(&self) -> Vec<Refusal> {
        let mut warnings = Vec::new();
        self.remember_by_hand(true);
        for open in self.pools() {
            // A pool that hangs is not waited for: its intent logs have what was promised.
            let is_given_up = self.give_up_if_stuck(&open.pool);
            open.streams.stop();
            let _turn = match self.turn(&open) {
                Ok(turn) => turn,
                Err(refusal) => {
                    warnings.push(refusal);
                    continue;
                }
            };
            // Programs that still use a mount get errors from here on; the next start mounts again.
            if let Err(refusal) = self.unmount_pool_or_abandon(&open) {
                warnings.push(refusal);
            }
            let operation = self.operation(0);
            let closed = open.pool.close(Leaving::Kept, &operation);
            let action = format!("pool '{}'", open.pool.name());
            match closed {
                // The same for a pool that became unwritable meanwhile.
                Err(_) if is_given_up || open.pool.failure().is_some() => {
                    warnings.push(Refusal::new(RefusalKind::Suspended, action, GIVEN_UP));
                }
                Err(error) => warnings.push(of_task(action, &error)),
                Ok(()) => {}
            }
            operation.finish();
            self.remove_pool(open.pool.name());
        }
        warnings
    }
}
