//! Labels lead to the pool, whatever moment the power fails.

mod common;

use common::*;
use std::sync::Arc;
use tarn_host::sim::Fault;
use tarn_host::{Action, Errno, OpenMode, SimHost};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::label::{LABEL_BYTES, RING_OFFSET, label_offset};
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::uberblock::Uberblock;
use tarn_ondisk::units::{Guid, Txg};
use tarn_vdev::in_use::{foreign_format, labelled_use};
use tarn_vdev::labels::{
    ComposeLabel, FoundUberblock, best_label, best_label_until, best_uberblock, clear_labels,
    create_labels, read_labels, read_uberblocks,
};
use tarn_vdev::{
    ExpectedLabels, LabelUpdate, Need, OpenOptions, PoolState, VdevConfig, VdevKind, VdevState,
    VdevTree, VdevWriteError, Window, open_window,
};

fn uberblock(txg: u64) -> Uberblock {
    let mut uberblock = Uberblock::from_bytes(&[0; Uberblock::SIZE], ByteOrder::Little).unwrap();
    uberblock.magic = Uberblock::MAGIC;
    uberblock.version = 5000;
    uberblock.txg = Txg::from(txg);
    uberblock.root = BlockPointer::HOLE;
    uberblock
}

/// Makes `txg` the pool; every third one has a new configuration.
fn store(disks: &Disks, tree: &VdevTree, txg: u64) -> Result<(), VdevWriteError> {
    let facts = disks.facts(txg);
    let compose =
        |root: &VdevConfig, top: usize, leaf: &VdevConfig| facts.label_of(root, top, leaf);
    let configuration: Option<&ComposeLabel<'_>> = if txg.is_multiple_of(3) {
        Some(&compose)
    } else {
        None
    };
    let uberblock = uberblock(txg);
    let update = LabelUpdate {
        uberblock: &uberblock,
        is_multihost: false,
        configuration,
    };
    tree.write_labels(update, &operation())
}

fn window(disks: &Disks, disk: u64) -> Window {
    open_window(
        &disks.host,
        std::path::Path::new(&path(disk)),
        OpenMode::ReadWrite,
    )
    .unwrap()
}

fn all_uberblocks(tree: &VdevTree) -> Vec<FoundUberblock> {
    let windows = tree.leaves();
    let windows = windows.iter().filter_map(|leaf| leaf.window());
    windows
        .flat_map(|window| read_uberblocks(&window, 9))
        .collect()
}

fn of_pool() -> OpenOptions {
    OpenOptions::of_pool(OpenMode::ReadWrite, POOL)
}

#[test]
fn four_labels_are_made_and_say_the_same() {
    let disks = Disks::one(VdevKind::Mirror, 2, 12);
    disks.label(&disks.open());
    let labels = read_labels(&window(&disks, 1));
    for label in &labels {
        let label = label.as_ref().unwrap();
        assert_eq!(label.guid(), Some(guid_of(1)));
        assert_eq!(label.pool_guid(), Some(POOL));
        assert_eq!(label.ashift(), Some(12));
        assert_eq!(label.order, ByteOrder::Little);
        assert_eq!(label.list, labels[0].as_ref().unwrap().list);
    }
    assert!(read_uberblocks(&window(&disks, 1), 12).is_empty());
}

/// What one end of the device has lost, the other still has.
#[test]
fn any_one_label_is_enough() {
    for kept in 0..4 {
        let disks = Disks::one(VdevKind::File, 1, 9);
        let tree = disks.open();
        disks.label(&tree);
        (5..8).for_each(|txg| store(&disks, &tree, txg).unwrap());
        for lost in (0..4).filter(|label| *label != kept) {
            let start = label_offset(DEVICE_BYTES, lost).unwrap();
            disks.disk(0).rot(start..start + LABEL_BYTES);
        }
        let tree = disks.open_with(&of_pool()).unwrap();
        let found = all_uberblocks(&tree);
        assert_eq!(best_uberblock(&found).unwrap().uberblock.txg, Txg::from(7));
        assert_eq!(
            best_label(&read_labels(&window(&disks, 0))).unwrap().index,
            kept
        );
    }
}

/// Power may fail at any write while txgs are stored: the newest uberblock is one that was being
/// stored or the one before, and there is a configuration that is not newer than it.
#[test]
fn every_write_of_labels_is_a_safe_place_to_stop() {
    for kind in [
        VdevKind::File,
        VdevKind::Mirror,
        VdevKind::Raidz { parity: 1 },
    ] {
        let count = if kind == VdevKind::File { 1 } else { 3 };
        let mut cut_after = 1;
        loop {
            let disks = Disks::one(kind, count, 9);
            let tree = disks.open();
            // From here on power may fail; what came before is on stable storage.
            let start = disks.machine.run(|_| {
                disks.label(&tree);
                store(&disks, &tree, 3).unwrap();
                disks.machine.device_writes()
            });
            disks
                .machine
                .cut_power_after_writes(start.unwrap() + cut_after);
            let stored = std::sync::atomic::AtomicU64::new(3);
            let ended = disks.machine.run(|_| {
                for txg in 4..8 {
                    store(&disks, &tree, txg).unwrap();
                    stored.store(txg, std::sync::atomic::Ordering::Relaxed);
                }
            });
            drop(tree);
            if ended.is_ok() {
                assert!(cut_after > 20, "{cut_after} writes to stop at");
                break;
            }
            check_after_power_cut(&disks, &disks.machine.reboot(), stored.into_inner());
            cut_after += 1;
        }
    }
}

fn check_after_power_cut(disks: &Disks, machine: &SimHost, stored: u64) {
    let tree = VdevTree::open(&machine.host(), &disks.root, &of_pool()).unwrap();
    let found = all_uberblocks(&tree);
    let best = best_uberblock(&found).unwrap().uberblock.txg;
    assert!(
        best >= Txg::from(stored) && best <= Txg::from(stored + 1),
        "{best} after {stored}"
    );
    let fits = |leaf: &Arc<tarn_vdev::Leaf>| {
        let labels = read_labels(&leaf.window()?);
        best_label_until(&labels, best)?.txg()
    };
    // The configuration of txg 6 must be found with uberblocks since 6, and the one before
    // otherwise.
    let expected = Txg::from(if best.get() >= 6 { 6 } else { 3 });
    let found: Vec<_> = tree.leaves().iter().map(fits).collect();
    assert!(found.contains(&Some(expected)), "{found:?} for {best}");
    assert!(tree.leaves().iter().all(|leaf| leaf.dtl().is_empty()));
}

#[test]
fn a_device_of_another_pool_or_vdev_is_not_used() {
    let disks = Disks::one(VdevKind::Mirror, 2, 9);
    disks.label(&disks.open());
    let other = OpenOptions {
        labels: ExpectedLabels::OfPool(Guid::from(1)),
        ..of_pool()
    };
    let tree = disks
        .open_with(&OpenOptions {
            need: Need::Nothing,
            ..other
        })
        .unwrap();
    assert!(tree.leaves().iter().all(|leaf| !leaf.is_usable()));
    assert_eq!(
        tree.leaves()[0].standing().reason.unwrap().text(),
        "corrupted data"
    );

    let mut swapped = disks.root.clone();
    let mirror = &mut swapped.children[0].children;
    let first = mirror[0].path.take();
    mirror[0].path = mirror[1].path.take();
    mirror[1].path = first;
    let nothing = OpenOptions {
        need: Need::Nothing,
        ..of_pool()
    };
    let tree = VdevTree::open(&disks.host, &swapped, &nothing).unwrap();
    assert!(tree.leaves().iter().all(|leaf| !leaf.is_usable()));
}

#[test]
fn a_device_that_slept_through_txgs_is_out_of_date() {
    let disks = Disks::one(VdevKind::Mirror, 2, 9);
    let tree = disks.open();
    disks.label(&tree);
    store(&disks, &tree, 5).unwrap();
    assert!(tree.take_offline(guid_of(1)));
    store(&disks, &tree, 6).unwrap();
    // One txg may be lost in a crash; that is no sign of sleep.
    let awake = disks.open_with(&of_pool()).unwrap();
    assert!(awake.leaf(guid_of(1)).unwrap().dtl().is_empty());
    store(&disks, &tree, 7).unwrap();
    let awake = disks.open_with(&of_pool()).unwrap();
    assert!(awake.leaf(guid_of(1)).unwrap().misses(Txg::MAX));
    assert!(awake.leaf(guid_of(0)).unwrap().dtl().is_empty());
}

#[test]
fn a_device_that_cannot_take_its_label_is_taken_out_of_use() {
    let disks = Disks::one(VdevKind::Mirror, 2, 9);
    let tree = disks.open();
    disks.label(&tree);
    let range = RING_OFFSET..LABEL_BYTES;
    disks.disk(0).inject(Fault::FailRange {
        action: Action::Write,
        range,
        errno: Errno::IO,
    });
    store(&disks, &tree, 6).unwrap();
    assert_eq!(tree.leaves()[0].standing().state, VdevState::Faulted);
    let label = read_labels(&window(&disks, 1))
        .into_iter()
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(label.txg(), Some(Txg::from(6)));
    let only = Disks::one(VdevKind::File, 1, 9);
    let tree = only.open();
    only.label(&tree);
    let range = RING_OFFSET..LABEL_BYTES;
    only.disk(0).inject(Fault::FailRange {
        action: Action::Write,
        range,
        errno: Errno::IO,
    });
    assert!(matches!(
        store(&only, &tree, 6),
        Err(VdevWriteError::LostRedundancy { .. })
    ));
}

#[test]
fn uberblocks_go_to_a_few_vdevs_in_turns_unless_the_configuration_changed() {
    let tops = [(VdevKind::File, 1); 5];
    let disks = Disks::new(&tops, 9);
    let tree = disks.open();
    disks.label(&tree);
    let having = |txg: u64| {
        let has = |leaf: &&Arc<tarn_vdev::Leaf>| {
            let found = read_uberblocks(&leaf.window().unwrap(), 9);
            found
                .iter()
                .any(|found| found.uberblock.txg == Txg::from(txg))
        };
        tree.leaves().iter().filter(has).count()
    };
    store(&disks, &tree, 6).unwrap();
    store(&disks, &tree, 7).unwrap();
    assert_eq!((having(6), having(7)), (5, 3));
}

#[test]
fn a_cleared_device_belongs_to_nobody() {
    let disks = Disks::one(VdevKind::File, 1, 9);
    let tree = disks.open();
    disks.label(&tree);
    store(&disks, &tree, 6).unwrap();
    let found = labelled_use(&window(&disks, 0)).unwrap();
    assert_eq!((found.state, found.txg), (PoolState::Active, Txg::from(6)));
    assert_eq!(found.pool_name.unwrap(), "tank");
    clear_labels(&window(&disks, 0)).unwrap();
    assert_eq!(labelled_use(&window(&disks, 0)), None);
    assert!(read_uberblocks(&window(&disks, 0), 9).is_empty());
}

#[test]
fn a_file_system_on_a_device_is_noticed() {
    let disks = Disks::one(VdevKind::File, 1, 9);
    assert_eq!(foreign_format(&window(&disks, 0)), None);
    disks.disk(0).poke(65600, b"_BHRfS_M");
    assert_eq!(foreign_format(&window(&disks, 0)), Some("btrfs"));
}

#[test]
fn a_configuration_that_is_too_large_is_refused_before_anything_is_written() {
    let disks = Disks::one(VdevKind::File, 1, 9);
    let list = NvList::new().with("path", "x".repeat(120 << 10));
    let error = create_labels(&window(&disks, 0), &list).unwrap_err();
    assert!(error.to_string().contains("does not fit"), "{error}");
    assert_eq!(disks.disk(0).requests().1, 0);
}

#[test]
fn an_uberblock_that_one_device_has_is_given_to_those_that_can_be_relied_on() {
    let disks = Disks::one(VdevKind::Mirror, 3, 9);
    let tree = disks.open();
    disks.label(&tree);
    for txg in [3, 4, 5] {
        store(&disks, &tree, txg).unwrap();
    }
    let all = |disk: usize| {
        disks
            .disk(disk)
            .peek(0, usize::try_from(DEVICE_BYTES).unwrap())
    };
    let awake = all(1);
    assert!(tree.take_offline(guid_of(2)));
    store(&disks, &tree, 7).unwrap();
    store(&disks, &tree, 8).unwrap();
    let asleep = all(2);
    disks.disk(1).poke(0, &awake);
    drop(tree);
    // The second is one behind the first, and perhaps more: it is out of date, as the third is.
    let tree = disks.open_with(&of_pool()).unwrap();
    assert!(tree.leaf(guid_of(1)).unwrap().misses(Txg::MAX));
    let before = disks.machine.device_writes();
    tree.self_heal_uberblock(&uberblock(8), &operation())
        .unwrap();
    assert_eq!(
        disks.machine.device_writes(),
        before,
        "no device is to get it"
    );
    drop(tree);
    let tree = disks.open();
    for txg in [9, 10] {
        store(&disks, &tree, txg).unwrap();
    }
    let awake = all(1);
    store(&disks, &tree, 11).unwrap();
    disks.disk(1).poke(0, &awake);
    disks.disk(2).poke(0, &asleep);
    drop(tree);
    let tree = disks.open_with(&of_pool()).unwrap();
    let newest = |disk| {
        let found = read_uberblocks(&window(&disks, disk), 9);
        best_uberblock(&found).unwrap().uberblock.txg
    };
    let newest = || [0, 1, 2].map(newest).map(Txg::get);
    assert_eq!(newest(), [11, 10, 5]);
    let (_, _, flushes) = disks.disk(1).requests();
    tree.self_heal_uberblock(&tree.newest_uberblock().unwrap(), &operation())
        .unwrap();
    assert_eq!(newest(), [11, 11, 5]);
    assert_eq!(disks.disk(1).requests().2, flushes + 1);
    let before = disks.machine.device_writes();
    tree.self_heal_uberblock(&uberblock(11), &operation())
        .unwrap();
    assert_eq!(disks.machine.device_writes(), before, "all have it");
}
