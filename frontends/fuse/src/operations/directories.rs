//! Listing directories.
//!
//! `READDIR`, `READDIRPLUS`.

use super::answers::{entry_size, put_directory_entry, put_entry};
use super::names::is_snapshot;
use super::opening::noting_of;
use super::{Call, Reply, refused};
use crate::handles::Handle;
use crate::protocol::{Answer, Arguments, WRITE_BYTES_MAX};
use crate::session::Place;
use rustix::io::Errno;

/// Size of the structure of attributes before a directory entry.
const ENTRY_BYTES: usize = 128;

impl Call<'_> {
    pub(super) fn read_directory(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let (handle, cookie, room) = directory_arguments(&mut arguments)?;
        let mut answer = Answer::with_room(room);
        let read = file.files.read_directory_noting(
            self.credentials,
            file.id,
            cookie,
            &mut |entry| put_directory_entry(&mut answer, &file.shown_entry(entry), room),
            noting_of(handle),
            self.operation,
        );
        read.map_err(refused)?;
        Ok(Reply::Parts(answer))
    }

    /// Entries with their attributes. Entries whose file cannot be looked up are listed without.
    pub(super) fn read_directory_plus(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let (handle, cookie, room) = directory_arguments(&mut arguments)?;
        let mut entries = Vec::new();
        let mut used = 0;
        let read = file.files.read_directory_noting(
            self.credentials,
            file.id,
            cookie,
            &mut |entry| {
                used += ENTRY_BYTES + entry_size(&entry);
                let fits = used <= room;
                if fits {
                    entries.push(entry);
                }
                fits
            },
            noting_of(handle),
            self.operation,
        );
        read.map_err(refused)?;
        let mut answer = Answer::with_room(room);
        for entry in entries {
            let is_itself = entry.name == b"." || entry.name == b"..";
            let has_attributes = !is_itself && !is_snapshot(entry.id);
            let attributes =
                has_attributes.then(|| file.files.attributes(entry.id, self.operation).ok());
            match attributes.flatten() {
                Some(attributes) => {
                    let node = self.session.node_of(file.which, &file.files, entry.id);
                    let shown = file.shown(attributes);
                    self.session.telling(node, &shown);
                    let cached = self.entry_cached(file, entry.id, &shown);
                    put_entry(&mut answer, node, cached, &shown);
                }
                None => {
                    answer.zeros(ENTRY_BYTES);
                }
            }
            put_directory_entry(&mut answer, &file.shown_entry(entry), usize::MAX);
        }
        Ok(Reply::Parts(answer))
    }
}

/// The handle, the position to continue at, and the size of the caller's buffer.
fn directory_arguments(arguments: &mut Arguments<'_>) -> Result<(Handle, u64, usize), Errno> {
    let handle = arguments.handle()?;
    let (cookie, room) = (arguments.u64()?, arguments.u32()?);
    Ok((
        handle,
        cookie,
        usize::try_from(room).map_or(WRITE_BYTES_MAX, |room| room.min(WRITE_BYTES_MAX)),
    ))
}
