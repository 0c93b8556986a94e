//! An instance whose pool has volumes, served by NBD and iSCSI.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tarn_oracle::instance::Instance;
use tarn_oracle::program;

use super::promised_writes::{Address, Client, Promise};
use super::scsi_initiator::Initiator;
use crate::conformance::crash::HANG_LIMIT;
use crate::servers::free_port;
use crate::workspace::{Outcome, programs, scratch};

/// The pool.
pub const POOL: &str = "conforming";
/// Sparse.
const IMAGE_BYTES: u64 = 1 << 30;
/// The size of the volumes.
pub const VOLUME_BYTES: u64 = 96 << 20;
/// The size of a volume with blocks of 512 bytes: many for their size.
const TESTED_512_BYTES: u64 = 32 << 20;
/// Copying a volume takes less.
pub const LIMIT: Duration = Duration::from_secs(120);
/// Those that are written to when the daemon is killed.
pub const VOLUMES: [&str; 3] = ["copied", "small", "throughput"];
/// The volume of libiscsi's tests.
pub const TESTED: &str = "tested";
/// The same with the smallest blocks.
pub const TESTED_512: &str = "tested512";
/// The names of initiators.
pub const INITIATORS: [&str; 2] = [
    "iqn.2026-01.local.client:one",
    "iqn.2026-01.local.client:two",
];

/// An instance with a pool of volumes.
pub struct Scene {
    /// The daemon that serves them.
    pub instance: Instance,
    /// Where everything is.
    pub folder: PathBuf,
    /// Where the images of the pool are.
    pub images: PathBuf,
    /// Where the portal listens.
    pub portal: String,
}

impl Scene {
    /// A pool with a volume of each kind.
    pub fn make() -> Outcome<Scene> {
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
            "reserved",
            TESTED,
        ] {
            let (name, options) = options.split_once(' ').unwrap_or((options, ""));
            instance.zfs(&format!(
                "create -s -V {VOLUME_BYTES} {options} {POOL}/{name}"
            ))?;
        }
        instance.zfs(&format!(
            "create -s -V {TESTED_512_BYTES} -o volblocksize=512 {POOL}/{TESTED_512}"
        ))?;
        instance.zfs(&format!("set tarn:shareiscsi=on {POOL}"))?;
        let portal = format!("127.0.0.1:{}", free_port()?);
        instance.must("tarn", &["iscsi", "portal", &portal])?;
        Ok(Scene {
            instance,
            folder,
            images,
            portal,
        })
    }

    /// The socket of NBD.
    pub fn socket(&self) -> PathBuf {
        self.instance.state().join("nbd.sock")
    }

    /// A volume, for clients of NBD.
    pub fn uri(&self, name: &str) -> String {
        format!(
            "nbd+unix:///{POOL}/{name}?socket={}",
            self.socket().display()
        )
    }

    /// Has a program do something, and gives what it says.
    pub fn run(&self, words: &[&str]) -> Outcome<String> {
        let mut command = Command::new(words[0]);
        let spoken = program::run(command.args(&words[1..]), LIMIT)?;
        Ok(spoken.expect_success()?.stdout)
    }

    /// A client of a volume.
    pub fn client(&self, name: &str, promise: Promise, index: usize) -> Outcome<Client> {
        let address = Address {
            socket: &self.socket(),
            portal: &self.portal,
            volume: &format!("{POOL}/{name}"),
            target: &target_of(name),
        };
        soon(|| Client::connect(&address, promise, INITIATORS[index]))
    }

    /// An initiator that has logged in at a volume.
    pub fn initiator(&self, name: &str, index: usize) -> Outcome<Initiator> {
        let target = target_of(name);
        soon(|| Initiator::log_in(&self.portal, &target, INITIATORS[index]))
    }
}

/// The name of a volume's target.
pub fn target_of(name: &str) -> String {
    format!("iqn.2026-01.local.tarn:{POOL}:{name}")
}

/// Tries until it succeeds: a daemon that has started shares volumes a moment after it answers
/// commands.
pub fn soon<T>(mut attempt: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(_) if began.elapsed() < HANG_LIMIT => thread::sleep(Duration::from_millis(5)),
            done => return done,
        }
    }
}
