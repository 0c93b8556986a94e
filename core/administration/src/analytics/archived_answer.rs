//! Answers from the archive, in the form of those from operations that are held.

use super::asked_statement::invalid;
use super::told_answer::{range_of, state_of, wide};
use super::wall_clock::WallClock;
use crate::administrator::Administrator;
use crate::messages::analytics::{Answer, Group, Query, Series};
use crate::messages::{Refusal, RefusalKind};
use std::collections::{BTreeMap, BTreeSet};
use tarn_analytics::Field;
use tarn_archive::{ArchiveAnswer, ArchiveQuery, ArchivedMeasure, Asked, Cell, Tier};

const SECOND_NS: i64 = 1_000_000_000;

impl Administrator {
    /// Answers from the archive. Columns may be longer than asked for: a second at least, and as
    /// long as those that the archive still has of that time.
    pub(super) fn archived_answer(
        &self,
        asked: Asked,
        request: &Query,
        clock: WallClock,
    ) -> Result<Answer, Refusal> {
        let refused = |why: String| invalid(&request.statement, why);
        let archive = self.engine.archive().ok_or_else(|| {
            let action = format!("cannot answer '{}'", request.statement);
            let reason = "tarnd was started with --archive off, or could not open its archive";
            let refusal = Refusal::new(RefusalKind::Unsupported, action, reason);
            refusal.with_hint("'tarn kstat' has what statistics are now")
        })?;
        let range = clock.range(&request.when, &self.engine.host);
        let (from, until) = range.map_err(|why| refused(why.to_owned()))?;
        let seconds = |unix_ns: i64| u64::try_from(unix_ns.div_euclid(SECOND_NS)).unwrap_or(0);
        let (statement, title) = words_of(&asked, &request.statement);
        let query = ArchiveQuery {
            asked,
            range_s: seconds(from)..seconds(until.saturating_add(SECOND_NS - 1)),
            column_s: request.column_ms.div_ceil(1000),
            keys_max: usize::try_from(request.keys).unwrap_or(usize::MAX),
        };
        let answer = archive
            .answer(&query)
            .map_err(|error| refused(error.to_string()))?;
        Ok(tell(&answer, statement, title))
    }
}

fn words_of(asked: &Asked, text: &str) -> (String, String) {
    match asked {
        Asked::Operations(statement) => (statement.to_string(), statement.title()),
        Asked::Sampled(sampled) => {
            let fields = sampled
                .by
                .iter()
                .map(|place| sampled.statistic.fields[*place]);
            let by = fields.map(|field| format!(", by {field}"));
            let title = sampled.statistic.title;
            let title = by.fold(title.to_owned(), |title, by| title + &by);
            (text.trim().to_owned(), title)
        }
    }
}

fn tell(answer: &ArchiveAnswer, statement: String, title: String) -> Answer {
    let used: BTreeSet<u16> = (answer.total.iter().flat_map(|cell| &cell.buckets))
        .map(|(bucket, _)| *bucket)
        .collect();
    let places: BTreeMap<u16, u64> = used.into_iter().zip(0..).collect();
    let series = |cells: &[Cell]| told_series(cells, &places);
    let groups = answer.groups.iter().map(|group| Group {
        key: group.key.clone(),
        // The archive keeps names, which outlive the numbers of one run.
        ids: group.key.clone(),
        sum: group.sum,
        series: series(&group.series),
    });
    let dropped = answer.columns.iter().map(|column| column.dropped);
    Answer {
        statement,
        title,
        source: match answer.tier {
            Tier::Second => "archive-1s",
            Tier::Minute => "archive-1m",
            Tier::Hour => "archive-1h",
        }
        .to_owned(),
        measure: match answer.measure {
            ArchivedMeasure::Of(measure) => measure.name(),
            ArchivedMeasure::Counted | ArchivedMeasure::Mean => "value",
        }
        .to_owned(),
        from_ms: answer.from_s.saturating_mul(1000),
        column_ms: answer.column_s.saturating_mul(1000),
        columns: wide(answer.columns.len()),
        states: (answer.columns.iter())
            .map(|column| state_of(column.collected))
            .collect(),
        dropped: dropped.fold(0, u64::saturating_add),
        by: answer.by.clone(),
        numeric: answer.numeric.map(Field::name),
        buckets: places
            .keys()
            .map(|bucket| range_of((*bucket).into()))
            .collect(),
        total: series(&answer.total),
        groups: groups.collect(),
        other: series(&answer.other),
        keys_found: wide(answer.keys_found),
        unranked: 0,
    }
}

fn told_series(cells: &[Cell], places: &BTreeMap<u16, u64>) -> Series {
    let mut flat = Vec::new();
    for (column, cell) in (0..).zip(cells) {
        for (bucket, count) in &cell.buckets {
            flat.extend([column, places[bucket], *count]);
        }
    }
    Series {
        sums: cells.iter().map(|cell| cell.sum).collect(),
        cells: flat,
    }
}
