//! `kill -9` of the daemon at random moments: nothing hangs, nothing promised is lost, and the pool
//! is whole.
//!
//! # Mechanism
//! A pool with four file systems. In the first, one thread makes calls and writes them down
//! ([`Ledger`]); in the second, trees are filled, changed and removed; in the third, threads have
//! page after page made durable ([`Promises`]); the fourth was filled and stored once, and must
//! never change. Beside them an administrator creates and destroys datasets and syncs the pool,
//! which promises all calls made before. After a random time the daemon is killed. Then
//!
//! - every thread must come back with an error, and the mount must refuse at once;
//! - a copy of the devices, as the dead daemon left them, is walked by OpenZFS's `zdb`, intent logs
//!   and all: no leaks, no errors;
//! - the next command starts the daemon, which opens the pool and mounts over the remains,
//!   sometimes only at the second attempt, because the first is killed as well;
//! - the ledger's directory is as it may be, every page that was promised is there; the fourth file
//!   system is unchanged.
//!
//! The pool goes on from there to the next kill. From time to time, and in the end, it is exported,
//! judged and imported again.
//!
//! [`kill_in_own_mounts`] kills a daemon that waits for itself. The mount point of a dataset lies
//! in the mount of the dataset above it: a daemon that makes or removes the folder calls the
//! kernel, which asks the daemon. An administrator creates and destroys such datasets; the daemon
//! is stopped (SIGSTOP) when one of its threads waits for an answer of FUSE, and killed. All of it
//! must be gone at once, and the next command must start a daemon that mounts over the remains. One
//! such kill of three left a process that could not end, and every user of the mount with it, while
//! that thread had the descriptors of the daemon.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tarn_oracle::instance::Instance;
use tarn_oracle::judge;
use tarn_oracle::layout::Layout;
use tarn_oracle::program;
use tarn_workload::ledger::Ledger;
use tarn_workload::promises::Promises;
use tarn_workload::tree::{self, TreeSize};
use tarn_workload::twister::Twister;

use super::crash::{self, HANG_LIMIT, Work, copy_images};
use super::{Arguments, POOL, make_pool};
use crate::changes;
use crate::workspace::{Outcome, openzfs, programs, scratch};

/// Each seed's pool is one of these.
const LAYOUTS: [Layout; 3] = [Layout::Single, Layout::Mirror(2), Layout::RaidZ(1)];
/// Sparse; the trees in it are removed again.
const IMAGE_BYTES: u64 = 1 << 30;
/// The daemon is killed within this time after work began.
const WORK_MS: u32 = 4000;
/// A daemon that is starting is killed within this time.
const START_MS: u32 = 400;
/// Threads that are promised pages.
const PROMISED_THREADS: usize = 4;
/// Every so many kills the pool is exported and imported.
const EXPORT_EVERY: u32 = 7;
/// For each kill that is asked for: the fault was met by one kill of three.
const FROZEN_EACH: u32 = 4;
/// A daemon that makes folders all the time waits for itself within this time.
const MEETING_LIMIT: Duration = Duration::from_secs(20);

/// Kills the daemon as often as asked, in turn on each layout.
pub fn kill(arguments: &Arguments) -> Outcome {
    let tools = openzfs()?;
    let mut chance = Twister::new(arguments.seed ^ 0x6b69_6c6c);
    let layouts = LAYOUTS
        .len()
        .min(arguments.kills.div_ceil(EXPORT_EVERY) as usize)
        .max(1);
    let shares = u32::try_from(layouts)?;
    for (index, layout) in LAYOUTS.iter().take(layouts).enumerate() {
        let index = u32::try_from(index)?;
        let kills = arguments.kills / shares + u32::from(index < arguments.kills % shares);
        let scene = Scene::make(*layout, arguments.seed + u64::from(index))?;
        for round in 1..=kills {
            let told = scene.round(&tools, round, &mut chance)?;
            println!("  {layout}, kill {round} of {kills}: {told}");
            if round % EXPORT_EVERY == 0 {
                changes::expect_kept(&scene.instance, &scene.images, POOL)?;
            }
        }
        changes::expect_kept(&scene.instance, &scene.images, POOL)?;
        changes::expect_healthy(&scene.instance, POOL)?;
        scene.instance.must("zpool", &["destroy", POOL])?;
        let folder = scene.folder.clone();
        drop(scene);
        if !arguments.keep {
            fs::remove_dir_all(&folder)?;
        }
    }
    Ok(())
}

/// A pool, and what is known of it.
struct Scene {
    instance: Arc<Instance>,
    folder: PathBuf,
    images: PathBuf,
    mount: PathBuf,
    ledger: Arc<Ledger>,
    promises: Arc<Promises>,
    settled: Vec<String>,
}

impl Scene {
    fn make(layout: Layout, seed: u64) -> Outcome<Scene> {
        let folder = scratch(&format!("conformance-kill-{layout}"));
        let images = folder.join("images");
        let instance = Arc::new(Instance::new(&programs(), &folder)?);
        layout.make_images(&images, IMAGE_BYTES)?;
        let mount = instance.root().join("pool");
        let mountpoint = mount.display().to_string();
        let words = layout.words(&images);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // Without an alternate root, so that the daemon opens the pool by itself when it starts.
        let options = [
            "create",
            "-m",
            &mountpoint,
            "-O",
            "xattr=sa",
            "-O",
            "acltype=posix",
            POOL,
        ];
        instance.must("zpool", &[&options[..], &words].concat())?;
        instance.zfs(&format!("create -o recordsize=16k {POOL}/ledger"))?;
        instance.zfs(&format!("create -o compression=zstd {POOL}/trees"))?;
        instance.zfs(&format!("create {POOL}/promised"))?;
        instance.zfs(&format!("create {POOL}/settled"))?;
        let settled = mount.join("settled");
        tree::fill(&settled, seed, TreeSize::Small)?;
        let settled = tree::manifest(&settled)?;
        instance.must("zpool", &["sync", POOL])?;
        let ledger = Arc::new(Ledger::new(seed));
        Ok(Scene {
            instance,
            folder,
            images,
            mount,
            ledger,
            promises: Arc::new(Promises::new(PROMISED_THREADS)),
            settled,
        })
    }

    /// Works, kills, judges, and starts again.
    fn round(
        &self,
        tools: &tarn_oracle::tools::Unpacked,
        round: u32,
        chance: &mut Twister,
    ) -> Outcome<String> {
        let stop = Arc::new(AtomicBool::new(false));
        self.clients()?;
        let mut work = vec![
            self.write_ledger(&stop),
            self.change_trees(&stop, round),
            self.administer(&stop),
        ];
        work.extend((0..PROMISED_THREADS).map(|thread| self.write_promised(&stop, thread)));
        let worked_ms = 50 + chance.below(WORK_MS);
        thread::sleep(Duration::from_millis(u64::from(worked_ms)));
        if !self.instance.kill_daemon() {
            return Err(format!(
                "there was no daemon to kill after {worked_ms} ms: it ended by itself"
            )
            .into());
        }
        stop.store(true, Ordering::Relaxed);
        self.expect_no_hang(&work)?;

        let crashed = self.folder.join("crashed");
        copy_images(&self.images, &crashed)?;
        let clean = judge::judge(tools, &crashed, POOL)
            .map_err(|verdict| format!("as the daemon left it after {worked_ms} ms: {verdict}"))?;
        let mut told = format!("after {worked_ms} ms, {} blocks clean", clean.block_count);
        if chance.below(3) == 0 {
            let started_ms = chance.below(START_MS);
            self.kill_while_starting(Duration::from_millis(u64::from(started_ms)))?;
            told += &format!(", killed again after {started_ms} ms");
        }
        self.expect_started()?;
        let survived = self.ledger.check(&self.mount.join("ledger"))?;
        told += &format!(
            "; {} calls stored, {} found, {} synced, {} begun",
            survived.durable, survived.found, survived.synced, survived.begun
        );
        let pages = self.promises.check(&self.mount.join("promised"))?;
        told += &format!("; {pages} pages promised");
        let settled = tree::manifest(&self.mount.join("settled"))?;
        match settled == self.settled {
            true => {
                // Until here it could have helped to find a fault.
                fs::remove_dir_all(&crashed)?;
                Ok(told)
            }
            false => Err("the file system that nobody changed has changed".into()),
        }
    }

    /// Starts the daemon, which must open the pool by itself and mount every file system of it.
    fn expect_started(&self) -> Outcome {
        self.instance.must("zpool", &["status", POOL])?;
        for dataset in ["", "/ledger", "/trees", "/promised", "/settled"] {
            let mount = changes::mount_of(&self.instance, &format!("{POOL}{dataset}"))?;
            let probe = mount.join("..probe");
            if !["/settled", "/ledger", "/promised"].contains(&dataset) {
                fs::write(&probe, "writable")
                    .map_err(|error| format!("{}: {error}", probe.display()))?;
                fs::remove_file(&probe)?;
            }
        }
        Ok(())
    }

    /// The commands without a daemon beside them that they could start: what they find dead must
    /// stay dead until it was looked at.
    fn clients(&self) -> io::Result<()> {
        let folder = self.folder.join("clients");
        if folder.is_dir() {
            return Ok(());
        }
        fs::create_dir(&folder)?;
        for program in ["zpool", "zfs"] {
            let path = fs::canonicalize(self.instance.command(program).get_program())?;
            fs::hard_link(path, folder.join(program))?;
        }
        Ok(())
    }

    fn kill_while_starting(&self, after: Duration) -> Outcome {
        let mut starting = self
            .instance
            .command("zpool")
            .arg("list")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        thread::sleep(after);
        // It may not have come so far that there is a daemon.
        let _ = self.instance.kill_daemon();
        let deadline = Instant::now() + HANG_LIMIT;
        while starting.try_wait()?.is_none() {
            if Instant::now() > deadline {
                starting.kill()?;
                starting.wait()?;
                return Err("a command hangs whose daemon was killed while it started".into());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Every thread comes back, and the mount refuses: both at once.
    fn expect_no_hang(&self, work: &[Work]) -> Outcome {
        crash::expect_ended(work)?;
        // The kernel answers `stat` from what it keeps; how much space there is it always asks for.
        match rustix::fs::statvfs(self.mount.join("settled")) {
            Err(rustix::io::Errno::NOTCONN) => Ok(()),
            Err(error) => Err(format!("a mount without a daemon says {error}").into()),
            Ok(_) => Err("a mount without a daemon answers".into()),
        }
    }

    fn write_ledger(&self, stop: &Arc<AtomicBool>) -> Work {
        let (ledger, place, stop) = (self.ledger.clone(), self.mount.join("ledger"), stop.clone());
        Work::begin("a thread that makes calls", move || {
            // Ends with the error of the call that met the kill.
            let _ = ledger.run(&place, &stop);
        })
    }

    fn write_promised(&self, stop: &Arc<AtomicBool>, thread: usize) -> Work {
        let (promises, stop) = (self.promises.clone(), stop.clone());
        let place = self.mount.join("promised");
        Work::begin("a thread that is promised pages", move || {
            let _ = promises.run(thread, &place, &stop);
        })
    }

    fn change_trees(&self, stop: &Arc<AtomicBool>, round: u32) -> Work {
        let (place, stop) = (self.mount.join("trees"), stop.clone());
        Work::begin("a thread that fills trees", move || {
            let mut seed = u64::from(round) * 1000;
            while !stop.load(Ordering::Relaxed) {
                seed += 1;
                if change_tree(&place, seed).is_err() {
                    return;
                }
            }
        })
    }

    /// Creates, destroys and syncs, and tells the ledger what became durable.
    fn administer(&self, stop: &Arc<AtomicBool>) -> Work {
        let (ledger, stop) = (self.ledger.clone(), stop.clone());
        let (environment, folder) = (self.instance.command("zfs"), self.folder.join("clients"));
        let run = move |program: &str, arguments: &[&str]| {
            let mut command = Command::new(folder.join(program));
            let variables = environment.get_envs();
            command.envs(variables.filter_map(|(name, value)| Some((name, value?))));
            program::run(command.env("PATH", "/").args(arguments), HANG_LIMIT)
        };
        Work::begin("an administrator's command", move || {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                let made = format!("{POOL}/trees/made{}", number % 3);
                let before = ledger.count();
                let mut answers = vec![run("zpool", &["sync", POOL])];
                if let Ok(spoken) = &answers[0]
                    && spoken.succeeded()
                    && !stop.load(Ordering::Relaxed)
                {
                    ledger.promise(before);
                }
                answers.push(run("zfs", &["create", &made]));
                answers.push(run("zfs", &["destroy", "-r", &made]));
                if answers.iter().any(Result::is_err) {
                    return;
                }
            }
        })
    }
}

/// Fills a tree, changes it, and removes the one before.
fn change_tree(place: &Path, seed: u64) -> Outcome {
    let tree = place.join(format!("tree-{seed}"));
    fs::create_dir(&tree)?;
    tree::fill(&tree, seed, TreeSize::Small)?;
    tree::churn(&tree, seed)?;
    for entry in fs::read_dir(place)? {
        let path = entry?.path();
        if path.to_string_lossy().contains("/tree-") && path != tree {
            fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}

/// Kills the daemon in calls on its own mounts.
pub fn kill_in_own_mounts(arguments: &Arguments) -> Outcome {
    let folder = scratch("conformance-own-mounts");
    let instance = Arc::new(Instance::new(&programs(), &folder)?);
    make_pool(
        &instance,
        &folder.join("images"),
        &instance.root().join("pool"),
    )?;
    instance.zfs(&format!("create {POOL}/above"))?;
    let kills = arguments.kills.saturating_mul(FROZEN_EACH);
    for round in 0..kills {
        kill_frozen(&instance).map_err(|error| format!("kill {round}: {error}"))?;
    }
    println!(
        "own mounts: {kills} kills of a daemon that waited for itself, all of it gone at once"
    );
    instance.zfs(&format!("destroy -r {POOL}/above"))?;
    Ok(())
}

fn kill_frozen(instance: &Arc<Instance>) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    let work = [make_and_remove_folders(instance.clone(), stop.clone())];
    let is_met = instance.freeze_daemon_in_own_mount(MEETING_LIMIT);
    stop.store(true, Ordering::Relaxed);
    let is_gone = instance.kill_daemon_within(HANG_LIMIT);
    crash::expect_ended(&work)?;
    if !is_met {
        return Err("no thread of the daemon waited for the daemon itself".into());
    }
    if !is_gone {
        return Err("threads of a killed daemon wait for an answer of that daemon".into());
    }
    instance.must("zpool", &["status", POOL])?;
    // It is there or not, as the kill left it.
    let below = format!("{POOL}/above/below");
    let mut destroy = instance.command("zfs");
    program::run(destroy.args(["destroy", "-r", &below]), HANG_LIMIT)?;
    Ok(())
}

/// Creates a dataset in another and one in it, and destroys both, over and over.
fn make_and_remove_folders(instance: Arc<Instance>, stop: Arc<AtomicBool>) -> Work {
    Work::begin("an administrator's command", move || {
        let below = format!("{POOL}/above/below");
        let deeper = format!("{below}/deeper");
        let all: [&[&str]; 3] = [
            &["create", &below],
            &["create", &deeper],
            &["destroy", "-r", &below],
        ];
        for words in all.iter().cycle() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            if program::run(instance.command("zfs").args(*words), HANG_LIMIT).is_err() {
                return;
            }
        }
    })
}
