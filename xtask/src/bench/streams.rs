//! Snapshots in numbers, and streams beside reading and writing the same file.
//!
//! # Mechanism
//! *Streams*: in each round ours and zfs-fuse write a large file, read it from the devices, send it
//! to nowhere, and receive it from memory into the same pool. What was received is read and must be
//! what was sent. The medians of each round's ratios decide.
//!
//! *Snapshots*: so many datasets have a snapshot each by one command, again and again until there
//! are a hundred thousand; they are listed and destroyed. zfs-fuse destroys one after the other
//! what ours destroys as a range, for it knows no ranges.
//!
//! # Bars
//! Sending is at least as fast as reading, and receiving as writing. A snapshot of all datasets is
//! one transaction group.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tarn_workload::load::{Load, Size, verify};

use super::peers::{self, Peer};
use super::table::{NOISE, median, rate};
use crate::workspace::{Outcome, duration, output};

/// What is asked for to have this measured.
pub const NAME: &str = "streams";

/// How much is done.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// The file, in MiB.
    pub file_mib: u32,
    /// How often it is sent and received.
    pub rounds: usize,
    /// How many datasets there are.
    pub datasets: u32,
    /// How often each of them has a snapshot taken.
    pub snapshots: u32,
}

impl Extent {
    /// What the bars are about.
    pub const FULL: Extent = Extent {
        file_mib: 1024,
        rounds: 5,
        datasets: 2600,
        snapshots: 39,
    };
    /// A look.
    pub const QUICK: Extent = Extent {
        file_mib: 128,
        rounds: 3,
        datasets: 100,
        snapshots: 10,
    };
}

/// What is done to the file, in order. Each that has a bar is held against the one before it.
const DEEDS: [&str; 4] = ["read", "send", "write", "receive"];

/// Measures, prints, and gives the bars that were not reached.
pub fn measure(memory: &Path, extent: Extent, with_zfs_fuse: bool) -> Outcome<Vec<String>> {
    let mut all: Vec<Box<dyn Peer>> = vec![Box::new(peers::Tarn::start(memory)?)];
    if with_zfs_fuse {
        match peers::named(peers::ZFS_FUSE, memory, true) {
            Ok(peer) => all.push(peer),
            Err(why) => println!("{}: {why}", peers::ZFS_FUSE),
        }
    }
    // By peer and deed: a rate of each round.
    let mut rates: Vec<[Vec<f64>; 4]> = all.iter().map(|_| Default::default()).collect();
    for _ in 0..extent.rounds {
        for (peer, rates) in all.iter_mut().zip(&mut rates) {
            let measured = stream(peer.as_mut(), memory, extent);
            let removed = peer.remove();
            for (rates, rate) in rates.iter_mut().zip(measured?) {
                rates.push(rate);
            }
            removed?;
        }
    }
    let mut failed = print_streams(&all, &rates, extent);
    let mut counts = Vec::new();
    for peer in &mut all {
        let counted = snapshots(peer.as_mut(), extent);
        let removed = peer.remove();
        match counted.and_then(|counted| removed.map(|()| counted)) {
            Ok(counted) => counts.push((peer.name(), counted)),
            Err(why) if peer.name() == peers::OURS => return Err(why),
            Err(why) => println!("{}: {why}", peer.name()),
        }
    }
    failed.extend(print_snapshots(&counts, extent));
    Ok(failed)
}

/// The rates of [`DEEDS`], in MiB each second.
fn stream(peer: &mut dyn Peer, memory: &Path, extent: Extent) -> Outcome<[f64; 4]> {
    let folder = peer.make()?;
    let size = Size {
        file_mib: extent.file_mib,
        limit: Duration::from_secs(3600),
        ..Size::FULL
    };
    let (name, copy) = (
        format!("{}/data", peers::POOL),
        format!("{}/copy", peers::POOL),
    );
    output(peer.zfs()?.args(["create", &name]))?;
    super::get_memory();
    let written = Load::SequentialWrite.run(&folder.join("data"), &size)?;
    let snapshot = format!("{name}@sent");
    output(peer.zfs()?.args(["snapshot", &snapshot]))?;
    peer.forget()?;
    let read = Load::UncachedRead.run(&folder.join("data"), &size)?;
    peer.forget()?;
    let sent = per_second(extent, || {
        run(
            peer.zfs()?.args(["send", &snapshot]),
            Stdio::null(),
            Stdio::null(),
        )
    })?;
    let kept = memory.join("stream");
    run(
        peer.zfs()?.args(["send", &snapshot]),
        Stdio::null(),
        File::create(&kept)?.into(),
    )?;
    super::get_memory();
    let received = per_second(extent, || {
        let stream = File::open(&kept)?.into();
        run(peer.zfs()?.args(["receive", &copy]), stream, Stdio::null())
    })?;
    fs::remove_file(&kept)?;
    verify(&folder.join("copy"))?;
    Ok([read.per_second(), sent, written.per_second(), received])
}

fn per_second(extent: Extent, deed: impl FnOnce() -> Outcome) -> Outcome<f64> {
    let began = Instant::now();
    deed()?;
    Ok(f64::from(extent.file_mib) / began.elapsed().as_secs_f64())
}

fn run(command: &mut Command, input: Stdio, output: Stdio) -> Outcome {
    let status = command.stdin(input).stdout(output).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{command:?} ended with {status}").into()),
    }
}

fn print_streams(peers: &[Box<dyn Peer>], rates: &[[Vec<f64>; 4]], extent: Extent) -> Vec<String> {
    println!(
        "\na file of {} MiB of bytes that cannot be compressed, MiB/s, medians of {} rounds",
        extent.file_mib, extent.rounds
    );
    print!("{:<26}", "");
    for peer in peers {
        print!(" {:>10}", peer.name());
    }
    println!("  bar");
    let mut failed = Vec::new();
    for (deed, name) in DEEDS.iter().enumerate() {
        print!("{name:<26}");
        for rates in rates {
            print!(" {:>10}", rate(median(rates[deed].clone())));
        }
        match deed % 2 {
            0 => println!(),
            _ => {
                let ours = rates[0][deed].iter().zip(&rates[0][deed - 1]);
                let ratio = median(ours.map(|(one, other)| one / other).collect());
                let ratio = ratio.unwrap_or(0.0);
                let passed = ratio >= 1.0 - NOISE;
                let verdict = if passed { "PASS" } else { "FAIL" };
                println!("  1 x {}: {ratio:.2} {verdict}", DEEDS[deed - 1]);
                if !passed {
                    failed.push(format!("{name} ({ratio:.2} of {})", DEEDS[deed - 1]));
                }
            }
        }
    }
    failed
}

/// One of the times.
type Took = fn(&Counted) -> Duration;

/// How long each of them took.
struct Counted {
    /// `zfs snapshot -r`, once.
    once: Duration,
    /// In how many groups that was stored, where it can be known.
    groups: Option<usize>,
    /// All of them.
    all: Duration,
    listed: Duration,
    destroyed: Duration,
}

fn snapshots(peer: &mut dyn Peer, extent: Extent) -> Outcome<Counted> {
    peer.make()?;
    let parent = format!("{}/sets", peers::POOL);
    output(
        peer.zfs()?
            .args(["create", "-o", "mountpoint=none", &parent]),
    )?;
    for number in 1..extent.datasets {
        let name = format!("{parent}/d{number}");
        output(peer.zfs()?.args(["create", &name]))?;
    }
    let once = take(peer, &parent, 1)?;
    let is_ours = peer.name() == peers::OURS;
    let groups = match is_ours {
        true => {
            let words = [
                "list",
                "-Hp",
                "-r",
                "-t",
                "snapshot",
                "-o",
                "createtxg",
                &parent,
            ];
            let text = output(peer.zfs()?.args(words))?;
            if text.lines().count() != usize::try_from(extent.datasets)? {
                return Err("not every dataset has a snapshot".into());
            }
            Some(text.lines().collect::<BTreeSet<_>>().len())
        }
        false => None,
    };
    let mut all = once;
    for number in 2..=extent.snapshots {
        all += take(peer, &parent, number)?;
    }
    let began = Instant::now();
    let text = output(
        peer.zfs()?
            .args(["list", "-H", "-t", "snapshot", "-o", "name"]),
    )?;
    let listed = began.elapsed();
    let count = u64::from(extent.datasets) * u64::from(extent.snapshots);
    if u64::try_from(text.lines().count())? != count {
        return Err(format!("{} of {count} snapshots are listed", text.lines().count()).into());
    }
    let began = Instant::now();
    if is_ours {
        let range = format!("{parent}@r1%r{}", extent.snapshots);
        output(peer.zfs()?.args(["destroy", "-r", &range]))?;
    } else {
        for number in 1..=extent.snapshots {
            let name = format!("{parent}@r{number}");
            output(peer.zfs()?.args(["destroy", "-r", &name]))?;
        }
    }
    let destroyed = began.elapsed();
    let text = output(
        peer.zfs()?
            .args(["list", "-H", "-t", "snapshot", "-o", "name"]),
    )?;
    match text.lines().count() {
        0 => Ok(Counted {
            once,
            groups,
            all,
            listed,
            destroyed,
        }),
        left => Err(format!("{left} snapshots are left").into()),
    }
}

/// Takes a snapshot of all, and says how long that took.
fn take(peer: &dyn Peer, parent: &str, number: u32) -> Outcome<Duration> {
    let began = Instant::now();
    let name = format!("{parent}@r{number}");
    output(peer.zfs()?.args(["snapshot", "-r", &name]))?;
    Ok(began.elapsed())
}

fn print_snapshots(counts: &[(&str, Counted)], extent: Extent) -> Vec<String> {
    let count = u64::from(extent.datasets) * u64::from(extent.snapshots);
    println!("\nsnapshots of {} datasets", extent.datasets);
    print!("{:<26}", "");
    for (name, _) in counts {
        print!(" {name:>12}");
    }
    println!();
    let rows: [(String, Took); 4] = [
        ("snapshot -r".to_string(), |counted| counted.once),
        (format!("{count} of them, taken"), |counted| counted.all),
        ("listed".to_string(), |counted| counted.listed),
        ("destroyed".to_string(), |counted| counted.destroyed),
    ];
    for (name, of) in rows {
        print!("{name:<26}");
        for (_, counted) in counts {
            print!(" {:>12}", duration(of(counted)));
        }
        println!();
    }
    let groups: Vec<usize> = counts.iter().filter_map(|(_, one)| one.groups).collect();
    println!("transaction groups of snapshot -r: {groups:?}, at most 1");
    let many = groups.iter().find(|groups| **groups != 1);
    many.map(|groups| format!("snapshot -r in {groups} groups"))
        .into_iter()
        .collect()
}
