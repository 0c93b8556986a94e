//! `cargo xtask build`: the six programs, in `target/release`, and `mount.zfs`, which is `zfs` by
//! the name that mount(8) calls.

use std::path::Path;
use tarn_oracle::instance::PROGRAMS;

use crate::workspace::{Outcome, cargo, run, target};

/// The packages that the programs are in.
const PACKAGES: [&str; 6] = [
    "tarnd",
    "tarn-command",
    "tarn-zpool",
    "tarn-zfs",
    "tarn-zdb",
    "tarn-zstream",
];

/// The name by which mount(8) calls `zfs`.
const HELPER: &str = "mount.zfs";

/// Makes the helper of mount(8): another name of `zfs`.
fn link_helper(folder: &Path) -> Outcome {
    let helper = folder.join(HELPER);
    if std::fs::symlink_metadata(&helper).is_ok() {
        std::fs::remove_file(&helper)?;
    }
    std::os::unix::fs::symlink("zfs", &helper)?;
    Ok(())
}

/// Builds, and checks that what is promised is there.
pub fn build() -> Outcome {
    let mut arguments = vec!["build", "--release"];
    arguments.extend(PACKAGES.iter().flat_map(|package| ["--package", package]));
    run(&mut cargo(&arguments))?;
    for program in PROGRAMS {
        let path = target().join("release").join(program);
        if !path.is_file() {
            return Err(format!("the build left no {}", path.display()).into());
        }
    }
    link_helper(&target().join("release"))?;
    println!(
        "{} in {}",
        PROGRAMS.join(", "),
        target().join("release").display()
    );
    Ok(())
}
