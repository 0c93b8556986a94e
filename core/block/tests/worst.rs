//! What blocks take at most is what they take at worst.

mod support;

use support::*;
use tarn_block::{BlockIoOptions, DatasetPolicy, ForceGanging};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::PhysicalSize;

/// Writes a block in any way a pool may, and compares.
fn holds(ashift: u32, copies: usize, gangs: bool) {
    let options = match gangs {
        true => BlockIoOptions {
            force_ganging: Some(ForceGanging {
                // All but the smallest.
                from: PhysicalSize::new((1 << ashift) + 1),
                percent: 100,
                seed: 1,
            }),
            ..options()
        },
        false => options(),
    };
    let pool = Pool::new(3, ashift, options);
    let dataset = DatasetPolicy { copies, ..DATASET };
    for sectors in [1, 2, 3, 4, 7, 18, 27, 32, 256] {
        let bytes = sectors << 9;
        let pointer = pool.write_one(&noise(bytes, 1), policy(&dataset));
        let taken = pool.io.deflated_size(&pointer).get();
        let bytes = u64::try_from(bytes).unwrap();
        let worst = pool.io.worst_size(&policy(&dataset), bytes);
        assert!(
            taken <= worst,
            "{bytes} bytes, {copies} copies, ashift {ashift}: {taken} > {worst}"
        );
        assert!(gangs || worst <= taken * 5, "{worst} is far from {taken}");
    }
}

#[test]
fn no_block_takes_more_than_at_worst() {
    for ashift in [9, 12, 13] {
        for copies in 1..=3 {
            holds(ashift, copies, false);
            holds(ashift, copies, true);
        }
    }
}

#[test]
fn metadata_takes_its_copies() {
    let pool = Pool::new(1, 12, options());
    let directory = DATASET.for_block(
        ObjectType::Directory,
        tarn_ondisk::units::Level::ZERO,
        tarn_block::BlockRole::Tree,
        4096,
        1,
    );
    assert_eq!(pool.io.worst_size(&directory, 4096), 8192);
    assert_eq!(pool.io.worst_size(&directory, 512), 8192);
    assert_eq!(pool.io.worst_size(&directory, 0), 0);
}
