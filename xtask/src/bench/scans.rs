//! The rate of a scrub and of a resilver, beside that of OpenZFS's `zdb -bcc` on the same pool.
//!
//! # Mechanism
//! A mirror of two disks in memory takes files of 2 to 200 KiB; half of them are removed and
//! written anew, so that logical order is not the order of the disk. In each round `zdb -bcc` reads
//! the exported pool and verifies every checksum, a scrub does the same here, and one disk is
//! replaced by an empty one. Each rate is the allocated space by the time taken: a scrub reads
//! every copy, `zdb` one of each block.
//!
//! # Bars
//! The scrub and the resilver are each at least [`MORE`] times as fast as `zdb -bcc`: the medians
//! of the rounds decide.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tarn_oracle::instance::Instance;

use super::table::{median, rate};
use crate::workspace::{Outcome, openzfs, programs, scratch};

/// What is asked for to have this measured.
pub const NAME: &str = "scans";

const POOL: &str = "scanned";
const MORE: f64 = 5.0;
const DISK_BYTES: u64 = 6 << 30;
const LIMIT: Duration = Duration::from_secs(1800);
/// The sizes of files, in KiB, in turn.
const FILE_KIB: [usize; 6] = [2, 8, 20, 60, 130, 200];
const FILES_IN_FOLDER: usize = 1000;

/// How much is done.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// How many files the pool has.
    pub files: usize,
    /// How often each is measured.
    pub rounds: usize,
}

impl Extent {
    /// What the bars are about.
    pub const FULL: Extent = Extent {
        files: 30_000,
        rounds: 3,
    };
    /// A look.
    pub const QUICK: Extent = Extent {
        files: 4000,
        rounds: 1,
    };
}

/// MiB each second of one round.
struct Rates {
    zdb: f64,
    scrub: f64,
    resilver: f64,
}

/// Measures, prints, and gives the bars that were not reached.
pub fn measure(memory: &Path, extent: Extent) -> Outcome<Vec<String>> {
    let images = memory.join(NAME);
    fs::create_dir_all(&images)?;
    let disk = |number: usize| images.join(format!("{number}.img"));
    let instance = Instance::new(&programs(), &scratch("bench-scans"))?;
    for number in 0..2 {
        File::create(disk(number))?.set_len(DISK_BYTES)?;
    }
    let mount = instance.root().join(POOL);
    let (first, second) = (disk(0), disk(1));
    instance.zpool(&format!(
        "create -f -o ashift=12 -O compression=off -O atime=off -m {} {POOL} mirror {} {}",
        mount.display(),
        first.display(),
        second.display()
    ))?;
    fill(&mount, extent.files)?;
    let mut rounds = Vec::new();
    for round in 0..extent.rounds {
        let (goes, comes) = (disk(round + 1), disk(round + 2));
        rounds.push(one_round(&instance, &images, &goes, &comes)?);
    }
    instance.zpool(&format!("destroy -f {POOL}"))?;
    fs::remove_dir_all(&images)?;
    Ok(judge(&rounds, extent))
}

fn fill(mount: &Path, files: usize) -> Outcome {
    let bytes = (0..FILE_KIB[FILE_KIB.len() - 1] * 256).flat_map(|word| {
        let word = u32::try_from(word).expect("a file has fewer words");
        word.wrapping_mul(0x9E37_79B1).to_le_bytes()
    });
    let bytes: Vec<u8> = bytes.collect();
    let path = |file: usize| -> PathBuf {
        let folder = mount.join((file / FILES_IN_FOLDER).to_string());
        folder.join(file.to_string())
    };
    let write = |file: usize, turn: usize| -> Outcome {
        let kib = FILE_KIB[(file + turn) % FILE_KIB.len()];
        fs::write(path(file), &bytes[..kib * 1024])?;
        Ok(())
    };
    for file in 0..files {
        if file % FILES_IN_FOLDER == 0 {
            fs::create_dir_all(path(file).parent().expect("files are in folders"))?;
        }
        write(file, 0)?;
    }
    for file in (0..files).step_by(2) {
        fs::remove_file(path(file))?;
    }
    for file in (0..files).step_by(2) {
        write(file, 1)?;
    }
    Ok(())
}

fn one_round(instance: &Instance, images: &Path, goes: &Path, comes: &Path) -> Outcome<Rates> {
    let folder = images.display().to_string();
    instance.zpool(&format!("export {POOL}"))?;
    let began = Instant::now();
    let zdb = openzfs()?.run("zdb", &["-e", "-p", &folder, "-bcc", POOL], LIMIT)?;
    let by_zdb = began.elapsed();
    if !zdb.stdout.contains("No leaks") {
        return Err(format!("zdb -bcc: {}{}", zdb.stdout, zdb.stderr).into());
    }
    instance.zpool(&format!("import -d {folder} {POOL}"))?;
    let allocated = instance.zpool(&format!("list -Hp -o alloc {POOL}"))?;
    let allocated: f64 = allocated.stdout.trim().parse()?;
    let timed = |line: &str| -> Outcome<Duration> {
        let began = Instant::now();
        instance.zpool(line)?;
        Ok(began.elapsed())
    };
    let by_scrub = timed(&format!("scrub -w {POOL}"))?;
    File::create(comes)?.set_len(DISK_BYTES)?;
    let by_resilver = timed(&format!(
        "replace -w {POOL} {} {}",
        goes.display(),
        comes.display()
    ))?;
    let status = instance.zpool(&format!("status {POOL}"))?.stdout;
    if !status.contains("errors: No known data errors") || status.contains("replacing") {
        return Err(format!("after the scans: {status}").into());
    }
    fs::remove_file(goes)?;
    let rate = |time: Duration| allocated / f64::from(1 << 20) / time.as_secs_f64();
    Ok(Rates {
        zdb: rate(by_zdb),
        scrub: rate(by_scrub),
        resilver: rate(by_resilver),
    })
}

type RateOf = fn(&Rates) -> f64;

fn judge(rounds: &[Rates], extent: Extent) -> Vec<String> {
    println!(
        "\n{NAME}: MiB/s of allocated space, mirror of 2 disks in memory, {} files, {} rounds",
        extent.files, extent.rounds
    );
    println!(
        "{:<10} {:>8} {:>12} {:>8}",
        "", "MiB/s", "zdb -bcc", "ratio"
    );
    let of = |rate: RateOf| median(rounds.iter().map(rate).collect());
    let scans: [(&str, RateOf); 2] = [
        ("scrub", |rates| rates.scrub),
        ("resilver", |rates| rates.resilver),
    ];
    let mut failed = Vec::new();
    for (name, of_scan) in scans {
        let ratios = rounds.iter().map(|rates| of_scan(rates) / rates.zdb);
        let ratio = median(ratios.collect()).unwrap_or(0.0);
        let verdict = if ratio >= MORE { "PASS" } else { "FAIL" };
        println!(
            "{name:<10} {:>8} {:>12} {ratio:>8.1}  at least {MORE}: {verdict}",
            rate(of(of_scan)),
            rate(of(|rates| rates.zdb))
        );
        if ratio < MORE {
            failed.push(format!("{name} ({ratio:.1} of {MORE} times zdb -bcc)"));
        }
    }
    failed
}
