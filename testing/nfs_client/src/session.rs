//! A session of NFS 4.1 (RFC 8881), its slots, and compounds of the operations.

use crate::client::{Kind, OpenFile, Operation};
use crate::record::{Failure, In, Out, Records};
use crate::request::{COMPOUND, stable};

const CLOSE: u32 = 4;
const COMMIT: u32 = 5;
const GETATTR: u32 = 9;
const GETFH: u32 = 10;
const LOOKUP: u32 = 15;
const OPEN: u32 = 18;
const PUTFH: u32 = 22;
const PUTROOTFH: u32 = 24;
const READ: u32 = 25;
const WRITE: u32 = 38;
const EXCHANGE_ID: u32 = 42;
const CREATE_SESSION: u32 = 43;
const SEQUENCE: u32 = 53;
const RECLAIM_COMPLETE: u32 = 58;

const MINOR: u32 = 1;
/// As many requests may be in flight.
pub(crate) const SLOTS: u32 = 64;
const LARGEST: u32 = (1 << 20) + 4096;
const CACHED: u32 = 64 << 10;
const OPERATIONS: u32 = 16;

/// The state that the operation before in the same compound gave: sequence number 1, all else 0.
const CURRENT_STATE: [u8; 16] = {
    let mut id = [0; 16];
    id[3] = 1;
    id
};

/// What Linux's client asks for when a program calls `stat`: type, change, size, file system,
/// number; mode, links, owner, group, space, times.
const ATTRIBUTES: [u32; 2] = [
    1 << 1 | 1 << 3 | 1 << 4 | 1 << 8 | 1 << 20,
    1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 13 | 1 << 15 | 1 << 20 | 1 << 21,
];

const READ_AND_WRITE: u32 = 3;
const WANT_NO_DELEGATION: u32 = 0x400;
const DELEGATION_NONE: u32 = 0;
const DELEGATION_NONE_BECAUSE: u32 = 3;

/// A session with its slots.
#[derive(Debug)]
pub(crate) struct Session {
    id: [u8; 16],
    client: u64,
    /// The number of the last request of each slot.
    sequences: Vec<u32>,
    free: Vec<u32>,
}

impl Session {
    /// A client with a session, ready for opens.
    pub(crate) fn begin(records: &mut Records, owner: &str) -> Result<Session, Failure> {
        records.call(COMPOUND, |out| {
            head(out, 1).u32(EXCHANGE_ID);
            out.fixed(b"verifier").opaque(owner.as_bytes());
            // No pNFS, no protection of state, no name of the implementation.
            out.u32(0x1_0000).u32(0).u32(0);
        })?;
        let (_, mut reply) = records.reply()?;
        results(&mut reply)?;
        result(&mut reply, "EXCHANGE_ID")?;
        let (client, sequence) = (reply.u64()?, reply.u32()?);
        records.call(COMPOUND, |out| {
            head(out, 1).u32(CREATE_SESSION);
            out.u64(client).u32(sequence).u32(0);
            out.u32(0).u32(LARGEST).u32(LARGEST).u32(CACHED);
            out.u32(OPERATIONS).u32(SLOTS).u32(0);
            out.u32(0).u32(4096).u32(4096).u32(4096);
            out.u32(2).u32(1).u32(0);
            // The program of calls back, which come as nobody's.
            out.u32(0x4000_0000).u32(1).u32(0);
        })?;
        let (_, mut reply) = records.reply()?;
        results(&mut reply)?;
        result(&mut reply, "CREATE_SESSION")?;
        let id = reply.fixed(16)?.try_into().expect("sixteen bytes");
        let (_sequence, _flags) = (reply.u32()?, reply.u32()?);
        let (_pad, _request, _response) = (reply.u32()?, reply.u32()?, reply.u32()?);
        let (_cached, _operations, slots) = (reply.u32()?, reply.u32()?, reply.u32()?);
        let slots = slots.clamp(1, SLOTS);
        let mut session = Session {
            id,
            client,
            sequences: vec![0; slots as usize],
            free: (0..slots).rev().collect(),
        };
        let complete = |out: &mut Out| {
            out.u32(RECLAIM_COMPLETE).u32(0);
        };
        session.ask(records, 1, complete, |reply| {
            result(reply, "RECLAIM_COMPLETE")
        })?;
        Ok(session)
    }

    /// The handle of a folder, given by its path from the server's root.
    pub(crate) fn look_up(
        &mut self,
        records: &mut Records,
        path: &str,
    ) -> Result<Vec<u8>, Failure> {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let count = 2 + u32::try_from(names.len()).expect("a path is short");
        let put = |out: &mut Out| {
            out.u32(PUTROOTFH);
            for name in &names {
                out.u32(LOOKUP).opaque(name.as_bytes());
            }
            out.u32(GETFH);
        };
        self.ask(records, count, put, |reply| {
            result(reply, "PUTROOTFH")?;
            for _ in &names {
                result(reply, "LOOKUP")?;
            }
            result(reply, "GETFH")?;
            Ok(reply.opaque()?.to_vec())
        })
    }

    /// Opens a file for reading and writing, and makes it where there is none.
    pub(crate) fn open(
        &mut self,
        records: &mut Records,
        folder: &[u8],
        name: &str,
    ) -> Result<OpenFile, Failure> {
        let client = self.client;
        let put = |out: &mut Out| {
            out.u32(PUTFH).opaque(folder);
            put_open(out, client, name);
            out.u32(GETFH);
        };
        self.ask(records, 3, put, |reply| {
            result(reply, "PUTFH")?;
            let state = take_open(reply)?;
            result(reply, "GETFH")?;
            let handle = reply.opaque()?.to_vec();
            Ok(OpenFile { handle, state })
        })
    }

    /// One compound, alone on the connection.
    fn ask<T>(
        &mut self,
        records: &mut Records,
        count: u32,
        put: impl FnOnce(&mut Out),
        take: impl FnOnce(&mut In<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let slot = self.take_slot();
        records.call(COMPOUND, |out| {
            self.put_head(out, slot, count);
            put(out);
        })?;
        let (_, mut reply) = records.reply()?;
        take_head(&mut reply)?;
        let taken = take(&mut reply)?;
        self.free.push(slot);
        Ok(taken)
    }

    /// A slot that no request is in.
    pub(crate) fn take_slot(&mut self) -> u32 {
        let slot = self.free.pop();
        slot.expect("no more requests are in flight than there are slots")
    }

    /// Gives a slot back whose reply came.
    pub(crate) fn free_slot(&mut self, slot: u32) {
        assert!(!self.free.contains(&slot), "a slot has one request");
        self.free.push(slot);
    }

    /// As many requests may be in flight.
    pub(crate) fn slots(&self) -> usize {
        self.sequences.len()
    }

    /// Puts an operation as a compound.
    pub(crate) fn put(&mut self, out: &mut Out, slot: u32, operation: &Operation<'_>) {
        let count = match operation {
            Operation::Create { .. } => 4,
            Operation::LookUp { .. } => 3,
            _ => 2,
        };
        self.put_head(out, slot, count);
        out.u32(PUTFH).opaque(operation.handle());
        match operation {
            Operation::Attributes { .. } => {
                out.u32(GETATTR).u32(2);
                out.u32(ATTRIBUTES[0]).u32(ATTRIBUTES[1]);
            }
            Operation::Read {
                file,
                offset,
                bytes,
            } => {
                out.u32(READ).fixed(&file.state);
                out.u64(*offset).u32(*bytes);
            }
            Operation::Write {
                file,
                offset,
                data,
                promise,
            } => {
                out.u32(WRITE).fixed(&file.state).u64(*offset);
                out.u32(stable(*promise)).opaque(data);
            }
            Operation::Commit { .. } => {
                out.u32(COMMIT).u64(0).u32(0);
            }
            Operation::LookUp { name, .. } => {
                out.u32(LOOKUP).opaque(name.as_bytes()).u32(GETFH);
            }
            Operation::Create { name, .. } => {
                put_open(out, self.client, name);
                out.u32(GETFH);
                out.u32(CLOSE).u32(0).fixed(&CURRENT_STATE);
            }
        }
    }

    fn put_head(&mut self, out: &mut Out, slot: u32, count: u32) {
        assert!(!self.free.contains(&slot), "a request is in a taken slot");
        let sequence = &mut self.sequences[slot as usize];
        *sequence += 1;
        head(out, count + 1).u32(SEQUENCE).fixed(&self.id);
        out.u32(*sequence).u32(slot).u32(SLOTS - 1).u32(0);
    }
}

/// The head of a compound with so many operations.
fn head(out: &mut Out, count: u32) -> &mut Out {
    out.u32(0).u32(MINOR).u32(count)
}

fn put_open(out: &mut Out, client: u64, name: &str) {
    out.u32(OPEN).u32(0);
    out.u32(READ_AND_WRITE | WANT_NO_DELEGATION).u32(0);
    out.u64(client).opaque(b"load");
    // Made unless it is there, with a mode.
    out.u32(1).u32(0);
    out.u32(2)
        .u32(0)
        .u32(1 << 1)
        .opaque(&0o644_u32.to_be_bytes());
    // By its name in the current folder.
    out.u32(0).opaque(name.as_bytes());
}

/// The state of what was opened.
fn take_open(reply: &mut In<'_>) -> Result<[u8; 16], Failure> {
    result(reply, "OPEN")?;
    let state = reply.fixed(16)?.try_into().expect("sixteen bytes");
    let (_is_atomic, _before, _after) = (reply.u32()?, reply.u64()?, reply.u64()?);
    let (_flags, words) = (reply.u32()?, reply.u32()?);
    for _ in 0..words {
        reply.u32()?;
    }
    match reply.u32()? {
        DELEGATION_NONE => {}
        DELEGATION_NONE_BECAUSE => {
            // Contention and resources come with whether the server will tell.
            if matches!(reply.u32()?, 1 | 2) {
                reply.u32()?;
            }
        }
        _ => return Err(Failure::Malformed("a delegation that was not wanted")),
    }
    Ok(state)
}

/// The head of a compound's results.
fn results(reply: &mut In<'_>) -> Result<(), Failure> {
    let (_status, _tag, _count) = (reply.u32()?, reply.opaque()?, reply.u32()?);
    Ok(())
}

/// The head of a result.
fn result(reply: &mut In<'_>, operation: &'static str) -> Result<(), Failure> {
    let (_number, status) = (reply.u32()?, reply.u32()?);
    match status {
        0 => Ok(()),
        status => Err(Failure::Refused { operation, status }),
    }
}

fn take_head(reply: &mut In<'_>) -> Result<(), Failure> {
    results(reply)?;
    result(reply, "SEQUENCE")?;
    // The session, and five numbers.
    reply.fixed(16 + 5 * 4)?;
    Ok(())
}

/// The bytes that were read, and the handle of what was made, as far as the operation has them.
pub(crate) fn take<'a>(kind: Kind, reply: &mut In<'a>) -> Result<(&'a [u8], &'a [u8]), Failure> {
    take_head(reply)?;
    result(reply, "PUTFH")?;
    match kind {
        Kind::Attributes => {
            result(reply, "GETATTR")?;
            Ok((&[], &[]))
        }
        Kind::Read => {
            result(reply, "READ")?;
            let _is_end = reply.u32()?;
            Ok((reply.opaque()?, &[]))
        }
        Kind::Write => {
            result(reply, "WRITE")?;
            Ok((&[], &[]))
        }
        Kind::Commit => {
            result(reply, "COMMIT")?;
            Ok((&[], &[]))
        }
        Kind::LookUp => {
            result(reply, "LOOKUP")?;
            result(reply, "GETFH")?;
            Ok((&[], reply.opaque()?))
        }
        Kind::Create => {
            take_open(reply)?;
            result(reply, "GETFH")?;
            let handle = reply.opaque()?;
            result(reply, "CLOSE")?;
            Ok((&[], handle))
        }
    }
}
