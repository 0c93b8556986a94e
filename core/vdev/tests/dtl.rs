//! Dirty time logs: what a device misses is known by the births of blocks, and no more than that.

mod common;

use common::*;
use std::sync::Arc;
use tarn_host::sim::Fault;
use tarn_host::{Action, Buffer, Errno};
use tarn_ondisk::units::Txg;
use tarn_vdev::{Dtl, ExpectedLabels, PhysicalWrite, Place, VdevKind, VdevTree};

const MIRROR: VdevKind = VdevKind::Mirror;

fn born(offset: u64, birth: u64) -> Place {
    Place {
        birth: Txg::new(birth),
        ..place(offset, 4096)
    }
}

/// Of the second disk.
fn missed(tree: &VdevTree) -> Vec<(u64, u64)> {
    let dtl = tree.leaf(guid_of(1)).unwrap().dtl();
    let ranges = dtl.ranges();
    ranges
        .map(|range| (range.start().get(), range.end().get()))
        .collect()
}

fn fail(action: Action) -> Fault {
    let (range, errno) = (0..u64::MAX, Errno::IO);
    Fault::FailRange {
        action,
        range,
        errno,
    }
}

#[test]
fn a_device_that_is_offline_misses_what_is_born_until_it_is_back() {
    let disks = Disks::one(MIRROR, 2, 12);
    let tree = disks.open();
    write(&tree, &[born(0, 9)]).unwrap();
    tree.flush(&operation()).unwrap();
    tree.note_stored_txg(Txg::new(9));
    assert!(tree.take_offline(guid_of(1)));
    assert_eq!(missed(&tree), [(10, 10)], "the txg that is stored next");
    write(&tree, &[born(8192, 12)]).unwrap();
    // A log block that was given its place before.
    write(&tree, &[born(16384, 7)]).unwrap();
    assert_eq!(missed(&tree), [(7, 7), (10, 12)]);
    tree.note_stored_txg(Txg::new(12));
    tree.bring_online(guid_of(1), ExpectedLabels::Any).unwrap();
    assert_eq!(missed(&tree), [(7, 7), (10, 13)]);
    write(&tree, &[born(24576, 14)]).unwrap();
    assert_eq!(missed(&tree), [(7, 7), (10, 13)], "it is written again");
}

#[test]
fn a_device_that_fails_misses_what_was_not_flushed_and_no_more() {
    for action in [Action::Write, Action::Flush] {
        let disks = Disks::one(MIRROR, 2, 12);
        let tree = disks.open();
        write(&tree, &[born(0, 18)]).unwrap();
        tree.flush(&operation()).unwrap();
        tree.note_stored_txg(Txg::new(18));
        write(&tree, &[born(8192, 20), born(16384, 21)]).unwrap();
        let (nth, errno) = (0, Errno::IO);
        disks.disk(1).inject(Fault::FailNth { action, nth, errno });
        write(&tree, &[born(24576, 22)]).unwrap();
        tree.flush(&operation()).unwrap();
        let leaf = tree.leaf(guid_of(1)).unwrap();
        assert!(!leaf.is_usable() && leaf.misses(Txg::new(20)) && leaf.misses(Txg::new(22)));
        assert_eq!(missed(&tree), [(19, 22)]);
        assert!(!tree.leaf(guid_of(0)).unwrap().misses(Txg::new(22)));
    }
}

/// One whose redundancy does not cover it is waited for, and misses nothing if it comes back.
#[test]
fn a_device_that_nothing_covers_is_not_taken_out_of_use_and_misses_nothing() {
    let disks = Disks::one(VdevKind::File, 1, 12);
    let tree = disks.open();
    disks.disk(0).inject(fail(Action::Write));
    write(&tree, &[born(0, 5)]).unwrap_err();
    assert!(tree.leaves()[0].dtl().is_empty());
}

#[test]
fn a_block_is_read_from_a_device_unless_its_birth_is_in_the_log() {
    for (kind, count) in [(MIRROR, 2), (VdevKind::Raidz { parity: 1 }, 3)] {
        let disks = Disks::one(kind, count, 9);
        let (old, new) = (born(0, 10), born(1 << 20, 11));
        write(&disks.open(), &[old, new]).unwrap();
        let tree = disks.open();
        let leaf = tree.leaves()[0].clone();
        leaf.add_to_dtl(Txg::new(11)..=Txg::new(11));
        let reads = || disks.disk(0).requests().0;
        let before = reads();
        for _ in 0..4 {
            assert!(read(&tree, new).is_ok());
        }
        assert_eq!(reads(), before, "the others have it");
        for other in 1..count {
            let other = usize::try_from(other).unwrap();
            disks.disk(other).inject(fail(Action::Read));
            let (old_is_there, new_is_there) = (read(&tree, old), read(&tree, new));
            disks.disk(other).clear_faults();
            // What it has is the block after all: its checksum tells.
            assert!(old_is_there.is_ok() && new_is_there.is_ok());
        }
        assert!(reads() > before);
    }
}

#[test]
fn self_healing_that_fails_adds_nothing() {
    let disks = Disks::one(MIRROR, 2, 12);
    let tree = disks.open();
    let place = born(0, 6);
    write(&tree, &[place]).unwrap();
    tree.flush(&operation()).unwrap();
    tree.note_stored_txg(Txg::new(9));
    disks.disk(1).inject(fail(Action::Write));
    let data = Arc::new(Buffer::from_slice(&noise(place)));
    tree.self_heal(PhysicalWrite { place, data }, &operation());
    assert_eq!(missed(&tree), []);
    assert!(tree.leaf(guid_of(1)).unwrap().is_whole());
}

#[test]
fn what_has_no_end_ends_where_the_pool_goes_on() {
    let disks = Disks::one(MIRROR, 2, 12);
    let tree = disks.open();
    let leaf = tree.leaf(guid_of(1)).unwrap();
    leaf.add_to_dtl(Txg::new(30)..=Txg::MAX);
    let mut stored = Dtl::new();
    stored.add(Txg::new(4)..=Txg::new(6));
    tree.load_dtl(leaf.guid, &stored);
    tree.end_dtls(Txg::new(40));
    assert_eq!(missed(&tree), [(4, 6), (30, 40)]);
    // Nothing is forgotten altogether.
    leaf.clear_dtl();
    leaf.add_to_dtl(Txg::new(50)..=Txg::MAX);
    tree.end_dtls(Txg::new(40));
    assert_eq!(missed(&tree), [(40, 40)]);
    assert!(tree.leaf(guid_of(0)).unwrap().is_whole());
    // What is not in use misses what comes.
    leaf.add_to_dtl(Txg::new(30)..=Txg::MAX);
    tree.note_stored_txg(Txg::new(40));
    assert!(tree.take_offline(guid_of(1)));
    tree.end_dtls(Txg::new(40));
    assert_eq!(missed(&tree), [(30, 41)]);
}
