//! Block pointers, histograms and bytes in `zdb`'s notation.

use std::fmt::Write;
use tarn_ondisk::block_pointer::{BlockPointer, Dva, PointerKind};

/// The stars of a histogram's longest row.
const STARS: u64 = 40;

/// A pointer in short: its first DVA, or with `all_places` every one; sizes, births and checksum.
pub fn compact(pointer: &BlockPointer, all_places: bool, is_freed: bool) -> String {
    if pointer.is_embedded() {
        let [code, logical, physical] = embedded_fields(pointer);
        return format!(
            "EMBEDDED et={code} {logical:x}L/{physical:x}P B={}",
            pointer.logical_birth
        );
    }
    let mut text = String::new();
    let count = if all_places { pointer.dva_count() } else { 1 };
    for dva in pointer.dva_words.iter().take(count) {
        let gang = if dva.is_gang() { "G" } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{gang} ", place(*dva));
    }
    let logical = pointer.logical_size().get();
    let birth = pointer.logical_birth;
    if pointer.is_hole() {
        let _ = write!(text, "{logical:x}L B={birth}");
        return text;
    }
    let _ = write!(
        text,
        "{logical:x}L/{:x}P F={} B={birth}/{}{} cksum={}",
        pointer.physical_size().get(),
        pointer.fill(),
        pointer.physical_birth(),
        if is_freed { " FREE" } else { "" },
        pointer.checksum_words
    );
    text
}

/// `vdev:offset:size`, the latter in hexadecimal.
pub fn place(dva: Dva) -> String {
    format!(
        "{}:{:x}:{:x}",
        dva.vdev(),
        dva.offset().get(),
        dva.allocated_size().get()
    )
}

/// The fields of an embedded pointer's payload: kind, logical and physical size.
pub fn embedded_fields(pointer: &BlockPointer) -> [u64; 3] {
    let properties = pointer.properties;
    [
        (properties >> 40) & 0xff,
        (properties & 0x1ff_ffff) + 1,
        ((properties >> 25) & 0x7f) + 1,
    ]
}

/// Whether a pointer leads to a stored block.
pub fn is_stored(pointer: &BlockPointer) -> bool {
    pointer.kind() == PointerKind::Stored
}

/// A histogram, as far as it is not empty: one row for each power of two or other bucket.
#[doc(alias = "dump_histogram")]
pub fn histogram(counts: &[u64], first: usize) -> String {
    let filled = || counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let (low, high) = match (filled().next(), filled().next_back()) {
        (Some((low, _)), Some((high, _))) => (low, high),
        // OpenZFS prints nothing for an empty one.
        _ => return String::new(),
    };
    let largest = counts.iter().copied().max().unwrap_or(0).max(STARS);
    let mut text = String::new();
    for (index, count) in counts.iter().enumerate().take(high + 1).skip(low) {
        let missing = u128::from(largest - count) * u128::from(STARS) / u128::from(largest);
        let stars = STARS - u64::try_from(missing).unwrap_or(STARS);
        let stars = "*".repeat(usize::try_from(stars).unwrap_or(0));
        let _ = writeln!(text, "\t\t\t{:3}: {count:6} {stars}", index + first);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_ondisk::block_pointer::StoredBlock;
    use tarn_ondisk::checksum::{Checksum, ChecksumKind};
    use tarn_ondisk::compression::Compression;
    use tarn_ondisk::object_type::ObjectType;
    use tarn_ondisk::units::{
        AllocatedSize, Level, LogicalSize, PhysicalSize, Txg, VdevId, VdevOffset,
    };

    /// A block of the MOS as OpenZFS prints it.
    #[test]
    fn a_pointer_in_short_is_its_place_sizes_births_and_checksum() {
        let at = |offset| {
            Dva::new(
                VdevId::from(0),
                VdevOffset::from(offset),
                AllocatedSize::from(0x1000),
            )
        };
        let pointer = BlockPointer::stored(&StoredBlock {
            dvas: &[at(0x26d_9000), at(0x942_3000)],
            logical_size: LogicalSize::from(0x4000),
            physical_size: PhysicalSize::from(0x1000),
            compression: Compression::Lz4,
            checksum_kind: ChecksumKind::Fletcher4,
            checksum: Checksum([0x70_6bcb_2ac8, 1, 2, 3]),
            object_type: ObjectType::Dnode,
            level: Level::ZERO,
            birth: Txg::from(139),
            fill: 32,
        });
        let rest = "4000L/1000P F=32 B=139/139 cksum=000000706bcb2ac8:0000000000000001:\
                    0000000000000002:0000000000000003";
        assert_eq!(
            compact(&pointer, false, false),
            format!("0:26d9000:1000 {rest}")
        );
        assert_eq!(
            compact(&pointer, true, false),
            format!("0:26d9000:1000 0:9423000:1000 {rest}")
        );
        let hole = compact(&BlockPointer::HOLE, false, false);
        assert_eq!(hole, "0:0:0 200L B=0");
    }

    #[test]
    fn a_histogram_has_forty_stars_at_most() {
        let text = histogram(&[0, 0, 0, 496, 16, 0], 0);
        let stars = "*".repeat(40);
        assert_eq!(
            text,
            format!("\t\t\t  3:    496 {stars}\n\t\t\t  4:     16 **\n")
        );
        assert_eq!(histogram(&[0, 2], 9), "\t\t\t 10:      2 **\n");
        assert_eq!(histogram(&[0, 0], 0), "");
    }
}
