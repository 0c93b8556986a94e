//! ZAPs: their layout and entries.

use crate::look::Look;
use crate::out::Out;
use crate::pointer::histogram;
use std::sync::Arc;
use tarn_engine::inspect::InspectError;
use tarn_object::Object;
use tarn_object::zap::{ObjectZap, OwnedName, ZapEntry, ZapError, ZapValue};
use tarn_ondisk::declare::narrow;
use tarn_ondisk::units::{BlockId, ObjectId};
use tarn_ondisk::zap::fat::{FatHeader, pointer};
use tarn_ondisk::zap::hash::Cursor;
use tarn_ondisk::zap::leaf::{Leaf, LeafEntry};
use tarn_ondisk::zap::micro::Micro;
use tarn_ondisk::zap::{BlockKind, to_little_endian};
use tarn_ondisk::znode::DirectoryEntry;
use tarn_posix::{CaseSensitivity, Naming};

/// Number of buckets of each histogram.
const HISTOGRAM_SIZE: usize = 10;

/// Bytes of a name or a value in a chunk of a leaf.
const CHUNK_BYTES: usize = 21;

/// Values that are binary.
const BINARY: &[&str] = &[
    "DSL_CRYPTO_MASTER_KEY_1",
    "DSL_CRYPTO_HMAC_KEY_1",
    "DSL_CRYPTO_IV",
    "DSL_CRYPTO_MAC",
    tarn_ondisk::pool_directory::CHECKSUM_SALT,
];

/// The file types of directory entries, by number.
const ENTRY_TYPES: [&str; 16] = [
    "not specified",
    "FIFO",
    "Character Device",
    "3 (invalid)",
    "Directory",
    "5 (invalid)",
    "Block Device",
    "7 (invalid)",
    "Regular File",
    "9 (invalid)",
    "Symbolic Link",
    "11 (invalid)",
    "Socket",
    "Door",
    "Event Port",
    "15 (invalid)",
];

/// How the entries of a ZAP are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// Name and value.
    Plain,
    /// Names and files.
    Directory,
    /// Registered attributes.
    Attributes,
    /// Layouts of attributes.
    Layouts,
    /// Not at all.
    Hidden,
}

/// The ZAP in an object, with its normalisation.
pub fn open<'a>(look: &Look<'a>, object: &Arc<Object>) -> ObjectZap<'a> {
    let zap = ObjectZap::of(object, look.operation());
    let form = block(look, object, 0).and_then(|first| match BlockKind::of_block(&first)? {
        BlockKind::Micro => Some(Micro::open(first).ok()?.normalization()),
        _ => Some(FatHeader::open(&first).ok()?.normalization),
    });
    let naming = Naming::new(form.unwrap_or(0), false, CaseSensitivity::Sensitive);
    match naming.normalize() {
        Some(normalize) => zap.with_normalize(normalize),
        None => zap,
    }
}

/// All entries of a ZAP of the MOS whose names are text, in its own order.
pub fn entries(look: &Look<'_>, id: ObjectId) -> Result<Vec<(String, ZapValue)>, InspectError> {
    let object = look.directory().object(id)?;
    let entries = open(look, &object).entries();
    let entries = entries.map_err(|cause| InspectError::Zap { object: id, cause })?;
    let named = entries.into_iter().filter_map(|entry| match entry.name {
        OwnedName::Text(name) => Some((String::from_utf8_lossy(&name).into_owned(), entry.value)),
        OwnedName::Words(_) => None,
    });
    Ok(named.collect())
}

/// Shows a ZAP.
pub fn show(out: &mut Out, look: &Look<'_>, object: &Arc<Object>, contents: Contents) {
    if let Err(error) = statistics(out, look, object) {
        writeln!(out, "\tcannot read the ZAP: {error}");
        return;
    }
    if contents == Contents::Hidden {
        return;
    }
    writeln!(out);
    let zap = open(look, object);
    let mut cursor = Cursor::START;
    loop {
        let batch = match zap.entries_from(cursor, 1024) {
            Ok(batch) => batch,
            Err(error) => {
                writeln!(out, "\tcannot read the ZAP: {error}");
                return;
            }
        };
        let Some(last) = batch.last() else { return };
        // A damaged ZAP must not loop.
        if last.next == cursor {
            return;
        }
        cursor = last.next;
        for entry in &batch {
            match contents {
                Contents::Plain | Contents::Hidden => plain(out, entry),
                Contents::Directory => directory(out, entry),
                Contents::Attributes => attribute(out, entry),
                Contents::Layouts => layout(out, entry),
            }
        }
    }
}

fn name(out: &mut Out, entry: &ZapEntry) {
    match &entry.name {
        OwnedName::Text(bytes) => {
            write!(out, "\t\t");
            out.bytes(bytes);
            write!(out, " = ");
        }
        OwnedName::Words(words) => {
            let first = words.first().copied().unwrap_or(0);
            // OpenZFS prints it like this: in decimal, with an x at the end.
            write!(out, "\t\t0x{first:010}x = ");
        }
    }
}

fn plain(out: &mut Out, entry: &ZapEntry) {
    name(out, entry);
    let is_text =
        |known: &&&str| matches!(&entry.name, OwnedName::Text(name) if name == known.as_bytes());
    match &entry.value {
        ZapValue::Bytes(bytes) if matches!(entry.name, OwnedName::Text(_)) => {
            if BINARY.iter().any(|known| is_text(&known)) {
                bytes.iter().for_each(|byte| write!(out, "{byte:02x}"));
            } else {
                let end = bytes.iter().position(|byte| *byte == 0);
                out.bytes(&bytes[..end.unwrap_or(bytes.len())]);
            }
        }
        ZapValue::Bytes(numbers) => numbers.iter().for_each(|number| write!(out, "{number} ")),
        ZapValue::Halves(numbers) => numbers.iter().for_each(|number| write!(out, "{number} ")),
        ZapValue::Quads(numbers) => numbers.iter().for_each(|number| write!(out, "{number} ")),
        ZapValue::Words(numbers) => numbers
            .iter()
            .for_each(|number| write!(out, "{} ", number.cast_signed())),
    }
    writeln!(out);
}

fn directory(out: &mut Out, entry: &ZapEntry) {
    let word = entry.value.to_words().first().copied().unwrap_or(0);
    let leads_to = DirectoryEntry::from_word(word);
    name(out, entry);
    let kind = usize::from(leads_to.entry_type.number() & 15);
    writeln!(out, "{} (type: {})", leads_to.object, ENTRY_TYPES[kind]);
}

fn attribute(out: &mut Out, entry: &ZapEntry) {
    let Some(word) = entry.value.as_word() else {
        name(out, entry);
        writeln!(out);
        return;
    };
    name(out, entry);
    let (size, form, id) = ((word >> 24) & 0xffff, (word >> 16) & 0xff, word & 0xffff);
    writeln!(out, " {word:x} : [{size}:{form}:{id}]");
}

fn layout(out: &mut Out, entry: &ZapEntry) {
    name(out, entry);
    write!(out, "[");
    if entry.value.integer_count() == 0 {
        writeln!(out);
        return;
    }
    for id in entry.value.to_words() {
        write!(out, " {id} ");
    }
    writeln!(out, "]");
}

/// Prints the layout of a ZAP.
fn statistics(out: &mut Out, look: &Look<'_>, object: &Arc<Object>) -> Result<(), ZapError> {
    let zap = open(look, object);
    let entry_count = zap.count()?;
    let Some(first) = block(look, object, 0) else {
        return Ok(());
    };
    if BlockKind::of_block(&first) == Some(BlockKind::Micro) {
        writeln!(
            out,
            "\tmicrozap: {} bytes, {entry_count} entries",
            object.block_size()
        );
        return Ok(());
    }
    let Ok(header) = FatHeader::open(&first) else {
        return Ok(());
    };
    let leaves = Leaves::collect(look, object, &header, &first);
    let table = &header.table;
    writeln!(out, "\tFat ZAP stats:");
    writeln!(out, "\t\tPointer table:");
    writeln!(out, "\t\t\t{} elements", 1u64 << header.shift());
    writeln!(out, "\t\t\tzt_blk: {}", table.block);
    writeln!(out, "\t\t\tzt_numblks: {}", table.block_count);
    writeln!(out, "\t\t\tzt_shift: {}", table.shift);
    writeln!(out, "\t\t\tzt_blks_copied: {}", table.copied_count);
    writeln!(out, "\t\t\tzt_nextblk: {}", table.next_block);
    writeln!(out, "\t\tZAP entries: {}", header.entry_count);
    writeln!(out, "\t\tLeaf blocks: {}", header.leaf_count);
    writeln!(out, "\t\tTotal blocks: {}", header.free_block);
    writeln!(out, "\t\tzap_block_type: 0x{:x}", header.kind);
    writeln!(out, "\t\tzap_magic: 0x{:x}", header.magic);
    writeln!(out, "\t\tzap_salt: 0x{:x}", header.salt);
    for (title, counts) in [
        ("Leafs with 2^n pointers:", &leaves.by_pointers),
        ("Blocks with n*5 entries:", &leaves.by_entries),
        ("Blocks n/10 full:", &leaves.by_fullness),
        ("Entries with n chunks:", &leaves.entries_by_chunks),
        ("Buckets with n entries:", &leaves.buckets),
    ] {
        write!(out, "\t\t{title}\n{}", histogram(counts, 0));
    }
    Ok(())
}

/// A block of a ZAP in our byte order; none when it cannot be read.
fn block(look: &Look<'_>, object: &Arc<Object>, number: u64) -> Option<Vec<u8>> {
    let read = object.read_block_ordered(BlockId::from(number), look.operation());
    let (contents, order) = read.ok()?;
    let mut bytes = contents.to_vec();
    to_little_endian(&mut bytes, order).ok()?;
    Some(bytes)
}

/// Histograms over the leaves of a fat ZAP.
#[derive(Default)]
struct Leaves {
    by_pointers: [u64; HISTOGRAM_SIZE],
    by_entries: [u64; HISTOGRAM_SIZE],
    by_fullness: [u64; HISTOGRAM_SIZE],
    entries_by_chunks: [u64; HISTOGRAM_SIZE],
    buckets: [u64; HISTOGRAM_SIZE],
}

impl Leaves {
    fn collect(look: &Look<'_>, object: &Arc<Object>, header: &FatHeader, first: &[u8]) -> Leaves {
        let mut leaves = Leaves::default();
        let block_size = narrow(object.block_size().get());
        if header.is_embedded() {
            let count = block_size / 16;
            leaves.table(look, object, header, first, count..2 * count);
            return leaves;
        }
        for index in 0..header.table.block_count {
            let number = header.table.block.saturating_add(index);
            let Some(table) = block(look, object, number) else {
                break;
            };
            leaves.table(look, object, header, &table, 0..block_size / 8);
        }
        leaves
    }

    /// The leaves in a part of the pointer table, each run of equal ones once.
    fn table(
        &mut self,
        look: &Look<'_>,
        object: &Arc<Object>,
        header: &FatHeader,
        table: &[u8],
        entries: std::ops::Range<usize>,
    ) {
        let mut last = 0;
        for number in entries.filter_map(|index| pointer(table, index)) {
            if number == last {
                continue;
            }
            last = number;
            if let Some(bytes) = block(look, object, number)
                && let Ok(leaf) = Leaf::open(&bytes)
            {
                self.leaf(header, &leaf, bytes.len());
            }
        }
    }

    fn leaf(&mut self, header: &FatHeader, leaf: &Leaf<'_>, block_size: usize) {
        let count = |counts: &mut [u64; HISTOGRAM_SIZE], at: usize| {
            counts[at.min(HISTOGRAM_SIZE - 1)] += 1;
        };
        let to_index = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let pointers = header.shift().saturating_sub(leaf.prefix_length());
        count(&mut self.by_pointers, to_index(pointers));
        count(&mut self.by_entries, leaf.entry_count() / 5);
        // OpenZFS counts a chunk as 22 bytes here.
        let free = leaf.free_count() * (CHUNK_BYTES + 1);
        let full = block_size.saturating_sub(free) * 10 / block_size;
        count(&mut self.by_fullness, full);
        let bucket_shift = block_size.ilog2().saturating_sub(5);
        let mut buckets = vec![0usize; 1 << bucket_shift];
        for entry in leaf.entries_from(Cursor::START).unwrap_or_default() {
            count(&mut self.entries_by_chunks, chunks(leaf, &entry));
            let shifted = entry.hash.word() << leaf.prefix_length().min(63);
            let bucket = shifted.checked_shr(64 - bucket_shift).unwrap_or(0);
            if let Some(bucket) = buckets.get_mut(narrow(bucket)) {
                *bucket += 1;
            }
        }
        buckets
            .iter()
            .for_each(|length| count(&mut self.buckets, *length));
    }
}

/// The number of chunks of an entry: its own, its name's, its value's.
fn chunks(leaf: &Leaf<'_>, entry: &LeafEntry) -> usize {
    let name = match leaf.name(entry, false) {
        Ok(OwnedName::Text(name)) => name.len() + 1,
        _ => 1,
    };
    let value = usize::from(entry.integer_count) * usize::from(entry.integer_size);
    1 + name.div_ceil(CHUNK_BYTES) + value.div_ceil(CHUNK_BYTES)
}
