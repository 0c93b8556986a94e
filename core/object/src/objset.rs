//! Object sets: numbered collections of objects, and the table of those in memory.
//!
//! # Mechanism
//! The dnodes of all objects are the data of one more object, the *meta dnode*, which is stored in
//! the head of the set. An object's number is the place of its dnode there. So an object is found
//! by reading a block of the meta dnode.
//!
//! Objects in memory are in a table of weak references: its users keep an object, and all share it.
//! A few more are kept for a while after their use. Objects with changes are kept by the list of
//! their group until it is stored. So memory is bounded by the objects in use, the dirty ones, and
//! a constant.
//!
//! Objects know their set by a weak reference only, so that a set that is not used any more is
//! dropped with all it keeps.
//!
//! # Invariants
//! - An object that has changes is in the table. So the stored dnode is up to date for an object
//!   that is not in the table.
//! - A dnode that was read while dnodes were being stored is discarded and read again:
//!   `dnode_generation` is counted up whenever dnodes have been stored, before their objects may
//!   leave the table.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use tarn_block::{Block, BlockScope, DatasetPolicy, HoleBirth};
use tarn_cache::{PoolCache, SecondLevelUse};
use tarn_host::Host;
use tarn_host::lock::{Mutex, RwLock};
use tarn_ondisk as ondisk;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::dnode::{DNODE_BYTES_MAX, Dnode, SLOT_BYTES};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::objset::{Accounting, Objset, ObjsetFlags, ObjsetType};
use tarn_ondisk::units::{BlockId, LogicalSize, ObjectId, Txg};
use tarn_probe::Operation;

use crate::error::ObjectError;
use crate::head::{
    META_DNODE, account_index, accounting_dnodes, check_meta, corrupt, is_special, occupied,
    read_head, slots_at,
};
use crate::in_flight::{FirstOf, InFlight};
use crate::number_tables::{Numbers, Taken};
use crate::object::Object;
use crate::owner_door::Ownership;
use crate::ranks;
use crate::set_sealing::{NewSealedSet, SetSealing};
use crate::tree_shape::check_tree;
use crate::tx::{SyncTx, Tx};
use crate::txg::Txgs;
use crate::zap::{NewZap, ObjectZap};

/// Number of parts of the table.
const SHARDS: usize = 16;
/// How many unused objects of a set are kept. A guess: some 2 KiB each, so that a thousand sets in
/// use keep half a GiB at most.
const RECENT_MAX: usize = 256;
/// How often a dnode is read again because dnodes were being stored.
const LOOKUP_ATTEMPTS_MAX: usize = 1000;

/// The environment that the object sets of a pool share.
pub struct ObjectEnv {
    /// The machine.
    pub host: Host,
    /// Where blocks come from.
    pub cache: PoolCache,
    /// The transaction groups.
    pub txgs: Arc<Txgs>,
    /// The last block of zeros that was used.
    zeros: Mutex<Option<Block>>,
    companion: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

impl ObjectEnv {
    /// For one pool.
    pub fn new(host: Host, cache: PoolCache, txgs: Arc<Txgs>) -> Arc<ObjectEnv> {
        let zeros = Mutex::new(ranks::ZEROS, None);
        txgs.borrow_from(cache.cache());
        Arc::new(ObjectEnv {
            host,
            cache,
            txgs,
            zeros,
            companion: Mutex::new(ranks::COMPANION, None),
        })
    }

    /// A value that a layer above keeps for the pool as a whole, as [`Object::companion`] for one
    /// object. Created by the first call.
    pub fn companion<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut companion = self.companion.lock();
        let existing = companion
            .as_ref()
            .and_then(|any| any.clone().downcast::<T>().ok());
        existing.unwrap_or_else(|| {
            let made = Arc::new(make());
            *companion = Some(made.clone());
            made
        })
    }

    /// Prefetches the objset blocks of object sets, each given by the number of its set and its
    /// root.
    pub fn expect_heads(&self, heads: &[(ObjectId, BlockPointer)], operation: &Operation) {
        let sound = heads.iter().filter(|(_, root)| root.check().is_ok());
        let wanted = sound.map(|(set, root)| (*root, BlockScope::of_head(*set)));
        let wanted: Vec<(BlockPointer, BlockScope)> = wanted.collect();
        self.cache.prefetch(&wanted, operation);
    }

    /// A block of zeros.
    pub(crate) fn zeros(&self, size: LogicalSize) -> Block {
        let mut zeros = self.zeros.lock();
        match &*zeros {
            Some(block) if LogicalSize::of(block) == size => block.clone(),
            _ => zeros.insert(Block::zeroed(size.to_usize())).clone(),
        }
    }
}

impl std::fmt::Debug for ObjectEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectEnv({:?})", self.txgs)
    }
}

/// How the blocks of a set are written, and which counts are kept. From the dataset's properties
/// and the pool's features.
#[derive(Debug, Clone, Copy)]
pub struct SetPolicy {
    /// Checksum, compression, copies and so on.
    pub blocks: DatasetPolicy,
    /// Whether holes have a birth (feature `hole_birth`).
    pub holes: HoleBirth,
    /// Whether objects are counted by owner, not only their space (feature `userobj_accounting`).
    pub counts_objects: bool,
    /// Whether projects are counted as well (feature `project_quota`).
    pub counts_projects: bool,
    /// The property `secondarycache`. It counts for heads; what is opened only to be read, such as
    /// a snapshot, leaves what its object set has as it is.
    pub second_level: SecondLevelUse,
}

impl SetPolicy {
    /// A policy for these block settings, in a pool with all features.
    pub fn new(blocks: DatasetPolicy) -> SetPolicy {
        SetPolicy {
            blocks,
            holes: HoleBirth::Recorded,
            counts_objects: true,
            counts_projects: true,
            second_level: SecondLevelUse::All,
        }
    }
}

/// The context of a set that its objects need.
pub(crate) struct SetContext {
    pub env: Arc<ObjectEnv>,
    pub id: ObjectId,
    pub policy: RwLock<SetPolicy>,
    pub owner: Option<Arc<dyn Ownership>>,
    pub outer: Weak<ObjectSet>,
    /// Number of times that dnodes were stored.
    pub dnode_generation: AtomicU64,
    /// Number of stored blocks of dnodes, and of levels above them.
    pub dnode_blocks: AtomicU64,
    pub dnode_levels: u8,
    /// What changes that are not stored will take.
    pub in_flight: InFlight,
    /// The sealing of encrypted sets.
    pub sealing: SetSealing,
}

/// A new object.
#[derive(Debug, Clone, Copy)]
pub struct NewObject {
    /// What it is for.
    pub object_type: ObjectType,
    /// The size of its blocks, rounded up to sectors. Zero for the smallest.
    pub block_size: LogicalSize,
    /// The size of its blocks of pointers, as a power of two; zero for the default.
    pub indirect_shift: u8,
    /// What its bonus is.
    pub bonus_type: ObjectType,
    /// The size of its bonus, which begins as zeros.
    pub bonus_size: usize,
    /// Number of pointers of its dnode; zero for as many as fit.
    pub pointer_count: usize,
    /// Number of slots of its dnode; zero is one.
    pub slots: usize,
}

impl NewObject {
    /// An object without bonus.
    pub fn plain(object_type: ObjectType, block_size: u64) -> NewObject {
        NewObject {
            object_type,
            block_size: LogicalSize::from(block_size),
            indirect_shift: 0,
            bonus_type: ObjectType::None,
            bonus_size: 0,
            pointer_count: 0,
            slots: 1,
        }
    }

    /// The same with a bonus.
    pub fn with_bonus(self, bonus_type: ObjectType, bonus_size: usize) -> NewObject {
        NewObject {
            bonus_type,
            bonus_size,
            ..self
        }
    }

    /// Its first dnode.
    pub(crate) fn dnode(&self) -> Dnode {
        let slots = self.slots.max(1);
        let room = ondisk::dnode::bonus_room(slots, 1, ondisk::dnode::Spill::Absent);
        assert!(
            self.bonus_size <= room,
            "a new object's bonus fits its dnode"
        );
        // System attributes grow, and leave no room for pointers.
        let pointers = match self.bonus_type {
            _ if self.pointer_count != 0 => self.pointer_count,
            ObjectType::SystemAttributes => 1,
            _ => 1 + ((room - self.bonus_size) >> ondisk::dnode::POINTER_SHIFT),
        };
        let slots = u8::try_from(slots).expect("a dnode has at most 32 slots");
        let mut dnode = Dnode::new(
            self.object_type,
            slots,
            pointers.min(ondisk::dnode::POINTERS_MAX),
        );
        dnode.data_block_size = LogicalSize::from(self.block_size.get().max(1)).round_up(512);
        let shifts = (
            ondisk::dnode::INDIRECT_SHIFT_MIN,
            ondisk::dnode::INDIRECT_SHIFT_MAX,
        );
        if self.indirect_shift != 0 {
            dnode.indirect_shift = self.indirect_shift.clamp(shifts.0, shifts.1);
        }
        dnode.set_bonus(self.bonus_type, &vec![0; self.bonus_size]);
        dnode
    }
}

/// A new object set.
#[derive(Debug, Clone, Copy)]
pub struct NewObjectSet {
    /// What it is.
    pub objset_type: ObjsetType,
    /// Whether it has accounting objects: not in pools before version 15.
    pub has_accounting: bool,
    /// Number of levels of the meta dnode. Zero for as many as all object numbers need, so that it
    /// never grows: right for every set but the MOS, which is stored several times per group and so
    /// is better low.
    pub levels: u8,
}

/// The changed objects of one group.
#[derive(Default)]
pub(crate) struct DirtyObjects {
    pub objects: BTreeMap<ObjectId, Arc<Object>>,
}

/// The objset block in memory.
pub(crate) struct Head {
    pub objset: Objset,
    /// Its place.
    pub root: BlockPointer,
    /// Groups that changed it otherwise than through objects.
    pub changed_in: Vec<Txg>,
    /// By group, the record of the intent log up to which it is replayed.
    pub replayed: BTreeMap<Txg, u64>,
}

impl Head {
    /// Called while the group is stored: its replayed record goes into the objset block.
    pub fn take_replayed(&mut self, txg: Txg) {
        if let Some(sequence) = self.replayed.remove(&txg) {
            let log = &mut self.objset.intent_log;
            log.replayed_sequence = log.replayed_sequence.max(sequence);
        }
    }
}

/// An object set. Shared; a dataset has one.
pub struct ObjectSet {
    pub(crate) context: Arc<SetContext>,
    itself: Weak<ObjectSet>,
    shards: [Mutex<BTreeMap<ObjectId, Weak<Object>>>; SHARDS],
    recent: Mutex<VecDeque<Arc<Object>>>,
    pub(crate) dirty: Mutex<BTreeMap<Txg, DirtyObjects>>,
    pub(crate) taken: Mutex<Taken>,
    pub(crate) numbers: Mutex<Numbers>,
    pub(crate) head: Mutex<Head>,
    pub(crate) meta: Arc<Object>,
    /// Whether dnodes larger than a slot were stored since it was opened.
    pub(crate) has_large_dnodes: AtomicBool,
    /// Whether names of more than 255 bytes were made since it was opened.
    has_long_names: AtomicBool,
    /// By user, group, project; none where it was never needed.
    accounts: [Mutex<Option<Arc<Object>>>; 3],
}

impl ObjectSet {
    /// Opens a stored object set.
    pub fn open(
        env: Arc<ObjectEnv>,
        id: ObjectId,
        root: &BlockPointer,
        policy: SetPolicy,
        owner: Option<Arc<dyn Ownership>>,
        operation: &Operation,
    ) -> Result<Arc<ObjectSet>, ObjectError> {
        let objset = read_head(&env.cache, id, root, operation)?;
        ObjectSet::assemble(env, id, *root, objset, policy, owner)
    }

    /// Makes a new, empty object set, which is stored with the group.
    pub fn create(
        env: Arc<ObjectEnv>,
        id: ObjectId,
        new: NewObjectSet,
        policy: SetPolicy,
        owner: Option<Arc<dyn Ownership>>,
        tx: &SyncTx,
    ) -> Arc<ObjectSet> {
        let mut meta = NewObject::plain(ObjectType::Dnode, widen(DNODE_BYTES_MAX)).dnode();
        meta.levels = match new.levels {
            0 => levels_of_all_numbers(&meta),
            levels => levels,
        };
        let none = || Box::new(Dnode::free());
        let accounting = match new.has_accounting {
            false => Accounting::None,
            true => Accounting::Projects {
                user: none(),
                group: none(),
                project: none(),
            },
        };
        let mut objset = Objset::new(new.objset_type, meta, accounting);
        if owner.is_some() && new.has_accounting {
            objset.flags = ObjsetFlags::USER_ACCOUNTING_COMPLETE;
            if policy.counts_objects {
                objset.flags = objset.flags.with(ObjsetFlags::OBJECT_ACCOUNTING_COMPLETE);
            }
            if policy.counts_projects {
                objset.flags = objset.flags.with(ObjsetFlags::PROJECT_QUOTA_COMPLETE);
            }
        }
        env.cache.use_second_level(id, policy.second_level);
        let set = ObjectSet::assemble(env, id, BlockPointer::HOLE, objset, policy, owner)
            .expect("a dnode we made can be walked");
        set.change_head(tx, |_| {});
        set
    }

    /// Makes a new, empty object set for encrypted contents of a raw stream. Owners are not counted
    /// in it.
    #[doc(alias = "dmu_objset_create_impl_dnstats")]
    pub fn create_sealed(
        env: Arc<ObjectEnv>,
        id: ObjectId,
        objset_type: ObjsetType,
        new: NewSealedSet,
        policy: SetPolicy,
        tx: &SyncTx,
    ) -> Result<Arc<ObjectSet>, ObjectError> {
        let plain = NewObject {
            indirect_shift: new.indirect_shift,
            ..NewObject::plain(ObjectType::Dnode, new.block_size.get())
        };
        let mut meta = plain.dnode();
        meta.levels = new.levels;
        let none = || Box::new(Dnode::free());
        let accounting = Accounting::Projects {
            user: none(),
            group: none(),
            project: none(),
        };
        let objset = Objset::new(objset_type, meta, accounting);
        let set = ObjectSet::assemble(env, id, BlockPointer::HOLE, objset, policy, None)?;
        set.begin_sealed();
        set.change_head(tx, |_| {});
        Ok(set)
    }

    fn assemble(
        env: Arc<ObjectEnv>,
        id: ObjectId,
        root: BlockPointer,
        objset: Objset,
        policy: SetPolicy,
        owner: Option<Arc<dyn Ownership>>,
    ) -> Result<Arc<ObjectSet>, ObjectError> {
        check_meta(&objset.meta_dnode).map_err(|what| corrupt(id, META_DNODE, what))?;
        for (account, dnode) in accounting_dnodes(&objset) {
            if !dnode.is_free() {
                check_tree(dnode).map_err(|what| corrupt(id, account, what))?;
            }
        }
        Ok(Arc::new_cyclic(|itself| {
            let context = Arc::new(SetContext {
                env,
                id,
                policy: RwLock::new(ranks::POLICY, policy),
                owner,
                outer: itself.clone(),
                dnode_generation: AtomicU64::new(0),
                dnode_blocks: AtomicU64::new(objset.meta_dnode.max_block.get() + 1),
                dnode_levels: objset.meta_dnode.levels,
                in_flight: InFlight::new(),
                sealing: SetSealing::of_root(&root),
            });
            let object = |id, dnode: &Dnode| Object::new(context.clone(), id, dnode.clone(), true);
            let mut accounts = [const { None }; 3];
            for (account, dnode) in accounting_dnodes(&objset) {
                if !dnode.is_free() {
                    accounts[account_index(account).expect("it is one")] =
                        Some(object(account, dnode));
                }
            }
            ObjectSet {
                itself: itself.clone(),
                shards: [const { Mutex::new(ranks::TABLE, BTreeMap::new()) }; SHARDS],
                recent: Mutex::new(ranks::RECENT, VecDeque::new()),
                dirty: Mutex::new(ranks::DIRTY, BTreeMap::new()),
                taken: Mutex::new(ranks::TAKEN, Taken::default()),
                numbers: Mutex::new(ranks::NUMBERS, Numbers::default()),
                meta: object(META_DNODE, &objset.meta_dnode),
                has_large_dnodes: AtomicBool::new(false),
                has_long_names: AtomicBool::new(false),
                accounts: accounts.map(|account| Mutex::new(ranks::TABLE, account)),
                head: Mutex::new(
                    ranks::HEAD,
                    Head {
                        objset,
                        root,
                        changed_in: Vec::new(),
                        replayed: BTreeMap::new(),
                    },
                ),
                context,
            }
        }))
    }

    /// Its number: that of its dataset in the MOS.
    pub fn id(&self) -> ObjectId {
        self.context.id
    }

    /// What it shares with the other sets of the pool.
    pub fn env(&self) -> &Arc<ObjectEnv> {
        &self.context.env
    }

    /// How its blocks are written.
    pub fn policy(&self) -> SetPolicy {
        *self.context.policy.read()
    }

    /// Sets how blocks are written from now on, after a change of properties.
    pub fn set_policy(&self, policy: SetPolicy) {
        *self.context.policy.write() = policy;
        let cache = &self.context.env.cache;
        cache.use_second_level(self.context.id, policy.second_level);
    }

    /// Its owners, if they are counted.
    pub fn owner(&self) -> Option<&Arc<dyn Ownership>> {
        self.context.owner.as_ref()
    }

    /// The stored objset block, with later changes of the block itself.
    #[doc(alias = "objset_phys_t")]
    pub fn phys(&self) -> Objset {
        self.head.lock().objset.clone()
    }

    /// The accounting flags in its objset block.
    pub fn flags(&self) -> ObjsetFlags {
        self.head.lock().objset.flags
    }

    /// What it is.
    pub fn objset_type(&self) -> ObjsetType {
        self.head.lock().objset.objset_type
    }

    /// Changes the objset block: flags, the intent log's header. Dnodes in it are overwritten when
    /// the set is stored.
    pub fn change_head(&self, tx: &SyncTx, change: impl FnOnce(&mut Objset)) {
        let mut head = self.head.lock();
        change(&mut head.objset);
        if !head.changed_in.contains(&tx.txg()) {
            head.changed_in.push(tx.txg());
        }
        drop(head);
        tx.note_change();
        self.add_dirty(tx.txg(), None);
    }

    /// Notes that changes of this group have applied a record of the intent log: the objset block
    /// says so when the group is stored, and the record is never applied again.
    #[doc(alias = "zl_replayed_seq")]
    pub fn note_replayed(&self, tx: &Tx, sequence: u64) {
        let mut head = self.head.lock();
        let noted = head.replayed.entry(tx.txg()).or_default();
        *noted = sequence.max(*noted);
        drop(head);
        tx.note_change();
        self.add_dirty(tx.txg(), None);
    }

    /// Where it is stored.
    pub fn root_pointer(&self) -> BlockPointer {
        self.head.lock().root
    }

    /// Whether dnodes larger than a slot were stored since it was opened (feature `large_dnode`).
    pub fn has_large_dnodes(&self) -> bool {
        self.has_large_dnodes.load(Ordering::Relaxed)
    }

    /// Whether names of more than 255 bytes were made since it was opened (feature `longname`).
    pub fn has_long_names(&self) -> bool {
        self.has_long_names.load(Ordering::Relaxed)
    }

    /// A name of more than 255 bytes is made, in the transaction under way.
    pub fn note_long_name(&self) {
        self.has_long_names.store(true, Ordering::Relaxed);
    }

    /// How many objects are stored.
    pub fn object_count(&self) -> u64 {
        self.meta.info().fill
    }

    /// Whether the group has changes that are not stored yet.
    pub fn is_dirty(&self, txg: Txg) -> bool {
        self.dirty.lock().contains_key(&txg)
    }

    /// An object, by its number.
    pub fn object(&self, id: ObjectId, operation: &Operation) -> Result<Arc<Object>, ObjectError> {
        if id == META_DNODE {
            return Ok(self.meta.clone());
        }
        if let Some(index) = account_index(id) {
            let account = self.accounts[index].lock().clone();
            return account.ok_or_else(|| self.no_such_object(id));
        }
        for _ in 0..LOOKUP_ATTEMPTS_MAX {
            if let Some(object) = self.in_memory(id) {
                object.mark_used();
                return if object.is_freed() {
                    Err(self.no_such_object(id))
                } else {
                    Ok(object)
                };
            }
            if self.taken.lock().is_freed(id) {
                return Err(self.no_such_object(id));
            }
            let generation = self.context.dnode_generation.load(Ordering::Acquire);
            let dnode = self.read_dnode(id, operation)?;
            let object = Object::from_stored(self.context.clone(), id, dnode)?;
            if let Some(object) = self.enter(object, generation) {
                return Ok(object);
            }
        }
        Err(self.no_such_object(id))
    }

    /// The object if it is in memory already.
    pub fn in_memory(&self, id: ObjectId) -> Option<Arc<Object>> {
        self.shard(id).lock().get(&id)?.upgrade()
    }

    /// Enters a read object into the table, unless dnodes were stored since then, or another thread
    /// was faster.
    fn enter(&self, object: Arc<Object>, generation: u64) -> Option<Arc<Object>> {
        let id = object.id();
        {
            let mut shard = self.shard(id).lock();
            let other = shard.get(&id).and_then(Weak::upgrade);
            if other.is_some() {
                drop(shard);
                return other.filter(|object| !object.is_freed());
            }
            if self.context.dnode_generation.load(Ordering::Acquire) != generation {
                drop(shard);
                return None;
            }
            shard.insert(id, Arc::downgrade(&object));
        }
        self.keep(object.clone());
        Some(object)
    }

    /// Puts a new object into the table.
    pub(crate) fn enter_new(&self, object: &Arc<Object>) {
        self.shard(object.id())
            .lock()
            .insert(object.id(), Arc::downgrade(object));
        self.keep(object.clone());
    }

    /// Keeps an object for a while, and drops the oldest one that was not looked up since.
    fn keep(&self, object: Arc<Object>) {
        let mut dropped = Vec::new();
        {
            let mut recent = self.recent.lock();
            recent.push_back(object);
            let mut chances = recent.len();
            while recent.len() > RECENT_MAX {
                let oldest = recent.pop_front().expect("there are more than a few");
                chances = chances.saturating_sub(1);
                if chances > 0 && oldest.was_used.swap(false, Ordering::Relaxed) {
                    recent.push_back(oldest);
                } else {
                    dropped.push(oldest);
                }
            }
        }
        drop(dropped);
    }

    /// Drops all objects that are not used.
    pub fn drop_idle(&self) {
        let idle = std::mem::take(&mut *self.recent.lock());
        drop(idle);
    }

    /// Removes a dropped object from the table.
    pub(crate) fn forget_dropped(&self, id: ObjectId) {
        let mut shard = self.shard(id).lock();
        if shard
            .get(&id)
            .is_some_and(|object| object.strong_count() == 0)
        {
            shard.remove(&id);
        }
    }

    fn shard(&self, id: ObjectId) -> &Mutex<BTreeMap<ObjectId, Weak<Object>>> {
        &self.shards[narrow(id.get() % widen(SHARDS))]
    }

    /// The dnode of an object as the meta dnode has it.
    fn read_dnode(&self, id: ObjectId, operation: &Operation) -> Result<Dnode, ObjectError> {
        let (block, slot) = ondisk::dnode::place_of_object(id, self.meta.block_size());
        if id.get() >> ondisk::dnode::OBJECT_BITS != 0 || block > self.meta.max_block() {
            return Err(self.no_such_object(id));
        }
        self.meta
            .read_ahead(block.get()..block.get() + 1, operation);
        let (contents, order) = self.meta.read_block_ordered(block, operation)?;
        // The slot may be inside a larger dnode, so the block is walked from its start.
        let mut at = 0;
        while at < slot {
            at += slots_at(&contents, at);
        }
        if at != slot || contents[slot * SLOT_BYTES] == 0 {
            return Err(self.no_such_object(id));
        }
        ondisk::dnode::dnode_in_slot(&contents, slot, order)
            .map_err(|what| corrupt(self.id(), id, what))
    }

    /// The number of the first object after `after`, if there is one.
    pub fn next_object(
        &self,
        after: ObjectId,
        operation: &Operation,
    ) -> Result<Option<ObjectId>, ObjectError> {
        let mut from = after.get().saturating_add(1);
        let per_block = self.dnodes_per_block();
        loop {
            let fresh = self.taken.lock().next_fresh(from);
            let Some(block) = self
                .meta
                .next_data(BlockId::from(from / per_block), operation)?
            else {
                return Ok(fresh.map(ObjectId::from));
            };
            let first = block.get() * per_block;
            if let Some(fresh) = fresh.filter(|fresh| *fresh < first) {
                return Ok(Some(ObjectId::from(fresh)));
            }
            let contents = self.meta.read_block(block, operation)?;
            let stored = {
                let taken = self.taken.lock();
                occupied(&contents)
                    .map(|(slot, _)| first + widen(slot))
                    .find(|id| *id >= from && *id != 0 && !taken.is_freed(ObjectId::from(*id)))
            };
            let fresh = fresh.filter(|fresh| *fresh < first + per_block);
            let found = match (stored, fresh) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            if let Some(id) = found {
                return Ok(Some(ObjectId::from(id)));
            }
            from = first + per_block;
        }
    }

    /// How many slots a block of dnodes has.
    pub(crate) fn dnodes_per_block(&self) -> u64 {
        (self.meta.block_size().get() / widen(SLOT_BYTES)).max(1)
    }

    /// The ZAP of an account, which is created if it is missing.
    pub(crate) fn account<'a>(
        &self,
        account: ObjectId,
        tx: &SyncTx,
        operation: &'a Operation,
    ) -> Result<ObjectZap<'a>, ObjectError> {
        let index = account_index(account).expect("it is one of the three");
        let existing = self.accounts[index].lock().clone();
        if let Some(object) = existing {
            return Ok(ObjectZap::of(&object, operation));
        }
        // A micro ZAP begins with the smallest block.
        let dnode = NewObject::plain(ObjectType::UserUsed, 0).dnode();
        let object = Object::new(self.context.clone(), account, dnode, false);
        let made = ObjectZap::make(&object, tx, NewZap::micro(self), operation)?;
        // Others find it from now on: without the header it would be damaged for them.
        *self.accounts[index].lock() = Some(object);
        Ok(made)
    }

    /// Has the set stored with this group although no object of it has changed: its log has.
    pub fn touch(&self, tx: &Tx) {
        self.add_dirty(tx.txg(), None);
    }

    /// An object has changes in this group, or the head has.
    pub(crate) fn add_dirty(&self, txg: Txg, object: Option<Arc<Object>>) {
        let mut counted = None;
        let is_first = {
            let mut dirty = self.dirty.lock();
            let is_first = !dirty.contains_key(&txg);
            let objects = &mut dirty.entry(txg).or_default().objects;
            if let Some(object) = object {
                let id = object.id();
                if !is_special(id) {
                    counted = Some((id, FirstOf::among(objects, id)));
                }
                objects.insert(id, object);
            }
            is_first
        };
        if let Some((id, first_of)) = counted {
            self.context.count_dnode(txg, id, first_of);
        }
        if is_first {
            let itself = self.itself.upgrade().expect("a set that is used is there");
            self.context.env.txgs.add_dirty_set(txg, &itself);
        }
    }

    pub(crate) fn no_such_object(&self, id: ObjectId) -> ObjectError {
        ObjectError::NoSuchObject {
            set: self.id(),
            object: id,
        }
    }
}

impl std::fmt::Debug for ObjectSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ObjectSet({})", self.context.id)
    }
}

/// How many levels the meta dnode needs for all object numbers there can be.
fn levels_of_all_numbers(meta: &Dnode) -> u8 {
    let per_block = meta.data_block_size.get() / widen(SLOT_BYTES);
    let mut reach = u128::from(per_block) * u128::try_from(meta.pointers.len()).expect("few");
    let mut levels = 1;
    while reach < 1 << ondisk::dnode::OBJECT_BITS {
        reach <<= meta.pointers_per_block_shift();
        levels += 1;
    }
    levels
}

impl SetContext {
    /// Says that changes were made in this group.
    pub fn register(&self, tx: &Tx, object: Arc<Object>) {
        let set = self
            .outer
            .upgrade()
            .expect("an object set outlives the changes made in it");
        set.add_dirty(tx.txg(), Some(object));
    }
}
