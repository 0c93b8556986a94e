//! Why a statement or a predicate is refused, and why a query cannot be answered.

use crate::answer_size::AnswerTooLarge;
use std::fmt;

/// Where in what was given something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// At this byte of the text, counted from 0.
    Byte(usize),
    /// At this member of the JSON value, such as `and[1].gt`; empty for the whole value.
    Member(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Byte(at) => write!(f, "at byte {at}"),
            Place::Member(path) if path.is_empty() => write!(f, "in the JSON predicate"),
            Place::Member(path) => write!(f, "at {path} of the JSON predicate"),
        }
    }
}

/// A statement or predicate that cannot be used. The sender's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {wrong}")]
pub struct PredicateError {
    /// Where.
    pub place: Place,
    /// What is wrong, and the cure.
    pub wrong: Wrong,
}

/// What is wrong with a statement or predicate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Wrong {
    /// The text or the JSON is longer than is read.
    #[error("longer than {bytes_max} bytes: ask for less at once")]
    TooLong {
        /// What is read.
        bytes_max: usize,
    },
    /// Parentheses, `not`, or members are nested too deep.
    #[error("nested deeper than {depth_max}: join conditions with `and`, or use `in`")]
    TooDeep {
        /// What is followed.
        depth_max: usize,
    },
    /// Something else must stand here.
    #[error("{what} must stand here")]
    Expected {
        /// What.
        what: &'static str,
    },
    /// There is no such statistic.
    #[error(
        "no statistic is called {name:?}: take one of nfs, nfs3, nfs4, iscsi, nbd, fuse, \
         blockdev, library, control, internal or all, with .ops, .bytes or .wait, such as nfs.ops"
    )]
    UnknownStatistic {
        /// What was asked for.
        name: String,
    },
    /// There is no such field.
    #[error("no field is called {name:?}: take one of {}", field_names())]
    UnknownField {
        /// What was asked for.
        name: String,
    },
    /// The field has no such value.
    #[error(
        "{field} has no value {text:?}: a breakdown by {field} lists those that were seen, \
         `prefix` takes all that begin so, and #17 takes number 17 of a client or dataset"
    )]
    UnknownValue {
        /// The field.
        field: String,
        /// The value.
        text: String,
    },
    /// The field is compared with a number, and this is none.
    #[error("{text:?} is no {quantity}: write {example}")]
    NotANumber {
        /// The value.
        text: String,
        /// What is expected.
        quantity: &'static str,
        /// How it is written.
        example: &'static str,
    },
    /// Names are equal or not.
    #[error("the values of {field} have no order: use =, !=, in or prefix")]
    NoOrder {
        /// The field.
        field: String,
    },
    /// Numbers have no prefix.
    #[error("the values of {field} are numbers, which have no prefix: use =, <, > or in")]
    NoPrefix {
        /// The field.
        field: String,
    },
    /// More fields to break down by than an answer has dimensions.
    #[error(
        "a statement is broken down by at most two discrete fields and one numeric: filter by the others"
    )]
    TooManyBreakdowns,
    /// No operator of predicates.
    #[error(
        "{name:?} is no operator: take one of eq, ne, lt, le, gt, ge, in, prefix, and, or, not"
    )]
    UnknownOperator {
        /// What stood there.
        name: String,
    },
    /// The bytes are no JSON.
    #[error("no JSON: {message}")]
    NotJson {
        /// What the parser says, with line and column.
        message: String,
    },
}

impl Wrong {
    /// The error at a place.
    pub(crate) fn at(self, place: &Place) -> PredicateError {
        PredicateError {
            place: place.clone(),
            wrong: self,
        }
    }
}

fn field_names() -> String {
    let names: Vec<String> = crate::field::Field::all()
        .map(crate::field::Field::name)
        .collect();
    names.join(", ")
}

/// A query that cannot be answered. The sender's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The time ends before it begins, or columns have no width.
    #[error("the time range is empty, or its columns have no width")]
    EmptyRange,
    /// An answer of that size is not made.
    #[error("{0}")]
    TooLarge(#[from] AnswerTooLarge),
    /// More fields to break down by than an answer has, or of the wrong kind.
    #[error("operations are broken down by at most two discrete fields and one numeric field")]
    WrongBreakdown,
}

/// An instrumentation that cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// There are as many as there may be.
    #[error("{max} instrumentations are in use: remove one, or let idle ones end")]
    TooMany {
        /// The bound.
        max: usize,
    },
}
