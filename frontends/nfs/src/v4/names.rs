//! Names and the current file: `LOOKUP`, `CREATE`, `REMOVE`, `RENAME`, `LINK`, `READLINK`,
//! `PUTFH` and their kin.

use super::attributes::{self, Wanted};
use super::compound::{Compound, Current, Done};
use super::operation::{SECINFO, SECINFO_NO_NAME};
use super::pseudo::{Below, PseudoFolder};
use super::status::{Status, of_handle};
use crate::file_call::FileCall;
use crate::xdr::{Reader, Writer};
use tarn_engine::files::{
    Attributes, DeviceNumber, FileKind, NewFile, ObjectId, OperationKind, PosixError, RenameMode,
    SetAttributes, Witnessed,
};

/// Longer handles are no handles in this version either.
const HANDLE_BYTES_MAX: usize = 128;
const NAME_BYTES_MAX: usize = 4096;
/// Most bytes of a name in a folder above shares.
pub(super) const FOLDER_NAME_BYTES_MAX: usize = 255;

impl Compound<'_> {
    pub(super) fn put_root(&mut self) -> Done {
        self.current = Some(Current::Folder(PseudoFolder::root(&self.shares)));
        self.current_state = None;
        Ok(())
    }

    pub(super) fn put_handle(&mut self, reader: &mut Reader<'_>) -> Done {
        let handle = reader.opaque(HANDLE_BYTES_MAX)?;
        if PseudoFolder::is_handle(handle) {
            let found = PseudoFolder::find(handle, &self.shares);
            let missing = match self.asker.table.any_may_come() {
                true => Status::DELAY,
                false => Status::STALE,
            };
            self.current = Some(Current::Folder(found.ok_or(missing)?));
            self.current_state = None;
            return Ok(());
        }
        // A client that asks how the file may be reached has no way to reach it yet. Version 4.0
        // would leave it the file.
        let next = reader.clone().u32();
        let is_asked = matches!(next, Ok(SECINFO | SECINFO_NO_NAME)) && self.minor > 0;
        self.asker.asks_for_security.set(is_asked);
        let call = self.asker.call(handle, OperationKind::Lookup, (0, 0));
        self.asker.asks_for_security.set(false);
        let call = call?;
        self.set_file(call.realm.clone(), call.id);
        Ok(())
    }

    pub(super) fn get_handle(&mut self, out: &mut Writer) -> Done {
        match self.current.as_ref().ok_or(Status::NOFILEHANDLE)? {
            Current::Folder(folder) => drop(out.opaque(&folder.handle())),
            Current::File { .. } => {
                let file = self.file(OperationKind::GetAttributes, (0, 0))?;
                let found = file.attributes().map_err(of_handle)?;
                out.opaque(&file.realm.handle(&found).encode());
            }
        }
        Ok(())
    }

    pub(super) fn look_up(&mut self, reader: &mut Reader<'_>) -> Done {
        let name = reader.opaque(NAME_BYTES_MAX)?;
        refuse_name(name)?;
        if let Some(Current::Folder(folder)) = &self.current {
            if name.len() > FOLDER_NAME_BYTES_MAX {
                return Err(Status::NAMETOOLONG);
            }
            return match folder.below(name, &self.shares) {
                Some(Below::Folder(found)) => {
                    self.current = Some(Current::Folder(found));
                    Ok(())
                }
                Some(Below::Share(share)) => {
                    let realm = self.asker.enter(&self.shares, &share)?;
                    let root = realm.files().root();
                    self.set_file(realm, root);
                    Ok(())
                }
                None => Err(Status::NOENT),
            };
        }
        let directory = self.file(OperationKind::Lookup, (0, 0))?;
        if name.len() > directory.files().properties().name_bytes_max() {
            return Err(Status::NAMETOOLONG);
        }
        let found = match self.asker.lookup(&directory, name) {
            Ok(found) => found,
            Err(why) => {
                let is_link = directory
                    .attributes()
                    .is_ok_and(|found| found.kind == FileKind::SymbolicLink);
                return Err(match Status::from(why) {
                    Status::NOTDIR if is_link => Status::SYMLINK,
                    status => status,
                });
            }
        };
        let id = found.attributes.id;
        self.set_file(found.realm, id);
        Ok(())
    }

    pub(super) fn look_up_parent(&mut self) -> Done {
        if let Some(Current::Folder(folder)) = &self.current {
            let parent = folder.parent(&self.shares).ok_or(Status::NOENT)?;
            self.current = Some(Current::Folder(parent));
            return Ok(());
        }
        let directory = self.file(OperationKind::Lookup, (0, 0))?;
        let realm = &directory.realm;
        let is_root = directory.id == realm.files().root() && realm.snapshot.is_none();
        if is_root && self.shares.above(realm.tree.guid()).is_none() {
            let above = PseudoFolder::of_share(&realm.share, &self.shares);
            self.current = Some(Current::Folder(above));
            self.current_state = None;
            return Ok(());
        }
        match directory.attributes().map_err(of_handle)?.kind {
            FileKind::Directory => {}
            FileKind::SymbolicLink if self.minor > 0 => return Err(Status::SYMLINK),
            _ => return Err(Status::NOTDIR),
        }
        let found = self.asker.lookup(&directory, b"..")?;
        let id = found.attributes.id;
        self.set_file(found.realm, id);
        Ok(())
    }

    pub(super) fn read_link(&mut self, out: &mut Writer) -> Done {
        let file = self.file(OperationKind::ReadLink, (0, 0))?;
        let kind = file.attributes().map_err(of_handle)?.kind;
        if kind != FileKind::SymbolicLink {
            return Err(match self.minor {
                0 => Status::INVAL,
                _ => Status::WRONG_TYPE,
            });
        }
        let (files, operation) = (file.files(), file.operation());
        let target = files.read_link(&file.credentials, file.id, operation);
        out.opaque(&target.map_err(of_handle)?);
        Ok(())
    }

    pub(super) fn create(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let kind = match reader.u32()? {
            2 => FileKind::Directory,
            3 => FileKind::BlockDevice,
            4 => FileKind::CharacterDevice,
            5 => FileKind::SymbolicLink,
            6 => FileKind::Socket,
            7 => FileKind::Fifo,
            _ => return Err(Status::BADTYPE),
        };
        let is_device = matches!(kind, FileKind::BlockDevice | FileKind::CharacterDevice);
        let (mut target, mut device) = (None, DeviceNumber::default());
        if kind == FileKind::SymbolicLink {
            target = Some(reader.opaque(NAME_BYTES_MAX)?);
        }
        if is_device {
            device = DeviceNumber {
                major: reader.u32()?,
                minor: reader.u32()?,
            };
        }
        let name = reader.opaque(NAME_BYTES_MAX)?;
        refuse_name(name)?;
        let mut wanted = attributes::decode(reader, self.facts())?;
        let directory = self.writable(OperationKind::Create)?;
        if is_device && !directory.credentials.privileged {
            return Err(Status::PERM);
        }
        if target.is_some_and(|target| target.is_empty() || target.contains(&0)) {
            return Err(Status::INVAL);
        }
        let is_link = kind == FileKind::SymbolicLink;
        let new = NewFile {
            kind,
            permissions: match wanted.attributes.permissions {
                _ if is_link => 0o777,
                Some(mode) => mode,
                None => 0o755,
            },
            umask: 0,
            device,
            target,
        };
        wanted.attributes.permissions = None;
        wanted.attributes.size = None;
        let before = directory.attributes().map_err(of_handle)?;
        if before.kind != FileKind::Directory {
            return Err(Status::NOTDIR);
        }
        let (made, seen) = directory.files().witnessed(|| {
            let operation = directory.operation();
            let (files, user) = (directory.files(), &directory.credentials);
            let made = files.create(user, directory.id, name, &new, operation)?;
            with_attributes(&directory, made, &wanted)
        });
        let made = made?;
        put_change(out, directory.id, &seen, before.change());
        wanted.set.put(out);
        sync(&directory, made.id)?;
        self.set_file(directory.realm.clone(), made.id);
        Ok(())
    }

    pub(super) fn remove(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let name = reader.opaque(NAME_BYTES_MAX)?;
        refuse_name(name)?;
        let directory = self.writable(OperationKind::Remove)?;
        let before = directory.attributes().map_err(of_handle)?;
        let (files, id, user) = (directory.files(), directory.id, &directory.credentials);
        let found = files.lookup(user, id, name, directory.operation());
        let found = found.inspect_err(|error| directory.note_missing(name, error))?;
        if directory.realm.junction(found.id).is_some() {
            return Err(Status::FILE_OPEN);
        }
        let (removed, seen) = files.witnessed(|| match found.kind {
            FileKind::Directory => files.remove_directory(user, id, name, directory.operation()),
            _ => files.unlink(user, id, name, directory.operation()),
        });
        removed?;
        put_change(out, id, &seen, before.change());
        sync(&directory, id)
    }

    pub(super) fn rename(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let from = reader.opaque(NAME_BYTES_MAX)?;
        let to = reader.opaque(NAME_BYTES_MAX)?;
        let source = self.saved_file(OperationKind::Rename)?;
        let target = self.writable(OperationKind::Lookup)?;
        refuse_name(from)?;
        refuse_name(to)?;
        if !source.realm.is_same(&target.realm) {
            return Err(Status::XDEV);
        }
        for (directory, name) in [(&source, from), (&target, to)] {
            let (files, user) = (directory.files(), &directory.credentials);
            let found = files.lookup(user, directory.id, name, directory.operation());
            if found.is_ok_and(|found| directory.realm.junction(found.id).is_some()) {
                return Err(Status::FILE_OPEN);
            }
        }
        let before = source.attributes().map_err(of_handle)?.change();
        let before_target = target.attributes().map_err(of_handle)?.change();
        let (renamed, seen) = source.files().witnessed(|| {
            source.files().rename(
                &source.credentials,
                source.id,
                from,
                target.id,
                to,
                RenameMode::Replace,
                source.operation(),
            )
        });
        renamed?;
        put_change(out, source.id, &seen, before);
        put_change(out, target.id, &seen, before_target);
        sync(&source, source.id)
    }

    pub(super) fn link(&mut self, reader: &mut Reader<'_>, out: &mut Writer) -> Done {
        let name = reader.opaque(NAME_BYTES_MAX)?;
        refuse_name(name)?;
        let file = self.saved_file(OperationKind::Link)?;
        let directory = self.writable(OperationKind::Lookup)?;
        if !file.realm.is_same(&directory.realm) {
            return Err(Status::XDEV);
        }
        if file.attributes().map_err(of_handle)?.kind == FileKind::Directory {
            return Err(Status::ISDIR);
        }
        let before = directory.attributes().map_err(of_handle)?;
        if before.kind != FileKind::Directory {
            return Err(Status::NOTDIR);
        }
        let (linked, seen) = file.files().witnessed(|| {
            let (files, user) = (file.files(), &file.credentials);
            files.link(user, file.id, directory.id, name, file.operation())
        });
        linked?;
        put_change(out, directory.id, &seen, before.change());
        sync(&directory, directory.id)
    }

    /// The current file, where this client may change something.
    pub(super) fn writable(&self, kind: OperationKind) -> Result<FileCall, Status> {
        let file = self.file(kind, (0, 0))?;
        match file.realm.access.is_read_only {
            true => Err(Status::ROFS),
            false => Ok(file),
        }
    }
}

/// Makes durable what was changed, unless the share does without.
pub(super) fn sync(file: &FileCall, id: ObjectId) -> Done {
    if file.realm.share.options.is_async {
        return Ok(());
    }
    Ok(file.files().sync(id, false, file.operation())?)
}

/// What is wrong with a name, if anything is.
pub(super) fn refuse_name(name: &[u8]) -> Done {
    match name {
        b"" => Err(Status::INVAL),
        b"." | b".." => Err(Status::BADNAME),
        name if name.contains(&b'/') || name.contains(&0) => Err(Status::BADCHAR),
        _ => Ok(()),
    }
}

/// `change_info4` of a directory. Where the operation has not changed it, both are as before.
pub(super) fn put_change(out: &mut Writer, directory: ObjectId, seen: &Witnessed, before: u64) {
    match seen.of(directory) {
        Some(both) => {
            let after = both.after.change();
            out.bool(true).u64(both.before.change).u64(after);
        }
        None => drop(out.bool(false).u64(before).u64(before)),
    }
}

/// Sets what a client wants of a file that was just made, beside its mode.
pub(super) fn with_attributes(
    directory: &FileCall,
    made: Attributes,
    wanted: &Wanted<'_>,
) -> Result<Attributes, PosixError> {
    let (acl, wanted) = (wanted.acl, &wanted.attributes);
    let other = |wanted: Option<u32>, present: u32| wanted.filter(|wanted| *wanted != present);
    let rest = SetAttributes {
        permissions: None,
        uid: other(wanted.uid, made.uid),
        gid: other(wanted.gid, made.gid),
        size: wanted.size.filter(|size| *size != made.size),
        is_open: true,
        ..wanted.clone()
    };
    let nothing = SetAttributes {
        is_open: true,
        ..SetAttributes::default()
    };
    let (files, operation) = (directory.files(), directory.operation());
    let mut made = made;
    if rest != nothing {
        made = files.set_attributes(&directory.credentials, made.id, &rest, operation)?;
    }
    let Some(list) = acl else {
        return Ok(made);
    };
    attributes::set_acl(directory, made.id, list)?;
    directory.attributes_of(made.id)
}
