//! The unlinked set: what other programs leave in it, and files that are made without a name.

mod support;

use std::collections::BTreeSet;

use support::{Dice, Mounted};
use tarn_object::zap::{ObjectZap, ZapValue};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{LogicalSize, ObjectId};
use tarn_ondisk::znode::{MASTER_NODE, master};
use tarn_posix::properties::MountProperties;
use tarn_posix::types::{Attributes, Credentials, DeviceNumber, FileKind, NewFile, XattrMode};
use tarn_posix::{NewFileSystem, PosixError, WriteAt};

/// Where the count of names is in the structure of old files.
const LINKS_PLACE: usize = 96;

/// OpenZFS frees a file first, and puts its directory of extended attributes into the unlinked set,
/// with all that is in it. Here it ended just then. The version is an old one only so that the
/// attributes are at fixed places.
#[test]
fn a_directory_of_extended_attributes_without_a_file_goes_with_all_that_is_in_it() {
    without_a_file(|_| Vec::new());
}

/// Entries that lead to a file that is no extended attribute of that directory: a file system with
/// such damage is mounted, and unrelated files stay.
#[test]
fn what_is_only_said_to_be_an_extended_attribute_stays() {
    without_a_file(|[other, folder, hidden, directory]| {
        let gone = ObjectId::new(999_999);
        vec![other, folder, hidden, directory, gone]
    });
}

/// Entries like `more` are in the directory too: of another file, a folder, that file's extended
/// attribute, and the directory itself.
fn without_a_file(more: impl FnOnce([ObjectId; 4]) -> Vec<ObjectId>) {
    let new = NewFileSystem {
        version: 4,
        ..NewFileSystem::default()
    };
    let mounted = Mounted::with(new, MountProperties::default());
    let (files, operation, top) = (&mounted.files, &mounted.operation, mounted.root());
    let root = Credentials::root();
    let make = |name, kind| mounted.make(&root, top, name, kind, 0o644).unwrap().id;
    let other = make("other", FileKind::Regular);
    let folder = make("folder", FileKind::Directory);
    let without: BTreeSet<u64> = mounted.objects().into_iter().collect();
    files
        .set_xattr(
            &root,
            other,
            b"user.o",
            b"hidden",
            XattrMode::Any,
            operation,
        )
        .unwrap();
    let before: BTreeSet<u64> = mounted.objects().into_iter().collect();
    let is_file = |id: &ObjectId| {
        let object = files.object_set().object(*id, operation).unwrap();
        object.info().object_type == ObjectType::PlainFile
    };
    let mut hidden = before.difference(&without).map(|id| ObjectId::new(*id));
    let hidden = hidden.find(is_file).unwrap();
    let id = make("f", FileKind::Regular);
    for name in [b"user.a".as_slice(), b"user.b", b"user.c"] {
        let value = vec![7; 40_000];
        files
            .set_xattr(&root, id, name, &value, XattrMode::Any, operation)
            .unwrap();
    }
    let after: BTreeSet<u64> = mounted.objects().into_iter().collect();
    let added = after.difference(&before).map(|id| ObjectId::new(*id));
    let added: Vec<ObjectId> = added.collect();
    assert_eq!(added.len(), 5);
    mounted.change(|set, tx| {
        let object = |id| set.object(id, operation).unwrap();
        let is_directory =
            |id: &&ObjectId| object(**id).info().object_type == ObjectType::Directory;
        let directory = *added.iter().find(is_directory).unwrap();
        let (kind, bonus) = object(directory).typed_bonus();
        let mut bonus = bonus.to_vec();
        bonus[LINKS_PLACE..LINKS_PLACE + 8].fill(0);
        object(directory).set_typed_bonus(tx, kind, &bonus).unwrap();
        let table = ObjectZap::of(&object(directory), operation);
        for id in more([other, folder, hidden, directory]) {
            let (name, word) = (format!("user.{}", id.get()), ZapValue::word(id.get()));
            table.insert(tx, name.as_str(), &word).unwrap();
        }
        let master_node = object(MASTER_NODE);
        let unlinked = ObjectZap::of(&master_node, operation).lookup_word(master::UNLINKED);
        let unlinked = object(ObjectId::new(unlinked.unwrap().unwrap()));
        let (name, word) = (
            format!("{:x}", directory.get()),
            ZapValue::word(directory.get()),
        );
        ObjectZap::of(&unlinked, operation)
            .insert(tx, name.as_str(), &word)
            .unwrap();
        ObjectZap::of(&object(top), operation)
            .remove(tx, "f")
            .unwrap();
        set.free_object(tx, id, operation).unwrap();
    });
    let mounted = mounted.remounted();
    let left: BTreeSet<u64> = mounted.objects().into_iter().collect();
    assert_eq!(left, before);
    let found = mounted
        .files
        .get_xattr(&root, other, b"user.o", &mounted.operation);
    assert_eq!(found.unwrap(), b"hidden");
}

/// What the set says of files that are not there, or are there under another number, keeps no file
/// system from mounting.
#[test]
fn a_set_that_makes_no_sense_is_mounted() {
    let mounted = Mounted::new();
    let (files, operation, top) = (&mounted.files, &mounted.operation, mounted.root());
    let root = Credentials::root();
    let before: BTreeSet<u64> = mounted.objects().into_iter().collect();
    let ids: Vec<u64> = (0..9)
        .map(|number| {
            let name = format!("f{number}");
            let made = mounted.make(&root, top, &name, FileKind::Regular, 0o644);
            let id = made.unwrap().id;
            files.opened(id, operation).unwrap();
            files
                .unlink(&root, top, name.as_bytes(), operation)
                .unwrap();
            id.get()
        })
        .collect();
    mounted.change(|set, tx| {
        let object = |id| set.object(id, operation).unwrap();
        let unlinked = ObjectZap::of(&object(MASTER_NODE), operation);
        let unlinked = unlinked.lookup_word(master::UNLINKED).unwrap().unwrap();
        let unlinked = object(ObjectId::new(unlinked));
        let unlinked = ObjectZap::of(&unlinked, operation);
        let say = |name: String, id: u64| {
            unlinked
                .update(tx, name.as_str(), &ZapValue::word(id))
                .unwrap();
        };
        // All stand for the first now, and for themselves under other names.
        for id in &ids {
            say(format!("{id:x}"), ids[0]);
            say(format!("of {id}"), *id);
        }
        say("none".into(), u64::MAX);
        say("gone".into(), 999_999);
    });
    let mounted = mounted.remounted();
    let left: BTreeSet<u64> = mounted.objects().into_iter().collect();
    assert_eq!(left, before);
}

/// A large file with a block of pointers that cannot be read, where a piece of it would begin that
/// is freed at a time.
#[test]
fn a_file_is_freed_though_not_all_of_it_can_be_found() {
    const BLOCK: u64 = 4096;
    let properties = MountProperties {
        record_size: LogicalSize::from(BLOCK),
        ..MountProperties::default()
    };
    let mounted = Mounted::with(NewFileSystem::default(), properties);
    let (files, operation, top) = (&mounted.files, &mounted.operation, mounted.root());
    let root = Credentials::root();
    let before: BTreeSet<u64> = mounted.objects().into_iter().collect();
    let made = mounted.make(&root, top, "f", FileKind::Regular, 0o644);
    let id = made.unwrap().id;
    // So few bytes are in the pointer itself.
    let mut dice = Dice(99);
    let noise: Vec<u8> = (0..60).map(|_| dice.throw(256).to_le_bytes()[0]).collect();
    for (block, bytes) in [
        (0, vec![1; 4096]),
        (69_000, noise.clone()),
        (200_000, vec![3; 4096]),
    ] {
        let at = WriteAt::Offset(block * BLOCK);
        files.write(&root, id, at, &bytes, operation).unwrap();
    }
    mounted.sync();
    assert!(mounted.damage(&noise[4..34]) > 0);
    let read = files.read(&root, id, 69_000 * BLOCK, 60, operation);
    assert_eq!(read.unwrap_err().errno(), 5);
    files.unlink(&root, top, b"f", operation).unwrap();
    let left: BTreeSet<u64> = mounted.objects().into_iter().collect();
    assert_eq!(left, before);
}

/// Makes a file without a name, which is open, and writes into it.
fn make_unnamed(mounted: &Mounted, bytes: &[u8]) -> Attributes {
    let new = NewFile {
        kind: FileKind::Regular,
        permissions: 0o600,
        umask: 0,
        device: DeviceNumber::default(),
        target: None,
    };
    let (files, operation, root) = (&mounted.files, &mounted.operation, Credentials::root());
    let made = files.create_unnamed(&root, files.root(), &new, operation);
    let made = made.unwrap();
    assert_eq!((made.links, made.size), (0, 0));
    let written = files.write(&root, made.id, WriteAt::End, bytes, operation);
    assert_eq!(written.unwrap(), bytes.len());
    made
}

fn link(mounted: &Mounted, id: ObjectId, name: &[u8]) -> Result<Attributes, PosixError> {
    let (files, root) = (&mounted.files, Credentials::root());
    files.link(&root, id, files.root(), name, &mounted.operation)
}

/// What is in the unlinked set.
fn unlinked_count(mounted: &Mounted) -> usize {
    let (set, operation) = (mounted.files.object_set(), &mounted.operation);
    let object = |id| set.object(id, operation).unwrap();
    let master_node = object(MASTER_NODE);
    let unlinked = ObjectZap::of(&master_node, operation).lookup_word(master::UNLINKED);
    let unlinked = object(ObjectId::new(unlinked.unwrap().unwrap()));
    ObjectZap::of(&unlinked, operation).entries().unwrap().len()
}

#[test]
fn a_file_without_a_name_goes_when_it_is_closed_and_after_a_crash() {
    let mut mounted = Mounted::new();
    let before = mounted.objects();
    let made = make_unnamed(&mounted, &[7; 300_000]);
    assert_eq!(unlinked_count(&mounted), 1);
    mounted.files.closed(made.id, &mounted.operation).unwrap();
    assert_eq!(
        (mounted.objects(), unlinked_count(&mounted)),
        (before.clone(), 0)
    );
    make_unnamed(&mounted, b"stored, and still open");
    assert_eq!(mounted.objects().len(), before.len() + 1);
    let mounted = mounted.crashed();
    assert_eq!((mounted.objects(), unlinked_count(&mounted)), (before, 0));
}

#[test]
fn a_file_without_a_name_can_get_one_and_then_is_as_others() {
    let mounted = Mounted::new();
    let made = make_unnamed(&mounted, b"contents");
    let linked = link(&mounted, made.id, b"f").unwrap();
    assert_eq!((linked.id, linked.links), (made.id, 1));
    assert_eq!(unlinked_count(&mounted), 0);
    assert_eq!(link(&mounted, made.id, b"g").unwrap().links, 2);
    mounted.files.closed(made.id, &mounted.operation).unwrap();
    let mounted = mounted.remounted();
    assert_eq!(mounted.contents(made.id), b"contents");
    let names: Vec<_> = mounted.names(mounted.root());
    assert_eq!(names.iter().filter(|(_, id, _)| *id == made.id).count(), 2);
    // With its last name it goes, and gets no other: it had one.
    let (files, operation, root) = (&mounted.files, &mounted.operation, Credentials::root());
    files.opened(made.id, operation).unwrap();
    for name in [b"f", b"g"] {
        files.unlink(&root, files.root(), name, operation).unwrap();
    }
    assert!(matches!(
        link(&mounted, made.id, b"h"),
        Err(PosixError::NotFound)
    ));
    files.closed(made.id, operation).unwrap();
    assert!(!mounted.objects().contains(&made.id.get()));
}

#[test]
fn a_name_that_is_taken_leaves_a_file_without_one_as_it_was() {
    let mounted = Mounted::new();
    let root = Credentials::root();
    let taken = mounted.make(&root, mounted.root(), "taken", FileKind::Regular, 0o644);
    taken.unwrap();
    let before = mounted.objects();
    let made = make_unnamed(&mounted, b"contents");
    assert!(matches!(
        link(&mounted, made.id, b"taken"),
        Err(PosixError::Exists)
    ));
    assert_eq!(unlinked_count(&mounted), 1);
    mounted.files.closed(made.id, &mounted.operation).unwrap();
    assert_eq!((mounted.objects(), unlinked_count(&mounted)), (before, 0));
}

/// No record of the intent log can say that a file without a name got one: not a word of it may be
/// there as if others could do without.
#[test]
fn the_log_has_nothing_of_a_file_that_was_made_without_a_name_before_its_group_is_stored() {
    let mounted = Mounted::new();
    let log = mounted.files.intent_log().unwrap();
    let records = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let kept = records.clone();
    log.watch(move |record| kept.lock().unwrap().push(record.change.type_name()));
    let made = make_unnamed(&mounted, b"contents");
    let root = Credentials::root();
    let set = mounted.files.set_xattr(
        &root,
        made.id,
        b"user.a",
        b"value",
        XattrMode::Any,
        &mounted.operation,
    );
    set.unwrap();
    link(&mounted, made.id, b"f").unwrap();
    assert_eq!(*records.lock().unwrap(), Vec::<&str>::new());
    link(&mounted, made.id, b"g").unwrap();
    assert_eq!(*records.lock().unwrap(), ["TX_LINK"]);
}

#[test]
fn only_regular_files_are_made_without_a_name_and_only_in_directories() {
    let mounted = Mounted::new();
    let (files, operation, root) = (&mounted.files, &mounted.operation, Credentials::root());
    let new = |kind| NewFile {
        kind,
        permissions: 0o600,
        umask: 0,
        device: DeviceNumber::default(),
        target: None,
    };
    let before = mounted.objects();
    let folder = files.create_unnamed(&root, files.root(), &new(FileKind::Directory), operation);
    assert!(matches!(folder, Err(PosixError::NotSupported(_))));
    let file = mounted.make(&root, files.root(), "f", FileKind::Regular, 0o644);
    let file = file.unwrap();
    let within = files.create_unnamed(&root, file.id, &new(FileKind::Regular), operation);
    assert!(matches!(within, Err(PosixError::NotDirectory)));
    assert_eq!(mounted.objects().len(), before.len() + 1);
}
