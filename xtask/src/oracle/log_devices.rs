//! Log devices that come and go, judged after each change: a pool of ours, and one that OpenZFS
//! made.
//!
//! Before each change applications are promised things, so that logs are on the devices; after it
//! the pool is exported, walked by OpenZFS's `zdb`, imported again, and found as it was.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use tarn_golden::Fixtures;
use tarn_oracle::instance::Instance;
use tarn_workload::tree::TreeSize;

use super::{LIMIT, POOL};
use crate::changes;
use crate::golden;
use crate::workspace::{Outcome, programs, scratch};

/// Sparse.
const IMAGE_BYTES: u64 = 256 << 20;

/// Images of the pool of ours.
const IMAGE_COUNT: usize = 7;

/// Files that are written and made durable before each change.
const PROMISES: usize = 20;

/// What is done, in words of `zpool`: a number is an image.
const CHANGES: [&str; 13] = [
    "attach 2 3",
    "attach 3 4",
    "replace 2 5",
    "detach 4",
    "offline 3",
    "online 3",
    "detach 5",
    "replace 3 2",
    "add log 3 mirror 4 5",
    "remove 2",
    "remove mirror-3",
    "detach 1",
    "remove 3",
];

/// Every change of log devices of a pool of ours, judged after each so many changes.
pub fn judge_own(every: usize) -> Outcome {
    let folder = scratch("oracle-log-devices");
    let images = folder.join("images");
    let image = |index: usize| images.join(format!("{index}.img"));
    let instance = Instance::new(&programs(), &folder)?;
    fs::create_dir_all(&images)?;
    for index in 0..IMAGE_COUNT {
        File::create(image(index))?.set_len(IMAGE_BYTES)?;
    }
    let _watchdog = instance.watchdog("log devices", LIMIT);
    let root = instance.root().display().to_string();
    let word = |word: &str| match word.parse() {
        Ok(index) => image(index).display().to_string(),
        Err(_) => word.to_string(),
    };
    let zpool = |line: &str, pool_at: usize| -> Outcome {
        let mut words: Vec<String> = line.split_whitespace().map(word).collect();
        words.insert(pool_at, POOL.to_string());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        instance.must("zpool", &words)?;
        Ok(())
    };
    let options = format!("create -R {root}");
    zpool(&format!("{options} mirror 0 1 log 2"), 3)?;
    instance.zfs(&format!("create {POOL}/fs"))?;
    changes::fill(&instance, &format!("{POOL}/fs"), 21, TreeSize::Small)?;
    for (round, change) in CHANGES.iter().enumerate() {
        let when = |error| format!("zpool {change}: {error}");
        promise(&instance, &format!("{POOL}/fs"), round)?;
        zpool(change, 1).map_err(when)?;
        promise(&instance, &format!("{POOL}/fs"), round + CHANGES.len())?;
        if (round + 1) % every == 0 || round + 1 == CHANGES.len() {
            changes::expect_kept(&instance, &images, POOL).map_err(when)?;
        }
    }
    changes::expect_healthy(&instance, POOL)?;
    instance.zpool(&format!("export {POOL}"))?;
    drop(instance);
    fs::remove_dir_all(&folder)?;
    Ok(())
}

/// A pool of OpenZFS's with a mirrored log and a spare is left without both.
pub fn judge_fixture(fixtures: &Fixtures) -> Outcome {
    let fixture = fixtures.unpack("mixed")?;
    let (pool, folder) = (fixture.pool(), scratch("oracle-log-devices-mixed"));
    let images = folder.join("images");
    let instance = Instance::new(&programs(), &folder)?;
    fixture.working_copy(&images)?;
    let _watchdog = instance.watchdog("log devices of OpenZFS", LIMIT);
    golden::import(&instance, &fixture, &images, &[])?;
    instance.must("zfs", &["mount", "-a"])?;
    let status = instance.must("zpool", &["status", "-P", &pool])?.stdout;
    let after = |title: &str| -> Outcome<String> {
        let mut lines = status.lines().skip_while(|line| line.trim() != title);
        let line = lines.nth(1).and_then(|line| line.split_whitespace().next());
        Ok(line.ok_or(format!("{pool} has no {title}"))?.to_string())
    };
    for device in [after("logs")?, after("spares")?] {
        promise(&instance, &pool, 1)?;
        instance.must("zpool", &["remove", &pool, &device])?;
        promise(&instance, &pool, 2)?;
        changes::expect_kept(&instance, &images, &pool)
            .map_err(|error| format!("zpool remove {device}: {error}"))?;
    }
    changes::expect_healthy(&instance, &pool)?;
    instance.must("zpool", &["export", &pool])?;
    drop(instance);
    fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Files that are durable when this returns: the log has them.
fn promise(instance: &Instance, dataset: &str, round: usize) -> Outcome {
    let mount = changes::mount_of(instance, dataset)?;
    (0..PROMISES).try_for_each(|number| write_durably(&mount, round, number))
}

fn write_durably(mount: &Path, round: usize, number: usize) -> Outcome {
    let mut file = File::create(mount.join(format!("promise-{round}-{number}")))?;
    file.write_all(format!("{round} {number} ").repeat(2000).as_bytes())?;
    Ok(file.sync_all()?)
}
