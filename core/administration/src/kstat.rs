//! `tarn kstat`: all statistics of this process.
//!
//! Layers register their statistics in the tree of `probe`; this file turns it into JSON. A number
//! stays a number, a row of a table (`txgs`) becomes an object, a histogram shows its count, sum,
//! percentiles and every bucket that is not empty, each 6.25 % wide.

use crate::administrator::Administrator;
use crate::messages::statistics::{Kstat, KstatGroup, Kstats};
use serde_json::{Map, json};
use tarn_probe::{HistogramSnapshot, Value, registry};

/// Percentiles that are shown, in thousandths.
const PERCENTILES: [(&str, u64); 5] = [
    ("p50", 500),
    ("p90", 900),
    ("p99", 990),
    ("p999", 999),
    ("max", 1000),
];

impl Administrator {
    pub(crate) fn kstat(&self, request: &Kstat) -> Kstats {
        self.engine.cache.publish_sizes();
        let now = self.engine.host.unix_time();
        let seconds = u64::try_from(now.seconds).unwrap_or(0);
        let snaptime = seconds * 1_000_000_000 + u64::from(now.nanoseconds);
        let snapshot = registry().snapshot(&request.pattern);
        let groups = snapshot.iter().map(|(module, instance, name, values)| {
            let data: Map<_, _> = values
                .iter()
                .map(|(statistic, value)| (statistic.clone(), json_of(value)))
                .collect();
            KstatGroup {
                module: module.to_string(),
                instance,
                name: name.to_string(),
                class: class_of(values.values()).to_string(),
                snaptime,
                data,
            }
        });
        Kstats {
            groups: groups.collect(),
        }
    }
}

/// The class of a group: a table, or single values.
fn class_of<'a>(mut values: impl Iterator<Item = &'a Value>) -> &'static str {
    match values.any(|value| matches!(value, Value::Row(_))) {
        true => "table",
        false => "misc",
    }
}

fn json_of(value: &Value) -> serde_json::Value {
    match value {
        Value::Counter(count) => json!(count),
        Value::Gauge(number) => json!(number),
        Value::Text(text) => json!(text),
        Value::Histogram(histogram) => histogram_json(histogram),
        Value::Row(columns) => {
            let column = |(name, value): &(&str, Value)| (name.to_string(), json_of(value));
            columns.iter().map(column).collect::<Map<_, _>>().into()
        }
    }
}

fn histogram_json(histogram: &HistogramSnapshot) -> serde_json::Value {
    let mut shown = Map::new();
    shown.insert("count".into(), json!(histogram.count()));
    shown.insert("sum".into(), json!(histogram.sum()));
    for (name, permille) in PERCENTILES {
        shown.insert(name.into(), json!(histogram.permille(permille)));
    }
    let counts = histogram.buckets().iter().enumerate();
    let buckets = counts
        .filter(|(_, count)| **count > 0)
        .map(|(index, count)| {
            let (low, high) = HistogramSnapshot::range_of(index);
            json!([low, high, count])
        });
    shown.insert("buckets".into(), buckets.collect());
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_probe::Histogram;

    #[test]
    fn a_histogram_shows_all_that_it_counted() {
        let histogram = Histogram::new();
        histogram.record_many(1000, 98);
        histogram.record_many(1_000_000, 2);
        let shown = json_of(&Value::Histogram(histogram.snapshot()));
        assert_eq!(shown["count"], 100);
        assert_eq!(shown["sum"], 2_098_000);
        assert_eq!(shown["p50"], 1023);
        assert_eq!(shown["p99"], shown["max"]);
        let buckets = shown["buckets"].as_array().unwrap();
        assert_eq!(buckets[0], json!([992, 1023, 98]));
        assert_eq!(buckets.len(), 2);
    }

    #[test]
    fn an_empty_histogram_has_no_buckets() {
        let shown = json_of(&Value::Histogram(HistogramSnapshot::default()));
        assert_eq!(shown["count"], 0);
        assert_eq!(shown["buckets"], json!([]));
    }

    #[test]
    fn a_row_keeps_the_order_of_its_columns() {
        let columns = vec![
            ("state", Value::Text("C".into())),
            ("birth", Value::Counter(7)),
        ];
        let row = Value::Row(columns);
        assert_eq!(class_of([&row].into_iter()), "table");
        assert_eq!(json_of(&row).to_string(), r#"{"state":"C","birth":7}"#);
    }
}
