//! The order of datasets in `zfs list` and `zfs get`.
//!
//! Without `-s`, by name; snapshots follow their dataset, oldest first. With it, by those
//! properties first: numbers by their size, words and texts by their letters. A dataset that has no
//! such property goes to the end, whatever the direction.

use crate::answers;
use crate::asked::Asked;
use std::cmp::Ordering;
use tarn_administration::messages::Value;
use tarn_administration::messages::dataset::DatasetDescription;
use tarn_engine::properties::value::{Form, Property};
use tarn_terminal::show::Exactness;

/// One `-s` or `-S`.
#[derive(Debug, Clone)]
pub struct SortKey {
    /// By what.
    pub asked: Asked,
    /// `-S`: largest first.
    pub descending: bool,
}

/// What a dataset is sorted by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Number(u64),
    Text(String),
}

/// Sorts datasets and drops those that were found twice.
pub fn arrange(datasets: Vec<DatasetDescription>, keys: &[SortKey]) -> Vec<DatasetDescription> {
    let mut ranked: Vec<(Vec<Option<Rank>>, DatasetDescription)> = datasets
        .into_iter()
        .map(|dataset| {
            (
                keys.iter().map(|key| rank(&dataset, &key.asked)).collect(),
                dataset,
            )
        })
        .collect();
    ranked.sort_by(|(left_ranks, left), (right_ranks, right)| {
        compare_ranks(left_ranks, right_ranks, keys).then_with(|| compare_names(left, right))
    });
    ranked.dedup_by(|(_, one), (_, other)| one.name == other.name);
    ranked.into_iter().map(|(_, dataset)| dataset).collect()
}

fn compare_ranks(left: &[Option<Rank>], right: &[Option<Rank>], keys: &[SortKey]) -> Ordering {
    for ((left, right), key) in left.iter().zip(right).zip(keys) {
        let order = match (left, right) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => return Ordering::Greater,
            (Some(_), None) => return Ordering::Less,
            (Some(left), Some(right)) if key.descending => right.cmp(left),
            (Some(left), Some(right)) => left.cmp(right),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

/// By name; a dataset before its snapshots, and those by age.
fn compare_names(left: &DatasetDescription, right: &DatasetDescription) -> Ordering {
    let (left_dataset, left_snapshot) = split(&left.name);
    let (right_dataset, right_snapshot) = split(&right.name);
    left_dataset
        .cmp(right_dataset)
        .then_with(|| left_snapshot.is_some().cmp(&right_snapshot.is_some()))
        .then_with(|| left.created_txg.cmp(&right.created_txg))
        .then_with(|| left_snapshot.cmp(&right_snapshot))
}

/// The dataset, and the short name of a snapshot of it.
fn split(name: &str) -> (&str, Option<&str>) {
    match name.split_once('@') {
        Some((dataset, snapshot)) => (dataset, Some(snapshot)),
        None => (name, None),
    }
}

/// What a dataset is sorted by; none where the property does not apply to it.
fn rank(dataset: &DatasetDescription, asked: &Asked) -> Option<Rank> {
    match asked {
        Asked::Native(property) if property.name != "name" => rank_native(dataset, asked, property),
        _ => answers::text(dataset, asked, Exactness::Exact).map(Rank::Text),
    }
}

fn rank_native(dataset: &DatasetDescription, asked: &Asked, property: &Property) -> Option<Rank> {
    if !property.kinds.meets(answers::kinds(dataset.kind)) {
        return None;
    }
    let value = answers::find(dataset, asked).map(|answer| &answer.value);
    match (property.form, value) {
        (Form::Text | Form::Word(_), Some(Value::Text(text))) => Some(Rank::Text(text.clone())),
        (Form::Text | Form::Word(_), Some(Value::Number(number))) => {
            Some(Rank::Text(number.to_string()))
        }
        (Form::Text | Form::Word(_), _) => None,
        (Form::Number, Some(Value::Number(number))) => Some(Rank::Number(*number)),
        (Form::Number, _) => Some(Rank::Number(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{dataset, snapshot};

    fn sorted(datasets: Vec<DatasetDescription>, by: &[(&str, bool)]) -> Vec<String> {
        let keys: Vec<SortKey> = by
            .iter()
            .map(|(name, descending)| SortKey {
                asked: Asked::find(name).unwrap(),
                descending: *descending,
            })
            .collect();
        arrange(datasets, &keys)
            .into_iter()
            .map(|dataset| dataset.name)
            .collect()
    }

    fn sizes() -> Vec<DatasetDescription> {
        vec![
            dataset(
                "a/b",
                &[("used", Value::Number(3)), ("quota", Value::Number(0))],
            ),
            dataset(
                "a",
                &[("used", Value::Number(20)), ("quota", Value::Number(1))],
            ),
            snapshot("a@new", 9, 5),
            snapshot("a@old", 2, 5),
        ]
    }

    #[test]
    fn snapshots_follow_their_dataset_by_age() {
        assert_eq!(sorted(sizes(), &[]), ["a", "a@old", "a@new", "a/b"]);
    }

    #[test]
    fn a_key_orders_numbers_either_way() {
        assert_eq!(
            sorted(sizes(), &[("used", false)]),
            ["a/b", "a@old", "a@new", "a"]
        );
        assert_eq!(
            sorted(sizes(), &[("used", true)]),
            ["a", "a@old", "a@new", "a/b"]
        );
    }

    #[test]
    fn what_has_no_such_property_comes_last_either_way() {
        assert_eq!(
            sorted(sizes(), &[("quota", false)]),
            ["a/b", "a", "a@old", "a@new"]
        );
        assert_eq!(
            sorted(sizes(), &[("quota", true)]),
            ["a", "a/b", "a@old", "a@new"]
        );
    }

    #[test]
    fn names_sort_by_their_letters_when_asked_to() {
        assert_eq!(
            sorted(sizes(), &[("name", true)]),
            ["a@old", "a@new", "a/b", "a"]
        );
    }

    #[test]
    fn words_sort_by_their_letters() {
        let with = |name: &str, word: &str| {
            dataset(name, &[("compression", Value::Text(word.to_string()))])
        };
        let datasets = vec![with("a", "zstd"), with("b", "off"), with("c", "lz4")];
        assert_eq!(sorted(datasets, &[("compression", false)]), ["c", "b", "a"]);
    }

    #[test]
    fn a_dataset_named_twice_is_shown_once() {
        let twice = vec![dataset("a", &[]), dataset("a", &[])];
        assert_eq!(sorted(twice, &[]), ["a"]);
    }
}
