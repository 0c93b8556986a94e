//! What a stream goes into, beside what is there already.

mod support;

use support::Pool;
use support::tasks::{
    begin_receive, create, destroy, finish_receive, free_all, set, snapshot, there_is, with_dataset,
};
use tarn_dataset::ops::receive::{AbandonReceive, Receiver, receive_name};
use tarn_object::zap::{ObjectZap, ZapValue};
use tarn_ondisk::dataset_dir::{FILESYSTEM_COUNT, SNAPSHOT_COUNT};
use tarn_ondisk::units::ObjectId;

const MIB: u64 = 1 << 20;

/// `tank/a` with a snapshot `@one`.
fn with_base() -> Pool {
    let mut pool = Pool::new();
    pool.run(create("tank/a")).unwrap();
    pool.write("tank/a", 0, MIB);
    pool.sync();
    pool.run(snapshot("tank/a@one")).unwrap();
    pool
}

/// Room for an increment from `tank/a@one`.
fn begin(pool: &mut Pool) -> Receiver {
    let guid = with_dataset(pool, "tank/a@one", |base| base.stored().unwrap().guid);
    pool.run(begin_receive("tank/a", guid.get()))
        .unwrap()
        .receiver
}

/// File systems and snapshots, as a directory counts them.
fn counts(pool: &Pool, name: &str) -> (Option<u64>, Option<u64>) {
    let view = pool.namespace.view(&pool.operation);
    let directory = view.directory(name).unwrap();
    let count = |field| directory.extension(field).unwrap();
    (count(FILESYSTEM_COUNT), count(SNAPSHOT_COUNT))
}

/// As OpenZFS has it since 2.1, which takes one off when a clone goes that an increment was cut in,
/// whether or not it was counted.
#[test]
fn what_an_increment_goes_into_is_counted_as_a_file_system() {
    let mut pool = with_base();
    pool.run(set("tank/a", "snapshot_limit", "10")).unwrap();
    assert_eq!(counts(&pool, "tank/a"), (Some(0), Some(1)));
    let head = begin(&mut pool).head;
    assert_eq!(counts(&pool, "tank/a"), (Some(1), Some(1)));
    assert_eq!(counts(&pool, &receive_name("tank/a")), (Some(0), Some(0)));
    pool.run(AbandonReceive { head }).unwrap();
    assert_eq!(counts(&pool, "tank/a"), (Some(0), Some(1)));
    let receiver = begin(&mut pool);
    assert_eq!(counts(&pool, "tank/a"), (Some(1), Some(1)));
    pool.run(finish_receive("tank/a", receiver)).unwrap();
    assert_eq!(counts(&pool, "tank/a"), (Some(0), Some(2)));
    free_all(&mut pool);
}

/// It is there already when a limit is first set.
#[test]
fn what_an_increment_goes_into_is_counted_when_counting_begins() {
    let mut pool = with_base();
    let head = begin(&mut pool).head;
    pool.run(set("tank", "snapshot_limit", "10")).unwrap();
    assert_eq!(counts(&pool, "tank"), (Some(2), Some(1)));
    assert_eq!(counts(&pool, "tank/a"), (Some(1), Some(1)));
    pool.run(AbandonReceive { head }).unwrap();
    assert_eq!(counts(&pool, "tank"), (Some(1), Some(1)));
    free_all(&mut pool);
}

/// Another program has not counted what is there.
#[test]
fn a_count_that_is_too_small_keeps_nobody_from_destroying() {
    let mut pool = with_base();
    pool.run(create("tank/a/b")).unwrap();
    pool.run(set("tank/a", "filesystem_limit", "10")).unwrap();
    assert_eq!(counts(&pool, "tank/a"), (Some(1), Some(1)));
    let view = pool.namespace.view(&pool.operation);
    let id: ObjectId = view.directory("tank/a").unwrap().id();
    pool.sync_with(|context| {
        let object = context.namespace.mos().object(id, context.operation);
        let object = object.unwrap();
        let zap = ObjectZap::of(&object, context.operation);
        let none = ZapValue::word(0);
        zap.update(context.tx, FILESYSTEM_COUNT, &none).unwrap();
    });
    pool.run(destroy("tank/a/b")).unwrap();
    assert_eq!(counts(&pool, "tank/a"), (Some(0), Some(1)));
    assert!(!there_is(&pool, "tank/a/b"));
    free_all(&mut pool);
}
