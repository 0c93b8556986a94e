//! `cargo xtask build`: the six programs, in `target/release`, `mount.zfs`, which is `zfs` by the
//! name that mount(8) calls, and `zpool_influxdb`, `zarcstat`, `zarcsummary` and `zilstat`, which
//! are `tarn` by the names of OpenZFS's programs.
//!
//! CI builds them in the profile `simulation` instead, in one build with the simulator: as fast,
//! with every assertion, and compiled once for both.

use std::path::Path;
use tarn_oracle::instance::PROGRAMS;

use crate::workspace::{Outcome, cargo, run, target, use_programs_in};

/// The packages that the programs are in.
const PACKAGES: [&str; 6] = [
    "tarnd",
    "tarn-command",
    "tarn-zpool",
    "tarn-zfs",
    "tarn-zdb",
    "tarn-zstream",
];

/// The profile of what CI judges.
pub const PROFILE: &str = "simulation";

/// The program of `cargo xtask sim`.
pub const SIMULATOR: &str = "tarn-sim";

/// Programs by the names that others call them by.
const OTHER_NAMES: [(&str, &str); 2] = [("mount.zfs", "zfs"), ("zpool_influxdb", "tarn")];
/// Names of `tarn` by which it prints statistics: OpenZFS's, and those of it up to version 2.3.
pub const KSTAT_PROGRAMS: [&str; 5] = [
    "zarcstat",
    "zarcsummary",
    "zilstat",
    "arcstat",
    "arc_summary",
];

/// Makes the other names.
fn link_other_names(folder: &Path) -> Outcome {
    let of_tarn = KSTAT_PROGRAMS.map(|name| (name, "tarn"));
    for (name, program) in OTHER_NAMES.into_iter().chain(of_tarn) {
        let link = folder.join(name);
        if std::fs::symlink_metadata(&link).is_ok() {
            std::fs::remove_file(&link)?;
        }
        std::os::unix::fs::symlink(program, &link)?;
    }
    Ok(())
}

/// Builds, and checks that what is promised is there.
pub fn build() -> Outcome {
    let mut arguments = vec!["build", "--release"];
    arguments.extend(PACKAGES.iter().flat_map(|package| ["--package", package]));
    run(&mut cargo(&arguments))?;
    expect_programs(&target().join("release"))
}

/// Builds the programs and the simulator as CI judges them, and has the tasks of this run use them.
pub fn build_to_judge() -> Outcome {
    // Of the whole workspace, so that the features of all packages agree and nothing is built
    // twice.
    let mut arguments = vec!["build", "--quiet", "--profile", PROFILE, "--workspace"];
    arguments.extend(["--features", "tarn-sim/canary", "--bin", SIMULATOR]);
    arguments.extend(PROGRAMS.iter().flat_map(|program| ["--bin", program]));
    run(&mut cargo(&arguments))?;
    let folder = target().join(PROFILE);
    expect_programs(&folder)?;
    use_programs_in(folder);
    Ok(())
}

fn expect_programs(folder: &Path) -> Outcome {
    for program in PROGRAMS {
        let path = folder.join(program);
        if !path.is_file() {
            return Err(format!("the build left no {}", path.display()).into());
        }
    }
    link_other_names(folder)?;
    println!("{} in {}", PROGRAMS.join(", "), folder.display());
    Ok(())
}
