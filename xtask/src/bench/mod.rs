//! `cargo xtask bench`: how fast we are beside zfs-fuse, btrfs, xfs and ext4, and beside OpenZFS's
//! parity and its `zdb`.
//!
//! # Problem
//! A figure by itself says nothing: machines differ, and the same machine differs from minute to
//! minute. Only ratios taken in one run, under the same work on the same kind of disk, can be
//! compared with a bar.
//!
//! # Mechanism
//! Each file system lies on one image of the same size in memory (tmpfs), so that no disk is
//! measured: ours and zfs-fuse use it as a file vdev, the kernel's through a loop device. In a
//! round each in turn is made anew, does every [`Load`], and is removed; so what disturbs a round
//! disturbs all. The table has the median over the rounds of each rate, and the median of each
//! round's ratio. Compression is off, checksums on, access times off, and the cache as large, for
//! all that have them.
//!
//! Everything is mounted in a mount namespace of the run's own: what it leaves behind when it is
//! killed is not seen, and zfs-fuse, whose state has fixed places, finds none of the
//! machine's.
//!
//! # Bars
//! [`bar`] has them. Below a bar the task fails.

mod analytics_bars;
mod fence;
mod log_device;
mod parity;
mod peers;
mod scans;
mod served_blocks;
mod served_files;
mod streams;
mod table;

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use tarn_workload::load::{Caches, Load, Size, verify};

use crate::build;
use crate::workspace::{Outcome, output, scratch};
use peers::{Peer, PoolLayout};
use table::Rates;

/// Set for the process that runs in the namespace of its own.
const INSIDE: &str = "TARN_BENCH_INSIDE";

/// Before other work on the machine, so that less of it is measured. Daemons and loads inherit it;
/// the kernel's own threads, which store what its file systems write, do not.
const PRIORITY: &str = "-15";

/// What to measure.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Only loads whose name contains this, such as read; or log device, picket fence, streams,
    /// scans, served blocks, served files, parity, checksums, or analytics
    #[arg(long)]
    only: Option<String>,
    /// Small sizes and three rounds: a look, not a verdict to rely on
    #[arg(long)]
    quick: bool,
    /// How often each file system does everything
    #[arg(long)]
    rounds: Option<usize>,
    /// Only these beside ours, with commas between
    #[arg(long, value_delimiter = ',', default_value = "zfs-fuse,btrfs,xfs,ext4")]
    against: Vec<String>,
    /// Beside another build of ours, too, whose programs are in this folder
    #[arg(long, value_name = "FOLDER")]
    before: Option<PathBuf>,
    /// How our pools lie on their disks; with another than `single`, only `--before` is beside ours
    #[arg(long, value_enum, default_value = "single")]
    layout: PoolLayout,
    /// Use the programs of the last build
    #[arg(long)]
    no_build: bool,
}

impl Arguments {
    /// The names of the peers of file systems.
    fn peers(&self) -> Vec<&str> {
        let is_single = self.layout == PoolLayout::Single;
        let others = self.against.iter().filter(|_| is_single);
        let others = others.map(String::as_str);
        let before = self.before.iter().map(|_| peers::BEFORE);
        before
            .chain(others)
            .filter(|name| !name.is_empty())
            .collect()
    }

    fn asks_for(&self, name: &str) -> bool {
        self.only.as_deref().is_none_or(|part| name.contains(part))
    }
}

/// The least that our ratio to a peer may be.
pub fn bar(load: Load, peer: &str) -> Option<f64> {
    match (load, peer) {
        (Load::SyncedBy1 | Load::SyncedBy8 | Load::SyncedBy64, peers::ZFS_FUSE | "btrfs") => {
            Some(1.0)
        }
        (Load::SequentialWrite, peers::ZFS_FUSE) => Some(2.0),
        (Load::Create | Load::Unlink, peers::ZFS_FUSE) => Some(3.0),
        (_, peers::ZFS_FUSE) => Some(1.0),
        // Less the noise, 0.95.
        (_, peers::BEFORE) => Some(0.98),
        _ => None,
    }
}

/// Measures, prints, and fails if a bar is not reached.
pub fn bench(arguments: &Arguments) -> Outcome {
    let is_root = rustix::process::geteuid().is_root();
    if is_root && std::env::var_os(INSIDE).is_none() {
        return enter_namespace();
    }
    let loads: Vec<Load> = Load::ALL
        .into_iter()
        .filter(|load| arguments.asks_for(&load.to_string()))
        .collect();
    let (log_device, fence) = (
        arguments.asks_for(log_device::NAME),
        arguments.asks_for(fence::NAME),
    );
    let (streams, scans) = (
        arguments.asks_for(streams::NAME),
        arguments.asks_for(scans::NAME),
    );
    let (parity, checksums) = (
        arguments.asks_for("parity"),
        arguments.asks_for("checksums"),
    );
    let analytics = arguments.asks_for(analytics_bars::NAME);
    let (blocks, files) = (
        arguments.asks_for(served_blocks::NAME),
        arguments.asks_for(served_files::NAME),
    );
    let is_served = blocks || files;
    let is_of_programs =
        log_device || fence || streams || scans || is_served || analytics || !loads.is_empty();
    if !is_of_programs && !parity && !checksums {
        let names = Load::ALL.map(|load| load.to_string()).join(", ");
        return Err(format!(
            "nothing has such a name: there are {names}, {}, {}, {}, {}, {}, {}, {}, parity, checksums",
            log_device::NAME,
            fence::NAME,
            streams::NAME,
            scans::NAME,
            served_blocks::NAME,
            served_files::NAME,
            analytics_bars::NAME
        )
        .into());
    }
    let mut failed = Vec::new();
    if !arguments.no_build && is_of_programs {
        build::build()?;
    }
    let memory = memory_folder(is_root)?;
    if !loads.is_empty() {
        failed.extend(compare_file_systems(arguments, &loads, &memory, is_root)?);
    }
    if log_device {
        let time = if arguments.quick { 3 } else { 10 };
        failed.extend(log_device::measure(&memory, Duration::from_secs(time))?);
    }
    if fence {
        let time = if arguments.quick { 20 } else { 120 };
        failed.extend(fence::measure(&memory, Duration::from_secs(time))?);
    }
    if streams {
        let extent = match arguments.quick {
            true => streams::Extent::QUICK,
            false => streams::Extent::FULL,
        };
        let extent = streams::Extent {
            rounds: arguments.rounds.unwrap_or(extent.rounds),
            ..extent
        };
        let with_zfs_fuse = is_root && arguments.against.iter().any(|peer| peer == peers::ZFS_FUSE);
        failed.extend(streams::measure(&memory, extent, with_zfs_fuse)?);
    }
    if scans {
        let extent = match arguments.quick {
            true => scans::Extent::QUICK,
            false => scans::Extent::FULL,
        };
        let extent = scans::Extent {
            rounds: arguments.rounds.unwrap_or(extent.rounds),
            ..extent
        };
        failed.extend(scans::measure(&memory, extent)?);
    }
    if is_served {
        let extent = match arguments.quick {
            true => served_blocks::Extent::QUICK,
            false => served_blocks::Extent::FULL,
        };
        let extent = served_blocks::Extent {
            rounds: arguments.rounds.unwrap_or(extent.rounds),
            ..extent
        };
        if blocks {
            failed.extend(served_blocks::measure(&memory, extent)?);
        }
        if files {
            failed.extend(served_files::measure(&memory, extent)?);
        }
    }
    // OpenZFS measures itself for minutes and cannot be told to do less.
    let is_short = arguments.quick && arguments.only.is_none();
    if parity && !is_short {
        failed.extend(parity::compare_parity()?);
    }
    if checksums {
        failed.extend(parity::compare_checksums()?);
    }
    if analytics {
        failed.extend(analytics_bars::measure(arguments.quick)?);
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("below the bar: {}", failed.join("; ")).into()),
    }
}

/// A load near its bar is measured up to so many times as many rounds.
const ROUNDS_MORE: usize = 3;

/// What a load that fills memory takes, about: the large file in the kernel's cache, in a daemon's,
/// and on the disk.
const MEMORY_BYTES: usize = 3 << 30;

/// Starts this program again where its mounts are its own.
fn enter_namespace() -> Outcome {
    let program = std::env::current_exe()?;
    let error = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .args(["nice", "-n", PRIORITY])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(format!("cannot run unshare (package util-linux): {error}").into())
}

fn compare_file_systems(
    arguments: &Arguments,
    loads: &[Load],
    memory: &Path,
    is_root: bool,
) -> Outcome<Vec<String>> {
    let (size, rounds) = match arguments.quick {
        true => (Size::QUICK, 3),
        false => (Size::FULL, 5),
    };
    let rounds = arguments.rounds.unwrap_or(rounds);
    let mut rates = Rates::default();
    let mut peers: Vec<Box<dyn Peer>> = vec![Box::new(
        peers::Tarn::start(memory)?.with_layout(arguments.layout),
    )];
    let against = arguments.peers();
    for name in &against {
        let peer = match (*name, &arguments.before) {
            (peers::BEFORE, Some(programs)) => peers::Tarn::start_before(programs, memory)
                .map(|peer| Box::new(peer.with_layout(arguments.layout)) as _),
            _ => peers::named(name, memory, is_root),
        };
        match peer {
            Ok(peer) => peers.push(peer),
            Err(why) => rates.note(name, &why.to_string()),
        }
    }
    for round in 1..=rounds {
        print!("round {round} of {rounds}:");
        all_peers(round, &mut peers, loads, &size, &mut rates);
    }
    let mut round = rounds;
    let most = if arguments.quick {
        rounds
    } else {
        rounds * ROUNDS_MORE
    };
    while round < most {
        let near = rates.near_bars(loads, &against);
        if near.is_empty() {
            break;
        }
        round += 1;
        let names: Vec<String> = near.iter().map(Load::to_string).collect();
        print!("round {round}, for {} near a bar:", names.join(", "));
        let has_bar = |peer: &str| near.iter().any(|load| bar(*load, peer).is_some());
        peers.retain(|peer| peer.name() == peers::OURS || has_bar(peer.name()));
        all_peers(round, &mut peers, &near, &size, &mut rates);
    }
    println!("\n{}", conditions(&size, rounds));
    Ok(table::print(&rates, loads, &against))
}

/// A round of loads for each peer. Each round begins with another one: the first gets memory from
/// the machine, and the others get what it has given back.
fn all_peers(
    round: usize,
    peers: &mut [Box<dyn Peer>],
    loads: &[Load],
    size: &Size,
    rates: &mut Rates,
) {
    for peer in peers.iter_mut() {
        print!(" {}", peer.name());
        // Progress for the terminal; it may fail to print.
        let _ = std::io::Write::flush(&mut std::io::stdout());
        let measured = one_round(round, peer.as_mut(), loads, size, rates);
        // What a peer leaves behind is in the way of the next, whatever happened.
        let removed = peer.remove();
        if let Err(why) = measured.and(removed) {
            rates.note(peer.name(), &why.to_string());
        }
    }
    peers.rotate_left(1);
    println!();
}

fn conditions(size: &Size, rounds: usize) -> String {
    let disk = peers::IMAGE_BYTES >> 30;
    let cache = peers::CACHE_MIB;
    format!(
        "medians of {rounds} rounds, of more where a bar is near; images of {disk} GiB in memory, caches of {cache} MiB, {} MiB of bytes that cannot be \
         compressed, {} files; ratios above 1 are in our favour",
        size.file_mib, size.empty_files
    )
}

/// Does the loads asked for, and those before them that they need, and notes the rate of each.
fn one_round(
    round: usize,
    peer: &mut dyn Peer,
    loads: &[Load],
    size: &Size,
    rates: &mut Rates,
) -> Outcome {
    let folder = peer.make()?;
    let needed: Vec<Load> = loads.iter().filter_map(|load| load.needs()).collect();
    for load in Load::ALL {
        let is_asked = loads.contains(&load);
        if !is_asked && !needed.contains(&load) {
            continue;
        }
        match load.starts_with() {
            Caches::Cold => peer.forget()?,
            // Reads everything, so it is in memory if there is room; and what comes back must be
            // what went in.
            Caches::Warm if load.needs() == Some(Load::SequentialWrite) => verify(&folder)?,
            Caches::Warm => {}
        }
        if load.fills_memory() {
            get_memory();
        }
        let done = load.run(&folder, size)?;
        if is_asked {
            rates.add(round, load, peer.name(), done.per_second());
        }
        // What this load left to be written is not the next one's to wait for.
        rustix::fs::syncfs(File::open(&folder)?)?;
    }
    Ok(())
}

/// Has the machine have memory. A virtual one gives free memory back to its host, and gets it again
/// page by page when it is used, which can take longer than filling it, and says nothing of a file
/// system's merit or fault.
fn get_memory() {
    let mut memory = vec![0_u8; MEMORY_BYTES];
    memory.chunks_mut(4096).for_each(|page| page[0] = 1);
    std::hint::black_box(&memory);
}

/// An empty folder in memory: of a tmpfs of our own, or of the one every user may write to.
fn memory_folder(is_root: bool) -> Outcome<PathBuf> {
    let folder = match is_root {
        true => {
            let folder = scratch("bench-memory");
            fs::create_dir_all(&folder)?;
            // Half of the memory there is, which is the default.
            output(
                Command::new("mount")
                    .args(["-t", "tmpfs", "bench"])
                    .arg(&folder),
            )?;
            folder
        }
        false => Path::new("/dev/shm").join(format!("tarn-bench-{}", rustix::process::geteuid())),
    };
    if !is_root && folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    Ok(folder)
}
