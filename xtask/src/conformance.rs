//! `cargo xtask conformance`: suites that others wrote, and crashes, on a mount of ours.
//!
//! # Mechanism
//! [`pjdfstest`] asks one question about each rule of POSIX; [`fsx`] changes one file beside a
//! model; [`kill`] ends the daemon in the middle of work and looks at what is left; [`databases`]
//! does so under databases, [`volumes`] under clients of volumes; [`served_under_repair`] replaces
//! and scrubs a disk beside clients of files and volumes; [`survive`] takes devices away;
//! [`streams`] cuts streams of snapshots, and goes on with them; [`policies`] has programs of
//! others take, keep and replicate snapshots; [`everyday`] does what users do; [`abuse`] gives
//! every command hostile arguments; [`programs`] has real programs do the same on ext4 and
//! compares; [`pynfs`] asks the NFS server about its protocol, and [`kerberos`] about users of
//! Kerberos; [`browser`] drives the page for browsers; [`metrics`] has Prometheus and InfluxDB take
//! what is exported. Each has an instance of its own, a pool of files and a mount.

mod abuse;
mod block_devices;
mod browser;
mod crash;
mod databases;
mod everyday;
mod fsx;
mod kerberos;
mod kill;
mod known;
mod loop_devices;
mod metrics;
mod nbd_client;
mod pjdfstest;
mod policies;
mod programs;
mod pynfs;
mod served_under_repair;
mod streams;
mod suite;
mod survive;
mod volumes;
mod xfstests;
mod zts;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use tarn_oracle::instance::Instance;
use tarn_oracle::layout::Layout;

use crate::workspace::{Outcome, Steps};

/// The pool's name in every test.
const POOL: &str = "conforming";

/// Which tests, and how much.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Which tests; all unless given
    #[arg(value_enum)]
    pub tests: Vec<Test>,
    /// Where chance starts
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// fsx: how many operations for each seed
    #[arg(long, default_value_t = 100_000)]
    pub operations: u64,
    /// fsx: how many seeds, at the same time
    #[arg(long, default_value_t = 4)]
    pub seeds: u64,
    /// kill, databases, volumes: how often the daemon is killed
    #[arg(long, default_value_t = 20)]
    pub kills: u32,
    /// streams: how often streams are cut
    #[arg(long, default_value_t = 200)]
    pub cuts: u32,
    /// policies: how many hours of policy
    #[arg(long, default_value_t = 26)]
    pub hours: u64,
    /// abuse: how many command lines, and as many requests
    #[arg(long, default_value_t = 4000)]
    pub calls: u32,
    /// What every change is tried with: little of everything
    #[arg(long)]
    pub small: bool,
    /// everyday, programs, browser: only those whose name contains this; xfstests: numbers, `-g
    /// GROUP` or `-g all`; zts: `DIR[:TEST[,TEST]...]`
    #[arg(long, allow_hyphen_values = true)]
    pub only: Option<String>,
    /// browser: where pictures go; a scratch folder unless given
    #[arg(long)]
    pub pictures: Option<PathBuf>,
    /// Leave the scratch folders for a look
    #[arg(long)]
    pub keep: bool,
}

/// What is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Test {
    /// The rules of POSIX, one by one
    Pjdfstest,
    /// One file, changed at random
    Fsx,
    /// The daemon, killed at random moments
    Kill,
    /// SQLite, PostgreSQL and a load of fsyncs, while the daemon is killed
    Databases,
    /// Devices that are removed, cut off, or hang
    Survive,
    /// sanoid, syncoid and zfs-auto-snapshot: a day of policy, and replication
    Policies,
    /// Volumes by NBD and iSCSI: programs of qemu, libnbd and libiscsi, and the daemon killed under
    /// writes
    Volumes,
    /// Files by NFS, volumes by NBD and iSCSI, while a disk is replaced and scrubbed
    ServedUnderRepair,
    /// Streams of snapshots, cut at random bytes and gone on with
    Streams,
    /// What people and programs meet on a mount, at a prompt and in a daemon
    Everyday,
    /// Real programs, on a mount and on ext4: everything that can be observed must be the same
    Programs,
    /// The `generic` group of xfstests
    Xfstests,
    /// The protocol of NFS versions 4.0 and 4.1
    Pynfs,
    /// Users of NFS whose names are proved by Kerberos, against a KDC of Debian's packages
    Kerberos,
    /// Prometheus and InfluxDB of Debian's packages: their sums are ours
    Metrics,
    /// OpenZFS's functional tests
    Zts,
    /// Every command with arguments that are empty, too long, hostile or nonsense
    Abuse,
    /// The page for browsers in Chromium, beside clients of NFS, with pictures
    Browser,
}

/// Runs the tests asked for.
pub fn conformance(arguments: &Arguments) -> Outcome {
    if arguments.small && arguments.tests.is_empty() {
        return small();
    }
    let wanted = |test| arguments.tests.is_empty() || arguments.tests.contains(&test);
    let mut steps = Steps::default();
    if wanted(Test::Pjdfstest) {
        steps.run("pjdfstest", || pjdfstest::pjdfstest(arguments));
    }
    if wanted(Test::Fsx) {
        steps.run("fsx", || fsx::fsx(arguments));
    }
    if wanted(Test::Kill) {
        steps.run("kill -9", || kill::kill(arguments));
        steps.run("kill -9 in a mount of its own", || {
            kill::kill_in_own_mounts(arguments)
        });
    }
    if wanted(Test::Databases) {
        steps.run("databases", || databases::databases(arguments));
    }
    if wanted(Test::Survive) {
        steps.run("devices that are gone", || survive::survive(arguments));
    }
    if wanted(Test::Volumes) {
        steps.run("volumes", || volumes::volumes(arguments));
    }
    if wanted(Test::ServedUnderRepair) {
        steps.run("served under repair", || {
            served_under_repair::served_under_repair(arguments.seed, arguments.keep)
        });
    }
    if wanted(Test::Streams) {
        steps.run("streams that are cut", || streams::streams(arguments));
    }
    if wanted(Test::Policies) {
        steps.run("policies of snapshots", || policies::policies(arguments));
    }
    if wanted(Test::Everyday) {
        steps.run("everyday use", || everyday::everyday(arguments));
    }
    if wanted(Test::Programs) {
        steps.run("programs, as on ext4", || programs::programs(arguments));
    }
    if wanted(Test::Xfstests) {
        steps.run("xfstests", || xfstests::xfstests(arguments));
    }
    if wanted(Test::Pynfs) {
        steps.run("pynfs", || {
            pynfs::pynfs(pynfs::Budget {
                is_small: arguments.small,
                keep: arguments.keep,
            })
        });
    }
    if wanted(Test::Kerberos) {
        steps.run("Kerberos", || kerberos::kerberos(arguments.keep));
    }
    if wanted(Test::Metrics) {
        steps.run("Prometheus and InfluxDB", || {
            metrics::metrics(arguments.seed, arguments.keep)
        });
    }
    if wanted(Test::Zts) {
        steps.run("OpenZFS's functional tests", || zts::zts(arguments));
    }
    if wanted(Test::Abuse) {
        steps.run("administration under abuse", || abuse::abuse(arguments));
    }
    if wanted(Test::Browser) {
        steps.run("the page in a browser", || {
            browser::browser(&browser::Wanted {
                only: arguments.only.as_deref().unwrap_or_default(),
                pictures: arguments.pictures.as_deref(),
                keep: arguments.keep,
            })
        });
    }
    steps.finish()
}

/// What every change is tried with.
pub fn small() -> Outcome {
    conformance(&Arguments {
        tests: vec![
            Test::Pjdfstest,
            Test::Fsx,
            Test::Kill,
            Test::Databases,
            Test::Volumes,
            Test::Streams,
            Test::Policies,
            Test::Everyday,
            Test::Programs,
            Test::Xfstests,
            Test::Pynfs,
            Test::Kerberos,
            Test::Metrics,
            Test::Zts,
            Test::Abuse,
        ],
        seed: 1,
        operations: 5000,
        seeds: 2,
        kills: 3,
        cuts: 20,
        hours: 3,
        calls: 400,
        only: None,
        pictures: None,
        small: true,
        keep: false,
    })
}

/// Makes the pool of a test, of one file.
fn make_pool(instance: &Instance, images: &Path, mountpoint: &Path) -> Outcome {
    Layout::Single.make_images(images, 2 << 30)?;
    let (mountpoint, image) = (
        mountpoint.display().to_string(),
        &Layout::Single.words(images)[0],
    );
    let options = [
        "-O",
        "acltype=posix",
        "-O",
        "xattr=sa",
        "-O",
        "compression=lz4",
    ];
    let words = [&["create", "-m", &mountpoint][..], &options, &[POOL, image]].concat();
    instance.must("zpool", &words)?;
    Ok(())
}
