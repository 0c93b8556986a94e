//! Frees destroyed datasets in the background (async destroy), a part per txg.
//!
//! # Mechanism
//! Three objects of the MOS have the remaining blocks: a list of block pointers (of destroyed
//! snapshots), a list of trees (of destroyed file systems and volumes) and a set of
//! [livelists](crate::livelist) (of destroyed clones). In the first pass of each txg some are
//! freed, until the budget is used up. Their space is subtracted from the directory `$FREE`, to
//! which all of it was charged when it was destroyed. When the last tree is freed, its list and the
//! use of the feature are removed.
//!
//! Blocks below an unreadable block cannot be found. By default freeing stops there and tries again
//! in each txg, since the device may come back. With leaking allowed it goes on; the space left in
//! `$FREE` in the end is moved to `$LEAK`.
//!
//! # After a crash
//! Freeing goes on where the last stored txg left it: its position in a tree is stored with the
//! tree.

use crate::creation::FREE_DIRECTORY;
use crate::directory::Directory;
use crate::error::DatasetError;
use crate::livelist::{self, Progress};
use crate::namespace::{Namespace, View};
use crate::space_charge::{Part, SpaceChange, charge};
use crate::task::{FeatureCounts, TaskContext};
use crate::writing::in_object;
use tarn_block::WritePhase;
use tarn_object::zap::ZapValue;
use tarn_object::{BlockTrees, Freeing, NewObject, PointerList, Step, Unreadable};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::dataset_dir::DatasetDirectory;
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::{self, POOL_DIRECTORY};
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

/// The directory of what can never be freed.
#[doc(alias = "LEAK_DIR_NAME")]
const LEAK_DIRECTORY: &str = "$LEAK";

/// How often the clock is looked at, in blocks.
const CLOCK_INTERVAL: u64 = 64;

/// How much may be freed in one group.
#[derive(Debug, Clone, Copy)]
pub struct FreeBudget {
    /// How many blocks.
    pub blocks_max: u64,
    /// For how long.
    pub time_ns_max: u64,
    /// What becomes of what is below unreadable blocks.
    pub unreadable: Unreadable,
}

/// How far freeing has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Freed {
    /// Blocks freed in this group.
    pub blocks: u64,
    /// Whether the next group can free more. False also when all that is left cannot be read.
    pub more: bool,
}

/// What waits to be freed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Deflated bytes: the pool's property `freeing`.
    pub freeing: u64,
    /// Deflated bytes that can never be freed: the pool's property `leaked`.
    pub leaked: u64,
}

impl Namespace {
    /// Frees some of what was destroyed. Once per group, in its first pass.
    ///
    /// # Errors
    /// When the lists cannot be read, or a block cannot be freed.
    #[doc(alias = "dsl_process_async_destroys")]
    pub fn free_in_background(
        &self,
        context: &TaskContext<'_>,
        budget: FreeBudget,
    ) -> Result<Freed, DatasetError> {
        let mut bite = Bite::new(context, budget);
        let lists_done = bite.free_list()?;
        let mut trees_left = true;
        if lists_done {
            trees_left = bite.free_trees(context.features)? || bite.free_livelists()?;
        }
        bite.take_off()?;
        let blocks = bite.blocks;
        if lists_done && !trees_left && budget.unreadable == Unreadable::Leak {
            move_leaked(context)?;
        }
        let more = (!lists_done || trees_left) && blocks > 0;
        Ok(Freed { blocks, more })
    }

    /// What waits to be freed, and what never will be.
    pub fn waiting_to_be_freed(&self, operation: &Operation) -> Result<Waiting, DatasetError> {
        let view = self.view(operation);
        let used = |name| -> Result<u64, DatasetError> {
            match own_directory(view, name)? {
                Some(directory) => Ok(directory.stored()?.used.get()),
                None => Ok(0),
            }
        };
        Ok(Waiting {
            freeing: used(FREE_DIRECTORY)?,
            leaked: used(LEAK_DIRECTORY)?,
        })
    }

    /// Whether anything waits to be freed: then txgs should follow each other without writes.
    pub fn has_more_to_free(&self, operation: &Operation) -> Result<bool, DatasetError> {
        let mos = self.view(operation).mos();
        for trees in [pool_directory::BLOCK_TREE, pool_directory::DELETED_CLONES] {
            if mos.number(POOL_DIRECTORY, trees)?.is_some() {
                return Ok(true);
            }
        }
        match mos.number(POOL_DIRECTORY, pool_directory::FREE_POINTER_LIST)? {
            Some(id) => {
                let id = ObjectId::new(id);
                let list = PointerList::open(self.mos(), id, operation).map_err(in_object(id))?;
                Ok(!list.is_empty().map_err(in_object(id))?)
            }
            None => Ok(false),
        }
    }
}

/// One of the pool's own directories.
fn own_directory<'a>(view: View<'a>, name: &str) -> Result<Option<Directory<'a>>, DatasetError> {
    view.root()?.child(name)
}

/// What one group frees.
struct Bite<'a, 'b> {
    context: &'a TaskContext<'b>,
    budget: FreeBudget,
    began_ns: u64,
    blocks: u64,
    space: SpaceChange,
    failure: Option<DatasetError>,
}

impl<'a, 'b> Bite<'a, 'b> {
    fn new(context: &'a TaskContext<'b>, budget: FreeBudget) -> Self {
        Bite {
            context,
            budget,
            began_ns: tarn_host::monotonic_ns(),
            blocks: 0,
            space: SpaceChange::default(),
            failure: None,
        }
    }

    fn is_used_up(&self) -> bool {
        let looks_at_clock = self.blocks.is_multiple_of(CLOCK_INTERVAL) && self.blocks > 0;
        let elapsed_ns = || tarn_host::monotonic_ns().saturating_sub(self.began_ns);
        self.blocks >= self.budget.blocks_max
            || (looks_at_clock && elapsed_ns() >= self.budget.time_ns_max)
    }

    /// Frees one block. Where it is inside a tree, it is freed in any case.
    fn free(&mut self, pointer: &BlockPointer, may_stop: bool) -> Step {
        if may_stop && self.is_used_up() {
            return Step::Stop;
        }
        let context = self.context;
        let phase = WritePhase {
            txg: context.tx.txg(),
            pass: context.tx.pass(),
        };
        if let Err(cause) = context.io.free(pointer, phase, context.operation) {
            self.failure.get_or_insert(DatasetError::Free { cause });
            return Step::Stop;
        }
        self.blocks += 1;
        self.space.add(SpaceChange::of_block(context.io, pointer));
        Step::Continue
    }

    /// Frees blocks of the list of pointers. Says whether none are left.
    fn free_list(&mut self) -> Result<bool, DatasetError> {
        let writing = self.context.writing();
        let name = pool_directory::FREE_POINTER_LIST;
        let Some(id) = writing.reading().number(POOL_DIRECTORY, name)? else {
            return Ok(true);
        };
        let id = ObjectId::new(id);
        let list = PointerList::open(writing.set, id, writing.operation).map_err(in_object(id))?;
        if list.is_empty().map_err(in_object(id))? {
            return Ok(true);
        }
        let taken = list.take_each(writing.tx, writing.operation, |entry| {
            self.free(&entry.pointer, true)
        });
        taken.map_err(in_object(id))?;
        self.failure.take().map_or(Ok(()), Err)?;
        list.is_empty().map_err(in_object(id))
    }

    /// Frees blocks of trees. Says whether some are left.
    fn free_trees(&mut self, features: &dyn FeatureCounts) -> Result<bool, DatasetError> {
        let writing = self.context.writing();
        let name = pool_directory::BLOCK_TREE;
        let Some(id) = writing.reading().number(POOL_DIRECTORY, name)? else {
            return Ok(false);
        };
        let id = ObjectId::new(id);
        let trees = BlockTrees::open(writing.set, id, writing.operation).map_err(in_object(id))?;
        let unreadable = self.budget.unreadable;
        let freeing = trees.free_each(writing.tx, writing.operation, unreadable, |pointer| {
            // A walk is resumed at blocks of level 0 only.
            let may_stop = pointer.level().is_data() && pointer.object_type() != ObjectType::Objset;
            self.free(pointer, may_stop)
        });
        let freeing = freeing.map_err(in_object(id))?;
        self.failure.take().map_or(Ok(()), Err)?;
        if freeing == Freeing::Stopped {
            return Ok(true);
        }
        writing.remove(POOL_DIRECTORY, name)?;
        writing.free(id)?;
        features.decrement(Feature::AsyncDestroy)?;
        Ok(false)
    }

    /// Frees blocks on livelists of destroyed clones. Says whether some are left that can be freed.
    /// A list that contradicts itself stays: which of its blocks belong to others by now is
    /// unknown.
    fn free_livelists(&mut self) -> Result<bool, DatasetError> {
        let context = self.context;
        for list in livelist::deleted(context.writing().reading())? {
            let progress =
                livelist::free_deleted(context, list, |pointer| self.free(pointer, true))?;
            self.failure.take().map_or(Ok(()), Err)?;
            match progress {
                Progress::Stopped => return Ok(true),
                Progress::Done => livelist::forget_deleted(context, list)?,
                Progress::Contradictory => {}
            }
        }
        Ok(false)
    }

    /// Takes what was freed off `$FREE`.
    fn take_off(&mut self) -> Result<(), DatasetError> {
        let space = std::mem::take(&mut self.space);
        assert!(space.used >= 0, "what was freed had space");
        assert!(
            self.blocks > 0 || space == SpaceChange::default(),
            "space is taken off for blocks that were freed"
        );
        if self.blocks == 0 {
            return Ok(());
        }
        match own_directory(self.context.view(), FREE_DIRECTORY)? {
            Some(directory) => charge(
                self.context.writing(),
                directory.id(),
                Part::Head,
                space.negated(),
            ),
            None => Ok(()),
        }
    }
}

/// Moves what is left in `$FREE`, when nothing is left to free, to `$LEAK`.
fn move_leaked(context: &TaskContext<'_>) -> Result<(), DatasetError> {
    let Some(free) = own_directory(context.view(), FREE_DIRECTORY)? else {
        return Ok(());
    };
    let left = SpaceChange::all_of(&free.stored()?);
    // What is on livelists that cannot be freed by is still charged there.
    let lists = livelist::deleted(context.writing().reading())?;
    if left == SpaceChange::default() || !lists.is_empty() {
        return Ok(());
    }
    let leak = leak_directory(context)?;
    charge(context.writing(), leak, Part::Head, left)?;
    charge(context.writing(), free.id(), Part::Head, left.negated())
}

/// The directory `$LEAK`, which is made when something leaks for the first time.
fn leak_directory(context: &TaskContext<'_>) -> Result<ObjectId, DatasetError> {
    if let Some(directory) = own_directory(context.view(), LEAK_DIRECTORY)? {
        return Ok(directory.id());
    }
    let writing = context.writing();
    let root = context.view().root()?;
    let new = NewObject::plain(ObjectType::DslDirectory, 0).with_bonus(
        ObjectType::DslDirectory,
        <DatasetDirectory as tarn_ondisk::declare::Stored>::SIZE,
    );
    let object = writing
        .set
        .allocate(writing.tx, new, writing.operation)
        .map_err(in_object(ObjectId::ZERO))?;
    let children = writing.create_zap(ObjectType::DslDirectoryChildMap)?;
    let properties = writing.create_zap(ObjectType::DslProperties)?;
    writing.change(object.id(), |stored: &mut DatasetDirectory| {
        stored.creation_time_s = context.now_s;
        stored.parent = root.id();
        stored.children = children;
        stored.properties = properties;
        stored.flags = DatasetDirectory::HAS_USED_BREAKDOWN;
    })?;
    let value = ZapValue::word(object.id().get());
    writing.put(root.stored()?.children, LEAK_DIRECTORY, &value)?;
    Ok(object.id())
}
