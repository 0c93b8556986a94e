//! Volumes by NBD: programs of others copy and compare them, and the daemon is killed under writes.
//!
//! # Mechanism
//! libnbd's `nbdcopy` and `nbdinfo` and qemu's `qemu-img` and `qemu-io` (installed from Debian's
//! archive where they are missing) copy an image with holes into a volume and out again, compare
//! it, look at what is allocated, discard, and read a snapshot of it.
//!
//! Then a client of our own has block after block of a volume written with FUA, while the daemon is
//! killed at a random time. OpenZFS's `zdb` must find the devices clean as they were left, intent
//! logs and all; the next daemon replays the logs, and each block must have what was acknowledged
//! last, or a later write.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tarn_oracle::instance::Instance;
use tarn_oracle::judge;
use tarn_oracle::program;
use tarn_oracle::tools::Unpacked;
use tarn_workload::twister::Twister;

use super::crash::{self, Work, copy_images};
use super::nbd_client::{BLOCK_BYTES, NbdClient};
use super::{Arguments, POOL};
use crate::changes;
use crate::debian_packages;
use crate::workspace::{Outcome, openzfs, programs, scratch};

/// Sparse.
const IMAGE_BYTES: u64 = 1 << 30;
/// The size of the volumes; of the image that is copied a third is data.
const VOLUME_BYTES: u64 = 96 << 20;
const BLOCKS: u64 = 256;
/// The daemon is killed within this time after the writes began.
const WORK_MS: u32 = 2000;
/// Copying a volume takes less.
const LIMIT: Duration = Duration::from_secs(120);

/// Copies, compares, and kills the daemon as often as asked.
pub fn volumes(arguments: &Arguments) -> Outcome {
    debian_packages::install_missing(&[("qemu-img", "qemu-utils"), ("nbdcopy", "libnbd-bin")])?;
    let tools = openzfs()?;
    let mut chance = Twister::new(arguments.seed ^ 0x6e62_6421);
    let scene = Scene::make()?;
    scene.copy(&mut chance)?;
    println!("  qemu-img, qemu-io, nbdcopy and nbdinfo agree");
    for round in 1..=arguments.kills {
        let told = scene.round(&tools, &mut chance)?;
        println!("  kill {round} of {}: {told}", arguments.kills);
    }
    scene.instance.must("zpool", &["export", POOL])?;
    changes::expect_clean(&scene.instance, &scene.images, POOL, &[])?;
    let folder = scene.folder.clone();
    drop(scene);
    if !arguments.keep {
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// The numbers of the writes to each block.
#[derive(Default)]
struct Written {
    last: u32,
    /// By block: the last one acknowledged, and the last one sent.
    blocks: BTreeMap<u64, (u32, u32)>,
}

struct Scene {
    instance: Instance,
    folder: PathBuf,
    images: PathBuf,
    written: Arc<Mutex<Written>>,
}

impl Scene {
    fn make() -> Outcome<Scene> {
        let folder = scratch("conformance-volumes");
        let images = folder.join("images");
        let instance = Instance::new(&programs(), &folder)?;
        fs::create_dir_all(&images)?;
        let data = images.join("data");
        fs::File::create(&data)?.set_len(IMAGE_BYTES)?;
        let data = data.display().to_string();
        instance.must("zpool", &["create", "-m", "none", POOL, &data])?;
        for options in [
            "copied",
            "small -o volblocksize=4k",
            "throughput -o logbias=throughput",
        ] {
            let (name, options) = options.split_once(' ').unwrap_or((options, ""));
            instance.zfs(&format!(
                "create -s -V {VOLUME_BYTES} {options} {POOL}/{name}"
            ))?;
        }
        Ok(Scene {
            instance,
            folder,
            images,
            written: Arc::default(),
        })
    }

    fn socket(&self) -> PathBuf {
        self.instance.state().join("nbd.sock")
    }

    fn uri(&self, name: &str) -> String {
        format!(
            "nbd+unix:///{POOL}/{name}?socket={}",
            self.socket().display()
        )
    }

    fn run(&self, words: &[&str]) -> Outcome<String> {
        let mut command = Command::new(words[0]);
        let spoken = program::run(command.args(&words[1..]), LIMIT)?;
        Ok(spoken.expect_success()?.stdout)
    }

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
        for name in ["copied", "small", "throughput"] {
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
        Ok(())
    }

    fn round(&self, tools: &Unpacked, chance: &mut Twister) -> Outcome<String> {
        let name = ["copied", "small", "throughput"][chance.index(3)];
        *self.written() = Written::default();
        let mut client = NbdClient::connect(&self.socket(), &format!("{POOL}/{name}"))?;
        let (written, mut chosen) = (self.written.clone(), Twister::new(chance.word().into()));
        let work = Work::begin("a client of a volume", move || {
            // Ends with the error of the write that met the kill.
            while write_one(&mut client, &written, &mut chosen).is_ok() {}
        });
        let worked_ms = 50 + chance.below(WORK_MS);
        thread::sleep(Duration::from_millis(u64::from(worked_ms)));
        if !self.instance.kill_daemon() {
            return Err("there was no daemon to kill: it ended by itself".into());
        }
        crash::expect_ended(&[work])?;
        let crashed = self.folder.join("crashed");
        copy_images(&self.images, &crashed)?;
        let clean = judge::judge(tools, &crashed, POOL)
            .map_err(|verdict| format!("as the daemon left it: {verdict}"))?;
        self.instance.must("zpool", &["status", POOL])?;
        let count = self.check(name)?;
        fs::remove_dir_all(&crashed)?;
        Ok(format!(
            "{name} after {worked_ms} ms: {} blocks clean, {count} writes acknowledged",
            clean.block_count
        ))
    }

    fn written(&self) -> std::sync::MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Each block has what was acknowledged last, or a later write.
    fn check(&self, name: &str) -> Outcome<usize> {
        let mut client = NbdClient::connect(&self.socket(), &format!("{POOL}/{name}"))?;
        let written = self.written();
        let mut acknowledged = 0;
        for (block, (promised, sent)) in &written.blocks {
            let found = client.read(*block)?;
            let number = u32::from_be_bytes(found[..4].try_into()?);
            let is_whole = found.chunks_exact(4).all(|word| word == &found[..4]);
            // A write that was not acknowledged may be there in part.
            if *promised == *sent && (!is_whole || number != *promised) {
                return Err(format!(
                    "block {block} of {name} has write {number}, and {promised} was acknowledged"
                )
                .into());
            }
            acknowledged += usize::from(*promised != 0);
        }
        Ok(acknowledged)
    }
}

/// Writes the next number into some block, durably.
fn write_one(client: &mut NbdClient, written: &Mutex<Written>, chance: &mut Twister) -> Outcome {
    let block = chance.below_wide(BLOCKS);
    let number = {
        let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
        written.last += 1;
        let number = written.last;
        written.blocks.entry(block).or_default().1 = number;
        number
    };
    let bytes = number
        .to_be_bytes()
        .repeat(usize::try_from(BLOCK_BYTES / 4)?);
    client.write_durably(block, &bytes)?;
    let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
    written.blocks.entry(block).or_default().0 = number;
    Ok(())
}
