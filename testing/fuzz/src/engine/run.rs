//! Running one input, and judging what came of it.
//!
//! # Mechanism
//! A panic is caught, and is told apart from others by the place it came from. Memory is measured.
//! Time is watched by a thread of its own ([`Watchdog`]), in time of the processor, so that a
//! machine that is busy or stops us finds nothing: it ends the process with [`EXIT_ENDLESS`], and
//! the supervisor has the input.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tarn_fuzz::Target;

use crate::{Outcome, memory};

/// How a worker ends whose input does not.
pub const EXIT_ENDLESS: i32 = 61;
/// An input that takes more of a processor does not end: the slowest good ones take milliseconds.
const SECONDS_MAX: i64 = 4;
/// No process here needs so much address space: libraries in C are bounded by it.
const PROCESS_BYTES_MAX: u64 = 4 << 30;

/// What an input did that it may not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// It made the program panic.
    Panic {
        /// Where: file and line.
        place: String,
        /// What the panic said.
        message: String,
    },
    /// It took more memory than the target allows.
    Memory {
        /// How much it took, in bytes.
        taken: usize,
        /// How much it may take.
        allowed: usize,
    },
}

impl Broken {
    /// What tells it apart from others: one finding is enough of each.
    pub fn mark(&self) -> String {
        match self {
            Broken::Panic { place, .. } => format!("panic at {place}"),
            Broken::Memory { .. } => "memory".to_string(),
        }
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::Panic { place, message } => write!(f, "panic at {place}: {message}"),
            Broken::Memory { taken, allowed } => {
                write!(f, "it takes {taken} bytes of memory, of {allowed} allowed")
            }
        }
    }
}

thread_local! {
    static LAST_PANIC: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// From now on panics are kept, not shown.
pub fn keep_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map_or_else(String::new, |place| {
            format!("{}:{}", place.file(), place.line())
        });
        let message = panic
            .payload_as_str()
            .unwrap_or("without words")
            .to_string();
        // A thread that is ending has nothing to keep it in, and runs no input.
        let _ = LAST_PANIC.try_with(|last| last.replace(Some((place, message))));
    }));
}

/// Runs an input, and says what it broke.
pub fn run(target: &Target, input: &[u8]) -> Option<Broken> {
    let (outcome, taken) =
        memory::measure(|| catch_unwind(AssertUnwindSafe(|| (target.run)(input))));
    if outcome.is_err() {
        let last = LAST_PANIC.with(|last| last.take());
        let (place, message) = last.unwrap_or_default();
        return Some(Broken::Panic { place, message });
    }
    let allowed = target.memory_bytes_max(input.len());
    (taken > allowed).then_some(Broken::Memory { taken, allowed })
}

/// Runs one input and prints what comes of it, and gives back how many findings that is.
pub fn one(target: &Target, input: &[u8]) -> Outcome<usize> {
    limit_process()?;
    let watchdog = Watchdog::start(None)?;
    keep_panics();
    watchdog.begin(input)?;
    let broken = run(target, input);
    match &broken {
        Some(broken) => println!("{}: {broken}", target.name),
        None => println!("{}: {} bytes, nothing broke", target.name, input.len()),
    }
    Ok(usize::from(broken.is_some()))
}

/// Bounds what this process may take of the machine.
pub fn limit_process() -> Outcome {
    let limit = rustix::process::Rlimit {
        current: Some(PROCESS_BYTES_MAX),
        maximum: Some(PROCESS_BYTES_MAX),
    };
    rustix::process::setrlimit(rustix::process::Resource::As, limit)?;
    let no_core = rustix::process::Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    Ok(rustix::process::setrlimit(
        rustix::process::Resource::Core,
        no_core,
    )?)
}

/// How many inputs were begun.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// Ends the process when an input does not end, and keeps each input where it can be found by
/// others.
pub struct Watchdog {
    current: Option<File>,
}

impl Watchdog {
    /// Starts to watch. Inputs are written into a file before they are run.
    pub fn start(current: Option<&Path>) -> Outcome<Watchdog> {
        let current = current.map(File::create).transpose()?;
        std::thread::Builder::new()
            .name("watchdog".to_string())
            .spawn(watch)?;
        Ok(Watchdog { current })
    }

    /// Says that an input is about to be run.
    pub fn begin(&self, input: &[u8]) -> Outcome {
        BEGUN.fetch_add(1, Ordering::Relaxed);
        if let Some(file) = &self.current {
            let length = u64::try_from(input.len())?.to_le_bytes();
            file.write_all_at(&[&length, input].concat(), 0)?;
        }
        Ok(())
    }
}

/// The input in a watchdog's file.
pub fn current_input(path: &Path) -> std::io::Result<Vec<u8>> {
    let bytes = std::fs::read(path)?;
    let Some((length, input)) = bytes.split_first_chunk::<8>() else {
        return Ok(Vec::new());
    };
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(0);
    Ok(input[..length.min(input.len())].to_vec())
}

fn watch() {
    let (mut seen, mut since) = (0, processor_seconds());
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let begun = BEGUN.load(Ordering::Relaxed);
        if begun != seen {
            (seen, since) = (begun, processor_seconds());
        } else if begun > 0 && processor_seconds() - since >= SECONDS_MAX {
            eprintln!("an input does not end");
            std::process::exit(EXIT_ENDLESS);
        }
    }
}

/// How much of a processor this process had.
fn processor_seconds() -> i64 {
    clock_gettime(ClockId::ProcessCPUTime).tv_sec
}
