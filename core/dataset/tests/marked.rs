//! Deferred destroy: marked snapshots go with their last hold or clone, but not while they are in
//! use.

mod support;

use support::Pool;
use support::tasks::{
    begin_receive, clone, create, destroy, finish_receive, free_all, mark_snapshot, names, refusal,
    snapshot, there_is, with_dataset,
};
use tarn_dataset::ops::destroy_together::DestroyTogether;
use tarn_dataset::ops::hold::{HoldSnapshots, ReleaseHolds};
use tarn_dataset::ops::receive::Receiver;
use tarn_dataset::task::TaskRefusal;

const MIB: u64 = 1 << 20;

fn hold(list: &[&str], tag: &str) -> HoldSnapshots {
    HoldSnapshots {
        names: names(list),
        tag: tag.to_string(),
    }
}

fn release(list: &[&str], tag: &str) -> ReleaseHolds {
    ReleaseHolds {
        names: names(list),
        tag: tag.to_string(),
    }
}

/// `tank/a` with a snapshot `@one`.
fn with_one() -> Pool {
    let mut pool = Pool::new();
    pool.run(create("tank/a")).unwrap();
    pool.write("tank/a", 0, MIB);
    pool.sync();
    pool.run(snapshot("tank/a@one")).unwrap();
    pool
}

/// Runs while this snapshot is in use.
fn while_in_use<T>(pool: &mut Pool, name: &str, run: impl FnOnce(&mut Pool) -> T) -> T {
    let id = with_dataset(pool, name, |snapshot| snapshot.id());
    let namespace = pool.namespace.clone();
    let _use = namespace.use_dataset(id);
    run(pool)
}

fn assert_busy<T: std::fmt::Debug>(refused: Result<T, TaskRefusal>) {
    let refusal = refusal(refused);
    assert!(matches!(refusal, TaskRefusal::Busy { .. }), "{refusal}");
}

#[test]
fn holds_are_released_of_none_when_one_snapshot_would_go_that_is_in_use() {
    let mut pool = with_one();
    pool.run(snapshot("tank/a@two")).unwrap();
    let both = ["tank/a@one", "tank/a@two"];
    pool.run(hold(&both, "tag")).unwrap();
    for name in both {
        pool.run(mark_snapshot(name)).unwrap();
    }
    for name in both {
        let released = while_in_use(&mut pool, name, |pool| pool.run(release(&both, "tag")));
        assert_busy(released);
        assert!(both.into_iter().all(|name| there_is(&pool, name)));
    }
    // Those without the hold are passed over, wherever they are in the list.
    pool.run(snapshot("tank/a@three")).unwrap();
    let all = ["tank/a@three", "tank/a@one", "tank/a@none", "tank/a@two"];
    pool.run(release(&all, "tag")).unwrap();
    assert!(both.into_iter().all(|name| !there_is(&pool, name)));
    let none = refusal(pool.run(release(&["tank/a@three"], "tag")));
    assert!(matches!(none, TaskRefusal::NoSuchTag), "{none}");
    free_all(&mut pool);
}

#[test]
fn a_hold_that_is_not_the_last_is_released_though_the_snapshot_is_in_use() {
    let mut pool = with_one();
    let one = ["tank/a@one"];
    pool.run(hold(&one, "first")).unwrap();
    pool.run(hold(&one, "second")).unwrap();
    pool.run(clone("tank/a@one", "tank/c")).unwrap();
    pool.run(mark_snapshot("tank/a@one")).unwrap();
    while_in_use(&mut pool, "tank/a@one", |pool| {
        pool.run(release(&one, "first")).unwrap();
        // The clone keeps it.
        pool.run(release(&one, "second")).unwrap();
        pool.run(hold(&one, "third")).unwrap();
        // And now the hold does.
        pool.run(destroy("tank/c")).unwrap();
        assert_busy(pool.run(release(&one, "third")));
    });
    pool.run(release(&one, "third")).unwrap();
    assert!(!there_is(&pool, "tank/a@one"));
    free_all(&mut pool);
}

#[test]
fn a_clone_does_not_take_along_what_is_in_use() {
    let mut pool = with_one();
    pool.run(clone("tank/a@one", "tank/c")).unwrap();
    pool.write("tank/c", 0, MIB);
    pool.sync();
    pool.run(snapshot("tank/c@own")).unwrap();
    pool.run(clone("tank/a@one", "tank/d")).unwrap();
    pool.run(mark_snapshot("tank/a@one")).unwrap();
    let together = |list: &[&str]| DestroyTogether { names: names(list) };
    while_in_use(&mut pool, "tank/a@one", |pool| {
        assert_busy(pool.run(together(&["tank/d", "tank/c@own", "tank/c"])));
        pool.run(destroy("tank/d")).unwrap();
        assert_busy(pool.run(together(&["tank/c@own", "tank/c"])));
    });
    pool.run(together(&["tank/c@own", "tank/c"])).unwrap();
    assert!(!there_is(&pool, "tank/a@one"));
    free_all(&mut pool);
}

#[test]
fn the_end_of_a_receive_does_not_take_along_a_base_that_is_in_use() {
    let mut pool = with_one();
    let guid = with_dataset(&pool, "tank/a@one", |base| base.stored().unwrap().guid);
    let begun = pool.run(begin_receive("tank/a", guid.get())).unwrap();
    pool.run(mark_snapshot("tank/a@one")).unwrap();
    let finish = |receiver: Receiver| finish_receive("tank/a", receiver);
    while_in_use(&mut pool, "tank/a@one", |pool| {
        assert_busy(pool.run(finish(begun.receiver)));
    });
    pool.run(finish(begun.receiver)).unwrap();
    assert!(!there_is(&pool, "tank/a@one") && there_is(&pool, "tank/a@three"));
    free_all(&mut pool);
}

#[test]
fn a_receive_ends_where_something_else_keeps_a_base_that_is_in_use() {
    let mut pool = with_one();
    let guid = with_dataset(&pool, "tank/a@one", |base| base.stored().unwrap().guid);
    let begun = pool.run(begin_receive("tank/a", guid.get())).unwrap();
    pool.run(hold(&["tank/a@one"], "tag")).unwrap();
    pool.run(mark_snapshot("tank/a@one")).unwrap();
    while_in_use(&mut pool, "tank/a@one", |pool| {
        pool.run(finish_receive("tank/a", begun.receiver)).unwrap();
    });
    assert!(there_is(&pool, "tank/a@one") && there_is(&pool, "tank/a@three"));
    free_all(&mut pool);
}
