//! Logs as they lie on the disk, sound and not: how far they are followed, and what is claimed of
//! them.

mod support;

use std::ops::ControlFlow;
use std::sync::Arc;

use support::{Memory, SET, World, machine};
use tarn_block::{LogBlockWrite, LogPlace};
use tarn_host::buffer::Buffer;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::checksum::Checksum;
use tarn_ondisk::intent_log::{LogBlock, LogForm, LogRecord, LoggedChange, LoggedWrite};
use tarn_ondisk::objset::IntentLogHead;
use tarn_ondisk::units::{ObjectId, PhysicalSize, Txg};
use tarn_probe::Operation;
use tarn_zil::chain::{ChainEnd, Found, walk};
use tarn_zil::{ClaimError, survey};

const BLOCK_BYTES: usize = 4096;
/// In which group the blocks were born.
const BIRTH: Txg = Txg::new(20);

fn run(body: impl FnOnce(&Arc<World>) + Send + 'static) {
    let memory = Memory::default();
    machine(1, 1)
        .run(|host| body(&World::create(host, 1, &memory)))
        .expect("power stays on");
}

/// A place for the block of this number of a log.
fn place(world: &World, log: u64, number: u64) -> BlockPointer {
    let name = Checksum([log, 7, SET.get(), number]);
    let size = PhysicalSize::new(4096);
    world
        .io
        .allocate_log_block(LogPlace::LogVdevs, size, name, BIRTH)
        .unwrap()
}

fn put(world: &World, pointer: BlockPointer, records: &[u8], next: BlockPointer) {
    let mut block = vec![0; BLOCK_BYTES];
    LogBlock::encode(&mut block, LogForm::Zilog2, next, records);
    let write = LogBlockWrite {
        pointer,
        contents: Buffer::from_slice(&block),
    };
    let operation = Operation::unmeasured();
    world
        .io
        .write_log(vec![write], Vec::new(), &operation)
        .unwrap();
}

fn record(sequence: u64, change: LoggedChange) -> Vec<u8> {
    let record = LogRecord {
        txg: BIRTH,
        sequence,
        case_insensitive: false,
        change,
    };
    record.encode()
}

fn cut(sequence: u64) -> Vec<u8> {
    let change = LoggedChange::Truncate {
        object: ObjectId::new(5),
        offset: sequence,
        length: 1,
    };
    record(sequence, change)
}

/// A log of `count` written blocks with two records each, and one that was never written.
fn log(world: &World, count: u64) -> (IntentLogHead, Vec<BlockPointer>) {
    let places: Vec<_> = (1..=count + 1).map(|at| place(world, 3, at)).collect();
    for (index, pair) in places.windows(2).enumerate() {
        let sequence = u64::try_from(index).unwrap() * 2 + 1;
        let records = [cut(sequence), cut(sequence + 1)].concat();
        put(world, pair[0], &records, pair[1]);
    }
    (head(places[0]), places)
}

fn head(first: BlockPointer) -> IntentLogHead {
    IntentLogHead {
        first,
        ..IntentLogHead::EMPTY
    }
}

/// How many blocks and records a walk finds, and how it ends.
fn follow(world: &World, head: &IntentLogHead) -> (usize, Vec<u64>, ChainEnd) {
    let (mut blocks, mut records) = (0, Vec::new());
    let end = walk(&world.io, head, &Operation::unmeasured(), &mut |found| {
        match found {
            Found::Block(_) => blocks += 1,
            Found::Written(_) => {}
            Found::Record(record) => records.push(record.sequence),
        }
        ControlFlow::Continue(())
    });
    (blocks, records, end)
}

#[test]
fn a_log_ends_with_the_block_that_was_not_written() {
    run(|world| {
        let (head, _) = log(world, 3);
        let (blocks, records, end) = follow(world, &head);
        assert_eq!((blocks, records), (4, vec![1, 2, 3, 4, 5, 6]));
        assert!(matches!(end, ChainEnd::NotWritten { block: 4 }), "{end}");
    });
}

#[test]
fn a_claimed_log_ends_where_it_was_claimed() {
    run(|world| {
        let (head, _) = log(world, 3);
        for (block, record, expected) in [
            (4, 6, (4, 6)),
            (2, 3, (2, 3)),
            (2, 4, (2, 4)),
            (1, 0, (1, 0)),
        ] {
            let claimed = IntentLogHead {
                claim_txg: Txg::new(15),
                claimed_block_sequence: block,
                claimed_record_sequence: record,
                flags: IntentLogHead::CLAIMED_RECORD_VALID,
                ..head
            };
            let (blocks, records, end) = follow(world, &claimed);
            assert_eq!((blocks, records.len()), expected);
            assert!(matches!(end, ChainEnd::Claimed), "{end}");
        }
    });
}

#[test]
fn chains_that_lie_end() {
    run(|world| {
        // The last block leads to the first: by its own name, and by the name of the next.
        let (loops, places) = log(world, 2);
        let disguised = BlockPointer {
            checksum_words: places[2].checksum_words,
            ..places[0]
        };
        for next in [places[0], disguised] {
            put(world, places[1], &cut(3), next);
            let (_, records, end) = follow(world, &loops);
            assert_eq!(records[..2], [1, 2]);
            assert!(matches!(end, ChainEnd::NotWritten { .. }), "{end}");
        }
        // A block of another log is there.
        let (foreign, places) = log(world, 2);
        put(world, place(world, 4, 2), &cut(3), BlockPointer::HOLE);
        put(world, places[0], &cut(1), place(world, 4, 2));
        assert!(matches!(
            follow(world, &foreign).2,
            ChainEnd::NotWritten { block: 1 }
        ));
        // What is no record.
        let first = place(world, 5, 1);
        let mut unknown = cut(2);
        unknown[0] = 77;
        for (records, after) in [
            ([cut(1), unknown].concat(), 1),
            ([cut(4), cut(3)].concat(), 4),
            ([cut(4), cut(4)].concat(), 4),
        ] {
            put(world, first, &records, BlockPointer::HOLE);
            let (_, found, end) = follow(world, &head(first));
            assert_eq!(found, [after]);
            let is_told =
                matches!(end, ChainEnd::BadRecord { block: 1, after: told, .. } if told == after);
            assert!(is_told, "{end}");
            let refused = survey(&world.io, &head(first), BIRTH, &Operation::unmeasured());
            assert!(matches!(refused, Err(ClaimError::Damaged { .. })));
        }
    });
}

#[test]
fn what_is_claimed_is_what_no_space_map_has() {
    run(|world| {
        let operation = Operation::unmeasured();
        let (head, places) = log(world, 3);
        let claim = survey(&world.io, &head, Txg::new(15), &operation).unwrap();
        assert_eq!(claim.newest, BIRTH);
        let claim = claim.claim.unwrap();
        assert_eq!(claim.blocks, places);
        let expected = IntentLogHead {
            claim_txg: Txg::new(15),
            claimed_block_sequence: 4,
            claimed_record_sequence: 6,
            flags: IntentLogHead::REPLAY_NEEDED | IntentLogHead::CLAIMED_RECORD_VALID,
            ..head
        };
        assert_eq!(claim.head, expected);
        // Again: nothing is to be done.
        let again = survey(&world.io, &expected, Txg::new(16), &operation).unwrap();
        assert!(again.claim.is_none());
        assert_eq!(again.newest, BIRTH);
        // Born in stored groups: allocated already.
        let later = survey(&world.io, &head, BIRTH.next(), &operation).unwrap();
        assert!(later.claim.unwrap().blocks.is_empty());
    });
}

#[test]
fn logs_that_cannot_be_replayed_are_not_claimed() {
    run(|world| {
        let operation = Operation::unmeasured();
        let look = |head: &IntentLogHead, first| survey(&world.io, head, first, &operation);
        // Nothing was written: there is nothing to claim, and the head is emptied.
        let empty = look(&head(place(world, 6, 1)), Txg::new(15)).unwrap();
        assert!(empty.claim.unwrap().head.first.is_hole());
        // Much younger than the pool.
        let future = BlockPointer {
            logical_birth: Txg::new(1 << 40),
            ..place(world, 6, 1)
        };
        let refused = look(&head(future), Txg::new(15));
        assert!(matches!(refused, Err(ClaimError::OfTheFuture { .. })));
        // Blocks that are shared with another file: of a group that was never stored, and where no
        // references are counted.
        let first = place(world, 6, 1);
        let clone = LoggedChange::CloneRange {
            object: ObjectId::new(5),
            offset: 0,
            length: 128,
            block_size: 128,
            pointers: vec![place(world, 9, 9)],
        };
        put(world, first, &record(1, clone), BlockPointer::HOLE);
        let unstored = look(&head(first), Txg::new(15)).unwrap().claim.unwrap();
        assert!(unstored.head.first.is_hole() && unstored.shared.is_empty());
        let refused = look(&head(first), BIRTH.next());
        assert!(matches!(
            refused,
            Err(ClaimError::Clones { sequence: 1, .. })
        ));
        // A write whose block was not written: no `fsync` returned for it.
        let write = LoggedChange::Write(Box::new(LoggedWrite {
            is_stored_already: false,
            object: ObjectId::new(5),
            offset: 0,
            length: 4096,
            block_offset: 0,
            pointer: place(world, 9, 9),
            data: None,
        }));
        let records = [cut(1), record(2, write), cut(3)].concat();
        put(world, first, &records, BlockPointer::HOLE);
        let claim = look(&head(first), Txg::new(15)).unwrap().claim.unwrap();
        assert_eq!(claim.head.claimed_record_sequence, 1);
        assert_eq!(claim.blocks, [first]);
    });
}
