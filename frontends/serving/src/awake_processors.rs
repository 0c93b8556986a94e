//! Idle processors are kept awake while clients send one request after the other, or move much.
//!
//! # Problem
//! A client that waits for a reply leaves its processor idle. The kernel lets it sleep at once, and
//! waking it takes longer than most replies, above all in a virtual machine, whose host has to be
//! asked.
//!
//! # Mechanism
//! As long as a process has `/dev/cpu_dma_latency` open, the kernel only uses idle states that a
//! processor leaves within the written number of microseconds (Linux,
//! `Documentation/power/pm_qos_interface.rst`). That concerns the whole machine and costs power, so
//! the request to the kernel stands only while short requests follow each other without pause, or
//! long ones after less than [`SPACING`]: [`AwakeProcessors::answered`] and
//! [`AwakeProcessors::moves_much`] count them, and the thread that waits for more requests closes
//! the file after [`QUIET`].
//!
//! Only root may ask the kernel so. For other users, and where the kernel has no such file, nothing
//! happens.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::time::Timespec;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The kernel's file for the longest time that waking a processor may take.
const LATENCY_FILE: &str = "/dev/cpu_dma_latency";

/// The driver that decides how processors idle.
const IDLE_DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";

/// The driver of a virtual machine, if it has one: it either looks for work without pause or gives
/// the processor to the host.
const DRIVER_OF_GUESTS: &str = "haltpoll";

/// Microseconds for a virtual machine: any other value lets it halt.
const LATENCY_OF_GUESTS: i32 = 0;

/// Microseconds for a physical machine: allows the lightest sleep of common processors (C1). A
/// guess; measured was a virtual machine only.
const LATENCY_OF_MACHINES: i32 = 2;

/// So many requests that came while a thread lingered, one after the other, are a burst.
const BURST: u32 = 64;

/// How long after the one before a long request belongs to the same burst. A guess: with processors
/// awake the median write of a MiB was answered some 80 µs sooner, which is little beside longer
/// pauses.
const SPACING: Duration = Duration::from_millis(2);

/// How long after the last request of a burst processors stay awake.
pub(crate) const QUIET: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};

/// Keeps idle processors awake during bursts.
#[derive(Debug)]
pub struct AwakeProcessors {
    latency: i32,
    /// The kernel refuses, or the administrator forbids it.
    is_off: AtomicBool,
    is_asked: AtomicBool,
    /// Answered without a pause since one was last seen.
    in_a_row: AtomicU32,
    /// When the last long request came: microseconds since `began`.
    last_long_us: AtomicU64,
    began: Instant,
    /// Some thread looks whether the burst is over.
    is_watched: AtomicBool,
    request: Mutex<Option<OwnedFd>>,
}

impl AwakeProcessors {
    /// Nothing is asked yet. Never, unless `is_wanted`.
    pub fn new(is_wanted: bool) -> AwakeProcessors {
        let driver = std::fs::read_to_string(IDLE_DRIVER).unwrap_or_default();
        AwakeProcessors {
            latency: match driver.trim() {
                DRIVER_OF_GUESTS => LATENCY_OF_GUESTS,
                _ => LATENCY_OF_MACHINES,
            },
            is_off: AtomicBool::new(!is_wanted),
            is_asked: AtomicBool::new(false),
            in_a_row: AtomicU32::new(0),
            last_long_us: AtomicU64::new(0),
            began: Instant::now(),
            is_watched: AtomicBool::new(false),
            request: Mutex::new(None),
        }
    }

    /// A request came while a thread lingered after the one before.
    pub(crate) fn answered(&self) {
        // Counts that several threads change at the same time may be off, which does no harm.
        let in_a_row = self.in_a_row.load(Ordering::Relaxed).saturating_add(1);
        self.in_a_row.store(in_a_row, Ordering::Relaxed);
        if in_a_row >= BURST
            && !self.is_asked.load(Ordering::Relaxed)
            && !self.is_off.load(Ordering::Relaxed)
        {
            self.ask();
        }
    }

    /// A request came that moves many bytes: no thread lingers for these, as their client copies a
    /// while before the next.
    pub(crate) fn moves_much(&self) {
        self.moves_much_at(self.began.elapsed());
    }

    fn moves_much_at(&self, since_began: Duration) {
        let now = u64::try_from(since_began.as_micros()).unwrap_or(u64::MAX);
        let last = self.last_long_us.swap(now, Ordering::Relaxed);
        // Another thread may have been here later.
        let between = Duration::from_micros(now.saturating_sub(last));
        match between < SPACING {
            true => self.answered(),
            false => self.in_a_row.store(1, Ordering::Relaxed),
        }
    }

    /// Whether this thread, which is about to wait for requests, is to call
    /// [`AwakeProcessors::unless_used`] after [`QUIET`]. Only one thread is at a time.
    pub(crate) fn begin_watch(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed) && !self.is_watched.swap(true, Ordering::Relaxed)
    }

    /// This thread waits no more, or has waited so long.
    pub(crate) fn end_watch(&self) {
        self.is_watched.store(false, Ordering::Relaxed);
    }

    /// [`QUIET`] has passed for a thread that waited: lets processors sleep again if no other
    /// thread was answered meanwhile.
    pub(crate) fn unless_used(&self) {
        if self.in_a_row.swap(0, Ordering::Relaxed) == 0 {
            self.is_asked.store(false, Ordering::Relaxed);
            *self.request() = None;
        }
    }

    fn ask(&self) {
        let mut request = self.request();
        if request.is_some() {
            return;
        }
        let asked = rustix::fs::open(LATENCY_FILE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .and_then(|file| {
                rustix::io::write(&file, &self.latency.to_ne_bytes())?;
                Ok(file)
            });
        match asked {
            Ok(file) => {
                *request = Some(file);
                self.is_asked.store(true, Ordering::Relaxed);
            }
            Err(_) => self.is_off.store(true, Ordering::Relaxed),
        }
    }

    fn request(&self) -> std::sync::MutexGuard<'_, Option<OwnedFd>> {
        // A thread that panicked with it had opened or closed one file.
        self.request.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_asked(processors: &AwakeProcessors) -> bool {
        processors.is_asked.load(Ordering::Relaxed)
    }

    #[test]
    fn a_burst_asks_and_a_quiet_while_takes_it_back() {
        let processors = AwakeProcessors::new(true);
        (1..BURST).for_each(|_| processors.answered());
        assert!(!is_asked(&processors));
        processors.answered();
        if processors.is_off.load(Ordering::Relaxed) {
            eprintln!(
                "not tested: only root may keep processors awake, where the kernel has {LATENCY_FILE}"
            );
            return;
        }
        assert!(is_asked(&processors));
        assert!(processors.begin_watch());
        assert!(!processors.begin_watch(), "one thread watches");
        processors.unless_used();
        assert!(is_asked(&processors), "used since the watch began");
        processors.unless_used();
        assert!(!is_asked(&processors));
        assert!(processors.request().is_none());
        processors.end_watch();
        assert!(!processors.begin_watch(), "nothing is asked");
    }

    #[test]
    fn long_requests_that_follow_closely_are_a_burst_and_others_are_none() {
        let processors = AwakeProcessors::new(true);
        let counted = || processors.in_a_row.load(Ordering::Relaxed);
        let mut at = SPACING;
        for _ in 1..BURST {
            processors.moves_much_at(at);
            at += SPACING / 2;
        }
        assert_eq!(counted(), BURST - 1);
        at += SPACING;
        processors.moves_much_at(at);
        assert_eq!(counted(), 1, "a pause ends a burst");
        assert!(!is_asked(&processors));
        for _ in 1..BURST {
            at += SPACING / 2;
            processors.moves_much_at(at);
        }
        assert_eq!(counted(), BURST);
        let is_off = processors.is_off.load(Ordering::Relaxed);
        assert_eq!(is_asked(&processors), !is_off);
    }

    #[test]
    fn nothing_is_asked_where_it_is_forbidden() {
        let processors = AwakeProcessors::new(false);
        (0..BURST * 4).for_each(|_| processors.answered());
        assert!(!is_asked(&processors));
    }
}
