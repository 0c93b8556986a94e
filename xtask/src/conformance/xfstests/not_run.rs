//! Why tests do not run, by class: what they need, and which layer does not have it.
//!
//! # Mechanism
//! A table of three columns separated by tabs: a part of what the test says, the class, the reason.
//! The first line that fits counts.

use std::collections::BTreeMap;

use crate::conformance::known::{Ended, Verdict};
use crate::workspace::Outcome;

/// The table.
pub struct Reasons {
    rows: Vec<Row>,
}

struct Row {
    says: String,
    class: String,
    reason: String,
}

impl Reasons {
    /// Reads a table; a line that begins with `#` is a comment.
    pub fn parse(table: &str) -> Outcome<Reasons> {
        let lines = table.lines().filter(|line| !line.starts_with('#'));
        let rows = lines.map(|line| match *line.split('\t').collect::<Vec<_>>() {
            [says, class, reason] => Ok(Row {
                says: says.to_string(),
                class: class.to_string(),
                reason: reason.to_string(),
            }),
            _ => Err(format!("a line without three columns: {line:?}").into()),
        });
        Ok(Reasons {
            rows: rows.collect::<Outcome<_>>()?,
        })
    }

    /// How many tests do not run for which reason, and what no line of the table knows.
    pub fn counted(&self, verdicts: &[Verdict]) -> Vec<String> {
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for verdict in verdicts.iter().filter(|one| one.ended == Ended::NotRun) {
            let row = self
                .rows
                .iter()
                .find(|row| verdict.note.contains(&row.says));
            let known = row.map(|row| (row.class.as_str(), row.reason.as_str()));
            *counts
                .entry(known.unwrap_or(("?", &verdict.note)))
                .or_default() += 1;
        }
        let lines = counts.into_iter();
        lines
            .map(|((class, reason), count)| format!("{class}: {count}: {reason}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Ended, Reasons, Verdict};

    #[test]
    fn tests_that_do_not_run_are_counted_by_reason() {
        let table = Reasons::parse("# says\tclass\treason\nfiemap\tFUSE\tno fiemap\n").unwrap();
        let verdict = |ended, note: &str| Verdict {
            test: "generic/001".to_string(),
            ended,
            seconds: 0,
            note: note.to_string(),
        };
        let verdicts = [
            verdict(Ended::NotRun, "xfs_io fiemap failed"),
            verdict(Ended::NotRun, "xfs_io fiemap -a failed"),
            verdict(Ended::NotRun, "something new"),
            verdict(Ended::Passed, "fiemap"),
        ];
        let expected = ["?: 1: something new", "FUSE: 2: no fiemap"];
        assert_eq!(table.counted(&verdicts), expected);
        assert!(Reasons::parse("fiemap\tFUSE\n").is_err());
        Reasons::parse(include_str!("not_run.tsv")).unwrap();
    }
}
