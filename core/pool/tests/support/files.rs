//! Files without names in the root dataset of a pool, and scans that end.

use std::sync::Arc;
use std::time::Duration;
use tarn_host::Host;
use tarn_host::sim::Random;
use tarn_object::{NewObject, ObjectSet, TxEstimate};
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::ObjectId;
use tarn_pool::{NewVdev, Pool};
use tarn_probe::Operation;
use tarn_vdev::{ExpectedLabels, VdevConfig, VdevKind};

/// The size of the blocks of files.
pub const BLOCK_BYTES: u64 = 16 << 10;
/// How many blocks a file has.
pub const FILE_BLOCKS: u64 = 24;

/// A vdev of this kind over these disks.
pub fn vdev(kind: VdevKind, disks: &[&str]) -> NewVdev {
    let mut leaves = disks.iter().map(|disk| super::new_vdev(disk).config);
    let config = match kind {
        VdevKind::File => leaves.next().expect("a disk"),
        kind => {
            let mut config = VdevConfig::new(kind, tarn_ondisk::units::Guid::ZERO);
            config.children = leaves.collect();
            config
        }
    };
    NewVdev {
        config,
        is_log: false,
    }
}

/// The labels that the devices of a pool have.
pub fn ours(pool: &Pool) -> ExpectedLabels {
    ExpectedLabels::OfPool(pool.facts().guid)
}

/// The object set of the root dataset.
pub fn head(pool: &Pool, operation: &Operation) -> Arc<ObjectSet> {
    let root = pool.namespace().view(operation).root().unwrap();
    let head = root.head().unwrap().unwrap().id();
    pool.namespace().head_set(head, operation).unwrap()
}

/// The contents of a file of this number.
pub fn contents(number: u64, round: u64) -> Vec<u8> {
    let mut random = Random::new(number * 1_000 + round);
    random.bytes(narrow(FILE_BLOCKS * BLOCK_BYTES))
}

/// Writes so many files, and stores them.
pub fn write_files(pool: &Pool, count: u64, operation: &Operation) -> Vec<ObjectId> {
    let set = head(pool, operation);
    let mut files = Vec::new();
    for number in 0..count {
        let tx = pool
            .txgs()
            .assign(&TxEstimate::default(), operation)
            .unwrap();
        let new = NewObject::plain(ObjectType::PlainFile, BLOCK_BYTES);
        let file = set.allocate(&tx, new, operation).unwrap();
        file.write(&tx, 0, &contents(number, 0), operation).unwrap();
        files.push(file.id());
        drop(tx);
    }
    pool.sync_all(operation).unwrap();
    files
}

/// Writes a file over; its contents are those of its number in this round.
pub fn rewrite_file(pool: &Pool, file: ObjectId, number: u64, round: u64, operation: &Operation) {
    let set = head(pool, operation);
    let tx = pool
        .txgs()
        .assign(&TxEstimate::default(), operation)
        .unwrap();
    let file = set.object(file, operation).unwrap();
    file.write(&tx, 0, &contents(number, round), operation)
        .unwrap();
}

/// The round whose contents a file has.
pub fn round_of(pool: &Pool, file: ObjectId, number: u64, operation: &Operation) -> Option<u64> {
    let mut found = contents(number, 0);
    let file = head(pool, operation).object(file, operation).unwrap();
    file.read(0, &mut found, operation).unwrap();
    (0..8).find(|round| contents(number, *round) == found)
}

/// Reads the files, and compares them with what was written.
pub fn check_files(pool: &Pool, files: &[ObjectId], operation: &Operation) {
    let set = head(pool, operation);
    for (number, file) in files.iter().enumerate() {
        let expected = contents(widen(number), 0);
        let mut found = vec![0; expected.len()];
        let file = set.object(*file, operation).unwrap();
        file.read(0, &mut found, operation).unwrap();
        assert!(found == expected, "file {number} has other contents");
    }
}

/// Waits until no scan runs.
pub fn wait_for_scan(host: &Host, pool: &Pool) {
    for _ in 0..20_000 {
        let status = pool.scan_status().expect("a scan was begun");
        if !status.is_running() {
            return;
        }
        host.sleep(Duration::from_millis(10));
    }
    panic!("the scan does not end: {:?}", pool.scan_status());
}
