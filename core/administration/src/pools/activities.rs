//! `zpool wait`: what goes on in a pool by itself, and how much of it is left.
//!
//! # Mechanism
//! A caller that waits gets its answer when nothing of what it asked for goes on any more, or after
//! a second; then it asks again. So a waiting command holds a thread of the daemon only while the
//! command lives.

use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::pool::{Activities, Activity, ListActivities, UnderWay};
use crate::messages::{Refusal, RefusalKind};
use std::time::Duration;
use tarn_engine::engine::OpenPool;
use tarn_ondisk::scan::{RESILVER, SCRUB};
use tarn_pool::checkpoint::{CheckpointState, CheckpointStatus};
use tarn_pool::initialize_trim::FreeSpaceWork;
use tarn_pool::{PoolError, RebuildStatus};
use tarn_probe::Operation;
use tarn_vdev::{VdevConfig, VdevKind};

/// How long an answer may wait for the end of what goes on.
const PATIENCE: Duration = Duration::from_secs(1);

/// Interval at which it looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

impl Administrator {
    /// What goes on in a pool.
    #[doc(alias("spa_wait", "spa_activity_in_progress"))]
    pub(crate) fn pool_activities(
        &self,
        call: &Call,
        request: &ListActivities,
        operation: &Operation,
    ) -> Result<Activities, Refusal> {
        let open = self.engine.require_pool(&request.name)?;
        let asked = match request.activities.as_slice() {
            [] => &Activity::ALL,
            asked => asked,
        };
        let mut waited = Duration::ZERO;
        loop {
            let under_way = asked.iter().filter_map(|activity| {
                let left = left_bytes(&open, *activity, &request.devices, operation);
                let left = left.transpose()?;
                Some(left.map(|left_bytes| UnderWay {
                    activity: *activity,
                    left_bytes,
                }))
            });
            let under_way = under_way.collect::<Result<Vec<_>, PoolError>>();
            let under_way = under_way.map_err(|error| {
                let action = format!("failed to wait for activity in '{}'", request.name);
                Refusal::new(RefusalKind::Device, action, error.to_string())
            })?;
            let is_over = under_way.is_empty() || !request.wait || waited >= PATIENCE;
            if is_over || call.presence.has_ended() || self.engine.events.is_closed() {
                return Ok(Activities { under_way });
            }
            self.engine.host.sleep(LOOK_INTERVAL);
            waited += LOOK_INTERVAL;
        }
    }
}

/// How many bytes are left of an activity; none where it does not go on.
fn left_bytes(
    open: &OpenPool,
    activity: Activity,
    devices: &[u64],
    operation: &Operation,
) -> Result<Option<u64>, PoolError> {
    let pool = &open.pool;
    Ok(match activity {
        Activity::Discard => {
            let checkpoint = pool.checkpoint_status();
            let is_discarded = |of: &CheckpointStatus| of.state == CheckpointState::Discarding;
            checkpoint.filter(is_discarded).map(|of| of.bytes)
        }
        Activity::Free => match pool.namespace().has_more_to_free(operation)? {
            true => Some(super::properties::freeing_bytes(pool, operation)?),
            false => None,
        },
        Activity::Replace => is_any(&pool.vdevs().config(), |vdev| match vdev.kind {
            VdevKind::Replacing => true,
            // A hot spare that has everything stays.
            VdevKind::Spare => {
                vdev.children.len() > 2 || pool.vdevs().births_to_resilver().is_some()
            }
            _ => false,
        })
        .then(|| running_rebuilds(open).or_else(|| running_scan(open, RESILVER)))
        .map(Option::unwrap_or_default),
        Activity::Remove => is_any(&pool.vdevs().config(), is_removed).then_some(0),
        Activity::Resilver => running_rebuilds(open).or_else(|| running_scan(open, RESILVER)),
        Activity::Scrub => running_scan(open, SCRUB).or_else(|| {
            let known = open.pool.error_scrub().0;
            let runs = known.is_running() && !known.is_paused();
            runs.then_some(known.to_examine)
        }),
        Activity::Initialize => pool.work_left(FreeSpaceWork::Initialize, devices),
        Activity::Trim => pool.work_left(FreeSpaceWork::Trim, devices),
        // Pools where a raidz vdev is being expanded are not imported, and nothing begins that.
        Activity::RaidzExpand => None,
    })
}

/// The bytes left of a scan that runs and is not paused.
fn running_scan(open: &OpenPool, function: u64) -> Option<u64> {
    let status = open.pool.scan_status()?;
    let is_it = status.scan.function == function && status.is_running() && !status.is_paused();
    let of = status.scan.to_examine_bytes;
    is_it.then(|| of.saturating_sub(status.issued_bytes()))
}

/// The bytes left of all rebuilds that are active.
fn running_rebuilds(open: &OpenPool) -> Option<u64> {
    let status = open.pool.rebuild_status().into_iter();
    let left = status.filter(RebuildStatus::is_active);
    left.map(|status| status.left_bytes())
        .reduce(u64::saturating_add)
}

fn is_any(root: &VdevConfig, is_it: impl Fn(&VdevConfig) -> bool) -> bool {
    root.walk().into_iter().any(is_it)
}

fn is_removed(vdev: &VdevConfig) -> bool {
    vdev.top_level.as_ref().is_some_and(|top| top.removing)
}
