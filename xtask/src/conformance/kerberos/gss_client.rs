//! A client of NFS version 3 by RPCSEC_GSS (RFC 2203), one call at a time.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use tarn_host::gss::Context;

use crate::workspace::Outcome;

/// The server, as tickets are for it.
const SERVER: &str = "nfs@localhost";

const NFS: (u32, u32) = (100_003, 3);
const MOUNT: (u32, u32) = (100_005, 3);

/// A server that says nothing for so long is one that hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// A call that is dropped has no answer after so long.
const DROPPED: Duration = Duration::from_millis(500);

const DATA: u32 = 0;
const INIT: u32 = 1;
const DESTROY: u32 = 3;

/// How much is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    Authentication,
    Integrity,
    Privacy,
}

impl Service {
    pub fn number(self) -> u32 {
        match self {
            Service::Authentication => 1,
            Service::Integrity => 2,
            Service::Privacy => 3,
        }
    }
}

/// What the RPC layer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The call was accepted with this status.
    Accepted(u32),
    /// It is not authentic.
    Denied(u32),
    /// It is dropped.
    Nothing,
}

/// Bytes as XDR has them.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn u32(&mut self, value: u32) -> &mut Out {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn u64(&mut self, value: u64) -> &mut Out {
        self.0.extend(value.to_be_bytes());
        self
    }

    fn opaque(&mut self, bytes: &[u8]) -> &mut Out {
        self.u32(u32::try_from(bytes.len()).expect("a call is small"));
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}

struct In<'a>(&'a [u8]);

impl<'a> In<'a> {
    fn fixed(&mut self, count: usize) -> Outcome<&'a [u8]> {
        let split = self.0.split_at_checked(count);
        let (head, rest) = split.ok_or("a reply ends too early")?;
        self.0 = rest;
        Ok(head)
    }

    fn u32(&mut self) -> Outcome<u32> {
        Ok(u32::from_be_bytes(self.fixed(4)?.try_into()?))
    }

    fn opaque(&mut self) -> Outcome<&'a [u8]> {
        let count = usize::try_from(self.u32()?)?;
        let bytes = self.fixed(count)?;
        self.fixed(count.next_multiple_of(4) - count)?;
        Ok(bytes)
    }

    /// `post_op_attr`, `wcc_data`: the attributes if they are there.
    fn attributes(&mut self) -> Outcome<Option<&'a [u8]>> {
        Ok(match self.u32()? {
            0 => None,
            _ => Some(self.fixed(84)?),
        })
    }

    fn changed(&mut self) -> Outcome {
        if self.u32()? != 0 {
            self.fixed(24)?;
        }
        self.attributes().map(drop)
    }
}

/// A reply that was taken apart.
struct Reply {
    answer: Answer,
    /// What it signs.
    verifier: Vec<u8>,
    body: Vec<u8>,
}

/// A context of the user of this process.
pub struct GssClient {
    stream: TcpStream,
    context: Context,
    handle: Vec<u8>,
    service: Service,
    sequence: u32,
    xid: u32,
}

/// How a call is made wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Damage {
    Nothing,
    Signature,
    Arguments,
}

fn open(port: u16) -> Outcome<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn send(stream: &mut TcpStream, call: &[u8]) -> Outcome {
    let mark = u32::try_from(call.len())? | 1 << 31;
    stream.write_all(&[&mark.to_be_bytes()[..], call].concat())?;
    Ok(())
}

fn receive(stream: &mut TcpStream, patience: Duration) -> Outcome<Reply> {
    let mut mark = [0; 4];
    stream.set_read_timeout(Some(patience))?;
    match stream.read_exact(&mut mark) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {
            return Ok(Reply {
                answer: Answer::Nothing,
                verifier: Vec::new(),
                body: Vec::new(),
            });
        }
        read => read?,
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    let length = u32::from_be_bytes(mark) & !(1 << 31);
    let mut bytes = vec![0; usize::try_from(length)?];
    stream.read_exact(&mut bytes)?;
    let mut reply = In(&bytes);
    let (_xid, _kind, is_denied) = (reply.u32()?, reply.u32()?, reply.u32()?);
    if is_denied == 1 {
        let _reject = reply.u32()?;
        return Ok(Reply {
            answer: Answer::Denied(reply.u32()?),
            verifier: Vec::new(),
            body: Vec::new(),
        });
    }
    let _flavor = reply.u32()?;
    let verifier = reply.opaque()?.to_vec();
    Ok(Reply {
        answer: Answer::Accepted(reply.u32()?),
        verifier,
        body: reply.0.to_vec(),
    })
}

/// The head of a call, up to its verifier.
fn head(xid: u32, (program, version): (u32, u32), procedure: u32, credential: &[u8]) -> Out {
    let mut head = Out::default();
    head.u32(xid).u32(0).u32(2);
    head.u32(program).u32(version).u32(procedure);
    head.u32(6).opaque(credential);
    head
}

fn credential(control: u32, sequence: u32, service: u32, handle: &[u8]) -> Vec<u8> {
    let mut body = Out::default();
    body.u32(1).u32(control).u32(sequence).u32(service);
    body.opaque(handle);
    body.0
}

impl GssClient {
    /// The handle of a folder, and the flavors by which it may be reached.
    pub fn mount(port: u16, path: &Path) -> Outcome<(Vec<u8>, Vec<u32>)> {
        let mut stream = open(port)?;
        let mut call = Out::default();
        call.u32(1).u32(0).u32(2).u32(MOUNT.0).u32(MOUNT.1).u32(1);
        call.u32(0).u32(0).u32(0).u32(0);
        call.opaque(path.as_os_str().as_bytes());
        send(&mut stream, &call.0)?;
        let reply = receive(&mut stream, PATIENCE)?;
        let mut body = In(&reply.body);
        match body.u32()? {
            0 => {}
            status => return Err(format!("MOUNT of {}: {status}", path.display()).into()),
        }
        let handle = body.opaque()?.to_vec();
        let flavors = (0..body.u32()?).map(|_| body.u32()).collect::<Outcome<_>>();
        Ok((handle, flavors?))
    }

    /// Gives a token to the server, and the status that this has come to.
    pub fn begin_with(port: u16, token: &[u8]) -> Outcome<u32> {
        let mut stream = open(port)?;
        let reply = begin(&mut stream, token)?;
        let mut result = In(&reply.body);
        let _handle = result.opaque()?;
        result.u32()
    }

    /// A context of this user's.
    pub fn connect(port: u16, service: Service) -> Outcome<GssClient> {
        let (mut stream, context) = (open(port)?, Context::new()?);
        let (token, _) = context.initiate(SERVER, &[])?;
        let reply = begin(&mut stream, &token)?;
        let mut result = In(&reply.body);
        let handle = result.opaque()?.to_vec();
        let (major, _minor) = (result.u32()?, result.u32()?);
        if major != 0 {
            return Err(format!("the server refuses the ticket: {major:#x}").into());
        }
        let window = result.u32()?;
        let (_, is_complete) = context.initiate(SERVER, result.opaque()?)?;
        assert!(is_complete, "Kerberos has one token each way");
        context.verify(&window.to_be_bytes(), &reply.verifier)?;
        Ok(GssClient {
            stream,
            context,
            handle,
            service,
            sequence: 0,
            xid: 100,
        })
    }

    /// A call, and its result.
    fn call(&mut self, procedure: u32, arguments: &Out) -> Outcome<Vec<u8>> {
        self.sequence += 1;
        let reply = self.exchange((DATA, procedure), self.sequence, arguments, Damage::Nothing)?;
        match reply.answer {
            Answer::Accepted(0) => self.result(&reply.body, self.sequence),
            other => Err(format!("procedure {procedure}: {other:?}").into()),
        }
    }

    /// Takes a result out of what protects it.
    fn result(&self, body: &[u8], sequence: u32) -> Outcome<Vec<u8>> {
        let mut body_in = In(body);
        let signed = match self.service {
            Service::Authentication => return Ok(body.to_vec()),
            Service::Integrity => {
                let signed = body_in.opaque()?;
                self.context.verify(signed, body_in.opaque()?)?;
                signed.to_vec()
            }
            Service::Privacy => self.context.unwrap(body_in.opaque()?)?,
        };
        match signed.strip_prefix(&sequence.to_be_bytes()) {
            Some(result) => Ok(result.to_vec()),
            None => Err("the result has another number than the call".into()),
        }
    }

    fn exchange(
        &mut self,
        (control, procedure): (u32, u32),
        sequence: u32,
        arguments: &Out,
        damage: Damage,
    ) -> Outcome<Reply> {
        self.xid += 1;
        let service = self.service.number();
        let credential = credential(control, sequence, service, &self.handle);
        let mut call = head(self.xid, NFS, procedure, &credential);
        let mut mic = self.context.mic(&call.0)?;
        if damage == Damage::Signature {
            *mic.last_mut().ok_or("an empty signature")? ^= 1;
        }
        call.u32(6).opaque(&mic);
        let plain = [&sequence.to_be_bytes()[..], &arguments.0].concat();
        match self.service {
            Service::Privacy if control == DATA => {
                call.opaque(&self.context.wrap(&plain)?);
            }
            Service::Integrity if control == DATA => {
                let mut mic = self.context.mic(&plain)?;
                if damage == Damage::Arguments {
                    *mic.last_mut().ok_or("an empty signature")? ^= 1;
                }
                call.opaque(&plain).opaque(&mic);
            }
            _ => call.0.extend(&arguments.0),
        }
        send(&mut self.stream, &call.0)?;
        let patience = self.patience(damage, sequence);
        let reply = receive(&mut self.stream, patience)?;
        if let Answer::Accepted(_) = reply.answer {
            self.context
                .verify(&sequence.to_be_bytes(), &reply.verifier)?;
        }
        Ok(reply)
    }

    /// A call with a new number is answered; others may be dropped.
    fn patience(&self, damage: Damage, sequence: u32) -> Duration {
        match damage == Damage::Nothing && sequence >= self.sequence {
            true => PATIENCE,
            false => DROPPED,
        }
    }

    /// A call without arguments and effects.
    pub fn ask_for_nothing(&mut self) -> Outcome<Answer> {
        self.sequence += 1;
        self.numbered(self.sequence)
    }

    /// The same with this number, which counts on from there.
    pub fn numbered(&mut self, sequence: u32) -> Outcome<Answer> {
        let nothing = Out::default();
        let reply = self.exchange((DATA, 0), sequence, &nothing, Damage::Nothing)?;
        if sequence < 1 << 31 {
            self.sequence = sequence;
        }
        Ok(reply.answer)
    }

    /// The same with a number that was used before.
    pub fn repeated(&mut self, back: u32) -> Outcome<Answer> {
        let sequence = self.sequence.saturating_sub(back).max(1);
        let sequence = if back > 8 { back } else { sequence };
        let reply = self.exchange((DATA, 0), sequence, &Out::default(), Damage::Nothing)?;
        Ok(reply.answer)
    }

    /// The same with a signature of which a bit is wrong.
    pub fn with_damaged_signature(&mut self) -> Outcome<Answer> {
        self.sequence += 1;
        let sequence = self.sequence;
        let reply = self.exchange((DATA, 0), sequence, &Out::default(), Damage::Signature)?;
        Ok(reply.answer)
    }

    /// A call whose arguments were changed on the way.
    pub fn with_damaged_arguments(&mut self, file: &[u8]) -> Outcome<Answer> {
        self.sequence += 1;
        let mut arguments = Out::default();
        arguments.opaque(file);
        let sequence = self.sequence;
        let reply = self.exchange((DATA, 1), sequence, &arguments, Damage::Arguments)?;
        Ok(reply.answer)
    }

    /// A call of another context.
    pub fn with_handle(&mut self, handle: &[u8]) -> Outcome<Answer> {
        let own = std::mem::replace(&mut self.handle, handle.to_vec());
        let answer = self.ask_for_nothing();
        self.handle = own;
        answer
    }

    /// Ends the context.
    pub fn destroy(&mut self) -> Outcome {
        self.sequence += 1;
        let reply = self.exchange(
            (DESTROY, 0),
            self.sequence,
            &Out::default(),
            Damage::Nothing,
        )?;
        match reply.answer {
            Answer::Accepted(0) => Ok(()),
            other => Err(format!("the end of a context: {other:?}").into()),
        }
    }

    /// Makes a file; `Err` has the status.
    pub fn create(&mut self, folder: &[u8], name: &str) -> Outcome<Result<Vec<u8>, u32>> {
        let mut arguments = Out::default();
        arguments.opaque(folder).opaque(name.as_bytes());
        // UNCHECKED, and a mode alone.
        arguments.u32(0).u32(1).u32(0o644);
        arguments.u32(0).u32(0).u32(0).u32(0).u32(0);
        let result = self.call(8, &arguments)?;
        let mut result = In(&result);
        Ok(match result.u32()? {
            0 => {
                let _has_handle = result.u32()?;
                Ok(result.opaque()?.to_vec())
            }
            status => Err(status),
        })
    }

    /// Writes durably.
    pub fn write(&mut self, file: &[u8], bytes: &[u8]) -> Outcome {
        let count = u32::try_from(bytes.len())?;
        let mut arguments = Out::default();
        arguments
            .opaque(file)
            .u64(0)
            .u32(count)
            .u32(2)
            .opaque(bytes);
        let result = self.call(7, &arguments)?;
        let mut result = In(&result);
        let status = result.u32()?;
        result.changed()?;
        match (status, result.u32()?) {
            (0, written) if written == count => Ok(()),
            other => Err(format!("WRITE: {other:?}").into()),
        }
    }

    /// Reads from the beginning.
    pub fn read(&mut self, file: &[u8], count: usize) -> Outcome<Vec<u8>> {
        let mut arguments = Out::default();
        arguments.opaque(file).u64(0).u32(u32::try_from(count)?);
        let result = self.call(6, &arguments)?;
        let mut result = In(&result);
        let status = result.u32()?;
        result.attributes()?;
        if status != 0 {
            return Err(format!("READ: {status}").into());
        }
        let (_count, _is_end) = (result.u32()?, result.u32()?);
        Ok(result.opaque()?.to_vec())
    }

    /// The user whose file it is.
    pub fn owner(&mut self, file: &[u8]) -> Outcome<u32> {
        let mut arguments = Out::default();
        arguments.opaque(file);
        let result = self.call(1, &arguments)?;
        let mut result = In(&result);
        let (status, _kind, _mode, _links) =
            (result.u32()?, result.u32()?, result.u32()?, result.u32()?);
        match status {
            0 => result.u32(),
            status => Err(format!("GETATTR: {status}").into()),
        }
    }
}

/// Gives the server the first token.
fn begin(stream: &mut TcpStream, token: &[u8]) -> Outcome<Reply> {
    let credential = credential(INIT, 0, 1, &[]);
    let mut call = head(99, NFS, 0, &credential);
    call.u32(0).u32(0).opaque(token);
    send(stream, &call.0)?;
    let reply = receive(stream, PATIENCE)?;
    match reply.answer {
        Answer::Accepted(0) => Ok(reply),
        other => Err(format!("the beginning of a context: {other:?}").into()),
    }
}
