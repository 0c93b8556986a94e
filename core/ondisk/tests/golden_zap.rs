//! ZAP blocks that OpenZFS wrote: their entries come in the order in which its `zdb` prints them
//! (by hash, which proves the hash), and filling a new leaf in the same way gives the same bytes.

use tarn_ondisk::zap::fat::{self, FatHeader};
use tarn_ondisk::zap::leaf::{Leaf, LeafEdit, LeafEntry};
use tarn_ondisk::zap::micro::Micro;
use tarn_ondisk::zap::{BlockKind, Cursor, Name, OwnedName, ZapFlags, ZapHash, ZapValue};

/// A DSL directory's children, and what `zdb` says of them.
const MICRO: (&[u8], &str) = (
    include_bytes!("golden/zap-micro.bin"),
    include_str!("golden/zap-micro.txt"),
);

/// Header and only leaf of a directory, and what `zdb` says of them.
const HEADER: &[u8] = include_bytes!("golden/zap-fat-header.bin");
const LEAF: (&[u8], &str) = (
    include_bytes!("golden/zap-fat-leaf.bin"),
    include_str!("golden/zap-fat-leaf.txt"),
);

/// The layouts of system attributes: values of two-byte integers.
const LAYOUTS: &[u8] = include_bytes!("golden/zap-layouts-leaf.bin");
const LAYOUTS_SALT: u64 = 0x236_e69b;

/// The clone counts of a vdev: names that are words, hashes of 48 bits.
const WORD_NAMES: &[u8] = include_bytes!("golden/zap-word-names-leaf.bin");
const WORD_NAMES_SALT: u64 = 0x432_a4ef;

fn hash_flags() -> ZapFlags {
    ZapFlags::HASH_48_BITS.and(ZapFlags::WORD_NAMES)
}

fn text(leaf: &Leaf<'_>, entry: &LeafEntry) -> Vec<u8> {
    match leaf.name(entry, false).expect("OpenZFS wrote it") {
        OwnedName::Text(text) => text,
        OwnedName::Words(_) => panic!("names are text here"),
    }
}

#[test]
fn a_micro_zap_has_the_entries_that_zdb_prints() {
    let zap = Micro::open(MICRO.0).expect("OpenZFS wrote it");
    let mut entries: Vec<_> = zap.entries().collect();
    entries.sort_by_key(|entry| (zap.hash(entry.name), entry.differentiator));
    let printed: Vec<String> = entries
        .iter()
        .map(|entry| format!("{} = {}", String::from_utf8_lossy(entry.name), entry.value))
        .collect();
    let expected: Vec<&str> = MICRO.1.lines().collect();
    assert_eq!(printed, expected);
}

#[test]
fn a_fat_zap_has_the_header_that_zdb_prints() {
    let header = FatHeader::open(HEADER).expect("OpenZFS wrote it");
    assert_eq!(
        (header.entry_count, header.leaf_count, header.free_block),
        (60, 1, 2)
    );
    assert_eq!((header.shift(), header.salt), (10, 0x236_f775));
    assert!(header.is_embedded());
    for index in 0..1024 {
        let place = header.place(index, fat::BLOCK_SHIFT);
        assert_eq!(fat::pointer(HEADER, place.index), Some(1));
    }
    let mut made = FatHeader::new(fat::BLOCK_SHIFT, header.salt, 0, ZapFlags::default());
    made.entry_count = 60;
    let mut block = vec![0; HEADER.len()];
    made.format(&mut block);
    assert_eq!(block, HEADER);
}

#[test]
fn a_leaf_has_the_entries_that_zdb_prints_in_their_order() {
    let salt = FatHeader::open(HEADER).expect("OpenZFS wrote it").salt;
    let leaf = Leaf::open(LEAF.0).expect("OpenZFS wrote it");
    leaf.check().expect("OpenZFS wrote it");
    let mut printed = Vec::new();
    for entry in leaf.entries_from(Cursor::START).expect("OpenZFS wrote it") {
        let name = text(&leaf, &entry);
        assert_eq!(
            ZapHash::of(Name::Text(&name), salt, ZapFlags::default()),
            entry.hash
        );
        let found = leaf
            .find(entry.hash, Name::Text(&name))
            .expect("OpenZFS wrote it");
        assert_eq!(found, Some(entry));
        let word = leaf
            .word(&entry)
            .expect("OpenZFS wrote it")
            .expect("directories hold words");
        let object = word & ((1 << 48) - 1);
        printed.push(format!("{} = {object} ", String::from_utf8_lossy(&name)));
    }
    let expected: Vec<&str> = LEAF.1.lines().collect();
    assert_eq!(printed.len(), expected.len());
    for (line, expected) in printed.iter().zip(expected) {
        assert!(
            expected.starts_with(line.as_str()),
            "{line} is not {expected}"
        );
    }
}

#[test]
fn values_of_small_integers_are_read() {
    let leaf = Leaf::open(LAYOUTS).expect("OpenZFS wrote it");
    let hash = ZapHash::of(Name::Text(b"6"), LAYOUTS_SALT, ZapFlags::default());
    let entry = leaf
        .find(hash, Name::Text(b"6"))
        .expect("OpenZFS wrote it")
        .expect("it is there");
    let expected = ZapValue::Halves(vec![5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 21, 16, 19, 20]);
    assert_eq!(leaf.value(&entry), Ok(expected));
}

#[test]
fn names_of_words_are_read() {
    let leaf = Leaf::open(WORD_NAMES).expect("OpenZFS wrote it");
    leaf.check().expect("OpenZFS wrote it");
    let mut words = Vec::new();
    for entry in leaf.entries_from(Cursor::START).expect("OpenZFS wrote it") {
        let OwnedName::Words(name) = leaf.name(&entry, true).expect("OpenZFS wrote it") else {
            panic!("names are words here");
        };
        assert_eq!(
            ZapHash::of(Name::Words(&name), WORD_NAMES_SALT, hash_flags()),
            entry.hash
        );
        assert_eq!(leaf.find(entry.hash, Name::Words(&name)), Ok(Some(entry)));
        words.extend(name);
    }
    let expected = [
        3_248_128, 51_220_480, 51_482_624, 51_953_664, 2_375_680, 51_744_768, 51_613_696,
        51_351_552, 3_305_472,
    ];
    assert_eq!(words, expected);
}

/// Takes a leaf's entries in the order of their chunks, which is that of their making, since
/// nothing was removed; and puts them into a new leaf.
#[test]
fn a_leaf_filled_as_openzfs_filled_it_has_the_same_bytes() {
    let golden = Leaf::open(LAYOUTS).expect("OpenZFS wrote it");
    let mut entries = golden
        .entries_from(Cursor::START)
        .expect("OpenZFS wrote it");
    entries.sort_by_key(LeafEntry::chunk);
    let mut made = vec![0; LAYOUTS.len()];
    let mut leaf = LeafEdit::format(&mut made, false);
    for entry in entries {
        let name = golden.name(&entry, false).expect("OpenZFS wrote it");
        let value = golden.value(&entry).expect("OpenZFS wrote it");
        leaf.insert(entry.hash, name.as_name(), &value)
            .expect("there was room");
    }
    assert!(made == LAYOUTS, "the leaves differ");
}

#[test]
fn damaged_blocks_are_refused() {
    for (block, places) in [
        (HEADER, &[0usize, 7, 8, 16, 24, 32, 40][..]),
        // Magic, counts, the free list's head, and the kind of the first entry's chunk.
        (LEAF.0, &[0, 24, 28, 30, 33, 35, 48 + 1024]),
        (MICRO.0, &[0, 7]),
    ] {
        for &place in places {
            let mut damaged = block.to_vec();
            damaged[place] ^= 0x50;
            let refused = match BlockKind::of_block(block) {
                Some(BlockKind::Header) => FatHeader::open(&damaged).is_err(),
                Some(BlockKind::Leaf) => LeafEdit::open(&mut damaged).is_err(),
                _ => Micro::open(&damaged).is_err(),
            };
            assert!(refused, "byte {place} does not matter");
        }
    }
}
