//! Permissions of operations, as POSIX and Linux have them.

mod support;

use support::{Mounted, someone};
use tarn_ondisk::units::ObjectId;
use tarn_posix::WriteAt;
use tarn_posix::properties::{AclType, MountProperties, XattrStore};
use tarn_posix::types::{
    Credentials, DeviceNumber, FileKind, NewFile, Privileges, RenameMode, SetAttributes, SetTime,
    Timestamp, XattrMode,
};
use tarn_posix::{NewFileSystem, PosixError};

const NOT_PERMITTED: i32 = 1;
const DENIED: i32 = 13;
const INVALID: i32 = 22;
const READ_ONLY: i32 = 30;

const IMMUTABLE: u64 = 0x10_0000_0000;
const APPEND_ONLY: u64 = 0x40_0000_0000;

fn errno<T: std::fmt::Debug>(result: Result<T, PosixError>) -> i32 {
    result.unwrap_err().errno()
}

fn with_mode(permissions: u32) -> SetAttributes {
    SetAttributes {
        permissions: Some(permissions),
        ..SetAttributes::default()
    }
}

fn with_owner(uid: Option<u32>, gid: Option<u32>) -> SetAttributes {
    SetAttributes {
        uid,
        gid,
        ..SetAttributes::default()
    }
}

/// A file system whose root all users may write into.
fn open_to_all(properties: MountProperties) -> Mounted {
    let mounted = Mounted::with(NewFileSystem::default(), properties);
    set(
        &mounted,
        &Credentials::root(),
        mounted.root(),
        with_mode(0o777),
    )
    .unwrap();
    mounted
}

fn set(
    mounted: &Mounted,
    who: &Credentials,
    id: ObjectId,
    changes: SetAttributes,
) -> Result<u32, PosixError> {
    let changed = mounted
        .files
        .set_attributes(who, id, &changes, &mounted.operation)?;
    Ok(changed.permissions)
}

#[test]
fn a_change_that_sets_nothing_changes_the_time_of_the_last_change_alone() {
    let mounted = open_to_all(MountProperties::default());
    let one = someone(1);
    let file = mounted
        .make(&one, mounted.root(), "f", FileKind::Regular, 0o644)
        .unwrap();
    let changed =
        mounted
            .files
            .set_attributes(&one, file.id, &SetAttributes::default(), &mounted.operation);
    let changed = changed.unwrap();
    assert_ne!(changed.changed, file.changed);
    let expected = tarn_posix::types::Attributes {
        changed: changed.changed,
        ..file
    };
    assert_eq!(changed, expected);
}

#[test]
fn a_directory_decides_who_adds_and_removes() {
    let mounted = open_to_all(MountProperties::default());
    let (files, operation) = (&mounted.files, &mounted.operation);
    let (one, other) = (someone(1), someone(2));
    let home = mounted
        .make(&one, mounted.root(), "home", FileKind::Directory, 0o755)
        .unwrap()
        .id;
    assert_eq!(
        errno(mounted.make(&other, home, "a", FileKind::Regular, 0o644)),
        DENIED
    );
    mounted
        .make(&one, home, "a", FileKind::Regular, 0o644)
        .unwrap();
    assert_eq!(errno(files.unlink(&other, home, b"a", operation)), DENIED);
    let renamed = |who: &Credentials, from: &[u8], to: &[u8]| {
        files.rename(
            who,
            home,
            from,
            mounted.root(),
            to,
            RenameMode::Replace,
            operation,
        )
    };
    assert_eq!(errno(renamed(&other, b"a", b"a")), DENIED);
    // A sticky directory lets only owners remove.
    set(&mounted, &one, home, with_mode(0o1777)).unwrap();
    assert_eq!(
        errno(files.unlink(&other, home, b"a", operation)),
        NOT_PERMITTED
    );
    assert_eq!(errno(renamed(&other, b"a", b"a")), NOT_PERMITTED);
    mounted
        .make(&other, home, "b", FileKind::Regular, 0o644)
        .unwrap();
    files.unlink(&other, home, b"b", operation).unwrap();
    renamed(&one, b"a", b"a").unwrap();
    // Without search nothing is found, and a taken name is not told.
    set(&mounted, &one, home, with_mode(0o600)).unwrap();
    assert_eq!(errno(files.lookup(&other, home, b"a", operation)), DENIED);
    assert_eq!(
        errno(mounted.make(&other, home, "c", FileKind::Regular, 0o644)),
        DENIED
    );
}

#[test]
fn a_directory_moves_only_with_leave_to_change_what_is_above_it() {
    let mounted = open_to_all(MountProperties::default());
    let (one, root) = (someone(1), mounted.root());
    let (a, _) = (
        mounted
            .make(&one, root, "a", FileKind::Directory, 0o777)
            .unwrap()
            .id,
        mounted
            .make(&someone(2), root, "b", FileKind::Directory, 0o755)
            .unwrap()
            .id,
    );
    let moved = |mode| {
        let (files, operation) = (&mounted.files, &mounted.operation);
        files.rename(&one, root, b"b", a, b"b", mode, operation)
    };
    assert_eq!(errno(moved(RenameMode::Replace)), DENIED);
    let operation = &mounted.operation;
    mounted
        .files
        .rename(&one, root, b"b", root, b"c", RenameMode::Replace, operation)
        .unwrap();
}

#[test]
fn owners_change_modes_and_only_root_gives_files_away() {
    let mounted = open_to_all(MountProperties::default());
    let (one, other, root) = (someone(1), someone(2), Credentials::root());
    let file = mounted
        .make(&one, mounted.root(), "f", FileKind::Regular, 0o644)
        .unwrap()
        .id;
    assert_eq!(
        errno(set(&mounted, &other, file, with_mode(0o777))),
        NOT_PERMITTED
    );
    assert_eq!(
        set(&mounted, &one, file, with_mode(0o6755)).unwrap(),
        0o6755
    );
    assert_eq!(
        errno(set(&mounted, &one, file, with_owner(Some(2), None))),
        NOT_PERMITTED
    );
    assert_eq!(
        errno(set(&mounted, &one, file, with_owner(None, Some(2)))),
        NOT_PERMITTED
    );
    let mut member = one.clone();
    member.groups.push(2);
    // A file with another owner or group does not run with the rights of the old ones any more.
    assert_eq!(
        set(&mounted, &member, file, with_owner(Some(1), Some(2))).unwrap(),
        0o755
    );
    assert_eq!(
        set(&mounted, &root, file, with_mode(0o6755)).unwrap(),
        0o6755
    );
    assert_eq!(
        set(&mounted, &root, file, with_owner(Some(3), None)).unwrap(),
        0o755
    );
    // A user that is not of the group cannot have the file run with its rights.
    let file = mounted
        .make(&one, mounted.root(), "g", FileKind::Regular, 0o644)
        .unwrap()
        .id;
    set(&mounted, &root, file, with_owner(None, Some(9))).unwrap();
    assert_eq!(set(&mounted, &one, file, with_mode(0o2755)).unwrap(), 0o755);
}

#[test]
fn writing_takes_the_right_to_run_as_somebody_else() {
    let mounted = open_to_all(MountProperties::default());
    let (root, other) = (Credentials::root(), someone(2));
    let file = mounted
        .make(&root, mounted.root(), "f", FileKind::Regular, 0o6777)
        .unwrap()
        .id;
    let mode = || {
        mounted
            .files
            .attributes(file, &mounted.operation)
            .unwrap()
            .permissions
    };
    let write = |who: &Credentials| {
        mounted
            .files
            .write(who, file, WriteAt::End, b"x", &mounted.operation)
            .unwrap();
        mode()
    };
    assert_eq!(write(&root), 0o6777);
    assert_eq!(write(&other), 0o777);
    set(&mounted, &root, file, with_mode(0o6777)).unwrap();
    let shorter = SetAttributes {
        size: Some(0),
        ..SetAttributes::default()
    };
    assert_eq!(set(&mounted, &other, file, shorter).unwrap(), 0o777);
}

#[test]
fn times_are_set_by_owners_and_touched_by_writers() {
    let mounted = open_to_all(MountProperties::default());
    let (one, other) = (someone(1), someone(2));
    let file = mounted
        .make(&one, mounted.root(), "f", FileKind::Regular, 0o644)
        .unwrap()
        .id;
    let then = SetTime::To(Timestamp {
        seconds: -5,
        nanoseconds: 7,
    });
    let explicit = SetAttributes {
        accessed: Some(then),
        modified: Some(then),
        ..SetAttributes::default()
    };
    let touch = SetAttributes {
        accessed: Some(SetTime::Now),
        modified: Some(SetTime::Now),
        ..SetAttributes::default()
    };
    assert_eq!(
        errno(set(&mounted, &other, file, explicit.clone())),
        NOT_PERMITTED
    );
    assert_eq!(errno(set(&mounted, &other, file, touch.clone())), DENIED);
    set(&mounted, &one, file, explicit.clone()).unwrap();
    set(&mounted, &one, file, with_mode(0o666)).unwrap();
    assert_eq!(errno(set(&mounted, &other, file, explicit)), NOT_PERMITTED);
    let found = mounted.files.attributes(file, &mounted.operation).unwrap();
    assert_eq!(
        (found.modified.seconds, found.accessed.nanoseconds),
        (-5, 7)
    );
    set(&mounted, &other, file, touch).unwrap();
    let found = mounted.files.attributes(file, &mounted.operation).unwrap();
    assert!(found.modified.seconds > 1_000_000_000);
}

#[test]
fn immutable_and_append_only_files_stay() {
    let mounted = open_to_all(MountProperties::default());
    let (files, operation) = (&mounted.files, &mounted.operation);
    let (root, one) = (Credentials::root(), someone(1));
    let file = mounted
        .make(&one, mounted.root(), "f", FileKind::Regular, 0o644)
        .unwrap()
        .id;
    let flags = |flags| SetAttributes {
        flags: Some(flags),
        ..SetAttributes::default()
    };
    assert_eq!(
        errno(set(&mounted, &one, file, flags(IMMUTABLE))),
        NOT_PERMITTED
    );
    set(&mounted, &root, file, flags(IMMUTABLE)).unwrap();
    let write = |at| files.write(&root, file, at, b"abc", operation);
    assert_eq!(errno(write(WriteAt::End)), NOT_PERMITTED);
    let opened = |appends| files.check_writing(file, appends, operation);
    assert_eq!(errno(opened(true)), NOT_PERMITTED);
    assert_eq!(
        errno(set(&mounted, &root, file, with_mode(0))),
        NOT_PERMITTED
    );
    assert_eq!(
        errno(files.unlink(&root, mounted.root(), b"f", operation)),
        NOT_PERMITTED
    );
    let linked = files.link(&root, file, mounted.root(), b"g", operation);
    assert_eq!(errno(linked), NOT_PERMITTED);
    set(&mounted, &root, file, flags(APPEND_ONLY)).unwrap();
    assert_eq!(errno(opened(false)), NOT_PERMITTED);
    opened(true).unwrap();
    write(WriteAt::End).unwrap();
    assert_eq!(errno(write(WriteAt::Offset(0))), NOT_PERMITTED);
    let shorter = SetAttributes {
        size: Some(0),
        ..SetAttributes::default()
    };
    assert_eq!(errno(set(&mounted, &root, file, shorter)), NOT_PERMITTED);
    set(&mounted, &root, file, flags(0)).unwrap();
    files
        .unlink(&root, mounted.root(), b"f", operation)
        .unwrap();
}

#[test]
fn where_nothing_can_change_no_file_is_opened_for_writing_but_what_leads_elsewhere() {
    let mounted = open_to_all(MountProperties::default());
    let (files, operation, root) = (&mounted.files, &mounted.operation, Credentials::root());
    let make = |name, kind| mounted.make(&root, mounted.root(), name, kind, 0o644);
    let file = make("file", FileKind::Regular).unwrap().id;
    let pipe = make("pipe", FileKind::Fifo).unwrap().id;
    files.check_writing(file, false, operation).unwrap();
    files.set_properties(MountProperties {
        is_read_only: true,
        ..MountProperties::default()
    });
    for appends in [false, true] {
        let opened = files.check_writing(file, appends, operation);
        assert_eq!(errno(opened), READ_ONLY);
        files.check_writing(pipe, appends, operation).unwrap();
    }
}

#[test]
fn a_new_file_gets_its_group_from_a_directory_that_says_so() {
    let mounted = open_to_all(MountProperties::default());
    let (root, one) = (Credentials::root(), someone(1));
    let directory = mounted
        .make(&root, mounted.root(), "d", FileKind::Directory, 0o777)
        .unwrap()
        .id;
    set(&mounted, &root, directory, with_owner(None, Some(50))).unwrap();
    set(&mounted, &root, directory, with_mode(0o2777)).unwrap();
    let file = mounted
        .make(&one, directory, "f", FileKind::Regular, 0o2755)
        .unwrap();
    // The user is not of the group.
    assert_eq!((file.uid, file.gid, file.permissions), (1, 50, 0o755));
    let inner = mounted
        .make(&one, directory, "i", FileKind::Directory, 0o755)
        .unwrap();
    assert_eq!((inner.gid, inner.permissions), (50, 0o2755));
    let made = mounted.make(&one, directory, "b", FileKind::BlockDevice, 0o600);
    assert_eq!(errno(made), NOT_PERMITTED);
    mounted
        .make(&one, directory, "p", FileKind::Fifo, 0o600)
        .unwrap();
}

/// A list of owner, user 7, group, mask and others.
fn list(owner: u8, user: u8, group: u8, mask: u8, other: u8) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0];
    for (tag, permissions, id) in [
        (1, owner, u32::MAX),
        (2, user, 7),
        (4, group, u32::MAX),
        (16, mask, u32::MAX),
        (32, other, u32::MAX),
    ] {
        bytes.extend([tag, 0, permissions, 0]);
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn posix_lists_decide_are_inherited_and_follow_the_mode() {
    let mounted = open_to_all(MountProperties {
        acl_type: AclType::Posix,
        ..MountProperties::default()
    });
    let (files, operation) = (&mounted.files, &mounted.operation);
    let (root, one, seven, other) = (Credentials::root(), someone(1), someone(7), someone(8));
    let (access, default) = (b"system.posix_acl_access", b"system.posix_acl_default");
    let set_list = |who: &Credentials, id, name: &[u8], value: &[u8]| {
        files.set_xattr(who, id, name, value, XattrMode::Any, operation)
    };
    let file = mounted
        .make(&one, mounted.root(), "f", FileKind::Regular, 0o600)
        .unwrap()
        .id;
    assert_eq!(
        errno(set_list(&other, file, access, &list(6, 6, 4, 6, 0))),
        NOT_PERMITTED
    );
    assert_eq!(
        errno(set_list(&one, file, default, &list(6, 6, 4, 6, 0))),
        DENIED
    );
    set_list(&one, file, access, &list(6, 6, 4, 6, 0)).unwrap();
    let mode = |id| files.attributes(id, operation).unwrap().permissions;
    assert_eq!(mode(file), 0o660);
    files.access(&seven, file, 6, operation).unwrap();
    assert_eq!(errno(files.access(&other, file, 4, operation)), DENIED);
    // The group's bits of the mode are the mask.
    set(&mounted, &one, file, with_mode(0o640)).unwrap();
    assert_eq!(errno(files.access(&seven, file, 2, operation)), DENIED);
    assert_eq!(
        files.get_xattr(&one, file, access, operation).unwrap(),
        list(6, 6, 4, 4, 0)
    );
    // A list that says no more than the mode is the mode.
    let plain = [
        &list(7, 0, 5, 0, 5)[..12],
        &list(7, 0, 5, 0, 5)[20..28],
        &list(7, 0, 5, 0, 5)[36..],
    ];
    set_list(&one, file, access, &plain.concat()).unwrap();
    assert_eq!(mode(file), 0o755);
    assert_eq!(errno(files.get_xattr(&one, file, access, operation)), 61);

    let directory = mounted
        .make(&root, mounted.root(), "d", FileKind::Directory, 0o777)
        .unwrap()
        .id;
    set_list(&root, directory, default, &list(7, 7, 5, 7, 0)).unwrap();
    let new = NewFile {
        kind: FileKind::Regular,
        permissions: 0o666,
        umask: 0o077,
        device: DeviceNumber::default(),
        target: None,
    };
    let made = files
        .create(&one, directory, b"f", &new, operation)
        .unwrap();
    assert_eq!(
        made.permissions, 0o660,
        "the list takes the place of the umask"
    );
    assert_eq!(
        files.get_xattr(&one, made.id, access, operation).unwrap(),
        list(6, 7, 5, 6, 0)
    );
    files.access(&seven, made.id, 6, operation).unwrap();
    let inner = mounted
        .make(&one, directory, "i", FileKind::Directory, 0o777)
        .unwrap()
        .id;
    let names = files.list_xattr(&one, inner, operation).unwrap();
    assert_eq!(names, [access.to_vec(), default.to_vec()]);
    let mounted = mounted.remounted();
    let found = mounted
        .files
        .get_xattr(&one, inner, default, &mounted.operation)
        .unwrap();
    assert_eq!(found, list(7, 7, 5, 7, 0));
}

#[test]
fn without_extended_attributes_of_users_lists_still_decide_and_others_are_there() {
    let mounted = open_to_all(MountProperties {
        acl_type: AclType::Posix,
        ..MountProperties::default()
    });
    let (root, one, seven) = (Credentials::root(), someone(1), someone(7));
    let file = mounted
        .make(&one, mounted.root(), "file", FileKind::Regular, 0o600)
        .unwrap()
        .id;
    let access = b"system.posix_acl_access".as_slice();
    let (label, note) = (b"security.label".as_slice(), b"user.note".as_slice());
    let off = MountProperties {
        xattrs: XattrStore::Off,
        ..*mounted.files.properties()
    };
    for is_off in [false, true] {
        if is_off {
            mounted.files.set_properties(off);
        }
        let (files, operation) = (&mounted.files, &mounted.operation);
        let set = |who: &Credentials, name: &[u8], value: &[u8]| {
            files.set_xattr(who, file, name, value, XattrMode::Any, operation)
        };
        let allowed = list(6, 4, 0, 4, 0);
        set(&one, access, &allowed).unwrap();
        set(&root, label, b"secret").unwrap();
        assert_eq!(set(&one, note, b"x").is_ok(), !is_off);
        assert_eq!(
            files.get_xattr(&one, file, access, operation).unwrap(),
            allowed
        );
        assert_eq!(
            files.get_xattr(&one, file, label, operation).unwrap(),
            b"secret"
        );
        files.access(&seven, file, 4, operation).unwrap();
        let noted = files.get_xattr(&one, file, note, operation);
        assert_eq!(noted.is_ok(), !is_off);
        let names = files.list_xattr(&one, file, operation).unwrap();
        assert_eq!(names.contains(&note.to_vec()), !is_off);
        assert!(names.contains(&access.to_vec()) && names.contains(&label.to_vec()));
    }
    mounted.files.set_properties(MountProperties {
        xattrs: XattrStore::Attributes,
        ..off
    });
    let found = mounted
        .files
        .get_xattr(&one, file, note, &mounted.operation);
    assert_eq!(found.unwrap(), b"x");
}

#[test]
fn attributes_of_users_need_leave_to_write_and_others_privilege() {
    let mounted = open_to_all(MountProperties::default());
    let (files, operation) = (&mounted.files, &mounted.operation);
    let (one, other) = (someone(1), someone(2));
    let file = mounted
        .make(&one, mounted.root(), "f", FileKind::Regular, 0o644)
        .unwrap()
        .id;
    let set = |who: &Credentials, name: &[u8]| {
        files.set_xattr(who, file, name, b"v", XattrMode::Any, operation)
    };
    assert_eq!(errno(set(&other, b"user.a")), DENIED);
    set(&one, b"user.a").unwrap();
    assert_eq!(errno(set(&one, b"trusted.a")), NOT_PERMITTED);
    assert_eq!(errno(set(&one, b"security.a")), NOT_PERMITTED);
    assert_eq!(errno(set(&one, b"nonsense")), 95);
    for bare in [b"user.".as_slice(), b"trusted.", b"security."] {
        assert_eq!(errno(set(&Credentials::root(), bare)), INVALID);
        let got = files.get_xattr(&Credentials::root(), file, bare, operation);
        assert_eq!(errno(got), INVALID);
    }
    set(&Credentials::root(), b"trusted.a").unwrap();
    assert_eq!(
        errno(files.get_xattr(&one, file, b"trusted.a", operation)),
        61
    );
    assert_eq!(
        files.list_xattr(&one, file, operation).unwrap(),
        [b"user.a".to_vec()]
    );
    let pipe = mounted
        .make(&one, mounted.root(), "p", FileKind::Fifo, 0o644)
        .unwrap()
        .id;
    let done = files.set_xattr(&one, pipe, b"user.a", b"", XattrMode::Any, operation);
    assert_eq!(errno(done), NOT_PERMITTED);
}

#[test]
fn a_file_that_is_written_to_loses_what_it_lends_those_who_run_it() {
    let mounted = open_to_all(MountProperties::default());
    let root = Credentials::root();
    let (files, operation) = (&mounted.files, &mounted.operation);
    let file = mounted
        .make(&root, mounted.root(), "f", FileKind::Regular, 0o755)
        .unwrap()
        .id;
    let drop = |which| {
        files
            .drop_privileges(&root, file, which, operation)
            .unwrap()
    };
    let mode = || files.attributes(file, operation).unwrap().permissions;
    assert!(!drop(Privileges::All));

    set(&mounted, &root, file, with_mode(0o6755)).unwrap();
    assert!(!drop(Privileges::Capabilities));
    assert_eq!(mode(), 0o6755);
    assert!(drop(Privileges::All));
    assert_eq!(mode(), 0o755);
    // Without execution by the group the bit means something else.
    set(&mounted, &root, file, with_mode(0o6744)).unwrap();
    assert!(drop(Privileges::All));
    assert_eq!(mode(), 0o2744);
    // It goes all the same when the writer is not of the group.
    let stranger = someone(777);
    let dropped = files.drop_privileges(&stranger, file, Privileges::All, operation);
    assert!(dropped.unwrap());
    assert_eq!(mode(), 0o744);

    for (name, value) in [("user.a", "kept"), ("security.capability", "all of them")] {
        let (name, value) = (name.as_bytes(), value.as_bytes());
        files
            .set_xattr(&root, file, name, value, XattrMode::Any, operation)
            .unwrap();
    }
    assert!(drop(Privileges::Capabilities));
    assert!(!drop(Privileges::Capabilities));
    let names = files.list_xattr(&root, file, operation).unwrap();
    assert_eq!(names, [b"user.a".to_vec()]);
}
