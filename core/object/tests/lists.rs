//! Walks over object sets, and lists of block pointers.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use support::{Pool, SET};
use tarn_cache::PoolCache;
use tarn_host::sim::Random;
use tarn_object::{
    BlockTrees, Entry, Freeing, GROUP_USED, LIST_BLOCK_BYTES, NewObject, NewObjectSet, ObjectError,
    ObjectSet, Owner, Ownership, PROJECT_USED, PointerList, Step, SyncTx, TO_END, USER_USED,
    Unreadable, Visit, Visitor, WalkOptions, Walked, walk_objset,
};
use tarn_ondisk::block_pointer::{BlockPointer, PointerKind};
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::bpobj::{PointerListHead, PointerListVersion};
use tarn_ondisk::bptree::BlockTreeHead;
use tarn_ondisk::declare::Stored;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::units::{LogicalSize, ObjectId, PhysicalSize, Txg};
use tarn_probe::Operation;
use tarn_space::Class;

/// Notes all stored blocks, and stops now and then, or waits where something cannot be read.
#[derive(Default)]
struct Noter {
    found: Vec<BlockPointer>,
    objects: u64,
    patience: Option<u64>,
    stopped_at: Option<TraversalMark>,
    waits: bool,
}

impl Visitor for Noter {
    fn leave(&mut self, visit: &Visit<'_>) -> Step {
        if visit.mark.level == 0
            && let Some(patience) = &mut self.patience
        {
            if *patience == 0 {
                self.stopped_at = Some(visit.mark);
                return Step::Stop;
            }
            *patience -= 1;
        }
        self.found.push(*visit.pointer);
        Step::Continue
    }

    fn object(&mut self, _id: ObjectId, _dnode: &tarn_ondisk::dnode::Dnode) -> Step {
        self.objects += 1;
        Step::Continue
    }

    fn unreadable(&mut self, visit: &Visit<'_>, why: &ObjectError) -> Step {
        if self.waits {
            return Step::Stop;
        }
        panic!("{:?}: {why}", visit.mark);
    }

    fn waits(&mut self, _visit: &Visit<'_>) -> Step {
        match self.patience {
            Some(_) => Step::Stop,
            None => Step::Continue,
        }
    }
}

/// Reads a long way ahead every second time.
fn ahead_bytes(time: u64) -> u64 {
    (time % 2) << 20
}

/// A set with objects of many shapes, changed over a few groups.
fn filled(pool: &mut Pool) -> Arc<ObjectSet> {
    let set = pool.create_set(None);
    for group in 0..3_u8 {
        let tx = pool.tx();
        for number in 0..60_u8 {
            let slots = usize::from(number % 3) + 1;
            let new = NewObject {
                slots,
                indirect_shift: 12,
                ..NewObject::plain(ObjectType::PlainFile, 512 << (number % 4))
                    .with_bonus(ObjectType::SystemAttributes, 40)
            };
            let object = set.allocate(&tx, new, &pool.operation).unwrap();
            let size = usize::from(number) * 1500;
            object
                .write(&tx, 3000, &vec![number | 1; size], &pool.operation)
                .unwrap();
            if number % 5 == group {
                object.set_spill(&tx, Some(&[group + 1; 1000])).unwrap();
            }
        }
        drop(tx);
        pool.sync(&set);
        let tx = pool.tx();
        let mut id = ObjectId::ZERO;
        while let Some(next) = set.next_object(id, &pool.operation).unwrap() {
            if next.get() % 7 == u64::from(group) {
                set.free_object(&tx, next, &pool.operation).unwrap();
            }
            id = next;
        }
        drop(tx);
        pool.sync(&set);
    }
    set
}

/// Each object has another owner.
struct ByNumber;

impl Ownership for ByNumber {
    fn owner(&self, _bonus_type: ObjectType, bonus: &[u8]) -> Option<Owner> {
        let number = u64::from_le_bytes(bonus[..8].try_into().unwrap());
        Some(Owner {
            user: number,
            group: 2 * number,
            project: 3 * number,
        })
    }
}

/// A set with so many owners that each account has several levels, and some objects that have, too.
fn accounted(pool: &mut Pool) -> Arc<ObjectSet> {
    let set = pool.create_set(Some(Arc::new(ByNumber)));
    let tx = pool.tx();
    for number in 0..2500_u64 {
        let new = NewObject {
            indirect_shift: 12,
            ..NewObject::plain(ObjectType::PlainFile, 512)
                .with_bonus(ObjectType::SystemAttributes, 40)
        };
        let object = set.allocate(&tx, new, &pool.operation).unwrap();
        let mut bonus = [0; 40];
        bonus[..8].copy_from_slice(&number.to_le_bytes());
        object.set_bonus(&tx, &bonus).unwrap();
        if number % 250 == 0 {
            let mut random = Random::new(number + 1);
            let noise = (0..20_000).map(|_| random.byte());
            let noise: Vec<u8> = noise.collect();
            object.write(&tx, 0, &noise, &pool.operation).unwrap();
            object.set_spill(&tx, Some(&noise[..1000])).unwrap();
        }
    }
    drop(tx);
    pool.sync(&set);
    for account in [USER_USED, GROUP_USED, PROJECT_USED] {
        let account = set.object(account, &pool.operation).unwrap();
        let dnode = account.stored_dnode();
        assert!(dnode.levels > 1 && dnode.max_block.get() > 3, "{dnode:?}");
    }
    set
}

fn places(pointers: &[BlockPointer]) -> BTreeMap<(u64, u64), u64> {
    let mut places = BTreeMap::new();
    for dva in pointers.iter().flat_map(BlockPointer::dvas) {
        let place = (dva.vdev().get(), dva.offset().get());
        let other = places.insert(place, dva.allocated_size().get());
        assert_eq!(other, None, "{dva} is found once");
    }
    places
}

#[test]
fn a_walk_finds_every_allocated_block_once() {
    let mut pool = Pool::new();
    let set = filled(&mut pool);
    let mut noter = Noter::default();
    let root = set.root_pointer();
    let options = WalkOptions::default();
    let cache = &pool.env.cache;
    let walked = walk_objset(cache, SET, &root, options, &mut noter, &pool.operation);
    assert_eq!(walked, Walked::Completed);
    let found = places(&noter.found);
    let alive: Vec<_> = pool.alive.values().copied().collect();
    assert_eq!(found, places(&alive));
    // What the last groups freed is held back for two groups.
    for _ in 0..3 {
        let tx = pool.begin();
        pool.finish(tx);
    }
    let total: u64 = found.values().sum();
    assert_eq!(
        total,
        pool.space.class_totals(Class::Normal).allocated.get()
    );
    // The meta dnode is an object here, too.
    assert_eq!(noter.objects, set.object_count() + 1);
}

#[test]
fn a_walk_that_is_stopped_and_resumed_visits_every_block_once() {
    let mut pool = Pool::new();
    let set = filled(&mut pool);
    let (mut noter, mut resume, mut stops) = (Noter::default(), None, 0);
    loop {
        noter.patience = Some(stops % 40 + 1);
        let options = WalkOptions {
            resume,
            ahead_bytes: ahead_bytes(stops),
            ..WalkOptions::default()
        };
        let root = set.root_pointer();
        let env = pool.forgetful();
        let cache = &env.cache;
        match walk_objset(cache, SET, &root, options, &mut noter, &pool.operation) {
            Walked::Completed => break,
            Walked::Stopped(mark) => {
                assert_eq!(mark.level, 0);
                resume = Some(TraversalMark { ..mark });
            }
        }
        stops += 1;
    }
    assert!(stops > 30);
    let alive: Vec<_> = pool.alive.values().copied().collect();
    assert_eq!(places(&noter.found), places(&alive));
}

/// All blocks of the set once, by a walk that has stopped before.
fn resumed(
    pool: &Pool,
    set: &ObjectSet,
    cache: &PoolCache,
    noter: &mut Noter,
    stop: TraversalMark,
) {
    (noter.patience, noter.waits) = (None, false);
    let options = WalkOptions {
        resume: Some(stop),
        ahead_bytes: ahead_bytes(stop.block),
        ..WalkOptions::default()
    };
    let root = set.root_pointer();
    let walked = walk_objset(cache, SET, &root, options, noter, &pool.operation);
    assert_eq!(walked, Walked::Completed, "after {stop:?}");
    let alive: Vec<_> = pool.alive.values().copied().collect();
    assert_eq!(places(&noter.found), places(&alive), "after {stop:?}");
}

/// The mark is that of the block it stopped at, as OpenZFS stores it.
#[test]
fn a_walk_may_stop_at_any_block_also_of_accounts_and_visits_each_once() {
    let mut pool = Pool::new();
    let set = accounted(&mut pool);
    let cache = &pool.env.cache;
    for patience in 0.. {
        let mut noter = Noter {
            patience: Some(patience),
            ..Noter::default()
        };
        let (root, options) = (set.root_pointer(), WalkOptions::default());
        let walked = walk_objset(cache, SET, &root, options, &mut noter, &pool.operation);
        let Walked::Stopped(stop) = walked else {
            assert!(patience > 200, "{patience}");
            break;
        };
        assert_eq!(Some(stop), noter.stopped_at);
        resumed(&pool, &set, cache, &mut noter, stop);
    }
}

#[test]
fn a_walk_that_waits_for_any_block_of_pointers_or_dnodes_visits_each_once() {
    let mut pool = Pool::new();
    let set = accounted(&mut pool);
    let is_read = |pointer: &&BlockPointer| {
        let object_type = pointer.object_type();
        let has_more = matches!(object_type, ObjectType::Dnode | ObjectType::Objset);
        has_more || !pointer.level().is_data()
    };
    let read: Vec<BlockPointer> = pool.alive.values().filter(is_read).copied().collect();
    assert!(read.len() > 80, "{}", read.len());
    for (time, pointer) in (0..).zip(read) {
        let env = pool.forgetful();
        pool.flip(&pointer);
        let mut noter = Noter {
            waits: true,
            ..Noter::default()
        };
        let root = set.root_pointer();
        let options = WalkOptions {
            ahead_bytes: ahead_bytes(time),
            ..WalkOptions::default()
        };
        let walked = walk_objset(&env.cache, SET, &root, options, &mut noter, &pool.operation);
        let Walked::Stopped(stop) = walked else {
            panic!("{pointer} cannot be read");
        };
        pool.flip(&pointer);
        assert_eq!(stop.level, 0);
        resumed(&pool, &set, &env.cache, &mut noter, stop);
    }
}

#[test]
fn only_blocks_younger_than_asked_for_are_visited() {
    let mut pool = Pool::new();
    let set = filled(&mut pool);
    let born_after = Txg::from(13);
    let mut noter = Noter::default();
    let options = WalkOptions {
        born_after,
        ..WalkOptions::default()
    };
    let cache = &pool.env.cache;
    walk_objset(
        cache,
        SET,
        &set.root_pointer(),
        options,
        &mut noter,
        &pool.operation,
    );
    let young: Vec<_> = pool
        .alive
        .values()
        .filter(|p| p.logical_birth > born_after)
        .copied()
        .collect();
    assert!(young.len() < pool.alive.len());
    assert_eq!(places(&noter.found), places(&young));
}

fn meta_set(pool: &mut Pool) -> Arc<ObjectSet> {
    let new = NewObjectSet {
        objset_type: ObjsetType::Meta,
        has_accounting: true,
        levels: 1,
    };
    pool.create(new, None)
}

fn pointer(number: u64) -> BlockPointer {
    use tarn_ondisk::block_pointer::{Dva, StoredBlock};
    use tarn_ondisk::checksum::{Checksum, ChecksumKind};
    use tarn_ondisk::compression::Compression;
    use tarn_ondisk::units::{AllocatedSize, Level, VdevId, VdevOffset};
    BlockPointer::stored(&StoredBlock {
        dvas: &[Dva::new(
            VdevId::from(0),
            VdevOffset::from(number * 4096),
            AllocatedSize::from(4096),
        )],
        logical_size: LogicalSize::from(8192),
        physical_size: PhysicalSize::from(4096),
        compression: Compression::Lz4,
        checksum_kind: ChecksumKind::Fletcher4,
        checksum: Checksum([1, 2, 3, number]),
        object_type: ObjectType::PlainFile,
        level: Level::ZERO,
        birth: Txg::from(3),
        fill: 1,
    })
}

#[test]
fn what_is_put_into_lists_comes_out_again_in_any_number_of_groups() {
    let mut pool = Pool::new();
    let set = meta_set(&mut pool);
    let mut tx = pool.begin();
    let new_list = || {
        PointerList::create(
            &set,
            &tx,
            PointerListVersion::Nested,
            LIST_BLOCK_BYTES,
            &pool.operation,
        )
        .unwrap()
    };
    let (list, mut number) = (new_list(), 0);
    let mut fill = |list: &PointerList, count: u64| {
        let entries: Vec<_> = (number..number + count)
            .map(|number| Entry {
                pointer: pointer(number),
                is_freed: false,
            })
            .collect();
        number += count;
        list.append_all(&tx, &entries, &pool.operation).unwrap();
    };
    fill(&list, 100);
    for count in [10, 0, 3000, 700] {
        let other = new_list();
        fill(&other, count);
        if count == 700 {
            let inner = new_list();
            fill(&inner, 5000);
            other.append_list(&tx, inner.id(), &pool.operation).unwrap();
        }
        list.append_list(&tx, other.id(), &pool.operation).unwrap();
    }
    let total = number;
    let head = list.head().unwrap();
    // Short lists were copied, and the sublist of a short list was taken over.
    assert_eq!((head.count, head.sublist_count), (100 + 10 + 700, 2));
    assert_eq!(head.allocated.get(), total * 4096);
    assert_eq!(head.uncompressed.get(), total * 8192);
    let mut seen = 0;
    list.for_each(&pool.operation, |entry| {
        assert_eq!(
            entry.pointer.checksum().0,
            [0; 4],
            "lists leave checksums out"
        );
        seen += 1;
        Step::Continue
    })
    .unwrap();
    assert_eq!(seen, total);
    let id = list.id();
    pool.store(&set, &mut tx);
    pool.finish(tx);
    let mut taken = Vec::new();
    while u64::try_from(taken.len()).unwrap() < total {
        let mut tx = pool.begin();
        let list = PointerList::open(&set, id, &pool.operation).unwrap();
        let mut budget = 777;
        list.take_each(&tx, &pool.operation, |entry| {
            if budget == 0 {
                return Step::Stop;
            }
            budget -= 1;
            taken.push(entry.pointer.dvas().next().unwrap().offset().get() / 4096);
            Step::Continue
        })
        .unwrap();
        let left = total - u64::try_from(taken.len()).unwrap();
        assert_eq!(list.head().unwrap().allocated.get(), left * 4096);
        pool.store(&set, &mut tx);
        pool.finish(tx);
    }
    taken.sort_unstable();
    assert!(taken.into_iter().eq(0..total));
    let mut tx = pool.begin();
    PointerList::free(&set, &tx, id, &pool.operation).unwrap();
    pool.store(&set, &mut tx);
    pool.finish(tx);
    assert_eq!(
        set.next_object(ObjectId::ZERO, &pool.operation).unwrap(),
        None
    );
}

#[test]
fn a_destroyed_tree_is_freed_over_several_groups() {
    is_freed_in_bites(filled, 50);
    is_freed_in_bites(accounted, 2);
}

fn is_freed_in_bites(make: impl FnOnce(&mut Pool) -> Arc<ObjectSet>, bite: u32) {
    let mut pool = Pool::new();
    let doomed = make(&mut pool);
    let root = doomed.root_pointer();
    let before = pool.alive.clone();
    let set = meta_set(&mut pool);
    let mut tx = pool.begin();
    let trees = BlockTrees::create(&set, &tx, &pool.operation).unwrap();
    let sizes = Default::default();
    trees
        .append(&tx, &root, Txg::ZERO, sizes, &pool.operation)
        .unwrap();
    pool.store(&set, &mut tx);
    pool.finish(tx);
    let mut freed = Vec::new();
    loop {
        let mut tx = pool.begin();
        let trees = BlockTrees::open(&set, trees.id(), &pool.operation).unwrap();
        let mut budget = bite;
        let outcome = trees.free_each(&tx, &pool.operation, Unreadable::Wait, |pointer| {
            if budget == 0
                && pointer.level().is_data()
                && pointer.object_type() != ObjectType::Objset
            {
                return Step::Stop;
            }
            budget = u32::saturating_sub(budget, 1);
            freed.push(*pointer);
            Step::Continue
        });
        pool.store(&set, &mut tx);
        pool.finish(tx);
        if outcome.unwrap() == Freeing::Completed {
            assert!(trees.is_empty().unwrap());
            break;
        }
    }
    let alive: Vec<_> = before.values().copied().collect();
    assert_eq!(places(&freed), places(&alive));
}

#[test]
fn a_list_of_trees_that_counts_more_than_its_object_holds_is_refused() {
    let mut pool = Pool::new();
    let set = meta_set(&mut pool);
    let mut tx = pool.begin();
    let trees = BlockTrees::create(&set, &tx, &pool.operation).unwrap();
    for _ in 0..3 {
        let sizes = Default::default();
        trees
            .append(&tx, &pointer(1), Txg::ZERO, sizes, &pool.operation)
            .unwrap();
    }
    let id = trees.id();
    let right = trees.head().unwrap();
    assert_eq!((right.begin, right.end), (0, 3));
    let is_opened = |begin, end| {
        let head = BlockTreeHead {
            begin,
            end,
            ..right
        };
        let object = set.object(id, &pool.operation).unwrap();
        object.set_bonus(&tx, &head.to_bytes()).unwrap();
        BlockTrees::open(&set, id, &pool.operation).is_ok()
    };
    for (begin, end) in [(0, 3), (2, 3), (3, 3), (0, 0)] {
        assert!(is_opened(begin, end), "{begin} to {end}");
    }
    for (begin, end) in [
        (0, 1 << 40),
        (0, u64::MAX),
        (u64::MAX, u64::MAX),
        (u64::MAX / 168 + 1, u64::MAX / 168 + 2),
        (3, 2),
    ] {
        assert!(!is_opened(begin, end), "{begin} to {end}");
    }
    // A list of one block of 128 KiB.
    assert!(is_opened(780, 780) && !is_opened(780, 781));
    assert!(is_opened(0, 3));
    pool.store(&set, &mut tx);
    pool.finish(tx);
}

/// How many entries a list claims that stores only the last: more than can be walked.
const SPARSE_ENTRIES: u64 = 1 << 48;

/// Leaves nothing in an object but its last entry.
fn make_sparse(set: &ObjectSet, tx: &SyncTx, id: ObjectId, entry: &[u8], operation: &Operation) {
    let object = set.object(id, operation).unwrap();
    object.free_range(tx, 0, TO_END, operation).unwrap();
    let at = (SPARSE_ENTRIES - 1) * u64::try_from(entry.len()).unwrap();
    object.write(tx, at, entry, operation).unwrap();
}

#[test]
fn pointers_that_were_never_written_are_not_counted() {
    let mut pool = Pool::new();
    let set = meta_set(&mut pool);
    let mut tx = pool.begin();
    let operation = &pool.operation;
    let list = nested_list(&set, &tx, 3, operation);
    let (is_opened, is_walked) = (
        |count| {
            change_head(&list, &tx, &set, operation, |head| head.count = count);
            PointerList::open(&set, list.id(), operation).is_ok()
        },
        || {
            let visited = list.for_each(operation, |_| Step::Continue);
            let taken = list.take_each(&tx, operation, |_| Step::Continue);
            assert_eq!(visited.is_ok(), taken.is_ok());
            taken.is_ok()
        },
    );
    for count in [1 << 40, u64::MAX / 128, u64::MAX / 128 + 1, u64::MAX] {
        assert!(!is_opened(count), "{count}");
    }
    assert!(is_opened(4) && !is_walked());
    assert!(is_opened(3) && is_walked());
    let entry = pointer(7).to_bytes();
    make_sparse(&set, &tx, list.id(), &entry, operation);
    assert!(is_opened(SPARSE_ENTRIES) && !is_walked());
    assert!(!is_opened(SPARSE_ENTRIES * 2));
    pool.store(&set, &mut tx);
    pool.finish(tx);
}

#[test]
fn sublists_that_were_never_named_are_not_counted() {
    let mut pool = Pool::new();
    let set = meta_set(&mut pool);
    let mut tx = pool.begin();
    let operation = &pool.operation;
    let long = || nested_list(&set, &tx, 1100, operation).id();
    let lying = |count: u64| {
        let list = nested_list(&set, &tx, 1, operation);
        list.append_list(&tx, long(), operation).unwrap();
        let head = list.head().unwrap();
        assert_eq!(head.sublist_count, 1);
        if count == SPARSE_ENTRIES {
            let entry = long().get().to_le_bytes();
            make_sparse(&set, &tx, head.sublists, &entry, operation);
        }
        let lie = |head: &mut PointerListHead| head.sublist_count = count;
        change_head(&list, &tx, &set, operation, lie);
        list
    };
    for count in [2, SPARSE_ENTRIES, 1 << 60, 1 << 63, u64::MAX] {
        let visited = lying(count).for_each(operation, |_| Step::Continue);
        assert!(visited.is_err(), "{count}");
        let taken = lying(count).take_each(&tx, operation, |_| Step::Continue);
        assert!(taken.is_err(), "{count}");
        let freed = PointerList::free(&set, &tx, lying(count).id(), operation);
        assert!(freed.is_err(), "{count}");
        // One that names its lists in one block is copied, and so is each of its names.
        let heir = nested_list(&set, &tx, 1, operation);
        let inherited = heir.append_list(&tx, lying(count).id(), operation);
        assert_eq!(inherited.is_ok(), count == SPARSE_ENTRIES, "{count}");
        let grown = lying(count).append_list(&tx, long(), operation);
        assert_eq!(grown.is_ok(), count <= SPARSE_ENTRIES, "{count}");
    }
    let list = nested_list(&set, &tx, 1, operation);
    let lie = |head: &mut PointerListHead| head.sublist_count = 1;
    change_head(&list, &tx, &set, operation, lie);
    assert!(list.for_each(operation, |_| Step::Continue).is_err());
    assert!(list.append_list(&tx, long(), operation).is_err());
    pool.store(&set, &mut tx);
    pool.finish(tx);
}

#[test]
fn trees_that_were_never_written_are_not_counted() {
    let mut pool = Pool::new();
    let set = meta_set(&mut pool);
    let mut tx = pool.begin();
    let trees = BlockTrees::create(&set, &tx, &pool.operation).unwrap();
    let sizes = Default::default();
    let never_stored = BlockPointer::HOLE;
    trees
        .append(&tx, &never_stored, Txg::from(3), sizes, &pool.operation)
        .unwrap();
    assert!(trees.is_empty().unwrap());
    make_sparse(&set, &tx, trees.id(), &[7; 168], &pool.operation);
    let head = BlockTreeHead {
        end: SPARSE_ENTRIES,
        ..BlockTreeHead::default()
    };
    let object = set.object(trees.id(), &pool.operation).unwrap();
    object.set_bonus(&tx, &head.to_bytes()).unwrap();
    let trees = BlockTrees::open(&set, trees.id(), &pool.operation).unwrap();
    let visited = trees.for_each(&pool.operation, &mut Noter::default());
    assert!(visited.is_err());
    let freed = trees.free_each(&tx, &pool.operation, Unreadable::Leak, |_| Step::Continue);
    assert!(freed.is_err());
    pool.store(&set, &mut tx);
    pool.finish(tx);
}

/// A list of this many pointers, which can take over others.
fn nested_list(
    set: &Arc<ObjectSet>,
    tx: &SyncTx,
    count: u64,
    operation: &Operation,
) -> PointerList {
    let version = PointerListVersion::Nested;
    let list = PointerList::create(set, tx, version, LIST_BLOCK_BYTES, operation).unwrap();
    let entries: Vec<_> = (0..count)
        .map(|number| Entry {
            pointer: pointer(number),
            is_freed: false,
        })
        .collect();
    list.append_all(tx, &entries, operation).unwrap();
    list
}

/// Changes what a list says of itself.
fn change_head(
    list: &PointerList,
    tx: &SyncTx,
    set: &ObjectSet,
    operation: &Operation,
    change: impl FnOnce(&mut PointerListHead),
) {
    let mut head = list.head().unwrap();
    change(&mut head);
    let object = set.object(list.id(), operation).unwrap();
    let bonus = head.to_bonus(PointerListVersion::Nested);
    object.set_bonus(tx, &bonus).unwrap();
}

/// Forty lists, each of which names the next one twice: the last would be met a million million
/// times.
#[test]
fn a_list_that_is_named_twice_is_refused() {
    const LISTS: usize = 40;
    let mut pool = Pool::new();
    let set = meta_set(&mut pool);
    let mut tx = pool.begin();
    let lists: Vec<_> = (0..LISTS)
        .map(|_| nested_list(&set, &tx, 1, &pool.operation))
        .collect();
    let name = |list: &PointerList, named: &[&PointerList]| {
        let new = NewObject::plain(ObjectType::BlockPointerSublist, 128 << 10);
        let numbers = set.allocate(&tx, new, &pool.operation).unwrap();
        let bytes: Vec<u8> = named
            .iter()
            .flat_map(|list| list.id().get().to_le_bytes())
            .collect();
        numbers.write(&tx, 0, &bytes, &pool.operation).unwrap();
        change_head(list, &tx, &set, &pool.operation, |head| {
            head.sublists = numbers.id();
            head.sublist_count = u64::try_from(named.len()).unwrap();
        });
    };
    let met = || {
        let mut met = 0;
        let outcome = lists[0].for_each(&pool.operation, |_| {
            met += 1;
            match met < 10 * LISTS {
                true => Step::Continue,
                false => Step::Stop,
            }
        });
        (outcome.is_ok(), met)
    };
    for pair in lists.windows(2) {
        name(&pair[0], &[&pair[1], &pair[1]]);
    }
    assert_eq!(met(), (false, 1));
    for pair in lists.windows(2) {
        name(&pair[0], &[&pair[1]]);
    }
    assert_eq!(met(), (true, LISTS));
    name(&lists[LISTS - 1], &[&lists[0]]);
    assert_eq!(met(), (false, LISTS));
    pool.store(&set, &mut tx);
    pool.finish(tx);
}

/// As OpenZFS has it: a long target of a symbolic link that repeats itself takes no block.
#[test]
fn a_spill_block_that_compresses_well_is_in_its_pointer() {
    let mut pool = Pool::new();
    let set = pool.create_set(None);
    let tx = pool.tx();
    let new = NewObject::plain(ObjectType::PlainFile, 512);
    let new = new.with_bonus(ObjectType::SystemAttributes, 40);
    let object = set.allocate(&tx, new, &pool.operation).unwrap();
    object.set_spill(&tx, Some(&[7; 512])).unwrap();
    drop(tx);
    pool.sync(&set);
    let pointer = object.stored_dnode().spill.unwrap();
    assert_eq!(pointer.kind(), PointerKind::Embedded);
    assert_eq!(object.stored_dnode().used.get(), 0);
    let again = pool.reopen(&set, None);
    let object = again.object(object.id(), &pool.operation).unwrap();
    let spill = object.spill(&pool.operation).unwrap().unwrap();
    assert_eq!(&spill[..], [7; 512]);
}
