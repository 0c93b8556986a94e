//! Metrics of operations: what clients did, by protocol, kind and dataset, and what is kept of it.

use super::metric_families::{
    COUNTER, COUNTER_OF_TIME, Families, GAUGE, Labels, TIMES, labels, spread_of,
};
use crate::messages::metrics::MetricValue;
use std::collections::BTreeMap;
use tarn_analytics::{Analytics, Cause, OperationTotal};
use tarn_engine::Engine;
use tarn_probe::{DatasetId, NamedDataset, named_datasets};

/// What operations of datasets beyond those that are told apart have for a name.
const OTHER: &str = "other";

/// Adds them. Without analytics there are none, and `tarn_analytics_up` says so.
pub(super) fn add(families: &mut Families, engine: &Engine) {
    let analytics = engine.analytics();
    families.add(
        "tarn_analytics_up",
        "Whether operations are recorded: 0 where tarnd was started with --analytics off.",
        GAUGE,
        Labels::new(),
        MetricValue::Whole(u64::from(analytics.is_some())),
    );
    if let Some(analytics) = analytics {
        add_totals(families, &analytics.totals());
        add_recorder(families, analytics);
    }
    if let Some(archive) = engine.archive() {
        let state = archive.state();
        for (name, help, value) in [
            (
                "tarn_archive_bytes",
                "Bytes of the files of the archive.",
                state.bytes,
            ),
            (
                "tarn_archive_cap_bytes",
                "Bytes that the files of the archive may take.",
                state.cap_bytes,
            ),
        ] {
            families.add(name, help, GAUGE, Labels::new(), MetricValue::Whole(value));
        }
    }
}

fn add_totals(families: &mut Families, totals: &[OperationTotal]) {
    let datasets: BTreeMap<DatasetId, NamedDataset> = (named_datasets().into_iter())
        .map(|dataset| (dataset.id, dataset))
        .collect();
    for total in totals {
        let of = labels_of(total, &datasets);
        let latency = &total.latency;
        families.add(
            "tarn_operation_latency_seconds",
            "Operations by how long they took from request to reply.",
            TIMES,
            of.clone(),
            spread_of(latency.count, latency.sum, latency.cells()),
        );
        families.add(
            "tarn_operation_bytes_total",
            "Bytes that operations asked for.",
            COUNTER,
            of.clone(),
            MetricValue::Whole(total.bytes),
        );
        families.add(
            "tarn_operation_errors_total",
            "Operations that failed.",
            COUNTER,
            of.clone(),
            MetricValue::Whole(total.errors),
        );
        let counted = Cause::ALL.iter().zip(total.causes);
        for (cause, count) in counted.filter(|(_, count)| *count > 0) {
            let mut of = of.clone();
            of.insert(0, ("cause".to_owned(), cause.name().to_owned()));
            families.add(
                "tarn_operation_causes_total",
                "Operations by what explains their latency first: a cache hit, a disk, the log.",
                COUNTER,
                of,
                MetricValue::Whole(count),
            );
        }
    }
}

/// Dataset, operation, pool and protocol; operations of none have no dataset and no pool.
fn labels_of(total: &OperationTotal, datasets: &BTreeMap<DatasetId, NamedDataset>) -> Labels {
    let mut of = vec![
        ("operation", total.kind.name()),
        ("protocol", total.protocol.name()),
    ];
    let unknown;
    match total.dataset {
        None => of.push(("dataset", OTHER)),
        Some(DatasetId::NONE) => {}
        Some(id) => match datasets.get(&id) {
            Some(known) => of.extend([
                ("dataset", known.name.as_str()),
                ("pool", known.place.pool.as_str()),
            ]),
            None => {
                unknown = format!("#{}", id.0);
                of.push(("dataset", &unknown));
            }
        },
    }
    labels(&of)
}

fn add_recorder(families: &mut Families, analytics: &Analytics) {
    let state = analytics.flight_recorder().state();
    let passes = analytics.pass_totals();
    let wide = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
    let numbers = [
        (
            "tarn_analytics_recorded_operations_total",
            "Records that the collector took: operations, and requests to devices.",
            COUNTER,
            state.held + state.overwritten,
        ),
        (
            "tarn_analytics_dropped_operations_total",
            "Records that found the ring of their thread full: they are in no other metric.",
            COUNTER,
            state.dropped,
        ),
        (
            "tarn_analytics_held_operations",
            "Records that the flight recorder holds.",
            GAUGE,
            state.held,
        ),
        (
            "tarn_analytics_bytes",
            "Memory of the records that the flight recorder holds.",
            GAUGE,
            wide(state.bytes),
        ),
        (
            "tarn_analytics_budget_bytes",
            "Memory that the flight recorder may take.",
            GAUGE,
            wide(state.budget_bytes),
        ),
        (
            "tarn_analytics_collector_seconds_total",
            "Time that the passes of the collector took.",
            COUNTER_OF_TIME,
            passes.time_ns,
        ),
    ];
    for (name, help, about, value) in numbers {
        families.add(name, help, about, Labels::new(), MetricValue::Whole(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_analytics::Tally;
    use tarn_probe::{OperationKind, Protocol};

    #[test]
    fn operations_have_labels_of_what_is_known() {
        let total = |dataset: Option<DatasetId>| {
            let mut latency = Tally::default();
            latency.add(700, Some(700));
            OperationTotal {
                protocol: Protocol::Nfs3,
                kind: OperationKind::Read,
                dataset,
                latency,
                bytes: 4096,
                errors: 0,
                causes: std::array::from_fn(|place| u64::from(place == 0)),
            }
        };
        let mut families = Families::default();
        let of_none = total(Some(DatasetId::NONE));
        add_totals(
            &mut families,
            &[of_none, total(None), total(Some(DatasetId(u32::MAX)))],
        );
        let told = families.told().families;
        let names: Vec<&str> = told.iter().map(|family| family.name.as_str()).collect();
        let expected = [
            "bytes_total",
            "causes_total",
            "errors_total",
            "latency_seconds",
        ];
        assert_eq!(names, expected.map(|name| format!("tarn_operation_{name}")));
        let labels: Vec<Vec<&str>> = (told[0].samples.iter())
            .map(|sample| {
                sample
                    .labels
                    .iter()
                    .map(|(_, value)| value.as_str())
                    .collect()
            })
            .collect();
        let unknown = format!("#{}", u32::MAX);
        let expected = [
            vec![unknown.as_str(), "read", "nfs3"],
            vec!["other", "read", "nfs3"],
            vec!["read", "nfs3"],
        ];
        assert_eq!(labels, expected);
    }
}
