//! Compiled predicates: tests of numbers in the columns of a batch.
//!
//! # Mechanism
//! Names become numbers, once. What remains is a tree of tests of one column each: within two
//! bounds, one of a sorted list, or with these bits. A test runs over all 256 operations of a batch
//! and gives a mask; masks are joined a word at a time. `and` stops where no operation is left.
//!
//! # Invariants
//! - A mask has no operation that `among` has not.

use std::collections::{BTreeMap, BTreeSet};

use crate::column_batch::{BATCH_RECORDS, Batch, ColumnSet, Mask};
use crate::error::{PredicateError, Wrong};
use crate::field::{Field, Values};
use crate::predicate::{Comparison, Operator, Predicate, parse_bytes, parse_duration};
use crate::value_names::ValueNames;

/// A list of so many numbers is searched from end to end.
const SHORT_LIST: usize = 8;

/// Which operations are meant, in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompiledPredicate {
    tree: Tree,
    columns: ColumnSet,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Tree {
    Always,
    Never,
    Test(Field, Check),
    All(Vec<Tree>),
    Any(Vec<Tree>),
    Not(Box<Tree>),
}

/// What a number is held against.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Check {
    /// From the first to the second, both included.
    Within(u64, u64),
    /// One of these, sorted.
    OneOf(Vec<u64>),
    /// Any of these bits.
    AnyBit(u64),
}

impl Predicate {
    /// What it means with the names that are known now. It refuses names that mean nothing, and
    /// comparisons that a field does not have.
    pub fn compile(&self, names: &ValueNames) -> Result<CompiledPredicate, PredicateError> {
        Ok(CompiledPredicate::of(compile(self, names)?))
    }
}

impl CompiledPredicate {
    /// All operations.
    pub fn always() -> CompiledPredicate {
        CompiledPredicate::of(Tree::Always)
    }

    /// Those of which a numeric field is from `low` to `high`, both included: with a time range, a
    /// rectangle of a heat map.
    pub fn within(field: Field, low: u64, high: u64) -> CompiledPredicate {
        CompiledPredicate::of(Tree::Test(field, Check::Within(low, high)))
    }

    /// Those of which a discrete field has this key.
    pub fn has_key(field: Field, key: u128) -> CompiledPredicate {
        CompiledPredicate::of(equal(field, &BTreeSet::from([key])))
    }

    /// Those that both mean.
    #[must_use]
    pub fn and(self, other: CompiledPredicate) -> CompiledPredicate {
        CompiledPredicate::of(Tree::All(vec![self.tree, other.tree]))
    }

    fn of(tree: Tree) -> CompiledPredicate {
        let columns = columns(&tree);
        CompiledPredicate { tree, columns }
    }

    /// The columns that it looks at.
    pub fn columns(&self) -> ColumnSet {
        self.columns
    }

    /// Those of `among` that are meant.
    pub fn mask(&self, batch: &Batch, among: Mask) -> Mask {
        mask(&self.tree, batch, among)
    }
}

fn compile(predicate: &Predicate, names: &ValueNames) -> Result<Tree, PredicateError> {
    let all = |parts: &[Predicate]| -> Result<Vec<Tree>, PredicateError> {
        parts.iter().map(|part| compile(part, names)).collect()
    };
    Ok(match predicate {
        Predicate::Always => Tree::Always,
        Predicate::Compare(comparison) => compile_comparison(comparison, names)?,
        Predicate::All(parts) => Tree::All(all(parts)?),
        Predicate::Any(parts) => Tree::Any(all(parts)?),
        Predicate::Not(inner) => Tree::Not(Box::new(compile(inner, names)?)),
    })
}

fn compile_comparison(comparison: &Comparison, names: &ValueNames) -> Result<Tree, PredicateError> {
    let tree = match (comparison.field.values(), comparison.operator) {
        (Values::Durations, _) => compile_numbers(comparison, parse_duration),
        (Values::Bytes, _) => compile_numbers(comparison, parse_bytes),
        (Values::Ids, operator) if is_order(operator) => compile_numbers(comparison, parse_id),
        _ => compile_names(comparison, names),
    };
    tree.map_err(|wrong| wrong.at(&comparison.place))
}

fn is_order(operator: Operator) -> bool {
    use Operator::{Greater, GreaterOrEqual, Less, LessOrEqual};
    matches!(operator, Less | LessOrEqual | Greater | GreaterOrEqual)
}

fn parse_id(text: &str) -> Result<u64, Wrong> {
    text.parse().map_err(|_| Wrong::NotANumber {
        text: text.to_owned(),
        quantity: "numeric id",
        example: "1000",
    })
}

fn compile_numbers(
    comparison: &Comparison,
    parse: fn(&str) -> Result<u64, Wrong>,
) -> Result<Tree, Wrong> {
    let field = comparison.field;
    if comparison.operator == Operator::Prefix {
        return Err(Wrong::NoPrefix {
            field: field.name(),
        });
    }
    let numbers = comparison.values.iter().map(|text| parse(text));
    let mut numbers = numbers.collect::<Result<Vec<u64>, Wrong>>()?;
    numbers.sort_unstable();
    let Some(number) = numbers.first().copied() else {
        return Ok(Tree::Never);
    };
    let within = |low: Option<u64>, high: Option<u64>| match (low, high) {
        (Some(low), Some(high)) => Tree::Test(field, Check::Within(low, high)),
        _ => Tree::Never,
    };
    let (least, most) = (Some(0), Some(u64::MAX));
    Ok(match comparison.operator {
        Operator::Less => within(least, number.checked_sub(1)),
        Operator::LessOrEqual => within(least, Some(number)),
        Operator::Greater => within(number.checked_add(1), most),
        Operator::GreaterOrEqual => within(Some(number), most),
        Operator::NotEqual => Tree::Not(Box::new(within(Some(number), Some(number)))),
        Operator::Equal | Operator::In | Operator::Prefix => {
            Tree::Test(field, Check::OneOf(numbers))
        }
    })
}

fn compile_names(comparison: &Comparison, names: &ValueNames) -> Result<Tree, Wrong> {
    let field = comparison.field;
    let mut keys = BTreeSet::new();
    for text in &comparison.values {
        if comparison.operator == Operator::Prefix {
            keys.extend(names.keys_with_prefix(field, text));
            continue;
        }
        let meant = names.keys(field, text);
        if meant.is_empty() {
            return Err(Wrong::UnknownValue {
                field: field.name(),
                text: text.clone(),
            });
        }
        keys.extend(meant);
    }
    match comparison.operator {
        Operator::Equal | Operator::In | Operator::Prefix => Ok(equal(field, &keys)),
        Operator::NotEqual => Ok(Tree::Not(Box::new(equal(field, &keys)))),
        _ => Err(Wrong::NoOrder {
            field: field.name(),
        }),
    }
}

/// Operations of which a discrete field has one of these keys. Of outcomes: one of these bits.
fn equal(field: Field, keys: &BTreeSet<u128>) -> Tree {
    let low = |key: &u128| u64::try_from(key & u128::from(u64::MAX)).expect("masked to 64 bits");
    match field {
        _ if keys.is_empty() => Tree::Never,
        Field::File => {
            let mut objects = BTreeMap::<u64, Vec<u64>>::new();
            for key in keys {
                objects.entry(low(&(key >> 64))).or_default().push(low(key));
            }
            let of_dataset = |(dataset, objects): (u64, Vec<u64>)| {
                let is_dataset = Check::Within(dataset, dataset);
                Tree::All(vec![
                    Tree::Test(Field::Dataset, is_dataset),
                    Tree::Test(Field::File, Check::OneOf(objects)),
                ])
            };
            Tree::Any(objects.into_iter().map(of_dataset).collect())
        }
        Field::Outcomes => {
            let bits = keys.iter().fold(0, |bits, key| bits | low(key));
            Tree::Test(field, Check::AnyBit(bits))
        }
        _ => Tree::Test(field, Check::OneOf(keys.iter().map(low).collect())),
    }
}

fn columns(tree: &Tree) -> ColumnSet {
    match tree {
        Tree::Always | Tree::Never => ColumnSet::default(),
        Tree::Test(field, _) => field.columns(),
        Tree::All(parts) | Tree::Any(parts) => {
            (parts.iter()).fold(ColumnSet::default(), |set, part| set.and(columns(part)))
        }
        Tree::Not(inner) => columns(inner),
    }
}

fn mask(tree: &Tree, batch: &Batch, among: Mask) -> Mask {
    if among.is_empty() {
        return among;
    }
    match tree {
        Tree::Always => among,
        Tree::Never => Mask::NONE,
        Tree::Test(field, check) => test(*field, check, batch).and(among),
        Tree::All(parts) => (parts.iter()).fold(among, |left, part| mask(part, batch, left)),
        Tree::Any(parts) => (parts.iter()).fold(Mask::NONE, |found, part| {
            found.or(mask(part, batch, among.and(found.inverted())))
        }),
        Tree::Not(inner) => mask(inner, batch, among).inverted().and(among),
    }
}

/// The test of one field, for all places of the batch.
fn test(field: Field, check: &Check, batch: &Batch) -> Mask {
    let mut made = [0; BATCH_RECORDS];
    let numbers = match field.plain_column() {
        Some(column) => batch.numbers(column),
        None => {
            field.fill_numbers(batch, &mut made);
            &made
        }
    };
    match check {
        Check::Within(low, high) => {
            let (low, width) = (*low, high.wrapping_sub(*low));
            match high < &low {
                true => Mask::NONE,
                false => Mask::of(|place| numbers[place].wrapping_sub(low) <= width),
            }
        }
        Check::OneOf(list) if list.len() <= SHORT_LIST => {
            let each = list.iter();
            each.fold(Mask::NONE, |found, one| {
                found.or(Mask::of(|place| numbers[place] == *one))
            })
        }
        Check::AnyBit(bits) => Mask::of(|place| numbers[place] & bits != 0),
        Check::OneOf(list) => Mask::of(|place| list.binary_search(&numbers[place]).is_ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column_batch::Column;
    use crate::error::Place;

    fn refused(text: &str) -> PredicateError {
        let predicate = Predicate::parse(text).unwrap();
        predicate.compile(&ValueNames::new()).unwrap_err()
    }

    #[test]
    fn what_a_field_does_not_have_is_refused_with_its_place_and_the_cure() {
        for (text, at, cure) in [
            ("op=raed", 0, "a breakdown by op lists"),
            (
                "user=0 and client=10.0.0.1",
                11,
                "a breakdown by client lists",
            ),
            ("client<#17", 0, "use =, !=, in or prefix"),
            ("not (latency prefix 1)", 5, "use =, <, > or in"),
            ("latency>fast", 0, "1.5ms"),
            ("size in (4K, large)", 0, "4K"),
            ("user>=root", 0, "1000"),
            ("file=#1", 0, "a breakdown by file lists"),
        ] {
            let error = refused(text);
            assert_eq!(error.place, Place::Byte(at), "{text}: {error}");
            assert!(error.to_string().contains(cure), "{text}: {error}");
        }
    }

    #[test]
    fn comparisons_at_the_ends_of_numbers_mean_none_or_all() {
        let mut batch = Batch::new();
        batch.set_length(3);
        batch.numbers_mut(Column::Offset)[..3].copy_from_slice(&[0, 1, u64::MAX]);
        for (text, expected) in [
            ("offset < 0", 0),
            ("offset >= 0", 3),
            ("offset > 18446744073709551615", 0),
            ("offset <= 18446744073709551615", 3),
            ("offset = 18446744073709551615", 1),
            ("offset in (0, 1)", 2),
            ("offset != 1", 2),
            ("client prefix nothing", 0),
        ] {
            let predicate = Predicate::parse(text).unwrap();
            let compiled = predicate.compile(&ValueNames::new()).unwrap();
            let mask = compiled.mask(&batch, Mask::first(batch.len()));
            assert_eq!(mask.count(), expected, "{text}");
        }
    }
}
