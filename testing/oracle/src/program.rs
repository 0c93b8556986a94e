//! Running a program with a time limit, and keeping what it says.
//!
//! # Problem
//! The programs driven here may hang, which is a finding and not a reason to hang with them. They
//! may also start daemons that keep their output open, so that waiting for the end of a pipe would
//! wait for ever.
//!
//! # Mechanism
//! Output goes to unnamed files, not pipes. The program is looked at every few milliseconds until
//! it has ended or its time is up; then it is killed, and the error says so.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How often a running program is looked at. Short, because most run for some 10 ms.
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// What a program said, and how it ended.
#[derive(Debug, Clone)]
pub struct Spoken {
    /// The command line, for people.
    pub command: String,
    /// Its exit code; nothing when a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// How long it ran.
    pub duration: Duration,
}

impl Spoken {
    /// Whether it ended with exit code 0.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// Its standard output, if it succeeded.
    ///
    /// # Errors
    /// [`ProgramError::Failed`] with everything it said.
    pub fn expect_success(self) -> Result<Self, ProgramError> {
        match self.succeeded() {
            true => Ok(self),
            false => Err(ProgramError::Failed(Box::new(self))),
        }
    }
}

/// Why a program gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It could not be started.
    #[error("cannot start `{command}`: {source}")]
    NotStarted {
        /// The command line.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// It ran longer than allowed and was killed.
    #[error("`{command}` gave no answer in {} s and was killed; so far it said: {said}", limit.as_secs())]
    TimeUp {
        /// The command line.
        command: String,
        /// The limit.
        limit: Duration,
        /// What it had said.
        said: String,
    },
    /// It ended with a failure.
    #[error("`{}` failed ({}): {}", .0.command, code_text(.0.code), said_text(&.0.stdout, &.0.stderr))]
    Failed(Box<Spoken>),
}

fn code_text(code: Option<i32>) -> String {
    code.map_or("killed by a signal".to_string(), |code| {
        format!("exit code {code}")
    })
}

/// Standard error first, and the end of standard output: reasons stand last.
fn said_text(stdout: &str, stderr: &str) -> String {
    let tail: Vec<&str> = stdout.lines().rev().take(12).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    match (stderr.trim(), tail.join("\n")) {
        ("", out) if out.is_empty() => "it said nothing".to_string(),
        ("", out) => out,
        (err, out) if out.is_empty() => err.to_string(),
        (err, out) => format!("{err}\n{out}"),
    }
}

/// Runs a command to its end.
///
/// # Errors
/// If it cannot be started, or is still running after `limit`. A failing exit code is no error
/// here.
pub fn run(command: &mut Command, limit: Duration) -> Result<Spoken, ProgramError> {
    run_reading(command, Stdio::null(), limit)
}

/// The same for a command that reads its standard input.
///
/// # Errors
/// As [`run`].
pub fn run_reading(
    command: &mut Command,
    input: Stdio,
    limit: Duration,
) -> Result<Spoken, ProgramError> {
    run_with(command, input, None, limit)
}

/// The same for a command whose standard output goes somewhere else.
///
/// # Errors
/// As [`run`].
pub fn run_writing(
    command: &mut Command,
    output: Stdio,
    limit: Duration,
) -> Result<Spoken, ProgramError> {
    run_with(command, Stdio::null(), Some(output), limit)
}

fn run_with(
    command: &mut Command,
    input: Stdio,
    output: Option<Stdio>,
    limit: Duration,
) -> Result<Spoken, ProgramError> {
    let shown = show(command);
    let not_started = |source| ProgramError::NotStarted {
        command: shown.clone(),
        source,
    };
    let (mut stdout, mut stderr) = (
        unnamed_file().map_err(not_started)?,
        unnamed_file().map_err(not_started)?,
    );
    let output = match output {
        Some(output) => output,
        None => stdout.try_clone().map_err(not_started)?.into(),
    };
    command
        .stdin(input)
        .stdout(output)
        .stderr(stderr.try_clone().map_err(not_started)?);
    let began = Instant::now();
    let mut child = command.spawn().map_err(not_started)?;
    let status = wait(&mut child, began + limit).map_err(not_started)?;
    let (stdout, stderr) = (read_back(&mut stdout), read_back(&mut stderr));
    match status {
        Some(status) => Ok(Spoken {
            command: shown,
            code: status.code(),
            stdout,
            stderr,
            duration: began.elapsed(),
        }),
        None => Err(ProgramError::TimeUp {
            command: shown,
            limit,
            said: said_text(&stdout, &stderr),
        }),
    }
}

/// Waits until the child has ended, or kills it at the deadline.
fn wait(child: &mut Child, deadline: Instant) -> io::Result<Option<std::process::ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > deadline {
            child.kill()?;
            // A process stuck in the kernel cannot be reaped; it must not take us with it.
            for _ in 0..200 {
                if child.try_wait()?.is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            return Ok(None);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// A file that is gone when it is closed.
fn unnamed_file() -> io::Result<File> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let folder = std::env::temp_dir();
    match rustix::fs::open(&folder, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        // Some file systems cannot: memory can.
        Err(_) => Ok(rustix::fs::memfd_create("output", rustix::fs::MemfdFlags::CLOEXEC)?.into()),
    }
}

fn read_back(file: &mut File) -> String {
    let mut bytes = Vec::new();
    if file.rewind().is_ok() {
        // What cannot be read back is shown as far as it can.
        let _ = file.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The command line as one would type it.
fn show(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program
        .file_name()
        .unwrap_or(command.get_program())
        .to_string_lossy()
        .into_owned();
    command.get_args().fold(name, |line, argument| {
        let argument = argument.to_string_lossy();
        match argument.contains([' ', '\'', '"']) || argument.is_empty() {
            true => format!("{line} '{argument}'"),
            false => format!("{line} {argument}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_carries_what_was_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo reason >&2; exit 3"]);
        let spoken = run(&mut command, Duration::from_secs(20)).unwrap();
        assert_eq!((spoken.code, spoken.stdout.as_str()), (Some(3), "out\n"));
        let error = spoken.expect_success().unwrap_err().to_string();
        assert!(
            error.contains("exit code 3") && error.contains("reason"),
            "{error}"
        );
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_named() {
        let mut command = Command::new("tail");
        command.args(["-f", "/dev/null"]);
        let error = run(&mut command, Duration::ZERO).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("`tail -f /dev/null` gave no answer"),
            "{error}"
        );
    }
}
