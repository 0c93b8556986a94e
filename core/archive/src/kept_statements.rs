//! Which statistics the archive keeps, and which of them answers a statement.
//!
//! # Mechanism
//! A statement is kept with its breakdown. It answers each statement of the same statistic whose
//! fields are among its own: keys are added up over the fields that were not asked for, and a
//! filter by one of its fields chooses keys. So `nfs.ops[cause]:latency` answers `nfs.ops`,
//! `nfs.ops:latency` and `nfs.ops[cause=disk]:latency` too.

use tarn_analytics::{Comparison, Field, Measure, Operator, Predicate, Statement, ValueNames};

use crate::cell::SeriesKey;
use crate::error::ArchiveQueryError;
use crate::sampled::{Averaged, Sampled};

/// The statements that are counted each second; of each the keys with the largest sums. Twelve
/// heat maps of the four protocols that serve data, and what clients and datasets ask for.
pub const KEPT_STATEMENTS: [&str; 29] = [
    "nfs.ops[cause]:latency",
    "nfs.ops[op]:latency",
    "nfs.ops[op]:size",
    "nfs.bytes[op]",
    "nfs.ops[client]",
    "nfs.bytes[client]",
    "nfs.ops[dataset]",
    "iscsi.ops[cause]:latency",
    "iscsi.ops[op]:latency",
    "iscsi.ops[op]:size",
    "iscsi.bytes[op]",
    "iscsi.ops[client]",
    "iscsi.bytes[client]",
    "iscsi.ops[dataset]",
    "fuse.ops[cause]:latency",
    "fuse.ops[op]:latency",
    "fuse.ops[op]:size",
    "fuse.bytes[op]",
    "fuse.ops[user]",
    "fuse.ops[dataset]",
    "nbd.ops[cause]:latency",
    "nbd.ops[op]:latency",
    "nbd.ops[op]:size",
    "nbd.bytes[op]",
    "nbd.ops[client]",
    "nbd.ops[dataset]",
    "all.ops[protocol]",
    "all.bytes[protocol]",
    "all.wait[protocol]",
];

/// What is asked: a statement of operations, or a sampled statistic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// Operations.
    Operations(Statement),
    /// Samples.
    Sampled(Sampled),
}

/// What the sums of an answer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchivedMeasure {
    /// What a statement sums up, for each column.
    Of(Measure),
    /// What a sampled statistic counted in each column.
    Counted,
    /// The mean over each column of a sampled statistic that goes up and down.
    Mean,
}

/// How an answer is made of what is kept.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The name that the series have.
    pub(crate) statistic: String,
    pub(crate) measure: ArchivedMeasure,
    /// Names of the fields that were asked for.
    pub(crate) by: Vec<String>,
    /// Where in a key each of them is.
    places: Vec<usize>,
    pub(crate) numeric: Option<Field>,
    filter: Filter,
}

#[derive(Clone, Debug)]
enum Filter {
    Operations {
        /// What each value of a key is.
        fields: Vec<Field>,
        predicate: Predicate,
        /// Comparisons that are true of all that is kept.
        kept: Vec<Comparison>,
    },
    Sampled(Vec<(usize, String)>),
}

impl Asked {
    /// What a text asks for.
    ///
    /// # Errors
    /// As [`Statement::parse`]; and for names of sampled statistics, a field that it has not.
    pub fn parse(text: &str) -> Result<Asked, AskedError> {
        match Sampled::parse(text)? {
            Some(sampled) => Ok(Asked::Sampled(sampled)),
            None => Ok(Asked::Operations(Statement::parse(text)?)),
        }
    }

    /// How it is answered.
    pub(crate) fn plan(&self) -> Result<Plan, ArchiveQueryError> {
        match self {
            Asked::Operations(statement) => plan_of(statement),
            Asked::Sampled(sampled) => Ok(Plan {
                statistic: sampled.statistic.name.to_owned(),
                measure: match sampled.statistic.averaged {
                    Averaged::Counter => ArchivedMeasure::Counted,
                    Averaged::Gauge => ArchivedMeasure::Mean,
                },
                by: (sampled.by.iter())
                    .map(|place| sampled.statistic.fields[*place].to_owned())
                    .collect(),
                places: sampled.by.clone(),
                numeric: None,
                filter: Filter::Sampled(sampled.filters.clone()),
            }),
        }
    }
}

/// A text that asks for nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskedError {
    /// No statement.
    #[error("{0}")]
    Statement(#[from] tarn_analytics::PredicateError),
    /// The name of a sampled statistic, with something wrong.
    #[error("{0}")]
    Sampled(#[from] ArchiveQueryError),
}

fn plan_of(asked: &Statement) -> Result<Plan, ArchiveQueryError> {
    let breakdown = asked.breakdown();
    let plans = KEPT_STATEMENTS.iter().filter_map(|text| {
        let kept = Statement::parse(text).expect("a constant of this crate");
        plan_from(asked, text, &kept).map(|plan| (kept.breakdown().by().len(), plan))
    });
    // Of several the one with the fewest keys to add up.
    let best = plans.min_by_key(|(fields, _)| *fields);
    best.map(|(_, plan)| plan).ok_or_else(|| {
        let fields = breakdown.by().iter().copied().chain(breakdown.numeric());
        let fields: Vec<String> = fields.map(Field::name).collect();
        let of_module = format!("{}.", asked.module);
        let kept = KEPT_STATEMENTS.into_iter();
        ArchiveQueryError::NotKept {
            asked: match fields.is_empty() {
                true => format!("{} with such a filter", asked.module),
                false => format!(
                    "{} by {} with such a filter",
                    asked.module,
                    fields.join(", ")
                ),
            },
            kept: kept.filter(|text| text.starts_with(&of_module)).collect(),
        }
    })
}

fn plan_from(asked: &Statement, text: &str, kept: &Statement) -> Option<Plan> {
    let (wanted, has) = (asked.breakdown(), kept.breakdown());
    let is_same = asked.module == kept.module && asked.measure == kept.measure;
    let has_numeric = wanted.numeric().is_none() || wanted.numeric() == has.numeric();
    if !is_same || !has_numeric {
        return None;
    }
    let place = |field: &Field| has.by().iter().position(|known| known == field);
    let places: Vec<usize> = wanted.by().iter().map(place).collect::<Option<_>>()?;
    let filter = Filter::Operations {
        fields: has.by().to_vec(),
        predicate: asked.predicate.clone(),
        kept: comparisons_of(&kept.predicate),
    };
    // Whether a filter can be decided does not depend on the values.
    let nothing = vec![String::new(); has.by().len()];
    filter.decide(&nothing)?;
    Some(Plan {
        statistic: text.to_owned(),
        measure: ArchivedMeasure::Of(asked.measure),
        by: wanted.by().iter().map(|field| field.name()).collect(),
        places,
        numeric: wanted.numeric(),
        filter,
    })
}

/// The comparisons that a predicate joins by `and`.
fn comparisons_of(predicate: &Predicate) -> Vec<Comparison> {
    match predicate {
        Predicate::Compare(comparison) => vec![comparison.clone()],
        Predicate::All(parts) => parts.iter().flat_map(comparisons_of).collect(),
        Predicate::Always | Predicate::Any(_) | Predicate::Not(_) => Vec::new(),
    }
}

impl Plan {
    /// Whether a series of the statistic is part of the answer. Keys that were too many are, if all
    /// keys are meant.
    pub(crate) fn wants(&self, key: &SeriesKey) -> bool {
        match key {
            SeriesKey::Of(values) => self.means(values),
            SeriesKey::Other => self.means_all(),
        }
    }

    /// Whether a key is meant.
    fn means(&self, key: &[String]) -> bool {
        self.filter.decide(key).unwrap_or(false)
    }

    /// Whether all keys are meant: then those that were too many are part of the answer.
    fn means_all(&self) -> bool {
        match &self.filter {
            Filter::Sampled(filters) => filters.is_empty(),
            Filter::Operations {
                predicate, kept, ..
            } => {
                let of_none = Filter::Operations {
                    fields: Vec::new(),
                    predicate: predicate.clone(),
                    kept: kept.clone(),
                };
                of_none.decide(&[]) == Some(true)
            }
        }
    }

    /// The key of the answer.
    pub(crate) fn key_of(&self, key: &[String]) -> Option<Vec<String>> {
        self.places
            .iter()
            .map(|place| key.get(*place).cloned())
            .collect()
    }
}

impl Filter {
    /// Whether a key is meant; `None` where its values do not tell.
    fn decide(&self, key: &[String]) -> Option<bool> {
        match self {
            Filter::Sampled(filters) => {
                let is_so = |(place, value): &(usize, String)| key.get(*place) == Some(value);
                Some(filters.iter().all(is_so))
            }
            Filter::Operations {
                fields,
                predicate,
                kept,
            } => {
                let compare = |comparison: &Comparison| {
                    let is_same = |known: &Comparison| {
                        (known.field, known.operator) == (comparison.field, comparison.operator)
                            && known.values == comparison.values
                    };
                    if kept.iter().any(is_same) {
                        return Some(true);
                    }
                    let place = fields.iter().position(|field| *field == comparison.field)?;
                    compare_names(comparison, key.get(place)?)
                };
                decide(predicate, &compare)
            }
        }
    }
}

/// Whether a predicate is true, with what is known of comparisons.
fn decide(predicate: &Predicate, compare: &dyn Fn(&Comparison) -> Option<bool>) -> Option<bool> {
    let join = |parts: &[Predicate], decides: bool| {
        let parts: Vec<Option<bool>> = parts.iter().map(|part| decide(part, compare)).collect();
        // A part that cannot be told makes the whole untold: for other keys it may decide.
        let parts: Option<Vec<bool>> = parts.into_iter().collect();
        parts.map(|parts| parts.contains(&decides) == decides)
    };
    match predicate {
        Predicate::Always => Some(true),
        Predicate::Compare(comparison) => compare(comparison),
        Predicate::All(parts) => join(parts, false),
        Predicate::Any(parts) => join(parts, true),
        Predicate::Not(part) => decide(part, compare).map(|is_so| !is_so),
    }
}

/// Compares the name that a key was archived by. Numbers have an order that names have not.
fn compare_names(comparison: &Comparison, name: &str) -> Option<bool> {
    let values = &comparison.values;
    let is_equal = || {
        let spelled = |value: &String| ValueNames::spelling(comparison.field, value) == name;
        values.iter().any(spelled)
    };
    match comparison.operator {
        Operator::Equal | Operator::In => Some(is_equal()),
        Operator::NotEqual => Some(!is_equal()),
        Operator::Prefix => Some(values.iter().any(|value| name.starts_with(value.as_str()))),
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan, ArchiveQueryError> {
        Asked::parse(text)
            .unwrap_or_else(|error| panic!("{text}: {error}"))
            .plan()
    }

    #[test]
    fn a_statement_is_answered_from_one_with_its_fields() {
        for (asked, kept) in [
            ("nfs.ops", "nfs.ops[cause]:latency"),
            ("nfs.ops:latency", "nfs.ops[cause]:latency"),
            (
                "nfs.ops[cause=disk or cause=log]:latency",
                "nfs.ops[cause]:latency",
            ),
            ("nfs.ops[op=read]:latency", "nfs.ops[op]:latency"),
            ("nfs.ops[op!=read][client]", ""),
            ("nfs.ops[client=kiowa]", "nfs.ops[client]"),
            ("nfs.ops[latency>1ms]", ""),
            ("nfs.ops[file]", ""),
            ("nfs.bytes", "nfs.bytes[op]"),
            ("nfs.bytes[op=read]", "nfs.bytes[op]"),
            ("nfs3.ops", ""),
            ("all.ops[protocol prefix nfs]", "all.ops[protocol]"),
            ("arc.size", "arc.size"),
            ("cpu.utilization[cpu]", "cpu.utilization"),
        ] {
            match plan(asked) {
                Ok(plan) => assert_eq!(plan.statistic, kept, "{asked}"),
                Err(error) => {
                    assert_eq!("", kept, "{asked}: {error}");
                    let is_told = matches!(error, ArchiveQueryError::NotKept { .. });
                    assert!(is_told, "{asked}: {error}");
                }
            }
        }
    }

    #[test]
    fn a_filter_chooses_keys_by_their_names() {
        let means = |text: &str, key: &str| plan(text).unwrap().means(&[key.to_owned()]);
        assert!(means("nfs.ops[op=read]", "read") && !means("nfs.ops[op=read]", "write"));
        assert!(means("nfs.ops[op=commit]", "sync"));
        assert!(means("nfs.ops[not (op=read)]", "write"));
        assert!(means("nfs.bytes", "read"));
        assert!(plan("nfs.bytes").unwrap().means_all());
        assert!(!plan("nfs.ops[op=read]").unwrap().means_all());
        let memory = plan("mem.bytes[use=arc]").unwrap();
        assert!(memory.means(&["arc".to_owned()]) && !memory.means(&["free".to_owned()]));
    }
}
