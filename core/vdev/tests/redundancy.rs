//! What is written can be read, whatever happens to as many devices as the redundancy covers.

mod common;

use common::*;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use tarn_host::sim::Fault;
use tarn_host::{Action, Buffer, Errno, OpenMode, SimHost, SimOptions};
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::units::{PhysicalSize, Txg, VdevId, VdevOffset};
use tarn_probe::Outcome;
use tarn_vdev::{
    AllocationBias, ExpectedLabels, Need, OpenError, OpenOptions, PhysicalWrite, Place,
    ReadRequest, Reason, VdevKind, VdevReadError, VdevState, VdevWriteError,
};

const MIRROR: VdevKind = VdevKind::Mirror;

fn raidz(parity: u8) -> VdevKind {
    VdevKind::Raidz { parity }
}

/// Blocks of many sizes one behind the other, across the boundary where single parity changes
/// places.
fn places(tree: &tarn_vdev::VdevTree, sectors: &[u64]) -> Vec<Place> {
    let top = &tree.top_levels()[0];
    let mut offset = (1 << 20) - (16 << top.ashift);
    let next = |sectors: &u64| {
        let place = place(offset, sectors << top.ashift);
        offset += tree
            .allocated_size(VdevId::ZERO, PhysicalSize::from(place.size))
            .get();
        place
    };
    sectors.iter().map(next).collect()
}

#[test]
fn an_operation_tells_special_vdevs_from_others() {
    let disks = Disks::new(&[(VdevKind::File, 1), (VdevKind::File, 1)], 12);
    let tree = disks.open();
    tree.set_allocation_bias(VdevId::new(1), AllocationBias::Special);
    let normal = place(1 << 20, 4096);
    let special = Place {
        vdev: VdevId::new(1),
        ..normal
    };
    write(&tree, &[normal, special]).unwrap();
    for (read, expected) in [
        (vec![special], [true, false]),
        (vec![normal], [false, true]),
        (vec![special, normal], [true, true]),
    ] {
        let operation = operation();
        for place in read {
            let right = noise(place);
            let read = tree.read(place, &|bytes: &[u8]| bytes == right, &operation);
            assert_eq!(&read.unwrap()[..], &right[..]);
        }
        let marked = [Outcome::Special, Outcome::Disk].map(|outcome| operation.is_marked(outcome));
        assert_eq!(marked, expected);
    }
}

#[test]
fn every_layout_gives_back_what_was_written() {
    for ashift in [9, 12] {
        for (kind, count) in [
            (VdevKind::File, 1),
            (MIRROR, 2),
            (MIRROR, 3),
            (raidz(1), 3),
            (raidz(2), 6),
            (raidz(3), 8),
        ] {
            let disks = Disks::one(kind, count, ashift);
            let tree = disks.open();
            let places = places(&tree, &[1, 2, 3, 4, 5, 7, 8, 11, 16, 31, 32, 1, 13]);
            write(&tree, &places).unwrap();
            tree.flush(&operation()).unwrap();
            let right: Vec<_> = places.iter().map(|place| noise(*place)).collect();
            let verifies: Vec<_> = right
                .iter()
                .map(|right| move |bytes: &[u8]| bytes == right)
                .collect();
            let requests: Vec<_> = places
                .iter()
                .zip(&verifies)
                .map(|(place, verify)| ReadRequest {
                    place: *place,
                    verify,
                    is_settled: &|| true,
                    noted: None,
                })
                .collect();
            for (result, right) in tree
                .read_many(&requests, &operation())
                .into_iter()
                .zip(&right)
            {
                assert_eq!(&result.unwrap()[..], &right[..]);
            }
            assert!(checksum_errors(&tree).iter().all(|count| *count == 0));
        }
    }
}

#[test]
fn a_block_smaller_than_a_sector_is_filled_up() {
    for (kind, count) in [(VdevKind::File, 1), (MIRROR, 2), (raidz(1), 3)] {
        let disks = Disks::one(kind, count, 12);
        let tree = disks.open();
        let place = place(0, 4096 + 512);
        write(&tree, &[place]).unwrap();
        assert_eq!(read(&tree, place).unwrap().len(), 4096 + 512);
    }
}

/// For all widths from 2 to 12 and all parities, whichever devices are gone.
#[test]
fn raidz_reads_without_any_devices_up_to_its_parity() {
    for width in 2..=12usize {
        for parity in 1..=3.min(width - 1) {
            let kind = raidz(u8::try_from(parity).unwrap());
            let disks = Disks::one(kind, u64::try_from(width).unwrap(), 9);
            let tree = disks.open();
            let places = places(&tree, &[1, 2, 7, 32]);
            write(&tree, &places).unwrap();
            for lost in choices(width, parity) {
                lost.iter()
                    .for_each(|disk| assert!(tree.take_offline(guid_of(*disk))));
                let rest = (0..width).find(|disk| !lost.contains(disk)).unwrap();
                assert!(!tree.take_offline(guid_of(rest)), "one more is too many");
                for place in &places {
                    assert!(
                        read(&tree, *place).is_ok(),
                        "{width} wide, without {lost:?}"
                    );
                }
                for disk in lost {
                    let standing = tree
                        .bring_online(guid_of(disk), ExpectedLabels::Any)
                        .unwrap();
                    assert_eq!(standing.state, VdevState::Online);
                    tree.leaf(guid_of(disk)).unwrap().clear_dtl();
                }
            }
        }
    }
}

#[test]
fn beyond_the_redundancy_a_pool_does_not_open() {
    for (kind, count, lost) in [(raidz(1), 3, vec![0, 2]), (MIRROR, 2, vec![0, 1])] {
        let disks = Disks::one(kind, count, 9);
        let Err(OpenError::Unavailable { vdevs }) = disks.open_without(&lost) else {
            panic!("it opened");
        };
        assert_eq!(vdevs.len(), 1);
    }
}

#[test]
fn a_missing_disk_is_known_by_its_state() {
    let mut disks = Disks::one(MIRROR, 2, 9);
    disks.root.children[0].children[1].path = Some(Text::from("/dev/elsewhere"));
    let health = disks.open().health();
    assert_eq!(health.standing.state, VdevState::Degraded);
    let mirror = &health.children[0];
    assert_eq!(mirror.name(), "mirror-0");
    assert_eq!(mirror.children[1].standing.state, VdevState::Unavailable);
    assert_eq!(
        mirror.children[1].standing.reason.unwrap().text(),
        "cannot open"
    );
}

#[test]
fn a_lying_mirror_is_found_out_counted_and_mended() {
    let disks = Disks::one(MIRROR, 3, 9);
    let tree = disks.open();
    let place = place(8192, 16384);
    write(&tree, &[place]).unwrap();
    let right = noise(place);
    for honest in 0..3 {
        tree.clear_errors(None);
        let liars: Vec<_> = (0..3).filter(|disk| *disk != honest).collect();
        liars
            .iter()
            .for_each(|liar| disks.spoil(*liar, 8192 + 100, 5));
        assert_eq!(&read(&tree, place).unwrap()[..], &right[..]);
        for liar in liars {
            // A copy that was not read is not known to be bad.
            let is_mended = disks.bytes(liar, 8192, 16384) == right;
            assert_eq!(checksum_errors(&tree)[liar], u64::from(is_mended));
            if !is_mended {
                disks.spoil(liar, 8192 + 100, 5);
            }
        }
        assert_eq!(checksum_errors(&tree)[honest], 0);
    }
    assert_eq!(tree.health().errors.checksum, 0);
}

#[test]
fn lying_columns_are_found_out_counted_and_mended() {
    for (parity, width) in [(1, 4), (2, 5), (3, 7)] {
        let disks = Disks::one(raidz(parity), width, 9);
        let width = usize::try_from(width).unwrap();
        let tree = disks.open();
        let place = place(0, 512 * 3 * u64::from(10 - parity));
        write(&tree, &[place]).unwrap();
        let bytes = |disk| disks.bytes(disk, 0, 1 << 20);
        let right: Vec<_> = (0..width).map(bytes).collect();
        for liars in choices(width, usize::from(parity)) {
            tree.clear_errors(None);
            liars.iter().for_each(|liar| disks.spoil(*liar, 1, 400));
            assert!(read(&tree, place).is_ok(), "parity {parity}, {liars:?}");
            for (disk, right) in right.iter().enumerate() {
                // A parity that was not needed was not read.
                let is_seen = checksum_errors(&tree)[disk] > 0;
                assert!(!is_seen || liars.contains(&disk));
                assert!(is_seen == (bytes(disk) == *right) || !liars.contains(&disk));
                if !is_seen && liars.contains(&disk) {
                    disks.spoil(disk, 1, 400);
                }
            }
        }
    }
}

/// Either the place may be being written, or the caller decides.
#[test]
fn what_is_wrong_is_left_and_nobody_is_blamed_where_it_may_be_newer() {
    for (kind, count) in [(MIRROR, 2), (raidz(1), 3)] {
        let disks = Disks::one(kind, count, 9);
        let tree = disks.open();
        let place = place(8192, 16384);
        write(&tree, &[place]).unwrap();
        let right = noise(place);
        let mut times_noted = 0;
        for liar in 0..usize::try_from(count).unwrap() {
            let before = disks.bytes(liar, 0, 65536);
            for offset in (0..32768).step_by(512) {
                disks.spoil(liar, offset, 5);
            }
            let spoiled = disks.bytes(liar, 0, 65536);
            assert_ne!(before, spoiled);
            for asks in [false, true] {
                let is_noted = AtomicBool::new(false);
                let request = ReadRequest {
                    place,
                    verify: &|bytes| bytes == right,
                    is_settled: &|| false,
                    noted: asks.then_some(&is_noted),
                };
                let read = tree.read_many(&[request], &operation()).pop().unwrap();
                assert_eq!(&read.unwrap()[..], &right[..]);
                assert_eq!(disks.bytes(liar, 0, 65536), spoiled);
                assert_eq!(checksum_errors(&tree).iter().sum::<u64>(), 0);
                times_noted += u32::from(is_noted.into_inner());
            }
            for offset in (0..32768).step_by(512) {
                disks.spoil(liar, offset, 5);
            }
            assert_eq!(disks.bytes(liar, 0, 65536), before);
        }
        assert!(times_noted > 0);
    }
}

#[test]
fn a_read_only_tree_tells_the_truth_and_mends_nothing() {
    let disks = Disks::one(raidz(1), 3, 9);
    let place = place(0, 4096);
    write(&disks.open(), &[place]).unwrap();
    disks.spoil(1, 0, 512);
    let before = disks.bytes(1, 0, 4096);
    let options = OpenOptions {
        mode: OpenMode::ReadOnly,
        ..OpenOptions::new_pool()
    };
    let tree = disks.open_with(&options).unwrap();
    assert!(read(&tree, place).is_ok());
    assert_eq!(disks.bytes(1, 0, 4096), before);
    assert!(matches!(
        write(&tree, &[place]),
        Err(VdevWriteError::ReadOnly)
    ));
}

#[test]
fn what_no_supposition_explains_is_an_error_that_names_the_devices() {
    for (kind, count) in [(MIRROR, 2), (raidz(1), 3), (VdevKind::File, 1)] {
        let disks = Disks::one(kind, count, 9);
        let tree = disks.open();
        let place = place(0, 4096);
        write(&tree, &[place]).unwrap();
        let count = usize::try_from(count).unwrap();
        (0..count).for_each(|disk| disks.spoil(disk, 0, 512));
        let Err(VdevReadError::Checksum { devices, .. }) = read(&tree, place) else {
            panic!("something verified");
        };
        assert_eq!(devices.len(), count);
        assert_eq!(checksum_errors(&tree), vec![1; count]);
        // Neither the pool nor its vdevs with children count wrong bytes of devices.
        let health = tree.health();
        assert_eq!(health.errors.checksum, 0);
        assert!(count == 1 || health.children[0].errors.checksum == 0);
    }
}

/// Whether a block was ever written, as at the end of an intent log, is not told by devices that do
/// not know.
#[test]
fn of_what_too_much_is_missing_nobody_says_that_it_is_not_there() {
    let disks = Disks::one(raidz(1), 3, 9);
    let tree = disks.open();
    let written = place(0, 16384);
    write(&tree, &[written]).unwrap();
    disks.spoil(0, 0, 4096);
    let answer = |missing: &[usize]| {
        let injured = missing.iter().map(|disk| disks.disk(*disk));
        injured.for_each(|disk| disk.inject(error_in(Action::Read)));
        let answer = tree.read(written, &|_| false, &operation()).unwrap_err();
        let injured = missing.iter().map(|disk| disks.disk(*disk));
        injured.for_each(|disk| disk.clear_faults());
        answer
    };
    let blamed = checksum_errors(&tree);
    for missing in [[0, 1], [0, 2], [1, 2]] {
        let answer = answer(&missing);
        assert!(
            matches!(answer, VdevReadError::Unreadable { .. }),
            "{answer}"
        );
    }
    assert_eq!(checksum_errors(&tree), blamed);
    for missing in [&[][..], &[0], &[1], &[2]] {
        let answer = answer(missing);
        assert!(matches!(answer, VdevReadError::Checksum { .. }), "{answer}");
    }
}

#[test]
fn what_a_device_that_missed_writes_has_says_nothing_of_what_another_may_have() {
    let disks = Disks::one(MIRROR, 2, 9);
    let tree = disks.open();
    let anything = place(0, 4096);
    let answer = || tree.read(anything, &|_| false, &operation()).unwrap_err();
    tree.leaves()[0].add_to_dtl(Txg::INITIAL..=Txg::INITIAL);
    assert!(matches!(answer(), VdevReadError::Checksum { .. }));
    disks.disk(1).inject(error_in(Action::Read));
    assert!(matches!(answer(), VdevReadError::Unreadable { .. }));
    tree.leaves()[0].clear_dtl();
    assert!(matches!(answer(), VdevReadError::Checksum { .. }));
}

#[test]
fn a_device_with_larger_sectors_than_its_vdev_is_not_used() {
    for (sector_bytes, ashift, fits) in [(512, 9, true), (4096, 12, true), (4096, 9, false)] {
        let machine = SimHost::new(SimOptions {
            logical_sector_bytes: sector_bytes,
            ..SimOptions::seed(1)
        });
        let disks = Disks::of(machine, &[(MIRROR, 2)], ashift);
        let options = OpenOptions {
            need: Need::Nothing,
            ..shared()
        };
        let tree = disks.open_with(&options).unwrap();
        let reasons = tree.leaves().into_iter().map(|leaf| leaf.standing().reason);
        let expected = (!fits).then_some(Reason::BadAshift);
        assert!(reasons.into_iter().all(|reason| reason == expected));
        assert_eq!(disks.open_with(&shared()).is_ok(), fits);
    }
}

#[test]
fn nothing_is_durable_on_devices_that_were_let_go() {
    let disks = Disks::one(MIRROR, 2, 9);
    let tree = disks.open();
    tree.close();
    assert!(tree.leaves().iter().all(|leaf| !leaf.is_usable()));
    let write = PhysicalWrite {
        place: place(0, 4096),
        data: Arc::new(Buffer::zeroed(4096)),
    };
    let promised = disks
        .machine
        .run(|_| tree.write_durably(vec![write], &operation()));
    assert!(promised.unwrap().is_err());
}

fn error_in(action: Action) -> Fault {
    Fault::FailRange {
        action,
        range: 4 << 20..5 << 20,
        errno: Errno::IO,
    }
}

#[test]
fn a_read_error_is_counted_made_good_and_mended() {
    for (kind, count) in [(MIRROR, 2), (raidz(1), 3), (raidz(2), 5)] {
        let disks = Disks::one(kind, count, 9);
        let tree = disks.open();
        let place = place(0, 8192);
        write(&tree, &[place]).unwrap();
        let is_read = (0..usize::try_from(count).unwrap()).find(|disk| {
            disks.disk(*disk).inject(error_in(Action::Read));
            assert!(read(&tree, place).is_ok());
            disks.disk(*disk).clear_faults();
            tree.leaves()[*disk].errors.values().read > 0
        });
        let disk = is_read.expect("some disk was read");
        // Reads, then the repair.
        assert!(disks.disk(disk).requests().1 > 1);
        assert_eq!(tree.health().errors.read, 0);
    }
}

#[test]
fn a_device_that_cannot_be_written_is_taken_out_of_use_and_the_pool_goes_on() {
    for (kind, count) in [(MIRROR, 2), (raidz(1), 4), (raidz(2), 4), (raidz(3), 6)] {
        let disks = Disks::one(kind, count, 9);
        let tree = disks.open();
        let changes = tree.change_count();
        disks.disk(0).inject(error_in(Action::Write));
        let place = place(0, 16384);
        write(&tree, &[place]).unwrap();
        let health = tree.health();
        let failed = &health.children[0].children[0];
        assert_eq!(failed.standing.state, VdevState::Faulted);
        assert_eq!(failed.standing.reason.unwrap().text(), "too many errors");
        assert!(failed.errors.write > 0);
        assert_eq!(health.standing.state, VdevState::Degraded);
        assert!(tree.change_count() > changes, "labels must say so");
        assert!(tree.config().children[0].children[0].condition.faulted);
        assert!(read(&tree, place).is_ok());
        disks.disk(0).clear_faults();
        let (_, writes, _) = disks.disk(0).requests();
        write(&tree, &[place]).unwrap();
        assert_eq!(disks.disk(0).requests().1, writes, "it is left alone");
    }
}

#[test]
fn a_device_that_vanishes_is_removed() {
    let disks = Disks::one(MIRROR, 2, 9);
    let tree = disks.open();
    disks.disk(1).inject(Fault::Vanish);
    write(&tree, &[place(0, 4096)]).unwrap();
    assert_eq!(tree.leaves()[1].standing().state, VdevState::Removed);
}

#[test]
fn beyond_the_redundancy_a_write_fails_and_can_be_tried_again() {
    for (kind, count) in [(VdevKind::File, 1), (MIRROR, 2), (raidz(1), 3)] {
        let disks = Disks::one(kind, count, 9);
        let tree = disks.open();
        let place = place(0, 16384);
        let all: Vec<usize> = (0..usize::try_from(count).unwrap()).collect();
        all.iter()
            .for_each(|disk| disks.disk(*disk).inject(error_in(Action::Write)));
        let Err(VdevWriteError::LostRedundancy { vdev, devices, .. }) = write(&tree, &[place])
        else {
            panic!("it was written");
        };
        assert_eq!((vdev, devices.len()), (VdevId::ZERO, all.len()));
        all.iter().for_each(|disk| disks.disk(*disk).clear_faults());
        write(&tree, &[place]).unwrap();
        assert!(read(&tree, place).is_ok());
    }
}

#[test]
fn a_device_whose_flush_fails_is_never_used_again() {
    let disks = Disks::one(MIRROR, 2, 9);
    let tree = disks.open();
    disks
        .machine
        .run(|_| flush_fails_once(&disks, &tree))
        .unwrap();
}

fn flush_fails_once(disks: &Disks, tree: &tarn_vdev::VdevTree) {
    write(tree, &[place(0, 4096)]).unwrap();
    disks.disk(0).inject(Fault::FailNth {
        action: Action::Flush,
        nth: 0,
        errno: Errno::IO,
    });
    tree.flush(&operation()).unwrap();
    let failed = tree.leaves()[0].standing();
    assert_eq!(failed.state, VdevState::Faulted);
    assert_eq!(disks.disk(1).unflushed_writes(), 0);
    // Nothing was written since, so nothing is flushed.
    let (_, _, flushes) = disks.disk(1).requests();
    tree.flush(&operation()).unwrap();
    assert_eq!(disks.disk(1).requests().2, flushes);
}

#[test]
fn a_failed_flush_of_the_only_device_is_an_error() {
    let disks = Disks::one(VdevKind::File, 1, 9);
    let tree = disks.open();
    write(&tree, &[place(0, 4096)]).unwrap();
    disks.disk(0).inject(Fault::FailNth {
        action: Action::Flush,
        nth: 0,
        errno: Errno::IO,
    });
    for _ in 0..2 {
        let failed = tree.flush(&operation());
        assert!(matches!(failed, Err(VdevWriteError::LostRedundancy { .. })));
    }
}

#[test]
fn what_was_written_durably_needs_no_other_flush_and_a_flush_that_fails_is_believed() {
    let disks = Disks::new(&[(MIRROR, 2), (VdevKind::File, 1)], 9);
    let tree = disks.open();
    let write = || {
        let write = PhysicalWrite {
            place: place(0, 4096),
            data: Arc::new(Buffer::zeroed(4096)),
        };
        tree.write_durably(vec![write], &operation())
    };
    let durably = || disks.machine.run(|_| write()).unwrap();
    let fails = Fault::FailNth {
        action: Action::Flush,
        nth: 0,
        errno: Errno::IO,
    };
    let (_, _, elsewhere) = disks.disk(2).requests();
    durably().unwrap();
    for disk in 0..2 {
        assert_eq!(disks.disk(disk).unflushed_writes(), 0);
    }
    assert_eq!(disks.disk(2).requests().2, elsewhere);
    // One of two is enough, and the other is not used again.
    disks.disk(0).inject(fails.clone());
    durably().unwrap();
    assert_eq!(tree.leaves()[0].standing().state, VdevState::Faulted);
    // One of one is not, and no later flush says otherwise.
    disks.disk(1).inject(fails);
    for _ in 0..2 {
        let failed = durably();
        assert!(matches!(failed, Err(VdevWriteError::LostRedundancy { .. })));
        assert!(tree.flush(&operation()).is_err());
    }
}

#[test]
fn one_write_to_one_device_is_one_request_however_many_blocks_it_has() {
    let disks = Disks::one(MIRROR, 2, 9);
    let tree = disks.open();
    let places: Vec<_> = (0..16)
        .rev()
        .map(|block| place(block * 4096, 4096))
        .collect();
    write(&tree, &places).unwrap();
    let statistics = tree.leaves()[0].probes.statistics.snapshot();
    assert_eq!(statistics.operations(tarn_probe::IoKind::Write), 1);
    assert_eq!(statistics.bytes(tarn_probe::IoKind::Write), 16 * 4096);
}

#[test]
fn places_that_cannot_be_are_refused() {
    let disks = Disks::new(&[(raidz(1), 3), (VdevKind::File, 1)], 12);
    let tree = disks.open();
    let asize = tree.top_levels()[0].asize.get();
    for (offset, size) in [
        (asize, 4096),
        (asize - 4096, 4096),
        (1, 4096),
        (0, 0),
        (0, u64::MAX),
    ] {
        let refused = read_any(&tree, place(offset, size));
        assert!(
            matches!(refused, Err(VdevReadError::OutOfRange { .. })),
            "{offset} {size}"
        );
    }
    let far = Place {
        vdev: VdevId::from(2),
        offset: VdevOffset::ZERO,
        size: 4096,
        birth: Txg::INITIAL,
    };
    assert!(matches!(
        read_any(&tree, far),
        Err(VdevReadError::NoSuchVdev { .. })
    ));
}

fn read_any(tree: &tarn_vdev::VdevTree, place: Place) -> Result<(), VdevReadError> {
    tree.read(place, &|_| true, &operation()).map(|_| ())
}

#[test]
fn a_device_that_missed_writes_is_read_last() {
    for (kind, count) in [(MIRROR, 2), (raidz(1), 3)] {
        let disks = Disks::one(kind, count, 9);
        let place = place(0, 4096);
        write(&disks.open(), &[place]).unwrap();
        disks.spoil(0, 0, 4096);
        let tree = disks.open();
        tree.leaves()[0].add_to_dtl(Txg::INITIAL..=Txg::INITIAL);
        assert!(read(&tree, place).is_ok());
        assert_eq!(checksum_errors(&tree)[0], 0);
        // But where it is right, and nothing else is, it will do.
        disks.spoil(0, 0, 4096);
        disks.spoil(1, 0, 4096);
        assert!(read(&tree, place).is_ok());
        assert_eq!(checksum_errors(&tree)[1], 1);
    }
}

#[test]
fn a_vdev_can_be_added_and_is_numbered_behind_the_last() {
    let disks = Disks::one(MIRROR, 2, 9);
    let more = Disks::one(VdevKind::File, 1, 9);
    let tree = disks.open();
    let mut top = more.root.children[0].clone();
    top.guid = tarn_ondisk::units::Guid::from(9999);
    let joining = tree.open_new_top(&top).unwrap();
    assert_eq!(tree.config().children.len(), 1, "it is outside of the tree");
    let (id, changes) = (VdevId::from(1), tree.change_count());
    assert_eq!(tree.join(vec![joining]), [id]);
    assert!(tree.change_count() > changes);
    let place = Place {
        vdev: id,
        ..place(0, 8192)
    };
    write(&tree, &[place]).unwrap();
    assert!(read(&tree, place).is_ok());
    assert_eq!(tree.config().children.len(), 2);
}

#[test]
fn what_we_cannot_read_is_refused_by_name_and_shown_when_asked() {
    let mut disks = Disks::one(raidz(1), 3, 9);
    disks.root.children[0].set_other("raidz_expand_txgs", vec![5u64]);
    let options = OpenOptions::new_pool();
    let Err(OpenError::Unsupported { name, what }) = disks.open_with(&options) else {
        panic!("it opened");
    };
    assert_eq!((name.as_str(), what), ("raidz1-0", "an expanded RAID-Z"));
    let tree = disks
        .open_with(&OpenOptions {
            need: Need::Nothing,
            ..options
        })
        .unwrap();
    assert_eq!(
        tree.health().children[0].standing.state,
        VdevState::Unavailable
    );
    assert!(matches!(
        read_any(&tree, place(0, 512)),
        Err(VdevReadError::NoSuchVdev { .. })
    ));
}

#[test]
fn healing_writes_what_devices_lack_and_nothing_else() {
    for (kind, count, broken) in [
        (MIRROR, 2, 1),
        (MIRROR, 3, 2),
        (raidz(1), 3, 1),
        (raidz(2), 6, 2),
        (raidz(3), 8, 3),
    ] {
        let disks = Disks::one(kind, count, 9);
        let count = usize::try_from(count).unwrap();
        let tree = disks.open();
        let places = places(&tree, &[1, 3, 16, 31]);
        write(&tree, &places).unwrap();
        tree.flush(&operation()).unwrap();
        let bytes = |disk| disks.bytes(disk, 0, 2 << 20);
        let right: Vec<_> = (0..count).map(bytes).collect();
        let heal = || {
            let write = |place: &Place| PhysicalWrite {
                place: *place,
                data: Arc::new(Buffer::from_slice(&noise(*place))),
            };
            tree.self_heal_lacking(places.iter().map(write).collect(), &operation())
                .unwrap()
        };
        let before = disks.machine.device_writes();
        assert_eq!(heal(), 0);
        assert_eq!(disks.machine.device_writes(), before);
        // Any of them lack all that they had.
        for lacking in choices(count, broken) {
            for disk in &lacking {
                disks.spoil(*disk, 0, 2 << 20);
            }
            assert!(heal() >= broken, "{kind:?} {lacking:?}");
            tree.flush(&operation()).unwrap();
            assert_eq!(
                checksum_errors(&tree),
                vec![0; count],
                "no device is blamed"
            );
            let others: Vec<_> = (0..count).filter(|disk| !lacking.contains(disk)).collect();
            // So any others may fail now.
            for failed in others.iter().take(broken) {
                assert_eq!(bytes(*failed), right[*failed]);
            }
            let without = &others[..broken.min(others.len())];
            let rest = disks.open_without(without).unwrap();
            for place in &places {
                assert!(read(&rest, *place).is_ok(), "{kind:?} {lacking:?}");
            }
            for disk in &lacking {
                let found = bytes(*disk);
                let start = found.iter().zip(&right[*disk]);
                let end = start.enumerate().filter(|(_, (a, b))| a != b).count();
                assert!(end > 0, "what is between the blocks is left as it is");
                disks.disk(*disk).poke(4 << 20, &right[*disk]);
            }
        }
    }
}

#[test]
fn healing_takes_devices_out_of_use_that_cannot_be_written() {
    let disks = Disks::one(MIRROR, 2, 9);
    let tree = disks.open();
    let place = place(0, 4096);
    write(&tree, &[place]).unwrap();
    let heal = || {
        let write = PhysicalWrite {
            place,
            data: Arc::new(Buffer::from_slice(&noise(place))),
        };
        tree.self_heal_lacking(vec![write], &operation())
    };
    disks.disk(1).inject(error_in(Action::Write));
    assert_eq!(heal().unwrap(), 0, "it has what it needs");
    assert!(tree.leaves()[1].is_usable());
    disks.spoil(1, 100, 1);
    assert_eq!(heal().unwrap(), 1);
    assert!(!tree.leaves()[1].is_usable());
    assert_eq!(heal().unwrap(), 0);
    assert!(read(&tree, place).is_ok());
    // One that cannot be read has perhaps nothing, and is written.
    let disks = Disks::one(MIRROR, 2, 9);
    let tree = disks.open();
    disks.disk(1).inject(error_in(Action::Read));
    let write = PhysicalWrite {
        place,
        data: Arc::new(Buffer::from_slice(&noise(place))),
    };
    assert_eq!(
        tree.self_heal_lacking(vec![write], &operation()).unwrap(),
        2
    );
    assert_eq!(disks.bytes(1, 0, 4096), noise(place));
}
