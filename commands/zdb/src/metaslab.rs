//! Metaslabs in the MOS: their space maps, and the later changes in log space maps.
//!
//! The allocator's code for reading them is not used: a check that shares code with the checked
//! code agrees with its mistakes.

use crate::look::Look;
use std::collections::BTreeMap;
use tarn_engine::inspect::InspectError;
use tarn_ondisk::declare::{ByteOrder, Corrupt, narrow, widen};
use tarn_ondisk::features::Feature;
use tarn_ondisk::pool_directory as name;
use tarn_ondisk::space_map::{Action, Entry, Region, SpaceMapDecoder, SpaceMapHead};
use tarn_ondisk::units::{AllocatedSize, ObjectId, Txg, VdevId, VdevOffset};
use tarn_pool::PoolError;
use tarn_space::{Range, RangeTree};
use tarn_vdev::{AllocationBias, TopLevel, VdevConfig};

/// The ZAP of a top-level vdev, in its configuration.
pub const TOP_ZAP: &str = "com.delphix:vdev_zap_top";

/// Bytes of a space map that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// A vdev with more metaslabs than this keeps one for the intent log.
#[doc(alias = "zfs_embedded_slog_min_ms")]
const EMBEDDED_LOG_METASLABS_MIN: usize = 64;

/// Largest plausible number of metaslabs of a vdev.
const METASLABS_MAX: u64 = 1 << 24;

/// The allocation class of a metaslab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MetaslabClass {
    /// All blocks.
    Normal,
    /// The intent log.
    Log,
    /// The intent log, on a vdev of the normal class.
    EmbeddedLog,
    /// Metadata and small blocks.
    Special,
    /// Dedup tables.
    Dedup,
}

/// A metaslab.
#[derive(Debug, Clone)]
pub struct Metaslab {
    /// Its index on the vdev.
    pub index: u64,
    /// Where it begins.
    pub start: VdevOffset,
    /// How large it is.
    pub size: AllocatedSize,
    /// The object of its space map, and the map's header; none when it was never used.
    pub map: Option<(ObjectId, SpaceMapHead)>,
    /// Whether the map has a histogram.
    pub has_histogram: bool,
    /// The txg from which on its changes are in log space maps; zero where there are none.
    pub unflushed: Txg,
    /// What it is for.
    pub class: MetaslabClass,
}

impl Metaslab {
    /// Allocated bytes by its map.
    pub fn allocated(&self) -> i64 {
        self.map.as_ref().map_or(0, |(_, head)| head.allocated)
    }

    /// The range that its map describes.
    pub fn region(&self, ashift: u32) -> Region {
        Region {
            start: self.start,
            size: self.size,
            shift: ashift,
        }
    }
}

/// An object that a configuration names, if it names one.
pub fn object_of(config: &VdevConfig, name: &str) -> Option<ObjectId> {
    config.other_object(name).filter(|object| !object.is_zero())
}

/// The ZAP of a top-level vdev.
pub fn top_zap(look: &Look<'_>, vdev: VdevId) -> Option<ObjectId> {
    let root = look.pool().vdevs().config();
    object_of(root.children.get(vdev.index())?, TOP_ZAP)
}

/// The array with the unflushed txg of each metaslab.
pub fn unflushed_array(look: &Look<'_>, vdev: VdevId) -> Result<Option<ObjectId>, InspectError> {
    let Some(zap) = top_zap(look, vdev) else {
        return Ok(None);
    };
    let value = look.directory().value_in(zap, name::VDEV_UNFLUSHED_TXGS)?;
    Ok(value.and_then(|value| value.as_word()).map(ObjectId::new))
}

/// The metaslabs of a vdev.
pub fn metaslabs(look: &Look<'_>, vdev: &TopLevel) -> Result<Vec<Metaslab>, InspectError> {
    let count = vdev
        .asize
        .get()
        .checked_shr(vdev.metaslab_shift)
        .unwrap_or(0);
    if vdev.metaslab_array.is_zero() || count > METASLABS_MAX {
        return Ok(Vec::new());
    }
    let maps = words(look, vdev.metaslab_array, count)?;
    let unflushed = match unflushed_array(look, vdev.id)? {
        Some(array) => words(look, array, count)?,
        None => Vec::new(),
    };
    let mut metaslabs = Vec::new();
    for (index, map) in (0..).zip(maps) {
        let (map, has_histogram) = match map {
            0 => (None, false),
            map => {
                let id = ObjectId::new(map);
                let (head, has_histogram) = head(look, id)?;
                (Some((id, head)), has_histogram)
            }
        };
        metaslabs.push(Metaslab {
            index,
            start: VdevOffset::from(index << vdev.metaslab_shift),
            size: AllocatedSize::from(1 << vdev.metaslab_shift),
            map,
            has_histogram,
            unflushed: Txg::from(unflushed.get(narrow(index)).copied().unwrap_or(0)),
            class: class_of(vdev),
        });
    }
    mark_embedded_log(vdev, &mut metaslabs);
    Ok(metaslabs)
}

/// The allocation class of a vdev's metaslabs.
pub fn class_of(vdev: &TopLevel) -> MetaslabClass {
    match vdev.allocation_bias {
        AllocationBias::Log => MetaslabClass::Log,
        AllocationBias::Special => MetaslabClass::Special,
        AllocationBias::Dedup => MetaslabClass::Dedup,
        AllocationBias::None if vdev.is_log => MetaslabClass::Log,
        AllocationBias::None => MetaslabClass::Normal,
    }
}

/// Marks the embedded log metaslab of a large vdev: the emptiest one. It is not stored which one it
/// is: each import chooses it.
fn mark_embedded_log(vdev: &TopLevel, metaslabs: &mut [Metaslab]) {
    let is_large = metaslabs.len() > EMBEDDED_LOG_METASLABS_MIN;
    if is_large && class_of(vdev) == MetaslabClass::Normal {
        let emptiest = metaslabs
            .iter_mut()
            .min_by_key(|metaslab| metaslab.allocated());
        if let Some(emptiest) = emptiest {
            emptiest.class = MetaslabClass::EmbeddedLog;
        }
    }
}

/// The first words of an object.
fn words(look: &Look<'_>, id: ObjectId, count: u64) -> Result<Vec<u64>, InspectError> {
    let object = look.directory().object(id)?;
    let mut bytes = vec![0; narrow(count) * 8];
    object
        .read(0, &mut bytes, look.operation())
        .map_err(|cause| InspectError::Object { object: id, cause })?;
    let (words, _) = bytes.as_chunks::<8>();
    Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect())
}

/// The header of a space map, and whether it has a histogram.
pub fn head(look: &Look<'_>, id: ObjectId) -> Result<(SpaceMapHead, bool), InspectError> {
    let object = look.directory().object(id)?;
    let head = SpaceMapHead::from_bonus(&object.bonus(), ByteOrder::Little);
    Ok(head.map_err(|cause| PoolError::Corrupt { object: id, cause })?)
}

/// The words of a space map, a piece at a time. A piece ends where a block of the map's object
/// does.
///
/// # Errors
/// It cannot be read, or is longer than its object.
pub fn for_each_piece(
    look: &Look<'_>,
    id: ObjectId,
    each: &mut dyn FnMut(&[u8]) -> Result<(), Corrupt>,
) -> Result<(), InspectError> {
    let object = look.directory().object(id)?;
    let corrupt = |cause| PoolError::Corrupt { object: id, cause };
    let (head, _) = head(look, id)?;
    if head.length > object.info().end_offset() || !head.length.is_multiple_of(8) {
        return Err(corrupt(Corrupt::Inconsistent {
            what: "space map",
            offset: 8,
            why: "it is longer than its object, or not whole words",
        })
        .into());
    }
    let block = narrow(object.block_size().get());
    let mut bytes = vec![0; READ_BYTES.next_multiple_of(block)];
    let mut at = 0;
    while at < head.length {
        let count = narrow((head.length - at).min(widen(bytes.len())));
        object
            .read(at, &mut bytes[..count], look.operation())
            .map_err(|cause| InspectError::Object { object: id, cause })?;
        each(&bytes[..count]).map_err(corrupt)?;
        at += widen(count);
    }
    Ok(())
}

/// All entries of a space map.
pub fn for_each_entry(
    look: &Look<'_>,
    id: ObjectId,
    mut decoder: SpaceMapDecoder,
    each: &mut dyn FnMut(Entry),
) -> Result<(), InspectError> {
    for_each_piece(look, id, &mut |piece| {
        for entry in decoder.entries(piece, ByteOrder::Little) {
            each(entry?);
        }
        Ok(())
    })
}

/// The log space maps, the oldest first.
pub fn logs(look: &Look<'_>) -> Result<BTreeMap<Txg, ObjectId>, InspectError> {
    let directory = look.directory();
    let Some(zap) = directory.find(name::LOG_SPACE_MAPS)? else {
        return Ok(BTreeMap::new());
    };
    let entries = directory.entries(zap)?.into_iter();
    let parsed = entries.filter_map(|(name, value)| {
        let txg = u64::from_str_radix(&name, 16).ok()?;
        Some((Txg::from(txg), ObjectId::new(value.as_word()?)))
    });
    Ok(parsed.collect())
}

/// Whether the pool has log space maps.
pub fn has_logs(look: &Look<'_>) -> bool {
    look.pool()
        .features()
        .is_active(Feature::LogSpacemap.guid())
}

/// The allocated ranges, by vdev and metaslab, from space maps and logs.
pub struct Allocated {
    vdevs: Vec<TopLevel>,
    metaslabs: BTreeMap<VdevId, Vec<(Metaslab, RangeTree)>>,
    /// Entries that contradict earlier ones.
    pub contradictions: Vec<String>,
    /// The sum of the changes in log space maps.
    pub unflushed: i64,
}

impl Allocated {
    /// Reads all space maps and logs.
    pub fn load(look: &Look<'_>) -> Result<Allocated, InspectError> {
        let vdevs = look.pool().vdevs().top_levels();
        let mut allocated = Allocated {
            metaslabs: BTreeMap::new(),
            contradictions: Vec::new(),
            unflushed: 0,
            vdevs,
        };
        for vdev in allocated.vdevs.clone() {
            let mut loaded = Vec::new();
            for metaslab in metaslabs(look, &vdev)? {
                let mut tree = RangeTree::new();
                if let Some((map, _)) = &metaslab.map {
                    let decoder = SpaceMapDecoder::new(metaslab.region(vdev.ashift));
                    let problems = &mut allocated.contradictions;
                    for_each_entry(look, *map, decoder, &mut |entry| {
                        apply(&mut tree, &entry, vdev.id, problems);
                    })?;
                }
                loaded.push((metaslab, tree));
            }
            allocated.metaslabs.insert(vdev.id, loaded);
        }
        for (txg, log) in logs(look)? {
            for_each_entry(look, log, SpaceMapDecoder::of_log(), &mut |entry| {
                allocated.apply_log(txg, &entry);
            })?;
        }
        Ok(allocated)
    }

    fn apply_log(&mut self, txg: Txg, entry: &Entry) {
        let vdev = entry.vdev.unwrap_or(VdevId::new(0));
        let Some(index) = self.index_of(vdev, entry.start) else {
            let text = format!(
                "log space map of txg {txg}: no metaslab has {vdev}:{:x}",
                entry.start.get()
            );
            self.contradictions.push(text);
            return;
        };
        let Some((metaslab, tree)) = self
            .metaslabs
            .get_mut(&vdev)
            .and_then(|all| all.get_mut(index))
        else {
            return;
        };
        // Older entries are in the metaslab's own map.
        if txg < metaslab.unflushed {
            return;
        }
        let size = entry.size.get().cast_signed();
        self.unflushed += match entry.action {
            Action::Allocate => size,
            Action::Free => -size,
        };
        apply(tree, entry, vdev, &mut self.contradictions);
    }

    fn index_of(&self, vdev: VdevId, offset: VdevOffset) -> Option<usize> {
        let top = self.vdevs.iter().find(|top| top.id == vdev)?;
        let index = narrow(offset.get().checked_shr(top.metaslab_shift)?);
        (index < self.metaslabs.get(&vdev)?.len()).then_some(index)
    }

    fn tree(&mut self, vdev: VdevId, offset: VdevOffset) -> Option<&mut RangeTree> {
        let index = self.index_of(vdev, offset)?;
        let metaslabs = self.metaslabs.get_mut(&vdev)?;
        metaslabs.get_mut(index).map(|(_, tree)| tree)
    }

    /// Whether all of a range is allocated, and not claimed.
    pub fn contains(&mut self, vdev: VdevId, range: Range) -> bool {
        let tree = self.tree(vdev, range.start);
        tree.is_some_and(|tree| tree.contains(range))
    }

    /// Claims a range. Returns whether all of it was allocated and unclaimed.
    pub fn claim(&mut self, vdev: VdevId, range: Range) -> bool {
        let tree = self.tree(vdev, range.start);
        tree.is_some_and(|tree| tree.remove(range).is_ok())
    }

    /// The unclaimed ranges.
    pub fn unclaimed(&self) -> impl Iterator<Item = (VdevId, Range)> + '_ {
        self.metaslabs.iter().flat_map(|(vdev, metaslabs)| {
            let ranges = metaslabs.iter().flat_map(|(_, tree)| tree.iter());
            ranges.map(|range| (*vdev, range))
        })
    }

    /// The metaslab that an offset is in, by number.
    pub fn metaslab_number(&self, vdev: VdevId, offset: VdevOffset) -> Option<u64> {
        let top = self.vdevs.iter().find(|top| top.id == vdev)?;
        offset.get().checked_shr(top.metaslab_shift)
    }
}

fn apply(tree: &mut RangeTree, entry: &Entry, vdev: VdevId, problems: &mut Vec<String>) {
    let range = Range::new(entry.start, entry.size);
    let done = match entry.action {
        Action::Allocate => tree.add(range),
        Action::Free => tree.remove(range),
    };
    if let Err(error) = done {
        problems.push(format!("space map of vdev {vdev}: {error}"));
    }
}

/// Sums over the metaslabs of a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassSums {
    /// Allocated bytes by space maps.
    pub allocated: i64,
    /// Size of all metaslabs.
    pub size: u64,
    /// Number of vdevs with such metaslabs.
    pub vdev_count: usize,
}

/// Sums by class.
pub fn class_sums(look: &Look<'_>) -> Result<BTreeMap<MetaslabClass, ClassSums>, InspectError> {
    let mut sums: BTreeMap<MetaslabClass, ClassSums> = BTreeMap::new();
    for vdev in look.pool().vdevs().top_levels() {
        let metaslabs = metaslabs(look, &vdev)?;
        sums.entry(class_of(&vdev)).or_default().vdev_count += 1;
        for metaslab in metaslabs {
            let sum = sums.entry(metaslab.class).or_default();
            sum.allocated = sum.allocated.saturating_add(metaslab.allocated());
            sum.size = sum.size.saturating_add(metaslab.size.get());
        }
    }
    Ok(sums)
}
