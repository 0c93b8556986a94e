//! Requests of NFS 3 (RFC 1813), and their results.

use crate::client::{Kind, Operation, Stable};
use crate::record::{Failure, In, Out, Procedure};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;

/// MOUNT's MNT: the handle of a shared folder.
pub(crate) const MNT: Procedure = Procedure {
    program: MOUNT,
    version: 3,
    number: 1,
};

/// NFS 4's one procedure.
pub(crate) const COMPOUND: Procedure = Procedure {
    program: NFS,
    version: 4,
    number: 1,
};

const GETATTR: u32 = 1;
const LOOKUP: u32 = 3;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const COMMIT: u32 = 21;

const ATTRIBUTES_BYTES: usize = 84;
/// Of `wcc_data`, what was: size and two times.
const BEFORE_BYTES: usize = 24;
const UNCHECKED: u32 = 0;

/// The procedure of an operation.
pub(crate) fn procedure(operation: &Operation<'_>) -> Procedure {
    let number = match operation.kind() {
        Kind::Attributes => GETATTR,
        Kind::Read => READ,
        Kind::Write => WRITE,
        Kind::Create => CREATE,
        Kind::LookUp => LOOKUP,
        Kind::Commit => COMMIT,
    };
    Procedure {
        program: NFS,
        version: 3,
        number,
    }
}

/// How RFC 1813 and RFC 8881 number what a write promises.
pub(crate) fn stable(stable: Stable) -> u32 {
    match stable {
        Stable::Unstable => 0,
        Stable::File => 2,
    }
}

/// Puts the arguments of an operation.
pub(crate) fn arguments(operation: &Operation<'_>, out: &mut Out) {
    match operation {
        Operation::Attributes { file } => {
            out.opaque(&file.handle);
        }
        Operation::Read {
            file,
            offset,
            bytes,
        } => {
            out.opaque(&file.handle).u64(*offset).u32(*bytes);
        }
        Operation::Write {
            file,
            offset,
            data,
            promise,
        } => {
            out.opaque(&file.handle).u64(*offset);
            out.u32(u32::try_from(data.len()).expect("a write is small"));
            out.u32(stable(*promise)).opaque(data);
        }
        Operation::Commit { file } => {
            out.opaque(&file.handle).u64(0).u32(0);
        }
        Operation::LookUp { folder, name } => {
            out.opaque(&folder.handle).opaque(name.as_bytes());
        }
        Operation::Create { folder, name } => {
            out.opaque(&folder.handle).opaque(name.as_bytes());
            out.u32(UNCHECKED);
            // The mode is given; owner, group, size and times are not.
            out.u32(1).u32(0o644).u32(0).u32(0).u32(0).u32(0).u32(0);
        }
    }
}

/// The bytes that were read, and the handle of what was made, as far as the operation has them.
pub(crate) fn take<'a>(kind: Kind, reply: &mut In<'a>) -> Result<(&'a [u8], &'a [u8]), Failure> {
    let status = reply.u32()?;
    if status != 0 {
        let operation = kind.name();
        return Err(Failure::Refused { operation, status });
    }
    match kind {
        Kind::Attributes => {
            reply.fixed(ATTRIBUTES_BYTES)?;
            Ok((&[], &[]))
        }
        Kind::Read => {
            if reply.u32()? == 1 {
                reply.fixed(ATTRIBUTES_BYTES)?;
            }
            let (count, _is_end) = (reply.u32()?, reply.u32()?);
            let data = reply.opaque()?;
            match data.len() == count as usize {
                true => Ok((data, &[])),
                false => Err(Failure::Malformed("READ's count is not that of its data")),
            }
        }
        Kind::LookUp => Ok((&[], reply.opaque()?)),
        Kind::Create => match reply.u32()? {
            1 => Ok((&[], reply.opaque()?)),
            _ => Err(Failure::Malformed("CREATE has no handle")),
        },
        Kind::Write | Kind::Commit => {
            if reply.u32()? == 1 {
                reply.fixed(BEFORE_BYTES)?;
            }
            if reply.u32()? == 1 {
                reply.fixed(ATTRIBUTES_BYTES)?;
            }
            // Of a write, how many bytes and what it promises stand before the verifier.
            if kind == Kind::Write {
                reply.fixed(8)?;
            }
            reply.u64()?;
            Ok((&[], &[]))
        }
    }
}
