//! `zpool labelclear`: removes ZFS's labels from a device that no pool uses.

use crate::administrator::Administrator;
use crate::create::devices::UseHere;
use crate::messages::pool::LabelClear;
use crate::messages::{Done, Refusal, RefusalKind};
use std::path::Path;
use tarn_host::{FileKind, OpenMode};
use tarn_vdev::in_use::{LabelledUse, labelled_use};
use tarn_vdev::labels::clear_valid_labels;
use tarn_vdev::{PoolState, Window, open_window};

impl Administrator {
    pub(crate) fn clear_label(&self, request: &LabelClear) -> Result<Done, Refusal> {
        let _changes = self.engine.changes.lock();
        let device = &request.device;
        let failed = |reason: String| {
            let action = format!("failed to open {device}");
            Refusal::new(RefusalKind::Device, action, reason)
        };
        match self.engine.host.file_kind(Path::new(device)) {
            FileKind::File | FileKind::BlockDevice => {}
            FileKind::Directory => return Err(failed("Is a directory".to_string())),
            FileKind::Other => return Err(failed("No such file or directory".to_string())),
        }
        let open = |mode| {
            open_window(&self.engine.host, Path::new(device), mode)
                .map_err(|error| failed(error.to_string()))
        };
        let window = open(OpenMode::ReadOnly)?;
        let Some(found) = labelled_use(&window) else {
            let reason = format!("failed to read label from {device}");
            return Err(Refusal::new(RefusalKind::NotFound, "", reason));
        };
        self.refuse_used(device, &found, request.force)?;
        drop(window);
        let window: Window = open(OpenMode::ReadWriteExclusive)?;
        clear_valid_labels(&window).map_err(|error| {
            let action = format!("failed to clear label for {device}");
            Refusal::new(RefusalKind::Device, action, error.to_string())
        })?;
        Ok(Done {})
    }

    /// Refuses a device that a pool uses, or may use.
    fn refuse_used(&self, device: &str, found: &LabelledUse, force: bool) -> Result<(), Refusal> {
        let pool = found.pool_name.as_ref().map(ToString::to_string);
        let pool = pool.unwrap_or_default();
        let use_here = self.use_here(found);
        let is_member_of = |state: &str| format!("{device} is a member of {state} pool \"{pool}\"");
        let overridable = |state: &str| {
            let headline = "use '-f' to override the following error";
            let refusal = Refusal::new(RefusalKind::Busy, "", format!("{headline}:"));
            Err(refusal.with_hint(is_member_of(state)))
        };
        match found.state {
            _ if use_here == UseHere::Left => Ok(()),
            _ if use_here == UseHere::Member => {
                let text = format!("{device} is a member (ACTIVE) of pool \"{pool}\"");
                let cure = ". Offline the disk first to clear its label.";
                let text = if force { format!("{text}{cure}") } else { text };
                Err(Refusal::new(RefusalKind::Busy, "", text))
            }
            PoolState::Spare | PoolState::Cache => {
                let UseHere::Beside(pool) = use_here else {
                    return Ok(());
                };
                let kind = match found.state {
                    PoolState::Spare => "SPARE",
                    _ => "L2CACHE",
                };
                let text = format!("{device} is a member ({kind}) of pool \"{pool}\"");
                Err(Refusal::new(RefusalKind::Busy, "", text))
            }
            PoolState::Destroyed => Ok(()),
            PoolState::Active if found.txg.is_zero() => Ok(()),
            _ if force => Ok(()),
            PoolState::Exported => overridable("exported"),
            PoolState::Active => overridable("potentially active"),
            PoolState::Other(_) => {
                let text = format!("{device} is a member (UNKNOWN) of pool \"{pool}\"");
                Err(Refusal::new(RefusalKind::Busy, "", text))
            }
        }
    }
}
