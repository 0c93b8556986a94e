//! Visiting every block of an object set.
//!
//! # Problem
//! Destroying a dataset, scrubbing, sending and checking all visit all blocks. There may be
//! billions, some cannot be read, and the visitor may stop today and resume tomorrow, after a
//! restart.
//!
//! # Mechanism
//! The walk goes through the tree of the meta dnode; in each block of dnodes, through the trees of
//! its objects, each followed by its spill block; at last through those of the accounting objects.
//! A [`Visitor`] is called for every pointer twice: before the blocks below it, and after. Indirect
//! blocks and blocks of dnodes are prefetched a little ahead, or a long way, in the order of their
//! places ([`WalkOptions::ahead_bytes`]); data is never read.
//!
//! A position in the walk is a `TraversalMark`: object and block of level 0. Everything before it
//! is done. A resumed walk skips pointers whose whole subtree is done. The mark of a block of
//! dnodes means that its objects are done, and it is not; a walk that stops before those gives the
//! mark of the first of them. OpenZFS stores the progress of a destroy like that, so each program
//! can resume the other's. (If OpenZFS cannot read a block of dnodes it stores the mark of that
//! block, too, and goes on after its objects. The two cases cannot be told apart, and freeing twice
//! would be worse.)
//!
//! The numbers of objects and of blocks reach up to the largest integer: those of the accounting
//! objects are the last three, which are walked in the order of their numbers. So no position is
//! computed by adding to an object number.
//!
//! # Invariants
//! - Each pointer below is on the level below, or refused; and a tree has at most twelve levels. So
//!   damaged pointers cannot make the walk circular or too deep.
//! - A walk that stops on level 0, or at what cannot be read, and is resumed visits every pointer
//!   exactly once.

use std::ops::{ControlFlow, Range};
use std::time::Duration;

use tarn_block::{BlockKind, BlockScope};
use tarn_cache::{Hint, PoolCache};
use tarn_ondisk as ondisk;
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::bookmark::{HEAD_LEVEL, SPILL_BLOCK, TraversalMark};
use tarn_ondisk::declare::{Corrupt, narrow, widen};
use tarn_ondisk::dnode::{Dnode, SLOT_BYTES};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{BlockId, Level, ObjectId, Txg};
use tarn_probe::Operation;

use crate::error::ObjectError;
use crate::head::{META_DNODE, PROJECT_USED, accounting_dnodes, check_meta, read_head};
use crate::tree_shape::{Geometry, PointerBlock, check_place, check_tree};
use crate::walk_ahead::Soon;

/// How many blocks of pointers or dnodes are prefetched at a time.
const PREFETCH_COUNT: usize = 64;

/// So often a visitor is asked whether the walk goes on to wait for what was prefetched.
const PATIENCE: Duration = Duration::from_millis(20);

/// One pointer, as a visitor sees it.
#[derive(Debug)]
pub struct Visit<'a> {
    /// Where it is: object set, object, level, block. The head has level [`HEAD_LEVEL`], a spill
    /// block the number [`SPILL_BLOCK`].
    pub mark: TraversalMark,
    /// The pointer.
    pub pointer: &'a BlockPointer,
    /// The dnode of its object; none for the head.
    pub dnode: Option<&'a Dnode>,
}

/// How the walk goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// As it comes.
    Continue,
    /// Not below this one.
    Skip,
    /// Not at all.
    Stop,
}

/// What a walk calls for each pointer.
pub trait Visitor {
    /// A pointer, before what is below it.
    fn enter(&mut self, _visit: &Visit<'_>) -> Step {
        Step::Continue
    }

    /// The same pointer, after what is below it.
    fn leave(&mut self, _visit: &Visit<'_>) -> Step {
        Step::Continue
    }

    /// An object, before its blocks.
    fn object(&mut self, _id: ObjectId, _dnode: &Dnode) -> Step {
        Step::Continue
    }

    /// Numbers that belong to no object, in a block of dnodes that is visited.
    fn free_numbers(&mut self, _first: ObjectId, _count: u64) -> Step {
        Step::Continue
    }

    /// What is below this pointer was prefetched, and has not come for a while. With `Stop` the
    /// walk stops before it.
    fn waits(&mut self, _visit: &Visit<'_>) -> Step {
        Step::Continue
    }

    /// What is below this pointer cannot be read, or makes no sense. With `Continue` the walk
    /// passes over it, and the pointer itself is left as usual; with `Skip` it is not.
    fn unreadable(&mut self, visit: &Visit<'_>, why: &ObjectError) -> Step;
}

/// What to visit.
#[derive(Debug, Clone, Copy, Default)]
pub struct WalkOptions {
    /// Only blocks born after this.
    pub born_after: Txg,
    /// Where an earlier walk stopped.
    pub resume: Option<TraversalMark>,
    /// Which holes are visited.
    pub holes: Holes,
    /// Blocks of dnodes and of pointers are prefetched until they take so much memory, in bytes,
    /// and are waited for in the order in which they come. Zero for some tens of blocks.
    pub ahead_bytes: u64,
}

/// Which holes a visitor is called for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Holes {
    /// None.
    #[default]
    None,
    /// All that may be new: those that were punched after [`WalkOptions::born_after`], and those
    /// that do not know when they were. The latter may always have been holes, or belong to an
    /// object whose number another one had before.
    MaybeNew,
}

/// How a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walked {
    /// Everything was visited.
    Completed,
    /// The visitor stopped it here. Everything before is done, this is not.
    Stopped(TraversalMark),
}

/// Visits all blocks of the object set whose head is at `root`, the head included.
#[doc(alias = "traverse_dataset")]
pub fn walk_objset(
    cache: &PoolCache,
    set: ObjectId,
    root: &BlockPointer,
    options: WalkOptions,
    visitor: &mut dyn Visitor,
    operation: &Operation,
) -> Walked {
    let mut walker = Walker::new(cache, set, options, visitor, operation);
    walked(walker.head(root))
}

/// Visits all blocks of one object.
pub fn walk_object(
    cache: &PoolCache,
    set: ObjectId,
    object: ObjectId,
    dnode: &Dnode,
    options: WalkOptions,
    visitor: &mut dyn Visitor,
    operation: &Operation,
) -> Walked {
    let mut walker = Walker::new(cache, set, options, visitor, operation);
    walked(walker.object(object, dnode))
}

type Flow = ControlFlow<TraversalMark>;
const ON: Flow = ControlFlow::Continue(());

fn walked(flow: Flow) -> Walked {
    match flow {
        ControlFlow::Continue(()) => Walked::Completed,
        ControlFlow::Break(mark) => Walked::Stopped(mark),
    }
}

/// A point of the walk: object, block of level 0 of it.
type Position = (u64, u64);

/// Where the accounting objects begin, behind all that the meta dnode leads to.
const META_END: u64 = PROJECT_USED.get();

struct Walker<'a> {
    cache: &'a PoolCache,
    set: ObjectId,
    options: WalkOptions,
    visitor: &'a mut dyn Visitor,
    operation: &'a Operation,
    /// How many objects are in a block of dnodes.
    per_block: u64,
    /// The blocks of dnodes below the blocks of pointers of level 1 before this one were
    /// prefetched.
    swept: u64,
    /// Why a block of the meta dnode, of this level and number, could not be read ahead. It is not
    /// read once more.
    unreadable: Option<(u8, u64, ObjectError)>,
}

/// The tree being walked.
struct Tree<'a> {
    object: ObjectId,
    dnode: &'a Dnode,
    geometry: Geometry,
}

impl<'a> Walker<'a> {
    fn new(
        cache: &'a PoolCache,
        set: ObjectId,
        options: WalkOptions,
        visitor: &'a mut dyn Visitor,
        operation: &'a Operation,
    ) -> Walker<'a> {
        Walker {
            cache,
            set,
            options,
            visitor,
            operation,
            per_block: widen(ondisk::dnode::DNODE_BYTES_MAX / SLOT_BYTES),
            swept: 0,
            unreadable: None,
        }
    }

    fn head(&mut self, root: &BlockPointer) -> Flow {
        let mark = TraversalMark {
            objset: self.set,
            object: META_DNODE,
            level: HEAD_LEVEL,
            block: 0,
        };
        if root.is_hole() || root.logical_birth <= self.options.born_after {
            return ON;
        }
        let visit = Visit {
            mark,
            pointer: root,
            dnode: None,
        };
        // Stopping here means: nothing is done.
        let start = self.start_of(META_DNODE);
        match self.visitor.enter(&visit) {
            Step::Stop => return ControlFlow::Break(start),
            Step::Skip => return self.leave(&visit, start),
            Step::Continue => {}
        }
        let head = read_head(self.cache, self.set, root, self.operation).and_then(|head| {
            let checked = check_meta(&head.meta_dnode);
            checked
                .map_err(|what| self.corrupt(META_DNODE, what))
                .map(|()| head)
        });
        let head = match head {
            Ok(head) => head,
            Err(why) => return self.failed(&visit, start, start, &why),
        };
        self.per_block = per_block(&head.meta_dnode);
        self.object(META_DNODE, &head.meta_dnode)?;
        // In the order of their numbers, which count down from the end.
        for (account, dnode) in accounting_dnodes(&head).into_iter().rev() {
            if !dnode.is_free() {
                self.checked_object(&visit, account, dnode)?;
            }
        }
        self.leave(&visit, start)
    }

    fn object(&mut self, id: ObjectId, dnode: &Dnode) -> Flow {
        if id != META_DNODE && self.is_object_done(id) {
            return ON;
        }
        match self.visitor.object(id, dnode) {
            Step::Stop => return ControlFlow::Break(self.start_of(id)),
            Step::Skip => return ON,
            Step::Continue => {}
        }
        let geometry = Geometry {
            object_type: dnode.object_type,
            indirect_shift: dnode.indirect_shift,
            block_size: dnode.data_block_size,
        };
        let tree = Tree {
            object: id,
            dnode,
            geometry,
        };
        let top = dnode.levels - 1;
        for (index, pointer) in (0..).zip(&dnode.pointers) {
            if id == META_DNODE && top == 1 {
                let from_here = dnode.pointers.iter().skip(narrow(index)).copied();
                self.sweep(&tree, (index..).zip(from_here));
            }
            self.pointer(&tree, pointer, top, index)?;
        }
        match &dnode.spill {
            Some(spill) => self.spill(&tree, spill),
            None => ON,
        }
    }

    /// An object whose dnode comes from the disk as it is.
    fn checked_object(&mut self, parent: &Visit<'_>, id: ObjectId, dnode: &Dnode) -> Flow {
        match check_tree(dnode) {
            Ok(()) => self.object(id, dnode),
            Err(what) => self.no_object(parent, id, what),
        }
    }

    /// An object whose dnode makes no sense.
    fn no_object(&mut self, parent: &Visit<'_>, id: ObjectId, what: Corrupt) -> Flow {
        if self.is_object_done(id) {
            return ON;
        }
        let why = self.corrupt(id, what);
        match self.visitor.unreadable(parent, &why) {
            Step::Stop => ControlFlow::Break(self.start_of(id)),
            Step::Continue | Step::Skip => ON,
        }
    }

    fn spill(&mut self, tree: &Tree<'_>, pointer: &BlockPointer) -> Flow {
        let (object, block) = (tree.object, SPILL_BLOCK);
        let mark = TraversalMark {
            objset: self.set,
            object,
            level: 0,
            block,
        };
        let is_done = self.is_done((object.get(), block + 1));
        if is_done || pointer.is_hole() || pointer.logical_birth <= self.options.born_after {
            return ON;
        }
        let visit = Visit {
            mark,
            pointer,
            dnode: Some(tree.dnode),
        };
        match self.visitor.enter(&visit) {
            Step::Stop => ControlFlow::Break(mark),
            Step::Skip | Step::Continue => self.leave(&visit, mark),
        }
    }

    /// One pointer and what is below it. Goes down once per level.
    fn pointer(&mut self, tree: &Tree<'_>, pointer: &BlockPointer, level: u8, block: u64) -> Flow {
        let span = tree.geometry.span(level, block);
        let is_meta = tree.object == META_DNODE;
        let first_in = |block: u64| block.saturating_mul(self.per_block).min(META_END);
        let end = match is_meta {
            true => (first_in(span.end), 0),
            // What a damaged tree has behind that is no block.
            false => (tree.object.get(), span.end.min(SPILL_BLOCK)),
        };
        if self.is_done(end) || self.is_old(pointer) {
            return ON;
        }
        let mark = TraversalMark {
            objset: self.set,
            object: tree.object,
            level: i64::from(level),
            block,
        };
        // Stopping before means: nothing below is done; and behind, on level 0: it alone is not.
        let stop = TraversalMark {
            level: 0,
            block: span.start,
            ..mark
        };
        let start = match is_meta {
            true => self.start_of(ObjectId::new(first_in(span.start))),
            false => stop,
        };
        let visit = Visit {
            mark,
            pointer,
            dnode: Some(tree.dnode),
        };
        let goes_below = match self.visitor.enter(&visit) {
            Step::Stop => return ControlFlow::Break(start),
            Step::Skip => false,
            Step::Continue => !pointer.is_hole(),
        };
        let has_resumed = is_meta && level == 0 && self.options.resume == Some(stop);
        if goes_below && !has_resumed {
            if let Err(what) = check_place(pointer, level, &tree.geometry) {
                let why = self.corrupt(tree.object, what);
                return self.failed(&visit, start, stop, &why);
            }
            let is_read = level > 0 || tree.geometry.object_type == ObjectType::Dnode;
            if is_read && self.wait_for(&visit).is_break() {
                return ControlFlow::Break(start);
            }
            if let Some(why) = self.take_unreadable(tree.object, level, block) {
                return self.failed(&visit, start, stop, &why);
            }
            if level > 0 {
                match self.read_pointers(tree.object, pointer, level, block) {
                    Ok(pointers) => self.children(tree, &pointers, level, block)?,
                    Err(why) => return self.failed(&visit, start, stop, &why),
                }
            } else if tree.geometry.object_type == ObjectType::Dnode {
                let scope = BlockScope::of_visit(mark, pointer);
                let read = self
                    .cache
                    .read(pointer, scope, Hint::DEMAND, self.operation);
                match read {
                    Ok(contents) => self.dnodes(&visit, &contents, block)?,
                    Err(why) => {
                        let why = self.read_error(tree.object, level, block, why);
                        return self.failed(&visit, start, stop, &why);
                    }
                }
            }
        }
        self.leave(&visit, stop)
    }

    /// All pointers of a block of them. Holes that were never anything are visited only where the
    /// options ask for them.
    fn children(
        &mut self,
        tree: &Tree<'_>,
        pointers: &PointerBlock,
        level: u8,
        block: u64,
    ) -> Flow {
        let is_read = level > 1 || tree.geometry.object_type == ObjectType::Dnode;
        let first = block << tree.geometry.fanout_shift();
        let mut wanted = Vec::new();
        let mut next = 0;
        for (entry, pointer) in pointers.present(0) {
            self.want_left_out(next..entry, &mut wanted);
            if !self.is_old(&pointer) {
                wanted.push((entry, pointer));
            }
            next = entry + 1;
        }
        self.want_left_out(next..pointers.count(), &mut wanted);
        for part in wanted.chunks(PREFETCH_COUNT) {
            if is_read && part.len() > 1 {
                let is_sound =
                    |pointer: &BlockPointer| !pointer.is_hole() && pointer.check().is_ok();
                let soon = part.iter().filter(|(_, pointer)| is_sound(pointer));
                let soon = soon.map(|(entry, pointer)| {
                    let block = first + widen(*entry);
                    (*pointer, self.scope(tree.object, level - 1, block))
                });
                let soon: Vec<_> = soon.collect();
                self.cache.prefetch(&soon, self.operation);
            }
            self.look_into(tree, part, (level, first));
            for (number, (entry, pointer)) in part.iter().enumerate() {
                if tree.object == META_DNODE && level == 2 {
                    let from_here = part[number..].iter();
                    self.sweep(
                        tree,
                        from_here.map(|(entry, pointer)| (first + widen(*entry), *pointer)),
                    );
                }
                self.pointer(tree, pointer, level - 1, first + widen(*entry))?;
            }
        }
        ON
    }

    /// Prefetches the blocks of dnodes below these pointers of level 1, as far as memory allows,
    /// unless that was done.
    fn sweep(&mut self, tree: &Tree<'_>, pointers: impl Iterator<Item = (u64, BlockPointer)>) {
        assert!(
            tree.object == META_DNODE,
            "the meta dnode leads to blocks of dnodes"
        );
        let mut pointers = pointers.peekable();
        if pointers.peek().is_none_or(|(first, _)| *first < self.swept) {
            return;
        }
        let mut soon = Soon::default();
        for (index, pointer) in pointers {
            if soon.is_full(self.options.ahead_bytes) || self.unreadable.is_some() {
                break;
            }
            self.swept = index + 1;
            let is_below_done = |level, block| {
                let end = tree.geometry.span(level, block).end;
                self.is_done((end.saturating_mul(self.per_block).min(META_END), 0))
            };
            let is_sound = check_place(&pointer, 1, &tree.geometry).is_ok();
            if !is_sound || pointer.is_hole() || self.is_old(&pointer) || is_below_done(1, index) {
                continue;
            }
            match self.read_pointers(tree.object, &pointer, 1, index) {
                Ok(below) => {
                    let first = index << tree.geometry.fanout_shift();
                    let below = below.present(0);
                    let below = below.map(|(entry, pointer)| (first + widen(entry), pointer));
                    for (block, pointer) in below {
                        if !self.is_old(&pointer) && !is_below_done(0, block) {
                            soon.add(&pointer, self.scope(tree.object, 0, block));
                        }
                    }
                }
                Err(why) => self.unreadable = Some((1, index, why)),
            }
        }
        soon.prefetch(self.cache, self.operation);
    }

    /// Prefetches the blocks of pointers of the objects in these blocks of dnodes, which are
    /// waited for, where the options ask for that.
    fn look_into(
        &mut self,
        tree: &Tree<'_>,
        part: &[(usize, BlockPointer)],
        (level, first): (u8, u64),
    ) {
        let is_of_dnodes = tree.geometry.object_type == ObjectType::Dnode && level == 1;
        let mut soon = Soon::default();
        for (entry, pointer) in part {
            let block = first + widen(*entry);
            if !is_of_dnodes || soon.is_full(self.options.ahead_bytes) || self.unreadable.is_some()
            {
                break;
            }
            let end = (block + 1).saturating_mul(self.per_block);
            let is_sound = check_place(pointer, 0, &tree.geometry).is_ok();
            if !is_sound || pointer.is_hole() || self.is_done((end, 0)) {
                continue;
            }
            let mark = TraversalMark {
                objset: self.set,
                object: tree.object,
                level: 0,
                block,
            };
            let visit = Visit {
                mark,
                pointer,
                dnode: Some(tree.dnode),
            };
            if self.wait_for(&visit).is_break() {
                break;
            }
            let scope = BlockScope::of_visit(mark, pointer);
            match self
                .cache
                .read(pointer, scope, Hint::DEMAND, self.operation)
            {
                Ok(contents) => {
                    let first = block.saturating_mul(self.per_block);
                    let all = ondisk::dnode::walk_block(&contents, pointer.byte_order());
                    let sound = all.map_while(|(slot, dnode)| Some((slot, dnode.ok()?)));
                    for (slot, dnode) in sound.filter(|(_, dnode)| dnode.levels > 1) {
                        let id = ObjectId::from(first.saturating_add(widen(slot)));
                        let tops = (0..).zip(&dnode.pointers);
                        for (index, top) in tops.filter(|(_, top)| !self.is_old(top)) {
                            soon.add(top, self.scope(id, dnode.levels - 1, index));
                        }
                    }
                }
                Err(why) => {
                    let why = self.read_error(tree.object, 0, block, why);
                    self.unreadable = Some((0, block, why));
                }
            }
        }
        soon.prefetch(self.cache, self.operation);
    }

    /// Waits for what is below a pointer while it is being prefetched, where the options ask for
    /// that, unless the visitor stops.
    fn wait_for(&mut self, visit: &Visit<'_>) -> ControlFlow<()> {
        let reads_ahead = self.options.ahead_bytes > 0;
        while reads_ahead && !self.cache.has_come_within(visit.pointer, PATIENCE) {
            if self.visitor.waits(visit) == Step::Stop {
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Why a block could not be read ahead.
    fn take_unreadable(&mut self, object: ObjectId, level: u8, block: u64) -> Option<ObjectError> {
        let is_this = |known: &mut (u8, u64, ObjectError)| {
            object == META_DNODE && (known.0, known.1) == (level, block)
        };
        self.unreadable.take_if(is_this).map(|(_, _, why)| why)
    }

    /// Entries that a block of pointers does not keep are holes.
    fn want_left_out(&self, entries: Range<usize>, wanted: &mut Vec<(usize, BlockPointer)>) {
        if !self.is_old(&BlockPointer::HOLE) {
            wanted.extend(entries.map(|entry| (entry, BlockPointer::HOLE)));
        }
    }

    /// All objects of a block of dnodes.
    fn dnodes(&mut self, parent: &Visit<'_>, contents: &[u8], block: u64) -> Flow {
        let slots = contents.len() / SLOT_BYTES;
        let first = block * widen(slots);
        let mut next = 0;
        for (slot, dnode) in ondisk::dnode::walk_block(contents, parent.pointer.byte_order()) {
            let id = ObjectId::from(first + widen(slot));
            self.free_numbers(first, next..slot)?;
            next = dnode.as_ref().map_or(slots, |dnode| slot + dnode.slots());
            match dnode {
                Ok(_) if id == META_DNODE => {}
                Ok(dnode) => self.checked_object(parent, id, &dnode)?,
                Err(what) => self.no_object(parent, id, what)?,
            }
        }
        self.free_numbers(first, next..slots)
    }

    /// Slots of a block of dnodes that are free.
    fn free_numbers(&mut self, first: u64, slots: Range<usize>) -> Flow {
        let start = first + widen(slots.start);
        // The number of the meta dnode is not a free number.
        let start = start.max(META_DNODE.get() + 1);
        let end = first + widen(slots.end);
        if start >= end {
            return ON;
        }
        let start = ObjectId::new(start);
        match self.visitor.free_numbers(start, end - start.get()) {
            Step::Stop => ControlFlow::Break(self.start_of(start)),
            Step::Continue | Step::Skip => ON,
        }
    }

    fn leave(&mut self, visit: &Visit<'_>, stop: TraversalMark) -> Flow {
        match self.visitor.leave(visit) {
            Step::Stop => ControlFlow::Break(stop),
            Step::Continue | Step::Skip => ON,
        }
    }

    fn failed(
        &mut self,
        visit: &Visit<'_>,
        start: TraversalMark,
        stop: TraversalMark,
        why: &ObjectError,
    ) -> Flow {
        match self.visitor.unreadable(visit, why) {
            Step::Stop => ControlFlow::Break(start),
            Step::Skip => ON,
            Step::Continue => self.leave(visit, stop),
        }
    }

    fn read_pointers(
        &self,
        object: ObjectId,
        pointer: &BlockPointer,
        level: u8,
        block: u64,
    ) -> Result<PointerBlock, ObjectError> {
        let scope = self.scope(object, level, block);
        let contents = self
            .cache
            .read_contents(pointer, scope, Hint::DEMAND, self.operation);
        let contents = contents.map_err(|why| self.read_error(object, level, block, why))?;
        PointerBlock::new(contents, pointer).map_err(|what| self.corrupt(object, what))
    }

    /// Where a block of pointers or dnodes belongs.
    fn scope(&self, object: ObjectId, level: u8, block: u64) -> BlockScope {
        let (level, block) = (Level::new(level), BlockId::from(block));
        BlockScope::of_object(self.set, object, level, block, BlockKind::Metadata)
    }

    /// The mark of an object of which nothing is done, though everything before it is. The meta
    /// dnode has the number of no object: what it leads to begins with the first.
    fn start_of(&self, object: ObjectId) -> TraversalMark {
        TraversalMark {
            objset: self.set,
            object: object.max(ObjectId::new(META_DNODE.get() + 1)),
            level: 0,
            block: 0,
        }
    }

    /// Where an earlier walk stopped: all that ends before or here is done.
    fn resumed_at(&self) -> Option<Position> {
        let mark = self.options.resume?;
        Some(match mark.object {
            META_DNODE => (mark.block.saturating_mul(self.per_block), 0),
            object => (object.get(), mark.block),
        })
    }

    /// True for what an earlier walk has done, that ends here.
    fn is_done(&self, end: Position) -> bool {
        self.resumed_at().is_some_and(|at| end <= at)
    }

    /// True for an object behind whose end an earlier walk stopped.
    fn is_object_done(&self, id: ObjectId) -> bool {
        self.resumed_at().is_some_and(|(at, _)| id.get() < at)
    }

    /// True for what the options leave out.
    fn is_old(&self, pointer: &BlockPointer) -> bool {
        if pointer.is_hole() {
            match self.options.holes {
                Holes::None => return true,
                Holes::MaybeNew if pointer.logical_birth.is_zero() => return false,
                Holes::MaybeNew => {}
            }
        }
        pointer.logical_birth <= self.options.born_after
    }

    fn corrupt(&self, object: ObjectId, what: Corrupt) -> ObjectError {
        ObjectError::Corrupt {
            set: self.set,
            object,
            what,
        }
    }

    fn read_error(
        &self,
        object: ObjectId,
        level: u8,
        block: u64,
        why: tarn_block::ReadError,
    ) -> ObjectError {
        let (level, block) = (Level::new(level), BlockId::from(block));
        ObjectError::Read {
            set: self.set,
            object,
            level,
            block,
            why: Box::new(why),
        }
    }
}

fn per_block(meta: &Dnode) -> u64 {
    (meta.data_block_size.get() / widen(SLOT_BYTES)).max(1)
}
