//! Space maps: entries of one and of two words, maps of metaslabs and logs.

use crate::piece::Piece;
use crate::target::{Input, Target, told};
use tarn_ondisk::declare::{ByteOrder, narrow, widen};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::space_map::{
    Entry, Region, SpaceMapDecoder, SpaceMapEncoder, SpaceMapVersion, TWO_WORD_RUN_MAX,
    histogram_bucket,
};
use tarn_ondisk::units::{AllocatedSize, VdevOffset};

/// What one block of a map may say.
pub const SPACE_MAP: Target = Target {
    name: "space-map",
    about: "space maps of metaslabs and logs, both versions of entries",
    run: space_map,
    seed,
    size_max: 4 << 10,
    // An entry of a word is here a structure.
    memory_per_byte: 64,
    // What is written again in the old form: as many words as the longest runs take, while the
    // buffer grows.
    memory_extra: ENTRIES_WRITTEN * 512 * 8 * 4,
};

/// How many entries are written again; a run of many units is many entries in the old form.
const ENTRIES_WRITTEN: usize = 64;
const UNITS_WRITTEN_MAX: u64 = 1 << 24;
/// Blocks of a map that we write.
const BLOCK_BYTES: u64 = 4096;

fn seed(piece: &Piece) -> Option<Vec<u8>> {
    let is_map = piece.is_data_of(ObjectType::SpaceMap);
    let region = [9_u8, 0, 40, 0, 0, 0, 0, 0, 0, 0, 0];
    // As a map of a metaslab, and as the log of a pool: entries of the other kind are refused
    // early.
    let is_log = piece.bytes.get(15).is_some_and(|byte| byte >> 6 == 3);
    told(
        &[if is_log { 2 } else { 0 }, region[0], region[2]],
        &piece.bytes,
    )
    .filter(|_| is_map)
}

fn space_map(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let how = input.byte();
    let (shift, size_shift) = (u32::from(input.byte() % 80), u32::from(input.byte() % 64));
    let order = crate::target::order_of(how);
    let is_log = how & 2 != 0;
    let region = match is_log {
        true => Region::LOG,
        // At the end of all addresses, no region reaches beyond it.
        false if how & 4 != 0 => Region {
            start: VdevOffset::from(u64::MAX << 30),
            size: AllocatedSize::from((1 << (size_shift % 31)) - 1),
            shift,
        },
        false => Region {
            start: VdevOffset::from(0),
            size: AllocatedSize::from(1 << size_shift),
            shift,
        },
    };
    let decoder = || match is_log {
        true => SpaceMapDecoder::of_log(),
        false => SpaceMapDecoder::new(region),
    };
    let mut whole = decoder();
    let entries: Vec<Entry> = whole
        .entries(input.rest, order)
        .map_while(Result::ok)
        .collect();
    for entry in &entries {
        let start = entry
            .start
            .distance_from(region.start)
            .expect("a run is in the region");
        let end = start
            .checked_add(entry.size)
            .expect("a run is in the region");
        assert!(end <= region.size, "a run is in the region");
        assert_eq!(entry.vdev.is_some(), is_log, "entries of a log name vdevs");
        let _ = histogram_bucket(entry.size, region.shift);
    }
    // The same by halves: what a block says holds for the next.
    let half = input.rest.len() / 16 * 8;
    let mut by_halves = decoder();
    let mut count = by_halves
        .entries(&input.rest[..half], order)
        .map_while(Result::ok)
        .count();
    count += by_halves
        .entries(&input.rest[half..], order)
        .map_while(Result::ok)
        .count();
    let _ = count;
    write_again(&entries, region, is_log);
}

/// What was read is written, and read as the same.
fn write_again(entries: &[Entry], region: Region, is_log: bool) {
    let Some(unit) = 1_u64.checked_shl(region.shift) else {
        assert!(entries.is_empty(), "no run has such a unit");
        return;
    };
    for version in [SpaceMapVersion::V1, SpaceMapVersion::V2] {
        if is_log && version == SpaceMapVersion::V1 {
            continue;
        }
        let is_writable = |entry: &&Entry| {
            let from = entry
                .start
                .distance_from(region.start)
                .map_or(u64::MAX, |from| from.get());
            let units = entry.size.get() / unit;
            // An entry has so many bits for where it begins.
            let bits = match version {
                SpaceMapVersion::V1 => 47,
                SpaceMapVersion::V2 => 63,
            };
            let is_near = (from / unit).saturating_add(units) < 1 << bits;
            is_near && units < UNITS_WRITTEN_MAX.min(TWO_WORD_RUN_MAX * 512)
        };
        let written: Vec<&Entry> = entries
            .iter()
            .filter(is_writable)
            .take(ENTRIES_WRITTEN)
            .collect();
        let mut encoder = SpaceMapEncoder::new(region, version, BLOCK_BYTES, 0);
        for entry in &written {
            encoder.begin(entry.action, entry.txg, entry.pass);
            encoder.run(entry.action, entry.vdev, entry.start, entry.size);
        }
        let stored = encoder.finish();
        let mut decoder = match is_log {
            true => SpaceMapDecoder::of_log(),
            false => SpaceMapDecoder::new(region),
        };
        let mut sums = [0_u64; 2];
        for block in stored.chunks(narrow(BLOCK_BYTES)) {
            for entry in decoder.entries(block, ByteOrder::Little) {
                let entry = entry.expect("what we wrote is read");
                sums[0] = sums[0].wrapping_add(entry.size.get());
            }
        }
        for entry in &written {
            sums[1] = sums[1].wrapping_add(entry.size.get());
        }
        assert_eq!(sums[0], sums[1], "a map changed by being stored");
        assert!(widen(stored.len()).is_multiple_of(8));
    }
}
