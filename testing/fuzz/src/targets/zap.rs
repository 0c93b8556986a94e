//! ZAPs: the micro form, and header, table and leaves of the fat form; read, and changed as an open
//! pool changes them.

use crate::piece::{Kind, Piece};
use crate::target::{Input, Target, sized, told};
use tarn_ondisk::declare::widen;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::zap::fat::{self, FatHeader};
use tarn_ondisk::zap::leaf::{Leaf, LeafEdit};
use tarn_ondisk::zap::micro::{self, Micro};
use tarn_ondisk::zap::{
    BlockKind, Cursor, Name, OwnedName, ZapFlags, ZapHash, ZapValue, to_little_endian,
};

/// A ZAP of one block, all of it.
pub const MICRO: Target = Target {
    name: "zap-micro",
    about: "ZAPs in one block",
    run: micro,
    seed: |piece| seed(BlockKind::Micro, piece),
    size_max: 4 << 10,
    memory_per_byte: 16,
    memory_extra: 0,
};

/// The blocks of a fat ZAP.
pub const FAT: Target = Target {
    name: "zap-fat",
    about: "headers, pointer tables and leaves of large ZAPs",
    run: fat,
    seed: |piece| seed(BlockKind::Leaf, piece).or_else(|| seed(BlockKind::Header, piece)),
    size_max: (16 << 10) + 1,
    memory_per_byte: 64,
    // A block has at least its size, however short the input is.
    memory_extra: 1 << 20,
};

/// The largest block of a fat ZAP that is tried: 2^14 bytes, what OpenZFS makes.
const BLOCK_SHIFT_MAX: u8 = 14;

/// Entries that are tried out on a leaf.
const ENTRIES_TRIED: usize = 40;

fn seed(wanted: BlockKind, piece: &Piece) -> Option<Vec<u8>> {
    let Kind::Data(code) = piece.kind else {
        return None;
    };
    let is_zap = ObjectType::from_code(code).is_zap() || code >= 128;
    let kind = BlockKind::of_block(&piece.bytes).filter(|kind| is_zap && *kind == wanted)?;
    match kind {
        BlockKind::Micro => told(&[0], &piece.bytes),
        _ => {
            let shift = u8::try_from(piece.bytes.len().next_power_of_two().ilog2()).ok()?;
            told(&[shift.saturating_sub(9) << 1], &piece.bytes)
        }
    }
}

fn micro(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let order = input.order();
    // Whole slots, as all blocks have.
    let mut block = sized(input.rest, input.rest.len().next_multiple_of(64));
    if to_little_endian(&mut block, order).is_err() {
        return;
    }
    let Ok(zap) = Micro::open(&block[..]) else {
        return;
    };
    let _ = (zap.header(), zap.normalization());
    let entries: Vec<_> = zap.entries().collect();
    assert!(entries.len() <= zap.slot_count());
    let mut differentiators = Vec::new();
    for entry in &entries {
        assert_eq!(zap.entry(entry.slot), Some(*entry));
        assert!(
            zap.find(entry.name)
                .is_some_and(|found| found.name == entry.name)
        );
        let _ = (
            zap.hash(entry.name),
            micro::must_be_fat(entry.name, &ZapValue::word(entry.value)),
        );
        differentiators.push(entry.differentiator);
    }
    let _ = micro::unused_differentiator(&mut differentiators);
    let _ = (
        zap.entry(usize::MAX),
        micro::grown_size(block.len(), 1 << 20),
    );
    let names: Vec<Vec<u8>> = entries.iter().map(|entry| entry.name.to_vec()).collect();
    change_micro(block, &names);
}

fn change_micro(block: Vec<u8>, names: &[Vec<u8>]) {
    let mut zap = Micro::open(block).expect("it was opened");
    if let Some(slot) = zap.free_slot(3) {
        zap.add(slot, b"a name", 7, 1);
        assert_eq!(zap.entry(slot).map(|entry| entry.value), Some(7));
        zap.set_value(slot, 8);
        zap.remove(slot);
        assert_eq!(zap.entry(slot), None);
    }
    for name in names {
        while let Some(slot) = zap.find(name).map(|entry| entry.slot) {
            zap.remove(slot);
        }
    }
    assert_eq!(zap.entries().count(), 0, "all names were removed");
}

fn fat(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let how = input.byte();
    let shift = 9 + (how >> 1) % (BLOCK_SHIFT_MAX - 8);
    let mut block = sized(input.rest, 1 << shift);
    if to_little_endian(&mut block, crate::target::order_of(how)).is_err() {
        return;
    }
    if let Ok(header) = FatHeader::open(&block) {
        head(header, &block, u32::from(shift));
    }
    if let Ok(leaf) = Leaf::open(&block) {
        read_leaf(&leaf);
    }
    change_leaf(block);
}

fn head(mut header: FatHeader, block: &[u8], block_shift: u32) {
    let flags = header.flags();
    let last = (1_u64 << header.shift()) - 1;
    for index in [0, last / 2, last] {
        let place = header.place(index, block_shift);
        if place.block == 0 {
            let pointer =
                fat::pointer(block, place.index).expect("an embedded table is in the block");
            let _ = fat::bad_pointer(place, pointer).to_string();
        }
        let _ = header.places_in_next(index, block_shift);
    }
    for name in [&b""[..], b"name"] {
        let hash = ZapHash::of(Name::Text(name), header.salt, flags);
        assert!(header.index(hash) <= last, "a hash leads into the table");
        let cursor = Cursor::after(hash, 3);
        let _ = Cursor::from_cookie(cursor.to_cookie(flags), flags);
    }
    for length in [0, 1, header.shift(), 64] {
        if let Some(entries) = header.entries_of(1, length) {
            assert!(entries.end <= last + 1, "a leaf's entries are in the table");
        }
    }
    // The table grows, twice.
    if header.is_embedded() {
        let mut table = vec![0; block.len()];
        if header.make_external(block, &mut table).is_err() {
            return;
        }
    }
    for _ in 0..3 {
        if header.next_copy().is_err() {
            return;
        }
        let _ = header.record_copy();
    }
    let mut stored = vec![0; block.len()];
    header.format(&mut stored);
    FatHeader::open(&stored).expect("a header that grew is a header");
}

fn read_leaf(leaf: &Leaf<'_>) {
    let _ = (
        leaf.header(),
        leaf.free_count(),
        leaf.chunk_count(),
        leaf.check(),
    );
    let hash = ZapHash::of(Name::Text(b"name"), 1, ZapFlags::default());
    let _ = (leaf.covers(hash), leaf.find(hash, Name::Text(b"name")));
    let Ok(entries) = leaf.entries_from(Cursor::START) else {
        return;
    };
    assert!(entries.len() <= leaf.chunk_count());
    for entry in entries.iter().take(ENTRIES_TRIED) {
        let _ = (leaf.value(entry), leaf.word(entry), leaf.name(entry, true));
        if let Ok(OwnedName::Text(name)) = leaf.name(entry, false) {
            let _ = leaf.find(entry.hash, Name::Text(&name));
            let _ = leaf.find_matching(entry.hash, |other| other == name);
        }
    }
    if let Some(entry) = entries.last() {
        let behind = Cursor::after(entry.hash, entry.differentiator);
        let _ = leaf.entries_from(behind);
    }
}

/// Changes a leaf that was accepted, which then must be sound after each change.
fn change_leaf(mut block: Vec<u8>) {
    let mut other = vec![0; block.len()];
    let Ok(mut leaf) = LeafEdit::open(&mut block) else {
        return;
    };
    let sound = |leaf: &LeafEdit<'_>, what: &str| {
        let checked = leaf.view().check();
        checked.unwrap_or_else(|error| panic!("{what}: the leaf is not sound any more: {error}"));
    };
    let entries = leaf
        .view()
        .entries_from(Cursor::START)
        .expect("a checked leaf has entries");
    assert_eq!(entries.len(), leaf.view().entry_count());
    for (number, entry) in entries.iter().take(ENTRIES_TRIED).enumerate() {
        leaf.view().value(entry).expect("a checked leaf has values");
        leaf.view()
            .name(entry, false)
            .expect("a checked leaf has names");
        match number % 3 {
            0 => leaf.remove(entry),
            1 => _ = leaf.update(entry, &ZapValue::Words(vec![widen(number); number])),
            _ => _ = leaf.update(entry, &ZapValue::Bytes(vec![1; 3 * number])),
        }
    }
    sound(&leaf, "after changes");
    for number in 0..ENTRIES_TRIED {
        let name = format!("a new name, number {number}");
        let hash = ZapHash::of(Name::Text(name.as_bytes()), 5, ZapFlags::default());
        if leaf.view().covers(hash) {
            let _ = leaf.insert(hash, Name::Text(name.as_bytes()), &ZapValue::word(1));
        }
    }
    sound(&leaf, "after insertions");
    let count = leaf.view().entry_count();
    if leaf.view().prefix_length() < 40 {
        let new = leaf.split(&mut other, false);
        sound(&new, "a new leaf");
        sound(&leaf, "after a split");
        assert_eq!(count, leaf.view().entry_count() + new.view().entry_count());
    }
}
