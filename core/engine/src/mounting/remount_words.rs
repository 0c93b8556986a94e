//! `-o remount`: changes the options of a mount while it is used.
//!
//! As with `mount -o remount` of a file system in `/etc/fstab`, only the words and the properties
//! count: an earlier option that the words do not repeat has ended.

use super::cannot_open;
use super::mount::{INVALID_ARGUMENT, cannot_mount, entry_of, mount_refusal};
use super::mount_values::Values;
use crate::engine::{Engine, OpenPool};
use crate::mount_options::TemporaryOptions;
use crate::mounting::requests::{Mount, Mounted as MountedReply};
use crate::mounts::{MountRefusal, Mounted};
use crate::refusals::{Refusal, RefusalKind};
use std::sync::Arc;
use tarn_pool::Mode;
use tarn_probe::Operation;

impl Engine {
    /// Sets these options on the mount of a dataset, and with `-r` on those of all datasets below
    /// it.
    pub(super) fn remount_by_words(
        &self,
        open: &Arc<OpenPool>,
        request: &Mount,
        temporary: TemporaryOptions,
        operation: &Operation,
    ) -> Result<MountedReply, Refusal> {
        let name = request.name.as_deref().unwrap_or(open.pool.name());
        let below = format!("{name}/");
        let mut mounts = open.all_served();
        mounts.retain(|(dataset, served)| {
            (dataset == name || (request.recursive && dataset.starts_with(&below)))
                && open.is_mounted(served)
        });
        let mut reply = MountedReply::default();
        if mounts.is_empty() {
            let (action, kind) = (cannot_mount(name), RefusalKind::Invalid);
            return Err(Refusal::new(kind, action, INVALID_ARGUMENT));
        }
        for (dataset, served) in mounts {
            self.remount_one(open, &dataset, &served, temporary, operation)?;
            reply.mounts.push(entry_of(&dataset, &served.path));
        }
        Ok(reply)
    }

    fn remount_one(
        &self,
        open: &Arc<OpenPool>,
        name: &str,
        served: &Mounted,
        mut temporary: TemporaryOptions,
        operation: &Operation,
    ) -> Result<(), Refusal> {
        if open.pool.mode() == Mode::ReadOnly {
            temporary.read_only = Some(true);
        }
        let view = open.pool.namespace().view(operation);
        let head = view.directory(name).and_then(|found| found.head());
        let head = head.map_err(|error| cannot_open(name, &error))?;
        let Some(head) = head else { return Ok(()) };
        let values = Values::read(&head).map_err(|error| cannot_open(name, &error))?;
        let refused = |refusal: MountRefusal| mount_refusal(name, &refusal);
        let options = values.mount_options(&temporary);
        if options.read_only && !served.options.read_only {
            // After the remount to read-only, dirty pages could not be written any more.
            self.mounter.write_back(served.key).map_err(refused)?;
        }
        let changed = self
            .mounter
            .change_options(served.key, &served.place, options);
        changed.map_err(refused)?;
        served
            .held
            .tree()
            .set_properties(values.mount_properties(&temporary));
        self.mounter.properties_changed(served.key);
        open.mounts.lock().change(name, |served| {
            (served.options, served.temporary) = (options, temporary);
        });
        Ok(())
    }
}
