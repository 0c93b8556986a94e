//! A client with one connection.

use crate::record::{Failure, In, Machine, Records};
use crate::request::{self, COMPOUND, MNT};
use crate::session::{self, Session};

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// 3, with MOUNT on a port that may be another.
    Three,
    /// 4.1.
    FourOne,
}

/// A folder.
#[derive(Debug, Clone)]
pub struct Folder {
    pub(crate) handle: Vec<u8>,
}

/// A file that was opened, which version 3 knows nothing of.
#[derive(Debug, Clone)]
pub struct OpenFile {
    pub(crate) handle: Vec<u8>,
    pub(crate) state: [u8; 16],
}

/// What a write promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stable {
    /// Nothing, until it is committed.
    Unstable,
    /// Bytes and attributes are on disk before the reply.
    File,
}

/// A request.
#[derive(Debug, Clone, Copy)]
pub enum Operation<'a> {
    /// What `stat` shows.
    Attributes {
        /// Of this file.
        file: &'a OpenFile,
    },
    /// Bytes of a file.
    Read {
        /// The file.
        file: &'a OpenFile,
        /// From this byte on.
        offset: u64,
        /// How many.
        bytes: u32,
    },
    /// Writes bytes.
    Write {
        /// The file.
        file: &'a OpenFile,
        /// From this byte on.
        offset: u64,
        /// These.
        data: &'a [u8],
        /// What is true when the reply comes.
        promise: Stable,
    },
    /// Everything written to the file is on disk before the reply.
    Commit {
        /// The file.
        file: &'a OpenFile,
    },
    /// Makes an empty file unless it is there.
    Create {
        /// In this folder.
        folder: &'a Folder,
        /// By this name.
        name: &'a str,
    },
    /// Finds a name.
    LookUp {
        /// In this folder.
        folder: &'a Folder,
        /// This name.
        name: &'a str,
    },
}

/// Which operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Attributes,
    Read,
    Write,
    Commit,
    Create,
    LookUp,
}

impl Kind {
    /// The name in both versions, but for `Create`, which version 4 does by `OPEN`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Attributes => "GETATTR",
            Kind::Read => "READ",
            Kind::Write => "WRITE",
            Kind::Commit => "COMMIT",
            Kind::Create => "CREATE",
            Kind::LookUp => "LOOKUP",
        }
    }
}

impl Operation<'_> {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Operation::Attributes { .. } => Kind::Attributes,
            Operation::Read { .. } => Kind::Read,
            Operation::Write { .. } => Kind::Write,
            Operation::Commit { .. } => Kind::Commit,
            Operation::Create { .. } => Kind::Create,
            Operation::LookUp { .. } => Kind::LookUp,
        }
    }

    /// The file or the folder that it is about.
    pub(crate) fn handle(&self) -> &[u8] {
        match self {
            Operation::Attributes { file }
            | Operation::Read { file, .. }
            | Operation::Write { file, .. }
            | Operation::Commit { file } => &file.handle,
            Operation::Create { folder, .. } | Operation::LookUp { folder, .. } => &folder.handle,
        }
    }
}

/// A reply.
#[derive(Debug, Clone, Copy)]
pub struct Done<'a> {
    /// The request's number, as [`Client::send`] gave it.
    pub call: u32,
    /// The bytes that were read.
    pub data: &'a [u8],
}

/// A request whose reply did not come yet.
#[derive(Debug)]
struct InFlight {
    call: u32,
    kind: Kind,
    /// Of the session, if there is one.
    slot: Option<u32>,
}

/// A client of a server on this machine, as root.
#[derive(Debug)]
pub struct Client {
    records: Records,
    session: Option<Session>,
    in_flight: Vec<InFlight>,
}

impl Client {
    /// Connects, and finds a shared folder by its path.
    ///
    /// `port` is NFS's, `mount_port` MOUNT's; `owner` is this client's name for version 4.1, which
    /// no other one may have at the same time.
    ///
    /// # Errors
    /// There is no server, or it refuses.
    pub fn mount(
        version: Version,
        ports: (u16, u16),
        path: &str,
        owner: &str,
    ) -> Result<(Client, Folder), Failure> {
        Client::mount_from(&Machine::ANY, version, ports, path, owner)
    }

    /// The same from another machine.
    ///
    /// # Errors
    /// As [`Client::mount`]; or the address is none of this machine.
    pub fn mount_from(
        machine: &Machine<'_>,
        version: Version,
        (port, mount_port): (u16, u16),
        path: &str,
        owner: &str,
    ) -> Result<(Client, Folder), Failure> {
        let mut records = Records::connect(machine, port)?;
        let (session, handle) = match version {
            Version::Three => {
                let mut mount = Records::connect(machine, mount_port)?;
                mount.call(MNT, |out| {
                    out.opaque(path.as_bytes());
                })?;
                let (_, mut reply) = mount.reply()?;
                let (status, operation) = (reply.u32()?, "MNT");
                if status != 0 {
                    return Err(Failure::Refused { operation, status });
                }
                (None, reply.opaque()?.to_vec())
            }
            Version::FourOne => {
                let mut session = Session::begin(&mut records, owner)?;
                let handle = session.look_up(&mut records, path)?;
                (Some(session), handle)
            }
        };
        let client = Client {
            records,
            session,
            in_flight: Vec::new(),
        };
        Ok((client, Folder { handle }))
    }

    /// How many requests may be in flight.
    pub fn most_in_flight(&self) -> usize {
        let slots = self.session.as_ref().map(Session::slots);
        slots.unwrap_or(session::SLOTS as usize)
    }

    /// Opens a file, and makes it where there is none. No request may be in flight.
    ///
    /// # Errors
    /// The server refuses, or the connection ends.
    pub fn open(&mut self, folder: &Folder, name: &str) -> Result<OpenFile, Failure> {
        assert!(self.in_flight.is_empty(), "nothing is in flight");
        if let Some(session) = &mut self.session {
            return session.open(&mut self.records, &folder.handle, name);
        }
        let create = Operation::Create { folder, name };
        self.send(&create)?;
        let (_, _, handle) = self.receive_any()?;
        let handle = handle.to_vec();
        let state = [0; 16];
        Ok(OpenFile { handle, state })
    }

    /// Finds a folder in a folder. No request may be in flight.
    ///
    /// # Errors
    /// It is not there, or the connection ends.
    pub fn folder(&mut self, folder: &Folder, name: &str) -> Result<Folder, Failure> {
        assert!(self.in_flight.is_empty(), "nothing is in flight");
        self.send(&Operation::LookUp { folder, name })?;
        let (_, _, handle) = self.receive_any()?;
        let handle = handle.to_vec();
        Ok(Folder { handle })
    }

    /// Sends a request, and gives its number.
    ///
    /// # Errors
    /// The connection ends.
    ///
    /// # Panics
    /// More than [`Client::most_in_flight`] are in flight.
    pub fn send(&mut self, operation: &Operation<'_>) -> Result<u32, Failure> {
        let kind = operation.kind();
        let (call, slot) = match &mut self.session {
            None => {
                let procedure = request::procedure(operation);
                let put = |out: &mut _| request::arguments(operation, out);
                (self.records.call(procedure, put)?, None)
            }
            Some(session) => {
                let slot = session.take_slot();
                let put = |out: &mut _| session.put(out, slot, operation);
                (self.records.call(COMPOUND, put)?, Some(slot))
            }
        };
        self.in_flight.push(InFlight { call, kind, slot });
        Ok(call)
    }

    /// The next reply, whichever request it answers.
    ///
    /// # Errors
    /// The server refuses what was asked for, its reply is malformed, or the connection ends.
    pub fn receive(&mut self) -> Result<Done<'_>, Failure> {
        let (call, data, _) = self.receive_any()?;
        Ok(Done { call, data })
    }

    /// Number, bytes that were read, and handle of what was made.
    fn receive_any(&mut self) -> Result<(u32, &[u8], &[u8]), Failure> {
        let (call, mut reply): (u32, In<'_>) = self.records.reply()?;
        let at = self.in_flight.iter().position(|one| one.call == call);
        let at = at.ok_or(Failure::Malformed("it answers no request"))?;
        let InFlight { kind, slot, .. } = self.in_flight.swap_remove(at);
        let (data, handle) = match (&mut self.session, slot) {
            (Some(session), Some(slot)) => {
                session.free_slot(slot);
                session::take(kind, &mut reply)?
            }
            _ => request::take(kind, &mut reply)?,
        };
        Ok((call, data, handle))
    }
}
