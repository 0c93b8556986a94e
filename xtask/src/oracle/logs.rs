//! Intent logs that we wrote and that were not replayed, for OpenZFS's kernel module to replay.
//!
//! # Mechanism
//! Pools without log device, with one, and with a mirror of them. In each a file system for every
//! way into the log; each gets changes of every kind ([`tarn_workload::logged`]), is listed, and at
//! once the daemon is killed: what was changed is in the logs only. OpenZFS's `zdb` must find each
//! kind of record there, or the test would show nothing. A copy of the images goes to the kernel
//! module; the pool itself is opened by the next daemon. What either has replayed must be what was
//! listed.
//!
//! The time of change of what is written or has other names is that of the replay, in OpenZFS as
//! well: it is left out.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tarn_oracle::instance::Instance;
use tarn_workload::logged;

use crate::changes::{self, Listing};
use crate::workspace::{Outcome, openzfs, programs, run, scratch};

/// By which `--only` knows them.
pub const NAME: &str = "logs";
/// Each pool's name, its data vdevs and its log vdevs. A word that begins with `/` is an image.
const POOLS: [(&str, &[&str]); 3] = [
    ("left-alone", &["/a"]),
    ("left-device", &["/a", "log", "/l"]),
    (
        "left-mirror",
        &["mirror", "/a", "/b", "log", "mirror", "/l", "/m"],
    ),
];
/// Ways into the log. The first may have groups stored instead, so it is changed first.
const DATASETS: [(&str, &str); 6] = [
    ("through", "-o logbias=throughput -o xattr=sa"),
    ("sa", "-o xattr=sa"),
    ("folders", "-o xattr=dir -o dnodesize=legacy"),
    ("small", "-o recordsize=4k -o compression=off"),
    ("always", "-o sync=always -o xattr=sa"),
    ("large", "-o recordsize=1m -o xattr=sa -o dnodesize=auto"),
];
/// What `zdb` must find in each log but the first.
const RECORDS: [&str; 11] = [
    "TX_CREATE",
    "TX_MKDIR",
    "TX_SYMLINK",
    "TX_REMOVE",
    "TX_RMDIR",
    "TX_LINK",
    "TX_RENAME",
    "TX_WRITE",
    "TX_TRUNCATE",
    "TX_SETATTR",
    "TX_CLONE_RANGE",
];
/// And in that of the file system in which attributes are in folders, or beside their file.
const RECORDS_OF_FOLDERS: &str = "TX_MKXATTR";
const RECORDS_OF_OTHERS: &str = "TX_SETSAXATTR";
/// A time that was set is before this, in nanoseconds: the year 2017.
const SET_BEFORE_NS: u64 = 1_500_000_000_000_000_000;
/// Sparse.
const IMAGE_BYTES: u64 = 512 << 20;
/// A group is stored at the latest so long after the one before; then the logs would be of no use.
const GROUP: Duration = Duration::from_secs(5);
/// A machine that is busy gets another chance.
const ATTEMPTS: u32 = 5;

/// Makes the pools in `share`, and gives what must be found in each.
pub fn leave(share: &Path, seed: u64) -> Outcome<Vec<(String, Listing)>> {
    let folder = scratch("oracle-logs");
    let instance = Instance::new(&programs(), &folder)?;
    let mut left = Vec::new();
    for (pool, words) in POOLS {
        let before = leave_one(&instance, &folder, pool, words, &share.join(pool), seed)?;
        left.push((pool.to_string(), before));
    }
    Ok(left)
}

fn leave_one(
    instance: &Instance,
    folder: &Path,
    pool: &str,
    words: &[&str],
    lent: &Path,
    seed: u64,
) -> Outcome<Listing> {
    let images = folder.join(pool);
    fs::create_dir_all(&images)?;
    let words: Vec<String> = words
        .iter()
        .map(|word| match word.strip_prefix('/') {
            Some(image) => images.join(image).display().to_string(),
            None => word.to_string(),
        })
        .collect();
    for image in words.iter().filter(|word| word.starts_with('/')) {
        fs::File::create(image)?.set_len(IMAGE_BYTES)?;
    }
    let mountpoint = instance.root().join(pool).display().to_string();
    let mut create = vec!["create", "-f", "-m", &mountpoint, pool];
    create.extend(words.iter().map(String::as_str));
    instance.must("zpool", &create)?;
    for (name, options) in DATASETS {
        instance.zfs(&format!("create -o acltype=posix {options} {pool}/{name}"))?;
    }
    let before = change_and_kill(instance, pool, seed)?;
    let copy = lent.join("images");
    fs::create_dir_all(lent)?;
    let mut cp = std::process::Command::new("cp");
    run(cp
        .args(["-r", "--sparse=always", "--reflink=auto"])
        .arg(&images)
        .arg(&copy))?;
    expect_records(&copy, pool)?;
    // The next daemon opens the pool by itself, and replays.
    instance.must("zpool", &["status", pool])?;
    let replayed = with_set_times(&changes::listing(instance, pool)?);
    changes::expect_same("after our own replay", &before, &replayed)?;
    instance.must("zpool", &["destroy", pool])?;
    Ok(before)
}

/// Changes all file systems, lists them, and kills the daemon before a group is stored.
fn change_and_kill(instance: &Instance, pool: &str, seed: u64) -> Outcome<Listing> {
    // A folder for each attempt, so that an earlier one does no harm.
    let place = |name: &str, attempt: u32| {
        let mount = instance.root().join(pool).join(name);
        mount.join(format!("attempt-{attempt}"))
    };
    for attempt in 0..ATTEMPTS {
        for (number, (name, _)) in (0..).zip(DATASETS) {
            let place = place(name, attempt);
            fs::create_dir(&place)?;
            logged::prepare(&place, seed + number)?;
        }
        instance.must("zpool", &["sync", pool])?;
        let began = Instant::now();
        let mut absent = Vec::new();
        for (number, (name, _)) in (0..).zip(DATASETS) {
            absent.extend(logged::change(&place(name, attempt), seed + number)?);
        }
        let before = with_set_times(&changes::listing(instance, pool)?);
        let took = began.elapsed();
        if took < GROUP {
            if !instance.kill_daemon() {
                return Err("there was no daemon to kill: it ended by itself".into());
            }
            absent.sort_unstable();
            absent.dedup();
            let absent = match absent[..] {
                [] => String::new(),
                _ => format!(", without {}", absent.join(", ")),
            };
            let seconds = took.as_secs_f64();
            println!("  {pool}: changed and listed in {seconds:.1} s{absent}");
            return Ok(before);
        }
    }
    Err(format!(
        "{ATTEMPTS} times the changes took longer than {} s",
        GROUP.as_secs()
    )
    .into())
}

/// OpenZFS's `zdb` reads the logs.
fn expect_records(images: &Path, pool: &str) -> Outcome {
    let (tools, place) = (openzfs()?, images.display().to_string());
    for (name, _) in &DATASETS[1..] {
        let dataset = format!("{pool}/{name}");
        let words = ["-e", "-p", &place, "-iiiii", &dataset];
        let spoken = tools.run("zdb", &words, Duration::from_secs(300))?;
        let attributes = match *name {
            "folders" => RECORDS_OF_FOLDERS,
            _ => RECORDS_OF_OTHERS,
        };
        let wanted = RECORDS.into_iter().chain([attributes]);
        let mut missing: Vec<&str> = wanted
            .filter(|record| !spoken.stdout.contains(record))
            .collect();
        if *name == "folders" && !has_block_without_records(&spoken.stdout) {
            missing.push("a block without records before others");
        }
        if !missing.is_empty() {
            return Err(format!(
                "OpenZFS's zdb does not find in the log of {dataset}: {}",
                missing.join(", ")
            )
            .into());
        }
    }
    Ok(())
}

/// Whether `zdb -iiiii` tells of a block that nothing is in, and of another one after it that
/// something is in.
fn has_block_without_records(told: &str) -> bool {
    let lines = told.lines().map(str::trim_start);
    let told: Vec<bool> = lines
        .filter(|line| line.starts_with("Block seqno") || line.contains(" len "))
        .map(|line| line.starts_with("Block"))
        .collect();
    told.windows(3).any(|three| three == [true, true, false])
}

/// A listing without times of change but those that were set, in [`logged`] long ago.
pub fn with_set_times(listing: &Listing) -> Listing {
    const FIELD: &str = ", \"mtime_ns\": ";
    let strip = |line: &String| {
        let Some((before, rest)) = line.split_once(FIELD) else {
            return line.clone();
        };
        let end = rest.find(',').unwrap_or(rest.len());
        let is_set = rest[..end]
            .parse()
            .is_ok_and(|time: u64| time < SET_BEFORE_NS);
        match is_set {
            true => line.clone(),
            false => format!("{before}{}", &rest[end..]),
        }
    };
    let each =
        |(name, lines): (&String, &Vec<String>)| (name.clone(), lines.iter().map(strip).collect());
    listing.iter().map(each).collect()
}
