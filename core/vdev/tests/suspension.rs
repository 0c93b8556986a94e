//! Which devices are relied on after a pool was suspended: only those that have everything.

mod common;

use common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tarn_host::sim::Fault;
use tarn_host::{Buffer, Host, JoinHandle};
use tarn_ondisk::units::VdevId;
use tarn_probe::{Operation, OperationKind};
use tarn_vdev::{
    ExpectedLabels, PhysicalWrite, Place, SuspensionDoor, VdevKind, VdevState, VdevTree,
    VdevWriteError,
};

/// A mirror of the disks 0 and 1, and disk 2.
const TOPS: [(VdevKind, u64); 2] = [(VdevKind::Mirror, 2), (VdevKind::File, 1)];

const BEFORE: u64 = 0;
const PROMISED: u64 = 8192;
const LATER: u64 = 16384;
const LAST: u64 = 24576;

#[derive(Default)]
struct Door {
    is_suspended: AtomicBool,
}

impl SuspensionDoor for Door {
    fn suspended(&self, _why: &str) {
        self.is_suspended.store(true, Ordering::Relaxed);
    }

    fn resumed(&self) {
        self.is_suspended.store(false, Ordering::Relaxed);
    }
}

/// A pool that is in use.
struct Pool<'a> {
    disks: &'a Disks,
    tree: Arc<VdevTree>,
    door: Arc<Door>,
    host: &'a Host,
}

/// Does something with a pool in which one block is stored.
fn with_pool(run: impl FnOnce(&Pool<'_>) + Send) {
    let disks = Disks::new(&TOPS, 9);
    let ran = disks.machine.run(|host| {
        let pool = Pool {
            disks: &disks,
            tree: disks.open(),
            door: Arc::default(),
            host,
        };
        disks.label(&pool.tree);
        pool.tree.begin(pool.door.clone());
        write(&pool.tree, &[on_mirror(BEFORE)]).unwrap();
        pool.tree.flush(&operation()).unwrap();
        run(&pool);
    });
    ran.unwrap();
}

fn on_mirror(offset: u64) -> Place {
    place(offset, 4096)
}

fn on_disk_2(offset: u64) -> Place {
    Place {
        vdev: VdevId::from(1),
        ..place(offset, 4096)
    }
}

impl Pool<'_> {
    fn vanish(&self, disks: &[usize]) {
        let each = disks.iter().map(|disk| self.disks.disk(*disk));
        each.for_each(|disk| disk.inject(Fault::Vanish));
    }

    /// They are back, without what was in their caches.
    fn put_back(&self, disks: &[usize]) {
        for disk in disks.iter().map(|disk| self.disks.disk(*disk)) {
            disk.clear_faults();
            disk.lose_unflushed();
        }
    }

    /// For another thread.
    fn shared(&self) -> Arc<VdevTree> {
        self.tree.clone()
    }

    fn is_suspended(&self) -> bool {
        self.door.is_suspended.load(Ordering::Relaxed)
    }

    /// Writes in a thread of its own, which waits as devices are gone.
    fn write_in_vain(&self, places: &[Place]) -> JoinHandle<Result<(), VdevWriteError>> {
        let (tree, places) = (self.tree.clone(), places.to_vec());
        let writer = self.host.spawn("writer", move || write(&tree, &places));
        self.host.sleep(Duration::from_millis(100));
        assert!(self.is_suspended());
        writer
    }

    fn resume(&self) {
        self.tree.resume(&operation()).unwrap();
        assert!(!self.is_suspended());
    }

    /// Writes and flushes.
    fn store(&self, place: Place) {
        write(&self.tree, &[place]).unwrap();
        self.tree.flush(&operation()).unwrap();
    }

    /// Those sides of the mirror that are relied on have all that was written there; and these are
    /// they.
    fn relies_on(&self, expected: &[usize], written: &[u64]) {
        let is_relied_on = |disk: &usize| self.tree.leaf(guid_of(*disk)).unwrap().is_whole();
        let relied_on: Vec<usize> = [0, 1].into_iter().filter(is_relied_on).collect();
        for disk in &relied_on {
            for offset in written {
                let is_there = self.disks.bytes(*disk, *offset, 4096) == noise(on_mirror(*offset));
                assert!(is_there, "disk {disk} has what was written at {offset}");
            }
        }
        assert_eq!(relied_on, expected);
    }
}

fn promise(tree: &VdevTree, offset: u64) -> Result<(), VdevWriteError> {
    let place = on_mirror(offset);
    let write = PhysicalWrite {
        place,
        data: Arc::new(Buffer::from_slice(&noise(place))),
    };
    tree.write_durably(vec![write], &operation())
}

fn finish(thread: JoinHandle<Result<(), VdevWriteError>>) {
    let outcome = thread.join().unwrap_or_else(|panicked| panicked.resume());
    outcome.unwrap();
}

#[test]
fn what_a_device_missed_of_an_unfinished_group_is_written_to_it_when_it_is_back() {
    with_pool(|pool| {
        pool.vanish(&[0]);
        write(&pool.tree, &[on_mirror(PROMISED)]).unwrap();
        pool.vanish(&[1]);
        let writer = pool.write_in_vain(&[on_mirror(LATER)]);
        pool.put_back(&[0, 1]);
        pool.resume();
        finish(writer);
        pool.tree.flush(&operation()).unwrap();
        pool.relies_on(&[0, 1], &[BEFORE, PROMISED, LATER]);
    });
}

#[test]
fn a_device_that_missed_what_was_made_durable_at_once_is_not_relied_on_when_it_is_back() {
    for next in [1, 2] {
        with_pool(|pool| {
            pool.vanish(&[0]);
            promise(&pool.tree, PROMISED).unwrap();
            pool.vanish(&[next]);
            let writer = pool.write_in_vain(&[on_mirror(LATER), on_disk_2(LATER)]);
            pool.put_back(&[0, next]);
            pool.resume();
            finish(writer);
            pool.tree.flush(&operation()).unwrap();
            let standing = pool.tree.leaf(guid_of(0)).unwrap().standing();
            assert_eq!(standing.state, VdevState::Removed);
            pool.relies_on(&[1], &[BEFORE, PROMISED, LATER]);
        });
    }
}

/// What one of two gets that is back already, the other one misses, though it was never taken out
/// of use.
#[test]
fn a_device_that_was_not_back_yet_when_something_was_made_durable_is_not_relied_on() {
    with_pool(|pool| {
        pool.vanish(&[0, 1, 2]);
        let writer = pool.write_in_vain(&[on_mirror(LATER), on_disk_2(LATER)]);
        pool.put_back(&[0]);
        pool.tree.resume(&operation()).unwrap_err();
        promise(&pool.tree, PROMISED).unwrap();
        pool.put_back(&[1, 2]);
        pool.resume();
        finish(writer);
        pool.tree.flush(&operation()).unwrap();
        pool.relies_on(&[0], &[BEFORE, PROMISED, LATER]);
    });
}

#[test]
fn a_device_without_which_a_pool_went_on_is_not_relied_on_when_it_is_back() {
    with_pool(|pool| {
        pool.vanish(&[0, 1]);
        let writer = pool.write_in_vain(&[on_mirror(LATER)]);
        pool.put_back(&[0]);
        pool.resume();
        finish(writer);
        pool.store(on_mirror(PROMISED));
        pool.vanish(&[0]);
        let writer = pool.write_in_vain(&[on_mirror(LAST)]);
        pool.put_back(&[0, 1]);
        pool.resume();
        finish(writer);
        pool.tree.flush(&operation()).unwrap();
        pool.relies_on(&[0], &[BEFORE, PROMISED, LATER, LAST]);
    });
}

#[test]
fn a_device_that_missed_groups_is_not_relied_on_because_it_failed_once_more() {
    with_pool(|pool| {
        pool.vanish(&[0]);
        pool.store(on_mirror(PROMISED));
        pool.put_back(&[0]);
        let standing = pool
            .tree
            .bring_online(guid_of(0), ExpectedLabels::Any)
            .unwrap();
        assert_eq!(standing.state, VdevState::Online);
        pool.store(on_mirror(LATER));
        pool.vanish(&[0, 1]);
        let writer = pool.write_in_vain(&[on_mirror(LAST)]);
        pool.put_back(&[0, 1]);
        pool.resume();
        finish(writer);
        pool.tree.flush(&operation()).unwrap();
        pool.relies_on(&[1], &[BEFORE, PROMISED, LATER, LAST]);
    });
}

#[test]
fn a_device_that_nobody_had_written_to_yet_is_taken_back_with_the_others() {
    with_pool(|pool| {
        pool.vanish(&[0, 1, 2]);
        let writer = pool.write_in_vain(&[on_mirror(LATER)]);
        pool.tree.resume(&operation()).unwrap_err();
        pool.put_back(&[0, 1, 2]);
        pool.resume();
        finish(writer);
        pool.store(on_disk_2(LAST));
        pool.relies_on(&[0, 1], &[BEFORE, LATER]);
    });
}

/// A flush that is under way covers what was complete when it began.
#[test]
fn what_is_written_during_a_flush_is_left_for_the_next() {
    with_pool(|pool| {
        let disk = pool.disks.disk(2);
        disk.inject(Fault::Slow { factor: 1000 });
        let tree = pool.shared();
        let writer = pool
            .host
            .spawn("writer", move || write(&tree, &[on_disk_2(LATER)]));
        pool.host.sleep(Duration::from_millis(10));
        pool.tree.flush(&operation()).unwrap();
        finish(writer);
        assert_eq!(disk.unflushed_writes(), 1);
        pool.tree.flush(&operation()).unwrap();
        assert_eq!(disk.unflushed_writes(), 0);
    });
}

/// What is written over during a flush is kept in its newest form.
#[test]
fn what_is_written_again_during_a_flush_is_kept_for_a_device_that_comes_back() {
    with_pool(|pool| {
        write(&pool.tree, &[on_mirror(LATER), on_disk_2(LATER)]).unwrap();
        pool.disks.disk(0).inject(Fault::Slow { factor: 1000 });
        let tree = pool.shared();
        let flusher = pool.host.spawn("flusher", move || tree.flush(&operation()));
        pool.host.sleep(Duration::from_millis(10));
        let newest = PhysicalWrite {
            place: on_disk_2(LATER),
            data: Arc::new(Buffer::from_slice(&[7; 4096])),
        };
        pool.tree.write(vec![newest], &operation()).unwrap();
        assert_eq!(
            pool.disks.disk(0).unflushed_writes(),
            1,
            "the flush goes on"
        );
        finish(flusher);
        pool.vanish(&[2]);
        let writer = pool.write_in_vain(&[on_disk_2(LAST)]);
        pool.put_back(&[2]);
        pool.resume();
        finish(writer);
        assert_eq!(pool.disks.bytes(2, LATER, 4096), [7; 4096]);
    });
}

/// A reader has its bytes from elsewhere.
#[test]
fn mending_waits_for_no_device_and_suspends_nothing() {
    with_pool(|pool| {
        let mend = |place: Place| {
            let write = PhysicalWrite {
                place,
                data: Arc::new(Buffer::from_slice(&noise(place))),
            };
            pool.tree.self_heal(write, &operation());
        };
        pool.vanish(&[2]);
        mend(on_disk_2(LATER));
        assert!(!pool.is_suspended());
        let writer = pool.write_in_vain(&[on_disk_2(LAST)]);
        mend(on_disk_2(LATER));
        pool.disks.disk(0).rot(LATER..LATER + 1);
        mend(on_mirror(LATER));
        assert!(pool.is_suspended());
        pool.put_back(&[2]);
        pool.resume();
        finish(writer);
        pool.tree.flush(&operation()).unwrap();
        pool.relies_on(&[0, 1], &[BEFORE, LATER]);
    });
}

/// A long write flushes as well: the flush of a transaction group waits for that one.
#[test]
fn a_flush_waits_for_one_that_has_begun() {
    with_pool(|pool| {
        write(&pool.tree, &[on_mirror(LATER)]).unwrap();
        let disks = [0, 1].map(|disk| pool.disks.disk(disk));
        for disk in &disks {
            disk.inject(Fault::Slow { factor: 1000 });
        }
        let tree = pool.shared();
        let reader = pool.host.spawn("reader", move || tree.flush(&operation()));
        pool.host.sleep(Duration::from_millis(10));
        assert!(disks.iter().all(|disk| disk.unflushed_writes() == 1));
        pool.tree.flush(&operation()).unwrap();
        assert!(disks.iter().all(|disk| disk.unflushed_writes() == 0));
        finish(reader);
    });
}

/// As long as a write for the log is on its way, no device is taken back that does not get it.
#[test]
fn devices_are_opened_again_when_the_log_is_written() {
    with_pool(|pool| {
        pool.vanish(&[0]);
        write(&pool.tree, &[on_mirror(LATER)]).unwrap();
        pool.disks.disk(1).inject(Fault::Slow { factor: 3000 });
        let is_promised = Arc::new(AtomicBool::new(false));
        let promise = {
            let (pool, is_promised) = (pool.shared(), is_promised.clone());
            move || {
                let outcome = promise(&pool, PROMISED);
                is_promised.store(true, Ordering::Relaxed);
                outcome
            }
        };
        let promising = pool.host.spawn("log", promise);
        pool.vanish(&[2]);
        let writer = pool.write_in_vain(&[on_disk_2(LATER)]);
        pool.put_back(&[0, 2]);
        assert!(!is_promised.load(Ordering::Relaxed));
        pool.resume();
        assert!(is_promised.load(Ordering::Relaxed));
        finish(promising);
        finish(writer);
        pool.tree.flush(&operation()).unwrap();
        pool.relies_on(&[1], &[BEFORE, PROMISED, LATER]);
    });
}

/// A reader found that a disk is gone which has not flushed yet what it was given.
#[test]
fn a_flush_is_not_done_while_devices_are_gone() {
    with_pool(|pool| {
        write(&pool.tree, &[on_disk_2(LATER)]).unwrap();
        pool.vanish(&[2]);
        let reader = {
            let tree = pool.shared();
            move || {
                let operation = Operation::internal(|| 0, OperationKind::Read);
                let right = noise(on_disk_2(LATER));
                let read = tree.read(on_disk_2(LATER), &|bytes| bytes == right, &operation);
                read.map(|_| ()).map_err(|error| error.to_string())
            }
        };
        let reader = pool.host.spawn("reader", reader);
        pool.host.sleep(Duration::from_secs(1));
        assert!(pool.is_suspended());
        pool.tree.resume(&operation()).unwrap_err();
        let is_flushed = Arc::new(AtomicBool::new(false));
        let flush = {
            let (tree, is_flushed) = (pool.shared(), is_flushed.clone());
            move || {
                let outcome = tree.flush(&operation());
                is_flushed.store(true, Ordering::Relaxed);
                outcome
            }
        };
        let flushing = pool.host.spawn("flush", flush);
        pool.host.sleep(Duration::from_secs(1));
        let was_flushed = is_flushed.load(Ordering::Relaxed);
        pool.put_back(&[2]);
        pool.resume();
        finish(flushing);
        let outcome = reader.join().unwrap_or_else(|panicked| panicked.resume());
        assert_eq!(outcome, Ok(()), "what was written is there");
        assert!(!was_flushed);
    });
}

#[test]
fn nothing_is_flushed_any_more_after_a_pool_was_given_up() {
    with_pool(|pool| {
        pool.vanish(&[2]);
        let writer = pool.write_in_vain(&[on_disk_2(LATER)]);
        pool.tree.resume(&operation()).unwrap_err();
        pool.tree.give_up();
        let outcome = writer.join().unwrap_or_else(|panicked| panicked.resume());
        outcome.unwrap_err();
        let refused = pool.tree.flush(&operation());
        assert!(matches!(refused, Err(VdevWriteError::GivenUp)));
    });
}
