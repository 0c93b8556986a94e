//! Files while they are open, when they are not stored, and with many threads at once.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use support::files::{file, root, write};
use support::{Dice, Mounted};
use tarn_object::Caching;
use tarn_ondisk::units::{LogicalSize, ObjectId};
use tarn_posix::properties::{AccessTimes, MountProperties};
use tarn_posix::types::{
    Allocate, FileKind, Noting, RenameMode, Seek, SetAttributes, SetTime, Timestamp, XattrMode,
};
use tarn_posix::{CaseSensitivity, FileSystem, NewFileSystem, PosixError, WriteAt};
use tarn_probe::Operation;

#[test]
fn an_open_file_outlives_its_name_until_it_is_closed() {
    let mounted = Mounted::new();
    let (files, operation) = (&mounted.files, &mounted.operation);
    file(&mounted, "first");
    let before = mounted.objects();
    let id = file(&mounted, "f");
    write(&mounted, id, 0, b"still here");
    files.opened(id, operation).unwrap();
    files
        .unlink(&root(), mounted.root(), b"f", operation)
        .unwrap();
    assert_eq!(files.attributes(id, operation).unwrap().links, 0);
    assert_eq!(mounted.contents(id), b"still here");
    write(&mounted, id, 10, b"!");
    let linked = files.link(&root(), id, mounted.root(), b"back", operation);
    assert_eq!(linked.unwrap_err().errno(), 2);
    files.closed(id, operation).unwrap();
    assert!(files.attributes(id, operation).is_err());
    assert_eq!(mounted.objects(), before);
}

/// It takes as many steps as there is data; as many as there are blocks would not end.
#[test]
fn what_lies_far_apart_is_freed_soon() {
    let mounted = Mounted::new();
    let (files, operation) = (&mounted.files, &mounted.operation);
    file(&mounted, "first");
    mounted.sync();
    let before = (mounted.objects(), mounted.block_count());
    let far = 1_u64 << 62;
    let fill = |id| {
        for offset in [0, 1 << 30, 1 << 40, 1 << 59, far] {
            write(&mounted, id, offset, b"contents");
            mounted.sync();
        }
    };
    let data = |id, from| files.seek(id, from, Seek::Data, operation).ok();
    let id = file(&mounted, "f");
    fill(id);
    assert_eq!(data(id, 1), Some(1));
    let all_but_ends = far - (1 << 20);
    files
        .allocate(
            &root(),
            id,
            Allocate::PunchHole,
            1 << 20,
            all_but_ends,
            operation,
        )
        .unwrap();
    mounted.sync();
    assert_eq!(data(id, 1 << 20), Some(far));
    fill(id);
    let size = SetAttributes {
        size: Some(1 << 35),
        ..SetAttributes::default()
    };
    files.set_attributes(&root(), id, &size, operation).unwrap();
    mounted.sync();
    assert_eq!(data(id, 1 << 20), Some(1 << 30));
    assert_eq!(data(id, 1 << 31), None);
    fill(id);
    files
        .unlink(&root(), mounted.root(), b"f", operation)
        .unwrap();
    mounted.sync();
    assert_eq!((mounted.objects(), mounted.block_count()), before);
}

#[test]
fn files_that_nobody_uses_leave_memory_and_come_back() {
    let mounted = Mounted::new();
    let name = |number: u64| format!("f{number}");
    let ids: Vec<ObjectId> = (0..200)
        .map(|number| file(&mounted, &name(number)))
        .collect();
    for id in &ids {
        write(&mounted, *id, 0, &id.get().to_le_bytes());
    }
    mounted.files.opened(ids[7], &mounted.operation).unwrap();
    assert!(mounted.files.files_in_memory() > 200);
    // The first turn marks the files that were used since.
    mounted.files.let_idle_go();
    assert!(mounted.files.files_in_memory() > 200);
    mounted.files.let_idle_go();
    assert!((1..4).contains(&mounted.files.files_in_memory()));
    for id in &ids {
        assert_eq!(mounted.contents(*id), id.get().to_le_bytes());
    }
    mounted.files.closed(ids[7], &mounted.operation).unwrap();
    let mounted = mounted.remounted();
    assert!(mounted.files.files_in_memory() < 4);
    for id in &ids {
        assert_eq!(mounted.contents(*id), id.get().to_le_bytes());
    }
}

#[test]
fn what_was_open_without_a_name_when_all_ended_is_freed_at_the_next_mount() {
    let mut mounted = Mounted::new();
    file(&mounted, "first");
    let before = mounted.objects();
    let id = file(&mounted, "f");
    write(&mounted, id, 1 << 20, b"far");
    let directory = mounted
        .make(&root(), mounted.root(), "d", FileKind::Directory, 0o755)
        .unwrap();
    let (files, operation) = (&mounted.files, &mounted.operation);
    for id in [id, directory.id] {
        files
            .set_xattr(
                &root(),
                id,
                b"user.a",
                &[1; 40_000],
                XattrMode::Any,
                operation,
            )
            .unwrap();
        files.opened(id, operation).unwrap();
    }
    files
        .unlink(&root(), mounted.root(), b"f", operation)
        .unwrap();
    files
        .remove_directory(&root(), mounted.root(), b"d", operation)
        .unwrap();
    // A directory without a name takes no entries.
    let made = mounted.make(&root(), directory.id, "x", FileKind::Regular, 0o644);
    assert_eq!(made.unwrap_err().errno(), 2);
    mounted.sync();
    let mounted = mounted.crashed();
    assert!(mounted.files.attributes(id, &mounted.operation).is_err());
    assert_eq!(mounted.objects(), before);
}

/// Its attributes are too large for its dnode, and what does not fit cannot be read any more; but
/// all of it is known.
#[test]
fn names_and_attributes_change_together_though_what_was_stored_of_the_file_cannot_be_read() {
    let mounted = Mounted::new();
    let (files, operation) = (&mounted.files, &mounted.operation);
    let id = file(&mounted, "first");
    let (root, mut dice) = (mounted.root(), Dice(7));
    let noise: Vec<u8> = (0..1500)
        .map(|_| u8::try_from(dice.throw(256)).unwrap())
        .collect();
    files
        .set_xattr(
            &self::root(),
            id,
            b"user.noise",
            &noise,
            XattrMode::Any,
            operation,
        )
        .unwrap();
    files.opened(id, operation).unwrap();
    type Change = fn(&FileSystem, ObjectId, ObjectId, &Operation) -> Result<(), PosixError>;
    let changes: [(Change, &[&str], u64); 4] = [
        (
            |files, root, id, operation| {
                let linked = files.link(&self::root(), id, root, b"second", operation);
                linked.map(|_| ())
            },
            &["first", "second"],
            2,
        ),
        (
            |files, root, _, operation| {
                let mode = RenameMode::Replace;
                files.rename(
                    &self::root(),
                    root,
                    b"first",
                    root,
                    b"third",
                    mode,
                    operation,
                )
            },
            &["second", "third"],
            2,
        ),
        (
            |files, root, _, operation| files.unlink(&self::root(), root, b"third", operation),
            &["second"],
            1,
        ),
        (
            |files, root, _, operation| files.unlink(&self::root(), root, b"second", operation),
            &[],
            0,
        ),
    ];
    for (change, names, links) in changes {
        mounted.sync();
        assert!(mounted.damage(&noise[700..764]) > 0);
        change(files, root, id, operation).unwrap();
        let found = mounted.names(root).into_iter().map(|(name, ..)| name);
        assert!(found.eq(names.iter().map(|name| name.as_bytes().to_vec())));
        assert_eq!(files.attributes(id, operation).unwrap().links, links);
        mounted.sync();
        let found = files.get_xattr(&self::root(), id, b"user.noise", operation);
        assert_eq!(found.unwrap(), noise);
    }
    files.closed(id, operation).unwrap();
}

#[test]
fn what_was_synced_survives_and_the_rest_goes_whole() {
    let mut mounted = Mounted::new();
    let (a, b) = (file(&mounted, "a"), file(&mounted, "b"));
    write(&mounted, a, 0, &[7; 300_000]);
    mounted.files.sync(a, true, &mounted.operation).unwrap();
    write(&mounted, b, 0, &[8; 300_000]);
    let mounted = mounted.crashed();
    assert_eq!(mounted.contents(a), [7; 300_000]);
    // The name was there in the group that was stored.
    let found = mounted.contents(b);
    assert!(found.is_empty() || found == [8; 300_000]);
}

#[test]
fn blocks_grow_to_the_record_size_and_stay() {
    let mounted = Mounted::with(
        NewFileSystem::default(),
        MountProperties {
            record_size: LogicalSize::from(16 << 10),
            ..MountProperties::default()
        },
    );
    let block_size = |id| {
        mounted
            .files
            .attributes(id, &mounted.operation)
            .unwrap()
            .block_size
    };
    let id = file(&mounted, "f");
    write(&mounted, id, 0, &[1; 700]);
    assert_eq!(block_size(id), 1024);
    write(&mounted, id, 700, &[2; 4000]);
    assert_eq!(block_size(id), 5120);
    write(&mounted, id, 40_000, &[3; 1]);
    assert_eq!(block_size(id), 16 << 10);
    let mut expected = [vec![1; 700], vec![2; 4000]].concat();
    expected.resize(40_000, 0);
    expected.push(3);
    assert!(mounted.contents(id) == expected);
    let seek = |from, what| mounted.files.seek(id, from, what, &mounted.operation);
    assert_eq!(seek(0, Seek::Hole).unwrap(), 16 << 10);
    assert_eq!(seek(16 << 10, Seek::Data).unwrap(), 32 << 10);
    assert_eq!(seek(33 << 10, Seek::Hole).unwrap(), 40_001);
    assert_eq!(seek(50_000, Seek::Data).unwrap_err().errno(), 6);
    let larger = MountProperties {
        record_size: LogicalSize::from(1 << 20),
        ..*mounted.files.properties()
    };
    mounted.files.set_properties(larger);
    write(&mounted, id, 100_000, &[4; 1]);
    assert_eq!(
        block_size(id),
        16 << 10,
        "a file with several blocks keeps their size"
    );
    let large = file(&mounted, "large");
    write(&mounted, large, 0, &vec![5; 3 << 20]);
    assert_eq!(block_size(large), 1 << 20);
}

#[test]
fn a_punched_hole_gives_its_blocks_back() {
    let mounted = Mounted::new();
    let id = file(&mounted, "f");
    let bytes: Vec<u8> = (0..4 << 20)
        .map(|at: u32| at.to_le_bytes()[1] ^ 0x55)
        .collect();
    write(&mounted, id, 0, &bytes);
    let full = mounted.block_count();
    let punch = |offset, length| {
        let (files, operation) = (&mounted.files, &mounted.operation);
        files
            .allocate(&root(), id, Allocate::PunchHole, offset, length, operation)
            .unwrap();
    };
    punch(100, (4 << 20) - 200);
    assert!(mounted.block_count() + 25 < full);
    let mut expected = bytes;
    let end = expected.len() - 100;
    expected[100..end].fill(0);
    assert!(mounted.contents(id) == expected);
}

#[test]
fn reading_changes_access_times_as_the_dataset_says() {
    let properties = |access_times| MountProperties {
        access_times,
        ..MountProperties::default()
    };
    let mounted = Mounted::with(NewFileSystem::default(), properties(AccessTimes::Never));
    let id = file(&mounted, "f");
    write(&mounted, id, 0, b"x");
    let long_ago = Timestamp {
        seconds: 1000,
        nanoseconds: 0,
    };
    let age = || {
        let old = SetAttributes {
            accessed: Some(SetTime::To(long_ago)),
            ..SetAttributes::default()
        };
        mounted
            .files
            .set_attributes(&root(), id, &old, &mounted.operation)
            .unwrap();
    };
    let accessed = || {
        mounted
            .files
            .attributes(id, &mounted.operation)
            .unwrap()
            .accessed
    };
    let is_due = || {
        let due = mounted.files.would_note_access(id, &mounted.operation);
        due.unwrap()
    };
    age();
    assert!(!is_due());
    mounted.contents(id);
    assert_eq!(accessed(), long_ago);
    mounted
        .files
        .set_properties(properties(AccessTimes::Relative));
    assert!(is_due());
    mounted.contents(id);
    assert!(!is_due());
    let first = accessed();
    assert!(first > long_ago, "it was older than the last change");
    mounted.contents(id);
    assert_eq!(accessed(), first);
    mounted
        .files
        .set_properties(properties(AccessTimes::Always));
    mounted.contents(id);
    let second = accessed();
    assert!(second > first);
    // Through a file opened with O_NOATIME nothing is noted.
    let (files, operation) = (&mounted.files, &mounted.operation);
    let (caching, noting) = (Caching::Callers, Noting::Nothing);
    files
        .read_caching(&root(), id, 0, 1, caching, noting, operation)
        .unwrap();
    assert_eq!(accessed(), second);
    let directory = mounted.root();
    let time = || files.attributes(directory, operation).unwrap().accessed;
    let before = time();
    let mut take = |_| true;
    files
        .read_directory_noting(&root(), directory, 0, &mut take, noting, operation)
        .unwrap();
    assert_eq!(time(), before);
    files
        .read_directory(&root(), directory, 0, &mut take, operation)
        .unwrap();
    assert!(time() > before);
    let mounted = mounted.remounted();
    assert_eq!(
        mounted
            .files
            .attributes(id, &mounted.operation)
            .unwrap()
            .accessed,
        second
    );
}

#[test]
fn names_that_differ_in_case_are_one_where_the_dataset_says_so() {
    let new = NewFileSystem {
        case: CaseSensitivity::Insensitive,
        ..NewFileSystem::default()
    };
    let mounted = Mounted::with(new, MountProperties::default());
    let (files, operation, top) = (&mounted.files, &mounted.operation, mounted.root());
    let id = file(&mounted, "Name");
    assert_eq!(
        files.lookup(&root(), top, b"nAME", operation).unwrap().id,
        id
    );
    let made = mounted.make(&root(), top, "NAME", FileKind::Regular, 0o644);
    assert_eq!(made.unwrap_err().errno(), 17);
    let rename = |from: &[u8], to: &[u8]| {
        files
            .rename(&root(), top, from, top, to, RenameMode::Replace, operation)
            .unwrap();
        mounted
            .names(top)
            .into_iter()
            .map(|(name, ..)| name)
            .collect::<Vec<_>>()
    };
    assert_eq!(rename(b"name", b"NAME"), [b"NAME"]);
    assert_eq!(files.attributes(top, operation).unwrap().size, 3);
    assert_eq!(rename(b"name", b"other"), [b"other"]);
    files.unlink(&root(), top, b"OTHER", operation).unwrap();
}

/// Mixed names are hashed without regard to case, for Windows, and are each a name of its own for
/// us.
#[test]
fn names_that_differ_in_case_are_two_where_a_dataset_is_mixed() {
    let new = NewFileSystem {
        case: CaseSensitivity::Mixed,
        ..NewFileSystem::default()
    };
    let mounted = Mounted::with(new, MountProperties::default());
    let (files, operation, top) = (&mounted.files, &mounted.operation, mounted.root());
    let (small, large) = (file(&mounted, "name"), file(&mounted, "NAME"));
    let find = |name: &[u8]| {
        let found = files.lookup(&root(), top, name, operation);
        found.map(|found| found.id)
    };
    assert_eq!(find(b"name").unwrap(), small);
    assert_eq!(find(b"NAME").unwrap(), large);
    assert_eq!(find(b"Name").unwrap_err().errno(), 2);
    let again = mounted.make(&root(), top, "NAME", FileKind::Regular, 0o644);
    assert_eq!(again.unwrap_err().errno(), 17);
    let mode = RenameMode::Replace;
    files
        .rename(&root(), top, b"name", top, b"Name", mode, operation)
        .unwrap();
    assert_eq!(find(b"Name").unwrap(), small);
    assert_eq!(find(b"NAME").unwrap(), large);
    assert_eq!(files.attributes(top, operation).unwrap().size, 4);
    files.unlink(&root(), top, b"NAME", operation).unwrap();
    assert_eq!(find(b"Name").unwrap(), small);
    assert_eq!(find(b"NAME").unwrap_err().errno(), 2);
}

/// Checks that every directory counts what it has, and gives back all files with how many names
/// they have.
fn check_tree(mounted: &Mounted, directory: ObjectId, found: &mut Vec<(ObjectId, u64)>) {
    let mut subdirectories = 0;
    let names = mounted.names(directory);
    for (_, id, kind) in &names {
        if *kind == FileKind::Directory {
            subdirectories += 1;
            let up = mounted
                .files
                .lookup(&root(), *id, b"..", &mounted.operation)
                .unwrap();
            assert_eq!(up.id, directory);
            check_tree(mounted, *id, found);
        } else {
            match found.iter_mut().find(|(other, _)| other == id) {
                Some((_, links)) => *links += 1,
                None => found.push((*id, 1)),
            }
        }
    }
    let attributes = mounted
        .files
        .attributes(directory, &mounted.operation)
        .unwrap();
    assert_eq!(attributes.links, 2 + subdirectories);
    assert_eq!(attributes.size, 2 + u64::try_from(names.len()).unwrap());
}

#[test]
fn many_threads_on_few_names_leave_a_whole_tree() {
    let mounted = Mounted::new();
    let before = mounted.objects().len();
    let steps = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..40 {
                mounted.sync();
            }
        });
        for thread in 0..6_u64 {
            let (mounted, steps) = (&mounted, &steps);
            scope.spawn(move || {
                let mut dice = Dice(thread * 7919 + 13);
                for _ in 0..700 {
                    disturb(mounted, &mut dice);
                    steps.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(steps.into_inner(), 4200);
    let mounted = mounted.remounted();
    let mut found = Vec::new();
    check_tree(&mounted, mounted.root(), &mut found);
    let mut directories = 0;
    for (id, links) in &found {
        let attributes = mounted.files.attributes(*id, &mounted.operation).unwrap();
        assert_eq!(attributes.links, *links, "links of {id}");
        // Each write fills the file with one byte from the start; a reader never sees a part of
        // one.
        let contents = mounted.contents(*id);
        assert!(contents.iter().all(|byte| *byte == contents[0]));
    }
    let mut stack = vec![mounted.root()];
    while let Some(directory) = stack.pop() {
        directories += 1;
        let names = mounted.names(directory);
        stack.extend(
            names
                .iter()
                .filter(|name| name.2 == FileKind::Directory)
                .map(|name| name.1),
        );
    }
    // Everything that is stored is part of the tree, but for the table of layouts.
    assert!(
        mounted.objects().len() <= before + found.len() + directories,
        "nothing is lost"
    );
}

/// Does something to names that others do something to at the same time. Whether it can be done is
/// not known.
fn disturb(mounted: &Mounted, dice: &mut Dice) {
    let (files, operation) = (&mounted.files, &mounted.operation);
    let directory = |dice: &mut Dice| {
        let mut at = mounted.root();
        for _ in 0..dice.throw(3) {
            let name = format!("d{}", dice.throw(2));
            if let Ok(found) = files.lookup(&root(), at, name.as_bytes(), operation) {
                at = found.id;
            }
        }
        at
    };
    if dice.throw(16) == 0 {
        files.let_idle_go();
    }
    let (parent, other) = (directory(dice), directory(dice));
    let name = |dice: &mut Dice| {
        format!(
            "{}{}",
            ["d", "f"][usize::from(dice.throw(2) == 0)],
            dice.throw(2)
        )
    };
    let (from, to) = (name(dice), name(dice));
    let outcome = match dice.throw(8) {
        0 | 1 if from.starts_with('d') => mounted
            .make(&root(), parent, &from, FileKind::Directory, 0o755)
            .map(|_| ()),
        0 | 1 => mounted
            .make(&root(), parent, &from, FileKind::Regular, 0o644)
            .map(|_| ()),
        2 => {
            let mode = [RenameMode::Replace, RenameMode::Exchange][usize::from(dice.throw(3) == 0)];
            let (from, to) = (from.as_bytes(), to.as_bytes());
            // Names say what files are, so that the walk below finds directories.
            if from[0] != to[0] {
                return;
            }
            files.rename(&root(), parent, from, other, to, mode, operation)
        }
        3 => files.unlink(&root(), parent, from.as_bytes(), operation),
        4 => files.remove_directory(&root(), parent, from.as_bytes(), operation),
        5 => files
            .lookup(&root(), parent, b"f0", operation)
            .and_then(|found| files.link(&root(), found.id, other, b"f1", operation))
            .map(|_| ()),
        _ => files
            .lookup(&root(), parent, b"f0", operation)
            .and_then(|found| {
                if found.kind != FileKind::Regular {
                    return Ok(());
                }
                let length = 3000;
                let bytes = vec![u8::try_from(dice.throw(256)).unwrap(); length];
                files.opened(found.id, operation)?;
                let outcome = files.write(&root(), found.id, WriteAt::Offset(0), &bytes, operation);
                let read = files.read(&root(), found.id, 0, 4000, operation)?.to_vec();
                assert!(
                    read.iter().all(|byte| *byte == read[0]),
                    "no reader sees half a write"
                );
                files.closed(found.id, operation)?;
                outcome.map(|_| ())
            }),
    };
    if let Err(error) = outcome {
        assert!(!error.is_failure(), "{error}");
    }
}

/// Overlays remove a file of a lower layer so: it moves away, and a character device 0:0 is under
/// its name.
#[test]
fn a_rename_can_leave_a_device_that_stands_for_nothing() {
    let mounted = Mounted::new();
    let (files, operation, top) = (&mounted.files, &mounted.operation, mounted.root());
    let make = |name: &str, kind| mounted.make(&root(), top, name, kind, 0o777).unwrap().id;
    let (file, folder) = (make("f", FileKind::Regular), make("d", FileKind::Directory));
    let rename = |from: &[u8], to: &[u8], mode| {
        files.rename(&root(), top, from, folder, to, mode, operation)
    };
    let links = || {
        let attributes = files.attributes(top, operation).unwrap();
        (attributes.links, attributes.size)
    };
    let before = links();
    rename(b"f", b"g", RenameMode::Whiteout).unwrap();
    assert_eq!(links(), before);
    let left = files.lookup(&root(), top, b"f", operation).unwrap();
    assert_eq!(
        (left.kind, left.permissions),
        (FileKind::CharacterDevice, 0)
    );
    assert_eq!(
        (left.device.major, left.device.minor, left.links),
        (0, 0, 1)
    );
    assert_eq!(
        files.lookup(&root(), folder, b"g", operation).unwrap().id,
        file
    );
    // It is a file, and moves as such.
    let refused = rename(b"f", b"g", RenameMode::WhiteoutNoReplace);
    assert!(matches!(refused, Err(PosixError::Exists)));
    assert_eq!(
        files.lookup(&root(), top, b"f", operation).unwrap().id,
        left.id
    );
    rename(b"f", b"h", RenameMode::WhiteoutNoReplace).unwrap();
    assert_eq!(
        files.lookup(&root(), folder, b"h", operation).unwrap().id,
        left.id
    );
    assert_ne!(
        files.lookup(&root(), top, b"f", operation).unwrap().id,
        left.id
    );
    rename(b"f", b"g", RenameMode::Whiteout).unwrap();
    assert!(
        files.attributes(file, operation).is_err(),
        "it was replaced"
    );
    let missing = rename(b"nothing", b"i", RenameMode::Whiteout);
    assert!(matches!(missing, Err(PosixError::NotFound)));
}

/// A device that is left for one spelling of a name would have the other, too.
#[test]
fn nothing_is_left_under_the_other_spelling_of_a_name() {
    let new = NewFileSystem {
        case: CaseSensitivity::Insensitive,
        ..NewFileSystem::default()
    };
    let mounted = Mounted::with(new, MountProperties::default());
    let (files, operation, top) = (&mounted.files, &mounted.operation, mounted.root());
    let made = mounted.make(&root(), top, "name", FileKind::Regular, 0o644);
    let id = made.unwrap().id;
    let refused = files.rename(
        &root(),
        top,
        b"name",
        top,
        b"NAME",
        RenameMode::Whiteout,
        operation,
    );
    assert!(matches!(refused, Err(PosixError::Invalid(_))));
    assert_eq!(
        mounted.names(top).last().unwrap(),
        &(b"name".to_vec(), id, FileKind::Regular)
    );
}

/// Names that differ by case only have one hash where case can be ignored, so a table holds so many
/// of them and no more.
#[test]
fn a_directory_that_takes_no_more_names_of_one_hash_has_no_space_for_them() {
    let new = NewFileSystem {
        case: CaseSensitivity::Mixed,
        ..NewFileSystem::default()
    };
    let mounted = Mounted::with(new, MountProperties::default());
    let top = mounted.root();
    let spelled = |number: u32| -> String {
        let letters = "abcdefghij".chars().enumerate();
        let spell = |(place, letter): (usize, char)| match number >> place & 1 {
            0 => letter,
            _ => letter.to_ascii_uppercase(),
        };
        letters.map(spell).collect()
    };
    let refused = (0..1024).find_map(|number| {
        let made = mounted.make(&root(), top, &spelled(number), FileKind::Regular, 0o644);
        made.err().map(|error| (number, error))
    });
    let (count, error) = refused.expect("no table holds so many");
    assert!(matches!(error, PosixError::NoSpace), "{error}");
    assert!(count > 100, "{count}");
    mounted
        .make(&root(), top, "another", FileKind::Regular, 0o644)
        .unwrap();
    assert_eq!(
        mounted.remounted().names(top).len(),
        usize::try_from(count).unwrap() + 1
    );
}
