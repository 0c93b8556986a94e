//! `zpool add`: adds top-level vdevs.

use super::create::planned_layout;
use super::vdev_status::layout_of_pool;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::create::devices::{self, Asking, Layout, Redundancy, SAME_DEVICE};
use crate::messages::pool::{Add, Created};
use crate::messages::{Refusal, RefusalKind};
use tarn_engine::refusals::of_task;
use tarn_pool::Mode;
use tarn_pool::add::AddError;
use tarn_probe::Operation;
use tarn_vdev::VdevConfig;

/// The accepted values of `ashift`.
const ASHIFT_RANGE: std::ops::RangeInclusive<u32> = 9..=16;

impl Administrator {
    pub(crate) fn add(
        &self,
        call: &Call,
        request: &Add,
        operation: &Operation,
    ) -> Result<Created, Refusal> {
        let action = format!("cannot add to '{}'", request.name);
        let open = self.engine.require_pool(&request.name)?;
        let _turn = self.engine.turn(&open)?;
        if open.pool.mode() == Mode::ReadOnly {
            return Err(Refusal::new(
                RefusalKind::ReadOnly,
                action,
                "pool is read-only",
            ));
        }
        let ashift = ashift_of(&request.properties)
            .map_err(|reason| Refusal::new(RefusalKind::Invalid, action.clone(), reason))?;
        let current = open.pool.vdevs().config();
        let asking = Asking {
            action: &action,
            force: request.force || request.allow_in_use,
            use_here: &|found| self.use_here(found),
            own_mount: &|path| self.engine.own_mount_below(path),
            redundancy: match request.force || request.allow_replication_mismatch {
                true => Redundancy::Any,
                false => Redundancy::Even(Some(&current)),
            },
        };
        let layout = devices::check(&self.engine.host, &request.vdevs, &asking)?;
        let auxiliary = open.pool.vdevs().auxiliary();
        let is_listed = |new: &VdevConfig| auxiliary.iter().any(|old| old.path == new.path);
        if layout.spares.iter().chain(&layout.caches).any(is_listed) {
            return Err(Refusal::new(RefusalKind::Busy, action, SAME_DEVICE));
        }
        if request.dry_run {
            return Ok(Created {
                layout: planned_layout(&request.vdevs),
                ..Created::default()
            });
        }
        if !(request.force || request.allow_ashift_mismatch) {
            self.refuse_other_sectors(&current, &layout, ashift, &action)?;
        }
        let refuse = |error| match error {
            AddError::Pool(error) => of_task(action.clone(), &error),
            other => Refusal::new(RefusalKind::Device, action.clone(), other.to_string()),
        };
        if !layout.vdevs.is_empty() {
            let added = open.pool.add(&layout.vdevs, ashift, operation);
            added.map_err(refuse)?;
        }
        if !layout.spares.is_empty() {
            let added = open.pool.add_spares(&layout.spares, operation);
            added.map_err(refuse)?;
        }
        if !layout.caches.is_empty() {
            let added = open.pool.add_caches(&layout.caches, ashift, operation);
            added.map_err(refuse)?;
        }
        self.engine.remember_pools(&[])?;
        self.record_command(call, &request.name, operation);
        Ok(Created {
            layout: layout_of_pool(&open, &open.pool.vdevs().health()),
            ..Created::default()
        })
    }
}

impl Administrator {
    /// Refuses vdevs whose ashift differs from the pool's, where all of the pool's are alike.
    fn refuse_other_sectors(
        &self,
        current: &VdevConfig,
        layout: &Layout,
        ashift: Option<u32>,
        action: &str,
    ) -> Result<(), Refusal> {
        let facts = current
            .children
            .iter()
            .filter_map(|top| top.top_level.as_ref());
        let mut shifts = facts
            .filter(|facts| !facts.is_log && facts.ashift != 0)
            .map(|facts| facts.ashift);
        let Some(shift) = shifts
            .next()
            .filter(|shift| shifts.all(|other| other == *shift))
        else {
            return Ok(());
        };
        let new = layout.vdevs.iter().filter(|vdev| !vdev.is_log);
        let mut new = new.filter_map(|vdev| {
            ashift.or_else(|| devices::natural_ashift(&self.engine.host, &vdev.config))
        });
        match new.any(|other| other != shift) {
            true => Err(Refusal::new(
                RefusalKind::Invalid,
                action,
                "adding devices with different physical sector sizes is not allowed",
            )),
            false => Ok(()),
        }
    }
}

/// The requested `ashift`.
pub(super) fn ashift_of(properties: &[(String, String)]) -> Result<Option<u32>, String> {
    let mut ashift = None;
    for (name, value) in properties {
        if name != "ashift" {
            return Err(format!("property '{name}' cannot be set when adding vdevs"));
        }
        let number: u32 = value
            .parse()
            .map_err(|_| format!("bad numeric value '{value}'"))?;
        if number != 0 && !ASHIFT_RANGE.contains(&number) {
            let (least, most) = (ASHIFT_RANGE.start(), ASHIFT_RANGE.end());
            return Err(format!(
                "property '{name}' number {number} is invalid, only values between {least} and {most} are allowed."
            ));
        }
        ashift = Some(number).filter(|number| *number != 0);
    }
    Ok(ashift)
}
