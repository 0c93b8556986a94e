//! A client of NFS version 4.0, as far as the tests need it.

use super::client::Client;
use super::client4::{
    Answer, CLOSE, DELEGRETURN, Delegated, GETFH, LOCK, LOCKU, LOOKUP, OPEN, Operations, PUTROOTFH,
    READ, StateId, WRITE, delegated, status_of,
};
use tarn_nfs::xdr::{Reader, Writer};
use tarn_nfs::{v3, v4};

pub const OPEN_CONFIRM: u32 = 20;
pub const RENEW: u32 = 30;
pub const SETCLIENTID: u32 = 35;
pub const SETCLIENTID_CONFIRM: u32 = 36;
pub const RELEASE_LOCKOWNER: u32 = 39;

/// A client with a number. Owners count their operations where the tests say so.
pub struct Client40 {
    pub connection: Client,
    pub id: u64,
    /// Where it takes calls.
    pub address: String,
}

/// What an `OPEN` gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    pub state: StateId,
    pub delegated: Delegated,
    pub must_confirm: bool,
    pub file: Vec<u8>,
}

impl Client40 {
    pub fn new(connection: Client, name: &[u8], verifier: [u8; 8]) -> Client40 {
        Client40::that_is_called(connection, name, verifier, "0.0.0.0.0.0")
    }

    pub fn that_is_called(
        connection: Client,
        name: &[u8],
        verifier: [u8; 8],
        address: &str,
    ) -> Client40 {
        let address = address.to_string();
        let mut client = Client40 {
            connection,
            id: 0,
            address,
        };
        let (id, confirms) = client.introduce(name, verifier).unwrap();
        assert_eq!(client.confirm(id, confirms), 0);
        client.id = id;
        client
    }

    pub fn compound(&mut self, operations: &Operations) -> Answer {
        let which = (v3::PROGRAM, v4::VERSION, v4::COMPOUND);
        let arguments = operations.arguments(0);
        Answer::decode(&self.connection.call(which, &arguments).unwrap())
    }

    pub fn status(&mut self, operations: &Operations) -> u32 {
        self.compound(operations).status
    }

    pub fn introduce(&mut self, name: &[u8], verifier: [u8; 8]) -> Result<(u64, u64), u32> {
        let address = self.address.clone();
        let answer = self.compound(&Operations::default().with(SETCLIENTID, |out| {
            out.fixed(&verifier).opaque(name);
            out.u32(1 << 30).opaque(b"tcp").opaque(address.as_bytes());
            out.u32(1);
        }));
        let mut reader = Reader::new(&answer.bytes);
        match status_of(&mut reader, SETCLIENTID) {
            0 => Ok((reader.u64().unwrap(), reader.u64().unwrap())),
            status => Err(status),
        }
    }

    pub fn confirm(&mut self, id: u64, confirms: u64) -> u32 {
        self.status(&Operations::default().with(SETCLIENTID_CONFIRM, |out| {
            out.u64(id).u64(confirms);
        }))
    }

    pub fn renew(&mut self, id: u64) -> u32 {
        self.status(&Operations::default().with(RENEW, |out| {
            out.u64(id);
        }))
    }

    /// The handle at a path from the root of the server.
    pub fn look_up(&mut self, path: &str) -> Vec<u8> {
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
        let mut operations = Operations::default().with(PUTROOTFH, |_| {});
        for name in &names {
            operations = operations.with(LOOKUP, |out| {
                out.opaque(name.as_bytes());
            });
        }
        let answer = self.compound(&operations.with(GETFH, |_| {}));
        assert_eq!(answer.status, 0);
        let mut reader = Reader::new(&answer.bytes[8 * (1 + names.len())..]);
        assert_eq!(status_of(&mut reader, GETFH), 0);
        reader.opaque(128).unwrap().to_vec()
    }

    /// Opens a file for reading and writing, and makes it where it is not there.
    pub fn open(
        &mut self,
        folder: &[u8],
        name: &str,
        owner: &[u8],
        sequence: u32,
    ) -> Result<Opened, u32> {
        let id = self.id;
        self.opened(folder, |out| {
            out.u32(sequence).u32(3).u32(0).u64(id).opaque(owner);
            // Unchecked, with a mode.
            out.u32(1).u32(0).u32(2).u32(0).u32(1 << 1);
            out.opaque(&0o644_u32.to_be_bytes());
            out.u32(0).opaque(name.as_bytes());
        })
    }

    /// Opens a file that is there for reading, or for writing.
    pub fn open_for(
        &mut self,
        folder: &[u8],
        name: &str,
        (owner, sequence): (&[u8], u32),
        access: u32,
    ) -> Result<Opened, u32> {
        let id = self.id;
        self.opened(folder, |out| {
            out.u32(sequence).u32(access).u32(0).u64(id).opaque(owner);
            out.u32(0).u32(0).opaque(name.as_bytes());
        })
    }

    pub fn return_delegation(&mut self, file: &[u8], state: &StateId) -> u32 {
        self.status(&Operations::at(file).with(DELEGRETURN, |out| {
            out.fixed(state);
        }))
    }

    /// Opens what was open before a restart of the server.
    pub fn reclaim(&mut self, file: &[u8], owner: &[u8], sequence: u32) -> Result<Opened, u32> {
        let id = self.id;
        self.opened(file, |out| {
            out.u32(sequence).u32(3).u32(0).u64(id).opaque(owner);
            out.u32(0).u32(1).u32(0);
        })
    }

    fn opened(&mut self, at: &[u8], open: impl FnOnce(&mut Writer)) -> Result<Opened, u32> {
        let operations = Operations::at(at).with(OPEN, open).with(GETFH, |_| {});
        let answer = self.compound(&operations);
        if answer.status != 0 {
            return Err(answer.status);
        }
        let mut reader = Reader::new(&answer.bytes[8..]);
        assert_eq!(status_of(&mut reader, OPEN), 0);
        let state = reader.fixed().unwrap();
        reader.fixed::<20>().unwrap();
        let flags = reader.u32().unwrap();
        for _word in 0..reader.u32().unwrap() {
            reader.u32().unwrap();
        }
        let delegated = delegated(&mut reader);
        assert_eq!(status_of(&mut reader, GETFH), 0);
        Ok(Opened {
            state,
            delegated,
            must_confirm: flags & 2 != 0,
            file: reader.opaque(128).unwrap().to_vec(),
        })
    }

    /// The state that an operation on a file gives.
    fn state(
        &mut self,
        file: &[u8],
        number: u32,
        put: impl FnOnce(&mut Writer),
    ) -> Result<StateId, u32> {
        let answer = self.compound(&Operations::at(file).with(number, put));
        match answer.status {
            0 => Ok(answer.bytes[16..32].try_into().unwrap()),
            status => Err(status),
        }
    }

    pub fn confirm_open(
        &mut self,
        file: &[u8],
        state: &StateId,
        sequence: u32,
    ) -> Result<StateId, u32> {
        self.state(file, OPEN_CONFIRM, |out| {
            out.fixed(state).u32(sequence);
        })
    }

    pub fn close(&mut self, file: &[u8], state: &StateId, sequence: u32) -> Result<StateId, u32> {
        self.state(file, CLOSE, |out| {
            out.u32(sequence).fixed(state);
        })
    }

    /// Locks for writing, by an owner of locks that the server does not know.
    pub fn lock(
        &mut self,
        file: &[u8],
        (open, sequence): (&StateId, u32),
        (owner, first): (&[u8], u32),
        (offset, length): (u64, u64),
        reclaims: bool,
    ) -> Result<StateId, u32> {
        let id = self.id;
        self.state(file, LOCK, |out| {
            out.u32(2).bool(reclaims).u64(offset).u64(length);
            out.bool(true).u32(sequence).fixed(open).u32(first);
            out.u64(id).opaque(owner);
        })
    }

    /// Locks more for writing.
    pub fn lock_more(
        &mut self,
        file: &[u8],
        (state, sequence): (&StateId, u32),
        (offset, length): (u64, u64),
    ) -> Result<StateId, u32> {
        self.state(file, LOCK, |out| {
            out.u32(2).bool(false).u64(offset).u64(length);
            out.bool(false).fixed(state).u32(sequence);
        })
    }

    pub fn unlock(&mut self, file: &[u8], state: &StateId, sequence: u32) -> Result<StateId, u32> {
        self.state(file, LOCKU, |out| {
            out.u32(2).u32(sequence).fixed(state).u64(0).u64(u64::MAX);
        })
    }

    pub fn release(&mut self, owner: &[u8]) -> u32 {
        let id = self.id;
        self.status(&Operations::default().with(RELEASE_LOCKOWNER, |out| {
            out.u64(id).opaque(owner);
        }))
    }

    pub fn write(&mut self, file: &[u8], state: &StateId, data: &[u8]) -> u32 {
        self.status(&Operations::at(file).with(WRITE, |out| {
            out.fixed(state).u64(0).u32(2).opaque(data);
        }))
    }

    pub fn read(&mut self, file: &[u8], state: &StateId) -> Result<Vec<u8>, u32> {
        let answer = self.compound(&Operations::at(file).with(READ, |out| {
            out.fixed(state).u64(0).u32(100);
        }));
        match answer.status {
            0 => Ok(Reader::new(&answer.bytes[20..])
                .opaque(100)
                .unwrap()
                .to_vec()),
            status => Err(status),
        }
    }
}
