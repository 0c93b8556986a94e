//! Replies: numbers, and contents of files from the cache between them where there are any.

use crate::rpc::authentication::Rejected;
use crate::rpc::record::LAST_FRAGMENT;
use crate::xdr::{Malformed, Reader, Writer};
use tarn_engine::files::ReadData;

const REPLY: u32 = 1;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;
const RPC_MISMATCH: u32 = 0;
const AUTH_ERROR: u32 = 1;
const NO_VERIFIER: u32 = 0;

/// Where the parts of a reply without a verifier are, behind the mark of its record.
const XID_AT: usize = 4;
const STAT_AT: usize = 12;
const ACCEPT_STAT_AT: usize = 24;
/// Where the result begins.
pub(crate) const RESULT_AT: usize = 28;

/// Why a call that was accepted has no result: an `accept_stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The program is not served here.
    ProgramUnavailable,
    /// It is served in these versions.
    ProgramMismatch {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// The program has no such procedure.
    ProcedureUnavailable,
    /// The arguments cannot be decoded.
    GarbageArguments,
}

/// A reply, with the mark of its record.
#[derive(Debug, Default)]
pub struct Reply {
    head: Writer,
    /// Contents of files, and the places of the head before which they belong, in order.
    data: Vec<(usize, ReadData)>,
}

impl Reply {
    /// The head of a result: the body is appended to the writer.
    pub fn begin(xid: u32) -> Writer {
        let mut writer = accepted(xid);
        writer.u32(0);
        writer
    }

    /// The head of a result with a verifier.
    pub(crate) fn begin_with(xid: u32, flavor: u32, verifier: &[u8]) -> Writer {
        let mut writer = accepted_with(xid, flavor, verifier);
        writer.u32(0);
        writer
    }

    /// The connection becomes one of TLS behind this reply (RFC 9289, section 4.1).
    pub fn start_tls(xid: u32) -> Reply {
        let mut writer = accepted_with(xid, NO_VERIFIER, b"STARTTLS");
        writer.u32(0);
        Reply::of(writer)
    }

    /// A result without data of files.
    pub fn of(head: Writer) -> Reply {
        Reply::with_data(head, Vec::new())
    }

    /// A result with the contents of files at these places of the head, which has their lengths and
    /// what pads them.
    pub fn with_data(mut head: Writer, data: Vec<(usize, ReadData)>) -> Reply {
        let contents: usize = data.iter().map(|(_, data)| data.len()).sum();
        let length = u32::try_from(head.len() + contents - 4);
        let length = length.expect("a reply has at most some MiB");
        head.put_u32(0, LAST_FRAGMENT | length);
        Reply { head, data }
    }

    /// A call that was accepted and has no result.
    pub fn failed(xid: u32, failure: Failure) -> Reply {
        let mut writer = accepted(xid);
        match failure {
            Failure::ProgramUnavailable => writer.u32(1),
            Failure::ProgramMismatch { low, high } => writer.u32(2).u32(low).u32(high),
            Failure::ProcedureUnavailable => writer.u32(3),
            Failure::GarbageArguments => writer.u32(4),
        };
        Reply::of(writer)
    }

    /// A call of another version of RPC.
    pub fn other_rpc_version(xid: u32) -> Reply {
        let mut writer = denied(xid);
        writer.u32(RPC_MISMATCH).u32(2).u32(2);
        Reply::of(writer)
    }

    /// A call whose credentials are refused.
    pub fn not_authentic(xid: u32, why: Rejected) -> Reply {
        let mut writer = denied(xid);
        writer.u32(AUTH_ERROR).u32(why.number());
        Reply::of(writer)
    }

    /// A reply that was kept as bytes.
    pub fn again(bytes: &[u8]) -> Reply {
        let mut head = Writer::new();
        head.fixed(bytes);
        debug_assert_eq!(head.len(), bytes.len(), "a reply is whole words");
        Reply {
            head,
            data: Vec::new(),
        }
    }

    /// The number of its call.
    pub(crate) fn xid(&self) -> u32 {
        self.word(XID_AT)
    }

    /// Whether the call was accepted, so that the reply has a verifier.
    pub(crate) fn is_accepted(&self) -> bool {
        self.word(STAT_AT) == ACCEPTED
    }

    /// Whether the call was carried out, so that there is a result.
    pub(crate) fn has_result(&self) -> bool {
        self.is_accepted() && self.word(ACCEPT_STAT_AT) == 0
    }

    /// The bytes of the result, in parts.
    pub(crate) fn result_parts(&self) -> Vec<&[u8]> {
        self.parts_from(RESULT_AT)
    }

    /// The same with a verifier, where it has none yet.
    pub(crate) fn with_verifier(self, flavor: u32, verifier: &[u8]) -> Reply {
        let mut head = accepted_with(self.xid(), flavor, verifier);
        let moved = head.len();
        head.fixed(&self.head.as_slice()[ACCEPT_STAT_AT..]);
        let place = |(place, data)| (place + moved - ACCEPT_STAT_AT, data);
        Reply::with_data(head, self.data.into_iter().map(place).collect())
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.head.as_slice().get(at..at + 4);
        let bytes = bytes.and_then(<[u8]>::first_chunk);
        u32::from_be_bytes(*bytes.expect("each reply has a head"))
    }

    /// The bytes of a reply without data of files.
    pub fn head(&self) -> &[u8] {
        self.head.as_slice()
    }

    /// All bytes, in parts.
    pub fn parts(&self) -> Vec<&[u8]> {
        self.parts_from(0)
    }

    fn parts_from(&self, mut at: usize) -> Vec<&[u8]> {
        let mut parts = Vec::new();
        let head = self.head.as_slice();
        for (place, data) in &self.data {
            parts.push(&head[at..*place]);
            parts.extend(data.parts());
            at = *place;
        }
        parts.push(&head[at..]);
        parts
    }
}

/// The result in a reply of another machine that was accepted and carried out.
///
/// # Errors
/// It is another reply, or one without a result.
pub(crate) fn result_of(reply: &[u8], xid: u32) -> Result<Vec<u8>, Malformed> {
    const AUTH_BYTES_MAX: usize = 400;
    let mut reader = Reader::new(reply);
    let head = (reader.u32()?, reader.u32()?, reader.u32()?);
    let _flavor = reader.u32()?;
    reader.opaque(AUTH_BYTES_MAX)?;
    match (head, reader.u32()?) {
        ((other, 1, 0), 0) if other == xid => Ok(reader.rest().to_vec()),
        _ => Err(Malformed),
    }
}

fn accepted(xid: u32) -> Writer {
    accepted_with(xid, NO_VERIFIER, &[])
}

fn accepted_with(xid: u32, flavor: u32, verifier: &[u8]) -> Writer {
    let mut writer = Writer::new();
    // The first number is the mark of the record, which is put there in the end.
    writer.u32(0).u32(xid).u32(REPLY).u32(ACCEPTED);
    writer.u32(flavor).opaque(verifier);
    writer
}

fn denied(xid: u32) -> Writer {
    let mut writer = Writer::new();
    writer.u32(0).u32(xid).u32(REPLY).u32(DENIED);
    writer
}
