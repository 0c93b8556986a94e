//! Operations on attributes, extended attributes and access control lists.

use crate::checks::id_of;
use crate::model::ModelFile;
use crate::nfs_clients::Changes;
use crate::world::{Deed, Fault, Side, World, failed, refused, said};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags};
use std::os::unix::fs::PermissionsExt;
use tarn_engine::files::{FileKind, SetAttributes, SetTime, Timestamp, XattrMode};

const ACL: &str = "system.posix_acl_access";

/// An access control list that gives owner, mask and others these bits.
fn acl_of(permissions: u32) -> Vec<u8> {
    let bits = |shift: u32| u8::try_from((permissions >> shift) & 7).unwrap();
    let none = u32::MAX;
    let mut bytes = vec![2, 0, 0, 0];
    for (tag, permissions, id) in [
        (1, bits(6), none),
        (2, 4, 1000),
        (4, 0, none),
        (16, bits(3), none),
        (32, bits(0), none),
    ] {
        bytes.extend([tag, 0, permissions, 0]);
        bytes.extend(u32::to_le_bytes(id));
    }
    bytes
}

impl World {
    pub fn set_attributes(&mut self, deed: Deed, side: Side) -> Result<(), Fault> {
        let Some((directory, name, id)) =
            self.any_entry(|file| file.kind != FileKind::SymbolicLink)
        else {
            return Ok(());
        };
        self.check_file(id)?;
        let path = self.path(directory, &name);
        self.tell(format!("{path:?}"));
        let is_directory = self.model.files[&id].is_directory();
        let permissions = match (is_directory, self.chance.below(4)) {
            (true, _) => 0o700 | self.chance.below(0o100),
            (false, 0) => 0o6755,
            (false, _) => self.chance.below(0o1000),
        };
        let (uid, gid) = (self.chance.below(3) * 500, self.chance.below(3) * 500);
        let time = Timestamp {
            seconds: i64::from(self.chance.below(1 << 30)),
            nanoseconds: self.chance.below(1_000_000_000),
        };
        let file = self.model.files.get_mut(&id).unwrap();
        let mut changes = SetAttributes::default();
        match deed {
            Deed::Chmod => {
                changes.permissions = Some(permissions);
                file.permissions = permissions;
            }
            Deed::Chown => {
                (changes.uid, changes.gid) = (Some(uid), Some(gid));
                (file.uid, file.gid) = (uid, gid);
            }
            _ => changes.modified = Some(SetTime::To(time)),
        }
        if let Some(list) = file.xattrs.get_mut(ACL) {
            *list = acl_of(file.permissions);
        }
        match (side, deed) {
            (Side::Nfs(which), _) => {
                let is = |wanted: Deed| deed == wanted;
                let seconds = u32::try_from(time.seconds).expect("it was drawn so");
                let changes = Changes {
                    mode: is(Deed::Chmod).then_some(permissions),
                    owner: is(Deed::Chown).then_some((uid, gid)),
                    modified: is(Deed::Times).then_some((seconds, time.nanoseconds)),
                    size: None,
                };
                self.change_by_nfs(which, id, changes)?;
            }
            (Side::Direct, _) => {
                let operation = self.operation(Some(deed));
                let set = (self.files).set_attributes(&self.user, id_of(id), &changes, &operation);
                set.map_err(refused)?;
            }
            (Side::Mount, Deed::Chmod) => {
                let permissions = std::fs::Permissions::from_mode(permissions);
                std::fs::set_permissions(&path, permissions).map_err(failed)?;
            }
            (Side::Mount, Deed::Chown) => {
                std::os::unix::fs::chown(&path, Some(uid), Some(gid)).map_err(failed)?;
            }
            (Side::Mount, _) => {
                let times = Timestamps {
                    last_access: Timespec {
                        tv_sec: 0,
                        tv_nsec: rustix::fs::UTIME_OMIT,
                    },
                    last_modification: Timespec {
                        tv_sec: time.seconds,
                        tv_nsec: time.nanoseconds.into(),
                    },
                };
                rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).map_err(said)?;
            }
        }
        if deed == Deed::Chown {
            let permissions = self.permissions_without_set_ids(id)?;
            self.model.files.get_mut(&id).unwrap().permissions = permissions;
        }
        self.check_file(id)
    }

    pub fn set_xattr(&mut self, deed: Deed, side: Side) -> Result<(), Fault> {
        let has = |file: &ModelFile| file.xattrs.contains_key("user.x");
        let found = self.any_entry(|file| match deed {
            Deed::RemoveXattr => has(file),
            _ => file.kind != FileKind::SymbolicLink,
        });
        let Some((directory, name, id)) = found else {
            return Ok(());
        };
        self.check_file(id)?;
        let path = self.path(directory, &name);
        self.tell(format!("{path:?}"));
        let mut length = 1 + self.chance.index(200);
        let permissions = match self.model.files[&id].is_directory() {
            true => 0o700 | self.chance.below(0o100),
            false => self.chance.below(0o1000),
        };
        length += 1;
        let (xattr, value) = match deed {
            Deed::SetAcl => (ACL, acl_of(permissions)),
            _ => ("user.x", self.chance.bytes(length)),
        };
        let operation = self.operation(Some(deed));
        match (side, deed) {
            (Side::Mount, Deed::RemoveXattr) => {
                rustix::fs::removexattr(&path, xattr).map_err(said)?;
            }
            (Side::Mount, _) => {
                let flags = XattrFlags::empty();
                rustix::fs::setxattr(&path, xattr, &value, flags).map_err(said)?;
            }
            (Side::Direct | Side::Nfs(_), Deed::RemoveXattr) => {
                let (user, name) = (&self.user, xattr.as_bytes());
                let removed = (self.files).remove_xattr(user, id_of(id), name, &operation);
                removed.map_err(refused)?;
            }
            (Side::Direct | Side::Nfs(_), _) => {
                let (user, name, mode) = (&self.user, xattr.as_bytes(), XattrMode::Any);
                let set = (self.files).set_xattr(user, id_of(id), name, &value, mode, &operation);
                set.map_err(refused)?;
            }
        }
        let file = self.model.files.get_mut(&id).unwrap();
        match deed {
            Deed::RemoveXattr => drop(file.xattrs.remove(xattr)),
            _ => drop(file.xattrs.insert(xattr.to_string(), value)),
        }
        if deed == Deed::SetAcl {
            file.permissions = (file.permissions & 0o7000) | permissions;
        }
        self.check_file(id)
    }
}
