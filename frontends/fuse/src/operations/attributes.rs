//! Attributes of files, and the space of file systems.
//!
//! `GETATTR`, `STATX`, `SETATTR`, `STATFS`.

use super::answers::{attributes_answer, space_answer, statx_answer};
use super::{Call, Reply, refused};
use crate::kept::attributes_cached_s;
use crate::protocol::{Arguments, setattr_bits};
use crate::session::Place;
use rustix::io::Errno;
use tarn_engine::files::{SetAttributes, SetTime, Timestamp};

impl Call<'_> {
    pub(super) fn attributes(&self, file: &Place) -> Result<Reply, Errno> {
        let attributes = file
            .files
            .attributes(file.id, self.operation)
            .map_err(refused)?;
        let shown = file.shown(attributes);
        self.session.telling(self.node, &shown);
        let cached_s = attributes_cached_s(&shown);
        Ok(Reply::Parts(attributes_answer(&shown, cached_s)))
    }

    /// All attributes of `statx`. The kernel sends `STATX` when a program asks for the birth time.
    pub(super) fn extended_attributes(&self, file: &Place) -> Result<Reply, Errno> {
        let attributes = file
            .files
            .attributes(file.id, self.operation)
            .map_err(refused)?;
        let shown = file.shown(attributes);
        self.session.telling(self.node, &shown);
        Ok(Reply::Parts(statx_answer(&shown)))
    }

    pub(super) fn set_attributes(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let bits = arguments.clone().u32()?;
        let changes = parse_changes(&mut arguments)?;
        if self.session.enforces(file) {
            // Set-id bits stay if the caller may not make the change.
            let (files, operation) = (&file.files, self.operation);
            let checked =
                files.check_set_attributes(self.credentials, file.id, &changes, operation);
            checked.map_err(refused)?;
        }
        if changes.size.is_some() || changes.uid.is_some() || changes.gid.is_some() {
            self.drop_privileges(file, bits & setattr_bits::DROP_SET_IDS != 0)?;
        } else if changes == SetAttributes::default() {
            self.take_set_ids_for_owner(file)?;
        }
        self.session.lists().note(self.node);
        let changed =
            file.files
                .set_attributes(self.credentials, file.id, &changes, self.operation);
        let shown = file.shown(changed.map_err(refused)?);
        self.session.telling(self.node, &shown);
        let cached_s = self.session.changed_cached_s(file, &shown);
        Ok(Reply::Parts(attributes_answer(&shown, cached_s)))
    }

    pub(super) fn space(&self, file: &Place) -> Result<Reply, Errno> {
        let space = file.files.space_at(file.id, self.operation);
        Ok(Reply::Parts(space_answer(&space.map_err(refused)?)))
    }
}

/// Parses the changes of a `SETATTR` request.
fn parse_changes(arguments: &mut Arguments<'_>) -> Result<SetAttributes, Errno> {
    let valid = arguments.u32()?;
    arguments.skip(4 + 8)?;
    let size = arguments.u64()?;
    arguments.skip(8)?;
    let (accessed_s, modified_s) = (arguments.u64()?, arguments.u64()?);
    arguments.skip(8)?;
    let (accessed_ns, modified_ns) = (arguments.u32()?, arguments.u32()?);
    arguments.skip(4)?;
    let mode = arguments.u32()?;
    arguments.skip(4)?;
    let (uid, gid) = (arguments.u32()?, arguments.u32()?);
    let has = |bit: u32| valid & bit != 0;
    let time = |set: u32, now: u32, seconds: u64, nanoseconds: u32| match (has(now), has(set)) {
        (true, _) => Some(SetTime::Now),
        (false, true) => Some(SetTime::To(Timestamp {
            seconds: i64::from_ne_bytes(seconds.to_ne_bytes()),
            nanoseconds,
        })),
        (false, false) => None,
    };
    Ok(SetAttributes {
        permissions: has(setattr_bits::MODE).then_some(mode & 0o7777),
        uid: has(setattr_bits::UID).then_some(uid),
        gid: has(setattr_bits::GID).then_some(gid),
        size: has(setattr_bits::SIZE).then_some(size),
        accessed: time(
            setattr_bits::ATIME,
            setattr_bits::ATIME_NOW,
            accessed_s,
            accessed_ns,
        ),
        modified: time(
            setattr_bits::MTIME,
            setattr_bits::MTIME_NOW,
            modified_s,
            modified_ns,
        ),
        is_open: has(setattr_bits::HANDLE),
        flags: None,
        project: None,
    })
}
