//! Programs that others wrote to take, keep and replicate snapshots, unchanged: sanoid and syncoid,
//! and zfs-auto-snapshot.
//!
//! # Mechanism
//! Debian's packages are unpacked and laid over `/usr` in a mount namespace of each program's own,
//! so they find all they expect where they expect it, and nothing is installed. Their `zfs` and
//! `zpool` are ours.
//!
//! *A day of policy*: every quarter of an hour a file in each file system says what time it is, and
//! both programs are called as their cron jobs call them. The clock is libfaketime's, for them and
//! for the daemon, which dates snapshots. In the end there must be as many snapshots of each kind
//! as the policies keep, each with the file of its time, and sanoid's own checks must be content.
//!
//! *Replication*: syncoid brings file systems to another instance (another `TARN_DIR`, host and
//! pool), at first whole, then what is new; pushed and pulled, with children, after a line that
//! broke, and from a bookmark when the snapshots are gone. `ssh` is a script that turns to the
//! other instance. What arrives must have the guids and the files of what was sent, and OpenZFS's
//! `zdb` must find both pools clean.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tarn_golden::compare;
use tarn_oracle::instance::Instance;
use tarn_oracle::layout::Layout;
use tarn_oracle::program::{self, Spoken};
use tarn_oracle::tools::{Source, Unpacked, unpack_debian};
use tarn_workload::tree::{self, TreeSize};
use tarn_workload::twister::Twister;

use super::Arguments;
use crate::changes;
use crate::golden::judge_clean;
use crate::golden_streams::rootless;
use crate::streams::token;
use crate::workspace::{Outcome, programs, scratch, target};

/// Debian's, with what they need that a bare machine does not have.
const PACKAGES: [&str; 9] = [
    "sanoid",
    "zfs-auto-snapshot",
    "libconfig-inifiles-perl",
    "libcapture-tiny-perl",
    "libfaketime",
    "mbuffer",
    "libmhash2",
    "lzop",
    "liblzo2-2",
];

/// The pools; no other on the machine has these names, for syncoid looks at what processes are
/// called with.
const POOL: &str = "policied";
const VAULT: &str = "vaulted";
/// What sanoid takes snapshots of: each file system for itself, and all of them at once.
const SINGLY: [&str; 3] = ["data", "data/home", "data/machines"];
const AT_ONCE: [&str; 2] = ["mail", "mail/lists"];
/// What zfs-auto-snapshot takes snapshots of.
const BY_AUTO: [&str; 2] = ["auto", "auto/kid"];
/// Datasets without snapshots.
const BY_NOBODY: &str = "scratch";

const IMAGE_BYTES: u64 = 1 << 30;
const LIMIT: Duration = Duration::from_secs(3600);
const PROGRAM_LIMIT: Duration = Duration::from_secs(300);
const START_LIMIT: Duration = Duration::from_secs(30);
/// Midnight at the beginning of 1 March 2026, UTC.
const MIDNIGHT_S: u64 = 1_772_323_200;
/// The file that says what time it is.
const CLOCK: &str = "clock";

/// What sanoid is told.
const CONFIGURATION: &str = "
[policied/data]
	use_template = production
	recursive = yes
[policied/mail]
	use_template = production
	recursive = zfs
[policied/scratch]
	use_template = nothing

[template_production]
	frequently = 4
	hourly = 6
	daily = 3
	monthly = 1
	yearly = 0
	autosnap = yes
	autoprune = yes
[template_nothing]
	autosnap = no
	autoprune = no
	monitor = no
";

/// A day of policy, and replication.
pub fn policies(arguments: &Arguments) -> Outcome {
    if !rustix::process::geteuid().is_root() {
        return Err("the programs run in mount namespaces: it needs root".into());
    }
    let tools = unpack_debian(&target().join("policies"), &PACKAGES, Source::Release)?;
    let folder = scratch("conformance-policies");
    let scene = Scene::make(tools, &folder, arguments.seed)?;
    let _watchdog = scene.here.watchdog("policies", LIMIT);
    scene.day(arguments.hours)?;
    scene.expect_kept(arguments.hours)?;
    scene.replicate()?;
    scene.replicate_after_a_cut()?;
    scene.replicate_from_a_bookmark()?;
    scene.here.must("zpool", &["export", POOL])?;
    scene.there.must("zpool", &["export", VAULT])?;
    drop(scene);
    judge_clean(&folder.join("here/images"), POOL)?;
    judge_clean(&folder.join("there/images"), VAULT)?;
    if !arguments.keep {
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

struct Scene {
    tools: Unpacked,
    folder: PathBuf,
    here: Instance,
    there: Instance,
    seed: u64,
    /// Since the first midnight.
    minutes: Cell<u64>,
}

/// Which instance a program runs at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Here,
    There,
}

impl Scene {
    fn make(tools: Unpacked, folder: &Path, seed: u64) -> Outcome<Scene> {
        let here = Instance::new(&programs(), &folder.join("here"))?;
        let there = here.other_host(&folder.join("there"))?;
        let scene = Scene {
            tools,
            folder: folder.to_path_buf(),
            here,
            there,
            seed,
            minutes: Cell::new(0),
        };
        scene.set_clock(0)?;
        let clock = scene.clock_variables();
        let clock: Vec<(&str, &str)> = clock
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        scene.here.start_daemon_under(&clock, START_LIMIT)?;
        scene.make_pool(Side::Here, POOL)?;
        scene.make_pool(Side::There, VAULT)?;
        let lists = [&SINGLY[..], &AT_ONCE[..], &BY_AUTO[..], &[BY_NOBODY]];
        for (number, name) in (0..).zip(lists.into_iter().flatten()) {
            scene.here.zfs(&format!("create {POOL}/{name}"))?;
            changes::fill(
                &scene.here,
                &format!("{POOL}/{name}"),
                seed + number,
                TreeSize::Small,
            )?;
        }
        for (name, value) in [
            (POOL, "false".to_string()),
            ("policied/auto", "true".to_string()),
        ] {
            let property = format!("com.sun:auto-snapshot={value}");
            scene.here.must("zfs", &["set", &property, name])?;
        }
        fs::write(scene.folder.join("sanoid.conf"), CONFIGURATION)?;
        scene.write_ssh(Side::Here)?;
        scene.write_ssh(Side::There)?;
        Ok(scene)
    }

    fn instance(&self, side: Side) -> &Instance {
        match side {
            Side::Here => &self.here,
            Side::There => &self.there,
        }
    }

    fn place(&self, side: Side) -> PathBuf {
        match side {
            Side::Here => self.folder.join("here"),
            Side::There => self.folder.join("there"),
        }
    }

    fn make_pool(&self, side: Side, pool: &str) -> Outcome {
        let images = self.place(side).join("images");
        Layout::Mirror(2).make_images(&images, IMAGE_BYTES)?;
        let instance = self.instance(side);
        let root = instance.root().display().to_string();
        let words = Layout::Mirror(2).words(&images);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let options = ["create", "-R", &root, "-O", "compression=lz4", pool];
        instance.must("zpool", &[&options[..], &words].concat())?;
        Ok(())
    }

    /// The `ssh` of a side: it turns to the other one. Where there is a file `cut`, the next stream
    /// that is received there ends too soon.
    fn write_ssh(&self, side: Side) -> Outcome {
        let other = match side {
            Side::Here => Side::There,
            Side::There => Side::Here,
        };
        let variables = self.instance(other).command("zfs");
        let variables = variables
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_str()?, value?.to_str()?)))
            .map(|(name, value)| format!("export {name}='{value}'\n"));
        let folder = self.place(side).join("path");
        fs::create_dir_all(&folder)?;
        let script = folder.join("ssh");
        let text = format!(
            r#"#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in
    -O) exit 0 ;;
    -[oSpciFl]) shift 2 ;;
    -*) shift ;;
    *) break ;;
  esac
done
shift
[ "$1" = -O ] && exit 0
{}cut='{}'
case "$*" in
  *'zfs receive '*) if [ -e "$cut" ]; then rm "$cut"; head -c 400000 | sh -c "$*"; exit 1; fi ;;
esac
exec sh -c "$*"
"#,
            variables.collect::<String>(),
            self.cut().display()
        );
        fs::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    fn cut(&self) -> PathBuf {
        self.folder.join("cut")
    }

    /// Runs a program of the packages at one of the sides, by the clock of the day. Its mount
    /// namespace has no copies of the sides' mounts: they would keep file systems in use that
    /// `zfs receive` takes out of use.
    fn foreign(&self, side: Side, words: &[&str]) -> Outcome<Spoken> {
        let usr = self.tools.root().join("usr");
        let script = format!(
            "for at in $(cut -d' ' -f2 /proc/self/mounts); do \
               case $at in {}/*) umount -l $at 2>/dev/null || :;; esac; \
             done; \
             mount -t overlay -o ro,lowerdir={}:/usr overlay /usr && exec \"$@\"",
            self.folder.display(),
            usr.display()
        );
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "--"])
            .args(["sh", "-c", &script, "sh"])
            .args(words);
        let variables = self.instance(side).command("zfs");
        let variables = variables.get_envs();
        command.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        let path = format!(
            "{}:{}:/usr/sbin:/usr/bin:/sbin:/bin",
            self.place(side).join("path").display(),
            programs().display()
        );
        command
            .env("PATH", path)
            .env("LC_ALL", "C")
            .envs(self.clock_variables());
        Ok(program::run(&mut command, PROGRAM_LIMIT)?)
    }

    fn clock_variables(&self) -> [(&'static str, String); 6] {
        let libraries = self.tools.root().join("usr/lib");
        let library = ["x86_64-linux-gnu", "aarch64-linux-gnu"]
            .map(|machine| libraries.join(machine).join("faketime/libfaketimeMT.so.1"));
        let library = library.iter().find(|path| path.is_file());
        let library = library.map_or(String::new(), |path| path.display().to_string());
        [
            ("LD_PRELOAD", library),
            (
                "FAKETIME_TIMESTAMP_FILE",
                self.folder.join("time").display().to_string(),
            ),
            ("FAKETIME_NO_CACHE", "1".to_string()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_string()),
            ("NO_FAKE_STAT", "1".to_string()),
            ("TZ", "UTC".to_string()),
        ]
    }

    fn set_clock(&self, minutes: u64) -> Outcome {
        // A reader meanwhile has the old one or the new one.
        let (time, new) = (self.folder.join("time"), self.folder.join("time.new"));
        fs::write(&new, format!("{}\n", time_of(minutes)))?;
        fs::rename(new, time)?;
        self.minutes.set(minutes);
        Ok(())
    }

    /// A minute later. Snapshots are told apart by it.
    fn wait(&self) -> Outcome {
        self.set_clock(self.minutes.get() + 1)
    }

    /// So many hours, a quarter after the other.
    fn day(&self, hours: u64) -> Outcome {
        let lists = [&SINGLY[..], &AT_ONCE[..], &BY_AUTO[..], &[BY_NOBODY]];
        let names: Vec<&&str> = lists.into_iter().flatten().collect();
        for minutes in (0..=hours * 60).step_by(15) {
            self.set_clock(minutes)?;
            for name in &names {
                let place = self.here.root().join(POOL).join(name);
                fs::write(place.join(CLOCK), time_of(minutes))?;
            }
            self.sanoid(&["--cron", "--force-update", "--verbose"])?;
            self.auto("frequent", 4)?;
            if minutes % 60 == 0 {
                self.cron("hourly")?;
            }
            if minutes % 1440 == 390 {
                self.cron("daily")?;
            }
        }
        self.cron("weekly")?;
        self.cron("monthly")?;
        println!("  {hours} hours of policy");
        Ok(())
    }

    /// Runs sanoid, which must be content and say nothing of errors.
    fn sanoid(&self, options: &[&str]) -> Outcome<Spoken> {
        let folder = self.folder.display().to_string();
        let (cache, run) = (
            format!("{folder}/sanoid-cache"),
            format!("{folder}/sanoid-run"),
        );
        let places = [
            "sanoid",
            "--configdir",
            &folder,
            "--cache-dir",
            &cache,
            "--run-dir",
            &run,
        ];
        expect_quiet(self.foreign(Side::Here, &[&places[..], options].concat())?)
    }

    /// As in the package's crontab, which has one line and no script for this.
    fn auto(&self, label: &str, keep: u32) -> Outcome<Spoken> {
        let (label, keep) = (format!("--label={label}"), format!("--keep={keep}"));
        let words = ["zfs-auto-snapshot", "--quiet", &label, &keep, "//"];
        expect_quiet(self.foreign(Side::Here, &words)?)
    }

    /// The package's own script.
    fn cron(&self, often: &str) -> Outcome {
        let script = self
            .tools
            .root()
            .join(format!("etc/cron.{often}/zfs-auto-snapshot"));
        let script = script.display().to_string();
        // It tells the system's log, which a container does not have.
        self.foreign(Side::Here, &["sh", &script])?
            .expect_success()?;
        Ok(())
    }

    /// How many snapshots there are of each kind, and what is in them.
    fn expect_kept(&self, hours: u64) -> Outcome {
        let quarters = hours * 4 + 1;
        // What is older than the policy keeps goes with the next call, so there may be one or two
        // more.
        let kept = |keep: u64, made: u64| (keep.min(made), (keep + 2).min(made));
        let by_sanoid = [
            ("_frequently", kept(4, quarters)),
            ("_hourly", kept(6, hours + 1)),
            ("_daily", (1, 3)),
            ("_monthly", (1, 2)),
            ("_yearly", (0, 0)),
        ];
        let exactly = |count: u64| (count, count);
        let by_auto = [
            ("zfs-auto-snap_frequent", exactly(4.min(quarters))),
            ("zfs-auto-snap_hourly", exactly(24.min(hours + 1))),
            ("zfs-auto-snap_daily", exactly(u64::from(hours >= 7))),
            ("zfs-auto-snap_weekly", exactly(1)),
            ("zfs-auto-snap_monthly", exactly(1)),
        ];
        let mut count = 0;
        for name in SINGLY.into_iter().chain(AT_ONCE) {
            count += self.expect_snapshots(name, &by_sanoid)?;
        }
        for name in BY_AUTO {
            count += self.expect_snapshots(name, &by_auto)?;
        }
        self.expect_snapshots(BY_NOBODY, &[])?;
        for check in [
            "--monitor-snapshots",
            "--monitor-health",
            "--monitor-capacity",
        ] {
            let said = self.sanoid(&[check])?.stdout;
            if !said.starts_with("OK") {
                return Err(format!("sanoid {check}: {said}").into());
            }
        }
        println!("  {count} snapshots kept, each with the files of its time");
        Ok(())
    }

    fn expect_snapshots(&self, name: &str, kinds: &[(&str, (u64, u64))]) -> Outcome<u64> {
        let dataset = format!("{POOL}/{name}");
        let words = [
            "list",
            "-Hp",
            "-t",
            "snapshot",
            "-d",
            "1",
            "-o",
            "name,creation",
            &dataset,
        ];
        let text = self.here.must("zfs", &words)?.stdout;
        let mut counts = vec![0; kinds.len()];
        for line in text.lines() {
            let (snapshot, created) = line.split_once('\t').ok_or(line)?;
            let (_, short) = snapshot.split_once('@').ok_or(line)?;
            let kind = kinds.iter().position(|(kind, _)| short.contains(kind));
            counts[kind.ok_or(format!("nobody was to take {snapshot}"))?] += 1;
            let created: u64 = created.parse()?;
            let place = self
                .here
                .root()
                .join(&dataset)
                .join(".zfs/snapshot")
                .join(short);
            let clock = fs::read_to_string(place.join(CLOCK))?;
            let minutes = created.saturating_sub(MIDNIGHT_S) / 60;
            if clock != time_of(minutes) {
                return Err(
                    format!("{snapshot}, of {}, has files of {clock}", time_of(minutes)).into(),
                );
            }
        }
        for ((kind, (least, most)), count) in kinds.iter().zip(&counts) {
            if !(least..=most).contains(&count) {
                return Err(format!(
                    "{dataset} has {count} snapshots {kind}, and should have {least} to {most}:\n{text}"
                )
                .into());
            }
        }
        Ok(counts.iter().sum())
    }

    fn syncoid(&self, side: Side, options: &[&str], from: &str, to: &str) -> Outcome<Spoken> {
        self.wait()?;
        let words = [&["syncoid", "--quiet"][..], options, &[from, to]].concat();
        // Its snapshots are named by the second, and two of its calls can be in one of ours.
        self.foreign(side, &words)
    }

    /// Whole, and then what is new; pushed, and pulled.
    fn replicate(&self) -> Outcome {
        let push = || {
            let to = format!("root@there:{VAULT}/data");
            let spoken =
                self.syncoid(Side::Here, &["--recursive"], &format!("{POOL}/data"), &to)?;
            expect_quiet(spoken)
        };
        let pull = || {
            let from = format!("root@here:{POOL}/mail");
            let to = format!("{VAULT}/mail");
            expect_quiet(self.syncoid(Side::There, &["--recursive"], &from, &to)?)
        };
        for round in 0..3 {
            push()?;
            pull()?;
            for name in SINGLY.into_iter().chain(AT_ONCE) {
                self.expect_replica(name)?;
                let mount = changes::mount_of(&self.here, &format!("{POOL}/{name}"))?;
                tree::churn(&mount, self.seed + 100 + round)?;
            }
            self.wait()?;
            self.sanoid(&["--take-snapshots", "--force-update"])?;
        }
        println!("  replicated three times, pushed and pulled");
        Ok(())
    }

    /// The line breaks, and the next call goes on from what came.
    fn replicate_after_a_cut(&self) -> Outcome {
        let name = "data/machines";
        let mount = changes::mount_of(&self.here, &format!("{POOL}/{name}"))?;
        fs::write(mount.join("disk"), Twister::new(self.seed).bytes(8 << 20))?;
        fs::write(self.cut(), "")?;
        // What comes first is small; the file comes in the last of the snapshots.
        let (from, to) = (
            format!("{POOL}/{name}"),
            format!("root@there:{VAULT}/{name}"),
        );
        let options = ["--no-stream", "--compress=none"];
        let broken = self.syncoid(Side::Here, &options, &from, &to)?;
        if broken.succeeded() {
            return Err(format!("a line that broke was not noticed: {broken:?}").into());
        }
        if token(&self.there, &format!("{VAULT}/{name}"))?.is_none() {
            return Err(format!("nothing was kept of a stream that was cut: {broken:?}").into());
        }
        let went_on = self
            .syncoid(Side::Here, &options, &from, &to)?
            .expect_success()?;
        if token(&self.there, &format!("{VAULT}/{name}"))?.is_some() {
            return Err(format!("it did not go on: {went_on:?}").into());
        }
        self.expect_replica(name)?;
        println!("  went on after a line that broke");
        Ok(())
    }

    /// All snapshots are gone, and a bookmark is left of what was sent.
    fn replicate_from_a_bookmark(&self) -> Outcome {
        let name = BY_AUTO[0];
        let (from, to) = (
            format!("{POOL}/{name}"),
            format!("root@there:{VAULT}/{name}"),
        );
        let options = ["--no-sync-snap", "--create-bookmark"];
        self.syncoid(Side::Here, &options, &from, &to)?
            .expect_success()?;
        self.expect_replica(name)?;
        self.here.zfs(&format!("destroy {from}@%"))?;
        let mount = changes::mount_of(&self.here, &from)?;
        tree::churn(&mount, self.seed + 200)?;
        self.wait()?;
        self.auto("frequent", 4)?;
        self.syncoid(Side::Here, &options, &from, &to)?
            .expect_success()?;
        self.expect_replica(name)?;
        println!("  went on from a bookmark");
        Ok(())
    }

    /// Every snapshot that is at both sides is the same one, the newest is, and it is what the
    /// replica has.
    fn expect_replica(&self, name: &str) -> Outcome {
        let (source, replica) = (format!("{POOL}/{name}"), format!("{VAULT}/{name}"));
        let (sent, arrived) = (guids(&self.here, &source)?, guids(&self.there, &replica)?);
        let mut same = 0;
        for (short, guid) in &sent {
            let Some(other) = arrived.get(short) else {
                continue;
            };
            if other != guid {
                return Err(format!("{replica}@{short} is not {source}@{short}").into());
            }
            let [ours, theirs] =
                [(&self.here, &source), (&self.there, &replica)].map(|(instance, dataset)| {
                    let place = instance.root().join(dataset).join(".zfs/snapshot");
                    tree::manifest(&place.join(short))
                });
            expect_same(&format!("{replica}@{short}"), &ours?, &theirs?)?;
            same += 1;
        }
        let newest = newest(&self.there, &replica)?;
        if same == 0 || !sent.contains_key(&newest) {
            return Err(format!(
                "{replica} has {same} snapshots of {source}, the newest is {newest}"
            )
            .into());
        }
        let head = self.there.root().join(&replica);
        let snapshot = head.join(".zfs/snapshot").join(&newest);
        expect_same(
            &replica,
            &without_mounts(name, tree::manifest(&snapshot)?),
            &without_mounts(name, tree::manifest(&head)?),
        )
    }
}

fn expect_same(what: &str, expected: &[String], found: &[String]) -> Outcome {
    let differences = compare::manifests(&rootless(expected), &rootless(found));
    match differences.is_empty() {
        true => Ok(()),
        false => {
            let told: Vec<String> = differences.into_iter().take(8).collect();
            Err(format!("{what} is not what was sent:\n  {}", told.join("\n  ")).into())
        }
    }
}

/// Lines of a manifest without the folders on which other file systems are mounted: those have
/// other contents.
fn without_mounts(name: &str, mut lines: Vec<String>) -> Vec<String> {
    let all = SINGLY.iter().chain(&AT_ONCE).chain(&BY_AUTO);
    let below = all.filter_map(|other| other.strip_prefix(name)?.strip_prefix('/'));
    let starts: Vec<String> = below
        .map(|below| format!("{{\"path\": \"{below}\","))
        .collect();
    lines.retain(|line| !starts.iter().any(|start| line.starts_with(start)));
    lines
}

/// Snapshots of a file system by their short names.
fn guids(instance: &Instance, dataset: &str) -> Outcome<BTreeMap<String, String>> {
    let words = [
        "list",
        "-Hp",
        "-t",
        "snapshot",
        "-d",
        "1",
        "-o",
        "name,guid",
        dataset,
    ];
    let text = instance.must("zfs", &words)?.stdout;
    let rows = text.lines().filter_map(|line| {
        let (name, guid) = line.split_once('\t')?;
        Some((name.split_once('@')?.1.to_string(), guid.to_string()))
    });
    Ok(rows.collect())
}

fn newest(instance: &Instance, dataset: &str) -> Outcome<String> {
    let words = [
        "list",
        "-Hp",
        "-t",
        "snapshot",
        "-d",
        "1",
        "-o",
        "name",
        "-S",
        "createtxg",
        dataset,
    ];
    let text = instance.must("zfs", &words)?.stdout;
    let first = text.lines().next().and_then(|line| line.split_once('@'));
    let (_, short) = first.ok_or(format!("{dataset} has no snapshots"))?;
    Ok(short.to_string())
}

/// A program that has ended well, and complained of nothing.
fn expect_quiet(spoken: Spoken) -> Outcome<Spoken> {
    let spoken = spoken.expect_success()?;
    let words = [
        "CRITICAL",
        "WARN",
        "ERROR",
        "could not",
        "cannot",
        "Error",
        "Use of uninit",
    ];
    let text = format!("{}\n{}", spoken.stdout, spoken.stderr);
    match words.iter().find(|word| text.contains(**word)) {
        None => Ok(spoken),
        Some(_) => Err(format!("{} complains:\n{text}", spoken.command).into()),
    }
}

/// A time of the day, as libfaketime reads it.
fn time_of(minutes: u64) -> String {
    let (days, hours) = (minutes / 1440, minutes / 60 % 24);
    format!("2026-03-{:02} {hours:02}:{:02}:00", days + 1, minutes % 60)
}
