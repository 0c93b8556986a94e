//! Cuts the power of simulated machines, and tells what was lost.
//!
//! # Mechanism
//! Worlds are shared out to child processes, one for each processor, which tell of each world when
//! it begins and ends. So one that brings its process down is known. A process does some worlds and
//! makes room for another: what a machine without power had in memory is never freed.

mod canaries;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use tarn_oracle::tools::Unpacked;
use tarn_sim::images::Judges;
use tarn_sim::layout::Layout;
use tarn_sim::script::Script;
use tarn_sim::work::Taste;
use tarn_sim::world::{SCRIPTS_OF_A_WORLD, Wanted, World};

/// Cuts the power of simulated machines, and tells what was lost
#[derive(Debug, Clone, Parser)]
struct Arguments {
    /// From which everything follows
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many cuts, all worlds together
    #[arg(long, default_value_t = 400)]
    cuts: u64,
    /// How many cuts of each world
    #[arg(long, default_value_t = 20)]
    each: u64,
    /// Only this world
    #[arg(long)]
    world: Option<u64>,
    /// Only pools of this layout
    #[arg(long)]
    layout: Option<String>,
    /// Only this work: mixed, names, database, bulk, race, administration
    #[arg(long)]
    workload: Option<String>,
    /// Only worlds in which devices are scanned and changed
    #[arg(long)]
    devices: bool,
    /// How many processes
    #[arg(long)]
    jobs: Option<u64>,
    /// Tell of each world
    #[arg(long, short)]
    verbose: bool,
    /// Run each world twice: both must be the same
    #[arg(long)]
    twice: bool,
    /// All works of so many changes around one fsync, each cut after each write
    #[arg(long)]
    exhaustive: Option<u32>,
    /// Have OpenZFS's zdb look at the disks after each so many cuts; 0 for never
    #[arg(long, default_value_t = 0)]
    zdb: u64,
    /// End at the first failure
    #[arg(long)]
    stop: bool,
    /// Make each deliberate fault, and see that it is caught
    #[arg(long)]
    canaries: bool,
    /// Make this deliberate fault
    #[arg(long)]
    canary: Option<String>,
    /// The checkout, for OpenZFS's programs
    #[arg(long, default_value = ".")]
    checkout: PathBuf,
    /// Run these worlds in this process: of the first, and each so many after it, some behind so
    /// many
    #[arg(long, hide = true)]
    share: Option<String>,
}

/// No world takes longer, on a machine that is busy with other things.
const WORLD_LIMIT: Duration = Duration::from_secs(300);

/// A process does worlds with so many cuts: each leaves some three megabytes behind.
const CUTS_OF_A_PROCESS: u64 = 480;

/// A world of scripts has about so many cuts, whatever is asked for: one after each write of each
/// script.
const CUTS_OF_SCRIPTS: u64 = 240;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.share {
        Some(share) => child(&arguments, share),
        None if arguments.canaries => canaries::all_are_caught(),
        None => parent(&arguments),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn wanted(arguments: &Arguments) -> Outcome<Wanted> {
    let layout = match &arguments.layout {
        None => None,
        Some(name) => Some(Layout::named(name).ok_or_else(|| {
            let names: Vec<_> = Layout::ALL.iter().map(|layout| layout.name).collect();
            format!("there is no layout {name}: {}", names.join(", "))
        })?),
    };
    let taste = match arguments.workload.as_deref() {
        None => None,
        Some("mixed") => Some(Taste::Mixed),
        Some("names") => Some(Taste::Names),
        Some("database") => Some(Taste::Database),
        Some("bulk") => Some(Taste::Bulk),
        Some("race") => Some(Taste::Race),
        Some("administration") => Some(Taste::Administration),
        Some(other) => return Err(format!("there is no workload {other}").into()),
    };
    Ok(Wanted {
        seed: arguments.seed,
        exhaustive: arguments.exhaustive,
        layout,
        taste,
        devices: arguments.devices,
    })
}

/// Runs some worlds. True when nothing was lost.
fn child(arguments: &Arguments, share: &str) -> Outcome<bool> {
    let parts: Vec<&str> = share.split('/').collect();
    let [first, step, from] = parts[..] else {
        return Err("a share is FIRST/STEP/FROM".into());
    };
    let (first, step, from): (u64, usize, usize) = (first.parse()?, step.parse()?, from.parse()?);
    let wanted = wanted(arguments)?;
    if let Some(canary) = &arguments.canary {
        canaries::choose(canary)?;
    }
    stay_on_one_processor(first);
    let judges = judges(arguments, first)?;
    let worlds = worlds(arguments);
    let mut is_right = true;
    let mut out = std::io::stdout();
    for number in worlds
        .skip(usize::try_from(first)?)
        .step_by(step)
        .skip(from)
        .take(worlds_of_a_process(arguments))
    {
        let world = World::new(&wanted, number);
        writeln!(out, "begin {number} {}", world.plan())?;
        match world.run(arguments.each, judges.as_ref()) {
            Ok(told) => {
                writeln!(
                    out,
                    "end {} {} {} {} {} {} {} {} {} {:x}",
                    told.cuts,
                    told.early,
                    told.calls,
                    told.promised,
                    told.blocks,
                    told.clones,
                    told.device_commands,
                    told.scans,
                    told.rewinds,
                    told.trace
                )?;
                if arguments.twice {
                    let again = World::new(&wanted, number).run(arguments.each, None);
                    if again.as_ref().map(|again| again.trace).ok() != Some(told.trace) {
                        writeln!(out, "failed not the same a second time")?;
                        is_right = false;
                    }
                }
            }
            Err(failed) => {
                is_right = false;
                for line in failed.to_string().lines() {
                    writeln!(out, "told {line}")?;
                }
                let why = failed.why.lines().next().unwrap_or_default();
                writeln!(out, "failed life {}: {why}", failed.life)?;
            }
        }
        if arguments.stop && !is_right {
            break;
        }
    }
    Ok(is_right)
}

/// One thread of a simulation runs at a time: on one processor handing over is several times as
/// fast. It may be refused, and does no harm then.
fn stay_on_one_processor(share: u64) {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else {
        return;
    };
    let processors: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|processor| allowed.is_set(*processor))
        .collect();
    let place = usize::try_from(share).unwrap_or(0) % processors.len().max(1);
    if let Some(processor) = processors.get(place) {
        let mut one = rustix::thread::CpuSet::new();
        one.set(*processor);
        let _ = rustix::thread::sched_setaffinity(None, &one);
    }
}

/// The numbers of all worlds that are wanted.
fn worlds(arguments: &Arguments) -> std::ops::Range<u64> {
    let count = match arguments.exhaustive {
        Some(length) => Script::count(length).div_ceil(SCRIPTS_OF_A_WORLD),
        None => arguments.cuts.div_ceil(arguments.each.max(1)),
    };
    match arguments.world {
        Some(world) => world..world + 1,
        None => 0..count,
    }
}

/// How many worlds a process does before it makes room for another.
fn worlds_of_a_process(arguments: &Arguments) -> usize {
    let cuts = match arguments.exhaustive {
        Some(_) => CUTS_OF_SCRIPTS,
        None => arguments.each.max(1),
    };
    usize::try_from(CUTS_OF_A_PROCESS / cuts).map_or(1, |worlds| worlds.max(1))
}

/// OpenZFS's `zdb`, if it shall look.
fn judges(arguments: &Arguments, share: u64) -> Outcome<Option<Judges>> {
    if arguments.zdb == 0 {
        return Ok(None);
    }
    let target = arguments.checkout.join("target");
    Ok(Some(Judges {
        tools: Unpacked::openzfs(&target.join("oracle"))?,
        folder: target.join(format!("scratch/sim-{}-{share}", std::process::id())),
        every: arguments.zdb,
    }))
}

/// Sums over all worlds.
#[derive(Default)]
struct Sums {
    worlds: u64,
    numbers: [u64; 9],
    failed: u64,
}

fn parent(arguments: &Arguments) -> Outcome<bool> {
    wanted(arguments)?;
    let began = Instant::now();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let worlds = worlds(arguments).count();
    let worlds = u64::try_from(worlds)?;
    let jobs = match arguments.world {
        Some(_) => 1,
        None => arguments
            .jobs
            .unwrap_or(u64::try_from(cores)?)
            .clamp(1, worlds.max(1)),
    };
    let running: Vec<Mutex<Option<Child>>> = (0..jobs).map(|_| Mutex::default()).collect();
    let mut sums = Sums::default();
    std::thread::scope(|scope| {
        let (lines, told) = mpsc::channel();
        for (first, place) in (0..jobs).zip(&running) {
            let lines = lines.clone();
            scope.spawn(move || {
                if let Err(error) = run_share(arguments, first, jobs, place, &lines) {
                    let _ = lines.send((first, format!("failed share {first}: {error}")));
                }
            });
        }
        drop(lines);
        let mut current: BTreeMap<u64, String> = BTreeMap::new();
        loop {
            match told.recv_timeout(WORLD_LIMIT) {
                Ok((first, line)) => {
                    hear(
                        arguments,
                        &line,
                        current.entry(first).or_default(),
                        &mut sums,
                    );
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    println!("nothing was heard for {} s", WORLD_LIMIT.as_secs());
                    for child in &running {
                        let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
                        let _ = child.as_mut().map(Child::kill);
                    }
                }
            }
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    let [
        cuts,
        early,
        calls,
        promised,
        blocks,
        clones,
        commands,
        scans,
        rewinds,
    ] = sums.numbers;
    println!(
        "{cuts} cuts ({early} of them at import) in {} worlds, {calls} calls of which {promised} were promised, {blocks} blocks and {clones} clones of them verified, {commands} commands to devices, {scans} scans seen to end and {rewinds} rewinds to checkpoints: {} lost; \
         {seconds:.1} s, {:.0} cuts a minute",
        sums.worlds,
        sums.failed,
        f64::from(u32::try_from(cuts).unwrap_or(u32::MAX)) * 60.0 / seconds
    );
    Ok(sums.failed == 0 && cuts > 0)
}

/// Runs a share in one process after the other.
fn run_share(
    arguments: &Arguments,
    first: u64,
    jobs: u64,
    running: &Mutex<Option<Child>>,
    lines: &mpsc::Sender<(u64, String)>,
) -> Outcome<()> {
    let place = || running.lock().unwrap_or_else(PoisonError::into_inner);
    let (skipped, step) = (usize::try_from(first)?, usize::try_from(jobs)?);
    let count = worlds(arguments).skip(skipped).step_by(step).count();
    for from in (0..count).step_by(worlds_of_a_process(arguments)) {
        let mut child = start(&format!("{first}/{jobs}/{from}"))?;
        let out = child.stdout.take().ok_or("no output")?;
        *place() = Some(child);
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            lines.send((first, line))?;
        }
        let ended = place().take();
        let status = ended.map(|mut child| child.wait()).transpose()?;
        if let Some(status) = status.filter(|status| !status.success()) {
            lines.send((first, format!("ended {status}")))?;
            if arguments.stop {
                break;
            }
        }
    }
    Ok(())
}

/// Starts this program with the same options and a share.
fn start(share: &str) -> Outcome<Child> {
    Ok(Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg("--share")
        .arg(share)
        .stdout(Stdio::piped())
        .spawn()?)
}

/// The line that does a world again.
fn again(arguments: &Arguments, world: &str) -> String {
    let number = world.split(' ').next().unwrap_or_default();
    let mut line = format!("cargo xtask sim --seed {} --world {number}", arguments.seed);
    if arguments.each != 20 {
        line += &format!(" --each {}", arguments.each);
    }
    if let Some(length) = arguments.exhaustive {
        line += &format!(" --exhaustive {length}");
    }
    if arguments.devices {
        line += " --devices";
    }
    for (option, value) in [
        ("canary", &arguments.canary),
        ("layout", &arguments.layout),
        ("workload", &arguments.workload),
    ] {
        if let Some(value) = value {
            line += &format!(" --{option} {value}");
        }
    }
    line
}

/// Understands a line of a child.
fn hear(arguments: &Arguments, line: &str, current: &mut String, sums: &mut Sums) {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    match word {
        "begin" => *current = rest.to_string(),
        "end" => {
            sums.worlds += 1;
            for (sum, number) in sums.numbers.iter_mut().zip(rest.split(' ')) {
                *sum += number.parse().unwrap_or(0);
            }
            if arguments.verbose {
                println!("world {current}: {rest}");
            }
            current.clear();
        }
        "told" => println!("{rest}"),
        // One that has told of its failure is at no world.
        "ended" if current.is_empty() => {}
        "ended" => {
            sums.failed += 1;
            println!("world {current}: its process came down: {rest}");
            println!("again: {}", again(arguments, current));
            current.clear();
        }
        "failed" => {
            sums.failed += 1;
            println!("world {current} FAILED: {rest}");
            println!("again: {}", again(arguments, current));
            current.clear();
        }
        _ => println!("{line}"),
    }
}
