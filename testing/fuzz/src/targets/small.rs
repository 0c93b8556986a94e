//! Small structures: tables of domains, names of damaged blocks, values of the dedup table, gang
//! headers, bookmarks.

use super::block_pointer;
use crate::piece::{Kind, Piece};
use crate::target::{Input, Target, sized, told};
use tarn_ondisk::block_cloning::ClonedBlocks;
use tarn_ondisk::bookmark::{Bookmark, RedactedRun};
use tarn_ondisk::bptree::BlockTreeEntry;
use tarn_ondisk::checksum::{Checksum, EmbeddedChecksum};
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::dedup::{
    self, DedupHistogram, DedupKey, DedupLogHead, FlatDedupValue, LegacyDedupValue,
};
use tarn_ondisk::error_log::{ErrorPlace, HeadErrorPlace};
use tarn_ondisk::features;
use tarn_ondisk::fuid::FuidTable;
use tarn_ondisk::gang::GangHeader;
use tarn_ondisk::indirect::MovedRun;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::scan::Scan;

/// Whatever is too small to be a target of its own.
pub const SMALL: Target = Target {
    name: "small",
    about: "tables of domains, error logs, dedup values, gang headers, bookmarks, scans, names of features",
    run: small,
    seed: |piece: &Piece| match piece.kind {
        Kind::Data(code) if code == ObjectType::ForeignIdTable.code() => told(&[0], &piece.bytes),
        Kind::Label => told(&[0], &piece.bytes),
        Kind::Pointer => told(&[4], &[&piece.bytes[..], &piece.bytes[..]].concat()),
        Kind::Uberblock => told(&[2], b"1:2:3:4"),
        _ => None,
    },
    size_max: 4 << 10,
    memory_per_byte: 128,
    memory_extra: 0,
};

fn small(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let how = input.byte();
    let order = crate::target::order_of(how);
    match how >> 1 {
        0 => domains(input.rest),
        1 => names(input.rest),
        2 => gang(input.rest),
        3 => fixed(input.rest, order),
        _ => {
            let _ = Bookmark::from_stored(input.rest, order).map(|bookmark| {
                Bookmark::from_stored(&bookmark.to_stored(bookmark.version()), ByteOrder::Little)
            });
            let _ = dedup::split_value(input.rest);
        }
    }
}

fn domains(bytes: &[u8]) {
    let mut table = match FuidTable::decode(bytes) {
        Ok(table) => table,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let again = FuidTable::decode(&table.encode());
    assert!(
        again.is_ok_and(|again| again == table),
        "a table changed by being stored"
    );
    if let Some((index, _)) = table.index("a domain") {
        assert_eq!(table.domain(index), Some("a domain"));
        assert_eq!(table.index("a domain"), Some((index, false)));
    }
}

fn names(bytes: &[u8]) {
    if let Ok(place) = ErrorPlace::from_name(bytes) {
        let again = ErrorPlace::from_name(place.to_string().as_bytes());
        assert_eq!(again.map(|again| again.to_string()), Ok(place.to_string()));
    }
    let _ = HeadErrorPlace::from_name(bytes).map(|place| place.to_string());
    let text = String::from_utf8_lossy(bytes);
    let _ = (
        features::access_of_guid(&text, true),
        features::Feature::from_name(&text),
    );
}

fn gang(bytes: &[u8]) {
    let mut block = sized(bytes, bytes.len().clamp(512, 2048));
    // The tail of a header of 512 bytes: chance finds no magic number.
    EmbeddedChecksum::new(Checksum::ZERO).write_to_end_of(&mut block[..512]);
    if let Ok(header) = GangHeader::from_block(&block) {
        header.present_members().for_each(block_pointer::ask);
    }
}

fn fixed(bytes: &[u8], order: ByteOrder) {
    stably::<DedupKey>(bytes, order);
    stably::<LegacyDedupValue>(bytes, order);
    stably::<FlatDedupValue>(bytes, order);
    stably::<DedupLogHead>(bytes, order);
    stably::<DedupHistogram>(bytes, order);
    stably::<ClonedBlocks>(bytes, order);
    stably::<RedactedRun>(bytes, order);
    stably::<BlockTreeEntry>(bytes, order);
    stably::<MovedRun>(bytes, order);
    stably::<Scan>(bytes, order);
}

/// What is decoded is the same after it was stored.
fn stably<T: Stored + PartialEq + std::fmt::Debug>(bytes: &[u8], order: ByteOrder) {
    let Ok(value) = T::from_short_bytes(&bytes[..bytes.len().min(T::SIZE)], order) else {
        return;
    };
    assert_eq!(
        T::from_bytes(&value.to_bytes(), ByteOrder::Little),
        Ok(value)
    );
}
