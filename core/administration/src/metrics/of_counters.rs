//! Metrics of what layers count: the ARC, intent logs, txgs, the write throttle, mounted datasets.
//!
//! # Mechanism
//! They are the statistics of `tarn kstat`, under names made of theirs: `zfs:0:arcstats:hits` is
//! `tarn_arcstats_hits_total`, and `zfs/tank:0:dmu_tx:dmu_tx_assigned` is
//! `tarn_dmu_tx_assigned_total` with `pool="tank"`. What metrics of operations and devices have
//! already is left out, and so are rows of tables.

use super::metric_families::{About, COUNTER, COUNTER_OF_TIME, Families, GAUGE, Labels, labels};
use super::metric_families::{TIMES, spread};
use crate::messages::metrics::MetricValue;
use std::collections::BTreeMap;
use tarn_probe::{Value, registry};

/// The statistics of a mounted dataset that OpenZFS has, too; the others are of operations.
const OF_DATASETS: [&str; 6] = [
    "reads",
    "nread",
    "writes",
    "nwritten",
    "nunlinks",
    "nunlinked",
];

/// Modules that have metrics of their own.
const LEFT_OUT: [&str; 3] = ["vdev", "operations", "analytics"];

/// Adds them.
pub(super) fn add(families: &mut Families) {
    let snapshot = registry().snapshot("");
    for (module, instance, name, values) in snapshot.iter() {
        if !LEFT_OUT.contains(&module) {
            add_group(families, module, instance, name, values);
        }
    }
}

fn add_group(
    families: &mut Families,
    module: &str,
    instance: u32,
    name: &str,
    values: &BTreeMap<String, Value>,
) {
    let pool = module.strip_prefix("zfs/");
    let number = instance.to_string();
    let dataset = match values.get("dataset_name") {
        Some(Value::Text(dataset)) if name.starts_with("objset-") => Some(dataset.as_str()),
        _ => None,
    };
    let mut of = Vec::new();
    of.extend(pool.map(|pool| ("pool", pool)));
    of.extend(dataset.map(|dataset| ("dataset", dataset)));
    if pool.is_none() && module != "zfs" {
        of.push(("instance", &number));
    }
    let of = labels(&of);
    let prefix = match (dataset, pool.is_some() || module == "zfs") {
        (Some(_), _) => "dataset".to_owned(),
        (None, true) => name.to_owned(),
        (None, false) => format!("{module}_{name}"),
    };
    for (statistic, value) in values {
        if dataset.is_some() && !OF_DATASETS.contains(&statistic.as_str()) {
            continue;
        }
        add_value(families, &prefix, statistic, value, &of);
    }
}

fn add_value(families: &mut Families, prefix: &str, statistic: &str, value: &Value, of: &Labels) {
    let (about, value) = match value {
        Value::Counter(count) if statistic.ends_with("_ns") => {
            (COUNTER_OF_TIME, MetricValue::Whole(*count))
        }
        Value::Counter(count) => (COUNTER, MetricValue::Whole(*count)),
        Value::Gauge(number) => (GAUGE, MetricValue::Signed(*number)),
        Value::Histogram(histogram) if statistic.ends_with("_ns") => (TIMES, spread(histogram)),
        Value::Histogram(_) | Value::Text(_) | Value::Row(_) => return,
    };
    let name = name_of(prefix, statistic, about);
    let help = format!("The statistic {statistic} of {prefix}, as tarn kstat shows it.");
    families.add(&name, &help, about, of.clone(), value);
}

/// `tarn_`, the group, the statistic without the group's name again, and what the name must end
/// in.
fn name_of(prefix: &str, statistic: &str, about: About) -> String {
    let statistic = statistic
        .strip_prefix(&format!("{prefix}_"))
        .unwrap_or(statistic);
    let mut name = format!("tarn_{prefix}_{statistic}");
    if about == COUNTER_OF_TIME || about == TIMES {
        name = name.trim_end_matches("_ns").to_owned() + "_seconds";
    }
    if about == COUNTER || about == COUNTER_OF_TIME {
        name += "_total";
    }
    // What ends so is a part of a histogram.
    if let Some(begin) = name.strip_suffix("_count") {
        name.truncate(begin.len());
    }
    let plain = |character: char| match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => character,
        _ => '_',
    };
    name.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_those_of_statistics() {
        for (prefix, statistic, about, expected) in [
            ("arcstats", "hits", COUNTER, "tarn_arcstats_hits_total"),
            ("arcstats", "size", GAUGE, "tarn_arcstats_size"),
            (
                "dmu_tx",
                "dmu_tx_assigned",
                COUNTER,
                "tarn_dmu_tx_assigned_total",
            ),
            (
                "dmu_tx",
                "dmu_tx_dirty_delay_ns",
                COUNTER_OF_TIME,
                "tarn_dmu_tx_dirty_delay_seconds_total",
            ),
            (
                "arcstats",
                "l2_log_blk_count",
                GAUGE,
                "tarn_arcstats_l2_log_blk",
            ),
            ("a-b", "pass_ns", TIMES, "tarn_a_b_pass_seconds"),
        ] {
            assert_eq!(name_of(prefix, statistic, about), expected);
        }
    }

    #[test]
    fn a_dataset_has_the_numbers_that_openzfs_has() {
        let values = BTreeMap::from([
            ("dataset_name".to_owned(), Value::Text("tank/a b".into())),
            ("reads".to_owned(), Value::Counter(7)),
            ("read_operations".to_owned(), Value::Counter(8)),
        ]);
        let mut families = Families::default();
        add_group(&mut families, "zfs/tank", 0, "objset-0x36", &values);
        let told = families.told().families;
        assert_eq!(
            (told.len(), told[0].name.as_str()),
            (1, "tarn_dataset_reads_total")
        );
        let of = labels(&[("dataset", "tank/a b"), ("pool", "tank")]);
        assert_eq!(told[0].samples[0].labels, of);
        assert_eq!(told[0].samples[0].value, MetricValue::Whole(7));
    }
}
