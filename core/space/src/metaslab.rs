//! One metaslab: the states of its ranges, and whether its free ranges are in memory.
//!
//! # Mechanism
//! What is free is a tree indexed by size, kept only while we allocate here. What is on its way
//! from one state to another is kept always, a tree for each txg: `allocating` and `freeing` until
//! they are handed over to be stored, `deferred` until two more txgs are. Allocated is what is in
//! none of them.
//!
//! To load is to take the space map's word for what is allocated, and correct it by the trees
//! above. The map may lag behind what was handed over, so a freed range may still be in it or not;
//! it is in `deferred` either way. Allocations cannot lag: a metaslab with allocations that are not
//! stored stays in memory. What leaves `deferred` while the map is being read is remembered beside.
//!
//! What is freed and belongs to the checkpoint stays allocated: it is only handed over, as `kept`.
//!
//! # Invariants
//! - No range that was kept for the checkpoint is handed out before the checkpoint is discarded.
//! - The trees are disjoint, and lie within the metaslab.
//! - size = allocated bytes + freeing and deferred bytes + free bytes.

use crate::error::LoadError;
use crate::pick::{Cursors, Fit, pick};
use crate::range_tree::{HISTOGRAM_BUCKETS, Range, RangeTree, bucket};
use crate::totals::{Histogram, Totals, fragmentation};
use std::collections::BTreeMap;
use tarn_ondisk::units::{AllocatedSize, Txg, VdevId, VdevOffset};

/// Sizes from here on count as equal when metaslabs are compared: eight of the largest blocks. A
/// guess; beyond it, being near the others is worth more.
const LARGEST_THAT_MATTERS: usize = 27;

/// Whether the pool has a space map for a metaslab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredMap {
    /// Nothing was ever allocated there.
    Absent,
    /// There is one, to be loaded through the door.
    Present,
}

/// What is known of a metaslab without loading it, as of the last stored txg. Where a pool has log
/// space maps, what they say is in these numbers.
#[derive(Debug, Clone)]
pub struct MetaslabSummary {
    /// Its place among the metaslabs of its vdev.
    pub index: u64,
    /// Whether there is a space map.
    pub map: StoredMap,
    /// How much is allocated.
    pub allocated: AllocatedSize,
    /// Free ranges by the power of two of their size in bytes, if the space map has that.
    pub histogram: Option<Box<Histogram>>,
}

#[derive(Debug)]
enum Residence {
    /// Not in memory. No free range is larger than `largest_max`.
    Away { largest_max: AllocatedSize },
    /// Being read; `released` became free meanwhile.
    Loading { released: RangeTree },
    /// In memory.
    Here(Box<FreeSpace>),
    /// Could not be loaded. Not tried again.
    Broken,
}

#[derive(Debug)]
struct FreeSpace {
    ranges: RangeTree,
    cursors: Cursors,
}

/// A part of a vdev, of the size all its siblings have.
#[derive(Debug)]
pub(crate) struct Metaslab {
    whole: Range,
    sector: u64,
    residence: Residence,
    allocating: BTreeMap<Txg, RangeTree>,
    freeing: BTreeMap<Txg, RangeTree>,
    deferred: BTreeMap<Txg, RangeTree>,
    /// Freed, kept for the checkpoint, and not handed over yet. It is allocated.
    keeping: BTreeMap<Txg, RangeTree>,
    /// All that was kept since the pool was opened, to check allocations. Only in debug builds.
    kept: RangeTree,
    allocated_bytes: AllocatedSize,
    /// In `freeing` and `deferred`.
    pending_bytes: AllocatedSize,
    /// From the space map or from when it was last in memory.
    stored_histogram: Option<Box<Histogram>>,
    /// The last txg with allocations.
    allocated_in: Txg,
    /// When it was last allocated from, by the clock of its owner.
    used_at: u64,
    /// How many holds there are: nothing is handed out while there is one.
    holds: u32,
    /// What became free, while it is kept.
    freed: Option<RangeTree>,
}

impl Metaslab {
    pub(crate) fn new(whole: Range, sector: u64, summary: MetaslabSummary) -> Metaslab {
        let allocated = summary.allocated.min(whole.size);
        let mut metaslab = Metaslab {
            whole,
            sector,
            residence: Residence::Away {
                largest_max: whole.size - allocated,
            },
            allocating: BTreeMap::new(),
            freeing: BTreeMap::new(),
            deferred: BTreeMap::new(),
            keeping: BTreeMap::new(),
            kept: RangeTree::new(),
            allocated_bytes: allocated,
            pending_bytes: AllocatedSize::ZERO,
            stored_histogram: summary.histogram,
            allocated_in: Txg::ZERO,
            used_at: 0,
            holds: 0,
            freed: None,
        };
        if summary.map == StoredMap::Absent {
            metaslab.settle(RangeTree::new());
        }
        metaslab
    }

    pub(crate) fn start(&self) -> VdevOffset {
        self.whole.start
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals {
            size: self.whole.size,
            allocated: self.allocated_bytes,
            deferred: self.pending_bytes,
        }
    }

    pub(crate) fn is_here(&self) -> bool {
        matches!(self.residence, Residence::Here(_))
    }

    pub(crate) fn used_at(&self) -> u64 {
        self.used_at
    }

    /// How many ranges are in memory for what is free.
    pub(crate) fn segment_count(&self) -> usize {
        match &self.residence {
            Residence::Here(free) => free.ranges.segment_count(),
            _ => 0,
        }
    }

    /// The free ranges, if they are in memory.
    pub(crate) fn free_ranges(&self) -> Option<&RangeTree> {
        match &self.residence {
            Residence::Here(free) => Some(&free.ranges),
            _ => None,
        }
    }

    /// What is free by size, if that is known.
    pub(crate) fn histogram(&self) -> Option<&Histogram> {
        match &self.residence {
            Residence::Here(free) => Some(free.ranges.histogram()),
            _ => self.stored_histogram.as_deref(),
        }
    }

    /// In percent, if what is free by size is known. A metaslab that nothing is in has no space map
    /// on disk, and counts as whole even if it is small.
    pub(crate) fn fragmentation(&self) -> Option<u64> {
        let histogram = self.histogram()?;
        let is_untouched = self.allocated_bytes == AllocatedSize::ZERO
            && self.pending_bytes == AllocatedSize::ZERO;
        Some(if is_untouched {
            0
        } else {
            fragmentation(histogram)
        })
    }

    /// The power of two of the largest free range, as far as it is known: how good a metaslab
    /// this is.
    pub(crate) fn weight(&self) -> usize {
        let exponent = match (&self.residence, self.histogram()) {
            (Residence::Here(free), _) => bucket(free.ranges.largest().get()),
            (_, Some(histogram)) => histogram.iter().rposition(|&count| count > 0).unwrap_or(0),
            (_, None) => bucket(self.totals().free().get()),
        };
        exponent.min(LARGEST_THAT_MATTERS)
    }

    /// False when there is certainly no free range of this size that may be handed out.
    pub(crate) fn may_fit(&self, size: AllocatedSize) -> bool {
        !self.is_held() && self.may_have(size)
    }

    /// False when there is certainly no free range of this size.
    pub(crate) fn may_have(&self, size: AllocatedSize) -> bool {
        match &self.residence {
            Residence::Here(free) => free.ranges.largest() >= size,
            Residence::Away { largest_max } => *largest_max >= size && self.totals().free() >= size,
            Residence::Loading { .. } => self.totals().free() >= size,
            Residence::Broken => false,
        }
    }
}

/// Ranges on their way.
impl Metaslab {
    /// Hands out a free range.
    pub(crate) fn allocate(
        &mut self,
        size: AllocatedSize,
        fit: Fit,
        txg: Txg,
        now: u64,
    ) -> Option<Range> {
        let total = self.whole.size;
        let Residence::Here(free) = &mut self.residence else {
            return None;
        };
        let range = pick(&free.ranges, &mut free.cursors, total, size, fit)?;
        self.take(range, txg);
        self.used_at = now;
        Some(range)
    }

    /// Hands out one range in particular. False if it is not all free.
    pub(crate) fn claim(&mut self, range: Range, txg: Txg) -> bool {
        let is_free = self
            .free_ranges()
            .is_some_and(|ranges| ranges.contains(range));
        if is_free {
            self.take(range, txg);
        }
        is_free
    }

    fn take(&mut self, range: Range, txg: Txg) {
        assert!(!self.is_held(), "nothing of a held metaslab is handed out");
        if let Some(freed) = &mut self.freed {
            freed.remove_present(range);
        }
        assert!(
            self.could_hold(range),
            "an allocation is whole sectors of its metaslab"
        );
        debug_assert!(
            !self.kept.overlaps(range),
            "nothing that the checkpoint has is handed out"
        );
        let Residence::Here(free) = &mut self.residence else {
            unreachable!("only what is in memory is handed out");
        };
        free.ranges
            .remove(range)
            .expect("a range is handed out only while it is free");
        self.allocating
            .entry(txg)
            .or_default()
            .add(range)
            .expect("a range is not handed out twice");
        self.allocated_bytes += range.size;
        self.allocated_in = self.allocated_in.max(txg);
        self.assert_sums();
    }

    /// Asserts that free, pending and allocated bytes add up, while the free ranges are in memory.
    fn assert_sums(&self) {
        let on_the_way = self.freeing.values().chain(self.deferred.values());
        debug_assert_eq!(
            on_the_way.map(RangeTree::bytes).sum::<AllocatedSize>(),
            self.pending_bytes,
            "pending bytes are those of the freeing and deferred ranges"
        );
        if let Residence::Here(free) = &self.residence {
            assert_eq!(
                free.ranges.bytes() + self.pending_bytes + self.allocated_bytes,
                self.whole.size,
                "every byte is free, pending or allocated"
            );
        }
    }

    /// Undoes an allocation that nothing was stored in. False if its changes were handed over
    /// already, and it must be freed like any other.
    pub(crate) fn undo(&mut self, range: Range, txg: Txg) -> bool {
        let Residence::Here(free) = &mut self.residence else {
            return false;
        };
        let Some(allocating) = self.allocating.get_mut(&txg) else {
            return false;
        };
        if allocating.remove(range).is_err() {
            return false;
        }
        if allocating.is_empty() {
            self.allocating.remove(&txg);
        }
        free.ranges
            .add(range)
            .expect("what was handed out was not free");
        self.allocated_bytes -= range.size;
        self.assert_sums();
        true
    }

    /// Whether a range can be one that this metaslab handed out: whole sectors inside it.
    pub(crate) fn could_hold(&self, range: Range) -> bool {
        range.start >= self.whole.start
            && range.end().is_some_and(|end| Some(end) <= self.whole.end())
            && !range.size.is_zero()
            && range.start.is_multiple_of(self.sector)
            && range.size.is_multiple_of(self.sector)
    }

    /// Takes a range back. False if some of it is free already or on the way there.
    pub(crate) fn free(&mut self, range: Range, txg: Txg) -> bool {
        if !self.is_allocated(range) {
            return false;
        }
        self.freeing
            .entry(txg)
            .or_default()
            .add(range)
            .expect("it was found not to be there");
        self.allocated_bytes -= range.size;
        self.pending_bytes += range.size;
        self.assert_sums();
        true
    }

    /// Takes a range back that the checkpoint has: it stays allocated, and is handed over. False if
    /// some of it is free already or on the way there.
    pub(crate) fn keep(&mut self, range: Range, txg: Txg) -> bool {
        if !self.is_allocated(range) {
            return false;
        }
        let keeping = self.keeping.entry(txg).or_default();
        keeping.add(range).expect("it was found not to be there");
        if cfg!(debug_assertions) {
            self.kept.add_missing(range);
        }
        true
    }

    /// Frees a range that was kept for the checkpoint, which is being discarded.
    pub(crate) fn free_kept(&mut self, range: Range, txg: Txg) -> bool {
        self.kept.remove_present(range);
        self.free(range, txg)
    }

    /// Whether a range may be allocated. What is not in memory is taken for being.
    fn is_allocated(&self, range: Range) -> bool {
        let is_free = self
            .free_ranges()
            .is_some_and(|ranges| ranges.overlaps(range));
        let mut pending = self
            .freeing
            .values()
            .chain(self.deferred.values())
            .chain(self.keeping.values())
            .chain([&self.kept]);
        !is_free
            && !pending.any(|ranges| ranges.overlaps(range))
            && range.size <= self.allocated_bytes
    }

    /// Whether there is something to hand over of this txg.
    pub(crate) fn is_changed(&self, txg: Txg) -> bool {
        self.allocating.contains_key(&txg)
            || self.freeing.contains_key(&txg)
            || self.keeping.contains_key(&txg)
    }

    /// What is to be stored for a txg: allocated, freed, and kept for the checkpoint. The freed
    /// ranges are deferred.
    pub(crate) fn take_changes(&mut self, txg: Txg) -> [Vec<Range>; 3] {
        let allocated = self.allocating.remove(&txg).unwrap_or_default();
        let freed = self.freeing.remove(&txg).unwrap_or_default();
        let kept = self.keeping.remove(&txg).unwrap_or_default();
        if !freed.is_empty() {
            let deferred = self.deferred.entry(txg).or_default();
            for range in freed.iter() {
                deferred.add(range).expect("a range is not freed twice");
            }
        }
        debug_assert!(
            allocated
                .iter()
                .chain(freed.iter())
                .chain(kept.iter())
                .all(|range| self.could_hold(range)),
            "what goes into a space map is whole sectors of its metaslab"
        );
        self.assert_sums();
        [allocated, freed, kept].map(|ranges| ranges.iter().collect())
    }

    /// Lets what was freed in a txg be handed out again.
    pub(crate) fn release(&mut self, txg: Txg) {
        let Some(deferred) = self.deferred.remove(&txg) else {
            return;
        };
        self.pending_bytes -= deferred.bytes();
        self.note_freed(&deferred);
        match &mut self.residence {
            Residence::Here(free) => {
                for range in deferred.iter() {
                    free.ranges
                        .add(range)
                        .expect("what was deferred was not free");
                }
            }
            // Ranges may have grown together, with one another and with what was free.
            Residence::Away { largest_max } => {
                *largest_max = self.whole.size;
                for range in deferred.iter() {
                    if let Some(histogram) = &mut self.stored_histogram {
                        histogram[bucket(range.size.get())] += 1;
                    }
                }
            }
            Residence::Loading { released } => {
                for range in deferred.iter() {
                    released.add_missing(range);
                }
            }
            Residence::Broken => {}
        }
        self.assert_sums();
    }

    /// The ranges that are allocated once this txg is stored with the changes handed over so far.
    /// `None` if it is not in memory.
    pub(crate) fn allocated_ranges(&self, txg: Txg) -> Option<RangeTree> {
        let mut allocated = self.free_ranges()?.complement(self.whole);
        for deferred in self.deferred.values() {
            allocated.subtract(deferred);
        }
        for (_, later) in self.allocating.range(txg.next()..) {
            allocated.subtract(later);
        }
        debug_assert!(
            allocated.bytes() <= self.whole.size,
            "a metaslab has no more allocated than its size"
        );
        Some(allocated)
    }
}

impl Metaslab {
    /// No more ranges than this are allocated once this txg is stored. `None` if it is not in
    /// memory. Takes no longer the more there are.
    pub(crate) fn allocated_ranges_max(&self, txg: Txg) -> Option<usize> {
        let later = self.allocating.range(txg.next()..).map(|(_, later)| later);
        let apart: usize = self
            .deferred
            .values()
            .chain(later)
            .map(RangeTree::segment_count)
            .sum();
        Some(self.free_ranges()?.segment_count() + 1 + apart)
    }
}

/// Most ranges that are kept of what became free. A guess: some five megabytes; beyond it, ranges
/// are left for `zpool trim`.
const FREED_MAX: usize = 1 << 16;

/// Holds, and what became free.
impl Metaslab {
    pub(crate) fn is_held(&self) -> bool {
        self.holds > 0
    }

    pub(crate) fn is_broken(&self) -> bool {
        matches!(self.residence, Residence::Broken)
    }

    /// Begins a hold. Gives the free ranges.
    ///
    /// # Panics
    /// When it is not in memory.
    pub(crate) fn begin_hold(&mut self) -> Vec<Range> {
        self.holds += 1;
        let free = self.free_ranges().expect("what is held is in memory");
        free.iter().collect()
    }

    /// What is allocated, of blocks whose writes are done: what is handed out in a txg that is not
    /// handed over yet is left out. What was freed and is not free yet is among it. None while the
    /// free ranges are not in memory.
    pub(crate) fn settled_ranges(&self) -> Option<RangeTree> {
        let mut settled = self.free_ranges()?.complement(self.whole);
        for allocating in self.allocating.values() {
            settled.subtract(allocating);
        }
        Some(settled)
    }

    pub(crate) fn end_hold(&mut self) {
        assert!(self.holds > 0, "a hold that ends was begun");
        self.holds -= 1;
    }

    pub(crate) fn keep_freed(&mut self, keeps: bool) {
        self.freed = match (keeps, self.freed.take()) {
            (true, Some(freed)) => Some(freed),
            (true, None) => Some(RangeTree::new()),
            (false, _) => None,
        };
    }

    pub(crate) fn has_freed(&self) -> bool {
        self.freed.as_ref().is_some_and(|freed| !freed.is_empty())
    }

    /// What became free since it was last asked, and still is.
    pub(crate) fn take_freed(&mut self) -> RangeTree {
        let freed = self.freed.as_mut().map(std::mem::take).unwrap_or_default();
        if let Some(free) = self.free_ranges() {
            assert!(
                freed.iter().all(|range| free.contains(range)),
                "what is taken for being freed is free"
            );
        }
        freed
    }

    fn note_freed(&mut self, released: &RangeTree) {
        if let Some(freed) = &mut self.freed {
            for range in released.iter() {
                if freed.segment_count() < FREED_MAX {
                    freed.add_missing(range);
                }
            }
        }
    }
}

/// Coming and going.
impl Metaslab {
    /// True if the caller is to load it now: it is not in memory, and no other thread is loading
    /// it.
    pub(crate) fn begin_load(&mut self) -> bool {
        let is_away = matches!(self.residence, Residence::Away { .. });
        if is_away {
            assert!(
                self.allocating.is_empty(),
                "a metaslab with allocations that are not stored stays in memory"
            );
            self.residence = Residence::Loading {
                released: RangeTree::new(),
            };
        }
        is_away
    }

    pub(crate) fn is_loading(&self) -> bool {
        matches!(self.residence, Residence::Loading { .. })
    }

    /// Ends a load with what the space map has as allocated.
    pub(crate) fn end_load(
        &mut self,
        vdev: VdevId,
        index: u64,
        allocated: Result<RangeTree, LoadError>,
    ) -> Result<(), LoadError> {
        let possible = allocated.and_then(|ranges| {
            let impossible = ranges.iter().find(|&range| !self.could_hold(range));
            match impossible {
                Some(range) => Err(LoadError::Impossible { vdev, index, range }),
                None => Ok(ranges),
            }
        });
        match possible {
            Ok(ranges) => {
                self.settle(ranges);
                Ok(())
            }
            Err(error) => {
                self.residence = Residence::Broken;
                Err(error)
            }
        }
    }

    /// Makes the free ranges from what is allocated in the space map.
    fn settle(&mut self, allocated: RangeTree) {
        let mut ranges = allocated.complement(self.whole);
        if let Residence::Loading { released } = &self.residence {
            for range in released.iter() {
                ranges.add_missing(range);
            }
        }
        let moving = [&self.allocating, &self.freeing, &self.deferred];
        for set in moving.into_iter().flat_map(|sets| sets.values()) {
            ranges.subtract(set);
        }
        debug_assert!(
            self.kept.iter().all(|range| !ranges.overlaps(range)),
            "what the checkpoint has stays allocated in the space map"
        );
        ranges.index_by_size();
        self.allocated_bytes = self
            .whole
            .size
            .saturating_sub(ranges.bytes())
            .saturating_sub(self.pending_bytes);
        self.stored_histogram = None;
        self.residence = Residence::Here(Box::new(FreeSpace {
            ranges,
            cursors: Cursors::default(),
        }));
        self.assert_sums();
    }

    /// Drops the free ranges from memory, if every allocation is stored. Their sizes are kept.
    pub(crate) fn unload(&mut self, stored: Txg) -> bool {
        let Residence::Here(free) = &self.residence else {
            return false;
        };
        if !self.allocating.is_empty() || self.allocated_in > stored || self.is_held() {
            return false;
        }
        self.stored_histogram = Some(Box::new(*free.ranges.histogram()));
        self.residence = Residence::Away {
            largest_max: free.ranges.largest(),
        };
        true
    }
}

/// The sum of histograms.
pub(crate) fn add_histogram(sum: &mut Histogram, part: &Histogram) {
    for index in 0..HISTOGRAM_BUCKETS {
        sum[index] = sum[index].saturating_add(part[index]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, size: u64) -> Range {
        Range::new(VdevOffset::new(start), AllocatedSize::new(size))
    }

    fn metaslab(map: StoredMap, allocated: u64) -> Metaslab {
        let summary = MetaslabSummary {
            index: 0,
            map,
            allocated: AllocatedSize::new(allocated),
            histogram: None,
        };
        Metaslab::new(range(0, 1 << 20), 512, summary)
    }

    fn load(metaslab: &mut Metaslab, ranges: &[Range]) -> Result<(), LoadError> {
        let tree = ranges.iter().copied().collect();
        metaslab.end_load(VdevId::ZERO, 0, Ok(tree))
    }

    const TXG: Txg = Txg::new(10);

    #[test]
    fn a_freed_range_passes_through_all_states() {
        let mut slab = metaslab(StoredMap::Absent, 0);
        let place = slab
            .allocate(AllocatedSize::new(4096), Fit::Orderly, TXG, 1)
            .unwrap();
        assert!(slab.free(place, TXG));
        assert!(!slab.free(place, TXG), "freeing");
        let changes = slab.take_changes(TXG);
        assert_eq!(changes, [vec![place], vec![place], Vec::new()]);
        assert!(!slab.free(place, TXG.next()), "deferred");
        assert!(!slab.claim(place, TXG.next()), "deferred is not free");
        slab.release(TXG);
        assert!(!slab.free(place, TXG.next()), "free");
        assert!(slab.claim(place, TXG.next()));
    }

    #[test]
    fn what_the_checkpoint_has_stays_allocated_until_it_is_discarded() {
        let mut slab = metaslab(StoredMap::Present, 8192);
        assert!(slab.keep(range(0, 4096), TXG));
        assert!(!slab.keep(range(0, 4096), TXG), "kept already");
        assert!(!slab.free(range(0, 4096), TXG), "kept already");
        let changes = slab.take_changes(TXG);
        assert_eq!(changes, [Vec::new(), Vec::new(), vec![range(0, 4096)]]);
        assert!(slab.begin_load());
        load(&mut slab, &[range(0, 8192)]).unwrap();
        assert_eq!(slab.totals().allocated.get(), 8192);
        let later = TXG.next();
        let condensed = slab.allocated_ranges(later).unwrap();
        assert!(condensed.contains(range(0, 8192)));
        assert!(slab.free_kept(range(0, 4096), later));
        let changes = slab.take_changes(later);
        assert_eq!(changes, [Vec::new(), vec![range(0, 4096)], Vec::new()]);
        slab.release(later);
        assert!(slab.claim(range(0, 4096), later.next()));
    }

    #[test]
    fn loading_believes_the_map_but_for_what_is_on_its_way() {
        let mut slab = metaslab(StoredMap::Present, 3 * 4096);
        assert!(slab.free(range(4096, 4096), TXG));
        slab.take_changes(TXG);
        assert!(slab.free(range(8192, 4096), TXG.next()));
        assert!(slab.begin_load());
        // The map has the first free already, and lags behind the second.
        load(&mut slab, &[range(0, 4096), range(8192, 4096)]).unwrap();
        assert_eq!(slab.totals().allocated.get(), 4096);
        assert_eq!(slab.totals().deferred.get(), 8192);
        let free = slab.free_ranges().unwrap();
        assert!(!free.overlaps(range(0, 3 * 4096)));
        assert_eq!(free.bytes().get(), (1 << 20) - 3 * 4096);
    }

    #[test]
    fn what_is_released_while_the_map_is_read_is_free_afterwards() {
        let mut slab = metaslab(StoredMap::Present, 8192);
        assert!(slab.free(range(4096, 4096), TXG));
        slab.take_changes(TXG);
        assert!(slab.begin_load());
        slab.release(TXG);
        load(&mut slab, &[range(0, 8192)]).unwrap();
        assert!(slab.free_ranges().unwrap().contains(range(4096, 4096)));
        assert_eq!(slab.totals().allocated.get(), 4096);
    }

    #[test]
    fn a_space_map_with_impossible_ranges_is_refused_and_not_tried_again() {
        for bad in [range(1 << 20, 512), range(512, 100), range(0, 2 << 20)] {
            let mut slab = metaslab(StoredMap::Present, 512);
            assert!(slab.begin_load());
            let error = load(&mut slab, &[bad]).unwrap_err();
            assert!(matches!(error, LoadError::Impossible { range, .. } if range == bad));
            assert!(!slab.may_fit(AllocatedSize::new(512)));
            assert!(!slab.begin_load());
        }
    }

    #[test]
    fn a_metaslab_stays_in_memory_until_its_allocations_are_stored() {
        let mut slab = metaslab(StoredMap::Absent, 0);
        slab.allocate(AllocatedSize::new(512), Fit::Orderly, TXG, 1)
            .unwrap();
        assert!(!slab.unload(TXG), "not handed over");
        slab.take_changes(TXG);
        assert!(!slab.unload(TXG.minus(1)), "not stored");
        assert!(slab.unload(TXG));
        assert!(slab.may_fit(AllocatedSize::new((1 << 20) - 512)));
        assert!(!slab.may_fit(AllocatedSize::new(1 << 20)));
    }
}
