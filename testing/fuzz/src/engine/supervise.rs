//! The supervisor: starts workers, and finds what ended those that could not tell.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tarn_fuzz::Target;

use crate::minimise::minimise;
use crate::run::{EXIT_ENDLESS, current_input};
use crate::work::store;
use crate::{Arguments, Outcome, coverage};

/// So often a worker is started again behind what ended it.
const STARTS_MAX: u64 = 5;
/// A process for each try takes a while.
const MINIMISING_TRIES: usize = 100;

/// Searches all targets, one after the other, and gives back how many findings there are.
pub fn all(arguments: &Arguments, targets: &[&'static Target]) -> Outcome<usize> {
    if coverage::counter_count() == 0 {
        println!(
            "this program was built without counters, so the search is blind: use `cargo xtask fuzz`"
        );
    }
    let mut findings = 0;
    for target in targets {
        findings += one(arguments, target)?;
    }
    match findings {
        0 => println!("no findings; seed {}", arguments.seed),
        count => println!("{count} findings; seed {}", arguments.seed),
    }
    Ok(findings)
}

fn one(arguments: &Arguments, target: &'static Target) -> Outcome<usize> {
    let end = Instant::now() + Duration::from_secs(arguments.seconds);
    let mut findings = 0;
    for start in 0..STARTS_MAX {
        let left = end.saturating_duration_since(Instant::now()).as_secs();
        if start > 0 && left == 0 {
            break;
        }
        let (found, status) = worker(arguments, target, arguments.seed + start, left.max(1))?;
        findings += found;
        if status.success() {
            break;
        }
        ended(arguments, target, status)?;
        findings += 1;
    }
    Ok(findings)
}

/// Runs a worker, and gives back how much it found and how it ended.
fn worker(
    arguments: &Arguments,
    target: &Target,
    seed: u64,
    seconds: u64,
) -> Outcome<(usize, ExitStatus)> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args([
            "--worker",
            "--target",
            target.name,
            "--seed",
            &seed.to_string(),
        ])
        .args(["--seconds", &seconds.to_string()])
        .arg("--folder")
        .arg(&arguments.folder)
        .arg("--regressions")
        .arg(&arguments.regressions);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().ok_or("a worker has an output")?;
    let mut findings = 0;
    for line in BufReader::new(out).lines() {
        let line = line?;
        match line.split_once(' ') {
            Some(("done", told)) => println!("{:14} {told}, {findings} findings", target.name),
            Some(("found", told)) => {
                let (path, what) = told.split_once(' ').unwrap_or((told, ""));
                tell(target, what, path);
                findings += 1;
            }
            _ => println!("{line}"),
        }
    }
    Ok((findings, child.wait()?))
}

/// A worker is gone: what it ran is made small and told.
fn ended(arguments: &Arguments, target: &Target, status: ExitStatus) -> Outcome {
    let input = current_input(&arguments.folder_of("current", target))?;
    let what = match status.code() {
        Some(EXIT_ENDLESS) => "it does not end".to_string(),
        _ => format!("the process ended: {status}"),
    };
    let trial = arguments.folder_of("trial", target);
    let parent = trial.parent().ok_or("a trial is in a folder")?;
    std::fs::create_dir_all(parent)?;
    let breaks = |candidate: &[u8]| {
        let mut command = Command::new(std::env::current_exe().unwrap_or_default());
        command
            .args(["--target", target.name, "--input"])
            .arg(&trial);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let is_written = std::fs::write(&trial, candidate).is_ok();
        is_written && command.status().is_ok_and(|ended| ended == status)
    };
    let small = minimise(&input, MINIMISING_TRIES, breaks);
    let path = store(&arguments.folder_of("findings", target), &small)?;
    tell(target, &what, &path);
    Ok(())
}

fn tell(target: &Target, what: &str, path: &str) {
    println!("FINDING {}: {what}", target.name);
    println!(
        "    again: cargo xtask fuzz --target {} --input {path}",
        target.name
    );
}
