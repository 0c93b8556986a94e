//! Names: `LOOKUP`, `CREATE`, `MKDIR`, `SYMLINK`, `MKNOD`, `REMOVE`, `RMDIR`, `RENAME`, `LINK`.

use super::arguments::{Arguments, Name, is_dot, refuse_name};
use super::attributes::{put, put_present, put_wcc};
use super::status::{Status, of_handle};
use super::{Done, Refused, Shape, done};
use crate::file_call::{Asker, FileCall};
use crate::xdr::Writer;
use tarn_engine::files::{
    Attributes, DeviceNumber, FileKind, NewFile, OperationKind, PosixError, RenameMode,
    SetAttributes, Verifier,
};

/// What `CREATE` does where the name exists.
enum Creation {
    /// It takes the file that is there.
    Unchecked(SetAttributes),
    /// It fails.
    Guarded(SetAttributes),
    /// It takes the file that the same request has made before.
    Exclusive(Verifier),
}

impl Asker<'_> {
    pub(super) fn look_up(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let Name { directory, name } = arguments.name()?;
        let directory = self.call(directory, OperationKind::Lookup, (0, 0));
        let directory = directory.map_err(|why| Shape::Post.fail(why, None))?;
        if let Err(status) = refuse_name(name) {
            return Err(Shape::Post.fail(status, Some(directory)));
        }
        let found = match self.lookup(&directory, name) {
            Ok(found) => found,
            Err(why) => return Err(Shape::Post.fail(why, Some(directory))),
        };
        out.opaque(&found.realm.handle(&found.attributes).encode());
        put(out.bool(true), &found.realm, &found.attributes);
        put_present(out, Some(&directory));
        done()
    }

    pub(super) fn create(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let name = arguments.name()?;
        let how = match arguments.u32()? {
            0 => Creation::Unchecked(arguments.attributes()?),
            1 => Creation::Guarded(arguments.attributes()?),
            2 => Creation::Exclusive(arguments.verifier()?),
            _ => return Err(Refused::Malformed),
        };
        let directory = self.changing(&name, OperationKind::Create)?;
        let (made, seen) = directory
            .files()
            .witnessed(|| create_file(&directory, name.name, &how));
        answer_made(directory, made, &seen, out)
    }

    pub(super) fn make_directory(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let (name, wanted) = (arguments.name()?, arguments.attributes()?);
        let directory = self.changing(&name, OperationKind::MakeDirectory)?;
        let new = new_file(FileKind::Directory, &wanted);
        self.make(directory, name.name, &new, wanted, out)
    }

    pub(super) fn make_symlink(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let (name, wanted) = (arguments.name()?, arguments.attributes()?);
        let target = arguments.text()?;
        let directory = self.changing(&name, OperationKind::MakeSymlink)?;
        if target.is_empty() || target.contains(&0) {
            return Err(Shape::Wcc.fail(Status::INVAL, Some(directory)));
        }
        let new = NewFile {
            permissions: 0o777,
            target: Some(target),
            ..new_file(FileKind::SymbolicLink, &wanted)
        };
        // The mode of a link means nothing.
        let wanted = SetAttributes {
            permissions: None,
            size: None,
            ..wanted
        };
        self.make(directory, name.name, &new, wanted, out)
    }

    pub(super) fn make_node(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let name = arguments.name()?;
        let kind = match arguments.u32()? {
            3 => Some(FileKind::BlockDevice),
            4 => Some(FileKind::CharacterDevice),
            6 => Some(FileKind::Socket),
            7 => Some(FileKind::Fifo),
            1 | 2 | 5 => None,
            _ => return Err(Refused::Malformed),
        };
        let directory = self.changing(&name, OperationKind::MakeNode)?;
        let Some(kind) = kind else {
            return Err(Shape::Wcc.fail(Status::BADTYPE, Some(directory)));
        };
        let wanted = arguments.attributes()?;
        let is_device = matches!(kind, FileKind::BlockDevice | FileKind::CharacterDevice);
        let mut new = new_file(kind, &wanted);
        if is_device {
            if !directory.credentials.privileged {
                return Err(Shape::Wcc.fail(Status::PERM, Some(directory)));
            }
            new.device = DeviceNumber {
                major: arguments.u32()?,
                minor: arguments.u32()?,
            };
        }
        let wanted = SetAttributes {
            size: None,
            ..wanted
        };
        self.make(directory, name.name, &new, wanted, out)
    }

    /// Makes a file that is not regular.
    fn make(
        &self,
        directory: FileCall,
        name: &[u8],
        new: &NewFile<'_>,
        wanted: SetAttributes,
        out: &mut Writer,
    ) -> Done {
        let (made, seen) = directory.files().witnessed(|| {
            let operation = directory.operation();
            let made = directory.files().create(
                &directory.credentials,
                directory.id,
                name,
                new,
                operation,
            );
            with_attributes(&directory, made?, &wanted)
        });
        answer_made(directory, made, &seen, out)
    }

    pub(super) fn remove(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let name = arguments.name()?;
        let directory = self.leaving(&name, OperationKind::Remove)?;
        let (removed, seen) = directory.files().witnessed(|| {
            let operation = directory.operation();
            let files = directory.files();
            files.unlink(&directory.credentials, directory.id, name.name, operation)
        });
        answer_removed(directory, name.name, removed, &seen, out)
    }

    pub(super) fn remove_directory(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let name = arguments.name()?;
        let directory = self.leaving(&name, OperationKind::RemoveDirectory)?;
        let (removed, seen) = directory.files().witnessed(|| {
            let operation = directory.operation();
            let files = directory.files();
            files.remove_directory(&directory.credentials, directory.id, name.name, operation)
        });
        answer_removed(directory, name.name, removed, &seen, out)
    }

    pub(super) fn rename(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let (from, to) = (arguments.name()?, arguments.name()?);
        let shape = Shape::TwoWcc;
        let source = self.call(from.directory, OperationKind::Rename, (0, 0));
        let source = source.map_err(|why| shape.fail(why, None))?;
        let target = match self.call(to.directory, OperationKind::Lookup, (0, 0)) {
            Ok(target) => target,
            Err(why) => return Err(shape.fail(why, Some(source))),
        };
        let checked = check_rename(&source, &from, &target, &to);
        if let Err(status) = checked {
            return Err(shape.fail(status, [source, target]));
        }
        let (renamed, seen) = source.files().witnessed(|| {
            source.files().rename(
                &source.credentials,
                source.id,
                from.name,
                target.id,
                to.name,
                RenameMode::Replace,
                source.operation(),
            )
        });
        if let Err(error) = renamed {
            return Err(shape.fail(error, [source, target]));
        }
        put_wcc(out, &source, &seen);
        put_wcc(out, &target, &seen);
        // Changes of names are among all that one commit makes durable.
        let id = source.id;
        source.changed(id, shape)
    }

    pub(super) fn link(&self, mut arguments: Arguments<'_>, out: &mut Writer) -> Done {
        let (handle, to) = (arguments.handle()?, arguments.name()?);
        let shape = Shape::PostAndWcc;
        let file = self.call(handle, OperationKind::Link, (0, 0));
        let file = file.map_err(|why| shape.fail(why, None))?;
        let directory = match self.call(to.directory, OperationKind::Lookup, (0, 0)) {
            Ok(directory) => directory,
            Err(why) => return Err(shape.fail(why, Some(file))),
        };
        let checked = match file.realm.is_same(&directory.realm) {
            true => check_new(&directory, to.name),
            false => Err(Status::XDEV),
        };
        if let Err(status) = checked {
            return Err(shape.fail(status, [file, directory]));
        }
        let (linked, seen) = file.files().witnessed(|| {
            let operation = file.operation();
            let (files, credentials) = (file.files(), &file.credentials);
            files.link(credentials, file.id, directory.id, to.name, operation)
        });
        if let Err(error) = linked {
            return Err(shape.fail(error, [file, directory]));
        }
        put_present(out, Some(&file));
        put_wcc(out, &directory, &seen);
        let id = directory.id;
        file.changed(id, shape)
    }

    /// The directory in which a name is to be made.
    fn changing(&self, name: &Name<'_>, kind: OperationKind) -> Result<FileCall, Refused> {
        let directory = self.call(name.directory, kind, (0, 0));
        let directory = directory.map_err(|why| Shape::Wcc.fail(why, None))?;
        match check_new(&directory, name.name) {
            Ok(()) => Ok(directory),
            Err(status) => Err(Shape::Wcc.fail(status, Some(directory))),
        }
    }

    /// The directory from which a name is to be removed.
    fn leaving(&self, name: &Name<'_>, kind: OperationKind) -> Result<FileCall, Refused> {
        let directory = self.call(name.directory, kind, (0, 0));
        let directory = directory.map_err(|why| Shape::Wcc.fail(why, None))?;
        match check_leaving(&directory, name.name) {
            Ok(()) => Ok(directory),
            Err(status) => Err(Shape::Wcc.fail(status, Some(directory))),
        }
    }
}

/// Refuses to make a name.
fn check_new(directory: &FileCall, name: &[u8]) -> Result<(), Status> {
    refuse_name(name)?;
    match name {
        _ if directory.realm.access.is_read_only => Err(Status::ROFS),
        name if is_dot(name) => Err(Status::EXIST),
        _ => Ok(()),
    }
}

/// Refuses to remove a name: also that of a folder on which another file system is mounted.
fn check_leaving(directory: &FileCall, name: &[u8]) -> Result<(), Status> {
    refuse_name(name)?;
    match name {
        _ if directory.realm.access.is_read_only => return Err(Status::ROFS),
        b"." => return Err(Status::INVAL),
        b".." => return Err(Status::NOTEMPTY),
        _ => {}
    }
    let found = directory.files().lookup(
        &directory.credentials,
        directory.id,
        name,
        directory.operation(),
    );
    match found {
        Ok(found) if directory.realm.junction(found.id).is_some() => Err(Status::ACCES),
        // The operation itself says what is wrong.
        _ => Ok(()),
    }
}

fn check_rename(
    source: &FileCall,
    from: &Name<'_>,
    target: &FileCall,
    to: &Name<'_>,
) -> Result<(), Status> {
    if !source.realm.is_same(&target.realm) {
        return Err(Status::XDEV);
    }
    if is_dot(from.name) || is_dot(to.name) {
        return Err(Status::INVAL);
    }
    check_leaving(source, from.name)?;
    check_leaving(target, to.name)
}

/// A new file with the mode that a client wants.
fn new_file<'a>(kind: FileKind, wanted: &SetAttributes) -> NewFile<'a> {
    NewFile {
        kind,
        permissions: wanted.permissions.unwrap_or(0),
        // The client has applied it.
        umask: 0,
        device: DeviceNumber::default(),
        target: None,
    }
}

/// Makes a regular file, or takes the one that is there.
fn create_file(
    directory: &FileCall,
    name: &[u8],
    how: &Creation,
) -> Result<Attributes, PosixError> {
    let (files, operation) = (directory.files(), directory.operation());
    let (user, id) = (&directory.credentials, directory.id);
    let (wanted, is_guarded) = match how {
        Creation::Exclusive(verifier) => {
            let new = new_file(FileKind::Regular, &SetAttributes::default());
            return files.create_exclusive(user, id, name, &new, *verifier, operation);
        }
        Creation::Unchecked(wanted) => (wanted, false),
        Creation::Guarded(wanted) => (wanted, true),
    };
    let new = new_file(FileKind::Regular, wanted);
    match files.create(user, id, name, &new, operation) {
        Err(PosixError::Exists) if !is_guarded => {
            let found = files.lookup(user, id, name, operation)?;
            if found.kind != FileKind::Regular {
                return Err(PosixError::Exists);
            }
            // Of a file that was there, only the size is set, as by open(2) with O_TRUNC.
            let size = SetAttributes {
                size: wanted.size,
                ..SetAttributes::default()
            };
            match wanted.size {
                Some(_) => files.set_attributes(user, found.id, &size, operation),
                None => Ok(found),
            }
        }
        made => with_attributes(directory, made?, wanted),
    }
}

/// Sets what a client wants of a file that was just made, beside its mode.
fn with_attributes(
    directory: &FileCall,
    made: Attributes,
    wanted: &SetAttributes,
) -> Result<Attributes, PosixError> {
    let other = |wanted: Option<u32>, present: u32| wanted.filter(|wanted| *wanted != present);
    let rest = SetAttributes {
        permissions: None,
        uid: other(wanted.uid, made.uid),
        gid: other(wanted.gid, made.gid),
        size: wanted
            .size
            .filter(|size| *size != made.size && made.kind == FileKind::Regular),
        is_open: true,
        ..wanted.clone()
    };
    let nothing = SetAttributes {
        is_open: true,
        ..SetAttributes::default()
    };
    if rest == nothing {
        return Ok(made);
    }
    let (files, operation) = (directory.files(), directory.operation());
    match files.set_attributes(&directory.credentials, made.id, &rest, operation) {
        // The file is there all the same, and its attributes say what it is.
        Err(PosixError::NotPermitted | PosixError::PermissionDenied) => Ok(made),
        set => set,
    }
}

/// The result of a procedure that makes a file.
fn answer_made(
    directory: FileCall,
    made: Result<Attributes, PosixError>,
    seen: &tarn_engine::files::Witnessed,
    out: &mut Writer,
) -> Done {
    let made = match made {
        Ok(made) => made,
        Err(error) => return Err(Shape::Wcc.fail(error, Some(directory))),
    };
    let realm = &directory.realm;
    match realm.is_boundary(made.id) {
        // A snapshot that was taken by making its folder: the client looks it up.
        true => drop(out.bool(false).bool(false)),
        false => {
            out.bool(true).opaque(&realm.handle(&made).encode());
            put(out.bool(true), realm, &made);
        }
    }
    put_wcc(out, &directory, seen);
    let id = directory.id;
    let file = match realm.is_boundary(made.id) {
        true => id,
        false => made.id,
    };
    directory.changed(file, Shape::Wcc)
}

/// The result of a procedure that removes a name.
fn answer_removed(
    directory: FileCall,
    name: &[u8],
    removed: Result<(), PosixError>,
    seen: &tarn_engine::files::Witnessed,
    out: &mut Writer,
) -> Done {
    match removed {
        Ok(()) => put_wcc(out, &directory, seen),
        Err(error @ PosixError::NotFound) => {
            directory.note_missing(name, &error);
            return Err(Shape::Wcc.fail(Status::NOENT, Some(directory)));
        }
        Err(error) => return Err(Shape::Wcc.fail(of_handle(error), Some(directory))),
    }
    let id = directory.id;
    directory.changed(id, Shape::Wcc)
}
