//! Programs of administrators that the daemon runs, for events and for alerts.
//!
//! # Invariants
//! - Only files are run that belong to the daemon's user or root, are executable, and are not
//!   writable by others.
//! - A program that takes longer than [`PROGRAM_MAX`] is killed, with what it has started.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take.
const PROGRAM_MAX: Duration = Duration::from_secs(10);

/// Interval at which its end is looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Where programs are looked for, when the daemon's environment does not say it.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Whether a file may be run by a daemon of this user.
pub fn may_run(metadata: &Metadata, own_uid: u32) -> bool {
    let mode = metadata.mode();
    let is_trusted = metadata.uid() == 0 || metadata.uid() == own_uid;
    metadata.is_file() && is_trusted && mode & 0o100 != 0 && mode & 0o022 == 0
}

/// Runs a program with these variables, and waits for its end.
///
/// # Errors
/// Why it did not end by itself.
pub fn run<'a>(
    program: &Path,
    variables: impl Iterator<Item = (&'a str, &'a str)>,
) -> Result<(), String> {
    let words = |error: std::io::Error| tarn_engine::words_of(&error);
    let mut command = Command::new(program);
    let path = std::env::var_os("PATH").unwrap_or_else(|| PATH.into());
    let kept = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("TARN_"));
    command
        .env_clear()
        .envs(kept)
        .env("PATH", path)
        .env("IFS", " \t\n")
        .envs([("ZPOOL", "zpool"), ("ZFS", "zfs"), ("ZDB", "zdb")])
        .env("ZED_PID", std::process::id().to_string())
        .envs(variables)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let mut child = command.spawn().map_err(words)?;
    if wait(&mut child).map_err(words)? {
        return Ok(());
    }
    // What it has started is in its group.
    if let Some(group) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
        let kill = rustix::process::Signal::KILL;
        // It may have ended just now.
        let _ = rustix::process::kill_process_group(group, kill);
    }
    let _ = child.wait();
    let seconds = PROGRAM_MAX.as_secs();
    Err(format!("killed, as it took longer than {seconds} seconds"))
}

/// Waits for the end of a program. False if it takes too long.
fn wait(child: &mut Child) -> std::io::Result<bool> {
    let began = Instant::now();
    while child.try_wait()?.is_none() {
        if began.elapsed() > PROGRAM_MAX {
            return Ok(false);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(true)
}
