//! What lies are told: changes of a block's plain contents.
//!
//! Numbers become ones that hurt (nothing, everything, signs, small ones that name other objects,
//! what stands elsewhere in the block); pointers lead to their own ancestors, without a checksum
//! that would tell; dnodes, tables, lists and attributes get sizes and links that cannot be.

use crate::lie::{CORE_BYTES, Kind, Liar, POINTER_BYTES, SLOT_BYTES, without_checksum};
use tarn_host::sim::Random;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::{ByteOrder, Stored, widen};
use tarn_ondisk::object_type::ObjectType;

/// Tells one lie, and says which. None when this one cannot be told.
pub fn tell(liar: &mut Liar<'_>, random: &mut Random) -> Option<String> {
    if random.chance(1, 40) {
        return Some(lie_in_uberblock(liar, random));
    }
    if random.chance(1, 12) {
        return Some(lie_in_labels(liar, random));
    }
    let kinds: Vec<_> = liar.by_kind().into_iter().collect();
    let ((is_mos, kind), indexes) = &kinds[random.index(kinds.len())];
    let index = indexes[random.index(indexes.len())];
    let mut contents = liar.contents(index)?;
    let what = match kind {
        Kind::Objset => lie_in_objset(&mut contents, liar, index, random),
        Kind::Indirect => lie_in_pointers(&mut contents, liar, index, random),
        Kind::Dnodes => lie_in_dnodes(&mut contents, liar, index, random),
        Kind::Data(code) => lie_in_data(&mut contents, *code, random),
        Kind::Spill => lie_anywhere(&mut contents, random),
    };
    let place = liar.blocks[index].pointer.dvas().next()?;
    let set = if *is_mos { "MOS" } else { "dataset" };
    let name = match kind {
        Kind::Data(code) => format!("data of {:?}", ObjectType::from_code(*code)),
        kind => format!("{kind:?}"),
    };
    liar.tell(index, &contents)
        .then(|| format!("{set}, {name} at {:x}: {what}", place.offset()))
}

/// A number that hurts.
fn bad_number(random: &mut Random, bytes: &[u8]) -> u64 {
    match random.index(12) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << 63,
        3 => (1 << 63) - 1,
        4 => u64::from(u32::MAX),
        5 => 1 << random.index(64),
        6 => (1 << random.index(64)) - 1,
        7 => random.draw(),
        8 if bytes.len() >= 8 => word(bytes, random.index(bytes.len() / 8) * 8),
        _ => random.below(256),
    }
}

fn byte(number: u64) -> u8 {
    number.to_le_bytes()[0]
}

fn half(number: u64) -> u16 {
    let bytes = number.to_le_bytes();
    u16::from_le_bytes([bytes[0], bytes[1]])
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}

/// How much of a block is worth changing: up to its last byte that is not zero, and a little more.
fn used(bytes: &[u8]) -> usize {
    let last = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    (last + 17).min(bytes.len()) & !7
}

fn lie_anywhere(bytes: &mut [u8], random: &mut Random) -> String {
    let room = used(bytes).max(8);
    let count = 1 + random.index(3);
    let mut told = Vec::new();
    for _ in 0..count {
        let at = random.index(room / 8) * 8;
        let number = bad_number(random, bytes);
        match random.index(4) {
            0 => {
                let at = at + random.index(8);
                put(bytes, at, &[number.to_le_bytes()[0]]);
                told.push(format!("byte {at} = {:#x}", number & 0xff));
            }
            1 => {
                let at = at + 2 * random.index(4);
                put(bytes, at, &number.to_le_bytes()[..2]);
                told.push(format!("half {at} = {:#x}", number & 0xffff));
            }
            _ => {
                put(bytes, at, &number.to_le_bytes());
                told.push(format!("word {at} = {number:#x}"));
            }
        }
    }
    told.join(", ")
}

fn lie_in_uberblock(liar: &mut Liar<'_>, random: &mut Random) -> String {
    let mut told = String::new();
    liar.tell_uberblock(|uberblock| {
        let mut bytes = uberblock.to_bytes();
        told = lie_anywhere(&mut bytes, random);
        if let Ok(changed) = Stored::from_bytes(&bytes, ByteOrder::Little) {
            *uberblock = changed;
        }
    });
    format!("uberblock: {told}")
}

/// What labels say of the pool: the tree of devices above all.
fn lie_in_labels(liar: &mut Liar<'_>, random: &mut Random) -> String {
    let only = random.chance(1, 4).then(|| random.below(4));
    let disk = random.index(liar.disk_count());
    let mut told = String::new();
    liar.tell_labels(disk, only, |area| told = lie_in_list(area, random));
    format!("label {only:?} of disk {disk}: {told}")
}

/// Words of the lists that describe a pool.
const LIST_NAMES: [&str; 24] = [
    "version",
    "name",
    "state",
    "txg",
    "pool_guid",
    "top_guid",
    "guid",
    "vdev_children",
    "vdev_tree",
    "type",
    "id",
    "path",
    "metaslab_array",
    "metaslab_shift",
    "ashift",
    "asize",
    "is_log",
    "create_txg",
    "nparity",
    "children",
    "features_for_read",
    "hostid",
    "whole_disk",
    "DTL",
];

/// A name-value list in XDR: the value of a name, or anything.
fn lie_in_list(bytes: &mut [u8], random: &mut Random) -> String {
    if random.chance(1, 20) {
        return nest_deeply(bytes);
    }
    let name = LIST_NAMES[random.index(LIST_NAMES.len())];
    let mut wanted = u32::try_from(name.len())
        .unwrap_or(0)
        .to_be_bytes()
        .to_vec();
    wanted.extend(name.as_bytes());
    let places: Vec<usize> = bytes
        .windows(wanted.len())
        .enumerate()
        .filter_map(|(at, window)| (window == wanted).then_some(at))
        .collect();
    let number = bad_number(random, bytes);
    if places.is_empty() || random.chance(1, 3) {
        let at = random.index(used(bytes) / 4) * 4;
        put(bytes, at, &number.to_be_bytes()[4..]);
        return format!("list: word {at} = {:#x}", number & 0xffff_ffff);
    }
    let at = places[random.index(places.len())];
    // Behind the name: type, count, value.
    let behind = at + 4 + name.len().next_multiple_of(4);
    let at = behind + [0, 4, 8, 8, 8, 8][random.index(6)];
    match at == behind + 8 {
        true => put(bytes, at, &number.to_be_bytes()),
        false => put(bytes, at, &number.to_be_bytes()[4..]),
    }
    format!("list: {name} at {} = {number:#x}", at - behind)
}

/// An ancestor of a block, or the block itself.
fn ancestor(liar: &Liar<'_>, index: usize, random: &mut Random) -> BlockPointer {
    let mut index = index;
    while let Some((parent, _)) = liar.blocks[index].parent
        && random.chance(2, 3)
    {
        index = parent;
    }
    without_checksum(&liar.blocks[index].pointer)
}

/// Any other block.
fn stranger(liar: &Liar<'_>, random: &mut Random) -> BlockPointer {
    liar.blocks[random.index(liar.blocks.len())].pointer
}

fn lie_in_pointers(bytes: &mut [u8], liar: &Liar<'_>, index: usize, random: &mut Random) -> String {
    let slots = (used(bytes) / POINTER_BYTES).max(1);
    let at = random.index(slots) * POINTER_BYTES;
    lie_in_pointer(bytes, at, liar, index, random)
}

fn lie_in_pointer(
    bytes: &mut [u8],
    at: usize,
    liar: &Liar<'_>,
    index: usize,
    random: &mut Random,
) -> String {
    let Some(place) = bytes.get(at..at + POINTER_BYTES) else {
        return lie_anywhere(bytes, random);
    };
    let old = BlockPointer::from_bytes(place, ByteOrder::Little).unwrap_or(BlockPointer::HOLE);
    let (new, what) = match random.index(6) {
        0 | 1 => {
            let mut new = ancestor(liar, index, random);
            if random.chance(1, 2) {
                // As its place wants it: nothing but the contents can tell.
                new.set_level(old.level());
                new.set_object_type(old.object_type());
            }
            (new, "leads to its ancestor")
        }
        2 => (stranger(liar, random), "leads to another block"),
        3 => {
            let mut new = without_checksum(&old);
            new.set_level(tarn_ondisk::units::Level::new(byte(random.below(32))));
            (new, "has another level, and no checksum")
        }
        _ => {
            let mut words = place.to_vec();
            // Offsets of DVAs, sizes, births, fill.
            let word = random.index(13) * 8;
            let number = bad_number(random, &words);
            match random.index(3) {
                0 => put(
                    &mut words,
                    word + random.index(8),
                    &[number.to_le_bytes()[0]],
                ),
                _ => put(&mut words, word, &number.to_le_bytes()),
            }
            let told = format!("pointer at {at}: word {word} changed by {number:#x}");
            put(bytes, at, &words);
            return told;
        }
    };
    put(bytes, at, &new.to_bytes());
    format!("pointer at {at} {what}")
}

fn lie_in_objset(bytes: &mut [u8], liar: &Liar<'_>, index: usize, random: &mut Random) -> String {
    let dnodes: Vec<usize> = [0, 1024, 1536, 2048]
        .into_iter()
        .filter(|at| bytes.get(*at).is_some_and(|code| *code != 0))
        .collect();
    match random.index(4) {
        0 => lie_anywhere(bytes, random),
        1 => {
            // The intent log's head, type and flags.
            let at = SLOT_BYTES + random.index(30) * 8;
            let number = bad_number(random, bytes);
            put(bytes, at, &number.to_le_bytes());
            format!("head: word {at} = {number:#x}")
        }
        _ if !dnodes.is_empty() => {
            let at = dnodes[random.index(dnodes.len())];
            lie_in_dnode(bytes, at, liar, index, random)
        }
        _ => lie_anywhere(bytes, random),
    }
}

fn lie_in_dnodes(bytes: &mut [u8], liar: &Liar<'_>, index: usize, random: &mut Random) -> String {
    let mut slots = Vec::new();
    let mut at = 0;
    while at + SLOT_BYTES <= bytes.len() {
        let is_used = bytes[at] != 0;
        if is_used {
            slots.push(at);
        }
        at += SLOT_BYTES
            * (1 + if is_used {
                usize::from(bytes[at + 12])
            } else {
                0
            });
    }
    match slots.is_empty() {
        true => lie_anywhere(bytes, random),
        false => {
            let at = slots[random.index(slots.len())];
            lie_in_dnode(bytes, at, liar, index, random)
        }
    }
}

fn lie_in_dnode(
    bytes: &mut [u8],
    at: usize,
    liar: &Liar<'_>,
    index: usize,
    random: &mut Random,
) -> String {
    let object = at / SLOT_BYTES;
    let pointers = usize::from(bytes[at + 3]).min(3);
    let slots = 1 + usize::from(bytes[at + 12]);
    let bonus = at + CORE_BYTES + pointers * POINTER_BYTES;
    let end = (at + slots * SLOT_BYTES).min(bytes.len());
    let told = match random.index(8) {
        0 | 1 => {
            // Type, shift, levels, pointers, bonus type, checksum, compression, flags, block size,
            // bonus length, slots.
            let field = random.index(13);
            let value = match random.index(3) {
                0 => byte(random.draw()),
                1 => bytes[at + field].wrapping_add(1),
                _ => 1 << random.index(8),
            };
            bytes[at + field] = value;
            format!("header byte {field} = {value:#x}")
        }
        2 => {
            let field = [16, 24][random.index(2)];
            let number = bad_number(random, bytes);
            put(bytes, at + field, &number.to_le_bytes());
            format!("header word {field} = {number:#x}")
        }
        3 | 4 if pointers > 0 => {
            let place = at + CORE_BYTES + random.index(pointers) * POINTER_BYTES;
            lie_in_pointer(bytes, place, liar, index, random)
        }
        5 if bytes[at + 7] & 4 != 0 && end >= POINTER_BYTES => {
            let told = lie_in_pointer(bytes, end - POINTER_BYTES, liar, index, random);
            format!("spill {told}")
        }
        _ if end > bonus + 8 => {
            let length = usize::from(u16::from_le_bytes([bytes[at + 10], bytes[at + 11]]));
            let room = length.clamp(8, end - bonus);
            let place = bonus + random.index(room / 8) * 8;
            let number = bad_number(random, bytes);
            match random.index(3) {
                0 => put(bytes, place + random.index(8), &[number.to_le_bytes()[0]]),
                _ => put(bytes, place, &number.to_le_bytes()),
            }
            format!("bonus at {} changed by {number:#x}", place - bonus)
        }
        _ => return lie_anywhere(bytes, random),
    };
    format!(
        "dnode {object} ({:?}, bonus {:?}): {told}",
        ObjectType::from_code(bytes[at]),
        ObjectType::from_code(bytes[at + 4])
    )
}

fn lie_in_data(bytes: &mut [u8], code: u8, random: &mut Random) -> String {
    if ObjectType::from_code(code) == ObjectType::PackedNvlist {
        return lie_in_list(bytes, random);
    }
    let is_leaf = bytes.len() >= 48 && word(bytes, 0) == (1 << 63);
    let is_head = bytes.len() >= 16 && word(bytes, 0) == (1 << 63) + 1;
    if is_leaf && random.chance(2, 3) {
        return lie_in_leaf(bytes, random);
    }
    if is_head && random.chance(1, 2) {
        let at = random.index(13) * 8;
        let number = bad_number(random, bytes);
        put(bytes, at, &number.to_le_bytes());
        return format!("table head: word {at} = {number:#x}");
    }
    lie_anywhere(bytes, random)
}

/// A leaf of a table: its hash chains and chunks.
fn lie_in_leaf(bytes: &mut [u8], random: &mut Random) -> String {
    let shift = bytes.len().ilog2();
    let hash_bytes = 2 * (1_usize << (shift - 5));
    let chunks = 48 + hash_bytes;
    let chunk_count = (bytes.len() - chunks) / 24;
    match random.index(4) {
        0 => {
            let at = random.index(24) * 2;
            let number = bad_number(random, bytes);
            put(bytes, at, &number.to_le_bytes()[..2]);
            format!("leaf head: half {at} = {:#x}", number & 0xffff)
        }
        1 => {
            let at = 48 + random.index(hash_bytes / 2) * 2;
            let chunk = half(random.below(widen(chunk_count) + 2));
            put(bytes, at, &chunk.to_le_bytes());
            format!("leaf hash at {at} leads to chunk {chunk}")
        }
        _ => {
            let number = random.index(chunk_count.clamp(1, 40));
            let at = chunks + number * 24;
            // Links to chunks are 16 bits: in the midst of entries, at the end of bytes.
            let field = [0, 1, 2, 4, 6, 8, 10, 12, 22][random.index(9)];
            let value = half(random.below(widen(chunk_count) + 2));
            put(bytes, at + field, &value.to_le_bytes());
            format!("leaf chunk {number}: field {field} = {value}")
        }
    }
}

/// A name-value list in a name-value list, as often as there is room: XDR, one pair each.
fn nest_deeply(bytes: &mut [u8]) -> String {
    bytes.fill(0);
    let mut at = 0;
    let mut depth = 0;
    let mut push = |value: &[u8]| {
        put(bytes, at, value);
        at += value.len();
        at + 64 < bytes.len()
    };
    push(&[1, 1, 0, 0]);
    loop {
        // Version, flags; then encoded and decoded size, name, type 19 (nvlist), one element.
        let head: [u32; 7] = [
            0,
            1,
            0x7fff_0000,
            100,
            1,
            u32::from_be_bytes(*b"a\0\0\0"),
            19,
        ];
        for word in head {
            push(&word.to_be_bytes());
        }
        depth += 1;
        if !push(&1_u32.to_be_bytes()) {
            return format!("{depth} lists in each other");
        }
    }
}
