//! Names that are the same to some and not to others, and names that are too long to be made and
//! are there.

mod support;

use support::Mounted;
use tarn_ondisk::fuid::Fuid;
use tarn_ondisk::intent_log::{CreateKind, LogRecord, LoggedChange, LoggedCreate};
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_posix::properties::{MountProperties, XattrStore};
use tarn_posix::types::{Credentials, FileKind, RenameMode, XattrMode};
use tarn_posix::{CaseSensitivity, NewFileSystem, PosixError};
use tarn_zil::Replayer;

fn root() -> Credentials {
    Credentials::root()
}

fn file(mounted: &Mounted, name: &str) -> Result<ObjectId, PosixError> {
    let made = mounted.make(&root(), mounted.root(), name, FileKind::Regular, 0o644);
    made.map(|made| made.id)
}

fn find(mounted: &Mounted, name: &str) -> Result<ObjectId, PosixError> {
    let (top, name) = (mounted.root(), name.as_bytes());
    let found = mounted.files.lookup(&root(), top, name, &mounted.operation);
    found.map(|found| found.id)
}

fn unlink(mounted: &Mounted, name: &str) -> Result<(), PosixError> {
    let (top, name) = (mounted.root(), name.as_bytes());
    mounted.files.unlink(&root(), top, name, &mounted.operation)
}

fn rename(mounted: &Mounted, from: &str, to: &str) -> Result<(), PosixError> {
    let (top, mode) = (mounted.root(), RenameMode::Replace);
    let (from, to) = (from.as_bytes(), to.as_bytes());
    mounted
        .files
        .rename(&root(), top, from, top, to, mode, &mounted.operation)
}

fn errno<T: std::fmt::Debug>(result: Result<T, PosixError>) -> i32 {
    result.unwrap_err().errno()
}

/// A file as OpenZFS records that it was made.
fn replay_create(mounted: &Mounted, object: u64, name: &str) {
    let create = LoggedCreate {
        kind: CreateKind::File,
        directory: mounted.root(),
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
    };
    let record = LogRecord {
        txg: Txg::from(1),
        sequence: 1,
        case_insensitive: false,
        change: LoggedChange::Create(Box::new(create)),
    };
    let files = mounted.files.clone();
    let log = files.intent_log().unwrap();
    let mut replayer = Replayer::begin(log, &*files, &mounted.operation);
    replayer.apply(&record).unwrap();
}

/// Each name of a mixed dataset is one of its own, whatever is beside it in another case, in a
/// small directory and in a large one.
#[test]
fn a_name_in_another_case_leaves_a_mixed_dataset_those_it_has() {
    for is_large in [false, true] {
        let new = NewFileSystem {
            case: CaseSensitivity::Mixed,
            ..NewFileSystem::default()
        };
        let mounted = Mounted::with(new, MountProperties::default());
        if is_large {
            file(&mounted, &"long".repeat(20)).unwrap();
        }
        let upper = file(&mounted, "Foo").unwrap();
        let lower = file(&mounted, "foo").unwrap();
        replay_create(&mounted, 300, "fOO");
        let other = file(&mounted, "other").unwrap();
        let (files, operation, top) = (&mounted.files, &mounted.operation, mounted.root());
        files.link(&root(), other, top, b"FOO", operation).unwrap();
        rename(&mounted, "other", "FoO").unwrap();
        assert_eq!(errno(file(&mounted, "Foo")), 17);
        let mounted = mounted.remounted();
        for (name, id) in [
            ("Foo", upper),
            ("foo", lower),
            ("fOO", ObjectId::new(300)),
            ("FOO", other),
            ("FoO", other),
        ] {
            assert_eq!(find(&mounted, name).unwrap(), id, "{name}");
            unlink(&mounted, name).unwrap();
            assert_eq!(errno(find(&mounted, name)), 2);
        }
        assert_eq!(mounted.names(mounted.root()).len(), usize::from(is_large));
    }
}

/// Where Unicode writes a name in two ways they are the same, and case still tells names apart.
#[test]
fn a_mixed_dataset_normalises_all_but_case() {
    const FORM_C: u64 = 0x50;
    let new = NewFileSystem {
        case: CaseSensitivity::Mixed,
        normalization: FORM_C,
        ..NewFileSystem::default()
    };
    let mounted = Mounted::with(new, MountProperties::default());
    let upper = file(&mounted, "\u{c9}t\u{e9}").unwrap();
    let lower = file(&mounted, "e\u{301}te\u{301}").unwrap();
    assert_eq!(find(&mounted, "E\u{301}te\u{301}").unwrap(), upper);
    assert_eq!(find(&mounted, "\u{e9}t\u{e9}").unwrap(), lower);
    assert_eq!(errno(find(&mounted, "\u{e9}T\u{e9}")), 2);
    assert_eq!(errno(file(&mounted, "E\u{301}t\u{e9}")), 17);
    unlink(&mounted, "\u{e9}te\u{301}").unwrap();
    assert_eq!(find(&mounted, "\u{c9}te\u{301}").unwrap(), upper);
}

#[test]
fn attributes_of_a_mixed_dataset_are_told_apart_by_case() {
    let new = NewFileSystem {
        case: CaseSensitivity::Mixed,
        ..NewFileSystem::default()
    };
    let properties = MountProperties {
        xattrs: XattrStore::Directory,
        ..MountProperties::default()
    };
    let mounted = Mounted::with(new, properties);
    let before = mounted.objects();
    let id = file(&mounted, "f").unwrap();
    let (files, operation) = (&mounted.files, &mounted.operation);
    let names = [b"user.Foo".as_slice(), b"user.foo"];
    for name in names {
        files
            .set_xattr(&root(), id, name, name, XattrMode::Any, operation)
            .unwrap();
    }
    for name in names {
        assert_eq!(files.get_xattr(&root(), id, name, operation).unwrap(), name);
    }
    unlink(&mounted, "f").unwrap();
    assert_eq!(mounted.objects(), before);
}

/// Names of more than 255 bytes can be made while `longname` is on, and used for good.
#[test]
fn long_names_that_are_there_are_found_and_removed_though_none_are_made_any_more() {
    let properties = |has_long_names| MountProperties {
        has_long_names,
        ..MountProperties::default()
    };
    let mounted = Mounted::with(NewFileSystem::default(), properties(true));
    let long = |letter: &str, count| letter.repeat(count);
    file(&mounted, &long("a", 255)).unwrap();
    unlink(&mounted, &long("a", 255)).unwrap();
    assert!(!mounted.files.object_set().has_long_names());
    for letter in ["a", "b"] {
        file(&mounted, &long(letter, 256)).unwrap();
    }
    assert!(mounted.files.object_set().has_long_names());
    let id = file(&mounted, &long("c", 1023)).unwrap();
    let (top, name) = (mounted.root(), long("d", 300));
    mounted
        .make(&root(), top, &name, FileKind::Directory, 0o755)
        .unwrap();
    assert_eq!(errno(file(&mounted, &long("e", 1024))), 36);
    mounted.files.set_properties(properties(false));
    assert_eq!(find(&mounted, &long("c", 1023)).unwrap(), id);
    unlink(&mounted, &long("c", 1023)).unwrap();
    unlink(&mounted, &long("a", 256)).unwrap();
    rename(&mounted, &long("b", 256), "short").unwrap();
    mounted
        .files
        .remove_directory(&root(), top, name.as_bytes(), &mounted.operation)
        .unwrap();
    // What is not there and cannot be is too long.
    assert_eq!(errno(file(&mounted, &long("a", 300))), 36);
    assert_eq!(errno(rename(&mounted, "short", &long("a", 300))), 36);
    assert_eq!(errno(rename(&mounted, &long("a", 300), "other")), 36);
    assert_eq!(errno(find(&mounted, &long("a", 300))), 36);
    assert_eq!(errno(unlink(&mounted, &long("a", 300))), 36);
    assert_eq!(errno(find(&mounted, &long("a", 1024))), 36);
    assert_eq!(errno(find(&mounted, &long("a", 255))), 2);
    let names = mounted.names(top);
    assert_eq!(
        (names.len(), names[0].0.as_slice()),
        (1, b"short".as_slice())
    );
}
