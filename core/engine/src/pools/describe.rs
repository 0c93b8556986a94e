//! `zpool list`, `status` and `get`: everything known of open pools.

use super::condition::{Evidence, Suspended, find};
use super::vdev_status::{layout_of_pool, root_status, state_word};
use super::{dedup, errors, properties, scan};
use crate::engine::{Engine, OpenPool};
use crate::messages::pool::{Describe, Described, PoolDescription};
use crate::messages::{Refusal, RefusalKind};
use tarn_pool::{Pool, PoolError};
use tarn_probe::Operation;

impl Engine {
    pub(crate) fn describe_pools(
        &self,
        request: &Describe,
        operation: &Operation,
    ) -> Result<Described, Refusal> {
        let mut pools = Vec::new();
        for open in self.named_pools(&request.names)? {
            let described = describe(&open, request.with_errors, operation);
            pools.push(described.map_err(|cause| {
                let action = format!("cannot open '{}'", open.pool.name());
                Refusal::new(RefusalKind::Corrupt, action, cause.to_string())
            })?);
        }
        Ok(Described { pools })
    }
}

/// Whether the pool is suspended, and what becomes of writers.
fn suspended(pool: &Pool) -> Option<Suspended> {
    pool.failure().map(|_| match pool.fails_writers() {
        true => Suspended::Continue,
        false => Suspended::Wait,
    })
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
    let condition = find(&Evidence {
        health: &health,
        facts: &facts,
        features: Some(&features),
        import: None,
        error_count,
        suspended,
    });
    let errors = match with_errors {
        true => errors::paths(pool, &damaged, operation),
        false => Vec::new(),
    };
    Ok(PoolDescription {
        name: pool.name().to_string(),
        guid: facts.guid.get(),
        properties: properties::describe(open, &state, operation)?,
        state,
        txg: pool.uberblock().txg.get(),
        condition,
        root: root_status(&health),
        scan: scan::text(pool, operation)?,
        sections: scan::sections(open, operation)?,
        layout: layout_of_pool(open, &health),
        error_count,
        errors,
        dedup: dedup::tables(pool, operation)?,
        ..PoolDescription::default()
    })
}
