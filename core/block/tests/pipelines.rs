//! Blocks written and read back, through all pipelines, on disks in memory.

mod support;

use support::*;
use tarn_block::{
    BlockIoOptions, DatasetPolicy, Embedding, ForceGanging, ReadError, ReadRequest, SelfHealError,
    WriteError, WritePolicy,
};
use tarn_ondisk::block_pointer::{BlockPointer, Dva, PointerKind};
use tarn_ondisk::checksum::ChecksumKind;
use tarn_ondisk::compression::Compression;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{Level, PhysicalSize, Txg, VdevId};
use tarn_probe::{Operation, OperationKind};
use tarn_transform::{ChecksumAlgorithm, CompressionAlgorithm, GzipLevel, ZstdLevel};

fn compressions() -> Vec<CompressionAlgorithm> {
    vec![
        CompressionAlgorithm::Off,
        CompressionAlgorithm::Lzjb,
        CompressionAlgorithm::Gzip(GzipLevel::new(6).unwrap()),
        CompressionAlgorithm::Zle,
        CompressionAlgorithm::Lz4,
        CompressionAlgorithm::Zstd(ZstdLevel::DEFAULT),
    ]
}

const CHECKSUMS: [ChecksumAlgorithm; 9] = [
    ChecksumAlgorithm::Off,
    ChecksumAlgorithm::Fletcher2,
    ChecksumAlgorithm::Fletcher4,
    ChecksumAlgorithm::Sha256,
    ChecksumAlgorithm::NoParity,
    ChecksumAlgorithm::Sha512,
    ChecksumAlgorithm::Skein,
    ChecksumAlgorithm::EdonR,
    ChecksumAlgorithm::Blake3,
];

#[test]
fn every_compression_checksum_and_number_of_copies_reads_back() {
    for ashift in [9, 12] {
        let pool = Pool::new(3, ashift, options());
        for compression in compressions() {
            for checksum in CHECKSUMS {
                for copies in 1..=3 {
                    let dataset = DatasetPolicy {
                        compression,
                        checksum,
                        copies,
                        ..DATASET
                    };
                    for data in [text(16384, 3), noise(8192, 4), text(512, 5)] {
                        let pointer = pool.write_one(&data, policy(&dataset));
                        assert_eq!(&*pool.read(&pointer), &data[..]);
                        assert_eq!(pointer.check(), Ok(()));
                        assert!(pointer.is_embedded() || pointer.dva_count() == copies);
                        pool.free(&pointer);
                    }
                }
            }
        }
        assert_eq!(pool.allocated(), 0);
    }
}

#[test]
fn a_batch_gives_pointers_in_the_order_of_its_requests() {
    let pool = Pool::new(2, 9, options());
    let blocks: Vec<_> = (0..100).map(|seed| noise(4096, seed)).collect();
    let requests = blocks.iter().map(|data| request(data, file_policy()));
    let pointers = pool.write(requests.collect(), 1);
    let read = pool.read_many(&pointers);
    for (block, data) in read.into_iter().zip(&blocks) {
        assert_eq!(&*block.unwrap(), &data[..]);
    }
}

#[test]
fn what_saves_less_than_an_eighth_is_stored_plain() {
    let pool = Pool::new(1, 9, options());
    let mut data = noise(16384, 1);
    data[..1024].fill(0);
    let pointer = pool.write_one(&data, file_policy());
    assert_eq!(pointer.compression(), Compression::Off);
    data[..4096].fill(0);
    let pointer = pool.write_one(&data, file_policy());
    assert_eq!(pointer.compression(), Compression::Lz4);
    assert!(pointer.physical_size().get() <= 14336);
    assert_eq!(&*pool.read(&pointer), &data[..]);
}

#[test]
fn zeros_become_a_hole_that_remembers_its_birth_if_there_was_a_block() {
    let pool = Pool::new(1, 12, options());
    let first = pool.write_one(&noise(4096, 1), file_policy());
    let mut zeros = request(&[0; 4096], file_policy());
    assert_eq!(pool.write(vec![zeros.clone()], 1), [BlockPointer::HOLE]);
    zeros.previous = first;
    let hole = pool.write(vec![zeros.clone()], 1)[0];
    assert!(hole.is_hole());
    assert_eq!(hole.birth(), TXG);
    assert_eq!(hole.logical_size().get(), 4096);
    assert_eq!(hole.object_type(), ObjectType::PlainFile);
    assert_eq!(&*pool.read(&hole), &[0; 4096][..]);
    zeros.policy.compression = CompressionAlgorithm::Off;
    let stored = pool.write(vec![zeros], 1)[0];
    assert_eq!(stored.kind(), PointerKind::Stored, "without compression");
}

#[test]
fn a_small_block_lives_in_its_pointer_where_that_is_allowed() {
    let pool = Pool::new(1, 12, options());
    let data = [5; 4096];
    let pointer = pool.write_one(&data, file_policy());
    assert_eq!(pointer.kind(), PointerKind::Embedded);
    assert_eq!(pointer.birth(), TXG);
    assert_eq!(&*pool.read(&pointer), &data[..]);
    assert_eq!(pool.allocated(), 0);
    pool.free(&pointer);
    let forbidden = [
        WritePolicy {
            embedding: Embedding::Forbidden,
            ..file_policy()
        },
        WritePolicy {
            level: Level::new(1),
            ..file_policy()
        },
        WritePolicy {
            object_type: ObjectType::Dnode,
            ..file_policy()
        },
    ];
    for policy in forbidden {
        assert_eq!(pool.write_one(&data, policy).kind(), PointerKind::Stored);
    }
}

#[test]
fn a_damaged_copy_is_passed_over_and_written_anew() {
    let pool = Pool::new(3, 9, options());
    let dataset = DatasetPolicy {
        copies: 3,
        ..DATASET
    };
    let data = noise(4096, 9);
    let pointer = pool.write_one(&data, policy(&dataset));
    let copies: Vec<Dva> = pointer.dvas().collect();
    pool.damage(copies[0], 17);
    pool.damage(copies[1], 4000);
    assert_eq!(&*pool.read(&pointer), &data[..]);
    // The first two were repaired: now they must do without the third.
    pool.damage(copies[2], 0);
    pool.damage(copies[1], 0);
    assert_eq!(&*pool.read(&pointer), &data[..]);
}

#[test]
fn a_copy_that_may_be_in_the_midst_of_being_written_again_is_left_as_it_is() {
    let pool = Pool::new(2, 9, options());
    let dataset = DatasetPolicy {
        copies: 2,
        ..DATASET
    };
    let data = noise(4096, 9);
    let pointer = pool.write_one(&data, policy(&dataset));
    let copies: Vec<Dva> = pointer.dvas().collect();
    pool.io.note_stored(Txg::new(TXG.get() - 1));
    pool.damage(copies[0], 17);
    assert_eq!(&*pool.read(&pointer), &data[..]);
    pool.damage(copies[1], 17);
    let operation = Operation::unmeasured();
    assert!(
        pool.io.read(&pointer, SCOPE, &operation).is_err(),
        "no repair"
    );
    let leaves = pool.io.vdevs().leaves();
    let errors = leaves.iter().map(|leaf| leaf.errors.values().checksum);
    assert_eq!(errors.sum::<u64>(), 0, "and nobody is blamed");
    // The same bits once more.
    pool.damage(copies[1], 17);
    pool.io.note_stored(TXG);
    assert_eq!(&*pool.read(&pointer), &data[..]);
    pool.damage(copies[1], 17);
    assert_eq!(&*pool.read(&pointer), &data[..], "the first was repaired");
}

/// Its places may belong to another block by now, whose bytes would be lost.
#[test]
fn a_copy_of_a_block_that_was_looked_up_long_ago_is_left_as_it_is() {
    let pool = Pool::new(2, 9, options());
    let dataset = DatasetPolicy {
        copies: 2,
        ..DATASET
    };
    let data = noise(4096, 9);
    let pointer = pool.write_one(&data, policy(&dataset));
    let copies: Vec<Dva> = pointer.dvas().collect();
    let store = |later| pool.io.note_stored(Txg::new(TXG.get() + later));
    store(0);
    let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::Read);
    let read = || pool.io.read(&pointer, SCOPE, &operation);
    store(1);
    pool.damage(copies[0], 17);
    assert_eq!(&*read().unwrap(), &data[..], "one group is too few");
    pool.damage(copies[1], 17);
    assert_eq!(&*read().unwrap(), &data[..], "the first was repaired");
    // The same bits once more.
    pool.damage(copies[1], 17);
    store(2);
    pool.damage(copies[0], 17);
    assert_eq!(&*read().unwrap(), &data[..]);
    let request = ReadRequest::plain(pointer, SCOPE);
    let mut batched = pool.io.read_many(&[request], &operation);
    assert_eq!(&*batched.remove(0).unwrap(), &data[..]);
    let errors = || -> u64 {
        let leaves = pool.io.vdevs().leaves();
        leaves
            .iter()
            .map(|leaf| leaf.errors.values().checksum)
            .sum()
    };
    assert_eq!(errors(), 1, "that of before");
    pool.damage(copies[1], 17);
    assert!(read().is_err(), "no repair");
    // The same bits once more.
    pool.damage(copies[1], 17);
    operation.look_up_anew();
    assert_eq!(&*read().unwrap(), &data[..]);
    pool.damage(copies[1], 17);
    assert_eq!(&*read().unwrap(), &data[..], "the first was repaired");
}

/// Of a pointer that lies, the good copy is read; nothing is written to where it says that another
/// would be.
#[test]
fn a_copy_that_cannot_be_where_the_pointer_says_is_not_written_there() {
    let pool = Pool::new(2, 12, options());
    let dataset = DatasetPolicy {
        copies: 2,
        ..DATASET
    };
    let data = noise(4096, 9);
    let mut lying = pool.write_one(&data, policy(&dataset));
    let neighbours = [1, 2].map(|seed| noise(4096, seed));
    let pointers = neighbours
        .each_ref()
        .map(|data| pool.write_one(data, policy(&dataset)));
    for copy in pointers[0].dvas() {
        let [place, offset] = lying.dva_words[0].words();
        let between = (copy.offset().get() >> 9) + 1;
        let place = place & !(0xff_ffff << 32) | (copy.vdev().get() << 32);
        lying.dva_words[0] = Dva::from_words([place, offset & (1 << 63) | between]);
        assert_eq!(&*pool.read(&lying), &data[..]);
    }
    // Each by itself: no copy of them was written over.
    for (pointer, data) in pointers.iter().zip(&neighbours) {
        for copy in 0..2 {
            let mut alone = *pointer;
            alone.dva_words[1 - copy] = alone.dva_words[copy];
            assert_eq!(&*pool.read(&alone), &data[..]);
        }
    }
}

#[test]
fn in_a_read_only_pool_nothing_is_written_anew() {
    let pool = Pool::new(2, 9, BlockIoOptions::default());
    let dataset = DatasetPolicy {
        copies: 2,
        ..DATASET
    };
    let pointer = pool.write_one(&noise(4096, 9), policy(&dataset));
    let copies: Vec<Dva> = pointer.dvas().collect();
    pool.damage(copies[0], 17);
    pool.read(&pointer);
    pool.damage(copies[1], 17);
    let error = pool.io.read(&pointer, SCOPE, &Operation::unmeasured());
    let Err(ReadError::Unreadable { copies: failed, .. }) = error else {
        panic!("{error:?}");
    };
    let tried: Vec<Dva> = failed.iter().map(|failure| failure.place).collect();
    assert_eq!(tried, copies, "one failure per copy, in the order tried");
}

/// The canary of every other test here: a checksum that does not look would not see this.
#[test]
fn damage_anywhere_in_a_block_is_seen() {
    for checksum in CHECKSUMS {
        let dataset = DatasetPolicy {
            checksum,
            ..DATASET
        };
        let is_checked = !matches!(
            checksum,
            ChecksumAlgorithm::Off | ChecksumAlgorithm::NoParity
        );
        for at in [0, 1, 511, 2048, 4095] {
            let pool = Pool::new(1, 9, options());
            let pointer = pool.write_one(&noise(4096, at), policy(&dataset));
            pool.damage(pointer.dva_words[0], at);
            let read = pool.io.read(&pointer, SCOPE, &Operation::unmeasured());
            assert_eq!(read.is_err(), is_checked, "{checksum} at {at}");
        }
    }
}

#[test]
fn a_block_split_by_force_reads_back_and_is_freed_whole() {
    for (ashift, copies) in [(9, 1), (9, 2), (12, 1), (12, 3)] {
        let force = ForceGanging {
            from: PhysicalSize::new(8192),
            percent: 100,
            seed: 1,
        };
        let pool = Pool::new(
            2,
            ashift,
            BlockIoOptions {
                force_ganging: Some(force),
                ..options()
            },
        );
        let dataset = DatasetPolicy { copies, ..DATASET };
        let data = noise(131072, 2);
        let pointer = pool.write_one(&data, policy(&dataset));
        assert!(pointer.is_gang());
        assert_eq!(pointer.check(), Ok(()));
        assert_eq!(pointer.dva_count(), (copies + 1).min(3), "header copies");
        assert_eq!(pointer.physical_size().get(), 131072);
        // Pieces of the second copy are counted in the second place, and so on.
        assert_eq!(pointer.allocated_size().get(), pool.allocated_by(&pointer));
        assert_eq!(&*pool.read(&pointer), &data[..]);
        pool.free(&pointer);
        assert_eq!(pool.allocated(), 0);
    }
}

impl Pool {
    /// What is allocated of places that a pointer answers for: all, in a pool of one block, but for
    /// the headers of nested gangs with more copies than their parent has places.
    fn allocated_by(&self, _: &BlockPointer) -> u64 {
        self.allocated()
    }
}

#[test]
fn a_gang_header_that_is_damaged_is_read_from_its_copy() {
    let force = ForceGanging {
        from: PhysicalSize::new(16384),
        percent: 100,
        seed: 1,
    };
    let pool = Pool::new(
        2,
        9,
        BlockIoOptions {
            force_ganging: Some(force),
            ..options()
        },
    );
    let data = noise(16384, 2);
    let pointer = pool.write_one(&data, file_policy());
    let headers: Vec<Dva> = pointer.dvas().collect();
    pool.damage(headers[0], 100);
    assert_eq!(&*pool.read(&pointer), &data[..]);
    pool.damage(headers[1], 100);
    assert_eq!(&*pool.read(&pointer), &data[..], "the first was repaired");
    pool.damage(headers[0], 200);
    pool.damage(headers[1], 200);
    let read = pool.io.read(&pointer, SCOPE, &Operation::unmeasured());
    assert!(matches!(read, Err(ReadError::Unreadable { .. })));
    let freed = pool.io.free(&pointer, phase(1), &Operation::unmeasured());
    assert!(freed.is_err(), "what cannot be known is not freed");
}

#[test]
fn healing_writes_all_places_of_a_block_that_lack_it() {
    let force = ForceGanging {
        from: PhysicalSize::new(16384),
        percent: 100,
        seed: 1,
    };
    let options = BlockIoOptions {
        force_ganging: Some(force),
        ..options()
    };
    let dataset = DatasetPolicy {
        copies: 2,
        ..DATASET
    };
    for (size, is_gang) in [(8192, false), (131072, true)] {
        let pool = Pool::new(2, 9, options);
        let data = noise(size, 5);
        let pointer = pool.write_one(&data, policy(&dataset));
        assert_eq!(pointer.is_gang(), is_gang);
        let heal = || {
            pool.io
                .self_heal(&pointer, &Operation::unmeasured())
                .unwrap()
        };
        assert_eq!(heal(), 0);
        let mut healed = 0;
        for lacking in [0, 1] {
            pool.lose(VdevId::new(lacking));
            // What it has to read is made good by that.
            healed += heal();
            pool.lose(VdevId::new(1 - lacking));
            assert_eq!(&*pool.read(&pointer), &data[..], "disk {lacking} has all");
            heal();
            assert_eq!(heal(), 0);
        }
        assert!(healed > if is_gang { 4 } else { 0 }, "{healed}");
        pool.lose(VdevId::new(0));
        pool.lose(VdevId::new(1));
        let refused = pool.io.self_heal(&pointer, &Operation::unmeasured());
        assert!(
            matches!(refused, Err(SelfHealError::Read(_))),
            "{refused:?}"
        );
    }
    // What has no checksum is left as it is: perhaps the second copy is the right one.
    let pool = Pool::new(2, 9, options);
    let unchecked = DatasetPolicy {
        checksum: ChecksumAlgorithm::Off,
        ..dataset
    };
    let pointer = pool.write_one(&noise(8192, 6), policy(&unchecked));
    pool.damage(pointer.dvas().next().unwrap(), 3);
    let healed = pool.io.self_heal(&pointer, &Operation::unmeasured());
    assert_eq!(healed.unwrap(), 0);
}

#[test]
fn where_no_range_is_large_enough_blocks_are_split_until_space_is_gone() {
    let pool = Pool::new(1, 9, options());
    // Fill the pool with small blocks and free every second.
    let mut small = Vec::new();
    loop {
        let data = noise(2048, small.len() as u64);
        match pool.io.write(
            vec![request(&data, file_policy())],
            phase(1),
            &Operation::unmeasured(),
        ) {
            Ok(pointers) => small.push((pointers[0], data)),
            Err(WriteError::NoSpace(_)) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(pool.allocated(), DISK_BYTES, "to the last sector");
    for (pointer, _) in small.iter().step_by(2) {
        pool.free(pointer);
    }
    for txg in 0..3 {
        let txg = Txg::new(TXG.get() + txg);
        pool.space.take_changes(txg);
        pool.space.txg_stored(txg);
    }
    let later = tarn_block::WritePhase {
        txg: Txg::new(TXG.get() + 3),
        pass: 1,
    };
    let data = noise(65536, 77);
    let written = pool.io.write(
        vec![request(&data, file_policy())],
        later,
        &Operation::unmeasured(),
    );
    let pointer = written.unwrap()[0];
    assert!(pointer.is_gang());
    assert_eq!(&*pool.read(&pointer), &data[..]);
    for (pointer, data) in small.iter().skip(1).step_by(2) {
        assert_eq!(&*pool.read(pointer), &data[..], "the others are untouched");
    }
}

#[test]
fn a_batch_without_room_leaves_nothing_allocated() {
    let pool = Pool::new(1, 9, options());
    let requests = (0..80).map(|seed| request(&noise(131072, seed), file_policy()));
    let outcome = pool
        .io
        .write(requests.collect(), phase(1), &Operation::unmeasured());
    assert!(matches!(outcome, Err(WriteError::NoSpace(_))));
    assert_eq!(pool.allocated(), 0);
}

#[test]
fn from_the_second_pass_on_a_block_of_this_txg_is_rewritten_where_it_is() {
    let pool = Pool::new(1, 9, options());
    let again = |data: &[u8], previous, pass| {
        let mut request = request(data, file_policy());
        request.previous = previous;
        pool.write(vec![request], pass)[0]
    };
    let first = pool.write_one(&noise(4096, 1), file_policy());
    let elsewhere = again(&noise(4096, 2), first, 1);
    assert!(!elsewhere.is_same_block(&first), "not in the first pass");
    let rewritten = again(&noise(4096, 3), first, 2);
    assert!(rewritten.is_same_block(&first));
    assert_eq!(&*pool.read(&rewritten), &noise(4096, 3)[..]);
    let larger = again(&noise(8192, 4), first, 2);
    assert!(!larger.is_same_block(&first), "it does not fit");
    let mut older = first;
    older.set_births(Txg::new(99), Txg::new(99));
    let new = again(&noise(4096, 3), older, 2);
    assert!(!new.is_same_block(&older), "an older txg needs it");
    assert_ne!(new.dvas().next(), older.dvas().next());
}

/// A pool in which blocks of 8 KiB and more are split, and so are pieces of that size.
fn splitting_pool(ashift: u32) -> Pool {
    let force = ForceGanging {
        from: PhysicalSize::new(8192),
        percent: 100,
        seed: 1,
    };
    let options = BlockIoOptions {
        force_ganging: Some(force),
        ..options()
    };
    Pool::new(2, ashift, options)
}

#[test]
fn from_the_second_pass_on_a_gang_of_this_txg_is_rewritten_where_it_is() {
    for (ashift, copies) in [(9, 1), (9, 2), (12, 1), (12, 3)] {
        let pool = splitting_pool(ashift);
        let policy = policy(&DatasetPolicy { copies, ..DATASET });
        let again = |data: &[u8], previous, pass| {
            let mut request = request(data, policy);
            request.previous = previous;
            pool.write(vec![request], pass)[0]
        };
        for size in [8192, 16384, 131072] {
            let first = pool.write_one(&noise(size, 1), policy);
            assert!(first.is_gang());
            let taken = pool.allocated();
            let mut last = first;
            for pass in 2..5 {
                let data = noise(size, u64::from(pass));
                let next = again(&data, last, pass);
                assert!(next.is_same_block(&first), "pass {pass}");
                assert_ne!(next.checksum(), last.checksum());
                assert_eq!(pool.allocated(), taken);
                assert_eq!(&*pool.read(&next), &data[..]);
                last = next;
            }
            let before = pool.io.read(&first, SCOPE, &Operation::unmeasured());
            assert!(before.is_err(), "it is gone");
            // All places lead to it, those of nested headers, too.
            assert!(pool.io.self_heal(&last, &Operation::unmeasured()).is_ok());
            for header in last.dvas().skip(1) {
                pool.damage(header, 5);
            }
            assert_eq!(&*pool.read(&last), &noise(size, 4)[..]);
            pool.free(&last);
        }
        assert_eq!(pool.allocated(), 0);
    }
}

#[test]
fn a_gang_is_not_rewritten_by_the_first_pass_or_another_txg_nor_in_another_size_or_number() {
    let pool = splitting_pool(9);
    let again = |data: &[u8], policy, previous, pass| {
        let mut request = request(data, policy);
        request.previous = previous;
        pool.write(vec![request], pass)[0]
    };
    let first = pool.write_one(&noise(16384, 1), file_policy());
    let is_elsewhere = |new: BlockPointer| {
        let headers: Vec<Dva> = first.dvas().collect();
        assert!(new.dvas().all(|dva| !headers.contains(&dva)));
        assert_eq!(&*pool.read(&first), &noise(16384, 1)[..], "as it was");
    };
    is_elsewhere(again(&noise(16384, 2), file_policy(), first, 1));
    is_elsewhere(again(&noise(32768, 2), file_policy(), first, 2));
    is_elsewhere(again(&noise(4096, 2), file_policy(), first, 2));
    let more = policy(&DatasetPolicy {
        copies: 3,
        ..DATASET
    });
    is_elsewhere(again(&noise(16384, 2), more, first, 2));
    // As many headers as before, but more copies of each piece.
    let of_pieces = WritePolicy {
        copies: 2,
        gang_copies: 2,
        ..file_policy()
    };
    is_elsewhere(again(&noise(16384, 2), of_pieces, first, 2));
    let mut older = first;
    older.set_births(Txg::new(99), Txg::new(99));
    let new = again(&noise(16384, 2), file_policy(), older, 2);
    is_elsewhere(new);
    let zeros = again(&[0; 16384], file_policy(), first, 2);
    assert!(zeros.is_hole());
    is_elsewhere(zeros);
}

#[test]
fn a_gang_whose_size_shrank_since_the_last_pass_keeps_its_place() {
    let pool = splitting_pool(9);
    let mut data = text(65536, 1);
    let first = pool.write_one(&data, file_policy());
    assert!(first.is_gang() && first.compression() == Compression::Lz4);
    data[32768..].fill(b' ');
    let mut smaller = request(&data, file_policy());
    smaller.previous = first;
    let second = pool.write(vec![smaller], 2)[0];
    assert!(second.is_same_block(&first));
    assert_eq!(&*pool.read(&second), &data[..]);
}

#[test]
fn a_gang_whose_headers_cannot_be_read_is_written_anew() {
    let pool = splitting_pool(9);
    let first = pool.write_one(&noise(8192, 1), file_policy());
    let headers: Vec<Dva> = first.dvas().collect();
    let again = |seed| {
        let mut request = request(&noise(8192, seed), file_policy());
        request.previous = first;
        pool.write(vec![request], 2)[0]
    };
    pool.io.note_stored(Txg::new(TXG.get() - 1));
    pool.damage(headers[0], 100);
    assert!(again(2).is_same_block(&first), "the other one says it, too");
    pool.damage(headers[0], 100);
    pool.damage(headers[1], 100);
    let anew = again(3);
    assert!(!anew.is_same_block(&first));
    assert_eq!(&*pool.read(&anew), &noise(8192, 3)[..]);
}

/// What it has instead verifies: headers as they were before, and the pieces they lead to.
#[test]
fn a_disk_that_lost_the_writes_of_the_last_pass_spoils_no_gang_and_is_made_good() {
    for (size, ashift) in [(8192, 9), (8192, 12), (65536, 9)] {
        for (lost, other) in [(0, 1), (1, 0)] {
            let (lost, other) = (VdevId::new(lost), VdevId::new(other));
            let pool = splitting_pool(ashift);
            let policy = WritePolicy {
                copies: 2,
                gang_copies: 2,
                ..file_policy()
            };
            let first = pool.write_one(&noise(size, 1), policy);
            let before = pool.copy_of(lost);
            let data = noise(size, 2);
            let mut again = request(&data, policy);
            again.previous = first;
            let last = pool.write(vec![again], 2)[0];
            assert!(last.is_same_block(&first));
            let right = [lost, other].map(|disk| pool.copy_of(disk));
            pool.put_back(lost, &before);
            let operation = Operation::unmeasured();
            // As long as the group is not stored nothing is mended.
            pool.io.note_stored(Txg::new(TXG.get() - 1));
            assert_eq!(&*pool.read(&last), &data[..]);
            assert_eq!(pool.copy_of(lost), before);
            pool.io.note_stored(TXG);
            assert_eq!(&*pool.read(&last), &data[..]);
            assert_eq!(pool.copy_of(other), right[1], "it was right");
            pool.io.self_heal(&last, &operation).unwrap();
            assert_eq!([lost, other].map(|disk| pool.copy_of(disk)), right);
            // The other way round: only pieces are as they were.
            pool.put_back(lost, &before);
            pool.io.self_heal(&last, &operation).unwrap();
            assert_eq!([lost, other].map(|disk| pool.copy_of(disk)), right);
        }
    }
}

/// Whatever part of them, so that headers and pieces that do not belong together are found on both
/// disks.
#[test]
fn sectors_that_lost_the_writes_of_the_last_pass_spoil_no_gang_that_has_them_twice() {
    let mut dice = 1_u64;
    for _ in 0..40 {
        let pool = splitting_pool(9);
        let policy = WritePolicy {
            copies: 2,
            gang_copies: 2,
            ..file_policy()
        };
        let first = pool.write_one(&noise(16384, 1), policy);
        let disks = [VdevId::new(0), VdevId::new(1)];
        let before = disks.map(|disk| pool.copy_of(disk));
        let data = noise(16384, 2);
        let mut again = request(&data, policy);
        again.previous = first;
        let last = pool.write(vec![again], 2)[0];
        let parts = [0, 1].map(|copy| places_of_copy(&pool, &last, copy));
        let mut images = disks.map(|disk| pool.copy_of(disk));
        for (one, two) in parts[0].iter().zip(&parts[1]) {
            dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1);
            let (vdev, range) = match dice >> 62 {
                0 => one,
                1 => two,
                _ => continue,
            };
            images[*vdev][range.clone()].copy_from_slice(&before[*vdev][range.clone()]);
        }
        for (disk, image) in disks.iter().zip(&images) {
            pool.put_back(*disk, image);
        }
        for _ in 0..3 {
            assert_eq!(&*pool.read(&last), &data[..]);
        }
    }
}

/// Where one of the copies of each part of a block is: on which disk, and which bytes of it.
fn places_of_copy(
    pool: &Pool,
    pointer: &BlockPointer,
    copy: usize,
) -> Vec<(usize, std::ops::Range<usize>)> {
    let all = pool.io.places(pointer, &Operation::unmeasured()).unwrap();
    // Two by two: each part has its copies one after the other.
    let places = all.iter().skip(copy).step_by(2);
    places
        .map(|place| {
            let start = usize::try_from(place.offset.get()).unwrap();
            let size = usize::try_from(place.size.get()).unwrap();
            (place.vdev.index(), start..start + size)
        })
        .collect()
}

#[test]
fn a_block_that_shrank_since_the_last_pass_keeps_its_place() {
    let pool = Pool::new(1, 9, options());
    let mut data = text(16384, 1);
    let first = pool.write_one(&data, file_policy());
    data[8192..].fill(b' ');
    let mut smaller = request(&data, file_policy());
    smaller.previous = first;
    let second = pool.write(vec![smaller], 2)[0];
    assert!(second.is_same_block(&first));
    assert_eq!(second.compression(), Compression::Lz4);
    assert_eq!(&*pool.read(&second), &data[..]);
}

#[test]
fn late_passes_do_not_compress_what_they_rewrite() {
    let pool = Pool::new(1, 9, options());
    let data = text(16384, 1);
    let first = pool.write_one(&data, file_policy());
    let mut again = request(&data, file_policy());
    again.previous = first;
    let plain = pool.write(vec![again.clone()], 8)[0];
    assert_eq!(plain.compression(), Compression::Off);
    again.previous = plain;
    let same = pool.write(vec![again], 9)[0];
    assert!(same.is_same_block(&plain));
}

#[test]
fn frees_of_later_passes_are_kept_for_the_next_txg() {
    let pool = Pool::new(1, 9, options());
    let pointer = pool.write_one(&noise(4096, 1), file_policy());
    pool.io
        .free(&pointer, phase(2), &Operation::unmeasured())
        .unwrap();
    assert_eq!(pool.allocated(), 4096);
    assert_eq!(pool.io.take_deferred_frees(), [pointer]);
    assert!(pool.io.take_deferred_frees().is_empty());
    pool.free(&pointer);
    assert_eq!(pool.allocated(), 0);
    let twice = pool.io.free(&pointer, phase(1), &Operation::unmeasured());
    assert!(twice.is_err());
}

#[test]
fn pointers_that_cannot_be_are_refused() {
    let pool = Pool::new(1, 9, options());
    let good = pool.write_one(&noise(4096, 1), file_policy());
    let read = |pointer: &BlockPointer| pool.io.read(pointer, SCOPE, &Operation::unmeasured());
    let mut unknown = good;
    unknown.set_checksum(ChecksumKind::from_code(77), good.checksum());
    assert!(matches!(
        read(&unknown),
        Err(ReadError::UnknownChecksum { code: 77, .. })
    ));
    let mut unknown = good;
    unknown.set_compression(Compression::from_code(88));
    assert!(matches!(
        read(&unknown),
        Err(ReadError::UnknownCompression { code: 88, .. })
    ));
    let mut elsewhere = good;
    let [place, offset] = good.dva_words[0].words();
    elsewhere.dva_words[0] = Dva::from_words([place | 9 << 32, offset]);
    assert!(matches!(
        read(&elsewhere),
        Err(ReadError::Unreadable { .. })
    ));
    elsewhere.dva_words[0] = Dva::from_words([place, u64::MAX >> 1]);
    assert!(matches!(
        read(&elsewhere),
        Err(ReadError::Unreadable { .. })
    ));
    let mut gang = good;
    gang.dva_words[0] = good.dva_words[0].as_gang();
    assert!(matches!(read(&gang), Err(ReadError::Unreadable { .. })));
    let mut encrypted = good;
    encrypted.properties |= 1 << 61;
    assert!(read(&encrypted).is_err());
    let mut undecodable = good;
    undecodable.set_compression(Compression::Lz4);
    assert!(matches!(
        read(&undecodable),
        Err(ReadError::Undecodable { .. })
    ));
}

/// Large enough for several chunks, which overlap.
#[test]
fn a_batch_larger_than_memory_likes_is_written_whole() {
    let pool = Pool::new(12, 12, options());
    let blocks: Vec<_> = (0..80).map(|seed| noise(1 << 20, seed)).collect();
    let requests = blocks.iter().map(|data| request(data, file_policy()));
    let pointers = pool.write(requests.collect(), 1);
    assert_eq!(pool.allocated(), 80 << 20);
    for (pointer, data) in pointers.iter().zip(&blocks) {
        assert_eq!(&*pool.read(pointer), &data[..]);
    }
}
