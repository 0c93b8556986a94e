//! The micro ZAP: one block, with an index in memory.

use super::state::{Kind, MicroIndex, Rules};
use super::{Present, Wanted, ZapBlocks, ZapEntry, ZapError, change, corrupt, look};
use std::collections::BTreeMap;
use tarn_ondisk::declare::Corrupt;
use tarn_ondisk::zap::fat::table_bits_max;
use tarn_ondisk::zap::micro::{self, Micro};
use tarn_ondisk::zap::{Cursor, DIFFERENTIATOR_END, Name, OwnedName, ZapFlags, ZapHash, ZapValue};

/// Makes an empty micro ZAP of an object's only block. Objects that were there before can have
/// blocks of any size.
pub(super) fn create<B: ZapBlocks>(
    blocks: &B,
    tx: &B::Tx,
    salt: u64,
    normalization: u64,
) -> Result<Kind, ZapError> {
    if blocks.block_size() > micro::LARGE_BLOCK_BYTES_MAX {
        return Err(corrupt(0)(Corrupt::Inconsistent {
            what: "Zap",
            offset: 0,
            why: "the object has larger blocks than a ZAP of one block can have",
        }));
    }
    change(blocks, tx, 0, |block| {
        Micro::format(block, salt, normalization);
        Ok(())
    })?;
    let rules = Rules {
        salt,
        normalization,
        flags: ZapFlags::default(),
    };
    Ok(Kind::Micro(MicroIndex {
        rules,
        slots: BTreeMap::new(),
        free_from: 0,
    }))
}

/// Makes the index from the block.
pub(super) fn load(
    block: &[u8],
    hash: impl Fn(&[u8], Rules) -> Result<ZapHash, ZapError>,
) -> Result<Kind, ZapError> {
    let micro = Micro::open(block).map_err(corrupt(0))?;
    let flags = ZapFlags::default();
    let rules = Rules {
        salt: micro.salt(),
        normalization: micro.normalization(),
        flags,
    };
    let mut slots = BTreeMap::new();
    for entry in micro.entries() {
        if entry.differentiator >= DIFFERENTIATOR_END {
            return Err(corrupt(0)(micro::bad_differentiator(entry.slot)));
        }
        let cursor = Cursor {
            hash: hash(entry.name, rules)?,
            differentiator: entry.differentiator,
        };
        if slots.insert(cursor, entry.slot).is_some() {
            return Err(corrupt(0)(micro::duplicate(entry.slot)));
        }
    }
    Ok(Kind::Micro(MicroIndex {
        rules,
        slots,
        free_from: 0,
    }))
}

/// The slots whose names have this hash, in the order of their differentiators.
fn candidates(index: &MicroIndex, hash: ZapHash) -> impl Iterator<Item = (&Cursor, usize)> {
    let first = Cursor {
        hash,
        differentiator: 0,
    };
    let last = Cursor {
        hash,
        differentiator: u32::MAX,
    };
    index
        .slots
        .range(first..=last)
        .map(|(cursor, slot)| (cursor, *slot))
}

/// How many names would be in one leaf with this one for ever, if the ZAP were fat.
fn neighbor_count(index: &MicroIndex, hash: ZapHash) -> usize {
    let bits = table_bits_max(index.rules.flags);
    let first = Cursor {
        hash: ZapHash::of_prefix(hash.prefix(bits), bits).expect("it is a prefix"),
        differentiator: 0,
    };
    let later = index.slots.range(first..).map(|(cursor, _)| cursor.hash);
    later
        .take_while(|other| other.prefix(bits) == hash.prefix(bits))
        .count()
}

/// The slot of a name: of exactly that name if it is there, else of one that is equal to it, where
/// that will do.
fn slot_of(
    block: &[u8],
    index: &MicroIndex,
    wanted: &Wanted<'_>,
) -> Result<Option<(Cursor, usize)>, ZapError> {
    let micro = Micro::open(block).map_err(corrupt(0))?;
    let mut equal = None;
    for (cursor, slot) in candidates(index, wanted.hash) {
        let Some(entry) = micro.entry(slot) else {
            continue;
        };
        if wanted.is_exactly(entry.name) {
            return Ok(Some((*cursor, slot)));
        }
        if equal.is_none() && wanted.matches(entry.name) {
            equal = Some((*cursor, slot));
        }
    }
    Ok(equal)
}

/// The entry in a slot.
fn entry_at(block: &[u8], cursor: Cursor, slot: usize) -> Result<Option<ZapEntry>, ZapError> {
    let micro = Micro::open(block).map_err(corrupt(0))?;
    Ok(micro.entry(slot).map(|entry| ZapEntry {
        name: OwnedName::Text(entry.name.to_vec()),
        value: ZapValue::word(entry.value),
        next: Cursor::after(cursor.hash, cursor.differentiator),
    }))
}

/// Finds a name.
pub(super) fn find<B: ZapBlocks>(
    blocks: &B,
    index: &MicroIndex,
    wanted: &Wanted<'_>,
) -> Result<Option<ZapEntry>, ZapError> {
    if candidates(index, wanted.hash).next().is_none() {
        return Ok(None);
    }
    look(blocks, 0, |block| match slot_of(block, index, wanted)? {
        Some((cursor, slot)) => entry_at(block, cursor, slot),
        None => Ok(None),
    })
}

/// Entries from a cursor on.
pub(super) fn entries_from<B: ZapBlocks>(
    blocks: &B,
    index: &MicroIndex,
    cursor: Cursor,
    count_max: usize,
) -> Result<Vec<ZapEntry>, ZapError> {
    if index.slots.is_empty() {
        return Ok(Vec::new());
    }
    look(blocks, 0, |block| {
        let mut entries = Vec::new();
        for (cursor, slot) in index.slots.range(cursor..).take(count_max) {
            entries.extend(entry_at(block, *cursor, *slot)?);
        }
        Ok(entries)
    })
}

/// Adds or changes an entry. Gives false when only a fat ZAP could hold it; nothing is changed
/// then.
pub(super) fn put<B: ZapBlocks>(
    blocks: &B,
    tx: &B::Tx,
    index: &mut MicroIndex,
    wanted: &Wanted<'_>,
    value: &ZapValue,
    present: Present,
    bytes_max: usize,
) -> Result<bool, ZapError> {
    let Name::Text(text) = wanted.name else {
        return Ok(false);
    };
    let found = look(blocks, 0, |block| slot_of(block, index, wanted))?;
    if found.is_some() && present == Present::Refuse {
        return Err(ZapError::Exists);
    }
    let Some(word) = value.as_word() else {
        return Ok(false);
    };
    if let Some((_, slot)) = found {
        change(blocks, tx, 0, |block| {
            Micro::open(block)
                .map_err(corrupt(0))?
                .set_value(slot, word);
            Ok(())
        })?;
        return Ok(true);
    }
    if micro::must_be_fat(text, value).is_some() {
        return Ok(false);
    }
    if micro::join(neighbor_count(index, wanted.hash)).is_err() {
        return Ok(false);
    }
    let mut taken: Vec<u32> = candidates(index, wanted.hash)
        .map(|(cursor, _)| cursor.differentiator)
        .collect();
    let differentiator = micro::unused_differentiator(&mut taken);
    let Some(slot) = free_slot(blocks, tx, index, bytes_max)? else {
        return Ok(false);
    };
    change(blocks, tx, 0, |block| {
        Micro::open(block)
            .map_err(corrupt(0))?
            .add(slot, text, word, differentiator);
        Ok(())
    })?;
    index.slots.insert(
        Cursor {
            hash: wanted.hash,
            differentiator,
        },
        slot,
    );
    index.free_from = slot + 1;
    Ok(true)
}

/// A free slot; the block grows when there is none and it may.
fn free_slot<B: ZapBlocks>(
    blocks: &B,
    tx: &B::Tx,
    index: &MicroIndex,
    bytes_max: usize,
) -> Result<Option<usize>, ZapError> {
    let start = index.free_from;
    let found = look(blocks, 0, |block| {
        Ok(Micro::open(block).map_err(corrupt(0))?.free_slot(start))
    })?;
    if found.is_some() {
        return Ok(found);
    }
    let Ok(bytes) = micro::grown_size(blocks.block_size(), bytes_max) else {
        return Ok(None);
    };
    blocks.set_block_size(tx, bytes)?;
    look(blocks, 0, |block| {
        Ok(Micro::open(block).map_err(corrupt(0))?.free_slot(start))
    })
}

/// Removes an entry.
pub(super) fn remove<B: ZapBlocks>(
    blocks: &B,
    tx: &B::Tx,
    index: &mut MicroIndex,
    wanted: &Wanted<'_>,
) -> Result<(), ZapError> {
    let found = look(blocks, 0, |block| slot_of(block, index, wanted))?;
    let (cursor, slot) = found.ok_or(ZapError::NotFound)?;
    change(blocks, tx, 0, |block| {
        Micro::open(block).map_err(corrupt(0))?.remove(slot);
        Ok(())
    })?;
    index.slots.remove(&cursor);
    index.free_from = index.free_from.min(slot);
    Ok(())
}
