//! Buckets of Prometheus, made of ours.
//!
//! # Problem
//! Our buckets are log-linear: sixteen of equal width to an octave. Prometheus' native ones are
//! exponential: their bounds are powers of 2^(1/8) (schema 3). Its classic ones have any bounds,
//! and each of them is a series of its own.
//!
//! # Mechanism
//! *Native*: a bucket of ours overlaps one or two of those. Its count is split between the two by
//! the place of the bound in it; an eighth of an octave is wider than any of ours, so a value is
//! told at most one bucket (9.05 %) away from where it is. *Classic*: each octave is one bucket,
//! whose bound is a bound of ours, too.
//!
//! # Invariants
//! - The counts of native and of classic buckets add up to the count of the histogram.
//! - Each only grows while ours do: each share of a count grows with the count.
//! - A value of exactly 2^n ns is counted in the classic bucket behind its bound, as our buckets
//!   begin there: bounds of Prometheus are inclusive, and so a nanosecond off.

use tarn_administration::messages::statistics::{MetricHistogram, MetricUnit};

/// Native bounds are powers of 2^(2^-3).
pub(crate) const SCHEMA: i32 = 3;
/// Native buckets to an octave.
const PER_OCTAVE: f64 = 8.0;
/// What is shorter than a native histogram tells apart: the begin of our second bucket, 68 ns.
const ZERO_NS: u64 = 68;
/// Octaves that classic buckets tell apart: 2^10 ns (1 µs) to 2^35 ns (34 s).
const CLASSIC: std::ops::RangeInclusive<u32> = 10..=35;

/// A native histogram.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct NativeHistogram {
    /// Values up to this count as zero.
    pub(crate) zero_threshold: f64,
    pub(crate) zero_count: u64,
    /// Number and count of the buckets that have some, ascending. Bucket `i` has values above
    /// 2^((i - 1) / 8) and up to 2^(i / 8).
    pub(crate) buckets: Vec<(i32, u64)>,
}

/// What one is divided by to be shown.
pub(crate) fn scale_of(unit: MetricUnit) -> f64 {
    match unit {
        MetricUnit::Whole => 1.0,
        MetricUnit::Nanoseconds => 1e9,
    }
}

/// A number as Prometheus has all of them: 53 bits suffice for what is counted.
pub(crate) fn shown(number: u64, unit: MetricUnit) -> f64 {
    number as f64 / scale_of(unit)
}

/// The native buckets of a histogram.
pub(crate) fn native(histogram: &MetricHistogram, unit: MetricUnit) -> NativeHistogram {
    let mut native = NativeHistogram {
        zero_threshold: shown(ZERO_NS, unit),
        ..NativeHistogram::default()
    };
    let mut add = |bucket: i32, count: u64| match native.buckets.last_mut() {
        Some((last, counted)) if *last == bucket => *counted = counted.saturating_add(count),
        _ if count == 0 => {}
        _ => native.buckets.push((bucket, count)),
    };
    for [low, end, count] in &histogram.buckets {
        if *low < ZERO_NS {
            native.zero_count = native.zero_count.saturating_add(*count);
            continue;
        }
        let (low, end) = (shown(*low, unit), shown(*end, unit));
        let (first, last) = (bucket_above(low), bucket_with(end));
        if first >= last || end.is_infinite() {
            add(first, *count);
            continue;
        }
        // Only the last bucket of ours, which has no end, overlaps more than two.
        let bound = bound_of(first);
        assert!(low < end, "a bucket has values");
        let share = ((bound - low) / (end - low)).clamp(0.0, 1.0);
        let before = part_of(*count, share);
        add(first, before);
        add(first + 1, count - before);
    }
    native
}

/// The share of a count, rounded down: it grows with the count, and so does the rest.
fn part_of(count: u64, share: f64) -> u64 {
    // In 2^-32, so that no count is too large for it.
    let share = (share * 4_294_967_296.0) as u64;
    let part = (u128::from(count) * u128::from(share)) >> 32;
    u64::try_from(part).unwrap_or(count).min(count)
}

/// The bucket of values just above this one.
fn bucket_above(value: f64) -> i32 {
    let exact = value.log2() * PER_OCTAVE;
    let near = exact.round();
    // Bounds that both have, the powers of two, are not quite met in floating point.
    match (exact - near).abs() < 1e-6 {
        true => near as i32 + 1,
        false => exact.ceil() as i32,
    }
}

/// The bucket that has this value.
fn bucket_with(value: f64) -> i32 {
    let exact = value.log2() * PER_OCTAVE;
    let near = exact.round();
    match (exact - near).abs() < 1e-6 {
        true => near as i32,
        false => exact.ceil() as i32,
    }
}

/// The upper bound of a native bucket.
pub(crate) fn bound_of(bucket: i32) -> f64 {
    (f64::from(bucket) / PER_OCTAVE).exp2()
}

/// Upper bounds and cumulative counts of classic buckets, without the last one, which has all.
pub(crate) fn classic(histogram: &MetricHistogram, unit: MetricUnit) -> Vec<(f64, u64)> {
    let mut rest = histogram.buckets.iter().peekable();
    let mut counted: u64 = 0;
    let bounds = CLASSIC.map(|power| {
        let bound = 1_u64 << power;
        while let Some([_, _, count]) = rest.next_if(|[_, end, _]| *end <= bound) {
            counted = counted.saturating_add(*count);
        }
        (shown(bound, unit), counted)
    });
    bounds.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A histogram of values, by the buckets that Tarn has: sixteen to an octave, from 64 on.
    fn histogram(values: &[u64]) -> MetricHistogram {
        let mut all = MetricHistogram::default();
        for value in values {
            let clamped = (*value).max(64);
            let width = (1_u64 << (63 - clamped.leading_zeros())) / 16;
            let low = clamped / width * width;
            let low = if low == 64 { 0 } else { low };
            let end = clamped / width * width + width;
            all.count += 1;
            all.sum += value;
            match all.buckets.binary_search_by_key(&low, |bucket| bucket[0]) {
                Ok(place) => all.buckets[place][2] += 1,
                Err(place) => all.buckets.insert(place, [low, end, 1]),
            }
        }
        all
    }

    #[test]
    fn each_value_is_in_a_native_bucket_next_to_its_own_at_most() {
        for value in (0..3000_u64).map(|step| 100 + step * step * 401) {
            let native = native(&histogram(&[value]), MetricUnit::Nanoseconds);
            let counted: u64 = native.buckets.iter().map(|(_, count)| count).sum();
            assert_eq!(counted, 1, "{value}");
            let exact = bucket_with(shown(value, MetricUnit::Nanoseconds));
            let told = native.buckets[0].0;
            assert!(
                (told - exact).abs() <= 1,
                "{value}: {told}, and not {exact}"
            );
        }
    }

    #[test]
    fn counts_are_split_and_add_up_and_only_grow() {
        let mut values = Vec::new();
        let mut before = Vec::new();
        for step in 0..2000_u64 {
            values.push(step * 7919 % 100_000);
            let all = histogram(&values);
            let native = native(&all, MetricUnit::Nanoseconds);
            let counted: u64 = native.buckets.iter().map(|(_, count)| count).sum();
            assert_eq!(counted + native.zero_count, all.count);
            assert!(native.buckets.is_sorted_by_key(|(bucket, _)| *bucket));
            for (bucket, count) in &before {
                let now = native.buckets.iter().find(|(known, _)| known == bucket);
                assert!(now.is_some_and(|(_, now)| now >= count));
            }
            before = native.buckets;
        }
    }

    #[test]
    fn classic_buckets_are_octaves() {
        let all = histogram(&[10, 1023, 1024, 5000, u64::MAX / 4]);
        let classic = classic(&all, MetricUnit::Nanoseconds);
        assert_eq!(classic.len(), 26);
        assert_eq!(classic[0], (1.024e-6, 2));
        assert_eq!(classic[1], (2.048e-6, 3));
        assert_eq!(classic.last().unwrap().1, 4);
    }

    #[test]
    fn bounds_of_both_are_met() {
        // 2^20 ns is no power of two of a second: seconds and our buckets meet nowhere. Bytes do.
        assert_eq!(bucket_with(1024.0), 80);
        assert_eq!(bucket_above(1024.0), 81);
        assert_eq!(bound_of(80), 1024.0);
        assert_eq!(part_of(u64::MAX, 1.0), u64::MAX);
        assert_eq!(part_of(3, 0.5), 1);
    }
}
