//! The arguments of `OPEN`.

use super::attributes::{self, EXCLUSIVE, Facts, Wanted};
use super::compound::StateId;
use super::status::Status;
use crate::xdr::Reader;
use tarn_engine::files::Verifier;

const OWNER_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 4096;

/// What is done where the file exists, or does not.
pub(super) enum How<'a> {
    /// It must exist.
    Open,
    Unchecked(Wanted<'a>),
    Guarded(Wanted<'a>),
    Exclusive(Verifier, Wanted<'a>),
}

/// Which file is opened.
pub(super) enum Claim<'a> {
    /// The one of this name in the current directory.
    Name(&'a [u8]),
    /// The current one.
    Current,
    /// The current one, which the client had open before the server restarted, and may have had
    /// delegated.
    Reclaimed { was_delegated: bool },
    /// The one of this name, of which the client has this delegation.
    NameOfDelegated(StateId, &'a [u8]),
    /// The current one, of which the client has this delegation.
    CurrentOfDelegated(StateId),
}

/// The first arguments of `OPEN`.
pub(super) struct Head<'a> {
    pub(super) sequence: u32,
    pub(super) access: u32,
    pub(super) deny: u32,
    pub(super) client: u64,
    pub(super) owner: &'a [u8],
}

/// The arguments of `OPEN`.
pub(super) struct Open<'a> {
    /// `OPEN4_SHARE_ACCESS_WANT_*`.
    pub(super) wanted_delegation: u32,
    pub(super) access: u32,
    pub(super) deny: u32,
    pub(super) owner: &'a [u8],
    pub(super) how: How<'a>,
    pub(super) claim: Claim<'a>,
}

impl<'a> Head<'a> {
    pub(super) fn decode(reader: &mut Reader<'a>) -> Result<Head<'a>, Status> {
        Ok(Head {
            sequence: reader.u32()?,
            access: reader.u32()?,
            deny: reader.u32()?,
            client: reader.u64()?,
            owner: reader.opaque(OWNER_BYTES_MAX)?,
        })
    }
}

impl<'a> Open<'a> {
    pub(super) fn decode(
        head: &Head<'a>,
        reader: &mut Reader<'a>,
        facts: Facts<'_>,
    ) -> Result<Open<'a>, Status> {
        const ACCESS: u32 = 0x3;
        let (access, wanted) = match facts.minor {
            0 => (head.access, 0),
            _ => (head.access & 0xff, head.access & WANTED),
        };
        let (deny, owner) = (head.deny, head.owner);
        let how = match reader.u32()? {
            0 => How::Open,
            1 => match reader.u32()? {
                0 => How::Unchecked(attributes::decode(reader, facts)?),
                1 => How::Guarded(attributes::decode(reader, facts)?),
                2 => How::Exclusive(reader.fixed()?, Wanted::default()),
                3 if facts.minor > 0 => {
                    let verifier = reader.fixed()?;
                    let wanted = attributes::decode(reader, facts)?;
                    if !wanted.set.is_within(&EXCLUSIVE) {
                        return Err(Status::ATTRNOTSUPP);
                    }
                    How::Exclusive(verifier, wanted)
                }
                _ => return Err(Status::BADXDR),
            },
            _ => return Err(Status::BADXDR),
        };
        let claim = match reader.u32()? {
            0 => Claim::Name(reader.opaque(NAME_BYTES_MAX)?),
            1 => {
                const READ: u32 = 1;
                let was_delegated = reader.u32()? == READ;
                Claim::Reclaimed { was_delegated }
            }
            4 if facts.minor > 0 => Claim::Current,
            2 => {
                let id = StateId::decode(reader)?;
                Claim::NameOfDelegated(id, reader.opaque(NAME_BYTES_MAX)?)
            }
            5 if facts.minor > 0 => Claim::CurrentOfDelegated(StateId::decode(reader)?),
            // What a client had before it restarted itself.
            3 | 6 => return Err(Status::NOTSUPP),
            _ => return Err(Status::BADXDR),
        };
        if access & !ACCESS != 0 || access == 0 || deny > 3 {
            return Err(Status::INVAL);
        }
        Ok(Open {
            wanted_delegation: wanted,
            access,
            deny,
            owner,
            how,
            claim,
        })
    }
}

/// Bits of the access of an open by which a client says which delegation it wants.
const WANTED: u32 = 0xff00;
