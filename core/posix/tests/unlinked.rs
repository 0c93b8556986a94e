//! What other programs leave in the unlinked set.

mod support;

use std::collections::BTreeSet;

use support::Mounted;
use tarn_object::zap::{ObjectZap, ZapValue};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::ObjectId;
use tarn_ondisk::znode::{MASTER_NODE, master};
use tarn_posix::NewFileSystem;
use tarn_posix::properties::MountProperties;
use tarn_posix::types::{Credentials, FileKind, XattrMode};

/// Where the count of names is in the structure of old files.
const LINKS_PLACE: usize = 96;

/// OpenZFS frees a file first, and puts its directory of extended attributes into the unlinked set, with all that is in it. Here it ended
/// just then. The version is an old one only so that the attributes are at fixed places.
#[test]
fn a_directory_of_extended_attributes_without_a_file_goes_with_all_that_is_in_it() {
    let new = NewFileSystem {
        version: 4,
        ..NewFileSystem::default()
    };
    let mounted = Mounted::with(new, MountProperties::default());
    let (files, operation, top) = (&mounted.files, &mounted.operation, mounted.root());
    let root = Credentials::root();
    let make = |name| {
        mounted
            .make(&root, top, name, FileKind::Regular, 0o644)
            .unwrap()
            .id
    };
    make("other");
    let before: BTreeSet<u64> = mounted.objects().into_iter().collect();
    let id = make("f");
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
}
