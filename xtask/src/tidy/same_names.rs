//! The same file name in two crates: two mechanisms that a search cannot tell apart.
//!
//! # Mechanism
//! Files of `core/` and `frontends/` are compared by their paths below `src`. Some names are the
//! same everywhere, since sibling crates have the same rooms. `same_names.txt` lists the others
//! that are allowed, with the crates that have them: the same thing at two layers, such as
//! `gang.rs`, which is a format in `ondisk` and a pipeline in `block`. A line that is no longer
//! needed fails, so that the list only shrinks.

use std::collections::{BTreeMap, BTreeSet};

use super::layers::Part;
use super::place;

/// Names that each crate may have.
const EVERYWHERE: [&str; 6] = [
    "lib.rs",
    "main.rs",
    "error.rs",
    "probes.rs",
    "ranks.rs",
    "tests.rs",
];

/// The names that are allowed, with their crates.
const ALLOWED: &str = include_str!("same_names.txt");

/// What is wrong, a sentence each.
pub fn check(files: &[String]) -> Vec<String> {
    compare(&by_name(files), &read(ALLOWED))
}

type Names = BTreeMap<String, BTreeSet<String>>;

/// The crates that have a file of each name.
fn by_name(files: &[String]) -> Names {
    let mut names = Names::new();
    for path in files.iter().filter(|path| path.ends_with(".rs")) {
        let Some(place) =
            place(path).filter(|place| place.part != Part::Testing && place.part != Part::Command)
        else {
            continue;
        };
        let below = path.splitn(4, '/').nth(3);
        if let Some(name) =
            below.filter(|name| path.contains("/src/") && !EVERYWHERE.contains(name))
        {
            names
                .entry(name.to_string())
                .or_default()
                .insert(place.layer.to_string());
        }
    }
    names.retain(|_, crates| crates.len() > 1);
    names
}

/// Lines `NAME CRATE CRATE ...`; those that begin with `#` are comments.
fn read(text: &str) -> Names {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace().map(str::to_string);
            Some((words.next()?, words.collect()))
        })
        .collect()
}

fn compare(found: &Names, allowed: &Names) -> Vec<String> {
    let mut wrong = Vec::new();
    let shown = |crates: &BTreeSet<String>| crates.iter().cloned().collect::<Vec<_>>().join(" ");
    for (name, crates) in found {
        let known = allowed.get(name).cloned().unwrap_or_default();
        if !crates.is_subset(&known) {
            wrong.push(format!(
                "{name} is a file of several crates ({}): name each for its mechanism",
                shown(crates)
            ));
        }
    }
    for (name, crates) in allowed {
        if found.get(name) != Some(crates)
            && found.get(name).is_none_or(|found| found.is_subset(crates))
        {
            wrong.push(format!(
                "same_names.txt allows {name} to more crates than have it: {}",
                shown(crates)
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_file_of_a_name_is_found_and_a_needless_line_too() {
        let files = |paths: &[&str]| {
            paths
                .iter()
                .map(|path| path.to_string())
                .collect::<Vec<_>>()
        };
        let found = by_name(&files(&[
            "core/host/src/pool.rs",
            "core/pool/src/pool.rs",
            "core/pool/src/lib.rs",
            "core/host/src/lib.rs",
            "core/zil/src/deep/pool.rs",
            "commands/zdb/src/pool.rs",
        ]));
        assert_eq!(found.len(), 1);
        assert_eq!(
            compare(&found, &read("# why\npool.rs host pool\n")).len(),
            0
        );
        assert_eq!(compare(&found, &Names::new()).len(), 1);
        assert_eq!(compare(&Names::new(), &read("pool.rs host pool")).len(), 1);
    }
}
