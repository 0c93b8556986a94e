//! Pools with a checkpoint: changed, rewound and discarded; of ours, and of OpenZFS's making.
//!
//! OpenZFS's `zdb` walks the pool as it is and as it was at the checkpoint, and finds no leak in
//! either: a block that was freed since is neither lost nor free.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use tarn_golden::Fixtures;
use tarn_oracle::instance::Instance;
use tarn_workload::tree::TreeSize;

use crate::changes::{self, Listing};
use crate::golden;
use crate::workspace::{Outcome, openzfs, programs, scratch};

/// The pool of ours.
const POOL: &str = "judged";
const LIMIT: Duration = Duration::from_secs(900);
/// Sparse.
const IMAGE_BYTES: u64 = 256 << 20;
/// What OpenZFS's `zdb` prints of a pool with a checkpoint.
const FOUND: &str = "Checkpointed uberblock found";
const REWIND: &str = "--rewind-to-checkpoint";

/// A pool of ours: rewound, and later its next checkpoint discarded.
pub fn judge_own() -> Outcome {
    let folder = scratch("oracle-checkpoints");
    let images = folder.join("images");
    let instance = Instance::new(&programs(), &folder)?;
    fs::create_dir_all(&images)?;
    let names = ["0", "1", "2"].map(|name| images.join(format!("{name}.img")));
    for image in &names {
        File::create(image)?.set_len(IMAGE_BYTES)?;
    }
    let [first, second, added] = names.map(|image| image.display().to_string());
    let _watchdog = instance.watchdog("checkpoints", LIMIT);
    let root = instance.root().display().to_string();
    let create = ["create", "-R", &root, POOL, "mirror", &first, &second];
    instance.must("zpool", &create)?;
    for (seed, dataset) in (0..).zip(["stays", "goes"]) {
        instance.zfs(&format!("create {POOL}/{dataset}"))?;
        let dataset = format!("{POOL}/{dataset}");
        changes::fill(&instance, &dataset, 41 + seed, TreeSize::Small)?;
    }
    instance.zfs(&format!("snapshot {POOL}/goes@before"))?;
    instance.zpool(&format!("checkpoint {POOL}"))?;
    let kept = changes::listing(&instance, POOL)?;
    changes::change_filled(&instance, POOL, 43)?;
    instance.zfs(&format!("destroy -r {POOL}/goes"))?;
    instance.must("zpool", &["add", "-f", POOL, &added])?;
    instance.zfs(&format!("create {POOL}/new"))?;
    changes::fill(&instance, &format!("{POOL}/new"), 44, TreeSize::Small)?;
    changes::expect_kept(&instance, &images, POOL)?;
    rewind(&instance, &images, POOL, &kept)?;
    instance.zpool(&format!("checkpoint {POOL}"))?;
    changes::change_filled(&instance, POOL, 45)?;
    discard(&instance, &images, POOL)?;
    changes::expect_healthy(&instance, POOL)?;
    instance.zpool(&format!("export {POOL}"))?;
    drop(instance);
    fs::remove_dir_all(&folder)?;
    Ok(())
}

/// The pool with a checkpoint that OpenZFS made: once discarded, once rewound.
pub fn judge_fixture(fixtures: &Fixtures) -> Outcome {
    let fixture = fixtures.unpack("checkpoint")?;
    let pool = fixture.pool();
    for rewinds in [false, true] {
        let folder = scratch("oracle-checkpoints-of-openzfs");
        let images = folder.join("images");
        let instance = Instance::new(&programs(), &folder)?;
        fixture.working_copy(&images)?;
        let _watchdog = instance.watchdog("a checkpoint of OpenZFS", LIMIT);
        if rewinds {
            let read_only = ["-o", "readonly=on", REWIND];
            golden::import(&instance, &fixture, &images, &read_only)?;
            instance.must("zfs", &["mount", "-a"])?;
            let kept = changes::listing(&instance, &pool)?;
            instance.must("zpool", &["export", &pool])?;
            golden::import(&instance, &fixture, &images, &[])?;
            instance.must("zfs", &["mount", "-a"])?;
            instance.zfs(&format!("create {pool}/new"))?;
            changes::fill(&instance, &format!("{pool}/new"), 46, TreeSize::Small)?;
            rewind(&instance, &images, &pool, &kept)?;
        } else {
            golden::import(&instance, &fixture, &images, &[])?;
            instance.must("zfs", &["mount", "-a"])?;
            instance.zfs(&format!("create {pool}/new"))?;
            changes::fill(&instance, &format!("{pool}/new"), 47, TreeSize::Small)?;
            changes::expect_kept(&instance, &images, &pool)?;
            discard(&instance, &images, &pool)?;
        }
        changes::expect_healthy(&instance, &pool)?;
        instance.must("zpool", &["export", &pool])?;
        drop(instance);
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// Rewinds an imported pool; it has what it had at its checkpoint, and stays whole.
fn rewind(instance: &Instance, images: &Path, pool: &str, kept: &Listing) -> Outcome {
    instance.must("zpool", &["export", pool])?;
    expect_checkpoint(images, pool)?;
    let (root, folder) = (
        instance.root().display().to_string(),
        images.display().to_string(),
    );
    instance.must(
        "zpool",
        &["import", "-R", &root, "-d", &folder, REWIND, pool],
    )?;
    changes::expect_same("after the rewind", kept, &changes::listing(instance, pool)?)?;
    instance.zfs(&format!("create {pool}/after"))?;
    changes::fill(instance, &format!("{pool}/after"), 48, TreeSize::Small)?;
    changes::expect_kept(instance, images, pool)?;
    instance.must("zpool", &["scrub", "-w", pool])?;
    changes::expect_healthy(instance, pool)
}

/// Discards the checkpoint of an imported pool.
fn discard(instance: &Instance, images: &Path, pool: &str) -> Outcome {
    instance.must("zpool", &["checkpoint", "-d", "-w", pool])?;
    changes::expect_kept(instance, images, pool)?;
    let value = ["get", "-Hp", "-o", "value", "checkpoint", pool];
    match instance.must("zpool", &value)?.stdout.trim() {
        "-" => Ok(()),
        other => Err(format!("checkpoint is {other} after it was discarded").into()),
    }
}

/// OpenZFS's `zdb` sees the checkpoint, and finds its state without leaks.
fn expect_checkpoint(images: &Path, pool: &str) -> Outcome {
    let folder = images.display().to_string();
    let tools = openzfs()?;
    let walk = |marks: &str| tools.run("zdb", &["-e", "-p", &folder, marks, pool], LIMIT);
    let present = walk("-bcc")?;
    if !present.stdout.contains(FOUND) {
        return Err(format!("zdb sees no checkpoint of {pool}: {}", present.stdout).into());
    }
    let walk = walk("-bcck")?;
    match walk.stdout.contains("No leaks") {
        true => Ok(()),
        false => Err(format!("zdb -bcck of {pool}: {}{}", walk.stdout, walk.stderr).into()),
    }
}
