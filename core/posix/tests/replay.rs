//! What operations leave for the intent log, done again elsewhere, gives the same tree.
//!
//! Operations are made on one file system, in random order. Their records are encoded, decoded, and
//! replayed on an empty one; the trees are compared: numbers, generations, attributes, contents,
//! extended attributes.

#[path = "replay/foreign_records.rs"]
mod foreign_records;
mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use support::{Dice, Mounted, someone};
use tarn_object::TxEstimate;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::fuid::Fuid;
use tarn_ondisk::intent_log::{
    CreateKind, LogBlock, LogForm, LogRecord, LoggedAcl, LoggedChange, LoggedCreate,
    LoggedExtended, LoggedRename, LoggedWhiteout, LoggedWrite, RenameKind,
};
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::units::{LogicalSize, ObjectId, Txg};
use tarn_ondisk::znode::ZnodeFlags;
use tarn_posix::properties::{AccessTimes, AclMode, AclType, MountProperties, XattrStore};
use tarn_posix::types::{
    Allocate, Attributes, Credentials, DeviceNumber, FileKind, NewFile, RenameMode, SetAttributes,
    SetTime, Timestamp, XattrMode,
};
use tarn_posix::{NewFileSystem, PosixError, WriteAt};
use tarn_probe::Operation;
use tarn_zil::{Contents, Fetched, IntentRecord, LogSource, Replayer, WholeBlocks};

/// A file system whose records are kept.
struct Recorded {
    mounted: Mounted,
    records: Arc<Mutex<Vec<IntentRecord>>>,
}

impl Recorded {
    fn new(properties: MountProperties) -> Recorded {
        let mounted = Mounted::with(NewFileSystem::default(), properties);
        let records = Arc::new(Mutex::new(Vec::new()));
        let kept = records.clone();
        let log = mounted.files.intent_log().unwrap();
        log.allow_xattrs();
        log.watch(move |record| kept.lock().unwrap().push(record.clone()));
        Recorded { mounted, records }
    }

    /// The records as the log would store them now: bytes are fetched, and what is gone is dropped.
    fn stored(&self, of: impl Fn(&IntentRecord) -> bool) -> Vec<LogRecord> {
        let mut stored = Vec::new();
        for record in self
            .records
            .lock()
            .unwrap()
            .iter()
            .filter(|record| of(record))
        {
            let mut change = record.change.clone();
            if let Contents::Fetch { generation } = record.contents {
                let LoggedChange::Write(write) = &mut change else {
                    panic!("only contents of writes are fetched");
                };
                let files = &self.mounted.files;
                let fetched = files.contents(write, generation, &self.mounted.operation);
                match fetched.unwrap() {
                    Fetched::Shortened { bytes, .. } if bytes.is_empty() => continue,
                    Fetched::Bytes(bytes) | Fetched::Shortened { bytes, .. } => {
                        write.data = Some(bytes);
                    }
                    Fetched::Gone => continue,
                }
            }
            let record = LogRecord {
                txg: Txg::from(1),
                sequence: u64::try_from(stored.len()).unwrap() + 1,
                case_insensitive: false,
                change,
            };
            let bytes = record.encode();
            let (decoded, length) = LogRecord::decode(&bytes, ByteOrder::Little).unwrap();
            assert_eq!((&decoded, length), (&record, bytes.len()));
            stored.push(decoded);
        }
        stored
    }
}

fn replay(mounted: &Mounted, records: &[LogRecord]) {
    let files = mounted.files.clone();
    let log = files.intent_log().unwrap();
    let mut replayer = Replayer::begin(log, &*files, &mounted.operation);
    for record in records {
        if let Err(error) = replayer.apply(record) {
            panic!("{error}: {record:?}");
        }
    }
}

/// What is compared of a file.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    id: u64,
    generation: u64,
    mode: (FileKind, u32),
    links: u64,
    owner: (u32, u32, u64),
    size: u64,
    device: (u32, u32),
    created: Timestamp,
    flags: u64,
    contents: Bytes,
    xattrs: BTreeMap<Vec<u8>, Bytes>,
}

/// Bytes that are told by their length when they differ.
#[derive(PartialEq, Eq)]
struct Bytes(Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sum: u64 = self.0.iter().map(|byte| u64::from(*byte)).sum();
        write!(f, "{} bytes, sum {sum}", self.0.len())
    }
}

fn tree(mounted: &Mounted) -> BTreeMap<Vec<u8>, Seen> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(b"/".to_vec(), mounted.root())];
    let (root, operation) = (Credentials::root(), &mounted.operation);
    while let Some((path, id)) = waiting.pop() {
        let attributes: Attributes = mounted.files.attributes(id, operation).unwrap();
        let contents = match attributes.kind {
            FileKind::Regular => mounted.contents(id),
            FileKind::SymbolicLink => mounted.files.read_link(&root, id, operation).unwrap(),
            _ => Vec::new(),
        };
        let mut xattrs = BTreeMap::new();
        if matches!(attributes.kind, FileKind::Regular | FileKind::Directory) {
            for name in mounted.files.list_xattr(&root, id, operation).unwrap() {
                let value = mounted.files.get_xattr(&root, id, &name, operation);
                xattrs.insert(name, Bytes(value.unwrap()));
            }
        }
        if attributes.kind == FileKind::Directory {
            for (name, child, kind) in mounted.names(id) {
                let path = [path.as_slice(), &name, b"/"].concat();
                let attributes = mounted.files.attributes(child, operation).unwrap();
                assert_eq!(attributes.kind, kind);
                waiting.push((path, child));
            }
        }
        // Both file systems have a root of their own.
        let is_root = id == mounted.root();
        let automatic = ZnodeFlags::ARCHIVE.and(ZnodeFlags::NOT_SCANNED).word();
        let seen = Seen {
            id: id.get(),
            generation: if is_root { 0 } else { attributes.generation },
            mode: (attributes.kind, attributes.permissions),
            links: attributes.links,
            owner: (attributes.uid, attributes.gid, attributes.project),
            size: attributes.size,
            device: (attributes.device.major, attributes.device.minor),
            created: if is_root {
                Timestamp::default()
            } else {
                attributes.created
            },
            flags: attributes.flags & !automatic,
            contents: Bytes(contents),
            xattrs,
        };
        found.insert(path, seen);
    }
    found
}

fn assert_same(one: &Mounted, other: &Mounted) {
    let (one, other) = (tree(one), tree(other));
    for (path, seen) in &one {
        let path_text = String::from_utf8_lossy(path);
        if let Some(found) = other.get(path) {
            let pairs = seen.contents.0.iter().zip(&found.contents.0);
            let differs = pairs.enumerate().find(|(_, (one, other))| one != other);
            assert_eq!(differs, None, "{path_text} {seen:?}");
        }
        assert_eq!(Some(seen), other.get(path), "{path_text}");
    }
    assert_eq!(one.len(), other.len());
}

/// Random operations. What is refused is refused: the point is what succeeds.
struct Workload {
    dice: Dice,
    files: Vec<ObjectId>,
    directories: Vec<ObjectId>,
    open: BTreeSet<ObjectId>,
}

const NAMES: u64 = 12;

impl Workload {
    fn new(seed: u64, root: ObjectId) -> Workload {
        Workload {
            dice: Dice(seed | 1),
            files: vec![root],
            directories: vec![root],
            open: BTreeSet::new(),
        }
    }

    fn name(&mut self) -> Vec<u8> {
        format!("name-{}", self.dice.throw(NAMES)).into_bytes()
    }

    fn pick(&mut self, directories: bool) -> ObjectId {
        let list = if directories {
            &self.directories
        } else {
            &self.files
        };
        let count = u64::try_from(list.len()).unwrap();
        list[usize::try_from(self.dice.throw(count)).unwrap()]
    }

    fn bytes(&mut self, most: u64) -> Vec<u8> {
        let seed = self.dice.throw(251);
        (0..self.dice.throw(most) + 1)
            .map(|at| u8::try_from((at * 7 + seed) % 251).unwrap())
            .collect()
    }

    fn step(&mut self, mounted: &Mounted) {
        let (files, operation) = (&mounted.files, &mounted.operation);
        let user = match self.dice.throw(4) {
            0 => someone(1000),
            _ => Credentials::root(),
        };
        let id = self.pick(false);
        let (parent, other) = (self.pick(true), self.pick(true));
        let (name, other_name) = (self.name(), self.name());
        let outcome: Result<(), PosixError> = match self.dice.throw(20) {
            0..=3 => self.create(mounted, &user, parent, &name),
            4..=6 => {
                let at = match self.dice.throw(4) {
                    0 => WriteAt::End,
                    _ => WriteAt::Offset(self.dice.throw(300_000)),
                };
                let bytes = self.bytes(40_000);
                files.write(&user, id, at, &bytes, operation).map(drop)
            }
            7 => files.unlink(&user, parent, &name, operation),
            8 => files.remove_directory(&user, parent, &name, operation),
            9 => files.link(&user, id, parent, &name, operation).map(drop),
            10..=11 => {
                let mode = [
                    RenameMode::Replace,
                    RenameMode::NoReplace,
                    RenameMode::Exchange,
                    RenameMode::Whiteout,
                    RenameMode::WhiteoutNoReplace,
                ][usize::try_from(self.dice.throw(5)).unwrap()];
                files.rename(&user, parent, &name, other, &other_name, mode, operation)
            }
            12..=13 => {
                let changes = self.attributes();
                files
                    .set_attributes(&user, id, &changes, operation)
                    .map(drop)
            }
            14..=15 => {
                let name = format!("user.x{}", self.dice.throw(4)).into_bytes();
                let value = match self.dice.throw(6) {
                    0 => self.bytes(60_000),
                    _ => self.bytes(300),
                };
                let mode = XattrMode::Any;
                files.set_xattr(&user, id, &name, &value, mode, operation)
            }
            16 => {
                let name = format!("user.x{}", self.dice.throw(4)).into_bytes();
                files.remove_xattr(&user, id, &name, operation)
            }
            17 => {
                let what = [
                    Allocate::PunchHole,
                    Allocate::ZeroRange,
                    Allocate::ZeroRangeKeepSize,
                    Allocate::Extend,
                ][usize::try_from(self.dice.throw(4)).unwrap()];
                let (from, length) = (self.dice.throw(300_000), self.dice.throw(100_000));
                files.allocate(&user, id, what, from, length, operation)
            }
            18 => {
                let name = match self.dice.throw(2) {
                    0 => &b"system.posix_acl_access"[..],
                    _ => b"system.posix_acl_default",
                };
                let value = acl(u32::try_from(self.dice.throw(8)).unwrap());
                let mode = XattrMode::Any;
                files.set_xattr(&user, id, name, &value, mode, operation)
            }
            _ => match self.open.take(&id) {
                Some(id) => files.closed(id, operation),
                None => files.opened(id, operation).map(|()| {
                    self.open.insert(id);
                }),
            },
        };
        if let Err(error) = outcome {
            assert!(!error.is_failure(), "{error}");
        }
    }

    fn create(
        &mut self,
        mounted: &Mounted,
        user: &Credentials,
        parent: ObjectId,
        name: &[u8],
    ) -> Result<(), PosixError> {
        let kind = match self.dice.throw(8) {
            0..=3 => FileKind::Regular,
            4..=5 => FileKind::Directory,
            6 => FileKind::SymbolicLink,
            _ => FileKind::CharacterDevice,
        };
        let new = NewFile {
            kind,
            permissions: u32::try_from(self.dice.throw(0o1000)).unwrap() | 0o700,
            umask: 0o22,
            device: DeviceNumber { major: 5, minor: 7 },
            target: (kind == FileKind::SymbolicLink).then_some(b"to/somewhere".as_slice()),
        };
        let made = mounted
            .files
            .create(user, parent, name, &new, &mounted.operation)?;
        self.files.push(made.id);
        if kind == FileKind::Directory {
            self.directories.push(made.id);
        }
        Ok(())
    }

    fn attributes(&mut self) -> SetAttributes {
        let mut changes = SetAttributes::default();
        match self.dice.throw(6) {
            0 => {
                let bits = u32::try_from(self.dice.throw(0o10000)).unwrap();
                changes.permissions = Some(bits | 0o700);
            }
            1 => {
                changes.uid = Some(1000);
                changes.gid = Some(1000 + u32::try_from(self.dice.throw(3)).unwrap());
            }
            2..=3 => changes.size = Some(self.dice.throw(400_000)),
            4 => {
                let time = Timestamp {
                    seconds: 1_000_000_007,
                    nanoseconds: 5,
                };
                changes.modified = Some(SetTime::To(time));
            }
            _ => {
                let flags = ZnodeFlags::NO_DUMP.and(ZnodeFlags::ARCHIVE);
                changes.flags = Some(flags.word() * self.dice.throw(2));
                changes.project = Some(self.dice.throw(3));
            }
        }
        changes
    }
}

/// A POSIX list that names a user, and so says more than the mode.
fn acl(permissions: u32) -> Vec<u8> {
    let permissions = u16::try_from(permissions).unwrap();
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in [
        (1_u16, 7_u16, u32::MAX),
        (2, permissions, 1000),
        (4, 5, u32::MAX),
        (16, 7, u32::MAX),
        (32, 1, u32::MAX),
    ] {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(rights.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn properties(seed: u64) -> MountProperties {
    MountProperties {
        access_times: AccessTimes::Never,
        acl_type: AclType::Posix,
        xattrs: match seed % 2 {
            0 => XattrStore::Attributes,
            _ => XattrStore::Directory,
        },
        dnode_slots: if seed.is_multiple_of(3) { 2 } else { 1 },
        record_size: LogicalSize::from(if seed.is_multiple_of(5) {
            4096
        } else {
            128 << 10
        }),
        ..MountProperties::default()
    }
}

/// As `fsync` of everything after each operation, and as one at the end, which finds the newest
/// contents.
#[test]
fn what_was_recorded_makes_the_same_tree_again() {
    for seed in 1..=24_u64 {
        let recorded = Recorded::new(properties(seed));
        let mut workload = Workload::new(seed * 7919, recorded.mounted.root());
        for _ in 0..250 {
            workload.step(&recorded.mounted);
        }
        for id in std::mem::take(&mut workload.open) {
            let _ = recorded
                .mounted
                .files
                .closed(id, &recorded.mounted.operation);
        }
        let records = recorded.stored(|_| true);
        let fresh = Mounted::with(NewFileSystem::default(), properties(seed));
        replay(&fresh, &records);
        assert_same(&recorded.mounted, &fresh);
    }
}

#[test]
fn an_exclusive_creation_is_recognized_after_its_record_was_replayed() {
    let recorded = Recorded::new(properties(1));
    let new = NewFile {
        kind: FileKind::Regular,
        permissions: 0o600,
        umask: 0,
        device: DeviceNumber::default(),
        target: None,
    };
    let make = |mounted: &Mounted, verifier| {
        let (root, top) = (Credentials::root(), mounted.root());
        let (files, operation) = (&mounted.files, &mounted.operation);
        files.create_exclusive(&root, top, b"file", &new, verifier, operation)
    };
    let verifier = [9, 8, 7, 6, 5, 4, 3, 2];
    let made = make(&recorded.mounted, verifier).unwrap();
    // The shared records, which every commit stores, are enough.
    let records = recorded.stored(|record| record.object.is_none());
    let fresh = Mounted::with(NewFileSystem::default(), properties(1));
    replay(&fresh, &records);
    assert_eq!(make(&fresh, verifier).unwrap().id, made.id);
    assert!(matches!(make(&fresh, [0; 8]), Err(PosixError::Exists)));
}

/// A commit of one file stores the changes of all names, and those of its file; nothing of others.
#[test]
fn what_one_file_needs_can_be_replayed_alone() {
    for seed in 1..=24_u64 {
        let recorded = Recorded::new(properties(seed));
        let mut workload = Workload::new(seed * 104_729, recorded.mounted.root());
        for _ in 0..200 {
            workload.step(&recorded.mounted);
        }
        for id in workload.files {
            let operation = &recorded.mounted.operation;
            let Ok(wanted) = recorded.mounted.files.attributes(id, operation) else {
                continue;
            };
            if wanted.kind != FileKind::Regular || wanted.links == 0 {
                continue;
            }
            let records = recorded.stored(|record| record.object.is_none_or(|object| object == id));
            let fresh = Mounted::with(NewFileSystem::default(), properties(seed));
            replay(&fresh, &records);
            let found = fresh.files.attributes(id, &fresh.operation).unwrap();
            assert_eq!(found.size, wanted.size);
            assert_eq!(found.permissions, wanted.permissions);
            assert_eq!(fresh.contents(id), recorded.mounted.contents(id));
            break;
        }
    }
}

/// A commit of a file while it is removed stores what was written into it, or finds the removal.
/// Files are small, which are freed at once, or open, which stay.
#[test]
fn a_file_is_there_until_the_log_has_heard_of_its_removal() {
    let mounted = Mounted::new();
    let (root, operation) = (Credentials::root(), &mounted.operation);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let (files, told) = (Arc::downgrade(&mounted.files), heard.clone());
    let log = mounted.files.intent_log().unwrap();
    log.watch(move |record| {
        let is_removal = matches!(
            record.change,
            LoggedChange::Remove { .. } | LoggedChange::Rename(_)
        );
        if is_removal {
            let mut told = told.lock().unwrap();
            let object: u64 = told.pop().unwrap();
            let files = files.upgrade().unwrap();
            let written = write(object, 0, 3, None);
            let operation = Operation::unmeasured();
            let generation = files.attributes(written.object, &operation).unwrap();
            let generation = generation.generation;
            let contents = |generation| files.contents(&written, generation, &operation);
            let found = contents(generation).unwrap();
            assert_eq!(found, Fetched::Bytes(b"abc".to_vec()));
            let another = contents(generation + 1).unwrap();
            assert_eq!(another, Fetched::Gone, "the number is another file's now");
        }
    });
    let parent = mounted.root();
    let make = |name: &str, is_open: bool| {
        let made = mounted.make(&root, parent, name, FileKind::Regular, 0o600);
        let id = made.unwrap().id;
        let at = WriteAt::Offset(0);
        let written = mounted.files.write(&root, id, at, b"abc", operation);
        written.unwrap();
        if is_open {
            mounted.files.opened(id, operation).unwrap();
        }
        heard.lock().unwrap().push(id.get());
    };
    for (is_open, name) in [(false, "closed"), (true, "open")] {
        make(name, is_open);
        let removed = mounted
            .files
            .unlink(&root, parent, name.as_bytes(), operation);
        removed.unwrap();
        let other = mounted.make(&root, parent, "other", FileKind::Regular, 0o600);
        other.unwrap();
        make(name, is_open);
        let (name, mode) = (name.as_bytes(), RenameMode::Replace);
        let renamed = mounted
            .files
            .rename(&root, parent, b"other", parent, name, mode, operation);
        renamed.unwrap();
        assert!(heard.lock().unwrap().is_empty());
    }
}

/// An extended attribute that moves between the list and the hidden directory has its old or its
/// new value, with a commit of any file: here, another one.
#[test]
fn an_attribute_that_moves_is_nowhere_without_a_value() {
    const NAME: &[u8] = b"user.moves";
    let (small, large) = (vec![1; 100], vec![2; 40 << 10]);
    for (before, after) in [(&large, &small), (&small, &large)] {
        let properties = properties(2);
        let recorded = Recorded::new(properties);
        let (mounted, root) = (&recorded.mounted, Credentials::root());
        let file = mounted
            .make(&root, mounted.root(), "file", FileKind::Regular, 0o600)
            .unwrap();
        let set = |value: &[u8]| {
            let (files, operation) = (&mounted.files, &mounted.operation);
            let set = files.set_xattr(&root, file.id, NAME, value, XattrMode::Any, operation);
            set.unwrap();
        };
        set(before);
        let count = recorded.records.lock().unwrap().len();
        set(after);
        let made = std::cell::Cell::new(0);
        let records = recorded.stored(|record| {
            made.set(made.get() + 1);
            made.get() <= count || record.object.is_none()
        });
        let fresh = Mounted::with(NewFileSystem::default(), properties);
        replay(&fresh, &records);
        let found = fresh
            .files
            .get_xattr(&root, file.id, NAME, &fresh.operation)
            .unwrap();
        assert!(found == *before || found == *after, "{}", found.len());
    }
}

/// An extended attribute that is made in the hidden directory has its value there, or is not there,
/// with a commit of any file: here, another one.
#[test]
fn an_attribute_that_is_new_is_nowhere_without_its_value() {
    const NAME: &[u8] = b"user.new";
    for (xattrs, length) in [
        (XattrStore::Directory, 100),
        (XattrStore::Attributes, 40 << 10),
    ] {
        let properties = MountProperties {
            xattrs,
            ..properties(2)
        };
        let recorded = Recorded::new(properties);
        let (mounted, root) = (&recorded.mounted, Credentials::root());
        let file = mounted
            .make(&root, mounted.root(), "file", FileKind::Regular, 0o600)
            .unwrap();
        let (files, operation) = (&mounted.files, &mounted.operation);
        let value = vec![7; length];
        let set = files.set_xattr(&root, file.id, NAME, &value, XattrMode::Any, operation);
        set.unwrap();
        let records = recorded.stored(|record| record.object.is_none());
        let fresh = Mounted::with(NewFileSystem::default(), properties);
        replay(&fresh, &records);
        let found = fresh
            .files
            .get_xattr(&root, file.id, NAME, &fresh.operation);
        assert!(found.unwrap() == value);
    }
}

/// A crash in the middle: what is stored is not applied again, and the rest is.
#[test]
fn a_replay_that_was_cut_goes_on_where_it_was() {
    for seed in 1..=24_u64 {
        let recorded = Recorded::new(properties(seed));
        let mut workload = Workload::new(seed * 31_337, recorded.mounted.root());
        for _ in 0..150 {
            workload.step(&recorded.mounted);
        }
        for id in std::mem::take(&mut workload.open) {
            let _ = recorded
                .mounted
                .files
                .closed(id, &recorded.mounted.operation);
        }
        let records = recorded.stored(|_| true);
        let mut fresh = Mounted::with(NewFileSystem::default(), properties(seed));
        let mut dice = Dice(seed + 17);
        for _ in 0..4 {
            let count = usize::try_from(dice.throw(u64::try_from(records.len()).unwrap())).unwrap();
            let stored = usize::try_from(dice.throw(u64::try_from(count + 1).unwrap())).unwrap();
            replay(&fresh, &records[..stored]);
            fresh.sync();
            replay(&fresh, &records[..count]);
            fresh = fresh.crashed();
        }
        replay(&fresh, &records);
        assert_same(&recorded.mounted, &fresh);
    }
}

/// OpenZFS writes the whole block that a record leads to, and would have a file end with it that it
/// does not fill.
#[test]
fn records_lead_only_to_blocks_that_their_file_fills() {
    let mounted = Mounted::new();
    let (files, operation) = (&mounted.files, &mounted.operation);
    let (root, who) = (mounted.root(), Credentials::root());
    for size in [1, 5000, 131_072, 150_001, 262_143, 262_144, 400_000_u64] {
        let name = size.to_string();
        let made = mounted.make(&who, root, &name, FileKind::Regular, 0o644);
        let made = made.unwrap();
        let (id, generation) = (made.id, made.generation);
        let bytes = vec![b'x'; usize::try_from(size).unwrap()];
        let at = WriteAt::Offset(0);
        files.write(&who, id, at, &bytes, operation).unwrap();
        let set = files.object_set();
        let tx = set.env().txgs.assign(&TxEstimate::default(), operation);
        let tx = tx.unwrap();
        for offset in [0, size / 3, size - 1] {
            let whole = write(id.get(), offset, size - offset, None);
            let needed = WholeBlocks::NotNeeded;
            let another = files.place(&whole, generation + 1, needed, &tx, operation);
            assert!(another.is_none());
            let placed = files.place(&whole, generation, needed, &tx, operation);
            let has_full = size - offset % 131_072 >= 131_072 && size >= 131_072;
            let Some(placed) = placed else {
                assert!(
                    !has_full || offset >= size - size % 131_072,
                    "{size} {offset}"
                );
                continue;
            };
            let mut next = offset;
            for part in &placed.parts {
                let block_bytes = part.pointer.logical_size().get();
                let block_end = (part.offset / block_bytes + 1) * block_bytes;
                assert!(block_end <= size, "a block ends at {block_end} of {size}");
                assert_eq!(part.offset, next);
                next += part.length;
            }
            if let Some(rest) = &placed.rest {
                assert_eq!((rest.offset, rest.pointer), (next, BlockPointer::HOLE));
                next += rest.length;
            }
            assert_eq!(next, size);
            placed.blocks.withdraw();
        }
    }
}

/// Behind the end of a record its block may have what came later and is not logged. Applied, that
/// would lie behind the end of the file, and show when it grows.
#[test]
fn records_lead_only_to_blocks_that_they_reach_the_end_of() {
    const BLOCK: u64 = 131_072;
    let recorded = Recorded::new(MountProperties::default());
    let (mounted, who) = (&recorded.mounted, Credentials::root());
    let (files, operation) = (&mounted.files, &mounted.operation);
    let made = mounted.make(&who, mounted.root(), "file", FileKind::Regular, 0o644);
    let made = made.unwrap();
    let put = |offset: u64, length: u64, byte| {
        let bytes = vec![byte; usize::try_from(length).unwrap()];
        let written = files.write(&who, made.id, WriteAt::Offset(offset), &bytes, operation);
        written.unwrap();
    };
    put(0, 3 * BLOCK, b'x');
    let set = files.object_set();
    let tx = set.env().txgs.assign(&TxEstimate::default(), operation);
    let tx = tx.unwrap();
    for (offset, end, led_end) in [
        (0, 100_000, 0),
        (0, BLOCK, BLOCK),
        (0, 200_000, BLOCK),
        (70_000, 2 * BLOCK + 1, 2 * BLOCK),
        (BLOCK, BLOCK + 40_000, 0),
        (70_000, 3 * BLOCK, 3 * BLOCK),
    ] {
        let change = write(made.id.get(), offset, end - offset, None);
        let needed = WholeBlocks::NotNeeded;
        let placed = files.place(&change, made.generation, needed, &tx, operation);
        assert_eq!(placed.is_some(), led_end > 0, "{offset} {end}");
        let Some(placed) = placed else { continue };
        let last = placed.parts.last().unwrap();
        assert_eq!(last.offset + last.length, led_end);
        let rest = placed.rest.map(|rest| (rest.offset, rest.length));
        assert_eq!(rest, (led_end < end).then_some((led_end, end - led_end)));
        placed.blocks.withdraw();
    }
}

/// A list of one entry that allows, for this user, with these flags.
fn nfs4_list(uid: u32, flags: u32) -> Vec<u8> {
    let principal = uid.to_string();
    let mut bytes = Vec::new();
    let length = u32::try_from(principal.len()).unwrap();
    for word in [1, 0, flags, 0x2_0027, length] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(principal.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

#[test]
fn nfs4_lists_that_were_set_inherited_and_kept_by_chmod_are_replayed() {
    let properties = MountProperties {
        acl_type: AclType::Nfs4,
        acl_mode: AclMode::Passthrough,
        ..MountProperties::default()
    };
    let recorded = Recorded::new(properties);
    let (root, name) = (Credentials::root(), b"system.nfs4_acl");
    let (files, operation) = (&recorded.mounted.files, &recorded.mounted.operation);
    let make = |parent, name, kind| {
        let made = recorded.mounted.make(&root, parent, name, kind, 0o750);
        made.unwrap().id
    };
    let set = |id, list: &[u8]| {
        files
            .set_xattr(&root, id, name, list, XattrMode::Any, operation)
            .unwrap();
    };
    let change = |id, changes: SetAttributes| {
        files
            .set_attributes(&root, id, &changes, operation)
            .unwrap();
    };
    let top = recorded.mounted.root();
    let directory = make(top, "d", FileKind::Directory);
    set(directory, &nfs4_list(7, 3));
    let inner = make(directory, "inner", FileKind::Directory);
    let file = make(directory, "file", FileKind::Regular);
    let changed = make(top, "changed", FileKind::Regular);
    set(changed, &nfs4_list(8, 0));
    change(
        changed,
        SetAttributes {
            permissions: Some(0o604),
            ..SetAttributes::default()
        },
    );
    let given = make(top, "given", FileKind::Regular);
    set(given, &nfs4_list(9, 0));
    change(
        given,
        SetAttributes {
            uid: Some(9),
            ..SetAttributes::default()
        },
    );
    let plain = make(top, "plain", FileKind::Regular);
    set(plain, &nfs4_list(9, 0));
    files.remove_xattr(&root, plain, name, operation).unwrap();

    let mounted = Mounted::with(NewFileSystem::default(), properties);
    replay(&mounted, &recorded.stored(|_| true));
    assert_same(&recorded.mounted, &mounted);
    let list = |mounted: &Mounted, id| {
        mounted
            .files
            .get_xattr(&root, id, name, &mounted.operation)
            .unwrap()
    };
    for id in [top, directory, inner, file, changed, given, plain] {
        assert_eq!(list(&mounted, id), list(&recorded.mounted, id), "{id}");
    }
    let mode = |id| {
        mounted
            .files
            .attributes(id, &mounted.operation)
            .unwrap()
            .permissions
    };
    assert_eq!([mode(changed), mode(given)], [0o604, 0o700]);
}

/// A record that no operation of ours makes.
fn apply(mounted: &Mounted, change: LoggedChange) -> Result<(), String> {
    let files = mounted.files.clone();
    let log = files.intent_log().unwrap();
    let mut replayer = Replayer::begin(log, &*files, &mounted.operation);
    let record = LogRecord {
        txg: Txg::from(1),
        sequence: mounted
            .files
            .object_set()
            .phys()
            .intent_log
            .replayed_sequence
            + 1000,
        case_insensitive: false,
        change,
    };
    replayer.apply(&record).map_err(|error| error.to_string())
}

fn create(parent: ObjectId, object: u64, name: &str) -> LoggedCreate {
    LoggedCreate {
        kind: CreateKind::File,
        directory: parent,
        object: ObjectId::new(object),
        dnode_slots: 1,
        mode: 0o100_640,
        owner: Fuid::posix(7),
        group: Fuid::posix(8),
        generation: 99,
        creation_time: [5, 6],
        device: 0,
        extended: None,
        acl: None,
        domains: Vec::new(),
        name: Text::from(name),
    }
}

fn write(object: u64, offset: u64, length: u64, data: Option<&[u8]>) -> LoggedWrite {
    LoggedWrite {
        is_stored_already: false,
        object: ObjectId::new(object),
        offset,
        length,
        block_offset: 0,
        pointer: BlockPointer::HOLE,
        data: data.map(<[u8]>::to_vec),
    }
}
