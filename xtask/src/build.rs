//! `cargo xtask build`: the six programs, in `target/release`.

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
    println!(
        "{} in {}",
        PROGRAMS.join(", "),
        target().join("release").display()
    );
    Ok(())
}
