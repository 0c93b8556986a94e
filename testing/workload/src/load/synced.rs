//! Small writes from several threads that are answered when they are safe (`O_DSYNC`), each thread
//! in a file of its own, as databases write their logs.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use super::noise::Noise;
use super::{Deadline, Done};

const PAGE_BYTES: usize = 4096;

/// Each file is written over and over: its blocks are there, so that a write is no more than that.
const FILE_PAGES: u32 = 256;

/// What threads did, and how long each write took.
#[derive(Debug, Clone)]
pub struct Synced {
    /// All of them together.
    pub done: Done,
    /// Of each write, the shortest first.
    pub latencies: Vec<Duration>,
}

impl Synced {
    /// The median of the writes.
    #[must_use]
    pub fn median(&self) -> Duration {
        let middle = self.latencies.len() / 2;
        self.latencies.get(middle).copied().unwrap_or_default()
    }
}

/// Writes with so many threads until they have written `count` pages together, or the time is up.
///
/// # Errors
/// What the file system answers to the first that is refused.
pub fn write(folder: &Path, threads: u32, count: u32, limit: Duration) -> io::Result<Synced> {
    let noise = Noise::new();
    let files: Vec<File> = (0..threads)
        .map(|thread| prepare(folder, thread, &noise))
        .collect::<io::Result<_>>()?;
    let mut deadline = Deadline::after(limit);
    deadline.restart();
    let of_thread = |file: &File| -> io::Result<Vec<Duration>> {
        let mut latencies = Vec::new();
        for number in 0..count.div_ceil(threads) {
            if deadline.is_over() {
                break;
            }
            let bytes = noise.some(number, PAGE_BYTES);
            let began = Instant::now();
            file.write_all_at(bytes, u64::from(number % FILE_PAGES) * PAGE_BYTES as u64)?;
            latencies.push(began.elapsed());
        }
        Ok(latencies)
    };
    let of_thread = &of_thread;
    let all: io::Result<Vec<Vec<Duration>>> = std::thread::scope(|scope| {
        let writers: Vec<_> = files
            .iter()
            .map(|file| scope.spawn(move || of_thread(file)))
            .collect();
        let joined = writers.into_iter().map(|writer| {
            let died = |_| Err(io::Error::other("a writer panicked"));
            writer.join().unwrap_or_else(died)
        });
        joined.collect()
    });
    let mut latencies = all?.concat();
    let done = deadline.done(u32::try_from(latencies.len()).unwrap_or(u32::MAX));
    latencies.sort_unstable();
    Ok(Synced { done, latencies })
}

fn prepare(folder: &Path, thread: u32, noise: &Noise) -> io::Result<File> {
    let path = folder.join(format!("synced{thread}"));
    let file = File::create(&path)?;
    for page in 0..FILE_PAGES {
        let bytes = noise.some(page, PAGE_BYTES);
        file.write_all_at(bytes, u64::from(page) * PAGE_BYTES as u64)?;
    }
    file.sync_all()?;
    OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DSYNC)
        .open(&path)
}
