//! No device is read while a transaction is held: what a change of contents needs is read before.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use support::Mounted;
use tarn_dataset::space_door::SpaceDoor;
use tarn_ondisk::units::ObjectId;
use tarn_posix::properties::MountProperties;
use tarn_posix::types::{Allocate, Credentials, FileKind, SetAttributes};
use tarn_posix::{NewFileSystem, WriteAt};
use tarn_probe::{Operation, Value};

const RECORD: u64 = 128 << 10;
/// More than one block of pointers leads to the blocks of the file.
const BLOCKS: u64 = 1100;

/// How many blocks were read from devices in this process. The file has one test, so all are its
/// own.
fn reads() -> u64 {
    let snapshot = tarn_probe::registry().snapshot("block");
    let of = |pool| match snapshot.value("block", pool, "pipelines", "reads") {
        Some(Value::Counter(count)) => *count,
        _ => 0,
    };
    (0..64).map(of).sum()
}

/// Kept by a transaction from before it is opened until it is over.
struct Held {
    reads_before: u64,
    reads_within: Arc<AtomicU64>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let within = reads() - self.reads_before;
        self.reads_within.fetch_add(within, Ordering::Relaxed);
    }
}

struct House {
    mounted: Mounted,
    reads_within: Arc<AtomicU64>,
    file: ObjectId,
    model: Vec<u8>,
}

impl House {
    fn new() -> House {
        let reads_within = Arc::new(AtomicU64::new(0));
        let counted = reads_within.clone();
        let space = SpaceDoor {
            may_write: Arc::new(move |_, _| {
                Ok(Some(Box::new(Held {
                    reads_before: reads(),
                    reads_within: counted.clone(),
                })))
            }),
            ..SpaceDoor::unlimited()
        };
        let properties = MountProperties::default();
        let mounted = Mounted::with_space(NewFileSystem::default(), properties, space);
        let root = Credentials::root();
        let made = mounted.make(&root, mounted.root(), "file", FileKind::Regular, 0o644);
        let file = made.unwrap().id;
        let mut house = House {
            mounted,
            reads_within,
            file,
            model: Vec::new(),
        };
        // Bytes that do not compress, so that no block goes into its pointer; and holes.
        let mut state = 1_u64;
        let contents: Vec<u8> = (0..RECORD)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        for block in [0, 1, 2, 5, 9, BLOCKS - 2, BLOCKS - 1] {
            house.write(block * RECORD, &contents);
        }
        house
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let (files, operation) = (&self.mounted.files, Operation::unmeasured());
        let (root, at) = (Credentials::root(), WriteAt::Offset(offset));
        let written = files.write(&root, self.file, at, bytes, &operation);
        assert_eq!(written.unwrap(), bytes.len());
        let end = usize::try_from(offset).unwrap() + bytes.len();
        self.model.resize(self.model.len().max(end), 0);
        self.model[end - bytes.len()..end].copy_from_slice(bytes);
    }

    fn truncate(&mut self, size: u64) {
        let changes = SetAttributes {
            size: Some(size),
            ..SetAttributes::default()
        };
        let (files, operation) = (&self.mounted.files, Operation::unmeasured());
        let root = Credentials::root();
        files
            .set_attributes(&root, self.file, &changes, &operation)
            .unwrap();
        self.model.resize(usize::try_from(size).unwrap(), 0);
    }

    fn punch(&mut self, offset: u64, length: u64) {
        let (files, operation) = (&self.mounted.files, Operation::unmeasured());
        let (root, what) = (Credentials::root(), Allocate::PunchHole);
        files
            .allocate(&root, self.file, what, offset, length, &operation)
            .unwrap();
        let [start, end] = [offset, offset + length].map(|at| usize::try_from(at).unwrap());
        let end = end.min(self.model.len());
        self.model[start..end].fill(0);
    }

    /// Makes a change with nothing in memory, and gives how many blocks were read: in all, and
    /// while the transaction was held.
    fn cold(&mut self, change: impl FnOnce(&mut House)) -> (u64, u64) {
        self.mounted.sync();
        self.mounted.forget_cache();
        let before = reads();
        self.reads_within.store(0, Ordering::Relaxed);
        change(self);
        let all = reads() - before;
        (all, self.reads_within.load(Ordering::Relaxed))
    }
}

#[test]
fn what_a_change_of_contents_needs_is_read_before_its_transaction() {
    let mut house = House::new();
    type Change = fn(&mut House);
    let changes: [(&str, Change); 9] = [
        ("a part of a block", |house| {
            house.write(RECORD + 77, b"part")
        }),
        ("parts of two blocks", |house| {
            house.write(2 * RECORD - 3, b"parts")
        }),
        ("a part of the last block", |house| {
            house.write((BLOCKS - 1) * RECORD + 9, b"last");
        }),
        ("whole blocks and parts", |house| {
            let bytes = vec![7; usize::try_from(3 * RECORD + 100).unwrap()];
            house.write(RECORD / 2, &bytes);
        }),
        ("a whole block", |house| {
            let bytes = vec![9; usize::try_from(RECORD).unwrap()];
            house.write(9 * RECORD, &bytes);
        }),
        ("a hole within a block", |house| {
            house.punch(RECORD + 100, 1000)
        }),
        ("a hole with two edges", |house| {
            house.punch(100, 2 * RECORD)
        }),
        ("a hole over many blocks", |house| {
            house.punch(5 * RECORD + 1, (BLOCKS - 6) * RECORD);
        }),
        ("truncation within a block", |house| {
            house.truncate((BLOCKS - 1) * RECORD - 1000)
        }),
    ];
    for (name, change) in changes {
        let (all, within) = house.cold(change);
        assert!(all > 0, "{name}: nothing was in memory");
        assert_eq!(within, 0, "{name}: read while the transaction was held");
    }
    house.mounted.sync();
    house.mounted.forget_cache();
    assert!(house.mounted.contents(house.file) == house.model);
}
