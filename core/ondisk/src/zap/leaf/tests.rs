//! Tests of leaves: as a map, damaged, full, and in the other byte order.

use super::edit::*;
use super::read::*;
use super::*;
use crate::declare::ByteOrder;
use crate::zap::ZapFlags;
use crate::zap::{Cursor, OwnedName, ZapHash, put, u16_at};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SALT: u64 = 0x1234_5678_9abc_def1;

fn hash_of(name: &[u8]) -> ZapHash {
    ZapHash::of(Name::Text(name), SALT, ZapFlags::default())
}

#[test]
fn an_array_is_no_longer_than_its_leaf() {
    let mut block = vec![0; 512];
    let mut leaf = LeafEdit::format(&mut block, false);
    let value = ZapValue::Words(vec![1, 2, 3, u64::MAX]);
    leaf.insert(hash_of(b"name"), Name::Text(b"name"), &value)
        .expect("there is room");
    let found = leaf.view().find(hash_of(b"name"), Name::Text(b"name"));
    let entry = found.expect("the leaf is sound").expect("it was inserted");
    let first = leaf.geometry.chunk_place(entry.value_chunk);
    leaf.put_u16(first + NEXT_PLACE, entry.value_chunk);
    let longest = leaf.view().chunk_count() * ARRAY_SIZE / 8;
    for (count, is_right) in [(longest, true), (longest + 1, false), (60_000, false)] {
        let entry = LeafEntry {
            integer_count: count_u16(count),
            ..entry
        };
        assert_eq!(leaf.view().value(&entry).is_ok(), is_right, "{count}");
    }
}

#[test]
fn a_name_is_found_with_its_value() {
    let mut block = vec![0; 512];
    let mut leaf = LeafEdit::format(&mut block, false);
    let value = ZapValue::Words(vec![1, 2, 3, u64::MAX]);
    leaf.insert(hash_of(b"name"), Name::Text(b"name"), &value)
        .expect("there is room");
    let leaf = leaf.view();
    leaf.check().expect("it stayed valid");
    let entry = leaf
        .find(hash_of(b"name"), Name::Text(b"name"))
        .expect("it is sound");
    let entry = entry.expect("it is there");
    assert_eq!(leaf.value(&entry), Ok(value));
    assert_eq!(
        leaf.name(&entry, false),
        Ok(OwnedName::Text(b"name".to_vec()))
    );
    assert_eq!(leaf.word(&entry), Ok(None));
    assert_eq!(leaf.find(hash_of(b"nome"), Name::Text(b"nome")), Ok(None));
}

#[test]
fn names_may_be_words() {
    let mut block = vec![0; 512];
    let mut leaf = LeafEdit::format(&mut block, false);
    let words = [7u64, u64::MAX, 1];
    let flags = ZapFlags::WORD_NAMES.and(ZapFlags::NAMES_ARE_HASHED);
    let hash = ZapHash::of(Name::Words(&words), SALT, flags);
    assert_eq!(
        hash,
        ZapHash::ZERO,
        "only the first bits of the first word count"
    );
    leaf.insert(hash, Name::Words(&words), &ZapValue::word(9))
        .expect("there is room");
    let leaf = leaf.view();
    let entry = leaf
        .find(hash, Name::Words(&words))
        .expect("it is sound")
        .expect("it is there");
    assert_eq!(
        leaf.name(&entry, true),
        Ok(OwnedName::Words(words.to_vec()))
    );
    assert_eq!(leaf.word(&entry), Ok(Some(9)));
    leaf.check().expect("it stayed valid");
}

#[test]
fn names_with_one_hash_differ_by_differentiator_and_sort_by_it() {
    let mut block = vec![0; 512];
    let mut leaf = LeafEdit::format(&mut block, true);
    let hash = hash_of(b"a");
    for (index, name) in [b"a", b"A", b"b"].into_iter().enumerate() {
        let differentiator = leaf.insert(hash, Name::Text(name), &ZapValue::word(1));
        assert_eq!(
            differentiator,
            Ok(u32::try_from(index).expect("it is small"))
        );
    }
    let entry = leaf
        .view()
        .find(hash, Name::Text(b"a"))
        .expect("it is sound");
    leaf.remove(&entry.expect("it is there"));
    let matching = leaf
        .view()
        .find_matching(hash, |name| name.eq_ignore_ascii_case(b"a"));
    assert_eq!(
        matching
            .expect("it is sound")
            .map(|entry| entry.differentiator),
        Some(1)
    );
    assert_eq!(
        leaf.insert(hash, Name::Text(b"a"), &ZapValue::word(1)),
        Ok(0)
    );
    let matching = leaf
        .view()
        .find_matching(hash, |name| name.eq_ignore_ascii_case(b"a"));
    assert_eq!(
        matching
            .expect("it is sound")
            .map(|entry| entry.differentiator),
        Some(0)
    );
}

#[test]
fn a_full_leaf_says_so_and_is_unchanged() {
    let mut block = vec![0; 512];
    let mut leaf = LeafEdit::format(&mut block, false);
    let large = ZapValue::Bytes(vec![1; 21 * 16]);
    leaf.insert(hash_of(b"a"), Name::Text(b"a"), &large)
        .expect("it fits exactly");
    assert_eq!(leaf.view().free_count(), 0);
    leaf.view().check().expect("it stayed valid");
    let before = leaf.block.to_vec();
    let refused = leaf.insert(hash_of(b"b"), Name::Text(b"b"), &ZapValue::word(1));
    assert_eq!(refused, Err(LeafFull::MustSplit));
    let larger = ZapValue::Bytes(vec![1; 21 * 17]);
    let refused = leaf.insert(hash_of(b"b"), Name::Text(b"b"), &larger);
    assert_eq!(refused, Err(LeafFull::TooLarge));
    let entry = leaf
        .view()
        .find(hash_of(b"a"), Name::Text(b"a"))
        .expect("it is sound");
    let refused = leaf.update(&entry.expect("it is there"), &larger);
    assert_eq!(refused, Err(LeafFull::TooLarge));
    assert_eq!(leaf.block, before);
}

#[test]
fn freed_chunks_are_zero_and_used_again_in_order() {
    let mut block = vec![0; 512];
    let mut leaf = LeafEdit::format(&mut block, false);
    let value = ZapValue::Bytes((0..60).collect());
    leaf.insert(hash_of(b"a"), Name::Text(b"a"), &value)
        .expect("there is room");
    let first = leaf.block.to_vec();
    let entry = leaf
        .view()
        .find(hash_of(b"a"), Name::Text(b"a"))
        .expect("it is sound");
    leaf.remove(&entry.expect("it is there"));
    // The entry was freed last, before it the name, before that the three chunks of the value.
    let mut order = Vec::new();
    let mut free = u16_at(leaf.block, FREE_CHUNK_PLACE);
    while free != END {
        order.push(free);
        let place = leaf.geometry.chunk_place(free);
        assert!(
            leaf.block[place + 1..place + NEXT_PLACE]
                .iter()
                .all(|&byte| byte == 0)
        );
        free = u16_at(leaf.block, place + NEXT_PLACE);
    }
    assert_eq!(order[..6], [0, 1, 2, 3, 4, 5]);
    leaf.insert(hash_of(b"a"), Name::Text(b"a"), &value)
        .expect("there is room");
    assert_eq!(leaf.block, first);
}

#[test]
fn a_leaf_that_goes_in_circles_is_refused() {
    let mut block = vec![0; 512];
    let mut leaf = LeafEdit::format(&mut block, false);
    let hash = hash_of(b"a");
    leaf.insert(hash, Name::Text(b"a"), &ZapValue::word(1))
        .expect("there is room");
    let chain = leaf.view().chain(hash);
    let head = u16_at(leaf.block, leaf.geometry.head_place(chain));
    let place = leaf.geometry.chunk_place(head) + 2;
    put(&mut block, place, &head.to_le_bytes());
    let leaf = Leaf::open(&block).expect("its header is sound");
    assert!(leaf.find(hash, Name::Text(b"b")).is_err());
    assert!(leaf.entries_from(Cursor::START).is_err());
    assert!(leaf.check().is_err());
}

#[test]
fn a_leaf_with_lost_chunks_is_refused() {
    let mut block = vec![0; 512];
    let mut leaf = LeafEdit::format(&mut block, false);
    leaf.insert(hash_of(b"a"), Name::Text(b"a"), &ZapValue::word(1))
        .expect("there is room");
    // The last of the free ones is cut off, and not counted.
    let free_count = count_u16(leaf.view().free_count() - 1);
    leaf.put_u16(FREE_COUNT_PLACE, free_count);
    assert!(leaf.view().check().is_err());
    // All that are free.
    leaf.put_u16(FREE_COUNT_PLACE, 0);
    leaf.put_u16(FREE_CHUNK_PLACE, END);
    assert!(leaf.view().check().is_err());
    assert!(LeafEdit::open(&mut block).is_err());
}

#[derive(Debug, Clone)]
enum Change {
    Set(u16, Vec<u64>),
    SetText(u16, String),
    Remove(u16),
}

fn change() -> impl Strategy<Value = Change> {
    let name = 0u16..60;
    prop_oneof![
        3 => (name.clone(), prop::collection::vec(any::<u64>(), 0..9))
            .prop_map(|(name, words)| Change::Set(name, words)),
        2 => (name.clone(), "[a-z]{0,40}").prop_map(|(name, text)| Change::SetText(name, text)),
        2 => name.prop_map(Change::Remove),
    ]
}

/// A table of leaves without a table: looked through one by one.
struct Leaves {
    blocks: Vec<Vec<u8>>,
    sorted: bool,
}

impl Leaves {
    fn index(&self, hash: ZapHash) -> usize {
        let covering = |block: &Vec<u8>| Leaf::open(block).expect("it stayed valid").covers(hash);
        self.blocks
            .iter()
            .position(covering)
            .expect("some leaf covers each hash")
    }

    fn set(&mut self, name: &[u8], value: &ZapValue) {
        let hash = hash_of(name);
        loop {
            let index = self.index(hash);
            let mut leaf = LeafEdit::open(&mut self.blocks[index]).expect("it stayed valid");
            let found = leaf
                .view()
                .find(hash, Name::Text(name))
                .expect("it is sound");
            let result = match found {
                Some(entry) => leaf.update(&entry, value),
                None => leaf.insert(hash, Name::Text(name), value).map(|_| ()),
            };
            match result {
                Ok(()) => return,
                Err(LeafFull::MustSplit) => {
                    let mut other = vec![0; 512];
                    leaf.split(&mut other, self.sorted);
                    self.blocks.push(other);
                }
                Err(LeafFull::TooLarge) => panic!("all values are small"),
            }
        }
    }

    fn remove(&mut self, name: &[u8]) {
        let hash = hash_of(name);
        let index = self.index(hash);
        let mut leaf = LeafEdit::open(&mut self.blocks[index]).expect("it stayed valid");
        let found = leaf
            .view()
            .find(hash, Name::Text(name))
            .expect("it is sound");
        if let Some(entry) = found {
            leaf.remove(&entry);
        }
    }

    fn contents(&self) -> BTreeMap<Vec<u8>, ZapValue> {
        let mut contents = BTreeMap::new();
        for block in &self.blocks {
            let leaf = Leaf::open(block).expect("it stayed valid");
            leaf.check().expect("it stayed valid");
            for entry in leaf.entries_from(Cursor::START).expect("it is sound") {
                let Ok(OwnedName::Text(name)) = leaf.name(&entry, false) else {
                    panic!("names are text here");
                };
                contents.insert(name, leaf.value(&entry).expect("it is sound"));
            }
        }
        contents
    }
}

proptest! {
    #[test]
    fn leaves_that_split_behave_like_a_map(
        changes in prop::collection::vec(change(), 0..150),
        sorted: bool,
    ) {
        let mut first = vec![0; 512];
        LeafEdit::format(&mut first, sorted);
        let mut leaves = Leaves { blocks: vec![first], sorted };
        let mut model = BTreeMap::new();
        for change in changes {
            let (name, value) = match change {
                Change::Set(name, words) => (name, Some(ZapValue::Words(words))),
                Change::SetText(name, text) => (name, Some(ZapValue::text(&text))),
                Change::Remove(name) => (name, None),
            };
            let name = format!("a name of some length, number {name}").into_bytes();
            match value {
                Some(value) => {
                    leaves.set(&name, &value);
                    model.insert(name, value);
                }
                None => {
                    leaves.remove(&name);
                    model.remove(&name);
                }
            }
        }
        prop_assert_eq!(leaves.contents(), model);
    }

    #[test]
    fn damaged_leaves_are_read_or_refused_and_never_changed_unsound(
        damage in prop::collection::vec((0usize..512, any::<u8>()), 0..6),
    ) {
        let mut block = vec![0; 512];
        let mut leaf = LeafEdit::format(&mut block, false);
        for name in [b"one", b"two", b"abc"] {
            let value = ZapValue::text("something of several chunks' length");
            leaf.insert(hash_of(name), Name::Text(name), &value).expect("there is room");
        }
        for (place, byte) in damage {
            block[place] = byte;
        }
        if let Ok(leaf) = Leaf::open(&block) {
            let _ = leaf.find(hash_of(b"one"), Name::Text(b"one"));
            for entry in leaf.entries_from(Cursor::START).unwrap_or_default() {
                let _ = leaf.name(&entry, false);
                let _ = leaf.name(&entry, true);
                let _ = leaf.value(&entry);
                let _ = leaf.word(&entry);
            }
        }
        if let Ok(mut leaf) = LeafEdit::open(&mut block) {
            let prefix_length = leaf.view().prefix_length();
            for entry in leaf.view().entries_from(Cursor::START).expect("it was checked") {
                leaf.remove(&entry);
            }
            leaf.view().check().expect("it stayed valid");
            if prefix_length < PREFIX_BITS_MAX {
                leaf.split(&mut vec![0; 512], true);
            }
            leaf.view().check().expect("it stayed valid");
        }
    }

    #[test]
    fn the_other_byte_order_turns_back(words in prop::collection::vec(any::<u64>(), 0..9)) {
        let mut block = vec![0; 512];
        let mut leaf = LeafEdit::format(&mut block, false);
        let value = ZapValue::Words(words);
        leaf.insert(hash_of(b"name"), Name::Text(b"name"), &value).expect("there is room");
        let mut big = block.clone();
        swap(&mut big).expect("it is a leaf");
        crate::zap::to_little_endian(&mut big, ByteOrder::Big).expect("it is a leaf");
        prop_assert_eq!(big, block);
    }
}
