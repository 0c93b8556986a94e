//! A pool on a file, for the tests of datasets: what `pool` does around a group, in a few lines,
//! and a judge that knows what every block belongs to.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod chain;
pub mod snapshots;
pub mod tasks;

use chain::{Chain, parts_of_livelist};

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tarn_block::{BlockIo, WritePhase};
use tarn_dataset::error::DatasetError;
use tarn_dataset::free_in_background::{FreeBudget, Freed};
use tarn_dataset::initialize::{FillError, FillFilesystem, Initialize, NewFilesystem, initialize};
use tarn_dataset::namespace::Namespace;
use tarn_dataset::ops::receive::receive_name;
use tarn_dataset::task::{FeatureCounts, InternalEvent, SyncTask, TaskContext, TaskRefusal};
use tarn_host::sim::Random;
use tarn_object::zap::{NewZap, ObjectZap, ZapValue};
use tarn_object::{
    BlockTrees, MOS_ID, NewObject, NewObjectSet, ObjectEnv, ObjectError, ObjectSet, Owner,
    Ownership, PointerList, SetLedger, SetPolicy, Step, SyncTx, Tx, TxEstimate, TxgLimits,
    Unreadable, Visit, Visitor, WalkOptions, sync_objsets, walk_objset,
};
use tarn_ondisk as ondisk;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::ObjsetType;
use tarn_ondisk::pool_directory;
use tarn_ondisk::pool_directory::POOL_DIRECTORY;
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::Operation;
use tarn_scaffold::{BLOCKS, Shape, Stack, repairing};
use tarn_space::{Class, Space};

/// What all datasets may use together.
pub const POOL_BYTES: u64 = 128 << 20;

/// The object of a file system in which tests write.
pub const FILE: ObjectId = ObjectId::new(2);

/// Counts features in memory.
#[derive(Default)]
pub struct Features {
    disabled: RefCell<BTreeSet<Feature>>,
    counts: RefCell<BTreeMap<Feature, u64>>,
}

impl Features {
    /// The pool does not have it.
    pub fn disable(&self, feature: Feature) {
        self.disabled.borrow_mut().insert(feature);
    }

    /// How often it is in use.
    pub fn count(&self, feature: Feature) -> u64 {
        self.counts.borrow().get(&feature).copied().unwrap_or(0)
    }
}

impl FeatureCounts for Features {
    fn is_enabled(&self, feature: Feature) -> bool {
        !self.disabled.borrow().contains(&feature)
    }

    fn is_active(&self, feature: Feature) -> bool {
        self.count(feature) > 0
    }

    fn increment(&self, feature: Feature) -> Result<(), DatasetError> {
        *self.counts.borrow_mut().entry(feature).or_default() += 1;
        Ok(())
    }

    fn decrement(&self, feature: Feature) -> Result<(), DatasetError> {
        let mut counts = self.counts.borrow_mut();
        let count = counts.entry(feature).or_default();
        *count = count
            .checked_sub(1)
            .expect("a feature is in use when a use ends");
        Ok(())
    }
}

/// A master node, and one file to write in.
pub struct Filler;

impl FillFilesystem for Filler {
    fn fill(
        &self,
        tx: &Tx,
        set: &Arc<ObjectSet>,
        facts: &NewFilesystem,
        operation: &Operation,
    ) -> Result<(), FillError> {
        let new = NewObject::plain(ObjectType::MasterNode, 0);
        let master = ObjectZap::allocate(set, tx, new, NewZap::micro(set), operation)?;
        assert_eq!(master.object().id(), ObjectId::new(1));
        master.insert(tx, "VERSION", &ZapValue::word(facts.version))?;
        let file = NewObject::plain(ObjectType::PlainFile, 128 << 10);
        assert_eq!(set.allocate(tx, file, operation)?.id(), FILE);
        Ok(())
    }
}

/// An ownership without owners.
pub struct NoOwners;

impl Ownership for NoOwners {
    fn owner(&self, _: ObjectType, _: &[u8]) -> Option<Owner> {
        None
    }
}

/// A pool.
pub struct Pool {
    pub io: Arc<BlockIo>,
    pub space: Arc<Space>,
    pub env: Arc<ObjectEnv>,
    pub namespace: Arc<Namespace>,
    pub features: Features,
    pub operation: Operation,
    pub events: RefCell<Vec<InternalEvent>>,
    stack: Stack,
}

impl Pool {
    /// A new pool, with a root file system only.
    pub fn new() -> Pool {
        Pool::without(&[])
    }

    /// The same without some features.
    pub fn without(disabled: &[Feature]) -> Pool {
        let stack = Stack::new(Shape::default(), repairing(), None);
        let (io, space) = (stack.io.clone(), stack.space.clone());
        let env = stack.env(Txg::from(3), TxgLimits::default());
        let features = Features::default();
        for feature in disabled {
            features.disable(*feature);
        }
        let (operation, events) = (Operation::unmeasured(), RefCell::new(Vec::new()));
        let tx = begin(&env);
        let namespace = make_tree(&env, &io, &tx, &features, &operation, &events);
        let mut pool = Pool {
            io,
            space,
            env,
            namespace: Arc::new(namespace),
            features,
            operation,
            events,
            stack,
        };
        pool.namespace.set_adjusted_bytes(POOL_BYTES);
        pool.store(tx, |_| {});
        pool
    }

    /// Stores the open group, with these tasks in it.
    pub fn sync_with(&mut self, tasks: impl FnOnce(&TaskContext<'_>)) {
        let tx = begin(&self.env);
        self.store(tx, tasks);
    }

    /// Stores the open group.
    pub fn sync(&mut self) {
        self.sync_with(|_| {});
    }

    /// Runs a task as the pool does: checks, checks again in the group, and changes.
    pub fn run<T: SyncTask>(&mut self, task: T) -> Result<T::Output, TaskRefusal> {
        let view = self.namespace.view(&self.operation);
        task.check(view, &self.features)?;
        let mut output = None;
        self.sync_with(|context| {
            task.check(context.view(), context.features).unwrap();
            output = Some(task.apply(context).unwrap());
        });
        Ok(output.expect("the group was stored"))
    }

    /// Frees in the background, in a group of its own.
    pub fn free_in_background(&mut self, blocks_max: u64) -> Freed {
        let mut freed = None;
        self.sync_with(|context| {
            let budget = FreeBudget {
                blocks_max,
                time_ns_max: u64::MAX,
                unreadable: Unreadable::Wait,
            };
            let outcome = context.namespace.free_in_background(context, budget);
            freed = Some(outcome.unwrap());
        });
        freed.expect("the group was stored")
    }

    fn store(&mut self, mut tx: SyncTx, tasks: impl FnOnce(&TaskContext<'_>)) {
        let mos = self.namespace.mos().clone();
        let mut ledger = self.namespace.mos_ledger(&self.io, &tx, &self.operation);
        let mut tasks = Some(tasks);
        for _ in 0..20 {
            let context = TaskContext {
                namespace: &self.namespace,
                tx: &tx,
                io: &self.io,
                features: &self.features,
                now_s: 1_700_000_000,
                operation: &self.operation,
                events: &self.events,
            };
            self.namespace.sync_datasets(&context).unwrap();
            if let Some(tasks) = tasks.take() {
                let generation = self.namespace.property_generation();
                let deciding = self.namespace.deciding();
                tasks(&context);
                drop(deciding);
                if self.namespace.property_generation() != generation {
                    self.namespace.refresh_policies(&self.operation).unwrap();
                }
                self.namespace.sync_datasets(&context).unwrap();
            }
            self.namespace.charge_mos(&context, &mut ledger).unwrap();
            if !mos.is_dirty(tx.txg()) {
                break;
            }
            let mut sets = [SetLedger {
                set: mos.clone(),
                ledger: &mut ledger,
            }];
            sync_objsets(&mut sets, &tx, &self.io, &self.operation).unwrap();
            ledger.check().unwrap();
            tx.next_pass();
            ledger.begin_pass(&tx);
        }
        assert!(!mos.is_dirty(tx.txg()), "storing ends");
        let txg = tx.txg();
        drop(ledger);
        for pointer in self.io.take_deferred_frees() {
            let phase = WritePhase { txg, pass: 1 };
            self.io.free(&pointer, phase, &self.operation).unwrap();
        }
        let _ = self.space.take_changes(txg);
        self.space.txg_stored(txg);
        self.env.txgs.finish_sync(tx);
    }

    /// Writes to the file of a file system in the open group; bytes that do not shrink.
    pub fn write(&self, name: &str, offset: u64, bytes: u64) {
        self.write_to(&self.head_set(name), offset, bytes);
    }

    /// The same for an object set.
    pub fn write_to(&self, set: &ObjectSet, offset: u64, bytes: u64) {
        let file = set.object(FILE, &self.operation).unwrap();
        let contents = Random::new(offset).bytes(usize::try_from(bytes).unwrap());
        let tx = self
            .env
            .txgs
            .assign(&TxEstimate::writing(bytes), &self.operation)
            .unwrap();
        file.write(&tx, offset, &contents, &self.operation).unwrap();
    }

    /// The object set of a head.
    pub fn head_set(&self, name: &str) -> Arc<ObjectSet> {
        self.namespace
            .head_set(self.head_id(name), &self.operation)
            .unwrap()
    }

    /// The object of a head.
    pub fn head_id(&self, name: &str) -> ObjectId {
        self.directory(name).head_dataset
    }

    /// What is stored of a directory.
    pub fn directory(&self, name: &str) -> ondisk::dataset_dir::DatasetDirectory {
        let view = self.namespace.view(&self.operation);
        view.directory(name).unwrap().stored().unwrap()
    }

    /// What is stored of a head.
    pub fn dataset(&self, name: &str) -> ondisk::dataset::Dataset {
        let view = self.namespace.view(&self.operation);
        let head = view.directory(name).unwrap().head().unwrap().unwrap();
        head.stored().unwrap()
    }

    /// True when a directory has this name.
    pub fn exists(&self, name: &str) -> bool {
        let view = self.namespace.view(&self.operation);
        view.directory(name).is_ok()
    }

    /// The internal history since it was last asked for: event and text.
    pub fn take_events(&self) -> Vec<(&'static str, String)> {
        let events = self.events.take();
        events
            .into_iter()
            .map(|event| (event.name, event.text))
            .collect()
    }

    /// Judges the pool: every block belongs to exactly one thing, nothing is leaked, and all space
    /// is charged right.
    pub fn judge(&self) {
        let mut judge = Judge {
            io: &self.io,
            seen: BTreeSet::new(),
            allocated: 0,
            deflated: 0,
        };
        let mos = self.namespace.mos();
        judge.walk(self, MOS_ID, &mos.root_pointer(), Txg::ZERO);
        let root = self.namespace.pool_name().to_string();
        let mos_used = judge.take_deflated();
        assert_eq!(self.directory(&format!("{root}/$MOS")).used.get(), mos_used);
        self.judge_directories(&mut judge, &root);
        self.judge_waiting(&mut judge);
        let totals = self.space.class_totals(Class::Normal);
        assert_eq!(
            totals.allocated.get(),
            judge.allocated,
            "what is allocated belongs to something"
        );
    }

    fn judge_directories(&self, judge: &mut Judge<'_>, name: &str) {
        let view = self.namespace.view(&self.operation);
        let directory = view.directory(name).unwrap();
        let stored = directory.stored().unwrap();
        let parts = stored.used_by;
        let sum = parts.head
            + parts.snapshots
            + parts.children
            + parts.child_reservations
            + parts.ref_reservation;
        assert_eq!(sum, stored.used, "the parts of {name} add up");
        if let Some(head) = directory.head().unwrap() {
            let chain = Chain::read(self, &head);
            chain.judge(self);
            judge.count_chain(&chain);
        }
        let mut felt = 0;
        let mut children = 0;
        let mut below = directory.children().unwrap();
        // Partly received datasets are hidden from users, and charged like the others.
        below.extend(view.directory(&receive_name(name)).ok());
        for child in below {
            let child_stored = child.stored().unwrap();
            felt += child_stored.used.max(child_stored.reservation).get();
            children += child_stored.used.get();
            self.judge_directories(judge, child.name());
        }
        if name == self.namespace.pool_name() {
            for own in ["$MOS", "$FREE", "$ORIGIN"] {
                let used = self.directory(&format!("{name}/{own}")).used.get();
                felt += used;
                children += used;
            }
        }
        assert_eq!(parts.children.get(), children, "children of {name}");
        assert_eq!(
            parts.child_reservations.get(),
            felt - children,
            "what children of {name} reserve"
        );
    }

    fn judge_waiting(&self, judge: &mut Judge<'_>) {
        let mos = self.namespace.mos();
        let directory = mos.object(POOL_DIRECTORY, &self.operation).unwrap();
        let directory = ObjectZap::of(&directory, &self.operation);
        let id = |name: &str| directory.lookup_word(name).unwrap().map(ObjectId::new);
        if let Some(id) = id(pool_directory::BLOCK_TREE) {
            let trees = BlockTrees::open(mos, id, &self.operation).unwrap();
            trees.for_each(&self.operation, judge).unwrap();
        }
        if let Some(id) = id(pool_directory::FREE_POINTER_LIST) {
            let list = PointerList::open(mos, id, &self.operation).unwrap();
            let visit = |entry: &tarn_object::Entry| {
                judge.count(&entry.pointer);
                Step::Continue
            };
            list.for_each(&self.operation, visit).unwrap();
        }
        if let Some(id) = id(pool_directory::DELETED_CLONES) {
            let deleted = mos.object(id, &self.operation).unwrap();
            for entry in ObjectZap::of(&deleted, &self.operation).entries().unwrap() {
                let list = ObjectId::new(entry.value.as_word().unwrap());
                for (place, block) in parts_of_livelist(self, list).into_iter().flatten() {
                    assert!(judge.seen.insert(place), "{place:?} is reached once");
                    judge.allocated += block.allocated;
                    judge.deflated += block.deflated;
                }
            }
        }
        let free = format!("{}/$FREE", self.namespace.pool_name());
        assert_eq!(
            self.directory(&free).used.get(),
            judge.take_deflated(),
            "what waits to be freed is charged to $FREE"
        );
    }
}

/// Counts blocks.
struct Judge<'a> {
    io: &'a BlockIo,
    seen: BTreeSet<(u64, u64)>,
    allocated: u64,
    deflated: u64,
}

impl Judge<'_> {
    fn walk(&mut self, pool: &Pool, id: ObjectId, root: &BlockPointer, born_after: Txg) {
        let options = WalkOptions {
            born_after,
            ..WalkOptions::default()
        };
        walk_objset(&pool.env.cache, id, root, options, self, &pool.operation);
    }

    fn count(&mut self, pointer: &BlockPointer) {
        if pointer.is_hole() {
            return;
        }
        self.deflated += self.io.deflated_size(pointer).get();
        for dva in pointer.dvas() {
            let place = (dva.vdev().get(), dva.offset().get());
            assert!(self.seen.insert(place), "{pointer} is reached once");
            self.allocated += dva.allocated_size().get();
        }
    }

    /// Blocks of a dataset and its snapshots, each once.
    fn count_chain(&mut self, chain: &Chain) {
        for (place, block) in chain.own_blocks() {
            assert!(self.seen.insert(place), "{place:?} is reached once");
            self.allocated += block.allocated;
        }
    }

    fn take_deflated(&mut self) -> u64 {
        std::mem::take(&mut self.deflated)
    }
}

impl Visitor for Judge<'_> {
    fn leave(&mut self, visit: &Visit<'_>) -> Step {
        self.count(visit.pointer);
        Step::Continue
    }

    fn unreadable(&mut self, _: &Visit<'_>, why: &ObjectError) -> Step {
        panic!("{why}");
    }
}

fn begin(env: &ObjectEnv) -> SyncTx {
    let txg = env.txgs.quiesce();
    env.txgs.begin_sync(txg)
}

fn make_tree(
    env: &Arc<ObjectEnv>,
    io: &Arc<BlockIo>,
    tx: &SyncTx,
    features: &Features,
    operation: &Operation,
    events: &RefCell<Vec<InternalEvent>>,
) -> Namespace {
    let new = NewObjectSet {
        objset_type: ObjsetType::Meta,
        has_accounting: false,
        levels: 1,
    };
    let policy = SetPolicy::new(BLOCKS);
    let mos = ObjectSet::create(env.clone(), MOS_ID, new, policy, None, tx);
    let directory = NewObject::plain(ObjectType::ObjectDirectory, 0);
    let directory = mos.claim(tx, POOL_DIRECTORY, directory, operation).unwrap();
    ObjectZap::make(&directory, tx, NewZap::micro(&mos), operation).unwrap();
    let fill: Arc<dyn FillFilesystem> = Arc::new(Filler);
    initialize(Initialize {
        mos,
        tx,
        io,
        features,
        now_s: 1_700_000_000,
        operation,
        events,
        pool_name: "tank",
        root_properties: &[],
        facts: &NewFilesystem::default(),
        fill: &fill,
        ownership: Arc::new(NoOwners),
    })
    .unwrap()
}
