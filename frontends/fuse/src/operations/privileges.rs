//! Set-id bits and capabilities, which a file loses when its contents or its owner change.

use super::{Call, refused};
use crate::protocol::UNKNOWN_USER;
use crate::session::Place;
use rustix::io::Errno;
use tarn_engine::files::{Actor, Credentials, Privileges, actor_of_process};

impl Call<'_> {
    /// Whether root asks.
    pub(super) fn is_by_root(&self) -> bool {
        match self.credentials.uid {
            UNKNOWN_USER => actor_of_process(self.process).is_some_and(|actor| actor.uid == 0),
            uid => uid == 0,
        }
    }

    /// Before contents or owner change: takes capabilities, and set-id bits unless the caller may keep them. The kernel must not go on
    /// with the mode it knew, for it decides by that what a program runs as.
    pub(super) fn drop_privileges(&self, file: &Place, set_ids_too: bool) -> Result<(), Errno> {
        self.drop_privileges_of(file, self.node, set_ids_too)
    }

    /// Whether a file has set-id bits that the caller may not keep when he changes its contents in a way that leaves the kernel no place to say so; root may.
    pub(super) fn takes_set_ids(&self, file: &Place) -> Result<bool, Errno> {
        Ok(self.has_set_ids(file)? && !self.is_by_root())
    }

    /// Takes the set-id bits of a file for its owner, and for root: with `chown(-1, -1)` the kernel says that attributes are set, and none. It has not checked
    /// who asks.
    pub(super) fn take_set_ids_for_owner(&self, file: &Place) -> Result<(), Errno> {
        if !self.has_set_ids(file)? {
            return Ok(());
        }
        let attributes = file.files.attributes(file.id, self.operation);
        let (caller, owner) = (self.caller(), attributes.map_err(refused)?.uid);
        match caller.privileged || caller.uid == owner {
            true => self.drop_privileges(file, true),
            false => Ok(()),
        }
    }

    fn has_set_ids(&self, file: &Place) -> Result<bool, Errno> {
        const SET_IDS: u32 = 0o6000;
        let attributes = file.files.attributes(file.id, self.operation);
        Ok(attributes.map_err(refused)?.permissions & SET_IDS != 0)
    }

    /// Who asks, with his groups, where his process can be seen from here.
    fn caller(&self) -> Credentials {
        let told = self.credentials.clone();
        let Actor { uid, gid, groups } = actor_of_process(self.process).unwrap_or(Actor {
            uid: told.uid,
            gid: told.gid,
            groups: told.groups,
        });
        Credentials {
            privileged: uid == 0,
            ..Credentials::user(uid, gid, groups)
        }
    }

    /// The same of a file that the kernel calls so.
    pub(super) fn drop_privileges_of(
        &self,
        file: &Place,
        node: u64,
        set_ids_too: bool,
    ) -> Result<(), Errno> {
        // What the kernel leaves to us is decided by who really asks: it has not checked this for him. That is looked up only where it matters.
        let (which, caller) = match set_ids_too && self.has_set_ids(file)? {
            true => (Privileges::All, self.caller()),
            false => (Privileges::Capabilities, self.credentials.clone()),
        };
        let dropped = file
            .files
            .drop_privileges(&caller, file.id, which, self.operation);
        if dropped.map_err(refused)? {
            let _ = self.device.forget_attributes(node);
        }
        Ok(())
    }
}
