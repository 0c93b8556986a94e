//! The history and the intent log as OpenZFS wrote them: they say what its `zdb` says, and encode
//! to the same bytes again.

use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::fuid::Fuid;
use tarn_ondisk::history::{self, HistoryHead};
use tarn_ondisk::intent_log::{
    CreateKind, LogBlock, LogForm, LogRecord, LoggedChange, LoggedWrite, RenameKind, mask,
};
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::units::{ObjectId, Txg};

/// The used part of the history of a pool, and what `zdb -hh` says of its records.
const HISTORY: (&[u8], &str) = (
    include_bytes!("golden/history-v28.bin"),
    include_str!("golden/history-v28.txt"),
);

/// The state of its ring, as `zdb` prints it.
const HISTORY_HEAD: HistoryHead = HistoryHead {
    creation_end: 928,
    ring_end: 131_072,
    begin: 928,
    end: 4140,
    lost_count: 0,
};

/// The used part of log blocks with one record each.
macro_rules! log_block {
    ($name:literal) => {
        include_bytes!(concat!("golden/intent-log-", $name, ".bin"))
    };
}

#[test]
fn the_history_has_the_records_that_zdb_prints() {
    let records: Result<Vec<NvList>, _> = history::records(HISTORY.0).collect();
    let records = records.expect("OpenZFS wrote it");
    let printed: String = records
        .iter()
        .map(|record| record.indented(2).to_string())
        .collect();
    assert_eq!(printed, HISTORY.1);
    let encoded: Vec<u8> = records.iter().flat_map(history::encode_record).collect();
    assert!(encoded == HISTORY.0, "the records encode to other bytes");
}

#[test]
fn the_command_that_made_the_pool_ends_what_is_kept() {
    HISTORY_HEAD.check().expect("OpenZFS wrote it");
    let pieces: Vec<_> = HISTORY_HEAD
        .pieces()
        .iter()
        .map(|piece| (piece.offset, piece.length))
        .collect();
    assert_eq!(pieces, [(0, 928), (928, 4140 - 928)]);
    let kept: Result<Vec<NvList>, _> = history::records(&HISTORY.0[..928]).collect();
    let kept = kept.expect("OpenZFS wrote it");
    let command = kept.last().map(|last| last.string(history::name::COMMAND));
    let expected = "zpool create -o version=28 -o ashift=9 fxv28 mirror /share/v28/0.img \
                    /share/v28/1.img";
    assert_eq!(command, Some(Ok(expected)));
}

#[test]
fn a_damaged_history_is_refused_from_there_on() {
    let mut damaged = HISTORY.0.to_vec();
    damaged[928] ^= 0xff;
    let records: Vec<_> = history::records(&damaged).collect();
    assert_eq!(records.len(), 4);
    assert!(records[..3].iter().all(Result::is_ok));
    assert!(records[3].is_err());
}

/// Decodes the only record of a block, and encodes it again.
fn only_record(used: &[u8]) -> LogRecord {
    let mut block = used.to_vec();
    block.resize(4096, 0);
    let decoded = LogBlock::decode(&block, LogForm::Zilog2).expect("OpenZFS wrote it");
    let records: Result<Vec<LogRecord>, _> = decoded.records().collect();
    let records = records.expect("OpenZFS wrote it");
    let [record] = &records[..] else {
        panic!("there is one record in the block");
    };
    assert_eq!(record.encode(), decoded.records);
    let mut encoded = vec![0; 4096];
    LogBlock::encode(
        &mut encoded,
        LogForm::Zilog2,
        decoded.chain.next,
        &record.encode(),
    );
    // All but the checksum is the same.
    assert_eq!(encoded[..152], block[..152]);
    assert_eq!(encoded[184..], block[184..]);
    record.clone()
}

#[test]
fn creations_are_what_zdb_prints() {
    let record = only_record(log_block!("create"));
    assert_eq!((record.txg, record.sequence), (Txg::new(35), 489));
    let LoggedChange::Create(create) = record.change else {
        panic!("it is a creation");
    };
    assert_eq!(create.kind, CreateKind::File);
    assert_eq!(
        (create.directory, create.object),
        (ObjectId::new(23), ObjectId::new(106))
    );
    assert_eq!(
        (create.mode, create.dnode_slots, create.generation),
        (0o100_644, 1, 35)
    );
    assert_eq!(create.name, "new-0");

    let LoggedChange::Create(create) = only_record(log_block!("mkdir")).change else {
        panic!("it is a creation");
    };
    assert_eq!(
        (create.kind, create.object),
        (CreateKind::Directory, ObjectId::new(250))
    );
    assert_eq!(create.name, "newdir");

    let LoggedChange::Create(create) = only_record(log_block!("symlink")).change else {
        panic!("it is a creation");
    };
    assert_eq!(create.kind, CreateKind::Link("g".into()));
    assert_eq!((create.owner, create.mode), (Fuid::posix(0), 0o120_777));
    assert_eq!(create.name, "s");
}

#[test]
fn changes_of_names_are_what_zdb_prints() {
    assert_eq!(
        only_record(log_block!("remove")).change,
        LoggedChange::Remove {
            directory: ObjectId::new(34),
            name: "rand-16384".into()
        },
    );
    assert_eq!(
        only_record(log_block!("rmdir")).change,
        LoggedChange::RemoveDirectory {
            directory: ObjectId::new(22),
            name: "d54".into()
        },
    );
    assert_eq!(
        only_record(log_block!("link")).change,
        LoggedChange::Link {
            directory: ObjectId::new(250),
            object: ObjectId::new(251),
            name: "h".into(),
        },
    );
    let LoggedChange::Rename(rename) = only_record(log_block!("rename")).change else {
        panic!("it is a rename");
    };
    assert_eq!(rename.kind, RenameKind::Plain);
    assert_eq!(
        (rename.from_directory, rename.to_directory),
        (ObjectId::new(34), ObjectId::new(217))
    );
    assert_eq!(
        (rename.from.as_str(), rename.to.as_str()),
        (Some("rand-20000"), Some("rand-20000.moved"))
    );
}

#[test]
fn changes_of_files_are_what_zdb_prints() {
    let LoggedChange::SetAttributes(set) = only_record(log_block!("setattr")).change else {
        panic!("it sets attributes");
    };
    assert_eq!(
        (set.object, set.mask, set.size),
        (ObjectId::new(2), 0x2068, 0)
    );
    assert_eq!(set.mask & mask::SIZE, mask::SIZE);
    assert_eq!(set.extended, None);
    assert_eq!(
        only_record(log_block!("setsaxattr")).change,
        LoggedChange::SetXattr {
            object: ObjectId::new(251),
            name: "user.k".into(),
            value: b"val".to_vec(),
        },
    );
    let LoggedChange::Write(write) = only_record(log_block!("write")).change else {
        panic!("it is a write");
    };
    let expected = LoggedWrite {
        is_stored_already: false,
        object: ObjectId::new(106),
        offset: 0,
        length: 6,
        block_offset: 0,
        pointer: BlockPointer::default(),
        data: write.data.clone(),
    };
    assert_eq!(*write, expected);
    assert_eq!(write.data.map(|data| data.len()), Some(6));
}

#[test]
fn damaged_log_blocks_are_refused() {
    let mut whole = log_block!("rename").to_vec();
    whole.resize(4096, 0);
    // The used size, the magic number, a record's type and its length.
    for place in [136 + 7, 144, 184, 192, 192 + 7] {
        let mut damaged = whole.clone();
        damaged[place] ^= 0x60;
        let refused = match LogBlock::decode(&damaged, LogForm::Zilog2) {
            Ok(block) => block.records().any(|record| record.is_err()),
            Err(_) => true,
        };
        assert!(refused, "byte {place} does not matter");
    }
}

#[test]
fn the_ring_of_the_history_is_stored_as_five_words() {
    let bytes = HISTORY_HEAD.to_bytes();
    assert_eq!(bytes.len(), 40);
    assert_eq!(
        HistoryHead::from_bytes(&bytes, ByteOrder::Little),
        Ok(HISTORY_HEAD)
    );
}
