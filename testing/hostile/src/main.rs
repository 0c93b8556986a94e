//! Damages pools, round after round, and tells what broke.
//!
//! # Mechanism
//! Rounds run in a child process, which tells each round's beginning and end. A panic is caught there; a wait without end, a stack that
//! overflows or memory without bound end the child, which is started again behind the round that did it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use clap::Parser;
use tarn_engine::messages::pool::VdevKind;
use tarn_golden::Fixtures;
use tarn_hostile::images::Base;
use tarn_hostile::rounds::{Damage, Subject};

/// No round takes longer, on a machine that is busy with other things.
const ROUND_LIMIT: Duration = Duration::from_secs(120);
/// A round that needs more memory than this, for disks of 64 to 512 MiB and a cache of 64, has no bound.
const MEMORY_BYTES: u64 = 6 << 30;
/// The fixtures of one disk, which can be told lies about.
const FIXTURES_OF_LIES: [&str; 3] = ["basic", "checkpoint", "v28"];
/// The fixtures that are damaged raw.
const FIXTURES: [&str; 5] = ["basic", "mirror", "raidz1", "mixed", "degraded"];

/// Damages pools, and demands that no panic, no endless wait and no boundless memory comes of it
#[derive(Debug, Parser)]
struct Arguments {
    /// From which everything follows
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many rounds for each pool and kind of damage
    #[arg(long, default_value_t = 20)]
    rounds: u64,
    /// The first round
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only pools and damages whose name has this in it
    #[arg(long)]
    only: Option<String>,
    /// Pools made here only, no fixtures
    #[arg(long)]
    own: bool,
    /// Tell what was seen in each round
    #[arg(long, short)]
    verbose: bool,
    /// The checkout, for fixtures
    #[arg(long, default_value = ".")]
    checkout: PathBuf,
    /// Run the rounds of this one pool and damage in this process
    #[arg(long, hide = true)]
    child: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.child {
        Some(name) => child(&arguments, name).map(|()| 0),
        None => parent(&arguments),
    };
    match outcome {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The names of all subjects.
fn subjects(arguments: &Arguments) -> Vec<String> {
    let mut names: Vec<String> = ["own lies", "own raw", "own-mirror raw", "own-raidz1 raw"]
        .map(str::to_string)
        .to_vec();
    if !arguments.own && fixtures(&arguments.checkout).is_ok() {
        names.extend(FIXTURES_OF_LIES.map(|name| format!("{name} lies")));
        names.extend(FIXTURES.map(|name| format!("{name} raw")));
    }
    let only = arguments.only.as_deref().unwrap_or_default();
    names.retain(|name| name.contains(only));
    names
}

fn fixtures(checkout: &Path) -> Outcome<Fixtures> {
    let checkout = checkout.canonicalize()?;
    Ok(Fixtures::find(
        &checkout,
        &checkout.join("target/fixtures"),
    )?)
}

fn base_of(arguments: &Arguments, name: &str) -> Outcome<Base> {
    Ok(match name {
        "own" => Base::make(name, VdevKind::Leaf, 1),
        "own-mirror" => Base::make(name, VdevKind::Mirror, 2),
        "own-raidz1" => Base::make(name, VdevKind::Raidz1, 3),
        name => {
            let fixture = fixtures(&arguments.checkout)?.unpack(name)?;
            Base::read(name, &fixture.images()?)?
        }
    })
}

/// Runs rounds, each told by a line before and after.
fn child(arguments: &Arguments, name: &str) -> Outcome<()> {
    rustix::process::setrlimit(
        rustix::process::Resource::As,
        rustix::process::Rlimit {
            current: Some(MEMORY_BYTES),
            maximum: Some(MEMORY_BYTES),
        },
    )?;
    let (base, damage) = name
        .split_once(' ')
        .ok_or("a subject is a pool and a damage")?;
    let base = base_of(arguments, base)?;
    let damage = match damage {
        "lies" => Damage::Lies,
        _ => Damage::Raw,
    };
    let subject = Subject::new(&base, damage);
    let mut out = std::io::stdout();
    for number in arguments.from..arguments.from + arguments.rounds {
        writeln!(out, "begin {number}")?;
        // A line that cannot be written has no reader.
        let mut tell = |told: &str| _ = writeln!(std::io::stdout(), "told {told}");
        let round = subject.round(arguments.seed, number, &mut tell);
        let [read, write] = round.imported;
        let seen = &round.seen;
        writeln!(
            out,
            "seen   readable {read}, writable {write}, {} file systems, {} files, {} bytes, {} errors",
            seen.filesystems, seen.files, seen.bytes, seen.error_count
        )?;
        if arguments.verbose {
            for error in &seen.errors {
                writeln!(out, "seen   {}", error.replace('\n', " / "))?;
            }
        }
        match round.panic {
            Some(text) => writeln!(out, "panic {}", text.replace('\n', " / "))?,
            None => writeln!(out, "end {number}")?,
        }
    }
    Ok(())
}

/// What a child says.
enum Said {
    Line(String),
    Gone,
}

fn parent(arguments: &Arguments) -> Outcome<u64> {
    let mut findings = 0;
    for name in subjects(arguments) {
        let (mut from, end) = (arguments.from, arguments.from + arguments.rounds);
        let mut count = 0;
        while from < end {
            let (next, found) = run_child(arguments, &name, from, end)?;
            count += found;
            from = next;
        }
        println!("{name}: {} rounds, {count} findings", arguments.rounds);
        findings += count;
    }
    match findings {
        0 => println!("no findings; seed {}", arguments.seed),
        count => println!("{count} findings; seed {}", arguments.seed),
    }
    Ok(findings)
}

/// Runs rounds in a child, until they are done or the child is gone. Gives back the round to go on with, and how many broke something.
fn run_child(arguments: &Arguments, name: &str, from: u64, end: u64) -> Outcome<(u64, u64)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--child", name, "--seed", &arguments.seed.to_string()]);
    command.args([
        "--from",
        &from.to_string(),
        "--rounds",
        &(end - from).to_string(),
    ]);
    command.arg("--checkout").arg(&arguments.checkout);
    if arguments.verbose {
        command.arg("--verbose");
    }
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let lines = lines_of(&mut child)?;
    let (mut current, mut told, mut findings) = (None, String::new(), 0);
    let mut find = |number: Option<u64>, what: &str, told: &str| {
        let number = number.unwrap_or(from);
        println!("FINDING {name}, round {number}: {what}\n    {told}");
        println!(
            "    again: cargo xtask hostile --seed {} --from {number} --rounds 1 --only '{name}' -v",
            arguments.seed
        );
        findings += 1;
    };
    loop {
        match lines.recv_timeout(ROUND_LIMIT) {
            Ok(Said::Line(line)) => match line.split_once(' ') {
                Some(("begin", number)) => current = number.parse::<u64>().ok(),
                Some(("told", text)) => {
                    if arguments.verbose {
                        println!("{text}");
                    }
                    told = text.to_string();
                }
                Some(("seen", text)) if arguments.verbose => println!("{text}"),
                Some(("seen", _)) => {}
                Some(("panic", text)) => {
                    find(current.take(), text, &told);
                }
                Some(("end", _)) => current = None,
                _ => println!("{line}"),
            },
            Ok(Said::Gone) | Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait()?;
                match (current, status.success()) {
                    (None, true) => return Ok((end, findings)),
                    (None, false) => {
                        return Err(format!("{name}: the child ended: {status}").into());
                    }
                    (Some(number), _) => {
                        find(current, &format!("the process ended: {status}"), &told);
                        return Ok((number + 1, findings));
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                child.kill()?;
                child.wait()?;
                let number = current.ok_or("the pool could not be made in time")?;
                find(current, "it does not end", &told);
                return Ok((number + 1, findings));
            }
        }
    }
}

fn lines_of(child: &mut Child) -> Outcome<mpsc::Receiver<Said>> {
    let out = child.stdout.take().ok_or("the child has an output")?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.send(Said::Line(line)).is_err() {
                return;
            }
        }
        // Nobody may listen any more.
        let _ = sender.send(Said::Gone);
    });
    Ok(receiver)
}
