//! `zts`: OpenZFS's functional tests, unchanged, on our commands.
//!
//! # Mechanism
//! Debian's package of the suite is unpacked, not installed. [`layout`] puts its files, its
//! programs and our commands where tests look for them; [`directory`] runs the tests of a directory
//! as the suite's run files list them, on an instance and loop devices of their own. What a test
//! asks of a kernel module is answered by `overrides.ksh`: tunables without effect, statistics of
//! `tarn kstat`. `known.tsv` has the tests that do not pass, each with its reason.
//!
//! # Rules
//! No test is changed. A test that fails and is not known to is run again by itself before it
//! counts: one that left its pool behind makes the next fail.

mod directory;
mod layout;

use std::path::PathBuf;
use std::time::Duration;

use super::Arguments;
use super::known::{Ended, Known, Verdict};
use super::loop_devices;
use crate::workspace::{Outcome, openzfs};
use directory::Directory;
use layout::Suite;

/// How long programs of the run itself may take.
const LIMIT_OF_COMMANDS: Duration = Duration::from_secs(120);

/// The directories that a run has unless told: those that ask for what Tarn has.
const DIRECTORIES: &str = include_str!("directories.txt");

/// What every change is tried with.
const SMALL: &str = "cli_root/zfs_inherit quota truncate nestedfs acl/posix";

/// Runs the suite, or the directories of `--only`: `DIR[:TEST[,TEST]...]`, separated by spaces.
pub fn zts(arguments: &Arguments) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err("zts makes loop devices and turns into other users: it needs root".into());
    }
    if let Some(why) = loop_devices::missing()? {
        let missing = format!("zts makes loop devices, and there are none here: {why}");
        // CI's machine may have none: a small budget says so and goes on.
        return match arguments.small {
            true => {
                println!("{missing}. NOT RUN");
                Ok(())
            }
            false => Err(missing.into()),
        };
    }
    let suite = Suite::lay_out(&openzfs()?, &PathBuf::from("/var/tmp/tarn-zts"))?;
    let wanted = match (&arguments.only, arguments.small) {
        (Some(only), _) => only.as_str(),
        (None, true) => SMALL,
        (None, false) => DIRECTORIES,
    };
    let known = Known::parse(include_str!("known.tsv"))?;
    let mut verdicts = Vec::new();
    for words in wanted.split_whitespace() {
        let (name, tests) = words.split_once(':').unwrap_or((words, ""));
        let tests: Vec<&str> = tests.split(',').filter(|test| !test.is_empty()).collect();
        let directory = Directory::new(&suite, name)?;
        let mut seen = directory.run(&tests)?;
        for verdict in &mut seen {
            let is_new = tests.is_empty() && known.class(&verdict.test).is_none();
            if is_new && matches!(verdict.ended, Ended::Failed | Ended::Hung) {
                let test = verdict
                    .test
                    .rsplit('/')
                    .next()
                    .unwrap_or_default()
                    .to_string();
                if let Some(again) = directory.run(&[&test])?.pop() {
                    *verdict = again;
                }
            }
        }
        verdicts.append(&mut seen);
    }
    print_table(&verdicts);
    known.judge("zts", &verdicts)
}

/// A line for each directory.
fn print_table(verdicts: &[Verdict]) {
    let mut lines: Vec<(&str, [usize; 4])> = Vec::new();
    for verdict in verdicts {
        let directory = verdict
            .test
            .rsplit_once('/')
            .map_or("", |(directory, _)| directory);
        if lines.last().is_none_or(|(last, _)| *last != directory) {
            lines.push((directory, [0; 4]));
        }
        let (_, counts) = lines
            .last_mut()
            .expect("a line was pushed if there was none");
        counts[verdict.ended as usize] += 1;
    }
    println!(
        "{:<34} {:>6} {:>7} {:>6} {:>6}",
        "directory", "passed", "not run", "failed", "hung"
    );
    for (directory, [passed, not_run, failed, hung]) in lines {
        println!("{directory:<34} {passed:>6} {not_run:>7} {failed:>6} {hung:>6}");
    }
}
