//! What a program did on one side: what each step printed and how it ended, and the trees that are
//! left.
//!
//! # Mechanism
//! Both sides are mounted at the same place, so paths are the same in what is printed; only the
//! place of a snapshot is not, and is written as `$SNAP`. In a manifest, inode numbers become the
//! path they are first met at, and times since the program began become `now`: what a program set
//! to a time of its own is compared to the nanosecond.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tarn_oracle::program::{self, ProgramError};
use tarn_workload::tree;

use super::script::{self, Step};
use super::side::Side;
use crate::workspace::Outcome;

/// What a step did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub title: String,
    /// Its exit code, or what stands for it when it has none.
    pub ending: String,
    pub output: String,
}

/// What a program did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub steps: Vec<Seen>,
    /// The manifest of each file system, a line for each file.
    pub trees: Vec<Vec<String>>,
}

/// Does the steps of a program.
pub fn run(side: &Side, steps: &[Step], limit: Duration) -> Outcome<Account> {
    let began_ns = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
    let mut seen = Vec::new();
    for step in steps {
        match step {
            Step::Script { title, text } => seen.push(run_step(side, title, text, limit)),
            Step::Away { title, text } => seen.push(run_beside(side, title, text, limit)?),
            Step::Snapshot => side.snapshot()?,
            Step::Restart => side.restart()?,
        }
    }
    let trees = side.compared_places();
    let trees = trees.iter().map(|place| listing(place, began_ns));
    Ok(Account {
        steps: seen,
        trees: trees.collect::<Outcome<_>>()?,
    })
}

fn run_step(side: &Side, title: &str, text: &str, limit: Duration) -> Seen {
    let (ending, output) = match program::run(&mut script::command(side, text), limit) {
        Ok(spoken) => {
            let ending = spoken
                .code
                .map_or("a signal".into(), |code| code.to_string());
            (ending, spoken.stdout + &spoken.stderr)
        }
        Err(ProgramError::TimeUp { said, .. }) => (format!("no end after {limit:?}"), said),
        Err(error) => (error.to_string(), String::new()),
    };
    let snapshot = side.snapshot_place().display().to_string();
    Seen {
        title: title.to_string(),
        ending,
        output: output.replace(&snapshot, "$SNAP"),
    }
}

/// Runs a step, stops the server of the file system when the step is ready, and starts it again.
fn run_beside(side: &Side, title: &str, text: &str, limit: Duration) -> Outcome<Seen> {
    std::thread::scope(|scope| {
        let step = scope.spawn(|| run_step(side, title, text, limit));
        let deadline = Instant::now() + limit;
        let ready = side.work().join("ready");
        while !ready.exists() && !step.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let away = side.be_away(|| Ok(std::fs::write(side.work().join("away"), "")?));
        std::fs::write(side.work().join("back"), "")?;
        let seen = step.join().map_err(|_| "the thread of a step panicked")?;
        away.map(|()| seen)
    })
}

/// The manifest of a tree, without what differs from run to run.
fn listing(place: &Path, began_ns: u128) -> Outcome<Vec<String>> {
    let mut first: BTreeMap<String, usize> = BTreeMap::new();
    let lines = tree::manifest(place)?;
    Ok(lines
        .iter()
        .enumerate()
        .map(|(number, line)| {
            let line = replace_number(line, "\"ino\": ", |inode| {
                format!("as line {}", first.entry(inode.into()).or_insert(number))
            });
            replace_number(&line, "\"mtime_ns\": ", |time| {
                match time
                    .parse::<u128>()
                    .is_ok_and(|time| time + 2_000_000_000 > began_ns)
                {
                    true => "now".to_string(),
                    false => time.to_string(),
                }
            })
        })
        .collect())
}

/// Replaces the number after a name.
fn replace_number(line: &str, name: &str, with: impl FnOnce(&str) -> String) -> String {
    let Some(at) = line.find(name).map(|at| at + name.len()) else {
        return line.to_string();
    };
    let digits = line[at..].find(|c: char| !c.is_ascii_digit() && c != '-');
    let end = digits.map_or(line.len(), |digits| at + digits);
    format!("{}{}{}", &line[..at], with(&line[at..end]), &line[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_replaced_by_name() {
        let line = r#"{"path": "a", "mtime_ns": -12, "ino": 34}"#;
        let line = replace_number(line, "\"ino\": ", |number| format!("<{number}>"));
        let line = replace_number(&line, "\"mtime_ns\": ", |number| format!("<{number}>"));
        assert_eq!(line, r#"{"path": "a", "mtime_ns": <-12>, "ino": <34>}"#);
    }
}
