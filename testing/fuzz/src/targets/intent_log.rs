//! The intent log: blocks of a chain, and records of every type.

use super::block_pointer;
use crate::piece::{Kind, Piece};
use crate::target::{Input, Target, told};
use tarn_ondisk::acl::{self, AclVersion};
use tarn_ondisk::declare::ByteOrder;
use tarn_ondisk::intent_log::{LogBlock, LogForm, LogRecord, LoggedChange};

/// A block, with its chain and records.
pub const LOG_BLOCK: Target = Target {
    name: "log-block",
    about: "blocks of the intent log, in both forms",
    run: block,
    seed: block_seed,
    size_max: 4097,
    memory_per_byte: 64,
    memory_extra: 0,
};

/// One record by itself: the search need not mind the chain.
pub const LOG_RECORD: Target = Target {
    name: "log-record",
    about: "records of the intent log, of every type",
    run: |bytes| {
        let mut input = Input::new(bytes);
        let order = input.order();
        record(input.rest, order);
    },
    seed: record_seed,
    size_max: 2 << 10,
    memory_per_byte: 64,
    memory_extra: 0,
};

/// A log block that was read by itself is padded to the least size, for both forms.
const BLOCK_BYTES: usize = 4096;

fn block_seed(piece: &Piece) -> Option<Vec<u8>> {
    match piece.kind {
        Kind::LogBlock => told(&[0], &piece.bytes),
        _ => None,
    }
}

fn record_seed(piece: &Piece) -> Option<Vec<u8>> {
    let Kind::LogBlock = piece.kind else {
        return None;
    };
    let block = crate::target::sized(&piece.bytes, piece.bytes.len().max(BLOCK_BYTES));
    let decoded = LogBlock::decode(&block, LogForm::Zilog2).ok()?;
    (!decoded.records.is_empty()).then(|| [&[0], decoded.records].concat())
}

fn block(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let form = match input.byte() & 1 {
        0 => LogForm::Zilog2,
        _ => LogForm::Zilog,
    };
    let Ok(block) = LogBlock::decode(input.rest, form) else {
        return;
    };
    block_pointer::ask(&block.chain.next);
    let records: Vec<LogRecord> = block.records().map_while(Result::ok).collect();
    let encoded: Vec<u8> = records.iter().flat_map(LogRecord::encode).collect();
    let mut stored = vec![0; (encoded.len() + 512).next_multiple_of(BLOCK_BYTES)];
    LogBlock::encode(&mut stored, form, block.chain.next, &encoded);
    let again = LogBlock::decode(&stored, form).expect("what we wrote is a log block");
    let again: Result<Vec<LogRecord>, _> = again.records().collect();
    assert_eq!(again, Ok(records), "records changed by being stored");
}

fn record(bytes: &[u8], order: ByteOrder) {
    let Ok((record, length)) = LogRecord::decode(bytes, order) else {
        return;
    };
    assert!(
        length >= 32 && length <= bytes.len(),
        "a record ends in its bytes"
    );
    let _ = (record.change.only_object(), record.change.type_name());
    let stored = record.encode();
    let again = LogRecord::decode(&stored, ByteOrder::Little);
    let (again, size) = again.unwrap_or_else(|error| panic!("what we wrote is refused: {error}"));
    assert_eq!(
        (&again, size),
        (&record, stored.len()),
        "a record changed by being stored"
    );
    match &record.change {
        LoggedChange::SetInitialAcl { entries, .. } => {
            let _ = acl::decode_entries(entries, ByteOrder::Little, AclVersion::Initial);
        }
        LoggedChange::SetAcl { acl, .. } => {
            let _ = acl::decode_entries(&acl.entries, ByteOrder::Little, AclVersion::Fuid);
        }
        LoggedChange::CloneRange { pointers, .. } => pointers.iter().for_each(block_pointer::ask),
        LoggedChange::Write(write) => block_pointer::ask(&write.pointer),
        _ => {}
    }
}
