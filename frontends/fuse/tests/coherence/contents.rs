//! Operations on contents: by open files, mappings, `O_DIRECT`, and directly.

use crate::checks::id_of;
use crate::nfs_clients::Changes;
use crate::world::{Deed, Fault, OpenFile, SIZE_MAX, Side, World, failed, no, refused, said};
use rustix::fs::{FallocateFlags, OFlags};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use tarn_engine::files::{Allocate, Credentials, SetAttributes, WriteAt};
use tarn_workload::mapped::Mapping;

/// How many files are open at once.
const OPEN_MAX: usize = 6;

impl World {
    pub fn write(&mut self, deed: Deed, side: Side) -> Result<(), Fault> {
        let Some((directory, name, id)) = self.any_regular() else {
            return Ok(());
        };
        self.check_file(id)?;
        let size = self.model.files[&id].contents.len();
        let is_direct_io = deed == Deed::Write && side == Side::Mount && self.chance.below(3) == 0;
        let (mut offset, mut length) = (
            self.chance.index((size + 5000).min(SIZE_MAX - 8192)),
            1 + self.chance.index(8000),
        );
        if is_direct_io {
            (offset, length) = (offset & !511, (length + 511) & !511);
        }
        if deed == Deed::Append {
            offset = size;
            if size + length > SIZE_MAX {
                return Ok(());
            }
        }
        let bytes = self.chance.bytes(length);
        let path = self.path(directory, &name);
        self.tell(format!(
            "{path:?} {offset} {length}, past the cache: {is_direct_io}"
        ));
        match (side, deed) {
            (Side::Mount, Deed::Append) => {
                let mut file = OpenOptions::new()
                    .append(true)
                    .open(&path)
                    .map_err(failed)?;
                file.write_all(&bytes).map_err(failed)?;
            }
            (Side::Mount, Deed::Write) if is_direct_io => {
                let flags = OFlags::DIRECT.bits().cast_signed();
                let mut options = OpenOptions::new();
                let file = options.write(true).custom_flags(flags).open(&path);
                let file = file.map_err(failed)?;
                file.write_all_at(&bytes, offset as u64).map_err(failed)?;
            }
            (Side::Mount, Deed::Write) => {
                let open = self.open.iter().find(|open| open.id == id);
                match open {
                    Some(open) => open.file.write_all_at(&bytes, offset as u64),
                    None => OpenOptions::new()
                        .write(true)
                        .open(&path)
                        .and_then(|file| file.write_all_at(&bytes, offset as u64)),
                }
                .map_err(failed)?;
            }
            (Side::Nfs(which), _) => self.write_by_nfs(which, id, offset, &bytes)?,
            _ => {
                let at = match deed {
                    Deed::Append => WriteAt::End,
                    _ => WriteAt::Offset(offset as u64),
                };
                let operation = self.operation(Some(deed));
                let user = match deed {
                    Deed::WriteAsUser => Credentials::user(1000, 1000, Vec::new()),
                    _ => self.user.clone(),
                };
                let written = self.files.write(&user, id_of(id), at, &bytes, &operation);
                written.map_err(refused)?;
            }
        }
        let permissions = match deed {
            Deed::WriteAsUser => Some(self.permissions_without_set_ids(id)?),
            _ => None,
        };
        let file = self.model.files.get_mut(&id).unwrap();
        if let Some(permissions) = permissions {
            file.permissions = permissions;
        }
        let end = offset + bytes.len();
        if file.contents.len() < end {
            file.contents.resize(end, 0);
        }
        file.contents[offset..end].copy_from_slice(&bytes);
        self.check_file(id)
    }

    /// The permissions of a file after a change that may remove set-id bits: only these may have
    /// gone.
    pub fn permissions_without_set_ids(&self, id: u64) -> Result<u32, Fault> {
        let found = self.files.attributes(id_of(id), &self.operation(None));
        let (found, before) = (
            found.map_err(refused)?.permissions,
            self.model.files[&id].permissions,
        );
        match found & !before == 0 && found & 0o1777 == before & 0o1777 {
            true => Ok(found),
            false => Err(no(format!("permissions {found:o}, and {before:o} before"))),
        }
    }

    pub fn resize(&mut self, deed: Deed, side: Side) -> Result<(), Fault> {
        let Some((directory, name, id)) = self.any_regular() else {
            return Ok(());
        };
        self.check_file(id)?;
        let size = self.model.files[&id].contents.len();
        let offset = self.chance.index((size + 3000).min(SIZE_MAX - 8192));
        let length = 1 + self.chance.index(8000);
        let path = self.path(directory, &name);
        self.tell(format!("{path:?} {offset} {length}"));
        let operation = self.operation(Some(deed));
        match (side, deed) {
            (Side::Mount, Deed::Truncate) => {
                let file = OpenOptions::new().write(true).open(&path).map_err(failed)?;
                file.set_len(offset as u64).map_err(failed)?;
            }
            (Side::Mount, _) => {
                let file = OpenOptions::new().write(true).open(&path).map_err(failed)?;
                let flags = match deed {
                    Deed::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    _ => FallocateFlags::empty(),
                };
                rustix::fs::fallocate(&file, flags, offset as u64, length as u64).map_err(said)?;
            }
            (Side::Nfs(which), Deed::Truncate) => {
                let size = Some(offset as u64);
                let changes = Changes {
                    size,
                    ..Changes::default()
                };
                self.change_by_nfs(which, id, changes)?;
            }
            (Side::Direct, Deed::Truncate) => {
                let changes = SetAttributes {
                    size: Some(offset as u64),
                    ..SetAttributes::default()
                };
                let set = (self.files).set_attributes(&self.user, id_of(id), &changes, &operation);
                set.map_err(refused)?;
            }
            (Side::Direct | Side::Nfs(_), _) => {
                let what = match deed {
                    Deed::Punch => Allocate::PunchHole,
                    _ => Allocate::Extend,
                };
                let (offset, length) = (offset as u64, length as u64);
                let user = &self.user;
                let done = (self.files).allocate(user, id_of(id), what, offset, length, &operation);
                done.map_err(refused)?;
            }
        }
        let contents = &mut self.model.files.get_mut(&id).unwrap().contents;
        match deed {
            Deed::Truncate => contents.resize(offset, 0),
            Deed::Punch => {
                let end = size.min(offset + length);
                if offset < end {
                    contents[offset..end].fill(0);
                }
            }
            _ => contents.resize(size.max(offset + length), 0),
        }
        self.check_file(id)
    }

    pub fn copy(&mut self, side: Side) -> Result<(), Fault> {
        let (Some((one, from, source)), Some((other, to, target))) =
            (self.any_regular(), self.any_regular())
        else {
            return Ok(());
        };
        let size = self.model.files[&source].contents.len();
        if source == target || size == 0 {
            return Ok(());
        }
        self.check_file(source)?;
        self.check_file(target)?;
        let is_aligned = self.chance.below(2) == 0;
        let (mut from_offset, mut to_offset) = (
            self.chance.index(size),
            self.chance.index(SIZE_MAX - (16 << 10)),
        );
        if is_aligned {
            (from_offset, to_offset) = (from_offset & !0x3fff, to_offset & !0x3fff);
        }
        let length = (1 + self.chance.index(16 << 10)).min(size - from_offset);
        let paths = (self.path(one, &from), self.path(other, &to));
        self.tell(format!("{paths:?} {from_offset} {to_offset} {length}"));
        match side {
            Side::Mount => {
                let from = File::open(&paths.0).map_err(failed)?;
                let to = OpenOptions::new()
                    .write(true)
                    .open(&paths.1)
                    .map_err(failed)?;
                let (mut from_at, mut to_at) = (from_offset as u64, to_offset as u64);
                let mut rest = length;
                while rest > 0 {
                    let (from_at, to_at) = (Some(&mut from_at), Some(&mut to_at));
                    let copied = rustix::fs::copy_file_range(&from, from_at, &to, to_at, rest);
                    match copied.map_err(said)? {
                        0 => return Err(no("nothing more to copy".to_string())),
                        copied => rest -= copied,
                    }
                }
            }
            Side::Direct | Side::Nfs(_) => {
                let operation = self.operation(Some(Deed::Copy));
                let mut done = 0;
                while done < length {
                    let copied = (self.files).copy_range(
                        &self.user,
                        (id_of(source), (from_offset + done) as u64),
                        (id_of(target), (to_offset + done) as u64),
                        (length - done) as u64,
                        &operation,
                    );
                    done += usize::try_from(copied.map_err(refused)?).unwrap();
                }
            }
        }
        let bytes = self.model.files[&source].contents[from_offset..from_offset + length].to_vec();
        let contents = &mut self.model.files.get_mut(&target).unwrap().contents;
        if contents.len() < to_offset + length {
            contents.resize(to_offset + length, 0);
        }
        contents[to_offset..to_offset + length].copy_from_slice(&bytes);
        self.check_file(source)?;
        self.check_file(target)
    }

    pub fn open_file(&mut self) -> Result<(), Fault> {
        let Some((directory, name, id)) = self.any_regular() else {
            return Ok(());
        };
        if self.open.len() >= OPEN_MAX {
            return Ok(());
        }
        let path = self.path(directory, &name);
        self.tell(format!("{path:?}"));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed)?;
        let mapping = match self.chance.below(2) {
            0 => Some(Mapping::new(&file, SIZE_MAX).map_err(failed)?),
            _ => None,
        };
        self.last_open += 1;
        let number = self.last_open;
        self.open.push(OpenFile {
            id,
            number,
            file,
            mapping,
        });
        self.check_file(id)
    }

    pub fn close_file(&mut self) -> Result<(), Fault> {
        if self.open.is_empty() {
            return Ok(());
        }
        let at = self.chance.index(self.open.len());
        let OpenFile { id, number, .. } = self.open.swap_remove(at);
        let locks = self.locks.entry(id).or_default();
        locks.drop_process();
        locks.drop_open(number);
        self.check_or_forget(id)
    }

    /// A program stores into a mapped file. No holder gets a notice; the direct holder reads the
    /// bytes all the same.
    pub fn store(&mut self) -> Result<(), Fault> {
        let mapped: Vec<usize> = (self.open.iter().enumerate())
            .filter(|(_, open)| open.mapping.is_some())
            .filter(|(_, open)| !self.model.files[&open.id].contents.is_empty())
            .map(|(at, _)| at)
            .collect();
        if mapped.is_empty() {
            return Ok(());
        }
        let at = mapped[self.chance.index(mapped.len())];
        let id = self.open[at].id;
        // The kernel updates the size when it is asked for it.
        self.check_file(id)?;
        let size = self.model.files[&id].contents.len().min(SIZE_MAX);
        let offset = self.chance.index(size);
        let length = (1 + self.chance.index(3000)).min(size - offset);
        let bytes = self.chance.bytes(length);
        self.tell(format!("{offset} {length} of {size}"));
        let open = &mut self.open[at];
        let mapping = open.mapping.as_mut().expect("it is mapped");
        mapping.copy_in(offset, &bytes);
        let contents = &mut self.model.files.get_mut(&id).unwrap().contents;
        contents[offset..offset + length].copy_from_slice(&bytes);
        self.dirty.insert(id);
        match self.chance.below(3) {
            0 => {
                let mapping = self.open[at].mapping.as_ref().expect("it is mapped");
                mapping.flush().map_err(failed)?;
                self.dirty.remove(&id);
                self.check_file(id)
            }
            1 => self.check_file(id),
            _ => Ok(()),
        }
    }
}
