//! The ranges of a file that an owner has locked: how many there are, and whether there are any.

use tarn_engine::files::LockRange;

/// Ranges in their order, none of which meets another.
#[derive(Debug, Default)]
pub(crate) struct HeldRanges {
    ranges: Vec<LockRange>,
}

impl HeldRanges {
    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// A range was locked.
    pub(crate) fn add(&mut self, range: LockRange) {
        let meets = |held: &LockRange| {
            held.first <= range.last.saturating_add(1) && range.first <= held.last.saturating_add(1)
        };
        let mut whole = range;
        for held in self.ranges.iter().filter(|held| meets(held)) {
            whole.first = whole.first.min(held.first);
            whole.last = whole.last.max(held.last);
        }
        self.ranges.retain(|held| !meets(held));
        let at = (self.ranges).partition_point(|held| held.first < whole.first);
        self.ranges.insert(at, whole);
    }

    /// A range was unlocked.
    pub(crate) fn remove(&mut self, range: LockRange) {
        let mut rest = Vec::with_capacity(self.ranges.len());
        for held in &self.ranges {
            if held.last < range.first || range.last < held.first {
                rest.push(*held);
                continue;
            }
            if held.first < range.first {
                rest.push(LockRange {
                    last: range.first - 1,
                    ..*held
                });
            }
            if range.last < held.last {
                rest.push(LockRange {
                    first: range.last + 1,
                    ..*held
                });
            }
        }
        self.ranges = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_meet_are_split_and_go() {
        let range = |first, last| LockRange { first, last };
        let mut held = HeldRanges::default();
        held.add(range(10, 19));
        held.add(range(30, 39));
        assert_eq!(held.len(), 2);
        held.add(range(20, 29));
        assert_eq!(held.ranges, [range(10, 39)]);
        held.remove(range(15, 16));
        assert_eq!(held.ranges, [range(10, 14), range(17, 39)]);
        held.add(LockRange::WHOLE);
        assert_eq!(held.len(), 1);
        held.remove(range(u64::MAX, u64::MAX));
        held.remove(range(0, 5));
        assert_eq!(held.ranges, [range(6, u64::MAX - 1)]);
        held.remove(LockRange::WHOLE);
        assert_eq!(held.len(), 0);
    }
}
