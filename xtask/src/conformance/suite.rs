//! Suites of others: installed from the package registry at one version, and run.

use std::path::PathBuf;
use std::process::Command;

use crate::workspace::{Outcome, cargo, run, target};

/// A program of crates.io.
pub struct Suite {
    /// The crate, and the program in it.
    pub name: &'static str,
    /// The one version whose results we stand for.
    pub version: &'static str,
}

impl Suite {
    /// The program, installed below the target folder if it is not there yet.
    pub fn program(&self) -> Outcome<PathBuf> {
        let Suite { name, version } = self;
        let root = target().join("tools").join(format!("{name}-{version}"));
        let program = root.join("bin").join(name);
        if !program.is_file() {
            let (root, crate_name) = (root.display().to_string(), format!("{name}@{version}"));
            let install = [
                "install",
                "--quiet",
                "--locked",
                "--root",
                &root,
                &crate_name,
            ];
            // A folder of its own for what is built on the way: it is not of this workspace.
            let build = target().join("tools/build");
            run(cargo(&install).env("CARGO_TARGET_DIR", build))?;
        }
        Ok(program)
    }

    /// A command that runs it.
    pub fn command(&self) -> Outcome<Command> {
        Ok(Command::new(self.program()?))
    }
}
