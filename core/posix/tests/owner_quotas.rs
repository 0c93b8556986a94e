//! Quotas of users, groups and projects: what counts for which owner, and what is refused.

mod support;

use support::files::{file, root, write};
use support::{Mounted, someone};
use tarn_ondisk::units::ObjectId;
use tarn_posix::properties::MountProperties;
use tarn_posix::types::{FileKind, RenameMode, SetAttributes, XattrMode};
use tarn_posix::{NewFileSystem, QuotaKind, WriteAt};

#[test]
fn a_user_quota_that_is_used_up_allows_no_more() {
    let mounted = Mounted::new();
    let (files, operation) = (&mounted.files, &mounted.operation);
    let (one, open) = (
        someone(1),
        SetAttributes {
            permissions: Some(0o777),
            ..SetAttributes::default()
        },
    );
    files
        .set_attributes(&root(), mounted.root(), &open, operation)
        .unwrap();
    let id = mounted
        .make(&one, mounted.root(), "f", FileKind::Regular, 0o644)
        .unwrap()
        .id;
    let bytes: Vec<u8> = (0..200_000_u32)
        .flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    let write = || files.write(&one, id, WriteAt::End, &bytes, operation);
    write().unwrap();
    mounted.sync();
    let used = files
        .quotas()
        .used_by(QuotaKind::User, 1, operation)
        .unwrap();
    assert!(used >= 400_000, "{used}");
    assert_eq!(
        files
            .quotas()
            .used_by(QuotaKind::UserObjects, 1, operation)
            .unwrap(),
        1
    );
    files
        .set_quota(QuotaKind::User, 1, 100_000, operation)
        .unwrap();
    assert_eq!(
        files.quotas().all(QuotaKind::User, operation).unwrap(),
        [(1, 100_000)]
    );
    assert_eq!(write().unwrap_err().errno(), 122);
    let made = mounted.make(&one, mounted.root(), "g", FileKind::Regular, 0o644);
    assert_eq!(made.unwrap_err().errno(), 122);
    mounted
        .make(&someone(2), mounted.root(), "h", FileKind::Regular, 0o644)
        .unwrap();
    // The files go to another user, and are counted there.
    let given = SetAttributes {
        uid: Some(3),
        ..SetAttributes::default()
    };
    files
        .set_attributes(&root(), id, &given, operation)
        .unwrap();
    mounted.sync();
    assert_eq!(
        files
            .quotas()
            .used_by(QuotaKind::User, 1, operation)
            .unwrap(),
        0
    );
    assert!(
        files
            .quotas()
            .used_by(QuotaKind::User, 3, operation)
            .unwrap()
            >= used
    );
    let mounted = mounted.remounted();
    let (files, operation) = (&mounted.files, &mounted.operation);
    assert_eq!(
        files.quotas().all(QuotaKind::User, operation).unwrap(),
        [(1, 100_000)]
    );
    files.set_quota(QuotaKind::User, 1, 0, operation).unwrap();
    assert_eq!(files.quotas().all(QuotaKind::User, operation).unwrap(), []);
}

#[test]
fn a_project_is_counted_and_inherited_and_keeps_others_out() {
    let mounted = Mounted::new();
    let (files, operation) = (&mounted.files, &mounted.operation);
    let directory = mounted
        .make(&root(), mounted.root(), "d", FileKind::Directory, 0o755)
        .unwrap();
    let outside = file(&mounted, "outside");
    write(&mounted, outside, 0, &[1; 500_000]);
    let inherit_project = 0x4000_0000_0000;
    let changes = SetAttributes {
        project: Some(42),
        flags: Some(directory.flags | inherit_project),
        ..SetAttributes::default()
    };
    files
        .set_attributes(&root(), directory.id, &changes, operation)
        .unwrap();
    let inside = mounted
        .make(&root(), directory.id, "f", FileKind::Regular, 0o644)
        .unwrap();
    assert_eq!(inside.project, 42);
    let rename = || {
        let (top, mode) = (mounted.root(), RenameMode::Replace);
        files.rename(
            &root(),
            top,
            b"outside",
            directory.id,
            b"g",
            mode,
            operation,
        )
    };
    assert_eq!(rename().unwrap_err().errno(), 18);
    let changes = SetAttributes {
        project: Some(42),
        ..SetAttributes::default()
    };
    files
        .set_attributes(&root(), outside, &changes, operation)
        .unwrap();
    rename().unwrap();
    mounted.sync();
    assert_eq!(
        files
            .quotas()
            .used_by(QuotaKind::ProjectObjects, 42, operation)
            .unwrap(),
        3
    );
    files
        .set_quota(QuotaKind::ProjectObjects, 42, 3, operation)
        .unwrap();
    let made = mounted.make(&root(), directory.id, "h", FileKind::Regular, 0o644);
    assert_eq!(made.unwrap_err().errno(), 122);
}

/// A file of this user with so many bytes that no compression makes fewer.
fn file_of(mounted: &Mounted, user: u32, name: &str, bytes: usize) -> ObjectId {
    let made = mounted.make(&root(), mounted.root(), name, FileKind::Regular, 0o644);
    let id = made.unwrap().id;
    let noise = (0_u32..).flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes());
    write(mounted, id, 0, &noise.take(bytes).collect::<Vec<u8>>());
    let given = SetAttributes {
        uid: Some(user),
        ..SetAttributes::default()
    };
    let files = &mounted.files;
    files
        .set_attributes(&root(), id, &given, &mounted.operation)
        .unwrap();
    id
}

#[test]
fn a_user_without_an_own_quota_has_the_default() {
    let mounted = Mounted::new();
    let (files, operation) = (&mounted.files, &mounted.operation);
    let one = file_of(&mounted, 1, "one", 300_000);
    let two = file_of(&mounted, 2, "two", 300_000);
    mounted.sync();
    files
        .set_default_quota(QuotaKind::User, 200_000, operation)
        .unwrap();
    files
        .set_quota(QuotaKind::User, 2, 1 << 30, operation)
        .unwrap();
    let append = |files: &tarn_posix::FileSystem, user, id| {
        let operation = tarn_probe::Operation::unmeasured();
        files.write(&someone(user), id, WriteAt::End, b"more", &operation)
    };
    assert_eq!(append(files, 1, one).unwrap_err().errno(), 122);
    append(files, 2, two).unwrap();
    let mounted = mounted.remounted();
    let (files, operation) = (&mounted.files, &mounted.operation);
    assert_eq!(files.quotas().default_of(QuotaKind::User), 200_000);
    assert_eq!(
        files.quotas().of(QuotaKind::User, 1, operation).unwrap(),
        None
    );
    assert_eq!(append(files, 1, one).unwrap_err().errno(), 122);
    append(files, 2, two).unwrap();
    // A file that grows without contents takes no space.
    let longer = SetAttributes {
        size: Some(1 << 20),
        ..SetAttributes::default()
    };
    files
        .set_attributes(&someone(1), one, &longer, operation)
        .unwrap();
    files
        .set_default_quota(QuotaKind::User, 0, operation)
        .unwrap();
    append(files, 1, one).unwrap();
    assert_eq!(
        mounted
            .remounted()
            .files
            .quotas()
            .default_of(QuotaKind::User),
        0
    );
}

#[test]
fn a_file_is_not_given_to_a_user_whose_quota_is_used_up() {
    let mounted = Mounted::new();
    let (files, operation) = (&mounted.files, &mounted.operation);
    file_of(&mounted, 1, "full", 300_000);
    let other = file_of(&mounted, 2, "other", 10);
    mounted.sync();
    let give = |changes: SetAttributes| files.set_attributes(&root(), other, &changes, operation);
    let user = |uid| SetAttributes {
        uid: Some(uid),
        ..SetAttributes::default()
    };
    files
        .set_quota(QuotaKind::User, 1, 1000, operation)
        .unwrap();
    assert_eq!(give(user(1)).unwrap_err().errno(), 122);
    files.set_quota(QuotaKind::User, 1, 0, operation).unwrap();
    files
        .set_quota(QuotaKind::UserObjects, 1, 1, operation)
        .unwrap();
    assert_eq!(give(user(1)).unwrap_err().errno(), 122);
    files
        .set_quota(QuotaKind::UserObjects, 1, 2, operation)
        .unwrap();
    give(user(1)).unwrap();
    mounted.sync();
    // A user that owns the file already keeps it.
    give(user(1)).unwrap();
    let project = |id| SetAttributes {
        project: Some(id),
        ..SetAttributes::default()
    };
    give(project(7)).unwrap();
    mounted.sync();
    files
        .set_quota(QuotaKind::ProjectObjects, 7, 1, operation)
        .unwrap();
    let full = SetAttributes { ..project(7) };
    let third = file_of(&mounted, 3, "third", 10);
    let refused = files.set_attributes(&root(), third, &full, operation);
    assert_eq!(refused.unwrap_err().errno(), 122);
    assert_eq!(give(project(u64::from(u32::MAX))).unwrap_err().errno(), 22);
}

#[test]
fn attributes_in_a_hidden_directory_are_charged_to_the_owner_of_the_file() {
    let properties = MountProperties {
        xattrs: tarn_posix::XattrStore::Directory,
        ..MountProperties::default()
    };
    let mounted = Mounted::with(NewFileSystem::default(), properties);
    let (files, operation) = (&mounted.files, &mounted.operation);
    let id = file_of(&mounted, 1, "f", 10);
    files
        .set_xattr(&root(), id, b"user.note", b"x", XattrMode::Any, operation)
        .unwrap();
    mounted.sync();
    let objects = |kind, id| files.quotas().used_by(kind, id, operation).unwrap();
    assert_eq!(objects(QuotaKind::UserObjects, 1), 3);
    let changes = SetAttributes {
        uid: Some(2),
        gid: Some(3),
        project: Some(4),
        ..SetAttributes::default()
    };
    files
        .set_attributes(&root(), id, &changes, operation)
        .unwrap();
    mounted.sync();
    assert_eq!(objects(QuotaKind::UserObjects, 1), 0);
    assert_eq!(objects(QuotaKind::User, 1), 0);
    assert_eq!(objects(QuotaKind::UserObjects, 2), 3);
    assert_eq!(objects(QuotaKind::GroupObjects, 3), 3);
    assert_eq!(objects(QuotaKind::ProjectObjects, 4), 3);
}

#[test]
fn whatever_is_made_in_a_project_belongs_to_it_and_moves_within_it() {
    const INHERIT: u64 = 0x4000_0000_0000;
    let mounted = Mounted::new();
    let (files, operation) = (&mounted.files, &mounted.operation);
    let top = mounted.root();
    let directory = |name: &str| {
        mounted
            .make(&root(), top, name, FileKind::Directory, 0o755)
            .unwrap()
    };
    let (one, two) = (directory("one"), directory("two"));
    // A pipe from before the directory was the project's.
    let old = mounted
        .make(&root(), one.id, "old", FileKind::Fifo, 0o644)
        .unwrap();
    let plain = file(&mounted, "plain");
    for (directory, id) in [(&one, 5), (&two, 5)] {
        let changes = SetAttributes {
            project: Some(id),
            flags: Some(directory.flags | INHERIT),
            ..SetAttributes::default()
        };
        files
            .set_attributes(&root(), directory.id, &changes, operation)
            .unwrap();
    }
    let pipe = mounted
        .make(&root(), one.id, "pipe", FileKind::Fifo, 0o644)
        .unwrap();
    assert_eq!((pipe.project, pipe.flags & INHERIT), (5, 0));
    let rename = |from, old: &[u8], to, new: &[u8]| {
        files.rename(&root(), from, old, to, new, RenameMode::Replace, operation)
    };
    rename(one.id, b"pipe", two.id, b"pipe").unwrap();
    assert_eq!(old.project, 0);
    rename(one.id, b"old", one.id, b"older").unwrap();
    assert_eq!(
        rename(one.id, b"older", two.id, b"older")
            .unwrap_err()
            .errno(),
        18
    );
    // What comes in hands its project down, too.
    let changes = SetAttributes {
        project: Some(5),
        ..SetAttributes::default()
    };
    files
        .set_attributes(&root(), plain, &changes, operation)
        .unwrap();
    rename(top, b"plain", two.id, b"plain").unwrap();
    assert_ne!(
        files.attributes(plain, operation).unwrap().flags & INHERIT,
        0
    );
    // Only files and directories can.
    let hands_down = SetAttributes {
        flags: Some(pipe.flags | INHERIT),
        ..SetAttributes::default()
    };
    let refused = files.set_attributes(&root(), pipe.id, &hands_down, operation);
    assert_eq!(refused.unwrap_err().errno(), 95);
    mounted.sync();
    // The directory shows the room of the project.
    files
        .set_quota(QuotaKind::Project, 5, 1 << 20, operation)
        .unwrap();
    files
        .set_default_quota(QuotaKind::ProjectObjects, 100, operation)
        .unwrap();
    let room = files.space_at(one.id, operation).unwrap();
    let used = |kind| files.quotas().used_by(kind, 5, operation).unwrap();
    assert_eq!(room.total_bytes, 1 << 20);
    assert_eq!(room.available_bytes, (1 << 20) - used(QuotaKind::Project));
    assert_eq!((room.total_objects, room.available_objects), (100, 96));
    assert_eq!(files.space_at(top, operation).unwrap(), files.space());
}
