//! FUIDs: users and groups that may belong to a Windows domain.
//!
//! # Mechanism
//! A FUID is a word. Its lower half is a number within a domain, its upper half the domain's index
//! in the file system's table. Index 0 is POSIX: the word is then a plain uid or gid. The table is
//! an object that holds a packed list of domains; the object's bonus is that list's size.

use crate::declare::Corrupt;
use crate::nvlist::{Encoding, NvError, NvList};
use std::collections::BTreeMap;
use std::fmt;

const DOMAINS: &str = "fuid_nvlist";
const INDEX: &str = "fuid_idx";
const DOMAIN: &str = "fuid_domain";
const OFFSET: &str = "fuid_offset";

/// A user or group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fuid(u64);

impl Fuid {
    /// A plain uid or gid.
    pub fn posix(id: u32) -> Fuid {
        Fuid(u64::from(id))
    }

    /// A number within the domain of this index.
    #[doc(alias = "FUID_ENCODE")]
    pub fn new(domain: u32, number: u32) -> Fuid {
        Fuid((u64::from(domain) << 32) | u64::from(number))
    }

    /// As it is stored.
    pub const fn from_word(word: u64) -> Fuid {
        Fuid(word)
    }

    /// As it is stored.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The index of the domain; 0 is POSIX.
    #[doc(alias = "FUID_INDEX")]
    pub const fn domain(self) -> u32 {
        let [.., a, b, c, d] = self.0.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// The number within the domain.
    #[doc(alias = "FUID_RID")]
    pub const fn number(self) -> u32 {
        let [a, b, c, d, ..] = self.0.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// The uid or gid, where it is a POSIX one.
    pub const fn as_posix(self) -> Option<u32> {
        if self.domain() == 0 {
            Some(self.number())
        } else {
            None
        }
    }
}

impl fmt::Display for Fuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Why a FUID table cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FuidTableError {
    /// It is not a list.
    #[error("FUID table: {0}")]
    Corrupt(#[from] Corrupt),
    /// The list is not one of domains.
    #[error("FUID table: {0}")]
    Contents(#[from] NvError),
}

/// A file system's domains.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FuidTable {
    domains: BTreeMap<u64, String>,
}

impl FuidTable {
    /// Decodes the contents of the table's object, as long as its bonus says.
    #[doc(alias = "zfs_fuid_table_load")]
    pub fn decode(bytes: &[u8]) -> Result<FuidTable, FuidTableError> {
        let list = NvList::decode(bytes)?;
        let mut domains = BTreeMap::new();
        for domain in list.lists(DOMAINS)? {
            domains.insert(domain.u64(INDEX)?, domain.string(DOMAIN)?.to_owned());
        }
        Ok(FuidTable { domains })
    }

    /// The contents of the table's object.
    #[doc(alias = "zfs_fuid_sync")]
    pub fn encode(&self) -> Vec<u8> {
        // OpenZFS lists domains in the order of their names.
        let mut domains: Vec<_> = self.domains.iter().collect();
        domains.sort_by_key(|(_, name)| name.as_str());
        let list = |(index, name): (&u64, &String)| {
            NvList::new()
                .with(INDEX, *index)
                .with(OFFSET, 0u64)
                .with(DOMAIN, name)
        };
        let lists: Vec<NvList> = domains.into_iter().map(list).collect();
        NvList::new().with(DOMAINS, lists).encode(Encoding::Xdr)
    }

    /// The domain with this index.
    pub fn domain(&self, index: u32) -> Option<&str> {
        self.domains.get(&u64::from(index)).map(String::as_str)
    }

    /// The index of a domain, if it has one.
    pub fn find(&self, domain: &str) -> Option<u32> {
        let mut domains = self.domains.iter();
        let (index, _) = domains.find(|(_, name)| *name == domain)?;
        u32::try_from(*index).ok()
    }

    /// The index of a domain; it is added if need be. True with one that is new.
    ///
    /// `None` when the table is full.
    pub fn index(&mut self, domain: &str) -> Option<(u32, bool)> {
        if let Some((index, _)) = self.domains.iter().find(|(_, name)| *name == domain) {
            return u32::try_from(*index).ok().map(|index| (index, false));
        }
        let last = self.domains.last_key_value().map_or(0, |(index, _)| *index);
        let index = u32::try_from(last).ok()?.checked_add(1)?;
        self.domains.insert(u64::from(index), domain.to_owned());
        Some((index, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_posix_id_is_its_own_fuid() {
        assert_eq!(Fuid::posix(1000).word(), 1000);
        assert_eq!(Fuid::from_word(1000).as_posix(), Some(1000));
        let foreign = Fuid::new(2, 500);
        assert_eq!(
            (foreign.domain(), foreign.number(), foreign.as_posix()),
            (2, 500, None)
        );
    }

    #[test]
    fn a_table_survives_being_stored() {
        let mut table = FuidTable::default();
        assert_eq!(table.index("S-1-5-21-2"), Some((1, true)));
        assert_eq!(table.index("S-1-5-21-1"), Some((2, true)));
        assert_eq!(table.index("S-1-5-21-2"), Some((1, false)));
        let read = FuidTable::decode(&table.encode()).expect("we wrote it");
        assert_eq!(read, table);
        assert_eq!(read.domain(2), Some("S-1-5-21-1"));
        assert_eq!(read.domain(3), None);
        assert!(FuidTable::decode(&NvList::new().encode(Encoding::Xdr)).is_err());
    }
}
