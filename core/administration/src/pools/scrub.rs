//! `zpool scrub` and `zpool resilver`.

use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::scan::{Resilver, Scrub, ScrubAction, Scrubbed};
use crate::messages::{Done, Refusal, RefusalKind};
use tarn_engine::refusals::of_task;
use tarn_pool::{ScanChange, ScanRefusal};
use tarn_probe::Operation;

impl Administrator {
    pub(crate) fn scrub(
        &self,
        call: &Call,
        request: &Scrub,
        operation: &Operation,
    ) -> Result<Scrubbed, Refusal> {
        let name = &request.name;
        let (verb, change) = match request.action {
            ScrubAction::Start => ("scrub", ScanChange::Scrub),
            ScrubAction::StartFromLast => ("scrub", ScanChange::ScrubFromLast),
            ScrubAction::StartBetween { start_s, end_s } => {
                ("scrub", ScanChange::ScrubBetween { start_s, end_s })
            }
            ScrubAction::StartErrors => ("scrub", ScanChange::ErrorScrub),
            ScrubAction::Pause => ("pause scrubbing", ScanChange::Pause),
            ScrubAction::Stop => ("cancel scrubbing", ScanChange::Stop),
        };
        let open = self.engine.require_pool(name)?;
        let changed = open.pool.change_scan(change, operation);
        of_scan(format!("cannot {verb} {name}"), changed)?;
        self.record_command(call, name, operation);
        let starts = matches!(
            request.action,
            ScrubAction::Start | ScrubAction::StartFromLast | ScrubAction::StartBetween { .. }
        );
        Ok(Scrubbed {
            has_checkpoint: starts && open.pool.checkpoint_status().is_some(),
        })
    }

    pub(crate) fn resilver(
        &self,
        call: &Call,
        request: &Resilver,
        operation: &Operation,
    ) -> Result<Done, Refusal> {
        let name = &request.name;
        let open = self.engine.require_pool(name)?;
        let changed = open.pool.change_scan(ScanChange::Resilver, operation);
        of_scan(format!("cannot restart resilver on {name}"), changed)?;
        self.record_command(call, name, operation);
        Ok(Done {})
    }
}

/// The refusal to change a scan, in OpenZFS's words.
fn of_scan(
    action: String,
    changed: Result<Result<(), ScanRefusal>, tarn_pool::TaskError>,
) -> Result<(), Refusal> {
    let refusal = match changed {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(refusal)) => refusal,
        Err(error) => return Err(of_task(action, &error)),
    };
    let kind = match refusal {
        ScanRefusal::NoScan => RefusalKind::NotFound,
        ScanRefusal::NoResilverDefer => RefusalKind::Unsupported,
        _ => RefusalKind::Busy,
    };
    Err(Refusal::new(kind, action, refusal.to_string()))
}
