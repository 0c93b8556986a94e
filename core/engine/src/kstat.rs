//! `tarn kstat`: counters and histograms of this process.

use crate::engine::Engine;
use crate::messages::statistics::{Kstat, KstatGroup, Kstats};
use serde_json::{Map, json};
use tarn_probe::{HistogramSnapshot, Value, registry};

/// Buckets shown of a histogram, by power of two.
const BUCKETS: usize = 48;

impl Engine {
    pub(crate) fn kstat(&self, request: &Kstat) -> Kstats {
        self.cache.publish_sizes();
        let now = self.host.unix_time();
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
                instance: instance.to_string(),
                name: name.to_string(),
                class: "misc".to_string(),
                snaptime,
                data,
            }
        });
        Kstats {
            groups: groups.collect(),
        }
    }
}

fn json_of(value: &Value) -> serde_json::Value {
    match value {
        Value::Counter(count) => json!(count),
        Value::Gauge(number) => json!(number),
        Value::Text(text) => json!(text),
        Value::Histogram(histogram) => histogram_json(histogram),
    }
}

fn histogram_json(histogram: &HistogramSnapshot) -> serde_json::Value {
    let mut buckets = histogram.by_power_of_two(BUCKETS);
    let used = buckets.iter().rposition(|count| *count > 0);
    buckets.truncate(used.map_or(0, |last| last + 1));
    json!({
        "count": histogram.count(),
        "sum": histogram.sum(),
        "p50": histogram.percentile(50),
        "p99": histogram.percentile(99),
        "by_power_of_two": buckets,
    })
}
