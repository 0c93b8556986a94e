//! Starting and stopping `tarnd`.
//!
//! # Mechanism
//! A command that finds no daemon at the socket starts it and waits until the socket answers.
//! Two commands may do so at once: each takes the lock of a file of its own, and the second finds
//! the daemon running when it gets the lock. The same file takes what the daemon says on standard
//! error before it has a log.
//!
//! Where the machine was booted by systemd and has the unit `tarnd.service`, root's own instance is
//! started by its unit: a daemon that a command started would belong to the session or service of
//! that command, and end with it. Options of `tarn start` are no options of the unit, so with them
//! the daemon is started directly.
//!
//! Whether a daemon lives is told by the lock that it holds on [`Instance::lock`] for its whole
//! life; the file has its process id. A socket alone proves nothing: a killed daemon leaves one
//! behind.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{ErrorKind, Read, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tarn_engine::caller::StartedBy;
use tarn_engine::instance::Instance;
use thiserror::Error;

/// How often the socket is tried while the daemon starts.
const POLL: Duration = Duration::from_millis(10);

/// How long a daemon may live without answering: it imports its pools first, and that takes as long
/// as their devices take. A guess.
const START_MAX: Duration = Duration::from_secs(300);

/// How long after its start the daemon may be without its lock. A guess: it takes milliseconds.
const LOCK_MAX: Duration = Duration::from_secs(5);

/// How long a daemon may take to stop: it stores what is dirty and unmounts. A guess.
const STOP_MAX: Duration = Duration::from_secs(300);

/// A user that can open a file can lock it, and would keep all commands from starting the daemon:
/// only its user may.
const DOOR_MODE: u32 = 0o600;

/// How many lines of the log an error shows.
const LOG_LINES: usize = 10;

/// Why the daemon does not run, or does not stop.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// A file of the instance cannot be used.
    #[error("cannot use {}: {}", .path.display(), tarn_engine::words_of(.cause))]
    File {
        /// Which.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// There is no program to start, or it cannot be run.
    #[error("cannot start tarnd ({}): {}", .program.display(), tarn_engine::words_of(.cause))]
    Program {
        /// What was tried.
        program: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// It ended before it answered.
    #[error("tarnd did not start{}", last_words(.words))]
    Failed {
        /// The last lines it wrote.
        words: String,
    },
    /// It lives and does not answer.
    #[error("tarnd (process {pid}) does not answer at {socket}{}", last_words(.words), socket = .socket.display())]
    Silent {
        /// Its process.
        pid: u32,
        /// Where it should answer.
        socket: PathBuf,
        /// The last lines it wrote.
        words: String,
    },
    /// It did not end when it was told to.
    #[error("tarnd (process {0}) does not stop")]
    Stuck(u32),
    /// It may not be told to end.
    #[error("cannot stop tarnd (process {pid}): {}", tarn_engine::words_of(.cause))]
    NotOurs {
        /// Its process.
        pid: u32,
        /// What the system said.
        cause: std::io::Error,
    },
}

fn last_words(words: &str) -> String {
    if words.is_empty() {
        String::new()
    } else {
        format!(":\n{}", words.trim_end())
    }
}

/// True when a daemon answers at the socket.
pub fn answers(instance: &Instance) -> bool {
    UnixStream::connect(instance.socket()).is_ok()
}

/// The process of the daemon that holds the instance's lock, if one does.
pub fn process(instance: &Instance) -> Option<u32> {
    let mut file = File::open(instance.lock()).ok()?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {}
        Ok(()) | Err(TryLockError::Error(_)) => return None,
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    Some(text.trim().parse().unwrap_or(0))
}

/// Starts the daemon and waits until it answers. True when it was started, with `arguments`; false
/// when one runs already. One that a command starts does not keep the priority and the limits that
/// the command happens to have.
///
/// # Errors
/// Why it does not run, with the last lines it wrote.
pub fn start(
    instance: &Instance,
    arguments: &[String],
    started_by: StartedBy,
) -> Result<bool, DaemonError> {
    let door = Door::open(instance)?;
    if answers(instance) {
        return Ok(false);
    }
    let child = match process(instance) {
        Some(_) => None,
        None => Some(door.spawn(instance, arguments, started_by)?),
    };
    let is_new = child.is_some();
    await_answer(instance, &door, child)?;
    Ok(is_new)
}

/// A daemon that was stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    /// Its process.
    pub process: u32,
    /// What it could not store, a sentence each.
    pub unstored: Vec<String>,
}

/// Tells the daemon to end and waits until its process is gone. Gives what became of it; `None`
/// when none runs.
///
/// # Errors
/// Why it still runs.
pub fn stop(instance: &Instance) -> Result<Option<Stopped>, DaemonError> {
    let Some(pid) = process(instance) else {
        return match File::open(instance.lock()) {
            Err(cause) if cause.kind() == ErrorKind::PermissionDenied => Err(DaemonError::File {
                path: instance.lock(),
                cause,
            }),
            _ => Ok(None),
        };
    };
    let known = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let Some(target) = known else {
        return Err(DaemonError::Stuck(pid));
    };
    let not_ours = |cause: Errno| DaemonError::NotOurs {
        pid,
        cause: cause.into(),
    };
    let handle = pidfd_open(target, PidfdFlags::empty()).map_err(not_ours)?;
    if process(instance) != Some(pid) {
        // It has ended meanwhile, and its number may be another's.
        return Ok(None);
    }
    match pidfd_send_signal(&handle, Signal::TERM) {
        Ok(()) => {}
        Err(Errno::SRCH) => return Ok(Some(stopped(instance, pid))),
        Err(cause) => return Err(not_ours(cause)),
    }
    match ends_within(&handle, STOP_MAX) {
        Ok(true) => Ok(Some(stopped(instance, pid))),
        Ok(false) => Err(DaemonError::Stuck(pid)),
        Err(cause) => Err(not_ours(cause)),
    }
}

/// A daemon that has ended, and the word that it left.
fn stopped(instance: &Instance, process: u32) -> Stopped {
    let word = std::fs::read_to_string(instance.unstored()).unwrap_or_default();
    Stopped {
        process,
        unstored: word.lines().map(str::to_string).collect(),
    }
}

/// Waits for the end of a process. False when it still runs after `limit`.
fn ends_within(process: &OwnedFd, limit: Duration) -> Result<bool, Errno> {
    let limit = Timespec::try_from(limit).expect("some minutes");
    let mut watched = [PollFd::new(process, PollFlags::IN)];
    let ended = rustix::io::retry_on_intr(|| poll(&mut watched, Some(&limit)))?;
    Ok(ended == 1)
}

/// Waits until the daemon answers, or is known not to.
fn await_answer(
    instance: &Instance,
    door: &Door,
    mut child: Option<Child>,
) -> Result<(), DaemonError> {
    let begun = Instant::now();
    loop {
        if answers(instance) {
            return Ok(());
        }
        let starting = match child.as_mut().map(Child::try_wait) {
            Some(Ok(Some(status))) if !status.success() => {
                let words = match door.words(instance) {
                    words if words.is_empty() => format!("it ended before it answered ({status})"),
                    words => words,
                };
                return Err(DaemonError::Failed { words });
            }
            Some(Ok(None)) => true,
            _ => begun.elapsed() < LOCK_MAX,
        };
        let pid = process(instance);
        if pid.is_none() && !starting {
            return Err(DaemonError::Failed {
                words: door.words(instance),
            });
        }
        if begun.elapsed() > START_MAX {
            let (pid, socket) = (pid.unwrap_or(0), instance.socket());
            return Err(DaemonError::Silent {
                pid,
                socket,
                words: door.words(instance),
            });
        }
        std::thread::sleep(POLL);
    }
}

/// The locked file that lets one command at a time start the daemon.
struct Door {
    path: PathBuf,
    file: File,
}

impl Door {
    fn open(instance: &Instance) -> Result<Door, DaemonError> {
        let path = instance.run().join("tarnd.start");
        let failed = |cause| DaemonError::File {
            path: path.clone(),
            cause,
        };
        instance.make_folders().map_err(failed)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(DOOR_MODE)
            .open(&path)
            .map_err(failed)?;
        // One that is there may be of a time when others could read it. Where it is another user's,
        // its mode is his business.
        let _ = file.set_permissions(Permissions::from_mode(DOOR_MODE));
        file.lock().map_err(failed)?;
        Ok(Door { path, file })
    }

    /// Starts the daemon: its unit, or the program beside this one, or the first in `PATH`.
    fn spawn(
        &self,
        instance: &Instance,
        arguments: &[String],
        started_by: StartedBy,
    ) -> Result<Child, DaemonError> {
        let by_command = (started_by == StartedBy::Command).then_some("--by-command");
        let failed = |cause| DaemonError::File {
            path: self.path.clone(),
            cause,
        };
        self.file.set_len(0).map_err(failed)?;
        // A descriptor of its own: a child must not inherit the lock, which lives as long as the
        // open file does.
        let words = OpenOptions::new()
            .append(true)
            .open(&self.path)
            .map_err(failed)?;
        let (mut command, program) = match is_a_service(instance) && arguments.is_empty() {
            true => by_systemd(),
            false => {
                let program = program();
                let mut command = Command::new(&program);
                command.args(arguments).args(by_command);
                (command, program)
            }
        };
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(words)
            .process_group(0)
            .spawn()
            .map_err(|cause| DaemonError::Program { program, cause })
    }

    /// The last lines the daemon wrote, to standard error or else to its log.
    fn words(&self, instance: &Instance) -> String {
        let said = tail(&self.path);
        if said.is_empty() {
            tail(&instance.log())
        } else {
            said
        }
    }
}

/// The unit of root's own instance.
const UNIT: &str = "tarnd.service";

/// Where a unit is, in the order in which systemd looks.
const UNIT_FOLDERS: [&str; 4] = [
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
];

/// True when this instance is a service of the machine: it is root's own, systemd runs (its folder
/// is there: sd_booted(3)), and has the unit. A link to `/dev/null` masks a unit.
fn is_a_service(instance: &Instance) -> bool {
    let unit = || {
        UNIT_FOLDERS
            .iter()
            .map(|folder| Path::new(folder).join(UNIT))
            .find(|path| std::fs::symlink_metadata(path).is_ok())
    };
    instance.is_of_the_system()
        && Path::new("/run/systemd/system").is_dir()
        && unit().is_some_and(|path| path.is_file())
}

/// The command that has systemd start the daemon, and waits until that has answered.
fn by_systemd() -> (Command, PathBuf) {
    let program = PathBuf::from("systemctl");
    let mut command = Command::new(&program);
    command.args(["--quiet", "--no-ask-password", "start", UNIT]);
    (command, program)
}

/// The program to start.
fn program() -> PathBuf {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|path| path.parent().map(|folder| folder.join("tarnd")))
        .filter(|path| path.is_file());
    beside.unwrap_or_else(|| PathBuf::from("tarnd"))
}

/// The last lines of a file; nothing when there is none.
fn tail(path: &Path) -> String {
    /// Far more than the lines that are shown.
    const BYTES_MAX: i64 = 16 << 10;
    let read = || -> std::io::Result<String> {
        let mut file = File::open(path)?;
        if file.metadata()?.len() > BYTES_MAX.unsigned_abs() {
            file.seek(std::io::SeekFrom::End(-BYTES_MAX))?;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_daemon_lives_while_it_holds_its_lock() {
        let folder = scratch();
        let instance = Instance::at(folder.path());
        assert_eq!(process(&instance), None);
        std::fs::write(instance.lock(), "4711\n").unwrap();
        assert_eq!(
            process(&instance),
            None,
            "a file that nobody locks is left behind"
        );
        let held = File::open(instance.lock()).unwrap();
        held.lock().unwrap();
        assert_eq!(process(&instance), Some(4711));
        drop(held);
        assert_eq!(process(&instance), None);
    }

    #[test]
    fn an_error_shows_the_last_lines_of_the_log() {
        let folder = scratch();
        let path = folder.path().join("log");
        let lines: Vec<String> = (0..20).map(|number| format!("line {number}")).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        assert_eq!(tail(&path), lines[10..].join("\n"));
        let error = DaemonError::Failed {
            words: "no space".into(),
        };
        assert_eq!(error.to_string(), "tarnd did not start:\nno space");
    }

    #[test]
    fn a_stopped_daemon_is_gone_afterwards() {
        let folder = scratch();
        let instance = Instance::at(folder.path());
        let mut daemon = Command::new("sleep").arg("600").spawn().unwrap();
        std::fs::write(instance.lock(), format!("{}\n", daemon.id())).unwrap();
        let held = File::open(instance.lock()).unwrap();
        held.lock().unwrap();
        std::fs::write(instance.unstored(), "pool 'a': why\npool 'b': why\n").unwrap();
        let expected = Stopped {
            process: daemon.id(),
            unstored: vec!["pool 'a': why".to_string(), "pool 'b': why".to_string()],
        };
        assert_eq!(stop(&instance).unwrap(), Some(expected));
        // It has ended: this does not wait.
        let status = daemon.try_wait().unwrap().expect("it has ended");
        assert!(!status.success(), "by a signal");
    }

    #[test]
    fn nothing_is_stopped_when_nothing_runs() {
        let folder = scratch();
        assert!(stop(&Instance::at(folder.path())).unwrap().is_none());
    }
}
