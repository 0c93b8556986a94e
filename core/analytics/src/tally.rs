//! A tally: how many operations, how much, and how they spread over the buckets of a histogram.
//!
//! The buckets are those of `probe`'s log-linear histogram. An octave takes memory when an
//! operation first falls into it, since most columns of a heat map have a few octaves.

use tarn_probe::{BUCKET_COUNT, HistogramSnapshot, SUB_BITS};

const BUCKETS_PER_OCTAVE: usize = 1 << SUB_BITS;
const OCTAVES: usize = BUCKET_COUNT / BUCKETS_PER_OCTAVE;

/// What was counted for one column of time and one key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Operations.
    pub count: u64,
    /// The sum of the measure: operations, bytes or nanoseconds.
    pub sum: u64,
    spread: Option<Box<Spread>>,
}

/// Counts by bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spread {
    /// The least number, and the most.
    range: (u64, u64),
    octaves: [Option<Box<[u64; BUCKETS_PER_OCTAVE]>>; OCTAVES],
}

impl Default for Spread {
    fn default() -> Spread {
        Spread {
            range: (u64::MAX, 0),
            octaves: Default::default(),
        }
    }
}

/// The bucket of a number.
pub(crate) fn bucket_number(number: u64) -> u16 {
    let bucket = HistogramSnapshot::bucket_of(number);
    u16::try_from(bucket).expect("a histogram has 496 buckets")
}

impl Tally {
    /// Counts one operation, in the bucket of `number` if there is one.
    pub fn add(&mut self, measure: u64, number: Option<u64>) {
        if let Some(number) = number {
            return self.add_in(measure, number, bucket_number(number));
        }
        self.count += 1;
        self.sum = self.sum.wrapping_add(measure);
    }

    /// As [`add`](Self::add), with the number's [bucket](bucket_number).
    pub(crate) fn add_in(&mut self, measure: u64, number: u64, bucket: u16) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(measure);
        let spread = self.spread.get_or_insert_default();
        let range = &mut spread.range;
        *range = (range.0.min(number), range.1.max(number));
        let bucket = usize::from(bucket);
        let octave = spread.octaves[bucket / BUCKETS_PER_OCTAVE].get_or_insert_default();
        octave[bucket % BUCKETS_PER_OCTAVE] += 1;
    }

    /// The least and the most of the numbers that were counted in buckets.
    pub fn range(&self) -> Option<(u64, u64)> {
        self.spread.as_ref().map(|spread| spread.range)
    }

    fn widen(&mut self, (least, most): (u64, u64)) {
        let range = &mut self.spread.get_or_insert_default().range;
        *range = (range.0.min(least), range.1.max(most));
    }

    /// Adds all of another one.
    pub fn merge(&mut self, other: &Tally) {
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
        for (bucket, count) in other.cells() {
            *self.bucket(bucket) += count;
        }
        if let Some(range) = other.range() {
            self.widen(range);
        }
    }

    fn bucket(&mut self, bucket: usize) -> &mut u64 {
        let spread = self.spread.get_or_insert_default();
        let octave = spread.octaves[bucket / BUCKETS_PER_OCTAVE].get_or_insert_default();
        &mut octave[bucket % BUCKETS_PER_OCTAVE]
    }

    /// The buckets that have operations, lowest first, with their counts. The values of a bucket:
    /// [`HistogramSnapshot::range_of`].
    pub fn cells(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let octaves = self.spread.iter().flat_map(|spread| spread.octaves.iter());
        octaves.enumerate().flat_map(|(octave, buckets)| {
            let buckets = buckets.iter().flat_map(|buckets| buckets.iter());
            let buckets = buckets.enumerate().filter(|(_, count)| **count > 0);
            buckets.map(move |(bucket, count)| (octave * BUCKETS_PER_OCTAVE + bucket, *count))
        })
    }

    /// The memory that it takes beside itself.
    pub(crate) fn bytes(&self) -> usize {
        let of_spread = |spread: &Spread| {
            let octaves = spread.octaves.iter().flatten().count();
            size_of::<Spread>() + octaves * size_of::<[u64; BUCKETS_PER_OCTAVE]>()
        };
        self.spread.as_deref().map_or(0, of_spread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_add_up_to_the_count_and_merge_without_loss() {
        let [mut whole, mut one, mut other]: [Tally; 3] = Default::default();
        for number in 0..5000_u64 {
            let value = number * number * number;
            whole.add(value, Some(value));
            let half = if number % 3 == 0 {
                &mut one
            } else {
                &mut other
            };
            half.add(value, Some(value));
        }
        one.merge(&other);
        assert_eq!(one, whole);
        assert_eq!(whole.range(), Some((0, 4999 * 4999 * 4999)));
        assert_eq!(Tally::default().range(), None);
        assert_eq!(whole.cells().map(|(_, count)| count).sum::<u64>(), 5000);
        assert!(whole.cells().is_sorted());
    }
}
