//! A mirror that was written without one of its devices: OpenZFS's `zdb` finds no leak, and sees
//! that the device lacks all of it and the other one is needed.

use std::fs::{self, File};

use tarn_oracle::instance::Instance;
use tarn_workload::tree::TreeSize;

use super::{LIMIT, POOL};
use crate::changes;
use crate::workspace::{Outcome, openzfs, programs, scratch};

/// Sparse.
const IMAGE_BYTES: u64 = 256 << 20;

/// Writes a pool while a device is away, and judges it with the device and without.
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
    instance.zpool(&format!("export {POOL}"))?;
    expect_missed(&images)?;
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

/// What OpenZFS reads from the dirty time logs of the exported pool.
fn expect_missed(images: &std::path::Path) -> Outcome {
    let places = images.display().to_string();
    let spoken = openzfs()?.run("zdb", &["-e", "-p", &places, "-ddd", POOL], LIMIT)?;
    let lines: Vec<&str> = spoken.stdout.lines().map(str::trim).collect();
    let with = |words: &str| lines.iter().position(|line| line.ends_with(words));
    let needed = with("0.img [DTL-required]");
    let lacking = with("1.img [DTL-expendable]");
    let missed = lacking.and_then(|at| lines.get(at + 1));
    match (needed, missed) {
        (Some(_), Some(missed)) if is_since_later(missed) => Ok(()),
        _ => {
            let logs = lines
                .iter()
                .skip_while(|line| !line.starts_with("Dirty time"));
            let logs: Vec<&str> = logs.take(16).copied().collect();
            Err(format!(
                "OpenZFS does not see what a device missed:\n{}",
                logs.join("\n")
            )
            .into())
        }
    }
}
