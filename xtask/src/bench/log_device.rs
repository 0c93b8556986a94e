//! What a log device is worth: durable writes to a pool on a slow disk, without one and with one in
//! memory.
//!
//! # Mechanism
//! The pool's only disk takes [`SLOW_MS`] for whatever is asked of it, one thing at a time
//! (`TARN_SLOW_DEVICES` of the daemon). Threads write 4 KiB with `O_DSYNC`, first without a log
//! device and then, after `zpool add … log`, with one.
//!
//! # Bars
//! With it there are at least [`MORE`] times the writes, and each takes at most the [`SHORTER`]th
//! part of the time.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use tarn_oracle::instance::Instance;
use tarn_workload::load::synced::{self, Synced};

use crate::workspace::{Outcome, programs, scratch};

/// What is asked for to have this measured.
pub const NAME: &str = "log device";

const SLOW_MS: u32 = 8;
const MORE: f64 = 12.0;
const SHORTER: f64 = 20.0;
const THREADS: [u32; 3] = [1, 8, 64];
const DISK_BYTES: u64 = 8 << 30;
const START_LIMIT: Duration = Duration::from_secs(30);

/// Measures each for so long, prints, and gives the bars that were not reached.
pub fn measure(memory: &Path, time: Duration) -> Outcome<Vec<String>> {
    let (slow, fast) = (memory.join("slow"), memory.join("log"));
    fs::create_dir_all(&slow)?;
    let disk = slow.join("disk.img");
    for image in [&disk, &fast] {
        File::create(image)?.set_len(DISK_BYTES)?;
    }
    let instance = Instance::new(&programs(), &scratch("bench-log"))?;
    let slowed = format!("{SLOW_MS}:{}", slow.display());
    instance.start_daemon_with(&[], &[("TARN_SLOW_DEVICES", &slowed)], START_LIMIT)?;
    let mount = instance.root().join("slow");
    instance.zpool(&format!(
        "create -f -o ashift=12 -O compression=off -O atime=off -m {} slow {}",
        mount.display(),
        disk.display()
    ))?;
    let by_threads = || -> Outcome<Vec<Synced>> {
        let run = |threads| Ok(synced::write(&mount, threads, u32::MAX, time)?);
        THREADS.into_iter().map(run).collect()
    };
    let without = by_threads()?;
    instance.zpool(&format!("add -f slow log {}", fast.display()))?;
    let with = by_threads()?;
    instance.zpool("destroy -f slow")?;
    for image in [&disk, &fast] {
        fs::remove_file(image)?;
    }
    println!(
        "\n4 KiB O_DSYNC on a disk that takes {SLOW_MS} ms, without a log device and with one in memory: {} s each",
        time.as_secs()
    );
    println!(
        "{:<8} {:>10} {:>12} {:>10} {:>12} {:>8} {:>8}",
        "threads", "op/s", "median us", "op/s", "median us", "more", "shorter"
    );
    let rows = THREADS.into_iter().zip(without).zip(with);
    Ok(rows
        .filter_map(|((threads, without), with)| judge(threads, &without, &with))
        .collect())
}

fn judge(threads: u32, without: &Synced, with: &Synced) -> Option<String> {
    let facts = |synced: &Synced| {
        let median = synced.median().as_secs_f64() * 1e6;
        (synced.done.per_second(), median.max(0.001))
    };
    let ((before, long), (after, short)) = (facts(without), facts(with));
    let (more, shorter) = (after / before, long / short);
    let passed = more >= MORE && shorter >= SHORTER;
    let verdict = if passed { "PASS" } else { "FAIL" };
    println!(
        "{threads:<8} {before:>10.0} {long:>12.0} {after:>10.0} {short:>12.0} {more:>8.1} {shorter:>8.1}  at least {MORE} and {SHORTER}: {verdict}"
    );
    (!passed).then(|| {
        format!("{NAME}: {threads} threads ({more:.1} of {MORE}, {shorter:.1} of {SHORTER})")
    })
}
