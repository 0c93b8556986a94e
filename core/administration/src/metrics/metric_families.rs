//! Families of metrics as they are gathered: by name, and by labels.

use crate::messages::metrics::{
    MetricFamilies, MetricFamily, MetricHistogram, MetricKind, MetricSample, MetricUnit,
    MetricValue,
};
use std::collections::BTreeMap;
use tarn_probe::HistogramSnapshot;

/// Names and values of labels, by name.
pub(super) type Labels = Vec<(String, String)>;

/// What a family is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct About {
    pub(super) kind: MetricKind,
    pub(super) unit: MetricUnit,
}

/// A counter of things or bytes.
pub(super) const COUNTER: About = About {
    kind: MetricKind::Counter,
    unit: MetricUnit::Whole,
};
/// A counter of time.
pub(super) const COUNTER_OF_TIME: About = About {
    kind: MetricKind::Counter,
    unit: MetricUnit::Nanoseconds,
};
/// A number that goes up and down.
pub(super) const GAUGE: About = About {
    kind: MetricKind::Gauge,
    unit: MetricUnit::Whole,
};
/// Times by magnitude.
pub(super) const TIMES: About = About {
    kind: MetricKind::Histogram,
    unit: MetricUnit::Nanoseconds,
};

/// All families.
#[derive(Debug, Default)]
pub(super) struct Families(BTreeMap<String, Family>);

#[derive(Debug)]
struct Family {
    help: String,
    about: About,
    samples: BTreeMap<Labels, MetricValue>,
}

/// Labels of names and values.
pub(super) fn labels(pairs: &[(&str, &str)]) -> Labels {
    let mut labels: Labels = (pairs.iter())
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    labels.sort();
    labels
}

impl Families {
    /// Adds a number. Where there is one with these labels already, as of two datasets that had the
    /// same name one after the other, they are added up.
    pub(super) fn add(
        &mut self,
        name: &str,
        help: &str,
        about: About,
        labels: Labels,
        value: MetricValue,
    ) {
        let family = self.0.entry(name.to_owned()).or_insert_with(|| Family {
            help: help.to_owned(),
            about,
            samples: BTreeMap::new(),
        });
        assert_eq!(family.about, about, "{name} is of one kind");
        match family.samples.get_mut(&labels) {
            Some(known) => add_up(known, value),
            None => _ = family.samples.insert(labels, value),
        }
    }

    /// As they travel.
    pub(super) fn told(self) -> MetricFamilies {
        let families = self.0.into_iter().map(|(name, family)| MetricFamily {
            name,
            help: family.help,
            kind: family.about.kind,
            unit: family.about.unit,
            samples: (family.samples.into_iter())
                .map(|(labels, value)| MetricSample { labels, value })
                .collect(),
        });
        MetricFamilies {
            families: families.collect(),
        }
    }
}

fn add_up(known: &mut MetricValue, more: MetricValue) {
    match (known, more) {
        (MetricValue::Whole(known), MetricValue::Whole(more)) => {
            *known = known.saturating_add(more);
        }
        (MetricValue::Spread(known), MetricValue::Spread(more)) => {
            known.count = known.count.saturating_add(more.count);
            known.sum = known.sum.saturating_add(more.sum);
            for bucket in more.buckets {
                match known
                    .buckets
                    .binary_search_by_key(&bucket[0], |known| known[0])
                {
                    Ok(place) => {
                        let count = &mut known.buckets[place][2];
                        *count = count.saturating_add(bucket[2]);
                    }
                    Err(place) => known.buckets.insert(place, bucket),
                }
            }
        }
        (known, more) => *known = more,
    }
}

/// A histogram of a layer.
pub(super) fn spread(histogram: &HistogramSnapshot) -> MetricValue {
    let counts = histogram.buckets().iter().copied().enumerate();
    spread_of(histogram.count(), histogram.sum(), counts)
}

/// A histogram of counts by the number of their bucket.
pub(super) fn spread_of(
    count: u64,
    sum: u64,
    counts: impl Iterator<Item = (usize, u64)>,
) -> MetricValue {
    let counts = counts.filter(|(_, count)| *count > 0);
    MetricValue::Spread(MetricHistogram {
        count,
        sum,
        buckets: counts
            .map(|(bucket, count)| {
                let (low, high) = HistogramSnapshot::range_of(bucket);
                [low, high.saturating_add(1), count]
            })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread_at(buckets: &[(usize, u64)]) -> MetricValue {
        let count = buckets.iter().map(|(_, count)| count).sum();
        spread_of(count, 1000 * count, buckets.iter().copied())
    }

    #[test]
    fn numbers_with_the_same_labels_are_added_up() {
        let mut families = Families::default();
        let mut add = |labels: &[(&str, &str)], value| {
            families.add("a_seconds", "A.", TIMES, self::labels(labels), value);
        };
        add(
            &[("pool", "tank"), ("dataset", "tank/a")],
            spread_at(&[(3, 2), (9, 1)]),
        );
        add(
            &[("dataset", "tank/a"), ("pool", "tank")],
            spread_at(&[(3, 5), (5, 7)]),
        );
        add(&[("pool", "tank")], spread_at(&[(0, 1)]));
        let told = families.told().families;
        assert_eq!((told.len(), told[0].samples.len()), (1, 2));
        let both = &told[0].samples[0];
        assert_eq!(both.labels[0], ("dataset".to_owned(), "tank/a".to_owned()));
        assert_eq!(both.value, spread_at(&[(3, 7), (5, 7), (9, 1)]));
    }

    #[test]
    fn a_histogram_of_a_layer_keeps_its_buckets() {
        let histogram = tarn_probe::Histogram::new();
        histogram.record_many(1000, 98);
        histogram.record_many(1, 2);
        let MetricValue::Spread(told) = spread(&histogram.snapshot()) else {
            panic!("a histogram is counts by magnitude");
        };
        assert_eq!((told.count, told.sum), (100, 98_002));
        assert_eq!(told.buckets, [[0, 68, 2], [992, 1024, 98]]);
    }
}
