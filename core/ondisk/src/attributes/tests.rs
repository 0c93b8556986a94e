//! Tests of attributes: stored and read back, damaged, and with registries that lie.

use super::*;
use crate::declare::ByteOrder;
use proptest::prelude::*;

fn id(registry: &Registry, attribute: FileAttribute) -> AttributeId {
    registry
        .id(attribute)
        .expect("a new file system has all attributes")
}

/// A file with several attributes of their own size, the last of `size` bytes.
fn sample(registry: &Registry, size: usize) -> Attributes {
    let mut attributes = Attributes::new();
    attributes.set_word(id(registry, FileAttribute::Mode), 0o100_644);
    attributes.set_two_words(id(registry, FileAttribute::AccessTime), [1, 2]);
    attributes.set(id(registry, FileAttribute::AclEntries), vec![0; 24]);
    attributes.set(id(registry, FileAttribute::LinkTarget), b"target");
    attributes.set_word(id(registry, FileAttribute::Links), 1);
    attributes.set(id(registry, FileAttribute::Xattrs), vec![7; size]);
    attributes
}

#[test]
fn attributes_have_the_numbers_they_have_in_every_file_system() {
    let registry = Registry::of_new_files();
    assert_eq!(id(&registry, FileAttribute::AccessTime), AttributeId(0));
    assert_eq!(id(&registry, FileAttribute::ZnodeAcl), AttributeId(15));
    assert_eq!(id(&registry, FileAttribute::AclEntries), AttributeId(19));
    assert_eq!(id(&registry, FileAttribute::Project), AttributeId(21));
    assert_eq!(FileAttribute::Project.fixed_id(), None);
}

#[test]
fn a_registration_is_the_word_that_openzfs_stores() {
    // As `zdb` prints ZPL_SCANSTAMP: 20030012 : [32:3:18].
    let scan_stamp = Registration {
        id: AttributeId(18),
        size: 32,
        form: AttributeForm::Bytes,
    };
    assert_eq!(scan_stamp.to_word(), 0x2003_0012);
    assert_eq!(Registration::from_word(0x2003_0012), Ok(scan_stamp));
    assert!(Registration::from_word(0x2009_0012).is_err());
}

#[test]
fn what_fits_stays_in_the_bonus_and_the_rest_spills() {
    let registry = Registry::of_new_files();
    let mut layouts = Layouts::new();
    let small = sample(&registry, 8).encode(320, &registry, &mut layouts);
    let small = small.expect("it is small");
    assert_eq!(small.spill, None);
    assert_eq!(small.new_layouts, [LayoutId(2)]);
    // Three sizes: the first is in the header's eight bytes, two more need eight again.
    assert_eq!(small.bonus.len(), 16 + 8 + 16 + 24 + 8 + 8 + 8);
    let large = sample(&registry, 300).encode(320, &registry, &mut layouts);
    let large = large.expect("it is not too large");
    let spill = large.spill.expect("300 bytes do not fit");
    assert_eq!(spill.len(), 8 + 300);
    assert_eq!(large.bonus.len(), 320 - 128);
    assert_eq!(large.new_layouts, [LayoutId(3), LayoutId(4)]);
    let too_large = sample(&registry, 65_000);
    assert!(too_large.encode(320, &registry, &mut layouts).is_ok());
}

/// What the disk says of an attribute's size is not what its values have.
#[test]
fn a_registry_that_lies_is_an_error_when_attributes_are_stored() {
    let mode = FileAttribute::Mode;
    let lying = Registration {
        size: 24,
        ..Registry::of_new_files()
            .registration(AttributeId(5))
            .expect("mode has a number in every file system")
    };
    let word = [(mode.name().as_bytes(), lying.to_word())];
    let refused = Registry::from_entries(word);
    assert!(refused.is_err(), "its number is known");
    let project = Registration {
        id: AttributeId(u16::MAX),
        size: 24,
        form: AttributeForm::Words,
    };
    let name = FileAttribute::Project.name().as_bytes();
    let entries = [(name, project.to_word())];
    let mut registry = Registry::from_entries(entries).expect("the number is free");
    let mut attributes = Attributes::new();
    attributes.set_word(id(&registry, FileAttribute::Project), 7);
    let encoded = attributes.encode(320, &registry, &mut Layouts::new());
    let expected = CannotEncode::OtherSize {
        attribute: u16::MAX,
        size: 8,
        registered: 24,
    };
    assert_eq!(encoded.map(|_| ()), Err(expected));
    let next = registry.register(FileAttribute::Xattrs);
    assert!(next < AttributeId(u16::MAX), "there is none behind it");
}

#[test]
fn a_big_endian_buffer_reads_the_same() {
    let registry = Registry::of_new_files();
    let mut layouts = Layouts::new();
    let mode = id(&registry, FileAttribute::Mode);
    let target = id(&registry, FileAttribute::LinkTarget);
    layouts
        .add_entry(b"2", &[mode.0, target.0])
        .expect("it is a layout");
    let mut buffer = MAGIC.to_be_bytes().to_vec();
    buffer.extend(((1u16 << 10) | 2).to_be_bytes());
    buffer.extend(3u16.to_be_bytes());
    buffer.extend(0o120_777u64.to_be_bytes());
    buffer.extend(b"way");
    let mut attributes = Attributes::new();
    attributes
        .add_buffer(&buffer, &registry, &layouts)
        .expect("both byte orders are read");
    assert_eq!(attributes.word(mode), Some(0o120_777));
    assert_eq!(attributes.get(target), Some(&b"way"[..]));
}

#[test]
fn an_old_file_reads_as_attributes_and_back() {
    let mut bytes: Vec<u8> = (0..=255).chain(0..8).collect();
    let attributes = Attributes::of_old_file(&bytes, ByteOrder::Little);
    let attributes = attributes.expect("it is long enough");
    let size = FileAttribute::Size
        .fixed_id()
        .expect("old files have a size");
    let expected = u64::from_le_bytes([80, 81, 82, 83, 84, 85, 86, 87]);
    assert_eq!(attributes.word(size), Some(expected));
    assert_eq!(attributes.to_old_file().as_ref(), Some(&bytes));
    bytes.pop();
    assert!(Attributes::of_old_file(&bytes, ByteOrder::Little).is_err());
}

#[test]
fn a_layout_that_is_not_one_is_refused() {
    let mut layouts = Layouts::new();
    assert!(layouts.add_entry(b"1", &[1]).is_err());
    assert!(layouts.add_entry(b"1024", &[1]).is_err());
    assert!(layouts.add_entry(b"two", &[1]).is_err());
    assert!(layouts.add_entry(b"2", &[1, 1]).is_err());
    assert!(layouts.add_entry(b"2", &[1, 2]).is_ok());
    assert_eq!(
        layouts.find(&[AttributeId(1), AttributeId(2)]),
        Some(LayoutId(2))
    );
    assert_eq!(
        layouts.find_or_add(&[AttributeId(2)]),
        Some((LayoutId(3), true))
    );
}

proptest! {
    #[test]
    fn attributes_survive_being_stored(
        sizes in (0usize..400, 0usize..400, 0usize..400),
        bonus_words in 24usize..100,
    ) {
        let registry = Registry::of_new_files();
        let mut layouts = Layouts::new();
        let mut attributes = sample(&registry, sizes.0);
        attributes.set(id(&registry, FileAttribute::LinkTarget), vec![1; sizes.1]);
        attributes.set(id(&registry, FileAttribute::AclEntries), vec![2; sizes.2]);
        let bonus_size = 8 * bonus_words;
        let stored = attributes.encode(bonus_size, &registry, &mut layouts);
        let stored = stored.expect("it is not too large");
        let mut read = Attributes::new();
        read.add_buffer(&stored.bonus, &registry, &layouts).expect("we wrote it");
        let room = match &stored.spill {
            None => bonus_size,
            Some(spill) => {
                read.add_buffer(spill, &registry, &layouts).expect("we wrote it");
                bonus_size - POINTER_SIZE
            }
        };
        prop_assert!(stored.bonus.len() <= room);
        prop_assert_eq!(read, attributes);
    }

    #[test]
    fn any_bytes_are_attributes_or_refused(
        mut buffer in prop::collection::vec(any::<u8>(), 0..300),
        layout in 0u8..4,
        size in 0u8..64,
    ) {
        let registry = Registry::of_new_files();
        let mut layouts = Layouts::new();
        layouts.add_entry(b"2", &[5, 19, 0, 20, 17]).expect("it is a layout");
        layouts.add_entry(b"3", &[99]).expect("it is a layout");
        let _ = Attributes::new().add_buffer(&buffer, &registry, &layouts);
        if buffer.len() >= 8 {
            for magic in [MAGIC.to_le_bytes(), MAGIC.to_be_bytes()] {
                buffer[..4].copy_from_slice(&magic);
                let info = (u16::from(size) << 10) | u16::from(layout);
                buffer[4..6].copy_from_slice(&info.to_le_bytes());
                let _ = Attributes::new().add_buffer(&buffer, &registry, &layouts);
                buffer[4..6].copy_from_slice(&info.to_be_bytes());
                let _ = Attributes::new().add_buffer(&buffer, &registry, &layouts);
            }
        }
        let _ = Attributes::of_old_file(&buffer, ByteOrder::Big);
    }
}
