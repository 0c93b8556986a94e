//! Files from before version 5 in a file system that was upgraded: nothing that is changed of them
//! is lost, and OpenZFS reads them.

mod support;

use support::{Mounted, someone};
use tarn_object::{NewObject, Object};
use tarn_ondisk::acl::{
    AclEntry, AclPhys, AclWho, encode_entries, encode_initial_entries, kind, permission,
};
use tarn_ondisk::declare::{ByteOrder, Reader, Stored};
use tarn_ondisk::fuid::Fuid;
use tarn_ondisk::intent_log::{LogRecord, LoggedAttributes, LoggedChange, mask};
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_ondisk::znode::{ZNODE_SIZE, ZnodePhys};
use tarn_posix::properties::{AclType, MountProperties};
use tarn_posix::types::{
    Credentials, DeviceNumber, FileKind, NewFile, RenameMode, SetAttributes, SetTime, Timestamp,
    XattrMode,
};
use tarn_posix::{NewFileSystem, PosixError, WriteAt};
use tarn_zil::Replayer;

use std::sync::Arc;

/// Where the access control list is in the structure of old files.
const ACL_PLACE: usize = 176;

fn root() -> Credentials {
    Credentials::root()
}

/// A file system of version 4.
fn old() -> Mounted {
    let new = NewFileSystem {
        version: 4,
        ..NewFileSystem::default()
    };
    let properties = MountProperties {
        acl_type: AclType::Posix,
        ..MountProperties::default()
    };
    Mounted::with(new, properties)
}

fn file(mounted: &Mounted, name: &str, permissions: u32) -> ObjectId {
    let made = mounted.make(
        &root(),
        mounted.root(),
        name,
        FileKind::Regular,
        permissions,
    );
    made.unwrap().id
}

fn link(mounted: &Mounted, name: &str, target: &[u8]) -> ObjectId {
    let new = NewFile {
        kind: FileKind::SymbolicLink,
        permissions: 0o777,
        umask: 0,
        device: DeviceNumber::default(),
        target: Some(target),
    };
    let (top, name) = (mounted.root(), name.as_bytes());
    let made = mounted
        .files
        .create(&root(), top, name, &new, &mounted.operation);
    made.unwrap().id
}

fn write(mounted: &Mounted, who: &Credentials, id: ObjectId, bytes: &[u8]) {
    let at = WriteAt::Offset(0);
    let written = mounted.files.write(who, id, at, bytes, &mounted.operation);
    assert_eq!(written.unwrap(), bytes.len());
}

fn chmod(mounted: &Mounted, id: ObjectId, permissions: u32) -> Result<(), PosixError> {
    let changes = SetAttributes {
        permissions: Some(permissions),
        ..SetAttributes::default()
    };
    let set = mounted
        .files
        .set_attributes(&root(), id, &changes, &mounted.operation);
    set.map(drop)
}

fn unlink(mounted: &Mounted, name: &str) {
    let (top, name) = (mounted.root(), name.as_bytes());
    mounted
        .files
        .unlink(&root(), top, name, &mounted.operation)
        .unwrap();
}

fn set_xattr(mounted: &Mounted, id: ObjectId, name: &[u8], value: &[u8]) {
    let (files, operation) = (&mounted.files, &mounted.operation);
    files
        .set_xattr(&root(), id, name, value, XattrMode::Any, operation)
        .unwrap();
}

fn xattr(mounted: &Mounted, id: ObjectId, name: &[u8]) -> Vec<u8> {
    let found = mounted
        .files
        .get_xattr(&root(), id, name, &mounted.operation);
    found.unwrap()
}

fn object(mounted: &Mounted, id: ObjectId) -> Arc<Object> {
    let set = mounted.files.object_set();
    set.object(id, &mounted.operation).unwrap()
}

fn bonus_type(mounted: &Mounted, id: ObjectId) -> ObjectType {
    object(mounted, id).typed_bonus().0
}

/// Records as a crash may have left them.
fn replay<const COUNT: usize>(mounted: &Mounted, changes: [LoggedChange; COUNT]) {
    let files = mounted.files.clone();
    let log = files.intent_log().unwrap();
    let mut replayer = Replayer::begin(log, &*files, &mounted.operation);
    for (sequence, change) in (1..).zip(changes) {
        let record = LogRecord {
            txg: Txg::from(1),
            sequence,
            case_insensitive: false,
            change,
        };
        replayer.apply(&record).unwrap();
    }
}

/// Whether a file's attributes have these entries of an access control list.
fn has_entries(mounted: &Mounted, id: ObjectId, entries: &[AclEntry]) -> bool {
    let object = object(mounted, id);
    let (kind, bonus) = object.typed_bonus();
    assert_eq!(kind, ObjectType::SystemAttributes);
    let mut bytes = bonus.to_vec();
    if let Some(spill) = object.spill(&mounted.operation).unwrap() {
        bytes.extend_from_slice(&spill);
    }
    let entries = encode_entries(entries);
    bytes.windows(entries.len()).any(|window| window == entries)
}

fn allow(who: AclWho, mask: u32) -> AclEntry {
    AclEntry {
        kind: kind::ALLOW,
        flags: 0,
        mask,
        who,
        object_types: None,
    }
}

/// What the mode 0600 says.
fn owner_only() -> [AclEntry; 3] {
    [
        allow(AclWho::Owner, 0x1e_019f),
        allow(AclWho::Group, 0x12_0088),
        allow(AclWho::Everyone, 0x12_0088),
    ]
}

/// A list that is too long for the structure.
fn long_list() -> Vec<AclEntry> {
    let users = (0..10).map(|user| allow(AclWho::User(5000 + user), permission::READ_DATA));
    users.collect()
}

/// Gives an old file a long list, which `list` has, as OpenZFS does.
fn name_list(mounted: &Mounted, id: ObjectId, list: ObjectId) {
    let entries = encode_entries(&long_list());
    let (kind, bonus) = object(mounted, id).typed_bonus();
    assert_eq!(kind, ObjectType::Znode);
    let mut bonus = bonus.to_vec();
    let mut acl = list.get().to_le_bytes().to_vec();
    acl.extend(u32::try_from(entries.len()).unwrap().to_le_bytes());
    acl.extend(1_u16.to_le_bytes());
    acl.extend(10_u16.to_le_bytes());
    acl.resize(AclPhys::SIZE, 0);
    bonus[ACL_PLACE..ZNODE_SIZE].copy_from_slice(&acl);
    mounted.change(|_, tx| {
        object(mounted, id)
            .set_typed_bonus(tx, ObjectType::Znode, &bonus)
            .unwrap();
    });
}

/// A long list in an object of its own.
fn new_list(mounted: &Mounted) -> ObjectId {
    let mut id = ObjectId::ZERO;
    mounted.change(|set, tx| {
        let new = NewObject::plain(ObjectType::Acl, 512);
        let object = set.allocate(tx, new, &mounted.operation).unwrap();
        let entries = encode_entries(&long_list());
        object.write(tx, 0, &entries, &mounted.operation).unwrap();
        id = object.id();
    });
    id
}

/// The old file's structure.
fn structure(mounted: &Mounted, id: ObjectId) -> ZnodePhys {
    let (kind, bonus) = object(mounted, id).typed_bonus();
    assert_eq!(kind, ObjectType::Znode);
    let mut reader = Reader::new("file", &bonus, ByteOrder::Little);
    ZnodePhys::decode(&mut reader).unwrap()
}

/// An access control list of POSIX for user 7 beside owner, group and others.
fn posix_list() -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (1_u16, 6_u16, u32::MAX),
        (2, 6, 7),
        (4, 4, u32::MAX),
        (16, 6, u32::MAX),
        (32, 4, u32::MAX),
    ] {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

#[test]
fn an_old_file_keeps_the_attributes_that_it_is_given_first() {
    const LIST: &[u8] = b"system.posix_acl_access";
    let mounted = old();
    let names = ["user", "list", "record", "moved", "entries"];
    let ids = names.map(|name| file(&mounted, name, 0o644));
    let [user, list, record, moved, entries] = ids;
    set_xattr(&mounted, moved, b"user.a", b"in the hidden directory");
    for id in ids {
        write(&mounted, &root(), id, b"old");
    }
    let mounted = mounted.upgraded();
    for id in ids {
        assert_eq!(bonus_type(&mounted, id), ObjectType::Znode);
    }
    set_xattr(&mounted, user, b"user.a", b"first");
    set_xattr(&mounted, moved, b"user.a", b"in the list");
    set_xattr(&mounted, list, LIST, &posix_list());
    let set = LoggedChange::SetXattr {
        object: record,
        name: Text::from("user.a"),
        value: b"recorded".to_vec(),
    };
    let set_list = LoggedChange::SetInitialAcl {
        object: entries,
        entry_count: 3,
        entries: encode_initial_entries(&owner_only()).unwrap(),
    };
    replay(&mounted, [set, set_list]);
    let check = |mounted: &Mounted| {
        assert_eq!(xattr(mounted, user, b"user.a"), b"first");
        assert_eq!(xattr(mounted, moved, b"user.a"), b"in the list");
        assert_eq!(xattr(mounted, record, b"user.a"), b"recorded");
        assert_eq!(xattr(mounted, list, LIST), posix_list());
        assert!(has_entries(mounted, entries, &owner_only()));
        for id in ids {
            assert_eq!(mounted.contents(id), b"old");
            assert_eq!(bonus_type(mounted, id), ObjectType::SystemAttributes);
        }
    };
    check(&mounted);
    check(&mounted.remounted());
}

#[test]
fn a_new_mode_of_an_old_file_is_what_its_list_says() {
    let mounted = old();
    let id = file(&mounted, "f", 0o644);
    chmod(&mounted, id, 0o640).unwrap();
    let acl = structure(&mounted, id).acl;
    let entries = acl.embedded().unwrap().unwrap();
    assert_eq!(entries[2], allow(AclWho::Everyone, 0x12_0088));
    let mounted = mounted.upgraded();
    chmod(&mounted, id, 0o600).unwrap();
    assert!(has_entries(&mounted, id, &owner_only()));
    let mounted = mounted.remounted();
    let seen = mounted.files.attributes(id, &mounted.operation).unwrap();
    assert_eq!(seen.permissions, 0o600);
}

#[test]
fn a_long_list_moves_into_the_file_with_the_first_change() {
    let mounted = old();
    let id = file(&mounted, "f", 0o644);
    let before = mounted.objects();
    let list = new_list(&mounted);
    name_list(&mounted, id, list);
    let mounted = mounted.remounted().upgraded();
    write(&mounted, &root(), id, b"new");
    assert!(has_entries(&mounted, id, &long_list()));
    let added: Vec<u64> = (mounted.objects().into_iter())
        .filter(|object| !before.contains(object))
        .collect();
    assert!(!added.contains(&list.get()), "nothing names it any more");
}

/// The object of the list is another file's soon after it was freed, and nothing may name it then.
#[test]
fn a_long_list_that_a_mode_replaces_goes_once_and_no_file_with_it() {
    for is_upgraded in [false, true] {
        let mut mounted = old();
        let ids = ["chmod", "write", "replay"].map(|name| file(&mounted, name, 0o4757));
        let lists = ids.map(|_| new_list(&mounted));
        for (id, list) in ids.into_iter().zip(lists) {
            name_list(&mounted, id, list);
        }
        mounted = match is_upgraded {
            false => mounted.remounted(),
            true => mounted.remounted().upgraded(),
        };
        let [changed, written, replayed] = ids;
        chmod(&mounted, changed, 0o600).unwrap();
        chmod(&mounted, changed, 0o640).unwrap();
        write(&mounted, &someone(7), written, b"no set-id bit any more");
        let mode = LoggedAttributes {
            object: replayed,
            mask: mask::MODE,
            mode: 0o100_600,
            owner: Fuid::posix(0),
            group: Fuid::posix(0),
            size: 0,
            access_time: [0; 2],
            modification_time: [0; 2],
            extended: None,
            domains: Vec::new(),
        };
        replay(&mounted, [LoggedChange::SetAttributes(Box::new(mode))]);
        let objects = mounted.objects();
        for list in [lists[0], lists[2]] {
            assert!(!objects.contains(&list.get()), "its list was freed");
        }
        // Set-id bits are nothing that a list says: it stays, in the file where that has
        // attributes.
        assert_eq!(objects.contains(&lists[1].get()), !is_upgraded);
        let made: Vec<ObjectId> = (0..200)
            .map(|index| {
                let id = file(&mounted, &format!("new-{index}"), 0o644);
                write(&mounted, &root(), id, &id.get().to_le_bytes());
                id
            })
            .collect();
        for name in ["chmod", "write", "replay"] {
            unlink(&mounted, name);
        }
        let mounted = mounted.remounted();
        for id in made {
            assert_eq!(mounted.contents(id), id.get().to_le_bytes());
        }
    }
}

#[test]
fn what_an_old_file_takes_for_its_list_and_is_none_stays() {
    let mounted = old();
    let [first, second, other] = ["first", "second", "other"].map(|name| {
        let id = file(&mounted, name, 0o644);
        write(&mounted, &root(), id, b"old");
        id
    });
    for id in [first, second] {
        name_list(&mounted, id, other);
    }
    let mounted = mounted.remounted().upgraded();
    // A list that cannot be read is kept for programs that can.
    write(&mounted, &root(), first, b"new");
    set_xattr(&mounted, first, b"user.a", b"value");
    assert_eq!(structure(&mounted, first).acl.external, other);
    chmod(&mounted, first, 0o600).unwrap();
    assert!(has_entries(&mounted, first, &owner_only()));
    unlink(&mounted, "second");
    let mounted = mounted.remounted();
    assert_eq!(mounted.contents(first), b"new");
    assert_eq!(xattr(&mounted, first, b"user.a"), b"value");
    assert_eq!(mounted.contents(other), b"old");
}

/// OpenZFS looks for the target of a link behind the structure, or in the contents, unless it is in
/// the attribute for that.
#[test]
fn an_old_link_stays_in_its_form_whatever_changes() {
    let targets = [vec![b'a'; 20], vec![b'b'; 200]];
    let mounted = old();
    let links = [
        link(&mounted, "short", &targets[0]),
        link(&mounted, "long", &targets[1]),
    ];
    let mounted = mounted.upgraded();
    let (files, operation, top) = (&mounted.files, &mounted.operation, mounted.root());
    let changes = SetAttributes {
        uid: Some(7),
        permissions: Some(0o755),
        modified: Some(SetTime::To(Timestamp {
            seconds: 5,
            nanoseconds: 6,
        })),
        ..SetAttributes::default()
    };
    for (id, name) in links.into_iter().zip([b"short".as_slice(), b"long"]) {
        files
            .set_attributes(&root(), id, &changes, operation)
            .unwrap();
        set_xattr(&mounted, id, b"trusted.a", b"value");
        files
            .link(&root(), id, top, &[name, b"-2"].concat(), operation)
            .unwrap();
        let (moved, mode) = ([name, b"-3"].concat(), RenameMode::Replace);
        files
            .rename(&root(), top, name, top, &moved, mode, operation)
            .unwrap();
    }
    let mounted = mounted.remounted();
    for (id, target) in links.into_iter().zip(&targets) {
        let read = mounted.files.read_link(&root(), id, &mounted.operation);
        assert_eq!(&read.unwrap(), target);
        assert_eq!(xattr(&mounted, id, b"trusted.a"), b"value");
        let seen = structure(&mounted, id);
        assert_eq!((seen.owner, seen.links), (7, 2));
        assert_eq!(seen.modification_time, [5, 6]);
        let entries = seen.acl.embedded().unwrap().unwrap();
        assert_eq!(entries[1], allow(AclWho::Group, 0x12_00a9));
        let (_, bonus) = object(&mounted, id).typed_bonus();
        let mut contents = vec![0; target.len()];
        object(&mounted, id)
            .read(0, &mut contents, &mounted.operation)
            .unwrap();
        assert!(bonus[ZNODE_SIZE..] == target[..] || contents == *target);
    }
    for name in ["short-2", "short-3", "long-2", "long-3"] {
        unlink(&mounted, name);
    }
    assert!(mounted.names(mounted.root()).is_empty());
}
