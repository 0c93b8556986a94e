//! `cargo xtask oracle --vm`: OpenZFS's kernel module takes over pools that we made, and gives them
//! back.
//!
//! # Mechanism
//! Pools of every layout are made here, listed and exported into one folder. Virtual machines with
//! the real module, one for each processor, get that folder and a part of the pools each: they
//! import each pool, scrub it, list every file system and snapshot with the same program that
//! listed it here, change and add files, destroy, promote and go back to snapshots, list again and
//! export. Here the first listings must equal ours, the scrubs must have found nothing, `zdb` must
//! find the pools clean, and what we then import must equal the second listings.
//!
//! Other pools are handed over with intent logs that were never replayed ([`logs`]): the module
//! replays them. And one is made there, whose volumes' logs are ours to replay ([`volume_logs`]),
//! and one in whose logs files are cloned ([`clone_logs`]). Streams go there and back
//! ([`streams`]), and scans that one has half done are finished by the other ([`half_done`]).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tarn_oracle::instance::Instance;
use tarn_oracle::machine::Machine;

use super::guest::guest_listing;
use super::{
    Arguments, Case, cases, clone_logs, half_done, logs, make_pool, snapshots, streams, volume_logs,
};
use crate::changes::{self, Listing};
use crate::debian_packages;
use crate::workspace::{Outcome, Steps, cargo, checkout, programs, run, scratch, target};

/// Software emulation is some twenty times slower than the machine.
const LIMIT: Duration = Duration::from_secs(5400);

/// Runs in the guest, where /share holds the pools, these among others, and `tarn-tree`. It goes on
/// after a failure, and says so.
const GUEST: &str = r#"
set -u
failed=0
say() { echo "$*"; }
began=$SECONDS
lap() { say "-- $1: $((SECONDS - began)) s"; began=$SECONDS; }
try() { "$@" || { echo "FAILED: $*"; failed=1; }; }
list() { # list POOL PREFIX
  for fs in $(zfs list -H -t filesystem -r -o name "$1"); do
    [ "$(zfs get -H -o value mounted "$fs")" = yes ] || continue
    mp=$(zfs get -H -o value mountpoint "$fs")
    /share/tarn-tree manifest --quick "$mp" > "/share/$1/$2-${fs//\//+}.jsonl" || { echo "FAILED: list $fs"; failed=1; }
    for snapshot in $(zfs list -H -t snapshot -d 1 -o name "$fs"); do
      /share/tarn-tree manifest --quick "$mp/.zfs/snapshot/${snapshot#*@}" > "/share/$1/$2-${snapshot//\//+}.jsonl" || { echo "FAILED: list $snapshot"; failed=1; }
    done
  done
}
for pool in POOLS; do
  folder=/share/$pool/images
  say "== $pool"
  if ! zpool import -f -R "/mnt/$pool" -d "$folder" "$pool"; then echo "FAILED: import $pool"; failed=1; continue; fi
  lap "import"
  list "$pool" seen
  lap "list"
  try zpool scrub -w "$pool"
  lap "scrub"
  zpool status -v "$pool" | tee "/share/$pool/status"
  case "$pool" in
  on-*)
    for fs in plain zstd-sha512 copies3; do
      try /share/tarn-tree churn "/mnt/$pool/$pool/$fs" 77
    done
SNAPSHOTS ;;
  esac
  try zfs create "$pool/kernel"
  try /share/tarn-tree fill "$(zfs get -H -o value mountpoint "$pool/kernel")" 78 small
  lap "change"
  list "$pool" written
  lap "list"
  try zpool export "$pool"
  lap "export"
done
exit $failed
"#;

/// Makes the pools, lends them to the kernel module, and takes them back.
pub fn kernel(arguments: &Arguments) -> Outcome {
    debian_packages::install_missing(&[("modprobe", "kmod")])?;
    let machine = Machine::find(&checkout())?;
    let share = scratch("oracle-vm");
    let host = scratch("oracle-vm-host");
    if share.exists() {
        fs::remove_dir_all(&share)?;
    }
    fs::create_dir_all(&share)?;
    fs::copy(static_tree()?, share.join("tarn-tree"))?;
    let instance = Instance::new(&programs(), &host)?;

    let wanted = |name: &str| {
        arguments
            .only
            .as_deref()
            .is_none_or(|part| name.contains(part))
    };
    let mut lent: Vec<(String, Listing)> = Vec::new();
    let mut left: Vec<(String, Listing)> = Vec::new();
    let mut steps = Steps::default();
    for case in cases(arguments.budget)
        .into_iter()
        .filter(|case| wanted(&case.name()))
    {
        steps.run(&format!("make {}", case.name()), || {
            lent.push(make_and_list(&instance, case, &share, arguments)?);
            Ok(())
        });
    }
    if wanted(logs::NAME) {
        steps.run("leave intent logs behind", || {
            left = logs::leave(&share, arguments.seed)?;
            Ok(())
        });
    }
    if !lent.is_empty() || !left.is_empty() {
        steps.run(
            "the kernel module imports, scrubs, lists, writes and exports",
            || {
                let pools: Vec<&str> = lent
                    .iter()
                    .chain(&left)
                    .map(|(pool, _)| pool.as_str())
                    .collect();
                lend(&machine, &share, &pools)
            },
        );
    }
    for (pool, before) in &lent {
        steps.run(&format!("take back {pool}"), || {
            let seen = guest_listing(&share.join(pool), "seen")?;
            changes::expect_same("in the kernel module", before, &seen)?;
            take_back(&instance, &share, pool)
        });
    }
    for (pool, before) in &left {
        steps.run(&format!("take back {pool}, its logs replayed"), || {
            let seen = guest_listing(&share.join(pool), "seen")?;
            let seen = logs::with_set_times(&seen);
            changes::expect_same("after the kernel module's replay", before, &seen)?;
            take_back(&instance, &share, pool)
        });
    }
    if wanted(volume_logs::NAME) {
        steps.run("the kernel module's logs of volumes, replayed", || {
            volume_logs::replay(&machine, &instance, &share)
        });
    }
    if wanted(clone_logs::NAME) {
        steps.run("the kernel module's logs of clones, replayed", || {
            clone_logs::replay(&machine, &instance, &share)
        });
    }
    if wanted(half_done::NAME) {
        steps.run("scans half done here and in the kernel module", || {
            half_done::exchange(&machine, &instance, &share)
        });
    }
    if wanted(streams::NAME) {
        steps.run("streams to and from the kernel module", || {
            streams::exchange(&machine, &instance, &share)
        });
    }
    drop(instance);
    if !arguments.keep {
        fs::remove_dir_all(&share)?;
    }
    steps.finish()
}

/// Lends pools to the module: to that of as many machines at once as there are processors.
fn lend(machine: &Machine, share: &Path, pools: &[&str]) -> Outcome {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let count = processors.min(pools.len());
    let mut scripts = Vec::new();
    for number in 0..count {
        let mine: Vec<&str> = pools.iter().copied().skip(number).step_by(count).collect();
        let script = share.join(format!("guest{number}.sh"));
        let commands = GUEST.replace("SNAPSHOTS", snapshots::IN_GUEST);
        fs::write(&script, commands.replace("POOLS", &mine.join(" ")))?;
        scripts.push(script);
    }
    let spoken: Vec<_> = std::thread::scope(|scope| {
        let machines: Vec<_> = scripts
            .iter()
            .map(|script| scope.spawn(|| machine.run(share, script, LIMIT)))
            .collect();
        let ended = machines.into_iter().map(|machine| machine.join());
        ended
            .map(|spoken| spoken.expect("who waits for a machine does not panic"))
            .collect()
    });
    let mut failed = None;
    for spoken in spoken {
        let spoken = spoken?;
        print!("{}", spoken.stdout);
        failed = failed.or(spoken.expect_success().err());
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn make_and_list(
    instance: &Instance,
    case: Case,
    share: &Path,
    arguments: &Arguments,
) -> Outcome<(String, Listing)> {
    // A name that begins with a kind of vdev is reserved.
    let pool = format!("on-{}", case.name());
    make_pool(
        instance,
        case,
        &pool,
        &share.join(&pool).join("images"),
        arguments,
    )?;
    let listing = changes::listing(instance, &pool)?;
    instance.zpool(&format!("export {pool}"))?;
    Ok((pool, listing))
}

fn take_back(instance: &Instance, share: &Path, pool: &str) -> Outcome {
    let folder = share.join(pool);
    let status = fs::read_to_string(folder.join("status"))?;
    let scrubbed =
        status.contains("with 0 errors") && status.contains("errors: No known data errors");
    if !scrubbed || status.contains("repaired 0B in") != status.contains("scrub repaired") {
        return Err(format!("the scrub was not clean:\n{status}").into());
    }
    let written = guest_listing(&folder, "written")?;
    let images = folder.join("images");
    let datasets: Vec<String> = written.keys().cloned().collect();
    changes::expect_clean(instance, &images, pool, &datasets)?;
    let (root, place) = (
        instance.root().display().to_string(),
        images.display().to_string(),
    );
    instance.must("zpool", &["import", "-f", "-R", &root, "-d", &place, pool])?;
    changes::expect_same(
        "after the kernel module wrote",
        &written,
        &changes::listing(instance, pool)?,
    )?;
    let is_changed = snapshots::destroy_theirs(instance, pool)?;
    instance.zpool(&format!("export {pool}"))?;
    match is_changed {
        true => changes::expect_clean(instance, &images, pool, &[]),
        false => Ok(()),
    }
}

/// `tarn-tree` with everything it needs inside, to run on any Linux of this processor.
fn static_tree() -> Outcome<PathBuf> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let folder = target().join("static");
    let arguments = [
        "build",
        "--release",
        "--package",
        "tarn-workload",
        "--bin",
        "tarn-tree",
        "--target",
        &triple,
    ];
    let mut build = cargo(&arguments);
    run(build
        .env("CARGO_TARGET_DIR", &folder)
        .env("RUSTFLAGS", "-C target-feature=+crt-static"))?;
    Ok(folder.join(triple).join("release/tarn-tree"))
}
