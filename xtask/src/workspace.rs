//! Where things are, and how a step is run, timed and told.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The answer of every task: nothing, or a failure to show. A task is run by a person or by CI,
/// which can do nothing with a failure but read it, so one type of error is enough here.
pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The checkout this program was built from.
pub fn checkout() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask
        .parent()
        .expect("xtask is a folder of the workspace")
        .to_path_buf()
}

/// Where builds go. Always inside the checkout, because `target/release` is promised.
pub fn target() -> PathBuf {
    checkout().join("target")
}

/// The folder of the programs under test, once [`use_programs_in`] has named one.
static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();

/// Where the programs under test are: `$TARN_PROGRAMS`, or where the build of this run left them.
pub fn programs() -> PathBuf {
    let named = std::env::var_os("TARN_PROGRAMS").map(PathBuf::from);
    named
        .or_else(|| PROGRAMS.get().cloned())
        .unwrap_or_else(|| target().join("release"))
}

/// Has the tasks of this run use the programs in `folder`. Only the first call counts.
pub fn use_programs_in(folder: PathBuf) {
    PROGRAMS.get_or_init(|| folder);
}

/// Builds a program of the checks as `cargo test --workspace` does, so that the features of all
/// packages agree and nothing is built a second time, and answers how to start it.
pub fn program_of_checks(name: &str) -> Outcome<Command> {
    run(&mut cargo(&[
        "build",
        "--quiet",
        "--workspace",
        "--bin",
        name,
    ]))?;
    let mut command = Command::new(target().join("debug").join(name));
    command.current_dir(checkout());
    Ok(command)
}

/// A folder for scratch files of one task.
pub fn scratch(task: &str) -> PathBuf {
    target().join("scratch").join(task)
}

/// The fixtures, unpacked below the target folder.
pub fn fixtures() -> Outcome<tarn_golden::Fixtures> {
    Ok(tarn_golden::Fixtures::find(
        &checkout(),
        &target().join("fixtures"),
    )?)
}

/// OpenZFS's programs, unpacked below the target folder.
pub fn openzfs() -> Outcome<tarn_oracle::tools::Unpacked> {
    Ok(tarn_oracle::tools::Unpacked::openzfs(
        &target().join("oracle"),
    )?)
}

/// Removes a folder and all in it, if it is there.
pub fn remove_folder(folder: &Path) -> Outcome {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("remove {}: {error}", folder.display()).into())
        }
        _ => Ok(()),
    }
}

/// A `cargo` that builds this workspace.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo
        .args(arguments)
        .current_dir(checkout())
        .env("CARGO_TARGET_DIR", target());
    // Set by the cargo that runs us; the inner one must look for its own.
    cargo.env_remove("CARGO_MANIFEST_DIR");
    cargo
}

/// Runs a command that prints to the terminal.
pub fn run(command: &mut Command) -> Outcome {
    let shown = show(command);
    match command.status() {
        Err(error) => Err(format!("cannot start `{shown}`: {error}").into()),
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{shown}` failed: {status}").into()),
    }
}

/// Runs a command and gives what it prints.
pub fn output(command: &mut Command) -> Outcome<String> {
    let shown = show(command);
    let output = command
        .output()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(format!(
            "`{shown}` failed: {}",
            String::from_utf8_lossy(&output.stderr)
        )
        .into()),
    }
}

fn show(command: &Command) -> String {
    let name = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default();
    command
        .get_args()
        .fold(name.to_string_lossy().into_owned(), |line, next| {
            line + " " + &next.to_string_lossy()
        })
}

/// Seconds, or minutes and seconds.
pub fn duration(duration: Duration) -> String {
    match duration.as_secs() {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        seconds => format!("{} min {:02} s", seconds / 60, seconds % 60),
    }
}

/// Runs steps one after the other, each told with its time, and remembers which failed.
#[derive(Default)]
pub struct Steps {
    failed: Vec<String>,
    passed: usize,
}

impl Steps {
    /// Runs a step. A failing one is told and remembered, and the next runs.
    pub fn run(&mut self, name: &str, step: impl FnOnce() -> Outcome) {
        println!("\n--- {name}");
        let began = Instant::now();
        let outcome = step();
        let took = duration(began.elapsed());
        match outcome {
            Ok(()) => {
                println!("--- {name}: passed in {took}");
                self.passed += 1;
            }
            Err(error) => {
                println!("{error}\n--- {name}: FAILED after {took}");
                self.failed.push(name.to_string());
            }
        }
    }

    /// Nothing, or the names of the steps that failed.
    pub fn finish(self) -> Outcome {
        match self.failed.is_empty() {
            true => Ok(()),
            false => {
                let of = self.passed + self.failed.len();
                Err(format!(
                    "{} of {of} failed: {}",
                    self.failed.len(),
                    self.failed.join(", ")
                )
                .into())
            }
        }
    }
}
