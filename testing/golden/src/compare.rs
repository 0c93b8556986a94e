//! Holding what is seen against the truth, and saying what differs so that one look suffices.
//!
//! # Mechanism
//! Manifests are compared as text, line for line. Only when they differ are the lines paired by
//! path and taken apart, to name the fields. Tables are compared by key, so that one missing row
//! does not make all later ones differ.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::allowed::{may_differ, without_root};
use crate::truth::{LIST_COLUMNS, ListRow, PropertyRow};

/// What differs, one sentence each. Empty means equal.
pub type Differences = Vec<String>;

/// From here on a number is that of a file in a snapshot, and its lowest 32 bits are the object's
/// (decision 45). OpenZFS mounts each snapshot, with a `st_dev` of its own, and shows the object's
/// number.
const FIRST_OF_SNAPSHOTS: u64 = 1 << 52;

/// A line of a manifest with the number of its object in place of its inode number.
fn object_number(line: &str) -> String {
    let word = "\"ino\": ";
    let Some((start, rest)) = line.split_once(word) else {
        return line.to_string();
    };
    let end = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    match rest[..rest.len() - end.len()].parse::<u64>() {
        Ok(shown) if shown >= FIRST_OF_SNAPSHOTS => {
            format!("{start}{word}{}{end}", shown & u64::from(u32::MAX))
        }
        _ => line.to_string(),
    }
}

/// How two manifests differ.
#[must_use]
pub fn manifests(truth: &[String], seen: &[String]) -> Differences {
    let [truth, seen] = [truth, seen]
        .map(|lines| -> Vec<String> { lines.iter().map(|line| object_number(line)).collect() });
    if truth == seen {
        return Vec::new();
    }
    let (truth, seen) = (by_path(&truth), by_path(&seen));
    let mut differences = Vec::new();
    for (path, line) in &truth {
        match seen.get(path) {
            None => differences.push(format!("{path}: missing")),
            Some(found) if found == line => {}
            Some(found) => differences.push(format!("{path}: {}", fields(line, found))),
        }
    }
    let unknown = seen.keys().filter(|path| !truth.contains_key(*path));
    differences.extend(unknown.map(|path| format!("{path}: should not be there")));
    if differences.is_empty() {
        differences.push("the same lines in another order".to_string());
    }
    differences
}

/// Lines by the JSON text of their path, which is their first field.
fn by_path(lines: &[String]) -> BTreeMap<&str, &str> {
    let path = |line: &str| -> usize {
        let start = "{\"path\": \"".len().min(line.len());
        let bytes = line.as_bytes();
        let quote = (start..bytes.len()).find(|&at| bytes[at] == b'"' && bytes[at - 1] != b'\\');
        quote.unwrap_or(line.len())
    };
    lines
        .iter()
        .map(|line| (line.get(10..path(line)).unwrap_or(line), line.as_str()))
        .collect()
}

/// The fields that differ between two lines, as `name was X, is Y`.
fn fields(truth: &str, seen: &str) -> String {
    let parse = |line: &str| serde_json::from_str::<Value>(line);
    let (Ok(Value::Object(truth_fields)), Ok(Value::Object(seen_fields))) =
        (parse(truth), parse(seen))
    else {
        return format!("\n    truth {truth}\n    seen  {seen}");
    };
    let names = truth_fields.keys().chain(
        seen_fields
            .keys()
            .filter(|key| !truth_fields.contains_key(*key)),
    );
    let mut told = Vec::new();
    for name in names {
        let (truth, seen) = (truth_fields.get(name), seen_fields.get(name));
        if truth != seen {
            let show =
                |value: Option<&Value>| value.map_or("nothing".to_string(), Value::to_string);
            told.push(format!(
                "{name} should be {}, is {}",
                show(truth),
                show(seen)
            ));
        }
    }
    if told.is_empty() {
        told.push(format!(
            "the same fields, written otherwise:\n    truth {truth}\n    seen  {seen}"
        ));
    }
    told.join("; ")
}

/// How `zfs get` or `zpool get` differ. `root` is the alternate root of the pool seen.
#[must_use]
pub fn properties(truth: &[PropertyRow], seen: &[PropertyRow], root: &str) -> Differences {
    let rows = |rows: &[PropertyRow], root: &str| -> Vec<(String, String)> {
        let rows = rows.iter().filter(|row| !may_differ(&row.property));
        rows.map(|row| {
            let value = match row.property.as_str() {
                "mountpoint" => without_root(&row.value, root),
                _ => row.value.clone(),
            };
            (
                format!("{} {}", row.name, row.property),
                format!("{value:?} ({})", row.source),
            )
        })
        .collect()
    };
    keyed(&rows(truth, "/"), &rows(seen, root))
}

/// How two listings differ. `root` is the alternate root of the pool seen.
#[must_use]
pub fn lists(truth: &[ListRow], seen: &[ListRow], root: &str) -> Differences {
    let rows = |rows: &[ListRow], root: &str| -> Vec<(String, String)> {
        let cells = rows.iter().flat_map(|row| {
            let name = row.value("name");
            LIST_COLUMNS.iter().map(move |column| {
                let value = match *column {
                    "mountpoint" => without_root(row.value(column), root),
                    column => row.value(column).to_string(),
                };
                (format!("{name} {column}"), value)
            })
        });
        cells.collect()
    };
    let mut differences = keyed(&rows(truth, "/"), &rows(seen, root));
    let names = |rows: &[ListRow]| -> Vec<String> {
        rows.iter()
            .map(|row| row.value("name").to_string())
            .collect()
    };
    if differences.is_empty() && names(truth) != names(seen) {
        differences.push(format!("the order is {:?}", names(seen)));
    }
    differences
}

fn keyed(truth: &[(String, String)], seen: &[(String, String)]) -> Differences {
    let found: BTreeMap<&str, &str> = seen.iter().map(|(key, value)| (&**key, &**value)).collect();
    let known: BTreeMap<&str, &str> = truth
        .iter()
        .map(|(key, value)| (&**key, &**value))
        .collect();
    let mut differences = Vec::new();
    for (key, value) in truth {
        match found.get(key.as_str()) {
            None => differences.push(format!("{key}: missing, should be {value}")),
            Some(other) if other == value => {}
            Some(other) => differences.push(format!("{key}: should be {value}, is {other}")),
        }
    }
    let unknown = seen
        .iter()
        .filter(|(key, _)| !known.contains_key(key.as_str()));
    differences
        .extend(unknown.map(|(key, value)| format!("{key}: should not be there, is {value}")));
    differences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_string()).collect()
    }

    #[test]
    fn a_changed_field_is_named_with_both_values() {
        let truth = lines(&[r#"{"path": "a", "size": 1}"#, r#"{"path": "b", "size": 2}"#]);
        let seen = lines(&[r#"{"path": "a", "size": 1}"#, r#"{"path": "b", "size": 3}"#]);
        assert_eq!(manifests(&truth, &seen), ["b: size should be 2, is 3"]);
        assert!(manifests(&truth, &truth).is_empty());
    }

    #[test]
    fn missing_and_unknown_files_are_named() {
        let truth = lines(&[r#"{"path": "a", "size": 1}"#]);
        let seen = lines(&[r#"{"path": "c", "size": 1}"#]);
        assert_eq!(
            manifests(&truth, &seen),
            ["a: missing", "c: should not be there"]
        );
    }

    /// Line for line means the same bytes, not the same meaning.
    #[test]
    fn the_same_fields_written_otherwise_are_a_difference() {
        let truth = lines(&[r#"{"path": "a", "size": 1}"#]);
        let seen = lines(&[r#"{"path": "a","size": 1}"#]);
        assert_eq!(manifests(&truth, &seen).len(), 1);
    }

    #[test]
    fn names_that_json_cannot_hold_are_still_compared() {
        let truth = lines(&[r#"{"path": "a\udcff", "size": 1}"#]);
        let seen = lines(&[r#"{"path": "a\udcff", "size": 2}"#]);
        assert!(manifests(&truth, &seen)[0].contains("seen"));
    }

    fn property(property: &str, value: &str) -> PropertyRow {
        let own = str::to_string;
        PropertyRow {
            name: own("p"),
            property: own(property),
            value: own(value),
            source: own("-"),
        }
    }

    #[test]
    fn mount_points_are_compared_without_the_alternate_root() {
        let truth = [property("mountpoint", "/p"), property("altroot", "-")];
        let seen = [
            property("mountpoint", "/alt/p"),
            property("altroot", "/alt"),
        ];
        assert!(properties(&truth, &seen, "/alt").is_empty());
    }

    /// The canary of the list of allowed values: what is not on it is compared.
    #[test]
    fn any_other_property_that_differs_is_told() {
        let differences = properties(&[property("used", "1")], &[property("used", "2")], "/alt");
        assert_eq!(differences, [r#"p used: should be "1" (-), is "2" (-)"#]);
    }
}
