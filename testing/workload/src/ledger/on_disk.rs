//! Making calls in a directory, and reading what a directory holds.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use rustix::fs::{FallocateFlags, XattrFlags, fallocate, fsetxattr, getxattr};

use super::CheckError;
use super::call::{Call, Contents, Entry, NEW_MODE, State};

/// The one extended attribute that is set.
const ATTRIBUTE: &str = "user.ledger";

/// Makes a call.
pub(super) fn make(root: &Path, call: &Call) -> io::Result<()> {
    let place = |path: &String| root.join(path);
    let open = |path: &String| OpenOptions::new().write(true).open(root.join(path));
    match call {
        Call::MakeDirectory { path } => fs::create_dir(place(path)),
        Call::Create { path } => {
            let mut new = OpenOptions::new();
            let new = new.write(true).create_new(true).mode(NEW_MODE);
            new.open(place(path)).map(drop)
        }
        Call::Write { path, at, bytes } => open(path)?.write_all_at(bytes, *at as u64),
        Call::SetSize { path, size } => open(path)?.set_len(*size as u64),
        Call::PunchHole { path, at, length } => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(fallocate(open(path)?, flags, *at as u64, *length as u64)?)
        }
        Call::SetMode { path, mode } => {
            fs::set_permissions(place(path), Permissions::from_mode(*mode))
        }
        Call::SetAttribute { path, value } => Ok(fsetxattr(
            open(path)?,
            ATTRIBUTE,
            value,
            XattrFlags::empty(),
        )?),
        Call::Rename { from, to } => fs::rename(place(from), place(to)),
        Call::Remove { path } => fs::remove_file(place(path)),
        Call::Link { path, target } => symlink(target, place(path)),
        Call::Sync { path } => open(path)?.sync_all(),
    }
}

pub(super) fn read_tree(root: &Path, below: &str, state: &mut State) -> Result<(), CheckError> {
    let folder = root.join(below);
    let unreadable = |path: &Path| {
        let path = path.to_path_buf();
        move |source| CheckError::Unreadable { path, source }
    };
    for entry in fs::read_dir(&folder).map_err(unreadable(&folder))? {
        let entry = entry.map_err(unreadable(&folder))?;
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let name = match below {
            "" => name,
            below => format!("{below}/{name}"),
        };
        let kind = entry.file_type().map_err(unreadable(&path))?;
        if kind.is_dir() {
            read_tree(root, &name, state)?;
        }
        let entry = read_entry(&path, kind).map_err(unreadable(&path))?;
        state.insert(name, entry);
    }
    Ok(())
}

fn read_entry(path: &Path, kind: fs::FileType) -> io::Result<Entry> {
    if kind.is_dir() {
        return Ok(Entry::Directory);
    }
    if kind.is_symlink() {
        let target = fs::read_link(path)?;
        return Ok(Entry::Link(target.to_string_lossy().into_owned()));
    }
    let file = File::open(path)?;
    let mut value = vec![0; 64 << 10];
    let attribute = match getxattr(path, ATTRIBUTE, &mut value) {
        Ok(length) => {
            value.truncate(length);
            Some(value)
        }
        Err(rustix::io::Errno::NODATA) => None,
        Err(errno) => return Err(errno.into()),
    };
    Ok(Entry::File(Contents {
        mode: file.metadata()?.permissions().mode() & 0o7777,
        bytes: fs::read(path)?,
        attribute,
    }))
}
