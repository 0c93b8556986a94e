//! Predicates: which operations are meant.
//!
//! # Mechanism
//! A predicate is parsed from text (`predicate_text.rs`) or from JSON (`predicate_json.rs`) into a
//! tree of comparisons with words as they were written. With the names that are known now it
//! compiles (`compiled.rs`) to tests of numbers in columns.
//!
//! # Invariants
//! - Whatever the bytes, parsing ends with a predicate or an error: predicates come from
//!   unprivileged users. Depth and length are bounded.

use crate::error::{Place, Wrong};
use crate::field::Field;

/// Bytes of a text or JSON that are read.
pub(crate) const BYTES_MAX: usize = 16 * 1024;
/// How deep parentheses, `not` and members of JSON may nest.
pub(crate) const DEPTH_MAX: usize = 32;

/// Which operations are meant, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predicate {
    /// All.
    Always,
    /// Those of which a field compares so.
    Compare(Comparison),
    /// Those that all of these mean.
    All(Vec<Predicate>),
    /// Those that any of these means.
    Any(Vec<Predicate>),
    /// Those that this one does not mean.
    Not(Box<Predicate>),
}

/// A field, an operator and one value, or several for `in`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// What is compared.
    pub field: Field,
    /// How.
    pub operator: Operator,
    /// With what, as it was written.
    pub values: Vec<String>,
    /// Where it stands.
    pub place: Place,
}

/// How a field is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `=`; of [`Field::Outcomes`]: the outcome is among them.
    Equal,
    /// `!=`, `≠`
    NotEqual,
    /// `<`
    Less,
    /// `<=`, `≤`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`, `≥`
    GreaterOrEqual,
    /// `in (A, B)`: equal to one of them.
    In,
    /// `prefix A`: the value's name begins so.
    Prefix,
}

impl Predicate {
    /// Those that both mean.
    #[must_use]
    pub fn and(self, other: Predicate) -> Predicate {
        match (self, other) {
            (Predicate::Always, other) | (other, Predicate::Always) => other,
            (Predicate::All(mut parts), Predicate::All(others)) => {
                parts.extend(others);
                Predicate::All(parts)
            }
            (Predicate::All(mut parts), other) => {
                parts.push(other);
                Predicate::All(parts)
            }
            (one, other) => Predicate::All(vec![one, other]),
        }
    }

    /// Hands over each comparison in it.
    pub fn each_comparison<'p>(&'p self, take: &mut dyn FnMut(&'p Comparison)) {
        match self {
            Predicate::Always => {}
            Predicate::Compare(comparison) => take(comparison),
            Predicate::All(parts) | Predicate::Any(parts) => {
                parts.iter().for_each(|part| part.each_comparison(take));
            }
            Predicate::Not(inner) => inner.each_comparison(take),
        }
    }

    /// The one part of a list of one, or a join of them.
    pub(crate) fn joined(
        mut parts: Vec<Predicate>,
        join: fn(Vec<Predicate>) -> Predicate,
    ) -> Predicate {
        match parts.len() {
            1 => parts.remove(0),
            _ => join(parts),
        }
    }
}

/// Nanoseconds of `250us`, `1.5ms`, `10s`; without a unit: nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Result<u64, Wrong> {
    const UNITS: [(&str, u64); 7] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("min", 60_000_000_000),
        ("s", 1_000_000_000),
        ("", 1),
    ];
    parse_scaled(text, &UNITS).ok_or_else(|| Wrong::NotANumber {
        text: text.to_owned(),
        quantity: "duration",
        example: "250us, 1.5ms or 10s",
    })
}

/// Bytes of `512`, `4K`, `1.5MiB`: units are powers of 1024.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, Wrong> {
    const UNITS: [(&str, u64); 5] = [
        ("k", 1 << 10),
        ("m", 1 << 20),
        ("g", 1 << 30),
        ("t", 1 << 40),
        ("", 1),
    ];
    let lower = text.to_ascii_lowercase();
    let number = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b'));
    let number = number.unwrap_or(&lower);
    parse_scaled(number, &UNITS).ok_or_else(|| Wrong::NotANumber {
        text: text.to_owned(),
        quantity: "count of bytes",
        example: "512, 4K or 1.5M",
    })
}

/// A decimal number with at most nine digits behind the point, times its unit.
fn parse_scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let ends_so = |(unit, _): &&(&str, u64)| text.ends_with(unit);
    let (unit, scale) = units.iter().find(ends_so)?;
    let number = text.strip_suffix(unit)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 9 || !is_digits(whole) || !is_digits(fraction) {
        return None;
    }
    let billionths = format!("{fraction:0<9}").parse::<u128>().ok()?;
    let scale = u128::from(*scale);
    let whole = u128::from(whole.parse::<u64>().ok()?).checked_mul(scale)?;
    u64::try_from(whole + billionths * scale / 1_000_000_000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_have_units() {
        for (text, expected) in [
            ("0", 0),
            ("17", 17),
            ("250us", 250_000),
            ("250µs", 250_000),
            ("1.5ms", 1_500_000),
            ("10s", 10_000_000_000),
            ("2min", 120_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_duration(text).unwrap(), expected, "{text}");
        }
        for (text, expected) in [
            ("512", 512),
            ("4K", 4096),
            ("4KiB", 4096),
            ("1.5m", 3 << 19),
            ("2TB", 2 << 40),
        ] {
            assert_eq!(parse_bytes(text).unwrap(), expected, "{text}");
        }
        for text in [
            "",
            "ms",
            ".5ms",
            "-1",
            "1e3",
            "1.0000000001s",
            "99999999999s",
            "1 ms",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
            assert!(parse_bytes(text).is_err() || text == "-", "{text}");
        }
    }
}
