//! Searches for bytes that break a decoder, guided by the code that they reach.
//!
//! # Problem
//! See the library. The usual engines need a C++ compiler or a nightly toolchain, or bring a
//! framework of a hundred crates; a fresh machine has stable Rust and a C compiler.
//!
//! # Mechanism
//! The compiler itself can count which edges of the code are run, and call out at each comparison
//! (SanitizerCoverage, a pass of LLVM that stable `rustc` runs when told). What it needs at the
//! other end are a few functions: [`coverage`]. On top of them is what every such engine does: keep
//! the inputs that reached something new, change them at random ([`mutation`]), run the result
//! ([`run`]), keep what reached something new again ([`corpus`]). Structures of real pools are
//! where it begins.
//!
//! A *worker* does that in a process of its own, for a process that has no stack or no memory left
//! cannot tell. Its *supervisor* ([`supervise`]) starts it again behind what ended it, and makes
//! what was found small ([`minimise`]).
//!
//! # Invariants
//! - The decoders are watched, this program is not: the functions that are called at comparisons
//!   would call themselves.
//! - What is tried follows from the seed and the inputs it begins with; only where it ends follows
//!   from the clock.

mod corpus;
mod coverage;
mod memory;
mod minimise;
mod mutation;
mod run;
mod supervise;
mod work;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

/// Searches for bytes that break decoders: `cargo xtask fuzz` builds and starts it as it must be
#[derive(Debug, Clone, Parser)]
struct Arguments {
    /// Only this target; may be given more than once. Without it, all
    #[arg(long)]
    target: Vec<String>,
    /// How long each target is searched
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// From which all chance follows
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run this one input and tell what comes of it
    #[arg(long)]
    input: Option<PathBuf>,
    /// Tell the targets
    #[arg(long)]
    list: bool,
    /// Where pieces of pools, inputs that reached something and findings are
    #[arg(long, default_value = "target/fuzz")]
    folder: PathBuf,
    /// Inputs that broke something once: the first that are run
    #[arg(long, default_value = "testing/fuzz/regressions")]
    regressions: PathBuf,
    /// Search in this process
    #[arg(long, hide = true)]
    worker: bool,
}

/// The answer of everything here: nothing, or a failure to show.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

impl Arguments {
    /// A folder for one target.
    fn folder_of(&self, what: &str, target: &tarn_fuzz::Target) -> PathBuf {
        self.folder.join(what).join(target.name)
    }
}

fn main() -> ExitCode {
    match start(&Arguments::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Does what was asked, and gives back how many findings there are.
fn start(arguments: &Arguments) -> Outcome<usize> {
    if arguments.list {
        for target in tarn_fuzz::ALL {
            println!("{:14} {}", target.name, target.about);
        }
        return Ok(0);
    }
    let targets = chosen(&arguments.target)?;
    match (&arguments.input, targets.as_slice()) {
        (Some(path), [target]) => run::one(target, &std::fs::read(path)?),
        (Some(_), _) => Err("an input is for one target: --target NAME --input FILE".into()),
        (None, [target]) if arguments.worker => work::work(arguments, target).map(|()| 0),
        (None, targets) => supervise::all(arguments, targets),
    }
}

fn chosen(names: &[String]) -> Outcome<Vec<&'static tarn_fuzz::Target>> {
    if names.is_empty() {
        return Ok(tarn_fuzz::ALL.iter().collect());
    }
    let find = |name: &String| {
        let known = || {
            tarn_fuzz::ALL
                .iter()
                .map(|target| target.name)
                .collect::<Vec<_>>()
        };
        tarn_fuzz::find(name).ok_or_else(|| {
            format!(
                "there is no target {name}; there are: {}",
                known().join(" ")
            )
            .into()
        })
    };
    names.iter().map(find).collect()
}

/// The files of a folder, by name; none of a folder that is not there.
fn files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}
