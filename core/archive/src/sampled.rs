//! Sampled statistics: numbers of the machine and of layers, taken once a second.
//!
//! A statement of one is its name with fields in brackets: `cpu.utilization[cpu]` is broken down by
//! processor, `net.bytes[interface=eth0][direction]` is of one interface, by direction. The keys of
//! a field that is not named are added up.

use Averaged::{Counter, Gauge};

use crate::error::ArchiveQueryError;

/// How samples of a time become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Averaged {
    /// Each sample is what was counted in its second: a column has their sum.
    Counter,
    /// Each sample is how it was: a column has their mean.
    Gauge,
}

/// A statistic that is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledStatistic {
    /// Its name.
    pub name: &'static str,
    /// What it is, for people.
    pub title: &'static str,
    /// What its numbers are.
    pub unit: &'static str,
    /// What its key has.
    pub fields: &'static [&'static str],
    /// How its samples become one number.
    pub averaged: Averaged,
}

const fn sampled(
    averaged: Averaged,
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    fields: &'static [&'static str],
) -> SampledStatistic {
    SampledStatistic {
        name,
        title,
        unit,
        fields,
        averaged,
    }
}

/// All sampled statistics.
pub const SAMPLED_STATISTICS: &[SampledStatistic] = &[
    sampled(
        Gauge,
        "cpu.utilization",
        "CPU utilization",
        "percent",
        &["cpu", "mode"],
    ),
    sampled(Gauge, "mem.bytes", "Memory", "bytes", &["use"]),
    sampled(
        Counter,
        "net.bytes",
        "Network bytes",
        "bytes",
        &["interface", "direction"],
    ),
    sampled(
        Counter,
        "net.packets",
        "Network packets",
        "packets",
        &["interface", "direction"],
    ),
    sampled(
        Gauge,
        "disk.utilization",
        "Disk utilization",
        "percent",
        &["disk"],
    ),
    sampled(
        Counter,
        "disk.bytes",
        "Disk bytes",
        "bytes",
        &["disk", "direction"],
    ),
    sampled(
        Counter,
        "disk.ops",
        "Disk requests",
        "requests",
        &["disk", "direction"],
    ),
    sampled(Gauge, "arc.size", "ARC size", "bytes", &[]),
    sampled(Gauge, "arc.target", "ARC target size", "bytes", &[]),
    sampled(Counter, "arc.hits", "ARC hits", "accesses", &[]),
    sampled(Counter, "arc.misses", "ARC misses", "accesses", &[]),
    sampled(
        Counter,
        "arc.iohits",
        "ARC hits on blocks being read",
        "accesses",
        &[],
    ),
    sampled(
        Counter,
        "arc.accesses",
        "ARC accesses",
        "accesses",
        &["demand", "data", "result"],
    ),
    sampled(Counter, "l2arc.hits", "L2ARC hits", "accesses", &[]),
    sampled(Counter, "l2arc.misses", "L2ARC misses", "accesses", &[]),
    sampled(Gauge, "l2arc.size", "L2ARC size", "bytes", &[]),
    sampled(Counter, "zil.commits", "Intent log commits", "commits", &[]),
];

/// A statement of a sampled statistic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampled {
    /// Of which.
    pub statistic: &'static SampledStatistic,
    /// The places in its fields that it is broken down by.
    pub by: Vec<usize>,
    /// Which value the field at a place must have.
    pub filters: Vec<(usize, String)>,
}

impl Sampled {
    /// The statement of a text; `None` if its name is that of no sampled statistic.
    pub fn parse(text: &str) -> Result<Option<Sampled>, ArchiveQueryError> {
        let text = text.trim();
        let (name, mut rest) = text.split_at(text.find('[').unwrap_or(text.len()));
        let known = SAMPLED_STATISTICS
            .iter()
            .find(|known| known.name == name.trim());
        let Some(statistic) = known else {
            return Ok(None);
        };
        let wrong = |wrong: String| ArchiveQueryError::BadSampled {
            text: text.to_owned(),
            wrong,
        };
        let (mut by, mut filters) = (Vec::new(), Vec::new());
        while !rest.is_empty() {
            let inside = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
            let (inside, after) = inside.ok_or_else(|| {
                wrong("[FIELD] or [FIELD=VALUE] must stand after the name".to_owned())
            })?;
            rest = after.trim_start();
            let (field, value) = match inside.split_once('=') {
                Some((field, value)) => (field.trim(), Some(value.trim().trim_matches('"'))),
                None => (inside.trim(), None),
            };
            let place = statistic.fields.iter().position(|known| *known == field);
            let place = place.ok_or_else(|| {
                let fields = match statistic.fields {
                    [] => "it has none".to_owned(),
                    fields => format!("take one of {}", fields.join(", ")),
                };
                wrong(format!("no field is called {field:?}: {fields}"))
            })?;
            match value {
                Some(value) => filters.push((place, value.to_owned())),
                None if by.contains(&place) => {}
                None => by.push(place),
            }
        }
        Ok(Some(Sampled {
            statistic,
            by,
            filters,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_alone_break_down_and_fields_with_values_filter() {
        let text = r#" net.bytes[interface="eth0"][direction] "#;
        let sampled = Sampled::parse(text).unwrap().unwrap();
        assert_eq!(sampled.statistic.name, "net.bytes");
        assert_eq!(sampled.by, [1]);
        assert_eq!(sampled.filters, [(0, "eth0".to_owned())]);
        assert_eq!(Sampled::parse("nfs.ops[op]"), Ok(None));
    }

    #[test]
    fn what_is_wrong_is_told_with_the_fields_there_are() {
        let error = Sampled::parse("net.bytes[disk]").unwrap_err().to_string();
        assert!(error.contains("interface, direction"), "{error}");
        let error = Sampled::parse("arc.size[x]").unwrap_err().to_string();
        assert!(error.contains("it has none"), "{error}");
        for text in ["arc.size[", "net.bytes[interface", "net.bytes[interface]x"] {
            assert!(Sampled::parse(text).is_err(), "{text}");
        }
    }
}
