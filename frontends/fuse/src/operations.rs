//! One request, one call: what each opcode asks of the file system.

use crate::changes::{copy_head, write_head};
use crate::handles::Handle;
use crate::inbox::Request;
use crate::kept::{attributes_cached_s, names_cached_s};
use crate::protocol::{
    Answer, Arguments, OPEN_KEEP_CACHE, RequestHead, UNKNOWN_USER, WRITE_BYTES_MAX, opcode,
    setattr_bits, statx_bits,
};
use crate::server::Device;
use crate::session::{OTHER, Place, Session, errno_of};
use rustix::io::Errno;
use tarn_engine::files::{
    Attributes, Caching, ControlEntry, Credentials, DeviceNumber, DirectoryEntry, FileKind, Noting,
    ObjectId, Operation, OperationKind, PosixError, ReadData, Seek, SetAttributes, SetTime,
    SpaceFacts, Timestamp, Unsynced, actor_of_process,
};

/// Size of the structure of a directory entry with attributes, before the entry itself.
const ENTRY_BYTES: usize = 128;

/// What goes back.
pub(crate) enum Reply {
    /// Nothing at all: the kernel does not wait.
    Nothing,
    /// Structures.
    Parts(Answer),
    /// Bytes of a file, uncopied.
    Read(ReadData),
    /// Structures, as soon as the file is durable.
    WhenDurable(Answer, Unsynced),
}

/// What statistics call a request.
pub(crate) fn kind(code: u32) -> OperationKind {
    match code {
        opcode::LOOKUP => OperationKind::Lookup,
        opcode::GETATTR | opcode::STATX => OperationKind::GetAttributes,
        opcode::SETATTR => OperationKind::SetAttributes,
        opcode::READLINK => OperationKind::ReadLink,
        opcode::SYMLINK => OperationKind::MakeSymlink,
        opcode::MKNOD => OperationKind::MakeNode,
        opcode::MKDIR => OperationKind::MakeDirectory,
        opcode::UNLINK => OperationKind::Remove,
        opcode::RMDIR => OperationKind::RemoveDirectory,
        opcode::RENAME | opcode::RENAME2 => OperationKind::Rename,
        opcode::LINK => OperationKind::Link,
        opcode::OPEN | opcode::OPENDIR => OperationKind::Open,
        opcode::READ => OperationKind::Read,
        opcode::WRITE => OperationKind::Write,
        opcode::STATFS => OperationKind::FileSystemStatus,
        opcode::RELEASE | opcode::RELEASEDIR | opcode::FLUSH => OperationKind::Close,
        opcode::FSYNC | opcode::FSYNCDIR | opcode::SYNCFS => OperationKind::Sync,
        opcode::SETXATTR | opcode::REMOVEXATTR => OperationKind::SetExtendedAttribute,
        opcode::GETXATTR | opcode::LISTXATTR => OperationKind::GetExtendedAttribute,
        opcode::ACCESS => OperationKind::Access,
        opcode::CREATE | opcode::TMPFILE => OperationKind::Create,
        opcode::FALLOCATE => OperationKind::Allocate,
        opcode::READDIR | opcode::READDIRPLUS => OperationKind::ReadDirectory,
        opcode::LSEEK => OperationKind::Seek,
        opcode::COPY_FILE_RANGE => OperationKind::Copy,
        _ => OTHER,
    }
}

/// The range of a file that a request is about, for its record.
pub(crate) fn range(head: &RequestHead, mut arguments: Arguments<'_>) -> (u64, u64) {
    let mut of_io = || -> Result<(u64, u64), Errno> {
        arguments.u64()?;
        Ok((arguments.u64()?, u64::from(arguments.u32()?)))
    };
    match head.opcode {
        opcode::READ | opcode::WRITE => of_io().unwrap_or_default(),
        _ => (0, 0),
    }
}

/// Whether a request asks for more bytes of a file than this.
pub(crate) fn reads_more_than(request: &Request, bytes: usize) -> bool {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    request.arguments().is_ok_and(|(head, arguments)| {
        head.opcode == opcode::READ && range(&head, arguments).1 > bytes
    })
}

/// Whether the answer to a request waits for the intent log and for nothing else that takes long.
pub(crate) fn waits_for_log(request: &Request) -> bool {
    request
        .arguments()
        .is_ok_and(|(head, mut arguments)| match head.opcode {
            opcode::FSYNC => true,
            opcode::WRITE => write_head(&mut arguments).is_ok_and(|write| write.wants_sync()),
            opcode::FALLOCATE => arguments.handle().is_ok_and(Handle::wants_sync),
            opcode::COPY_FILE_RANGE => {
                copy_head(&mut arguments).is_ok_and(|copy| copy.wants_sync())
            }
            _ => false,
        })
}

/// What the kernel is told of a request that failed so. Where it asks about a node and not about a name, "there is none" means that the node has gone: its
/// name may lead to another file by now, as when that was renamed over it. Only of a stale node does the kernel look the name up again.
pub(crate) fn told(code: u32, errno: Errno) -> Errno {
    const OF_NODES: [u32; 11] = [
        opcode::GETATTR,
        opcode::STATX,
        opcode::SETATTR,
        opcode::READLINK,
        opcode::OPEN,
        opcode::OPENDIR,
        opcode::STATFS,
        opcode::GETXATTR,
        opcode::LISTXATTR,
        opcode::SETXATTR,
        opcode::REMOVEXATTR,
    ];
    match OF_NODES.contains(&code) {
        true => gone(errno),
        false => errno,
    }
}

/// What the kernel is told where "there is none" is said of a node.
pub(crate) fn gone(errno: Errno) -> Errno {
    match errno {
        Errno::NOENT => Errno::STALE,
        errno => errno,
    }
}

/// What an operation needs beside its arguments.
pub(crate) struct Call<'a> {
    pub(crate) session: &'a Session,
    pub(crate) device: &'a Device,
    /// What the kernel calls the file.
    pub(crate) node: u64,
    /// The process that asks, where we can see it.
    pub(crate) process: u32,
    pub(crate) credentials: &'a Credentials,
    pub(crate) operation: &'a Operation,
}

/// Runs one request.
pub(crate) fn run(
    call: &Call<'_>,
    head: &RequestHead,
    arguments: Arguments<'_>,
    file: &Place,
) -> Result<Reply, Errno> {
    match head.opcode {
        opcode::LOOKUP => call.lookup(file, arguments),
        opcode::GETATTR => call.attributes(file),
        opcode::STATX => call.extended_attributes(file),
        opcode::SETATTR => call.set_attributes(file, arguments),
        opcode::READLINK => call.read_link(file),
        opcode::SYMLINK => call.make_symlink(file, arguments),
        opcode::MKNOD => call.make_node(file, arguments),
        opcode::MKDIR => call.make_directory(file, arguments),
        opcode::CREATE => call.create(file, arguments),
        opcode::TMPFILE => call.create_unnamed(file, arguments),
        opcode::UNLINK => call.unlink(file, arguments),
        opcode::RMDIR => call.remove_directory(file, arguments),
        opcode::RENAME | opcode::RENAME2 => call.rename(file, head.opcode, arguments),
        opcode::LINK => call.link(file, arguments),
        opcode::OPEN => call.open(file, arguments),
        opcode::OPENDIR => call.open_directory(file, arguments),
        opcode::RELEASE | opcode::RELEASEDIR => call.release(file, arguments),
        opcode::READ => call.read(file, arguments),
        opcode::WRITE => call.write(file, arguments),
        opcode::STATFS => call.space(file),
        opcode::FSYNC | opcode::FSYNCDIR => call.sync(file),
        opcode::SYNCFS => call.sync_all(file),
        // Nothing is kept back until a close. Told so once, the kernel does not ask again.
        opcode::FLUSH => Err(Errno::NOSYS),
        opcode::GETXATTR => call.get_xattr(file, arguments),
        opcode::LISTXATTR => call.list_xattr(file, arguments),
        opcode::SETXATTR => call.set_xattr(file, arguments),
        opcode::REMOVEXATTR => call.remove_xattr(file, arguments),
        opcode::FALLOCATE => call.allocate(file, arguments),
        opcode::LSEEK => call.seek(file, arguments),
        opcode::COPY_FILE_RANGE => call.copy_range(file, arguments),
        opcode::IOCTL => call.control(file, arguments),
        opcode::READDIR => call.read_directory(file, arguments),
        opcode::READDIRPLUS => call.read_directory_plus(file, arguments),
        opcode::DESTROY => Ok(Reply::Nothing),
        // The kernel then does what can be done without us: locks are local.
        _ => Err(Errno::NOSYS),
    }
}

impl Call<'_> {
    fn lookup(&self, file: &Place, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
        let name = arguments.name()?;
        if name == b"." {
            // The kernel has a number from somebody else, who was told it before (a handle of NFS), and asks what it is: it need not be a directory.
            let attributes = file.files.attributes(file.id, self.operation);
            return self.entry(file, &attributes.map_err(refused)?);
        }
        if name == b".." && file.is_root_of_snapshot() {
            // Above it is the directory of snapshots.
            let above = self.session.mounted().beside(ControlEntry::Snapshots.id());
            let attributes = above.files.attributes(above.id, self.operation);
            return self.entry(&above, &attributes.map_err(refused)?);
        }
        let found = file
            .files
            .lookup(self.credentials, file.id, name, self.operation);
        self.found(file, name, &found.map_err(refused)?)
    }

    /// What a name in a directory leads to.
    pub(crate) fn found(
        &self,
        file: &Place,
        name: &[u8],
        found: &Attributes,
    ) -> Result<Reply, Errno> {
        if !is_snapshot(found.id) {
            if found.kind != FileKind::Directory && found.links > 1 {
                // The kernel may know it by another name, and keeps the list that it has.
                let node = self.session.node_of(file.which, &file.files, found.id);
                self.session.lists().note(node);
            }
            return self.entry(file, found);
        }
        // The way into a snapshot: from here on its own file system answers.
        let entered = self.session.enter(name, found.id, self.operation)?;
        let root = entered
            .files
            .attributes(entered.id, self.operation)
            .map_err(refused)?;
        self.entry(&entered, &root)
    }

    fn attributes(&self, file: &Place) -> Result<Reply, Errno> {
        let attributes = file
            .files
            .attributes(file.id, self.operation)
            .map_err(refused)?;
        let shown = file.shown(attributes);
        self.session.telling(self.node, &shown);
        Ok(Reply::Parts(attributes_answer(&shown)))
    }

    /// All that `statx` tells. The kernel asks so when a program wants to know when a file was made.
    fn extended_attributes(&self, file: &Place) -> Result<Reply, Errno> {
        let attributes = file
            .files
            .attributes(file.id, self.operation)
            .map_err(refused)?;
        let shown = file.shown(attributes);
        self.session.telling(self.node, &shown);
        Ok(Reply::Parts(statx_answer(&shown)))
    }

    /// Whether root asks.
    pub(crate) fn is_by_root(&self) -> bool {
        match self.credentials.uid {
            UNKNOWN_USER => actor_of_process(self.process).is_some_and(|actor| actor.uid == 0),
            uid => uid == 0,
        }
    }

    fn read_link(&self, file: &Place) -> Result<Reply, Errno> {
        let target = file
            .files
            .read_link(self.credentials, file.id, self.operation);
        let mut answer = Answer::new();
        answer.bytes(&target.map_err(refused)?);
        Ok(Reply::Parts(answer))
    }

    /// Opens a file. Where reading would change the access time, the kernel is not to answer reads from what it has cached:
    /// the first of them comes to us, and from then on it may.
    fn open(&self, file: &Place, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
        let flags = i32::from_ne_bytes(arguments.u32()?.to_ne_bytes());
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            let appends = flags & libc::O_APPEND != 0;
            let checked = file.files.check_writing(file.id, appends, self.operation);
            checked.map_err(refused)?;
        }
        let opened = file.files.opened(file.id, self.operation);
        opened.map_err(refused)?;
        let reads = flags & libc::O_ACCMODE != libc::O_WRONLY;
        let handle = Handle::opened_with(flags);
        let is_due = reads
            && handle.notes_access()
            && file
                .files
                .would_note_access(file.id, self.operation)
                .unwrap_or(false);
        let mut answer = Answer::new();
        let keeps = if is_due { 0 } else { OPEN_KEEP_CACHE };
        self.session.opened(file, handle);
        put_open(&mut answer, handle, keeps);
        Ok(Reply::Parts(answer))
    }

    /// Opens a directory: it stays until it is closed, though it be removed. Nothing of it is cached across opens.
    fn open_directory(&self, file: &Place, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
        let flags = i32::from_ne_bytes(arguments.u32()?.to_ne_bytes());
        let opened = file.files.opened(file.id, self.operation);
        opened.map_err(refused)?;
        let mut answer = Answer::new();
        put_open(&mut answer, Handle::of_directory(flags), 0);
        Ok(Reply::Parts(answer))
    }

    fn release(&self, file: &Place, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
        self.session.closed(file, arguments.handle()?);
        done(file.files.closed(file.id, self.operation))
    }

    fn read(&self, file: &Place, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
        let noting = noting_of(arguments.handle()?);
        let (offset, size) = (arguments.u64()?, arguments.u32()?);
        arguments.skip(12)?;
        let caching = caching_of(arguments.u32()?);
        let size = usize::try_from(size).map_or(WRITE_BYTES_MAX, |size| size.min(WRITE_BYTES_MAX));
        let data = file.files.read_caching(
            self.credentials,
            file.id,
            offset,
            size,
            caching,
            noting,
            self.operation,
        );
        Ok(Reply::Read(data.map_err(refused)?))
    }

    fn space(&self, file: &Place) -> Result<Reply, Errno> {
        let space = file.files.space_at(file.id, self.operation);
        Ok(Reply::Parts(space_answer(&space.map_err(refused)?)))
    }

    /// Attributes are stored together with contents: who asks for contents alone is spared nothing.
    fn sync(&self, file: &Place) -> Result<Reply, Errno> {
        self.when_durable(file, Answer::new())
    }

    /// What is replied when the file is durable.
    pub(crate) fn when_durable(&self, file: &Place, answer: Answer) -> Result<Reply, Errno> {
        let unsynced = file.files.sync_later(file.id, self.operation);
        Ok(match unsynced.map_err(refused)? {
            Some(unsynced) => Reply::WhenDurable(answer, unsynced),
            None => Reply::Parts(answer),
        })
    }

    /// For `syncfs` and `sync`. Linux sends them to servers of virtiofs and of block devices only, since any other could make `sync` wait without end
    /// (commits 2d82ab251ef0, d3906d8f3cee): as of any mount like ours, they return and nobody has asked us.
    fn sync_all(&self, file: &Place) -> Result<Reply, Errno> {
        done(file.files.sync_all(self.operation))
    }

    fn get_xattr(&self, file: &Place, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
        let room = arguments.u32()?;
        arguments.skip(4)?;
        let name = arguments.name()?;
        if ACL_NAMES.contains(&name) {
            self.session.lists().note(self.node);
        }
        let value = file
            .files
            .get_xattr(self.credentials, file.id, name, self.operation);
        sized(&value.map_err(|error| no_acl(name, &error))?, room)
    }

    fn list_xattr(&self, file: &Place, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
        let room = arguments.u32()?;
        let names = file
            .files
            .list_xattr(self.credentials, file.id, self.operation);
        let mut names = names.map_err(refused)?;
        // Who may read an attribute the kernel decides by its name; here it does not know the names.
        let is_roots = |name: &[u8]| name.starts_with(b"trusted.");
        if names.iter().any(|name| is_roots(name)) && !self.is_by_root() {
            names.retain(|name| !is_roots(name));
        }
        let mut list = Vec::new();
        for name in names {
            list.extend_from_slice(&name);
            list.push(0);
        }
        sized(&list, room)
    }

    /// Finds data or a hole. What is stored into mapped memory comes to us when the kernel writes it back, which it does not before it asks: where that may be,
    /// no hole is known to be one.
    fn seek(&self, file: &Place, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
        arguments.u64()?;
        let (offset, whence) = (arguments.u64()?, arguments.u32()?);
        let seek = match i32::try_from(whence) {
            Ok(libc::SEEK_DATA) => Seek::Data,
            Ok(libc::SEEK_HOLE) => Seek::Hole,
            _ => return Err(Errno::INVAL),
        };
        let found = match self.session.may_be_mapped(file) {
            true => self.seek_where_all_is_data(file, offset, seek),
            false => file.files.seek(file.id, offset, seek, self.operation),
        };
        let found = found.map_err(refused)?;
        let mut answer = Answer::new();
        answer.u64(found);
        Ok(Reply::Parts(answer))
    }

    /// Of a regular file.
    fn seek_where_all_is_data(
        &self,
        file: &Place,
        offset: u64,
        seek: Seek,
    ) -> Result<u64, PosixError> {
        let size = file.files.attributes(file.id, self.operation)?.size;
        match seek {
            _ if offset >= size => Err(PosixError::BeyondEnd),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }

    fn read_directory(&self, file: &Place, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
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

    /// Entries with their attributes. What cannot be looked up is listed without them.
    fn read_directory_plus(
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
                    let cached_s = names_cached_s(file, entry.id);
                    let shown = file.shown(attributes);
                    self.session.telling(node, &shown);
                    put_entry(&mut answer, node, cached_s, &shown);
                }
                None => {
                    answer.zeros(ENTRY_BYTES);
                }
            }
            put_directory_entry(&mut answer, &file.shown_entry(entry), usize::MAX);
        }
        Ok(Reply::Parts(answer))
    }

    pub(crate) fn entry(&self, file: &Place, attributes: &Attributes) -> Result<Reply, Errno> {
        let mut answer = Answer::new();
        let node = self.session.node_of(file.which, &file.files, attributes.id);
        let cached_s = names_cached_s(file, attributes.id);
        let shown = file.shown(attributes.clone());
        self.session.telling(node, &shown);
        put_entry(&mut answer, node, cached_s, &shown);
        Ok(Reply::Parts(answer))
    }
}

/// Whether what is read through a handle changes the access time.
fn noting_of(handle: Handle) -> Noting {
    match handle.notes_access() {
        true => Noting::Access,
        false => Noting::Nothing,
    }
}

/// Who keeps what is read or written through a file opened with these flags: the kernel, but where it was asked to go past
/// its cache.
pub(crate) fn caching_of(flags: u32) -> Caching {
    match flags & libc::O_DIRECT.cast_unsigned() {
        0 => Caching::Callers,
        _ => Caching::Ours,
    }
}

/// True for an entry of `.zfs/snapshot`.
fn is_snapshot(id: ObjectId) -> bool {
    matches!(ControlEntry::of(id), Some(ControlEntry::Snapshot(_)))
}

/// Names under which the kernel asks for access control lists before it decides by the mode.
const ACL_NAMES: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Why an attribute could not be read. The kernel takes "there is no list" as leave to go by the mode, but not "there are no
/// lists here".
fn no_acl(name: &[u8], error: &PosixError) -> Errno {
    match errno_of(error) {
        Errno::OPNOTSUPP if ACL_NAMES.contains(&name) => Errno::NODATA,
        errno => errno,
    }
}

/// An operation's refusal.
pub(crate) fn refused(error: PosixError) -> Errno {
    errno_of(&error)
}

/// An operation that has nothing to say.
pub(crate) fn done(outcome: Result<(), PosixError>) -> Result<Reply, Errno> {
    outcome.map_err(refused)?;
    Ok(Reply::Parts(Answer::new()))
}

/// Bytes for a caller with this much room: no room asks for the size.
fn sized(bytes: &[u8], room: u32) -> Result<Reply, Errno> {
    let size = u32::try_from(bytes.len()).map_err(|_| Errno::TOOBIG)?;
    let mut answer = Answer::new();
    if room == 0 {
        answer.u32(size).u32(0);
    } else if size > room {
        return Err(Errno::RANGE);
    } else {
        answer.bytes(bytes);
    }
    Ok(Reply::Parts(answer))
}

/// Through which handle a directory is read, where to go on in it, and the room for entries.
fn directory_arguments(arguments: &mut Arguments<'_>) -> Result<(Handle, u64, usize), Errno> {
    let handle = arguments.handle()?;
    let (cookie, room) = (arguments.u64()?, arguments.u32()?);
    Ok((
        handle,
        cookie,
        usize::try_from(room).map_or(WRITE_BYTES_MAX, |room| room.min(WRITE_BYTES_MAX)),
    ))
}

/// The changes of a `setattr` request.
pub(crate) fn parse_changes(arguments: &mut Arguments<'_>) -> Result<SetAttributes, Errno> {
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

/// A device number as the kernel sends it.
pub(crate) fn device_of(number: u32) -> DeviceNumber {
    DeviceNumber {
        major: (number >> 8) & 0xfff,
        minor: (number & 0xff) | ((number >> 12) & 0xf_ff00),
    }
}

/// A device number as the kernel takes it.
fn device_number(device: DeviceNumber) -> u32 {
    ((device.major & 0xfff) << 8) | (device.minor & 0xff) | ((device.minor & 0xf_ff00) << 12)
}

/// Adds attributes as `stat` shows them.
fn put_attributes(answer: &mut Answer, attributes: &Attributes) {
    let seconds = |time: Timestamp| u64::from_ne_bytes(time.seconds.to_ne_bytes());
    let times = [attributes.accessed, attributes.modified, attributes.changed];
    answer
        .u64(attributes.id.get())
        .u64(attributes.size)
        .u64(attributes.blocks_512);
    for time in times {
        answer.u64(seconds(time));
    }
    for time in times {
        answer.u32(time.nanoseconds);
    }
    answer
        .u32(attributes.kind.mode_bits() | attributes.permissions)
        .u32(u32::try_from(attributes.links).unwrap_or(u32::MAX))
        .u32(attributes.uid)
        .u32(attributes.gid)
        .u32(device_number(attributes.device))
        .u32(attributes.block_size)
        .u32(0);
}

/// Attributes as an answer of their own.
pub(crate) fn attributes_answer(attributes: &Attributes) -> Answer {
    let mut answer = Answer::new();
    answer.u64(attributes_cached_s(attributes)).u32(0).u32(0);
    put_attributes(&mut answer, attributes);
    answer
}

/// The same with what `stat` has no place for. No attributes (`STATX_ATTR_…`): the kernel passes none on.
fn statx_answer(attributes: &Attributes) -> Answer {
    let mut answer = Answer::new();
    answer
        .u64(attributes_cached_s(attributes))
        .u32(0)
        .u32(0)
        .zeros(16);
    let mode = attributes.kind.mode_bits() | attributes.permissions;
    answer
        .u32(statx_bits::BASIC | statx_bits::BIRTH)
        .u32(attributes.block_size)
        .u64(0)
        .u32(u32::try_from(attributes.links).unwrap_or(u32::MAX))
        .u32(attributes.uid)
        .u32(attributes.gid)
        .u16(u16::try_from(mode).expect("a mode has 16 bits"))
        .u16(0)
        .u64(attributes.id.get())
        .u64(attributes.size)
        .u64(attributes.blocks_512)
        .u64(0);
    let Attributes {
        accessed,
        created,
        changed,
        modified,
        device,
        ..
    } = attributes;
    for time in [accessed, created, changed, modified] {
        let seconds = u64::from_ne_bytes(time.seconds.to_ne_bytes());
        answer.u64(seconds).u32(time.nanoseconds).u32(0);
    }
    // The file system's own device is the kernel's business.
    answer.u32(device.major).u32(device.minor).zeros(8 + 14 * 8);
    answer
}

/// Adds what a lookup finds: a node, and for how many seconds the kernel may keep its name.
pub(crate) fn put_entry(answer: &mut Answer, node: u64, cached_s: u64, attributes: &Attributes) {
    answer
        .u64(node)
        .u64(attributes.generation)
        .u64(cached_s)
        .u64(attributes_cached_s(attributes))
        .u32(0)
        .u32(0);
    put_attributes(answer, attributes);
}

/// Adds what an open gives.
pub(crate) fn put_open(answer: &mut Answer, handle: Handle, flags: u32) {
    answer.u64(handle.number()).u32(flags).u32(0);
}

/// Bytes of a directory entry, padded to eight.
fn entry_size(entry: &DirectoryEntry) -> usize {
    (24 + entry.name.len()).next_multiple_of(8)
}

/// Adds a directory entry if it fits.
fn put_directory_entry(answer: &mut Answer, entry: &DirectoryEntry, room: usize) -> bool {
    let size = entry_size(entry);
    if answer.len() + size > room {
        return false;
    }
    let name_bytes = u32::try_from(entry.name.len()).expect("a name is short");
    let padding = size - 24 - entry.name.len();
    answer
        .u64(entry.id.get())
        .u64(entry.cookie)
        .u32(name_bytes)
        .u32(entry.kind.mode_bits() >> 12)
        .bytes(&entry.name)
        .zeros(padding);
    true
}

/// What `statvfs` shows, in blocks.
fn space_answer(facts: &SpaceFacts) -> Answer {
    /// Counts are in these, whatever the record size: sums stay exact.
    const UNIT: u64 = 512;
    let block = u64::from(facts.block_size.max(512));
    let available = facts.available_bytes / UNIT;
    let mut answer = Answer::new();
    answer
        .u64(facts.total_bytes / UNIT)
        .u64(available)
        .u64(available)
        .u64(facts.total_objects)
        .u64(facts.available_objects)
        .u32(u32::try_from(block).unwrap_or(u32::MAX))
        .u32(facts.name_bytes_max)
        .u32(512)
        .u32(0)
        .zeros(24);
    answer
}
