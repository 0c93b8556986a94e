//! Requests on the files of volumes, from the kernel to the volume and back.

use crate::volume_tree::{MountedTree, Node, ROOT};
use rustix::io::Errno;
use tarn_engine::files::{ClientId, HolderId};
use tarn_engine::volumes::{
    Durable, NewContents, Operation, OperationKind, Protocol, ReadData, VolumeError, Who,
};
use tarn_fuse::inbox::Request;
use tarn_fuse::protocol::{
    Answer, Arguments, MAJOR, MINOR, RequestHead, WRITE_BYTES_MAX, init_flags, opcode,
};

/// Of loop devices there is no other reader or writer than Linux itself.
const WHO: Who = Who {
    client: ClientId::INTERNAL,
    protocol: Protocol::BlockDevice,
    user: 0,
    holder: HolderId::NONE,
};

/// What Linux may do. With `ASYNC_DIO` the loop device has many requests under way from one thread;
/// nothing is cached that this could mix up.
const WANTED: u64 = init_flags::ASYNC_READ
    | init_flags::BIG_WRITES
    | init_flags::MAX_PAGES
    | init_flags::ASYNC_DIO
    | init_flags::INIT_EXT;

/// Requests that Linux may have in flight: as many as a loop device has by default.
const BACKGROUND_MAX: u16 = 128;

/// Linux's pages in the largest request.
const PAGES_MAX: u16 = 256;

/// Reply to an open: nothing is cached, and several writes may be under way.
#[doc(alias = "FOPEN_DIRECT_IO")]
const OPEN_DIRECT: u32 = 1 << 0;
#[doc(alias = "FOPEN_PARALLEL_DIRECT_WRITES")]
const OPEN_PARALLEL_WRITES: u32 = 1 << 6;

/// Types and permissions of the folder and of files.
const FOLDER: u32 = 0o040_700;
const FILE: u32 = 0o100_600;
const FILE_READ_ONLY: u32 = 0o100_400;

/// What a read of this many bytes takes is no longer than that of a switch of threads.
const MUCH_BYTES: u32 = 64 << 10;

/// What is replied.
enum Reply {
    Nothing,
    Structures(Answer),
    Contents(ReadData),
}

/// Whether a request reads so much that it takes long.
pub(crate) fn reads_much(request: &Request) -> bool {
    request.arguments().is_ok_and(|(head, arguments)| {
        head.opcode == opcode::READ && range_of(arguments).is_ok_and(|(_, size)| size > MUCH_BYTES)
    })
}

/// Carries out a request, and replies.
pub(crate) fn serve(tree: &MountedTree, request: &mut Request) {
    let contents = request.take_contents();
    // A cut request is not answered.
    let Ok((head, arguments)) = request.arguments() else {
        return;
    };
    let reply = match contents {
        Some(contents) => write(tree, head.node, arguments, Some(contents)),
        None => answer(tree, &head, arguments),
    };
    match reply {
        Ok(Reply::Nothing) => {}
        Ok(Reply::Structures(answer)) => tree.device.reply(head.unique, &[answer.as_slice()]),
        Ok(Reply::Contents(data)) => {
            let parts: Vec<&[u8]> = data.parts().collect();
            tree.device.reply(head.unique, &parts);
        }
        Err(errno) => tree.device.refuse(head.unique, errno),
    }
}

fn answer(
    tree: &MountedTree,
    head: &RequestHead,
    mut arguments: Arguments<'_>,
) -> Result<Reply, Errno> {
    let files = &tree.files;
    let node = || files.find(head.node).ok_or(Errno::STALE);
    match head.opcode {
        opcode::INIT => initialise(arguments),
        opcode::FORGET | opcode::BATCH_FORGET | opcode::INTERRUPT => Ok(Reply::Nothing),
        opcode::DESTROY | opcode::RELEASE | opcode::RELEASEDIR | opcode::FLUSH => done(),
        opcode::LOOKUP => {
            let (number, node) = files.named(arguments.name()?).ok_or(Errno::NOENT)?;
            let mut answer = Answer::new();
            // The name and the attributes are asked for each time.
            answer.u64(number).zeros(32);
            put_file(&mut answer, number, &node);
            Ok(Reply::Structures(answer))
        }
        opcode::GETATTR => {
            let mut answer = Answer::new();
            answer.zeros(16);
            match head.node {
                ROOT => put_attributes(&mut answer, ROOT, 0, FOLDER, 4096),
                number => put_file(&mut answer, number, &node()?),
            }
            Ok(Reply::Structures(answer))
        }
        opcode::OPEN => {
            node()?;
            let mut answer = Answer::new();
            answer.u64(0).u32(OPEN_DIRECT | OPEN_PARALLEL_WRITES).u32(0);
            Ok(Reply::Structures(answer))
        }
        opcode::OPENDIR => {
            let mut answer = Answer::new();
            answer.zeros(16);
            Ok(Reply::Structures(answer))
        }
        opcode::READDIR => list(tree, arguments),
        opcode::STATFS => {
            let block_bytes = match head.node {
                ROOT => 4096,
                _ => node()?.volume.block_size(),
            };
            let block_bytes = u32::try_from(block_bytes).unwrap_or(4096);
            let mut answer = Answer::new();
            answer.zeros(40).u32(block_bytes).u32(255).u32(block_bytes);
            answer.zeros(28);
            Ok(Reply::Structures(answer))
        }
        opcode::READ => read(&node()?, arguments),
        opcode::WRITE => write(tree, head.node, arguments, None),
        opcode::FSYNC => {
            let node = node()?;
            let flush = |operation: &Operation| node.volume.flush(operation);
            measured(&node, OperationKind::Sync, (0, 0), flush)?;
            done()
        }
        opcode::FALLOCATE => allocate(&node()?, arguments),
        // Linux then does without: there are no attributes, no locks, nothing to create.
        _ => Err(Errno::NOSYS),
    }
}

fn done() -> Result<Reply, Errno> {
    Ok(Reply::Structures(Answer::new()))
}

/// Answers the first request: version and capabilities.
fn initialise(mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
    let (major, minor) = (arguments.u32()?, arguments.u32()?);
    let mut answer = Answer::new();
    if major > MAJOR {
        // Linux asks again with this version.
        answer.u32(MAJOR).u32(MINOR).zeros(56);
        return Ok(Reply::Structures(answer));
    }
    if major < MAJOR || minor < 28 {
        return Err(Errno::PROTO);
    }
    let (readahead, offered) = (arguments.u32()?, u64::from(arguments.u32()?));
    let agreed = u32::try_from(offered & WANTED).map_err(|_| Errno::INVAL)?;
    let write_bytes_max = u32::try_from(WRITE_BYTES_MAX).map_err(|_| Errno::INVAL)?;
    answer.u32(MAJOR).u32(MINOR).u32(readahead).u32(agreed);
    answer.u16(BACKGROUND_MAX).u16(BACKGROUND_MAX / 4 * 3);
    answer.u32(write_bytes_max).u32(1).u16(PAGES_MAX).u16(0);
    answer.zeros(32);
    Ok(Reply::Structures(answer))
}

/// Adds the attributes of a file.
fn put_file(answer: &mut Answer, number: u64, node: &Node) {
    // What decides is whether it can ever be written: `readonly` is a property of the device.
    let mode = match node.volume.is_changeable() {
        true => FILE,
        false => FILE_READ_ONLY,
    };
    let block_bytes = u32::try_from(node.volume.block_size()).unwrap_or(4096);
    put_attributes(answer, number, node.volume.size_bytes(), mode, block_bytes);
}

/// Adds attributes: those of `fuse_attr`.
fn put_attributes(answer: &mut Answer, number: u64, size: u64, mode: u32, block_bytes: u32) {
    answer.u64(number).u64(size).u64(size / 512);
    // Three times of day, owner, group, device number.
    answer.zeros(24).zeros(12);
    answer.u32(mode).u32(1).zeros(12).u32(block_bytes).u32(0);
}

/// The names from an offset on: the number of the node behind which to go on.
fn list(tree: &MountedTree, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
    arguments.u64()?;
    let (after, room) = (arguments.u64()?, arguments.u32()?);
    let room = usize::try_from(room).map_err(|_| Errno::INVAL)?;
    let mut answer = Answer::new();
    for (number, name) in tree.files.from(after.saturating_add(1)) {
        let size = (24 + name.len()).next_multiple_of(8);
        if answer.len() + size > room {
            break;
        }
        let length = u32::try_from(name.len()).map_err(|_| Errno::INVAL)?;
        answer.u64(number).u64(number).u32(length).u32(FILE >> 12);
        answer.bytes(name.as_bytes());
        answer.zeros(size - 24 - name.len());
    }
    Ok(Reply::Structures(answer))
}

/// The offset and the size of a read.
fn range_of(mut arguments: Arguments<'_>) -> Result<(u64, u32), Errno> {
    arguments.u64()?;
    Ok((arguments.u64()?, arguments.u32()?))
}

fn read(node: &Node, arguments: Arguments<'_>) -> Result<Reply, Errno> {
    let (offset, size) = range_of(arguments)?;
    let end = node.volume.size_bytes();
    let size = u64::from(size).min(end.saturating_sub(offset));
    if size == 0 {
        return done();
    }
    let length = usize::try_from(size).map_err(|_| Errno::INVAL)?;
    let read = |operation: &Operation| node.volume.read(offset, length, operation);
    let data = measured(node, OperationKind::Read, (offset, size), read)?;
    Ok(Reply::Contents(data))
}

/// Writes, with the contents in buffers of their own or behind the structures.
fn write(
    tree: &MountedTree,
    number: u64,
    mut arguments: Arguments<'_>,
    contents: Option<NewContents<'_>>,
) -> Result<Reply, Errno> {
    let node = tree.files.find(number).ok_or(Errno::STALE)?;
    let (offset, size) = range_of(arguments.clone())?;
    arguments.skip(40)?;
    let contents = match contents {
        Some(contents) => contents,
        None => NewContents::Bytes(arguments.bytes(size)?),
    };
    let range = (offset, u64::from(size));
    measured(&node, OperationKind::Write, range, |operation| {
        let volume = &node.volume;
        volume.write(offset, contents, Durable::Later, operation)
    })?;
    let mut answer = Answer::new();
    answer.u32(size).u32(0);
    Ok(Reply::Structures(answer))
}

/// Discards a range, or makes it zeros.
fn allocate(node: &Node, mut arguments: Arguments<'_>) -> Result<Reply, Errno> {
    arguments.u64()?;
    let (offset, length, mode) = (arguments.u64()?, arguments.u64()?, arguments.u32()?);
    let keep = libc::FALLOC_FL_KEEP_SIZE;
    let may_free = match i32::try_from(mode).map_err(|_| Errno::OPNOTSUPP)? {
        mode if mode == keep | libc::FALLOC_FL_PUNCH_HOLE => true,
        mode if mode & !keep == libc::FALLOC_FL_ZERO_RANGE => false,
        _ => return Err(Errno::OPNOTSUPP),
    };
    let range = (offset, length);
    measured(node, OperationKind::Discard, range, |operation| {
        let volume = &node.volume;
        volume.write_zeros(offset, length, may_free, Durable::Later, operation)
    })?;
    done()
}

/// Carries out an operation of a volume, and counts it.
fn measured<T>(
    node: &Node,
    kind: OperationKind,
    range: (u64, u64),
    run: impl FnOnce(&Operation) -> Result<T, VolumeError>,
) -> Result<T, Errno> {
    let operation = node.volume.begin(WHO, kind, range);
    let outcome = run(&operation);
    if let Err(error) = &outcome {
        operation.fail(error.code());
    }
    node.volume.finish(operation);
    outcome.map_err(|error| errno_of(&error))
}

fn errno_of(error: &VolumeError) -> Errno {
    match error {
        VolumeError::OutOfRange { .. } => Errno::INVAL,
        VolumeError::ReadOnly => Errno::ROFS,
        VolumeError::NoSpace => Errno::NOSPC,
        VolumeError::QuotaExceeded => Errno::DQUOT,
        VolumeError::Gone => Errno::NODEV,
        _ => Errno::IO,
    }
}
