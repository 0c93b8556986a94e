//! `zpool destroy`: marks a pool as destroyed. Until its devices are used again, `zpool import -D`
//! brings it back. A pool that was imported read-only is closed, and its labels stay as they are.

use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::pool::Destroy;
use crate::messages::{Done, Refusal, RefusalKind};
use tarn_engine::mounting::unmount::POOL_IS_BUSY;
use tarn_engine::refusals::of_task;
use tarn_pool::Leaving;
use tarn_probe::Operation;

impl Administrator {
    pub(crate) fn destroy(
        &self,
        call: &Call,
        request: &Destroy,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let name = &request.name;
        let open = self.engine.require_pool(name)?;
        let action = || format!("cannot destroy '{name}'");
        if request.force {
            open.streams.stop();
        }
        // Its devices are gone, so the labels cannot be marked. The pool is closed as by a forced
        // export.
        if request.force && self.engine.give_up_if_stuck(&open.pool) {
            let gone = self.engine.let_go(&open, Leaving::Destroyed, operation);
            return gone.map(|()| Done {});
        }
        let _turn = self.engine.turn(&open)?;
        open.end_streams(request.force, action())?;
        let unmounted = self.engine.unmount_pool(&open, request.force, action);
        unmounted.map_err(|refusal| {
            if refusal.reason == POOL_IS_BUSY {
                return refusal;
            }
            let reason = "could not unmount datasets";
            let headline = format!("could not destroy '{name}'");
            let hint = refusal.to_string();
            Refusal::new(RefusalKind::Busy, headline, reason).with_hint(hint)
        })?;
        self.record_command(call, name, operation);
        let left: Vec<_> = self.engine.cache_file_of(&open).into_iter().collect();
        let closed = open.pool.close(Leaving::Destroyed, operation);
        self.engine.remove_pool(name);
        self.engine.remember_pools(&left)?;
        match closed {
            // The calls that waited for unstored data have failed already.
            Err(_) if request.force && open.pool.failure().is_some() => Ok(Done {}),
            Err(error) => Err(of_task(action(), &error)),
            Ok(()) => Ok(Done {}),
        }
    }
}
