//! Volumes by NBD and iSCSI: programs of others copy and compare them, and the daemon is killed
//! under writes.
//!
//! # Mechanism
//! libnbd's `nbdcopy`, `nbdinfo` and `nbdsh`, qemu's `qemu-img` and `qemu-io` by NBD and iSCSI, and
//! libiscsi's `iscsi-test-cu` (installed from Debian's archive where they are missing) copy an
//! image with holes into a volume and out again, compare it, look at what is allocated, discard,
//! read a snapshot of it, and test the target ([`programs_of_others`]).
//!
//! Then two clients of our own write block after block of one volume at the same time, each by its
//! own words of a promise ([`promised_writes`]), while the daemon is killed at a random time.
//! OpenZFS's `zdb` must find the devices clean as they were left, intent logs and all; the next
//! daemon replays the logs, and each block must have what was promised last, or a later write. A
//! persistent reservation of another volume is there after each kill, and where another host has
//! taken the pool over at the end.
//!
//! The same volumes as block devices are in [`block_devices`](super::block_devices).

mod programs_of_others;
mod promised_writes;
mod scene;
mod scsi_initiator;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use tarn_oracle::judge;
use tarn_oracle::program;
use tarn_oracle::tools::Unpacked;
use tarn_workload::twister::Twister;

use super::Arguments;
use super::block_devices::block_devices;
use super::crash::{self, Work, copy_images};
use super::nbd_client::BLOCK_BYTES;
use crate::changes;
use crate::debian_packages;
use crate::servers::free_port;
use crate::workspace::{Outcome, openzfs};
use promised_writes::{Account, Promise};
use scene::{LIMIT, POOL, Scene, VOLUME_BYTES, VOLUMES};
use scsi_initiator::{Initiator, RESERVATION_CONFLICT};

/// Blocks that one client writes to.
const BLOCKS: u64 = 128;
/// The key of the persistent reservation.
const KEY: u64 = 0x7461_726e;
/// The daemon is killed within this time after the writes began.
const WORK_MS: u32 = 2000;
/// One of so many kills is under file systems of block devices.
const DEVICE_KILLS_PART: u32 = 5;

/// Copies, compares, and kills the daemon as often as asked.
pub fn volumes(arguments: &Arguments) -> Outcome {
    install()?;
    let tools = openzfs()?;
    let mut chance = Twister::new(arguments.seed ^ 0x6e62_6421);
    let scene = Scene::make()?;
    scene.copy(&mut chance)?;
    println!("  qemu-img, qemu-io, nbdcopy, nbdinfo and nbdsh agree");
    scene.libiscsi(arguments.small)?;
    scene.initiator("reserved", 0)?.reserve(KEY)?;
    for round in 1..=arguments.kills {
        let told = scene.round(&tools, round, &mut chance)?;
        println!("  kill {round} of {}: {told}", arguments.kills);
    }
    // Few: each mounts three times.
    let kills = arguments.kills.div_ceil(DEVICE_KILLS_PART);
    block_devices(&scene.instance, POOL, &scene.folder, kills, &mut chance)?;
    let last = scene.be_taken_over()?;
    last.instance.must("zpool", &["export", POOL])?;
    changes::expect_clean(&last.instance, &scene.images, POOL, &[])?;
    let folder = scene.folder.clone();
    drop(last);
    drop(scene);
    if !arguments.keep {
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// Installs the programs that are called.
fn install() -> Outcome {
    debian_packages::install_missing(&[
        ("qemu-img", "qemu-utils"),
        ("nbdcopy", "libnbd-bin"),
        ("nbdsh", "python3-libnbd"),
        ("iscsi-test-cu", "libiscsi-bin"),
    ])?;
    // qemu's driver of iSCSI is a module of another package.
    let formats = program::run(Command::new("qemu-img").arg("--help"), LIMIT)?.stdout;
    let mut names = formats.split_whitespace();
    match names.any(|name| name == "iscsi") {
        true => Ok(()),
        false => debian_packages::install(&["qemu-block-extra"]),
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // A daemon that is killed leaves its loop devices; the next one removes them.
        let _ = self.instance.run("zpool", &["list"]);
        let _ = self.instance.stop_daemon(LIMIT);
    }
}

impl Scene {
    /// Programs of others copy an image there and back.
    fn copy(&self, chance: &mut Twister) -> Outcome {
        let (image, back) = (self.folder.join("image"), self.folder.join("back"));
        let part = usize::try_from(VOLUME_BYTES / 3)?;
        let file = fs::File::create(&image)?;
        file.set_len(VOLUME_BYTES)?;
        let data = chance.bytes(part);
        std::os::unix::fs::FileExt::write_all_at(&file, &data, VOLUME_BYTES / 3)?;
        let (image, back) = (image.display().to_string(), back.display().to_string());
        let uri = self.uri("copied");
        let list = format!("nbd+unix:///?socket={}", self.socket().display());
        let listed = self.run(&["nbdinfo", "--list", &list])?;
        for name in VOLUMES {
            let export = format!("export=\"{POOL}/{name}\"");
            if !listed.contains(&export) {
                return Err(format!("nbdinfo does not list {export}:\n{listed}").into());
            }
        }
        self.run(&["nbdcopy", "--flush", &image, &uri])?;
        self.run(&[
            "qemu-img", "compare", "-f", "raw", "-F", "raw", &image, &uri,
        ])?;
        let map = self.run(&["nbdinfo", "--map", "--totals", &uri])?;
        if !map.contains("hole,zero") || !map.contains("data") {
            return Err(format!("not a third of the volume is data:\n{map}").into());
        }
        self.instance
            .zfs(&format!("snapshot {POOL}/copied@before"))?;
        let middle = (VOLUME_BYTES / 3).to_string();
        let discard = format!("discard {middle} 1M");
        let write = format!("write -P 7 {middle} 64k");
        let read = format!("read -P 7 {middle} 64k");
        let words = [
            "qemu-io", "-f", "raw", &uri, "-c", &discard, "-c", &write, "-c", &read,
        ];
        let said = self.run(&words)?;
        if said.contains("failed") {
            return Err(format!("qemu-io reads something else:\n{said}").into());
        }
        self.run(&["nbdcopy", &self.uri("copied@before"), &back])?;
        self.run(&["cmp", &image, &back])?;
        let other = self.uri("small");
        let words = [
            "qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", &image, &other,
        ];
        self.run(&words)?;
        self.run(&[
            "qemu-img", "compare", "-f", "raw", "-F", "raw", &image, &other,
        ])?;
        self.qemu_by_both(&image)?;
        self.nbdsh()
    }

    fn round(&self, tools: &Unpacked, number: u32, chance: &mut Twister) -> Outcome<String> {
        let name = VOLUMES[chance.index(VOLUMES.len())];
        let first = Promise::ALL[usize::try_from(number)? % Promise::ALL.len()];
        // A unit has one write cache for all of its initiators.
        let second = match first {
            Promise::ScsiUncached => Promise::NbdFlush,
            Promise::NbdForced => Promise::ScsiUncached,
            Promise::NbdFlush => Promise::ScsiForced,
            Promise::ScsiForced => Promise::ScsiFlush,
            Promise::ScsiFlush => Promise::NbdForced,
        };
        let promises = [first, second];
        let accounts = [Account::default(), Account::default()];
        let mut works = Vec::new();
        for (index, promise) in promises.into_iter().enumerate() {
            let mut client = self.client(name, promise, index)?;
            let (account, mut chosen) =
                (accounts[index].clone(), Twister::new(chance.word().into()));
            let begin = BLOCKS * u64::try_from(index)?;
            works.push(Work::begin("a client of a volume", move || {
                // Ends with the error of the request that met the kill.
                let blocks = begin..begin + BLOCKS;
                let _ = account.write_on(&mut client, promise, blocks, &mut chosen);
            }));
        }
        let worked_ms = 50 + chance.below(WORK_MS);
        thread::sleep(Duration::from_millis(u64::from(worked_ms)));
        if !self.instance.kill_daemon() {
            return Err("there was no daemon to kill: it ended by itself".into());
        }
        crash::expect_ended(&works)?;
        let crashed = self.folder.join("crashed");
        copy_images(&self.images, &crashed)?;
        let clean = judge::judge(tools, &crashed, POOL)
            .map_err(|verdict| format!("as the daemon left it: {verdict}"))?;
        self.instance.must("zpool", &["status", POOL])?;
        let mut counts = Vec::new();
        for (index, promise) in promises.into_iter().enumerate() {
            // What was written by one protocol is read by the other.
            let other = promises[1 - index];
            let mut client = self.client(name, other, index)?;
            let count = accounts[index].check(&mut client);
            let count = count.map_err(|error| format!("{} of {name}: {error}", promise.name()))?;
            counts.push(format!("{count} blocks by {}", promise.name()));
        }
        self.expect_reservation()?;
        fs::remove_dir_all(&crashed)?;
        Ok(format!(
            "{name} after {worked_ms} ms: {} blocks clean, promised: {}",
            clean.block_count,
            counts.join(", ")
        ))
    }

    /// The persistent reservation is there, and keeps others out.
    fn expect_reservation(&self) -> Outcome {
        let found = self.initiator("reserved", 0)?.reservation()?;
        let expected = Initiator::expected_reservation(KEY);
        if found != expected {
            return Err(format!("the reservation is {found:x?}, not {expected:x?}").into());
        }
        let bytes = vec![1; usize::try_from(BLOCK_BYTES)?];
        let mut other = self.initiator("reserved", 1)?;
        match other.status_of_write(0, &bytes)? {
            RESERVATION_CONFLICT => {}
            other => return Err(format!("a write of another initiator gets {other:#04x}").into()),
        }
        self.initiator("reserved", 0)?.write(0, &bytes, false)
    }

    /// The daemon is killed, and another host imports the pool by force.
    fn be_taken_over(&self) -> Outcome<Scene> {
        if !self.instance.kill_daemon() {
            return Err("there was no daemon to kill: it ended by itself".into());
        }
        let other = self.instance.other_host(&self.folder.join("other"))?;
        let images = self.images.display().to_string();
        other.must("zpool", &["import", "-f", "-d", &images, POOL])?;
        let portal = format!("127.0.0.1:{}", free_port()?);
        other.must("tarn", &["iscsi", "portal", &portal])?;
        let there = Scene {
            instance: other,
            folder: self.folder.clone(),
            images: self.images.clone(),
            portal,
        };
        there.expect_reservation()?;
        println!("  the reservation is where another host has taken the pool over");
        Ok(there)
    }
}
