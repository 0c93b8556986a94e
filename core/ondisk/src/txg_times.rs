//! When txgs were stored, roughly: `zpool scrub -S` and `-E` find the txgs of dates by it.
//!
//! Three arrays of words in the pool directory, under
//! [`TXG_TIMES`](crate::pool_directory::TXG_TIMES): one with a txg every ten minutes, one with a
//! txg a day, one with a txg a month. No feature goes with them: an OpenZFS before 2.4 leaves them
//! alone.
//!
//! An array is a ring: the indexes of its first entry and of the one behind its last, the number of
//! its entries, and 256 pairs of a time and a txg.

use std::collections::VecDeque;

/// The entries of a ring.
#[doc(alias = "RRD_MAX_ENTRIES")]
const ENTRIES: usize = 256;

const HEAD_WORDS: usize = 3;
const WORDS: usize = HEAD_WORDS + 2 * ENTRIES;

const DAY_S: u64 = 24 * 60 * 60;
const MONTH_S: u64 = 30 * DAY_S;

/// A txg, and when it was stored, in seconds since 1970, UTC.
#[doc(alias = "rrd_data_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    time_s: u64,
    txg: u64,
}

/// The entries of one resolution, oldest first.
#[doc(alias = "rrd_t")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimeRing(VecDeque<Entry>);

impl TimeRing {
    /// From the array that is stored. None of one that makes no sense.
    pub fn from_words(words: &[u64]) -> Option<TimeRing> {
        let [first, _, count, entries @ ..] = words else {
            return None;
        };
        let (pairs, rest) = entries.as_chunks::<2>();
        let (first, count) = (usize::try_from(*first), usize::try_from(*count));
        let (first, count) = (first.ok()?, count.ok()?);
        if words.len() != WORDS || !rest.is_empty() || first >= ENTRIES || count > ENTRIES {
            return None;
        }
        let entry = |index: usize| {
            let [time_s, txg] = pairs[(first + index) % ENTRIES];
            Entry { time_s, txg }
        };
        Some(TimeRing((0..count).map(entry).collect()))
    }

    /// The array that is stored.
    pub fn to_words(&self) -> Vec<u64> {
        let count = self.0.len();
        assert!(count <= ENTRIES, "a ring has no more entries than fit");
        let head = [0, count % ENTRIES, count];
        let mut words: Vec<u64> = head.map(crate::declare::widen).to_vec();
        words.extend(self.0.iter().flat_map(|entry| [entry.time_s, entry.txg]));
        words.resize(WORDS, 0);
        words
    }

    fn last_s(&self) -> u64 {
        self.0.back().map_or(0, |last| last.time_s)
    }

    fn add(&mut self, entry: Entry) {
        if self
            .0
            .back()
            .is_some_and(|last| last.time_s == entry.time_s)
        {
            self.0.pop_back();
        }
        if self.0.len() == ENTRIES {
            self.0.pop_front();
        }
        self.0.push_back(entry);
    }

    /// The last entry that is not after a time.
    fn until(&self, time_s: u64) -> Option<Entry> {
        let found = self.0.iter().take_while(|entry| entry.time_s <= time_s);
        found.last().copied()
    }

    /// The first entry that is not before a time.
    fn from(&self, time_s: u64) -> Option<Entry> {
        let mut all = self.0.iter();
        all.find(|entry| entry.time_s >= time_s).copied()
    }
}

/// When txgs were stored.
#[doc(alias = "dbrrd_t")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TxgTimes {
    /// A txg every ten minutes.
    pub minutes: TimeRing,
    /// A txg a day.
    pub days: TimeRing,
    /// A txg a month.
    pub months: TimeRing,
}

impl TxgTimes {
    /// Notes that a txg is stored at this time, in seconds since 1970. It goes into the coarsest
    /// ring whose last entry is old enough. While the clock is behind all of them, it is left out.
    #[doc(alias = "dbrrd_add")]
    pub fn add(&mut self, time_s: u64, txg: u64) {
        let entry = Entry { time_s, txg };
        let is_due = |ring: &TimeRing, interval_s: u64| {
            let since_s = time_s.checked_sub(ring.last_s());
            since_s.is_some_and(|since_s| since_s >= interval_s)
        };
        if is_due(&self.months, MONTH_S) {
            self.months.add(entry);
        } else if is_due(&self.days, DAY_S) {
            self.days.add(entry);
        } else if is_due(&self.minutes, 0) {
            self.minutes.add(entry);
        }
    }

    /// The txg that was stored last until a time; none where that is not known.
    #[doc(alias = "DBRRD_FLOOR")]
    pub fn txg_until(&self, time_s: u64) -> Option<u64> {
        let found = self.rings().map(|ring| ring.until(time_s));
        let newest = found.into_iter().flatten().max_by_key(|entry| entry.time_s);
        newest.map(|entry| entry.txg)
    }

    /// The txg that was stored first from a time on; none where that is not known.
    #[doc(alias = "DBRRD_CEILING")]
    pub fn txg_from(&self, time_s: u64) -> Option<u64> {
        let found = self.rings().map(|ring| ring.from(time_s));
        let oldest = found.into_iter().flatten().min_by_key(|entry| entry.time_s);
        oldest.map(|entry| entry.txg)
    }

    fn rings(&self) -> [&TimeRing; 3] {
        [&self.minutes, &self.days, &self.months]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    /// A txg every ten minutes for so many days.
    fn days(count: u64) -> TxgTimes {
        let mut times = TxgTimes::default();
        (0..count * 144).for_each(|at| times.add(NOW_S + at * 600, 1000 + at));
        times
    }

    #[test]
    fn txgs_go_to_the_coarsest_ring_that_is_due_and_old_ones_give_way() {
        let times = days(70);
        let counts = times.rings().map(|ring| ring.0.len());
        assert_eq!(counts, [256, 70, 3]);
        let last = 1000 + 70 * 144 - 1;
        assert_eq!(times.txg_until(u64::MAX), Some(last));
        assert_eq!(times.txg_from(NOW_S + 70 * DAY_S), None);
        // The last day has ten minutes each, older ones a day or two.
        assert_eq!(
            times.txg_until(NOW_S + 69 * DAY_S + 6_100),
            Some(1000 + 69 * 144 + 10)
        );
        assert_eq!(
            times.txg_from(NOW_S + 69 * DAY_S + 6_100),
            Some(1000 + 69 * 144 + 11)
        );
        let old_s = NOW_S + 20 * DAY_S + 4000;
        let (until, from) = (times.txg_until(old_s), times.txg_from(old_s));
        assert!(until.is_some_and(|txg| (1000 + 18 * 144..=1000 + 20 * 144 + 6).contains(&txg)));
        assert!(from.is_some_and(|txg| (1000 + 20 * 144 + 7..=1000 + 22 * 144).contains(&txg)));
        assert_eq!(times.txg_until(NOW_S - 1), None);
        assert_eq!(times.txg_from(0), Some(1000));
    }

    #[test]
    fn a_clock_that_went_back_adds_nothing_until_it_is_there_again() {
        let mut times = days(2);
        let before = times.clone();
        times.add(NOW_S, 9_999);
        assert_eq!(times, before);
        times.add(NOW_S + 3 * DAY_S, 9_999);
        assert_ne!(times, before);
    }

    /// The layout of OpenZFS: first, end, count, pairs of time and txg.
    #[test]
    fn a_ring_survives_as_words() {
        let times = days(3);
        for ring in times.rings() {
            let words = ring.to_words();
            assert_eq!(words.len(), 515);
            assert_eq!(TimeRing::from_words(&words).as_ref(), Some(ring));
        }
        assert_eq!(times.months.to_words()[..5], [0, 1, 1, NOW_S, 1000]);
        // A full ring whose first entry is in the middle.
        let mut words = times.minutes.to_words();
        assert_eq!(words[..3], [0, 0, 256]);
        words[3..].rotate_right(20);
        (words[0], words[1]) = (10, 10);
        assert_eq!(TimeRing::from_words(&words), Some(times.minutes.clone()));
    }

    #[test]
    fn an_array_that_makes_no_sense_is_refused() {
        let words = days(3).days.to_words();
        assert_eq!(TimeRing::from_words(&words[1..]), None);
        assert_eq!(TimeRing::from_words(&[]), None);
        for (index, value) in [(0, 256), (0, u64::MAX), (2, 257), (2, u64::MAX)] {
            let mut wrong = words.clone();
            wrong[index] = value;
            assert_eq!(TimeRing::from_words(&wrong), None, "{index}: {value}");
        }
    }
}
