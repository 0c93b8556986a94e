//! Instrumentations: operations counted as they come.

use super::answering::KEYS_MAX;
use super::asked_statement::invalid;
use super::instrumented::Instrumented;
use super::told_answer::wide;
use crate::administration::Call;
use crate::administrator::Administrator;
use crate::messages::analytics::{
    Answer, Instrument, Instrumentation, Instrumentations, Live, Remove, When,
};
use crate::messages::{Done, Refusal, RefusalKind, analytics};
use std::collections::BTreeMap;
use std::ops::Range;
use tarn_analytics::{
    Analytics, Collected, ColumnState, Group, InstrumentationId, Key, LiveResults, LiveSecond,
    Predicate, Tally,
};
use tarn_probe::Operation;

/// Most seconds of a reply: so many are held at most.
const SECONDS_MAX: u64 = 3600;
/// Seconds of a reply when no other begin is asked for.
const USUAL_SECONDS: u64 = 60;
const SECOND_NS: u64 = 1_000_000_000;

impl Administrator {
    /// Begins to count.
    pub(crate) fn instrument(
        &self,
        call: &Call,
        request: &Instrument,
        operation: &Operation,
    ) -> Result<analytics::Instrumented, Refusal> {
        let analytics = self.seen_operations(call)?;
        let asked = self.understand(&request.statement, request.filter.as_ref(), operation)?;
        let keys = request.keys.min(KEYS_MAX);
        let keys_max = usize::try_from(keys).unwrap_or(usize::MAX);
        let now_ns = self.engine.host.monotonic_ns();
        let breakdown = asked.statement.breakdown();
        let id = analytics.instrument(asked.predicate, breakdown, keys_max, now_ns);
        let id = id.map_err(|error| {
            let action = format!("cannot count '{}'", request.statement);
            Refusal::new(RefusalKind::Busy, action, error.to_string())
        })?;
        let mut known = self.instrumented.lock();
        let living = analytics.instrumentations();
        known.retain(|id, _| living.contains(&InstrumentationId(*id)));
        let statement = asked.statement;
        known.insert(id.0, Instrumented { statement, keys });
        Ok(analytics::Instrumented { id: id.0 })
    }

    /// What an instrumentation counted.
    pub(crate) fn live(
        &self,
        call: &Call,
        request: &Live,
        operation: &Operation,
    ) -> Result<Answer, Refusal> {
        let analytics = self.seen_operations(call)?;
        let known = self.instrumented.lock().get(&request.id).cloned();
        let known = known.ok_or_else(|| ended(request.id))?;
        let clock = self.wall_clock.lock().look(&self.engine.host);
        let now_ns = self.engine.host.monotonic_ns();
        let last = now_ns / SECOND_NS;
        let from = match request.from {
            None => last.saturating_sub(USUAL_SECONDS),
            Some(from) => {
                let when = When {
                    from: Some(from),
                    until: None,
                    last: None,
                };
                let range = clock.range(&when, &self.engine.host);
                let refuse = |why| invalid(&known.statement.to_string(), why);
                clock.clock_ns(range.map_err(refuse)?.0) / SECOND_NS
            }
        };
        let from = from.max(last.saturating_sub(SECONDS_MAX - 1));
        let results = analytics.live_results(InstrumentationId(request.id), from, now_ns);
        let results = results.ok_or_else(|| ended(request.id))?;
        let first = from.max(results.began_ns / SECOND_NS);
        let keys_max = usize::try_from(known.keys).unwrap_or(usize::MAX);
        let answer = answer_of(&results, first..last + 1, keys_max, analytics);
        // The names of its filters are numbers already.
        let names = self.engine.names_for(&Predicate::Always, operation);
        Ok(self.tell_answer(&known.statement, names, &answer, clock))
    }

    /// Ends an instrumentation.
    pub(crate) fn remove_instrumentation(
        &self,
        call: &Call,
        request: Remove,
    ) -> Result<Done, Refusal> {
        let analytics = self.seen_operations(call)?;
        self.instrumented.lock().remove(&request.id);
        match analytics.remove_instrumentation(InstrumentationId(request.id)) {
            true => Ok(Done {}),
            false => Err(ended(request.id)),
        }
    }

    /// Lists the instrumentations.
    pub(crate) fn list_instrumentations(&self, call: &Call) -> Result<Instrumentations, Refusal> {
        let analytics = self.seen_operations(call)?;
        let living = analytics.instrumentations();
        let known = self.instrumented.lock();
        let told = living.iter().filter_map(|id| {
            let known = known.get(&id.0)?;
            Some(Instrumentation {
                id: id.0,
                statement: known.statement.to_string(),
                title: known.statement.title(),
                keys: known.keys,
            })
        });
        Ok(Instrumentations {
            live: told.collect(),
        })
    }
}

fn ended(id: u64) -> Refusal {
    let action = format!("no instrumentation {id}");
    let reason = "it was removed, or ended as it was not read for long";
    Refusal::new(RefusalKind::NotFound, action, reason)
}

/// What was counted in these seconds, as queries answer.
fn answer_of(
    results: &LiveResults,
    seconds: Range<u64>,
    keys_max: usize,
    analytics: &Analytics,
) -> tarn_analytics::Answer {
    let range_ns = |second: u64| second * SECOND_NS..(second + 1) * SECOND_NS;
    let recorder = analytics.flight_recorder();
    let state = |second| {
        let (collected, dropped) = recorder.coverage(&range_ns(second));
        ColumnState { collected, dropped }
    };
    let mut columns: Vec<ColumnState> = seconds.clone().map(state).collect();
    if let Some(open) = columns.last_mut()
        && open.collected == Collected::Whole
    {
        open.collected = Collected::Partly;
    }
    let whole_ns = seconds.start * SECOND_NS..seconds.end * SECOND_NS;
    let empty = vec![Tally::default(); columns.len()];
    let (mut total, mut other) = (empty.clone(), empty.clone());
    let mut by_key: BTreeMap<Key, Vec<Tally>> = BTreeMap::new();
    for second in &results.seconds {
        let Some(column) = column_of(second, &seconds) else {
            continue;
        };
        total[column].merge(&second.total);
        other[column].merge(&second.other);
        for (key, tally) in &second.groups {
            let series = by_key.entry(*key).or_insert_with(|| empty.clone());
            series[column].merge(tally);
        }
    }
    let keys_found = by_key.len();
    let mut groups: Vec<Group> = (by_key.into_iter())
        .map(|(key, series)| Group { key, series })
        .collect();
    let sum = |group: &Group| group.series.iter().map(|tally| tally.sum).sum::<u64>();
    groups.sort_by_key(|group| (u64::MAX - sum(group), group.key));
    for group in groups.split_off(keys_max.min(groups.len())) {
        other
            .iter_mut()
            .zip(&group.series)
            .for_each(|(other, tally)| other.merge(tally));
    }
    tarn_analytics::Answer {
        dropped: recorder.coverage(&whole_ns).1,
        range_ns: whole_ns,
        column_ns: SECOND_NS,
        columns,
        total,
        groups,
        other,
        keys_found,
        unranked: 0,
    }
}

fn column_of(second: &LiveSecond, seconds: &Range<u64>) -> Option<usize> {
    let column = second.second.checked_sub(seconds.start)?;
    usize::try_from(column)
        .ok()
        .filter(|column| wide(*column) < seconds.end - seconds.start)
}
