//! A dataset with all its snapshots, judged block by block: what each refers to, has to itself, and
//! says that died.

use super::Pool;
use std::collections::BTreeMap;
use tarn_block::BlockIo;
use tarn_dataset::dataset::Dataset;
use tarn_dataset::names::DatasetName;
use tarn_object::zap::ObjectZap;
use tarn_object::{ObjectError, PointerList, Step, Visit, Visitor, WalkOptions, walk_objset};
use tarn_ondisk as ondisk;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::dataset_dir::LIVELIST;
use tarn_ondisk::deadlist::{DeadlistHead, entry_txg};
use tarn_ondisk::declare::{ByteOrder, Stored};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{ObjectId, Txg};

/// Where a block is.
pub type Place = (u64, u64);

/// What counts of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub deflated: u64,
    pub allocated: u64,
    pub birth: Txg,
}

/// Blocks by place. Those that are stored in their pointers have none.
pub type Blocks = BTreeMap<Place, Block>;

/// One dataset of a chain.
struct Link {
    id: ObjectId,
    stored: ondisk::dataset::Dataset,
    blocks: Blocks,
}

/// A head and its snapshots, newest first.
pub struct Chain {
    name: String,
    directory: ondisk::dataset_dir::DatasetDirectory,
    links: Vec<Link>,
    /// What the first link leads on to: a snapshot of another dataset.
    origin: Option<Link>,
}

impl Chain {
    pub fn read(pool: &Pool, head: &Dataset<'_>) -> Chain {
        let mut links: Vec<Link> = Vec::new();
        let mut origin = None;
        let mut next = head.id();
        let directory = head.directory().id();
        while !next.is_zero() && origin.is_none() {
            let link = Link::read(pool, next);
            if let Some(after) = links.last() {
                let is_own = link.stored.directory == directory;
                assert_eq!(after.stored.previous_snapshot_txg, link.stored.creation_txg);
                assert!(!is_own || link.stored.next_snapshot == after.id);
            }
            next = link.stored.previous_snapshot;
            match link.stored.directory == directory {
                true => links.push(link),
                false => origin = Some(link),
            }
        }
        let named = head.snapshots().unwrap();
        assert_eq!(named.len() + 1, links.len(), "each snapshot has a name");
        Chain {
            name: head.name(),
            directory: head.directory().stored().unwrap(),
            links,
            origin,
        }
    }

    fn origin_txg(&self) -> Txg {
        let origin = self.origin.as_ref();
        origin.map_or(Txg::ZERO, |origin| origin.stored.creation_txg)
    }

    /// Blocks of the snapshot of this name.
    pub fn blocks_of(&self, pool: &Pool, name: &str) -> Blocks {
        let view = pool.namespace.view(&pool.operation);
        let name = DatasetName::parse(name).unwrap();
        let id = view.dataset(&name).unwrap().id();
        let link = self.links.iter().find(|link| link.id == id).unwrap();
        link.blocks.clone()
    }

    /// What the head's blocks add up to that are not among these.
    pub fn written_since(&self, blocks: &Blocks) -> u64 {
        let head = self.links[0].blocks.iter();
        let new = head.filter(|(place, block)| blocks.get(place) != Some(block));
        sum(new.map(|(_, block)| block))
    }

    /// What blocks add up to that the first snapshot after this txg, or else the head, does not
    /// have.
    pub fn freed_before_next(&self, blocks: &Blocks, txg: Txg) -> u64 {
        let is_later = |link: &&Link| link.stored.is_snapshot() && link.stored.creation_txg > txg;
        let next = self.links.iter().rfind(is_later);
        let there = &next.unwrap_or(&self.links[0]).blocks;
        let gone = blocks
            .iter()
            .filter(|(place, block)| there.get(place) != Some(block));
        sum(gone.map(|(_, block)| block))
    }

    /// What each part of its livelist still has, if it has one.
    pub fn livelist(&self, pool: &Pool) -> Option<Vec<Blocks>> {
        let directory = self.links[0].stored.directory;
        let object = pool.namespace.mos().object(directory, &pool.operation);
        let object = object.unwrap();
        if object.object_type() != ObjectType::ZapMetadata {
            return None;
        }
        let zap = ObjectZap::of(&object, &pool.operation);
        let list = zap.lookup_word(LIVELIST).unwrap()?;
        Some(parts_of_livelist(pool, ObjectId::new(list)))
    }

    /// Blocks that are not of the origin.
    pub fn own_blocks(&self) -> Blocks {
        let all = self.links.iter().flat_map(|link| &link.blocks);
        all.filter(|(_, block)| block.birth > self.origin_txg())
            .map(|(place, block)| (*place, *block))
            .collect()
    }

    pub fn judge(&self, pool: &Pool) {
        let name = &self.name;
        for (index, link) in self.links.iter().enumerate() {
            let before = self.links.get(index + 1).or(self.origin.as_ref());
            let after = index.checked_sub(1).map(|index| &self.links[index]);
            let what = format!("{name}, {index} before the head");
            let referenced = sum(link.blocks.values());
            assert_eq!(
                link.stored.referenced.get(),
                referenced,
                "referenced: {what}"
            );
            let unique = link.blocks.iter().filter(|(place, _)| {
                let is_in = |other: Option<&Link>| {
                    other.is_some_and(|other| other.blocks.contains_key(place))
                };
                !is_in(before) && !is_in(after)
            });
            let unique = sum(unique.map(|(_, block)| block));
            assert_eq!(link.stored.unique.get(), unique, "unique: {what}");
            judge_deadlist(pool, link, before, &what);
        }
        let own = self.own_blocks();
        if let Some(lists) = self.livelist(pool) {
            assert_eq!(self.links.len(), 1, "{name} has snapshots and a livelist");
            let listed: Blocks = lists.into_iter().flatten().collect();
            assert_eq!(listed, own, "livelist of {name}");
        }
        let head = &self.links[0].blocks;
        let (of_head, of_snapshots): (Vec<_>, Vec<_>) =
            own.iter().partition(|(place, _)| head.contains_key(place));
        let parts = self.directory.used_by;
        let total = |blocks: Vec<(&Place, &Block)>| sum(blocks.into_iter().map(|(_, block)| block));
        assert_eq!(parts.head.get(), total(of_head), "head of {name}");
        assert_eq!(
            parts.snapshots.get(),
            total(of_snapshots),
            "snapshots of {name}"
        );
    }
}

impl Link {
    fn read(pool: &Pool, id: ObjectId) -> Link {
        let stored: ondisk::dataset::Dataset = bonus(pool, id);
        let mut collector = Collector {
            io: &pool.io,
            blocks: Blocks::new(),
        };
        let options = WalkOptions::default();
        let cache = &pool.env.cache;
        walk_objset(
            cache,
            id,
            &stored.root,
            options,
            &mut collector,
            &pool.operation,
        );
        Link {
            id,
            stored,
            blocks: collector.blocks,
        }
    }
}

/// A deadlist has what the dataset before has and this one has not, in lists by birth.
fn judge_deadlist(pool: &Pool, link: &Link, before: Option<&Link>, what: &str) {
    let id = link.stored.deadlist;
    let mos = pool.namespace.mos();
    let zap = mos.object(id, &pool.operation).unwrap();
    let all_before = before.into_iter().flat_map(|before| &before.blocks);
    let dead = all_before.filter(|(place, _)| !link.blocks.contains_key(place));
    if zap.object_type() == ObjectType::BlockPointerList {
        let dead: Blocks = dead.map(|(place, block)| (*place, *block)).collect();
        assert_eq!(blocks_of_list(pool, id), dead, "undivided deadlist: {what}");
        return;
    }
    let mut lists = BTreeMap::new();
    for entry in ObjectZap::of(&zap, &pool.operation).entries().unwrap() {
        let tarn_object::zap::OwnedName::Text(name) = &entry.name else {
            panic!("names of a deadlist are text");
        };
        let txg = entry_txg(std::str::from_utf8(name).unwrap()).unwrap();
        let list = ObjectId::new(entry.value.as_word().unwrap());
        lists.insert(txg, blocks_of_list(pool, list));
    }
    let mut expected: BTreeMap<Txg, Blocks> =
        lists.keys().map(|txg| (*txg, Blocks::new())).collect();
    let mut total = 0;
    for (place, block) in dead {
        total += block.deflated;
        let (_, list) = expected.range_mut(..block.birth).next_back().unwrap();
        list.insert(*place, *block);
    }
    assert_eq!(lists, expected, "deadlist: {what}");
    let head: DeadlistHead = bonus(pool, id);
    assert_eq!(head.used.get(), total, "size of the deadlist: {what}");
}

/// What each part of a livelist still has; all of it was born when the part says.
pub fn parts_of_livelist(pool: &Pool, id: ObjectId) -> Vec<Blocks> {
    let zap = pool.namespace.mos().object(id, &pool.operation).unwrap();
    let entries = ObjectZap::of(&zap, &pool.operation).entries().unwrap();
    let mut parts: Vec<(Txg, Blocks)> = Vec::new();
    for entry in entries {
        let tarn_object::zap::OwnedName::Text(name) = &entry.name else {
            panic!("names of a livelist are text");
        };
        let txg = entry_txg(std::str::from_utf8(name).unwrap()).unwrap();
        let list = ObjectId::new(entry.value.as_word().unwrap());
        let list = PointerList::open(pool.namespace.mos(), list, &pool.operation).unwrap();
        let left = list.still_allocated(&pool.operation).unwrap();
        let mut blocks = Blocks::new();
        for pointer in &left.expect("it does not contradict itself") {
            add(&pool.io, &mut blocks, pointer);
        }
        parts.push((txg, blocks));
    }
    parts.sort_by_key(|(txg, _)| *txg);
    for (index, (after, blocks)) in parts.iter().enumerate() {
        let next = parts.get(index + 1).map(|(next, _)| *next);
        for block in blocks.values() {
            assert!(block.birth > *after && next.is_none_or(|next| block.birth <= next));
        }
    }
    let total = sum(parts.iter().flat_map(|(_, blocks)| blocks.values()));
    let head: DeadlistHead = bonus(pool, id);
    assert_eq!(head.used.get(), total, "size of the livelist");
    parts.into_iter().map(|(_, blocks)| blocks).collect()
}

fn blocks_of_list(pool: &Pool, id: ObjectId) -> Blocks {
    let list = PointerList::open(pool.namespace.mos(), id, &pool.operation).unwrap();
    let mut blocks = Blocks::new();
    let visit = |entry: &tarn_object::Entry| {
        add(&pool.io, &mut blocks, &entry.pointer);
        Step::Continue
    };
    list.for_each(&pool.operation, visit).unwrap();
    blocks
}

fn bonus<T: Stored>(pool: &Pool, id: ObjectId) -> T {
    let object = pool.namespace.mos().object(id, &pool.operation).unwrap();
    T::from_short_bytes(&object.bonus(), ByteOrder::Little).unwrap()
}

fn sum<'a>(blocks: impl Iterator<Item = &'a Block>) -> u64 {
    blocks.map(|block| block.deflated).sum()
}

fn add(io: &BlockIo, blocks: &mut Blocks, pointer: &BlockPointer) {
    if pointer.is_hole() || pointer.is_embedded() {
        return;
    }
    let dvas: Vec<_> = pointer.dvas().collect();
    let block = Block {
        deflated: io.deflated_size(pointer).get(),
        allocated: dvas.iter().map(|dva| dva.allocated_size().get()).sum(),
        birth: pointer.birth(),
    };
    let place = (dvas[0].vdev().get(), dvas[0].offset().get());
    assert_eq!(blocks.insert(place, block), None, "{pointer} is there once");
}

struct Collector<'a> {
    io: &'a BlockIo,
    blocks: Blocks,
}

impl Visitor for Collector<'_> {
    fn leave(&mut self, visit: &Visit<'_>) -> Step {
        add(self.io, &mut self.blocks, visit.pointer);
        Step::Continue
    }

    fn unreadable(&mut self, _: &Visit<'_>, why: &ObjectError) -> Step {
        panic!("{why}");
    }
}
