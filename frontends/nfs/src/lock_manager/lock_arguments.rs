//! The arguments of procedures of version 4 of NLM (X/Open, Protocols for X/Open PC Interworking:
//! XNFS, chapter 10; 64-bit offsets as in RFC 1813, appendix II).

use crate::xdr::{Malformed, Reader, Writer};
use tarn_engine::files::{LockKind, LockRange};

/// Most bytes of the name of a host (`LM_MAXSTRLEN`) and of opaque bytes (`MAXNETOBJ_SZ`).
const TEXT_BYTES_MAX: usize = 1024;

/// A lock as a client describes it: `nlm4_lock`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientLock {
    /// The name of the client's machine.
    pub(crate) caller: Vec<u8>,
    pub(crate) handle: Vec<u8>,
    /// The client's bytes for the owner; they are shown to others.
    pub(crate) owner: Vec<u8>,
    /// The process.
    pub(crate) process: u32,
    pub(crate) offset: u64,
    /// Zero for all that follows.
    pub(crate) length: u64,
}

impl ClientLock {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<ClientLock, Malformed> {
        Ok(ClientLock {
            caller: reader.opaque(TEXT_BYTES_MAX)?.to_vec(),
            handle: reader.opaque(TEXT_BYTES_MAX)?.to_vec(),
            owner: reader.opaque(TEXT_BYTES_MAX)?.to_vec(),
            process: reader.u32()?,
            offset: reader.u64()?,
            length: reader.u64()?,
        })
    }

    pub(crate) fn put(&self, out: &mut Writer) {
        out.opaque(&self.caller).opaque(&self.handle);
        out.opaque(&self.owner).u32(self.process);
        out.u64(self.offset).u64(self.length);
    }

    pub(crate) fn range(&self) -> LockRange {
        let last = match self.length {
            0 => u64::MAX,
            length => self.offset.saturating_add(length - 1),
        };
        LockRange {
            first: self.offset,
            last,
        }
    }
}

/// Offset and length of a range as clients have them.
pub(crate) fn put_range(range: LockRange, out: &mut Writer) {
    let length = match range.last {
        u64::MAX => 0,
        last => last - range.first + 1,
    };
    out.u64(range.first).u64(length);
}

/// The arguments of `TEST`, `LOCK`, `CANCEL` and `UNLOCK`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockCall {
    pub(crate) cookie: Vec<u8>,
    pub(crate) waits: bool,
    pub(crate) kind: LockKind,
    pub(crate) lock: ClientLock,
    pub(crate) reclaims: bool,
    /// The number of the client's life, as its status monitor counts them; 0 where it says none.
    pub(crate) state: u32,
}

/// Which of the arguments there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Test,
    Lock,
    Cancel,
    Unlock,
}

impl LockCall {
    pub(crate) fn decode(form: Form, reader: &mut Reader<'_>) -> Result<LockCall, Malformed> {
        let cookie = reader.opaque(TEXT_BYTES_MAX)?.to_vec();
        let waits = match form {
            Form::Lock | Form::Cancel => reader.bool()?,
            Form::Test | Form::Unlock => false,
        };
        let kind = match form != Form::Unlock && reader.bool()? {
            true => LockKind::Exclusive,
            false => LockKind::Shared,
        };
        let lock = ClientLock::decode(reader)?;
        let (reclaims, state) = match form {
            Form::Lock => (reader.bool()?, reader.u32()?),
            _ => (false, 0),
        };
        Ok(LockCall {
            cookie,
            waits,
            kind,
            lock,
            reclaims,
            state,
        })
    }
}

/// The arguments of `SHARE` and `UNSHARE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShareCall {
    pub(crate) cookie: Vec<u8>,
    pub(crate) caller: Vec<u8>,
    pub(crate) handle: Vec<u8>,
    pub(crate) owner: Vec<u8>,
    /// Bits: 1 denies reading, 2 writing.
    pub(crate) denies: u32,
    /// Bits: 1 reads, 2 writes.
    pub(crate) access: u32,
    pub(crate) reclaims: bool,
}

impl ShareCall {
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<ShareCall, Malformed> {
        let call = ShareCall {
            cookie: reader.opaque(TEXT_BYTES_MAX)?.to_vec(),
            caller: reader.opaque(TEXT_BYTES_MAX)?.to_vec(),
            handle: reader.opaque(TEXT_BYTES_MAX)?.to_vec(),
            owner: reader.opaque(TEXT_BYTES_MAX)?.to_vec(),
            denies: reader.u32()?,
            access: reader.u32()?,
            reclaims: reader.bool()?,
        };
        match call.denies <= 3 && call.access <= 3 {
            true => Ok(call),
            false => Err(Malformed),
        }
    }
}

/// The name of a host and the number of its life: `FREE_ALL`, and `SM_NOTIFY` of a status monitor.
pub(crate) fn host_and_state(reader: &mut Reader<'_>) -> Result<(Vec<u8>, u32), Malformed> {
    let name = reader.opaque(TEXT_BYTES_MAX)?.to_vec();
    Ok((name, reader.u32()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_go_to_the_end_where_the_length_is_zero_or_too_large() {
        let lock = |offset, length| ClientLock {
            caller: b"c".to_vec(),
            handle: vec![1],
            owner: b"o".to_vec(),
            process: 5,
            offset,
            length,
        };
        assert_eq!(lock(0, 0).range(), LockRange::WHOLE);
        let range = |first, last| LockRange { first, last };
        assert_eq!(lock(10, 5).range(), range(10, 14));
        assert_eq!(lock(u64::MAX, 5).range(), range(u64::MAX, u64::MAX));
        let mut out = Writer::new();
        lock(10, 5).put(&mut out);
        let again = ClientLock::decode(&mut Reader::new(out.as_slice()));
        assert_eq!(again, Ok(lock(10, 5)));
        let mut out = Writer::new();
        put_range(LockRange::WHOLE, &mut out);
        assert_eq!(out.as_slice(), [0; 16]);
    }

    #[test]
    fn reservations_have_two_bits() {
        let mut out = Writer::new();
        out.opaque(b"k").opaque(b"c").opaque(&[1]).opaque(b"o");
        let rest = |denies: u32, access: u32| {
            let mut whole = out.clone();
            whole.u32(denies).u32(access).bool(false);
            ShareCall::decode(&mut Reader::new(whole.as_slice())).is_ok()
        };
        assert!(rest(3, 3) && !rest(4, 0) && !rest(0, 9));
    }
}
