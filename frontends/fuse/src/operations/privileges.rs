//! Set-id bits and capabilities, which a file loses when its contents or its owner change.

use super::{Call, refused};
use crate::protocol::UNKNOWN_USER;
use crate::session::Place;
use rustix::io::Errno;
use tarn_engine::files::{Actor, Credentials, Privileges, actor_of_process};

impl Call<'_> {
    /// Whether the caller is root.
    pub(super) fn is_by_root(&self) -> bool {
        match self.credentials.uid {
            UNKNOWN_USER => actor_of_process(self.process).is_some_and(|actor| actor.uid == 0),
            uid => uid == 0,
        }
    }

    /// Before a change of contents or owner: removes capabilities, and set-id bits unless the
    /// caller may keep them. The kernel's cached mode is dropped, since it decides under which user
    /// a program runs.
    pub(super) fn drop_privileges(&self, file: &Place, set_ids_too: bool) -> Result<(), Errno> {
        self.drop_privileges_of(file, self.node, set_ids_too)
    }

    /// Whether a file has set-id bits that the caller may not keep, for changes of contents whose
    /// requests have no flag for that; root may keep them.
    pub(super) fn takes_set_ids(&self, file: &Place) -> Result<bool, Errno> {
        Ok(self.has_set_ids(file)? && !self.is_by_root())
    }

    /// Removes the set-id bits of a file for its owner, and for root: the kernel sends
    /// `chown(-1, -1)` as a `SETATTR` of no attribute, and has not checked the caller.
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

    /// The caller with its groups, if its process is visible from here.
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

    /// The same for the file of this node.
    pub(super) fn drop_privileges_of(
        &self,
        file: &Place,
        node: u64,
        set_ids_too: bool,
    ) -> Result<(), Errno> {
        // The kernel has not checked this, so the caller's real credentials decide. They are looked
        // up only where the file has set-id bits.
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
