//! No picket fence: whether cached reads and durable writes become slower while a
//! transaction group is being stored.
//!
//! # Mechanism
//! A file system is written to at a steady rate, so that a group is stored every few seconds, while
//! one thread reads pages that are in our cache (with `O_DIRECT`, or the kernel would answer) and
//! another writes pages with `O_DSYNC`. The disk has all of its memory before: a real one has its
//! sectors. Each call is timed. Afterwards the daemon's table of groups says when which was stored,
//! on the same clock, and calls are told apart by that: those that met a group being stored, and
//! those between.
//!
//! # Bar
//! The 99.9th percentile of those that met one is at most [`BAR`] times that of those between.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::ROUNDS_MORE;
use super::peers::{Peer, Tarn};
use crate::workspace::Outcome;

/// What is asked for to have this measured.
pub const NAME: &str = "picket fence";

/// How many times the percentile between groups that while one is stored may be.
const BAR: f64 = 2.0;

const PAGE_BYTES: usize = 4096;

/// What is read.
const CACHED_BYTES: u64 = 128 << 20;

/// What is written over and over, and how long each MiB of it takes: 24 MiB a second.
const STEADY_MIB: u64 = 256;
const STEADY_PACE: Duration = Duration::from_micros(1_000_000 / 24);

/// Between two calls of the reading and the writing thread, so that they do not take all
/// processors.
const PAUSE: Duration = Duration::from_micros(200);

/// A call: when it began and when it was answered, in nanoseconds of the monotonic clock.
type Call = (u64, u64);

/// What was seen of everything that goes on at the same time.
#[derive(Default)]
struct Watched {
    reads: Vec<Call>,
    writes: Vec<Call>,
    /// From when to when each group was stored.
    groups: Vec<Call>,
}

impl Watched {
    fn extend(&mut self, other: Watched) {
        self.reads.extend(other.reads);
        self.writes.extend(other.writes);
        // The daemon remembers those of before, too.
        self.groups.extend(other.groups);
        self.groups.sort_unstable();
        self.groups.dedup();
    }

    /// The calls of each kind, told apart.
    fn split(&self) -> [(&'static str, Split); 2] {
        [
            ("cached read", Split::of(&self.reads, &self.groups)),
            ("O_DSYNC write", Split::of(&self.writes, &self.groups)),
        ]
    }
}

/// How long the calls of one kind took, each list in order.
struct Split {
    storing: Vec<u64>,
    between: Vec<u64>,
}

impl Split {
    fn of(calls: &[Call], groups: &[Call]) -> Split {
        let meets = |call: &&Call| {
            groups
                .iter()
                .any(|group| call.0 < group.1 && group.0 < call.1)
        };
        let took = |call: &Call| call.1 - call.0;
        let mut storing: Vec<u64> = calls.iter().filter(meets).map(took).collect();
        let mut between: Vec<u64> = calls.iter().filter(|call| !meets(call)).map(took).collect();
        storing.sort_unstable();
        between.sort_unstable();
        Split { storing, between }
    }

    fn ratio(&self) -> f64 {
        percentile(&self.storing, 999) / percentile(&self.between, 999)
    }

    /// Not a number where nothing was compared, which passes nowhere.
    fn passes(&self) -> bool {
        self.ratio() <= BAR
    }
}

/// Measures for so long, prints, and gives the bars that were not reached.
///
/// Few calls meet a group, so the slowest of them decide: if these reach no bar, it goes on until
/// there are [`ROUNDS_MORE`] times as many.
pub fn measure(memory: &Path, time: Duration) -> Outcome<Vec<String>> {
    let mut ours = Tarn::start(memory)?;
    let folder = ours.make()?;
    ours.claim_disk()?;
    let measured = watch_enough(&ours, &folder, time);
    let removed = ours.remove();
    let (watched, rounds) = measured?;
    removed?;
    println!(
        "\nwhile a group is stored and between: microseconds of cached reads and of O_DSYNC writes of 4 KiB, beside 24 MiB/s of others; {} groups in {} s",
        watched.groups.len(),
        time.as_secs() * rounds
    );
    println!(
        "{:<14} {:>8} {:>8} {:>8} {:>9}   {:>8} {:>8} {:>8} {:>9}  {:>6}",
        "", "storing", "50 %", "99 %", "99.9 %", "between", "50 %", "99 %", "99.9 %", "ratio"
    );
    let split = watched.split();
    let failed = split.iter().filter_map(|(name, split)| judge(name, split));
    Ok(failed.collect())
}

/// Watches, and says how often for so long.
fn watch_enough(ours: &Tarn, folder: &Path, time: Duration) -> Outcome<(Watched, u64)> {
    let mut watched = watch(ours, folder, time)?;
    if watched.split().iter().all(|(_, split)| split.passes()) {
        return Ok((watched, 1));
    }
    let mut rounds = 1;
    for _ in 1..ROUNDS_MORE {
        watched.extend(watch(ours, folder, time)?);
        rounds += 1;
    }
    Ok((watched, rounds))
}

fn judge(name: &str, split: &Split) -> Option<String> {
    print!("{name:<14}");
    for sorted in [&split.storing, &split.between] {
        let at = |per_mille| percentile(sorted, per_mille) / 1000.0;
        print!(
            " {:>8} {:>8.0} {:>8.0} {:>9.0}  ",
            sorted.len(),
            at(500),
            at(990),
            at(999)
        );
    }
    let ratio = split.ratio();
    let verdict = if split.passes() { "PASS" } else { "FAIL" };
    println!(" {ratio:>6.2}  at most {BAR}: {verdict}");
    (!split.passes()).then(|| format!("{NAME}: {name} ({ratio:.2}, at most {BAR})"))
}

/// Of sorted times; NaN of none, which reaches no bar.
fn percentile(sorted: &[u64], per_mille: usize) -> f64 {
    let index = sorted.len() * per_mille / 1000;
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a call")]
    let time = |time: &u64| *time as f64;
    sorted.get(index).or(sorted.last()).map_or(f64::NAN, time)
}

/// Everything that goes on at the same time: reads, durable writes, and when groups were stored.
fn watch(ours: &Tarn, folder: &Path, time: Duration) -> Outcome<Watched> {
    let cached = folder.join("cached");
    prepare(&cached)?;
    let is_over = AtomicBool::new(false);
    let goes_on = || !is_over.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let steady = scope.spawn(|| write_steadily(folder, goes_on));
        let reader = scope.spawn(|| read_pages(&cached, goes_on));
        let writer = scope.spawn(|| write_durably(folder, goes_on));
        std::thread::sleep(time);
        let groups = stored_groups(ours);
        is_over.store(true, Ordering::Relaxed);
        steady.join().map_err(|_| "the steady writer panicked")??;
        Ok(Watched {
            reads: reader.join().map_err(|_| "the reader panicked")??,
            writes: writer.join().map_err(|_| "the writer panicked")??,
            groups: groups?,
        })
    })
}

/// The file that is read, in our cache.
fn prepare(path: &Path) -> std::io::Result<()> {
    let file = File::create(path)?;
    let mut mib = vec![0; 1 << 20];
    for number in 0..CACHED_BYTES >> 20 {
        mib[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all_at(&mib, number << 20)?;
    }
    file.sync_all()?;
    let file = direct(path)?;
    for _ in 0..2 {
        for number in 0..CACHED_BYTES >> 20 {
            file.read_exact_at(&mut mib, number << 20)?;
        }
    }
    Ok(())
}

fn direct(path: &Path) -> std::io::Result<File> {
    let flags = rustix::fs::OFlags::DIRECT.bits();
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.cast_signed())
        .open(path)
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

fn write_steadily(folder: &Path, goes_on: impl Fn() -> bool) -> std::io::Result<()> {
    let file = File::create(folder.join("steady"))?;
    let mut mib = vec![0x5a; 1 << 20];
    let mut number = 0_u64;
    while goes_on() {
        mib[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all_at(&mib, (number % STEADY_MIB) << 20)?;
        number += 1;
        std::thread::sleep(STEADY_PACE);
    }
    Ok(())
}

fn read_pages(path: &Path, goes_on: impl Fn() -> bool) -> std::io::Result<Vec<Call>> {
    let file = direct(path)?;
    let mut page = vec![0; PAGE_BYTES];
    let mut calls = Vec::new();
    let mut place = 0;
    while goes_on() {
        // Steps of a prime number of pages: no two in a row are neighbours.
        place = (place + 7919 * PAGE_BYTES as u64) % CACHED_BYTES;
        let began = now_ns();
        file.read_exact_at(&mut page, place)?;
        calls.push((began, now_ns()));
        std::thread::sleep(PAUSE);
    }
    Ok(calls)
}

fn write_durably(folder: &Path, goes_on: impl Fn() -> bool) -> std::io::Result<Vec<Call>> {
    let path = folder.join("durable");
    let page = vec![0x33; PAGE_BYTES];
    let flags = rustix::fs::OFlags::DSYNC.bits();
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(flags.cast_signed())
        .open(path)?;
    let mut calls = Vec::new();
    let mut place = 0;
    while goes_on() {
        place = (place + PAGE_BYTES as u64) % (4 << 20);
        let began = now_ns();
        file.write_all_at(&page, place)?;
        calls.push((began, now_ns()));
        std::thread::sleep(PAUSE);
    }
    Ok(calls)
}

/// From when to when each group was stored that the daemon remembers.
fn stored_groups(ours: &Tarn) -> Outcome<Vec<Call>> {
    let table = ours.statistics("txgs")?;
    let groups = table.as_object().ok_or("the table of groups is none")?;
    let number = |group: &serde_json::Value, name: &str| group[name].as_u64().unwrap_or(0);
    let stored = groups.values().filter(|group| group["state"] == "C");
    let times = stored.map(|group| {
        let before = ["birth", "otime", "qtime", "wtime"].map(|name| number(group, name));
        let began = before.iter().sum::<u64>();
        (began, began + number(group, "stime"))
    });
    Ok(times.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slow_only_while_a_group_is_stored_is_found() {
        let calls: Vec<Call> = (0..20_000).map(|n| (n * 1000, n * 1000 + 100)).collect();
        let groups = [(5_000_000, 6_000_000)];
        let judged = |calls: &[Call], groups: &[Call]| judge("x", &Split::of(calls, groups));
        assert_eq!(judged(&calls, &groups), None);
        let slow = calls.iter().map(|call| match call.0 {
            5_500_000..5_510_000 => (call.0, call.0 + 300),
            _ => *call,
        });
        let slow: Vec<Call> = slow.collect();
        assert!(judged(&slow, &groups).is_some());
        assert!(judged(&slow, &[]).is_some(), "nothing was compared");
    }

    #[test]
    fn what_is_watched_longer_counts_all_calls_and_each_group_once() {
        let watched = |groups: &[Call]| Watched {
            reads: vec![(1, 2)],
            writes: vec![(3, 4), (5, 6)],
            groups: groups.to_vec(),
        };
        let mut all = watched(&[(10, 20)]);
        all.extend(watched(&[(10, 20), (30, 40)]));
        assert_eq!((all.reads.len(), all.writes.len()), (2, 4));
        assert_eq!(all.groups, [(10, 20), (30, 40)]);
    }
}
