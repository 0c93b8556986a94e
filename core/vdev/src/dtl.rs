//! Dirty time logs: the txgs whose blocks a device misses.
//!
//! # Problem
//! A device that could not be written, or was absent, comes back without the blocks written
//! meanwhile. Its siblings have them. To read from the device, to take its siblings out of use and
//! to resilver it, the pool has to know which blocks it lacks.
//!
//! # Mechanism
//! Each leaf has a set of *births*, the txgs that allocated the blocks it lacks. A birth goes into
//! the log when a block of that txg is written while the leaf is not in use, or when its write to
//! the leaf fails. When a leaf is taken out of use, the births of unflushed writes to it go in as
//! well, and the txg that is stored next. A leaf whose log is empty and that can be read is
//! *whole*.
//!
//! `pool` stores the log of a leaf as a space map of txgs in the MOS (the object `DTL` of the
//! leaf's configuration), in each sync pass in which it changed, and loads it at import. A leaf
//! that fails after the last pass has births that no object has; the labels of that txg say from
//! which birth on ([`VdevConfig::unsaved_dtl`](crate::VdevConfig::unsaved_dtl)). A leaf whose
//! newest uberblock is older than those of its siblings misses all later births. Ranges that were
//! found in one of these two ways are open at their end until the pool is opened for writing
//! ([`VdevTree::end_dtls`](crate::VdevTree::end_dtls)).
//!
//! # Invariants
//! - A log may have births of which the leaf lacks nothing, which costs time. It never lacks a
//!   birth of a block that the leaf lacks, which would cost data.
//! - Ranges are not empty, do not overlap and do not touch.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use tarn_ondisk::units::Txg;

/// A set of txgs, as ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[doc(alias = "vdev_dtl")]
pub struct Dtl {
    /// The first txg of each range, to the last.
    ranges: BTreeMap<u64, u64>,
}

impl Dtl {
    /// The empty log, of a leaf that lacks no block.
    pub fn new() -> Dtl {
        Dtl::default()
    }

    /// Whether the log has no txg: the leaf lacks no block.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether the leaf may lack blocks of this birth.
    #[doc(alias = "vdev_dtl_contains")]
    pub fn contains(&self, birth: Txg) -> bool {
        let before = self.ranges.range(..=birth.get()).next_back();
        before.is_some_and(|(_, last)| *last >= birth.get())
    }

    /// The first and the last txg.
    #[doc(alias = "vdev_dtl_min")]
    pub fn bounds(&self) -> Option<RangeInclusive<Txg>> {
        let (first, _) = self.ranges.first_key_value()?;
        let (_, last) = self.ranges.last_key_value()?;
        Some(Txg::new(*first)..=Txg::new(*last))
    }

    /// How many txgs there are.
    pub fn count(&self) -> u64 {
        let sizes = self.ranges.iter().map(|(first, last)| last - first);
        sizes.fold(0, |sum: u64, size| {
            sum.saturating_add(size).saturating_add(1)
        })
    }

    /// The log of a device that lacks every block.
    pub fn all() -> Dtl {
        let mut all = Dtl::new();
        all.add(Txg::ZERO..=Txg::MAX);
        all
    }

    /// The births that both logs have: of the blocks that two copies lack.
    #[must_use]
    pub fn intersection(&self, other: &Dtl) -> Dtl {
        let mut both = self.clone();
        let mut next = Some(Txg::ZERO);
        for births in other.ranges() {
            if let Some(first) = next.filter(|first| first < births.start()) {
                both.remove(first..=Txg::new(births.start().get() - 1));
            }
            next = births.end().get().checked_add(1).map(Txg::new);
        }
        if let Some(first) = next {
            both.remove(first..=Txg::MAX);
        }
        debug_assert!(
            both.first_beyond(self).is_none() && both.first_beyond(other).is_none(),
            "an intersection has no birth that either log lacks"
        );
        both
    }

    /// Whether any birth is in more than `limit` of these logs: of the columns of a RAID-Z with
    /// `limit` parities, then a block of this birth cannot be rebuilt.
    #[doc(alias("vdev_dtl_reassess", "DTL_OUTAGE"))]
    pub fn exceed(logs: &[Dtl], limit: usize) -> bool {
        let ranges = || logs.iter().flat_map(Dtl::ranges);
        // The number of logs with a birth is largest at the start of a range.
        ranges().any(|births| {
            let with_birth = logs.iter().filter(|log| log.contains(*births.start()));
            with_birth.count() > limit
        })
    }

    /// Its ranges, in order.
    pub fn ranges(&self) -> impl Iterator<Item = RangeInclusive<Txg>> + '_ {
        let range = |(first, last): (&u64, &u64)| Txg::new(*first)..=Txg::new(*last);
        self.ranges.iter().map(range)
    }

    /// Adds births. Gives whether any of them is new to the log.
    #[doc(alias = "vdev_dtl_dirty")]
    pub fn add(&mut self, births: RangeInclusive<Txg>) -> bool {
        let (mut first, mut last) = (births.start().get(), births.end().get());
        if first > last {
            return false;
        }
        let around = self.ranges.range(..=first).next_back();
        if around.is_some_and(|(_, known)| *known >= last) {
            return false;
        }
        // Ranges that overlap or touch become one.
        let reach = last.saturating_add(1);
        let touched = self.ranges.range(..=reach).rev();
        let touched = touched.take_while(|(_, known)| known.saturating_add(1) >= first);
        let touched: Vec<(u64, u64)> = touched.map(|(start, end)| (*start, *end)).collect();
        for (start, end) in touched {
            self.ranges.remove(&start);
            (first, last) = (first.min(start), last.max(end));
        }
        self.ranges.insert(first, last);
        debug_assert!(self.is_normal(), "ranges neither overlap nor touch");
        debug_assert!(
            self.contains(*births.start()) && self.contains(*births.end()),
            "the log has what was added"
        );
        true
    }

    /// Removes births, of blocks that the leaf now has.
    #[doc(alias = "vdev_dtl_reassess")]
    pub fn remove(&mut self, births: RangeInclusive<Txg>) {
        let (first, last) = (births.start().get(), births.end().get());
        assert!(first <= last, "a range of births is not empty");
        let overlapping = self.ranges.range(..=last).rev();
        let overlapping = overlapping.take_while(|(_, end)| **end >= first);
        let overlapping: Vec<(u64, u64)> = overlapping.map(|(start, end)| (*start, *end)).collect();
        for (start, end) in overlapping {
            self.ranges.remove(&start);
            if start < first {
                self.ranges.insert(start, first - 1);
            }
            if end > last {
                self.ranges.insert(last + 1, end);
            }
        }
        debug_assert!(self.is_normal(), "ranges neither overlap nor touch");
        debug_assert!(
            !self.contains(*births.start()) && !self.contains(*births.end()),
            "the log has nothing of what was removed"
        );
    }

    /// Adds the births of another log.
    pub fn merge(&mut self, other: &Dtl) {
        other.ranges().for_each(|births| _ = self.add(births));
        debug_assert!(
            other.first_beyond(self).is_none(),
            "a merged log has all births of both"
        );
    }

    /// The part of the log up to this txg.
    #[must_use]
    pub fn until(&self, last: Txg) -> Dtl {
        let mut until = self.clone();
        if last < Txg::MAX {
            until.remove(last.next()..=Txg::MAX);
        }
        debug_assert!(
            until.bounds().is_none_or(|bounds| *bounds.end() <= last),
            "the log ends at this txg"
        );
        until
    }

    /// The first txg that another log does not have.
    pub fn first_beyond(&self, other: &Dtl) -> Option<Txg> {
        let mut beyond = self.clone();
        other.ranges().for_each(|births| beyond.remove(births));
        beyond.bounds().map(|bounds| *bounds.start())
    }

    fn is_normal(&self) -> bool {
        let mut ranges = self.ranges.iter().zip(self.ranges.iter().skip(1));
        let are_apart = ranges.all(|((_, last), (first, _))| last.saturating_add(1) < *first);
        are_apart && self.ranges.iter().all(|(first, last)| first <= last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn txgs(first: u64, last: u64) -> RangeInclusive<Txg> {
        Txg::new(first)..=Txg::new(last)
    }

    fn all(log: &Dtl) -> BTreeSet<u64> {
        let each = log
            .ranges()
            .flat_map(|range| range.start().get()..=range.end().get());
        each.collect()
    }

    #[test]
    fn what_has_no_end_is_cut_at_the_txg_that_is_stored() {
        let mut log = Dtl::new();
        assert!(log.add(txgs(10, u64::MAX)));
        assert!(!log.add(txgs(12, 14)), "it is there");
        assert!(log.contains(Txg::MAX) && !log.contains(Txg::new(9)));
        let cut = log.until(Txg::new(20));
        assert_eq!((all(&cut).len(), cut.count()), (11, 11));
        assert_eq!(log.first_beyond(&cut), Some(Txg::new(21)));
        assert_eq!(cut.first_beyond(&log), None);
        assert_eq!(log.until(Txg::MAX), log);
        log.remove(txgs(0, u64::MAX));
        assert!(log.is_empty() && log.bounds().is_none());
    }

    proptest! {
        /// The same as sets of numbers.
        #[test]
        fn logs_are_intersected_and_counted_as_sets(
            ranges in prop::collection::vec((0usize..3, 0u64..40, 0u64..12), 0..12),
            limit in 0usize..3
        ) {
            let mut logs = vec![Dtl::new(); 3];
            for (log, first, more) in ranges {
                logs[log].add(txgs(first, first + more));
            }
            let sets: Vec<BTreeSet<u64>> = logs.iter().map(all).collect();
            let both = logs[0].intersection(&logs[1]);
            prop_assert_eq!(all(&both), &sets[0] & &sets[1]);
            prop_assert_eq!(logs[0].intersection(&Dtl::all()), logs[0].clone());
            let count = |txg: u64| sets.iter().filter(|set| set.contains(&txg)).count();
            prop_assert_eq!(Dtl::exceed(&logs, limit), (0..80).any(|txg| count(txg) > limit));
        }

        /// The same as a set of numbers.
        #[test]
        fn a_log_is_a_set_of_txgs(
            steps in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..20), 0..40)
        ) {
            let (mut log, mut model) = (Dtl::new(), BTreeSet::new());
            for (is_added, first, more) in steps {
                let births = txgs(first, first + more);
                let before = model.len();
                match is_added {
                    true => {
                        model.extend(first..=first + more);
                        prop_assert_eq!(log.add(births), model.len() > before);
                    }
                    false => {
                        (first..=first + more).for_each(|txg| _ = model.remove(&txg));
                        log.remove(births);
                    }
                }
                prop_assert!(log.is_normal());
                prop_assert_eq!(&all(&log), &model);
                prop_assert_eq!(log.count(), u64::try_from(model.len()).unwrap());
                for txg in 0..80 {
                    prop_assert_eq!(log.contains(Txg::new(txg)), model.contains(&txg));
                }
            }
            let mut merged = Dtl::new();
            merged.add(txgs(30, 35));
            merged.merge(&log);
            model.extend(30..=35);
            prop_assert_eq!(&all(&merged), &model);
        }
    }
}
