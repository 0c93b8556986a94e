//! Answers of Analytics as InfluxDB's line protocol: a point for each column of time and key.
//!
//! The measurement is the statistic (`nfs.ops`), the fields of the breakdown are tags, the time is
//! the begin of the column. The field has the name of the measure: `operations`, `bytes`,
//! `wait_ns`, `value`. Of a heat map there is a point for each bucket that has operations, with its
//! bounds as tags and their number as field. Columns that were not collected have no points.

use crate::influx_line::Line;
use crate::zpool_influxdb::LineOptions;
use tarn_administration::messages::analytics::{Answer, Series};

/// The name of keys that were too many.
const OTHER: &str = "other";
const MILLISECOND_NS: u64 = 1_000_000;

/// The lines of an answer.
pub fn answer_lines(answer: &Answer, options: &LineOptions) -> String {
    let writer = Writer {
        answer,
        options,
        measurement: measurement_of(&answer.statement),
        field: answer.measure.replace("wait-time", "wait_ns"),
    };
    let mut out = String::new();
    if answer.by.is_empty() {
        writer.push(&mut out, &[], &answer.total);
        return out;
    }
    for group in &answer.groups {
        writer.push(&mut out, &group.key, &group.series);
    }
    let of_rest = vec![OTHER.to_owned(); answer.by.len()];
    writer.push(&mut out, &of_rest, &answer.other);
    out
}

/// The statistic that a statement begins with.
fn measurement_of(statement: &str) -> &str {
    let end = statement.find(['[', ':', ' ']);
    &statement[..end.unwrap_or(statement.len())]
}

struct Writer<'a> {
    answer: &'a Answer,
    options: &'a LineOptions,
    measurement: &'a str,
    field: String,
}

impl Writer<'_> {
    fn push(&self, out: &mut String, key: &[String], series: &Series) {
        let answer = self.answer;
        if answer.numeric.is_none() {
            for (column, sum) in (0..).zip(&series.sums) {
                if self.is_collected(column) {
                    let line = self.line(key).field(&self.field, *sum);
                    line.end(out, self.time_ns(column));
                }
            }
            return;
        }
        for cell in series.cells.chunks_exact(3) {
            let bucket = usize::try_from(cell[1]).ok();
            if let Some([low, end]) = bucket.and_then(|bucket| answer.buckets.get(bucket)) {
                let line = self.line(key).tag("from", &low.to_string());
                let line = line.tag("below", &end.to_string());
                let line = line.field("operations", cell[2]);
                line.end(out, self.time_ns(cell[0]));
            }
        }
    }

    fn line(&self, key: &[String]) -> Line {
        let integers = self.options.integers();
        let line = Line::new(self.measurement, &self.options.tags, integers);
        let tags = self.answer.by.iter().zip(key);
        tags.fold(line, |line, (field, value)| line.tag(field, value))
    }

    fn is_collected(&self, column: u64) -> bool {
        let column = usize::try_from(column).ok();
        let state = column.and_then(|column| self.answer.states.get(column));
        state.is_some_and(|state| *state > 0)
    }

    fn time_ns(&self, column: u64) -> u64 {
        let answer = self.answer;
        let time_ms = answer
            .from_ms
            .saturating_add(column.saturating_mul(answer.column_ms));
        time_ms.saturating_mul(MILLISECOND_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_administration::messages::analytics::Group;

    fn answer() -> Answer {
        let series = |sums: &[u64], cells: &[u64]| Series {
            sums: sums.to_vec(),
            cells: cells.to_vec(),
        };
        Answer {
            statement: "nfs.ops[op=read][client]".to_owned(),
            measure: "operations".to_owned(),
            from_ms: 5000,
            column_ms: 1000,
            columns: 3,
            states: vec![2, 0, 1],
            by: vec!["client".to_owned()],
            buckets: vec![[0, 68], [68, 72]],
            total: series(&[3, 0, 1], &[]),
            groups: vec![Group {
                key: vec!["10.0.0.1 (ki, wa)".to_owned()],
                series: series(&[2, 0, 1], &[0, 1, 2, 2, 0, 1]),
                ..Group::default()
            }],
            other: series(&[1, 0, 0], &[0, 0, 1]),
            ..Answer::default()
        }
    }

    #[test]
    fn a_column_that_was_not_collected_has_no_point() {
        let expected = "\
nfs.ops,client=10.0.0.1\\ (ki\\,\\ wa) operations=2u 5000000000
nfs.ops,client=10.0.0.1\\ (ki\\,\\ wa) operations=1u 7000000000
nfs.ops,client=other operations=1u 5000000000
nfs.ops,client=other operations=0u 7000000000
";
        assert_eq!(answer_lines(&answer(), &LineOptions::default()), expected);
    }

    #[test]
    fn a_heat_map_has_a_point_for_each_bucket() {
        let mut answer = answer();
        answer.numeric = Some("latency".to_owned());
        answer.by.clear();
        answer.total.cells = vec![0, 1, 2, 2, 0, 1, 2, 9, 1];
        let expected = "\
nfs.ops,from=68,below=72 operations=2u 5000000000
nfs.ops,from=0,below=68 operations=1u 7000000000
";
        assert_eq!(answer_lines(&answer, &LineOptions::default()), expected);
    }
}
