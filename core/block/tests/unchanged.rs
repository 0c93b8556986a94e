//! Blocks written anew with the contents they have.

mod support;

use support::*;
use tarn_block::{DatasetPolicy, WritePhase, WritePolicy, WriteRequest};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::Level;
use tarn_probe::Operation;
use tarn_transform::{ChecksumAlgorithm, CompressionAlgorithm, GzipLevel};

const STRONG: DatasetPolicy = DatasetPolicy {
    checksum: ChecksumAlgorithm::Sha256,
    ..DATASET
};

/// Writes a block again, in the next group.
fn write_again(
    pool: &Pool,
    data: &[u8],
    policy: WritePolicy,
    previous: BlockPointer,
) -> BlockPointer {
    let next = WritePhase {
        txg: TXG.next(),
        pass: 1,
    };
    let request = WriteRequest {
        previous,
        ..request(data, policy)
    };
    let written = pool.io.write(vec![request], next, &Operation::unmeasured());
    written.unwrap()[0]
}

#[test]
fn the_same_contents_stay_where_they_are_under_a_strong_checksum() {
    let pool = Pool::new(1, 12, options());
    for checksum in [
        ChecksumAlgorithm::Sha256,
        ChecksumAlgorithm::Sha512,
        ChecksumAlgorithm::Skein,
        ChecksumAlgorithm::EdonR,
        ChecksumAlgorithm::Blake3,
    ] {
        let policy = policy(&DatasetPolicy { checksum, ..STRONG });
        for data in [text(16384, 3), noise(8192, 4)] {
            let first = pool.write_one(&data, policy);
            let before = pool.allocated();
            assert_eq!(write_again(&pool, &data, policy, first), first);
            assert_eq!(pool.allocated(), before, "nothing was taken");
            let other = write_again(&pool, &noise(8192, 5), policy, first);
            assert!(!other.is_same_block(&first), "other contents");
        }
    }
}

#[test]
fn what_does_not_compress_stays_whatever_it_would_be_compressed_with() {
    let pool = Pool::new(1, 12, options());
    let data = noise(8192, 1);
    let first = pool.write_one(&data, policy(&STRONG));
    let gzip = DatasetPolicy {
        compression: CompressionAlgorithm::Gzip(GzipLevel::new(6).unwrap()),
        ..STRONG
    };
    assert_eq!(write_again(&pool, &data, policy(&gzip), first), first);
}

#[test]
fn the_same_contents_are_written_anew_where_anything_else_would_change() {
    let pool = Pool::new(3, 12, options());
    let data = text(16384, 3);
    let first = pool.write_one(&data, policy(&STRONG));
    let of = |dataset: DatasetPolicy| policy(&dataset);
    let others = [
        of(DatasetPolicy {
            checksum: ChecksumAlgorithm::Fletcher4,
            ..STRONG
        }),
        of(DatasetPolicy {
            checksum: ChecksumAlgorithm::Sha512,
            ..STRONG
        }),
        of(DatasetPolicy {
            compression: CompressionAlgorithm::Off,
            ..STRONG
        }),
        of(DatasetPolicy {
            compression: CompressionAlgorithm::Lzjb,
            ..STRONG
        }),
        of(DatasetPolicy {
            copies: 2,
            ..STRONG
        }),
        WritePolicy {
            level: Level::new(1),
            ..policy(&STRONG)
        },
        WritePolicy {
            object_type: ObjectType::Directory,
            ..policy(&STRONG)
        },
    ];
    for policy in others {
        let again = write_again(&pool, &data, policy, first);
        assert!(!again.is_same_block(&first), "{policy:?}");
        assert_eq!(again.birth(), TXG.next());
    }
    // What has a weak checksum now is not known by it.
    let weak = policy(&DATASET);
    let first = pool.write_one(&data, weak);
    assert!(!write_again(&pool, &data, weak, first).is_same_block(&first));
    assert!(!write_again(&pool, &data, policy(&STRONG), first).is_same_block(&first));
}

#[test]
fn a_block_with_the_contents_it_has_is_not_placed_early() {
    // Logs leave small pools alone.
    let pool = Pool::new(4, 12, options());
    let data = noise(8192, 1);
    let policy = policy(&STRONG);
    let first = pool.write_one(&data, policy);
    let before = pool.allocated();
    let place = |data: &[u8]| {
        let request = WriteRequest {
            previous: first,
            ..request(data, policy)
        };
        let operation = Operation::unmeasured();
        pool.io
            .place_log_data(vec![request], TXG.next(), &operation)
    };
    assert!(place(&data).is_none());
    assert_eq!(pool.allocated(), before);
    assert!(place(&noise(8192, 2)).is_some());
}
