//! One door for each effect: what only `host` may use, and what no crate may.
//!
//! # Problem
//! A run replays from its seed only if threads, locks, time, entropy and files come from `host`.
//! One `Instant::now` elsewhere breaks that, and no test would notice.
//!
//! # Mechanism
//! The paths a file names are held against lists. The rules about effects are for code of the core
//! that ships; the rules about honesty (no ignored test, no sleep in a test, nothing left to do)
//! are for every file.

use super::layers::Part;
use super::source::{NamedPath, Source};

/// Paths below which nothing may be named in the core outside `host`.
const HOST_ONLY: [&[&str]; 17] = [
    &["std", "thread"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
    &["std", "fs"],
    &["std", "net"],
    &["std", "process", "Command"],
    &["std", "sync", "Mutex"],
    &["std", "sync", "RwLock"],
    &["std", "sync", "Condvar"],
    &["std", "sync", "Barrier"],
    &["std", "sync", "mpsc"],
    &["parking_lot"],
    &["crossbeam"],
    &["rustix"],
    &["io_uring"],
    &["getrandom"],
    &["rand"],
];

/// The layer below `host`, which has locks of its own: see
/// `docs/decisions/0003-probe-below-host.md`.
const BELOW_HOST: &str = "probe";

/// The lock that it may use.
const LOCK_BELOW_HOST: [&[&str]; 1] = [&["std", "sync", "Mutex"]];

/// Paths whose order differs from run to run.
const RANDOM_ORDER: [&[&str]; 4] = [
    &["std", "collections", "HashMap"],
    &["std", "collections", "HashSet"],
    &["std", "collections", "hash_map"],
    &["std", "hash", "RandomState"],
];

/// The crates of the core in which `unsafe` may stand.
const UNSAFE_CRATES: [&str; 2] = ["host", "transform"];

/// The files elsewhere in which it may, with the reason in their first lines.
const UNSAFE_FILES: [&str; 4] = [
    "core/probe/src/usdt.rs",
    "testing/fuzz/src/engine/coverage.rs",
    "testing/fuzz/src/engine/memory.rs",
    "testing/workload/src/mapped.rs",
];

/// Where a file stands.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Its path in the checkout.
    pub path: &'a str,
    /// The crate's folder name.
    pub layer: &'a str,
    /// The crate's top folder.
    pub part: Part,
}

/// What is wrong in one file, a sentence each.
pub fn check(place: Place<'_>, source: &Source) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut tell = |line: usize, what: String| wrong.push(format!("{}:{line}: {what}", place.path));
    for path in &source.paths {
        if let Some(what) = effect(place, source, path) {
            tell(path.line, what);
        }
        if let Some(what) = dishonest(path) {
            tell(path.line, what);
        }
        if path.segments == ["unsafe"] && !may_be_unsafe(place) {
            tell(path.line, "unsafe: only host and transform may".to_string());
        }
    }
    for line in &source.ignored_tests {
        tell(*line, "an ignored test tests nothing".to_string());
    }
    wrong
}

fn effect(place: Place<'_>, source: &Source, path: &NamedPath) -> Option<String> {
    if place.part != Part::Core || path.is_test {
        return None;
    }
    if path.segments == ["async"] || path.segments == ["await"] {
        return Some("no async in the core: a function that waits, waits".to_string());
    }
    if place.layer == "host" {
        return None;
    }
    let full = full_path(source, path);
    let shown = path.segments.join("::");
    let is_lock_below = place.layer == BELOW_HOST && starts_with_any(&full, &LOCK_BELOW_HOST);
    if starts_with_any(&full, &HOST_ONLY) && !is_lock_below {
        return Some(format!("{shown}: this effect has one door, host"));
    }
    if starts_with_any(&full, &RANDOM_ORDER) {
        return Some(format!("{shown}: no map with random order in the core"));
    }
    None
}

/// The path with `std` before it, where the file imports its first segment from there.
fn full_path(source: &Source, path: &NamedPath) -> Vec<String> {
    let first = &path.segments[0];
    let imported = path.segments.len() > 1
        && source.paths.iter().any(|other| {
            other.segments.len() == 2 && other.segments[0] == "std" && other.segments[1] == *first
        });
    match imported {
        true => std::iter::once("std".to_string())
            .chain(path.segments.clone())
            .collect(),
        false => path.segments.clone(),
    }
}

fn starts_with_any(path: &[String], list: &[&[&str]]) -> bool {
    list.iter()
        .any(|known| path.len() >= known.len() && path.iter().zip(*known).all(|(a, b)| a == b))
}

fn dishonest(path: &NamedPath) -> Option<String> {
    let last = path.segments.last()?.as_str();
    match (last, path.followed_by) {
        ("todo" | "unimplemented", Some('!')) => Some(format!(
            "{last}!: what is not built fails with an error that names it"
        )),
        // `clock.sleep()` is host's, and in a simulation its time is virtual.
        ("sleep", Some('('))
            if path.is_test && path.segments.iter().any(|part| part == "thread") =>
        {
            Some("sleep in a test: wait for what is expected, not for time".to_string())
        }
        _ => None,
    }
}

fn may_be_unsafe(place: Place<'_>) -> bool {
    let in_crate = place.part == Part::Core && UNSAFE_CRATES.contains(&place.layer);
    in_crate || UNSAFE_FILES.contains(&place.path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::source::read;

    fn found(layer: &str, part: Part, text: &str) -> usize {
        let source = read(text, false).unwrap();
        check(
            Place {
                path: "core/x/src/y.rs",
                layer,
                part,
            },
            &source,
        )
        .len()
    }

    /// Canaries: each forbidden thing is caught in the core, and the clean file is not.
    #[test]
    fn a_second_door_to_an_effect_is_caught() {
        let bad = [
            "use std::thread;",
            "use std::{sync::{Arc, Mutex}};",
            "fn a() { std::fs::read(b); }",
            "use std::sync; fn a() { sync::RwLock::new(0); }",
            "use std::time::Instant;",
            "use parking_lot::Mutex;",
            "use rand::random;",
            "use std::collections::HashMap;",
            "async fn a() {}",
            "fn a() { unsafe { b() } }",
        ];
        for text in bad {
            assert_ne!(found("block", Part::Core, text), 0, "{text}");
        }
        let clean = "use std::sync::Arc; use std::time::Duration; use tarn_host::lock::Mutex;";
        assert_eq!(found("block", Part::Core, clean), 0);
    }

    #[test]
    fn what_is_below_host_has_a_lock_and_nothing_more() {
        let lock = "use std::sync::Mutex; fn a() {}";
        assert_eq!(found("probe", Part::Core, lock), 0);
        assert_eq!(found("cache", Part::Core, lock), 1);
        assert_eq!(found("probe", Part::Core, "use std::thread; fn a() {}"), 1);
    }

    #[test]
    fn host_is_the_door_and_front_ends_have_their_own() {
        let text = "use std::thread; use std::time::Instant;";
        assert_eq!(found("host", Part::Core, text), 0);
        assert_eq!(found("fuse", Part::Frontend, text), 0);
    }

    #[test]
    fn tests_may_use_the_machine_but_not_sleep_or_be_ignored() {
        let wrap = |body: &str| format!("#[cfg(test)] mod tests {{ {body} }}");
        assert_eq!(found("block", Part::Core, &wrap("use std::fs;")), 0);
        assert_eq!(
            found(
                "block",
                Part::Core,
                &wrap("fn a() { std::thread::sleep(b); }")
            ),
            1
        );
        assert_eq!(
            found("block", Part::Core, &wrap("#[test] #[ignore] fn a() {}")),
            1
        );
    }

    #[test]
    fn what_is_left_to_do_is_caught_everywhere() {
        let text = "fn a() { todo!() } fn b() { unimplemented!() }";
        assert_eq!(found("zfs", Part::Command, text), 2);
    }
}
