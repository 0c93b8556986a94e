//! Loads: what a file system is made to do as fast as it can, the same for every file system.
//!
//! # Problem
//! Two file systems can be compared only when both did the same work, with bytes that neither can
//! make smaller, and when what counts as done means the same: a write counts when `fsync` has
//! answered, a read when the bytes are here.
//!
//! # Mechanism
//! A [`Load`] is one kind of work; [`Load::run`] does it in a folder and says how much was done in
//! how long. Loads follow one another as [`Load::ALL`] lists them: those that read need what those
//! that write left. Before a load whose [`Load::starts_with`] is [`Caches::Cold`], its runner
//! makes the file system forget. Each load ends early when its time is up: its rate is then that of
//! what was done.
//!
//! # Knows nothing about
//! which file system it runs on, how to mount it, and how to make it forget.

mod durable;
mod names;
mod noise;
mod postmark;
mod stream;
pub mod synced;

use std::fmt;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// One kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Load {
    /// One large file, a MiB at a time, with `fsync` at the end.
    SequentialWrite,
    /// That file from beginning to end, from the devices.
    UncachedRead,
    /// That file again, from memory.
    CachedRead,
    /// 4 KiB at random places of that file, from memory.
    RandomRead,
    /// Empty files in one folder.
    Create,
    /// Those files removed.
    Unlink,
    /// 4 KiB at the end of a file, each with `fsync`.
    DurableWrite,
    /// 4 KiB over and over in one file, each answered when it is safe.
    SyncedBy1,
    /// The same by 8 threads, each in its file.
    SyncedBy8,
    /// The same by 64 threads.
    SyncedBy64,
    /// Small files made, read, lengthened and removed, in transactions.
    Postmark,
}

/// What a load finds in memory when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caches {
    /// Nothing of the file system.
    Cold,
    /// What loads before it left.
    Warm,
}

/// How much to do.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// The large file, in MiB.
    pub file_mib: u32,
    /// How often it is read from memory: once takes a tenth of a second.
    pub cached_passes: u32,
    /// Random reads in it.
    pub random_reads: u32,
    /// Empty files.
    pub empty_files: u32,
    /// Writes with `fsync`.
    pub durable_writes: u32,
    /// Writes with `O_DSYNC`, of all threads together.
    pub synced_writes: u32,
    /// Files postmark begins with.
    pub postmark_files: u32,
    /// Its transactions.
    pub postmark_transactions: u32,
    /// A load ends after this, done or not.
    pub limit: Duration,
}

impl Size {
    /// Enough for rates that come again within some per cent.
    pub const FULL: Self = Self {
        file_mib: 768,
        cached_passes: 8,
        random_reads: 1_500_000,
        empty_files: 20_000,
        durable_writes: 2_000,
        synced_writes: 6_400,
        postmark_files: 5_000,
        postmark_transactions: 20_000,
        limit: Duration::from_secs(20),
    };

    /// Enough to see what is far off.
    pub const QUICK: Self = Self {
        file_mib: 192,
        cached_passes: 4,
        random_reads: 200_000,
        empty_files: 5_000,
        durable_writes: 300,
        synced_writes: 640,
        postmark_files: 1_000,
        postmark_transactions: 4_000,
        limit: Duration::from_secs(8),
    };
}

/// What was done, and how long it took.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    /// In the load's [`Unit`].
    pub count: u32,
    /// From its first call to the answer of its last.
    pub took: Duration,
}

impl Done {
    /// A second's share.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        f64::from(self.count) / self.took.as_secs_f64().max(1e-9)
    }
}

/// What a load counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Mebibytes.
    Mib,
    /// Calls, files or transactions.
    Operations,
}

impl fmt::Display for Unit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mib => out.write_str("MiB/s"),
            Self::Operations => out.write_str("op/s"),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::SequentialWrite => "sequential write, fsync",
            Self::UncachedRead => "sequential read, uncached",
            Self::CachedRead => "sequential read, cached",
            Self::RandomRead => "4 KiB random read, cached",
            Self::Create => "create empty files",
            Self::Unlink => "unlink empty files",
            Self::DurableWrite => "4 KiB write, fsync each",
            Self::SyncedBy1 => "4 KiB O_DSYNC, 1 thread",
            Self::SyncedBy8 => "4 KiB O_DSYNC, 8 threads",
            Self::SyncedBy64 => "4 KiB O_DSYNC, 64 threads",
            Self::Postmark => "postmark",
        })
    }
}

impl Load {
    /// Every load, in the order in which they can follow one another.
    pub const ALL: [Self; 11] = [
        Self::SequentialWrite,
        Self::UncachedRead,
        Self::CachedRead,
        Self::RandomRead,
        Self::Create,
        Self::Unlink,
        Self::DurableWrite,
        Self::SyncedBy1,
        Self::SyncedBy8,
        Self::SyncedBy64,
        Self::Postmark,
    ];

    /// What it counts.
    #[must_use]
    pub const fn unit(self) -> Unit {
        match self {
            Self::SequentialWrite | Self::UncachedRead | Self::CachedRead => Unit::Mib,
            _ => Unit::Operations,
        }
    }

    /// Whether it takes memory for a large file, which has to be there.
    #[must_use]
    pub fn fills_memory(self) -> bool {
        matches!(self, Load::SequentialWrite | Load::UncachedRead)
    }

    /// What it must find in memory.
    #[must_use]
    pub const fn starts_with(self) -> Caches {
        match self {
            Self::UncachedRead => Caches::Cold,
            _ => Caches::Warm,
        }
    }

    /// The load whose files it works on.
    #[must_use]
    pub const fn needs(self) -> Option<Self> {
        match self {
            Self::UncachedRead | Self::CachedRead | Self::RandomRead => Some(Self::SequentialWrite),
            Self::Unlink => Some(Self::Create),
            _ => None,
        }
    }

    /// Does it in `folder`, where the loads before it left their files.
    ///
    /// # Errors
    /// What the file system answers; or [`io::ErrorKind::InvalidData`] if it gives back other bytes
    /// than it was given.
    pub fn run(self, folder: &Path, size: &Size) -> io::Result<Done> {
        let deadline = Deadline::after(size.limit);
        let by_threads = |threads| {
            let synced = synced::write(folder, threads, size.synced_writes, size.limit);
            Ok(synced?.done)
        };
        match self {
            Self::SequentialWrite => stream::write(folder, size, deadline),
            Self::UncachedRead => stream::read(folder, 1, deadline),
            Self::CachedRead => stream::read(folder, size.cached_passes, deadline),
            Self::RandomRead => stream::read_at_random(folder, size, deadline),
            Self::Create => names::create(folder, size, deadline),
            Self::Unlink => names::unlink(folder, deadline),
            Self::DurableWrite => durable::write(folder, size, deadline),
            Self::SyncedBy1 => by_threads(1),
            Self::SyncedBy8 => by_threads(8),
            Self::SyncedBy64 => by_threads(64),
            Self::Postmark => postmark::run(folder, size, deadline),
        }
    }
}

/// Reads the large file once more and compares every byte with what was written. Not timed:
/// comparing costs too.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if a byte differs; what the file system answers.
pub fn verify(folder: &Path) -> io::Result<()> {
    stream::verify(folder)
}

/// When a load began, and when it has to end.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    began: Instant,
    limit: Duration,
}

impl Deadline {
    fn after(limit: Duration) -> Self {
        Self {
            began: Instant::now(),
            limit,
        }
    }

    fn is_over(&self) -> bool {
        self.began.elapsed() > self.limit
    }

    /// Begins again now: what was done until here was preparation.
    fn restart(&mut self) {
        self.began = Instant::now();
    }

    fn done(&self, count: u32) -> Done {
        Done {
            count,
            took: self.began.elapsed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small enough for a unit test.
    const TINY: Size = Size {
        file_mib: 3,
        cached_passes: 2,
        random_reads: 50,
        empty_files: 20,
        durable_writes: 3,
        synced_writes: 64,
        postmark_files: 30,
        postmark_transactions: 100,
        limit: Duration::from_secs(30),
    };

    #[test]
    fn every_load_does_what_it_was_asked_and_leaves_what_the_next_needs() {
        let folder = tempfile::tempdir().unwrap();
        let counts = Load::ALL.map(|load| load.run(folder.path(), &TINY).unwrap().count);
        assert_eq!(counts, [3, 3, 6, 50, 20, 20, 3, 64, 64, 64, 100]);
        verify(folder.path()).unwrap();
    }

    #[test]
    fn a_byte_that_changed_is_found() {
        let folder = tempfile::tempdir().unwrap();
        Load::SequentialWrite.run(folder.path(), &TINY).unwrap();
        let path = folder.path().join(stream::FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[2_345_678] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let error = verify(folder.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    }
}
