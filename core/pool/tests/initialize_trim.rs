//! `zpool initialize`, `zpool trim` and `autotrim`: free space is gone over once, nothing else is.

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::files::vdev;
use support::{change_mos, create, create_of, import, machine, path};
use tarn_host::{Host, OpenMode};
use tarn_object::NewObject;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{Guid, ObjectId};
use tarn_pool::initialize_trim::{FreeSpaceWork, WorkCommand, WorkRefusal, WorkState};
use tarn_pool::{Leaving, Mode, Pool};
use tarn_probe::{IoKind, Operation};
use tarn_vdev::free_space::FILL_PATTERN;
use tarn_vdev::{OutOfUse, VdevKind};

const INITIALIZE: FreeSpaceWork = FreeSpaceWork::Initialize;
const TRIM: FreeSpaceWork = FreeSpaceWork::Trim;

fn start(rate: u64) -> WorkCommand {
    WorkCommand::Start {
        rate,
        is_secure: false,
    }
}

fn leaf(pool: &Pool) -> Guid {
    pool.vdevs().leaves()[0].guid
}

fn state(pool: &Pool, kind: FreeSpaceWork) -> WorkState {
    let status = pool.work_status(leaf(pool), kind);
    status.map_or(WorkState::None, |status| status.state)
}

fn wait(pool: &Pool, kind: FreeSpaceWork) {
    for _ in 0..100_000 {
        if pool.work_left(kind, &[]).is_none() {
            return;
        }
        pool.host().sleep(Duration::from_millis(10));
    }
    panic!("it does not end");
}

/// How many megabytes of a disk are full of these words.
fn megabytes_of(host: &Host, disk: &str, word: u64) -> usize {
    let device = host.open_device(Path::new(&path(disk)), OpenMode::ReadOnly);
    let device = device.unwrap();
    let full = (4..128).filter(|megabyte| {
        let bytes = device.read_at(megabyte << 20, 1 << 20).unwrap();
        let words = bytes.as_chunks::<8>().0;
        words.iter().all(|found| u64::from_le_bytes(*found) == word)
    });
    full.count()
}

/// An object of the MOS full of bytes that do not compress to nothing.
fn new_object(pool: &Pool, megabytes: usize, operation: &Operation) -> ObjectId {
    let mut made = None;
    change_mos(pool, operation, |tx, mos| {
        let new = NewObject::plain(ObjectType::PackedNvlist, 128 << 10);
        let object = mos.allocate(tx, new, operation).unwrap();
        object
            .write(tx, 0, &contents(megabytes), operation)
            .unwrap();
        made = Some(object.id());
    });
    made.unwrap()
}

fn contents(megabytes: usize) -> Vec<u8> {
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    let words = (0..megabytes << 17).flat_map(|_| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word.to_le_bytes()
    });
    words.collect()
}

fn is_whole(pool: &Pool, object: ObjectId, megabytes: usize, operation: &Operation) -> bool {
    let object = pool.mos().object(object, operation).unwrap();
    let mut found = vec![0; megabytes << 20];
    object.read(0, &mut found, operation).unwrap();
    found == contents(megabytes)
}

#[test]
fn free_space_is_filled_and_what_is_allocated_stays() {
    let machine = machine(&["a"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a"], &operation);
        let before = new_object(&pool, 2, &operation);
        let command = pool.command_work(leaf(&pool), INITIALIZE, start(0), &operation);
        command.unwrap();
        // Blocks are allocated beside it, some of them in metaslabs that are done.
        let objects: Vec<_> = (0..6).map(|_| new_object(&pool, 1, &operation)).collect();
        wait(&pool, INITIALIZE);
        assert_eq!(state(&pool, INITIALIZE), WorkState::Complete);
        pool.close(Leaving::Exported, &operation).unwrap();
        let filled = megabytes_of(host, "a", FILL_PATTERN);
        assert!((50..110).contains(&filled), "{filled} MiB are filled");
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        assert_eq!(state(&pool, INITIALIZE), WorkState::Complete);
        assert!(is_whole(&pool, before, 2, &operation));
        for object in objects {
            assert!(is_whole(&pool, object, 1, &operation));
        }
        let again = pool.command_work(leaf(&pool), INITIALIZE, WorkCommand::Forget, &operation);
        again.unwrap();
        pool.sync_all(&operation).unwrap();
        assert_eq!(state(&pool, INITIALIZE), WorkState::None);
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn each_copy_of_a_mirror_is_done_by_itself() {
    let machine = machine(&["a", "b"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create_of(host, vec![vdev(VdevKind::Mirror, &["a", "b"])], &operation);
        for leaf in pool.vdevs().leaves() {
            pool.command_work(leaf.guid, INITIALIZE, start(0), &operation)
                .unwrap();
        }
        wait(&pool, INITIALIZE);
        pool.close(Leaving::Exported, &operation).unwrap();
        assert!(megabytes_of(host, "a", FILL_PATTERN) > 90);
        assert!(megabytes_of(host, "b", FILL_PATTERN) > 90);
    });
    run.unwrap();
}

#[test]
fn what_is_active_goes_on_at_the_next_import_and_what_is_suspended_does_not() {
    let machine = machine(&["a"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a"], &operation);
        let device = leaf(&pool);
        let command =
            |pool: &Arc<Pool>, kind, command| pool.command_work(device, kind, command, &operation);
        command(&pool, INITIALIZE, start(0)).unwrap();
        // One byte a second: it waits behind its first piece.
        command(&pool, TRIM, start(1)).unwrap();
        assert!(matches!(
            command(&pool, TRIM, start(1)),
            Err(WorkRefusal::Busy)
        ));
        command(&pool, TRIM, WorkCommand::Suspend).unwrap();
        assert!(matches!(
            command(&pool, TRIM, WorkCommand::Suspend),
            Err(WorkRefusal::NotActive)
        ));
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        wait(&pool, INITIALIZE);
        assert_eq!(state(&pool, INITIALIZE), WorkState::Complete);
        assert_eq!(state(&pool, TRIM), WorkState::Suspended);
        command(&pool, TRIM, start(1 << 40)).unwrap();
        wait(&pool, TRIM);
        assert_eq!(state(&pool, TRIM), WorkState::Complete);
        assert!(matches!(
            command(&pool, TRIM, WorkCommand::Cancel),
            Err(WorkRefusal::NotActive)
        ));
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn a_close_stores_how_far_it_came() {
    let machine = machine(&["a"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a"], &operation);
        // With one byte a second each run waits behind its first piece.
        let command = pool.command_work(leaf(&pool), TRIM, start(1), &operation);
        command.unwrap();
        let first = wait_for_more(&pool, 0);
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        wait_for_more(&pool, first);
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

/// Waits until TRIM has done more bytes than these, and gives how many.
fn wait_for_more(pool: &Pool, than: u64) -> u64 {
    for _ in 0..1000 {
        let done = pool.work_status(leaf(pool), TRIM).unwrap().done_bytes;
        if done > than {
            return done;
        }
        pool.host().sleep(Duration::from_millis(10));
    }
    panic!("TRIM does not go beyond {than} bytes");
}

#[test]
fn a_device_that_is_faulted_is_not_gone_over_any_more() {
    let machine = machine(&["a", "b"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create_of(host, vec![vdev(VdevKind::Mirror, &["a", "b"])], &operation);
        let device = leaf(&pool);
        for kind in [INITIALIZE, TRIM] {
            // One byte a second: TRIM waits behind its first piece.
            let started = pool.command_work(device, kind, start(1), &operation);
            started.unwrap();
        }
        wait_for_more(&pool, 0);
        pool.take_out_of_use(device, OutOfUse::Faulted, &operation)
            .unwrap();
        assert_eq!(state(&pool, TRIM), WorkState::Canceled);
        assert_ne!(state(&pool, INITIALIZE), WorkState::Active);
        let can_discard = |pool: &Pool| pool.vdevs().leaf(device).unwrap().can_discard();
        assert!(can_discard(&pool), "it could when it was last open");
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        assert_eq!(state(&pool, TRIM), WorkState::Canceled);
        assert!(!can_discard(&pool));
        let standing = pool.bring_online(device, &operation).unwrap();
        assert!(standing.state.is_usable() && can_discard(&pool));
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}

#[test]
fn trim_discards_what_is_free_and_autotrim_what_was_freed() {
    let machine = machine(&["a"]);
    let run = machine.run(|host| {
        let operation = Operation::unmeasured();
        let pool = create(host, &["a"], &operation);
        let device = leaf(&pool);
        pool.command_work(device, INITIALIZE, start(0), &operation)
            .unwrap();
        wait(&pool, INITIALIZE);
        pool.command_work(device, TRIM, start(0), &operation)
            .unwrap();
        wait(&pool, TRIM);
        pool.close(Leaving::Exported, &operation).unwrap();
        assert!(megabytes_of(host, "a", FILL_PATTERN) < 8);
        let pool = import(host, Mode::ReadWrite, &operation).unwrap();
        pool.set_autotrim(true);
        // The thread looks at the first stored txg.
        let object = new_object(&pool, 8, &operation);
        let kept = new_object(&pool, 2, &operation);
        change_mos(&pool, &operation, |tx, mos| {
            mos.free_object(tx, object, &operation).unwrap();
        });
        let trims = || pool.vdevs().leaves()[0].probes.statistics.snapshot();
        let before = trims().operations(IoKind::Trim);
        for _ in 0..200 {
            change_mos(&pool, &operation, |tx, mos| {
                let object = mos.object(kept, &operation).unwrap();
                object.write(tx, 0, &contents(1), &operation).unwrap();
            });
            pool.host().sleep(Duration::from_millis(10));
        }
        assert!(trims().operations(IoKind::Trim) > before);
        assert!(is_whole(&pool, kept, 2, &operation));
        pool.set_autotrim(false);
        pool.close(Leaving::Exported, &operation).unwrap();
        let pool = import(host, Mode::ReadOnly, &operation).unwrap();
        assert!(is_whole(&pool, kept, 2, &operation));
        pool.close(Leaving::Exported, &operation).unwrap();
    });
    run.unwrap();
}
