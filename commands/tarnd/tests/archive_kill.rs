//! `kill -9` of `tarnd` while it archives: at most a second is lost, the cap holds, and all tiers
//! have the same sums.
//!
//! # Mechanism
//! A day of load is archived in compressed time, in a directory whose cap is far too small for its
//! seconds. A daemon goes on with it, and is killed: as soon as it serves, when its first second is
//! appended, when it has archived some. Each second that it told to be whole must be there in the
//! next one, with the same number. When it starts first, blocks of seconds and minutes are due.
//!
//! `TARN_ARCHIVE_KILLS` says how often it is killed, twenty times unless given.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::SystemTime;

use tarn_administration::messages::analytics::{Query, When};
use tarn_api::client::Client;
use tarn_engine::analytics::{Collected, Tally};
use tarn_engine::archive::{
    Archive, ArchiveQuery, Asked, Cell, Column, ColumnHead, LEAST_CAP_BYTES, SeriesId,
};
use tarn_engine::{Host, RealOptions};

const DAY_S: u64 = 86_400;
/// The day ends so long ago: its last blocks are due when the daemon begins.
const AGO_S: u64 = 3 * 3600;
/// Samples of numbers without order in each second of the day.
const NOISE: u64 = 80;
const LATENCY: &str = "nfs.ops:latency";
/// A statistic that the daemon samples itself.
const MEMORY: &str = "mem.bytes";

fn unix_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_secs()
}

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn archive(&self) -> PathBuf {
        self.folder.path().join("analytics")
    }

    fn client(&self) -> Client {
        Client::new(&self.folder.path().join("tarnd.sock"), "test")
    }

    /// What the files of the archive take, whole pages counted.
    fn archive_bytes(&self) -> u64 {
        let files = std::fs::read_dir(self.archive()).unwrap();
        // What is being replaced may be gone.
        let sizes = files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len()));
        sizes.map(|bytes| bytes.next_multiple_of(4096)).sum()
    }

    fn has_tail_of_now(&self) -> bool {
        let start_s = unix_s() - unix_s() % 300;
        self.archive().join(format!("tail-{start_s}")).exists()
    }
}

/// The daemon, which is killed when this is dropped.
struct Daemon(Child);

impl Daemon {
    fn start(place: &Place) -> Daemon {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tarnd"))
            .args(["--foreground", "--web", "off", "--block-devices", "none"])
            .args(["--archive-size", &LEAST_CAP_BYTES.to_string()])
            .env("TARN_DIR", place.folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while !place.client().is_reachable() {
            assert!(child.try_wait().unwrap().is_none(), "the daemon serves");
            std::thread::yield_now();
        }
        Daemon(child)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Numbers that are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        self.0 >> 20
    }
}

/// Archives the day before `until_s`, and gives how many operations each hour had.
fn archive_a_day(directory: &Path, until_s: u64) -> BTreeMap<u64, u64> {
    let host = Host::real(RealOptions::default());
    let archive = Archive::open(&host, directory, LEAST_CAP_BYTES).unwrap();
    let mut numbers = Numbers(1);
    let causes = ["disk", "log", "cache_hit"];
    let causes = causes.map(|cause| Arc::new(SeriesId::new("nfs.ops[cause]:latency", &[cause])));
    let noise =
        |number: u64| Arc::new(SeriesId::new("net.bytes", &[&format!("eth{number}"), "in"]));
    let noise: Vec<Arc<SeriesId>> = (0..NOISE).map(noise).collect();
    let mut hours = BTreeMap::new();
    for start_s in (until_s - DAY_S..until_s).step_by(4) {
        let mut column = Column::new(start_s);
        column.head = ColumnHead::of_second(Collected::Whole, 0);
        for cause in &causes {
            let mut tally = Tally::default();
            (0..numbers.next() % 5).for_each(|_| tally.add(1, Some(numbers.next() % (1 << 24))));
            *hours.entry(start_s - start_s % 3600).or_default() += tally.count;
            column.cells.push((cause.clone(), Cell::of_tally(&tally)));
        }
        // Without any order, they take the room of a busy server.
        let noise = noise
            .iter()
            .map(|series| (series.clone(), Cell::of_sample(numbers.next())));
        column.cells.extend(noise);
        archive.append(column).unwrap();
    }
    hours
}

/// Whole seconds that the daemon tells of the last while, with their sums.
fn told(client: &Client, from_s: u64) -> BTreeMap<u64, u64> {
    let when = When {
        from: Some(from_s as f64),
        ..When::default()
    };
    let answer = client.analytics_query(Query::of(MEMORY, when)).unwrap();
    assert_eq!(answer.column_ms, 1000);
    let seconds = answer.from_ms / 1000..;
    let seconds = seconds.zip(answer.states.iter().zip(&answer.total.sums));
    let whole = seconds.filter(|(_, (state, _))| **state == 2);
    whole.map(|(second, (_, sum))| (second, *sum)).collect()
}

/// The sums of a tier agree with those of a coarser one, wherever it still has something.
fn judge_tiers(archive: &Archive, from_s: u64, until_s: u64) {
    let ask = |from_s: u64, column_s: u64| {
        let query = ArchiveQuery {
            asked: Asked::parse(LATENCY).unwrap(),
            range_s: from_s..from_s + 3600,
            column_s,
            keys_max: 10,
        };
        archive.answer(&query).unwrap()
    };
    let mut compared = 0;
    for hour in (from_s - from_s % 3600..until_s).step_by(3600) {
        let [seconds, minutes, hours] = [1, 60, 3600].map(|column_s| ask(hour, column_s));
        for (fine, coarse) in [(&seconds, &minutes), (&minutes, &hours)] {
            if fine.tier.column_s() == coarse.tier.column_s() {
                continue;
            }
            let ratio = fine.total.len() / coarse.total.len();
            for (coarse, fine) in coarse.total.iter().zip(fine.total.chunks(ratio)) {
                let mut merged = Cell::default();
                fine.iter().for_each(|cell| merged.merge(cell));
                assert_eq!(merged, *coarse, "hour {hour}");
                compared += 1;
            }
        }
    }
    assert!(compared > 60, "{compared} columns were compared");
}

#[test]
fn a_day_of_load_and_seconds_that_were_told_outlive_kills() {
    let kills = std::env::var("TARN_ARCHIVE_KILLS").map_or(20, |kills| kills.parse().unwrap());
    // In memory, if there is such a folder: an append is synced.
    let memory = Path::new("/dev/shm");
    let folder = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    let place = Place {
        folder: folder.unwrap(),
    };
    let until_s = unix_s() - AGO_S;
    let until_s = until_s - until_s % 3600;
    let hours = archive_a_day(&place.archive(), until_s);
    assert!(place.archive_bytes() <= LEAST_CAP_BYTES);
    let began_s = unix_s();
    let mut known = BTreeMap::new();
    let mut newest_s = 0;
    for round in 0..kills {
        let daemon = Daemon::start(&place);
        let client = place.client();
        match round % 3 {
            0 => {}
            1 => while !place.has_tail_of_now() {},
            _ => loop {
                let now = told(&client, began_s);
                let newest = now.last_key_value().map_or(0, |(second, _)| *second);
                // What was told before is there, and is what it was.
                let is_as_before = |(second, sum): (&u64, &u64)| now.get(second) == Some(sum);
                assert!(
                    known.iter().all(is_as_before),
                    "round {round}: {known:?}, {now:?}"
                );
                known = now;
                if newest > newest_s + 1 {
                    newest_s = newest;
                    break;
                }
                std::thread::yield_now();
            },
        }
        drop(daemon);
        assert!(place.archive_bytes() <= LEAST_CAP_BYTES, "round {round}");
    }
    let host = Host::real(RealOptions::default());
    let archive = Archive::open_to_read(&host, &place.archive()).unwrap();
    let skipped = archive.skipped().into_iter();
    // A tail may be cut off in what was being appended.
    let is_tail = |path: &Path| path.to_string_lossy().contains("tail-");
    let skipped: Vec<_> = skipped.filter(|one| !is_tail(&one.path)).collect();
    assert!(skipped.is_empty(), "{skipped:?}");
    judge_tiers(&archive, until_s - DAY_S, until_s);
    for (hour, operations) in hours.range(until_s - DAY_S + 3600..) {
        let query = ArchiveQuery {
            asked: Asked::parse(LATENCY).unwrap(),
            range_s: *hour..hour + 3600,
            column_s: 3600,
            keys_max: 1,
        };
        let answer = archive.answer(&query).unwrap();
        assert_eq!(answer.total[0].count, *operations, "hour {hour}");
    }
}
