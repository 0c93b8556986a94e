//! The devices that records of I/O name: their numbers and paths.
//!
//! # Mechanism
//! A device gets its number when it is first opened, and has the same each time: its guid tells
//! which it is. The path that it had last stays known, as records of it are held.
//!
//! # Invariants
//! - Two devices never have the same number, but for those beyond [`DEVICES_MAX`], which share
//!   the last one.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Devices with a number of their own: some 8 MiB.
const DEVICES_MAX: u32 = 65_536;

/// A device, numbered when it is opened; not an id of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct DeviceNumber(pub(crate) u32);

impl DeviceNumber {
    /// No device.
    pub const NONE: DeviceNumber = DeviceNumber(0);

    /// As a field of records has it.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The number of a device. Its path is known by that from now on.
pub fn device_number(guid: u64, path: &str) -> DeviceNumber {
    let mut table = table();
    let next = u32::try_from(table.numbers.len()).unwrap_or(u32::MAX) + 1;
    let number = *table
        .numbers
        .entry(guid)
        .or_insert(DeviceNumber(next.min(DEVICES_MAX)));
    table.paths.insert(number, path.to_owned());
    assert!(
        number != DeviceNumber::NONE && number.0 <= DEVICES_MAX,
        "a number fits the 24 bits of a record"
    );
    number
}

/// All devices that have a number, with their paths.
pub fn named_devices() -> Vec<(DeviceNumber, String)> {
    let table = table();
    let named = table.paths.iter();
    named
        .map(|(number, path)| (*number, path.clone()))
        .collect()
}

#[derive(Debug, Default)]
struct Table {
    numbers: BTreeMap<u64, DeviceNumber>,
    paths: BTreeMap<DeviceNumber, String>,
}

fn table() -> MutexGuard<'static, Table> {
    static TABLE: OnceLock<Mutex<Table>> = OnceLock::new();
    let table = TABLE.get_or_init(Mutex::default);
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_keeps_its_number_and_has_its_newest_path() {
        let first = device_number(0xf1, "/dev/a");
        let second = device_number(0xf2, "/dev/b");
        assert_ne!(first, second);
        assert_eq!(device_number(0xf1, "/dev/c"), first);
        let named = named_devices();
        assert!(named.contains(&(first, "/dev/c".to_owned())));
        assert!(named.contains(&(second, "/dev/b".to_owned())));
        assert!(first != DeviceNumber::NONE && first.number() <= DEVICES_MAX);
    }
}
