//! What protocols need of files: handles, change attributes, attributes from before and after, and
//! exclusive creation that can be repeated.

mod support;

use support::Mounted;
use tarn_posix::types::{
    Attributes, Credentials, DeviceNumber, FileKind, NewFile, RenameMode, SetAttributes, SetTime,
    Timestamp, XattrMode,
};
use tarn_posix::{FileHandle, PosixError, WriteAt};

const GUID: u64 = 0x1234_5678_9abc_def0;

fn regular() -> NewFile<'static> {
    NewFile {
        kind: FileKind::Regular,
        permissions: 0o644,
        umask: 0,
        device: DeviceNumber::default(),
        target: None,
    }
}

fn create(mounted: &Mounted, name: &str) -> Attributes {
    let (root, top) = (Credentials::root(), mounted.root());
    let made = mounted
        .files
        .create(&root, top, name.as_bytes(), &regular(), &mounted.operation);
    made.unwrap()
}

fn unlink(mounted: &Mounted, name: &str) {
    let (root, top) = (Credentials::root(), mounted.root());
    let unlinked = mounted
        .files
        .unlink(&root, top, name.as_bytes(), &mounted.operation);
    unlinked.unwrap();
}

#[test]
fn a_handle_finds_its_file_after_a_restart_and_is_stale_when_the_file_has_gone() {
    let mounted = Mounted::new();
    let file = create(&mounted, "a");
    let handle = FileHandle::of(GUID, &file);
    let bytes = handle.encode();
    let mounted = mounted.remounted();
    let handle = FileHandle::decode(&bytes).unwrap();
    let find = |mounted: &Mounted, dataset, handle: &FileHandle| {
        let found = mounted
            .files
            .find_by_handle(dataset, handle, &mounted.operation);
        found.map(|found| found.id)
    };
    assert_eq!(find(&mounted, GUID, &handle).unwrap(), file.id);
    let is_stale = |outcome: Result<_, PosixError>| matches!(outcome, Err(PosixError::Stale));
    assert!(is_stale(find(&mounted, GUID + 1, &handle)));
    // As long as it is open it exists.
    mounted.files.opened(file.id, &mounted.operation).unwrap();
    unlink(&mounted, "a");
    assert_eq!(find(&mounted, GUID, &handle).unwrap(), file.id);
    mounted.files.closed(file.id, &mounted.operation).unwrap();
    assert!(is_stale(find(&mounted, GUID, &handle)));
    // Another file of the same number.
    let again = create(&mounted, "b");
    let fresh = FileHandle::of(GUID, &again);
    let before = FileHandle {
        generation: again.generation - 1,
        ..fresh
    };
    assert_eq!(find(&mounted, GUID, &fresh).unwrap(), again.id);
    assert!(is_stale(find(&mounted, GUID, &before)));
}

#[test]
fn the_change_attribute_moves_with_each_change_and_with_no_look() {
    let mounted = Mounted::new();
    let (files, operation) = (&mounted.files, &mounted.operation);
    let root = Credentials::root();
    let id = create(&mounted, "a").id;
    let now = || files.attributes(id, operation).unwrap().change();
    let mut last = now();
    let mut moved = |what: &str| {
        let after = now();
        assert!(after > last, "{what}");
        last = after;
    };
    for round in 0..2000 {
        let at = WriteAt::Offset(0);
        files.write(&root, id, at, &[7], operation).unwrap();
        moved(&format!("write {round}"));
    }
    let set = |changes: SetAttributes| {
        files
            .set_attributes(&root, id, &changes, operation)
            .unwrap();
    };
    // Not even a time that the clock has not reached stops it.
    set(SetAttributes {
        modified: Some(SetTime::To(Timestamp {
            seconds: 1 << 33,
            nanoseconds: 0,
        })),
        ..SetAttributes::default()
    });
    moved("times");
    set(SetAttributes::default());
    moved("nothing, and still a change");
    let (name, mode) = (b"user.x", XattrMode::Any);
    files
        .set_xattr(&root, id, name, b"1", mode, operation)
        .unwrap();
    moved("an extended attribute");
    files
        .link(&root, id, files.root(), b"b", operation)
        .unwrap();
    moved("a link");
    unlink(&mounted, "b");
    moved("its end");
    let before = now();
    files.read(&root, id, 0, 10, operation).unwrap();
    assert_eq!(now(), before, "reading changes nothing");
    let mounted = mounted.remounted();
    let after = mounted.files.attributes(id, &mounted.operation);
    assert_eq!(after.unwrap().change(), before, "nor does a restart");
}

#[test]
fn an_answer_has_the_attributes_from_before_and_after_its_own_change() {
    let mounted = Mounted::new();
    let (files, operation) = (&mounted.files, &mounted.operation);
    let (root, top) = (Credentials::root(), mounted.root());
    let of = |id| files.attributes(id, operation).unwrap();
    let before = of(top);
    let (made, seen) = files.witnessed(|| files.create(&root, top, b"a", &regular(), operation));
    let file = made.unwrap();
    let directory = seen.of(top).unwrap();
    assert_eq!(directory.before.change, before.change());
    assert_eq!(directory.before.size, before.size);
    assert_eq!(directory.after, of(top));
    assert!(directory.after.change() > before.change());
    let (written, seen) =
        files.witnessed(|| files.write(&root, file.id, WriteAt::End, &vec![1; 9 << 20], operation));
    assert_eq!(written.unwrap(), 9 << 20);
    let contents = seen.of(file.id).unwrap();
    assert_eq!((contents.before.size, contents.after.size), (0, 9 << 20));
    assert_eq!(contents.before.change, file.change());
    assert!(seen.of(top).is_none(), "the directory has not changed");
    let (renamed, seen) = files
        .witnessed(|| files.rename(&root, top, b"a", top, b"b", RenameMode::Replace, operation));
    renamed.unwrap();
    assert_eq!(seen.of(file.id).unwrap().after, of(file.id));
    assert_eq!(seen.of(top).unwrap().after, of(top));
    let (refused, seen) = files.witnessed(|| files.unlink(&root, top, b"none", operation));
    assert!(refused.is_err());
    assert!(seen.of(top).is_none());
}

#[test]
fn an_exclusive_creation_that_is_repeated_finds_what_it_has_made() {
    let mut mounted = Mounted::new();
    let root = Credentials::root();
    let make = |mounted: &Mounted, verifier| {
        let (top, new) = (mounted.root(), regular());
        let (files, operation) = (&mounted.files, &mounted.operation);
        files.create_exclusive(&root, top, b"a", &new, verifier, operation)
    };
    let verifier = [0xff, 1, 2, 3, 0x80, 5, 6, 7];
    let made = make(&mounted, verifier).unwrap();
    assert_eq!(make(&mounted, verifier).unwrap().id, made.id);
    let other = [0xff, 1, 2, 3, 0x80, 5, 6, 8];
    assert!(matches!(make(&mounted, other), Err(PosixError::Exists)));
    mounted = mounted.remounted();
    assert_eq!(make(&mounted, verifier).unwrap().id, made.id);
    // The client sets the times as soon as it has its answer.
    let times = SetAttributes {
        accessed: Some(SetTime::Now),
        modified: Some(SetTime::Now),
        ..SetAttributes::default()
    };
    let (files, operation) = (&mounted.files, &mounted.operation);
    files
        .set_attributes(&root, made.id, &times, operation)
        .unwrap();
    assert!(matches!(make(&mounted, verifier), Err(PosixError::Exists)));
}
