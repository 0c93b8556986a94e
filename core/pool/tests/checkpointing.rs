//! Checkpoints: created, kept, discarded and rewound to, with power cuts anywhere.

mod support;

use std::time::Duration;
use support::files::{check_files, head, rewrite_file, round_of, vdev, wait_for_scan, write_files};
use support::{create, create_of, create_without, import, import_rewound, machine, new_vdev, path};
use tarn_host::Host;
use tarn_host::sim::SimHost;
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::ObjectId;
use tarn_pool::attach::{Joining, Newcomer};
use tarn_pool::checkpoint::{CheckpointError, CheckpointRefusal, CheckpointState};
use tarn_pool::error::ImportError;
use tarn_pool::{Leaving, Mode, Pool, ScanChange, VdevChangeError};
use tarn_probe::Operation;
use tarn_vdev::VdevKind;

/// A new checkpoint keeps less: blocks of the MOS, which the txg that stores it frees.
const NEW_BYTES_MAX: u64 = 512 << 10;
/// How many files a pool has when its checkpoint is created.
const FILES: u64 = 10;

fn state(pool: &Pool) -> Option<CheckpointState> {
    pool.checkpoint_status().map(|status| status.state)
}

fn is_feature_active(pool: &Pool) -> bool {
    pool.features().is_active(Feature::ZpoolCheckpoint.guid())
}

/// Waits until nothing of the checkpoint is left.
fn wait_for_discard(host: &Host, pool: &Pool) {
    for _ in 0..20_000 {
        if pool.checkpoint_status().is_none() {
            return;
        }
        host.sleep(Duration::from_millis(10));
    }
    panic!("it is not discarded: {:?}", pool.checkpoint_status());
}

/// Reads all blocks: none may be damaged.
fn scrub(host: &Host, pool: &Pool, operation: &Operation) {
    let begun = pool.change_scan(ScanChange::Scrub, operation).unwrap();
    begun.unwrap();
    wait_for_scan(host, pool);
    let scan = pool.scan_status().unwrap().scan;
    assert_eq!((scan.error_count, scan.processed_bytes), (0, 0), "{scan:?}");
}

/// Writes half of the files over, twice, and more files.
fn change(pool: &Pool, files: &[ObjectId], operation: &Operation) {
    for round in [1, 2] {
        for (number, file) in (0..).zip(files).step_by(2) {
            rewrite_file(pool, *file, number, round, operation);
        }
        pool.sync_all(operation).unwrap();
    }
    write_files(pool, 4, operation);
}

/// The newest object of the root dataset that is there.
fn object_count(pool: &Pool, operation: &Operation) -> usize {
    let set = head(pool, operation);
    (1..64)
        .filter(|id| set.object(ObjectId::new(*id), operation).is_ok())
        .count()
}

#[test]
fn a_rewound_pool_is_as_it_was_at_the_checkpoint() {
    let machine = machine(&["a", "b", "c"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a", "b"], &operation);
        let files = write_files(&pool, FILES, &operation);
        let count = object_count(&pool, &operation);
        pool.create_checkpoint(&operation).unwrap();
        assert!(is_feature_active(&pool));
        assert!(pool.checkpoint_status().unwrap().bytes < NEW_BYTES_MAX);
        change(&pool, &files, &operation);
        pool.add(&[new_vdev("c")], Some(12), &operation).unwrap();
        write_files(&pool, 20, &operation);
        let kept = pool.checkpoint_status().unwrap().bytes;
        assert!(kept > (FILES / 2 * 24 * 16) << 10, "{kept} bytes are kept");
        pool.close(Leaving::Exported, &operation).unwrap();

        // As it is, and as it was, read only.
        let pool = import(host, Mode::ReadOnly, &operation).unwrap();
        assert_eq!(state(&pool), Some(CheckpointState::Exists));
        assert_eq!(pool.checkpoint_status().unwrap().bytes, kept);
        assert_eq!(round_of(&pool, files[0], 0, &operation), Some(2));
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = import_rewound(host, Mode::ReadOnly, &operation).unwrap();
        check_files(&pool, &files, &operation);
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        assert_eq!(round_of(&pool, files[0], 0, &operation), Some(2));
        scrub(host, &pool, &operation);
        pool.close(Leaving::Exported, &operation).unwrap();

        let pool = import_rewound(host, Mode::ReadWrite, &operation).unwrap();
        assert_eq!((state(&pool), is_feature_active(&pool)), (None, false));
        assert_eq!(object_count(&pool, &operation), count);
        check_files(&pool, &files, &operation);
        assert_eq!(
            pool.vdevs().top_levels().len(),
            2,
            "the added vdev is not there"
        );
        change(&pool, &files, &operation);
        scrub(host, &pool, &operation);
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        assert_eq!(round_of(&pool, files[0], 0, &operation), Some(2));
        // The device that had left may join again.
        pool.add(&[new_vdev("c")], Some(12), &operation).unwrap();
        pool.close(Leaving::Exported, &operation).unwrap();
        let refused = import_rewound(host, Mode::ReadWrite, &operation);
        let is_refused = matches!(refused.map(drop), Err(ImportError::NoCheckpoint));
        assert!(is_refused, "there is no checkpoint any more");
    });
    run.unwrap();
}

#[test]
fn a_discarded_checkpoint_gives_its_space_back() {
    let machine = machine(&["a"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a"], &operation);
        let files = write_files(&pool, FILES, &operation);
        let allocated = |pool: &Pool| {
            let groups = pool.space().group_totals();
            let sum = groups.iter().map(|group| group.totals.allocated.get());
            sum.sum::<u64>()
        };
        pool.create_checkpoint(&operation).unwrap();
        change(&pool, &files, &operation);
        let kept = pool.checkpoint_status().unwrap().bytes;
        let before = allocated(&pool);
        pool.set_discarded_ranges_max(1);
        pool.discard_checkpoint(&operation).unwrap();
        assert!(matches!(
            pool.discard_checkpoint(&operation),
            Err(CheckpointError::Refused(CheckpointRefusal::Discarding))
        ));
        assert!(matches!(
            pool.create_checkpoint(&operation),
            Err(CheckpointError::Refused(CheckpointRefusal::Discarding))
        ));
        // It goes on after an import.
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        wait_for_discard(host, &pool);
        assert!(!is_feature_active(&pool));
        for _ in 0..4 {
            // What was freed is free two txgs later.
            rewrite_file(&pool, files[1], 1, 0, &operation);
            pool.sync_all(&operation).unwrap();
        }
        let after = allocated(&pool);
        assert!(
            after < before - kept / 4 * 3,
            "{before} bytes became {after}"
        );
        assert!(matches!(
            pool.discard_checkpoint(&operation),
            Err(CheckpointError::Refused(CheckpointRefusal::Absent))
        ));
        pool.create_checkpoint(&operation).unwrap();
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn devices_stay_as_they_are_while_there_is_a_checkpoint() {
    let machine = machine(&["a", "b", "c"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let shape = vdev(VdevKind::Mirror, &["a", "b"]);
        let pool = create_of(host, vec![shape], &operation);
        pool.create_checkpoint(&operation).unwrap();
        assert!(matches!(
            pool.create_checkpoint(&operation),
            Err(CheckpointError::Refused(CheckpointRefusal::Exists))
        ));
        let leaf = pool.vdevs().config().leaves()[0].guid;
        let new = Newcomer {
            path: &path("c"),
            spare: None,
            is_sequential: false,
        };
        for refused in [
            pool.join(Joining::Beside(leaf), new, &operation),
            pool.join(Joining::InsteadOf(leaf), new, &operation),
            pool.detach(leaf, &operation).map(drop),
        ] {
            assert!(matches!(
                refused,
                Err(VdevChangeError::Checkpoint(CheckpointRefusal::Exists))
            ));
        }
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn a_pool_without_the_feature_has_no_checkpoint() {
    let machine = machine(&["a"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let absent = [Feature::ZpoolCheckpoint];
        let pool = create_without(host, &["a"], &absent, &operation);
        let refused = pool.create_checkpoint(&operation);
        assert!(matches!(
            refused,
            Err(CheckpointError::Refused(CheckpointRefusal::NotEnabled))
        ));
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

/// What is done with the checkpoint of a pool while the power may be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// It is created.
    Create,
    /// It is discarded, a few ranges in each txg.
    Discard,
    /// The pool is rewound to it.
    Rewind,
}

/// Lets the power fail at this write of a life. Gives the files, the machine, and whether the life
/// was at its end before.
fn run(life: Life, cut_after: u64) -> (Vec<ObjectId>, SimHost, bool) {
    let machine = machine(&["a", "b"]);
    let created = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a", "b"], &operation);
        let files = write_files(&pool, FILES, &operation);
        if life != Life::Create {
            pool.create_checkpoint(&operation).unwrap();
            change(&pool, &files, &operation);
        }
        pool.close(Leaving::Exported, &operation).unwrap();
        files
    });
    let files = created.unwrap();
    let (world, of_life) = (machine.clone(), files.clone());
    let run = machine.run(move |host| {
        let operation = Operation::unmeasured();
        if life == Life::Rewind {
            world.cut_power_after_writes(world.device_writes() + cut_after);
            let pool = import_rewound(host, Mode::ReadWrite, &operation).unwrap();
            change(&pool, &of_life, &operation);
            world.cut_power_after_writes(u64::MAX);
            pool.close(Leaving::Exported, &operation).unwrap();
            return;
        }
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        pool.set_discarded_ranges_max(1);
        world.cut_power_after_writes(world.device_writes() + cut_after);
        match life {
            Life::Create => pool.create_checkpoint(&operation).unwrap(),
            _ => pool.discard_checkpoint(&operation).unwrap(),
        }
        change(&pool, &of_life, &operation);
        if life == Life::Discard {
            wait_for_discard(host, &pool);
        }
        world.cut_power_after_writes(u64::MAX);
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    let is_done = run.is_ok();
    match is_done {
        true => (files, machine, true),
        false => (files, machine.reboot(), false),
    }
}

/// After the power cut: the pool is whole, and if there is a checkpoint, it is rewound to.
fn check(files: &[ObjectId], host: &Host) -> Option<CheckpointState> {
    let operation = Operation::unmeasured();
    let pool = import(host, Mode::ReadOnly, &operation).unwrap();
    let found = state(&pool);
    pool.close(Leaving::Exported, &operation).unwrap();
    let pool = import(host, Mode::ReadWrite, &operation).unwrap();
    for (number, file) in (0..).zip(files) {
        let round = round_of(&pool, *file, number, &operation);
        assert!(round.is_some(), "file {number} is neither old nor new");
    }
    scrub(host, &pool, &operation);
    match found {
        Some(CheckpointState::Exists) => {
            change(&pool, files, &operation);
            pool.close(Leaving::Exported, &operation).unwrap();
            let pool = import_rewound(host, Mode::ReadWrite, &operation).unwrap();
            check_files(&pool, files, &operation);
            scrub(host, &pool, &operation);
            change(&pool, files, &operation);
            pool.close(Leaving::Exported, &operation).unwrap();
        }
        Some(CheckpointState::Discarding) => {
            wait_for_discard(host, &pool);
            write_files(&pool, 2, &operation);
            scrub(host, &pool, &operation);
            pool.close(Leaving::Exported, &operation).unwrap();
        }
        None => {
            // The next checkpoint begins with nothing of the last.
            pool.create_checkpoint(&operation).unwrap();
            assert!(pool.checkpoint_status().unwrap().bytes < NEW_BYTES_MAX);
            pool.close(Leaving::Exported, &operation).unwrap();
        }
    }
    let pool = import(host, Mode::ReadWrite, &operation).unwrap();
    scrub(host, &pool, &operation);
    pool.close(Leaving::Exported, &operation).unwrap();
    found
}

fn cut_everywhere(life: Life, step: u64) -> Vec<Option<CheckpointState>> {
    let mut states = Vec::new();
    for cut_after in (1..).step_by(usize::try_from(step).unwrap()) {
        let (files, machine, is_done) = run(life, cut_after);
        let checked = machine.run(move |host| check(&files, host));
        states.push(checked.unwrap());
        if is_done {
            break;
        }
    }
    assert!(states.len() > 10, "{} writes to stop at", states.len());
    states
}

#[test]
fn a_checkpoint_is_there_or_not_after_a_power_cut_at_any_write() {
    let states = cut_everywhere(Life::Create, 23);
    assert_eq!(states[0], None);
    assert_eq!(states.last(), Some(&Some(CheckpointState::Exists)));
}

#[test]
fn discarding_goes_on_after_a_power_cut_at_any_write() {
    let states = cut_everywhere(Life::Discard, 89);
    assert_eq!(states[0], Some(CheckpointState::Exists));
    assert!(states.contains(&Some(CheckpointState::Discarding)));
    assert_eq!(states.last(), Some(&None));
}

#[test]
fn a_pool_is_rewound_or_not_after_a_power_cut_at_any_write() {
    let states = cut_everywhere(Life::Rewind, 11);
    // The first write is the uberblock already, and may have reached a device.
    assert!(!states.contains(&Some(CheckpointState::Discarding)));
    assert_eq!(states.last(), Some(&None));
}
