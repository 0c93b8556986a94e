//! Properties as they are asked for: `-o` of `zpool list`, the first argument of `zpool get`.
//!
//! # Widths
//! A column is at least as wide as its heading and as the longest word its property may have.
//! Numbers that people read have at most five characters, so their columns do not look at the
//! values unless exact ones are shown; every other column grows with them. Widths are bytes, as C's
//! `printf` counts them.

use tarn_administration::messages::pool::PoolDescription;
use tarn_administration::messages::{PropertyValue, Source, Value};
use tarn_engine::features::Feature;
use tarn_engine::names::is_user_property;
use tarn_engine::properties::pool_table::{POOL_PROPERTIES, find};
use tarn_engine::properties::value::{Form, Property};
use tarn_terminal::failure::Failure;
use tarn_terminal::number::{nice_bytes, nice_count, ratio};
use tarn_terminal::show::Exactness;
use tarn_terminal::table::Align;

/// The longest number that people read: `20.4M`.
const NICE_NUMBER_WIDTH: usize = 5;

/// The width of a state: `DEGRADED`.
const HEALTH_WIDTH: usize = 8;

/// The beginnings of names of features, and of features that are not known here.
const FEATURE: &str = "feature@";
const UNSUPPORTED: &str = "unsupported@";

/// One property.
#[derive(Debug, Clone)]
pub enum Asked {
    /// A native one.
    Native(&'static Property),
    /// A feature or a user property.
    Named(String),
}

impl Asked {
    /// The property of this name, if there can be one.
    pub fn find(name: &str) -> Option<Asked> {
        if let Some(property) = find(name) {
            return Some(Asked::Native(property));
        }
        let is_feature = name.starts_with(FEATURE) || name.starts_with(UNSUPPORTED);
        (is_feature || is_user_property(name)).then(|| Asked::Named(name.to_string()))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Asked::Native(property) => property.name,
            Asked::Named(name) => name,
        }
    }

    /// The heading of its column.
    pub fn heading(&self) -> String {
        match self {
            Asked::Native(property) => property.column.to_string(),
            Asked::Named(name) => name.to_ascii_uppercase(),
        }
    }

    /// How its column is aligned.
    pub fn align(&self) -> Align {
        match self {
            Asked::Native(row) if row.name == "health" || row.aligns_right() => Align::Right,
            _ => Align::Left,
        }
    }

    /// The width of its column before any value was seen.
    pub fn least_width(&self) -> usize {
        match self {
            Asked::Named(name) => name.len(),
            Asked::Native(row) if row.name == "health" => HEALTH_WIDTH,
            Asked::Native(row) => match row.form {
                Form::Number => row.column.len().max(NICE_NUMBER_WIDTH),
                Form::Word(words) => words
                    .iter()
                    .map(|(word, _)| word.len())
                    .fold(row.column.len(), usize::max),
                Form::Text => row.column.len(),
            },
        }
    }

    /// The width of its column over these pools.
    pub fn width(&self, pools: &[PoolDescription], exactness: Exactness) -> usize {
        let grows = match self {
            // Words of features are always shorter than their names.
            Asked::Named(name) => is_user_property(name),
            Asked::Native(_) if exactness == Exactness::Exact => true,
            Asked::Native(row) => match row.form {
                Form::Number => matches!(row.name, "guid" | "load_guid"),
                Form::Word(_) | Form::Text => row.name != "health",
            },
        };
        if !grows {
            return self.least_width();
        }
        pools
            .iter()
            .filter_map(|pool| self.text(pool, exactness))
            .map(|text| text.len())
            .fold(self.least_width(), usize::max)
    }

    /// The value of a pool as text; none where the pool has no such property.
    pub fn text(&self, pool: &PoolDescription, exactness: Exactness) -> Option<String> {
        if self.name() == "name" {
            return Some(pool.name.clone());
        }
        match self.answer(pool) {
            Some(answer) => Some(value(self.name(), answer, exactness)),
            // As OpenZFS: a user property that is not set.
            None => is_user_property(self.name()).then(|| "-".to_string()),
        }
    }

    /// Where the value of a pool comes from.
    pub fn source<'a>(&self, pool: &'a PoolDescription) -> &'a Source {
        match self.answer(pool) {
            Some(answer) => &answer.source,
            None if is_user_property(self.name()) => &Source::Default,
            None => &Source::None,
        }
    }

    fn answer<'a>(&self, pool: &'a PoolDescription) -> Option<&'a PropertyValue> {
        pool.properties.get(self.name())
    }
}

/// A value as text. A number takes the form of what its property counts.
fn value(name: &str, value: &PropertyValue, exactness: Exactness) -> String {
    let number = match &value.value {
        Value::Absent => return "-".to_string(),
        Value::Text(text) => return text.clone(),
        Value::Number(number) => *number,
    };
    let is_exact = exactness == Exactness::Exact;
    match name {
        "expandsize" | "checkpoint" if number == 0 => "-".to_string(),
        "fragmentation" if number == u64::MAX => "-".to_string(),
        "dedup_table_quota" if number == u64::MAX => "auto".to_string(),
        "dedupratio" | "bcloneratio" => ratio(number, is_exact),
        _ if is_exact => number.to_string(),
        "dedup_table_quota" if number == 0 => "none".to_string(),
        "expandsize" | "checkpoint" => nice_bytes(number),
        "capacity" | "fragmentation" => format!("{number}%"),
        "guid" | "load_guid" | "version" | "last_scrubbed_txg" => number.to_string(),
        _ => nice_count(number),
    }
}

/// What was asked for.
#[derive(Debug, Clone)]
pub enum List {
    /// `all`: every native property, user properties that are there, and features.
    All,
    /// These.
    These(Vec<Asked>),
}

impl List {
    /// A list separated by commas.
    ///
    /// # Errors
    /// A name that no property can have.
    pub fn parse(text: &str) -> Result<List, Failure> {
        match text {
            "all" => return Ok(List::All),
            "" => return Err(Failure::usage("bad property list: no properties specified")),
            _ => {}
        }
        let one = |name| {
            let unknown =
                || Failure::usage(format!("bad property list: invalid property '{name}'"));
            Asked::find(name).ok_or_else(unknown)
        };
        text.split(',')
            .map(one)
            .collect::<Result<_, _>>()
            .map(List::These)
    }

    /// The properties in the order of printing; with `all`, those that these pools show.
    pub fn expand(&self, pools: &[PoolDescription]) -> Vec<Asked> {
        let List::These(these) = self else {
            let native = POOL_PROPERTIES
                .iter()
                .filter(|row| row.visible)
                .map(Asked::Native);
            let features = Feature::ALL
                .iter()
                .map(|feature| Asked::Named(format!("{FEATURE}{}", feature.name())));
            return native
                .chain(named(pools, is_user_property))
                .chain(features)
                .chain(named(pools, |name| name.starts_with(UNSUPPORTED)))
                .collect();
        };
        these.clone()
    }
}

/// Properties of these pools whose names are so, each once.
fn named(pools: &[PoolDescription], is_so: impl Fn(&str) -> bool) -> Vec<Asked> {
    let mut names: Vec<&String> = Vec::new();
    for name in pools.iter().flat_map(|pool| pool.properties.keys()) {
        if is_so(name) && !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().cloned().map(Asked::Named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn numbers_take_the_form_of_their_property() {
        for (name, number, nice, exact) in [
            ("size", 184_549_376, "176M", "184549376"),
            ("allocated", 0, "0", "0"),
            ("capacity", 61, "61%", "61"),
            ("fragmentation", u64::MAX, "-", "-"),
            ("expandsize", 0, "-", "-"),
            ("dedupratio", 100, "1.00x", "1.00"),
            ("dedup_table_quota", u64::MAX, "auto", "auto"),
            ("dedup_table_quota", 0, "none", "0"),
            ("ashift", 12, "12", "12"),
            (
                "guid",
                7_154_389_783_083_793_937,
                "7154389783083793937",
                "7154389783083793937",
            ),
        ] {
            let answer = samples::answer(Value::Number(number), Source::None);
            assert_eq!(value(name, &answer, Exactness::Nice), nice, "{name}");
            assert_eq!(value(name, &answer, Exactness::Exact), exact, "{name}");
        }
    }

    #[test]
    fn all_has_native_properties_first_and_features_last() {
        let pools = [samples::basic()];
        let all = List::All.expand(&pools);
        assert_eq!(all[0].name(), "size");
        assert_eq!(all.last().unwrap().name(), "unsupported@com.example:future");
        assert!(
            all.iter()
                .any(|asked| asked.name() == "feature@lz4_compress")
        );
        assert!(all.iter().all(|asked| asked.name() != "name"));
    }

    #[test]
    fn a_name_that_no_property_has_is_refused() {
        assert_eq!(
            List::parse("size,nonsense").unwrap_err(),
            Failure::usage("bad property list: invalid property 'nonsense'")
        );
        assert!(List::parse("cap,frag,feature@lz4_compress,com.example:note").is_ok());
    }
}
