//! Snapshots that an administrator sends and receives, whole, in part, and the rest of it.
//!
//! # Mechanism
//! A stream goes through a file in memory, which is the machine's and not a simulated disk: it
//! stands for the network. So reading and writing need no second thread, and one seed stays one
//! run.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::net::UnixStream;

use crate::house::call;
use tarn_administration::Administrator;
use tarn_administration::administration::{Administration, Call};
use tarn_administration::messages::dataset::{
    AbortReceive, DatasetDescription, DatasetKind, Describe, ReadToken, Receive, Received, Send,
};
use tarn_administration::messages::{RefusalKind, Value};
use tarn_engine::Pipe;

/// The property that has the token.
const TOKEN: &str = "receive_resume_token";

/// Part of a stream that came to a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The snapshot that was sent, by the full name that it had.
    pub sent: String,
    /// The file system is to come of it, and has nothing yet.
    pub makes_new: bool,
}

/// What becomes of a stream on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Whole,
    /// It ends after so many thousandths, and what arrived is kept.
    Kept(u64),
    /// It ends after so many thousandths, and nothing stays of it.
    Refused(u64),
}

/// A snapshot that goes to a file system.
#[derive(Debug, Clone)]
pub struct Sending {
    /// The file system that is sent, and its snapshot.
    pub from: (String, String),
    /// The short name of the snapshot that it goes on from.
    pub base: Option<String>,
    /// Where it goes.
    pub target: String,
    /// What becomes of it.
    pub fate: Fate,
}

impl Sending {
    /// Sends and receives.
    ///
    /// # Errors
    /// A refusal that should not have been, or none where there should have been one.
    pub fn give(&self, administrator: &Administrator) -> Result<(), String> {
        let (name, short) = &self.from;
        let request = Send {
            name: format!("{name}@{short}"),
            from: self.base.as_ref().map(|base| format!("{name}@{base}")),
            large_blocks: true,
            compressed: true,
            ..Send::default()
        };
        let stream = send(administrator, request)?;
        let receive = |resumable| Receive {
            target: self.target.clone(),
            force: self.base.is_some(),
            resumable,
            ..Receive::default()
        };
        let (fate, resumable) = match self.fate {
            Fate::Whole => return take(administrator, &stream, receive(false)),
            Fate::Kept(place) => (place, true),
            Fate::Refused(place) => (place, false),
        };
        let told = |error: std::io::Error| error.to_string();
        let length = stream.metadata().map_err(told)?.len();
        stream.set_len(length * fate / 1000).map_err(told)?;
        match take(administrator, &stream, receive(resumable)) {
            Err(why) if why.contains("incomplete stream") || why.contains("empty stream") => Ok(()),
            Err(why) => Err(why),
            Ok(()) => Err("a stream was taken that was cut".to_string()),
        }
    }
}

/// The rest of a stream of which a part came.
///
/// # Errors
/// Why it does not go on.
pub fn go_on(administrator: &Administrator, target: &str) -> Result<(), String> {
    let token = token(administrator, target)?.ok_or("there is nothing to go on with")?;
    let rest = rest_of(administrator, token)?;
    let request = Receive {
        target: target.to_string(),
        force: rest.from.is_some(),
        resumable: true,
        ..Receive::default()
    };
    take(administrator, &send(administrator, rest)?, request)
}

/// What a token says is to be sent.
///
/// # Errors
/// Why it cannot be.
pub fn rest_of(administrator: &Administrator, token: String) -> Result<Send, String> {
    let read = administrator.dataset_read_token(&call(), ReadToken { token });
    let read = read.map_err(|refusal| refusal.to_string())?;
    read.send.ok_or_else(|| match read.refused {
        Some(refusal) => refusal.to_string(),
        None => "the token says nothing".to_string(),
    })
}

/// What came of a stream is given up.
///
/// # Errors
/// The refusal.
pub fn give_up(administrator: &Administrator, target: &str) -> Result<(), String> {
    let name = target.to_string();
    let done = administrator.dataset_abort_receive(&call(), AbortReceive { name });
    done.map(drop).map_err(|refusal| refusal.to_string())
}

/// What says how far a stream came.
///
/// # Errors
/// What cannot be listed.
pub fn token(administrator: &Administrator, target: &str) -> Result<Option<String>, String> {
    let request = Describe {
        names: vec![target.to_string()],
        depth: Some(0),
        kinds: vec![DatasetKind::Filesystem],
        properties: vec![TOKEN.to_string()],
        ..Describe::default()
    };
    match administrator.dataset_describe(&call(), request) {
        Ok(described) => Ok(described.datasets.first().and_then(token_of)),
        Err(refusal) if refusal.kind == RefusalKind::NotFound => Ok(None),
        Err(refusal) => Err(refusal.to_string()),
    }
}

/// The token among the properties of a file system.
pub fn token_of(described: &DatasetDescription) -> Option<String> {
    match &described.properties.get(TOKEN)?.value {
        Value::Text(token) if !token.is_empty() && token != "-" => Some(token.clone()),
        _ => None,
    }
}

/// The full name of the snapshot that a token is about.
///
/// # Errors
/// What it does not say.
pub fn sent_name(administrator: &Administrator, token: String) -> Result<String, String> {
    let read = administrator.dataset_read_token(&call(), ReadToken { token });
    let text = read.map_err(|refusal| refusal.to_string())?.text;
    let mut lines = text.lines().map(str::trim);
    let name = lines.find_map(|line| line.strip_prefix("toname = "));
    name.map(str::to_string)
        .ok_or_else(|| format!("a token without a name: {text}"))
}

/// A stream, in memory.
///
/// # Errors
/// Why it is not sent.
pub fn send(administrator: &Administrator, request: Send) -> Result<File, String> {
    let name = request.name.clone();
    let told = |error: std::io::Error| format!("sending {name}: {error}");
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let memory = rustix::fs::memfd_create("stream", flags);
    let stream = File::from(memory.map_err(|error| told(error.into()))?);
    let (call, _line) = calling(&stream).map_err(told)?;
    let sent = administrator.dataset_send(&call, request);
    sent.map_err(|refusal| format!("sending {name}: {refusal}"))?;
    Ok(stream)
}

fn take(administrator: &Administrator, stream: &File, request: Receive) -> Result<(), String> {
    let target = request.target.clone();
    let received = receive(administrator, stream, request)?;
    match received.warnings.is_empty() {
        true => Ok(()),
        false => Err(format!("receiving {target}: {:?}", received.warnings)),
    }
}

/// Receives a stream from its beginning.
///
/// # Errors
/// The refusal.
pub fn receive(
    administrator: &Administrator,
    stream: &File,
    request: Receive,
) -> Result<Received, String> {
    let target = request.target.clone();
    let told = |error: std::io::Error| format!("receiving {target}: {error}");
    let mut stream = stream;
    stream.seek(SeekFrom::Start(0)).map_err(told)?;
    let (call, _line) = calling(stream).map_err(told)?;
    let received = administrator.dataset_receive(&call, request);
    received.map_err(|refusal| format!("receiving {target}: {refusal}"))
}

/// A call with a descriptor, and the caller's end of its line.
fn calling(stream: &File) -> std::io::Result<(Call, UnixStream)> {
    let (line, callers) = UnixStream::pair()?;
    let call = Call {
        pipe: Some(Pipe::new(stream.try_clone()?.into(), line.into())?),
        ..call()
    };
    Ok((call, callers))
}
