//! A mirror that was written without one of its devices: OpenZFS's `zdb` finds no leak, and sees
//! that the device lacks all of it and the other one is needed. The import with both fills the
//! device: OpenZFS sees no missing txg then, and reads the pool from that device alone.

use std::fs::{self, File};
use std::path::Path;

use tarn_oracle::instance::Instance;
use tarn_workload::tree::TreeSize;

use super::{LIMIT, POOL};
use crate::changes;
use crate::workspace::{Outcome, openzfs, programs, scratch};

/// Sparse.
const IMAGE_BYTES: u64 = 256 << 20;

/// Writes a pool while a device is away, judges it with the device and without, and has the import
/// resilver the device.
pub fn judge() -> Outcome {
    let folder = scratch("oracle-missed-writes");
    let images = folder.join("images");
    let instance = Instance::new(&programs(), &folder)?;
    fs::create_dir_all(&images)?;
    let [stays, goes] = ["0", "1"].map(|name| images.join(format!("{name}.img")));
    for image in [&stays, &goes] {
        File::create(image)?.set_len(IMAGE_BYTES)?;
    }
    let _watchdog = instance.watchdog("missed writes", LIMIT);
    let (root, places) = (
        instance.root().display().to_string(),
        images.display().to_string(),
    );
    let import = || instance.must("zpool", &["import", "-R", &root, "-d", &places, POOL]);
    let (one, other) = (stays.display().to_string(), goes.display().to_string());
    instance.must(
        "zpool",
        &["create", "-R", &root, POOL, "mirror", &one, &other],
    )?;
    instance.zfs(&format!("create {POOL}/before"))?;
    changes::fill(&instance, &format!("{POOL}/before"), 31, TreeSize::Small)?;
    instance.zpool(&format!("export {POOL}"))?;
    let away = folder.join("away.img");
    fs::rename(&goes, &away)?;
    import()?;
    instance.zfs(&format!("create {POOL}/without"))?;
    changes::fill(&instance, &format!("{POOL}/without"), 32, TreeSize::Small)?;
    changes::expect_kept(&instance, &images, POOL)?;
    instance.zpool(&format!("export {POOL}"))?;
    fs::rename(&away, &goes)?;
    expect_missed(&images)?;
    import()?;
    changes::expect_kept(&instance, &images, POOL)?;
    instance.zpool(&format!("wait -t resilver {POOL}"))?;
    instance.zpool(&format!("export {POOL}"))?;
    expect_none_missed(&images)?;
    fs::rename(&stays, &away)?;
    import()?;
    changes::expect_kept(&instance, &images, POOL)?;
    instance.zpool(&format!("export {POOL}"))?;
    drop(instance);
    fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Whether a range of missed txgs begins behind the first of the pool: the device was there then.
fn is_since_later(line: &str) -> bool {
    let first = line.strip_prefix("missing [");
    let first = first.and_then(|rest| rest.split(',').next());
    first.is_some_and(|first| first.parse::<u64>().is_ok_and(|first| first > 4))
}

/// The lines of the dirty time logs of the exported pool, as OpenZFS reads them.
fn dirty_time_logs(images: &Path) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let places = images.display().to_string();
    let spoken = openzfs()?.run("zdb", &["-e", "-p", &places, "-ddd", POOL], LIMIT)?;
    let lines = spoken.stdout.lines().map(|line| line.trim().to_string());
    let logs = lines.skip_while(|line| !line.starts_with("Dirty time logs"));
    Ok(logs
        .take_while(|line| !line.starts_with("Dataset"))
        .collect())
}

/// OpenZFS sees that the second device misses txgs, and that the first one is needed.
fn expect_missed(images: &Path) -> Outcome {
    let logs = dirty_time_logs(images)?;
    let with = |words: &str| logs.iter().position(|line| line.ends_with(words));
    let needed = with("0.img [DTL-required]");
    let lacking = with("1.img [DTL-expendable]");
    let missed = lacking.and_then(|at| logs.get(at + 1));
    match (needed, missed) {
        (Some(_), Some(missed)) if is_since_later(missed) => Ok(()),
        _ => fail("OpenZFS does not see what a device missed", &logs),
    }
}

/// OpenZFS sees both devices, and no txg that either misses.
fn expect_none_missed(images: &Path) -> Outcome {
    let logs = dirty_time_logs(images)?;
    let devices = logs.iter().filter(|line| line.contains(".img [DTL-"));
    let is_any_missed = logs.iter().any(|line| line.contains("missing ["));
    if devices.count() == 2 && !is_any_missed {
        return Ok(());
    }
    fail("OpenZFS sees missing txgs behind the resilver", &logs)
}

fn fail(what: &str, logs: &[String]) -> Outcome {
    Err(format!("{what}:\n{}", logs.join("\n")).into())
}
