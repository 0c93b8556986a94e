//! Allocated and free bytes of vdevs and classes, for `zpool list` and for quotas.

use crate::class::Class;
use crate::range_tree::{HISTOGRAM_BUCKETS, bucket};
use tarn_ondisk::units::{AllocatedSize, VdevId};

/// How bad it is, in percent, that free space comes in ranges of 512 bytes, 1 KiB, 2 KiB, and so
/// on. The numbers are OpenZFS's, so that `zpool list` says the same.
#[doc(alias = "zfs_frag_table")]
const FRAGMENTATION_OF: [u64; 21] = [
    100, 99, 97, 93, 88, 83, 77, 71, 64, 57, 50, 43, 36, 29, 23, 17, 12, 7, 3, 1, 0,
];

/// Free ranges counted by the power of two at or below their size.
pub type Histogram = [u64; HISTOGRAM_BUCKETS];

/// The space of some metaslabs. `size` is the sum of what is allocated, deferred and free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Everything.
    pub size: AllocatedSize,
    /// What blocks are in.
    pub allocated: AllocatedSize,
    /// What was freed and may not be used again yet.
    pub deferred: AllocatedSize,
}

impl Totals {
    /// What may be handed out.
    pub fn free(&self) -> AllocatedSize {
        self.size
            .saturating_sub(self.allocated)
            .saturating_sub(self.deferred)
    }

    pub(crate) fn add(&mut self, other: Totals) {
        self.size += other.size;
        self.allocated += other.allocated;
        self.deferred += other.deferred;
    }
}

/// What one vdev gives to one class.
#[derive(Debug, Clone)]
pub struct GroupTotals {
    /// The vdev.
    pub vdev: VdevId,
    /// The class.
    pub class: Class,
    /// Its space.
    pub totals: Totals,
    /// In percent, as OpenZFS reckons it. `None` when too few metaslabs have a histogram.
    pub fragmentation: Option<u64>,
    /// Free ranges by size.
    pub histogram: Box<Histogram>,
}

/// How fragmented the free ranges of a histogram are, in percent. Zero when there are none.
pub fn fragmentation(histogram: &Histogram) -> u64 {
    let smallest = bucket(512);
    let mut weighted = 0_u128;
    let mut total = 0_u128;
    for (exponent, &count) in histogram.iter().enumerate().skip(smallest) {
        let bytes = u128::from(count) << exponent;
        let row = (exponent - smallest).min(FRAGMENTATION_OF.len() - 1);
        weighted += bytes * u128::from(FRAGMENTATION_OF[row]);
        total += bytes;
    }
    let percent = weighted.checked_div(total).unwrap_or(0);
    u64::try_from(percent).expect("a weighted mean of percents is a percent")
}

/// The fragmentation of groups together: their mean, weighted by size.
#[doc(alias = "metaslab_class_fragmentation")]
pub fn fragmentation_of(groups: &[GroupTotals]) -> Option<u64> {
    let mut weighted = 0_u128;
    let mut total = 0_u128;
    for group in groups {
        let size = u128::from(group.totals.size.get());
        weighted += size * u128::from(group.fragmentation?);
        total += size;
    }
    let percent = weighted.checked_div(total)?;
    Some(u64::try_from(percent).expect("a weighted mean of percents is a percent"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_large_range_is_not_fragmented_and_sectors_are() {
        let mut histogram = [0; HISTOGRAM_BUCKETS];
        assert_eq!(fragmentation(&histogram), 0);
        histogram[29] = 1;
        assert_eq!(fragmentation(&histogram), 0);
        histogram[29] = 0;
        histogram[9] = 1000;
        assert_eq!(fragmentation(&histogram), 100);
        histogram[17] = 1;
        assert!((80..100).contains(&fragmentation(&histogram)));
    }
}
