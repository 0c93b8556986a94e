//! Clients of NFS that load the server, each in a thread and from an address of its own.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tarn_nfs_client::{Client, Failure, Folder, Machine, OpenFile, Operation, Stable, Version};
use tarn_workload::twister::Twister;

use crate::workspace::Outcome;

/// A file that the cache has.
pub const HOT_BYTES: u64 = 1 << 20;
/// One that it has not.
pub const TABLE_BYTES: u64 = 192 << 20;

const BLOCK: u32 = 8 << 10;
/// How long a phase of [`Load::Phases`] is.
const PHASE: Duration = Duration::from_secs(8);
/// `NFS3ERR_NOENT`.
const NO_ENTRY: u32 = 2;
/// `NFS3ERR_JUKEBOX`: not now, while a file system is rolled back.
const LATER: u32 = 10_008;

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Looks for a file that is not there, 63 times a second.
    MissingFile,
    /// Reads what the cache has.
    Hot,
    /// Reads at random from a table that is larger than the cache.
    Cold,
    /// Writes that are durable in the log device.
    Logged,
    /// Writes that are durable on the slow disk.
    SlowWrites,
    /// Reads from the table for a while, then nothing for a while.
    Phases,
}

impl Load {
    /// The machine that it runs on.
    fn machine(self) -> Machine<'static> {
        let (last, name) = match self {
            Load::MissingFile => (11, "kiowa"),
            Load::Hot | Load::Cold | Load::Phases => (12, "deimos"),
            Load::Logged | Load::SlowWrites => (13, "phobos"),
        };
        Machine {
            address: Ipv4Addr::new(127, 0, 0, last),
            name,
        }
    }

    /// How often.
    fn per_second(self) -> u32 {
        match self {
            Load::MissingFile => 63,
            Load::Hot => 150,
            Load::Cold | Load::Phases => 40,
            Load::Logged => 50,
            Load::SlowWrites => 8,
        }
    }

    /// The file system and the file that it works on.
    fn file(self) -> (&'static str, &'static str) {
        match self {
            Load::MissingFile => ("home", ".elinks"),
            Load::Hot => ("db", "hot"),
            Load::Cold | Load::Phases => ("db", "table"),
            Load::Logged => ("db", "log"),
            Load::SlowWrites => ("bulk", "archive"),
        }
    }
}

/// Loads that run.
pub struct Loads {
    is_over: Arc<AtomicBool>,
    running: Vec<JoinHandle<Result<(), Failure>>>,
}

impl Loads {
    /// Starts loads of the file systems below `mount`, which is shared at a port.
    pub fn start(loads: &[Load], port: u16, mount: &Path) -> Outcome<Loads> {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut running = Vec::new();
        for load in loads {
            let worker = Worker::connect(*load, port, mount)?;
            let is_over = is_over.clone();
            running.push(thread::spawn(move || worker.run(&is_over)));
        }
        Ok(Loads { is_over, running })
    }

    /// Ends them.
    pub fn stop(self) -> Outcome {
        self.is_over.store(true, Ordering::SeqCst);
        for thread in self.running {
            thread.join().map_err(|_| "a load's thread panicked")??;
        }
        Ok(())
    }
}

/// A client at work.
struct Worker {
    load: Load,
    client: Client,
    folder: Folder,
    /// What it reads or writes; nothing where it looks for a file.
    file: Option<OpenFile>,
    chance: Twister,
}

impl Worker {
    fn connect(load: Load, port: u16, mount: &Path) -> Outcome<Worker> {
        let (dataset, name) = load.file();
        let path = mount.join(dataset).display().to_string();
        let (version, owner) = (Version::Three, name);
        let (mut client, mut folder) =
            Client::mount_from(&load.machine(), version, (port, port), &path, owner)?;
        let file = match load {
            Load::MissingFile => {
                folder = client.folder(&folder, "brendan")?;
                None
            }
            _ => Some(client.open(&folder, name)?),
        };
        Ok(Worker {
            load,
            client,
            folder,
            file,
            chance: Twister::new(u64::from(load.per_second())),
        })
    }

    fn run(mut self, is_over: &AtomicBool) -> Result<(), Failure> {
        let step = Duration::from_secs(1) / self.load.per_second();
        let began = Instant::now();
        let mut next = began;
        while !is_over.load(Ordering::SeqCst) {
            let phase = began.elapsed().as_secs() / PHASE.as_secs();
            if self.load != Load::Phases || phase.is_multiple_of(2) {
                self.one()?;
            }
            next = (next + step).max(Instant::now().checked_sub(step).unwrap_or(next));
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    fn one(&mut self) -> Result<(), Failure> {
        let (_, name) = self.load.file();
        let data = [0x5a; BLOCK as usize];
        let blocks = |bytes: u64| bytes / u64::from(BLOCK);
        let of = match self.load {
            Load::Hot | Load::Logged | Load::SlowWrites => blocks(HOT_BYTES),
            _ => blocks(TABLE_BYTES),
        };
        let offset = self.chance.below_wide(of) * u64::from(BLOCK);
        let folder = &self.folder;
        let operation = match (&self.file, self.load) {
            (None, _) => Operation::LookUp { folder, name },
            (Some(file), Load::Logged | Load::SlowWrites) => Operation::Write {
                file,
                offset,
                data: &data,
                promise: Stable::File,
            },
            (Some(file), _) => Operation::Read {
                file,
                offset,
                bytes: BLOCK,
            },
        };
        self.client.send(&operation)?;
        match (self.client.receive(), self.load) {
            (Err(Failure::Refused { status: LATER, .. }), _) => Ok(()),
            (
                Err(Failure::Refused {
                    status: NO_ENTRY, ..
                }),
                Load::MissingFile,
            ) => Ok(()),
            (Ok(_), Load::MissingFile) => Err(Failure::Malformed("a file that is not there is")),
            (done, _) => done.map(drop),
        }
    }
}
