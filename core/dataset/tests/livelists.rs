//! Livelists of clones: clones are freed by them, and not by lists that contradict themselves.

mod support;

use support::Pool;
use support::chain::{Blocks, Chain};
use support::snapshots::{BLOCK, MIB, clone, create, snapshot};
use tarn_dataset::ops::destroy::Destroy;
use tarn_dataset::task::TaskContext;
use tarn_object::zap::ObjectZap;
use tarn_object::{Entry, PointerList, Step};
use tarn_ondisk::dataset_dir::LIVELIST;
use tarn_ondisk::deadlist::DeadlistHead;
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::{AllocatedSize, ObjectId};

/// A clone of a file of 16 MiB, which it shares with its origin.
fn cloned() -> Pool {
    let mut pool = Pool::new();
    create(&mut pool, &["tank/a"]);
    pool.write("tank/a", 0, 16 * MIB);
    pool.sync();
    pool.run(snapshot(&["tank/a@one"])).unwrap();
    pool.run(clone("tank/a@one", "tank/c")).unwrap();
    pool
}

fn parts_of(pool: &Pool, head: &str) -> Option<Vec<Blocks>> {
    let view = pool.namespace.view(&pool.operation);
    let head = view.directory(head).unwrap().head().unwrap();
    Chain::read(pool, &head.unwrap()).livelist(pool)
}

/// How a head was destroyed: what the internal history says of it.
fn way(pool: &mut Pool, name: &str) -> String {
    pool.take_events();
    let name = name.to_string();
    pool.run(Destroy { name }).unwrap();
    let events = pool.take_events();
    let event = events.iter().find(|event| event.0 == "destroy").unwrap();
    event.1.split(',').next().unwrap()[1..].to_string()
}

#[test]
fn a_clone_is_freed_by_its_livelist_in_bites() {
    let mut pool = cloned();
    pool.namespace.set_livelist_blocks_max(8);
    assert_eq!(pool.features.count(Feature::Livelist), 1);
    for round in 0..12 {
        pool.write("tank/c", round % 3 * MIB, MIB / 2);
        pool.sync();
        pool.judge();
    }
    let parts = parts_of(&pool, "tank/c").unwrap();
    assert!(parts.len() > 1, "{parts:?}");
    assert!(parts.len() < 12, "what has died is written out: {parts:?}");
    assert_eq!(way(&mut pool, "tank/c"), "livelist");
    pool.judge();
    let mut bites = 0;
    while pool.free_in_background(3).more {
        pool.judge();
        bites += 1;
    }
    assert!(bites > 3);
    pool.judge();
    assert_eq!(pool.directory("tank/$FREE").used.get(), 0);
    assert_eq!(pool.features.count(Feature::Livelist), 0);
}

#[test]
fn a_livelist_is_given_up_where_it_is_worth_nothing() {
    let mut pool = cloned();
    pool.write("tank/c", 0, 3 * MIB);
    pool.sync();
    assert!(parts_of(&pool, "tank/c").is_some());
    pool.write("tank/c", 3 * MIB, 3 * MIB);
    pool.sync();
    assert!(parts_of(&pool, "tank/c").is_none());
    assert_eq!(pool.features.count(Feature::Livelist), 0);
    pool.judge();
    assert_eq!(way(&mut pool, "tank/c"), "bptree");
    while pool.free_in_background(1000).more {}
    pool.judge();
}

#[test]
fn a_clone_that_gets_a_snapshot_has_no_livelist_any_more() {
    let mut pool = cloned();
    pool.write("tank/c", 0, MIB);
    pool.sync();
    pool.run(snapshot(&["tank/c@own"])).unwrap();
    assert!(parts_of(&pool, "tank/c").is_none());
    assert_eq!(pool.features.count(Feature::Livelist), 0);
    pool.judge();
}

/// Has the livelist of a clone say something else.
fn falsify(pool: &mut Pool, change: impl Fn(&PointerList, &TaskContext<'_>)) {
    pool.write("tank/c", 0, MIB);
    pool.sync();
    let directory = pool.dataset("tank/c").directory;
    pool.sync_with(|context| {
        let word = |id: ObjectId, name: &str| {
            let object = context.mos().object(id, context.operation).unwrap();
            let zap = ObjectZap::of(&object, context.operation);
            ObjectId::new(zap.lookup_word(name).unwrap().unwrap())
        };
        let list = word(directory, LIVELIST);
        let object = context.mos().object(list, context.operation).unwrap();
        let entries = ObjectZap::of(&object, context.operation).entries().unwrap();
        let part = ObjectId::new(entries[0].value.as_word().unwrap());
        let part = PointerList::open(context.mos(), part, context.operation).unwrap();
        change(&part, context);
    });
}

fn entries_of(list: &PointerList, context: &TaskContext<'_>) -> Vec<Entry> {
    let mut entries = Vec::new();
    let visit = |entry: &Entry| {
        entries.push(*entry);
        Step::Continue
    };
    list.for_each(context.operation, visit).unwrap();
    entries
}

#[test]
fn a_livelist_that_contradicts_itself_frees_nothing() {
    for is_freed in [false, true] {
        let mut pool = cloned();
        falsify(&mut pool, |part, context| {
            // One block is there twice, or has died once more than it was born.
            let entries = entries_of(part, context);
            let pointer = entries[0].pointer;
            let wrong = Entry { pointer, is_freed };
            let wrong = vec![wrong; 1 + usize::from(is_freed)];
            part.append_all(context.tx, &wrong, context.operation)
                .unwrap();
        });
        let used = pool.directory("tank/c").used.get();
        assert_eq!(way(&mut pool, "tank/c"), "livelist");
        while pool.free_in_background(1000).more {}
        assert_eq!(pool.directory("tank/$FREE").used.get(), used);
        assert_eq!(pool.features.count(Feature::Livelist), 1);
    }
}

#[test]
fn a_livelist_that_has_a_hole_frees_nothing() {
    let mut pool = cloned();
    falsify(&mut pool, |part, context| {
        let mut entries = entries_of(part, context);
        entries.reverse();
        let is_data = |entry: &Entry| entry.pointer.logical_size().get() == BLOCK;
        let index = entries.iter().position(is_data).unwrap();
        let pointer_bytes = 128;
        let object = context.mos().object(part.id(), context.operation).unwrap();
        let offset = u64::try_from(index * pointer_bytes).unwrap();
        object
            .write(context.tx, offset, &[0; 128], context.operation)
            .unwrap();
    });
    // Something on the list dies, so that what is left of it would be written anew.
    pool.write("tank/c", 8 * MIB, BLOCK);
    pool.sync();
    let used = pool.directory("tank/c").used.get();
    assert_eq!(way(&mut pool, "tank/c"), "livelist");
    while pool.free_in_background(1000).more {}
    assert_eq!(pool.directory("tank/$FREE").used.get(), used);
    assert_eq!(pool.features.count(Feature::Livelist), 1);
}

#[test]
fn a_livelist_that_a_new_death_contradicts_is_given_up() {
    let mut pool = cloned();
    falsify(&mut pool, |part, context| {
        let all = |_: &Entry| Step::Continue;
        part.take_each(context.tx, context.operation, all).unwrap();
    });
    pool.namespace.set_livelist_blocks_max(1);
    pool.write("tank/c", 0, MIB);
    pool.sync();
    assert!(parts_of(&pool, "tank/c").is_none());
    pool.judge();
    assert_eq!(way(&mut pool, "tank/c"), "bptree");
    while pool.free_in_background(1000).more {}
    pool.judge();
}

#[test]
fn a_livelist_that_counts_other_space_than_its_clone_is_not_believed() {
    let mut pool = cloned();
    pool.write("tank/c", 0, MIB);
    pool.sync();
    let directory = pool.dataset("tank/c").directory;
    pool.sync_with(|context| {
        let object = context.mos().object(directory, context.operation).unwrap();
        let zap = ObjectZap::of(&object, context.operation);
        let list = ObjectId::new(zap.lookup_word(LIVELIST).unwrap().unwrap());
        let list = context.mos().object(list, context.operation).unwrap();
        let mut head = DeadlistHead::from_bytes(&list.bonus(), ByteOrder::Little).unwrap();
        head.used += AllocatedSize::from(4096);
        list.set_bonus(context.tx, &head.to_bytes()).unwrap();
    });
    assert_eq!(way(&mut pool, "tank/c"), "bptree");
    while pool.free_in_background(1000).more {}
    pool.judge();
    assert_eq!(pool.features.count(Feature::Livelist), 0);
}
