//! `zpool clear`: forgets errors of devices, and goes on after a suspension.

use crate::engine::Engine;
use crate::messages::pool::Clear;
use crate::messages::{Done, Refusal, RefusalKind};

impl Engine {
    pub(crate) fn clear(&self, request: &Clear) -> Result<Done, Refusal> {
        let open = self.require_pool(&request.name)?;
        if let Some(why) = open.pool.failure() {
            let action = format!("cannot clear errors for {}", request.name);
            let cure = "use 'zpool export -f' and 'zpool import' once its devices are back";
            let reason =
                format!("resuming a suspended pool is not supported by this version ({why})");
            let refusal = Refusal::new(RefusalKind::Unsupported, action, reason);
            return Err(refusal.with_hint(cure));
        }
        let vdevs = open.pool.vdevs();
        let Some(device) = &request.device else {
            vdevs.clear_errors(None);
            return Ok(Done {});
        };
        let root = vdevs.config();
        let wanted = root.walk().into_iter().find(|vdev| {
            let path = vdev.path.as_ref().and_then(|path| path.as_str());
            let is_path = path.is_some_and(|path| {
                path == device || path.rsplit('/').next() == Some(device.as_str())
            });
            is_path || vdev.guid.to_string() == *device
        });
        let Some(vdev) = wanted else {
            let action = format!("cannot clear errors for {device}");
            return Err(Refusal::new(
                RefusalKind::NotFound,
                action,
                "no such device in pool",
            ));
        };
        vdevs.clear_errors(Some(vdev.guid));
        Ok(Done {})
    }
}
