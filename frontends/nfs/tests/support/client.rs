//! A client of NFS version 3 and MOUNT, as far as the tests need it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tarn_nfs::v3::procedure;
use tarn_nfs::xdr::{Reader, Writer};
use tarn_nfs::{mount_protocol, v3};

/// A handle.
pub type Handle = Vec<u8>;

/// The user of calls.
#[derive(Debug, Clone)]
pub enum User {
    Nobody,
    System(u32, u32, Vec<u32>),
}

pub const ROOT: User = User::System(0, 0, Vec::new());

/// Attributes that tests look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    pub kind: u32,
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub fsid: u64,
    pub id: u64,
    pub mtime: (u32, u32),
    pub ctime: (u32, u32),
}

/// What a client writes to and reads from: a socket, or TLS over one.
pub trait Stream: Read + Write + Send {
    /// The socket.
    fn tcp(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn tcp(&self) -> &TcpStream {
        self
    }
}

/// A connection.
pub struct Client {
    stream: Box<dyn Stream>,
    pub user: User,
    pub xid: u32,
}

impl Client {
    pub fn connect(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        Client {
            stream: Box::new(stream),
            user: ROOT,
            xid: 1,
        }
    }

    /// Loses the connection, and connects again from the port that it had.
    pub fn connect_again(self, port: u16) -> Client {
        let own = self.stream.tcp().local_addr().unwrap();
        // At once: the kernel keeps nothing of a connection that is reset.
        let at_once = Some(Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(self.stream.tcp(), at_once).unwrap();
        drop(self.stream);
        let family = rustix::net::AddressFamily::INET;
        let socket = rustix::net::socket(family, rustix::net::SocketType::STREAM, None).unwrap();
        rustix::net::bind(&socket, &own).unwrap();
        let server = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        rustix::net::connect(&socket, &server).unwrap();
        Client {
            stream: Box::new(TcpStream::from(socket)),
            ..self
        }
    }

    /// Asks for TLS (RFC 9289), and gives the verifier of the reply; `Err` has its `auth_stat`.
    pub fn ask_for_tls(&mut self, which: (u32, u32, u32)) -> Result<Vec<u8>, u32> {
        let mut call = Writer::new();
        call.u32(77).u32(0).u32(2);
        call.u32(which.0).u32(which.1).u32(which.2);
        call.u32(7).u32(0).u32(0).u32(0);
        self.send_record(call.as_slice());
        let reply = self.receive();
        let mut reader = Reader::new(&reply);
        assert_eq!((reader.u32().unwrap(), reader.u32().unwrap()), (77, 1));
        if reader.u32().unwrap() == 1 {
            assert_eq!(reader.u32().unwrap(), 1, "AUTH_ERROR");
            return Err(reader.u32().unwrap());
        }
        assert_eq!(reader.u32().unwrap(), 0, "AUTH_NONE");
        let verifier = reader.opaque(400).unwrap().to_vec();
        assert_eq!(reader.u32().unwrap(), 0, "SUCCESS");
        assert!(reader.rest().is_empty());
        Ok(verifier)
    }

    /// The same connection, over what is made of its socket.
    pub fn over(self, make: impl FnOnce(TcpStream) -> Box<dyn Stream>) -> Client {
        let socket = self.stream.tcp().try_clone().unwrap();
        Client {
            stream: make(socket),
            ..self
        }
    }

    /// Sends a call, and gives its number.
    pub fn send(&mut self, which: (u32, u32, u32), arguments: &Writer) -> u32 {
        self.xid += 1;
        let xid = self.xid;
        self.send_as(xid, which, arguments);
        xid
    }

    pub fn send_as(&mut self, xid: u32, which: (u32, u32, u32), arguments: &Writer) {
        let mut call = Writer::new();
        call.u32(xid).u32(0).u32(2);
        call.u32(which.0).u32(which.1).u32(which.2);
        match &self.user {
            User::Nobody => drop(call.u32(0).u32(0)),
            User::System(uid, gid, groups) => {
                let mut body = Writer::new();
                body.u32(0).opaque(b"test").u32(*uid).u32(*gid);
                body.u32(u32::try_from(groups.len()).unwrap());
                for group in groups {
                    body.u32(*group);
                }
                call.u32(1).opaque(body.as_slice());
            }
        }
        call.u32(0).u32(0);
        call.fixed(arguments.as_slice());
        self.send_record(call.as_slice());
    }

    pub fn send_record(&mut self, record: &[u8]) {
        let mark = u32::try_from(record.len()).unwrap() | 1 << 31;
        let bytes = [&mark.to_be_bytes()[..], record].concat();
        self.stream.write_all(&bytes).unwrap();
    }

    /// Sends a record to a server that may have ended the connection.
    pub fn send_quietly(&mut self, record: &[u8]) {
        let mark = u32::try_from(record.len()).unwrap() | 1 << 31;
        let _ = self.stream.write_all(&mark.to_be_bytes());
        let _ = self.stream.write_all(record);
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends no more, and reads until the server ends the connection.
    pub fn finish(mut self) {
        let _ = self.stream.tcp().shutdown(std::net::Shutdown::Write);
        let mut bytes = [0; 4096];
        while let Ok(1..) = self.stream.read(&mut bytes) {}
    }

    /// The next reply: what follows the mark.
    pub fn receive(&mut self) -> Vec<u8> {
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark).expect("a reply comes");
        let mark = u32::from_be_bytes(mark);
        assert_ne!(mark & 1 << 31, 0, "a reply is one fragment");
        let mut reply = vec![0; usize::try_from(mark & !(1 << 31)).unwrap()];
        self.stream.read_exact(&mut reply).unwrap();
        reply
    }

    /// Whether the server has ended the connection.
    pub fn is_ended(&mut self) -> bool {
        matches!(self.stream.read(&mut [0; 1]), Ok(0) | Err(_))
    }

    /// A call and its result; `Err` has the `accept_stat`.
    pub fn call(&mut self, which: (u32, u32, u32), arguments: &Writer) -> Result<Vec<u8>, u32> {
        let xid = self.send(which, arguments);
        let reply = self.receive();
        let mut reader = Reader::new(&reply);
        assert_eq!(reader.u32().unwrap(), xid);
        assert_eq!(reader.u32().unwrap(), 1, "it is a reply");
        assert_eq!(reader.u32().unwrap(), 0, "it is accepted");
        reader.u64().unwrap();
        match reader.u32().unwrap() {
            0 => Ok(reader.rest().to_vec()),
            why => Err(why),
        }
    }

    fn nfs(&mut self, procedure: u32, arguments: &Writer) -> Vec<u8> {
        let which = (v3::PROGRAM, v3::VERSION, procedure);
        self.call(which, arguments).unwrap()
    }

    /// A call of NFS; `Err` has the status. What follows the status is given in either case.
    pub fn status(&mut self, procedure: u32, arguments: &Writer) -> (u32, Vec<u8>) {
        let result = self.nfs(procedure, arguments);
        let (status, rest) = result.split_first_chunk().unwrap();
        (u32::from_be_bytes(*status), rest.to_vec())
    }

    pub fn ask(&mut self, procedure: u32, arguments: &Writer) -> Result<Vec<u8>, u32> {
        match self.status(procedure, arguments) {
            (0, rest) => Ok(rest),
            (status, _) => Err(status),
        }
    }

    pub fn mount(&mut self, path: &str) -> Result<Handle, u32> {
        let mut arguments = Writer::new();
        arguments.opaque(path.as_bytes());
        let which = (mount_protocol::PROGRAM, mount_protocol::VERSION, 1);
        let result = self.call(which, &arguments).unwrap();
        let mut reader = Reader::new(&result);
        match reader.u32().unwrap() {
            0 => Ok(reader.opaque(64).unwrap().to_vec()),
            status => Err(status),
        }
    }

    /// What is shared, each with its clients.
    pub fn exports(&mut self) -> Vec<(String, Vec<String>)> {
        let which = (mount_protocol::PROGRAM, mount_protocol::VERSION, 5);
        let result = self.call(which, &Writer::new()).unwrap();
        let mut reader = Reader::new(&result);
        let text = |reader: &mut Reader<'_>| {
            String::from_utf8(reader.opaque(1024).unwrap().to_vec()).unwrap()
        };
        let mut exports = Vec::new();
        while reader.bool().unwrap() {
            let path = text(&mut reader);
            let mut clients = Vec::new();
            while reader.bool().unwrap() {
                clients.push(text(&mut reader));
            }
            exports.push((path, clients));
        }
        exports
    }

    pub fn attributes(&mut self, file: &[u8]) -> Result<Attributes, u32> {
        let mut arguments = Writer::new();
        arguments.opaque(file);
        let rest = self.ask(procedure::GETATTR, &arguments)?;
        Ok(attributes(&mut Reader::new(&rest)))
    }

    pub fn lookup(&mut self, directory: &[u8], name: &str) -> Result<Handle, u32> {
        let mut arguments = Writer::new();
        arguments.opaque(directory).opaque(name.as_bytes());
        let rest = self.ask(procedure::LOOKUP, &arguments)?;
        Ok(Reader::new(&rest).opaque(64).unwrap().to_vec())
    }

    pub fn create(&mut self, directory: &[u8], name: &str, mode: u32) -> Result<Handle, u32> {
        let mut arguments = Writer::new();
        arguments.opaque(directory).opaque(name.as_bytes()).u32(1);
        put_mode(&mut arguments, mode);
        let rest = self.ask(procedure::CREATE, &arguments)?;
        Ok(made(&rest))
    }

    pub fn make_directory(&mut self, parent: &[u8], name: &str, mode: u32) -> Result<Handle, u32> {
        let mut arguments = Writer::new();
        arguments.opaque(parent).opaque(name.as_bytes());
        put_mode(&mut arguments, mode);
        let rest = self.ask(procedure::MKDIR, &arguments)?;
        Ok(made(&rest))
    }

    /// Writes, and gives how far that is stable, and the verifier.
    pub fn write(
        &mut self,
        file: &[u8],
        offset: u64,
        bytes: &[u8],
        stable: u32,
    ) -> Result<(u32, [u8; 8]), u32> {
        let arguments = write_arguments(file, offset, bytes, stable);
        let rest = self.ask(procedure::WRITE, &arguments)?;
        let mut reader = Reader::new(&rest);
        wcc(&mut reader);
        assert_eq!(usize::try_from(reader.u32().unwrap()).unwrap(), bytes.len());
        Ok((reader.u32().unwrap(), reader.fixed().unwrap()))
    }

    pub fn commit(&mut self, file: &[u8]) -> Result<[u8; 8], u32> {
        let mut arguments = Writer::new();
        arguments.opaque(file).u64(0).u32(0);
        let rest = self.ask(procedure::COMMIT, &arguments)?;
        let mut reader = Reader::new(&rest);
        wcc(&mut reader);
        Ok(reader.fixed().unwrap())
    }

    /// Reads, and says whether the end of the file was reached.
    pub fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Result<(Vec<u8>, bool), u32> {
        let mut arguments = Writer::new();
        arguments.opaque(file).u64(offset).u32(count);
        let rest = self.ask(procedure::READ, &arguments)?;
        let mut reader = Reader::new(&rest);
        post(&mut reader);
        let count = reader.u32().unwrap();
        let is_end = reader.bool().unwrap();
        let bytes = reader.opaque(1 << 20).unwrap().to_vec();
        assert_eq!(usize::try_from(count).unwrap(), bytes.len());
        assert!(reader.rest().is_empty());
        Ok((bytes, is_end))
    }

    pub fn remove(&mut self, directory: &[u8], name: &str) -> Result<(), u32> {
        let mut arguments = Writer::new();
        arguments.opaque(directory).opaque(name.as_bytes());
        self.ask(procedure::REMOVE, &arguments).map(drop)
    }

    pub fn rename(&mut self, from: (&[u8], &str), to: (&[u8], &str)) -> Result<(), u32> {
        let mut arguments = Writer::new();
        arguments.opaque(from.0).opaque(from.1.as_bytes());
        arguments.opaque(to.0).opaque(to.1.as_bytes());
        self.ask(procedure::RENAME, &arguments).map(drop)
    }

    /// All entries with `READDIR`, or with `READDIRPLUS`, asked for by so many bytes.
    pub fn list(
        &mut self,
        directory: &[u8],
        is_plus: bool,
        count: u32,
    ) -> Result<Vec<(String, Option<Handle>)>, u32> {
        let (mut entries, mut cookie) = (Vec::new(), 0);
        loop {
            let mut arguments = Writer::new();
            arguments.opaque(directory).u64(cookie).u64(0).u32(count);
            let which = match is_plus {
                true => {
                    arguments.u32(count);
                    procedure::READDIRPLUS
                }
                false => procedure::READDIR,
            };
            let rest = self.ask(which, &arguments)?;
            assert!(rest.len() <= usize::try_from(count).unwrap());
            let mut reader = Reader::new(&rest);
            post(&mut reader);
            reader.u64().unwrap();
            while reader.bool().unwrap() {
                reader.u64().unwrap();
                let name = reader.opaque(255).unwrap().to_vec();
                cookie = reader.u64().unwrap();
                let mut handle = None;
                if is_plus {
                    post(&mut reader);
                    if reader.bool().unwrap() {
                        handle = Some(reader.opaque(64).unwrap().to_vec());
                    }
                }
                entries.push((String::from_utf8(name).unwrap(), handle));
            }
            if reader.bool().unwrap() {
                return Ok(entries);
            }
        }
    }
}

/// The arguments of `WRITE`.
pub fn write_arguments(file: &[u8], offset: u64, bytes: &[u8], stable: u32) -> Writer {
    let mut arguments = Writer::new();
    let count = u32::try_from(bytes.len()).unwrap();
    arguments.opaque(file).u64(offset).u32(count).u32(stable);
    arguments.opaque(bytes);
    arguments
}

/// `sattr3` with a mode.
pub fn put_mode(arguments: &mut Writer, mode: u32) {
    arguments.bool(true).u32(mode);
    for _rest in 0..5 {
        arguments.u32(0);
    }
}

pub fn attributes(reader: &mut Reader<'_>) -> Attributes {
    let mut word = || reader.u32().unwrap();
    let (kind, mode, links, uid, gid) = (word(), word(), word(), word(), word());
    let size = reader.u64().unwrap();
    reader.u64().unwrap();
    reader.u64().unwrap();
    let (fsid, id) = (reader.u64().unwrap(), reader.u64().unwrap());
    reader.u64().unwrap();
    let mut time = || (reader.u32().unwrap(), reader.u32().unwrap());
    Attributes {
        kind,
        mode,
        links,
        uid,
        gid,
        size,
        fsid,
        id,
        mtime: time(),
        ctime: time(),
    }
}

/// `post_op_attr`.
pub fn post(reader: &mut Reader<'_>) -> Option<Attributes> {
    reader.bool().unwrap().then(|| attributes(reader))
}

/// `wcc_data`: the size before, and the attributes after.
pub fn wcc(reader: &mut Reader<'_>) -> (Option<u64>, Option<Attributes>) {
    let before = reader.bool().unwrap().then(|| {
        let size = reader.u64().unwrap();
        reader.u64().unwrap();
        reader.u64().unwrap();
        size
    });
    (before, post(reader))
}

/// The handle in the result of a procedure that makes a file.
fn made(rest: &[u8]) -> Handle {
    let mut reader = Reader::new(rest);
    assert!(reader.bool().unwrap(), "the result has the handle");
    reader.opaque(64).unwrap().to_vec()
}
