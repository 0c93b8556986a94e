//! Access control lists in log records.

use super::LoggedChange;
use super::encoding::{Bytes, texts};
use crate::declare::{ByteOrder, Corrupt, Reader, narrow, widen};
use crate::fuid::Fuid;
use crate::nvlist::Text;

/// An access control list.
#[doc(alias = "lr_acl_t")]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoggedAcl {
    /// How many entries the list has.
    pub entry_count: u64,
    /// Flags of the list.
    pub flags: u64,
    /// The entries, as [`AclVersion::Initial`](crate::acl::AclVersion) has them; those with object
    /// types have these behind them.
    pub entries: Vec<u8>,
    /// FUIDs that stand for the users in the entries; their domains are indexes into `domains`,
    /// from 1.
    pub fuids: Vec<Fuid>,
    /// Domains.
    pub domains: Vec<Text>,
}

/// What a list's fields say of what follows them.
#[derive(Debug, Clone, Copy)]
pub(super) struct AclSizes {
    entry_bytes: usize,
    fuid_count: usize,
    domain_count: usize,
}

impl LoggedAcl {
    pub(super) fn decode_fields(reader: &mut Reader<'_>) -> Result<(LoggedAcl, AclSizes), Corrupt> {
        let entry_count = reader.u64()?;
        let domain_count = narrow(reader.u64()?);
        let fuid_count = narrow(reader.u64()?);
        let entry_bytes = narrow(reader.u64()?);
        let flags = reader.u64()?;
        let acl = LoggedAcl {
            entry_count,
            flags,
            ..LoggedAcl::default()
        };
        Ok((
            acl,
            AclSizes {
                entry_bytes,
                fuid_count,
                domain_count,
            },
        ))
    }

    pub(super) fn decode_rest(
        &mut self,
        sizes: AclSizes,
        reader: &mut Reader<'_>,
    ) -> Result<(), Corrupt> {
        self.entries = reader.take(sizes.entry_bytes)?.to_vec();
        if reader.order() == ByteOrder::Big {
            turn_entries(&mut self.entries);
        }
        reader.skip(sizes.entry_bytes.next_multiple_of(8) - sizes.entry_bytes)?;
        for _ in 0..sizes.fuid_count {
            self.fuids.push(Fuid::from_word(reader.u64()?));
        }
        self.domains = texts(sizes.domain_count, reader)?;
        Ok(())
    }

    pub(super) fn encode_fields(&self, bytes: &mut Bytes) {
        bytes.u64(self.entry_count);
        bytes.u64(widen(self.domains.len()));
        bytes.u64(widen(self.fuids.len()));
        bytes.u64(widen(self.entries.len()));
        bytes.u64(self.flags);
    }

    pub(super) fn encode_rest(&self, bytes: &mut Bytes) {
        bytes.0.extend(&self.entries);
        bytes.0.extend(vec![
            0;
            self.entries.len().next_multiple_of(8)
                - self.entries.len()
        ]);
        self.fuids.iter().for_each(|fuid| bytes.u64(fuid.word()));
        self.domains.iter().for_each(|domain| bytes.text(domain));
    }
}

pub(super) fn decode_initial_acl(reader: &mut Reader<'_>) -> Result<LoggedChange, Corrupt> {
    let object = reader.value()?;
    let entry_count = reader.u64()?;
    let size = narrow(entry_count).saturating_mul(12);
    let mut entries = reader.take(size)?.to_vec();
    if reader.order() == ByteOrder::Big {
        turn_entries(&mut entries);
    }
    Ok(LoggedChange::SetInitialAcl {
        object,
        entry_count,
        entries,
    })
}

/// Turns big-endian entries, as the system calls have them, into little-endian ones.
fn turn_entries(bytes: &mut [u8]) {
    let mut rest = bytes;
    while rest.len() >= 12 {
        for (start, end) in [(0, 4), (4, 8), (8, 10), (10, 12)] {
            rest[start..end].reverse();
        }
        let kind = u16::from_le_bytes([rest[10], rest[11]]);
        let size = if crate::acl::kind::has_object_types(kind) {
            44
        } else {
            12
        };
        let size = size.min(rest.len());
        rest = &mut rest[size..];
    }
}
