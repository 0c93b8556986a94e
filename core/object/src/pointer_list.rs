//! Lists of block pointers (bpobj), in objects of the MOS: deadlists, and blocks that wait to be
//! freed.
//!
//! # Mechanism
//! The object's data are the pointers, and its bonus counts them
//! ([`ondisk::bpobj`](tarn_ondisk::bpobj)). A list can take over another one by naming it in its
//! object of *sublists*; short ones are copied instead, so that lists do not nest needlessly deep.
//! All sizes in a list's bonus include its sublists.
//!
//! A list is emptied from its end, and its own pointers before its sublists, so that the rest is a
//! valid list after each pointer: emptying can stop anywhere and go on in a later group.
//!
//! # Invariants
//! - A list is a sublist of one other at most. The empty list that deadlists share is a sublist of
//!   none.
//! - A pointer in a list has no checksum (unless the dedup table needs it) and an embedded one no
//!   payload: blocks are not read through a list, and so it compresses.
//! - A list has no holes, nor has its object of sublists: a false count over a sparse object is
//!   detected at the first hole.
//! - Only the sync thread changes lists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tarn_ondisk::block_pointer::{BlockPointer, Dva};
use tarn_ondisk::bpobj::{PointerListHead, PointerListVersion};
use tarn_ondisk::checksum::Checksum;
use tarn_ondisk::declare::{ByteOrder, Corrupt, Stored, narrow, widen};
use tarn_ondisk::dnode::POINTER_SHIFT;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::units::{AllocatedSize, LogicalSize, ObjectId, PhysicalSize, Txg};
use tarn_probe::Operation;

use crate::buffer::TO_END;
use crate::error::ObjectError;
use crate::object::Object;
use crate::objset::{NewObject, ObjectSet};
use crate::traverse::Step;
use crate::tx::SyncTx;

/// The block size of nearly all lists, and of objects of sublists.
#[doc(alias = "SPA_OLD_MAXBLOCKSIZE")]
pub const LIST_BLOCK_BYTES: u64 = 128 << 10;
/// How many pointers are read at a time.
const BATCH: u64 = LIST_BLOCK_BYTES >> POINTER_SHIFT;
/// How deep lists may be nested before we think that they are damaged. OpenZFS keeps them within a
/// few.
const DEPTH_MAX: usize = 1024;

/// What is wrong with a list that has a hole.
const NEVER_WRITTEN: &str = "a block pointer that the head counts was never written";

const POINTER_BYTES: u64 = 1 << POINTER_SHIFT;
const NUMBER_BYTES: u64 = 8;

/// A list of block pointers.
#[doc(alias = "bpobj_t")]
#[derive(Clone)]
pub struct PointerList {
    set: Arc<ObjectSet>,
    object: Arc<Object>,
}

/// One entry of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The pointer, without what lists leave out.
    pub pointer: BlockPointer,
    /// Whether it is marked as freed: in livelists.
    pub is_freed: bool,
}

/// What blocks add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockSpace {
    /// What they take, less parity.
    pub allocated: i128,
    /// Their size after compression.
    pub compressed: i128,
    /// Their size before compression.
    pub uncompressed: i128,
}

impl BlockSpace {
    /// Adds a block, or takes it off.
    pub fn count(&mut self, set: &ObjectSet, entry: &Entry, sign: i128) {
        let sign = if entry.is_freed { -sign } else { sign };
        let pointer = &entry.pointer;
        let allocated = set.env().cache.io().deflated_size(pointer);
        self.allocated += sign * i128::from(allocated.get());
        self.compressed += sign * i128::from(pointer.physical_size().get());
        self.uncompressed += sign * i128::from(pointer.uncompressed_size());
    }
}

impl PointerList {
    /// Makes an empty list, of blocks of `block_bytes`.
    #[doc(alias = "bpobj_alloc")]
    pub fn create(
        set: &Arc<ObjectSet>,
        tx: &SyncTx,
        version: PointerListVersion,
        block_bytes: u64,
        operation: &Operation,
    ) -> Result<PointerList, ObjectError> {
        let new = NewObject::plain(ObjectType::BlockPointerList, block_bytes)
            .with_bonus(ObjectType::BlockPointerListHeader, version.size());
        let object = set.allocate(tx, new, operation)?;
        Ok(PointerList {
            set: set.clone(),
            object,
        })
    }

    /// Opens a list.
    pub fn open(
        set: &Arc<ObjectSet>,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<PointerList, ObjectError> {
        let object = set.object(id, operation)?;
        let list = PointerList {
            set: set.clone(),
            object,
        };
        let head = list.head()?;
        let info = list.object.info();
        if info.object_type != ObjectType::BlockPointerList {
            return Err(list.damaged("the object is not a list of block pointers"));
        }
        if head.count > info.end_offset() / POINTER_BYTES {
            return Err(list.damaged("there are fewer block pointers than the head counts"));
        }
        Ok(list)
    }

    /// Frees a list and all its sublists, but not the blocks they name.
    #[doc(alias = "bpobj_free")]
    pub fn free(
        set: &Arc<ObjectSet>,
        tx: &SyncTx,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        let mut lists = vec![id];
        while let Some(id) = lists.pop() {
            let list = PointerList::open(set, id, operation)?;
            let head = list.head()?;
            if !head.sublists.is_zero() {
                for index in 0..head.sublist_count {
                    lists.push(list.sublist(&head, index, operation)?);
                }
                set.free_object(tx, head.sublists, operation)?;
            }
            set.free_object(tx, id, operation)?;
        }
        Ok(())
    }

    /// Its object.
    pub fn id(&self) -> ObjectId {
        self.object.id()
    }

    /// What it holds.
    pub fn head(&self) -> Result<PointerListHead, ObjectError> {
        self.versioned_head().map(|(head, _)| head)
    }

    /// True when nothing is in it, nor in a sublist.
    pub fn is_empty(&self) -> Result<bool, ObjectError> {
        Ok(self.head()?.is_empty())
    }

    fn versioned_head(&self) -> Result<(PointerListHead, PointerListVersion), ObjectError> {
        PointerListHead::from_bonus(&self.object.bonus(), ByteOrder::Little)
            .map_err(|what| self.object.corrupt(what))
    }

    fn set_head(&self, tx: &SyncTx, head: &PointerListHead) -> Result<(), ObjectError> {
        let (_, version) = self.versioned_head()?;
        self.object.set_bonus(tx, &head.to_bonus(version))
    }

    /// Adds a block pointer at the end.
    #[doc(alias = "bpobj_enqueue")]
    pub fn append(
        &self,
        tx: &SyncTx,
        pointer: &BlockPointer,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        self.append_all(
            tx,
            &[Entry {
                pointer: *pointer,
                is_freed: false,
            }],
            operation,
        )
    }

    /// Adds block pointers at the end.
    pub fn append_all(
        &self,
        tx: &SyncTx,
        entries: &[Entry],
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        let mut head = self.head()?;
        let mut space = BlockSpace::default();
        for batch in entries.chunks(narrow(BATCH)) {
            let mut bytes = vec![0; batch.len() << POINTER_SHIFT];
            for (entry, place) in batch.iter().zip(bytes.chunks_exact_mut(1 << POINTER_SHIFT)) {
                assert!(!entry.pointer.is_hole(), "a list has no holes");
                space.count(&self.set, entry, 1);
                as_listed(entry).write_to(place);
            }
            self.object
                .write(tx, head.count * POINTER_BYTES, &bytes, operation)?;
            head.count += widen(batch.len());
            head.freed_count += widen(batch.iter().filter(|entry| entry.is_freed).count());
        }
        add_space(&mut head, &space);
        self.set_head(tx, &head)
    }

    /// Takes over another list, whose object is gone or a sublist afterwards. The caller has seen
    /// to it that it is not the empty list that datasets share.
    #[doc(alias = "bpobj_enqueue_subobj")]
    pub fn append_list(
        &self,
        tx: &SyncTx,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        let other = PointerList::open(&self.set, id, operation)?;
        let mut theirs = other.head()?;
        if theirs.is_empty() {
            return PointerList::free(&self.set, tx, id, operation);
        }
        let space = BlockSpace {
            allocated: i128::from(theirs.allocated.get()),
            compressed: i128::from(theirs.compressed.get()),
            uncompressed: i128::from(theirs.uncompressed.get()),
        };
        let copies_sublists = theirs.sublists.is_zero()
            || self
                .set
                .object(theirs.sublists, operation)?
                .max_block()
                .is_zero();
        let copies_pointers = copies_sublists && other.object.max_block().is_zero();
        let mut head = self.head()?;
        if copies_sublists && !theirs.sublists.is_zero() {
            let numbers = (0..theirs.sublist_count)
                .map(|index| other.sublist(&theirs, index, operation))
                .collect::<Result<Vec<_>, _>>()?;
            self.add_sublists(tx, &mut head, &numbers, operation)?;
            self.set.free_object(tx, theirs.sublists, operation)?;
            theirs.sublists = ObjectId::ZERO;
            theirs.sublist_count = 0;
            other.set_head(tx, &theirs)?;
        }
        if copies_pointers {
            let mut bytes = vec![0; narrow(theirs.count * POINTER_BYTES)];
            other.object.read(0, &mut bytes, operation)?;
            self.object
                .write(tx, head.count * POINTER_BYTES, &bytes, operation)?;
            head.count += theirs.count;
            head.freed_count += theirs.freed_count;
            self.set.free_object(tx, id, operation)?;
        } else {
            self.add_sublists(tx, &mut head, &[id], operation)?;
        }
        add_space(&mut head, &space);
        self.set_head(tx, &head)
    }

    /// Names lists as sublists.
    fn add_sublists(
        &self,
        tx: &SyncTx,
        head: &mut PointerListHead,
        lists: &[ObjectId],
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        let numbers = if head.sublists.is_zero() && head.sublist_count == 0 {
            let new = NewObject::plain(ObjectType::BlockPointerSublist, LIST_BLOCK_BYTES);
            self.set.allocate(tx, new, operation)?
        } else {
            self.numbers(head, operation)?
        };
        head.sublists = numbers.id();
        let bytes: Vec<u8> = lists.iter().flat_map(|id| id.get().to_le_bytes()).collect();
        numbers.write(tx, head.sublist_count * NUMBER_BYTES, &bytes, operation)?;
        head.sublist_count += widen(lists.len());
        Ok(())
    }

    /// The number of a sublist.
    fn sublist(
        &self,
        head: &PointerListHead,
        index: u64,
        operation: &Operation,
    ) -> Result<ObjectId, ObjectError> {
        let mut number = [0; 8];
        let numbers = self.numbers(head, operation)?;
        numbers.read(index * NUMBER_BYTES, &mut number, operation)?;
        match u64::from_le_bytes(number) {
            0 => Err(self.damaged("there are fewer sublists than the head counts")),
            number => Ok(ObjectId::from(number)),
        }
    }

    /// The object that names the sublists, which is large enough for all that are counted.
    fn numbers(
        &self,
        head: &PointerListHead,
        operation: &Operation,
    ) -> Result<Arc<Object>, ObjectError> {
        if head.sublists.is_zero() {
            return Err(self.damaged("the head counts sublists and says not where they are named"));
        }
        let numbers = self.set.object(head.sublists, operation)?;
        if head.sublist_count > numbers.info().end_offset() / NUMBER_BYTES {
            return Err(self.damaged("there are fewer sublists than the head counts"));
        }
        Ok(numbers)
    }

    /// Visits all pointers, those of sublists last. Nothing is changed.
    ///
    /// # Errors
    /// Something cannot be read or was never written, or a list is met twice: a few lists that name
    /// each other could be met without end.
    pub fn for_each(
        &self,
        operation: &Operation,
        mut visit: impl FnMut(&Entry) -> Step,
    ) -> Result<(), ObjectError> {
        let mut has_hole = false;
        self.walk(operation, |entry| {
            has_hole = entry.pointer.is_hole();
            match has_hole {
                true => Step::Stop,
                false => visit(entry),
            }
        })?;
        match has_hole {
            true => Err(self.damaged(NEVER_WRITTEN)),
            false => Ok(()),
        }
    }

    /// The same, where `visit` stops at holes itself.
    fn walk(
        &self,
        operation: &Operation,
        mut visit: impl FnMut(&Entry) -> Step,
    ) -> Result<(), ObjectError> {
        let mut lists = vec![(self.clone(), 0)];
        let mut met = BTreeSet::from([self.id()]);
        while let Some((list, depth)) = lists.pop() {
            let head = list.head()?;
            let mut end = head.count;
            while end > 0 {
                let start = (end - 1) / BATCH * BATCH;
                for entry in list.read_entries(start, end, operation)?.iter().rev() {
                    if visit(entry) == Step::Stop {
                        return Ok(());
                    }
                }
                end = start;
            }
            if depth >= DEPTH_MAX {
                return Err(list.damaged("lists of block pointers are nested too deep"));
            }
            for index in 0..head.sublist_count {
                let id = list.sublist(&head, index, operation)?;
                if !met.insert(id) {
                    return Err(list.damaged("a list of block pointers is named twice"));
                }
                lists.push((PointerList::open(&self.set, id, operation)?, depth + 1));
            }
        }
        Ok(())
    }

    /// What a part of a livelist still has: the blocks that were added and are not marked as freed
    /// after that, the oldest first. `None` when it contradicts itself: a block is freed that was
    /// not added, or added twice, or something is on it that is no block.
    #[doc(alias = "dsl_process_sub_livelist")]
    pub fn still_allocated(
        &self,
        operation: &Operation,
    ) -> Result<Option<Vec<BlockPointer>>, ObjectError> {
        let mut freed: BTreeMap<BlockKey, u64> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut left = Vec::new();
        let mut is_right = true;
        self.walk(operation, |entry| {
            // Holes are not noted: a hole is no block.
            is_right &= !entry.pointer.is_hole();
            let key = key_of(&entry.pointer);
            // A block in the dedup table is freed as often as it was written, and one that was
            // cloned as often as that was done.
            let may_repeat = entry.pointer.is_dedup() || is_clone(&entry.pointer);
            if entry.is_freed {
                let count = freed.entry(key).or_default();
                *count += 1;
                is_right &= *count == 1 || may_repeat;
            } else if let Some(count) = freed.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    freed.remove(&key);
                }
            } else {
                is_right &= seen.insert(key) || may_repeat;
                left.push(entry.pointer);
            }
            match is_right {
                true => Step::Continue,
                false => Step::Stop,
            }
        })?;
        left.reverse();
        Ok((is_right && freed.is_empty()).then_some(left))
    }

    /// Takes pointers off the list until it is empty, or `take` says to stop; the one it stops at
    /// stays.
    #[doc(alias = "bpobj_iterate")]
    pub fn take_each(
        &self,
        tx: &SyncTx,
        operation: &Operation,
        mut take: impl FnMut(&Entry) -> Step,
    ) -> Result<(), ObjectError> {
        let mut stack = vec![self.clone()];
        while let Some(list) = stack.last().cloned() {
            if list.take_own(tx, &stack, operation, &mut take)? == Step::Stop {
                return Ok(());
            }
            let head = list.head()?;
            if head.sublist_count > 0 {
                if stack.len() >= DEPTH_MAX {
                    return Err(list.damaged("lists of block pointers are nested too deep"));
                }
                let id = list.sublist(&head, head.sublist_count - 1, operation)?;
                stack.push(PointerList::open(&self.set, id, operation)?);
                continue;
            }
            stack.pop();
            if let Some(parent) = stack.last() {
                parent.drop_last_sublist(tx, &list, operation)?;
            }
        }
        self.drop_numbers(tx, operation)
    }

    /// The same for the pointers of this list itself. `lists` are those whose sizes count them.
    fn take_own(
        &self,
        tx: &SyncTx,
        lists: &[PointerList],
        operation: &Operation,
        take: &mut impl FnMut(&Entry) -> Step,
    ) -> Result<Step, ObjectError> {
        let mut end = self.head()?.count;
        let mut outcome = Step::Continue;
        let (mut space, mut freed) = (BlockSpace::default(), 0);
        if end == 0 {
            return Ok(outcome);
        }
        'batches: while end > 0 {
            let start = (end - 1) / BATCH * BATCH;
            for entry in self.read_entries(start, end, operation)?.iter().rev() {
                if entry.pointer.is_hole() {
                    return Err(self.damaged(NEVER_WRITTEN));
                }
                if take(entry) == Step::Stop {
                    outcome = Step::Stop;
                    break 'batches;
                }
                space.count(&self.set, entry, -1);
                freed += u64::from(entry.is_freed);
                end -= 1;
            }
        }
        let mut head = self.head()?;
        head.count = end;
        head.freed_count = head.freed_count.saturating_sub(freed);
        self.set_head(tx, &head)?;
        for list in lists {
            let mut head = list.head()?;
            add_space(&mut head, &space);
            list.set_head(tx, &head)?;
        }
        self.object
            .free_range(tx, end * POINTER_BYTES, TO_END, operation)?;
        Ok(outcome)
    }

    /// Frees the last sublist, which is empty.
    fn drop_last_sublist(
        &self,
        tx: &SyncTx,
        list: &PointerList,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        list.drop_numbers(tx, operation)?;
        let mut head = self.head()?;
        head.sublist_count -= 1;
        self.set_head(tx, &head)?;
        let numbers = self.numbers(&head, operation)?;
        numbers.free_range(
            tx,
            head.sublist_count * NUMBER_BYTES,
            NUMBER_BYTES,
            operation,
        )?;
        self.set.free_object(tx, list.id(), operation)
    }

    /// Frees the object that named sublists, if there are none left.
    fn drop_numbers(&self, tx: &SyncTx, operation: &Operation) -> Result<(), ObjectError> {
        let mut head = self.head()?;
        if head.sublists.is_zero() || head.sublist_count > 0 {
            return Ok(());
        }
        self.set.free_object(tx, head.sublists, operation)?;
        head.sublists = ObjectId::ZERO;
        self.set_head(tx, &head)
    }

    fn read_entries(
        &self,
        start: u64,
        end: u64,
        operation: &Operation,
    ) -> Result<Vec<Entry>, ObjectError> {
        let mut bytes = vec![0; narrow((end - start) * POINTER_BYTES)];
        self.object
            .read(start * POINTER_BYTES, &mut bytes, operation)?;
        let pointers = bytes.chunks_exact(1 << POINTER_SHIFT).map(|bytes| {
            let pointer = BlockPointer::from_bytes(bytes, ByteOrder::Little)?;
            pointer.check()?;
            Ok(Entry {
                pointer,
                is_freed: pointer.is_marked_free(),
            })
        });
        pointers
            .collect::<Result<_, Corrupt>>()
            .map_err(|what| self.object.corrupt(what))
    }

    fn damaged(&self, why: &'static str) -> ObjectError {
        self.object.corrupt(Corrupt::Inconsistent {
            what: "PointerListHead",
            offset: 0,
            why,
        })
    }
}

impl std::fmt::Debug for PointerList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PointerList({:?})", self.object)
    }
}

/// What tells a block from all others: where its first copy is, and since when.
type BlockKey = (Option<Dva>, Txg);

fn key_of(pointer: &BlockPointer) -> BlockKey {
    (pointer.dvas().next(), pointer.birth())
}

/// Whether the pointer is younger than the block: another had it first.
fn is_clone(pointer: &BlockPointer) -> bool {
    pointer.birth() != pointer.physical_birth()
}

/// A pointer as lists keep it.
fn as_listed(entry: &Entry) -> BlockPointer {
    let mut pointer = entry.pointer;
    if pointer.is_embedded() {
        let mut bare = BlockPointer::HOLE;
        bare.properties = pointer.properties;
        bare.logical_birth = pointer.logical_birth;
        pointer = bare;
    } else if !pointer.is_dedup() {
        pointer.checksum_words = Checksum::ZERO;
    }
    pointer.fill_word = 0;
    pointer.set_marked_free(entry.is_freed);
    pointer
}

/// Changes the sizes of a head. In a livelist freed blocks count negative, so sizes wrap as OpenZFS
/// has them wrap.
fn add_space(head: &mut PointerListHead, space: &BlockSpace) {
    let add = |size: u64, by: i128| {
        let sum = (i128::from(size) + by).rem_euclid(1 << 64);
        u64::try_from(sum).expect("it is less than 2^64")
    };
    head.allocated = AllocatedSize::from(add(head.allocated.get(), space.allocated));
    head.compressed = PhysicalSize::from(add(head.compressed.get(), space.compressed));
    head.uncompressed = LogicalSize::from(add(head.uncompressed.get(), space.uncompressed));
}
