//! Operations one by one, with what is known of each.

use super::asked_statement::{Asked, invalid};
use super::wall_clock::WallClock;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::Refusal;
use crate::messages::analytics::{OperationList, Operations, Order, Percentiles, Told, When};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tarn_analytics::{Cause, Field, ValueNames};
use tarn_probe::{
    DatasetId, ErrorCode, HistogramSnapshot, MISSING_NAME, Operation, OperationRecord, Outcome,
    Stage, missing_name,
};

/// Most operations of a reply.
const LISTED_MAX: u32 = 10_000;

impl Administrator {
    /// Lists operations.
    pub(crate) fn list_operations(
        &self,
        call: &Call,
        request: &Operations,
        operation: &Operation,
    ) -> Result<OperationList, Refusal> {
        let analytics = self.seen_operations(call)?;
        let asked = self.understand(&request.statement, request.filter.as_ref(), operation)?;
        let clock = self.wall_clock.lock().look(&self.engine.host);
        let range_ns = self.range_of(&request.when, clock);
        let range_ns = range_ns.map_err(|why| invalid(&request.statement, why))?;
        let order = match request.order {
            Order::Slowest => tarn_analytics::Order::Slowest,
            Order::Oldest => tarn_analytics::Order::Oldest,
        };
        let limit = usize::try_from(request.limit.min(LISTED_MAX)).unwrap_or(usize::MAX);
        let recorder = analytics.flight_recorder();
        let found = recorder.operations(&range_ns, &asked.predicate, order, limit);
        let times =
            (request.with_stages).then(|| recorder.stage_times(&range_ns, &asked.predicate));
        let names = self.names_of_records(asked, &found.records);
        let slowest_ns = found.records.iter().map(OperationRecord::latency_ns).max();
        let slowest_ns = slowest_ns.filter(|_| order == tarn_analytics::Order::Slowest);
        Ok(OperationList {
            count: found.count,
            wait_ns: found.latency.sum(),
            percentiles: percentiles(&found.latency, slowest_ns),
            stages_ns: times.map(|times| told_stages(|stage| times.stages_ns[stage.index()])),
            unaccounted_ns: times.map(|times| times.unaccounted_ns),
            operations: (found.records.iter())
                .map(|record| told(record, &names, clock))
                .collect(),
        })
    }

    /// Without any time: everything that is held.
    fn range_of(&self, when: &When, clock: WallClock) -> Result<Range<u64>, &'static str> {
        if *when == When::default() {
            return Ok(0..u64::MAX);
        }
        let (from, until) = clock.range(when, &self.engine.host)?;
        Ok(clock.clock_ns(from)..clock.clock_ns(until))
    }

    fn names_of_records(&self, asked: Asked, records: &[OperationRecord]) -> ValueNames {
        let mut names = asked.names;
        let mut shown = BTreeSet::new();
        for record in records {
            shown.insert((Field::Client, record.client.0.into()));
            shown.insert((Field::User, record.user.into()));
            shown.extend(file_of(record).map(|file| (Field::File, file)));
        }
        self.engine.add_shown_names(&mut names, &shown);
        names
    }
}

/// The key of the file that an operation is about.
fn file_of(record: &OperationRecord) -> Option<u128> {
    let key = u128::from(record.dataset.0) << 64 | u128::from(record.object());
    (record.dataset != DatasetId::NONE && record.object() != 0).then_some(key)
}

/// The object that an operation is about: of a lookup in vain the directory, 0 if its name is
/// forgotten.
fn object_of(record: &OperationRecord) -> u64 {
    match record.object() & MISSING_NAME {
        0 => record.object(),
        _ => missing_name(record.object()).map_or(0, |name| name.directory),
    }
}

fn percentiles(latency: &HistogramSnapshot, slowest_ns: Option<u64>) -> Percentiles {
    let max = slowest_ns.unwrap_or_else(|| latency.permille(1000));
    // The end of a bucket may be beyond the slowest operation.
    let at = |permille| latency.permille(permille).min(max);
    Percentiles {
        p50: at(500),
        p90: at(900),
        p99: at(990),
        p999: at(999),
        max,
    }
}

/// Nanoseconds of each stage that took any.
fn told_stages(time_ns: impl Fn(Stage) -> u64) -> BTreeMap<String, u64> {
    let stages = Stage::ALL
        .iter()
        .map(|stage| (stage.name().to_owned(), time_ns(*stage)));
    stages.filter(|(_, time_ns)| *time_ns > 0).collect()
}

fn told(record: &OperationRecord, names: &ValueNames, clock: WallClock) -> Told {
    let kind = record.kind().map_or("unknown", |kind| kind.name());
    let protocol = record
        .protocol()
        .map_or("unknown", |protocol| protocol.name());
    let outcomes = Outcome::ALL
        .iter()
        .filter(|outcome| record.is_marked(**outcome));
    let dataset = match record.dataset {
        DatasetId::NONE => String::new(),
        dataset => names.name(Field::Dataset, dataset.0.into()),
    };
    let error = record.error();
    let accounted_ns: u64 = Stage::ALL.iter().map(|stage| record.stage_ns(*stage)).sum();
    Told {
        ended_ms: clock.exact_ms(record.ended_ns()),
        latency_ns: record.latency_ns(),
        operation: kind.to_owned(),
        protocol: protocol.to_owned(),
        client: names.name(Field::Client, record.client.0.into()),
        user: names.name(Field::User, record.user.into()),
        dataset,
        object: object_of(record),
        file: file_of(record).map(|file| names.name(Field::File, file)),
        offset: record.offset,
        size: record.size.into(),
        error: (error != ErrorCode::NONE).then(|| error.name().to_owned()),
        cause: Cause::of(record.outcome_bits().into()).name().to_owned(),
        outcomes: outcomes.map(|outcome| outcome.name().to_owned()).collect(),
        stages: told_stages(|stage| record.stage_ns(stage)),
        unaccounted_ns: record.latency_ns().saturating_sub(accounted_ns),
    }
}
