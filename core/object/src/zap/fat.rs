//! The fat ZAP: header, pointer table, leaves.
//!
//! # Mechanism
//! A name's leaf is found through the table. When a leaf is full it splits by one more bit of the hash; if the table has
//! no such bit, it grows first, and an external table grows a block at a time, so no single insert
//! pays for all of it. Leaves are never joined again: OpenZFS shrinks them since 2.3, and reads those that are not shrunk.

use super::state::{CHECKED_LEAVES_MAX, FatState, Kind, Rules};
use super::{Present, Wanted, ZapBlocks, ZapEntry, ZapError, change, corrupt, look};
use std::collections::BTreeSet;
use tarn_ondisk::zap::fat::{self, FatHeader, TablePlace};
use tarn_ondisk::zap::leaf::{FREE_CHUNKS_LOW, Leaf, LeafEdit, LeafEntry, LeafFull};
use tarn_ondisk::zap::{Cursor, Name, ZapFlags, ZapHash, ZapValue};

/// Splits that one insert may cause: one per bit of a hash.
const SPLITS_MAX: usize = 64;

/// Makes an empty fat ZAP: a header and one leaf.
pub(super) fn create<B: ZapBlocks>(blocks: &B, tx: &B::Tx, rules: Rules) -> Result<Kind, ZapError> {
    let block_shift = shift_of(blocks);
    let header = FatHeader::new(block_shift, rules.salt, rules.normalization, rules.flags);
    change(blocks, tx, 0, |block| {
        header.format(block);
        Ok(())
    })?;
    let sorted = rules.normalization != 0;
    change(blocks, tx, 1, |block| {
        LeafEdit::format(block, sorted);
        Ok(())
    })?;
    Ok(Kind::Fat(FatState {
        header,
        checked: BTreeSet::from([1]),
    }))
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

/// The leaf that a hash leads to. One of other hashes is refused: who goes on after it would go round, or split what is not there.
fn open_leaf(bytes: &[u8], block: u64, hash: ZapHash) -> Result<Leaf<'_>, ZapError> {
    let leaf = Leaf::open(bytes).map_err(corrupt(block))?;
    leaf.require(hash).map_err(corrupt(block))?;
    Ok(leaf)
}

/// True when names are words here.
fn has_words(header: &FatHeader) -> bool {
    header.flags().has(ZapFlags::WORD_NAMES)
}

/// The entry of a name in its leaf: of exactly that name if it is there, else of one that is equal, where that will do.
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
            // Of the last leaf, the next prefix has too many bits; of an undivided ZAP there is no next.
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
    let block = leaf_block(blocks, &fat.header, wanted.hash)?;
    let found = look(blocks, block, |bytes| {
        entry_in(&open_leaf(bytes, block, wanted.hash)?, block, wanted)
    })?;
    let Some(entry) = found else {
        return add(blocks, tx, fat, wanted, value, None);
    };
    if present == Present::Refuse {
        return Err(ZapError::Exists);
    }
    let updated = edit(
        blocks,
        tx,
        fat,
        block,
        |leaf| Ok(leaf.update(&entry, value)),
    )?;
    if updated.is_ok() {
        return Ok(());
    }
    // No room beside the old value: take the entry out, and put it back with its differentiator.
    remove_entry(blocks, tx, fat, block, &entry)?;
    add(blocks, tx, fat, wanted, value, Some(entry.differentiator))
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
    for _ in 0..=SPLITS_MAX {
        let block = leaf_block(blocks, &fat.header, wanted.hash)?;
        let added = edit(blocks, tx, fat, block, |leaf| {
            Ok(match differentiator {
                Some(given) => leaf.insert_with(wanted.hash, wanted.name, value, given),
                None => leaf.insert(wanted.hash, wanted.name, value).map(|_| ()),
            })
        })?;
        match added {
            Ok(()) => {
                fat.header.entry_count += 1;
                write_header(blocks, tx, fat)?;
                return grow_ahead(blocks, tx, fat, block);
            }
            Err(LeafFull::TooLarge) => return Err(too_large(wanted.name, value)),
            Err(LeafFull::MustSplit) => split(blocks, tx, fat, wanted.hash)?,
        }
    }
    Err(ZapError::Full)
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
    let block = leaf_block(blocks, &fat.header, wanted.hash)?;
    let found = look(blocks, block, |bytes| {
        entry_in(&open_leaf(bytes, block, wanted.hash)?, block, wanted)
    })?;
    let entry = found.ok_or(ZapError::NotFound)?;
    remove_entry(blocks, tx, fat, block, &entry)?;
    write_header(blocks, tx, fat)
}

/// Takes an entry out of its leaf, and counts it out.
fn remove_entry<B: ZapBlocks>(
    blocks: &B,
    tx: &B::Tx,
    fat: &mut FatState,
    block: u64,
    entry: &LeafEntry,
) -> Result<(), ZapError> {
    edit(blocks, tx, fat, block, |leaf| {
        leaf.remove(entry);
        Ok(())
    })?;
    fat.header.entry_count = fat.header.entry_count.saturating_sub(1);
    Ok(())
}

/// Changes a leaf. The first time, everything in it is looked at: what the disk says of free chunks is not believed
/// before something is put there.
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

/// Splits the leaf that a hash leads to, growing the table first if it has no bit to tell the halves apart.
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
    while length >= fat.header.shift() {
        grow_table(blocks, tx, fat)?;
    }
    let sorted = fat.header.normalization != 0;
    let new_block = fat.header.allocate_blocks(1);
    let mut other = vec![0; blocks.block_size()];
    let prefix = edit(blocks, tx, fat, block, |leaf| {
        let moved = leaf.split(&mut other, sorted);
        Ok((moved.view().prefix(), moved.view().prefix_length()))
    })?;
    change(blocks, tx, new_block, |bytes| {
        bytes.copy_from_slice(&other);
        Ok(())
    })?;
    fat.checked.insert(new_block);
    fat.header.leaf_count += 1;
    let entries = fat
        .header
        .entries_of(prefix.0, prefix.1)
        .ok_or(ZapError::Full)?;
    for index in entries {
        point(blocks, tx, &fat.header, index, new_block)?;
    }
    write_header(blocks, tx, fat)
}

/// Makes one entry of the table lead to a leaf, also in the table that is being made.
fn point<B: ZapBlocks>(
    blocks: &B,
    tx: &B::Tx,
    header: &FatHeader,
    index: u64,
    leaf: u64,
) -> Result<(), ZapError> {
    let shift = shift_of(blocks);
    let set = |place: TablePlace| {
        change(blocks, tx, place.block, |bytes| {
            fat::set_pointer(bytes, place.index, leaf);
            Ok(())
        })
    };
    set(header.place(index, shift))?;
    for place in header.places_in_next(index, shift).into_iter().flatten() {
        set(place)?;
    }
    Ok(())
}

/// Takes one step towards a table of twice the size.
fn grow_table<B: ZapBlocks>(blocks: &B, tx: &B::Tx, fat: &mut FatState) -> Result<(), ZapError> {
    if fat.header.is_embedded() {
        let header_block = look(blocks, 0, |bytes| Ok(bytes.to_vec()))?;
        let mut table = vec![0; blocks.block_size()];
        let made = fat.header.make_external(&header_block, &mut table);
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
        return write_header(blocks, tx, fat);
    }
    let copy = fat.header.next_copy().map_err(|_| ZapError::Full)?;
    let from = look(blocks, copy.from, |bytes| Ok(bytes.to_vec()))?;
    for (half, to) in from.chunks_exact(from.len() / 2).zip(copy.to) {
        change(blocks, tx, to, |bytes| {
            fat::spread(half, bytes);
            Ok(())
        })?;
    }
    if let Some(old) = fat.header.record_copy() {
        blocks.free(tx, old.first, old.count)?;
    }
    write_header(blocks, tx, fat)
}

/// Grows the table before it is needed: while a copy is under way, and when a leaf that is nearly full could not
/// split.
fn grow_ahead<B: ZapBlocks>(
    blocks: &B,
    tx: &B::Tx,
    fat: &mut FatState,
    block: u64,
) -> Result<(), ZapError> {
    let is_due = fat.header.table.next_block != 0
        || look(blocks, block, |bytes| {
            let leaf = Leaf::open(bytes).map_err(corrupt(block))?;
            let cannot_split = leaf.prefix_length() >= fat.header.shift();
            Ok(cannot_split && leaf.free_count() < FREE_CHUNKS_LOW)
        })?;
    match is_due.then(|| grow_table(blocks, tx, fat)) {
        // A table that may not grow matters only to the insert that needs it.
        None | Some(Ok(()) | Err(ZapError::Full)) => Ok(()),
        Some(Err(error)) => Err(error),
    }
}

/// Puts the header into its block; the table beside it stays.
fn write_header<B: ZapBlocks>(blocks: &B, tx: &B::Tx, fat: &FatState) -> Result<(), ZapError> {
    use tarn_ondisk::declare::Stored;
    change(blocks, tx, 0, |bytes| {
        fat.header.write_to(bytes);
        Ok(())
    })
}
