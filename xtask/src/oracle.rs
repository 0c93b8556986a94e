//! `cargo xtask oracle`: pools that we made, judged by OpenZFS.
//!
//! # Mechanism
//! For each layout and sector size: `zpool create`, datasets whose properties take every way
//! through the write path, filled and changed while txgs close, one destroyed, snapshots of them
//! taken and lived with ([`snapshots`]); then [`changes::expect_kept`]: exported, walked by
//! OpenZFS's `zdb`, every object opened, imported again and found unchanged; then changed and
//! judged once more. The same for pools OpenZFS made. Log devices come and go ([`log_devices`]),
//! and a device misses writes ([`missed_writes`]). What users, groups and projects use is counted
//! again ([`quotas`]). Rows of everything that can be done with snapshots and streams are drawn at
//! random ([`sequences`]). With `--vm`, its kernel module imports, scrubs, lists and writes
//! ([`kernel`]).

mod checkpoints;
mod clone_logs;
mod guest;
mod half_done;
mod kernel;
mod log_devices;
mod logs;
mod missed_writes;
mod quotas;
mod sequences;
mod snapshots;
mod streams;
mod volume_logs;

use std::fs;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tarn_oracle::instance::Instance;
use tarn_oracle::layout::{LAYOUTS, Layout};
use tarn_workload::tree::TreeSize;

use crate::changes;
use crate::workspace::{Outcome, Steps, fixtures, openzfs, programs, scratch};

/// The pool's name in every case.
const POOL: &str = "judged";

/// Sparse; some 150 MiB of it are written.
const IMAGE_BYTES: u64 = 512 << 20;

/// No case takes a working pool longer than this.
const LIMIT: Duration = Duration::from_secs(1200);

/// The pools of OpenZFS that are changed and judged.
const FIXTURES: [&str; 3] = ["basic", "raidz2", "mixed"];

/// So many sequences of snapshots, clones and streams are done unless told otherwise: each layout
/// twice, and some for every change.
const SEQUENCES: u64 = 16;
const SEQUENCES_SMALL: u64 = 4;

/// What to judge.
#[derive(Debug, Args)]
pub struct Arguments {
    /// How much to try
    #[arg(long, value_enum, default_value = "full")]
    pub budget: Budget,
    /// Only cases whose name contains this, such as raidz2 or ashift9
    #[arg(long)]
    pub only: Option<String>,
    /// Where chance starts
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many sequences of snapshots, clones and streams; some unless given
    #[arg(long)]
    pub sequences: Option<u64>,
    /// Only the sequence of this number
    #[arg(long)]
    pub sequence: Option<u64>,
    /// Hand the pools to OpenZFS's kernel module in a virtual machine as well
    #[arg(long)]
    pub vm: bool,
    /// Leave the scratch folders for a look
    #[arg(long)]
    pub keep: bool,
}

impl Arguments {
    /// What every change is tried with.
    pub fn small() -> Self {
        Self {
            budget: Budget::Small,
            only: None,
            seed: 1,
            sequences: None,
            sequence: None,
            vm: false,
            keep: false,
        }
    }
}

/// How much to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Budget {
    /// Some layouts, small trees: for every change.
    Small,
    /// Every layout at both sector sizes, full trees.
    Full,
}

/// One pool to make.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    layout: Layout,
    ashift: u32,
}

impl Case {
    /// Its name, also of its scratch folder.
    pub fn name(self) -> String {
        format!("{}-ashift{}", self.layout, self.ashift)
    }
}

/// Judges every pool asked for.
pub fn oracle(arguments: &Arguments) -> Outcome {
    // Fail on what is missing before an hour of work.
    openzfs()?;
    let fixtures = fixtures()?;
    if arguments.vm {
        return kernel::kernel(arguments);
    }
    let wanted = |name: &str| {
        arguments
            .only
            .as_deref()
            .is_none_or(|part| name.contains(part))
    };
    let mut steps = Steps::default();
    for case in cases(arguments.budget) {
        if wanted(&case.name()) {
            steps.run(&format!("oracle {}", case.name()), || {
                judge_new_pool(case, arguments)
            });
        }
    }
    let small = arguments.budget == Budget::Small;
    for name in FIXTURES
        .iter()
        .filter(|name| wanted(name) && !(small && **name == "raidz2"))
    {
        steps.run(
            &format!("oracle {name}, made by OpenZFS and changed"),
            || changes::change_fixture(&fixtures, name),
        );
    }
    if wanted("quotas") {
        steps.run("oracle quotas", || {
            quotas::judge(arguments.seed, arguments.keep)
        });
    }
    if wanted("sequences") {
        let usual = if small { SEQUENCES_SMALL } else { SEQUENCES };
        let (first, count) = match arguments.sequence {
            Some(number) => (number, 1),
            None => (0, arguments.sequences.unwrap_or(usual)),
        };
        steps.run("oracle sequences", || {
            sequences::judge(arguments.seed, first, count, arguments.keep)
        });
    }
    if wanted("missed-writes") {
        steps.run("oracle missed-writes", missed_writes::judge);
    }
    if wanted("checkpoints") {
        steps.run("oracle checkpoints", checkpoints::judge_own);
        steps.run("oracle checkpoints, of a pool made by OpenZFS", || {
            checkpoints::judge_fixture(&fixtures)
        });
    }
    if wanted("log-devices") {
        let every = if small { 4 } else { 1 };
        steps.run("oracle log-devices", || log_devices::judge_own(every));
        steps.run("oracle log-devices, of a pool made by OpenZFS", || {
            log_devices::judge_fixture(&fixtures)
        });
    }
    steps.finish()
}

/// The cases of a budget. The small one has each kind of vdev once.
pub fn cases(budget: Budget) -> Vec<Case> {
    let every = LAYOUTS
        .iter()
        .flat_map(|&layout| [9, 12].map(|ashift| Case { layout, ashift }));
    every
        .filter(|case| match (budget, case.layout, case.ashift) {
            (Budget::Full, _, _) => true,
            (Budget::Small, Layout::RaidZ(2), ashift) => ashift == 9,
            (Budget::Small, Layout::Mirror(3) | Layout::RaidZ(1) | Layout::Stripe, _) => false,
            (Budget::Small, _, ashift) => ashift == 12,
        })
        .collect()
}

fn judge_new_pool(case: Case, arguments: &Arguments) -> Outcome {
    let folder = scratch(&format!("oracle-{}", case.name()));
    let images = folder.join("images");
    let instance = Instance::new(&programs(), &folder)?;
    let _watchdog = instance.watchdog(&case.name(), LIMIT);
    make_pool(&instance, case, POOL, &images, arguments)?;
    changes::expect_kept(&instance, &images, POOL)?;

    changes::change_filled(&instance, POOL, arguments.seed + 1)?;
    instance.zfs(&format!("create {POOL}/later"))?;
    changes::fill(
        &instance,
        &format!("{POOL}/later"),
        arguments.seed + 2,
        TreeSize::Small,
    )?;
    changes::expect_kept(&instance, &images, POOL)?;
    changes::expect_healthy(&instance, POOL)?;
    instance.zpool(&format!("export {POOL}"))?;
    drop(instance);
    if !arguments.keep {
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// The datasets of a case: each takes another way through the write path.
const DATASETS: [(&str, &str); 14] = [
    ("plain", ""),
    ("lz4-1m", "-o compression=lz4 -o recordsize=1m"),
    ("gzip-4k", "-o compression=gzip-6 -o recordsize=4k"),
    ("zstd-sha512", "-o compression=zstd -o checksum=sha512"),
    ("lzjb-skein", "-o compression=lzjb -o checksum=skein"),
    ("off-512", "-o compression=off -o recordsize=512"),
    (
        "off-fletcher2",
        "-o compression=off -o checksum=fletcher2 -o recordsize=8k",
    ),
    ("zle-blake3", "-o compression=zle -o checksum=blake3"),
    ("edonr-legacy", "-o checksum=edonr -o dnodesize=legacy"),
    ("copies2", "-o copies=2 -o checksum=sha256"),
    ("copies3", "-o copies=3 -o recordsize=16k"),
    ("xattr-dir", "-o xattr=dir -o acltype=off"),
    ("dnode-2k", "-o xattr=sa -o dnodesize=2k -o atime=off"),
    (
        "insensitive",
        "-o casesensitivity=insensitive -o normalization=formD",
    ),
];

/// Features that a pool of OpenZFS's uses from its creation. Where one is used and not counted as
/// such, OpenZFS forgets what belongs to it at its first write.
const ACTIVE_FROM_THE_START: [&str; 5] = [
    "vdev_zaps_v2",
    "spacemap_histogram",
    "extensible_dataset",
    "hole_birth",
    "enabled_txg",
];

fn expect_active_features(instance: &Instance, pool: &str) -> Outcome {
    for feature in ACTIVE_FROM_THE_START {
        let property = format!("feature@{feature}");
        let asked = ["get", "-Hp", "-o", "value", &property, pool];
        let value = instance.must("zpool", &asked)?.stdout;
        if value.trim() != "active" {
            return Err(format!("{property} of a new pool is {}", value.trim()).into());
        }
    }
    Ok(())
}

/// Makes the pool of a case, fills and changes it, and leaves it imported.
fn make_pool(
    instance: &Instance,
    case: Case,
    pool: &str,
    images: &std::path::Path,
    arguments: &Arguments,
) -> Outcome {
    case.layout.make_images(images, IMAGE_BYTES)?;
    let (root, ashift) = (
        instance.root().display().to_string(),
        format!("ashift={}", case.ashift),
    );
    let options = [
        "create",
        "-R",
        &root,
        "-o",
        &ashift,
        "-O",
        "xattr=sa",
        "-O",
        "acltype=posix",
    ];
    let more = ["-O", "dnodesize=auto", pool];
    let words = case.layout.words(images);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    instance.must("zpool", &[&options[..], &more[..], &words[..]].concat())?;
    expect_active_features(instance, pool)?;

    let mut seed = arguments.seed * 1000;
    for (name, properties) in DATASETS {
        seed += 1;
        instance.zfs(&format!("create {properties} {pool}/{name}"))?;
        let large =
            matches!(name, "plain" | "lz4-1m" | "copies2") && arguments.budget == Budget::Full;
        let size = if large || name == "plain" {
            TreeSize::Full
        } else {
            TreeSize::Small
        };
        changes::fill(instance, &format!("{pool}/{name}"), seed, size)?;
    }
    instance.zfs(&format!("create {pool}/doomed"))?;
    instance.zfs(&format!("create -p {pool}/doomed/child/grandchild"))?;
    changes::fill(instance, &format!("{pool}/doomed"), seed, TreeSize::Full)?;
    changes::fill(
        instance,
        &format!("{pool}/doomed/child/grandchild"),
        seed,
        TreeSize::Small,
    )?;
    let is_full = arguments.budget == Budget::Full;
    let has_snapshots = is_full || matches!(case.layout, Layout::Mirror(2) | Layout::RaidZ(2));
    if has_snapshots {
        snapshots::take(instance, pool, "one", &["doomed"])?;
    }
    changes::change_filled(instance, pool, arguments.seed)?;
    instance.zfs(&format!("destroy -r {pool}/doomed"))?;
    if has_snapshots {
        snapshots::live_with(instance, pool, arguments.seed)?;
    }
    changes::expect_healthy(instance, pool)
}
