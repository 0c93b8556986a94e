//! Damages pools, round after round, and tells what broke.
//!
//! # Mechanism
//! Rounds run in a child process, which tells each round's beginning and end. A panic is caught
//! there; a wait without end, a stack that overflows or memory without bound end the child, which
//! is started again behind the round that did it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use clap::Parser;
use tarn_administration::messages::pool::VdevKind;
use tarn_golden::Fixtures;
use tarn_hostile::cut;
use tarn_hostile::images::Base;
use tarn_hostile::receiving;
use tarn_hostile::rounds::{Damage, Subject};

/// No round takes longer, on a machine that is busy with other things.
const ROUND_LIMIT: Duration = Duration::from_secs(120);
/// A round that needs more memory than this, for disks of 64 to 512 MiB and a cache of 64, has no
/// bound.
const MEMORY_BYTES: u64 = 6 << 30;
/// A pool is visited for so long, or not at all: unpacking it takes seconds.
const SECONDS_MIN: u64 = 10;
/// The fixtures that are told lies about: all but those whose places the liar does not know, and
/// pools that are not for importing.
const FIXTURES_OF_LIES: [&str; 16] = [
    "basic",
    "mirror",
    "raidz1",
    "v28",
    "zil",
    "mixed",
    "checkpoint",
    "raidz2",
    "gang",
    "raidz3",
    "degraded",
    "reflink",
    "removed",
    "special",
    "dedup",
    "fastdedup",
];
/// The fixtures that are damaged raw.
const FIXTURES: [&str; 16] = [
    "basic",
    "mirror",
    "raidz1",
    "mixed",
    "degraded",
    "raidz2",
    "raidz3",
    "zil",
    "gang",
    "v28",
    "checkpoint",
    "removed",
    "reflink",
    "draid",
    "expand",
    "encrypted",
];

/// Damages pools, and demands that no panic, no endless wait and no boundless memory comes of it
#[derive(Debug, Clone, Parser)]
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
    /// As many rounds as there is time for, shared by all pools, instead of a number
    #[arg(long)]
    seconds: Option<u64>,
    /// Damage nothing, and cut structures out of all pools into this folder
    #[arg(long)]
    cut: Option<PathBuf>,
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
    let outcome = match (&arguments.child, &arguments.cut) {
        (Some(name), _) => child(&arguments, name).map(|()| 0),
        (None, Some(folder)) => cut_all(&arguments, folder).map(|()| 0),
        (None, None) => parent(&arguments),
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
    let mut names: Vec<String> = [
        "own lies",
        "own-raidz1 lies",
        "own raw",
        "own-mirror raw",
        "own-raidz1 raw",
        "own-sent streams",
    ]
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
        "own-sent" => receiving::base(name),
        "own-raidz1" => Base::make(name, VdevKind::Raidz1, 3),
        name => {
            let fixture = fixtures(&arguments.checkout)?.unpack(name)?;
            Base::read(name, &fixture.images()?)?
        }
    })
}

/// Cuts structures out of all pools that can be walked.
fn cut_all(arguments: &Arguments, folder: &Path) -> Outcome<()> {
    let mut pieces = Vec::new();
    for name in subjects(arguments) {
        if let Some(name) = name.strip_suffix(" lies") {
            let cut = cut::cut(&base_of(arguments, name)?).unwrap_or_default();
            println!("{name}: {} pieces", cut.len());
            pieces.extend(cut);
        }
    }
    Ok(cut::write(&pieces, folder)?)
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
        "streams" => Damage::Streams,
        _ => Damage::Raw,
    };
    let subject = Subject::new(&base, damage);
    let mut out = std::io::stdout();
    let began = Instant::now();
    for number in arguments.from..arguments.from + arguments.rounds {
        if arguments
            .seconds
            .is_some_and(|seconds| began.elapsed().as_secs() >= seconds)
        {
            break;
        }
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
    let mut arguments = arguments.clone();
    let mut subjects = subjects(&arguments);
    if let Some(seconds) = arguments.seconds {
        arguments.rounds = u64::MAX - arguments.from;
        // Where there is not the time for all, it depends on the seed which come.
        let first = usize::try_from(arguments.seed)? % subjects.len().max(1);
        subjects.rotate_left(first);
        subjects.truncate(usize::try_from(seconds / SECONDS_MIN)?.max(1));
        arguments.seconds = Some(seconds / u64::try_from(subjects.len().max(1))?);
    }
    for name in subjects {
        let began = Instant::now();
        let (mut from, end) = (arguments.from, arguments.from + arguments.rounds);
        let (mut count, mut rounds) = (0, 0);
        while from < end
            && arguments
                .seconds
                .is_none_or(|seconds| began.elapsed().as_secs() < seconds)
        {
            let ran = run_child(&arguments, &name, from, end)?;
            count += ran.findings;
            rounds += ran.rounds;
            from = ran.next;
        }
        println!("{name}: {rounds} rounds, {count} findings");
        findings += count;
    }
    match findings {
        0 => println!("no findings; seed {}", arguments.seed),
        count => println!("{count} findings; seed {}", arguments.seed),
    }
    Ok(findings)
}

/// What a child did.
struct Ran {
    /// The round to go on with.
    next: u64,
    /// How many rounds were begun.
    rounds: u64,
    /// How many broke something.
    findings: u64,
}

/// Runs rounds in a child, until they are done or the child is gone.
fn run_child(arguments: &Arguments, name: &str, from: u64, end: u64) -> Outcome<Ran> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--child", name, "--seed", &arguments.seed.to_string()]);
    command.args([
        "--from",
        &from.to_string(),
        "--rounds",
        &(end - from).to_string(),
    ]);
    command.arg("--checkout").arg(&arguments.checkout);
    if let Some(seconds) = arguments.seconds {
        command.args(["--seconds", &seconds.to_string()]);
    }
    if arguments.verbose {
        command.arg("--verbose");
    }
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let lines = lines_of(&mut child)?;
    let (mut current, mut told, mut findings, mut rounds) = (None, String::new(), 0, 0);
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
                Some(("begin", number)) => {
                    current = number.parse::<u64>().ok();
                    rounds += 1;
                }
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
                    (None, true) => {
                        return Ok(Ran {
                            next: end,
                            rounds,
                            findings,
                        });
                    }
                    (None, false) => {
                        return Err(format!("{name}: the child ended: {status}").into());
                    }
                    (Some(number), _) => {
                        find(current, &format!("the process ended: {status}"), &told);
                        return Ok(Ran {
                            next: number + 1,
                            rounds,
                            findings,
                        });
                    }
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                child.kill()?;
                child.wait()?;
                let number = current.ok_or("the pool could not be made in time")?;
                find(current, "it does not end", &told);
                return Ok(Ran {
                    next: number + 1,
                    rounds,
                    findings,
                });
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
        // The reader may be gone.
        let _ = sender.send(Said::Gone);
    });
    Ok(receiver)
}
