//! Names that were asked for and were not there: what a client looks for in vain has a path, too.
//!
//! # Mechanism
//! A lookup that finds nothing is about no object. Its name gets a number, by dataset, directory
//! and name, and its record has that number with [`MISSING_NAME`] in the place of the object. A
//! name has the same number as long as it is known. Names are put in only by operations that found
//! nothing, after they did; others do not come here.
//!
//! # Invariants
//! - Two names never have the same number.
//! - Names take at most [`BYTES_MAX`]. The oldest are forgotten beyond it; a name that is asked for
//!   again gets another number then.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::dataset_table::DatasetId;

/// The bit that tells the number of a missing name from that of an object. Objects have 48 bits.
pub const MISSING_NAME: u64 = 1 << 63;

/// Bytes that all names may take: some hundred thousand.
const BYTES_MAX: usize = 16 << 20;
/// Bytes of a name beside its text, in both maps, their nodes half full.
const ENTRY_BYTES: usize = 160;

/// A name that was asked for in vain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MissingName {
    /// Where.
    pub dataset: DatasetId,
    /// The object of the directory.
    pub directory: u64,
    /// The name in it.
    pub name: Box<[u8]>,
}

/// The name that the place of the object in a record means, if it has [`MISSING_NAME`] and the name
/// is still known.
pub fn missing_name(object: u64) -> Option<MissingName> {
    table().by_number.get(&object).cloned()
}

/// What the place of the object has in records of lookups of this name in vain, if there were any.
pub fn missing_number(dataset: DatasetId, directory: u64, name: &[u8]) -> Option<u64> {
    table().number((dataset, directory), name)
}

/// The number, with [`MISSING_NAME`], of a name that is not there.
pub(crate) fn intern(dataset: DatasetId, directory: u64, name: &[u8]) -> u64 {
    table().intern((dataset, directory), name, BYTES_MAX)
}

/// A directory: its dataset and object.
type Directory = (DatasetId, u64);

#[derive(Debug, Default)]
struct Table {
    last: u64,
    numbers: BTreeMap<Directory, BTreeMap<Box<[u8]>, u64>>,
    by_number: BTreeMap<u64, MissingName>,
    /// Numbers, the oldest first.
    order: VecDeque<u64>,
    bytes: usize,
}

impl Table {
    fn number(&self, directory: Directory, name: &[u8]) -> Option<u64> {
        self.numbers.get(&directory)?.get(name).copied()
    }

    fn intern(&mut self, directory: Directory, name: &[u8], bytes_max: usize) -> u64 {
        if let Some(known) = self.number(directory, name) {
            return known;
        }
        self.last += 1;
        let number = MISSING_NAME | self.last;
        let names = self.numbers.entry(directory).or_default();
        names.insert(name.into(), number);
        let entry = MissingName {
            dataset: directory.0,
            directory: directory.1,
            name: name.into(),
        };
        self.by_number.insert(number, entry);
        self.order.push_back(number);
        self.bytes += bytes_of(name);
        while self.bytes > bytes_max {
            self.forget_oldest();
        }
        number
    }

    fn forget_oldest(&mut self) {
        let oldest = self.order.pop_front();
        let oldest = oldest.and_then(|number| self.by_number.remove(&number));
        let oldest = oldest.expect("what takes bytes has its number in the order");
        self.bytes -= bytes_of(&oldest.name);
        let directory = (oldest.dataset, oldest.directory);
        if let Some(names) = self.numbers.get_mut(&directory) {
            names.remove(&oldest.name);
            if names.is_empty() {
                self.numbers.remove(&directory);
            }
        }
    }
}

/// What a name takes: its text is in both maps.
fn bytes_of(name: &[u8]) -> usize {
    2 * name.len() + ENTRY_BYTES
}

fn table() -> MutexGuard<'static, Table> {
    static TABLE: OnceLock<Mutex<Table>> = OnceLock::new();
    let table = TABLE.get_or_init(Mutex::default);
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: Directory = (DatasetId(3), 34);

    #[test]
    fn a_name_has_one_number_and_other_directories_have_others() {
        let mut table = Table::default();
        let first = table.intern(HOME, b".elinks", BYTES_MAX);
        assert_eq!(table.intern(HOME, b".elinks", BYTES_MAX), first);
        assert_ne!(table.intern((HOME.0, 35), b".elinks", BYTES_MAX), first);
        assert_ne!(
            table.intern((DatasetId(4), 34), b".elinks", BYTES_MAX),
            first
        );
        assert_eq!(table.number(HOME, b".elinks"), Some(first));
        assert_eq!(table.number(HOME, b".elink"), None);
        let name = &table.by_number[&first];
        assert_eq!((name.dataset, name.directory), HOME);
        assert_eq!(&*name.name, b".elinks");
        assert_ne!(first & MISSING_NAME, 0);
    }

    #[test]
    fn the_oldest_names_are_forgotten_and_their_numbers_not_given_again() {
        const MAX: usize = 4000;
        let mut table = Table::default();
        let first = table.intern(HOME, b"0", MAX);
        for number in 1..200_u32 {
            table.intern(HOME, number.to_string().as_bytes(), MAX);
            assert!(table.bytes <= MAX);
        }
        assert_eq!(table.number(HOME, b"0"), None);
        assert!(!table.by_number.contains_key(&first));
        assert!(table.number(HOME, b"199").is_some());
        assert_eq!(table.order.len(), table.by_number.len());
        assert_eq!(table.numbers[&HOME].len(), table.order.len());
        assert_ne!(table.intern(HOME, b"0", MAX), first);
        // A name beyond the bound is in no map, and takes nothing.
        table.intern((HOME.0, 1), &[b'x'; MAX], MAX);
        assert!(table.numbers.is_empty() && table.order.is_empty());
        assert_eq!(table.bytes, 0);
    }
}
