//! `cargo xtask hostile`: pools are damaged round after round, and nothing worse than an error may
//! come of it.
//!
//! What is damaged, and what is demanded, is in `testing/hostile`. It is a program of its own, so
//! that this one need not be built with the whole file system.

use clap::Args;

use crate::workspace::{Outcome, checkout, program_of_checks, run};

/// How many rounds the small budget has, for each pool that is made on the spot: together they take
/// well below a minute.
const SMALL_ROUNDS: u64 = 6;

/// What is handed to the program.
#[derive(Debug, Default, Args)]
pub struct Arguments {
    /// Options of the program: --seed N, --rounds N, --from N, --only WORDS, --own, --verbose
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

/// Damages pools as asked.
pub fn hostile(arguments: &Arguments) -> Outcome {
    let mut command = program_of_checks("tarn-hostile")?;
    run(command
        .args(&arguments.options)
        .arg("--checkout")
        .arg(checkout()))
}

/// What a change must pass: few rounds, no fixtures.
pub fn small() -> Outcome {
    let options = ["--own", "--rounds", &SMALL_ROUNDS.to_string()];
    hostile(&Arguments {
        options: options.map(str::to_string).to_vec(),
    })
}
