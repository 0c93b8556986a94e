//! NFS: the stream of records, calls of all programs, and compounds of version 4, on a server that
//! shares nothing.

use crate::piece::Piece;
use crate::target::{Input, Target};
use rustix::fs::{MemfdFlags, memfd_create, seek};
use tarn_nfs::rpc::record::{LAST_FRAGMENT, RECORD_BYTES_MAX, RecordStream, Taken};
use tarn_nfs::unshared::UnsharedServer;
use tarn_nfs::xdr::{Reader, Writer};
use tarn_nfs::{lock_manager, mount_protocol, status_monitor, v3, v4};
use tarn_tls::Channel;

/// What a server and a record stream take before anything comes.
const MEMORY_EXTRA: usize = 1 << 20;

/// A byte stream, cut into records.
pub const RECORDS: Target = Target {
    name: "nfs-records",
    about: "fragments of RPC records in a byte stream",
    run: records,
    seed: |piece| Some(framed(&piece.bytes[..piece.bytes.len().min(100)])),
    size_max: 4096,
    memory_per_byte: 64,
    memory_extra: 2 * RECORD_BYTES_MAX,
};

/// Calls with any arguments.
pub const CALLS: Target = Target {
    name: "nfs-calls",
    about: "calls of NFS 3, MOUNT, NLM and NSM",
    run: calls,
    seed: call_seed,
    size_max: 2048,
    memory_per_byte: 64,
    memory_extra: MEMORY_EXTRA,
};

/// Operations in a session.
pub const COMPOUNDS: Target = Target {
    name: "nfs-compounds",
    about: "compounds of NFS 4.1 and 4.2, in a session and without",
    run: compounds,
    seed: compound_seed,
    size_max: 2048,
    memory_per_byte: 256,
    memory_extra: 4 * MEMORY_EXTRA,
};

fn framed(record: &[u8]) -> Vec<u8> {
    let (half, rest) = record.split_at(record.len() / 2);
    let mark = |bytes: &[u8]| u32::try_from(bytes.len()).expect("it is short");
    let first = mark(half).to_be_bytes();
    let last = (mark(rest) | LAST_FRAGMENT).to_be_bytes();
    [&first[..], half, &last[..], rest].concat()
}

fn records(bytes: &[u8]) {
    let name = c"fuzz";
    let Ok(file) = memfd_create(name, MemfdFlags::CLOEXEC) else {
        return;
    };
    let is_written = rustix::io::write(&file, bytes) == Ok(bytes.len());
    if !is_written || seek(&file, rustix::fs::SeekFrom::Start(0)).is_err() {
        return;
    }
    let file = Channel::new(file);
    let (mut stream, mut record, mut rest) = (RecordStream::default(), Vec::new(), bytes);
    while stream.take(&file, &mut record) == Taken::Record {
        let (expected, after) = unframed(rest).expect("a record that was taken is there");
        assert_eq!(record, expected, "a record is what its fragments have");
        rest = after;
        assert!(
            stream.partial_bytes() <= RECORD_BYTES_MAX,
            "a record is bounded"
        );
        let _ = stream.has_whole();
    }
    if let Some((record, _)) = unframed(rest) {
        let few = fragments_of(rest) <= 256;
        assert!(!few || record.len() > RECORD_BYTES_MAX, "a record is taken");
    }
}

/// The first record of a stream, and what follows it.
fn unframed(mut bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut record = Vec::new();
    loop {
        let (mark, after) = bytes.split_first_chunk()?;
        let mark = u32::from_be_bytes(*mark);
        let length = usize::try_from(mark & !LAST_FRAGMENT).ok()?;
        let (fragment, rest) = after.split_at_checked(length)?;
        record.extend_from_slice(fragment);
        if mark & LAST_FRAGMENT != 0 {
            return Some((record, rest));
        }
        bytes = rest;
    }
}

/// How many fragments the first record has.
fn fragments_of(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Some((mark, after)) = bytes.split_first_chunk() {
        count += 1;
        let mark = u32::from_be_bytes(*mark);
        let length = usize::try_from(mark & !LAST_FRAGMENT).unwrap_or(usize::MAX);
        bytes = after.get(length..).unwrap_or_default();
        if mark & LAST_FRAGMENT != 0 {
            break;
        }
    }
    count
}

fn call_seed(piece: &Piece) -> Option<Vec<u8>> {
    let bytes = &piece.bytes[..piece.bytes.len().min(60)];
    let mut arguments = Writer::new();
    arguments
        .opaque(&bytes[..bytes.len().min(32)])
        .opaque(bytes);
    Some(
        [
            &[0, piece.bytes.len().to_le_bytes()[0] % 22, 1][..],
            arguments.as_slice(),
        ]
        .concat(),
    )
}

/// The head of a call of a user with groups.
fn head((program, version, procedure): (u32, u32, u32), user: u8) -> Writer {
    let mut call = Writer::new();
    call.u32(9).u32(0).u32(2);
    call.u32(program).u32(version).u32(procedure);
    let mut body = Writer::new();
    body.u32(0).opaque(b"fuzz").u32(u32::from(user)).u32(0);
    body.u32(1).u32(5);
    match user {
        0 => drop(call.u32(0).u32(0)),
        _ => drop(call.u32(1).opaque(body.as_slice())),
    }
    call.u32(0).u32(0);
    call
}

fn calls(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let server = UnsharedServer::default();
    let (program, procedure, user) = (input.byte(), u32::from(input.byte()), input.byte());
    let which = match program {
        0 => (v3::PROGRAM, v3::VERSION, procedure),
        1 => (mount_protocol::PROGRAM, mount_protocol::VERSION, procedure),
        2 => (mount_protocol::PROGRAM, 1, procedure),
        3 => (v3::PROGRAM, v4::VERSION, procedure),
        4 => (lock_manager::PROGRAM, lock_manager::VERSION, procedure),
        5 => (status_monitor::PROGRAM, status_monitor::VERSION, procedure),
        // The head is any bytes as well.
        _ => return check(&server, input.rest),
    };
    let record = [head(which, user).as_slice(), input.rest].concat();
    check(&server, &record);
    // A client repeats a call whose reply was lost.
    check(&server, &record);
}

/// Serves a record and looks at the reply's frame.
fn check(server: &UnsharedServer, record: &[u8]) {
    let Some(reply) = server.serve(record) else {
        return;
    };
    let mut reader = Reader::new(&reply);
    let length = u32::try_from(reply.len() - 4).expect("a reply is bounded");
    assert_eq!(
        reader.u32(),
        Ok(length | LAST_FRAGMENT),
        "the mark of the record"
    );
    assert_eq!(reply.len() % 4, 0, "a reply is whole words");
    assert!(reply.len() <= RECORD_BYTES_MAX, "a reply is bounded");
    assert_eq!(
        reader.u32().ok(),
        Reader::new(record).u32().ok(),
        "the number of the call"
    );
    assert_eq!(reader.u32(), Ok(1), "it is a reply");
}

fn compound_seed(piece: &Piece) -> Option<Vec<u8>> {
    let bytes = &piece.bytes[..piece.bytes.len().min(40)];
    let mut operations = Writer::new();
    // GETATTR, LOOKUP, LOCKT, SETATTR of any state.
    operations.u32(9).u32(2).u32(0x1818_091a).u32(0x00b0_a23a);
    operations.u32(15).opaque(bytes);
    operations
        .u32(13)
        .u32(2)
        .u64(0)
        .u64(u64::MAX)
        .u64(7)
        .opaque(bytes);
    operations
        .u32(34)
        .u32(0)
        .u64(0)
        .u32(1)
        .u32(16)
        .opaque(bytes);
    Some([&[2, 4][..], operations.as_slice()].concat())
}

fn compound(minor: u8, count: u32, operations: &[&[u8]]) -> Vec<u8> {
    let mut call = head((v3::PROGRAM, v4::VERSION, v4::COMPOUND), 1);
    call.opaque(b"").u32(u32::from(minor)).u32(count);
    [&[call.as_slice()][..], operations].concat().concat()
}

fn compounds(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (minor, count) = (input.byte() & 3, u32::from(input.byte()));
    let server = UnsharedServer::default();
    check(&server, &compound(minor, count, &[input.rest]));
    let Some(session) = session_of(&server) else {
        panic!("a client gets a session");
    };
    let mut first = Writer::new();
    const SEQUENCE: u32 = 53;
    const PUTROOTFH: u32 = 24;
    first
        .u32(SEQUENCE)
        .fixed(&session)
        .u32(1)
        .u32(0)
        .u32(0)
        .u32(1);
    first.u32(PUTROOTFH);
    let record = compound(
        minor.clamp(1, 2),
        count + 2,
        &[first.as_slice(), input.rest],
    );
    check(&server, &record);
    // A repetition gets what the slot has kept.
    check(&server, &record);
}

/// Introduces the client, and makes a session.
fn session_of(server: &UnsharedServer) -> Option<[u8; 16]> {
    const EXCHANGE_ID: u32 = 42;
    const CREATE_SESSION: u32 = 43;
    /// Behind the status, tag and count of a compound: number and status of its operation.
    const RESULT_AT: usize = 28 + 12 + 8;
    let mut introduction = Writer::new();
    introduction.u32(EXCHANGE_ID).u64(7).opaque(b"fuzz");
    introduction.u32(0).u32(0).u32(0);
    let reply = server.serve(&compound(1, 1, &[introduction.as_slice()]))?;
    let mut result = Reader::new(reply.get(RESULT_AT..)?);
    let (client, sequence) = (result.u64().ok()?, result.u32().ok()?);
    let mut create = Writer::new();
    create.u32(CREATE_SESSION).u64(client).u32(sequence).u32(0);
    for _direction in 0..2 {
        create
            .u32(0)
            .u32(1 << 16)
            .u32(1 << 16)
            .u32(4096)
            .u32(8)
            .u32(4)
            .u32(0);
    }
    create.u32(0).u32(1).u32(0);
    let reply = server.serve(&compound(1, 1, &[create.as_slice()]))?;
    Reader::new(reply.get(RESULT_AT..)?).fixed().ok()
}
