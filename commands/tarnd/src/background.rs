//! Going into the background: this process starts another, and tells whether that serves.

use std::fs::OpenOptions;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use tarn_engine::instance::Instance;

/// How often the socket is tried.
const POLL: Duration = Duration::from_millis(10);

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A file of the instance cannot be used.
    #[error("cannot use {path}: {cause}", path = .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// This program cannot be started again.
    #[error("cannot start: {0}")]
    Program(std::io::Error),
    /// It ended at once.
    #[error("it ended at once ({status}); see {log}", log = .log.display())]
    Ended {
        /// How.
        status: std::process::ExitStatus,
        /// Where it says why.
        log: PathBuf,
    },
}

/// Starts the daemon with the same arguments, and waits until it answers.
pub fn start(instance: &Instance) -> Result<(), StartError> {
    let log = instance.log();
    let failed = |cause| StartError::File {
        path: log.clone(),
        cause,
    };
    std::fs::create_dir_all(instance.state()).map_err(failed)?;
    let output = OpenOptions::new().create(true).append(true).open(&log);
    let output = output.map_err(failed)?;
    let program = std::env::current_exe().map_err(StartError::Program)?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--foreground")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(output)
        .process_group(0)
        .spawn()
        .map_err(StartError::Program)?;
    loop {
        if UnixStream::connect(instance.socket()).is_ok() {
            return Ok(());
        }
        if let Some(status) = child.try_wait().map_err(StartError::Program)? {
            return Err(StartError::Ended { status, log });
        }
        std::thread::sleep(POLL);
    }
}
