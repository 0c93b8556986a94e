//! The bars B1 to B21 of Analytics: what it costs, how fast and how exactly it answers.
//!
//! # Mechanism
//! Three programs measure and print lines of their own: the example `bars` of `tarn-analytics` in
//! one process without a pool (the request path, the collector, questions over millions of
//! operations); the example `archive_bars` of `tarn-archive`, which makes an archive of some days;
//! `tarn-analytics-cost`, which saturates daemons with and without Analytics. Tests show bars that
//! are right or wrong, not fast or slow. What another task measures is named with its command. All
//! of them become one table with verdicts.

use std::collections::BTreeSet;
use std::process::Command;

use crate::workspace::{Outcome, cargo, output, programs};

/// The name that `--only` takes.
pub const NAME: &str = "analytics";

/// What measures: its place for `cargo run`, and its arguments; those of a look are the second.
const PROGRAMS: [([&str; 4], [&str; 2]); 3] = [
    (
        ["--package", "tarn-analytics", "--example", "bars"],
        ["12000000", "2000000"],
    ),
    (
        ["--package", "tarn-archive", "--example", "archive_bars"],
        ["14", "1"],
    ),
    (
        ["--package", "tarn-workload", "--bin", "tarn-analytics-cost"],
        ["60", "15"],
    ),
];

/// The one that is given the folder of programs first.
const COST: &str = "tarn-analytics-cost";

/// Bars that a test shows: what, the package, the file of tests, and a part of the test's name.
const TESTS: [(&str, &str, [&str; 3]); 7] = [
    (
        "B8",
        "groups and others are the total, drops counted",
        ["tarn-analytics", "sums", ""],
    ),
    (
        "B14",
        "tiers are merged without loss",
        ["tarn-archive", "tiers", "minutes_and_hours"],
    ),
    (
        "B15",
        "a power cut loses a second at most",
        ["tarn-archive", "tiers", "power_cut"],
    ),
    (
        "B15",
        "kill -9 of tarnd loses a second at most",
        ["tarnd", "archive_kill", ""],
    ),
    (
        "B20",
        "files have names, also after a restart",
        ["tarn-administration", "analytics", ""],
    ),
    (
        "B21",
        "the bitmap, live and after the fact",
        ["tarn-analytics", "bitmap", ""],
    ),
    (
        "B21",
        "the bitmap, out of the archive",
        ["tarn-archive", "sizes", "picture"],
    ),
];

/// Bars that another command measures, or why none does.
const ELSEWHERE: [(&str, &str, &str); 5] = [
    (
        "B2",
        "of the request path the flight recorder",
        "no figure: an operation without a recorder counts itself, and takes longer",
    ),
    (
        "B4",
        "unattached USDT probe",
        "a load and a branch within B1's figure (core/probe/src/usdt.rs): too little to time alone",
    ),
    (
        "B19",
        "what live heat maps cost a browser",
        "cargo xtask conformance browser",
    ),
    (
        "B20",
        "share of the collector's time that names take",
        "none: names are looked up for answers, by the thread that asks, never by the collector",
    ),
    (
        "B21",
        "the bitmap, in a terminal",
        "cargo test -p tarn-command heat_map",
    ),
];

/// Measures, and names the bars that are not reached.
pub fn measure(is_quick: bool) -> Outcome<Vec<String>> {
    println!("\nanalytics: bars B1 to B21");
    let mut failed = Vec::new();
    let mut told = BTreeSet::new();
    for (place, counts) in PROGRAMS {
        let count = counts[usize::from(is_quick)];
        let mut program = cargo(&[&["run", "--quiet", "--release"][..], &place].concat());
        program.arg("--");
        if place[3] == COST {
            program.arg(programs());
        }
        let text = output(program.arg(count))?;
        let bars: Vec<Bar> = text.lines().filter_map(Bar::parse).collect();
        if bars.is_empty() {
            failed.push(format!("{} printed no figures", place[3]));
        }
        for bar in bars {
            if !bar.tell() {
                failed.push(format!("{} {}", bar.name, bar.what));
            }
            told.insert(bar.name);
        }
    }
    for (name, what, test) in TESTS {
        told.insert(name.to_owned());
        let verdict = match passes(test)? {
            true => "PASS",
            false => {
                failed.push(format!("{name} {what}"));
                "FAIL"
            }
        };
        let [package, file, _] = test;
        println!("{name:<4} {what:<52} {verdict:>10} by test {file} of {package}");
    }
    for (name, what, why) in ELSEWHERE {
        told.insert(name.to_owned());
        println!("{name:<4} {what:<52} {:>10} {why}", "see");
    }
    let missing = (1..=21).map(|number| format!("B{number}"));
    let missing = missing.filter(|name| !told.contains(name));
    failed.extend(missing.map(|name| format!("{name} is not measured")));
    Ok(failed)
}

/// Runs tests; those of a part of a name, or all of a file.
fn passes([package, file, part]: [&str; 3]) -> Outcome<bool> {
    let quietly = ["test", "--quiet", "--package", package, "--test", file];
    let mut tests: Command = cargo(&quietly);
    Ok(tests.arg(part).output()?.status.success())
}

/// A line of a program that measures.
#[derive(Debug)]
struct Bar {
    name: String,
    what: String,
    measured: f64,
    unit: String,
    target: f64,
    /// Whether the target is the least, not the most.
    is_least: bool,
}

impl Bar {
    fn parse(line: &str) -> Option<Bar> {
        let [name, what, measured, unit, target] = line.split('\t').collect::<Vec<_>>()[..] else {
            return None;
        };
        let number = target.strip_prefix('-').unwrap_or(target);
        Some(Bar {
            name: name.to_string(),
            what: what.to_string(),
            measured: measured.parse().ok()?,
            unit: unit.to_string(),
            target: number.parse().ok()?,
            is_least: number.len() < target.len(),
        })
    }

    fn is_reached(&self) -> bool {
        match self.is_least {
            true => self.measured >= self.target,
            false => self.measured <= self.target,
        }
    }

    /// Prints it; says whether it is reached.
    fn tell(&self) -> bool {
        let (bound, verdict) = (
            if self.is_least { ">=" } else { "<=" },
            if self.is_reached() { "PASS" } else { "FAIL" },
        );
        println!(
            "{:<4} {:<52} {:>10.2} {:<11} {bound} {:<6} {verdict}",
            self.name, self.what, self.measured, self.unit, self.target
        );
        self.is_reached()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_the_most_or_the_least() {
        let bar = Bar::parse("B1\trequest path\t39.50\tns\t40").unwrap();
        assert!(bar.is_reached());
        let bar = Bar::parse("B11\twindow\t29.50\tminutes\t-30").unwrap();
        assert!(!bar.is_reached());
        assert!(Bar::parse("bar\twhat\tmeasured\tunit\ttarget").is_none());
    }
}
