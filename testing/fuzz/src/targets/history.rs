//! The history of a pool: records, and the state of the ring that they are in.

use super::nvlist;
use crate::piece::{Kind, Piece};
use crate::target::{Input, Target, told};
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::history::{self, HistoryHead, Piece as Part};
use tarn_ondisk::object_type::ObjectType;

/// Records one behind the other, or the bonus of their object.
pub const HISTORY: Target = Target {
    name: "history",
    about: "records of a pool's history, and the ring they are in",
    run: history,
    seed: |piece: &Piece| match piece.kind {
        Kind::Data(code) if code == ObjectType::History.code() => told(&[0], &piece.bytes),
        Kind::Bonus(code) if code == ObjectType::HistoryOffsets.code() => told(&[1], &piece.bytes),
        _ => None,
    },
    size_max: 8 << 10,
    memory_per_byte: 64,
    memory_extra: 0,
};

fn history(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    if input.byte() & 1 != 0 {
        ring(input.rest);
        return;
    }
    for record in history::records(input.rest) {
        let Ok(record) = record else { return };
        nvlist::ask(&record);
        let stored = history::encode_record(&record);
        let again: Result<Vec<_>, _> = history::records(&stored).collect();
        assert_eq!(again, Ok(vec![record]), "a record changed by being stored");
    }
}

fn ring(bytes: &[u8]) {
    let Ok(mut head) = HistoryHead::from_short_bytes(bytes, ByteOrder::Little) else {
        return;
    };
    if head.check().is_err() {
        return;
    }
    let sound = |head: &HistoryHead, parts: &[Part]| {
        for part in parts {
            let end = part.offset.checked_add(part.length);
            assert!(
                end.is_some_and(|end| end <= head.ring_end),
                "a part is in the ring"
            );
        }
    };
    sound(&head, &head.pieces());
    head.keep_creation();
    // A record of 100 bytes is added, as an open pool does.
    if !head.can_hold(100) {
        return;
    }
    for _ in 0..4 {
        if head.has_room(100) {
            let parts = head.append(100);
            assert_eq!(parts.iter().map(|part| part.length).sum::<u64>(), 100);
            sound(&head, &parts);
            break;
        }
        sound(&head, &head.oldest_length());
        let length = bytes
            .get(40..48)
            .map_or([0; 8], |bytes| std::array::from_fn(|at| bytes[at]));
        if head.drop_oldest(length).is_err() {
            return;
        }
    }
    let _ = head.check();
}
