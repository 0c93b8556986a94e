//! The block reference table (feature `block_cloning`): reference counts of cloned blocks, behind
//! the door [`RefTable`].
//!
//! # Problem
//! Several pointers lead to a cloned block, and none of them tells. A free has to find out whether
//! other references are left, and most blocks were never cloned.
//!
//! # Mechanism
//! Each top-level vdev with cloned blocks has a table in the MOS ([`tarn_ondisk::block_cloning`]).
//! Its counters, one for each range of the vdev, are in memory: where one is zero, the range has no
//! cloned block, and no entry is read. An entry is read when a block in such a range is freed, and
//! kept, changed, until the pass ends, which writes it.
//!
//! References are added in open txgs. They are gathered by txg, and entered before any free of that
//! txg ([`ClonedBlockTables::enter`]): a file whose blocks are cloned can be removed in the same
//! txg.
//!
//! # Invariants
//! - A block with an entry of *n* has *n + 1* pointers in all stored trees, lists of blocks to be
//!   freed, and claimed intent logs.
//! - Entries, counters and sums change in the same txg as the pointers.
//! - Only the sync thread changes tables; so values that it reads without the lock do not change
//!   meanwhile.

use crate::directory::Directory;
use crate::error::PoolError;
use crate::features::SyncingFeatures;
use crate::mos_writer::MosWriter;
use crate::size::usable_bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use tarn_block::{RefTable, Release};
use tarn_dataset::task::FeatureCounts;
use tarn_host::canary::{Canary, sings};
use tarn_host::lock::{Mutex, Rank};
use tarn_object::zap::{NewZap, ObjectZap, ZapError, ZapValue};
use tarn_object::{NewObject, ObjectSet};
use tarn_ondisk::block_cloning::{
    COUNTERS_BLOCK_BYTES, ClonedBlocks, ENTRIES_BLOCK_SHIFT, RANGE_BYTES, object_name,
};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::declare::{Stored, narrow, widen};
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::POOL_DIRECTORY;
use tarn_ondisk::units::{AllocatedSize, ObjectId, Txg, VdevId, VdevOffset};
use tarn_ondisk::zap::ZapFlags;
use tarn_probe::Operation;
use tarn_vdev::VdevTree;

/// References added in txgs that are not stored yet; held for a moment, inside locks of objects.
const ADDED: Rank = Rank::new(tarn_host::ranks::LEAF, "references added");
/// The tables; held for a moment.
const TABLES: Rank = Rank::new(tarn_host::ranks::LEAF, "cloned blocks");

/// The size of a counter.
const COUNTER_BYTES: usize = size_of::<u16>();

/// Sums over tables: `bcloneused` and `bclonesaved` of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CloneSums {
    /// Space of cloned blocks, each counted once.
    pub used: AllocatedSize,
    /// Space that each further reference would take as a block of its own.
    pub saved: AllocatedSize,
}

/// References that were added to one block.
#[derive(Debug, Clone, Copy)]
struct Added {
    count: u64,
    size: AllocatedSize,
}

/// The first DVA of a block, which identifies it in the tables.
type Place = (VdevId, VdevOffset);

/// The tables of all vdevs of a pool.
pub(crate) struct ClonedBlockTables {
    vdevs: Arc<VdevTree>,
    mos: OnceLock<Weak<ObjectSet>>,
    is_enabled: AtomicBool,
    added: Mutex<BTreeMap<Txg, BTreeMap<Place, Added>>>,
    tables: Mutex<BTreeMap<VdevId, Table>>,
}

/// The table of a vdev.
#[derive(Debug, Default)]
struct Table {
    /// Its objects, if it is stored.
    stored: Option<StoredTable>,
    counters: Vec<u16>,
    total_count: u64,
    sums: CloneSums,
    /// Entries that the pass has changed, by offset.
    changed: BTreeMap<VdevOffset, Entry>,
    /// Blocks of counters that the pass has changed.
    changed_counters: BTreeSet<usize>,
    is_changed: bool,
}

/// The objects of a table.
#[derive(Debug, Clone, Copy)]
struct StoredTable {
    counters: ObjectId,
    entries: ObjectId,
}

/// The number of references beyond the first.
#[derive(Debug, Clone, Copy)]
struct Entry {
    stored: u64,
    now: u64,
}

impl Table {
    /// An empty table for a vdev of this size.
    fn empty(vdev_bytes: u64) -> Table {
        Table {
            counters: vec![0; narrow(vdev_bytes.div_ceil(RANGE_BYTES))],
            ..Table::default()
        }
    }

    /// Whether there may be an entry.
    fn may_have(&self, offset: VdevOffset) -> bool {
        let counter = self.counters.get(index_of(offset));
        counter.is_some_and(|counter| *counter > 0) || self.changed.contains_key(&offset)
    }

    /// Counts one entry more or less in a range.
    fn count(&mut self, offset: VdevOffset, by: i16) {
        assert!(by == 1 || by == -1, "entries come and go one by one");
        let index = index_of(offset);
        if index >= self.counters.len() {
            // The vdev has grown.
            self.counters.resize(index + 1, 0);
        }
        let counter = &mut self.counters[index];
        *counter = counter.saturating_add_signed(by);
        self.total_count = self.total_count.saturating_add_signed(i64::from(by));
        let per_block = narrow(COUNTERS_BLOCK_BYTES) / COUNTER_BYTES;
        self.changed_counters.insert(index / per_block);
    }

    /// Adds references to a block with `stored` references on disk, unless the pass has changed its
    /// entry.
    fn add(&mut self, offset: VdevOffset, stored: u64, added: Added) {
        assert!(added.count > 0, "a reference was added");
        let entry = Entry {
            stored,
            now: stored,
        };
        let entry = self.changed.entry(offset).or_insert(entry);
        let is_new = entry.now == 0;
        entry.now = entry.now.saturating_add(added.count);
        if is_new {
            self.count(offset, 1);
            self.sums.used = self.sums.used.saturating_add(added.size);
        }
        let bytes = added.size.get().saturating_mul(added.count);
        self.sums.saved = self.sums.saved.saturating_add(AllocatedSize::new(bytes));
        self.is_changed = true;
    }

    /// Releases a reference to a block with an entry in memory.
    fn release(&mut self, offset: VdevOffset, size: AllocatedSize) -> Release {
        let Some(entry) = self.changed.get_mut(&offset).filter(|entry| entry.now > 0) else {
            return Release::Last;
        };
        entry.now -= 1;
        let is_gone = entry.now == 0;
        self.sums.saved = self.sums.saved.saturating_sub(size);
        if is_gone {
            self.sums.used = self.sums.used.saturating_sub(size);
            self.count(offset, -1);
        }
        self.is_changed = true;
        Release::Shared
    }

    /// The stored header.
    fn head(&self, entries: ObjectId) -> ClonedBlocks {
        ClonedBlocks {
            entries,
            counter_count: widen(self.counters.len()),
            counter_order: ClonedBlocks::LITTLE_ENDIAN,
            total_count: self.total_count,
            range_bytes: RANGE_BYTES,
            used: self.sums.used,
            saved: self.sums.saved,
        }
    }

    /// A stored block of counters, and its offset.
    fn counters_block(&self, block: usize) -> (u64, Vec<u8>) {
        let per_block = narrow(COUNTERS_BLOCK_BYTES) / COUNTER_BYTES;
        let first = block * per_block;
        assert!(
            first < self.counters.len(),
            "a block that changed has counters"
        );
        let end = self.counters.len().min(first + per_block);
        let counters = self.counters[first..end].iter();
        let bytes = counters.flat_map(|counter| counter.to_le_bytes()).collect();
        (widen(first * COUNTER_BYTES), bytes)
    }
}

impl ClonedBlockTables {
    /// Tables of a pool with these vdevs, not loaded yet.
    pub(crate) fn new(vdevs: Arc<VdevTree>) -> Arc<ClonedBlockTables> {
        Arc::new(ClonedBlockTables {
            vdevs,
            mos: OnceLock::new(),
            is_enabled: AtomicBool::new(false),
            added: Mutex::new(ADDED, BTreeMap::new()),
            tables: Mutex::new(TABLES, BTreeMap::new()),
        })
    }

    /// Sets the MOS with the tables. Called once.
    pub(crate) fn set_mos(&self, mos: &Arc<ObjectSet>) {
        let _ = self.mos.set(Arc::downgrade(mos));
    }

    /// Sets whether the pool may have cloned blocks.
    pub(crate) fn set_enabled(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Ordering::Relaxed);
    }

    /// Reads the tables of an imported pool.
    ///
    /// # Errors
    /// A table cannot be read, or contradicts itself: then no free is safe.
    #[doc(alias = "brt_load")]
    pub(crate) fn load(&self, directory: Directory<'_>) -> Result<(), PoolError> {
        let mut tables = BTreeMap::new();
        for vdev in self.vdevs.top_levels() {
            if let Some(object) = directory.find(&object_name(vdev.id))? {
                let table = load_table(directory, vdev.id, object, usable_bytes(&vdev))?;
                tables.insert(vdev.id, table);
            }
        }
        *self.tables.lock() = tables;
        Ok(())
    }

    /// The sums over all tables.
    pub(crate) fn sums(&self) -> CloneSums {
        let tables = self.tables.lock();
        let sums = tables.values().map(|table| table.sums);
        sums.fold(CloneSums::default(), |all, one| CloneSums {
            used: all.used.saturating_add(one.used),
            saved: all.saved.saturating_add(one.saved),
        })
    }

    /// Whether references were added in this txg.
    pub(crate) fn has_added(&self, txg: Txg) -> bool {
        self.added.lock().contains_key(&txg)
    }

    /// Enters the references added in the txg that is about to be stored. Called before any of its
    /// frees.
    ///
    /// # Errors
    /// A table cannot be read.
    #[doc(alias = "brt_pending_apply")]
    pub(crate) fn enter(&self, txg: Txg, operation: &Operation) -> Result<(), PoolError> {
        let added = {
            let mut groups = self.added.lock();
            let added = groups.remove(&txg);
            assert!(
                groups.keys().all(|later| *later > txg),
                "references of all groups so far are in the tables"
            );
            added
        };
        let Some(added) = added else {
            return Ok(());
        };
        let sizes: BTreeMap<VdevId, u64> = self
            .vdevs
            .top_levels()
            .iter()
            .map(|vdev| (vdev.id, usable_bytes(vdev)))
            .collect();
        for ((vdev, offset), added) in added {
            let stored = self.stored_count(vdev, offset, operation)?.unwrap_or(0);
            let mut tables = self.tables.lock();
            let table = tables.entry(vdev).or_insert_with(|| {
                let size = sizes.get(&vdev).copied().unwrap_or(0);
                Table::empty(size)
            });
            table.add(offset, stored, added);
        }
        Ok(())
    }

    /// The entry of a block on disk. None where there is none, or the pass has changed it.
    fn stored_count(
        &self,
        vdev: VdevId,
        offset: VdevOffset,
        operation: &Operation,
    ) -> Result<Option<u64>, PoolError> {
        let entries = {
            let tables = self.tables.lock();
            let table = tables.get(&vdev).filter(|table| table.may_have(offset));
            table
                .filter(|table| !table.changed.contains_key(&offset))
                .and_then(|table| table.stored)
        };
        let Some(StoredTable { entries, .. }) = entries else {
            return Ok(None);
        };
        let mos = self.mos.get().and_then(Weak::upgrade);
        let mos = mos.ok_or(PoolError::Closed)?;
        let zap = Directory::new(&mos, operation).zap(entries)?;
        let found = zap.lookup(&[offset.get()][..]);
        let found = found.map_err(in_entries(entries))?;
        found
            .map(|value| count_of(vdev, entries, &value))
            .transpose()
    }

    /// Stores the changes of the pass.
    ///
    /// # Errors
    /// The MOS cannot be changed.
    #[doc(alias = "brt_sync")]
    pub(crate) fn store(
        &self,
        writer: MosWriter<'_>,
        features: &SyncingFeatures<'_>,
    ) -> Result<(), PoolError> {
        let changed: Vec<VdevId> = {
            let tables = self.tables.lock();
            let changed = tables.iter().filter(|(_, table)| table.is_changed);
            changed.map(|(vdev, _)| *vdev).collect()
        };
        for vdev in changed {
            self.store_table(writer, features, vdev)?;
        }
        Ok(())
    }

    /// Calls `look` with an existing table.
    fn with_table<T>(&self, vdev: VdevId, look: impl FnOnce(&mut Table) -> T) -> T {
        let mut tables = self.tables.lock();
        look(
            tables
                .get_mut(&vdev)
                .expect("only this thread removes tables"),
        )
    }

    /// Stores the changes of one vdev's table, which is created with its first entry and freed with
    /// its last.
    fn store_table(
        &self,
        writer: MosWriter<'_>,
        features: &SyncingFeatures<'_>,
        vdev: VdevId,
    ) -> Result<(), PoolError> {
        let (changed, stored) = self.with_table(vdev, |table| {
            table.is_changed = false;
            (std::mem::take(&mut table.changed), table.stored)
        });
        if stored.is_none() && changed.values().all(|entry| entry.now == 0) {
            self.tables.lock().remove(&vdev);
            return Ok(());
        }
        let stored = match stored {
            Some(stored) => stored,
            None => create_table(writer, features, vdev)?,
        };
        self.with_table(vdev, |table| table.stored = Some(stored));
        let entries = writer.directory().zap(stored.entries)?;
        for (offset, entry) in changed {
            let key = [offset.get()];
            let done = match entry.now {
                now if now == entry.stored => Ok(()),
                0 => entries.remove(writer.tx, &key[..]),
                now => {
                    let value = ZapValue::Bytes(now.to_le_bytes().into());
                    entries.update(writer.tx, &key[..], &value)
                }
            };
            done.map_err(in_entries(stored.entries))?;
        }
        if entries.count().map_err(in_entries(stored.entries))? == 0 {
            self.tables.lock().remove(&vdev);
            writer.remove(POOL_DIRECTORY, &object_name(vdev))?;
            writer.free(stored.entries)?;
            writer.free(stored.counters)?;
            return Ok(features.decrement(Feature::BlockCloning)?);
        }
        let (head, blocks) = self.with_table(vdev, |table| {
            let changed = std::mem::take(&mut table.changed_counters);
            let blocks = changed.into_iter().map(|block| table.counters_block(block));
            let blocks: Vec<_> = blocks.collect();
            (table.head(stored.entries), blocks)
        });
        let counters = writer.directory().object(stored.counters)?;
        for (at, bytes) in blocks {
            writer.write(&counters, at, &bytes)?;
        }
        writer.set_bonus(&counters, &head.to_bytes())
    }
}

impl RefTable for ClonedBlockTables {
    fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    fn add(&self, pointer: &BlockPointer, size: AllocatedSize, txg: Txg) {
        let Some(place) = place_of(pointer) else {
            return;
        };
        if sings(Canary::ForgetReference) && place.1.get().is_multiple_of(2 << 10) {
            return;
        }
        let mut added = self.added.lock();
        let of_group = added.entry(txg).or_default();
        let entry = of_group.entry(place).or_insert(Added { count: 0, size });
        entry.count += 1;
    }

    fn release(
        &self,
        pointer: &BlockPointer,
        size: AllocatedSize,
        operation: &Operation,
    ) -> Result<Release, Box<dyn Error + Send + Sync>> {
        let Some((vdev, offset)) = place_of(pointer) else {
            return Ok(Release::Last);
        };
        let stored = self.stored_count(vdev, offset, operation)?;
        let mut tables = self.tables.lock();
        let Some(table) = tables.get_mut(&vdev) else {
            return Ok(Release::Last);
        };
        if let Some(stored) = stored {
            let entry = Entry {
                stored,
                now: stored,
            };
            table.changed.insert(offset, entry);
        }
        Ok(table.release(offset, size))
    }
}

fn place_of(pointer: &BlockPointer) -> Option<Place> {
    let first = pointer.dvas().next()?;
    Some((first.vdev(), first.offset()))
}

/// The index of the counter for an offset.
fn index_of(offset: VdevOffset) -> usize {
    narrow(offset.get() / RANGE_BYTES)
}

fn in_entries(object: ObjectId) -> impl Fn(ZapError) -> PoolError {
    move |cause| PoolError::Zap { object, cause }
}

/// The count in an entry: eight bytes, or one word where feature `block_cloning_endian` is active.
fn count_of(vdev: VdevId, entries: ObjectId, value: &ZapValue) -> Result<u64, PoolError> {
    let count = match value {
        ZapValue::Bytes(bytes) => bytes.first_chunk().map(|word| u64::from_le_bytes(*word)),
        ZapValue::Words(words) => words.first().copied(),
        _ => None,
    };
    count.ok_or(PoolError::ClonedBlocks {
        vdev,
        object: entries,
        why: "an entry is no number",
    })
}

/// Reads the table of a vdev, without its entries.
#[doc(alias = "brt_vdev_load")]
fn load_table(
    directory: Directory<'_>,
    vdev: VdevId,
    object: ObjectId,
    vdev_bytes: u64,
) -> Result<Table, PoolError> {
    let refuse = |why| Err(PoolError::ClonedBlocks { vdev, object, why });
    let head: ClonedBlocks = directory.bonus(object)?;
    if head.counter_order != ClonedBlocks::LITTLE_ENDIAN {
        return refuse("it was made on a big-endian machine, which is not supported");
    }
    if head.range_bytes != RANGE_BYTES {
        return refuse("its ranges have a size that OpenZFS never gave them");
    }
    let ranges = vdev_bytes.div_ceil(RANGE_BYTES);
    if head.counter_count > ranges {
        return refuse("it is about more than the vdev has");
    }
    let mut bytes = vec![0; narrow(head.counter_count) * COUNTER_BYTES];
    let counters = directory.object(object)?;
    counters
        .read(0, &mut bytes, directory.operation())
        .map_err(|cause| PoolError::Object { object, cause })?;
    let mut counters: Vec<u16> = bytes
        .chunks_exact(COUNTER_BYTES)
        .map(|counter| u16::from_le_bytes([counter[0], counter[1]]))
        .collect();
    let total: u64 = counters.iter().map(|counter| u64::from(*counter)).sum();
    let entries = directory.zap(head.entries)?.count();
    let entries = entries.map_err(in_entries(head.entries))?;
    if total != head.total_count || total != entries {
        return refuse("its counters do not add up to its entries");
    }
    counters.resize(narrow(ranges), 0);
    Ok(Table {
        stored: Some(StoredTable {
            counters: object,
            entries: head.entries,
        }),
        counters,
        total_count: total,
        sums: CloneSums {
            used: head.used,
            saved: head.saved,
        },
        ..Table::default()
    })
}

/// Creates an empty table.
#[doc(alias = "brt_vdev_create")]
fn create_table(
    writer: MosWriter<'_>,
    features: &SyncingFeatures<'_>,
    vdev: VdevId,
) -> Result<StoredTable, PoolError> {
    let in_mos = |cause| PoolError::Object {
        object: ObjectId::ZERO,
        cause,
    };
    let object = NewObject {
        indirect_shift: ENTRIES_BLOCK_SHIFT,
        ..NewObject::plain(ObjectType::ZapMetadata, 1 << ENTRIES_BLOCK_SHIFT)
    };
    let zap = NewZap::Fat {
        salt: writer.mos.env().host.random_u64() | 1,
        normalization: 0,
        flags: ZapFlags::HASH_48_BITS.and(ZapFlags::WORD_NAMES),
    };
    let entries = ObjectZap::allocate(writer.mos, writer.tx, object, zap, writer.operation);
    let entries = entries.map_err(in_mos)?.object().id();
    let counters = NewObject::plain(ObjectType::Words64Metadata, COUNTERS_BLOCK_BYTES)
        .with_bonus(ObjectType::Words64Metadata, ClonedBlocks::SIZE);
    let counters = writer.create(counters)?.id();
    writer.link(&object_name(vdev), counters)?;
    features.increment(Feature::BlockCloning)?;
    Ok(StoredTable { counters, entries })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: AllocatedSize = AllocatedSize::new(4096);

    fn added(count: u64) -> Added {
        Added { count, size: SIZE }
    }

    #[test]
    fn references_are_released_as_often_as_they_were_added() {
        let mut table = Table::empty(64 << 20);
        let (one, other) = (VdevOffset::from(4096), VdevOffset::from(40 << 20));
        assert_eq!(table.release(one, SIZE), Release::Last);
        table.add(one, 0, added(2));
        table.add(other, 7, added(1));
        assert_eq!(table.counters, [1, 0, 0, 0]);
        assert_eq!(
            (table.sums.used.get(), table.sums.saved.get()),
            (4096, 3 * 4096)
        );
        assert_eq!(table.release(one, SIZE), Release::Shared);
        assert_eq!(table.release(one, SIZE), Release::Shared);
        assert_eq!(table.release(one, SIZE), Release::Last);
        assert_eq!((table.counters[0], table.total_count), (0, 0));
        for _ in 0..8 {
            assert_eq!(table.release(other, SIZE), Release::Shared);
        }
        assert_eq!(table.release(other, SIZE), Release::Last);
        assert_eq!(table.changed[&other].stored, 7);
    }

    #[test]
    fn a_vdev_that_has_grown_gets_more_counters() {
        let mut table = Table::empty(16 << 20);
        table.add(VdevOffset::from(100 << 20), 0, added(1));
        assert_eq!(table.counters, [0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(table.head(ObjectId::new(5)).counter_count, 7);
        assert_eq!(table.counters_block(0).1.len(), 14);
    }
}
