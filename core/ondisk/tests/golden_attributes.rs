//! System attributes that OpenZFS wrote: they say what its `zdb` says, and are laid out by us as
//! they were by it.

use tarn_ondisk::acl::{self, AclVersion, AclWho};
use tarn_ondisk::attributes::{AttributeId, Attributes, FileAttribute, Layouts, Registry};
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::nvlist::{Encoding, NvList};
use tarn_ondisk::zap::leaf::Leaf;
use tarn_ondisk::zap::{Cursor, OwnedName, ZapValue};

/// The layouts of the file system that all of these are from.
const LAYOUTS: &[u8] = include_bytes!("golden/zap-layouts-leaf.bin");

/// A file with more extended attributes than its bonus holds.
const SPILLED: (&[u8], &[u8]) = (
    include_bytes!("golden/attributes-file-with-spill-bonus.bin"),
    include_bytes!("golden/attributes-file-with-spill-spill.bin"),
);
/// A directory with one extended attribute.
const DIRECTORY: &[u8] = include_bytes!("golden/attributes-directory-with-xattr-bonus.bin");
const LINK: &[u8] = include_bytes!("golden/attributes-link-bonus.bin");
const DEVICE: &[u8] = include_bytes!("golden/attributes-device-bonus.bin");

/// How many bytes a bonus may have in these files' dnodes of 1 KiB.
const BONUS_SIZE: usize = 1024 - 64 - 128;

fn layouts() -> Layouts {
    let leaf = Leaf::open(LAYOUTS).expect("OpenZFS wrote it");
    let mut layouts = Layouts::new();
    for entry in leaf.entries_from(Cursor::START).expect("OpenZFS wrote it") {
        let name = leaf.name(&entry, false).expect("OpenZFS wrote it");
        let value = leaf.value(&entry).expect("OpenZFS wrote it");
        let (OwnedName::Text(name), ZapValue::Halves(attributes)) = (name, value) else {
            panic!("layouts have numbers for names, and halves for values");
        };
        layouts
            .add_entry(&name, &attributes)
            .expect("OpenZFS wrote it");
    }
    layouts
}

fn decode(buffers: &[&[u8]]) -> Attributes {
    let mut attributes = Attributes::new();
    for buffer in buffers {
        attributes
            .add_buffer(buffer, &Registry::of_new_files(), &layouts())
            .expect("OpenZFS wrote it");
    }
    attributes
}

fn id(attribute: FileAttribute) -> AttributeId {
    Registry::of_new_files()
        .id(attribute)
        .expect("it is registered")
}

fn word(attributes: &Attributes, attribute: FileAttribute) -> Option<u64> {
    attributes.word(id(attribute))
}

#[test]
fn a_directory_has_the_attributes_that_zdb_prints() {
    let directory = decode(&[DIRECTORY]);
    for (attribute, expected) in [
        (FileAttribute::Owner, 4_000_000_000),
        (FileAttribute::Group, 3_000_000_000),
        (FileAttribute::Generation, 59),
        (FileAttribute::Mode, 0o41777),
        (FileAttribute::Size, 12),
        (FileAttribute::Parent, 34),
        (FileAttribute::Links, 2),
        (FileAttribute::Flags, 0x8408_0000_0144),
        (FileAttribute::Project, 0),
        (FileAttribute::AclCount, 3),
    ] {
        assert_eq!(
            word(&directory, attribute),
            Some(expected),
            "{}",
            attribute.name()
        );
    }
    let [seconds, _] = directory
        .two_words(id(FileAttribute::CreationTime))
        .expect("it has one");
    assert_eq!(seconds, 1_795_191_952);
    let packed = directory
        .get(id(FileAttribute::Xattrs))
        .expect("it has some");
    let xattrs = NvList::decode(packed).expect("OpenZFS wrote it");
    assert_eq!(xattrs.bytes("user.ondir"), Ok(&b"directory attribute"[..]));
    assert_eq!(xattrs.encode(Encoding::Xdr), packed);
}

#[test]
fn a_link_has_its_target_and_a_device_its_number() {
    let link = decode(&[LINK]);
    assert_eq!(
        link.get(id(FileAttribute::LinkTarget)),
        Some(&b"rand-513"[..])
    );
    let device = decode(&[DEVICE]);
    assert_eq!(word(&device, FileAttribute::Device), Some(0x1030_012c));
    assert_eq!(word(&device, FileAttribute::Mode), Some(0o60640));
}

#[test]
fn a_list_of_three_entries_says_what_the_mode_says() {
    let link = decode(&[LINK]);
    let stored = link
        .get(id(FileAttribute::AclEntries))
        .expect("it has some");
    let entries = acl::decode_entries(stored, ByteOrder::Little, AclVersion::Fuid);
    let entries = entries.expect("OpenZFS wrote it");
    let who: Vec<AclWho> = entries.iter().map(|entry| entry.who).collect();
    assert_eq!(who, [AclWho::Owner, AclWho::Group, AclWho::Everyone]);
    assert_eq!(acl::encode_entries(&entries), stored);
}

#[test]
fn attributes_are_laid_out_as_openzfs_laid_them_out() {
    for buffers in [
        &[DIRECTORY][..],
        &[LINK],
        &[DEVICE],
        &[SPILLED.0, SPILLED.1],
    ] {
        let attributes = decode(buffers);
        let encoded = attributes
            .encode(BONUS_SIZE, &Registry::of_new_files(), &mut layouts())
            .expect("it was stored before");
        assert_eq!(encoded.new_layouts, []);
        assert_eq!(encoded.bonus.len(), buffers[0].len());
        assert_eq!(encoded.spill.is_some(), buffers.len() == 2);
        match (encoded.spill, buffers) {
            (Some(spill), [bonus, block]) => {
                // What follows the values is not cleared by OpenZFS.
                let end = 8 + 168;
                assert_eq!(encoded.bonus[..end], bonus[..end]);
                assert!(encoded.bonus[end..].iter().all(|&byte| byte == 0));
                assert_eq!(spill, block[..spill.len()]);
                assert_eq!(block.len(), spill.len().next_multiple_of(512));
            }
            _ => assert_eq!(encoded.bonus, buffers[0]),
        }
    }
}

#[test]
fn damaged_buffers_are_refused() {
    for (place, byte) in [(0, 0x5b), (4, 0x01), (4, 0x09), (5, 0xfc), (6, 0xff)] {
        let mut damaged = LINK.to_vec();
        damaged[place] = byte;
        let mut attributes = Attributes::new();
        let read = attributes.add_buffer(&damaged, &Registry::of_new_files(), &layouts());
        let is_empty = attributes.iter().next().is_none();
        assert!(read.is_err() || is_empty, "byte {place} does not matter");
    }
}
