//! Starting in the background: this process starts the daemon, and reports whether it answers.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tarn_engine::instance::Instance;

/// Interval at which the socket is tried.
const POLL: Duration = Duration::from_millis(10);

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A file of the instance cannot be used.
    #[error("cannot use {}: {}", .path.display(), tarn_engine::words_of(.cause))]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// This program cannot be started again.
    #[error("cannot start: {}", tarn_engine::words_of(.0))]
    Program(std::io::Error),
    /// The daemon ended, and printed the reason.
    #[error("{}", .words.strip_prefix("tarnd: ").unwrap_or(.words))]
    Refused {
        /// Its text.
        words: String,
    },
    /// The daemon ended without a text.
    #[error("it ended before it answered ({status}); see {log}", log = .log.display())]
    Ended {
        /// Its exit status.
        status: std::process::ExitStatus,
        /// The log, which may have an earlier text.
        log: PathBuf,
    },
}

/// Environment variables of the caller that the daemon keeps, beside those that begin with `TARN_`:
/// where its state and programs are. Others, the time zone, the language and folders for temporary
/// files among them, concern only the caller.
const KEPT_VARIABLES: [&str; 5] = ["HOME", "XDG_STATE_HOME", "PATH", "USER", "RUST_BACKTRACE"];

/// The mode of the log.
const LOG_MODE: u32 = 0o644;

/// More than the daemon prints before it ends.
const WORDS_MAX: u64 = 4 << 10;

/// Starts the daemon with the same arguments, and waits until it answers.
pub fn start(instance: &Instance) -> Result<(), StartError> {
    let log = instance.log();
    let failed = |cause| StartError::File {
        path: log.clone(),
        cause,
    };
    instance.make_folders().map_err(failed)?;
    let output = OpenOptions::new()
        .create(true)
        .append(true)
        // Only the owner writes the log, whatever umask the caller has.
        .mode(LOG_MODE)
        .open(&log);
    let output = output.map_err(failed)?;
    let said_before = output.metadata().map_or(0, |metadata| metadata.len());
    let program = std::env::current_exe().map_err(StartError::Program)?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .args(["--foreground", "--detached"])
        .env_clear()
        .envs(std::env::vars_os().filter(|(name, _)| is_kept(name)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(output)
        .spawn()
        .map_err(StartError::Program)?;
    loop {
        if UnixStream::connect(instance.socket()).is_ok() {
            return Ok(());
        }
        if let Some(status) = child.try_wait().map_err(StartError::Program)? {
            return Err(match last_words(&log, said_before) {
                words if words.is_empty() => StartError::Ended { status, log },
                words => StartError::Refused { words },
            });
        }
        std::thread::sleep(POLL);
    }
}

fn is_kept(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"TARN_") || KEPT_VARIABLES.iter().any(|kept| kept.as_bytes() == name)
}

/// The text in the log since it had this size.
fn last_words(log: &Path, from: u64) -> String {
    let read = || -> std::io::Result<String> {
        let mut file = File::open(log)?;
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        file.take(WORDS_MAX).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).trim_end().to_string())
    };
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_variables_are_kept() {
        for kept in ["TARN_DIR", "TARN_HOSTID", "HOME", "PATH"] {
            assert!(is_kept(OsStr::new(kept)), "{kept}");
        }
        for other in [
            "TZ",
            "TMPDIR",
            "LC_ALL",
            "LD_PRELOAD",
            "HOMER",
            "SSH_AUTH_SOCK",
        ] {
            assert!(!is_kept(OsStr::new(other)), "{other}");
        }
    }
}
