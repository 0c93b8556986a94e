//! Log-linear histograms: how often each magnitude was seen, within 6.25 %.
//!
//! # Mechanism
//! Each octave (from one power of two to the next) is cut into 16 buckets of equal width. 31
//! octaves from 64 to 2^37 make 496 buckets: 64 ns to 137 s, or 64 B to 128 GiB. What is smaller
//! falls into the first bucket, what is larger into the last. Counting is one relaxed addition. An
//! octave takes memory when it is first counted in: most histograms ever see only a few, and there
//! are many histograms (each kind of operation of each mounted dataset has two).
//!
//! # Invariants
//! - Two histograms merge by adding bucket by bucket, exactly: the histogram of a minute is the sum
//!   of its seconds, and the power-of-two histogram of `zpool iostat -w` is the sum of sixteen
//!   neighbours.
//! - The sum of all buckets is the number of values recorded.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of a value below its highest one that choose the bucket within an octave.
pub const SUB_BITS: u32 = 4;
/// The power of two at which buckets begin.
const FIRST_OCTAVE: u32 = 6;
const OCTAVES: u32 = 31;
/// The same as a count of places.
const OCTAVE_COUNT: usize = 31;
const BUCKETS_PER_OCTAVE: usize = 1 << SUB_BITS;
/// How many buckets there are.
pub const BUCKET_COUNT: usize = OCTAVE_COUNT * BUCKETS_PER_OCTAVE;

/// A histogram that any thread may add to.
#[derive(Debug, Default)]
pub struct Histogram {
    octaves: [OnceLock<Box<Octave>>; OCTAVE_COUNT],
    sum: AtomicU64,
}

/// The buckets from one power of two to the next.
type Octave = [AtomicU64; BUCKETS_PER_OCTAVE];

impl Histogram {
    /// An empty one. It takes half a KiB, and 128 bytes more for each octave that something was
    /// counted in.
    pub fn new() -> Histogram {
        Histogram::default()
    }

    /// The bucket that counts `value`.
    fn bucket(&self, value: u64) -> &AtomicU64 {
        let index = bucket_of(value);
        let octave = self.octaves[index / BUCKETS_PER_OCTAVE].get_or_init(Box::default);
        &octave[index % BUCKETS_PER_OCTAVE]
    }

    /// Counts one value.
    pub fn record(&self, value: u64) {
        self.record_by(Writers::Many, value);
    }

    /// Counts one value, at less cost where only one thread writes.
    pub(crate) fn record_by(&self, writers: Writers, value: u64) {
        writers.add(self.bucket(value), 1);
        writers.add(&self.sum, value);
    }

    /// Counts the same value several times.
    pub fn record_many(&self, value: u64, times: u64) {
        Writers::Many.add(self.bucket(value), times);
        Writers::Many.add(&self.sum, value.wrapping_mul(times));
    }

    /// What it holds now. Values recorded meanwhile may or may not be in it.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut snapshot = HistogramSnapshot::default();
        if self.octaves.iter().any(|octave| octave.get().is_some()) {
            snapshot.buckets = vec![0; BUCKET_COUNT];
        }
        let places = snapshot.buckets.chunks_mut(BUCKETS_PER_OCTAVE);
        for (places, octave) in places.zip(&self.octaves) {
            for (place, bucket) in places
                .iter_mut()
                .zip(octave.get().into_iter().flat_map(|o| o.iter()))
            {
                *place = bucket.load(Ordering::Relaxed);
            }
        }
        snapshot.sum = self.sum.load(Ordering::Relaxed);
        snapshot
    }
}

/// How many threads write to a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writers {
    /// One: a load and a store suffice, which is half the price of an atomic addition.
    One,
    /// Any number.
    Many,
}

impl Writers {
    /// Adds to a counter.
    pub(crate) fn add(self, counter: &AtomicU64, count: u64) {
        match self {
            Writers::Many => _ = counter.fetch_add(count, Ordering::Relaxed),
            Writers::One => {
                let sum = counter.load(Ordering::Relaxed).wrapping_add(count);
                counter.store(sum, Ordering::Relaxed);
            }
        }
    }
}

/// The contents of a histogram at one moment, or the difference or union of several.
#[derive(Clone, Debug, Default)]
pub struct HistogramSnapshot {
    /// Empty where nothing was ever recorded: a tree of devices that are not there has thousands of
    /// these.
    buckets: Vec<u64>,
    sum: u64,
}

/// What an empty one counts.
static NOTHING: [u64; BUCKET_COUNT] = [0; BUCKET_COUNT];

impl PartialEq for HistogramSnapshot {
    fn eq(&self, other: &Self) -> bool {
        self.sum == other.sum && self.buckets() == other.buckets()
    }
}

impl Eq for HistogramSnapshot {}

impl HistogramSnapshot {
    /// The counts, lowest bucket first.
    pub fn buckets(&self) -> &[u64] {
        match self.buckets.is_empty() {
            true => &NOTHING,
            false => &self.buckets,
        }
    }

    /// How many values were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The exact sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The mean, 0 if empty.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count()).unwrap_or(0)
    }

    /// Adds another one.
    pub fn merge(&mut self, other: &HistogramSnapshot) {
        if self.buckets.is_empty() {
            self.buckets.clone_from(&other.buckets);
        } else {
            for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
                *mine += theirs;
            }
        }
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// What came after `earlier`, a snapshot of the same histogram.
    pub fn since(&self, earlier: &HistogramSnapshot) -> HistogramSnapshot {
        let difference = |(now, then): (&u64, &u64)| now.saturating_sub(*then);
        HistogramSnapshot {
            buckets: self
                .buckets
                .iter()
                .zip(earlier.buckets())
                .map(difference)
                .collect(),
            sum: self.sum.wrapping_sub(earlier.sum),
        }
    }

    /// The value below or at which `permille` of 1000 values lie: the upper end of the bucket
    /// that holds it. 0 if empty.
    pub fn permille(&self, permille: u64) -> u64 {
        let wanted = (self.count() * permille.min(1000)).div_ceil(1000).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return bucket_range(index).1;
            }
        }
        0
    }

    /// The value below or at which `percent` of the values lie.
    pub fn percentile(&self, percent: u64) -> u64 {
        self.permille(percent * 10)
    }

    /// Counts by power of two: entry `n` counts values from 2^n up to 2^(n+1) - 1, the last one all
    /// above. What is smaller than 64 is in entry 6.
    pub fn by_power_of_two(&self, entries: usize) -> Vec<u64> {
        let mut result = vec![0; entries];
        for (octave, counts) in self.buckets.chunks(BUCKETS_PER_OCTAVE).enumerate() {
            let power = octave + usize::try_from(FIRST_OCTAVE).expect("a small number");
            if let Some(last) = entries.checked_sub(1) {
                result[power.min(last)] += counts.iter().sum::<u64>();
            }
        }
        result
    }

    /// The bucket, an index below [`BUCKET_COUNT`], that counts `value`.
    pub fn bucket_of(value: u64) -> usize {
        bucket_of(value)
    }

    /// The lowest and highest value of a bucket.
    pub fn range_of(index: usize) -> (u64, u64) {
        bucket_range(index)
    }
}

/// The bucket that counts `value`.
fn bucket_of(value: u64) -> usize {
    let value = value.clamp(1 << FIRST_OCTAVE, (1 << (FIRST_OCTAVE + OCTAVES)) - 1);
    let octave = 63 - value.leading_zeros();
    let within = (value >> (octave - SUB_BITS)) & ((1 << SUB_BITS) - 1);
    let index = u64::from(octave - FIRST_OCTAVE) << SUB_BITS | within;
    usize::try_from(index).expect("less than the number of buckets")
}

/// The lowest and highest value a bucket counts.
fn bucket_range(index: usize) -> (u64, u64) {
    let octave = FIRST_OCTAVE + u32::try_from(index / BUCKETS_PER_OCTAVE).expect("a small number");
    let within = u64::try_from(index % BUCKETS_PER_OCTAVE).expect("a small number");
    let width = 1_u64 << (octave - SUB_BITS);
    let low = (1 << octave) + within * width;
    let high = if index + 1 >= BUCKET_COUNT {
        u64::MAX
    } else {
        low + width - 1
    };
    (if index == 0 { 0 } else { low }, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_snapshot_is_one_of_nothing() {
        let histogram = Histogram::default();
        let (empty, nothing) = (HistogramSnapshot::default(), histogram.snapshot());
        assert_eq!(empty, nothing);
        histogram.record(1000);
        let mut sum = HistogramSnapshot::default();
        sum.merge(&histogram.snapshot());
        assert_eq!(sum, histogram.snapshot());
        assert_eq!(sum.since(&empty), sum);
        assert_eq!(empty.since(&nothing), empty);
        assert_eq!(empty.percentile(50), 0);
    }

    /// A cheap stream of numbers of all magnitudes.
    fn values(mut state: u64) -> impl Iterator<Item = u64> {
        std::iter::repeat_with(move || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            state >> 20 >> (state >> 58)
        })
    }

    #[test]
    fn every_value_is_counted_in_the_bucket_whose_range_holds_it() {
        for value in values(1)
            .take(10_000)
            .chain([0, 63, 64, 65, (1 << 37) - 1, 1 << 37, u64::MAX])
        {
            let (low, high) = bucket_range(bucket_of(value));
            assert!(
                low <= value && value <= high,
                "{value} is not in {low}..={high}"
            );
        }
    }

    #[test]
    fn buckets_follow_each_other_without_gap_and_are_at_most_a_sixteenth_wide() {
        for index in 1..BUCKET_COUNT {
            let (low, high) = bucket_range(index);
            assert_eq!(low, bucket_range(index - 1).1 + 1);
            assert!(index + 1 == BUCKET_COUNT || (high - low + 1) * 16 <= low);
        }
    }

    #[test]
    fn merging_sixty_parts_gives_exactly_the_histogram_of_the_whole() {
        let whole = Histogram::new();
        let mut merged = HistogramSnapshot::default();
        for part in 0..60 {
            let second = Histogram::new();
            for value in values(part).take(500) {
                whole.record(value);
                second.record(value);
            }
            merged.merge(&second.snapshot());
        }
        assert_eq!(merged, whole.snapshot());
        assert_eq!(merged.count(), 30_000);
    }

    #[test]
    fn what_came_since_a_snapshot_is_the_rest() {
        let histogram = Histogram::new();
        histogram.record(100);
        let before = histogram.snapshot();
        histogram.record_many(5000, 3);
        let rest = histogram.snapshot().since(&before);
        assert_eq!((rest.count(), rest.sum(), rest.mean()), (3, 15_000, 5000));
    }

    #[test]
    fn percentiles_are_within_a_bucket_of_the_truth() {
        let histogram = Histogram::new();
        (1..=10_000).for_each(|value| histogram.record(value * 100));
        let snapshot = histogram.snapshot();
        for (percent, truth) in [(50, 500_000), (99, 990_000), (100, 1_000_000)] {
            let found = snapshot.percentile(percent);
            assert!(
                found >= truth && found - truth <= truth / 16,
                "{percent} % is {found}"
            );
        }
        assert_eq!(HistogramSnapshot::default().percentile(50), 0);
    }

    #[test]
    fn powers_of_two_count_what_the_fine_buckets_count() {
        let histogram = Histogram::new();
        for value in [512, 1023, 1024, 4096, 1 << 20, u64::MAX] {
            histogram.record(value);
        }
        let powers = histogram.snapshot().by_power_of_two(25);
        assert_eq!(
            (powers[9], powers[10], powers[12], powers[20], powers[24]),
            (2, 1, 1, 1, 1)
        );
        assert_eq!(powers.iter().sum::<u64>(), 6);
    }
}
