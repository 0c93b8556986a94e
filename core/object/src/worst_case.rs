//! Worst-case space of dirty objects, counted when they become dirty and when they are stored. The
//! counters: [`in_flight`](crate::in_flight).

use std::sync::atomic::Ordering;

use tarn_block::{BlockRole, WritePolicy};
use tarn_ondisk::declare::widen;
use tarn_ondisk::dnode::{DNODE_BYTES_MAX, POINTER_SHIFT};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{Level, ObjectId, Txg};

use crate::dirty::Pending;
use crate::head::META_DNODE;
use crate::in_flight::{DNODE_FANOUT_SHIFT, DNODE_INDIRECT_SHIFT, DNODES_PER_BLOCK, FirstOf};
use crate::object::{Object, ObjectState};
use crate::objset::{ObjectSet, SetContext};

/// What the MOS takes for one block that comes or goes: a range in a space map, a pointer in a list
/// of what snapshots keep. Three copies of it, packed.
const BOOKKEEPING_BYTES: u64 = 256;

/// What the MOS takes for a dataset that changes: its objects, and those above it. A guess: a few
/// blocks in three copies.
const SET_BYTES: u64 = 64 << 10;

/// What a compressed block of pointers takes beyond the pointers it has, for all the zeros.
const ZEROS_BYTES: u64 = 4 << 10;

/// How large the head of a set is at most.
const HEAD_BYTES: u64 = 4 << 10;

impl SetContext {
    /// The group takes so much more.
    pub fn count(&self, txg: Txg, bytes: u64) {
        self.in_flight.change(txg, |sum| sum.saturating_add(bytes));
        self.env.txgs.count_in_flight(txg, bytes);
    }

    /// The group does not take so much after all.
    pub fn uncount(&self, txg: Txg, bytes: u64) {
        self.in_flight.change(txg, |sum| sum.saturating_sub(bytes));
        self.env.txgs.uncount_in_flight(txg, bytes);
    }

    /// What a block takes at worst, with what is noted of it elsewhere.
    fn worst_of(&self, object_type: ObjectType, level: u8, role: BlockRole, bytes: u64) -> u64 {
        let blocks = self.policy.read().blocks;
        let policy = blocks.for_block(object_type, Level::new(level), role, bytes, 1);
        self.worst_size(&policy, bytes)
    }

    fn worst_size(&self, policy: &WritePolicy, bytes: u64) -> u64 {
        let size = self.env.cache.io().worst_size(policy, bytes);
        size.saturating_add(BOOKKEEPING_BYTES)
    }

    /// What a block of pointers of `full_bytes` takes that has so many.
    fn worst_of_pointers(
        &self,
        object_type: ObjectType,
        level: u8,
        count: u64,
        full_bytes: u64,
    ) -> u64 {
        let packed = (count << POINTER_SHIFT).saturating_add(ZEROS_BYTES);
        let is_packed = packed < full_bytes - full_bytes / 8;
        let bytes = if is_packed { packed } else { full_bytes };
        self.worst_of(object_type, level, BlockRole::Tree, bytes)
    }

    /// A dnode is dirty. `first_of` says what it is the first of, in its group.
    pub fn count_dnode(&self, txg: Txg, id: ObjectId, first_of: FirstOf) {
        let full = 1 << DNODE_INDIRECT_SHIFT;
        let block = id.get() / DNODES_PER_BLOCK;
        let total = self.dnode_blocks.load(Ordering::Relaxed).max(block + 1);
        let pointers = |level: u8| {
            let below = DNODE_FANOUT_SHIFT * (u32::from(level) - 1);
            let first = (block >> (DNODE_FANOUT_SHIFT * u32::from(level))) << DNODE_FANOUT_SHIFT;
            let count = (total >> below).saturating_sub(first) + 1;
            self.worst_of_pointers(
                ObjectType::Dnode,
                level,
                count.min(1 << DNODE_FANOUT_SHIFT),
                full,
            )
        };
        let mut bytes = 0;
        if first_of.block {
            let size = widen(DNODE_BYTES_MAX);
            bytes += self.worst_of(ObjectType::Dnode, 0, BlockRole::Tree, size);
        }
        if first_of.pointers {
            bytes += pointers(1);
        }
        if first_of.set {
            bytes += SET_BYTES;
            bytes += self.worst_of(ObjectType::Objset, 0, BlockRole::Tree, HEAD_BYTES);
            bytes += (2..self.dnode_levels).map(pointers).sum::<u64>();
        }
        if bytes != 0 {
            self.count(txg, bytes);
        }
    }
}

impl Object {
    /// Whether it counts: dnodes are counted with their objects.
    fn counts(&self) -> bool {
        self.id != META_DNODE
    }

    fn worst_of_block(&self, state_type: ObjectType, bytes: u64) -> u64 {
        let context = &self.context;
        context.worst_of(state_type, 0, BlockRole::Tree, bytes)
    }

    /// A block of so many bytes became dirty, or a clone.
    pub(crate) fn count_block(&self, pending: &mut Pending, bytes: u64) {
        if self.counts() {
            assert!(bytes > 0, "a dirty block has bytes");
            let bytes = self.worst_of_block(pending.shape.object_type, bytes);
            self.context.count(pending.txg, bytes);
        }
    }

    /// Blocks of these sizes are not dirty any more.
    pub(crate) fn uncount_blocks(&self, pending: &Pending, sizes: impl Iterator<Item = u64>) {
        if self.counts() {
            let object_type = pending.shape.object_type;
            let sizes = sizes.map(|bytes| self.worst_of_block(object_type, bytes));
            let bytes = sizes.fold(0, u64::saturating_add);
            self.context.uncount(pending.txg, bytes);
        }
    }

    /// The pointer to a block changes, and with it the blocks of pointers above.
    pub(crate) fn count_pointers(&self, pending: &mut Pending, levels: u8, block: u64) {
        if !self.counts() {
            return;
        }
        let (fanout_shift, shape) = (pending.shape.fanout_shift(), &pending.shape);
        let full_bytes = 1_u64 << shape.indirect_shift;
        let (mut more, mut total, mut index) = (0, shape.max_block.get(), block);
        for level in 1..levels.max(shape.levels_needed()) {
            let first = (index >> fanout_shift) << fanout_shift;
            index >>= fanout_shift;
            // The highest block may be lower than this one, where that is freed.
            let count = total.saturating_sub(first).saturating_add(1);
            let count = count.min(1 << fanout_shift);
            total >>= fanout_shift;
            let known = pending.parents.entry((level, index)).or_insert((0, 0));
            if known.0 >= count {
                // Those above have grown as well when this one did.
                break;
            }
            let bytes = self
                .context
                .worst_of_pointers(shape.object_type, level, count, full_bytes);
            more += bytes.saturating_sub(known.1);
            *known = (count, bytes);
        }
        if more != 0 {
            self.context.count(pending.txg, more);
        }
    }

    /// The spill block changes, and has so many bytes.
    pub(crate) fn count_spill(&self, pending: &mut Pending, bytes: u64) {
        let (context, bonus_type) = (&self.context, pending.shape.bonus_type);
        let bytes = context.worst_of(bonus_type, 0, BlockRole::Spill, bytes);
        let more = bytes.saturating_sub(pending.spill_worst);
        pending.spill_worst += more;
        context.count(pending.txg, more);
    }
}

impl ObjectState {
    /// How many levels the stored tree has.
    pub(crate) fn stored_levels(&self) -> u8 {
        self.stored.levels
    }
}

impl ObjectSet {
    /// What groups that are not stored yet take at worst, in deflated bytes.
    #[doc(alias = "dsl_dir_space_towrite")]
    pub fn in_flight_bytes(&self) -> u64 {
        let stored = self.context.env.txgs.stored_txg();
        self.context.in_flight.after(stored)
    }

    /// What so many blocks of a file take at worst, their blocks of pointers included: to ask for
    /// room before they are written.
    pub fn worst_of_contents(&self, blocks: u64, block_bytes: u64) -> u64 {
        let context = &self.context;
        let object_type = ObjectType::PlainFile;
        let block = context.worst_of(object_type, 0, BlockRole::Tree, block_bytes);
        let full = 1 << DNODE_INDIRECT_SHIFT;
        let fanout = 1 << DNODE_FANOUT_SHIFT;
        let pointers = context.worst_of_pointers(object_type, 1, blocks.min(fanout), full);
        let parents = blocks.div_ceil(fanout).saturating_mul(pointers);
        blocks.saturating_mul(block).saturating_add(parents)
    }

    /// What so many bytes of directories, attributes and dnodes take at worst.
    pub fn worst_of_metadata(&self, bytes: u64) -> u64 {
        let object_type = ObjectType::Directory;
        self.context
            .worst_of(object_type, 0, BlockRole::Tree, bytes)
    }
}
