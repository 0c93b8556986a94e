//! `zfs wait`: the activities of a file system that it waits for.

use super::set::kind_named;
use crate::administrator::Administrator;
use crate::messages::dataset::{Activities, DatasetKind, ListActivities};
use crate::messages::{Refusal, RefusalKind};
use tarn_engine::files::Tree;
use tarn_probe::Operation;

impl Administrator {
    /// A file system that is not mounted, or is read-only, has no activity.
    #[doc(alias = "dsl_dir_activity_in_progress")]
    pub(crate) fn list_activities(
        &self,
        request: &ListActivities,
        operation: &Operation,
    ) -> Result<Activities, Refusal> {
        let name = &request.name;
        let open = self.engine.require_pool_of(name)?;
        if kind_named(&open, name, operation)? != DatasetKind::Filesystem {
            let action = format!("cannot open '{name}'");
            let reason = "operation not applicable to datasets of this type";
            return Err(Refusal::new(RefusalKind::Invalid, action, reason));
        }
        let Some(mounted) = open.mount_of(name) else {
            return Ok(Activities::default());
        };
        let files = mounted.held.files();
        let delete_queue = match files.properties().is_read_only {
            true => false,
            false => files.has_unlinked(operation).map_err(|error| {
                let action = format!("failed to wait for activity in '{name}'");
                Refusal::new(RefusalKind::Device, action, error.to_string())
            })?,
        };
        Ok(Activities { delete_queue })
    }
}
