//! Compares the output of `zdb` for OpenZFS's pools with that of OpenZFS's own `zdb`.
//!
//! `golden/NAME.OPTION` is the recorded output of OpenZFS 2.3.2 for the fixture `NAME`. A fixture
//! of the same name can have other contents on another machine: its uberblock tells whether it is
//! the recorded one. One that is not must still be clean. Without fixtures the tests compare
//! nothing.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use tarn_golden::{Fixture, Fixtures};

/// Options whose output was recorded for every fixture.
const OPTIONS: &[&str] = &["bb", "d", "S"];

/// Outputs that were recorded for one fixture only.
const MORE: &[(&str, &str)] = &[("gang", "mmm"), ("v28", "h")];

/// Fixtures that were recorded.
const RECORDED: &[&str] = &[
    "basic",
    "checkpoint",
    "dedup",
    "gang",
    "mixed",
    "raidz3",
    "reflink",
    "special",
    "v28",
];

/// Fixtures that OpenZFS opens, without leaks or damage.
const CLEAN: &[&str] = &[
    "basic",
    "checkpoint",
    "dedup",
    "degraded",
    "fastdedup",
    "gang",
    "mirror",
    "mixed",
    "raidz1",
    "raidz2",
    "raidz3",
    "reflink",
    "special",
    "v28",
    "zil",
];

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// The fixtures, if this machine has them.
fn fixtures() -> Option<Fixtures> {
    let checkout = checkout();
    Fixtures::find(&checkout, &checkout.join("target/fixtures")).ok()
}

/// Tests run in parallel, and must not unpack one fixture twice at a time.
static UNPACKING: Mutex<()> = Mutex::new(());

fn unpacked(fixtures: &Fixtures, name: &str) -> Fixture {
    let _alone = UNPACKING.lock().unwrap_or_else(PoisonError::into_inner);
    fixtures.unpack(name).unwrap()
}

fn zdb(fixture: &Fixture, option: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zdb"))
        .env("TZ", "UTC")
        .args(["-e", "-p"])
        .arg(fixture.folder())
        .args([&format!("-{option}"), &fixture.pool()])
        .output()
        .unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn recorded(name: &str, option: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    std::fs::read_to_string(path.join(format!("{name}.{option}"))).unwrap()
}

/// The first line that differs, and its number.
fn difference(ours: &str, theirs: &str) -> Option<String> {
    let (mut left, mut right) = (ours.lines(), theirs.lines());
    for number in 1.. {
        match (left.next(), right.next()) {
            (None, None) => break,
            (ours, theirs) if ours == theirs => {}
            (ours, theirs) => return Some(format!("line {number}: {ours:?}, not {theirs:?}")),
        }
    }
    None
}

#[test]
fn our_words_are_those_of_openzfs() {
    let Some(fixtures) = fixtures() else { return };
    let there = fixtures.names();
    for name in RECORDED
        .iter()
        .filter(|name| there.iter().any(|other| other == **name))
    {
        let fixture = unpacked(&fixtures, name);
        if text(&zdb(&fixture, "u")) != recorded(name, "u") {
            println!("{name} is not the pool that was recorded");
            continue;
        }
        let more = MORE.iter().filter(|(other, _)| other == name);
        for option in OPTIONS.iter().chain(more.map(|(_, option)| option)) {
            let output = zdb(&fixture, option);
            let difference = difference(&text(&output), &recorded(name, option));
            assert_eq!(difference, None, "{name} -{option}");
            assert_eq!(output.status.code(), Some(0), "{name} -{option}");
        }
    }
}

#[test]
fn nothing_leaks_where_openzfs_finds_no_leaks() {
    let Some(fixtures) = fixtures() else { return };
    let there = fixtures.names();
    for name in CLEAN
        .iter()
        .filter(|name| there.iter().any(|other| other == **name))
    {
        let fixture = unpacked(&fixtures, name);
        let output = zdb(&fixture, "bcc");
        let said = text(&output);
        assert!(
            said.contains("No leaks (block sum matches space maps exactly)"),
            "{name}: {said}"
        );
        assert_eq!(output.status.code(), Some(0), "{name}: {said}");
    }
}

#[test]
fn labels_are_shown_as_openzfs_shows_them() {
    let Some(fixtures) = fixtures() else { return };
    let there = fixtures.names();
    for name in CLEAN
        .iter()
        .filter(|name| there.iter().any(|other| other == **name))
    {
        let fixture = unpacked(&fixtures, name);
        let truth = fixture.folder().join("truth/zdb-label-0.txt");
        let (Ok(truth), Ok(images)) = (std::fs::read_to_string(truth), fixture.images()) else {
            continue;
        };
        let Some(first) = images.first() else {
            continue;
        };
        let output = Command::new(env!("CARGO_BIN_EXE_zdb"))
            .arg("-l")
            .arg(first)
            .output();
        let output = output.unwrap();
        assert_eq!(difference(&text(&output), &truth), None, "{name}");
        assert_eq!(output.status.code(), Some(0), "{name}");
    }
}
