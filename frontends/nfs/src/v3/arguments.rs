//! Arguments that several procedures have.

use super::status::Status;
use crate::handle::HANDLE_BYTES_MAX;
use crate::xdr::{Malformed, Reader};
use tarn_engine::files::{SetAttributes, SetTime, Timestamp};

/// Most bytes of a handle in this version. Longer ones cannot be decoded.
const HANDLE3_BYTES_MAX: usize = 64;
/// Names and targets of links are bounded by their requests; longer ones are told `NAMETOOLONG`.
const NAME_BYTES_MAX: usize = 4096;
/// Most bytes of a write.
const WRITE_BYTES_MAX: usize = crate::rpc::record::DATA_BYTES_MAX;

const _: () = assert!(HANDLE_BYTES_MAX <= HANDLE3_BYTES_MAX);

/// The arguments of a call.
#[derive(Debug, Clone)]
pub(crate) struct Arguments<'a> {
    reader: Reader<'a>,
}

/// A directory, and a name in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name<'a> {
    pub(crate) directory: &'a [u8],
    pub(crate) name: &'a [u8],
}

/// The arguments of `READ`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Read<'a> {
    pub(crate) file: &'a [u8],
    pub(crate) offset: u64,
    pub(crate) count: u32,
}

/// The arguments of `WRITE`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write<'a> {
    pub(crate) file: &'a [u8],
    pub(crate) offset: u64,
    pub(crate) is_stable: bool,
    pub(crate) data: &'a [u8],
}

impl<'a> Arguments<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Arguments<'a> {
        Arguments {
            reader: Reader::new(bytes),
        }
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.reader.u32()
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        self.reader.u64()
    }

    pub(crate) fn verifier(&mut self) -> Result<[u8; 8], Malformed> {
        self.reader.fixed()
    }

    /// The bytes of a handle, whatever they are.
    pub(crate) fn handle(&mut self) -> Result<&'a [u8], Malformed> {
        self.reader.opaque(HANDLE3_BYTES_MAX)
    }

    /// A name or the target of a link.
    pub(crate) fn text(&mut self) -> Result<&'a [u8], Malformed> {
        self.reader.opaque(NAME_BYTES_MAX)
    }

    pub(crate) fn name(&mut self) -> Result<Name<'a>, Malformed> {
        Ok(Name {
            directory: self.handle()?,
            name: self.text()?,
        })
    }

    pub(crate) fn read(&mut self) -> Result<Read<'a>, Malformed> {
        Ok(Read {
            file: self.handle()?,
            offset: self.u64()?,
            count: self.u32()?,
        })
    }

    pub(crate) fn write(&mut self) -> Result<Write<'a>, Malformed> {
        let (file, offset, count) = (self.handle()?, self.u64()?, self.u32()?);
        let is_stable = match self.u32()? {
            0 => false,
            1 | 2 => true,
            _ => return Err(Malformed),
        };
        let data = self.reader.opaque(WRITE_BYTES_MAX)?;
        let count = usize::try_from(count).map_err(|_| Malformed)?;
        Ok(Write {
            file,
            offset,
            is_stable,
            data: data.get(..count).ok_or(Malformed)?,
        })
    }

    /// `nfstime3`.
    pub(crate) fn time(&mut self) -> Result<Timestamp, Malformed> {
        let (seconds, nanoseconds) = (self.u32()?, self.u32()?);
        match nanoseconds < 1_000_000_000 {
            true => Ok(Timestamp {
                seconds: i64::from(seconds),
                nanoseconds,
            }),
            false => Err(Malformed),
        }
    }

    /// `sattr3`.
    pub(crate) fn attributes(&mut self) -> Result<SetAttributes, Malformed> {
        let permissions = self.optional(Arguments::u32)?;
        let (uid, gid) = (
            self.optional(Arguments::u32)?,
            self.optional(Arguments::u32)?,
        );
        Ok(SetAttributes {
            permissions: permissions.map(|mode| mode & 0o7777),
            uid,
            gid,
            size: self.optional(Arguments::u64)?,
            accessed: self.set_time()?,
            modified: self.set_time()?,
            ..SetAttributes::default()
        })
    }

    fn set_time(&mut self) -> Result<Option<SetTime>, Malformed> {
        match self.u32()? {
            0 => Ok(None),
            1 => Ok(Some(SetTime::Now)),
            2 => Ok(Some(SetTime::To(self.time()?))),
            _ => Err(Malformed),
        }
    }

    /// A value that is there or not.
    pub(crate) fn optional<T>(
        &mut self,
        value: impl FnOnce(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Option<T>, Malformed> {
        match self.reader.bool()? {
            true => value(self).map(Some),
            false => Ok(None),
        }
    }
}

/// What is wrong with a name that a client wants to make or look up, if anything is.
pub(crate) fn refuse_name(name: &[u8]) -> Result<(), Status> {
    match name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        true => Err(Status::ACCES),
        false => Ok(()),
    }
}

/// Whether a name is one of the two that every directory has.
pub(crate) fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}
