//! Taking a pool with `multihost` over: at import, and when a suspended pool is resumed.

use super::claim::claim;
use super::settings::{Settings, shows_itself};
use super::show::read;
use super::watch::{Watched, watch};
use crate::error::ImportError;
use crate::import::ImportRequest;
use crate::pool::Pool;
use crate::suspend::ResumeRefusal;
use std::sync::Arc;
use std::time::Duration;
use tarn_host::Host;
use tarn_ondisk::uberblock::Uberblock;
use tarn_probe::Operation;
use tarn_vdev::{PoolState, VdevTree};

/// Watches a pool that is to be opened for writing. Gives its newest uberblock.
///
/// # Errors
/// Another host uses it, or the caller gave up.
#[doc(alias("spa_activity_check_required", "spa_activity_check_tryimport"))]
pub(crate) fn watch_for_others(
    host: &Host,
    request: &ImportRequest<'_>,
    vdevs: &VdevTree,
) -> Result<Option<Uberblock>, ImportError> {
    let facts = &request.candidate.facts;
    let own_id = request.owner.host_id;
    let is_ours = own_id != 0 && facts.host_id == own_id;
    let is_left = facts.state == PoolState::Exported && is_ours;
    if is_left || facts.state == PoolState::Destroyed {
        return Ok(vdevs.newest_uberblock());
    }
    match watch(host, || vdevs.newest_uberblock(), request.goes_on) {
        Watched::Silent(newest) => Ok(newest),
        Watched::Written => Err(ImportError::InUseElsewhere),
        Watched::GivenUp => Err(ImportError::CallerGone),
    }
}

impl Pool {
    /// Claims the pool, if it has `multihost`, and shows it in use from now on. Called before
    /// anything is written.
    ///
    /// # Errors
    /// Another host has written it since it was watched; or this host has no id.
    pub(crate) fn enter_multihost(
        self: &Arc<Self>,
        watched: Option<Uberblock>,
        operation: &Operation,
    ) -> Result<(), ImportError> {
        let stored = read(self.directory(operation))?;
        let shown = watched.as_ref().is_some_and(shows_itself);
        let Some(settings) = stored.or(shown.then(Settings::default)) else {
            return Ok(());
        };
        if self.owner().host_id == 0 {
            return Err(ImportError::NoHostId);
        }
        let watched = watched.ok_or(ImportError::NoUberblock)?;
        let claimed = claim(self.host(), self.vdevs(), settings, &watched);
        let claimed = claimed.ok_or(ImportError::WrittenElsewhere)?;
        self.heartbeats.note_claim(&claimed);
        self.show_itself(Some(settings));
        Ok(())
    }

    /// How long it takes at most to take a pool back whose lease has expired.
    pub fn take_over_time_max(&self) -> Duration {
        let settings = self.heartbeats.settings().unwrap_or_default();
        // The watch takes up to two and a half leases, the claim half of one.
        Duration::from_nanos(settings.lease_ns().saturating_mul(4))
    }

    /// Takes a pool back whose lease has expired: no other host may have written it since, and none
    /// may use it now. That takes as long as an import.
    ///
    /// # Errors
    /// Another host has it, or has had it.
    pub(crate) fn take_back(&self) -> Result<(), ResumeRefusal> {
        assert!(
            self.vdevs().lease().has_expired(),
            "a pool is taken back whose lease has expired"
        );
        let settings = self.heartbeats.settings().unwrap_or_default();
        let newest = self.vdevs().newest_uberblock();
        let newest = newest.filter(|newest| self.heartbeats.is_own(newest));
        if newest.is_none() {
            return Err(ResumeRefusal::OtherHost);
        }
        let watched = watch(self.host(), || self.vdevs().newest_uberblock(), &|| true);
        match watched {
            Watched::Silent(Some(now)) if Some(now) == newest => {
                let claimed = claim(self.host(), self.vdevs(), settings, &now);
                let claimed = claimed.ok_or(ResumeRefusal::OtherHost)?;
                self.heartbeats.note_claim(&claimed);
                Ok(())
            }
            _ => Err(ResumeRefusal::OtherHost),
        }
    }
}
