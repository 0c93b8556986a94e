//! The simulated machine: disks, files, clock and power switch around a scheduler.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::baton::{self, Member, Orders, Scheduler};
use super::disk::{Disk, SimDevice, SimDisk};
use super::random::Random;
use super::seat::Seat;
use crate::clock::UnixTime;
use crate::device::{Device, DeviceIdentity, DeviceInfo, OpenMode};
use crate::error::{Errno, FileError, OpenError};
use crate::file::{DirectoryEntry, FileKind};
use crate::host::Host;
use crate::identity::HostIdentity;

/// What can be chosen about a simulated machine.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// From which everything follows.
    pub seed: u64,
    /// At one in so many points at which a thread need not wait, another one goes on all the same.
    /// 0: never, which is fastest; 1: always, which finds most.
    pub switch_one_in: u64,
    /// At one in so many of those points a thread is set aside for a while, up to
    /// [`SimOptions::stall_max`], as a machine does that is busy with other things. 0: never.
    pub stall_one_in: u64,
    /// For how long at most. A tenth of it, a hundredth and so on are as likely.
    pub stall_max: Duration,
    /// For how long a program may run, in virtual time, since it was switched on: one whose threads
    /// wait for longer comes to no end.
    pub run_time_max: Duration,
    /// The unit of addressing of its disks.
    pub logical_sector_bytes: u32,
    /// Whether its disks are opened past the page cache, so that their queues are limited.
    pub is_direct: bool,
    /// The time of day when it is switched on.
    pub unix_time: UnixTime,
    /// Which host it is.
    pub identity: HostIdentity,
}

impl SimOptions {
    /// The usual machine, with this seed.
    pub fn seed(seed: u64) -> SimOptions {
        SimOptions {
            seed,
            switch_one_in: 8,
            stall_one_in: 0,
            stall_max: Duration::from_millis(800),
            run_time_max: Duration::MAX,
            logical_sector_bytes: 512,
            is_direct: false,
            unix_time: UnixTime {
                seconds: 1_700_000_000,
                nanoseconds: 0,
            },
            identity: HostIdentity {
                hostname: "simulated".to_owned(),
                hostid: 0x7a52_0001,
            },
        }
    }
}

/// A number that tells whether two runs were the same, and how many steps they took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace {
    /// A hash of every choice and every request, with their times.
    pub hash: u64,
    /// How many points there were at which something could have gone otherwise.
    pub steps: u64,
}

/// A write to a simulated disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimWrite {
    /// When the disk got it, in virtual time.
    pub at_ns: u64,
    /// Which host wrote: 0 for the machine's own, others as they were added.
    pub host: u64,
    /// Where on the disk, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
}

/// The run ended because power was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PowerCut;

/// A simulated machine. Clones are the same machine.
#[derive(Clone)]
pub struct SimHost {
    machine: Arc<Machine>,
    seat: Arc<Seat>,
}

/// What belongs to the machine and outlives its processes.
pub(super) struct Machine {
    options: SimOptions,
    scheduler: Arc<Scheduler>,
    disks: Mutex<BTreeMap<PathBuf, Arc<Disk>>>,
    files: Mutex<BTreeMap<PathBuf, Vec<u8>>>,
    has_power: AtomicBool,
    /// When its power was cut, in virtual time.
    cut_ns: AtomicU64,
    writes: AtomicU64,
    /// All writes, where a test asked for them.
    journal: Mutex<Option<Vec<SimWrite>>>,
    /// How many other hosts have its disks.
    seats: AtomicU64,
    /// Power is cut when so many writes were made.
    cut_after_writes: AtomicU64,
    /// How many changes of files were made.
    file_changes: AtomicU64,
    /// Power is cut in this change of a file.
    cut_in_file_change: AtomicU64,
}

impl SimHost {
    /// A machine without disks.
    pub fn new(options: SimOptions) -> SimHost {
        let random = Random::new(options.seed);
        SimHost::with(options, random, BTreeMap::new(), BTreeMap::new())
    }

    fn with(
        options: SimOptions,
        random: Random,
        disks: BTreeMap<PathBuf, Arc<Disk>>,
        files: BTreeMap<PathBuf, Vec<u8>>,
    ) -> SimHost {
        let orders = Orders {
            switch_one_in: options.switch_one_in,
            stall_one_in: options.stall_one_in,
            stall_max: options.stall_max,
            end_ns: SECOND_NS.saturating_add(baton::nanoseconds(options.run_time_max)),
        };
        let scheduler = Scheduler::new(random, orders, SECOND_NS);
        let machine = Machine {
            options,
            scheduler,
            disks: Mutex::new(disks),
            files: Mutex::new(files),
            has_power: AtomicBool::new(true),
            cut_ns: AtomicU64::new(u64::MAX),
            writes: AtomicU64::new(0),
            journal: Mutex::new(None),
            seats: AtomicU64::new(0),
            cut_after_writes: AtomicU64::new(u64::MAX),
            file_changes: AtomicU64::new(0),
            cut_in_file_change: AtomicU64::new(u64::MAX),
        };
        let seat = Seat::new(&machine.scheduler, 0, machine.options.identity.clone());
        SimHost {
            machine: Arc::new(machine),
            seat: Arc::new(seat),
        }
    }

    /// Another host that has the same disks and files, and lives in the same time: such as the
    /// other head of a disk shelf. Programs of both run in one [`run`](SimHost::run). A disk that
    /// one of them has opened exclusively can be opened by the other.
    pub fn second_host(&self, hostname: &str, hostid: u32) -> SimHost {
        let identity = HostIdentity {
            hostname: hostname.to_owned(),
            hostid,
        };
        let number = self.machine.seats.fetch_add(1, Ordering::Relaxed) + 1;
        SimHost {
            machine: self.machine.clone(),
            seat: Arc::new(Seat::new(&self.machine.scheduler, number, identity)),
        }
    }

    /// Pauses this host for a while from now on: what its threads would write to leased devices
    /// waits until then.
    pub fn pause_host(&self, duration: Duration) {
        let until_ns = self
            .monotonic_ns()
            .saturating_add(baton::nanoseconds(duration));
        self.seat.pause_until(until_ns);
    }

    /// The number of this host among those that share the disks.
    pub fn host_number(&self) -> u64 {
        self.seat.number()
    }

    /// Gives all writes to all disks since the last call, in their order. The first call gives
    /// none.
    pub fn take_journal(&self) -> Vec<SimWrite> {
        let journal = self.machine.journal.lock().replace(Vec::new());
        journal.unwrap_or_default()
    }

    pub(crate) fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }

    /// What programs use.
    pub fn host(&self) -> Host {
        Host::of_simulation(self)
    }

    /// How it was made.
    pub fn options(&self) -> &SimOptions {
        &self.machine.options
    }

    /// Adds an empty disk; what was at that path before is gone.
    pub fn add_disk(&self, path: impl AsRef<Path>, size_bytes: u64) -> SimDisk {
        let path = path.as_ref();
        let mut disks = self.machine.disks.lock();
        let number = u64::try_from(disks.len()).expect("few disks") + 1;
        let disk = Arc::new(Disk::new(path, number, size_bytes));
        disks.insert(path.to_owned(), disk.clone());
        SimDisk {
            disk,
            scheduler: self.machine.scheduler.clone(),
        }
    }

    /// The disk at that path.
    pub fn disk(&self, path: impl AsRef<Path>) -> Option<SimDisk> {
        let disk = self.machine.disks.lock().get(path.as_ref())?.clone();
        Some(SimDisk {
            disk,
            scheduler: self.machine.scheduler.clone(),
        })
    }

    /// Runs a program: `body` is its first thread, and when it returns the others are gone. Panics
    /// of any of its threads that no thread joined, deadlocks, and waiting beyond
    /// [`SimOptions::run_time_max`] come out as a panic here, and the seed is printed.
    pub fn run<T>(&self, body: impl FnOnce(&Host) -> T) -> Result<T, PowerCut> {
        assert!(
            self.machine.has_power(),
            "a machine without power is rebooted first"
        );
        let host = self.host();
        let _tells = TellsSeed(self.machine.options.seed);
        self.machine.scheduler.run(|| body(&host)).ok_or(PowerCut)
    }

    /// Cuts the power now. Called by a simulated thread it does not return.
    pub fn cut_power(&self) {
        self.machine.cut_power();
    }

    /// Cuts the power when the machine has made so many writes and flushes since it was switched
    /// on, all disks together; the last of them may be lost or torn.
    pub fn cut_power_after_writes(&self, count: u64) {
        self.machine
            .cut_after_writes
            .store(count, Ordering::Relaxed);
    }

    /// Cuts the power in the `count`th change of a file since the machine was switched on: one that
    /// appends may do so in part, one that replaces or removes may do it or not.
    pub fn cut_power_in_file_change(&self, count: u64) {
        let machine = &self.machine;
        machine.cut_in_file_change.store(count, Ordering::Relaxed);
    }

    /// How many files were appended to, replaced or removed since it was switched on.
    pub fn file_changes(&self) -> u64 {
        self.machine.file_changes.load(Ordering::Relaxed)
    }

    /// How many writes and flushes were made since it was switched on.
    pub fn device_writes(&self) -> u64 {
        self.machine.writes.load(Ordering::Relaxed)
    }

    /// Switches the power off, if it is not off, and on again: another machine, with the disks as
    /// they may look now. What was flushed is there; of the rest the seed decides.
    pub fn reboot(&self) -> SimHost {
        let machine = &self.machine;
        machine.switch_off();
        let cut_ns = machine.cut_ns.load(Ordering::Relaxed);
        let mut random = machine.scheduler.with_random(Random::fork);
        let mut disks = BTreeMap::new();
        for (path, disk) in machine.disks.lock().iter() {
            disks.insert(
                path.clone(),
                Arc::new(disk.after_power_cut(cut_ns, &mut random)),
            );
        }
        let unix_time = self.unix_time().after(Duration::from_secs(60));
        let options = SimOptions {
            unix_time,
            ..machine.options.clone()
        };
        SimHost::with(options, random, disks, machine.files.lock().clone())
    }

    /// Tells whether two runs were the same.
    pub fn trace(&self) -> Trace {
        let (hash, steps) = self.machine.scheduler.trace();
        Trace { hash, steps }
    }

    /// The virtual time, in nanoseconds since a second before it was switched on.
    pub(crate) fn monotonic_ns(&self) -> u64 {
        self.machine.scheduler.now_ns()
    }

    pub(crate) fn unix_time(&self) -> UnixTime {
        let since_ns = self.monotonic_ns() - SECOND_NS;
        self.machine
            .options
            .unix_time
            .after(Duration::from_nanos(since_ns))
    }

    pub(crate) fn fill_random(&self, bytes: &mut [u8]) {
        self.machine
            .scheduler
            .with_random(|random| random.fill(bytes));
    }

    /// The calling thread as a member of this simulation.
    pub(crate) fn member(&self) -> Member {
        let me = baton::current().filter(|me| me.is_of(&self.machine.scheduler));
        me.expect("simulated threads are used inside SimHost::run")
    }

    pub(crate) fn sleep(&self, duration: Duration) {
        let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = self.monotonic_ns().saturating_add(duration_ns);
        self.member().sleep_until(deadline_ns, "time to pass");
    }

    pub(crate) fn open_device(
        &self,
        path: &Path,
        mode: OpenMode,
    ) -> Result<Arc<dyn Device>, OpenError> {
        let disk = self.machine.disks.lock().get(path).cloned();
        let disk = disk.ok_or_else(|| OpenError::NotFound {
            path: path.to_owned(),
        })?;
        if mode == OpenMode::ReadWriteExclusive && !disk.take(self.seat.number()) {
            return Err(OpenError::Busy {
                path: path.to_owned(),
            });
        }
        let sector = self.machine.options.logical_sector_bytes;
        let info = DeviceInfo {
            path: path.into(),
            size_bytes: disk.size_bytes(),
            logical_sector_bytes: sector,
            physical_sector_bytes: sector,
            is_block_device: false,
            is_rotational: Some(false),
            can_discard: true,
            is_direct: self.machine.options.is_direct,
            merged_bytes_max: 1 << 20,
            mode,
            identity: DeviceIdentity::Simulated(disk.number),
        };
        Ok(Arc::new(SimDevice {
            disk,
            machine: self.machine.clone(),
            seat: self.seat.number(),
            info,
            retired: AtomicI32::new(0),
            given_up: Arc::new(AtomicBool::new(false)),
        }))
    }

    pub(crate) fn read_file(&self, path: &Path) -> Result<Vec<u8>, FileError> {
        let contents = self.machine.files.lock().get(path).cloned();
        contents.ok_or_else(|| FileError::new("read", path, Errno(libc::ENOENT)))
    }

    pub(crate) fn write_file(&self, path: &Path, contents: &[u8]) -> Result<(), FileError> {
        if !self.machine.has_power() {
            return Err(FileError::new("write", path, Errno::IO));
        }
        self.machine.change_file(|part| {
            if part.is_done() {
                let mut files = self.machine.files.lock();
                files.insert(path.to_owned(), contents.to_vec());
            }
        });
        Ok(())
    }

    pub(crate) fn read_file_part(
        &self,
        path: &Path,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, FileError> {
        let files = self.machine.files.lock();
        let not_there = || FileError::new("read", path, Errno(libc::ENOENT));
        let contents = files.get(path).ok_or_else(not_there)?;
        let from = usize::try_from(offset).map_or(contents.len(), |from| from.min(contents.len()));
        let to = from.saturating_add(length).min(contents.len());
        Ok(contents[from..to].to_vec())
    }

    pub(crate) fn append_to_file(&self, path: &Path, contents: &[u8]) -> Result<(), FileError> {
        if !self.machine.has_power() {
            return Err(FileError::new("append to", path, Errno::IO));
        }
        self.machine.change_file(|part| {
            let written = part.of(contents.len());
            assert!(written <= contents.len(), "a part of what is appended");
            let mut files = self.machine.files.lock();
            let file = files.entry(path.to_owned()).or_default();
            file.extend_from_slice(&contents[..written]);
        });
        Ok(())
    }

    pub(crate) fn remove_file(&self, path: &Path) -> Result<(), FileError> {
        self.machine.change_file(|part| {
            if part.is_done() {
                self.machine.files.lock().remove(path);
                self.machine.disks.lock().remove(path);
            }
        });
        Ok(())
    }

    pub(crate) fn create_sparse_file(&self, path: &Path, size_bytes: u64) -> Result<(), FileError> {
        if self.file_kind(path) != FileKind::Other {
            return Err(FileError::new("create", path, Errno(libc::EEXIST)));
        }
        self.add_disk(path, size_bytes);
        Ok(())
    }

    pub(crate) fn list_directory(&self, path: &Path) -> Result<Vec<DirectoryEntry>, FileError> {
        if self.file_kind(path) == FileKind::File {
            return Err(FileError::new("list", path, Errno(libc::ENOTDIR)));
        }
        let disks: Vec<PathBuf> = self.machine.disks.lock().keys().cloned().collect();
        let files: Vec<PathBuf> = self.machine.files.lock().keys().cloned().collect();
        let mut inside: Vec<PathBuf> = disks.into_iter().chain(files).collect();
        inside.retain(|entry| entry.parent() == Some(path));
        inside.sort();
        let entry = |path: PathBuf| DirectoryEntry {
            path,
            kind: FileKind::File,
        };
        Ok(inside.into_iter().map(entry).collect())
    }

    pub(crate) fn file_kind(&self, path: &Path) -> FileKind {
        let is_disk = self.machine.disks.lock().contains_key(path);
        let is_file = is_disk || self.machine.files.lock().contains_key(path);
        if is_file {
            FileKind::File
        } else {
            FileKind::Other
        }
    }
}

/// How much of a change of a file is done.
enum Part {
    /// All: the power stays on.
    All,
    /// The power is cut: what this number says.
    Cut(u64),
}

impl Part {
    /// Whether a change that is made whole or not is made.
    fn is_done(&self) -> bool {
        match self {
            Part::All => true,
            Part::Cut(chance) => chance.is_multiple_of(2),
        }
    }

    /// How much of that length is there.
    fn of(&self, length: usize) -> usize {
        let chosen = |chance: u64| usize::try_from(chance % (1 << 30)).expect("less than 2^30");
        match self {
            Part::All => length,
            Part::Cut(chance) => chosen(*chance) % (length + 1),
        }
    }
}

/// Says which seed a failed run had, so that it can be run again.
struct TellsSeed(u64);

impl Drop for TellsSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the simulation failed with seed {}", self.0);
        }
    }
}

const SECOND_NS: u64 = 1_000_000_000;

impl fmt::Debug for SimHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimHost(seed {})", self.machine.options.seed)
    }
}

impl Machine {
    pub(super) fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }

    pub(super) fn has_power(&self) -> bool {
        self.has_power.load(Ordering::Relaxed)
    }

    /// Keeps a write for a test that asked for all of them.
    pub(super) fn note_write(&self, write: SimWrite) {
        if let Some(journal) = &mut *self.journal.lock() {
            journal.push(write);
        }
    }

    /// A write or a flush was made; maybe it was the last one.
    pub(super) fn count_write(&self) {
        let writes = self.writes.fetch_add(1, Ordering::Relaxed) + 1;
        if writes == self.cut_after_writes.load(Ordering::Relaxed) {
            self.cut_power();
        }
    }

    /// Makes a change of a file; maybe power is cut in it.
    fn change_file(&self, change: impl FnOnce(Part)) {
        let count = self.file_changes.fetch_add(1, Ordering::Relaxed) + 1;
        match count == self.cut_in_file_change.load(Ordering::Relaxed) {
            false => change(Part::All),
            true => {
                change(Part::Cut(self.scheduler.with_random(Random::draw)));
                self.cut_power();
            }
        }
    }

    /// From now on nothing reaches its disks.
    fn switch_off(&self) {
        self.has_power.store(false, Ordering::Relaxed);
        let now_ns = self.scheduler.time_ns();
        self.cut_ns.fetch_min(now_ns, Ordering::Relaxed);
    }

    pub(super) fn cut_power(&self) {
        self.switch_off();
        let me = baton::current().filter(|me| Arc::ptr_eq(me.scheduler(), &self.scheduler));
        if let Some(me) = me {
            me.cut_power();
        }
    }
}
