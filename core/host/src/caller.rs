//! Detaching a daemon from the program that started it.
//!
//! # Problem
//! A process gets more from its parent than arguments: open descriptors, the working folder, the
//! session and its terminal, ignored signals, limits, priority. A daemon that a command started
//! keeps all of it for weeks: a lock of `flock` that is never free again, a pipe whose reader never
//! sees its end, a file system that cannot be unmounted, a limit of 1024 open files.
//!
//! # Mechanism
//! [`close_inherited_descriptors`] comes first, before anything is opened. [`leave`] does the rest,
//! before a second thread runs: threads inherit their priority from the one that makes them. What
//! is not permitted is left as it is.
//!
//! # What stays
//! Namespaces, the root folder, the control group and the hard limits of users are where an
//! administrator says what a service may do; they are kept.

#![allow(unsafe_code)]

use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

use rustix::process::{Pid, Resource, Rlimit};

/// The mode of a daemon's folders.
const FOLDER_MODE: u32 = 0o755;

/// Descriptors below are the standard ones.
const FIRST_DESCRIPTOR: libc::c_uint = 3;

/// Numbers of signals end here on Linux, those for real time included.
const SIGNAL_MAX: libc::c_int = 64;

/// So many descriptors a daemon of root may have, where the limit is lower: a device takes two, a
/// mount two.
const DESCRIPTORS_WANTED: u64 = 1 << 20;

/// What `oom_score_adj` gets: other programs go first, because without the daemon all its mounts
/// fail. The unit for systemd has the same number.
const OOM_SCORE: &str = "-900";

/// `IOPRIO_WHO_PROCESS` of linux/ioprio.h.
const IOPRIO_WHO_PROCESS: libc::c_int = 1;

/// Makes a folder of a daemon, with those above it, unless it is there: others may look into it,
/// whatever mask the caller has, and only the owner changes what is in it.
///
/// # Errors
/// What the system says.
pub fn make_folder(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(folder)?;
    std::fs::set_permissions(folder, Permissions::from_mode(FOLDER_MODE))
}

/// What started the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartedBy {
    /// A person or a service manager, which chose its priority and limits.
    Administrator,
    /// A command that needed it, with whatever priority and limits it happened to have itself.
    Command,
}

/// Closes all descriptors but the standard ones.
///
/// Nothing may have been opened yet by this process: it is for the beginning of `main`.
pub fn close_inherited_descriptors() {
    // SAFETY: the call has no pointers. What it closes was opened before this program ran, so
    // nothing here owns it.
    let closed = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST_DESCRIPTOR,
            libc::c_uint::MAX,
            0,
        )
    };
    if closed == 0 {
        return;
    }
    // Kernels before 5.9 do not have the call.
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let numbers: Vec<libc::c_int> = names.filter_map(|name| name.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // SAFETY: as above; the descriptor of the folder itself is closed already, and closing it
        // twice is an error without effect.
        unsafe { libc::close(number) };
    }
}

/// Gives up the working folder, signals, limits and, where a command started the daemon, the
/// priority that came from the caller. No second thread may run yet.
pub fn leave(started_by: StartedBy) {
    // Where the root folder is not permitted, the working folder stays.
    let _ = rustix::process::chdir("/");
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    take_usual_signals();
    raise_limits(started_by);
    if started_by == StartedBy::Command {
        take_usual_priority();
        // Without the privilege to go below what was inherited, at least nothing above the usual
        // stays.
        if std::fs::write("/proc/self/oom_score_adj", OOM_SCORE).is_err() {
            let _ = std::fs::write("/proc/self/oom_score_adj", "0");
        }
    }
}

/// Blocks no signal, and ignores only signals that would end the daemon because of others: a closed
/// terminal, a reader that is gone, a file that is larger than a limit.
fn take_usual_signals() {
    let ignored = [libc::SIGHUP, libc::SIGPIPE, libc::SIGXFSZ];
    for signal in 1..=SIGNAL_MAX {
        // SAFETY: zeroes are a valid `sigaction`, both pointers are to values of this frame, and
        // neither SIG_DFL nor SIG_IGN is code of ours that could run at a wrong time. A number that
        // is no signal is refused.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, std::ptr::null(), &raw mut action) != 0 {
                continue;
            }
            let wanted = match ignored.contains(&signal) {
                true => libc::SIG_IGN,
                false => libc::SIG_DFL,
            };
            let is_inherited = action.sa_sigaction == libc::SIG_IGN;
            if (is_inherited || wanted == libc::SIG_IGN) && action.sa_sigaction != wanted {
                libc::signal(signal, wanted);
            }
        }
    }
    // SAFETY: the set is a value of this frame that `sigemptyset` makes valid.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Raises soft limits to the hard ones; for a daemon of root that a command started also hard ones
/// that the command had by chance.
fn raise_limits(started_by: StartedBy) {
    let resources = [
        Resource::Nofile,
        Resource::Fsize,
        Resource::Cpu,
        Resource::As,
        Resource::Data,
        Resource::Nproc,
        Resource::Memlock,
    ];
    for resource in resources {
        let is_for_command = started_by == StartedBy::Command;
        let own = rustix::process::getrlimit(resource);
        let wanted = match resource {
            Resource::Nofile => own.maximum.map(|most| most.max(DESCRIPTORS_WANTED)),
            _ => None,
        };
        let raised = |maximum| Rlimit {
            current: maximum,
            maximum,
        };
        let is_raised =
            is_for_command && rustix::process::setrlimit(resource, raised(wanted)).is_ok();
        if !is_raised {
            let _ = rustix::process::setrlimit(resource, raised(own.maximum));
        }
    }
}

/// Sets the default priority, and all processors.
fn take_usual_priority() {
    if rustix::process::getpriority_process(None).is_ok_and(|nice| nice > 0) {
        let _ = rustix::process::setpriority_process(None::<Pid>, 0);
    }
    // SAFETY: the calls have no pointers but one to a value of this frame, which they read.
    unsafe {
        libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, 0);
        let policy = libc::sched_getscheduler(0);
        if policy == libc::SCHED_BATCH || policy == libc::SCHED_IDLE {
            let usual: libc::sched_param = std::mem::zeroed();
            libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const usual);
        }
    }
    let mut all = rustix::thread::CpuSet::new();
    for processor in 0..rustix::thread::CpuSet::MAX_CPU {
        all.set(processor);
    }
    let _ = rustix::thread::sched_setaffinity(None, &all);
}
