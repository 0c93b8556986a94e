//! `copy_file_range`: by references where that is possible, with the same contents in any case.

mod support;

use support::{Dice, Mounted};
use tarn_ondisk::units::{LogicalSize, ObjectId};
use tarn_posix::WriteAt;
use tarn_posix::properties::MountProperties;
use tarn_posix::types::{Allocate, Credentials, FileKind, SetAttributes};

const RECORD: u64 = 8 << 10;

fn mounted() -> Mounted {
    let properties = MountProperties {
        record_size: LogicalSize::from(RECORD),
        ..MountProperties::default()
    };
    Mounted::with(tarn_posix::NewFileSystem::default(), properties)
}

fn root() -> Credentials {
    Credentials::root()
}

fn file(mounted: &Mounted, name: &str) -> ObjectId {
    let made = mounted.make(&root(), mounted.root(), name, FileKind::Regular, 0o644);
    made.unwrap().id
}

fn write(mounted: &Mounted, id: ObjectId, offset: u64, bytes: &[u8]) {
    let at = WriteAt::Offset(offset);
    let written = (mounted.files).write(&root(), id, at, bytes, &mounted.operation);
    assert_eq!(written.unwrap(), bytes.len());
}

fn copy(mounted: &Mounted, from: (ObjectId, u64), to: (ObjectId, u64), length: u64) -> u64 {
    let copied = (mounted.files).copy_range(&root(), from, to, length, &mounted.operation);
    copied.unwrap()
}

fn truncate(mounted: &Mounted, id: ObjectId, size: u64) {
    let set = SetAttributes {
        size: Some(size),
        ..SetAttributes::default()
    };
    let done = (mounted.files).set_attributes(&root(), id, &set, &mounted.operation);
    done.unwrap();
}

fn punch(mounted: &Mounted, id: ObjectId, offset: u64, length: u64) {
    let (kind, operation) = (Allocate::PunchHole, &mounted.operation);
    let done = (mounted.files).allocate(&root(), id, kind, offset, length, operation);
    done.unwrap();
}

/// Bytes that no compression makes smaller.
fn noise(dice: &mut Dice, length: usize) -> Vec<u8> {
    (0..length)
        .map(|_| u8::try_from(dice.throw(256)).unwrap())
        .collect()
}

#[test]
fn what_is_stored_is_shared() {
    let mounted = mounted();
    let bytes = noise(&mut Dice(1), 100 * 8192 + 777);
    let source = file(&mounted, "source");
    write(&mounted, source, 0, &bytes);
    let before = mounted.allocated_bytes();
    let target = file(&mounted, "target");
    assert_eq!(copy(&mounted, (source, 0), (target, 0), u64::MAX), 819_977);
    assert_eq!(mounted.contents(target), bytes);
    assert_eq!(mounted.further_references(), 101);
    assert!(mounted.allocated_bytes() - before < 100 << 10);
    // A copy of the copy, in the group that made it.
    let third = file(&mounted, "third");
    truncate(&mounted, target, 0);
    assert_eq!(copy(&mounted, (source, 0), (target, 0), u64::MAX), 819_977);
    assert_eq!(copy(&mounted, (target, 0), (third, 0), u64::MAX), 819_977);
    assert_eq!(mounted.further_references(), 202);
    let mounted = mounted.remounted();
    for id in [source, target, third] {
        assert_eq!(mounted.contents(id), bytes);
    }
    let (files, operation) = (&mounted.files, &mounted.operation);
    for name in ["source", "target"] {
        let gone = files.unlink(&root(), mounted.root(), name.as_bytes(), operation);
        gone.unwrap();
    }
    assert_eq!(mounted.contents(third), bytes);
    assert_eq!(mounted.further_references(), 0);
}

#[test]
fn what_is_not_stored_yet_and_parts_of_blocks_are_copied() {
    let mounted = mounted();
    let bytes = noise(&mut Dice(2), 10 * 8192);
    let (source, target) = (file(&mounted, "source"), file(&mounted, "target"));
    write(&mounted, source, 0, &bytes);
    assert_eq!(copy(&mounted, (source, 100), (target, 0), 20_000), 20_000);
    mounted.sync();
    assert_eq!(
        copy(&mounted, (source, 8292), (target, 100), 40_000),
        40_000
    );
    let mut expected = bytes[100..20_100].to_vec();
    expected.truncate(100);
    expected.extend(&bytes[8292..48_292]);
    assert_eq!(mounted.contents(target), expected);
    // Of these the whole blocks are shared.
    assert_eq!(mounted.further_references(), 3);
}

#[test]
fn what_cannot_be_copied_is_refused() {
    let mounted = mounted();
    let source = file(&mounted, "source");
    write(&mounted, source, 0, &[1; 50_000]);
    mounted.sync();
    let (files, operation) = (&mounted.files, &mounted.operation);
    let refused = |from, to, length| {
        let copied = files.copy_range(&root(), (source, from), (source, to), length, operation);
        copied.map_err(|why| why.errno())
    };
    assert_eq!(refused(0, 8192, 8193), Err(22));
    assert_eq!(refused(8192, 0, 8193), Err(22));
    assert_eq!(refused(0, u64::MAX - 10, 5), Err(27));
    assert_eq!(refused(50_000, 0, 10), Ok(0));
    assert_eq!(refused(0, 49_152, 8192), Ok(8192));
    let directory = mounted.root();
    let into = files.copy_range(&root(), (source, 0), (directory, 0), 10, operation);
    assert_eq!(into.unwrap_err().errno(), 21);
}

/// Whatever is done to files whose blocks are shared, each has its own contents, and no block is
/// lost or freed twice.
#[test]
fn files_that_share_blocks_are_files_of_their_own() {
    for seed in 1..=6 {
        let mut mounted = mounted();
        let empty = mounted.allocated_bytes();
        let mut dice = Dice(seed * 7919);
        let names = ["a", "b", "c"];
        let ids = names.map(|name| file(&mounted, name));
        let mut model: [Vec<u8>; 3] = Default::default();
        let mut shared = 0;
        for _ in 0..400 {
            let which = usize::try_from(dice.throw(3)).unwrap();
            let (id, size) = (ids[which], model[which].len());
            let offset = place(&mut dice);
            match dice.throw(12) {
                0..=3 => {
                    let length = usize::try_from(dice.throw(30_000) + 1).unwrap();
                    let bytes = noise(&mut dice, length);
                    write(&mounted, id, offset, &bytes);
                    put(&mut model[which], offset, &bytes);
                }
                4..=8 => {
                    let from = usize::try_from(dice.throw(3)).unwrap();
                    let (at, length) = (place(&mut dice), dice.throw(12) * RECORD / 2);
                    let length = length.min(widen(model[from].len()).saturating_sub(at));
                    if from == which && at < offset + length && offset < at + length {
                        continue;
                    }
                    let copied = copy(&mounted, (ids[from], at), (id, offset), length);
                    assert_eq!(copied, length);
                    if length > 0 {
                        let range = narrow(at)..narrow(at + length);
                        let bytes = model[from][range].to_vec();
                        put(&mut model[which], offset, &bytes);
                    }
                }
                9 => {
                    let new = dice.throw(widen(size) + 20_000);
                    truncate(&mounted, id, new);
                    model[which].resize(narrow(new), 0);
                }
                10 => {
                    let length = dice.throw(30_000) + 1;
                    punch(&mounted, id, offset, length);
                    let end = narrow(offset + length).min(size);
                    let start = narrow(offset).min(end);
                    model[which][start..end].fill(0);
                }
                _ if dice.throw(4) == 0 => mounted = mounted.remounted(),
                _ => shared += mounted.further_references(),
            }
            assert_eq!(mounted.contents(id), model[which], "seed {seed}");
        }
        assert!(shared > 10, "seed {seed}: {shared} shared");
        for (id, expected) in ids.iter().zip(&model) {
            assert_eq!(&mounted.contents(*id), expected, "seed {seed}");
        }
        let (files, operation) = (&mounted.files, &mounted.operation);
        for name in names {
            let gone = files.unlink(&root(), mounted.root(), name.as_bytes(), operation);
            gone.unwrap();
        }
        assert_eq!(mounted.further_references(), 0, "seed {seed}");
        let left = mounted.allocated_bytes();
        assert!(left <= empty + (64 << 10), "seed {seed}: {left} of {empty}");
    }
}

/// Where blocks begin, for the most part.
fn place(dice: &mut Dice) -> u64 {
    match dice.throw(4) {
        0 => dice.throw(100_000),
        _ => dice.throw(12) * RECORD,
    }
}

fn put(file: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (start, end) = (narrow(offset), narrow(offset) + bytes.len());
    if file.len() < end {
        file.resize(end, 0);
    }
    file[start..end].copy_from_slice(bytes);
}

fn narrow(number: u64) -> usize {
    usize::try_from(number).unwrap()
}

fn widen(number: usize) -> u64 {
    u64::try_from(number).unwrap()
}
