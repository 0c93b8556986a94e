//! Files that are served by NFS 3 and 4.1, beside nfs-ganesha.
//!
//! # Mechanism
//! A dataset of a pool in memory (tmpfs) is served by our daemon; an ext4 file system on an image
//! in memory by nfs-ganesha. One client of our own ([`tarn_nfs_client`]) asks both in turn, by one
//! connection or by as many as there are processors, each load for some seconds; in every round
//! each load is done by both. Blocks carry a stamp, which each read checks. The table has the
//! medians of the rounds.
//!
//! # Bars
//! Cached reads are at least [`READS`] times those of nfs-ganesha; nothing is slower than the peer
//! ([`NOISE`] less).

use std::fs::{self, File};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tarn_nfs_client::{Client, Folder, OpenFile, Operation, Stable, Version};
use tarn_oracle::instance::Instance;

use super::peers;
use super::served_blocks::Extent;
use super::table::{NOISE, median};
use crate::debian_packages::install_missing;
use crate::servers::{START_LIMIT, Server, await_server, free_port, start};
use crate::workspace::{Outcome, programs, scratch};

/// What is asked for to have this measured.
pub const NAME: &str = "served files";

/// Our cached reads by those of nfs-ganesha.
const READS: f64 = 1.5;

/// nfs-ganesha's file system comes as a library of another package, which the first one's program
/// does not show.
const NEEDED: [(&str, &str); 3] = [
    ("ganesha.nfsd", "nfs-ganesha"),
    ("ganesha.nfsd", "nfs-ganesha-vfs"),
    ("rpcbind", "rpcbind"),
];

const POOL: &str = "files";
const DISK_BYTES: u64 = 2 << 30;
/// The file that is read.
const FILE: &str = "read";
const FILE_BYTES: u64 = 256 << 20;
/// Sequential writes begin anew after so many bytes, which are committed.
const WRITTEN_BYTES: u64 = 64 << 20;
const BLOCK: u64 = 4 << 10;
const LARGE: u64 = 1 << 20;
const SMALL: u64 = 512;
/// So many files are asked for their attributes.
const FILES: u64 = 64;
const PORT_MAPPER: u16 = 111;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    WriteAndCommit,
    SequentialRead,
    RandomRead,
    SyncedWrite,
    Attributes,
    Create,
}

#[derive(Debug, Clone, Copy)]
struct Load {
    name: &'static str,
    work: Work,
    depth: usize,
    /// The least ratio to the peer.
    least: f64,
}

const fn load(name: &'static str, work: Work, depth: usize, least: f64) -> Load {
    Load {
        name,
        work,
        depth,
        least,
    }
}

const LOADS: [Load; 7] = [
    load("1 MiB write, depth 8, COMMIT", Work::WriteAndCommit, 8, 1.0),
    load("1 MiB read, depth 8", Work::SequentialRead, 8, READS),
    load("4 KiB random read, depth 1", Work::RandomRead, 1, READS),
    load("4 KiB random read, depth 32", Work::RandomRead, 32, READS),
    load("512 B FILE_SYNC write", Work::SyncedWrite, 1, 1.0),
    load("stat, depth 8", Work::Attributes, 8, 1.0),
    load("create, depth 8", Work::Create, 8, 1.0),
];

/// Where a server has the folder that is shared.
struct Served {
    port: u16,
    mount_port: u16,
    /// By MOUNT, and from the root of version 4.
    path: String,
    path_of_4: String,
}

impl Served {
    fn mount(&self, version: Version, owner: &str) -> Outcome<(Client, Folder)> {
        let path = match version {
            Version::Three => &self.path,
            Version::FourOne => &self.path_of_4,
        };
        let ports = (self.port, self.mount_port);
        Ok(Client::mount(version, ports, path, owner)?)
    }
}

/// Measures, prints, and gives the bars that were not reached.
pub fn measure(memory: &Path, extent: Extent) -> Outcome<Vec<String>> {
    install_missing(&NEEDED)?;
    let folder = memory.join("served-files");
    fs::create_dir_all(&folder)?;
    let instance = Instance::new(&programs(), &scratch("bench-served"))?;
    let ours = serve_ours(&instance, &folder)?;
    let mut ext4 = peers::named("ext4", &folder, true)?;
    let theirs = serve_with_ganesha(&folder, &ext4.make()?);
    let failed = theirs.and_then(|(theirs, servers)| {
        let failed = compare_all(&ours, &theirs, extent);
        drop(servers);
        failed
    });
    ext4.remove()?;
    instance.zpool(&format!("destroy -f {POOL}"))?;
    fs::remove_dir_all(&folder)?;
    failed
}

fn compare_all(ours: &Served, theirs: &Served, extent: Extent) -> Outcome<Vec<String>> {
    for served in [ours, theirs] {
        fill(served)?;
    }
    println!(
        "\nfiles in memory, served by NFS; {} s each, {} rounds, op/s",
        extent.time.as_secs(),
        extent.rounds
    );
    println!(
        "{:<5} {:<28} {:>7} {:>10} {:>11} {:>7}",
        "", "", "clients", "tarn", "nfs-ganesha", "ratio"
    );
    let mut failed = Vec::new();
    let processors = std::thread::available_parallelism()?.get();
    for (version, name) in [(Version::Three, "3"), (Version::FourOne, "4.1")] {
        for load in LOADS {
            for clients in [1, processors] {
                let (mut own, mut peer, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
                for _ in 0..extent.rounds {
                    let rate = |served| rate(served, version, load, clients, extent.time);
                    let (mine, other) = (rate(ours)?, rate(theirs)?);
                    own.push(mine);
                    peer.push(other);
                    ratios.push(mine / other);
                }
                let middle = |values| median(values).ok_or("no round was measured");
                let (own, peer, ratio) = (middle(own)?, middle(peer)?, middle(ratios)?);
                let passed = ratio >= load.least - NOISE;
                let verdict = if passed { "PASS" } else { "FAIL" };
                println!(
                    "{name:<5} {:<28} {clients:>7} {own:>10.0} {peer:>11.0} {ratio:>7.2}  at least {:.1}: {verdict}",
                    load.name, load.least
                );
                if !passed {
                    failed.push(format!(
                        "{NAME}: version {name}, {}, {clients} clients ({ratio:.2} of {:.1})",
                        load.name, load.least
                    ));
                }
            }
        }
    }
    Ok(failed)
}

/// A pool in memory whose dataset is shared.
fn serve_ours(instance: &Instance, folder: &Path) -> Outcome<Served> {
    let disk = folder.join("ours.img");
    // The disk has all of its memory: ext4 writes in place, and we would wait for new pages.
    let flags = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(File::create(&disk)?, flags, 0, DISK_BYTES)?;
    let port = free_port()?;
    let (port_option, cache) = (port.to_string(), format!("{}M", peers::CACHE_MIB));
    let options = ["--nfs-port", &port_option, "--cache-size", &cache];
    instance.start_daemon(&options, START_LIMIT)?;
    let mount = instance.root().join(POOL);
    instance.zpool(&format!(
        "create -f -o ashift=12 -O compression=off -O atime=off -O sharenfs=rw,insecure,no_root_squash -m {} {POOL} {}",
        mount.display(),
        disk.display()
    ))?;
    await_server(
        || TcpStream::connect(("127.0.0.1", port)).is_ok(),
        "the NFS server of tarnd",
    )?;
    let path = mount.display().to_string();
    Ok(Served {
        port,
        mount_port: port,
        path_of_4: path.clone(),
        path,
    })
}

/// Starts nfs-ganesha, and the port mapper that it insists on where none runs.
fn serve_with_ganesha(folder: &Path, shared: &Path) -> Outcome<(Served, Vec<Server>)> {
    let mut servers = Vec::new();
    let is_mapped = || TcpStream::connect(("127.0.0.1", PORT_MAPPER)).is_ok();
    if !is_mapped() {
        servers.push(start(Command::new("rpcbind").args(["-f", "-i"]))?);
        await_server(is_mapped, "rpcbind")?;
    }
    let (port, mount_port) = (free_port()?, free_port()?);
    let state = folder.join("ganesha");
    fs::create_dir_all(&state)?;
    let configuration = state.join("ganesha.conf");
    fs::write(&configuration, settings(port, mount_port, &state, shared))?;
    let mut ganesha = Command::new("ganesha.nfsd");
    ganesha
        .args(["-F", "-N", "EVENT", "-f"])
        .arg(&configuration)
        .arg("-L")
        .arg(state.join("log"))
        .arg("-p")
        .arg(state.join("pid"))
        .stdin(Stdio::null());
    // The last one that is started is the first that ends.
    servers.insert(0, start(&mut ganesha)?);
    let served = Served {
        port,
        mount_port,
        path: shared.display().to_string(),
        path_of_4: "/shared".to_owned(),
    };
    let answers = || served.mount(Version::Three, "first").is_ok();
    await_server(answers, "nfs-ganesha")?;
    Ok((served, servers))
}

/// Both versions by TCP, no other service, no waiting for clients of an earlier start.
fn settings(port: u16, mount_port: u16, state: &Path, shared: &Path) -> String {
    format!(
        "NFS_CORE_PARAM {{ Protocols = 3,4; NFS_Port = {port}; MNT_Port = {mount_port}; \
         Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; Bind_addr = 127.0.0.1; }}\n\
         NFSV4 {{ Graceless = true; RecoveryRoot = \"{}\"; Minor_Versions = 1,2; \
         Only_Numeric_Owners = true; }}\n\
         EXPORT {{ Export_Id = 1; Path = {}; Pseudo = /shared; Access_Type = RW; \
         Squash = No_Root_Squash; SecType = sys; Protocols = 3,4; Transports = TCP; \
         FSAL {{ Name = VFS; }} }}\n",
        state.display(),
        shared.display()
    )
}

/// Writes the file that is read, each block with its stamp.
fn fill(served: &Served) -> Outcome {
    let (mut client, folder) = served.mount(Version::Three, "fill")?;
    let file = client.open(&folder, FILE)?;
    let mut data = vec![0x5a; usize::try_from(LARGE)?];
    for offset in (0..FILE_BYTES).step_by(usize::try_from(LARGE)?) {
        for (at, block) in data.chunks_mut(usize::try_from(BLOCK)?).enumerate() {
            let stamp = offset + BLOCK * at as u64;
            block[..8].copy_from_slice(&stamp.to_le_bytes());
        }
        client.send(&Operation::Write {
            file: &file,
            offset,
            data: &data,
            promise: Stable::Unstable,
        })?;
        client.receive()?;
    }
    client.send(&Operation::Commit { file: &file })?;
    client.receive()?;
    Ok(())
}

/// Files that are created have names that none had before.
static CREATED: AtomicU64 = AtomicU64::new(0);

/// Requests each second of so many clients together.
fn rate(
    served: &Served,
    version: Version,
    load: Load,
    clients: usize,
    time: Duration,
) -> Outcome<f64> {
    let together = Barrier::new(clients);
    let rates: Vec<Result<f64, String>> = std::thread::scope(|scope| {
        let each = |number| {
            let together = &together;
            scope.spawn(move || {
                let ready = Asking::prepare(served, version, load, number);
                together.wait();
                ready
                    .and_then(|mut asking| asking.run(time))
                    .map_err(|error| format!("{}: {error}", load.name))
            })
        };
        let running: Vec<_> = (0..clients).map(each).collect();
        let ended = running.into_iter().map(|thread| {
            let lost = || Err("a client's thread ended early".to_owned());
            thread.join().unwrap_or_else(|_| lost())
        });
        ended.collect()
    });
    let mut sum = 0.0;
    for rate in rates {
        sum += rate?;
    }
    Ok(sum)
}

/// A client, and what it needs for its load.
struct Asking {
    client: Client,
    folder: Folder,
    files: Vec<OpenFile>,
    load: Load,
    data: Vec<u8>,
    /// Of the next request.
    offset: u64,
    /// A source of places that differ.
    random: u64,
    /// Requests without a reply, and where they read.
    reading: Vec<(u32, u64)>,
}

impl Asking {
    fn prepare(served: &Served, version: Version, load: Load, number: usize) -> Outcome<Asking> {
        let fresh = CREATED.fetch_add(1, Ordering::Relaxed);
        let owner = format!("bench {fresh}");
        let (mut client, folder) = served.mount(version, &owner)?;
        let names = match load.work {
            Work::SequentialRead | Work::RandomRead => vec![FILE.to_owned()],
            Work::WriteAndCommit | Work::SyncedWrite => vec![format!("written-{number}")],
            Work::Attributes => (0..FILES).map(|one| format!("stat-{one}")).collect(),
            Work::Create => Vec::new(),
        };
        let mut files = Vec::new();
        for name in &names {
            files.push(client.open(&folder, name)?);
        }
        let bytes = match load.work {
            Work::SyncedWrite => SMALL,
            _ => LARGE,
        };
        Ok(Asking {
            client,
            folder,
            files,
            load,
            data: vec![0xa5; usize::try_from(bytes)?],
            offset: 0,
            random: fresh.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            reading: Vec::new(),
        })
    }

    /// Requests each second, of those whose replies came.
    fn run(&mut self, time: Duration) -> Outcome<f64> {
        assert!(self.load.depth <= self.client.most_in_flight());
        let began = Instant::now();
        let (mut in_flight, mut done) = (0, 0_u64);
        while in_flight > 0 || began.elapsed() < time {
            let goes_on = began.elapsed() < time;
            let at_end = self.load.work == Work::WriteAndCommit && self.offset == WRITTEN_BYTES;
            if at_end && in_flight == 0 {
                self.offset = 0;
                let file = &self.files[0];
                self.client.send(&Operation::Commit { file })?;
                self.client.receive()?;
            } else if goes_on && !at_end && in_flight < self.load.depth {
                self.ask()?;
                in_flight += 1;
            } else {
                self.take()?;
                in_flight -= 1;
                done += 1;
            }
        }
        Ok(done as f64 / began.elapsed().as_secs_f64())
    }

    /// Sends the next request of the load.
    fn ask(&mut self) -> Outcome {
        let offset = self.offset;
        match self.load.work {
            Work::WriteAndCommit | Work::SyncedWrite => {
                let is_large = self.load.work == Work::WriteAndCommit;
                self.offset += self.data.len() as u64;
                if !is_large {
                    self.offset %= WRITTEN_BYTES;
                }
                self.client.send(&Operation::Write {
                    file: &self.files[0],
                    offset,
                    data: &self.data,
                    promise: match is_large {
                        true => Stable::Unstable,
                        false => Stable::File,
                    },
                })?;
            }
            Work::SequentialRead | Work::RandomRead => {
                let (offset, bytes) = match self.load.work {
                    Work::SequentialRead => (offset, LARGE),
                    _ => (self.next_random() % (FILE_BYTES / BLOCK) * BLOCK, BLOCK),
                };
                self.offset = (self.offset + LARGE) % FILE_BYTES;
                let call = self.client.send(&Operation::Read {
                    file: &self.files[0],
                    offset,
                    bytes: u32::try_from(bytes)?,
                })?;
                self.reading.push((call, offset));
            }
            Work::Attributes => {
                let one = usize::try_from(self.next_random() % FILES)?;
                let file = &self.files[one];
                self.client.send(&Operation::Attributes { file })?;
            }
            Work::Create => {
                let name = format!("made-{}", CREATED.fetch_add(1, Ordering::Relaxed));
                self.client.send(&Operation::Create {
                    folder: &self.folder,
                    name: &name,
                })?;
            }
        }
        Ok(())
    }

    /// Takes a reply, and checks the stamp of what was read.
    fn take(&mut self) -> Outcome {
        let done = self.client.receive()?;
        let Some(at) = self.reading.iter().position(|(call, _)| *call == done.call) else {
            return Ok(());
        };
        let (_, offset) = self.reading.swap_remove(at);
        match done.data.first_chunk() {
            Some(stamp) if u64::from_le_bytes(*stamp) == offset => Ok(()),
            _ => Err(format!("what was read at {offset} is not what was written there").into()),
        }
    }

    /// xorshift64.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}
