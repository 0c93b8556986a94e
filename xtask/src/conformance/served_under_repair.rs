//! Files by NFS, volumes by NBD and iSCSI, while a disk of their pool is replaced and scrubbed.
//!
//! # Mechanism
//! The pool is a raidz1 of four files. Clients of our own write and read blocks of 24 KiB at
//! random, each in a file or a volume of its own: by NFS 3 and 4.1, by NBD, and by iSCSI, where
//! `qemu-nbd` is the initiator and hands the volume on. Every block says by which write it was
//! written last, and every read is checked. They work alone for a while, then while a disk is
//! replaced, and while a scrub runs; the latencies of each time are printed.
//!
//! In the end all blocks are read once more, the pool knows of no error, and OpenZFS's `zdb` finds
//! it clean.

use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use tarn_nfs_client::{Client, OpenFile, Operation, Stable, Version};
use tarn_oracle::instance::Instance;
use tarn_oracle::layout::Layout;
use tarn_workload::twister::Twister;

use super::nbd_client::{BLOCK_BYTES, NbdClient};
use crate::changes;
use crate::debian_packages::install_missing;
use crate::servers::{START_LIMIT, Server, await_server, free_port, start};
use crate::workspace::{Outcome, programs, scratch};

const POOL: &str = "repaired";
const DISK_BYTES: u64 = 2 << 30;
const VOLUME_BYTES: u64 = 64 << 20;
/// What else is in the pool, to be copied and scrubbed.
const FILLING_BYTES: u64 = 2 << 30;
/// Of each client.
const BLOCKS: u64 = 1024;
/// How long the clients work alone.
const ALONE: Duration = Duration::from_secs(5);
/// Writes between two commits of NFS.
const WRITES_TO_COMMIT: u32 = 16;
const SHARE: &str = "iqn.2026-01.local.tarn:repaired:disk";

/// What happens meanwhile.
const TIMES: [&str; 3] = ["alone", "replace", "scrub"];

/// What clients do, and by which protocol.
const CLIENTS: [&str; 4] = ["NFS 3", "NFS 4.1", "NBD", "iSCSI"];

/// Serves, repairs, and judges.
///
/// `seed` is where chance starts; with `keep` the scratch folder is left for a look.
pub fn served_under_repair(seed: u64, keep: bool) -> Outcome {
    install_missing(&[("qemu-nbd", "qemu-utils")])?;
    let scene = Scene::make()?;
    let mut chance = Twister::new(seed ^ 0x7365_7276);
    let seeds = CLIENTS.map(|_| chance.word());
    let time = AtomicUsize::new(0);
    let is_over = AtomicBool::new(false);
    let worked: Vec<Outcome<Worked>> = thread::scope(|scope| {
        let mut running: Vec<ScopedJoinHandle<'_, Result<Worked, String>>> = Vec::new();
        for (client, seed) in CLIENTS.into_iter().zip(seeds) {
            let (scene, time, is_over) = (&scene, &time, &is_over);
            running.push(scope.spawn(move || {
                let blocks = scene.connect(client);
                let work = blocks.and_then(|blocks| Work::new(blocks, seed).run(time, is_over));
                work.map_err(|error| format!("{client}: {error}"))
            }));
        }
        let repaired = scene.repair(&time);
        is_over.store(true, Ordering::SeqCst);
        let ended = running.into_iter().map(|thread| {
            let lost = || Err("a client's thread ended early".to_owned());
            Ok(thread.join().unwrap_or_else(|_| lost())?)
        });
        let ended = ended.collect();
        match repaired {
            Ok(()) => ended,
            Err(error) => vec![Err(error)],
        }
    });
    let worked = worked.into_iter().collect::<Outcome<Vec<Worked>>>()?;
    print(&worked);
    scene.judge(worked)?;
    let folder = scene.folder.clone();
    drop(scene);
    if !keep {
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

fn print(worked: &[Worked]) {
    println!(
        "  {:<8} {:<8} {:>8} {:>12} {:>12} {:>12}",
        "", "", "requests", "50 %, ms", "99 %, ms", "slowest, ms"
    );
    for (client, work) in CLIENTS.iter().zip(worked) {
        for (time, taken) in TIMES.iter().zip(&work.taken) {
            let mut taken = taken.clone();
            taken.sort_unstable();
            let at = |percent: usize| {
                let place = (taken.len() * percent / 100).min(taken.len().saturating_sub(1));
                let taken = taken.get(place).copied().unwrap_or_default();
                taken.as_secs_f64() * 1000.0
            };
            println!(
                "  {client:<8} {time:<8} {:>8} {:>12.2} {:>12.2} {:>12.2}",
                taken.len(),
                at(50),
                at(99),
                at(100)
            );
        }
    }
}

/// Blocks that a client writes and reads.
enum Blocks {
    File {
        client: Box<Client>,
        file: OpenFile,
        /// Since the last commit.
        writes: u32,
    },
    Volume {
        client: NbdClient,
        /// What hands it on, if it is not our daemon.
        _initiator: Option<Server>,
    },
}

impl Blocks {
    fn write(&mut self, block: u64, bytes: &[u8]) -> Outcome {
        let (client, file, writes) = match self {
            Blocks::Volume { client, .. } => return client.write_durably(block, bytes),
            Blocks::File {
                client,
                file,
                writes,
            } => (client, file, writes),
        };
        *writes += 1;
        client.send(&Operation::Write {
            file,
            offset: block * u64::from(BLOCK_BYTES),
            data: bytes,
            promise: match *writes % 2 {
                0 => Stable::File,
                _ => Stable::Unstable,
            },
        })?;
        client.receive()?;
        if *writes == WRITES_TO_COMMIT {
            *writes = 0;
            client.send(&Operation::Commit { file })?;
            client.receive()?;
        }
        Ok(())
    }

    fn read(&mut self, block: u64) -> Outcome<Vec<u8>> {
        let (client, file) = match self {
            Blocks::Volume { client, .. } => return client.read(block),
            Blocks::File { client, file, .. } => (client, file),
        };
        client.send(&Operation::Read {
            file,
            offset: block * u64::from(BLOCK_BYTES),
            bytes: BLOCK_BYTES,
        })?;
        Ok(client.receive()?.data.to_vec())
    }
}

/// A client at work.
struct Work {
    blocks: Blocks,
    chance: Twister,
    /// By block: its last write; 0 for none.
    numbers: Vec<u32>,
    last: u32,
}

/// What a client has done.
struct Worked {
    blocks: Blocks,
    numbers: Vec<u32>,
    /// How long each request took, in each of [`TIMES`].
    taken: [Vec<Duration>; TIMES.len()],
}

impl Work {
    fn new(blocks: Blocks, seed: u32) -> Work {
        Work {
            blocks,
            chance: Twister::new(seed.into()),
            numbers: vec![0; usize::try_from(BLOCKS).expect("few")],
            last: 0,
        }
    }

    /// Writes and reads until it is over.
    fn run(mut self, time: &AtomicUsize, is_over: &AtomicBool) -> Outcome<Worked> {
        let mut taken: [Vec<Duration>; TIMES.len()] = Default::default();
        while !is_over.load(Ordering::SeqCst) {
            let (began, during) = (Instant::now(), time.load(Ordering::SeqCst));
            self.one()?;
            taken[during].push(began.elapsed());
        }
        Ok(Worked {
            blocks: self.blocks,
            numbers: self.numbers,
            taken,
        })
    }

    fn one(&mut self) -> Outcome {
        let block = self.chance.below_wide(BLOCKS);
        let at = usize::try_from(block)?;
        if self.numbers[at] != 0 && self.chance.below(2) == 0 {
            return check(&mut self.blocks, block, self.numbers[at]);
        }
        self.last += 1;
        let words = usize::try_from(BLOCK_BYTES / 4)?;
        self.blocks
            .write(block, &self.last.to_be_bytes().repeat(words))?;
        self.numbers[at] = self.last;
        Ok(())
    }
}

/// A block has what was written last.
fn check(blocks: &mut Blocks, block: u64, number: u32) -> Outcome {
    let found = blocks.read(block)?;
    let is_right = found.len() == usize::try_from(BLOCK_BYTES)?
        && found
            .chunks_exact(4)
            .all(|word| word == number.to_be_bytes());
    match is_right {
        true => Ok(()),
        false => Err(format!("block {block} does not have write {number}, its last one").into()),
    }
}

/// A pool with everything that is served.
struct Scene {
    instance: Instance,
    folder: PathBuf,
    images: PathBuf,
    nfs_port: u16,
    portal: String,
}

impl Scene {
    fn make() -> Outcome<Scene> {
        let folder = scratch("conformance-repair");
        let images = folder.join("images");
        let instance = Instance::new(&programs(), &folder)?;
        let layout = Layout::RaidZ(1);
        layout.make_images(&images, DISK_BYTES)?;
        let nfs_port = free_port()?;
        instance.start_daemon(&["--nfs-port", &nfs_port.to_string()], START_LIMIT)?;
        let scene = Scene {
            folder,
            images,
            nfs_port,
            portal: format!("127.0.0.1:{}", free_port()?),
            instance,
        };
        let mount = scene.mount().display().to_string();
        let shared = "sharenfs=rw,insecure,no_root_squash";
        let words = [
            &["create", "-O", shared, "-m", &mount, POOL].map(str::to_owned)[..],
            &layout.words(&scene.images),
        ]
        .concat();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        scene.instance.must("zpool", &words)?;
        for volume in ["block", "disk"] {
            let create = format!("create -V {VOLUME_BYTES} {POOL}/{volume}");
            scene.instance.zfs(&create)?;
        }
        scene
            .instance
            .must("tarn", &["iscsi", "portal", &scene.portal])?;
        scene
            .instance
            .zfs(&format!("set tarn:shareiscsi=on {POOL}/disk"))?;
        await_server(
            || TcpStream::connect(&scene.portal).is_ok(),
            "the portal of tarnd",
        )?;
        scene.fill()?;
        Ok(scene)
    }

    /// Below the instance's folder, so that it is unmounted with the instance whatever happens.
    fn mount(&self) -> PathBuf {
        self.instance.root().join(POOL)
    }

    /// Bytes that cannot be compressed.
    fn fill(&self) -> Outcome {
        let mut file = File::create(self.mount().join("filling"))?;
        let bytes = Twister::new(1).bytes(1 << 20);
        for number in 0..FILLING_BYTES >> 20 {
            std::io::Write::write_all(&mut file, &number.to_be_bytes())?;
            std::io::Write::write_all(&mut file, &bytes[8..])?;
        }
        Ok(file.sync_all()?)
    }

    fn connect(&self, client: &str) -> Outcome<Blocks> {
        let volume = |client, initiator| Blocks::Volume {
            client,
            _initiator: initiator,
        };
        match client {
            "NFS 3" => self.open(Version::Three, "three"),
            "NFS 4.1" => self.open(Version::FourOne, "four"),
            "NBD" => {
                let socket = self.instance.state().join("nbd.sock");
                Ok(volume(
                    NbdClient::connect(&socket, &format!("{POOL}/block"))?,
                    None,
                ))
            }
            _ => {
                let socket = self.folder.join("initiator.sock");
                let mut initiator = Command::new("qemu-nbd");
                initiator
                    .args(["--format=raw", "--cache=none", "--export-name=disk"])
                    .arg(format!("--socket={}", socket.display()))
                    .arg(format!("iscsi://{}/{SHARE}/0", self.portal))
                    .stdin(Stdio::null());
                let initiator = start(&mut initiator)?;
                await_server(|| socket.exists(), "qemu-nbd as an initiator of iSCSI")?;
                Ok(volume(
                    NbdClient::connect(&socket, "disk")?,
                    Some(initiator),
                ))
            }
        }
    }

    fn open(&self, version: Version, name: &str) -> Outcome<Blocks> {
        let path = self.mount().display().to_string();
        let ports = (self.nfs_port, self.nfs_port);
        let (mut client, folder) = Client::mount(version, ports, &path, name)?;
        let file = client.open(&folder, name)?;
        Ok(Blocks::File {
            client: Box::new(client),
            file,
            writes: 0,
        })
    }

    /// Replaces a disk, and scrubs.
    fn repair(&self, time: &AtomicUsize) -> Outcome {
        thread::sleep(ALONE);
        time.store(1, Ordering::SeqCst);
        let other = self.images.join("other.img");
        File::create(&other)?.set_len(DISK_BYTES)?;
        let first = self.images.join("0.img").display().to_string();
        let other = other.display().to_string();
        self.instance
            .must("zpool", &["replace", "-w", POOL, &first, &other])?;
        time.store(2, Ordering::SeqCst);
        self.instance.must("zpool", &["scrub", "-w", POOL])?;
        Ok(())
    }

    /// Everything is there, and nothing else is wrong.
    fn judge(&self, worked: Vec<Worked>) -> Outcome {
        for (client, mut work) in CLIENTS.iter().zip(worked) {
            for (block, number) in work.numbers.iter().enumerate() {
                if *number != 0 {
                    check(&mut work.blocks, u64::try_from(block)?, *number)
                        .map_err(|error| format!("in the end, by {client}: {error}"))?;
                }
            }
        }
        changes::expect_healthy(&self.instance, POOL)?;
        expect_gone(&self.images.join("0.img"), &self.instance)?;
        self.instance.must("zpool", &["export", POOL])?;
        changes::expect_clean(&self.instance, &self.images, POOL, &[])
    }
}

/// The disk that was replaced is no part of the pool any more.
fn expect_gone(disk: &Path, instance: &Instance) -> Outcome {
    let status = instance.must("zpool", &["status", POOL])?.stdout;
    let disk = disk.display().to_string();
    match status.contains(&disk) {
        false => Ok(()),
        true => Err(format!("{disk} was replaced, and is in the pool:\n{status}").into()),
    }
}
