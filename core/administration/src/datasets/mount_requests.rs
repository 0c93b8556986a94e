//! `zfs mount` and `zfs unmount`: checks the caller's permissions, and has the engine mount or
//! unmount.

use super::user_mounts::denied_mount;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::Refusal;
use crate::messages::dataset::{Mount, Mounted, Unmount, Unmounted};
use tarn_engine::mount_options::Words;
use tarn_engine::mounting::mount::unknown_option;
use tarn_probe::Operation;

impl Administrator {
    pub(crate) fn mount(
        &self,
        call: &Call,
        request: &Mount,
        operation: &Operation,
    ) -> Result<Mounted, Refusal> {
        match &request.name {
            Some(name) if !self.trusts(&call.caller) => {
                let words = Words::parse(&request.options).map_err(|_| unknown_option(name))?;
                if words != Words::default() || request.place.is_some() {
                    return Err(denied_mount(name));
                }
                return self.mount_for_user(call, name, operation);
            }
            Some(_) => {}
            None => self.permit_all_mounts(call)?,
        }
        self.engine.mount(request, operation)
    }

    pub(crate) fn unmount(
        &self,
        call: &Call,
        request: &Unmount,
        operation: &Operation,
    ) -> Result<Unmounted, Refusal> {
        self.permit_unmount(call, request.name.as_deref())?;
        self.engine.unmount(request, operation)
    }
}
