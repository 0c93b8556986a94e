//! `zfs share` and `zfs unshare`: only privileged callers, as OpenZFS needs root for them.

use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::dataset::{Share, Shared, Unshare, Unshared};
use crate::messages::{Refusal, RefusalKind};
use tarn_probe::Operation;

impl Administrator {
    pub(crate) fn share(
        &self,
        call: &Call,
        request: &Share,
        operation: &Operation,
    ) -> Result<Shared, Refusal> {
        self.permit_sharing(call, "share", request.name.as_deref())?;
        self.engine.share(request, operation)
    }

    pub(crate) fn unshare(
        &self,
        call: &Call,
        request: &Unshare,
        operation: &Operation,
    ) -> Result<Unshared, Refusal> {
        self.permit_sharing(call, "unshare", request.name.as_deref())?;
        self.engine.unshare(request, operation)
    }

    fn permit_sharing(&self, call: &Call, verb: &str, name: Option<&str>) -> Result<(), Refusal> {
        if self.trusts(&call.caller) {
            return Ok(());
        }
        let action = name.map_or(String::new(), |name| format!("cannot {verb} '{name}'"));
        Err(Refusal::new(
            RefusalKind::Denied,
            action,
            "permission denied",
        ))
    }
}
