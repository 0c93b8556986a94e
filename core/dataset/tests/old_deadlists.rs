//! Deadlists of before pool version 26: one list each, which stays when the pool is upgraded.

mod support;

use support::Pool;
use support::chain::Chain;
use support::tasks::{
    begin_receive, bookmark, clone, create, destroy, destroy_snapshots, finish_receive,
    mark_snapshot, names, refusal, set, snapshot, there_is, with_dataset,
};
use tarn_dataset::names::DatasetName;
use tarn_dataset::ops::create::CreateVolume;
use tarn_dataset::ops::hold::{HoldSnapshots, ReleaseHolds};
use tarn_dataset::ops::temporary_snapshot::{ReleaseTemporaryHolds, TakeTemporarySnapshot};
use tarn_dataset::space_used::{Since, sizes_written, written_since};
use tarn_dataset::task::{TaskContext, TaskRefusal};
use tarn_object::zap::ObjectZap;
use tarn_object::{Entry, LIST_BLOCK_BYTES, PointerList, Step};
use tarn_ondisk as ondisk;
use tarn_ondisk::bpobj::PointerListVersion;
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::pool_directory::{FREE_POINTER_LIST, POOL_DIRECTORY};
use tarn_ondisk::units::ObjectId;

const MIB: u64 = 1 << 20;

/// Has the deadlists of a head and of its snapshots be as they were before version 26.
fn age(pool: &mut Pool, head: &str) {
    let view = pool.namespace.view(&pool.operation);
    let head = view.directory(head).unwrap().head().unwrap().unwrap();
    let snapshots = head.snapshots().unwrap();
    let all = snapshots.iter().chain([&head]);
    let ids: Vec<ObjectId> = all.map(|dataset| dataset.id()).collect();
    pool.sync_with(|context| ids.iter().for_each(|id| age_one(context, *id)));
}

fn age_one(context: &TaskContext<'_>, id: ObjectId) {
    let (mos, operation) = (context.mos(), context.operation);
    let dataset = mos.object(id, operation).unwrap();
    let mut stored =
        ondisk::dataset::Dataset::from_short_bytes(&dataset.bonus(), ByteOrder::Little).unwrap();
    let divided = mos.object(stored.deadlist, operation).unwrap();
    let mut dead: Vec<Entry> = Vec::new();
    for list in ObjectZap::of(&divided, operation).entries().unwrap() {
        let list = ObjectId::new(list.value.as_word().unwrap());
        let list = PointerList::open(mos, list, operation).unwrap();
        let visit = |entry: &Entry| {
            dead.push(*entry);
            Step::Continue
        };
        list.for_each(operation, visit).unwrap();
    }
    let version = PointerListVersion::Sized;
    let list = PointerList::create(mos, context.tx, version, LIST_BLOCK_BYTES, operation).unwrap();
    list.append_all(context.tx, &dead, operation).unwrap();
    // What was there before is left alone: no test asks for it.
    stored.deadlist = list.id();
    dataset.set_bonus(context.tx, &stored.to_bytes()).unwrap();
}

fn free_all(pool: &mut Pool) {
    while pool.free_in_background(1000).more {}
    pool.judge();
}

fn write(pool: &mut Pool, name: &str, offset: u64, bytes: u64) {
    pool.write(name, offset, bytes);
    pool.sync();
}

/// `tank/a` with two snapshots, between which and after which something died.
fn old_chain() -> Pool {
    let mut pool = Pool::new();
    pool.run(create("tank/a")).unwrap();
    write(&mut pool, "tank/a", 0, 4 * MIB);
    pool.run(snapshot("tank/a@one")).unwrap();
    write(&mut pool, "tank/a", 0, MIB);
    pool.run(snapshot("tank/a@two")).unwrap();
    write(&mut pool, "tank/a", MIB / 2, MIB);
    age(&mut pool, "tank/a");
    pool.judge();
    pool
}

/// The head of `$ORIGIN` keeps its list for good.
#[test]
fn in_an_upgraded_pool_everything_can_be_made_and_lives() {
    let mut pool = Pool::new();
    age(&mut pool, "tank/$ORIGIN");
    pool.run(create("tank/a")).unwrap();
    pool.run(CreateVolume {
        name: "tank/v".to_string(),
        size_bytes: MIB,
        block_bytes: 16 << 10,
        sparse: false,
        settings: Vec::new(),
    })
    .unwrap();
    let received = pool.run(begin_receive("tank/r", 0)).unwrap().receiver;
    pool.run(finish_receive("tank/r", received)).unwrap();
    pool.judge();
    write(&mut pool, "tank/a", 0, 2 * MIB);
    for name in ["tank/a@one", "tank/a@two"] {
        pool.run(snapshot(name)).unwrap();
        write(&mut pool, "tank/a", 0, MIB);
        pool.judge();
    }
    pool.run(destroy_snapshots(&["tank/a@one"])).unwrap();
    free_all(&mut pool);
    pool.run(destroy_snapshots(&["tank/a@two"])).unwrap();
    pool.run(destroy("tank/a")).unwrap();
    free_all(&mut pool);
}

/// Its keys are those that the deadlists of the snapshots before it would have had.
#[test]
fn a_clone_of_an_old_snapshot_keeps_births_apart_and_goes_its_own_way() {
    for origin in ["tank/a@one", "tank/a@two"] {
        let mut pool = old_chain();
        pool.run(clone(origin, "tank/c")).unwrap();
        pool.judge();
        write(&mut pool, "tank/c", 0, MIB);
        pool.judge();
        for name in ["tank/c@one", "tank/c@two"] {
            pool.run(snapshot(name)).unwrap();
            write(&mut pool, "tank/c", MIB, 2 * MIB);
            pool.judge();
        }
        pool.run(destroy_snapshots(&["tank/c@one"])).unwrap();
        free_all(&mut pool);
        pool.run(destroy_snapshots(&["tank/c@two"])).unwrap();
        free_all(&mut pool);
        pool.run(destroy("tank/c")).unwrap();
        free_all(&mut pool);
    }
}

#[test]
fn what_was_written_and_freed_since_is_told_of_old_ones_too() {
    let mut pool = old_chain();
    let view = pool.namespace.view(&pool.operation);
    let head = view.directory("tank/a").unwrap().head().unwrap().unwrap();
    let chain = Chain::read(&pool, &head);
    for name in ["tank/a@one", "tank/a@two"] {
        let since = DatasetName::parse(name).unwrap();
        let then = chain.blocks_of(&pool, name);
        let written = written_since(&head, &since).unwrap();
        assert_eq!(written, Some(chain.written_since(&then)), "{name}");
        let snapshot = view.dataset(&since).unwrap();
        let sizes = sizes_written(&head, &Since::Snapshot(&snapshot)).unwrap();
        assert_eq!(sizes.map(|sizes| sizes.used), written);
    }
    // Bookmarks count what was freed until the next snapshot, which an old list says.
    for name in ["one", "two"] {
        let (mark, of) = (format!("tank/a#{name}"), format!("tank/a@{name}"));
        pool.run(bookmark(&mark, &of)).unwrap();
        let (freed, txg) = with_dataset(&pool, "tank/a", |head| {
            let found = head.bookmark(name).unwrap().unwrap().stored;
            (found.referenced_freed_before_next, found.creation_txg)
        });
        let there = chain.blocks_of(&pool, &of);
        assert_eq!(freed.get(), chain.freed_before_next(&there, txg), "{name}");
    }
}

/// The program that marked it could destroy it.
#[test]
fn an_old_snapshot_that_is_marked_stays_when_nothing_keeps_it_any_more() {
    let mut pool = Pool::new();
    pool.run(create("tank/a")).unwrap();
    write(&mut pool, "tank/a", 0, 2 * MIB);
    pool.run(snapshot("tank/a@one")).unwrap();
    let hold = HoldSnapshots {
        names: names(&["tank/a@one"]),
        tag: "tag".to_string(),
    };
    pool.run(hold).unwrap();
    pool.run(mark_snapshot("tank/a@one")).unwrap();
    pool.run(TakeTemporarySnapshot {
        name: "tank/a@two".to_string(),
        tag: "diff".to_string(),
    })
    .unwrap();
    pool.run(clone("tank/a@one", "tank/c")).unwrap();
    age(&mut pool, "tank/a");
    pool.run(ReleaseTemporaryHolds).unwrap();
    pool.run(ReleaseHolds {
        names: names(&["tank/a@one"]),
        tag: "tag".to_string(),
    })
    .unwrap();
    pool.run(destroy("tank/c")).unwrap();
    for name in ["tank/a@one", "tank/a@two"] {
        assert!(there_is(&pool, name));
        let refused = refusal(pool.run(destroy_snapshots(&[name])));
        assert_eq!(
            refused.to_string(),
            "destroying a snapshot of before pool version 26 is not supported by this version"
        );
    }
    free_all(&mut pool);
}

/// Without the list of blocks to be freed, as before version 26: other programs do not know newer
/// structures there.
#[test]
fn in_a_pool_that_is_still_old_nothing_is_made() {
    let mut pool = old_chain();
    age(&mut pool, "tank/$ORIGIN");
    pool.sync_with(|context| {
        let directory = context.mos().object(POOL_DIRECTORY, context.operation);
        let zap = ObjectZap::of(&directory.unwrap(), context.operation);
        zap.remove(context.tx, FREE_POINTER_LIST).unwrap();
    });
    let refused = [
        refusal(pool.run(create("tank/b"))),
        refusal(pool.run(clone("tank/a@one", "tank/b"))),
        refusal(pool.run(begin_receive("tank/b", 0))),
        refusal(pool.run(begin_receive("tank/a", 0))),
        refusal(pool.run(snapshot("tank/a@three"))),
        refusal(pool.run(destroy_snapshots(&["tank/a@one"]))),
    ];
    for refusal in refused {
        assert!(
            matches!(refusal, TaskRefusal::NotSupported { .. }),
            "{refusal}"
        );
    }
    pool.run(set("tank/a", "atime", "off")).unwrap();
    assert!(there_is(&pool, "tank/a@one"));
}
