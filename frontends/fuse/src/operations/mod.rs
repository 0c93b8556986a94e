//! The operations: one call of the file system for each opcode.
//!
//! One file for each group of operations; [`run`] finds the function of an opcode.

mod answers;
mod attributes;
mod contents;
mod control;
mod creation;
mod directories;
mod extended_attributes;
mod locking;
mod names;
mod opening;
mod privileges;
mod syncing;

use crate::device::Device;
use crate::handles::Handle;
use crate::protocol::{Answer, Arguments, RequestHead, opcode};
use crate::session::{OTHER, Place, Session, errno_of};
use contents::{copy_head, write_head};
use rustix::io::Errno;
use tarn_engine::files::{Credentials, Operation, OperationKind, PosixError, ReadData, Unsynced};

/// The reply to a request.
pub(crate) enum Reply {
    /// None: the kernel does not wait.
    Nothing,
    /// Structures.
    Parts(Answer),
    /// Bytes of a file, uncopied.
    Read(ReadData),
    /// Structures, as soon as the file is durable.
    WhenDurable(Answer, Unsynced),
}

/// The kind of a request in statistics.
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

/// The byte range of a request, for its operation record.
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

/// Whether a request reads more bytes of a file than this.
pub(crate) fn reads_more_than(head: &RequestHead, arguments: Arguments<'_>, bytes: usize) -> bool {
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    head.opcode == opcode::READ && range(head, arguments).1 > bytes
}

/// Whether a request waits for a log write, and for no other slow thing.
pub(crate) fn waits_for_log(head: &RequestHead, mut arguments: Arguments<'_>) -> bool {
    match head.opcode {
        opcode::FSYNC => true,
        opcode::WRITE => write_head(&mut arguments).is_ok_and(|write| write.wants_sync()),
        opcode::FALLOCATE => arguments.handle().is_ok_and(Handle::wants_sync),
        opcode::COPY_FILE_RANGE => copy_head(&mut arguments).is_ok_and(|copy| copy.wants_sync()),
        _ => false,
    }
}

/// The error that the kernel gets for a failed request. In a request about a node, `ENOENT` means
/// that the node has gone, as when another file was renamed over it; its name may lead to another
/// file. Only for `ESTALE` does the kernel look the name up again.
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

/// `ESTALE` instead of `ENOENT`, for a request about a node.
pub(super) fn gone(errno: Errno) -> Errno {
    match errno {
        Errno::NOENT => Errno::STALE,
        errno => errno,
    }
}

/// The facts of a request beside its arguments.
pub(crate) struct Call<'a> {
    pub(crate) session: &'a Session,
    pub(crate) device: &'a Device,
    /// The request's number.
    pub(crate) unique: u64,
    /// The node of the file.
    pub(crate) node: u64,
    /// The calling process, where it is visible.
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
        opcode::FLUSH => call.flush(file, arguments),
        opcode::GETLK => call.find_lock(file, arguments),
        opcode::SETLK => call.lock(file, arguments),
        opcode::SETLKW => call.lock_or_wait(file, arguments),
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
        opcode::ACCESS => call.access(file, arguments),
        opcode::DESTROY => Ok(Reply::Nothing),
        // The kernel then does without.
        _ => Err(Errno::NOSYS),
    }
}

/// The errno of an operation's error.
pub(crate) fn refused(error: PosixError) -> Errno {
    errno_of(&error)
}

/// The reply of an operation without a result.
pub(super) fn done(outcome: Result<(), PosixError>) -> Result<Reply, Errno> {
    outcome.map_err(refused)?;
    Ok(Reply::Parts(Answer::new()))
}
