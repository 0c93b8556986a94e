//! The real kernel module, in a virtual machine.
//!
//! # Mechanism
//! A script with a fixed interface starts the machine: `zvm -s FOLDER -t SECONDS -m MIB SCRIPT`
//! runs a shell script where OpenZFS's module is loaded, with the folder at `/share`, passes on
//! what it prints, and ends with its exit code. Making such a machine takes minutes and is not ours
//! to do in passing, so the script is found, not made.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::program::{self, ProgramError, Spoken};

/// The environment variable that names the script.
pub const VARIABLE: &str = "TARN_ZVM";

/// Why there is no machine.
#[derive(Debug, thiserror::Error)]
#[error(
    "no virtual machine: there is no script at {}. Set {VARIABLE} to one that is called as \
     `zvm -s FOLDER -t SECONDS -m MIB SCRIPT` and runs SCRIPT beside a loaded OpenZFS module, FOLDER at /share",
    looked.display()
)]
pub struct NoMachine {
    looked: PathBuf,
}

/// A script that runs other scripts in a virtual machine.
#[derive(Debug, Clone)]
pub struct Machine {
    script: PathBuf,
}

impl Machine {
    /// The script that `$TARN_ZVM` names, or `../shared/oracle/zvm` beside the checkout.
    ///
    /// # Errors
    /// [`NoMachine`], naming the cure.
    pub fn find(checkout: &Path) -> Result<Self, NoMachine> {
        let script = match std::env::var_os(VARIABLE) {
            Some(named) => PathBuf::from(named),
            None => checkout.join("../shared/oracle/zvm"),
        };
        match script.is_file() {
            true => Ok(Self { script }),
            false => Err(NoMachine { looked: script }),
        }
    }

    /// Runs the shell script at `script`, with `share` at `/share`, for at most `limit`.
    ///
    /// # Errors
    /// If the machine does not start or end. The script's own failure is in its exit code.
    pub fn run(
        &self,
        share: &Path,
        script: &Path,
        limit: Duration,
    ) -> Result<Spoken, ProgramError> {
        let mut command = Command::new(&self.script);
        command
            .arg("-s")
            .arg(share)
            .args(["-m", "3072", "-t", &limit.as_secs().to_string()]);
        // The script has its own limit; ours is for a script that has none.
        program::run(command.arg(script), limit + Duration::from_secs(60))
    }
}
