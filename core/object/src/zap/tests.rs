//! A ZAP against a map, on blocks in memory.

use super::*;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use tarn_ondisk::zap::fat::table_bits_max;
use tarn_ondisk::zap::micro::Micro;

/// An object in memory.
#[derive(Default)]
struct Memory {
    block_size: Cell<usize>,
    blocks: RefCell<BTreeMap<u64, Vec<u8>>>,
    state: ZapState,
    /// How many blocks can be had before one cannot, once.
    good_count: Cell<Option<usize>>,
    /// A block that cannot be had, ever.
    bad_block: Cell<Option<u64>>,
    /// Blocks that were changed in this group, and are in memory.
    dirty: RefCell<BTreeSet<u64>>,
}

impl Memory {
    fn new(block_size: usize) -> Self {
        let memory = Memory::default();
        memory.block_size.set(block_size);
        memory
    }

    /// A group is stored; in the next, one block cannot be had, after so many that can.
    fn next_group(&self, good_count: usize) {
        self.dirty.borrow_mut().clear();
        self.good_count.set(Some(good_count));
    }

    /// Has a block, which fails only where it must be read.
    fn have(&self, block: u64) -> Result<(), ZapError> {
        if self.dirty.borrow().contains(&block) {
            return Ok(());
        }
        match self.good_count.get() {
            good_count if good_count == Some(0) || self.bad_block.get() == Some(block) => {
                self.good_count.set(None);
                let cause = Arc::new(std::io::Error::other("it cannot be read"));
                Err(ZapError::Block { block, cause })
            }
            good_count => {
                self.good_count.set(good_count.map(|count| count - 1));
                Ok(())
            }
        }
    }
}

impl ZapBlocks for &Memory {
    type Tx = ();

    fn block_size(&self) -> usize {
        self.block_size.get()
    }

    fn look(&self, block: u64, look: &mut dyn FnMut(&[u8])) -> Result<(), ZapError> {
        self.have(block)?;
        let bytes = self.blocks.borrow().get(&block).cloned();
        look(&bytes.unwrap_or_else(|| vec![0; self.block_size()]));
        Ok(())
    }

    fn change(
        &self,
        (): &(),
        block: u64,
        change: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), ZapError> {
        self.have(block)?;
        self.dirty.borrow_mut().insert(block);
        let size = self.block_size();
        change(
            self.blocks
                .borrow_mut()
                .entry(block)
                .or_insert_with(|| vec![0; size]),
        );
        Ok(())
    }

    fn free(&self, (): &(), first: u64, count: u64) -> Result<(), ZapError> {
        self.blocks
            .borrow_mut()
            .retain(|block, _| !(first..first + count).contains(block));
        Ok(())
    }

    fn set_block_size(&self, (): &(), bytes: usize) -> Result<(), ZapError> {
        assert!(self.blocks.borrow().keys().all(|&block| block == 0));
        self.block_size.set(bytes);
        if let Some(block) = self.blocks.borrow_mut().get_mut(&0) {
            block.resize(bytes, 0);
        }
        Ok(())
    }

    fn state(&self) -> &ZapState {
        &self.state
    }
}

const SALT: u64 = 0x1234_5678_9abc_def1;

const MICRO: NewZap = NewZap::Micro {
    salt: SALT,
    normalization: 0,
};

fn is_fat(memory: &Memory) -> bool {
    memory.blocks.borrow().len() > 1
}

/// Every entry by a walk, which must give each name once.
fn walk(zap: &Zap<&Memory>, step: usize) -> BTreeMap<Vec<u8>, ZapValue> {
    let mut seen = BTreeMap::new();
    let mut cursor = Cursor::START;
    loop {
        let entries = zap.entries_from(cursor, step).unwrap();
        let Some(last) = entries.last() else {
            return seen;
        };
        cursor = Cursor::from_cookie(
            last.next.to_cookie(ZapFlags::default()),
            ZapFlags::default(),
        );
        for entry in entries {
            let OwnedName::Text(name) = entry.name else {
                panic!("names are text here")
            };
            assert!(
                seen.insert(name, entry.value).is_none(),
                "a name came twice"
            );
        }
    }
}

#[test]
fn an_object_with_larger_blocks_than_zaps_have_does_not_become_one() {
    for (bytes, is_made) in [(512, true), (1 << 20, true), (2 << 20, false)] {
        let made = Zap::create(&Memory::new(bytes), &(), MICRO).map(drop);
        assert_eq!(made.is_ok(), is_made, "{bytes}: {made:?}");
    }
}

#[test]
fn a_small_zap_stays_micro_and_a_big_one_becomes_fat() {
    let memory = Memory::new(512);
    let zap = Zap::create(&memory, &(), MICRO).unwrap();
    for number in 0..2047u64 {
        zap.insert(
            &(),
            format!("file-{number}").as_str(),
            &ZapValue::word(number),
        )
        .unwrap();
    }
    assert!(!is_fat(&memory), "2047 entries fill a micro ZAP of 128 KiB");
    zap.insert(&(), "one more", &ZapValue::word(7)).unwrap();
    assert!(is_fat(&memory));
    assert_eq!(zap.count().unwrap(), 2048);
    assert_eq!(zap.lookup_word("file-99").unwrap(), Some(99));
    assert_eq!(zap.lookup_word("one more").unwrap(), Some(7));
}

#[test]
fn a_long_name_or_a_text_value_makes_it_fat() {
    for (name, value) in [
        ("n".repeat(50), ZapValue::word(1)),
        ("name".to_string(), ZapValue::text("some text")),
    ] {
        let memory = Memory::new(512);
        let zap = Zap::create(&memory, &(), MICRO).unwrap();
        zap.insert(&(), "first", &ZapValue::word(5)).unwrap();
        zap.insert(&(), name.as_str(), &value).unwrap();
        assert!(is_fat(&memory));
        assert_eq!(zap.lookup(name.as_str()).unwrap(), Some(value));
        assert_eq!(zap.lookup_word("first").unwrap(), Some(5));
    }
}

fn hash(name: &[u8]) -> ZapHash {
    ZapHash::of(Name::Text(name), SALT, ZapFlags::default())
}

/// The first bits of a name's hash: all by which leaves are told apart.
fn leaf_of(name: &[u8]) -> u64 {
    hash(name).prefix(table_bits_max(ZapFlags::default()))
}

/// Names of 49 bytes that are in one leaf whatever is split. The hash is linear: which bits of a
/// name change together without changing it is found by elimination.
fn names_alike(count: usize) -> Vec<Vec<u8>> {
    let first = vec![b'`'; 49];
    let differing = |flips: &[(usize, u8)]| {
        let mut name = first.clone();
        flips.iter().for_each(|&(byte, bit)| name[byte] ^= 1 << bit);
        name
    };
    let mut pivots: Vec<(u64, Vec<(usize, u8)>)> = Vec::new();
    let mut silent = Vec::new();
    for flip in (0..49).flat_map(|byte| (0..5).map(move |bit| (byte, bit))) {
        let mut flips = vec![flip];
        let mut change = leaf_of(&differing(&flips)) ^ leaf_of(&first);
        for (pivot, others) in &pivots {
            if change ^ pivot < change {
                change ^= pivot;
                flips.extend(others);
            }
        }
        match change {
            0 => silent.push(flips),
            _ => {
                pivots.push((change, flips));
                pivots.sort_unstable_by(|(one, _), (other, _)| other.cmp(one));
            }
        }
    }
    let names = (0..count).map(|number| {
        let chosen = (0..silent.len()).filter(|place| number >> place.min(&63) & 1 == 1);
        let flips: Vec<_> = chosen.flat_map(|place| silent[place].clone()).collect();
        differing(&flips)
    });
    names.collect()
}

fn assert_found(zap: &Zap<&Memory>, names: &[Vec<u8>]) {
    for name in names {
        let found = zap.lookup(name.as_slice()).unwrap();
        assert_eq!(found, Some(ZapValue::word(hash(name).word())), "{name:?}");
    }
    assert_eq!(walk(zap, 100).len(), names.len());
}

/// Names whose hashes are alike are refused before there are too many for a fat ZAP to hold.
#[test]
fn a_micro_zap_takes_no_more_names_than_a_fat_one_can_hold() {
    let memory = Memory::new(512);
    let zap = Zap::create(&memory, &(), MICRO).unwrap();
    let mut names: Vec<Vec<u8>> = (0..100).map(|n| format!("other-{n}").into()).collect();
    let insert = |name: &[u8]| zap.insert(&(), name, &ZapValue::word(hash(name).word()));
    names.iter().for_each(|name| insert(name).unwrap());
    let alike = names_alike(200);
    for (number, name) in alike.iter().enumerate() {
        match insert(name) {
            Ok(()) => names.push(name.clone()),
            Err(ZapError::Full) => assert!(number >= 127, "{number} are no reason"),
            Err(why) => panic!("{why}"),
        }
    }
    assert_eq!(names.len(), 100 + 127);
    assert!(!is_fat(&memory), "what no fat one can hold makes it none");
    assert_found(&zap, &names);
    names.push(vec![b'n'; 50]);
    insert(&[b'n'; 50]).unwrap();
    assert!(is_fat(&memory));
    assert_found(&zap, &names);
    for name in &alike[127..] {
        assert!(matches!(insert(name), Err(ZapError::Full)));
    }
    assert!(
        memory.blocks.borrow().len() < 100,
        "the table grew for what it could not help"
    );
    zap.blocks().state().forget();
    assert_found(&zap, &names);
}

/// OpenZFS counts only names whose hashes are equal.
#[test]
fn a_micro_zap_that_no_fat_one_can_hold_stays_as_it_is() {
    let memory = Memory::new(512);
    let names = names_alike(200);
    let mut block = vec![0; 16 << 10];
    let mut micro = Micro::format(&mut block, SALT, 0);
    for (slot, name) in names.iter().enumerate() {
        let differentiator = u32::try_from(slot).unwrap();
        micro.add(slot, name, hash(name).word(), differentiator);
    }
    memory.block_size.set(16 << 10);
    memory.blocks.borrow_mut().insert(0, block);
    let zap = Zap::open(&memory);
    assert_found(&zap, &names);
    let long = "n".repeat(50);
    for value in [ZapValue::word(1), ZapValue::text("some text")] {
        let added = zap.insert(&(), long.as_str(), &value);
        assert!(matches!(added, Err(ZapError::Full)));
        assert!(!is_fat(&memory));
        assert_found(&zap, &names);
    }
}

/// Whatever block cannot be had while a name is added, replaced or removed: all other names are
/// there, and it itself is as before or as wanted.
#[test]
fn a_block_that_cannot_be_read_costs_no_names() {
    for good_count in 0..10 {
        let memory = Memory::new(1024);
        let new = NewZap::Fat {
            salt: SALT,
            normalization: 0,
            flags: ZapFlags::default(),
        };
        let zap = Zap::create(&memory, &(), new).unwrap();
        let mut model: BTreeMap<Vec<u8>, ZapValue> = BTreeMap::new();
        let mut failures = 0;
        for number in 0..900u64 {
            let name = format!("{:03}", number % 300).into_bytes();
            let text = "t".repeat(usize::try_from(number / 3).unwrap());
            let value = (number % 13 != 7).then(|| ZapValue::text(&text));
            memory.next_group(good_count);
            let outcome = match &value {
                Some(value) => zap.update(&(), name.as_slice(), value),
                None => zap.remove(&(), name.as_slice()),
            };
            memory.good_count.set(None);
            match &outcome {
                Ok(()) | Err(ZapError::NotFound) => {}
                Err(ZapError::Block { .. }) => {
                    failures += 1;
                    let found = zap.lookup(name.as_slice()).unwrap();
                    assert_eq!(found.as_ref(), model.get(&name), "{number}");
                }
                Err(why) => panic!("{why}"),
            }
            match value.filter(|_| outcome.is_ok()) {
                Some(value) => _ = model.insert(name, value),
                None if outcome.is_ok() => _ = model.remove(&name),
                None => {}
            }
            assert_eq!(zap.count().unwrap(), u64::try_from(model.len()).unwrap());
            if outcome.is_err() || number % 50 == 0 {
                assert_eq!(walk(&zap, 100), model, "{number}");
            }
        }
        assert!(failures > 0, "after {good_count}");
    }
}

#[test]
fn what_is_there_is_not_added_and_what_is_not_is_not_removed() {
    let memory = Memory::new(512);
    let zap = Zap::create(&memory, &(), MICRO).unwrap();
    zap.insert(&(), "a", &ZapValue::word(1)).unwrap();
    assert!(matches!(
        zap.insert(&(), "a", &ZapValue::word(2)),
        Err(ZapError::Exists)
    ));
    assert!(matches!(zap.remove(&(), "b"), Err(ZapError::NotFound)));
    assert!(matches!(
        zap.insert(&(), "", &ZapValue::word(2)),
        Err(ZapError::BadName)
    ));
    assert_eq!(zap.lookup_word("a").unwrap(), Some(1));
}

/// Many names: the pointer table leaves the header and doubles more than once.
#[test]
fn a_hundred_thousand_names_are_all_found() {
    let memory = Memory::new(512);
    let zap = Zap::create(&memory, &(), MICRO).unwrap();
    for number in 0..100_000u64 {
        zap.insert(
            &(),
            format!("{number:08}").as_str(),
            &ZapValue::word(number),
        )
        .unwrap();
    }
    zap.blocks().state().forget();
    assert_eq!(zap.count().unwrap(), 100_000);
    for number in (0..100_000u64).step_by(97) {
        assert_eq!(
            zap.lookup_word(format!("{number:08}").as_str()).unwrap(),
            Some(number)
        );
    }
    assert_eq!(walk(&zap, 1000).len(), 100_000);
}

/// A leaf that says it begins elsewhere, or is for fewer hashes than lead to it, would be listed
/// again and again.
#[test]
fn a_leaf_that_lies_about_its_prefix_is_refused() {
    for length in [16u16, 60, 63] {
        let memory = Memory::new(512);
        let zap = Zap::create(&memory, &(), MICRO).unwrap();
        for number in 0..5000u64 {
            let name = format!("{number:08}");
            zap.insert(&(), name.as_str(), &ZapValue::word(number))
                .unwrap();
        }
        assert!(is_fat(&memory));
        zap.blocks().state().forget();
        for (_, block) in memory.blocks.borrow_mut().range_mut(1..) {
            let is_leaf = block[..8] == (1u64 << 63).to_le_bytes();
            if is_leaf {
                block[16..24].fill(0);
                block[32..34].copy_from_slice(&length.to_le_bytes());
            }
        }
        let listed = zap.entries();
        assert!(matches!(listed, Err(ZapError::Corrupt { .. })), "{length}");
        let added = zap.insert(&(), "one more", &ZapValue::word(1));
        assert!(matches!(added, Err(ZapError::Corrupt { .. })), "{length}");
    }
}

/// The place behind an entry with the largest of all differentiators is the entry itself: it would
/// be listed for ever.
#[test]
fn a_differentiator_that_cannot_be_is_refused() {
    const DIFFERENTIATOR: [usize; 2] = [64 + 8, 12];
    for is_large in [false, true] {
        for lie in [u32::MAX, 1 << 16] {
            let memory = Memory::new(512);
            let zap = Zap::create(&memory, &(), MICRO).unwrap();
            let name = if is_large { "n".repeat(80) } else { "n".into() };
            zap.insert(&(), name.as_str(), &ZapValue::word(1)).unwrap();
            assert_eq!(is_fat(&memory), is_large);
            zap.blocks().state().forget();
            for (number, block) in memory.blocks.borrow_mut().iter_mut() {
                let is_leaf = *number > 0;
                // A leaf's first chunk is behind its header and the heads of chains, two bytes for
                // each 32.
                let entry = if is_leaf { 48 + block.len() / 16 } else { 0 };
                if is_leaf == is_large {
                    block[entry + DIFFERENTIATOR[usize::from(is_leaf)]..][..4]
                        .copy_from_slice(&lie.to_le_bytes());
                }
            }
            let listed = zap.entries();
            assert!(matches!(listed, Err(ZapError::Corrupt { .. })), "{lie:#x}");
        }
    }
}

/// A full leaf, in a ZAP whose names' first words are their hashes, and a name for which it would
/// split.
///
/// The hashes have their first `alike` bits in common.
fn at_a_split(memory: &Memory, flags: ZapFlags, alike: u32) -> (Zap<&Memory>, [u64; 1]) {
    let new = NewZap::Fat {
        salt: SALT,
        normalization: 0,
        flags: flags
            .and(ZapFlags::WORD_NAMES)
            .and(ZapFlags::NAMES_ARE_HASHED),
    };
    let zap = Zap::create(memory, &(), new).unwrap();
    zap.insert(&(), &[0u64][..], &ZapValue::Words(vec![7; 40]))
        .unwrap();
    zap.blocks().state().forget();
    (zap, [1 << (63 - alike)])
}

/// A table that leads to it with fewer bits would have to lead other hashes elsewhere.
#[test]
fn a_leaf_with_more_bits_than_the_table_is_refused() {
    for (length, is_good) in [(0u16, true), (5, true), (6, false), (7, false)] {
        let memory = Memory::new(512);
        let (zap, name) = at_a_split(&memory, ZapFlags::default(), 7);
        let leaf = |block: &mut Vec<u8>| block[32..34].copy_from_slice(&length.to_le_bytes());
        memory.blocks.borrow_mut().get_mut(&1).map(leaf).unwrap();
        let added = zap.insert(&(), &name[..], &ZapValue::word(1));
        match is_good {
            true => added.unwrap(),
            false => assert!(matches!(added, Err(ZapError::Corrupt { block: 1, .. }))),
        }
    }
}

/// Of a header that has a table of many bits, nothing else need be there.
#[test]
fn a_table_that_is_too_large_is_not_walked() {
    use tarn_ondisk::declare::Stored;
    use tarn_ondisk::zap::fat::FatHeader;
    const TABLE: u64 = 2;
    for (shift, length) in [(27, 0), (27, 27u16), (46, 0), (45, 45)] {
        let memory = Memory::new(512);
        let (zap, name) = at_a_split(&memory, ZapFlags::HASH_48_BITS, 45);
        {
            let mut blocks = memory.blocks.borrow_mut();
            let block = blocks.get_mut(&0).unwrap();
            let mut header = FatHeader::open(block).unwrap();
            header.table.block = TABLE;
            header.table.shift = shift;
            header.table.block_count = 1 << (shift - 6);
            header.free_block = TABLE + header.table.block_count;
            header.write_to(block);
            let table = blocks.entry(TABLE).or_insert_with(|| vec![0; 512]);
            table[0] = 1;
            table[8] = 1;
            let leaf = blocks.get_mut(&1).unwrap();
            leaf[32..34].copy_from_slice(&length.to_le_bytes());
        }
        let added = zap.insert(&(), &name[..], &ZapValue::word(1));
        assert!(matches!(added, Err(ZapError::Full)), "{shift} bits");
    }
}

/// What is cut is cut for good.
#[test]
fn a_micro_zap_is_not_cut_where_no_leaf_can_be_made() {
    let memory = Memory::new(512);
    let zap = Zap::create(&memory, &(), MICRO).unwrap();
    for number in 0..1000u64 {
        let name = format!("{number:08}");
        zap.insert(&(), name.as_str(), &ZapValue::word(number))
            .unwrap();
    }
    assert!(!is_fat(&memory) && memory.block_size.get() > 16 << 10);
    let before = walk(&zap, 100);
    memory.dirty.borrow_mut().clear();
    memory.bad_block.set(Some(1));
    let long = "x".repeat(60);
    let added = zap.insert(&(), long.as_str(), &ZapValue::word(1));
    assert!(matches!(added, Err(ZapError::Block { block: 1, .. })));
    assert_eq!(walk(&zap, 100), before);
    memory.bad_block.set(None);
    zap.insert(&(), long.as_str(), &ZapValue::word(1)).unwrap();
    assert_eq!(zap.count().unwrap(), 1001);
}

fn upper() -> Normalize {
    Arc::new(|name| name.to_ascii_uppercase())
}

/// A ZAP that normalises, micro or fat, without entries.
fn normalizing(memory: &Memory, is_large: bool) -> Zap<&Memory> {
    let (salt, normalization) = (3, 1);
    let new = match is_large {
        false => NewZap::Micro {
            salt,
            normalization,
        },
        true => NewZap::Fat {
            salt,
            normalization,
            flags: ZapFlags::default(),
        },
    };
    Zap::create(memory, &(), new)
        .unwrap()
        .with_normalize(upper())
}

fn memory_for(is_large: bool) -> Memory {
    Memory::new(if is_large { 16 << 10 } else { 512 })
}

/// The name that is found, and its value.
fn found(zap: &Zap<&Memory>, name: &str) -> Option<(String, u64)> {
    let entry = zap.find(name).unwrap()?;
    let OwnedName::Text(text) = entry.name else {
        panic!("names are text here")
    };
    let name = String::from_utf8(text).unwrap();
    Some((name, entry.value.as_word().unwrap()))
}

fn entry(name: &str, value: u64) -> Option<(String, u64)> {
    Some((name.to_string(), value))
}

/// In a ZAP that normalises, a name finds the entry that is equal to it, and is found there in the
/// form in which it was given.
#[test]
fn a_name_finds_one_that_is_equal_after_normalising() {
    let memory = Memory::new(512);
    let zap = normalizing(&memory, false);
    zap.insert(&(), "ReadMe", &ZapValue::word(1)).unwrap();
    assert_eq!(found(&zap, "readme"), entry("ReadMe", 1));
    zap.insert(&(), "x".repeat(60).as_str(), &ZapValue::word(2))
        .unwrap();
    assert!(is_fat(&memory));
    assert_eq!(zap.lookup_word("rEADmE").unwrap(), Some(1));

    let plain = Zap::open(&memory);
    assert!(matches!(
        plain.lookup("a"),
        Err(ZapError::Normalized { form: 1 })
    ));
}

/// OpenZFS adds, changes and removes nothing but the very name: `fs@x` and `fs@X` are two snapshots
/// of most datasets.
#[test]
fn names_that_are_only_equal_are_added_changed_and_removed_each_for_itself() {
    for is_large in [false, true] {
        let memory = memory_for(is_large);
        let zap = normalizing(&memory, is_large);
        zap.insert(&(), "x", &ZapValue::word(1)).unwrap();
        zap.update(&(), "X", &ZapValue::word(2)).unwrap();
        assert_eq!(zap.count().unwrap(), 2);
        assert!(matches!(
            zap.insert(&(), "X", &ZapValue::word(3)),
            Err(ZapError::Exists)
        ));
        zap.update(&(), "x", &ZapValue::word(4)).unwrap();
        assert_eq!(found(&zap, "x"), entry("x", 4));
        assert_eq!(found(&zap, "X"), entry("X", 2));
        zap.remove(&(), "x").unwrap();
        assert!(matches!(zap.remove(&(), "x"), Err(ZapError::NotFound)));
        assert_eq!(found(&zap, "x"), entry("X", 2));
        assert_eq!(zap.count().unwrap(), 1);
        zap.insert(&(), "x", &ZapValue::word(5)).unwrap();
        zap.blocks().state().forget();
        assert_eq!(found(&zap, "x"), entry("x", 5));
        assert_eq!(found(&zap, "X"), entry("X", 2));
        assert_eq!(is_fat(&memory), is_large);
        // As does a micro ZAP with both that becomes fat.
        zap.insert(&(), "y".repeat(60).as_str(), &ZapValue::word(6))
            .unwrap();
        assert_eq!(found(&zap, "x"), entry("x", 5));
        assert_eq!(found(&zap, "X"), entry("X", 2));
    }
}

/// Both names of one hash, put into the block as OpenZFS does: with the first differentiators that
/// are free.
#[test]
fn names_of_openzfs_that_are_only_equal_are_told_apart() {
    use tarn_ondisk::zap::{fat::FatHeader, leaf::LeafEdit, micro::Micro};
    let (salt, normalization) = (3, 2);
    for is_large in [false, true] {
        let memory = memory_for(is_large);
        let size = memory.block_size.get();
        let flags = ZapFlags::default();
        let hash = ZapHash::of(Name::Text(b"X"), salt, flags);
        let mut blocks = memory.blocks.borrow_mut();
        let first = blocks.entry(0).or_insert_with(|| vec![0; size]);
        match is_large {
            false => {
                let mut micro = Micro::format(first, salt, normalization);
                micro.add(0, b"X", 1, 0);
                micro.add(1, b"x", 2, 1);
            }
            true => {
                let mut header = FatHeader::new(size.trailing_zeros(), salt, normalization, flags);
                header.entry_count = 2;
                header.format(first);
                let leaf = blocks.entry(1).or_insert_with(|| vec![0; size]);
                let mut leaf = LeafEdit::format(leaf, true);
                for (name, value, differentiator) in [("X", 1, 0), ("x", 2, 1)] {
                    let (name, value) = (Name::Text(name.as_bytes()), ZapValue::word(value));
                    leaf.insert_with(hash, name, &value, differentiator)
                        .unwrap();
                }
            }
        }
        drop(blocks);
        let zap = Zap::open(&memory).with_normalize(upper());
        assert_eq!(found(&zap, "x"), entry("x", 2));
        assert_eq!(found(&zap, "X"), entry("X", 1));
        zap.update(&(), "x", &ZapValue::word(3)).unwrap();
        zap.remove(&(), "X").unwrap();
        assert_eq!(zap.count().unwrap(), 1);
        assert_eq!(found(&zap, "x"), entry("x", 3));
        assert_eq!(found(&zap, "X"), entry("x", 3));
    }
}

/// Where case matters though it is not hashed, a name that is written otherwise is found in its own
/// case only.
#[test]
fn names_that_are_hashed_alike_can_still_be_told_apart() {
    for is_large in [false, true] {
        let memory = memory_for(is_large);
        // Of two forms, one that is hashed and one that is compared, the second keeps the case. A
        // minus stands for nothing.
        let without_minus = |name: &[u8]| -> Vec<u8> {
            let rest = name.iter().filter(|&&byte| byte != b'-');
            rest.copied().collect()
        };
        let hashed: Normalize = Arc::new(move |name| without_minus(name).to_ascii_uppercase());
        let zap = normalizing(&memory, is_large)
            .with_normalize(hashed)
            .with_comparison(Arc::new(without_minus));
        zap.insert(&(), "AB", &ZapValue::word(1)).unwrap();
        assert_eq!(found(&zap, "a-b"), None);
        zap.insert(&(), "ab", &ZapValue::word(2)).unwrap();
        assert_eq!(found(&zap, "a-b"), entry("ab", 2));
        assert_eq!(found(&zap, "A-B"), entry("AB", 1));
        assert_eq!(found(&zap, "Ab"), None);
    }
}

#[test]
fn names_can_be_words() {
    let memory = Memory::new(16 << 10);
    let flags = ZapFlags::WORD_NAMES;
    let new = NewZap::Fat {
        salt: 9,
        normalization: 0,
        flags,
    };
    let zap = Zap::create(&memory, &(), new).unwrap();
    for number in 0..5000u64 {
        zap.insert(
            &(),
            &[number, number + 1][..],
            &ZapValue::Words(vec![1, 2, number]),
        )
        .unwrap();
    }
    let name: &[u64] = &[77, 78];
    assert_eq!(
        zap.lookup(name).unwrap(),
        Some(ZapValue::Words(vec![1, 2, 77]))
    );
}

/// One step of the model test.
#[derive(Debug, Clone)]
enum Step {
    Insert(u16, u64),
    Update(u16, u64),
    UpdateText(u16, usize),
    Remove(u16),
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..600u16;
    prop_oneof![
        8 => (name.clone(), any::<u64>()).prop_map(|(name, value)| Step::Insert(name, value)),
        3 => (name.clone(), any::<u64>()).prop_map(|(name, value)| Step::Update(name, value)),
        1 => (name.clone(), 0..900usize).prop_map(|(name, size)| Step::UpdateText(name, size)),
        4 => name.prop_map(Step::Remove),
        1 => Just(Step::Forget),
    ]
}

/// Names of very different lengths; each number is one name.
fn name_of(number: u16) -> String {
    let length = usize::from(number % 7) * 9;
    format!("{number}-{}", "x".repeat(length))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Random operations leave the same names and values as on a map, and walks in steps of any
    /// size see each name once. Texts among the values make the ZAP fat early in some runs and late
    /// in others.
    #[test]
    fn a_zap_behaves_as_a_map(
        steps in prop::collection::vec(step(), 1..900),
        walk_step in 1..40usize,
    ) {
        let memory = Memory::new(512);
        let zap = Zap::create(&memory, &(), MICRO).unwrap();
        let mut model: BTreeMap<Vec<u8>, ZapValue> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Insert(number, value) => {
                    let name = name_of(number);
                    let outcome = zap.insert(&(), name.as_str(), &ZapValue::word(value));
                    prop_assert_eq!(outcome.is_ok(), !model.contains_key(name.as_bytes()));
                    model.entry(name.into_bytes()).or_insert(ZapValue::word(value));
                }
                Step::Update(number, value) => {
                    let name = name_of(number);
                    zap.update(&(), name.as_str(), &ZapValue::word(value)).unwrap();
                    model.insert(name.into_bytes(), ZapValue::word(value));
                }
                Step::UpdateText(number, size) => {
                    let name = name_of(number);
                    let value = ZapValue::text(&"t".repeat(size));
                    zap.update(&(), name.as_str(), &value).unwrap();
                    model.insert(name.into_bytes(), value);
                }
                Step::Remove(number) => {
                    let name = name_of(number);
                    let outcome = zap.remove(&(), name.as_str());
                    prop_assert_eq!(outcome.is_ok(), model.remove(name.as_bytes()).is_some());
                }
                Step::Forget => zap.blocks().state().forget(),
            }
        }
        prop_assert_eq!(zap.count().unwrap(), u64::try_from(model.len()).unwrap());
        prop_assert_eq!(walk(&zap, walk_step), model);
    }
}
