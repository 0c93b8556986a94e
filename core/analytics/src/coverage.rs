//! Which times were collected, and where operations were lost.
//!
//! # Mechanism
//! Each pass of the collector covers the time since the pass before. Passes join into spans; a span
//! ends where the collector stood still. Operations that found their ring full between two passes
//! are noted with the time between the passes, joined within a second.
//!
//! # Invariants
//! - A time that is in no span is not collected: it is never told as zero.
//! - The drops noted add up to the drops told, unless their times were forgotten.

use std::collections::VecDeque;
use std::ops::Range;

/// Spans that are kept; the oldest is forgotten, and its time is then not collected.
const SPANS_MAX: usize = 4096;
/// Drops that are kept: eighteen hours of drops in each second. Beyond it the two oldest are
/// joined.
const DROPS_MAX: usize = 65_536;
/// Drops are joined within this time.
const SECOND_NS: u64 = 1_000_000_000;

/// Whether the operations of a time are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collected {
    /// All of them.
    Whole,
    /// Some may be missing: part of the time was not collected, or operations were dropped then.
    Partly,
    /// None: the collector did not run, or what it had is overwritten.
    NotCollected,
}

#[derive(Clone, Debug)]
struct Drops {
    range_ns: Range<u64>,
    count: u64,
}

/// What was collected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Coverage {
    spans: VecDeque<Range<u64>>,
    drops: VecDeque<Drops>,
}

impl Coverage {
    /// A pass of the collector has taken what ended in this time, except `dropped` operations.
    pub(crate) fn add(&mut self, range_ns: Range<u64>, dropped: u64) {
        match self.spans.back_mut() {
            Some(last) if range_ns.start <= last.end => last.end = last.end.max(range_ns.end),
            _ => self.spans.push_back(range_ns.clone()),
        }
        if self.spans.len() > SPANS_MAX {
            self.spans.pop_front();
        }
        if dropped > 0 {
            self.add_drops(range_ns, dropped);
        }
    }

    fn add_drops(&mut self, range_ns: Range<u64>, count: u64) {
        let second = |end_ns: u64| end_ns.saturating_sub(1) / SECOND_NS;
        match self.drops.back_mut() {
            Some(last) if second(last.range_ns.end) == second(range_ns.end) => {
                last.range_ns.end = range_ns.end;
                last.count += count;
            }
            _ => self.drops.push_back(Drops { range_ns, count }),
        }
        if self.drops.len() > DROPS_MAX
            && let Some(oldest) = self.drops.pop_front()
            && let Some(next) = self.drops.front_mut()
        {
            next.range_ns.start = oldest.range_ns.start;
            next.count += oldest.count;
        }
    }

    /// What ended before that time is no longer held.
    pub(crate) fn forget_before(&mut self, time_ns: u64) {
        while self.spans.front().is_some_and(|span| span.end <= time_ns) {
            self.spans.pop_front();
        }
        if let Some(first) = self.spans.front_mut() {
            first.start = first.start.max(time_ns);
        }
        while (self.drops.front()).is_some_and(|drops| drops.range_ns.end <= time_ns) {
            self.drops.pop_front();
        }
    }

    /// The oldest time that is covered.
    pub(crate) fn oldest_ns(&self) -> Option<u64> {
        self.spans.front().map(|span| span.start)
    }

    /// Up to which time the collector has come.
    pub(crate) fn newest_ns(&self) -> Option<u64> {
        self.spans.back().map(|span| span.end)
    }

    /// Whether the operations that ended in this time are known.
    pub(crate) fn of(&self, range_ns: &Range<u64>) -> Collected {
        let from = self
            .spans
            .partition_point(|span| span.end <= range_ns.start);
        let covered_ns: u64 = (self.spans.range(from..))
            .take_while(|span| span.start < range_ns.end)
            .map(|span| span.end.min(range_ns.end) - span.start.max(range_ns.start))
            .sum();
        match covered_ns {
            0 => Collected::NotCollected,
            _ if covered_ns < range_ns.end - range_ns.start => Collected::Partly,
            _ if self.dropped_in(range_ns) > 0 => Collected::Partly,
            _ => Collected::Whole,
        }
    }

    /// How many operations were dropped in passes that overlap this time.
    pub(crate) fn dropped_in(&self, range_ns: &Range<u64>) -> u64 {
        let is_before = |drops: &Drops| drops.range_ns.end <= range_ns.start;
        let from = self.drops.partition_point(is_before);
        let of_range = self.drops.range(from..);
        of_range
            .take_while(|drops| drops.range_ns.start < range_ns.end)
            .map(|drops| drops.count)
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_in_which_the_collector_stood_still_is_not_collected() {
        let mut coverage = Coverage::default();
        assert_eq!(coverage.of(&(0..10)), Collected::NotCollected);
        coverage.add(100..200, 0);
        coverage.add(200..300, 0);
        coverage.add(500..600, 0);
        assert_eq!(coverage.of(&(100..300)), Collected::Whole);
        assert_eq!(coverage.of(&(250..350)), Collected::Partly);
        assert_eq!(coverage.of(&(300..500)), Collected::NotCollected);
        assert_eq!(coverage.of(&(500..600)), Collected::Whole);
        coverage.forget_before(550);
        assert_eq!(coverage.of(&(100..300)), Collected::NotCollected);
        assert_eq!(coverage.of(&(500..600)), Collected::Partly);
        assert_eq!(
            (coverage.oldest_ns(), coverage.newest_ns()),
            (Some(550), Some(600))
        );
    }

    #[test]
    fn drops_are_told_for_the_time_of_their_pass_and_add_up() {
        let mut coverage = Coverage::default();
        let pass = |number: u64| number * SECOND_NS / 10..(number + 1) * SECOND_NS / 10;
        for number in 0..200_000 {
            coverage.add(pass(number), number % 3);
        }
        let all = 0..20_000 * SECOND_NS;
        let dropped: u64 = (0..200_000).map(|number| number % 3).sum();
        assert_eq!(coverage.dropped_in(&all), dropped);
        assert_eq!(coverage.of(&(0..SECOND_NS)), Collected::Partly);
        let seconds = (0..20_000).map(|n| n * SECOND_NS..(n + 1) * SECOND_NS);
        let by_second: u64 = seconds.map(|second| coverage.dropped_in(&second)).sum();
        assert!(by_second >= coverage.dropped_in(&all));
    }
}
