//! Volumes as block devices of this machine: `fio` verifies what it wrote, and the daemon is killed
//! under ext4 and xfs.
//!
//! # Mechanism
//! On a file system of `/dev/zvol/...` a thread writes files, each with `fsync` of itself and its
//! folder, and writes down which were acknowledged; every eighth is a transaction of SQLite. The
//! daemon is killed at a random time: every call must come back. The next daemon makes new devices.
//! When the file system was mounted and unmounted once, so that its journal is replayed,
//! `e2fsck -fn` or `xfs_repair -n` must find it clean, and every file that was acknowledged must be
//! there, whole.
//!
//! Where this process may not make block devices, the output says so, and nothing is judged.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tarn_oracle::instance::Instance;
use tarn_oracle::program;
use tarn_oracle::tools::is_in_path;
use tarn_workload::twister::Twister;

use super::crash::{self, Work};
use crate::debian_packages;
use crate::workspace::Outcome;

const VOLUME_BYTES: u64 = 320 << 20;
/// The daemon is killed within this time after the writes began.
const WORK_MS: u32 = 1500;
const LIMIT: Duration = Duration::from_secs(120);
/// Bytes of a file, at most.
const FILE_BYTES_MAX: u64 = 200_000;

/// A file system on a volume.
struct OnVolume<'a> {
    instance: &'a Instance,
    pool: &'a str,
    kind: &'static str,
    mount: PathBuf,
}

/// Verifies with `fio`, and kills the daemon under each kind of file system.
pub fn block_devices(
    instance: &Instance,
    pool: &str,
    folder: &Path,
    kills: u32,
    chance: &mut Twister,
) -> Outcome {
    if let Some(why) = obstacle() {
        println!("  block devices are not judged: {why}");
        return Ok(());
    }
    debian_packages::install_missing(&[
        ("fio", "fio"),
        ("sqlite3", "sqlite3"),
        ("mkfs.xfs", "xfsprogs"),
    ])?;
    verify(instance, pool)?;
    println!("  fio verifies what it wrote to a device");
    for kind in ["ext4", "xfs"] {
        if !is_known(kind) {
            println!("  {kind} is not judged: this kernel does not know it");
            continue;
        }
        let mount = folder.join(format!("mounted-{kind}"));
        fs::create_dir_all(&mount)?;
        let on_volume = OnVolume {
            instance,
            pool,
            kind,
            mount,
        };
        on_volume.make()?;
        for round in 1..=kills {
            let told = on_volume.round(chance)?;
            println!("  {kind}, kill {round} of {kills}: {told}");
        }
        instance.zfs(&format!("destroy {pool}/{kind}"))?;
    }
    Ok(())
}

/// Why devices cannot be made here.
fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("only root can make them".to_string());
    }
    let opened = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/loop-control");
    Some(format!("cannot open /dev/loop-control: {}", opened.err()?))
}

/// Whether the kernel can mount this kind of file system.
fn is_known(kind: &str) -> bool {
    // It may be a module, which mount(8) loads.
    let _ = Command::new("modprobe").args(["-q", kind]).status();
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known
        .lines()
        .any(|line| line.ends_with(&format!("\t{kind}")))
        && is_in_path(&format!("mkfs.{kind}"))
}

fn device(pool: &str, name: &str) -> String {
    format!("/dev/zvol/{pool}/{name}")
}

fn run(words: &[&str]) -> Outcome<String> {
    let spoken = program::run(Command::new(words[0]).args(&words[1..]), LIMIT)?;
    Ok(spoken.expect_success()?.stdout)
}

/// Writes and verifies with several requests under way, with flushes and discards between.
fn verify(instance: &Instance, pool: &str) -> Outcome {
    instance.zfs(&format!("create -s -V 64M -b 8k {pool}/fio"))?;
    let filename = format!("--filename={}", device(pool, "fio"));
    for mode in ["randwrite", "randtrimwrite"] {
        let rw = format!("--rw={mode}");
        run(&[
            "fio",
            "--name=verify",
            &filename,
            &rw,
            "--bsrange=512-128k",
            "--blockalign=512",
            "--iodepth=16",
            "--ioengine=libaio",
            "--direct=1",
            "--fsync=64",
            "--size=64M",
            "--verify=crc32c",
            "--verify_fatal=1",
            "--verify_state_save=0",
        ])?;
    }
    instance.zfs(&format!("destroy {pool}/fio"))?;
    Ok(())
}

impl OnVolume<'_> {
    fn make(&self) -> Outcome {
        let kind = self.kind;
        self.instance
            .zfs(&format!("create -s -V {VOLUME_BYTES} {}/{kind}", self.pool))?;
        run(&[&format!("mkfs.{kind}"), "-q", &device(self.pool, kind)])?;
        Ok(())
    }

    fn mount(&self) -> Outcome {
        run(&[
            "mount",
            &device(self.pool, self.kind),
            &self.mount.display().to_string(),
        ])?;
        Ok(())
    }

    fn unmount(&self) -> Outcome {
        run(&["umount", &self.mount.display().to_string()])?;
        Ok(())
    }

    fn round(&self, chance: &mut Twister) -> Outcome<String> {
        self.mount()?;
        for entry in fs::read_dir(&self.mount)? {
            let path = entry?.path();
            if path.is_file() {
                fs::remove_file(path)?;
            }
        }
        let acknowledged = Arc::new(AtomicU64::new(0));
        let (folder, told) = (self.mount.clone(), acknowledged.clone());
        let work = Work::begin("a program on a file system of a volume", move || {
            // Ends with the error of the call that met the kill.
            for number in 1.. {
                if write_file(&folder, number).is_err() {
                    return;
                }
                told.store(number, Ordering::SeqCst);
            }
        });
        let worked_ms = 100 + chance.below(WORK_MS);
        thread::sleep(Duration::from_millis(u64::from(worked_ms)));
        if !self.instance.kill_daemon() {
            return Err("there was no daemon to kill: it ended by itself".into());
        }
        let ended = crash::expect_ended(&[work]);
        // What has it open lets go of the old device.
        self.unmount()?;
        ended?;
        self.instance.must("zpool", &["status", self.pool])?;
        self.mount()?;
        self.unmount()?;
        match self.kind {
            "ext4" => run(&["e2fsck", "-fn", &device(self.pool, self.kind)])?,
            _ => run(&["xfs_repair", "-n", &device(self.pool, self.kind)])?,
        };
        self.mount()?;
        let last = acknowledged.load(Ordering::SeqCst);
        let checked = (1..=last).try_for_each(|number| check_file(&self.mount, number));
        self.unmount()?;
        checked?;
        Ok(format!(
            "after {worked_ms} ms clean, {last} files acknowledged"
        ))
    }
}

/// Whether a number is that of a transaction of SQLite.
fn is_transaction(number: u64) -> bool {
    number.is_multiple_of(8)
}

fn contents(number: u64) -> Vec<u8> {
    let mut chance = Twister::new(number);
    let length = chance.below_wide(FILE_BYTES_MAX);
    chance.bytes(usize::try_from(length).unwrap_or(0))
}

/// Writes a file durably, or has SQLite do a transaction.
fn write_file(folder: &Path, number: u64) -> Outcome {
    if is_transaction(number) {
        // The end of a transaction is the end of its journal's name, which is synced only so.
        let sql = format!(
            "PRAGMA synchronous=EXTRA; CREATE TABLE IF NOT EXISTS t(n INTEGER PRIMARY KEY); \
             INSERT INTO t VALUES({number});"
        );
        let database = folder.join("database").display().to_string();
        run(&["sqlite3", "-bail", &database, &sql])?;
        return Ok(());
    }
    let mut file = fs::File::create(folder.join(number.to_string()))?;
    file.write_all(&contents(number))?;
    file.sync_all()?;
    fs::File::open(folder)?.sync_all()?;
    Ok(())
}

/// A file that was acknowledged is there as it was written.
fn check_file(folder: &Path, number: u64) -> Outcome {
    if is_transaction(number) {
        let database = folder.join("database").display().to_string();
        let sql = format!("SELECT count(*) FROM t WHERE n={number};");
        return match run(&["sqlite3", &database, &sql])?.trim() {
            "1" => Ok(()),
            other => Err(format!("transaction {number} was acknowledged: {other}").into()),
        };
    }
    let found = fs::read(folder.join(number.to_string()))?;
    match found == contents(number) {
        true => Ok(()),
        false => Err(format!("file {number} was acknowledged and is another").into()),
    }
}
