//! Ratchets: counts of each crate that may become better and not worse.
//!
//! # Mechanism
//! `ratchets.txt` has a line for each crate: assertions for 10,000 lines of code that ships, which
//! may only rise; comments wider than 100 columns, comments that hide their subject, and files in
//! the largest circle, which may only fall. A crate that is worse than its line fails. `cargo xtask
//! tidy --tighten` writes what has become better, and nothing that has become worse.

use std::collections::BTreeMap;
use std::fs;

use crate::workspace::{Outcome, checkout};

/// The file with the numbers.
const FILE: &str = "xtask/src/tidy/ratchets.txt";

const HEAD: &str = "\
# Counts of each crate that may become better and not worse: `cargo xtask tidy --tighten` writes what did.
# crate              assertions for 10,000 lines, wide comments, hidden subjects, files in the largest circle
";

/// What is counted of a crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbers {
    /// Assertions for each 10,000 lines of code that ships.
    pub assertions: usize,
    /// Comments wider than 100 columns.
    pub wide: usize,
    /// Comments that hide their subject.
    pub hidden: usize,
    /// Files in the largest circle.
    pub circle: usize,
}

impl Numbers {
    /// What is worse than `noted`, a clause each.
    fn worse_than(&self, noted: &Numbers) -> Vec<String> {
        let mut worse = Vec::new();
        let mut tell = |is_worse: bool, what: &str, now: usize, before: usize| {
            if is_worse {
                worse.push(format!("{now} {what}, where {before} are noted"));
            }
        };
        tell(
            self.assertions < noted.assertions,
            "assertions for 10,000 lines",
            self.assertions,
            noted.assertions,
        );
        tell(
            self.wide > noted.wide,
            "comments are wider than 100 columns",
            self.wide,
            noted.wide,
        );
        tell(
            self.hidden > noted.hidden,
            "comments speak of who, somebody or nobody",
            self.hidden,
            noted.hidden,
        );
        tell(
            self.circle > noted.circle,
            "files are in one circle",
            self.circle,
            noted.circle,
        );
        worse
    }

    /// The better of both, number by number.
    fn best(&self, noted: &Numbers) -> Numbers {
        Numbers {
            assertions: self.assertions.max(noted.assertions),
            wide: self.wide.min(noted.wide),
            hidden: self.hidden.min(noted.hidden),
            circle: self.circle.min(noted.circle),
        }
    }
}

/// The numbers of crates, by their folders.
pub type Table = BTreeMap<String, Numbers>;

/// Compares with what is noted. Gives what is wrong and what could be tightened; `tighten` writes
/// the latter.
pub fn check(found: &Table, tighten: bool) -> Outcome<(Vec<String>, Vec<String>)> {
    let path = checkout().join(FILE);
    let noted = read(&fs::read_to_string(&path).unwrap_or_default())?;
    let (wrong, better) = compare(found, &noted);
    if tighten {
        let best = found.iter().map(|(name, numbers)| {
            let best = noted
                .get(name)
                .map_or(*numbers, |noted| numbers.best(noted));
            (name.clone(), best)
        });
        fs::write(path, write(&best.collect()))?;
    }
    Ok((wrong, better))
}

fn compare(found: &Table, noted: &Table) -> (Vec<String>, Vec<String>) {
    let (mut wrong, mut better) = (Vec::new(), Vec::new());
    for (name, numbers) in found {
        let Some(old) = noted.get(name) else {
            wrong.push(format!(
                "{name} has no line in {FILE}: run `cargo xtask tidy --tighten`"
            ));
            continue;
        };
        wrong.extend(
            numbers
                .worse_than(old)
                .into_iter()
                .map(|what| format!("{name}: {what}")),
        );
        if numbers.best(old) != *old {
            better.push(format!("{name} is better than its line in {FILE}"));
        }
    }
    (wrong, better)
}

fn read(text: &str) -> Outcome<Table> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut table = Table::new();
    for line in lines {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, numbers @ ..] = words.as_slice() else {
            continue;
        };
        let numbers: Result<Vec<usize>, _> = numbers.iter().map(|word| word.parse()).collect();
        let [assertions, wide, hidden, circle] = numbers?[..] else {
            return Err(format!("{FILE}: a line has four numbers: {line}").into());
        };
        let numbers = Numbers {
            assertions,
            wide,
            hidden,
            circle,
        };
        table.insert((*name).to_string(), numbers);
    }
    Ok(table)
}

fn write(table: &Table) -> String {
    let lines = table.iter().map(|(name, numbers)| {
        let Numbers {
            assertions,
            wide,
            hidden,
            circle,
        } = numbers;
        format!("{name:<20} {assertions:>4} {wide:>4} {hidden:>4} {circle:>4}\n")
    });
    HEAD.to_string() + &lines.collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTED: Numbers = Numbers {
        assertions: 10,
        wide: 3,
        hidden: 2,
        circle: 4,
    };

    fn table(numbers: Numbers) -> Table {
        Table::from([("core/x".to_string(), numbers)])
    }

    #[test]
    fn a_crate_may_become_better_and_not_worse() {
        let noted = table(NOTED);
        assert_eq!(compare(&noted, &noted), (vec![], vec![]));
        let better = table(Numbers {
            assertions: 11,
            ..NOTED
        });
        let (wrong, told) = compare(&better, &noted);
        assert_eq!((wrong.len(), told.len()), (0, 1));
        for worse in [
            Numbers {
                assertions: 9,
                ..NOTED
            },
            Numbers { wide: 4, ..NOTED },
            Numbers { hidden: 3, ..NOTED },
            Numbers { circle: 5, ..NOTED },
        ] {
            assert_eq!(compare(&table(worse), &noted).0.len(), 1);
            assert_eq!(worse.best(&NOTED), NOTED);
        }
        assert_eq!(
            compare(&noted, &Table::new()).0.len(),
            1,
            "a new crate needs a line"
        );
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let noted = table(NOTED);
        assert_eq!(read(&write(&noted)).unwrap(), noted);
        assert!(read("core/x 1 2 3\n").is_err());
    }
}
