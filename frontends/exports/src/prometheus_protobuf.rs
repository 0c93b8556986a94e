//! Metrics as protocol buffers, with native histograms: what Prometheus scrapes where it was
//! started with `--enable-feature=native-histograms`.
//!
//! The message is `io.prometheus.client.MetricFamily` of Prometheus' `metrics.proto`. Histograms
//! have their classic buckets, too: a Prometheus that stores no native ones takes those.

use crate::prometheus_buckets::{NativeHistogram, SCHEMA, classic, native, shown};
use crate::wire_writer::Message;
use tarn_administration::messages::statistics::{
    MetricFamilies, MetricFamily, MetricHistogram, MetricKind, MetricSample, MetricUnit,
    MetricValue,
};

/// Buckets without a count between two spans that are written as such: a span takes four bytes.
const GAP_MAX: i32 = 2;

/// All metrics, each family with its length before it.
pub fn prometheus_protobuf(metrics: &MetricFamilies) -> Vec<u8> {
    let mut out = Vec::new();
    for family in &metrics.families {
        family_message(family).delimited(&mut out);
    }
    out
}

fn family_message(family: &MetricFamily) -> Message {
    let mut message = Message::default();
    message.text(1, &family.name);
    message.text(2, &family.help);
    let kind = match family.kind {
        MetricKind::Counter => 0,
        MetricKind::Gauge => 1,
        MetricKind::Histogram => 4,
    };
    message.unsigned(3, kind);
    for sample in &family.samples {
        message.message(4, metric_message(family, sample));
    }
    message
}

fn metric_message(family: &MetricFamily, sample: &MetricSample) -> Message {
    let mut message = Message::default();
    for (name, value) in &sample.labels {
        let mut label = Message::default();
        label.text(1, name);
        label.text(2, value);
        message.message(1, label);
    }
    let number = |number: f64| {
        let mut value = Message::default();
        value.double(1, number);
        value
    };
    match (family.kind, &sample.value) {
        (_, MetricValue::Spread(histogram)) => {
            message.message(7, histogram_message(histogram, family.unit));
        }
        (MetricKind::Counter, value) => message.message(3, number(shown_of(value, family.unit))),
        (_, value) => message.message(2, number(shown_of(value, family.unit))),
    }
    message
}

fn shown_of(value: &MetricValue, unit: MetricUnit) -> f64 {
    match value {
        MetricValue::Whole(number) => shown(*number, unit),
        MetricValue::Signed(number) => *number as f64,
        MetricValue::Spread(histogram) => shown(histogram.count, MetricUnit::Whole),
    }
}

fn histogram_message(histogram: &MetricHistogram, unit: MetricUnit) -> Message {
    let mut message = Message::default();
    message.unsigned(1, histogram.count);
    message.double(2, shown(histogram.sum, unit));
    let last = (f64::INFINITY, histogram.count);
    for (bound, count) in classic(histogram, unit).into_iter().chain([last]) {
        let mut bucket = Message::default();
        bucket.unsigned(1, count);
        bucket.double(2, bound);
        message.message(3, bucket);
    }
    push_native(&mut message, &native(histogram, unit));
    message
}

/// Spans are runs of buckets: how far behind the one before each begins, and how many buckets it
/// has. Of the counts, each is the difference from the one before.
fn push_native(message: &mut Message, native: &NativeHistogram) {
    message.signed(5, SCHEMA.into());
    message.double(6, native.zero_threshold);
    message.unsigned(7, native.zero_count);
    let (spans, counts) = spans_of(&native.buckets);
    if spans.is_empty() {
        // Without a span it would be a classic histogram: one of no length says that it is none.
        let mut span = Message::default();
        span.signed(1, 0);
        span.unsigned(2, 0);
        message.message(12, span);
    }
    for (offset, length) in spans {
        let mut span = Message::default();
        span.signed(1, offset.into());
        span.unsigned(2, length);
        message.message(12, span);
    }
    let mut before = 0;
    for count in counts {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        message.signed(13, count - before);
        before = count;
    }
}

fn spans_of(buckets: &[(i32, u64)]) -> (Vec<(i32, u64)>, Vec<u64>) {
    let (mut spans, mut counts) = (Vec::<(i32, u64)>::new(), Vec::new());
    let mut next = 0;
    for (bucket, count) in buckets {
        let gap = bucket - next;
        match spans.last_mut() {
            Some((_, length)) if gap <= GAP_MAX => {
                let empty = u64::try_from(gap).expect("buckets ascend");
                *length += empty + 1;
                counts.extend((0..empty).map(|_| 0));
            }
            _ => spans.push((gap, 1)),
        }
        counts.push(*count);
        next = bucket + 1;
    }
    (spans, counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_runs_of_buckets_with_short_gaps() {
        let buckets = [(-50, 4), (-49, 2), (-46, 7), (3, 1)];
        let (spans, counts) = spans_of(&buckets);
        assert_eq!(spans, [(-50, 5), (48, 1)]);
        assert_eq!(counts, [4, 2, 0, 0, 7, 1]);
        assert_eq!(spans_of(&[]), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_counter_is_a_message_with_labels() {
        let family = MetricFamily {
            name: "a_total".to_owned(),
            help: "A.".to_owned(),
            kind: MetricKind::Counter,
            unit: MetricUnit::Whole,
            samples: vec![MetricSample {
                labels: vec![("p".to_owned(), "t".to_owned())],
                value: MetricValue::Whole(1),
            }],
        };
        let families = MetricFamilies {
            families: vec![family],
        };
        let expected = [
            &[0][..],
            &[0x0a, 7],
            b"a_total",
            &[0x12, 2],
            b"A.",
            &[0x18, 0],
            &[0x22, 19],
            &[0x0a, 6, 0x0a, 1, b'p', 0x12, 1, b't'],
            &[0x1a, 9, 0x09, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f],
        ]
        .concat();
        let bytes = prometheus_protobuf(&families);
        assert_eq!(usize::from(bytes[0]), bytes.len() - 1);
        assert_eq!(bytes[1..], expected[1..]);
    }
}
