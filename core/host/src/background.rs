//! Threads whose work can wait for some milliseconds, and others cannot.
//!
//! # Problem
//! Storing a transaction group keeps all processors busy for a while. The kernel lets who runs go on for some milliseconds, so that whoever is woken by a
//! request meanwhile waits much longer than the answer takes.
//!
//! # Mechanism
//! The kernel (Linux 6.12) knows how long a turn each thread wants, and lets one that wants short turns interrupt one that wants long ones; over time each gets
//! its share all the same. So threads that work in the background ask for long turns, and do not interrupt others when they are woken (`SCHED_BATCH`). Older kernels
//! do only the latter.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

/// The turn of a background thread, in nanoseconds; others have 0.7 to 2.8 ms. Not much longer: what a background thread holds when it is interrupted, others
/// wait for until its turn comes again.
const TURN_NS: u64 = 4_000_000;

/// What the kernel takes about the scheduling of a thread (`sched_setattr`), in its first version.
#[repr(C)]
struct Scheduling {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// The calling thread gives way to others from now on. Where the kernel does not want that, it works as any other.
pub(crate) fn give_way() {
    static IS_REFUSED: AtomicBool = AtomicBool::new(false);
    if IS_REFUSED.load(Ordering::Relaxed) {
        return;
    }
    let scheduling = Scheduling {
        size: u32::try_from(size_of::<Scheduling>()).expect("48 bytes"),
        policy: libc::SCHED_BATCH.cast_unsigned(),
        flags: 0,
        nice: rustix::process::getpriority_process(None).unwrap_or(0),
        priority: 0,
        runtime_ns: TURN_NS,
        deadline_ns: 0,
        period_ns: 0,
    };
    // SAFETY: the structure is as large as it says and outlives the call, which only reads it.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            0,
            std::ptr::from_ref(&scheduling),
            0,
        )
    };
    if answer != 0 {
        IS_REFUSED.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_gives_way_is_a_batch_thread_as_nice_as_before() {
        std::thread::spawn(|| {
            let nice = || rustix::process::getpriority_process(None).unwrap();
            let before = nice();
            give_way();
            // SAFETY: asks for the calling thread.
            let policy = unsafe { libc::sched_getscheduler(0) };
            assert_eq!(policy, libc::SCHED_BATCH);
            assert_eq!(nice(), before);
        })
        .join()
        .unwrap();
    }
}
