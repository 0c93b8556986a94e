//! A client of NFS versions 4.1 and 4.2, as far as the tests need it.

use super::client::Client;
use tarn_nfs::xdr::{Reader, Writer};
use tarn_nfs::{v3, v4};

pub const CLOSE: u32 = 4;
pub const COMMIT: u32 = 5;
pub const CREATE: u32 = 6;
pub const DELEGRETURN: u32 = 8;
pub const GETATTR: u32 = 9;
pub const GETFH: u32 = 10;
pub const LOCK: u32 = 12;
pub const LOCKU: u32 = 14;
pub const LOOKUP: u32 = 15;
pub const OPEN: u32 = 18;
pub const PUTFH: u32 = 22;
pub const PUTROOTFH: u32 = 24;
pub const READ: u32 = 25;
pub const READDIR: u32 = 26;
pub const REMOVE: u32 = 28;
pub const WRITE: u32 = 38;
pub const EXCHANGE_ID: u32 = 42;
pub const CREATE_SESSION: u32 = 43;
pub const DESTROY_SESSION: u32 = 44;
pub const FREE_STATEID: u32 = 45;
pub const SEQUENCE: u32 = 53;
pub const DESTROY_CLIENTID: u32 = 57;
pub const TEST_STATEID: u32 = 55;
pub const RECLAIM_COMPLETE: u32 = 58;
const CB_RECALL: u32 = 4;
const CB_SEQUENCE: u32 = 11;

/// The id of a state.
pub type StateId = [u8; 16];

/// The operations of a compound.
#[derive(Clone, Default)]
pub struct Operations {
    pub count: u32,
    pub bytes: Writer,
}

impl Operations {
    pub fn with(mut self, number: u32, put: impl FnOnce(&mut Writer)) -> Operations {
        self.count += 1;
        self.bytes.u32(number);
        put(&mut self.bytes);
        self
    }

    pub fn at(handle: &[u8]) -> Operations {
        Operations::default().with(PUTFH, |out| {
            out.opaque(handle);
        })
    }

    /// The operations of both.
    fn and(mut self, other: &Operations) -> Operations {
        self.count += other.count;
        self.bytes.fixed(other.bytes.as_slice());
        self
    }

    pub fn arguments(&self, minor: u32) -> Writer {
        let mut arguments = Writer::new();
        arguments.opaque(b"tag").u32(minor).u32(self.count);
        arguments.fixed(self.bytes.as_slice());
        arguments
    }
}

/// The result of a compound: its status, and the results of its operations.
pub struct Answer {
    pub status: u32,
    pub count: u32,
    pub bytes: Vec<u8>,
}

impl Answer {
    pub fn decode(bytes: &[u8]) -> Answer {
        let mut reader = Reader::new(bytes);
        let status = reader.u32().unwrap();
        assert_eq!(reader.opaque(16).unwrap(), b"tag");
        Answer {
            status,
            count: reader.u32().unwrap(),
            bytes: reader.rest().to_vec(),
        }
    }
}

/// The status of the next operation, whose number is this one.
pub fn status_of(reader: &mut Reader<'_>, number: u32) -> u32 {
    assert_eq!(reader.u32(), Ok(number));
    reader.u32().unwrap()
}

/// A client with a session.
pub struct Client4 {
    pub connection: Client,
    pub minor: u32,
    /// Whether the server is to keep replies of any size.
    pub keeps: bool,
    pub owner: Vec<u8>,
    pub id: u64,
    pub session: [u8; 16],
    pub sequence: u32,
    /// `CREATE_SESSION4_FLAG_*`.
    pub flags: u32,
    /// What the last `OPEN` said of delegations.
    pub delegated: Delegated,
}

/// What an `OPEN` says of delegations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delegated {
    No,
    /// With `why_no_delegation4`.
    NoSince(u32),
    /// For reading.
    Yes(StateId),
    /// To be returned at once.
    Recalled(StateId),
}

impl Client4 {
    /// With a session, and what there was to reclaim given up.
    pub fn new(connection: Client, owner: &[u8]) -> Client4 {
        let mut client = Client4::that_may_reclaim(connection, owner);
        assert_eq!(client.reclaim_complete(), 0);
        client
    }

    pub fn that_may_reclaim(connection: Client, owner: &[u8]) -> Client4 {
        Client4::with_flags(connection, owner, 0)
    }

    /// One that the server can call.
    pub fn that_is_called(connection: Client, owner: &[u8]) -> Client4 {
        const BACK_CHANNEL: u32 = 2;
        let mut client = Client4::with_flags(connection, owner, BACK_CHANNEL);
        assert_eq!(client.reclaim_complete(), 0);
        client
    }

    pub fn with_flags(connection: Client, owner: &[u8], flags: u32) -> Client4 {
        let mut client = Client4 {
            connection,
            minor: 1,
            keeps: false,
            owner: owner.to_vec(),
            id: 0,
            session: [0; 16],
            sequence: 0,
            flags,
            delegated: Delegated::No,
        };
        let (id, sequence) = client.exchange_id(*b"verifier");
        client.id = id;
        let made = client.create_session(sequence).unwrap();
        client.session = made[..16].try_into().unwrap();
        client
    }

    /// A compound without `SEQUENCE`.
    pub fn compound(&mut self, operations: &Operations) -> Answer {
        let which = (v3::PROGRAM, v4::VERSION, v4::COMPOUND);
        let arguments = operations.arguments(self.minor);
        Answer::decode(&self.connection.call(which, &arguments).unwrap())
    }

    pub fn exchange_id(&mut self, verifier: [u8; 8]) -> (u64, u32) {
        let owner = self.owner.clone();
        let answer = self.compound(&Operations::default().with(EXCHANGE_ID, |out| {
            out.fixed(&verifier).opaque(&owner).u32(0).u32(0).u32(0);
        }));
        assert_eq!(answer.status, 0);
        let mut reader = Reader::new(&answer.bytes);
        assert_eq!(status_of(&mut reader, EXCHANGE_ID), 0);
        (reader.u64().unwrap(), reader.u32().unwrap())
    }

    /// The result behind the status.
    pub fn create_session(&mut self, sequence: u32) -> Result<Vec<u8>, u32> {
        let (id, flags) = (self.id, self.flags);
        let answer = self.compound(&Operations::default().with(CREATE_SESSION, |out| {
            out.u64(id).u32(sequence).u32(flags);
            for _channel in 0..2 {
                out.u32(0).u32(1 << 20).u32(1 << 20).u32(4096).u32(64);
                out.u32(8).u32(0);
            }
            out.u32(0).u32(1).u32(0);
        }));
        match answer.status {
            0 => Ok(answer.bytes[8..].to_vec()),
            status => Err(status),
        }
    }

    /// The operations, behind a `SEQUENCE` with these numbers.
    pub fn run_in(&mut self, slot: u32, sequence: u32, operations: &Operations) -> Answer {
        let (session, keeps) = (self.session, self.keeps);
        let first = Operations::default().with(SEQUENCE, |out| {
            out.fixed(&session).u32(sequence).u32(slot).u32(7);
            out.bool(keeps);
        });
        self.compound(&first.and(operations))
    }

    /// The status of all, and the results behind that of `SEQUENCE`.
    pub fn run(&mut self, operations: &Operations) -> (u32, Vec<u8>) {
        self.sequence += 1;
        let answer = self.run_in(0, self.sequence, operations);
        let mut reader = Reader::new(&answer.bytes);
        if status_of(&mut reader, SEQUENCE) != 0 {
            return (answer.status, Vec::new());
        }
        (answer.status, reader.rest()[36..].to_vec())
    }

    pub fn status(&mut self, operations: &Operations) -> u32 {
        self.run(operations).0
    }

    pub fn reclaim_complete(&mut self) -> u32 {
        self.status(&Operations::default().with(RECLAIM_COMPLETE, |out| {
            out.bool(false);
        }))
    }

    /// The handle at a path from the root of the server.
    pub fn look_up(&mut self, path: &str) -> Result<Vec<u8>, u32> {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let mut operations = Operations::default().with(PUTROOTFH, |_| {});
        for name in &names {
            operations = operations.with(LOOKUP, |out| {
                out.opaque(name.as_bytes());
            });
        }
        let (status, bytes) = self.run(&operations.with(GETFH, |_| {}));
        if status != 0 {
            return Err(status);
        }
        // Each has its number and status.
        let mut reader = Reader::new(&bytes[8 * (1 + names.len())..]);
        assert_eq!(status_of(&mut reader, GETFH), 0);
        Ok(reader.opaque(128).unwrap().to_vec())
    }

    /// Opens a file by its name, and makes it where it is not there.
    pub fn open(
        &mut self,
        folder: &[u8],
        name: &str,
        owner: &[u8],
        (access, deny): (u32, u32),
    ) -> Result<(StateId, Vec<u8>), u32> {
        let id = self.id;
        self.opened(folder, |out| {
            out.u32(0).u32(access).u32(deny).u64(id).opaque(owner);
            // Unchecked, with a mode.
            out.u32(1).u32(0).u32(2).u32(0).u32(1 << 1);
            out.opaque(&0o644_u32.to_be_bytes());
            out.u32(0).opaque(name.as_bytes());
        })
    }

    /// Opens a file for reading and writing, and truncates it.
    pub fn open_empty(
        &mut self,
        folder: &[u8],
        name: &str,
        owner: &[u8],
    ) -> Result<(StateId, Vec<u8>), u32> {
        let id = self.id;
        self.opened(folder, |out| {
            out.u32(0).u32(3).u32(0).u64(id).opaque(owner);
            // Unchecked, with a size.
            out.u32(1).u32(0).u32(1).u32(1 << 4).opaque(&[0; 8]);
            out.u32(0).opaque(name.as_bytes());
        })
    }

    /// Opens what was open before a restart of the server.
    pub fn reclaim(&mut self, file: &[u8], owner: &[u8]) -> Result<(StateId, Vec<u8>), u32> {
        let id = self.id;
        self.opened(file, |out| {
            out.u32(0).u32(3).u32(0).u64(id).opaque(owner);
            out.u32(0).u32(1).u32(0);
        })
    }

    fn opened(
        &mut self,
        at: &[u8],
        open: impl FnOnce(&mut Writer),
    ) -> Result<(StateId, Vec<u8>), u32> {
        let operations = Operations::at(at).with(OPEN, open).with(GETFH, |_| {});
        let (status, bytes) = self.run(&operations);
        if status != 0 {
            return Err(status);
        }
        let mut reader = Reader::new(&bytes);
        assert_eq!(status_of(&mut reader, PUTFH), 0);
        assert_eq!(status_of(&mut reader, OPEN), 0);
        let state = reader.fixed().unwrap();
        reader.fixed::<24>().unwrap();
        for _word in 0..reader.u32().unwrap() {
            reader.u32().unwrap();
        }
        self.delegated = delegated(&mut reader);
        assert_eq!(status_of(&mut reader, GETFH), 0);
        Ok((state, reader.opaque(128).unwrap().to_vec()))
    }

    pub fn close(&mut self, file: &[u8], state: &StateId) -> u32 {
        self.status(&Operations::at(file).with(CLOSE, |out| {
            out.u32(0).fixed(state);
        }))
    }

    pub fn write(&mut self, file: &[u8], state: &StateId, offset: u64, data: &[u8]) -> u32 {
        self.status(&Operations::at(file).with(WRITE, |out| {
            out.fixed(state).u64(offset).u32(0).opaque(data);
        }))
    }

    pub fn read(
        &mut self,
        file: &[u8],
        state: &StateId,
        offset: u64,
    ) -> Result<(bool, Vec<u8>), u32> {
        let (status, bytes) = self.run(&Operations::at(file).with(READ, |out| {
            out.fixed(state).u64(offset).u32(100);
        }));
        if status != 0 {
            return Err(status);
        }
        let mut reader = Reader::new(&bytes[16..]);
        let is_end = reader.bool().unwrap();
        Ok((is_end, reader.opaque(100).unwrap().to_vec()))
    }

    /// Locks for writing, by an owner without locks on this open file.
    pub fn lock(
        &mut self,
        file: &[u8],
        open: &StateId,
        owner: &[u8],
        (offset, length): (u64, u64),
        reclaims: bool,
    ) -> Result<StateId, (u32, Vec<u8>)> {
        let id = self.id;
        let (status, bytes) = self.run(&Operations::at(file).with(LOCK, |out| {
            out.u32(2).bool(reclaims).u64(offset).u64(length);
            out.bool(true).u32(0).fixed(open).u32(0);
            out.u64(id).opaque(owner);
        }));
        match status {
            0 => Ok(bytes[16..32].try_into().unwrap()),
            status => Err((status, bytes[16..].to_vec())),
        }
    }

    pub fn unlock(&mut self, file: &[u8], state: &StateId) -> Result<StateId, u32> {
        let (status, bytes) = self.run(&Operations::at(file).with(LOCKU, |out| {
            out.u32(2).u32(0).fixed(state).u64(0).u64(u64::MAX);
        }));
        match status {
            0 => Ok(bytes[16..32].try_into().unwrap()),
            status => Err(status),
        }
    }
}

/// `open_delegation4`.
pub fn delegated(reader: &mut Reader<'_>) -> Delegated {
    match reader.u32().unwrap() {
        0 => Delegated::No,
        1 => {
            let id = reader.fixed().unwrap();
            let is_recalled = reader.bool().unwrap();
            let _mask: [u8; 12] = reader.fixed().unwrap();
            assert!(reader.opaque(64).unwrap().is_empty());
            match is_recalled {
                true => Delegated::Recalled(id),
                false => Delegated::Yes(id),
            }
        }
        3 => {
            let why = reader.u32().unwrap();
            if why == 1 || why == 2 {
                assert_eq!(reader.bool(), Ok(false));
            }
            Delegated::NoSince(why)
        }
        other => panic!("delegation {other}"),
    }
}

impl Client4 {
    /// Opens a file that is there by its name, for reading.
    pub fn open_to_read(&mut self, folder: &[u8], name: &str, wanted: u32) -> (StateId, Vec<u8>) {
        let id = self.id;
        let opened = self.opened(folder, |out| {
            out.u32(0).u32(1 | wanted).u32(0).u64(id).opaque(b"reader");
            out.u32(0).u32(0).opaque(name.as_bytes());
        });
        opened.unwrap()
    }

    /// Opens a file that the client has delegated, for reading.
    pub fn open_delegated(&mut self, file: &[u8], delegation: &StateId) -> Result<StateId, u32> {
        const CURRENT_OF_DELEGATED: u32 = 5;
        let id = self.id;
        let opened = self.opened(file, |out| {
            out.u32(0).u32(1).u32(0).u64(id).opaque(b"second");
            out.u32(0).u32(CURRENT_OF_DELEGATED).fixed(delegation);
        });
        opened.map(|(state, _)| state)
    }

    /// Opens for reading what was open and delegated before a restart of the server.
    pub fn reclaim_delegated(&mut self, file: &[u8]) -> Result<(StateId, Vec<u8>), u32> {
        let id = self.id;
        self.opened(file, |out| {
            out.u32(0).u32(1).u32(0).u64(id).opaque(b"reader");
            out.u32(0).u32(1).u32(1);
        })
    }

    pub fn return_delegation(&mut self, file: &[u8], state: &StateId) -> u32 {
        self.status(&Operations::at(file).with(DELEGRETURN, |out| {
            out.fixed(state);
        }))
    }

    /// Waits for a call of the server that recalls a delegation, and answers it.
    pub fn take_recall(&mut self) -> (StateId, Vec<u8>) {
        let call = self.connection.receive();
        let mut reader = Reader::new(&call);
        let mut word = || reader.u32().unwrap();
        let (xid, head) = (word(), [word(), word(), word(), word(), word()]);
        assert_eq!(head, [0, 2, 0, 1, 1], "a compound for program 0, version 1");
        assert_eq!([word(), word(), word(), word()], [0; 4], "no user");
        assert_eq!(reader.opaque(16), Ok(&b""[..]));
        assert_eq!(reader.u32(), Ok(self.minor));
        assert_eq!([reader.u32(), reader.u32()], [Ok(0), Ok(2)]);
        assert_eq!(reader.u32(), Ok(CB_SEQUENCE));
        assert_eq!(reader.fixed(), Ok(self.session));
        let numbers: [u8; 12] = reader.fixed().unwrap();
        assert_eq!([reader.u32(), reader.u32()], [Ok(0), Ok(0)]);
        assert_eq!(reader.u32(), Ok(CB_RECALL));
        let state = reader.fixed().unwrap();
        assert_eq!(reader.bool(), Ok(false));
        let file = reader.opaque(128).unwrap().to_vec();
        let mut reply = Writer::new();
        reply.u32(xid).u32(1).u32(0).u32(0).u32(0).u32(0);
        reply.u32(0).opaque(b"").u32(2);
        reply.u32(CB_SEQUENCE).u32(0).fixed(&self.session);
        reply.fixed(&numbers).u32(0);
        reply.u32(CB_RECALL).u32(0);
        self.connection.send_record(reply.as_slice());
        (state, file)
    }

    /// What `SEQUENCE` says of the state of the client.
    pub fn flags_of_state(&mut self) -> u32 {
        self.sequence += 1;
        let answer = self.run_in(0, self.sequence, &Operations::default());
        assert_eq!(answer.status, 0);
        let flags = answer.bytes.last_chunk().unwrap();
        u32::from_be_bytes(*flags)
    }
}
