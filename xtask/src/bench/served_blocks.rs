//! Volumes that are served by iSCSI and NBD, beside tgt and nbdkit.
//!
//! # Mechanism
//! A volume of a pool in memory (tmpfs), filled and cached, is served by our daemon; a file in
//! memory of the same size by tgt and by nbdkit's file plugin. `qemu-img bench` asks all of them in
//! turn, one process or as many as there are processors, each for some seconds; in every round each
//! load is done by all. The table has the medians of the rounds.
//!
//! # Bars
//! Cached reads by iSCSI are at least [`READS`] times those of tgt; nothing is slower than the peer
//! ([`NOISE`] less).

use std::fs::{self, File};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tarn_oracle::instance::Instance;

use super::table::{NOISE, median};
use crate::debian_packages::install_missing;
use crate::servers::{START_LIMIT, Server, await_server, free_port, start};
use crate::workspace::{Outcome, output, programs, scratch};

/// What is asked for to have this measured.
pub const NAME: &str = "served blocks";

/// Our cached reads by those of tgt.
const READS: f64 = 2.0;

const NEEDED: [(&str, &str); 4] = [
    ("qemu-img", "qemu-utils"),
    ("tgtd", "tgt"),
    ("tgtadm", "tgt"),
    ("nbdkit", "nbdkit"),
];

const POOL: &str = "served";
const DISK_BYTES: u64 = 2 << 30;
const VOLUME_BYTES: u64 = 256 << 20;
/// Each request begins so far behind the last one: no two after each other are in one block, and
/// none reaches beyond the end, where `qemu-img` begins anew.
const STEP_BYTES: u64 = 1152 << 10;
/// Enough to know the rate about.
const FIRST_COUNT: u64 = 1000;

/// What is done.
#[derive(Debug, Clone, Copy)]
struct Load {
    name: &'static str,
    bytes: u64,
    depth: u32,
    is_write: bool,
}

const LOADS: [Load; 5] = [
    Load {
        name: "4 KiB read, depth 1",
        bytes: 4 << 10,
        depth: 1,
        is_write: false,
    },
    Load {
        name: "4 KiB read, depth 32",
        bytes: 4 << 10,
        depth: 32,
        is_write: false,
    },
    Load {
        name: "128 KiB read, depth 8",
        bytes: 128 << 10,
        depth: 8,
        is_write: false,
    },
    Load {
        name: "4 KiB write, depth 1",
        bytes: 4 << 10,
        depth: 1,
        is_write: true,
    },
    Load {
        name: "4 KiB write, depth 32",
        bytes: 4 << 10,
        depth: 32,
        is_write: true,
    },
];

/// A protocol, and where ours and the peer's are served.
struct Served {
    protocol: &'static str,
    peer: &'static str,
    ours: String,
    theirs: String,
    /// Our least ratio in reads.
    reads: f64,
}

/// How long, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// How long each load runs.
    pub time: Duration,
    /// How often each is measured.
    pub rounds: usize,
}

impl Extent {
    /// What the bars are about.
    pub const FULL: Extent = Extent {
        time: Duration::from_secs(3),
        rounds: 5,
    };
    /// A look.
    pub const QUICK: Extent = Extent {
        time: Duration::from_secs(1),
        rounds: 1,
    };
}

/// Measures, prints, and gives the bars that were not reached.
pub fn measure(memory: &Path, extent: Extent) -> Outcome<Vec<String>> {
    install_missing(&NEEDED)?;
    let folder = memory.join("served-blocks");
    fs::create_dir_all(&folder)?;
    let image = folder.join("peer.img");
    fill(&image.display().to_string(), Some(&image))?;
    let instance = Instance::new(&programs(), &scratch("bench-served"))?;
    let ours = serve_ours(&instance, &folder)?;
    let (_tgt, by_iscsi) = start_tgt(&folder, &image)?;
    let (_nbdkit, by_nbd) = start_nbdkit(&folder, &image)?;
    let served = [
        Served {
            protocol: "iscsi",
            peer: "tgt",
            ours: ours.iscsi,
            theirs: by_iscsi,
            reads: READS,
        },
        Served {
            protocol: "nbd",
            peer: "nbdkit",
            ours: ours.nbd,
            theirs: by_nbd,
            reads: 1.0,
        },
    ];
    let mut failed = Vec::new();
    println!(
        "\nvolumes of {} MiB in memory, served; {} s each, {} rounds, op/s",
        VOLUME_BYTES >> 20,
        extent.time.as_secs(),
        extent.rounds
    );
    println!(
        "{:<7} {:<24} {:>7} {:>10} {:>10} {:>7}",
        "", "", "clients", "tarn", "peer", "ratio"
    );
    let processors = u64::try_from(std::thread::available_parallelism()?.get())?;
    for one in &served {
        fill(&one.ours, None)?;
        for load in LOADS {
            for clients in [1, processors] {
                failed.extend(compare(one, load, clients, extent)?);
            }
        }
    }
    instance.zpool(&format!("destroy -f {POOL}"))?;
    fs::remove_dir_all(&folder)?;
    Ok(failed)
}

/// The name of our target.
const TARGET: &str = "iqn.2026-01.local.tarn:served:volume";

/// A pool in memory with a volume, served by both protocols.
fn serve_ours(instance: &Instance, folder: &Path) -> Outcome<Ours> {
    let disk = folder.join("ours.img");
    File::create(&disk)?.set_len(DISK_BYTES)?;
    instance.start_daemon_with(&[], &[], START_LIMIT)?;
    instance.zpool(&format!(
        "create -f -o ashift=12 -O compression=off -O mountpoint=none {POOL} {}",
        disk.display()
    ))?;
    instance.zfs(&format!("create -V {VOLUME_BYTES} {POOL}/volume"))?;
    let portal = format!("127.0.0.1:{}", free_port()?);
    let spoken = instance.run("tarn", &["iscsi", "portal", &portal])?;
    spoken.expect_success()?;
    instance.zfs(&format!("set tarn:shareiscsi=on {POOL}/volume"))?;
    await_server(
        || TcpStream::connect(&portal).is_ok(),
        "the portal of tarnd",
    )?;
    let socket = instance.state().join("nbd.sock");
    Ok(Ours {
        iscsi: format!("iscsi://{portal}/{TARGET}/0"),
        nbd: format!("nbd+unix:///{POOL}/volume?socket={}", socket.display()),
    })
}

/// Where our volume is served.
struct Ours {
    iscsi: String,
    nbd: String,
}

fn start_tgt(folder: &Path, image: &Path) -> Outcome<(Server, String)> {
    let (portal, control) = (free_port()?, "29".to_owned());
    let name = "iqn.2026-01.local.peer:disk";
    let mut tgtd = Command::new("tgtd");
    tgtd.args(["--foreground", "--control-port", &control, "--iscsi"])
        .arg(format!("portal=127.0.0.1:{portal}"))
        .current_dir(folder);
    let server = start(&mut tgtd)?;
    let admin = |arguments: &[&str]| {
        let mut tgtadm = Command::new("tgtadm");
        output(
            tgtadm
                .args(["--control-port", &control, "--lld", "iscsi"])
                .args(arguments),
        )
    };
    await_server(|| admin(&["--mode", "sys", "--op", "show"]).is_ok(), "tgtd")?;
    let target = ["--mode", "target", "--tid", "1"];
    admin(&[&target[..], &["--op", "new", "--targetname", name]].concat())?;
    let image = image.display().to_string();
    let unit = [
        "--mode",
        "logicalunit",
        "--op",
        "new",
        "--tid",
        "1",
        "--lun",
        "1",
    ];
    admin(&[&unit[..], &["--backing-store", &image]].concat())?;
    admin(&[&target[..], &["--op", "bind", "--initiator-address", "ALL"]].concat())?;
    Ok((server, format!("iscsi://127.0.0.1:{portal}/{name}/1")))
}

fn start_nbdkit(folder: &Path, image: &Path) -> Outcome<(Server, String)> {
    let socket = folder.join("nbdkit.sock");
    let mut nbdkit = Command::new("nbdkit");
    nbdkit
        .args(["--foreground", "--unix"])
        .arg(&socket)
        .arg("file")
        .arg(image);
    let server = start(&mut nbdkit)?;
    await_server(|| socket.exists(), "nbdkit")?;
    Ok((server, format!("nbd+unix:///?socket={}", socket.display())))
}

/// Writes all of a disk. One that is a file is made.
fn fill(disk: &str, file: Option<&PathBuf>) -> Outcome {
    if let Some(path) = file {
        File::create(path)?.set_len(VOLUME_BYTES)?;
    }
    let count = VOLUME_BYTES >> 20;
    let all = ["-w", "-s", "1M", "-d", "4", "--pattern", "171"];
    output(
        Command::new("qemu-img")
            .args(["bench", "-f", "raw", "-q"])
            .args(all)
            .args(["-c", &count.to_string(), disk]),
    )?;
    Ok(())
}

/// Requests each second of so many clients together, which do `count` requests each.
fn rate(disk: &str, load: Load, clients: u64, count: u64) -> Outcome<f64> {
    let mut running = Vec::new();
    for client in 0..clients {
        let mut qemu = Command::new("qemu-img");
        qemu.args(["bench", "-f", "raw"]);
        if load.is_write {
            qemu.arg("-w");
        }
        // Clients begin at places apart.
        let first = (VOLUME_BYTES / 2 / clients * client) & !0x1f_ffff;
        qemu.args(["-c", &count.to_string(), "-d", &load.depth.to_string()])
            .args(["-s", &load.bytes.to_string(), "-S", &STEP_BYTES.to_string()])
            .args(["-o", &first.to_string(), disk])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        running.push(qemu.spawn()?);
    }
    let mut together = 0.0;
    for client in running {
        let ended = client.wait_with_output()?;
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        let seconds = said.lines().find_map(|line| {
            let rest = line.strip_prefix("Run completed in ")?;
            rest.split(' ').next()?.parse::<f64>().ok()
        });
        match seconds {
            Some(seconds) if ended.status.success() => together += count as f64 / seconds.max(1e-6),
            _ => return Err(format!("qemu-img bench of {disk}: {} {said}", ended.status).into()),
        }
    }
    Ok(together)
}

/// Measures one load of one protocol in turn on ours and on the peer.
fn compare(served: &Served, load: Load, clients: u64, extent: Extent) -> Outcome<Option<String>> {
    let mut counts = Vec::new();
    for disk in [&served.ours, &served.theirs] {
        let about = rate(disk, load, clients, FIRST_COUNT)?;
        counts.push((about * extent.time.as_secs_f64() / clients as f64) as u64 + 1);
    }
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..extent.rounds {
        let own = rate(&served.ours, load, clients, counts[0])?;
        let peer = rate(&served.theirs, load, clients, counts[1])?;
        ours.push(own);
        theirs.push(peer);
        ratios.push(own / peer);
    }
    let middle = |values| median(values).ok_or("no round was measured");
    let (ours, theirs, ratio) = (middle(ours)?, middle(theirs)?, middle(ratios)?);
    let least = if load.is_write { 1.0 } else { served.reads };
    let passed = ratio >= least - NOISE;
    let verdict = if passed { "PASS" } else { "FAIL" };
    println!(
        "{:<7} {:<24} {clients:>7} {ours:>10.0} {theirs:>10.0} {ratio:>7.2}  {}: at least {least:.1}: {verdict}",
        served.protocol, load.name, served.peer
    );
    Ok((!passed).then(|| {
        format!(
            "{NAME}: {} {}, {clients} clients ({ratio:.2} of {least:.1})",
            served.protocol, load.name
        )
    }))
}
