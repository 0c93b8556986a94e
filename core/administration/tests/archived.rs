//! Questions that the archive answers, through the operations of the control interface.

mod support;

use std::sync::Arc;
use support::{Bench, call};
use tarn_administration::administration::Administration;
use tarn_administration::messages::analytics::{Answer, Catalogue, Query, State, When};
use tarn_administration::messages::{Refusal, RefusalKind};
use tarn_engine::analytics::{Analytics, Collected};
use tarn_engine::archive::{Archive, Cell, Column, ColumnHead, DEFAULT_CAP_BYTES, SeriesId};
use tarn_engine::{Host, RealOptions};

/// A minute begins then, long before this machine was started.
const BEGIN_S: u64 = 1_700_006_400;

/// A second with that many reads from disk, by NFS, and as many kilobytes of cache.
fn second(start_s: u64, reads: u64) -> Column {
    let read = Cell {
        count: reads,
        sum: reads,
        range: Some((1_000_000, 1_000_000)),
        buckets: vec![(223, reads)],
    };
    let series = SeriesId::new("nfs.ops[cause]:latency", &["disk"]);
    let size = SeriesId::new("arc.size", &[]);
    Column {
        start_s,
        head: ColumnHead::of_second(Collected::Whole, 0),
        cells: vec![
            (Arc::new(series), read),
            (Arc::new(size), Cell::of_sample(reads * 1024)),
        ],
    }
}

fn bench() -> (Bench, tempfile::TempDir) {
    let (bench, folder) = (Bench::new(), tempfile::tempdir().unwrap());
    bench.engine.answer_from(Arc::new(Analytics::new(0)));
    let host = Host::real(RealOptions::default());
    let archive = Archive::open(&host, folder.path(), DEFAULT_CAP_BYTES).unwrap();
    for offset in 0..5 {
        archive
            .append(second(BEGIN_S + offset, offset + 1))
            .unwrap();
    }
    bench.engine.answer_from_archive(Arc::new(archive));
    (bench, folder)
}

fn query(bench: &Bench, statement: &str) -> Result<Answer, Refusal> {
    let when = When {
        from: Some(BEGIN_S as f64),
        until: Some((BEGIN_S + 6) as f64),
        last: None,
    };
    let request = Query::of(statement, when);
    bench.administrator.analytics_query(&call(""), request)
}

#[test]
fn what_is_older_than_what_is_held_comes_from_the_archive() {
    let (bench, _folder) = bench();
    let answer = query(&bench, "nfs.ops[cause=disk]:latency").unwrap();
    assert_eq!(answer.source, "archive-1s");
    assert_eq!((answer.from_ms, answer.column_ms), (BEGIN_S * 1000, 1000));
    assert_eq!(answer.total.sums, [1, 2, 3, 4, 5, 0]);
    assert_eq!(answer.states, [2, 2, 2, 2, 2, 0]);
    assert_eq!(answer.buckets.len(), 1);
    assert_eq!(answer.total.cells[..6], [0, 0, 1, 1, 0, 2]);
    let answer = query(&bench, "nfs.ops[cause]").unwrap();
    assert_eq!(
        (answer.groups[0].key[0].as_str(), answer.groups[0].sum),
        ("disk", 15)
    );
}

#[test]
fn sampled_statistics_come_from_the_archive_and_are_in_the_catalogue() {
    let (bench, _folder) = bench();
    let answer = query(&bench, "arc.size").unwrap();
    assert_eq!(answer.measure, "value");
    assert_eq!(answer.total.sums[..5], [1024, 2048, 3072, 4096, 5120]);
    let refused = query(&bench, "arc.size[disk]").unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Invalid);
    let known = bench
        .administrator
        .analytics_catalogue(&call(""), Catalogue {})
        .unwrap();
    let is_mean = |wanted: &str| {
        let mut sampled = known.statistics.iter().filter(|one| one.is_sampled);
        Some(sampled.find(|one| one.name == wanted)?.is_mean)
    };
    assert_eq!(
        (is_mean("arc.size"), is_mean("arc.hits")),
        (Some(true), Some(false))
    );
    let state = bench
        .administrator
        .analytics_state(&call(""), State {})
        .unwrap();
    let archive = state.archive.unwrap();
    assert_eq!(archive.oldest_ms, [Some(BEGIN_S * 1000); 3]);
    assert!(archive.bytes > 0 && archive.skipped.is_empty());
}

#[test]
fn without_an_archive_sampled_statistics_are_refused_by_name() {
    let bench = Bench::new();
    bench.engine.answer_from(Arc::new(Analytics::new(0)));
    let refused = query(&bench, "arc.size").unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Unsupported);
    // Of operations nothing is known either, which is told and no zero.
    let answer = query(&bench, "nfs.ops");
    assert!(answer.is_err() || answer.unwrap().states.iter().all(|state| *state == 0));
}
