//! The system under test: one `TARN_DIR`, its commands and its daemon.
//!
//! # Problem
//! A test must not touch another instance's pools, must survive a daemon that hangs, and must leave
//! nothing mounted and nothing running, also when it fails half-way.
//!
//! # Mechanism
//! Every instance is a host of its own: a state folder, a host id and a host name. Its commands are
//! started with these and a time limit. The daemon is found in `/proc` by its program and its
//! `TARN_DIR`, because nothing else is promised about it; [`Instance::kill_daemon`] ends it by its
//! process id as a crash would. [`Watchdog`] does that by itself when a step takes too long: the
//! mounts of a dead daemon answer with errors, so processes that were stuck in one go on.
//!
//! # Invariants
//! - Only processes whose `TARN_DIR` is this instance's are ever killed.
//! - After drop nothing is mounted below the instance's folder.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::program::{self, ProgramError, Spoken};

/// How long a command may take before it counts as hung.
const COMMAND_LIMIT: Duration = Duration::from_secs(300);

/// The programs that a build leaves.
pub const PROGRAMS: [&str; 6] = ["tarnd", "tarn", "zpool", "zfs", "zdb", "zstream"];

/// Why there is no instance.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    /// A program is missing.
    #[error("there is no {}: run `cargo xtask build`", path.display())]
    NotBuilt {
        /// Where it should be.
        path: PathBuf,
    },
    /// The program is there and does not do anything yet.
    #[error(
        "`{program} {argument}` says nothing: this checkout builds a {program} that does not work yet, \
         so there is nothing to test"
    )]
    NotYet {
        /// Which.
        program: String,
        /// What it was asked.
        argument: String,
    },
    /// FUSE is not there.
    #[error(
        "there is no /dev/fuse: mounts need it. Load the fuse module, or give the container the device"
    )]
    NoFuse,
    /// A command failed or hung.
    #[error("{0}")]
    Program(#[from] ProgramError),
    /// A file operation was refused.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// As a verb.
        doing: &'static str,
        /// Of what.
        path: PathBuf,
        /// The answer.
        source: std::io::Error,
    },
}

/// One host: its state, its commands, its daemon, and a folder below which its pools are mounted.
#[derive(Debug)]
pub struct Instance {
    programs: PathBuf,
    folder: PathBuf,
    host_id: u32,
}

impl Instance {
    /// A new host with the programs in `programs`. `folder` is made anew, and whatever a run before
    /// left there is ended, unmounted and removed.
    ///
    /// # Errors
    /// If the programs are missing or say nothing, or there is no FUSE.
    pub fn new(programs: &Path, folder: &Path) -> Result<Self, InstanceError> {
        Self::with_host_id(programs, folder, 0x7a72_6e01)
    }

    fn with_host_id(programs: &Path, folder: &Path, host_id: u32) -> Result<Self, InstanceError> {
        for program in PROGRAMS {
            let path = programs.join(program);
            if !path.is_file() {
                return Err(InstanceError::NotBuilt { path });
            }
        }
        if !Path::new("/dev/fuse").exists() {
            return Err(InstanceError::NoFuse);
        }
        let instance = Self {
            programs: programs.to_path_buf(),
            folder: folder.to_path_buf(),
            host_id,
        };
        instance.clean();
        let refused = |doing, path: &Path| {
            let path = path.to_path_buf();
            move |source| InstanceError::Io {
                doing,
                path,
                source,
            }
        };
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(refused("remove", folder))?;
        }
        for path in [instance.state(), instance.root()] {
            fs::create_dir_all(&path).map_err(refused("create", &path))?;
        }
        let version = instance.run("zpool", &["version"])?;
        if version.stdout.trim().is_empty() && version.stderr.trim().is_empty() {
            let (program, argument) = ("zpool".to_string(), "version".to_string());
            return Err(InstanceError::NotYet { program, argument });
        }
        Ok(instance)
    }

    /// The same programs as another host: another `TARN_DIR`, host id and name, in `folder`.
    ///
    /// # Errors
    /// As [`Instance::new`].
    pub fn other_host(&self, folder: &Path) -> Result<Self, InstanceError> {
        Self::with_host_id(&self.programs, folder, self.host_id + 1)
    }

    /// Its `TARN_DIR`.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// The alternate root for its pools (`-R`).
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// A command of this instance.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command
            .env("TARN_DIR", self.state())
            .env("TARN_HOSTID", format!("{:08x}", self.host_id))
            .env(
                "TARN_HOSTNAME",
                format!("tarn-test-{}", self.host_id & 0xff),
            )
            .env("RUST_BACKTRACE", "1");
        command
    }

    /// Runs a command to its end; its exit code is in the answer.
    ///
    /// # Errors
    /// If it cannot be started or hangs.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<Spoken, ProgramError> {
        program::run(self.command(program).args(arguments), COMMAND_LIMIT)
    }

    /// Runs a command that must succeed.
    ///
    /// # Errors
    /// If it fails, with everything it said.
    pub fn must(&self, program: &str, arguments: &[&str]) -> Result<Spoken, ProgramError> {
        self.run(program, arguments)?.expect_success()
    }

    /// Runs `zpool` with arguments separated by spaces, which must succeed.
    ///
    /// # Errors
    /// If it fails, with everything it said.
    pub fn zpool(&self, line: &str) -> Result<Spoken, ProgramError> {
        self.must("zpool", &line.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs `zfs` with arguments separated by spaces, which must succeed.
    ///
    /// # Errors
    /// If it fails, with everything it said.
    pub fn zfs(&self, line: &str) -> Result<Spoken, ProgramError> {
        self.must("zfs", &line.split_whitespace().collect::<Vec<_>>())
    }

    /// The process id of its daemon, if one runs.
    #[must_use]
    pub fn daemon(&self) -> Option<i32> {
        find_daemon(&self.state())
    }

    /// Whether a process that was this instance's daemon still runs. A process that a daemon starts
    /// is for a moment called like it.
    #[must_use]
    pub fn is_daemon(&self, process: i32) -> bool {
        is_daemon(process, &self.state()) && !is_gone(process)
    }

    /// Kills the daemon as a crash would, and waits until it is gone. False if none ran.
    #[must_use]
    pub fn kill_daemon(&self) -> bool {
        kill_daemon(&self.state())
    }

    /// Starts its daemon with arguments, such as `--cache-size 1G`. Otherwise the first command
    /// starts it with none.
    ///
    /// # Errors
    /// If it does not come to serve, with everything it said.
    pub fn start_daemon(
        &self,
        arguments: &[&str],
        limit: Duration,
    ) -> Result<Spoken, ProgramError> {
        self.start_daemon_with(arguments, &[], limit)
    }

    /// The same with variables in its environment.
    ///
    /// # Errors
    /// If it does not start in time.
    pub fn start_daemon_with(
        &self,
        arguments: &[&str],
        environment: &[(&str, &str)],
        limit: Duration,
    ) -> Result<Spoken, ProgramError> {
        let mut command = self.command("tarnd");
        command.args(arguments).envs(environment.iter().copied());
        program::run(&mut command, limit)?.expect_success()
    }

    /// Starts its daemon with variables that one in the background drops: it keeps few of its
    /// caller.
    ///
    /// # Errors
    /// If it does not come to serve in time.
    pub fn start_daemon_under(
        &self,
        environment: &[(&str, &str)],
        limit: Duration,
    ) -> Result<(), ProgramError> {
        let daemon = self.command("tarnd");
        let mut command = Command::new("setsid");
        let of_instance = daemon.get_envs();
        command
            .arg("--fork")
            .arg(daemon.get_program())
            .arg("--foreground")
            .envs(of_instance.filter_map(|(name, value)| Some((name, value?))))
            .envs(environment.iter().copied());
        let spoken = program::run(&mut command, limit)?.expect_success()?;
        let deadline = Instant::now() + limit;
        while UnixStream::connect(self.state().join("tarnd.sock")).is_err() {
            if Instant::now() > deadline {
                return Err(ProgramError::TimeUp {
                    command: spoken.command,
                    limit,
                    said: spoken.stderr,
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Ends the daemon as the end of a machine's day does (`tarn stop`): it stores its pools, which
    /// come back at the next start.
    ///
    /// # Errors
    /// If the command fails or takes longer than `limit`.
    pub fn stop_daemon(&self, limit: Duration) -> Result<(), ProgramError> {
        let stop = &mut self.command("tarn");
        program::run(stop.arg("stop"), limit)?.expect_success()?;
        Ok(())
    }

    /// Stops the daemon (SIGSTOP) in the moment in which a thread of it waits for the daemon
    /// itself: it made a call on a path in a mount that the daemon serves. False when that
    /// was not met within `limit`; the daemon runs then.
    #[must_use]
    pub fn freeze_daemon_in_own_mount(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            let Some(process) = self.daemon() else {
                return false;
            };
            signal(process, rustix::process::Signal::STOP);
            if is_waiting_for_fuse(process) {
                return true;
            }
            signal(process, rustix::process::Signal::CONT);
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    /// Kills the daemon. False if there is none, or threads of it are there after `limit`; then
    /// the connections of mounts below the instance's folder are aborted, which frees them.
    #[must_use]
    pub fn kill_daemon_within(&self, limit: Duration) -> bool {
        let Some(process) = self.daemon() else {
            return false;
        };
        signal(process, rustix::process::Signal::KILL);
        let deadline = Instant::now() + limit;
        while !is_gone(process) {
            if Instant::now() > deadline {
                abort_connections_below(&self.folder);
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// The memory its daemon holds now and held at most, in bytes.
    #[must_use]
    pub fn daemon_memory(&self) -> Option<Memory> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.daemon()?)).ok()?;
        let bytes = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? << 10)
        };
        Some(Memory {
            now_bytes: bytes("VmRSS:")?,
            most_bytes: bytes("VmHWM:")?,
        })
    }

    /// Starts a watchdog that kills the daemon unless it is dropped in time.
    #[must_use]
    pub fn watchdog(&self, step: &str, limit: Duration) -> Watchdog {
        Watchdog::start(self.state(), step.to_string(), limit)
    }

    /// Ends the daemon, without letting it store what is not read again, and unmounts what is
    /// left.
    fn clean(&self) {
        let _ = self.kill_daemon();
        // A dead mount hides those below it, so the outermost goes first, and takes them along. The
        // table lists them as they were mounted, and this list is turned around. Several may lie on
        // one another at one place.
        let mut left = mounts_below(&self.folder);
        while let Some(outermost) = left.last() {
            let lazily = ["-l", "--"];
            let _ = Command::new("umount").args(lazily).arg(outermost).output();
            let now = mounts_below(&self.folder);
            if now.len() >= left.len() {
                break;
            }
            left = now;
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.clean();
    }
}

/// The memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Resident now.
    pub now_bytes: u64,
    /// Resident at most since it started.
    pub most_bytes: u64,
}

/// Kills a daemon that does not let a step end in time.
#[derive(Debug)]
pub struct Watchdog {
    done: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    fn start(state: PathBuf, step: String, limit: Duration) -> Self {
        let (done, over) = channel::<()>();
        let thread = std::thread::spawn(move || {
            if over.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                eprintln!(
                    "{step}: no end after {} s; killing tarnd so that its calls fail",
                    limit.as_secs()
                );
                let _ = kill_daemon(&state);
            }
        });
        Self {
            done: Some(done),
            thread: Some(thread),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(thread) = self.thread.take() {
            // It cannot panic, and could not report if it did.
            let _ = thread.join();
        }
    }
}

/// The process whose program is `tarnd` and whose `TARN_DIR` is `state`.
fn find_daemon(state: &Path) -> Option<i32> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let process: i32 = entry.file_name().to_str()?.parse().ok()?;
        is_daemon(process, state).then_some(process)
    })
}

/// Whether a process is a `tarnd` whose `TARN_DIR` is `state`.
fn is_daemon(process: i32, state: &Path) -> bool {
    let folder = PathBuf::from(format!("/proc/{process}"));
    let variable = [b"TARN_DIR=", state.as_os_str().as_bytes()].concat();
    let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
    let environment = fs::read(folder.join("environ")).unwrap_or_default();
    name.trim() == "tarnd"
        && environment
            .split(|&byte| byte == 0)
            .any(|entry| entry == variable)
}

fn kill_daemon(state: &Path) -> bool {
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut killed = false;
    // The one that serves, and perhaps the one that started it and waits for its answer.
    while let Some(process) = find_daemon(state)
        && Instant::now() < deadline
    {
        signal(process, rustix::process::Signal::KILL);
        while !is_gone(process) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        killed = true;
    }
    killed
}

/// Asks the daemon whose `TARN_DIR` is `state` to end, if there is one, and waits. False if it
/// still runs after `limit`.
#[must_use]
pub fn stop_daemon(state: &Path, limit: Duration) -> bool {
    if let Some(process) = find_daemon(state) {
        signal(process, rustix::process::Signal::TERM);
    }
    let deadline = Instant::now() + limit;
    while find_daemon(state).is_some() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

fn signal(process: i32, signal: rustix::process::Signal) {
    if let Some(id) = rustix::process::Pid::from_raw(process) {
        // It may have ended since it was found.
        let _ = rustix::process::kill_process(id, signal);
    }
}

/// Whether a thread of a process waits for the answer of a FUSE server.
fn is_waiting_for_fuse(process: i32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{process}/task"));
    tasks.into_iter().flatten().flatten().any(|task| {
        let waits_in = fs::read_to_string(task.path().join("wchan")).unwrap_or_default();
        waits_in.contains("request_wait_answer")
    })
}

/// Aborts the FUSE connections of mounts below a folder, without a look at their paths: a path in
/// such a mount may not be answered. Does nothing without permission.
fn abort_connections_below(folder: &Path) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for line in table.lines() {
        let mut words = line.split(' ').skip(2);
        let (Some(device), Some(_), Some(point)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        if let Some(number) = device.strip_prefix("0:")
            && Path::new(&unescape(point)).starts_with(folder)
        {
            // Only a mount of FUSE has such a file.
            let _ = fs::write(format!("/sys/fs/fuse/connections/{number}/abort"), "1");
        }
    }
}

/// Whether a process has given back everything it held. Its memory goes first, and with that what
/// it is known by; its files and sockets go with its last thread. What then remains is a number
/// that waits for its parent.
fn is_gone(process: i32) -> bool {
    let folder = PathBuf::from(format!("/proc/{process}"));
    let Ok(status) = fs::read_to_string(folder.join("status")) else {
        return true;
    };
    let is_remainder = status
        .lines()
        .any(|line| line.starts_with("State:") && line.contains('Z'));
    let threads = fs::read_dir(folder.join("task")).map_or(0, Iterator::count);
    is_remainder && threads <= 1
}

/// What is mounted below a folder, the last mounted first.
#[must_use]
pub fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let folder = folder.display().to_string();
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points = table
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .map(unescape);
    let mut mounts: Vec<PathBuf> = points
        .filter(|point| point.starts_with(&format!("{folder}/")))
        .map(PathBuf::from)
        .collect();
    mounts.reverse();
    mounts
}

/// The mount table writes blanks and backslashes as octal numbers.
fn unescape(point: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(point.to_string(), |point, (octal, character)| {
        point.replace(octal, character)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_name_the_cure() {
        let folder = tempfile::tempdir().unwrap();
        let error = Instance::new(folder.path(), &folder.path().join("host")).unwrap_err();
        assert!(
            error.to_string().ends_with("run `cargo xtask build`"),
            "{error}"
        );
    }

    #[test]
    fn no_daemon_is_found_for_a_folder_without_one() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(find_daemon(folder.path()), None);
        assert!(!kill_daemon(folder.path()));
    }

    #[test]
    fn mount_points_are_read_with_their_blanks() {
        assert_eq!(unescape("/a\\040b\\134c"), "/a b\\c");
    }
}
