//! Space maps: allocations and frees of each metaslab, in the MOS.
//!
//! # Mechanism
//! Each top-level vdev has an array of objects, one for each metaslab that was ever allocated from.
//! Such an object is a log ([`tarn_ondisk::space_map`]); its bonus has the sum, so that importing
//! reads no logs. Logs are read when `space` wants to allocate from a metaslab ([`LoadSpaceMap`]).
//!
//! Every pass of a sync appends the changes of `space` since the pass before ([`store`]). A log
//! that has grown far beyond its minimal length is rewritten (condensed) instead. That is done in
//! the first pass only: rewriting frees blocks.
//!
//! A pool that OpenZFS wrote can have newer changes in log space maps, which are shared by all
//! metaslabs ([`crate::log_space_maps`]). Their changes are kept in [`Unflushed`], and appended to
//! each metaslab's own log in the first txg that is stored here. No log space maps are written.
//!
//! # Invariants
//! - A vdev with blocks has its array: it is stored with the vdev itself ([`crate::add`]). Without
//!   it the free space is not known, and such a pool is not opened for writing.
//! - In the stored log of a metaslab, followed by its `Unflushed`, every range is allocated before
//!   it is freed.

use crate::directory::Directory;
use crate::error::{ImportError, PoolError};
use crate::features::SyncingFeatures;
use crate::mos_writer::MosWriter;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use tarn_dataset::task::FeatureCounts;
use tarn_host::lock::{Rank, RwLock};
use tarn_object::{NewObject, Object, ObjectSet};
use tarn_ondisk::declare::{ByteOrder, narrow, widen};
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::space_map::{
    Action, Entry, HISTOGRAM_BUCKETS, Region, SpaceMapDecoder, SpaceMapEncoder, SpaceMapHead,
    SpaceMapVersion,
};
use tarn_ondisk::units::{AllocatedSize, ObjectId, VdevId, VdevOffset};
use tarn_probe::{Operation, OperationKind};
use tarn_space::{
    Class, Geometry, LoadError, LoadSpaceMap, MetaslabChanges, MetaslabSummary, Range, RangeTree,
    Space, StoredMap,
};
use tarn_vdev::{AllocationBias, TopLevel};

/// Changes that are not in the metaslabs' own logs yet.
const UNFLUSHED: Rank = Rank::new(tarn_host::ranks::POOL + 40, "unflushed space").across_waits();

/// The block size of a metaslab's log. Appending rewrites the last block, so it is not large.
#[doc(alias = "zfs_metaslab_sm_blksz_no_log")]
const LOG_BLOCK_BYTES: u64 = 16 << 10;

/// The block size of the array of logs.
const ARRAY_BLOCK_BYTES: u64 = 512;

/// Bytes of a log that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// A log is rewritten when it is this many times as long as necessary, and longer than some blocks.
/// Like OpenZFS.
#[doc(alias = "zfs_condense_pct")]
const WORN_FACTOR: u64 = 2;

/// Shorter logs, in blocks, are not rewritten.
#[doc(alias = "zfs_metaslab_condense_block_threshold")]
const WORN_BLOCKS_MIN: u64 = 4;

const WORD_BYTES: u64 = 8;

/// A metaslab, by its vdev and index.
pub(crate) type MetaslabId = (VdevId, u64);

/// Changes of one metaslab in log space maps.
#[derive(Debug, Default, Clone)]
pub(crate) struct Changes {
    /// Allocated, and not freed since.
    pub(crate) allocated: RangeTree,
    /// Freed, and not allocated since.
    pub(crate) freed: RangeTree,
}

impl Changes {
    /// Applies the next entry of a log.
    pub(crate) fn apply(&mut self, action: Action, range: Range) {
        let (to, from) = match action {
            Action::Allocate => (&mut self.allocated, &mut self.freed),
            Action::Free => (&mut self.freed, &mut self.allocated),
        };
        // A range that was freed and allocated again is allocated in the metaslab's own log
        // already.
        let mut rest = RangeTree::new();
        rest.add_missing(range);
        rest.subtract(from);
        from.remove_present(range);
        for part in rest.iter() {
            to.add_missing(part);
        }
        debug_assert!(
            !from.overlaps(range),
            "no space is both allocated and freed by unflushed changes"
        );
    }

    /// Applies the changes to the allocated ranges.
    fn apply_to(&self, allocated: &mut RangeTree) {
        allocated.subtract(&self.freed);
        for range in self.allocated.iter() {
            allocated.add_missing(range);
        }
    }
}

/// Changes that are in no metaslab's own log yet.
pub(crate) type Unflushed = RwLock<BTreeMap<MetaslabId, Changes>>;

/// An empty table of such changes.
pub(crate) fn unflushed(changes: BTreeMap<MetaslabId, Changes>) -> Unflushed {
    RwLock::new(UNFLUSHED, changes)
}

/// Reads logs for `space`. It has only a weak reference to the MOS, which leads to `space` again.
pub(crate) struct Loader {
    pub(crate) mos: Weak<ObjectSet>,
    pub(crate) arrays: Arc<Arrays>,
    pub(crate) unflushed: Arc<Unflushed>,
}

impl LoadSpaceMap for Loader {
    fn load(&self, vdev: VdevId, index: u64) -> Result<RangeTree, LoadError> {
        let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::TxgSync);
        // Held during the read: a flush must not append a change to the log and remove it from the
        // table in between.
        let unflushed = self.unflushed.read();
        let unreadable = |cause: PoolError| LoadError::Unreadable {
            vdev,
            index,
            cause: Box::new(cause),
        };
        let mos = self.mos.upgrade().ok_or(PoolError::Closed);
        let mos = mos.map_err(unreadable)?;
        let directory = Directory::new(&mos, &operation);
        let mut allocated = RangeTree::new();
        if let Some(map) = self
            .arrays
            .map_of(directory, vdev, index)
            .map_err(unreadable)?
        {
            let object = directory.object(map).map_err(unreadable)?;
            let region = self.arrays.region(vdev, index).map_err(unreadable)?;
            let mut impossible = None;
            let each = |entry: Entry| {
                let range = Range::new(entry.start, entry.size);
                let done = match entry.action {
                    Action::Allocate => allocated.add(range),
                    Action::Free => allocated.remove(range),
                };
                if done.is_err() {
                    impossible = Some(range);
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            };
            read_log(&object, SpaceMapDecoder::new(region), &operation, each)
                .map_err(unreadable)?;
            if let Some(range) = impossible {
                return Err(LoadError::Impossible { vdev, index, range });
            }
        }
        if let Some(changes) = unflushed.get(&(vdev, index)) {
            changes.apply_to(&mut allocated);
        }
        Ok(allocated)
    }
}

/// Calls `each` for every entry of a log, until it returns false: a damaged log may have too many.
pub(crate) fn read_log(
    object: &Arc<Object>,
    mut decoder: SpaceMapDecoder,
    operation: &Operation,
    mut each: impl FnMut(Entry) -> ControlFlow<()>,
) -> Result<(), PoolError> {
    let id = object.id();
    let corrupt = |cause| PoolError::Corrupt { object: id, cause };
    let (head, _) = head_of(object)?;
    let mut at = 0;
    // Whole blocks at a time: no entry crosses a block.
    let block = narrow(object.block_size().get());
    let step = READ_BYTES.next_multiple_of(block);
    let mut bytes = vec![0; step];
    while at < head.length {
        let count = narrow((head.length - at).min(widen(step)));
        object
            .read(at, &mut bytes[..count], operation)
            .map_err(|cause| PoolError::Object { object: id, cause })?;
        for entry in decoder.entries(&bytes[..count], ByteOrder::Little) {
            if each(entry.map_err(corrupt)?).is_break() {
                return Ok(());
            }
        }
        at += widen(count);
    }
    Ok(())
}

/// The array of space maps of each vdev.
#[derive(Debug)]
pub(crate) struct Arrays {
    vdevs: RwLock<BTreeMap<VdevId, Array>>,
}

#[derive(Debug, Clone, Copy)]
struct Array {
    object: ObjectId,
    metaslab_shift: u32,
    ashift: u32,
}

/// The arrays; held for a moment only.
const ARRAYS: Rank = Rank::new(tarn_host::ranks::POOL + 41, "space map arrays");

impl Arrays {
    /// The arrays of these vdevs.
    pub(crate) fn of(vdevs: &[TopLevel]) -> Arrays {
        let arrays = Arrays {
            vdevs: RwLock::new(ARRAYS, BTreeMap::new()),
        };
        vdevs.iter().for_each(|vdev| arrays.add(vdev));
        arrays
    }

    /// Adds a vdev, or its new array. A vdev without an array is left out: object 0 is the meta
    /// dnode's.
    pub(crate) fn add(&self, vdev: &TopLevel) {
        if vdev.metaslab_array.is_zero() {
            return;
        }
        let array = Array {
            object: vdev.metaslab_array,
            metaslab_shift: vdev.metaslab_shift,
            ashift: vdev.ashift,
        };
        self.vdevs.write().insert(vdev.id, array);
    }

    /// Removes a vdev that has left.
    pub(crate) fn remove(&self, vdev: VdevId) {
        self.vdevs.write().remove(&vdev);
    }

    fn array(&self, vdev: VdevId) -> Result<Array, PoolError> {
        let vdevs = self.vdevs.read();
        let array = vdevs.get(&vdev).copied();
        array.ok_or(PoolError::NoSpaceMaps { vdev })
    }

    /// The range of offsets that a metaslab's log describes.
    pub(crate) fn region(&self, vdev: VdevId, index: u64) -> Result<Region, PoolError> {
        let array = self.array(vdev)?;
        Ok(Region {
            start: VdevOffset::from(index << array.metaslab_shift),
            size: AllocatedSize::from(1 << array.metaslab_shift),
            shift: array.ashift,
        })
    }

    /// The metaslab of an offset.
    pub(crate) fn metaslab_of(&self, vdev: VdevId, offset: VdevOffset) -> Option<MetaslabId> {
        let vdevs = self.vdevs.read();
        let array = vdevs.get(&vdev)?;
        Some((vdev, offset.get().checked_shr(array.metaslab_shift)?))
    }

    /// The object of a metaslab's log, if there is one.
    pub(crate) fn map_of(
        &self,
        directory: Directory<'_>,
        vdev: VdevId,
        index: u64,
    ) -> Result<Option<ObjectId>, PoolError> {
        map_in(directory, self.array(vdev)?.object, index)
    }
}

/// The object of a metaslab's log in an array, if there is one.
pub(crate) fn map_in(
    directory: Directory<'_>,
    array: ObjectId,
    index: u64,
) -> Result<Option<ObjectId>, PoolError> {
    let mut word = [0; 8];
    directory
        .object(array)?
        .read(index * WORD_BYTES, &mut word, directory.operation())
        .map_err(|cause| PoolError::Object {
            object: array,
            cause,
        })?;
    let id = ObjectId::new(u64::from_le_bytes(word));
    Ok((!id.is_zero()).then_some(id))
}

/// The allocation class of a vdev.
fn class_of(vdev: &TopLevel) -> Class {
    match vdev.allocation_bias {
        AllocationBias::Log => Class::Log,
        AllocationBias::Special => Class::Special,
        AllocationBias::Dedup => Class::Dedup,
        AllocationBias::None if vdev.is_log => Class::Log,
        AllocationBias::None => Class::Normal,
    }
}

/// The geometry of a vdev for `space`.
pub(crate) fn geometry_of(vdev: &TopLevel) -> Geometry {
    Geometry {
        size: vdev.asize,
        metaslab_shift: vdev.metaslab_shift,
        ashift: vdev.ashift,
        class: class_of(vdev),
    }
}

/// Refuses a vdev without an array of space maps. OpenZFS takes such a vdev for empty, since it
/// creates the array before the first block is allocated there. Early versions of Tarn did not:
/// their blocks are in no space map, and may be anywhere.
#[doc(alias = "vdev_metaslab_init")]
pub(crate) fn refuse_without_array(vdev: &TopLevel) -> Result<(), ImportError> {
    // OpenZFS frees the space maps of a log vdev that it has emptied one txg before the vdev is
    // gone.
    let is_leaving = vdev.is_log && vdev.is_non_allocating;
    match vdev.metaslab_shift != 0 && vdev.metaslab_array.is_zero() && !is_leaving {
        true => Err(ImportError::NoSpaceMaps {
            vdev: vdev.name.clone(),
        }),
        false => Ok(()),
    }
}

/// Adds all metaslabs of a vdev to `space`, with the sums in the bonuses of their logs.
pub(crate) fn add_stored_vdev(
    space: &Space,
    vdev: &TopLevel,
    arrays: &Arrays,
    unflushed: &Unflushed,
    directory: Directory<'_>,
) -> Result<(), PoolError> {
    if vdev.metaslab_shift == 0 || vdev.metaslab_array.is_zero() {
        return Ok(());
    }
    let count = tarn_vdev::sizes::metaslab_count(vdev.asize, vdev.metaslab_shift);
    let mut metaslabs = Vec::new();
    for index in 0..count {
        let stored = match arrays.map_of(directory, vdev.id, index)? {
            None => None,
            Some(map) => Some(summary_of(directory, map, index, vdev.ashift)?),
        };
        let mut summary = stored.unwrap_or(MetaslabSummary {
            index,
            map: StoredMap::Absent,
            allocated: AllocatedSize::ZERO,
            histogram: None,
        });
        if let Some(changes) = unflushed.read().get(&(vdev.id, index)) {
            let allocated = summary.allocated.get() + changes.allocated.bytes().get();
            let allocated = allocated.saturating_sub(changes.freed.bytes().get());
            summary.allocated = AllocatedSize::from(allocated);
            summary.histogram = None;
            summary.map = StoredMap::Present;
        }
        if summary.map == StoredMap::Present {
            metaslabs.push(summary);
        }
    }
    space.add_vdev(vdev.id, geometry_of(vdev), metaslabs);
    Ok(())
}

/// The contents of a log's bonus.
fn summary_of(
    directory: Directory<'_>,
    map: ObjectId,
    index: u64,
    ashift: u32,
) -> Result<MetaslabSummary, PoolError> {
    let (head, has_histogram) = head_of(&*directory.object(map)?)?;
    let histogram = has_histogram.then(|| {
        let mut by_bytes = Box::new([0; tarn_space::range_tree::HISTOGRAM_BUCKETS]);
        for (bucket, count) in (narrow(u64::from(ashift))..).zip(head.histogram) {
            if let Some(place) = by_bytes.get_mut(bucket) {
                *place = count;
            }
        }
        by_bytes
    });
    Ok(MetaslabSummary {
        index,
        map: StoredMap::Present,
        allocated: AllocatedSize::from(u64::try_from(head.allocated).unwrap_or(0)),
        histogram,
    })
}

/// The inputs for storing space maps.
pub(crate) struct Storing<'a> {
    pub(crate) writer: MosWriter<'a>,
    pub(crate) arrays: &'a Arrays,
    pub(crate) space: &'a Space,
    /// The form of entries that the pool's features allow.
    pub(crate) version: SpaceMapVersion,
    /// Feature counts: each log with a histogram is a use of `spacemap_histogram`.
    pub(crate) features: &'a SyncingFeatures<'a>,
}

/// Appends the changes since the pass before to the logs of their metaslabs.
#[doc(alias = "metaslab_sync")]
pub(crate) fn store(storing: &Storing<'_>, changes: &[MetaslabChanges]) -> Result<(), PoolError> {
    let has_changes = |metaslab: &&MetaslabChanges| {
        // What the checkpoint keeps stays allocated.
        !metaslab.allocated.is_empty() || !metaslab.freed.is_empty()
    };
    for metaslab in changes.iter().filter(has_changes) {
        let (vdev, index) = (metaslab.vdev, metaslab.index);
        let object = open_or_create(storing, vdev, index)?;
        let (head, _) = head_of(&object)?;
        let mut log = Appender::new(storing, vdev, index, &object, head)?;
        if is_worn(storing, vdev, index, &object, &head)
            && let Some(all) = storing
                .space
                .allocated_ranges(vdev, index, storing.writer.tx.txg())
        {
            log.begin_anew(storing)?;
            log.put(Action::Allocate, all.iter());
        } else {
            log.put(Action::Allocate, metaslab.allocated.iter().copied());
            log.put(Action::Free, metaslab.freed.iter().copied());
        }
        log.finish(storing)?;
    }
    Ok(())
}

/// Appends changes from log space maps.
pub(crate) fn flush(
    storing: &Storing<'_>,
    (vdev, index): MetaslabId,
    changes: &Changes,
) -> Result<(), PoolError> {
    let object = open_or_create(storing, vdev, index)?;
    let (head, _) = head_of(&object)?;
    let mut log = Appender::new(storing, vdev, index, &object, head)?;
    log.put(Action::Allocate, changes.allocated.iter());
    log.put(Action::Free, changes.freed.iter());
    log.finish(storing)
}

/// Creates the array of a new vdev.
pub(crate) fn create_array(writer: MosWriter<'_>) -> Result<ObjectId, PoolError> {
    let new = NewObject::plain(ObjectType::ObjectArray, ARRAY_BLOCK_BYTES);
    Ok(writer.create(new)?.id())
}

/// Creates an empty space map.
#[doc(alias = "space_map_alloc")]
pub(crate) fn create_map(
    writer: MosWriter<'_>,
    features: &SyncingFeatures<'_>,
    block_bytes: u64,
) -> Result<Arc<Object>, PoolError> {
    assert!(
        block_bytes.is_power_of_two() && block_bytes >= WORD_BYTES,
        "a block of a space map has whole words"
    );
    let bonus = match features.is_enabled(Feature::SpacemapHistogram) {
        true => {
            features.increment(Feature::SpacemapHistogram)?;
            <SpaceMapHead as tarn_ondisk::declare::Stored>::SIZE
        }
        false => SpaceMapHead::SIZE_V0,
    };
    let new = NewObject::plain(ObjectType::SpaceMap, block_bytes)
        .with_bonus(ObjectType::SpaceMapHeader, bonus);
    writer.create(new)
}

/// The header of a space map, and whether it has a histogram. Its length is checked, as reads end
/// and appends begin there.
pub(crate) fn head_of(object: &Object) -> Result<(SpaceMapHead, bool), PoolError> {
    let corrupt = |cause| PoolError::Corrupt {
        object: object.id(),
        cause,
    };
    let head = SpaceMapHead::from_bonus(&object.bonus(), ByteOrder::Little);
    let (head, has_histogram) = head.map_err(corrupt)?;
    let room = object.info().end_offset();
    if head.length > room || !head.length.is_multiple_of(WORD_BYTES) {
        return Err(corrupt(tarn_ondisk::declare::Corrupt::Inconsistent {
            what: "space map",
            offset: 8,
            why: "it is longer than its object, or not whole words",
        }));
    }
    Ok((head, has_histogram))
}

fn open_or_create(
    storing: &Storing<'_>,
    vdev: VdevId,
    index: u64,
) -> Result<Arc<Object>, PoolError> {
    let directory = storing.writer.directory();
    if let Some(map) = storing.arrays.map_of(directory, vdev, index)? {
        return directory.object(map);
    }
    let object = create_map(storing.writer, storing.features, LOG_BLOCK_BYTES)?;
    let array = directory.object(storing.arrays.array(vdev)?.object)?;
    let word = object.id().get().to_le_bytes();
    storing.writer.write(&array, index * WORD_BYTES, &word)?;
    debug_assert_eq!(
        storing.arrays.map_of(directory, vdev, index).ok().flatten(),
        Some(object.id()),
        "the array leads to the space map of the metaslab"
    );
    Ok(object)
}

/// Whether a log is to be rewritten instead of appended to.
fn is_worn(
    storing: &Storing<'_>,
    vdev: VdevId,
    index: u64,
    object: &Object,
    head: &SpaceMapHead,
) -> bool {
    let block = object.block_size().get();
    if storing.writer.tx.pass() != 1 || head.length <= WORN_BLOCKS_MIN * block {
        return false;
    }
    let txg = storing.writer.tx.txg();
    let ranges = storing.space.allocated_ranges_max(vdev, index, txg);
    let needed = ranges.map(|count| widen(count) * 2 * WORD_BYTES);
    needed.is_some_and(|needed| needed.saturating_mul(WORN_FACTOR) <= head.length)
}

/// The state of appending to one log.
struct Appender<'a> {
    object: &'a Arc<Object>,
    head: SpaceMapHead,
    vdev: VdevId,
    index: u64,
    region: Region,
    encoder: SpaceMapEncoder,
    tx: (tarn_ondisk::units::Txg, u32),
    version: SpaceMapVersion,
}

impl<'a> Appender<'a> {
    fn new(
        storing: &Storing<'_>,
        vdev: VdevId,
        index: u64,
        object: &'a Arc<Object>,
        head: SpaceMapHead,
    ) -> Result<Appender<'a>, PoolError> {
        let region = storing.arrays.region(vdev, index)?;
        let block = object.block_size().get();
        assert!(
            head.length.is_multiple_of(WORD_BYTES),
            "a space map with a valid head is whole words"
        );
        Ok(Appender {
            object,
            head,
            vdev,
            index,
            region,
            encoder: SpaceMapEncoder::new(region, storing.version, block, head.length),
            tx: (storing.writer.tx.txg(), storing.writer.tx.pass()),
            version: storing.version,
        })
    }

    /// Empties the log: all allocated ranges follow.
    fn begin_anew(&mut self, storing: &Storing<'_>) -> Result<(), PoolError> {
        assert_eq!(
            self.tx.1, 1,
            "a space map is condensed in the first pass only"
        );
        let block = self.object.block_size().get();
        self.object
            .free_range(
                storing.writer.tx,
                block,
                tarn_object::TO_END,
                storing.writer.operation,
            )
            .map_err(|cause| PoolError::Object {
                object: self.object.id(),
                cause,
            })?;
        self.head.length = 0;
        self.head.allocated = 0;
        self.encoder = SpaceMapEncoder::new(self.region, self.version, block, 0);
        Ok(())
    }

    fn put(&mut self, action: Action, ranges: impl Iterator<Item = Range>) {
        let mut is_begun = false;
        for range in ranges {
            debug_assert!(
                self.region.start <= range.start
                    && range.end() <= self.region.start.checked_add(self.region.size),
                "a metaslab changes within its region"
            );
            debug_assert!(!range.size.is_zero(), "a range is not empty");
            if !is_begun {
                self.encoder.begin(action, self.tx.0, self.tx.1);
                is_begun = true;
            }
            self.encoder.run(action, None, range.start, range.size);
            let bytes = range.size.get().cast_signed();
            // The header is from disk: a wrong sum stays wrong.
            let allocated = self.head.allocated;
            self.head.allocated = match action {
                Action::Allocate => allocated.saturating_add(bytes),
                Action::Free => allocated.saturating_sub(bytes),
            };
        }
    }

    fn finish(mut self, storing: &Storing<'_>) -> Result<(), PoolError> {
        let at = self.head.length;
        self.head.length = self.encoder.length();
        self.head.object = self.object.id().get();
        self.head.histogram = self.histogram(storing);
        let appended = self.encoder.finish();
        assert_eq!(
            at + widen(appended.len()),
            self.head.length,
            "the head counts what is appended"
        );
        storing.writer.write(self.object, at, &appended)?;
        set_head(storing.writer, self.object, &self.head)?;
        debug_assert!(
            head_of(self.object).is_ok_and(|(head, _)| head.length == self.head.length),
            "the object has what its head counts"
        );
        Ok(())
    }

    /// Free ranges by size, where `space` knows them; otherwise the stored histogram.
    fn histogram(&self, storing: &Storing<'_>) -> [u64; HISTOGRAM_BUCKETS] {
        let Some(by_bytes) = storing.space.histogram(self.vdev, self.index) else {
            return self.head.histogram;
        };
        let mut histogram = [0; HISTOGRAM_BUCKETS];
        let shift = narrow(u64::from(self.region.shift));
        for (bucket, count) in by_bytes.iter().enumerate().skip(shift) {
            histogram[(bucket - shift).min(HISTOGRAM_BUCKETS - 1)] += count;
        }
        histogram
    }
}

/// Replaces the bonus of a space map.
pub(crate) fn set_head(
    writer: MosWriter<'_>,
    object: &Object,
    head: &SpaceMapHead,
) -> Result<(), PoolError> {
    let bytes = tarn_ondisk::declare::Stored::to_bytes(head);
    // A map from before histograms keeps its short header.
    let room = object.bonus().len().min(bytes.len());
    writer.set_bonus(object, &bytes[..room])
}

/// The form of entries that the pool's features allow.
pub(crate) fn version_of(has_two_words: bool) -> SpaceMapVersion {
    match has_two_words {
        true => SpaceMapVersion::V2,
        false => SpaceMapVersion::V1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_ondisk::units::{Guid, Txg};
    use tarn_vdev::{Standing, VdevKind};

    fn vdev(array: u64) -> TopLevel {
        TopLevel {
            id: VdevId::new(3),
            guid: Guid::new(1),
            kind: VdevKind::File,
            name: "/disks/a".to_string(),
            ashift: 12,
            asize: AllocatedSize::from(1 << 30),
            metaslab_array: ObjectId::new(array),
            metaslab_shift: 24,
            is_log: false,
            is_non_allocating: false,
            allocation_bias: AllocationBias::None,
            deflate_ratio: 512,
            create_txg: Txg::ZERO,
            standing: Standing::ONLINE,
        }
    }

    #[test]
    fn the_meta_dnode_is_no_array_of_space_maps() {
        let arrays = Arrays::of(&[vdev(0)]);
        assert!(matches!(
            arrays.array(VdevId::new(3)),
            Err(PoolError::NoSpaceMaps { .. })
        ));
        assert_eq!(arrays.metaslab_of(VdevId::new(3), VdevOffset::ZERO), None);
        arrays.add(&vdev(7));
        assert_eq!(
            arrays.array(VdevId::new(3)).unwrap().object,
            ObjectId::new(7)
        );
    }

    #[test]
    fn only_a_log_that_is_leaving_may_have_no_array_of_space_maps() {
        assert!(refuse_without_array(&vdev(7)).is_ok());
        let refused = refuse_without_array(&vdev(0)).unwrap_err().to_string();
        assert!(refused.contains("vdev /disks/a has no"), "{refused}");
        let mut log = vdev(0);
        log.is_log = true;
        assert!(refuse_without_array(&log).is_err());
        log.is_non_allocating = true;
        assert!(refuse_without_array(&log).is_ok());
        // It is not divided into metaslabs yet.
        let undivided = TopLevel {
            metaslab_shift: 0,
            ..vdev(0)
        };
        assert!(refuse_without_array(&undivided).is_ok());
    }
}
