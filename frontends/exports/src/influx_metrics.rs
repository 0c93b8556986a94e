//! Metrics as InfluxDB's line protocol, beside the measurements of `zpool_influxdb`.
//!
//! A measurement has the name of its metric, without `_total`, and its labels as tags. Its field is
//! `value`; of a histogram `count` and `sum`, and for each octave that has values a line with the
//! tag `le` and the field `bucket`.

use crate::influx_line::Line;
use crate::prometheus_buckets::{classic, shown};
use crate::zpool_influxdb::LineOptions;
use tarn_administration::messages::statistics::{
    MetricFamilies, MetricFamily, MetricHistogram, MetricSample, MetricUnit, MetricValue,
};

/// The lines of all metrics.
pub fn metric_lines(metrics: &MetricFamilies, options: &LineOptions, time_ns: u64) -> String {
    let mut out = String::new();
    for family in &metrics.families {
        for sample in &family.samples {
            let line = line_of(family, sample, options);
            match &sample.value {
                MetricValue::Spread(histogram) => {
                    let sum = format!("{:?}", shown(histogram.sum, family.unit));
                    let line = line.field("count", histogram.count).number("sum", &sum);
                    line.end(&mut out, time_ns);
                    if options.has_histograms {
                        push_buckets(&mut out, family, sample, histogram, (options, time_ns));
                    }
                }
                MetricValue::Signed(number) => {
                    // A number below zero has no unsigned form.
                    let number = format!("{number}i");
                    line.number("value", &number).end(&mut out, time_ns);
                }
                MetricValue::Whole(number) if family.unit == MetricUnit::Nanoseconds => {
                    let seconds = format!("{:?}", shown(*number, family.unit));
                    line.number("value", &seconds).end(&mut out, time_ns);
                }
                MetricValue::Whole(number) => {
                    line.field("value", *number).end(&mut out, time_ns);
                }
            }
        }
    }
    out
}

fn line_of(family: &MetricFamily, sample: &MetricSample, options: &LineOptions) -> Line {
    let name = family.name.strip_suffix("_total").unwrap_or(&family.name);
    let line = Line::new(name, &options.tags, options.integers());
    let labels = sample.labels.iter();
    labels.fold(line, |line, (name, value)| line.tag(name, value))
}

fn push_buckets(
    out: &mut String,
    family: &MetricFamily,
    sample: &MetricSample,
    histogram: &MetricHistogram,
    (options, time_ns): (&LineOptions, u64),
) {
    let last = (f64::INFINITY, histogram.count);
    let mut before = 0;
    for (bound, below) in classic(histogram, family.unit).into_iter().chain([last]) {
        let count = match options.sums_buckets {
            true => below,
            false => below.saturating_sub(before),
        };
        before = below;
        if count > 0 {
            let bound = match bound.is_infinite() {
                true => "+Inf".to_owned(),
                false => format!("{bound:?}"),
            };
            let line = line_of(family, sample, options).tag("le", &bound);
            line.field("bucket", count).end(out, time_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_administration::messages::statistics::MetricKind;

    fn lines(options: &LineOptions) -> String {
        let family = |name: &str, kind, unit, value| MetricFamily {
            name: name.to_owned(),
            help: String::new(),
            kind,
            unit,
            samples: vec![MetricSample {
                labels: vec![("pool".to_owned(), "a b".to_owned())],
                value,
            }],
        };
        let spread = MetricValue::Spread(MetricHistogram {
            count: 3,
            sum: 1_500_000_000,
            buckets: vec![[992, 1024, 2], [2048, 2176, 1]],
        });
        let (whole, times) = (MetricUnit::Whole, MetricUnit::Nanoseconds);
        let families = vec![
            family("a_seconds", MetricKind::Histogram, times, spread),
            family("b_total", MetricKind::Counter, whole, MetricValue::Whole(7)),
            family("c", MetricKind::Gauge, whole, MetricValue::Signed(-7)),
        ];
        metric_lines(&MetricFamilies { families }, options, 9)
    }

    #[test]
    fn a_metric_is_a_measurement_with_labels_as_tags() {
        let expected = "\
a_seconds,pool=a\\ b count=3u,sum=1.5 9
a_seconds,pool=a\\ b,le=1.024e-6 bucket=2u 9
a_seconds,pool=a\\ b,le=4.096e-6 bucket=1u 9
b,pool=a\\ b value=7u 9
c,pool=a\\ b value=-7i 9
";
        assert_eq!(lines(&LineOptions::default()), expected);
        let plain = LineOptions {
            has_histograms: false,
            is_signed: true,
            tags: "host=x".to_owned(),
            ..LineOptions::default()
        };
        let text = lines(&plain);
        assert!(
            text.starts_with("a_seconds,host=x,pool=a\\ b count=3i,sum=1.5 9\nb,"),
            "{text}"
        );
    }
}
