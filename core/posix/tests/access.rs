//! Permission checks: each operation by owner, a member of the group, another user, and root, none
//! of them checked before.
//!
//! The expectations are written by hand from POSIX.1-2024 (the error sections of each function),
//! Linux' `path_resolution(7)`, `xattr(7)`, `chmod(2)` and `rename(2)`, and for NFSv4 lists from
//! RFC 8881 section 6.2, illumos' acl(5), zfsprops(7) and the table of deletion that OpenZFS
//! documents for FreeBSD.

#[path = "support/attempts.rs"]
mod attempts;
mod support;

use attempts::*;
use support::Mounted;
use tarn_ondisk::units::ObjectId;
use tarn_posix::properties::{AclInherit, AclMode, AclType, MountProperties};
use tarn_posix::types::{Allocate, Credentials, FileKind, SetAttributes, XattrMode};
use tarn_posix::{PosixError, WriteAt};

/// Which errors four callers get when directory and file have these modes; 0 for none.
type Row = (&'static str, Attempt, u32, u32, [i32; 4]);

fn tried(row: &Row, properties: MountProperties, lists: Option<(&str, &str)>) -> [i32; 4] {
    let (_, attempt, directory_mode, file_mode, _) = row;
    callers().map(|who| {
        let world = World::new(properties);
        world.set_mode(world.file, *file_mode);
        world.set_mode(world.inner, *file_mode);
        world.set_mode(world.directory, *directory_mode);
        if let Some((of_directory, of_file)) = lists {
            if !of_file.is_empty() {
                world.set_list(world.file, of_file);
                world.set_list(world.inner, of_file);
            }
            if !of_directory.is_empty() {
                world.set_list(world.directory, of_directory);
            }
        }
        attempt(&world, &who).map_or_else(|error| error.errno(), |()| OK)
    })
}

/// By mode: owner, group, other, root.
#[rustfmt::skip]
const BY_MODE: &[Row] = &[
    // Search in the directory that a name is looked up in.
    ("lookup, 0700", lookup, 0o700, 0o666, [OK, EACCES, EACCES, OK]),
    ("lookup, 0710", lookup, 0o710, 0o666, [OK, OK, EACCES, OK]),
    ("lookup, 0701", lookup, 0o701, 0o666, [OK, EACCES, OK, OK]),
    ("lookup, 0077", lookup, 0o077, 0o666, [EACCES, OK, OK, OK]),
    ("lookup, 0666", lookup, 0o666, 0o666, [EACCES, EACCES, EACCES, OK]),
    // Opening. The class that a user is in decides alone.
    ("open to read, 0400", open_to_read, 0o755, 0o400, [OK, EACCES, EACCES, OK]),
    ("open to read, 0044", open_to_read, 0o755, 0o044, [EACCES, OK, OK, OK]),
    ("open to read, 0404", open_to_read, 0o755, 0o404, [OK, EACCES, OK, OK]),
    ("open to write, 0600", open_to_write, 0o755, 0o600, [OK, EACCES, EACCES, OK]),
    ("open to write, 0060", open_to_write, 0o755, 0o060, [EACCES, OK, EACCES, OK]),
    ("open to write, 0444", open_to_write, 0o755, 0o444, [EACCES, EACCES, EACCES, OK]),
    ("open to append, 0220", open_to_append, 0o755, 0o220, [OK, OK, EACCES, OK]),
    ("execute, 0710", execute, 0o755, 0o710, [OK, OK, EACCES, OK]),
    ("execute, 0666", execute, 0o755, 0o666, [EACCES, EACCES, EACCES, EACCES]),
    ("access rwx, 0770", access_all, 0o755, 0o770, [OK, OK, EACCES, OK]),
    ("access rwx, 0757", access_all, 0o755, 0o757, [OK, EACCES, OK, OK]),
    ("check read, 0440", check_read, 0o755, 0o440, [OK, OK, EACCES, OK]),
    ("list, 0740", list_directory, 0o740, 0o666, [OK, OK, EACCES, OK]),
    ("list, 0711", list_directory, 0o711, 0o666, [OK, EACCES, EACCES, OK]),
    // What needs no permission on the file itself.
    ("read link, 0000", read_link, 0o755, 0o000, [OK, OK, OK, OK]),
    ("stat, 0000", stat, 0o755, 0o000, [OK, OK, OK, OK]),
    // New entries need writing and search.
    ("create, 0755", make_file, 0o755, 0o666, [OK, EACCES, EACCES, OK]),
    ("create, 0775", make_file, 0o775, 0o666, [OK, OK, EACCES, OK]),
    ("create, 0722", make_file, 0o722, 0o666, [OK, EACCES, EACCES, OK]),
    ("mkdir, 0773", make_directory, 0o773, 0o666, [OK, OK, OK, OK]),
    ("mkdir, 0575", make_directory, 0o575, 0o666, [EACCES, OK, EACCES, OK]),
    ("mkfifo, 0773", make_pipe, 0o773, 0o666, [OK, OK, OK, OK]),
    ("mknod, 0777", make_device, 0o777, 0o666, [EPERM, EPERM, EPERM, OK]),
    ("taken name, 0755", make_taken_name, 0o755, 0o666, [17, 17, 17, 17]),
    ("taken name, 0700", make_taken_name, 0o700, 0o666, [17, EACCES, EACCES, 17]),
    ("unnamed, 0755", make_unnamed, 0o755, 0o666, [OK, EACCES, EACCES, OK]),
    ("link, 0775", link_in, 0o775, 0o666, [OK, OK, EACCES, OK]),
    // Removing asks the directory alone; a sticky one lets its owner and the file's.
    ("unlink, 0755", unlink, 0o755, 0o777, [OK, EACCES, EACCES, OK]),
    ("unlink, 0777", unlink, 0o777, 0o000, [OK, OK, OK, OK]),
    ("unlink, 0776", unlink, 0o776, 0o000, [OK, OK, EACCES, OK]),
    ("unlink, 1777", unlink, 0o1777, 0o777, [OK, EPERM, EPERM, OK]),
    ("rmdir, 0775", remove_directory, 0o775, 0o000, [OK, OK, EACCES, OK]),
    ("rmdir, 1777", remove_directory, 0o1777, 0o777, [OK, EPERM, EPERM, OK]),
    ("rename, 0775", rename_within, 0o775, 0o000, [OK, OK, EACCES, OK]),
    ("rename, 1777", rename_within, 0o1777, 0o777, [OK, EPERM, EPERM, OK]),
    ("rename out, 0755", rename_out, 0o755, 0o777, [OK, EACCES, EACCES, OK]),
    ("rename in, 0775", rename_in, 0o775, 0o777, [OK, OK, EACCES, OK]),
    ("rename over, 1777", rename_over, 0o1777, 0o777, [OK, EPERM, EPERM, OK]),
    ("rename over, 0755", rename_over, 0o755, 0o777, [OK, EACCES, EACCES, OK]),
    ("exchange, 0775", exchange, 0o775, 0o777, [OK, OK, EACCES, OK]),
    // A directory that gets another parent changes its `..`.
    ("move directory, 0755", move_directory, 0o777, 0o755, [OK, EACCES, EACCES, OK]),
    ("move directory, 0777", move_directory, 0o777, 0o777, [OK, OK, OK, OK]),
    // Attributes.
    ("chmod", change_mode, 0o777, 0o777, [OK, EPERM, EPERM, OK]),
    ("chown", give_away, 0o777, 0o777, [EPERM, EPERM, EPERM, OK]),
    ("chown to self", take_over, 0o777, 0o777, [OK, EPERM, EPERM, OK]),
    ("chgrp to own", give_to_own_group, 0o777, 0o777, [OK, EPERM, EPERM, OK]),
    ("chgrp to other", give_to_other_group, 0o777, 0o777, [EPERM, EPERM, EPERM, OK]),
    ("truncate, 0640", truncate, 0o755, 0o640, [OK, EACCES, EACCES, OK]),
    ("truncate, 0466", truncate, 0o755, 0o466, [EACCES, OK, OK, OK]),
    ("touch, 0444", touch, 0o755, 0o444, [OK, EACCES, EACCES, OK]),
    ("touch, 0664", touch, 0o755, 0o664, [OK, OK, EACCES, OK]),
    ("utimes, 0666", set_times, 0o777, 0o666, [OK, EPERM, EPERM, OK]),
    ("nodump, 0666", set_no_dump, 0o777, 0o666, [OK, EPERM, EPERM, OK]),
    ("immutable, 0666", set_immutable, 0o777, 0o666, [EPERM, EPERM, EPERM, OK]),
    ("project, 0666", set_project, 0o777, 0o666, [OK, EPERM, EPERM, OK]),
    // Extended attributes.
    ("get user.a, 0440", get_user_xattr, 0o755, 0o440, [OK, OK, EACCES, OK]),
    ("set user.b, 0620", set_user_xattr, 0o755, 0o620, [OK, OK, EACCES, OK]),
    ("remove user.a, 0604", remove_user_xattr, 0o755, 0o604, [OK, EACCES, EACCES, OK]),
    ("set trusted.b, 0666", set_trusted_xattr, 0o755, 0o666, [EPERM, EPERM, EPERM, OK]),
    ("set security.b, 0666", set_security_xattr, 0o755, 0o666, [EPERM, EPERM, EPERM, OK]),
];

#[test]
fn the_mode_decides() {
    for row in BY_MODE {
        assert_eq!(
            tried(row, MountProperties::default(), None),
            row.4,
            "{}",
            row.0
        );
    }
}

/// Lists that say what the mode says decide as the mode does.
#[test]
fn trivial_nfs4_lists_decide_as_the_mode() {
    let properties = MountProperties {
        acl_type: AclType::Nfs4,
        ..MountProperties::default()
    };
    for row in BY_MODE {
        assert_eq!(tried(row, properties, None), row.4, "{}", row.0);
    }
}

/// By lists of directory and file: owner, group, other, root. An empty list leaves the mode 0755 or
/// 0644.
type ListRow = (&'static str, Attempt, &'static str, &'static str, [i32; 4]);

const ALL_OF_DIRECTORY: &str = "A::EVERYONE@:rwaDx";

#[rustfmt::skip]
const BY_LIST: &[ListRow] = &[
    // Users and groups by number, which no mode can say.
    ("a user may read", open_to_read, "", "A::1002:r,A::OWNER@:rw", [OK, EACCES, OK, OK]),
    ("a group may read", open_to_read, "", "A:g:101:r,A::OWNER@:rw", [OK, OK, EACCES, OK]),
    ("the owning group may", open_to_read, "", "A:g:GROUP@:r,A::OWNER@:w", [EACCES, OK, EACCES, OK]),
    // The first entry about a right decides.
    ("a denial first", open_to_read, "", "D::1002:r,A::EVERYONE@:r", [OK, OK, EACCES, OK]),
    ("a denial too late", open_to_read, "", "A::EVERYONE@:r,D::1002:r", [OK, OK, OK, OK]),
    ("a denied group", open_to_read, "", "D:g:7:r,A::EVERYONE@:r", [OK, EACCES, OK, OK]),
    ("the owner denied", open_to_read, "", "D::OWNER@:r,A::EVERYONE@:r", [EACCES, OK, OK, OK]),
    ("nothing said", open_to_read, "", "A::EVERYONE@:w", [EACCES, EACCES, EACCES, OK]),
    ("only handed down", lookup, "A:fi:EVERYONE@:x,A::OWNER@:x", "", [OK, EACCES, EACCES, OK]),
    // Rights of contents.
    ("write", open_to_write, "", "A::1002:w,A::OWNER@:r", [EACCES, EACCES, OK, OK]),
    ("append alone does not write", open_to_write, "", "A::1002:a,A::OWNER@:r", [EACCES, EACCES, EACCES, OK]),
    ("append alone appends", open_to_append, "", "A::1002:a,A::OWNER@:r", [EACCES, EACCES, OK, OK]),
    ("write appends", open_to_append, "", "A::1002:w,A::OWNER@:r", [EACCES, EACCES, OK, OK]),
    ("truncate needs write", truncate, "", "A::1002:a,A:g:GROUP@:w", [EACCES, OK, EACCES, OK]),
    ("execute", execute, "", "A::1002:x,A:g:GROUP@:x", [EACCES, OK, OK, OK]),
    ("access wants all", access_all, "", "A::1002:rwx,A:g:GROUP@:rx", [EACCES, EACCES, OK, OK]),
    // Directories.
    ("search", lookup, "A::1002:x,A::OWNER@:r", "", [EACCES, EACCES, OK, OK]),
    ("list", list_directory, "A::1002:r,A::OWNER@:x", "", [EACCES, EACCES, OK, OK]),
    ("add a file", make_file, "A::1002:wx,A:g:GROUP@:ax", "", [EACCES, EACCES, OK, OK]),
    ("add a directory", make_directory, "A::1002:wx,A:g:GROUP@:ax", "", [EACCES, OK, EACCES, OK]),
    ("add a link", link_in, "A::1002:wx,A:g:GROUP@:ax", "", [EACCES, EACCES, OK, OK]),
    ("add without search", make_file, "A::1002:w,A:g:GROUP@:wx", "", [EACCES, OK, EACCES, OK]),
    ("unnamed is a file", make_unnamed, "A::1002:wx,A:g:GROUP@:ax", "", [EACCES, EACCES, OK, OK]),
    // Deletion: directory by file. Allowed, denied and unspecified, in the order of the table.
    ("child allowed", unlink, "A::EVERYONE@:Dx", "A::OWNER@:r", [OK, OK, OK, OK]),
    ("child allowed, delete denied", unlink, "A::EVERYONE@:Dx", "D::EVERYONE@:d", [OK, OK, OK, OK]),
    ("child denied, delete allowed", unlink, "D::EVERYONE@:D,A::EVERYONE@:wx", "A::1002:d", [EACCES, EACCES, OK, OK]),
    ("child denied", unlink, "D::EVERYONE@:D,A::EVERYONE@:wx", "A::OWNER@:r", [EACCES, EACCES, EACCES, OK]),
    ("write and execute allowed", unlink, "A::1002:wx,A:g:GROUP@:x", "A::OWNER@:r", [EACCES, EACCES, OK, OK]),
    ("delete alone", unlink, "A::EVERYONE@:x", "A::1002:d,A::OWNER@:r", [EACCES, EACCES, OK, OK]),
    ("delete without search", unlink, "A::OWNER@:wx", "A::1002:d,A::OWNER@:r", [OK, EACCES, EACCES, OK]),
    ("rmdir by delete", remove_directory, "A::EVERYONE@:x", "A::1002:d,A::OWNER@:r", [EACCES, EACCES, OK, OK]),
    ("rename needs both", rename_within, "A::1002:wDx,A:g:GROUP@:Dx", "", [EACCES, EACCES, OK, OK]),
    ("rename in", rename_in, "A::1002:wx,A:g:GROUP@:ax", "", [EACCES, EACCES, OK, OK]),
    ("rename over adds too", rename_over, "A::1002:wDx,A:g:GROUP@:Dx", "", [EACCES, EACCES, OK, OK]),
    ("a moved directory is written", move_directory, ALL_OF_DIRECTORY, "A::1002:w,A::OWNER@:r", [EACCES, EACCES, OK, OK]),
    // Attributes, lists and owners. An owner always may, but not give a file away.
    ("stat", stat, "", "D::EVERYONE@:t,A::EVERYONE@:rw", [OK, EACCES, EACCES, OK]),
    ("times by write_attributes", set_times, "", "A::1002:T,A:g:GROUP@:w", [OK, EPERM, OK, OK]),
    ("touch by write_data", touch, "", "A::1002:T,A:g:GROUP@:w", [OK, OK, OK, OK]),
    ("owner denied its attributes", set_times, "", "D::OWNER@:T,A::EVERYONE@:rw", [OK, EPERM, EPERM, OK]),
    ("chmod by write_acl", change_mode, "", "A::1002:C,A:g:GROUP@:T", [OK, EPERM, OK, OK]),
    ("take over by write_owner", take_over, "", "A::1002:o,A:g:GROUP@:C", [OK, EPERM, OK, OK]),
    ("give away by write_owner", give_away, "", "A::EVERYONE@:o", [EPERM, EPERM, EPERM, OK]),
    ("own group by write_owner", give_to_own_group, "", "A::1002:o,A:g:GROUP@:C", [OK, EPERM, OK, OK]),
    ("list is read", get_list, "", "A::1002:c,A:g:GROUP@:t", [OK, EACCES, OK, OK]),
    ("owner reads a list that denies it", get_list, "", "D::EVERYONE@:cC,A::EVERYONE@:r", [OK, EACCES, EACCES, OK]),
    ("list is set", set_list, "", "A::1002:C,A:g:GROUP@:c", [OK, EACCES, OK, OK]),
    ("owner sets a list that denies it", set_list, "", "D::EVERYONE@:cC,A::EVERYONE@:r", [OK, EACCES, EACCES, OK]),
    ("list is removed", remove_list, "", "A::1002:C,A:g:GROUP@:c", [OK, EACCES, OK, OK]),
    // Extended attributes of users follow the rights of contents.
    ("get user.a", get_user_xattr, "", "A::1002:r,A:g:GROUP@:w", [EACCES, EACCES, OK, OK]),
    ("set user.b", set_user_xattr, "", "A::1002:r,A:g:GROUP@:w", [EACCES, OK, EACCES, OK]),
];

#[test]
fn nfs4_lists_decide() {
    let properties = MountProperties {
        acl_type: AclType::Nfs4,
        ..MountProperties::default()
    };
    for (name, attempt, of_directory, of_file, expected) in BY_LIST {
        let row: Row = (*name, *attempt, 0o755, 0o644, *expected);
        let found = tried(&row, properties, Some((of_directory, of_file)));
        assert_eq!(found, *expected, "{name}");
    }
}

/// A POSIX list: owner rw, user 1002 with rights, group, mask, others nothing.
#[test]
fn posix_lists_decide() {
    let properties = MountProperties {
        acl_type: AclType::Posix,
        ..MountProperties::default()
    };
    let rows: &[(&str, Attempt, [u8; 5], [i32; 4])] = &[
        (
            "a user may read",
            open_to_read,
            [6, 4, 0, 7, 0],
            [OK, EACCES, OK, OK],
        ),
        (
            "the mask limits a user",
            open_to_write,
            [6, 6, 6, 4, 6],
            [OK, EACCES, EACCES, OK],
        ),
        (
            "a named user is not other",
            open_to_read,
            [6, 0, 4, 7, 4],
            [OK, OK, EACCES, OK],
        ),
        (
            "the owner is not named",
            open_to_write,
            [4, 6, 6, 7, 6],
            [EACCES, OK, OK, OK],
        ),
        (
            "the group class",
            open_to_write,
            [6, 0, 2, 7, 0],
            [OK, OK, EACCES, OK],
        ),
    ];
    for (name, attempt, [owner, user, group, mask, other], expected) in rows {
        let found = callers().map(|who| {
            let world = World::new(properties);
            let mut list = vec![2, 0, 0, 0];
            for (tag, permissions, id) in [
                (1, owner, u32::MAX),
                (2, user, 1002),
                (4, group, u32::MAX),
                (16, mask, u32::MAX),
                (32, other, u32::MAX),
            ] {
                list.extend([tag, 0, *permissions, 0]);
                list.extend(id.to_le_bytes());
            }
            let (files, operation) = (&world.mounted.files, &world.mounted.operation);
            let (root, name) = (Credentials::root(), b"system.posix_acl_access");
            files
                .set_xattr(&root, world.file, name, &list, XattrMode::Any, operation)
                .unwrap();
            attempt(&world, &who).map_or_else(|error| error.errno(), |()| OK)
        });
        assert_eq!(found, *expected, "{name}");
    }
}

/// Each kind of lists is unknown where the other is used.
#[test]
fn a_dataset_has_one_kind_of_lists() {
    const NOT_SUPPORTED: i32 = 95;
    for (acl_type, posix, nfs4) in [
        (AclType::Off, NOT_SUPPORTED, NOT_SUPPORTED),
        (AclType::Posix, 61, NOT_SUPPORTED),
        (AclType::Nfs4, NOT_SUPPORTED, OK),
    ] {
        let world = World::new(MountProperties {
            acl_type,
            ..MountProperties::default()
        });
        let (files, operation) = (&world.mounted.files, &world.mounted.operation);
        let get = |name: &[u8]| {
            let value = files.get_xattr(&Credentials::root(), world.file, name, operation);
            value.map_or_else(|error| error.errno(), |_| OK)
        };
        assert_eq!(get(b"system.posix_acl_access"), posix, "{acl_type:?}");
        assert_eq!(get(b"system.nfs4_acl"), nfs4, "{acl_type:?}");
    }
}

/// Set-id bits after contents or owner change, by user: 0 owner, 1 group, 2 other, 3 root.
#[test]
fn set_ids_go_with_what_others_change() {
    let write: Attempt = |world, who| {
        let (files, operation) = (&world.mounted.files, &world.mounted.operation);
        files
            .write(who, world.file, WriteAt::End, b"x", operation)
            .map(drop)
    };
    let punch: Attempt = |world, who| {
        let (files, operation) = (&world.mounted.files, &world.mounted.operation);
        files.allocate(who, world.file, Allocate::PunchHole, 0, 4, operation)
    };
    let extend: Attempt = |world, who| {
        let (files, operation) = (&world.mounted.files, &world.mounted.operation);
        files.allocate(who, world.file, Allocate::Extend, 0, 4096, operation)
    };
    let copy: Attempt = |world, who| {
        let (files, operation) = (&world.mounted.files, &world.mounted.operation);
        let (from, to) = ((world.file, 0), (world.file, 100));
        files.copy_range(who, from, to, 5, operation).map(drop)
    };
    // Modes after the change. A set-group-id bit without execution by the group stays for members.
    let rows: &[(&str, Attempt, u32, [u32; 4])] = &[
        ("write", write, 0o6777, [0o777, 0o777, 0o777, 0o6777]),
        ("write, 6767", write, 0o6767, [0o767, 0o2767, 0o767, 0o6767]),
        ("truncate", truncate, 0o6777, [0o777, 0o777, 0o777, 0o6777]),
        ("punch", punch, 0o6777, [0o777, 0o777, 0o777, 0o6777]),
        ("extend", extend, 0o6777, [0o777, 0o777, 0o777, 0o6777]),
        ("copy", copy, 0o6777, [0o777, 0o777, 0o777, 0o6777]),
    ];
    for acl_type in [AclType::Off, AclType::Nfs4] {
        for (name, attempt, mode, expected) in rows {
            let found = callers().map(|who| {
                let world = World::new(MountProperties {
                    acl_type,
                    ..MountProperties::default()
                });
                world.set_mode(world.file, *mode);
                attempt(&world, &who).unwrap();
                world.mode(world.file)
            });
            assert_eq!(found, *expected, "{name}");
        }
    }
    let world = World::new(MountProperties::default());
    world.set_mode(world.file, 0o6755);
    give_away(&world, &Credentials::root()).unwrap();
    assert_eq!(
        world.mode(world.file),
        0o755,
        "nor does a new owner lend what the old one did"
    );
}

/// The set-group-id bit of a directory gives its group to what is made in it, and to directories
/// the bit; a user that is not in the group cannot make or leave a file that runs as it.
#[test]
fn a_set_group_id_directory_hands_down_its_group() {
    for acl_type in [AclType::Off, AclType::Nfs4] {
        let world = World::new(MountProperties {
            acl_type,
            ..MountProperties::default()
        });
        world.set_mode(world.directory, 0o2777);
        let expected = [
            (GROUP, 0o755, 0o2755),
            (GROUP, 0o2755, 0o2755),
            (GROUP, 0o755, 0o2755),
            (GROUP, 0o2755, 0o2755),
        ];
        for (who, (group, file, directory)) in callers().iter().zip(expected) {
            let make = |name: String, kind, mode| {
                let made = world.mounted.make(who, world.directory, &name, kind, mode);
                let made = made.unwrap();
                (made.gid, made.permissions)
            };
            let made = make(format!("f{}", who.uid), FileKind::Regular, 0o2755);
            assert_eq!(made, (group, file), "{}", who.uid);
            let made = make(format!("d{}", who.uid), FileKind::Directory, 0o755);
            assert_eq!(made, (group, directory), "{}", who.uid);
        }
    }
}

fn nfs4(acl_mode: AclMode, acl_inherit: AclInherit) -> World {
    World::new(MountProperties {
        acl_type: AclType::Nfs4,
        acl_mode,
        acl_inherit,
        ..MountProperties::default()
    })
}

/// zfsprops(7), `aclmode`: what `chmod 0640` leaves of a list that lets user 1002 read and write.
#[test]
fn chmod_keeps_of_a_list_what_aclmode_says() {
    for (acl_mode, mode, may) in [
        (AclMode::Discard, 0o640, [EACCES, EACCES]),
        (AclMode::GroupMask, 0o640, [OK, EACCES]),
        (AclMode::Passthrough, 0o640, [OK, OK]),
        (AclMode::Restricted, 0o604, [OK, OK]),
    ] {
        let world = nfs4(acl_mode, AclInherit::Restricted);
        world.set_list(
            world.file,
            "A::1002:rw,A::OWNER@:rw,D:g:GROUP@:r,A::EVERYONE@:r",
        );
        assert_eq!(world.mode(world.file), 0o604);
        let changes = SetAttributes {
            permissions: Some(0o640),
            ..SetAttributes::default()
        };
        let owner = &callers()[0];
        let changed = world.set(owner, world.file, &changes);
        let is_refused = acl_mode == AclMode::Restricted;
        assert_eq!(changed.is_err(), is_refused, "{acl_mode:?}");
        assert_eq!(world.mode(world.file), mode, "{acl_mode:?}");
        let other = &callers()[2];
        let errno = |result: Result<(), PosixError>| result.map_or_else(|e| e.errno(), |()| OK);
        let found = [
            errno(open_to_read(&world, other)),
            errno(open_to_write(&world, other)),
        ];
        assert_eq!(found, may, "{acl_mode:?}");
        let stored = world.mounted.remounted();
        let attributes = stored
            .files
            .attributes(world.file, &stored.operation)
            .unwrap();
        assert_eq!(attributes.permissions, mode, "{acl_mode:?}");
    }
}

/// zfsprops(7), `aclinherit`: what the list of a directory makes of a file that is created with
/// mode 0640.
#[test]
fn a_new_file_has_what_aclinherit_says() {
    let list = "A:fd:1002:rwxCo,A:fd:OWNER@:rwx,A:fd:GROUP@:rx,A::EVERYONE@:rwxaD";
    // The mode, and what user 1002 may: read, write, execute, change the list.
    for (acl_inherit, asked, mode, may) in [
        (
            AclInherit::Discard,
            0o640,
            0o640,
            [EACCES, EACCES, EACCES, EACCES],
        ),
        (
            AclInherit::NoAllow,
            0o640,
            0o640,
            [EACCES, EACCES, EACCES, EACCES],
        ),
        (AclInherit::Restricted, 0o640, 0o750, [OK, OK, OK, EACCES]),
        (AclInherit::Passthrough, 0o640, 0o750, [OK, OK, OK, OK]),
        (AclInherit::PassthroughX, 0o640, 0o640, [OK, OK, EACCES, OK]),
        (AclInherit::PassthroughX, 0o740, 0o750, [OK, OK, OK, OK]),
    ] {
        let mut world = nfs4(AclMode::Discard, acl_inherit);
        world.set_list(world.directory, list);
        let owner = &callers()[0];
        let made = world
            .mounted
            .make(owner, world.directory, "new", FileKind::Regular, asked);
        let made = made.unwrap();
        assert_eq!(made.permissions, mode, "{acl_inherit:?} {asked:o}");
        world.file = made.id;
        let other = &callers()[2];
        let attempts: [Attempt; 4] = [open_to_read, open_to_write, execute, set_list];
        let found = attempts
            .map(|attempt| attempt(&world, other).map_or_else(|error| error.errno(), |()| OK));
        assert_eq!(found, may, "{acl_inherit:?} {asked:o}");
    }
}

/// The owner may change the list, and what it says is there after it was stored.
#[test]
fn a_list_is_read_as_it_was_set() {
    let world = nfs4(AclMode::Passthrough, AclInherit::Restricted);
    let list = "D::1002:wa,A:fdi:OWNER@:rwaDx,A:fdg:4711:rx,U:fS:EVERYONE@:d,A::EVERYONE@:rxtncy";
    world.set_list(world.directory, list);
    let get = |mounted: &Mounted| {
        let (files, operation) = (&mounted.files, &mounted.operation);
        let root = Credentials::root();
        let name = b"system.nfs4_acl";
        (
            files
                .get_xattr(&root, world.directory, name, operation)
                .unwrap(),
            files.list_xattr(&root, world.directory, operation).unwrap(),
        )
    };
    let named = vec![b"system.nfs4_acl".to_vec()];
    assert_eq!(get(&world.mounted), (nfs4_list(list), named.clone()));
    let stored = world.mounted.remounted();
    assert_eq!(get(&stored), (nfs4_list(list), named));
    let root = Credentials::root();
    let (files, operation) = (&stored.files, &stored.operation);
    files
        .remove_xattr(&root, world.directory, b"system.nfs4_acl", operation)
        .unwrap();
    let plain = "A::OWNER@:rwaDxtTnNcCoy,A:g:GROUP@:rxtncy,A::EVERYONE@:rxtncy";
    world_mode_is(&stored, world.directory, 0o555);
    let (value, names) = get(&stored);
    assert_ne!(value, nfs4_list(plain), "nobody may write by what was left");
    assert!(names.is_empty(), "a list that the mode says is not named");
}

fn world_mode_is(mounted: &Mounted, id: ObjectId, mode: u32) {
    let attributes = mounted.files.attributes(id, &mounted.operation).unwrap();
    assert_eq!(attributes.permissions, mode);
}
