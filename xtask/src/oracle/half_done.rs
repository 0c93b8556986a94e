//! Scrubs and resilvers that one implementation leaves half done and the other finishes.
//!
//! # Mechanism
//! Four mirrors are made here. In one our scrub is paused, in another our resilver of a device that
//! missed writes is interrupted by the end of the daemon: OpenZFS's kernel module finishes both. In
//! the other two the module is slowed down by its tunables, and its scrub and its resilver are held
//! between and exported: we finish them. A scrub that is finished has found nothing. A device that
//! was resilvered has everything: the pool is read from that device alone, and scrubbed by the
//! module, or listed here.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tarn_oracle::instance::Instance;
use tarn_oracle::machine::Machine;
use tarn_workload::tree::TreeSize;

use super::guest::{guest_listing, in_machine};
use crate::changes::{self, Listing};
use crate::workspace::Outcome;

/// By which `--only` knows it.
pub const NAME: &str = "half-done-scans";

const SCRUB_OURS: &str = "scrub-ours";
const RESILVER_OURS: &str = "resilver-ours";
const SCRUB_THEIRS: &str = "scrub-theirs";
const RESILVER_THEIRS: &str = "resilver-theirs";
const POOLS: [&str; 4] = [SCRUB_OURS, RESILVER_OURS, SCRUB_THEIRS, RESILVER_THEIRS];

/// Of each device; sparse.
const IMAGE_BYTES: u64 = 2 << 30;
/// A scan of so much, with random bytes, is not over before the next command.
const BULK_BYTES: usize = 600 << 20;
/// Where the module finishes or begins scans, so much is enough.
const SMALL_BULK_BYTES: usize = 160 << 20;
/// So often a scrub is begun until one is paused before its end.
const PAUSES_MAX: usize = 10;

/// Runs in the guest.
const GUEST: &str = r#"
set -u
failed=0
P=/sys/module/zfs/parameters
try() { "$@" || { echo "FAILED: $*"; failed=1; }; }
import() { try zpool import -f -o cachefile=none -R "/mnt/$1" -d "/share/$1/images" "$1"; }
list() { # list POOL PREFIX
  for fs in $(zfs list -H -t filesystem -r -o name "$1"); do
    try /share/tarn-tree manifest --quick "$(zfs get -H -o value mountpoint "$fs")" > "/share/$1/$2-${fs//\//+}.jsonl"
  done
}
expect() { # expect POOL TEXT
  zpool status "$1" | tee "/share/$1/status"
  grep -q "$2" "/share/$1/status" || { echo "FAILED: no '$2' in the status of $1"; failed=1; }
}
hold() { # hold POOL: until the scan is between, which is then held
  for try in $(seq 1 600); do
    done=$(zpool status "$1" | sed -n 's/.*, \([0-9]*\)\.[0-9]*% done.*/\1/p')
    [ -n "$done" ] && [ "$done" -ge 10 ] && break
    sleep 0.1
  done
  echo 1 > $P/zfs_scan_suspend_progress
  sleep 1
  zpool sync "$1"
  expect "$1" "in progress since"
  try zpool export "$1"
  echo 0 > $P/zfs_scan_suspend_progress
}

import scrub-ours
expect scrub-ours "scrub paused since"
try zpool scrub scrub-ours
try zpool wait -t scrub scrub-ours
expect scrub-ours "scrub repaired 0B in .* with 0 errors"
list scrub-ours seen
try zpool export scrub-ours

echo 1 > $P/zfs_scan_suspend_progress
import resilver-ours
expect resilver-ours "resilver in progress since"
echo 0 > $P/zfs_scan_suspend_progress
try zpool wait -t resilver resilver-ours
expect resilver-ours "resilvered .* with 0 errors"
try zpool export resilver-ours
mv /share/resilver-ours/images/0.img /share/resilver-ours/0.img
import resilver-ours
try zpool scrub -w resilver-ours
expect resilver-ours "scrub repaired 0B in .* with 0 errors"
list resilver-ours seen
try zpool export resilver-ours

echo 1 > $P/zfs_scan_legacy
echo 1 > $P/zfs_vdev_scrub_max_active
echo 1 > $P/zfs_scrub_min_time_ms
echo 1 > $P/zfs_resilver_min_time_ms
echo 1 > $P/zfs_txg_timeout
import scrub-theirs
list scrub-theirs seen
try zpool scrub scrub-theirs
hold scrub-theirs

import resilver-theirs
try zpool offline resilver-theirs /share/resilver-theirs/images/1.img
try zfs create resilver-theirs/missed
try /share/tarn-tree fill "/mnt/resilver-theirs/resilver-theirs/missed" 92 small
head -c 30000000 /dev/urandom > /mnt/resilver-theirs/resilver-theirs/missed/bulk
try zpool sync resilver-theirs
list resilver-theirs written
try zpool online resilver-theirs /share/resilver-theirs/images/1.img
hold resilver-theirs
exit $failed
"#;

/// Leaves scans half done, has the module finish them and leave others, and finishes those.
pub fn exchange(machine: &Machine, instance: &Instance, share: &Path) -> Outcome {
    let mut before = Vec::new();
    for pool in POOLS {
        make(instance, share, pool)?;
    }
    pause_scrub(instance)?;
    interrupt_resilver(instance, share)?;
    for pool in POOLS {
        before.push((pool, changes::listing(instance, pool)));
        if pool != RESILVER_OURS {
            instance.zpool(&format!("export {pool}"))?;
        }
    }
    // An export takes about as long as the resilver: it would often be over then.
    instance.must(
        "zpool",
        &["online", RESILVER_OURS, &image(share, RESILVER_OURS, 1)],
    )?;
    if !instance.kill_daemon() {
        return Err("there is no daemon to be killed".into());
    }
    in_machine(machine, share, "half-done.sh", GUEST)?;
    for (pool, before) in before {
        if pool != RESILVER_THEIRS {
            let seen = guest_listing(&share.join(pool), "seen")?;
            changes::expect_same(&format!("{pool} in the kernel module"), &before?, &seen)?;
        }
    }
    let written = guest_listing(&share.join(RESILVER_THEIRS), "written")?;
    finish_scrub(instance, share)?;
    finish_resilver(instance, share, &written)
}

fn images(share: &Path, pool: &str) -> PathBuf {
    share.join(pool).join("images")
}

fn image(share: &Path, pool: &str, number: usize) -> String {
    let path = images(share, pool).join(format!("{number}.img"));
    path.display().to_string()
}

fn make(instance: &Instance, share: &Path, pool: &str) -> Outcome {
    fs::create_dir_all(images(share, pool))?;
    let [one, other] = [0, 1].map(|number| image(share, pool, number));
    for image in [&one, &other] {
        File::create(image)?.set_len(IMAGE_BYTES)?;
    }
    let root = instance.root().display().to_string();
    let create = ["create", "-R", &root, pool, "mirror", &one, &other];
    instance.must("zpool", &create)?;
    instance.zfs(&format!("create {pool}/before"))?;
    changes::fill(instance, &format!("{pool}/before"), 91, TreeSize::Small)?;
    let bytes = match pool {
        SCRUB_OURS => BULK_BYTES,
        _ => SMALL_BULK_BYTES,
    };
    write_bulk(instance, &format!("{pool}/before"), bytes)
}

/// Writes a file of bytes that do not compress.
fn write_bulk(instance: &Instance, dataset: &str, bytes: usize) -> Outcome {
    let path = changes::mount_of(instance, dataset)?.join("bulk");
    let mut random = std::io::Read::take(File::open("/dev/urandom")?, u64::try_from(bytes)?);
    std::io::copy(&mut random, &mut File::create(path)?)?;
    let pool = dataset.split('/').next().unwrap_or(dataset);
    instance.zpool(&format!("sync {pool}"))?;
    Ok(())
}

fn pause_scrub(instance: &Instance) -> Outcome {
    for _ in 0..PAUSES_MAX {
        instance.zpool(&format!("scrub {SCRUB_OURS}"))?;
        let paused = instance.run("zpool", &["scrub", "-p", SCRUB_OURS])?;
        if paused.expect_success().is_ok() {
            return Ok(());
        }
    }
    Err(format!("no scrub of {PAUSES_MAX} was paused before its end").into())
}

/// Writes what one device of the pool misses. It is [exchanged](exchange) while it is filled.
fn interrupt_resilver(instance: &Instance, share: &Path) -> Outcome {
    let device = image(share, RESILVER_OURS, 1);
    instance.must("zpool", &["offline", RESILVER_OURS, &device])?;
    instance.zfs(&format!("create {RESILVER_OURS}/missed"))?;
    changes::fill(
        instance,
        &format!("{RESILVER_OURS}/missed"),
        93,
        TreeSize::Small,
    )?;
    write_bulk(instance, &format!("{RESILVER_OURS}/missed"), BULK_BYTES)
}

fn import(instance: &Instance, share: &Path, pool: &str) -> Outcome {
    let root = instance.root().display().to_string();
    let folder = images(share, pool).display().to_string();
    instance.must("zpool", &["import", "-f", "-R", &root, "-d", &folder, pool])?;
    Ok(())
}

fn expect_status(instance: &Instance, pool: &str, words: &[&str]) -> Outcome {
    let status = instance.must("zpool", &["status", pool])?.stdout;
    match words.iter().find(|word| !status.contains(**word)) {
        None => Ok(()),
        Some(word) => Err(format!("there is no {word:?} in the status:\n{status}").into()),
    }
}

/// The module's scrub goes on here, and finds nothing.
fn finish_scrub(instance: &Instance, share: &Path) -> Outcome {
    import(instance, share, SCRUB_THEIRS)?;
    instance.zpool(&format!("wait -t scrub {SCRUB_THEIRS}"))?;
    let words = [
        "scrub repaired 0B in",
        "with 0 errors",
        "No known data errors",
    ];
    expect_status(instance, SCRUB_THEIRS, &words)?;
    instance.zpool(&format!("export {SCRUB_THEIRS}"))?;
    changes::expect_clean(instance, &images(share, SCRUB_THEIRS), SCRUB_THEIRS, &[])
}

/// The module's resilver goes on here, and the device has everything then.
fn finish_resilver(instance: &Instance, share: &Path, written: &Listing) -> Outcome {
    let pool = RESILVER_THEIRS;
    import(instance, share, pool)?;
    instance.zpool(&format!("wait -t resilver {pool}"))?;
    expect_status(
        instance,
        pool,
        &["resilvered", "with 0 errors", "No known data errors"],
    )?;
    instance.zpool(&format!("export {pool}"))?;
    changes::expect_clean(instance, &images(share, pool), pool, &[])?;
    fs::rename(image(share, pool, 0), share.join(pool).join("0.img"))?;
    import(instance, share, pool)?;
    instance.zpool(&format!("scrub -w {pool}"))?;
    expect_status(instance, pool, &["scrub repaired 0B in", "with 0 errors"])?;
    changes::expect_same(
        "on the device that was resilvered",
        written,
        &changes::listing(instance, pool)?,
    )?;
    instance.zpool(&format!("export {pool}"))?;
    Ok(())
}
