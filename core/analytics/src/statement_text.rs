//! Statements as text: in the form that is read again, and as titles for people.

use std::fmt;

use crate::breakdown::Measure;
use crate::field::Field;
use crate::predicate::{Comparison, Operator, Predicate};
use crate::statement::{MODULES, Statement};

/// A statistic that statements begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistic {
    /// `nfs.ops`
    pub name: String,
    /// `NFS operations per second`
    pub title: String,
    /// What is summed up.
    pub measure: Measure,
}

/// All statistics.
pub fn statistics() -> Vec<Statistic> {
    let measures = [Measure::Operations, Measure::Bytes, Measure::WaitTime];
    let of_module = |(module, _): &(&str, _)| {
        let module = (*module).to_owned();
        measures.map(|measure| Statistic {
            name: format!("{module}.{}", measure.unit()),
            title: title_of(&module, measure),
            measure,
        })
    };
    MODULES.iter().flat_map(of_module).collect()
}

/// What a statistic is called.
fn title_of(module: &str, measure: Measure) -> String {
    let whose = match module {
        "nfs" => "NFS",
        "nfs3" => "NFSv3",
        "nfs4" => "NFSv4",
        "iscsi" => "iSCSI",
        "nbd" => "NBD",
        "fuse" => "Mount",
        "blockdev" => "Block device",
        "library" => "Library",
        "control" => "Administration",
        "internal" => "Internal",
        "vdev" | "io" => "Device",
        _ => "All",
    };
    match measure {
        Measure::Operations => format!("{whose} operations per second"),
        Measure::Bytes => format!("{whose} bytes per second"),
        Measure::WaitTime => format!("{whose} time waited per second"),
    }
}

impl Statement {
    /// For people: `NFS operations per second, reads, by client, by latency`.
    pub fn title(&self) -> String {
        let filters = self.filters.iter().map(filter_title);
        let by = self.by().iter().copied().chain(self.numeric());
        let by = by.map(|field| format!("by {}", field.name()));
        let parts = std::iter::once(title_of(&self.module, self.measure));
        let parts: Vec<String> = parts.chain(filters).chain(by).collect();
        parts.join(", ")
    }
}

fn filter_title(filter: &Predicate) -> String {
    match filter {
        Predicate::Compare(comparison)
            if comparison.field == Field::Operation
                && matches!(comparison.operator, Operator::Equal | Operator::In)
                && comparison.values.len() == 1 =>
        {
            match comparison.values[0].as_str() {
                "read" => "reads".to_owned(),
                "write" => "writes".to_owned(),
                other => format!("{other} only"),
            }
        }
        other => other.to_string(),
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.module, self.measure.unit())?;
        self.filters
            .iter()
            .try_for_each(|filter| write!(f, "[{filter}]"))?;
        let by = self.by().iter();
        by.copied()
            .try_for_each(|field| write!(f, "[{}]", field.name()))?;
        match self.numeric() {
            Some(field) => write!(f, ":{}", field.name()),
            None => Ok(()),
        }
    }
}

/// The text that [`Predicate::parse`] reads. [`Predicate::Always`] is empty.
impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Predicate::Always => Ok(()),
            Predicate::Compare(comparison) => write!(f, "{comparison}"),
            Predicate::All(parts) => joined(f, parts, " and ", |part| {
                matches!(part, Predicate::All(_) | Predicate::Any(_))
            }),
            Predicate::Any(parts) => {
                joined(f, parts, " or ", |part| matches!(part, Predicate::Any(_)))
            }
            Predicate::Not(inner) => match **inner {
                Predicate::Compare(_) => write!(f, "not {inner}"),
                _ => write!(f, "not ({inner})"),
            },
        }
    }
}

fn joined(
    f: &mut fmt::Formatter<'_>,
    parts: &[Predicate],
    word: &str,
    is_enclosed: impl Fn(&Predicate) -> bool,
) -> fmt::Result {
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            f.write_str(word)?;
        }
        match is_enclosed(part) {
            true => write!(f, "({part})")?,
            false => write!(f, "{part}")?,
        }
    }
    Ok(())
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (field, values) = (self.field.name(), self.values.iter());
        let values: Vec<String> = values.map(|value| written(value)).collect();
        let sign = match self.operator {
            Operator::Equal => "=",
            Operator::NotEqual => "!=",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
            Operator::In => return write!(f, "{field} in ({})", values.join(", ")),
            Operator::Prefix => "^=",
        };
        write!(f, "{field}{sign}{}", values.join(", "))
    }
}

/// A value as it is read again.
fn written(value: &str) -> String {
    let is_plain = |character: char| {
        !character.is_whitespace() && !character.is_control() && !"()[],\"".contains(character)
    };
    // A sign and a value that begins with `=` would be read as another sign.
    match !value.is_empty() && !value.starts_with('=') && value.chars().all(is_plain) {
        true => value.to_owned(),
        false => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_host::sim::Random;

    #[test]
    fn a_statement_is_written_so_that_it_is_read_again() {
        for (text, written) in [
            ("nfs.ops", "nfs.ops"),
            ("nfs4.ops[ hit/miss ][offset]", "nfs4.ops[cause]:offset"),
            (
                "nfs.ops [file][op = read]:latency",
                "nfs.ops[op=read][file]:latency",
            ),
            ("all.ops[client=\"=a\"]", "all.ops[client=\"=a\"]"),
            (
                "all.wait[client=\"a b\" or not (op in (read,write) and size>=4k)]",
                "all.wait[client=\"a b\" or not (op in (read, write) and size>=4k)]",
            ),
            (
                "all.ops[(op=read or op=write) and file prefix \"/a\\\\\\\"\"]",
                "all.ops[(op=read or op=write) and file^=\"/a\\\\\\\"\"]",
            ),
        ] {
            let statement = Statement::parse(text).unwrap();
            assert_eq!(statement.to_string(), written);
            let again = Statement::parse(written).unwrap();
            assert_eq!(again.to_string(), written);
        }
    }

    /// Whatever is read is written so that it means the same.
    #[test]
    fn any_statement_that_is_read_is_read_again() {
        let mut random = Random::new(11);
        let seed = "nfs.ops[a and (op=read or not client=\"b c\")][op in (x,y)][file]:size";
        let pieces = [
            "[",
            "]",
            "(",
            ")",
            "not ",
            "\"",
            "\\",
            " and ",
            " or ",
            "op=read",
            "latency<3ms",
        ];
        let mut count = 0;
        for _ in 0..20_000 {
            let mut text: Vec<char> = seed.replace("a and ", "").chars().collect();
            for _ in 0..=random.index(3) {
                let (from, to) = (random.index(text.len() + 1), random.index(text.len() + 1));
                let piece = pieces[random.index(pieces.len())].chars();
                text.splice(from.min(to)..from.max(to).min(from.min(to) + 3), piece);
            }
            let text: String = text.into_iter().collect();
            if let Ok(statement) = Statement::parse(&text) {
                let written = statement.to_string();
                let again = Statement::parse(&written);
                let again = again.unwrap_or_else(|error| panic!("{text}: {written}: {error}"));
                assert_eq!(again.to_string(), written, "{text}");
                assert_eq!(again.breakdown(), statement.breakdown(), "{text}");
                count += 1;
            }
        }
        assert!(count > 100);
    }

    #[test]
    fn titles_are_for_people() {
        let title = |text: &str| Statement::parse(text).unwrap().title();
        assert_eq!(
            title("nfs.ops[op=read][client]:latency"),
            "NFS operations per second, reads, by client, by latency"
        );
        assert_eq!(
            title("iscsi.bytes[client=\"a b\"]"),
            "iSCSI bytes per second, client=\"a b\""
        );
        assert_eq!(statistics().len(), 39);
        assert!(
            statistics()
                .iter()
                .all(|one| Statement::parse(&one.name).is_ok())
        );
    }
}
