//! Requests that change files: one call of the file system each.

use crate::handles::Handle;
use crate::kept::names_cached_s;
use crate::operations::{
    Call, Reply, attributes_answer, caching_of, device_of, done, gone, parse_changes, put_entry,
    put_open, refused,
};
use crate::protocol::{
    Answer, Arguments, OPEN_KEEP_CACHE, SETXATTR_DROP_SET_GID, WRITE_CACHE, WRITE_DROP_SET_IDS,
    init_flags, opcode, setattr_bits,
};
use crate::session::Place;
use rustix::io::Errno;
use tarn_engine::files::{
    Actor, Allocate, Attributes, Credentials, DeviceNumber, FileKind, NewContents, NewFile,
    ObjectId, Privileges, RenameMode, SetAttributes, SetGroupId, WriteAt, XattrMode,
    actor_of_process,
};

/// Both flags of `renameat2`.
const WHITEOUT_NO_REPLACE: u32 = libc::RENAME_WHITEOUT | libc::RENAME_NOREPLACE;

/// What comes before the bytes of a write.
pub(crate) struct WriteHead {
    offset: u64,
    size: u32,
    write_flags: u32,
    /// Those the file was opened with.
    flags: u32,
}

impl WriteHead {
    /// Whether the file was opened with `O_SYNC` or `O_DSYNC`: the write is answered when it is stored.
    pub(crate) fn wants_sync(&self) -> bool {
        i32::from_ne_bytes(self.flags.to_ne_bytes()) & libc::O_DSYNC != 0
    }
}

/// Takes it off the arguments of a write.
pub(crate) fn write_head(arguments: &mut Arguments<'_>) -> Result<WriteHead, Errno> {
    arguments.u64()?;
    let (offset, size) = (arguments.u64()?, arguments.u32()?);
    let write_flags = arguments.u32()?;
    arguments.skip(8)?;
    let flags = arguments.u32()?;
    arguments.skip(4)?;
    Ok(WriteHead {
        offset,
        size,
        write_flags,
        flags,
    })
}

/// Which bytes are copied where.
pub(crate) struct CopyHead {
    from: u64,
    /// The file they go to, as the kernel calls it.
    node: u64,
    handle: Handle,
    to: u64,
    length: u64,
    flags: u64,
}

impl CopyHead {
    /// Whether the file they go to was opened with `O_SYNC` or `O_DSYNC`.
    pub(crate) fn wants_sync(&self) -> bool {
        self.handle.wants_sync()
    }
}

/// Takes it off the arguments of a copy.
pub(crate) fn copy_head(arguments: &mut Arguments<'_>) -> Result<CopyHead, Errno> {
    arguments.handle()?;
    Ok(CopyHead {
        from: arguments.u64()?,
        node: arguments.u64()?,
        handle: arguments.handle()?,
        to: arguments.u64()?,
        length: arguments.u64()?,
        flags: arguments.u64()?,
    })
}

/// Takes off the arguments of a creation what is made, and the flags it is opened with.
fn new_regular<'a>(arguments: &mut Arguments<'a>) -> Result<(i32, NewFile<'a>), Errno> {
    let flags = i32::from_ne_bytes(arguments.u32()?.to_ne_bytes());
    let (mode, umask) = (arguments.u32()?, arguments.u32()?);
    arguments.skip(4)?;
    let new = NewFile {
        kind: FileKind::Regular,
        permissions: mode & 0o7777,
        umask,
        device: DeviceNumber::default(),
        target: None,
    };
    Ok((flags, new))
}

impl Call<'_> {
    pub(crate) fn set_attributes(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let bits = arguments.clone().u32()?;
        let changes = parse_changes(&mut arguments)?;
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
        Ok(Reply::Parts(attributes_answer(&shown)))
    }

    pub(crate) fn make_symlink(
        &self,
        parent: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let (name, target) = (arguments.name()?, arguments.name()?);
        let new = NewFile {
            kind: FileKind::SymbolicLink,
            permissions: 0o777,
            umask: 0,
            device: DeviceNumber::default(),
            target: Some(target),
        };
        self.make(parent, name, &new)
    }

    pub(crate) fn make_node(
        &self,
        parent: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let (mode, device, umask) = (arguments.u32()?, arguments.u32()?, arguments.u32()?);
        arguments.skip(4)?;
        let new = NewFile {
            kind: FileKind::from_mode(mode).ok_or(Errno::INVAL)?,
            permissions: mode & 0o7777,
            umask,
            device: device_of(device),
            target: None,
        };
        self.make(parent, arguments.name()?, &new)
    }

    pub(crate) fn make_directory(
        &self,
        parent: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let (mode, umask) = (arguments.u32()?, arguments.u32()?);
        let new = NewFile {
            kind: FileKind::Directory,
            permissions: mode & 0o7777,
            umask,
            device: DeviceNumber::default(),
            target: None,
        };
        self.make(parent, arguments.name()?, &new)
    }

    pub(crate) fn make(
        &self,
        parent: &Place,
        name: &[u8],
        new: &NewFile<'_>,
    ) -> Result<Reply, Errno> {
        let made = parent
            .files
            .create(self.credentials, parent.id, name, new, self.operation);
        self.found(parent, name, &made.map_err(refused)?)
    }

    pub(crate) fn create(
        &self,
        parent: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let (flags, new) = new_regular(&mut arguments)?;
        let name = arguments.name()?;
        let made = parent
            .files
            .create(self.credentials, parent.id, name, &new, self.operation);
        let made = made.map_err(refused)?;
        let opened = parent.files.opened(made.id, self.operation);
        // Somebody may have removed it already. The kernel then makes another.
        opened.map_err(|error| gone(refused(error)))?;
        Ok(self.made_and_open(parent, &made, flags))
    }

    /// Makes a file without a name, which is open.
    pub(crate) fn create_unnamed(
        &self,
        parent: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let (flags, new) = new_regular(&mut arguments)?;
        let made = parent
            .files
            .create_unnamed(self.credentials, parent.id, &new, self.operation);
        Ok(self.made_and_open(parent, &made.map_err(refused)?, flags))
    }

    /// What is replied when a file was made and opened with these flags.
    fn made_and_open(&self, parent: &Place, made: &Attributes, flags: i32) -> Reply {
        let mut answer = Answer::new();
        let node = self.session.node_of(parent.which, &parent.files, made.id);
        let cached_s = names_cached_s(parent, made.id);
        put_entry(&mut answer, node, cached_s, made);
        let handle = Handle::opened_with(flags);
        self.session.opened(&parent.beside(made.id), handle);
        put_open(&mut answer, handle, OPEN_KEEP_CACHE);
        Reply::Parts(answer)
    }

    pub(crate) fn unlink(
        &self,
        parent: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let name = arguments.name()?;
        done(
            parent
                .files
                .unlink(self.credentials, parent.id, name, self.operation),
        )
    }

    pub(crate) fn remove_directory(
        &self,
        parent: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let name = arguments.name()?;
        done(
            parent
                .files
                .remove_directory(self.credentials, parent.id, name, self.operation),
        )
    }

    pub(crate) fn rename(
        &self,
        parent: &Place,
        code: u32,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let to_node = arguments.u64()?;
        let mode = if code == opcode::RENAME2 {
            let flags = arguments.u32()?;
            arguments.skip(4)?;
            match flags {
                0 => RenameMode::Replace,
                libc::RENAME_NOREPLACE => RenameMode::NoReplace,
                libc::RENAME_EXCHANGE => RenameMode::Exchange,
                libc::RENAME_WHITEOUT => RenameMode::Whiteout,
                WHITEOUT_NO_REPLACE => RenameMode::WhiteoutNoReplace,
                _ => return Err(Errno::INVAL),
            }
        } else {
            RenameMode::Replace
        };
        let (from, to) = (arguments.name()?, arguments.name()?);
        let to_parent = self.same_files(parent, to_node)?;
        let credentials = self.credentials;
        let renamed = parent.files.rename(
            credentials,
            parent.id,
            from,
            to_parent,
            to,
            mode,
            self.operation,
        );
        done(renamed)
    }

    pub(crate) fn link(
        &self,
        parent: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let node = arguments.u64()?;
        let name = arguments.name()?;
        let id = self.same_files(parent, node)?;
        self.session.lists().note(node);
        let linked = parent
            .files
            .link(self.credentials, id, parent.id, name, self.operation);
        let linked = linked.map_err(|error| match self.has_name(parent, id) {
            true => refused(error),
            false => gone(refused(error)),
        });
        self.entry(parent, &linked?)
    }

    /// Whether a file still has a name.
    fn has_name(&self, beside: &Place, id: ObjectId) -> bool {
        let attributes = beside.files.attributes(id, self.operation);
        attributes.is_ok_and(|attributes| attributes.links > 0)
    }

    /// The object of a second node, which must be of the same file system.
    pub(crate) fn same_files(&self, file: &Place, node: u64) -> Result<ObjectId, Errno> {
        let place = self.session.place(node)?;
        if place.which == file.which {
            Ok(place.id)
        } else {
            Err(Errno::XDEV)
        }
    }

    pub(crate) fn write(&self, file: &Place, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
        let head = write_head(&mut arguments)?;
        let bytes = arguments.bytes(head.size)?;
        self.write_at(file, &head, NewContents::Bytes(bytes))
    }

    /// A write whose contents lie elsewhere, exactly as many as it says.
    pub(crate) fn write_contents(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
        contents: NewContents<'_>,
    ) -> Result<Reply, Errno> {
        let head = write_head(&mut arguments)?;
        self.write_at(file, &head, contents)
    }

    fn write_at(
        &self,
        file: &Place,
        head: &WriteHead,
        contents: NewContents<'_>,
    ) -> Result<Reply, Errno> {
        let written = self.write_contents_at(file, head, contents);
        if head.write_flags & WRITE_CACHE != 0 {
            self.session.wrote_back(written.as_ref().err().copied());
        }
        written
    }

    fn write_contents_at(
        &self,
        file: &Place,
        head: &WriteHead,
        contents: NewContents<'_>,
    ) -> Result<Reply, Errno> {
        self.drop_privileges(file, head.write_flags & WRITE_DROP_SET_IDS != 0)?;
        let written = file.files.write_contents(
            self.credentials,
            file.id,
            WriteAt::Offset(head.offset),
            contents,
            caching_of(head.flags),
            self.operation,
        );
        let written = written.map_err(refused)?;
        // Nobody is there to write the rest of a page that was stored by mapping it: the kernel takes it for written.
        let written = u32::try_from(written).map_err(|_| Errno::IO)?;
        if head.write_flags & WRITE_CACHE != 0 && written < head.size {
            return Err(Errno::NOSPC);
        }
        let mut answer = Answer::new();
        answer.u32(written).u32(0);
        match head.wants_sync() {
            true => self.when_durable(file, answer),
            false => Ok(Reply::Parts(answer)),
        }
    }

    /// Before contents or owner change: takes capabilities, and set-id bits unless the caller may keep them. The kernel must not go on
    /// with the mode it knew, for it decides by that what a program runs as.
    pub(crate) fn drop_privileges(&self, file: &Place, set_ids_too: bool) -> Result<(), Errno> {
        self.drop_privileges_of(file, self.node, set_ids_too)
    }

    /// Whether a file has set-id bits that the caller may not keep when he changes its contents in a way that leaves the kernel no place to say so; root may.
    fn takes_set_ids(&self, file: &Place) -> Result<bool, Errno> {
        Ok(self.has_set_ids(file)? && !self.is_by_root())
    }

    /// Takes the set-id bits of a file for its owner, and for root: with `chown(-1, -1)` the kernel says that attributes are set, and none. It has not checked
    /// who asks.
    fn take_set_ids_for_owner(&self, file: &Place) -> Result<(), Errno> {
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
            uid,
            gid,
            groups,
            privileged: uid == 0,
        }
    }

    /// The same of a file that the kernel calls so.
    fn drop_privileges_of(&self, file: &Place, node: u64, set_ids_too: bool) -> Result<(), Errno> {
        // What the kernel leaves to us is decided by who really asks: it has not checked this for him. That is looked up only where it matters.
        let (which, caller) = match set_ids_too && self.has_set_ids(file)? {
            true => (Privileges::All, self.caller()),
            false => (Privileges::Capabilities, self.credentials.clone()),
        };
        let dropped = file
            .files
            .drop_privileges(&caller, file.id, which, self.operation);
        if dropped.map_err(refused)? {
            self.device.forget_attributes(node);
        }
        Ok(())
    }

    pub(crate) fn set_xattr(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let (size, flags) = (arguments.u32()?, arguments.u32()?);
        let mut set_gid = SetGroupId::AsTheyMay;
        if self.session.agreed_on(init_flags::SETXATTR_EXT) {
            // The kernel has seen the caller's groups, and we have not.
            if arguments.u32()? & SETXATTR_DROP_SET_GID != 0 {
                set_gid = SetGroupId::Goes;
            }
            arguments.skip(4)?;
        }
        let name = arguments.name()?;
        let value = arguments.bytes(size)?;
        let mode = match i32::try_from(flags) {
            Ok(0) => XattrMode::Any,
            Ok(libc::XATTR_CREATE) => XattrMode::Create,
            Ok(libc::XATTR_REPLACE) => XattrMode::Replace,
            _ => return Err(Errno::INVAL),
        };
        done(file.files.set_xattr_and_mode(
            self.credentials,
            file.id,
            name,
            value,
            mode,
            set_gid,
            self.operation,
        ))
    }

    pub(crate) fn remove_xattr(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let name = arguments.name()?;
        done(
            file.files
                .remove_xattr(self.credentials, file.id, name, self.operation),
        )
    }

    pub(crate) fn allocate(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let handle = arguments.handle()?;
        let (offset, length, mode) = (arguments.u64()?, arguments.u64()?, arguments.u32()?);
        let keep = libc::FALLOC_FL_KEEP_SIZE;
        let kind = match i32::try_from(mode).map_err(|_| Errno::OPNOTSUPP)? {
            0 => Allocate::Extend,
            mode if mode == keep => Allocate::KeepSize,
            mode if mode == keep | libc::FALLOC_FL_PUNCH_HOLE => Allocate::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => Allocate::ZeroRange,
            mode if mode == keep | libc::FALLOC_FL_ZERO_RANGE => Allocate::ZeroRangeKeepSize,
            _ => return Err(Errno::OPNOTSUPP),
        };
        self.drop_privileges(file, self.takes_set_ids(file)?)?;
        let operation = self.operation;
        let allocated =
            file.files
                .allocate(self.credentials, file.id, kind, offset, length, operation);
        allocated.map_err(refused)?;
        match handle.wants_sync() {
            true => self.when_durable(file, Answer::new()),
            false => Ok(Reply::Parts(Answer::new())),
        }
    }

    /// Copies from this file to another, or to another place of it. Between a file system and a snapshot the kernel copies, when it hears that we cannot.
    pub(crate) fn copy_range(
        &self,
        file: &Place,
        mut arguments: Arguments<'_>,
    ) -> Result<Reply, Errno> {
        let head = copy_head(&mut arguments)?;
        if head.flags != 0 {
            return Err(Errno::INVAL);
        }
        let id = self.same_files(file, head.node)?;
        let target = file.beside(id);
        self.drop_privileges_of(&target, head.node, self.takes_set_ids(&target)?)?;
        let copied = file.files.copy_range(
            self.credentials,
            (file.id, head.from),
            (id, head.to),
            // The answer has 32 bits.
            head.length.min(u64::from(u32::MAX)),
            self.operation,
        );
        let copied = u32::try_from(copied.map_err(refused)?).map_err(|_| Errno::IO)?;
        let mut answer = Answer::new();
        answer.u32(copied).u32(0);
        match head.wants_sync() {
            true => self.when_durable(&target, answer),
            false => Ok(Reply::Parts(answer)),
        }
    }
}
