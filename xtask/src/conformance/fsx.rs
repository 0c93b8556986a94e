//! `fsx`: one file, changed at random beside a model, with mappings and holes.
//!
//! # Mechanism
//! The suite of the name and our own workload ([`tarn_workload::fsx`]), which looks for data and
//! holes too, each with several seeds at the same time: the file systems below differ in record
//! size and compression, and files are made durable while others are being changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tarn_oracle::instance::Instance;
use tarn_oracle::program;
use tarn_workload::fsx::{Plan, run};

use super::suite::Suite;
use super::{Arguments, POOL, make_pool};
use crate::workspace::{Outcome, programs, scratch};

const SUITE: Suite = Suite {
    name: "fsx",
    version: "0.3.2",
};

/// Everything it can do to a file, as often as its own defaults, and what those leave out.
const CONFIGURATION: &str = "\
[opsize]
min = 1
max = 65536
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 5
fsync = 0.1
fdatasync = 0.1
posix_fallocate = 3
punch_hole = 5
sendfile = 5
posix_fadvise = 2
copy_file_range = 5
";

/// The file systems that seeds take in turn.
const DATASETS: [&str; 4] = [
    "-o recordsize=128k",
    "-o recordsize=4k -o compression=off",
    "-o recordsize=1m -o compression=zstd",
    "-o recordsize=16k -o checksum=sha256",
];

/// How long a run of all seeds may take.
const LIMIT: Duration = Duration::from_secs(3600);

/// Runs both on a mount, every seed on a file of its own.
pub fn fsx(arguments: &Arguments) -> Outcome {
    let folder = scratch("conformance-fsx");
    let instance = Instance::new(&programs(), &folder)?;
    let _watchdog = instance.watchdog("fsx", LIMIT);
    let mount = instance.root().join("pool");
    make_pool(&instance, &folder.join("images"), &mount)?;
    for (index, properties) in DATASETS.iter().enumerate() {
        instance.zfs(&format!("create {properties} {POOL}/{index}"))?;
    }
    let configuration = folder.join("fsx.toml");
    fs::write(&configuration, CONFIGURATION)?;
    let suite = SUITE.program()?;
    let passed_over_bytes = AtomicU64::new(0);
    let failures = every_seed(arguments, |seed| {
        let place = mount.join((seed % DATASETS.len() as u64).to_string());
        let theirs = run_suite(&suite, &configuration, &place, seed, arguments.operations);
        let plan = Plan::new(seed, arguments.operations);
        let ours = run(&place.join(format!("ours-{seed}")), &plan);
        let ours = ours.map(|bytes| passed_over_bytes.fetch_add(bytes, Ordering::Relaxed));
        let ours = ours.map_err(|failure| failure.to_string());
        theirs.err().into_iter().chain(ours.err()).collect()
    });
    if !failures.is_empty() {
        return Err(failures.join("\n").into());
    }
    let passed_over_bytes = passed_over_bytes.into_inner();
    if passed_over_bytes == 0 {
        return Err("no walk was shown a hole: what is said of holes was not tested".into());
    }
    println!(
        "  {} seeds of {} operations, by fsx and by our own; {} MiB passed over as holes",
        arguments.seeds,
        arguments.operations,
        passed_over_bytes >> 20
    );
    instance.must("zpool", &["destroy", POOL])?;
    drop(instance);
    if !arguments.keep {
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// Runs a test with every seed at the same time, and gives what they say.
fn every_seed(arguments: &Arguments, test: impl Fn(u64) -> Vec<String> + Sync) -> Vec<String> {
    let seeds: Vec<u64> = (0..arguments.seeds)
        .map(|index| arguments.seed + index)
        .collect();
    thread::scope(|scope| {
        let test = &test;
        let threads: Vec<_> = seeds
            .iter()
            .map(|&seed| scope.spawn(move || test(seed)))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Vec<String>>| {
            thread
                .join()
                .unwrap_or_else(|_| vec!["a test panicked".to_string()])
        };
        threads.into_iter().flat_map(join).collect()
    })
}

fn run_suite(
    suite: &Path,
    configuration: &Path,
    place: &Path,
    seed: u64,
    operations: u64,
) -> Result<(), String> {
    let artifacts: PathBuf = configuration.with_file_name(format!("fsx-{seed}"));
    fs::create_dir_all(&artifacts).map_err(|error| error.to_string())?;
    let mut command = std::process::Command::new(suite);
    command
        .arg("-f")
        .arg(configuration)
        .args(["-S", &seed.to_string(), "-N", &operations.to_string()])
        .arg("-P")
        .arg(&artifacts)
        .arg(place.join(format!("theirs-{seed}")))
        .env("NO_COLOR", "1");
    let spoken = program::run(&mut command, LIMIT).map_err(|error| error.to_string())?;
    match spoken.succeeded() {
        true => Ok(()),
        false => Err(spoken.expect_success().expect_err("it failed").to_string()),
    }
}
