//! Allocation of object numbers.
//!
//! # Mechanism
//! A number is a slot of the meta dnode, so free numbers are found in its blocks. A cursor goes
//! through them from the start, and takes free ones. After each range that one indirect block
//! covers (32,768 numbers), it moves to the next range that is at most a quarter full; so ranges
//! that are nearly full are not searched again and again. After many frees it starts anew from the
//! beginning.
//!
//! Numbers that are allocated or freed only in memory are in
//! [`Taken`](crate::number_tables::Taken): unstored allocations look free in the blocks, and
//! unstored frees look used, and must not be reused before they are stored.
//!
//! # Invariants
//! - A number is allocated only if none of its slots is part of another object, in memory or in the
//!   blocks.

use std::sync::Arc;

use tarn_ondisk::declare::{narrow, widen};
use tarn_ondisk::dnode::OBJECT_BITS;
use tarn_ondisk::units::{BlockId, Level, ObjectId, Txg};
use tarn_probe::Operation;

use crate::error::ObjectError;
use crate::head::{is_special, occupied};
use crate::number_tables::Numbers;
use crate::object::Object;
use crate::objset::{NewObject, ObjectSet};
use crate::tx::Tx;

/// A range that holds more than this part of its objects is skipped.
const SPARSE_DIVISOR: u64 = 4;
/// After this many frees, allocation starts again from the beginning.
#[doc(alias = "dmu_rescan_dnode_threshold")]
const RESCAN_FREED: u64 = 131_072;

impl ObjectSet {
    /// Makes a new object, with a number that was free.
    ///
    /// # Errors
    /// A read error of the search for a free number.
    pub fn allocate(
        &self,
        tx: &Tx,
        new: NewObject,
        operation: &Operation,
    ) -> Result<Arc<Object>, ObjectError> {
        if self.is_sealed() {
            return Err(self.meta.is_encrypted_error());
        }
        let slots = new.slots.max(1);
        let mut numbers = self.numbers.lock();
        let id = self.find_free(&mut numbers, slots, operation)?;
        self.take(&mut numbers, id, slots);
        drop(numbers);
        Ok(self.begin(tx, id, new))
    }

    /// Makes a new object with this number, which must be free.
    ///
    /// # Errors
    /// The number is taken, or its block could not be read.
    pub fn claim(
        &self,
        tx: &Tx,
        id: ObjectId,
        new: NewObject,
        operation: &Operation,
    ) -> Result<Arc<Object>, ObjectError> {
        let slots = new.slots.max(1);
        let per_block = self.dnodes_per_block();
        let first = narrow(id.get() % per_block);
        let is_number = !is_special(id) && id.get() >> OBJECT_BITS == 0;
        if !is_number || first + slots > narrow(per_block) {
            return Err(self.no_such_object(id));
        }
        let mut numbers = self.numbers.lock();
        let used = self.used_slots(id.get() / per_block, operation)?;
        if used[first..first + slots].iter().any(|used| *used) {
            return Err(ObjectError::Exists {
                set: self.id(),
                object: id,
            });
        }
        self.take(&mut numbers, id.get(), slots);
        drop(numbers);
        Ok(self.begin(tx, id.get(), new))
    }

    /// Frees an object with all its blocks. Its number can be reused once that is stored. An object
    /// with very many blocks is better freed in parts before, with [`Object::free_range`].
    ///
    /// # Errors
    /// There is no such object, or its block could not be read.
    pub fn free_object(
        &self,
        tx: &Tx,
        id: ObjectId,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        if is_special(id) {
            return Err(self.no_such_object(id));
        }
        let object = self.object(id, operation)?;
        let slots = object.free_all(tx)?;
        self.taken.lock().free(id, slots, tx.txg());
        Ok(())
    }

    /// Updates the tables after the dnodes of these objects were written into the blocks.
    pub(crate) fn numbers_stored(&self, stored: &[(ObjectId, bool)], txg: Txg) {
        let mut taken = self.taken.lock();
        for (id, _) in stored {
            taken.stored(*id, txg);
        }
        drop(taken);
        let freed = stored.iter().filter(|(_, is_freed)| *is_freed).count();
        if freed > 0 {
            self.numbers.lock().freed += widen(freed);
        }
    }

    fn take(&self, numbers: &mut Numbers, id: u64, slots: usize) {
        self.taken.lock().fresh.insert(id, slots);
        let per_block = self.dnodes_per_block();
        if let Some((block, used)) = &mut numbers.current
            && *block == id / per_block
        {
            let first = narrow(id % per_block);
            used[first..first + slots].fill(true);
        }
    }

    fn begin(&self, tx: &Tx, id: u64, new: NewObject) -> Arc<Object> {
        let context = self.context.clone();
        let object = Object::new(context, ObjectId::from(id), new.dnode(), false);
        self.enter_new(&object);
        object.touch(tx).expect("a new object is not freed");
        object
    }

    /// Moves the cursor after the next free run of `slots`, and returns its start.
    fn find_free(
        &self,
        numbers: &mut Numbers,
        slots: usize,
        operation: &Operation,
    ) -> Result<u64, ObjectError> {
        let per_block = self.dnodes_per_block();
        let region = per_block << (self.meta_fanout_shift());
        while numbers.cursor >> OBJECT_BITS == 0 {
            if numbers.cursor.is_multiple_of(region) {
                self.enter_region(numbers, region, operation)?;
            }
            let block = numbers.cursor / per_block;
            if numbers
                .current
                .as_ref()
                .is_none_or(|(current, _)| *current != block)
            {
                match self.used_slots(block, operation) {
                    Ok(used) => numbers.current = Some((block, used)),
                    // Numbers of an unreadable block of dnodes are not allocated.
                    Err(ObjectError::Read { .. } | ObjectError::Corrupt { .. }) => {
                        numbers.cursor = (block + 1) * per_block;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            let (_, used) = numbers.current.as_ref().expect("read above");
            let from = narrow(numbers.cursor % per_block);
            let run = (from..used.len()).find(|&start| {
                used.get(start..start + slots)
                    .is_some_and(|run| !run.contains(&true))
            });
            if let Some(start) = run {
                let id = block * per_block + widen(start);
                numbers.cursor = id + widen(slots);
                return Ok(id);
            }
            numbers.cursor = (block + 1) * per_block;
        }
        Err(ObjectError::NumbersExhausted { set: self.id() })
    }

    /// Moves the cursor from the start of a region to that of the first one, from there on, that is
    /// sparse.
    fn enter_region(
        &self,
        numbers: &mut Numbers,
        region: u64,
        operation: &Operation,
    ) -> Result<(), ObjectError> {
        if numbers.freed > RESCAN_FREED {
            numbers.freed = 0;
            numbers.cursor = 0;
            numbers.current = None;
        }
        let mut index = numbers.cursor / region;
        let last = self.meta.max_block().get() >> self.meta_fanout_shift();
        while index <= last {
            let pointer = self.meta.stored_pointer(Level::new(1), index, operation);
            if pointer.is_ok_and(|pointer| pointer.fill() <= region / SPARSE_DIVISOR) {
                break;
            }
            index += 1;
        }
        numbers.cursor = index * region;
        Ok(())
    }

    fn meta_fanout_shift(&self) -> u32 {
        u32::from(self.meta.info().indirect_shift) - tarn_ondisk::dnode::POINTER_SHIFT
    }

    /// The slots of a block of dnodes that are in use, in memory or in the block.
    fn used_slots(&self, block: u64, operation: &Operation) -> Result<Vec<bool>, ObjectError> {
        let per_block = self.dnodes_per_block();
        let mut used = vec![false; narrow(per_block)];
        // Memory first: storing moves a number from there into the block, so the other order could
        // miss it in both.
        self.taken.lock().mark(block * per_block, &mut used);
        if self.meta.has_block(BlockId::from(block), operation)? {
            let contents = self.meta.read_block(BlockId::from(block), operation)?;
            for (slot, count) in occupied(&contents) {
                used[slot..slot + count].fill(true);
            }
        }
        if block == 0 {
            // The number of the meta dnode itself.
            used[0] = true;
        }
        Ok(used)
    }
}
