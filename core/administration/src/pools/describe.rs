//! `zpool list`, `status` and `get`: describes open pools.

use super::condition::{Evidence, Requested, Scanned, Suspended, find};
use super::vdev_status::{layout_of_pool, root_status, state_word};
use super::{dedup, error_scrub, errors, properties, rebuild, scan};
use crate::administrator::Administrator;
use crate::messages::pool::{Describe, Described, PoolDescription};
use crate::messages::{Refusal, RefusalKind, Value};
use std::collections::BTreeSet;
use tarn_engine::engine::OpenPool;
use tarn_engine::turns::is_stuck;
use tarn_pool::{Pool, PoolError, RebuildStatus};
use tarn_probe::Operation;
use tarn_vdev::VdevConfig;

impl Administrator {
    pub(crate) fn describe_pools(&self, request: &Describe) -> Result<Described, Refusal> {
        let mut pools = Vec::new();
        let with_errors = request.with_errors;
        for open in self.engine.named_pools(&request.names)? {
            let seen = self.engine.look(&open, move |open, operation| {
                describe(open, with_errors, operation)
            });
            let mut described = match seen {
                Some(Ok(described)) => {
                    self.note_last_seen(&open, &described);
                    described
                }
                Some(Err(cause)) if !is_stuck(&open.pool) => {
                    let action = format!("cannot open '{}'", open.pool.name());
                    return Err(Refusal::new(
                        RefusalKind::Corrupt,
                        action,
                        cause.to_string(),
                    ));
                }
                Some(Err(_)) | None => as_far_as_known(&open, self.last_seen_of(&open)),
            };
            self.mark_spares_in_use(&mut described);
            pools.push(described);
        }
        Ok(Described { pools })
    }

    /// Keeps the description of an open pool, and drops those of pools that are not open any more.
    fn note_last_seen(&self, open: &OpenPool, described: &PoolDescription) {
        let imports: BTreeSet<u64> = self
            .engine
            .pools()
            .iter()
            .map(|open| open.load_guid)
            .collect();
        let mut seen = self.last_seen.lock();
        seen.retain(|import, _| imports.contains(import));
        seen.insert(open.load_guid, described.clone());
    }

    fn last_seen_of(&self, open: &OpenPool) -> Option<PoolDescription> {
        self.last_seen.lock().get(&open.load_guid).cloned()
    }
}

/// The description of a stuck pool: its last one, with the state in memory.
fn as_far_as_known(open: &OpenPool, last_seen: Option<PoolDescription>) -> PoolDescription {
    let pool = &open.pool;
    let health = pool.vdevs().health();
    let facts = pool.facts();
    let suspended = suspended(pool);
    let state = match suspended {
        Some(_) => "SUSPENDED".to_string(),
        None => state_word(health.standing).to_string(),
    };
    let mut described = last_seen.unwrap_or_default();
    for (name, value) in &mut described.properties {
        if name == "health" {
            value.value = Value::Text(state.clone());
        }
    }
    let error_count = described.error_count;
    PoolDescription {
        name: pool.name().to_string(),
        guid: facts.guid.get(),
        condition: find(&Evidence {
            health: &health,
            facts: &facts,
            scanned: Scanned::default(),
            features: None,
            requested: Requested::All,
            import: None,
            error_count,
            suspended,
        }),
        state,
        txg: pool.uberblock().txg.get(),
        root: root_status(&health),
        layout: layout_of_pool(open, &health),
        ..described
    }
}

/// Whether the pool is suspended, and the effect on writers.
fn suspended(pool: &Pool) -> Option<Suspended> {
    pool.failure().map(|_| match pool.fails_writers() {
        _ if pool.is_lease_expired() => Suspended::Multihost,
        true => Suspended::Continue,
        false => Suspended::Wait,
    })
}

/// The rebuilds of the pool, each with the name of its vdev.
fn rebuilds(pool: &Pool) -> Vec<(RebuildStatus, String, VdevConfig)> {
    let root = pool.vdevs().config();
    let all = pool.rebuild_status().into_iter().filter_map(|status| {
        let vdev = root.children.get(status.vdev.index())?;
        Some((status, rebuild::name_of(vdev), vdev.clone()))
    });
    all.collect()
}

fn describe(
    open: &OpenPool,
    with_errors: bool,
    operation: &Operation,
) -> Result<PoolDescription, PoolError> {
    let pool = &open.pool;
    let health = pool.vdevs().health();
    let (facts, features) = (pool.facts(), pool.features());
    let damaged = errors::known(pool, operation)?;
    let error_count = u64::try_from(damaged.len()).unwrap_or(u64::MAX);
    let suspended = suspended(pool);
    let state = match suspended {
        Some(_) => "SUSPENDED".to_string(),
        None => state_word(health.standing).to_string(),
    };
    let scan = pool.scan_status();
    let rebuilds = rebuilds(pool);
    let condition = find(&Evidence {
        health: &health,
        facts: &facts,
        scanned: Scanned::of(scan.as_ref(), rebuilds.iter().map(|(status, ..)| status)),
        features: Some(&features),
        requested: Requested::by(pool.host(), &facts),
        import: None,
        error_count,
        suspended,
    });
    let now_s = u64::try_from(pool.host().unix_time().seconds).unwrap_or(0);
    let errors = match with_errors {
        true => errors::paths(open, &damaged, operation),
        false => Vec::new(),
    };
    let stats = rebuilds.iter();
    let stats = stats.filter_map(|(status, name, vdev)| rebuild::stats(status, name, vdev));
    let told = rebuilds
        .iter()
        .map(|(status, name, _)| (*status, name.clone()));
    let told: Vec<_> = told.collect();
    let known = pool.error_scrub();
    let mut lines = scan::lines(scan.as_ref(), &told, known.0.start_time_s, now_s).into_iter();
    let scrubbed_s = scan.as_ref().filter(|scan| scan.is_scrub());
    let scrubbed_s = scrubbed_s.map_or(0, |scan| scan.scan.start_time_s);
    let is_last = known.0.start_time_s >= scrubbed_s;
    Ok(PoolDescription {
        name: pool.name().to_string(),
        guid: facts.guid.get(),
        properties: properties::describe(open, &state, operation)?,
        state,
        txg: pool.uberblock().txg.get(),
        condition,
        root: root_status(&health),
        error_scrub: error_scrub::text(known).filter(|_| is_last),
        error_scrub_stats: error_scrub::stats(known),
        scan: lines.next(),
        more_scans: lines.collect(),
        scan_stats: scan.as_ref().and_then(scan::stats),
        rebuild_stats: stats.collect(),
        sections: scan::sections(open),
        layout: layout_of_pool(open, &health),
        error_count,
        errors,
        dedup: dedup::tables(pool, operation)?,
        ..PoolDescription::default()
    })
}
