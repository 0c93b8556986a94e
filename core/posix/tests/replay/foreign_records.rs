//! Records that this `posix` did not make: those of OpenZFS, and those that make no sense.

use super::*;

fn created(create: LoggedCreate) -> LoggedChange {
    LoggedChange::Create(Box::new(create))
}

fn written(write: LoggedWrite) -> LoggedChange {
    LoggedChange::Write(Box::new(write))
}

/// Entries as the system calls have them: id, mask, flags, kind.
fn acl_entries() -> Vec<u8> {
    let mut bytes = Vec::new();
    for (flags, mask) in [(0x1000_u16, 0x3_u32), (0x2040, 0x21), (0x4000, 0x1)] {
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(mask.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(0_u16.to_le_bytes());
    }
    bytes
}

#[test]
fn records_of_other_systems_are_applied() {
    let mounted = Mounted::new();
    let root = mounted.root();
    let look = |id: u64| {
        let id = ObjectId::new(id);
        mounted.files.attributes(id, &mounted.operation).unwrap()
    };
    let list = LoggedAcl {
        entry_count: 3,
        entries: acl_entries(),
        ..LoggedAcl::default()
    };
    let more = LoggedExtended {
        given: vec![0x1 | 0x40 | 0x2_0000, 0, 0],
        bits: 0x40,
        creation_time: [77, 8],
        scan_stamp: [0; 32],
    };
    for (object, acl, extended) in [
        (200, Some(list.clone()), None),
        (201, None, Some(more.clone())),
        (202, Some(list.clone()), Some(more)),
    ] {
        let file = LoggedCreate {
            acl: acl.clone(),
            extended: extended.clone(),
            ..create(root, object, &format!("file-{object}"))
        };
        apply(&mounted, created(file)).unwrap();
        let directory = LoggedCreate {
            kind: CreateKind::Directory,
            mode: 0o040_750,
            acl: acl.clone(),
            extended: extended.clone(),
            ..create(root, object + 10, &format!("directory-{object}"))
        };
        apply(&mounted, created(directory)).unwrap();
        let seen = look(object);
        let permissions = if acl.is_some() { 0o654 } else { 0o640 };
        assert_eq!((seen.uid, seen.gid, seen.generation), (7, 8, 99));
        assert_eq!(seen.permissions, permissions);
        let is_immutable = ZnodeFlags::from_word(seen.flags).has(ZnodeFlags::IMMUTABLE);
        assert_eq!(is_immutable, extended.is_some());
        assert_eq!(
            seen.created.seconds,
            if extended.is_some() { 77 } else { 5 }
        );
    }
    let object = ObjectId::new(200);
    let set = LoggedChange::SetInitialAcl {
        object,
        entry_count: 3,
        entries: acl_entries(),
    };
    apply(&mounted, set).unwrap();
    apply(&mounted, LoggedChange::SetAcl { object, acl: list }).unwrap();
    assert_eq!(look(200).permissions, 0o654);

    apply(&mounted, written(write(200, 0, 6, Some(b"abcdef")))).unwrap();
    let stored_already = LoggedWrite {
        is_stored_already: true,
        ..write(200, 0, 100, None)
    };
    apply(&mounted, written(stored_already)).unwrap();
    assert_eq!(look(200).size, 100);
    let cut = |offset, length| LoggedChange::Truncate {
        object,
        offset,
        length,
    };
    apply(&mounted, cut(2, 2)).unwrap();
    assert_eq!(&mounted.contents(object)[..7], b"ab\0\0ef\0");
    apply(&mounted, cut(90, 60)).unwrap();
    assert_eq!(look(200).size, 150);
    apply(&mounted, cut(4, 0)).unwrap();
    assert_eq!(mounted.contents(object), b"ab\0\0");
    // A hole that says no size is one of the smallest block.
    apply(&mounted, written(write(200, 2, 300, None))).unwrap();
    assert_eq!(mounted.contents(object), [0; 302]);
    let clone = LoggedChange::CloneRange {
        object,
        offset: 0,
        length: 200,
        block_size: 128,
        pointers: vec![BlockPointer::HOLE; 2],
    };
    apply(&mounted, clone).unwrap();
    assert_eq!(mounted.contents(object), vec![0; 302]);

    let whiteout = LoggedWhiteout {
        object_word: 220,
        mode: 0o020_000,
        owner: Fuid::posix(0),
        group: Fuid::posix(0),
        generation: 5,
        creation_time: [1, 2],
        device: 0,
    };
    let renamed = LoggedRename {
        kind: RenameKind::Whiteout(whiteout),
        from_directory: root,
        to_directory: root,
        from: Text::from("file-200"),
        to: Text::from("moved"),
    };
    apply(&mounted, LoggedChange::Rename(Box::new(renamed))).unwrap();
    let left = look(220);
    assert_eq!((left.kind, left.generation), (FileKind::CharacterDevice, 5));
    let names = mounted.names(root);
    assert!(names.contains(&(b"file-200".to_vec(), ObjectId::new(220), left.kind)));
    assert!(names.contains(&(b"moved".to_vec(), object, FileKind::Regular)));
}

/// The first of two writes to a block in one group says all of the block, and the second only that
/// there was one.
#[test]
fn a_record_that_leads_to_a_hole_is_about_all_of_its_block() {
    const BLOCK_BYTES: usize = 8192;
    let mounted = Mounted::new();
    let id = ObjectId::new(200);
    apply(&mounted, created(create(mounted.root(), 200, "file"))).unwrap();
    let ones = [1; BLOCK_BYTES];
    let both = write(200, 0, 2 * 8192, Some(&[ones, ones].concat()));
    apply(&mounted, written(both)).unwrap();
    let led = |offset: u64, length: u64, block_bytes: u64| {
        let mut write = write(200, offset, length, None);
        write
            .pointer
            .set_logical_size(LogicalSize::new(block_bytes));
        written(write)
    };
    apply(&mounted, led(8192 + 1000, 100, 8192)).unwrap();
    let again = LoggedWrite {
        is_stored_already: true,
        ..write(200, 8192, 8192 + 10, None)
    };
    apply(&mounted, written(again)).unwrap();
    let zeros = vec![0; BLOCK_BYTES + 10];
    assert!(mounted.contents(id) == [&ones[..], &zeros[..]].concat());
    // As long as its block, or longer: as far as it goes.
    apply(&mounted, led(512, 1024, 512)).unwrap();
    let start = [&ones[..512], &zeros[..1024], &ones[1536..]].concat();
    assert!(mounted.contents(id) == [&start[..], &zeros[..]].concat());
    // Nothing behind the end of the file is there for the block's sake.
    apply(&mounted, led(3 * 8192 + 1, 1, 8192)).unwrap();
    assert_eq!(mounted.contents(id).len(), 3 * BLOCK_BYTES + 2);
    let too_large = apply(&mounted, led(0, 1, 32 << 20));
    assert!(too_large.is_err(), "{too_large:?}");
}

#[test]
fn records_that_make_no_sense_are_refused_and_change_nothing() {
    let mounted = Mounted::new();
    let root = mounted.root();
    apply(&mounted, created(create(root, 200, "file"))).unwrap();
    let before = tree(&mounted);
    let nonsense = [
        created(create(root, 201, "file")),
        created(create(root, 200, "another")),
        created(create(root, 0, "none")),
        created(create(root, 1, "master")),
        created(create(root, 1 << 48, "far")),
        created(create(ObjectId::new(200), 202, "within a file")),
        created(create(ObjectId::new(4711), 202, "nowhere")),
        created(create(root, 203, "a/b")),
        created(create(root, 203, "..")),
        created(create(root, 203, "")),
        created(LoggedCreate {
            mode: 0,
            ..create(root, 203, "no kind")
        }),
        created(LoggedCreate {
            mode: 0o040_755,
            ..create(root, 203, "another kind")
        }),
        created(LoggedCreate {
            dnode_slots: 200,
            ..create(root, 203, "slots")
        }),
        created(LoggedCreate {
            owner: Fuid::new(1, 2),
            domains: vec![Text::from("S-1")],
            ..create(root, 203, "domains")
        }),
        LoggedChange::Remove {
            directory: root,
            name: Text::from("missing"),
        },
        LoggedChange::RemoveDirectory {
            directory: root,
            name: Text::from("file"),
        },
        LoggedChange::Link {
            directory: root,
            object: root,
            name: Text::from("loop"),
        },
        LoggedChange::Rename(Box::new(LoggedRename {
            kind: RenameKind::Plain,
            from_directory: root,
            to_directory: ObjectId::new(200),
            from: Text::from("file"),
            to: Text::from("x"),
        })),
        written(write(200, u64::MAX, 2, Some(b"xy"))),
        written(write(200, 1 << 63, 2, Some(b"xy"))),
        written(write(root.get(), 0, 2, Some(b"xy"))),
        written(write(200, 0, 1 << 60, None)),
        LoggedChange::Truncate {
            object: root,
            offset: 0,
            length: 0,
        },
        LoggedChange::SetInitialAcl {
            object: ObjectId::new(200),
            entry_count: 1,
            entries: vec![1; 11],
        },
    ];
    for change in nonsense {
        let refused = apply(&mounted, change.clone());
        assert!(refused.is_err(), "{change:?}");
        assert!(refused.unwrap_err().contains(change.type_name()));
    }
    let after = tree(&mounted);
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
    // What only one file needs is passed over when the file is gone.
    apply(&mounted, written(write(4711, 0, 2, Some(b"xy")))).unwrap();
}

/// The record of a log block of OpenZFS, and its bytes.
macro_rules! openzfs {
    ($name:literal) => {
        golden(include_bytes!(concat!(
            "../../../ondisk/tests/golden/intent-log-",
            $name,
            ".bin"
        )))
    };
}

fn golden(used: &[u8]) -> (LogRecord, Vec<u8>) {
    let mut block = used.to_vec();
    block.resize(4096, 0);
    let decoded = LogBlock::decode(&block, LogForm::Zilog2).unwrap();
    let record = decoded.records().next().unwrap().unwrap();
    (record, decoded.records.to_vec())
}

/// What OpenZFS logged for an operation is what we log for the same, byte for byte; numbers of
/// objects, groups and times are those of another pool and are taken over.
#[test]
fn records_are_those_that_openzfs_makes() {
    let recorded = Recorded::new(MountProperties::default());
    let (files, operation) = (&recorded.mounted.files, &recorded.mounted.operation);
    let (root, who) = (recorded.mounted.root(), Credentials::root());
    let make = |name: &str, kind, target: Option<&[u8]>| {
        let new = NewFile {
            kind,
            permissions: match kind {
                FileKind::Regular => 0o644,
                FileKind::Directory => 0o755,
                _ => 0o777,
            },
            umask: 0,
            device: DeviceNumber::default(),
            target,
        };
        let name = name.as_bytes();
        files.create(&who, root, name, &new, operation).unwrap().id
    };
    let expect = |(theirs, bytes): (LogRecord, Vec<u8>)| {
        let ours = recorded.stored(|_| true).pop().unwrap();
        recorded.records.lock().unwrap().clear();
        let change = as_elsewhere(ours.change, &theirs.change);
        let ours = LogRecord { change, ..theirs };
        assert_eq!(ours.encode(), bytes, "{ours:?}");
    };
    let file = make("new-0", FileKind::Regular, None);
    expect(openzfs!("create"));
    let (theirs, _) = openzfs!("write");
    let LoggedChange::Write(write) = theirs.change else {
        panic!("it is a write");
    };
    let at = WriteAt::Offset(write.offset);
    files
        .write(&who, file, at, &write.data.unwrap(), operation)
        .unwrap();
    expect(openzfs!("write"));
    let value = b"val";
    files
        .set_xattr(&who, file, b"user.k", value, XattrMode::Any, operation)
        .unwrap();
    expect(openzfs!("setsaxattr"));
    let emptied = SetAttributes {
        size: Some(0),
        ..SetAttributes::default()
    };
    files
        .set_attributes(&who, file, &emptied, operation)
        .unwrap();
    expect(openzfs!("setattr"));
    files.link(&who, file, root, b"h", operation).unwrap();
    expect(openzfs!("link"));
    make("newdir", FileKind::Directory, None);
    expect(openzfs!("mkdir"));
    make("s", FileKind::SymbolicLink, Some(b"g"));
    expect(openzfs!("symlink"));
    make("rand-20000", FileKind::Regular, None);
    let (from, to) = (b"rand-20000", b"rand-20000.moved");
    files
        .rename(&who, root, from, root, to, RenameMode::Replace, operation)
        .unwrap();
    expect(openzfs!("rename"));
    make("rand-16384", FileKind::Regular, None);
    files.unlink(&who, root, b"rand-16384", operation).unwrap();
    expect(openzfs!("remove"));
    make("d54", FileKind::Directory, None);
    files
        .remove_directory(&who, root, b"d54", operation)
        .unwrap();
    expect(openzfs!("rmdir"));
}

/// The same record with the other's numbers and times.
fn as_elsewhere(ours: LoggedChange, theirs: &LoggedChange) -> LoggedChange {
    match (ours, theirs) {
        (LoggedChange::Create(mut ours), LoggedChange::Create(theirs)) => {
            (ours.directory, ours.object) = (theirs.directory, theirs.object);
            ours.generation = theirs.generation;
            ours.creation_time = theirs.creation_time;
            LoggedChange::Create(ours)
        }
        (LoggedChange::Write(ours), LoggedChange::Write(theirs)) => written(LoggedWrite {
            object: theirs.object,
            ..*ours
        }),
        (LoggedChange::SetAttributes(mut ours), LoggedChange::SetAttributes(theirs)) => {
            /// Linux says so of files that are open.
            const OPEN: u64 = 0x2000;
            ours.object = theirs.object;
            ours.mask |= OPEN;
            ours.modification_time = theirs.modification_time;
            // Linux hands it over whether it is to be set or not.
            ours.access_time = theirs.access_time;
            LoggedChange::SetAttributes(ours)
        }
        (LoggedChange::Rename(mut ours), LoggedChange::Rename(theirs)) => {
            ours.from_directory = theirs.from_directory;
            ours.to_directory = theirs.to_directory;
            LoggedChange::Rename(ours)
        }
        (LoggedChange::SetXattr { name, value, .. }, LoggedChange::SetXattr { object, .. }) => {
            LoggedChange::SetXattr {
                object: *object,
                name,
                value,
            }
        }
        (
            LoggedChange::Link { name, .. },
            LoggedChange::Link {
                directory, object, ..
            },
        ) => LoggedChange::Link {
            directory: *directory,
            object: *object,
            name,
        },
        (LoggedChange::Remove { name, .. }, LoggedChange::Remove { directory, .. }) => {
            LoggedChange::Remove {
                directory: *directory,
                name,
            }
        }
        (
            LoggedChange::RemoveDirectory { name, .. },
            LoggedChange::RemoveDirectory { directory, .. },
        ) => LoggedChange::RemoveDirectory {
            directory: *directory,
            name,
        },
        (ours, theirs) => panic!("{ours:?} is not of the type of {theirs:?}"),
    }
}
