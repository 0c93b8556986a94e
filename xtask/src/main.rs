//! `cargo xtask TASK`: every script of the project, as one typed program.
//!
//! # Map
//! One file a task. [`workspace`] knows where things are and tells how long each step took. The
//! tasks that judge the file system drive it from outside only: its commands, its daemon, its
//! mounts.

mod bench;
mod build;
mod changes;
mod ci;
mod conformance;
mod debian_packages;
mod demo;
mod fuzz;
mod golden;
mod golden_status;
mod golden_streams;
mod hostile;
mod oracle;
mod package;
mod scale;
mod servers;
mod sim;
mod streams;
mod tidy;
mod web_page;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Everything that is done to this checkout"
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build tarnd, tarn, zpool, zfs, zdb and zstream into target/release
    Build,
    /// A pool, real files, a listing, a verdict: the first five minutes
    Demo(demo::Arguments),
    /// Measure us beside zfs-fuse, btrfs, xfs and ext4, and parity beside OpenZFS's
    Bench(bench::Arguments),
    /// A million files, ten thousand datasets, and the memory they take
    Scale(scale::Arguments),
    /// Everything that must pass before a change lands
    Ci,
    /// Hold the layers, the doors and the ratchets; print what stands out in length
    Tidy(tidy::Arguments),
    /// Read pools that OpenZFS made, through our mounts, and compare with what OpenZFS saw
    Golden(golden::Arguments),
    /// Damage pools, and demand that nothing worse than an error comes of it
    Hostile(hostile::Arguments),
    /// Search for bytes that break a decoder, guided by the code they reach; and whole images with
    /// lies that verify
    Fuzz(fuzz::Arguments),
    /// Cut the power of simulated machines, and demand that nothing promised is lost
    Sim(sim::Arguments),
    /// Make and change pools, and have OpenZFS judge them
    Oracle(oracle::Arguments),
    /// Suites of others, and crashes, on a mount
    Conformance(conformance::Arguments),
    /// Make a Debian package of the programs, with units for systemd, man pages and completions
    Package(package::Arguments),
    /// Make the page for browsers from its TypeScript, or check that it is what that gives
    Page(web_page::Arguments),
    /// Run one of OpenZFS's own programs, unpacked and not installed
    #[command(disable_help_flag = true)]
    Openzfs {
        /// zdb, raidz_test, zstream, ...
        program: String,
        /// Its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

fn main() -> ExitCode {
    if fuzz::is_compiler() {
        return fuzz::compile();
    }
    let outcome = match Arguments::parse().task {
        Task::Build => build::build(),
        Task::Demo(arguments) => demo::demo(&arguments),
        Task::Bench(arguments) => bench::bench(&arguments),
        Task::Scale(arguments) => scale::scale(&arguments),
        Task::Ci => ci::ci(),
        Task::Tidy(arguments) => tidy::tidy(&arguments),
        Task::Golden(arguments) => golden::golden(&arguments),
        Task::Hostile(arguments) => hostile::hostile(&arguments),
        Task::Fuzz(arguments) => fuzz::fuzz(&arguments),
        Task::Sim(arguments) => sim::sim(&arguments),
        Task::Oracle(arguments) => oracle::oracle(&arguments),
        Task::Conformance(arguments) => conformance::conformance(&arguments),
        Task::Package(arguments) => package::package(&arguments),
        Task::Page(arguments) => web_page::page(&arguments),
        Task::Openzfs { program, arguments } => openzfs(&program, &arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn openzfs(program: &str, arguments: &[String]) -> workspace::Outcome {
    workspace::run(workspace::openzfs()?.command(program)?.args(arguments))
}
