//! `programs`: real programs do the same on a mount of ours as on ext4.
//!
//! # Problem
//! Suites ask for the rules of a standard. Programs live by what file systems do beside it: which
//! error stands for what, what a time, a link count or a name promises, in which order a program
//! asks. Nothing says all of it but the programs.
//!
//! # Mechanism
//! A [`Program`] is a script in steps. It runs twice, at the same place: once with ext4 of a loop
//! device mounted there, once with file systems of a pool ([`side`]). Of each step the exit code
//! and everything that was printed is kept, and at the end the manifest of each tree ([`account`]).
//! [`compare`] then shows every line that differs. What a file system may decide for itself (blocks
//! used, sizes of directories, names of types) is not printed by scripts, or is a line in
//! [`tolerated`] with its reason.
//!
//! # Rules for scripts
//! - A step begins with `### title`. `#snapshot`, `#restart` and `### [away] title` are described
//!   at [`script`].
//! - Nothing that is printed depends on time, process ids, inode numbers or the order of
//!   directories.
//! - Programs that serve are ended in the step that starts them; what is left is killed with the
//!   step.

mod account;
mod archives;
mod attributes;
mod backups;
mod building;
mod compare;
mod databases;
mod editing;
mod files;
mod loads;
mod repositories;
mod script;
mod side;
mod situations;
mod systems;
mod tolerated;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tarn_oracle::tools::is_in_path;

use self::account::Account;
use self::side::{Kind, Side};
use super::Arguments;
use super::loop_devices;
use crate::debian_packages::install;
use crate::workspace::{Outcome, duration, remove_folder, scratch};

/// How long a step may take unless its program says otherwise.
const STEP_LIMIT: Duration = Duration::from_secs(60);

/// What makes the tree of awkward files, and shows it.
const TREE_NEEDS: [(&str, &str); 2] = [("setfacl", "acl"), ("setfattr", "attr")];

/// The programs of each subject.
const SUBJECTS: [&[Program]; 11] = [
    files::PROGRAMS,
    attributes::PROGRAMS,
    archives::PROGRAMS,
    editing::PROGRAMS,
    repositories::PROGRAMS,
    backups::PROGRAMS,
    databases::PROGRAMS,
    building::PROGRAMS,
    systems::PROGRAMS,
    situations::PROGRAMS,
    loads::PROGRAMS,
];

/// A program, or several of a kind, and what they are made to do.
pub struct Program {
    /// What `--only` finds it by.
    name: &'static str,
    /// What it starts, and the Debian package that has it.
    needs: &'static [(&'static str, &'static str)],
    /// Its steps.
    script: &'static str,
    /// Whether `--small` runs it: it takes a few seconds.
    is_quick: bool,
    /// Whether it begins with a tree of awkward files at `$ROOT/tree`.
    has_tree: bool,
    /// Whether it has file systems that are soon full, at `$FULL` and `$QUOTA`.
    has_small_rooms: bool,
    /// How long each of its steps may take.
    limit: Duration,
}

impl Program {
    const fn new(
        name: &'static str,
        needs: &'static [(&'static str, &'static str)],
        script: &'static str,
    ) -> Program {
        Program {
            name,
            needs,
            script,
            is_quick: false,
            has_tree: false,
            has_small_rooms: false,
            limit: STEP_LIMIT,
        }
    }

    const fn quick(mut self) -> Program {
        self.is_quick = true;
        self
    }

    const fn with_tree(mut self) -> Program {
        self.has_tree = true;
        self
    }

    const fn with_small_rooms(mut self) -> Program {
        self.has_small_rooms = true;
        self
    }

    const fn limited_to(mut self, seconds: u64) -> Program {
        self.limit = Duration::from_secs(seconds);
        self
    }
}

/// Runs every program, or those that are quick, or those whose name contains what `--only` says.
/// What is missing is installed, but for `--small`.
pub fn programs(arguments: &Arguments) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err("programs: needs root, to mount ext4 and to be other users".into());
    }
    if let Some(why) = loop_devices::missing()? {
        let missing =
            format!("programs mounts ext4 over loop devices, and there are none here: {why}");
        // CI's machine may have none: a small budget says so and goes on.
        return match arguments.small {
            true => {
                println!("{missing}. NOT RUN");
                Ok(())
            }
            false => Err(missing.into()),
        };
    }
    let only = arguments.only.as_deref().unwrap_or_default();
    let chosen: Vec<&Program> = SUBJECTS
        .into_iter()
        .flatten()
        .filter(|program| program.name.contains(only))
        .filter(|program| program.is_quick || !arguments.small)
        .collect();
    let missing = match arguments.small {
        true => Vec::new(),
        false => install_packages(&chosen)?,
    };
    let queue = Mutex::new(chosen.into_iter());
    let results = Mutex::new(Results::default());
    let workers = std::thread::available_parallelism().map_or(2, |count| count.get().min(4));
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().expect("no worker panics").next();
                    let Some(program) = next else { break };
                    let began = Instant::now();
                    let result = match lacks(program) {
                        Some(what) => Verdict::NotRun(what),
                        None => judge(program, arguments.keep),
                    };
                    let mut results = results.lock().expect("no worker panics");
                    results.add(program.name, result, began.elapsed());
                }
            });
        }
    });
    let results = results.into_inner().expect("no worker panics");
    results.finish(&missing)
}

/// What came of one program.
enum Verdict {
    Equal {
        steps: usize,
        tolerated: BTreeSet<&'static str>,
    },
    Differs(Vec<String>),
    NotRun(String),
}

/// Runs a program on both sides and compares.
fn judge(program: &Program, keep: bool) -> Verdict {
    let run = || -> Outcome<Verdict> {
        let folder = scratch("conformance-programs").join(program.name);
        remove_folder(&folder)?;
        let expected = account_of(program, Kind::Ext4, &folder)?;
        let seen = account_of(program, Kind::Tarn, &folder)?;
        let found = compare::compare(program.name, &expected, &seen, tolerated::TOLERATED);
        if !keep {
            remove_folder(&folder)?;
        }
        Ok(match found.differences.is_empty() {
            true => Verdict::Equal {
                steps: seen.steps.len(),
                tolerated: found.tolerated,
            },
            false => Verdict::Differs(found.differences),
        })
    };
    run().unwrap_or_else(|error| Verdict::Differs(vec![error.to_string()]))
}

fn account_of(program: &Program, kind: Kind, folder: &std::path::Path) -> Outcome<Account> {
    let side = Side::make(kind, folder, program.has_small_rooms)?;
    // Calls of a daemon that hangs fail when it is killed, and the script goes on.
    let steps = script::parse(program.script)?;
    let limit = program.limit * u32::try_from(steps.len() + 2)?;
    let _watchdog = side
        .instance()
        .map(|instance| instance.watchdog(program.name, limit));
    if program.has_tree {
        script::make_tree(&side)?;
    }
    let account = account::run(&side, &steps, program.limit)?;
    side.end()?;
    Ok(account)
}

/// Installs what is missing. What cannot be installed is told, and the programs that need it do not
/// run.
fn install_packages(chosen: &[&Program]) -> Outcome<Vec<&'static str>> {
    let needed: BTreeSet<(&str, &'static str)> = chosen
        .iter()
        .flat_map(|program| program.needs)
        .chain(&TREE_NEEDS)
        .filter(|(program, _)| !is_there(program))
        .copied()
        .collect();
    let packages: BTreeSet<&'static str> = needed.iter().map(|(_, package)| *package).collect();
    let all: Vec<&str> = packages.iter().copied().collect();
    if install(&all).is_ok() {
        return Ok(Vec::new());
    }
    // One that is not to be had keeps the others from being installed with it.
    Ok(packages
        .into_iter()
        .filter(|package| install(&[package]).is_err())
        .collect())
}

/// What of a program's needs is not on this machine.
fn lacks(program: &Program) -> Option<String> {
    let of_tree: &[_] = if program.has_tree { &TREE_NEEDS } else { &[] };
    let mut needs = program.needs.iter().chain(of_tree);
    let (name, package) = needs.find(|(name, _)| !is_there(name))?;
    Some(format!(
        "{name} is not installed (Debian's package {package})"
    ))
}

/// Whether a program is in `PATH`, or, where a path is given, a file is there.
fn is_there(name: &str) -> bool {
    match name.starts_with('/') {
        true => std::path::Path::new(name).exists(),
        false => is_in_path(name),
    }
}

/// What came of all programs so far.
#[derive(Default)]
struct Results {
    equal: usize,
    steps: usize,
    differing: Vec<&'static str>,
    not_run: Vec<String>,
    tolerated: BTreeSet<&'static str>,
}

impl Results {
    fn add(&mut self, name: &'static str, verdict: Verdict, took: Duration) {
        let took = duration(took);
        match verdict {
            Verdict::Equal { steps, tolerated } => {
                println!("{name}: {steps} steps, equal ({took})");
                self.equal += 1;
                self.steps += steps;
                self.tolerated.extend(tolerated);
            }
            Verdict::Differs(differences) => {
                println!("{name}: DIFFERS ({took})\n{}", differences.join("\n"));
                self.differing.push(name);
            }
            Verdict::NotRun(why) => {
                println!("{name}: not run: {why}");
                self.not_run.push(format!("{name}: {why}"));
            }
        }
    }

    fn finish(self, missing: &[&str]) -> Outcome {
        println!(
            "\n{} programs equal in {} steps, {} differ, {} not run",
            self.equal,
            self.steps,
            self.differing.len(),
            self.not_run.len()
        );
        for reason in &self.tolerated {
            println!("differs, known: {reason}");
        }
        for line in &self.not_run {
            println!("not run: {line}");
        }
        if !missing.is_empty() {
            println!("not to be had: {}", missing.join(", "));
        }
        match self.differing.is_empty() {
            true => Ok(()),
            false => Err(format!(
                "not the same as on ext4: {}; once more, with what is left of it: \
                 cargo xtask conformance programs --keep --only NAME",
                self.differing.join(", ")
            )
            .into()),
        }
    }
}
