//! `cargo xtask sim`: whole pools on simulated machines whose power is cut, and nothing promised
//! may be lost.
//!
//! What is simulated and demanded is in `testing/sim`. It is a program of its own, so that this one
//! need not be built with the whole file system; and it has a profile of its own: as fast as what
//! is shipped, with assertions, and with the faults of `--canaries` compiled in.

use clap::Args;

use crate::build::{self, PROFILE, SIMULATOR};
use crate::workspace::{Outcome, cargo, checkout, openzfs, run, target};

/// How many cuts a change must survive.
const CI_CUTS: u64 = 2000;
/// After each how many of them, about, OpenZFS's `zdb` looks at the disks.
const CI_CUTS_OF_ZDB: u64 = 50;

/// What is handed to the program.
#[derive(Debug, Default, Args)]
pub struct Arguments {
    /// Options of the program: --seed N, --cuts N, --each N, --world N, --layout NAME, --workload
    /// NAME, --zdb N, --twice, --exhaustive, --canaries, --verbose
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

/// Cuts the power as asked.
pub fn sim(arguments: &Arguments) -> Outcome {
    let build = [
        "build",
        "--quiet",
        "--profile",
        PROFILE,
        "--package",
        SIMULATOR,
        "--features",
        "canary",
    ];
    run(&mut cargo(&build))?;
    cut(&arguments.options)
}

/// What a change must pass: some cuts, and every canary.
pub fn small() -> Outcome {
    // Once, before several processes look for it.
    openzfs()?;
    build::build_to_judge()?;
    let [cuts, each] = [CI_CUTS, CI_CUTS_OF_ZDB].map(|count| count.to_string());
    for options in [vec!["--cuts", &cuts, "--zdb", &each], vec!["--canaries"]] {
        cut(&options)?;
    }
    Ok(())
}

fn cut(options: &[impl AsRef<std::ffi::OsStr>]) -> Outcome {
    let program = target().join(PROFILE).join(SIMULATOR);
    let mut command = std::process::Command::new(program);
    run(command.args(options).arg("--checkout").arg(checkout()))
}
