//! The fat ZAP: header, pointer table, leaves.
//!
//! # Mechanism
//! A name's leaf is found through the table. When a leaf is full it splits by one more bit of the
//! hash; if the table has no such bit, it grows first, and an external table grows a block at a
//! time, so no single insert pays for all of it. Leaves are never joined again: OpenZFS shrinks
//! them since 2.3, and reads those that are not shrunk.

use super::state::{CHECKED_LEAVES_MAX, FatState, Kind, Rules};
use super::{Present, Wanted, ZapBlocks, ZapEntry, ZapError, change, corrupt, look};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tarn_ondisk::declare::Corrupt;
use tarn_ondisk::zap::fat::{self, FatHeader, TablePlace, table_bits_max};
use tarn_ondisk::zap::leaf::{FREE_CHUNKS_LOW, Leaf, LeafEdit, LeafEntry, LeafFull};
use tarn_ondisk::zap::{Cursor, Name, ZapFlags, ZapHash, ZapValue};

/// The size of blocks of a micro ZAP that becomes fat.
pub(super) const BLOCK_BYTES: usize = 1 << fat::BLOCK_SHIFT;

/// Splits that one insert may cause: one per bit of a hash.
const SPLITS_MAX: usize = 64;

/// How many entries of the table one split may have to copy or change: half of the largest one of
/// names that have 28 bits of hash. A damaged header of names with 48 says that there are far more.
const TABLE_WORDS_MAX: u64 = 1 << 25;

/// Makes an empty fat ZAP: a header and one leaf.
pub(super) fn create<B: ZapBlocks>(blocks: &B, tx: &B::Tx, rules: Rules) -> Result<Kind, ZapError> {
    let block_shift = shift_of(blocks);
    let header = FatHeader::new(block_shift, rules.salt, rules.normalization, rules.flags);
    let sorted = rules.normalization != 0;
    change(blocks, tx, 1, |block| {
        LeafEdit::format(block, sorted);
        Ok(())
    })?;
    change(blocks, tx, 0, |block| {
        header.format(block);
        Ok(())
    })?;
    Ok(Kind::Fat(FatState {
        header,
        checked: BTreeSet::from([1]),
    }))
}

/// Refuses entries that a fat ZAP of the usual size of blocks cannot hold: those that are alike in
/// all bits that the table may have must fit into one leaf.
pub(super) fn require_room(
    entries: impl Iterator<Item = (ZapHash, usize)>,
    rules: Rules,
) -> Result<(), ZapError> {
    let room = LeafEdit::format(&mut vec![0; BLOCK_BYTES], false)
        .view()
        .chunk_count();
    let bits = table_bits_max(rules.flags);
    let mut taken: BTreeMap<u64, usize> = BTreeMap::new();
    for (hash, chunks) in entries {
        let alike = taken.entry(hash.prefix(bits)).or_default();
        *alike += chunks;
        refuse_if(*alike > room)?;
    }
    Ok(())
}

/// Decodes the header.
pub(super) fn load(block: &[u8]) -> Result<Kind, ZapError> {
    let header = FatHeader::open(block).map_err(corrupt(0))?;
    Ok(Kind::Fat(FatState {
        header,
        checked: BTreeSet::new(),
    }))
}

/// The power of two that is the block size.
fn shift_of<B: ZapBlocks>(blocks: &B) -> u32 {
    blocks.block_size().trailing_zeros()
}

/// The block of the leaf that a hash leads to.
fn leaf_block<B: ZapBlocks>(
    blocks: &B,
    header: &FatHeader,
    hash: ZapHash,
) -> Result<u64, ZapError> {
    let place = header.place(header.index(hash), shift_of(blocks));
    let leaf = look(blocks, place.block, |block| {
        Ok(fat::pointer(block, place.index).unwrap_or_default())
    })?;
    if leaf == 0 || leaf >= header.free_block {
        return Err(corrupt(place.block)(fat::bad_pointer(place, leaf)));
    }
    Ok(leaf)
}

/// The leaf that a hash leads to. A leaf of other hashes is refused: going on after it would loop,
/// or split what is not there.
fn open_leaf(bytes: &[u8], block: u64, hash: ZapHash) -> Result<Leaf<'_>, ZapError> {
    let leaf = Leaf::open(bytes).map_err(corrupt(block))?;
    leaf.require(hash).map_err(corrupt(block))?;
    Ok(leaf)
}

/// True when names are words here.
fn has_words(header: &FatHeader) -> bool {
    header.flags().has(ZapFlags::WORD_NAMES)
}

/// The entry of a name in its leaf: of exactly that name if it is there, else of one that is equal,
/// where that will do.
fn entry_in(
    leaf: &Leaf<'_>,
    block: u64,
    wanted: &Wanted<'_>,
) -> Result<Option<LeafEntry>, ZapError> {
    let exact = leaf
        .find(wanted.hash, wanted.name)
        .map_err(corrupt(block))?;
    if exact.is_some() || wanted.equal.is_none() {
        return Ok(exact);
    }
    leaf.find_matching(wanted.hash, |stored| wanted.matches(stored))
        .map_err(corrupt(block))
}

/// An entry as it is given out.
fn given(
    leaf: &Leaf<'_>,
    block: u64,
    entry: &LeafEntry,
    header: &FatHeader,
) -> Result<ZapEntry, ZapError> {
    Ok(ZapEntry {
        name: leaf
            .name(entry, has_words(header))
            .map_err(corrupt(block))?,
        value: leaf.value(entry).map_err(corrupt(block))?,
        next: Cursor::after(entry.hash, entry.differentiator),
    })
}

/// Finds a name.
pub(super) fn find<B: ZapBlocks>(
    blocks: &B,
    fat: &FatState,
    wanted: &Wanted<'_>,
) -> Result<Option<ZapEntry>, ZapError> {
    let block = leaf_block(blocks, &fat.header, wanted.hash)?;
    look(blocks, block, |bytes| {
        let leaf = open_leaf(bytes, block, wanted.hash)?;
        let found = entry_in(&leaf, block, wanted)?;
        found
            .map(|entry| given(&leaf, block, &entry, &fat.header))
            .transpose()
    })
}

/// Entries from a cursor on: leaf after leaf, in the order of the hash.
pub(super) fn entries_from<B: ZapBlocks>(
    blocks: &B,
    fat: &FatState,
    cursor: Cursor,
    count_max: usize,
) -> Result<Vec<ZapEntry>, ZapError> {
    let mut entries = Vec::new();
    let mut at = cursor;
    while entries.len() < count_max {
        let block = leaf_block(blocks, &fat.header, at.hash)?;
        let next = look(blocks, block, |bytes| {
            let leaf = open_leaf(bytes, block, at.hash)?;
            let room = count_max - entries.len();
            for entry in leaf
                .entries_from(at)
                .map_err(corrupt(block))?
                .iter()
                .take(room)
            {
                entries.push(given(&leaf, block, entry, &fat.header)?);
            }
            Ok(ZapHash::of_prefix(
                leaf.prefix().wrapping_add(1),
                leaf.prefix_length(),
            ))
        })?;
        match next {
            // Of the last leaf, the next prefix has too many bits; of an undivided ZAP there is no
            // next.
            Some(hash) if hash > at.hash => {
                at = Cursor {
                    hash,
                    differentiator: 0,
                }
            }
            _ => break,
        }
    }
    Ok(entries)
}

/// Adds or changes an entry.
pub(super) fn put<B: ZapBlocks>(
    blocks: &B,
    tx: &B::Tx,
    fat: &mut FatState,
    wanted: &Wanted<'_>,
    value: &ZapValue,
    present: Present,
) -> Result<(), ZapError> {
    match find_entry(blocks, fat, wanted)? {
        None => add(blocks, tx, fat, wanted, value, None),
        Some(_) if present == Present::Refuse => Err(ZapError::Exists),
        Some(_) => replace(blocks, tx, fat, wanted, value),
    }
}

/// The block of a name's leaf, and the entry in it.
fn find_entry<B: ZapBlocks>(
    blocks: &B,
    fat: &FatState,
    wanted: &Wanted<'_>,
) -> Result<Option<(u64, LeafEntry)>, ZapError> {
    let block = leaf_block(blocks, &fat.header, wanted.hash)?;
    let found = look(blocks, block, |bytes| {
        entry_in(&open_leaf(bytes, block, wanted.hash)?, block, wanted)
    })?;
    Ok(found.map(|entry| (block, entry)))
}

/// Changes the value of an entry that is there; its leaf splits until it has room.
fn replace<B: ZapBlocks>(
    blocks: &B,
    tx: &B::Tx,
    fat: &mut FatState,
    wanted: &Wanted<'_>,
    value: &ZapValue,
) -> Result<(), ZapError> {
    let bits = table_bits_max(fat.header.flags());
    for _ in 0..=SPLITS_MAX {
        let (block, entry) = find_entry(blocks, fat, wanted)?.ok_or(ZapError::NotFound)?;
        let updated = edit(blocks, tx, fat, block, |leaf| {
            let updated = leaf.update(&entry, value);
            let must_split = updated == Err(LeafFull::MustSplit);
            refuse_if(must_split && !leaf.could_update(&entry, value, bits))?;
            Ok(updated)
        })?;
        match updated {
            Ok(()) => return Ok(()),
            Err(LeafFull::TooLarge) => return Err(too_large(wanted.name, value)),
            Err(LeafFull::MustSplit) => split(blocks, tx, fat, wanted.hash)?,
        }
    }
    Err(ZapError::Full)
}

/// Adds an entry that is not there; leaves split until it has room.
pub(super) fn add<B: ZapBlocks>(
    blocks: &B,
    tx: &B::Tx,
    fat: &mut FatState,
    wanted: &Wanted<'_>,
    value: &ZapValue,
    differentiator: Option<u32>,
) -> Result<(), ZapError> {
    let bits = table_bits_max(fat.header.flags());
    touch_header(blocks, tx)?;
    for _ in 0..=SPLITS_MAX {
        let block = leaf_block(blocks, &fat.header, wanted.hash)?;
        let added = edit(blocks, tx, fat, block, |leaf| {
            let added = match differentiator {
                Some(given) => leaf.insert_with(wanted.hash, wanted.name, value, given),
                None => leaf.insert(wanted.hash, wanted.name, value).map(|_| ()),
            };
            let must_split = added == Err(LeafFull::MustSplit);
            let could = || leaf.could_insert(wanted.hash, wanted.name, value, bits);
            refuse_if(must_split && !could())?;
            Ok(added)
        })?;
        match added {
            Ok(()) => {
                fat.header.count_entry();
                write_header(blocks, tx, &fat.header)?;
                grow_ahead(blocks, tx, fat, block);
                return Ok(());
            }
            Err(LeafFull::TooLarge) => return Err(too_large(wanted.name, value)),
            Err(LeafFull::MustSplit) => split(blocks, tx, fat, wanted.hash)?,
        }
    }
    Err(ZapError::Full)
}

/// Refuses what no split makes room for: leaves would be split for it, and the table grown, until
/// it has all the bits it may have.
fn refuse_if(is_hopeless: bool) -> Result<(), ZapError> {
    match is_hopeless {
        true => Err(ZapError::Full),
        false => Ok(()),
    }
}

/// The refusal for an entry that no leaf has room for.
fn too_large(name: Name<'_>, value: &ZapValue) -> ZapError {
    let name_bytes = match name {
        Name::Text(text) => text.len(),
        Name::Words(words) => words.len() * 8,
    };
    ZapError::ValueTooLarge {
        bytes: name_bytes + value.size(),
    }
}

/// Removes an entry.
pub(super) fn remove<B: ZapBlocks>(
    blocks: &B,
    tx: &B::Tx,
    fat: &mut FatState,
    wanted: &Wanted<'_>,
) -> Result<(), ZapError> {
    let found = find_entry(blocks, fat, wanted)?;
    let (block, entry) = found.ok_or(ZapError::NotFound)?;
    touch_header(blocks, tx)?;
    edit(blocks, tx, fat, block, |leaf| {
        leaf.remove(&entry);
        Ok(())
    })?;
    fat.header.entry_count = fat.header.entry_count.saturating_sub(1);
    write_header(blocks, tx, &fat.header)
}

/// Changes a leaf. The first time, everything in it is looked at: what the disk says of free chunks
/// is not believed before something is put there.
fn edit<B: ZapBlocks, T>(
    blocks: &B,
    tx: &B::Tx,
    fat: &mut FatState,
    block: u64,
    mut run: impl FnMut(&mut LeafEdit<'_>) -> Result<T, ZapError>,
) -> Result<T, ZapError> {
    let is_checked = fat.checked.contains(&block);
    let made = change(blocks, tx, block, |bytes| {
        let opened = if is_checked {
            LeafEdit::reopen(bytes)
        } else {
            LeafEdit::open(bytes)
        };
        run(&mut opened.map_err(corrupt(block))?)
    })?;
    if fat.checked.len() >= CHECKED_LEAVES_MAX {
        fat.checked.clear();
    }
    fat.checked.insert(block);
    Ok(made)
}

/// Splits the leaf that a hash leads to, growing the table first if it has no bit to tell the
/// halves apart.
///
/// Whatever is to be changed is first had in this transaction as it is, and looked at; from the
/// first change on there is nothing to be read that could fail, and leave half of the entries where
/// no lookup finds them.
fn split<B: ZapBlocks>(
    blocks: &B,
    tx: &B::Tx,
    fat: &mut FatState,
    hash: ZapHash,
) -> Result<(), ZapError> {
    let block = leaf_block(blocks, &fat.header, hash)?;
    let length = look(blocks, block, |bytes| {
        Ok(open_leaf(bytes, block, hash)?.prefix_length())
    })?;
    require_table_bits(block, length, &fat.header)?;
    refuse_if(length == fat.header.shift() && fat.header.words_to_copy() > TABLE_WORDS_MAX)?;
    while length >= fat.header.shift() {
        grow_table(blocks, tx, fat)?;
    }
    let mut header = fat.header.clone();
    // The half whose next bit is set moves.
    let moved = hash.prefix(length) << 1 | 1;
    let entries = header.entries_of(moved, length + 1).ok_or(ZapError::Full)?;
    refuse_if(entries.end - entries.start > TABLE_WORDS_MAX)?;
    let table = table_runs(&header, entries, shift_of(blocks));
    touch_header(blocks, tx)?;
    require_pointers(blocks, tx, &table, block)?;
    let new_block = header.allocate_blocks(1).map_err(|_| ZapError::Full)?;
    let sorted = header.normalization != 0;
    let mut other = vec![0; blocks.block_size()];
    change(blocks, tx, new_block, |_| Ok(()))?;
    edit(blocks, tx, fat, block, |leaf| {
        leaf.split(&mut other, sorted);
        Ok(())
    })?;
    change(blocks, tx, new_block, |bytes| {
        bytes.copy_from_slice(&other);
        Ok(())
    })?;
    fat.checked.insert(new_block);
    for (table_block, run) in table.now.iter().chain(&table.next) {
        change(blocks, tx, *table_block, |bytes| {
            run.clone()
                .for_each(|index| fat::set_pointer(bytes, index, new_block));
            Ok(())
        })?;
    }
    header.count_leaf();
    fat.header = header;
    write_header(blocks, tx, &fat.header)
}

/// Refuses a leaf whose prefix has more bits than index the table: some of the hashes that lead to
/// it would not belong there.
fn require_table_bits(block: u64, length: u32, header: &FatHeader) -> Result<(), ZapError> {
    if length <= header.shift() {
        return Ok(());
    }
    Err(corrupt(block)(Corrupt::Inconsistent {
        what: "ZAP leaf",
        offset: 32,
        why: "the prefix has more bits than index the table",
    }))
}

/// Words of the table, by the block they are in.
type Runs = BTreeMap<u64, Range<usize>>;

/// Where a row of the table's entries is stored.
struct TableRuns {
    now: Runs,
    /// In the table that is being made.
    next: Runs,
}

fn table_runs(header: &FatHeader, entries: Range<u64>, shift: u32) -> TableRuns {
    let extend = |runs: &mut Runs, place: TablePlace| {
        let run = runs.entry(place.block).or_insert(place.index..place.index);
        run.end = place.index + 1;
    };
    let mut table = TableRuns {
        now: Runs::new(),
        next: Runs::new(),
    };
    for index in entries {
        extend(&mut table.now, header.place(index, shift));
        let places = header.places_in_next(index, shift);
        for place in places.into_iter().flatten() {
            extend(&mut table.next, place);
        }
    }
    table
}

/// Has blocks of the table in this transaction, where all of these words must lead to one leaf.
/// What the next table has there is not known before it is made.
fn require_pointers<B: ZapBlocks>(
    blocks: &B,
    tx: &B::Tx,
    table: &TableRuns,
    leaf: u64,
) -> Result<(), ZapError> {
    for (&block, run) in &table.now {
        change(blocks, tx, block, |bytes| {
            for index in run.clone() {
                let found = fat::pointer(bytes, index).unwrap_or_default();
                if found != leaf {
                    let place = TablePlace { block, index };
                    return Err(corrupt(block)(fat::bad_pointer(place, found)));
                }
            }
            Ok(())
        })?;
    }
    for &block in table.next.keys() {
        change(blocks, tx, block, |_| Ok(()))?;
    }
    Ok(())
}

/// Takes one step towards a table of twice the size, or none if it fails.
fn grow_table<B: ZapBlocks>(blocks: &B, tx: &B::Tx, fat: &mut FatState) -> Result<(), ZapError> {
    let mut header = fat.header.clone();
    touch_header(blocks, tx)?;
    if header.is_embedded() {
        let header_block = look(blocks, 0, |bytes| Ok(bytes.to_vec()))?;
        let mut table = vec![0; blocks.block_size()];
        let made = header.make_external(&header_block, &mut table);
        let table_block = made.map_err(|_| ZapError::Full)?;
        change(blocks, tx, table_block, |bytes| {
            bytes.copy_from_slice(&table);
            Ok(())
        })?;
        change(blocks, tx, 0, |bytes| {
            let half = bytes.len() / 2;
            bytes[half..].fill(0);
            Ok(())
        })?;
        fat.header = header;
        return write_header(blocks, tx, &fat.header);
    }
    let copy = header.next_copy().map_err(|_| ZapError::Full)?;
    let from = look(blocks, copy.from, |bytes| Ok(bytes.to_vec()))?;
    for (half, to) in from.chunks_exact(from.len() / 2).zip(copy.to) {
        change(blocks, tx, to, |bytes| {
            fat::spread(half, bytes);
            Ok(())
        })?;
    }
    let old = header.record_copy();
    fat.header = header;
    write_header(blocks, tx, &fat.header)?;
    match old {
        Some(old) => blocks.free(tx, old.first, old.count),
        None => Ok(()),
    }
}

/// Grows the table before it is needed: while a copy is under way, and when a leaf that is nearly
/// full could not split. What keeps it from growing matters only to the insert that needs it; the
/// one that was just made is there.
fn grow_ahead<B: ZapBlocks>(blocks: &B, tx: &B::Tx, fat: &mut FatState, block: u64) {
    let cannot_split = || {
        look(blocks, block, |bytes| {
            let leaf = Leaf::open(bytes).map_err(corrupt(block))?;
            let cannot_split = leaf.prefix_length() >= fat.header.shift();
            Ok(cannot_split && leaf.free_count() < FREE_CHUNKS_LOW)
        })
    };
    if fat.header.table.next_block != 0 || cannot_split().unwrap_or(false) {
        let _ = grow_table(blocks, tx, fat);
    }
}

/// Has the header's block in this transaction, so that it can be written when all else is done.
fn touch_header<B: ZapBlocks>(blocks: &B, tx: &B::Tx) -> Result<(), ZapError> {
    change(blocks, tx, 0, |_| Ok(()))
}

/// Puts the header into its block; the table beside it stays.
fn write_header<B: ZapBlocks>(blocks: &B, tx: &B::Tx, header: &FatHeader) -> Result<(), ZapError> {
    use tarn_ondisk::declare::Stored;
    change(blocks, tx, 0, |bytes| {
        header.write_to(bytes);
        Ok(())
    })
}
