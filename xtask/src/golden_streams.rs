//! Streams that OpenZFS sent, received by us: what is mounted then equals what OpenZFS saw.
//!
//! # Mechanism
//! The fixture `streams` has no pool, only what OpenZFS sent of one. Each stream goes into a pool
//! of ours, with those that it goes on from before it; the manifest of each snapshot, through
//! `.zfs/snapshot`, is compared with the truth, and OpenZFS's `zdb` judges the pool. Then streams
//! are damaged and cut: they must be refused, and leave what was there as it was.

use crate::golden::{Tally, judge_clean};
use crate::workspace::{Outcome, programs, scratch};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tarn_golden::compare;
use tarn_golden::{Fixture, Fixtures};
use tarn_oracle::instance::Instance;
use tarn_oracle::program::{self, Spoken};
use tarn_workload::tree;

/// The pool that the streams go to. It has the name of the one that they come from, which is in the
/// truth.
const POOL: &str = "fxstreams";

/// No receive takes longer than this.
const LIMIT: Duration = Duration::from_secs(120);

/// Streams, in the order in which they go into one file system, and then the snapshots that are
/// there, with their truth.
type Way = (
    &'static str,
    &'static [&'static str],
    &'static [(&'static str, &'static str)],
);

const WAYS: &[Way] = &[
    ("full", &["full"], &[("@one", "a_one")]),
    (
        "increment",
        &["full", "incr"],
        &[("@one", "a_one"), ("@two", "a_two")],
    ),
    ("bookmark", &["full", "frombookmark"], &[("@two", "a_two")]),
    (
        "several",
        &["full", "all-incr"],
        &[("@one", "a_one"), ("@two", "a_two"), ("@three", "a_three")],
    ),
    ("compressed", &["full-cLe"], &[("@one", "a_one")]),
    ("properties", &["props"], &[("@two", "a_two")]),
    (
        "tree",
        &["replicate"],
        &[
            ("@one", "a_one"),
            ("@two", "a_two"),
            ("@three", "a_three"),
            ("/kid@three", "a_kid_three"),
        ],
    ),
];

/// Streams that are sent again from what was received, and how.
const AGAIN: &[(&str, &[&str])] = &[
    ("full", &["fxstreams/full@one"]),
    ("incr", &["-i", "@one", "fxstreams/increment@two"]),
    ("frombookmark", &["-i", "@one", "fxstreams/bookmark@two"]),
    ("all-incr", &["-I", "@one", "fxstreams/several@three"]),
];

/// How many damaged and how many cut streams are tried of each kind.
const DAMAGED: u64 = 24;

/// Receives every stream of the fixture.
pub fn receive_fixture(fixtures: &Fixtures, keep: bool) -> Outcome {
    let fixture = fixtures.unpack("streams")?;
    let folder = scratch("golden-streams");
    let images = folder.join("images");
    let instance = Instance::new(&programs(), &folder)?;
    fs::create_dir_all(&images)?;
    let _watchdog = instance.watchdog("golden streams", LIMIT * 4);
    let image = images.join("disk");
    File::create(&image)?.set_len(1 << 30)?;
    let (root, image) = (
        instance.root().display().to_string(),
        image.display().to_string(),
    );
    instance.must("zpool", &["create", "-R", &root, POOL, &image])?;
    let mut tally = Tally::default();
    for (name, streams, snapshots) in WAYS {
        let target = format!("{POOL}/{name}");
        for stream in *streams {
            receive(&instance, &[&target], &stream_file(&fixture, stream))?.expect_success()?;
        }
        for (snapshot, truth) in *snapshots {
            compare_snapshot(
                &instance,
                &fixture,
                &format!("{target}{snapshot}"),
                truth,
                &mut tally,
            )?;
        }
    }
    for (stream, options) in AGAIN {
        send_again(&instance, &fixture, &folder, stream, options, &mut tally)?;
    }
    for target in ["properties", "tree"] {
        let target = format!("{POOL}/{target}");
        let got = instance.must(
            "zfs",
            &["get", "-H", "-o", "value,source", "com.example:x", &target],
        )?;
        if got.stdout != "y\treceived\n" {
            return Err(format!("{target} did not receive its property: {}", got.stdout).into());
        }
    }
    keep_encrypted(&instance, &fixture, &folder, &mut tally)?;
    refuse_damage(&instance, &fixture, &folder)?;
    instance.must("zpool", &["export", POOL])?;
    drop(instance);
    tally.finish()?;
    judge_clean(&images, POOL)?;
    if !keep {
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// A raw stream of something encrypted, which cannot be opened here: it is kept, shown, and sent on
/// as it came, byte for byte.
fn keep_encrypted(
    instance: &Instance,
    fixture: &Fixture,
    folder: &Path,
    tally: &mut Tally,
) -> Outcome {
    // So its name is what it was at the sender, too.
    let target = format!("{POOL}/e");
    let stream = stream_file(fixture, "raw");
    receive(instance, &[&target], &stream)?.expect_success()?;
    let properties = "encryption,keyformat,keylocation,keystatus,encryptionroot,mounted";
    let shown = instance.must(
        "zfs",
        &["get", "-H", "-o", "property,value", properties, &target],
    )?;
    let expected = format!(
        "encryption\taes-256-gcm\nkeyformat\tpassphrase\nkeylocation\tprompt\n\
         keystatus\tunavailable\nencryptionroot\t{target}\nmounted\tno\n"
    );
    if shown.stdout != expected {
        return Err(format!("{target} is shown as\n{}", shown.stdout).into());
    }
    let mounted = instance.run("zfs", &["mount", &target])?;
    if mounted.stderr != format!("cannot mount '{target}': encryption key not loaded\n") {
        return Err(format!("mounting {target}: {mounted:?}").into());
    }
    let sent = folder.join("sent-raw");
    let mut command = instance.command("zfs");
    command.args(["send", "-w", &format!("{target}@one")]);
    program::run_writing(&mut command, Stdio::from(File::create(&sent)?), LIMIT)?
        .expect_success()?;
    let (truth, seen) = (fs::read(&stream)?, fs::read(&sent)?);
    let differs = truth
        .iter()
        .zip(&seen)
        .position(|(one, other)| one != other);
    let mut differences = Vec::new();
    if truth != seen {
        differences.push(format!(
            "{} bytes, not {}; the first that differs is {differs:?}",
            seen.len(),
            truth.len()
        ));
    }
    tally.add("raw, sent again", truth.len(), differences);
    Ok(())
}

fn stream_file(fixture: &Fixture, name: &str) -> PathBuf {
    fixture.folder().join(format!("out/{name}.zsend"))
}

fn receive(instance: &Instance, options: &[&str], stream: &Path) -> Outcome<Spoken> {
    let mut command = instance.command("zfs");
    command.arg("receive").args(options);
    let input = Stdio::from(File::open(stream)?);
    Ok(program::run_reading(&mut command, input, LIMIT)?)
}

fn compare_snapshot(
    instance: &Instance,
    fixture: &Fixture,
    snapshot: &str,
    truth: &str,
    tally: &mut Tally,
) -> Outcome {
    let truth = fixture
        .folder()
        .join(format!("truth/files-{POOL}_{truth}.jsonl"));
    let truth: Vec<String> = fs::read_to_string(truth)?
        .lines()
        .map(str::to_string)
        .collect();
    let (dataset, short) = snapshot.split_once('@').ok_or("it is a snapshot")?;
    let place = instance
        .root()
        .join(dataset)
        .join(".zfs/snapshot")
        .join(short);
    let seen = tree::manifest(&place)?;
    let differences = compare::manifests(&rootless(&truth), &rootless(&seen));
    tally.add(snapshot, truth.len(), differences);
    Ok(())
}

/// Sends what was received, and compares record by record with what OpenZFS sent. What says how
/// blocks are stored differs, for they are compressed anew, and so do names.
fn send_again(
    instance: &Instance,
    fixture: &Fixture,
    folder: &Path,
    stream: &str,
    options: &[&str],
    tally: &mut Tally,
) -> Outcome {
    let sent = folder.join("sent");
    let mut command = instance.command("zfs");
    command.arg("send").args(options);
    program::run_writing(&mut command, Stdio::from(File::create(&sent)?), LIMIT)?
        .expect_success()?;
    let dump = |stream: &Path| -> Outcome<Vec<String>> {
        let mut command = instance.command("zstream");
        command.args(["dump", "-v"]);
        let input = Stdio::from(File::open(stream)?);
        let dumped = program::run_reading(&mut command, input, LIMIT)?.expect_success()?;
        Ok(dumped.stdout.lines().filter_map(comparable).collect())
    };
    let truth = dump(&stream_file(fixture, stream))?;
    let seen = dump(&sent)?;
    let pairs = truth
        .iter()
        .zip(&seen)
        .filter(|(truth, seen)| truth != seen);
    let mut differences: Vec<String> = pairs
        .map(|(truth, seen)| format!("should be {truth}, is {seen}"))
        .collect();
    if truth.len() != seen.len() {
        differences.push(format!("{} lines, not {}", seen.len(), truth.len()));
    }
    tally.add(&format!("{stream}, sent again"), truth.len(), differences);
    Ok(())
}

/// A line of a dump, as far as two streams of the same contents have it in common.
fn comparable(line: &str) -> Option<String> {
    let is_other = [
        "END checksum",
        "\ttoname",
        "\tpayloadlen",
        "\tTotal",
        "\t\t0x",
        "\t\t(end 0x",
        "\t\t\tname",
    ]
    .iter()
    .any(|start| line.starts_with(start));
    let words = line.split(" props = ").collect::<Vec<_>>();
    match words.as_slice() {
        _ if is_other => None,
        [start, rest] => {
            let (_, rest) = rest.split_once(' ').unwrap_or_default();
            Some(format!("{start} {rest}"))
        }
        _ => Some(line.to_string()),
    }
}

/// Lines of a manifest without the number of its root: in a snapshot that comes from the number of
/// the dataset.
pub fn rootless(lines: &[String]) -> Vec<String> {
    let without = |line: &String| match line.split_once(", \"ino\": ") {
        Some((start, _)) if line.starts_with("{\"path\": \".\",") => format!("{start}}}"),
        _ => line.clone(),
    };
    lines.iter().map(without).collect()
}

/// Streams with one bit turned, and streams that end too soon.
fn refuse_damage(instance: &Instance, fixture: &Fixture, folder: &Path) -> Outcome {
    let listing = || instance.zfs("list -Hp -t all -r -o name,guid fxstreams");
    let before = listing()?.stdout;
    let damaged = folder.join("damaged");
    for (stream, target) in [
        ("full", "new"),
        ("incr", "full"),
        ("replicate", "new"),
        ("raw", "new"),
    ] {
        let bytes = fs::read(stream_file(fixture, stream))?;
        let length = u64::try_from(bytes.len())?;
        for step in 0..DAMAGED {
            let at = (length * step / DAMAGED + 97 * step) % length;
            let is_cut = step % 2 == 0;
            let at = usize::try_from(at)?;
            let mut bytes = bytes.clone();
            match is_cut {
                true => bytes.truncate(at.max(1)),
                false => bytes[at] ^= 1 << (step % 8),
            }
            fs::write(&damaged, &bytes)?;
            let target = format!("{POOL}/{target}");
            let spoken = receive(instance, &[&target], &damaged)?;
            let is_refused = spoken.code == Some(1) && spoken.stderr.starts_with("cannot ");
            if !is_refused {
                let what = if is_cut { "cut" } else { "damaged" };
                return Err(format!("{stream} {what} at byte {at}: {spoken:?}").into());
            }
            // Of a package, the streams that were whole stay.
            let left = instance.run("zfs", &["destroy", "-r", &format!("{POOL}/new")])?;
            if stream != "replicate" && left.code == Some(0) && is_refused {
                return Err(format!("{stream}, damaged at byte {at}, left something").into());
            }
        }
    }
    let after = listing()?.stdout;
    match before == after {
        true => Ok(()),
        false => Err(format!("damaged streams changed what was there:\n{before}\n{after}").into()),
    }
}
