//! Range trees: sets of bytes of a vdev, kept as disjoint ranges.
//!
//! # Mechanism
//! Ranges are kept in order of their start; neighbours that touch are one range. A tree that is
//! searched by size also keeps an index of its ranges by size and a histogram over powers of two
//! ([`RangeTree::index_by_size`]); the others do without, because a pool has hundreds of thousands
//! of sets and nearly all of them are small or empty.
//!
//! # Invariants
//! - Ranges are not empty, do not overlap and do not touch.
//! - The index and the histogram, where kept, hold exactly the ranges.
//! - Adding what is there, or removing what is not, is refused and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use tarn_ondisk::units::{AllocatedSize, VdevOffset};

/// How many powers of two a size can have.
pub const HISTOGRAM_BUCKETS: usize = 64;

/// Some bytes of one vdev. Never empty in a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Range {
    /// Where it begins.
    pub start: VdevOffset,
    /// How long it is.
    pub size: AllocatedSize,
}

impl Range {
    /// From its start and size.
    pub const fn new(start: VdevOffset, size: AllocatedSize) -> Range {
        Range { start, size }
    }

    /// The first byte behind it; `None` past the end of 64 bits.
    pub fn end(self) -> Option<VdevOffset> {
        self.start.checked_add(self.size)
    }

    fn between(start: u64, end: u64) -> Range {
        Range {
            start: VdevOffset::new(start),
            size: AllocatedSize::new(end - start),
        }
    }

    /// Its start and end as numbers. `None` if it is empty or runs past 64 bits.
    fn bounds(self) -> Option<(u64, u64)> {
        let end = self.end()?.get();
        (!self.size.is_zero()).then_some((self.start.get(), end))
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}+{:#x}", self.start, self.size)
    }
}

/// Why a set was not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RangeError {
    /// The range is empty or runs past the end of 64 bits.
    #[error("{0} is not a range of bytes")]
    NotARange(Range),
    /// Some of the range is in the set already.
    #[error("{0} is in the set already, at least in part")]
    Present(Range),
    /// Some of the range is not in the set.
    #[error("{0} is not in the set, at least in part")]
    Absent(Range),
}

/// A set of bytes, as ranges.
#[derive(Debug, Clone, Default)]
pub struct RangeTree {
    /// Start to end.
    by_start: BTreeMap<u64, u64>,
    bytes: u64,
    index: Option<Box<SizeIndex>>,
}

/// The ranges of a tree again, by size.
#[derive(Debug, Clone)]
struct SizeIndex {
    /// Size and start.
    by_size: BTreeSet<(u64, u64)>,
    /// How many ranges have their size in `2^i .. 2^(i+1)`.
    histogram: [u64; HISTOGRAM_BUCKETS],
}

impl RangeTree {
    /// The empty set.
    pub fn new() -> RangeTree {
        RangeTree::default()
    }

    /// True when there is nothing in the set.
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// How many bytes are in the set.
    pub fn bytes(&self) -> AllocatedSize {
        AllocatedSize::new(self.bytes)
    }

    /// How many ranges the set has.
    pub fn segment_count(&self) -> usize {
        self.by_start.len()
    }

    /// The ranges in order of their start.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Range> + '_ {
        self.by_start
            .iter()
            .map(|(&start, &end)| Range::between(start, end))
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        self.by_start.clear();
        self.bytes = 0;
        if let Some(index) = &mut self.index {
            index.by_size.clear();
            index.histogram = [0; HISTOGRAM_BUCKETS];
        }
    }

    /// Puts a range in, none of which may be there yet.
    ///
    /// # Errors
    /// Part of it is there already; nothing has changed.
    pub fn add(&mut self, range: Range) -> Result<(), RangeError> {
        let (start, end) = range.bounds().ok_or(RangeError::NotARange(range))?;
        let before = self.last_from_before(start);
        let after = self.first_at_or_after(start);
        if before.is_some_and(|(_, before_end)| before_end > start)
            || after.is_some_and(|(after_start, _)| after_start < end)
        {
            return Err(RangeError::Present(range));
        }
        let joined_start = match before {
            Some((before_start, before_end)) if before_end == start => {
                self.take_segment(before_start, before_end);
                before_start
            }
            _ => start,
        };
        let joined_end = match after {
            Some((after_start, after_end)) if after_start == end => {
                self.take_segment(after_start, after_end);
                after_end
            }
            _ => end,
        };
        self.put_segment(joined_start, joined_end);
        Ok(())
    }

    /// Takes a range out, all of which must be there.
    ///
    /// # Errors
    /// Part of it is not there; nothing has changed.
    pub fn remove(&mut self, range: Range) -> Result<(), RangeError> {
        let (start, end) = range.bounds().ok_or(RangeError::NotARange(range))?;
        let (segment_start, segment_end) = self
            .segment_at(start)
            .filter(|&(_, segment_end)| segment_end >= end)
            .ok_or(RangeError::Absent(range))?;
        self.take_segment(segment_start, segment_end);
        if segment_start < start {
            self.put_segment(segment_start, start);
        }
        if end < segment_end {
            self.put_segment(end, segment_end);
        }
        Ok(())
    }

    /// Puts in what of a range is not there yet.
    pub fn add_missing(&mut self, range: Range) {
        self.remove_present(range);
        if range.bounds().is_some() {
            self.add(range)
                .expect("what was in the way has been taken out");
        }
    }

    /// Takes out what of a range is there.
    pub fn remove_present(&mut self, range: Range) {
        for present in self.intersection(range) {
            self.remove(present)
                .expect("an intersection lies within the set");
        }
    }

    /// Takes out everything that is in `other`.
    pub fn subtract(&mut self, other: &RangeTree) {
        for range in other.iter() {
            self.remove_present(range);
        }
    }

    /// True when all of a range is in the set.
    pub fn contains(&self, range: Range) -> bool {
        range.bounds().is_some_and(|(start, end)| {
            self.segment_at(start)
                .is_some_and(|(_, segment_end)| segment_end >= end)
        })
    }

    /// True when any of a range is in the set.
    pub fn overlaps(&self, range: Range) -> bool {
        range.bounds().is_some_and(|(start, end)| {
            self.segment_at(start).is_some()
                || self
                    .first_at_or_after(start)
                    .is_some_and(|(next_start, _)| next_start < end)
        })
    }

    /// What this set and another have in common.
    pub fn intersect(&self, other: &RangeTree) -> RangeTree {
        let (few, many) = if self.segment_count() <= other.segment_count() {
            (self, other)
        } else {
            (other, self)
        };
        let mut common = RangeTree::new();
        for range in few.iter() {
            for part in many.intersection(range) {
                common
                    .add(part)
                    .expect("parts of disjoint ranges are disjoint");
            }
        }
        common
    }

    /// Everything in `whole` that is not in this set.
    pub fn complement(&self, whole: Range) -> RangeTree {
        let mut rest = RangeTree::new();
        if rest.add(whole).is_ok() {
            rest.subtract(self);
        }
        rest
    }

    /// The parts of `range` that are in the set.
    fn intersection(&self, range: Range) -> Vec<Range> {
        let Some((start, end)) = range.bounds() else {
            return Vec::new();
        };
        let first = self.segment_at(start).map(|(first, _)| first);
        self.by_start
            .range(first.unwrap_or(start)..end)
            .map(|(&from, &to)| Range::between(from.max(start), to.min(end)))
            .collect()
    }

    /// The range that holds the byte at `position`.
    fn segment_at(&self, position: u64) -> Option<(u64, u64)> {
        self.by_start
            .range(..=position)
            .next_back()
            .map(|(&start, &end)| (start, end))
            .filter(|&(_, end)| end > position)
    }

    fn last_from_before(&self, position: u64) -> Option<(u64, u64)> {
        self.by_start
            .range(..position)
            .next_back()
            .map(|(&start, &end)| (start, end))
    }

    fn first_at_or_after(&self, position: u64) -> Option<(u64, u64)> {
        self.by_start
            .range(position..)
            .next()
            .map(|(&start, &end)| (start, end))
    }

    fn put_segment(&mut self, start: u64, end: u64) {
        assert!(start < end, "a range is not empty");
        debug_assert!(
            self.last_from_before(start)
                .is_none_or(|(_, before_end)| before_end < start),
            "a range does not touch the one before it"
        );
        debug_assert!(
            self.first_at_or_after(start)
                .is_none_or(|(after_start, _)| after_start > end),
            "a range does not touch the one after it"
        );
        self.by_start.insert(start, end);
        self.bytes += end - start;
        if let Some(index) = &mut self.index {
            index.put(start, end);
        }
    }

    fn take_segment(&mut self, start: u64, end: u64) {
        let found = self.by_start.remove(&start);
        assert_eq!(found, Some(end), "a range that was found is in the tree");
        assert!(self.bytes >= end - start, "a tree counts all of its bytes");
        self.bytes -= end - start;
        if let Some(index) = &mut self.index {
            index.take(start, end);
        }
    }
}

/// Searching by size.
impl RangeTree {
    /// Keeps an index by size from now on, which the searches below need.
    pub fn index_by_size(&mut self) {
        let mut index = Box::new(SizeIndex {
            by_size: BTreeSet::new(),
            histogram: [0; HISTOGRAM_BUCKETS],
        });
        for (&start, &end) in &self.by_start {
            index.put(start, end);
        }
        assert_eq!(
            index.by_size.len(),
            self.by_start.len(),
            "the index holds every range"
        );
        self.index = Some(index);
    }

    /// The size of the largest range; zero when there is none.
    pub fn largest(&self) -> AllocatedSize {
        let size = self.sizes().by_size.last().map_or(0, |&(size, _)| size);
        AllocatedSize::new(size)
    }

    /// How many ranges have their size in `2^i .. 2^(i+1)`, for each `i`.
    pub fn histogram(&self) -> &[u64; HISTOGRAM_BUCKETS] {
        &self.sizes().histogram
    }

    /// The smallest range of at least `size`; of several, the first.
    pub fn best_fit(&self, size: AllocatedSize) -> Option<Range> {
        self.sizes()
            .by_size
            .range((size.get(), 0)..)
            .next()
            .map(|&(size, start)| Range::between(start, start + size))
    }

    /// The largest range; of several, the last.
    pub fn largest_fit(&self) -> Option<Range> {
        self.sizes()
            .by_size
            .last()
            .map(|&(size, start)| Range::between(start, start + size))
    }

    /// The first place at or behind `from` where `size` bytes are in the set, looking no further
    /// than `reach` bytes.
    pub fn first_fit(
        &self,
        from: VdevOffset,
        size: AllocatedSize,
        reach: AllocatedSize,
    ) -> Option<Range> {
        let limit = from.get().saturating_add(reach.get());
        let here = self
            .segment_at(from.get())
            .map(|(_, end)| (from.get(), end));
        here.into_iter()
            .chain(
                self.by_start
                    .range(from.get()..)
                    .map(|(&start, &end)| (start, end)),
            )
            .take_while(|&(start, _)| start <= limit)
            .find(|&(start, end)| end - start >= size.get())
            .map(|(start, _)| Range::between(start, start + size.get()))
    }

    fn sizes(&self) -> &SizeIndex {
        self.index
            .as_ref()
            .expect("a tree that is searched by size keeps an index")
    }
}

impl SizeIndex {
    fn put(&mut self, start: u64, end: u64) {
        let size = end - start;
        let is_new = self.by_size.insert((size, start));
        assert!(is_new, "the index holds each range once");
        self.histogram[bucket(size)] += 1;
    }

    fn take(&mut self, start: u64, end: u64) {
        let size = end - start;
        let was_there = self.by_size.remove(&(size, start));
        assert!(was_there, "the index holds every range");
        let counted = &mut self.histogram[bucket(size)];
        assert!(*counted > 0, "the histogram counts every range");
        *counted -= 1;
    }
}

/// The power of two at or below a size, as an exponent. Zero counts as one.
pub fn bucket(size: u64) -> usize {
    usize::try_from(size.max(1).ilog2()).expect("an exponent is below 64")
}

impl PartialEq for RangeTree {
    fn eq(&self, other: &RangeTree) -> bool {
        self.by_start == other.by_start
    }
}

impl Eq for RangeTree {}

impl FromIterator<Range> for RangeTree {
    /// The union of all ranges.
    fn from_iter<I: IntoIterator<Item = Range>>(ranges: I) -> RangeTree {
        let mut tree = RangeTree::new();
        for range in ranges {
            tree.add_missing(range);
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_host::sim::Random;

    fn range(start: u64, size: u64) -> Range {
        Range::new(VdevOffset::new(start), AllocatedSize::new(size))
    }

    fn tree(ranges: &[(u64, u64)]) -> RangeTree {
        ranges
            .iter()
            .map(|&(start, size)| range(start, size))
            .collect()
    }

    #[test]
    fn neighbours_become_one_range() {
        let mut tree = tree(&[(0, 10), (20, 10)]);
        tree.add(range(10, 10)).unwrap();
        assert_eq!(tree.iter().collect::<Vec<_>>(), [range(0, 30)]);
        assert_eq!(tree.bytes().get(), 30);
    }

    #[test]
    fn removing_from_the_middle_leaves_two_ranges() {
        let mut tree = tree(&[(0, 30)]);
        tree.remove(range(10, 5)).unwrap();
        let left: Vec<_> = tree.iter().collect();
        assert_eq!(left, [range(0, 10), range(15, 15)]);
    }

    #[test]
    fn adding_what_is_there_is_refused_and_changes_nothing() {
        let mut set = tree(&[(10, 10)]);
        for clash in [
            range(5, 6),
            range(19, 5),
            range(12, 3),
            range(0, 50),
            range(10, 10),
        ] {
            assert_eq!(set.add(clash), Err(RangeError::Present(clash)));
        }
        assert_eq!(set, tree(&[(10, 10)]));
        let empty = range(50, 0);
        assert_eq!(set.add(empty), Err(RangeError::NotARange(empty)));
        let endless = range(u64::MAX, 2);
        assert_eq!(set.add(endless), Err(RangeError::NotARange(endless)));
    }

    #[test]
    fn removing_what_is_not_there_is_refused_and_changes_nothing() {
        let mut set = tree(&[(10, 10), (30, 10)]);
        for absent in [range(5, 6), range(19, 5), range(10, 30), range(50, 1)] {
            assert_eq!(set.remove(absent), Err(RangeError::Absent(absent)));
        }
        assert_eq!(set, tree(&[(10, 10), (30, 10)]));
    }

    #[test]
    fn searches_find_the_first_the_tightest_and_the_largest() {
        let mut tree = tree(&[(0, 4), (10, 8), (100, 40), (200, 8)]);
        tree.index_by_size();
        let size = AllocatedSize::new;
        let at = VdevOffset::new;
        assert_eq!(
            tree.first_fit(at(0), size(5), size(1000)),
            Some(range(10, 5))
        );
        assert_eq!(
            tree.first_fit(at(12), size(6), size(1000)),
            Some(range(12, 6))
        );
        assert_eq!(
            tree.first_fit(at(13), size(6), size(1000)),
            Some(range(100, 6))
        );
        assert_eq!(tree.first_fit(at(13), size(6), size(50)), None);
        assert_eq!(tree.best_fit(size(5)), Some(range(10, 8)));
        assert_eq!(tree.best_fit(size(41)), None);
        assert_eq!(tree.largest_fit(), Some(range(100, 40)));
        assert_eq!(tree.largest(), size(40));
        assert_eq!(tree.histogram()[3], 2);
    }

    #[test]
    fn random_operations_agree_with_a_bitmap() {
        let mut random = Random::new(7);
        let mut next = move |below: u64| random.below(below);
        let mut tree = RangeTree::new();
        tree.index_by_size();
        let mut bitmap = [false; 256];
        for _ in 0..20_000 {
            let start = next(250);
            let size = 1 + next(6);
            let (from, to) = (start as usize, (start + size) as usize);
            let bits = &mut bitmap[from..to];
            let wanted = range(start, size);
            assert_eq!(tree.contains(wanted), bits.iter().all(|&bit| bit));
            assert_eq!(tree.overlaps(wanted), bits.iter().any(|&bit| bit));
            match next(4) {
                0 => {
                    assert_eq!(tree.add(wanted).is_ok(), !bits.iter().any(|&bit| bit));
                    bits.fill(true);
                    tree.add_missing(wanted);
                }
                1 => {
                    assert_eq!(tree.remove(wanted).is_ok(), bits.iter().all(|&bit| bit));
                    bits.fill(false);
                    tree.remove_present(wanted);
                }
                2 => {
                    tree.remove_present(wanted);
                    bits.fill(false);
                }
                _ => {
                    let others = tree.complement(range(0, 256));
                    assert!(tree.intersect(&others).is_empty());
                    assert_eq!(tree.bytes().get() + others.bytes().get(), 256);
                }
            }
            let count = bitmap.iter().filter(|&&bit| bit).count();
            assert_eq!(tree.bytes().get(), count as u64);
            assert_eq!(
                tree.histogram().iter().sum::<u64>(),
                tree.segment_count() as u64
            );
        }
    }
}
