//! `cargo xtask fuzz`: every decoder on bytes that are searched for, and whole images with lies
//! that verify.
//!
//! # Mechanism
//! What is searched, and how, is in `testing/fuzz`; whole images are the rounds of
//! `testing/hostile`. Decoders must be built with counters in them, and the rest must not. Cargo
//! has no setting for that on stable Rust, but asks a program of our choice to call the compiler
//! for the crates of the workspace: that program is this one ([`compile`]). Cargo keeps what was
//! built so apart from the rest, and builds other people's crates once for both.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Args;

use crate::workspace::{Outcome, cargo, checkout, program_of_checks, run, target};

/// Set for the inner Cargo, so that this program knows that it is called in place of the compiler.
const AS_COMPILER: &str = "TARN_FUZZ_COMPILES";

/// The program that searches.
const ENGINE: &str = "tarn-fuzz-engine";

/// The crates that are watched: those with decoders, and the targets, in which generic code of
/// decoders is compiled.
const WATCHED: [&str; 7] = [
    "tarn_ondisk",
    "tarn_transform",
    "tarn_vdev",
    "tarn_iscsi",
    "tarn_nbd",
    "tarn_nfs",
    "tarn_fuzz",
];

/// Crates that are neither watched nor slow: what the search itself runs.
const SEARCHING: [&str; 2] = ["tarn_fuzz_engine", "tarn_host"];

/// What the compiler is told for all others, which the front ends of decoders are linked with and
/// which run little or nothing: to translate them fast is worth more than what they gain.
const UNWATCHED_FLAGS: [&str; 2] = ["-Copt-level=0", "-Cdebuginfo=0"];

/// What the compiler is told for them: a counter for each edge, a call at each comparison.
/// Arithmetic that overflows still panics.
const FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=3",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Copt-level=2",
    "-Ccodegen-units=16",
];

/// A target that is no decoder: rounds of `testing/hostile`.
struct Rounds {
    name: &'static str,
    /// What its subjects have in their names.
    only: &'static str,
    /// What the small budget has for it.
    small_seconds: u64,
    what: &'static str,
}

const ROUNDS: [Rounds; 2] = [
    Rounds {
        name: "image",
        only: " lies",
        small_seconds: 30,
        what: "whole pools: lies with right checksums, then imported, read and changed",
    },
    Rounds {
        name: "receive",
        only: " streams",
        small_seconds: 15,
        what: "streams: lies with right checksums, received into a pool that must be whole afterwards",
    },
];

/// What the small budget has for each decoder: with the build and the rounds below two minutes.
const SMALL_SECONDS: u64 = 1;

/// What to search, and how long
#[derive(Debug, Args)]
pub struct Arguments {
    /// Only this target: a decoder (see --list), `image` or `receive`. May be given more than once
    #[arg(long)]
    target: Vec<String>,
    /// How long each target is searched
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// From which all chance follows
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run this one input of the decoder named by --target, and tell what comes of it
    #[arg(long)]
    input: Option<PathBuf>,
    /// Tell the targets
    #[arg(long)]
    list: bool,
    /// Pieces of pools are cut again, and what earlier searches kept is forgotten
    #[arg(long)]
    fresh: bool,
}

/// Searches as asked.
pub fn fuzz(arguments: &Arguments) -> Outcome {
    let folder = target().join("fuzz");
    if arguments.fresh {
        for part in ["pieces", "corpus"] {
            crate::workspace::remove_folder(&folder.join(part))?;
        }
    }
    let is_search = arguments.input.is_none() && !arguments.list;
    let is_rounds = |name: &&String| ROUNDS.iter().any(|rounds| rounds.name == name.as_str());
    let (rounds, decoders): (Vec<&String>, Vec<&String>) =
        arguments.target.iter().partition(is_rounds);
    let is_everything = arguments.target.is_empty();
    if is_everything || !decoders.is_empty() {
        if is_search && !folder.join("pieces").is_dir() {
            hostile(&["--cut", &folder.join("pieces").display().to_string()])?;
        }
        let mut engine = engine()?;
        engine
            .args(decoders.iter().flat_map(|name| ["--target", name]))
            .args(["--seconds", &arguments.seconds.to_string()])
            .args(["--seed", &arguments.seed.to_string()])
            .args(arguments.list.then_some("--list"))
            .args(
                arguments
                    .input
                    .iter()
                    .flat_map(|path| ["--input".into(), path.clone()]),
            )
            .arg("--folder")
            .arg(&folder);
        run(&mut engine)?;
    }
    for target in ROUNDS {
        if arguments.list {
            println!("{:14} {}", target.name, target.what);
        }
        let is_wanted = is_everything || rounds.iter().any(|name| *name == target.name);
        if is_search && is_wanted {
            search(&target, arguments.seconds, arguments.seed)?;
        }
    }
    Ok(())
}

/// What a change must pass: a look at every target, from the beginning.
pub fn small() -> Outcome {
    fuzz(&Arguments {
        target: Vec::new(),
        seconds: SMALL_SECONDS,
        seed: 1,
        input: None,
        list: false,
        fresh: true,
    })
}

/// Rounds on all subjects of a target, until the time is over.
fn search(target: &Rounds, seconds: u64, seed: u64) -> Outcome {
    let seconds = seconds.max(target.small_seconds).to_string();
    hostile(&[
        "--only",
        target.only,
        "--seconds",
        &seconds,
        "--seed",
        &seed.to_string(),
    ])
}

fn hostile(options: &[&str]) -> Outcome {
    let mut command = program_of_checks("tarn-hostile")?;
    run(command.args(options).arg("--checkout").arg(checkout()))
}

/// The engine, built with counters in the decoders.
fn engine() -> Outcome<Command> {
    let mut build = cargo(&["build", "--quiet", "--workspace", "--bin", ENGINE]);
    run(build
        .env("RUSTC_WORKSPACE_WRAPPER", std::env::current_exe()?)
        .env(AS_COMPILER, "1"))?;
    // The same program without counters has the same name; a copy stays what it is.
    let (built, engine) = (
        target().join("debug").join(ENGINE),
        target().join("fuzz/engine"),
    );
    std::fs::create_dir_all(target().join("fuzz"))?;
    std::fs::copy(built, &engine)?;
    let mut command = Command::new(engine);
    command.current_dir(checkout());
    Ok(command)
}

/// Whether this program is called in place of the compiler.
pub fn is_compiler() -> bool {
    std::env::var_os(AS_COMPILER).is_some()
}

/// Calls the compiler as Cargo wants it, with more flags for the crates that are watched.
pub fn compile() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(compiler) = arguments.next() else {
        eprintln!("{AS_COMPILER} is for the Cargo that `cargo xtask fuzz` starts");
        return ExitCode::FAILURE;
    };
    let arguments: Vec<_> = arguments.collect();
    let is_one_of = |names: &[&str]| {
        let is_name =
            |pair: &[_]| pair[0] == "--crate-name" && names.iter().any(|name| pair[1] == *name);
        arguments.windows(2).any(is_name)
    };
    let mut command = Command::new(compiler);
    command.args(&arguments);
    if is_one_of(&WATCHED) {
        command.args(FLAGS);
    } else if !is_one_of(&SEARCHING) {
        command.args(UNWATCHED_FLAGS);
    }
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("the compiler cannot be started: {error}");
            ExitCode::FAILURE
        }
    }
}
