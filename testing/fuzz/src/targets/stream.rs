//! Records of send streams, of every type.

use crate::piece::{Kind, Piece};
use crate::target::{Input, Target, sized, told};
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::stream::{MAGIC, RECORD_BYTES, Record, order_of};

/// One record, in either byte order.
pub const RECORD: Target = Target {
    name: "stream-record",
    about: "records of send streams, of every type",
    run,
    seed,
    size_max: 1 + RECORD_BYTES,
    memory_per_byte: 64,
    memory_extra: 0,
};

/// Pools have no streams: a record is made of a pointer's words, and of each type some.
fn seed(piece: &Piece) -> Option<Vec<u8>> {
    let Kind::Pointer = piece.kind else {
        return None;
    };
    let code = piece
        .bytes
        .iter()
        .fold(0u8, |sum, byte| sum.wrapping_add(*byte))
        % 11;
    let mut record = vec![code, 0, 0, 0, 0, 0, 0, 0];
    if code == 0 {
        record.extend(MAGIC.to_le_bytes());
    }
    record.extend(&piece.bytes);
    told(&[0], &sized(&record, RECORD_BYTES))
}

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let order = input.order();
    let Ok(bytes) = <[u8; RECORD_BYTES]>::try_from(sized(input.rest, RECORD_BYTES)) else {
        return;
    };
    let _ = order_of(&bytes);
    let Ok(framed) = Record::decode(&bytes, order) else {
        return;
    };
    let record = framed.record;
    let _ = (record.payload_bytes(), record.to_guid());
    if let Record::Begin { begin, .. } = &record {
        let _ = (begin.kind(), begin.features().to_string());
        let _ = (begin.to_name.as_str(), begin.to_name.as_bytes());
    }
    if let Record::Write(write) = &record {
        let _ = write.compression();
    }
    // What was understood is written, and understood again.
    let again = Record::decode(&record.encode(), ByteOrder::Little);
    assert_eq!(again.map(|again| again.record), Ok(record));
}
