//! A pool under change: filled, changed, exported, judged, imported again, and found as it was
//! left.
//!
//! # Mechanism
//! What all tasks share that write to pools. The pool's own listing before export is the truth for
//! the listing after import; what lies between is judged by OpenZFS's `zdb`, and our own must agree
//! with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tarn_golden::{Fixtures, compare};
use tarn_oracle::instance::Instance;
use tarn_oracle::judge;
use tarn_workload::tree::{self, Sums, TreeSize};

use crate::golden;
use crate::workspace::{Outcome, openzfs, programs, scratch};

/// A dataset's manifest, for every mounted file system of a pool.
pub type Listing = BTreeMap<String, Vec<String>>;

/// No fixture takes longer than this.
const LIMIT: Duration = Duration::from_secs(900);

/// Lists every mounted file system of a pool, and every snapshot.
pub fn listing(instance: &Instance, pool: &str) -> Outcome<Listing> {
    let columns = [
        "list",
        "-Hp",
        "-t",
        "filesystem,snapshot",
        "-r",
        "-o",
        "name,mounted,mountpoint",
        pool,
    ];
    let text = instance.must("zfs", &columns)?.stdout;
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    let mut mounts = BTreeMap::new();
    for row in &rows {
        let [name, mounted, mountpoint] = row[..] else {
            return Err(format!("zfs list -o name,mounted,mountpoint printed {row:?}").into());
        };
        if mounted == "yes" {
            mounts.insert(name.to_string(), PathBuf::from(mountpoint));
        }
    }
    let mut listing = Listing::new();
    for row in &rows {
        let name = row[0];
        let place = match name.split_once('@') {
            Some((dataset, snapshot)) => mounts
                .get(dataset)
                .map(|mount| mount.join(".zfs/snapshot").join(snapshot)),
            None => mounts.get(name).cloned(),
        };
        if let Some(place) = place {
            let lines = tree::manifest_with(&place, Sums::Quick)?;
            listing.insert(name.to_string(), lines);
        }
    }
    match listing.is_empty() {
        true => Err(format!("nothing of {pool} is mounted, so nothing can be compared").into()),
        false => Ok(listing),
    }
}

/// Says how two listings of a pool differ; an error if they do.
pub fn expect_same(when: &str, expected: &Listing, found: &Listing) -> Outcome {
    let mut told = Vec::new();
    for (name, lines) in expected {
        match found.get(name) {
            None => told.push(format!("{name}: not mounted")),
            Some(seen) => {
                let differences = compare::manifests(lines, seen);
                told.extend(
                    differences
                        .iter()
                        .take(8)
                        .map(|what| format!("{name}: {what}")),
                );
            }
        }
    }
    told.extend(
        found
            .keys()
            .filter(|name| !expected.contains_key(*name))
            .map(|name| format!("{name}: should not be there")),
    );
    match told.is_empty() {
        true => Ok(()),
        false => Err(format!("{when}, the files differ:\n  {}", told.join("\n  ")).into()),
    }
}

/// `zpool status` of a pool without any error.
pub fn expect_healthy(instance: &Instance, pool: &str) -> Outcome {
    let status = instance.must("zpool", &["status", pool])?.stdout;
    match status.contains("errors: No known data errors") && status.contains("state: ONLINE") {
        true => Ok(()),
        false => Err(format!("{pool} is not healthy:\n{status}").into()),
    }
}

/// Has an exported pool judged by OpenZFS's `zdb`, opens every object, and asks our own `zdb` the
/// same.
pub fn expect_clean(
    instance: &Instance,
    images: &Path,
    pool: &str,
    datasets: &[String],
) -> Outcome {
    let tools = openzfs()?;
    let clean = judge::judge(&tools, images, pool)?;
    let objects = judge::open_objects(&tools, images, pool, datasets)?;
    let folder = images.display().to_string();
    let spoken = instance.run("zdb", &["-e", "-p", &folder, "-bcc", pool])?;
    let ours = judge::read_walk(pool, &spoken).map_err(|verdict| {
        format!(
            "OpenZFS's zdb says {} blocks and no leaks, ours disagrees: {verdict}",
            clean.block_count
        )
    })?;
    if ours != clean {
        let (ours, theirs) = (ours.block_count, clean.block_count);
        return Err(
            format!("OpenZFS's zdb counts {theirs} block pointers of {pool}, ours {ours}").into(),
        );
    }
    println!(
        "  clean: {} blocks, {} objects",
        clean.block_count, objects.block_count
    );
    Ok(())
}

/// Exports, has it judged, imports again, and expects the files found before.
pub fn expect_kept(instance: &Instance, images: &Path, pool: &str) -> Outcome {
    let before = listing(instance, pool)?;
    instance.must("zpool", &["export", pool])?;
    let datasets: Vec<String> = before.keys().cloned().collect();
    expect_clean(instance, images, pool, &datasets)?;
    let (root, folder) = (
        instance.root().display().to_string(),
        images.display().to_string(),
    );
    instance.must("zpool", &["import", "-R", &root, "-d", &folder, pool])?;
    expect_same("after import", &before, &listing(instance, pool)?)
}

/// Imports a fixture to write, changes what it holds, and expects it kept.
pub fn change_fixture(fixtures: &Fixtures, name: &str) -> Outcome {
    let fixture = fixtures.unpack(name)?;
    let (pool, folder) = (fixture.pool(), scratch(&format!("change-{name}")));
    let images = folder.join("images");
    let instance = Instance::new(&programs(), &folder)?;
    fixture.working_copy(&images)?;
    let _watchdog = instance.watchdog(&format!("changing {name}"), LIMIT);
    golden::import(&instance, &fixture, &images, &[])?;
    instance.must("zfs", &["mount", "-a"])?;

    change_filled(&instance, &pool, 11)?;
    instance.zfs(&format!(
        "create -o compression=zstd -o recordsize=64k {pool}/added"
    ))?;
    fill(&instance, &format!("{pool}/added"), 12, TreeSize::Full)?;
    destroy_one(&instance, &pool)?;
    expect_kept(&instance, &images, &pool)?;

    change_filled(&instance, &pool, 13)?;
    expect_kept(&instance, &images, &pool)?;
    expect_healthy(&instance, &pool)?;
    instance.must("zpool", &["export", &pool])?;
    drop(instance);
    fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Changes every file system of the pool that holds a filled tree.
pub fn change_filled(instance: &Instance, pool: &str, seed: u64) -> Outcome {
    let mut changed = 0;
    for mount in mounts(instance, pool)? {
        if mount.join("many").is_dir() && mount.join("few").is_dir() {
            tree::churn(&mount, seed)?;
            changed += 1;
        }
    }
    match changed {
        0 => Err(format!("no file system of {pool} holds a filled tree to change").into()),
        _ => Ok(()),
    }
}

/// Destroys the last file system of a fixture that nothing depends on; the others are enough to
/// compare.
fn destroy_one(instance: &Instance, pool: &str) -> Outcome {
    let victim = match pool {
        "fxbasic" => "c-zle",
        _ => "added2",
    };
    if victim == "added2" {
        instance.zfs(&format!("create {pool}/{victim}"))?;
        fill(instance, &format!("{pool}/{victim}"), 14, TreeSize::Small)?;
        instance.must("zpool", &["sync", pool])?;
    }
    instance.zfs(&format!("destroy {pool}/{victim}"))?;
    Ok(())
}

/// Where the file systems of a pool are mounted.
pub fn mounts(instance: &Instance, pool: &str) -> Outcome<Vec<PathBuf>> {
    let columns = [
        "list",
        "-Hp",
        "-t",
        "filesystem",
        "-r",
        "-o",
        "mounted,mountpoint",
        pool,
    ];
    let text = instance.must("zfs", &columns)?.stdout;
    let mounted = text.lines().filter_map(|line| line.strip_prefix("yes\t"));
    Ok(mounted.map(PathBuf::from).collect())
}

/// Where one file system is mounted.
pub fn mount_of(instance: &Instance, dataset: &str) -> Outcome<PathBuf> {
    let text = instance
        .must("zfs", &["get", "-Hp", "-o", "value", "mountpoint", dataset])?
        .stdout;
    let path = PathBuf::from(text.trim());
    match tarn_oracle::instance::mounts_below(&instance.root()).contains(&path) {
        true => Ok(path),
        false => Err(format!("{dataset} is not mounted at {}", path.display()).into()),
    }
}

/// Fills a mounted file system.
pub fn fill(instance: &Instance, dataset: &str, seed: u64, size: TreeSize) -> Outcome {
    let mount = mount_of(instance, dataset)?;
    tree::fill(&mount, seed, size).map_err(|error| format!("filling {dataset}: {error}"))?;
    Ok(())
}
