//! The handle to the machine, or to the simulation in its place.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::apart::call_apart;
use crate::background;
use crate::clock::{self, UnixTime};
use crate::compute::Compute;
use crate::device::{Device, LeasedDevice, OpenMode};
use crate::error::{FileError, OpenError};
use crate::file::{self, DirectoryEntry, FileKind};
use crate::file_device::{self, Backend, DeviceOptions};
use crate::file_lock::{self, FileLock};
use crate::identity::{HostIdentity, parse_hostid};
use crate::in_threads;
use crate::layers::{self, DeviceNumber};
use crate::lease::WriteLease;
use crate::lock::check_wait;
use crate::lock_holder::{self, LockHolder};
use crate::machine_counters::{self, MachineCounters};
use crate::memory;
use crate::sim::{SimHost, SimOptions};
use crate::slow::SlowDevices;
use crate::threads::{JoinHandle, Kind as ThreadKind};

/// The users that a daemon trusts with the way to a mount point: root and its own.
fn trusted_users() -> [u32; 2] {
    [0, crate::effective_uid()]
}

/// What can be chosen about the real host.
#[derive(Clone, Debug, Default)]
pub struct RealOptions {
    /// Instead of the machine's name.
    pub hostname: Option<String>,
    /// Instead of the machine's id.
    pub hostid: Option<u32>,
    /// Which way requests take to the system.
    pub backend: Backend,
    /// Open plain files past the page cache as well.
    pub direct_files: bool,
    /// Instead of the number of processors.
    pub processors: Option<usize>,
    /// Some devices are slower than they are.
    pub slow_devices: Option<SlowDevices>,
}

/// A variable of the environment that makes no sense.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{variable}={value}: {expected} expected")]
pub struct BadOption {
    /// The variable.
    pub variable: &'static str,
    /// What it was set to.
    pub value: String,
    /// What it can be set to.
    pub expected: &'static str,
}

impl RealOptions {
    /// As the environment says: `TARN_HOSTNAME`, `TARN_HOSTID` (hexadecimal, as `hostid` prints
    /// it), and for tests and measurements `TARN_DEVICE_BACKEND` (`ring`, `threads` or `automatic`)
    /// and `TARN_SLOW_DEVICES` (`8:/disks/slow`: what is asked of a device whose path begins so
    /// takes 8 ms longer, one thing at a time).
    ///
    /// # Errors
    /// The variable that makes no sense.
    pub fn from_environment() -> Result<RealOptions, BadOption> {
        RealOptions::from_variables(&|name| std::env::var(name).ok())
    }

    fn from_variables(get: &dyn Fn(&str) -> Option<String>) -> Result<RealOptions, BadOption> {
        let bad = |variable, value, expected| BadOption {
            variable,
            value,
            expected,
        };
        let set = |name| get(name).filter(|value| !value.is_empty());
        let hostid = match set("TARN_HOSTID") {
            None => None,
            Some(value) => Some(
                parse_hostid(&value)
                    .ok_or_else(|| bad("TARN_HOSTID", value, "up to eight hexadecimal digits"))?,
            ),
        };
        let backend = match set("TARN_DEVICE_BACKEND").as_deref() {
            None | Some("automatic") => Backend::Automatic,
            Some("ring") => Backend::Ring,
            Some("threads") => Backend::Threads,
            Some(other) => {
                let expected = "automatic, ring or threads";
                return Err(bad("TARN_DEVICE_BACKEND", other.to_owned(), expected));
            }
        };
        let slow_devices = match set("TARN_SLOW_DEVICES") {
            None => None,
            Some(value) => Some(SlowDevices::parse(&value).ok_or_else(|| {
                let expected = "milliseconds, a colon, and the beginning of a path";
                bad("TARN_SLOW_DEVICES", value, expected)
            })?),
        };
        Ok(RealOptions {
            slow_devices,
            hostname: set("TARN_HOSTNAME"),
            hostid,
            backend,
            ..Default::default()
        })
    }
}

/// The machine. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    inner: Arc<Inner>,
    /// Limits the writes to devices that are opened through this handle.
    lease: Option<Arc<WriteLease>>,
}

struct Inner {
    kind: Kind,
    identity: HostIdentity,
    compute: Compute,
    processors: usize,
}

enum Kind {
    Real(DeviceOptions),
    Simulated(SimHost),
}

impl Host {
    /// The machine we run on.
    pub fn real(options: RealOptions) -> Host {
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        let processors = options.processors.unwrap_or(available).max(1);
        let machine = HostIdentity::of_machine();
        let identity = HostIdentity {
            hostname: options.hostname.unwrap_or(machine.hostname),
            hostid: options.hostid.unwrap_or(machine.hostid),
        };
        let device_options = DeviceOptions {
            backend: options.backend,
            direct_files: options.direct_files,
            slow: options.slow_devices,
        };
        let compute = Compute::new(processors);
        let kind = Kind::Real(device_options);
        Host {
            inner: Arc::new(Inner {
                kind,
                identity,
                compute,
                processors,
            }),
            lease: None,
        }
    }

    /// A simulated machine; its disks, faults and power switch are at [`Host::simulation`].
    pub fn simulated(options: SimOptions) -> Host {
        SimHost::new(options).host()
    }

    /// The host of a simulation.
    pub(crate) fn of_simulation(simulation: &SimHost) -> Host {
        let identity = simulation.seat().identity().clone();
        let kind = Kind::Simulated(simulation.clone());
        let processors = SIMULATED_PROCESSORS;
        Host {
            inner: Arc::new(Inner {
                kind,
                identity,
                compute: Compute::new(1),
                processors,
            }),
            lease: None,
        }
    }

    /// A handle of the same host. The devices that it opens are written only while the lease is
    /// valid.
    #[must_use]
    pub fn with_lease(&self, lease: Arc<WriteLease>) -> Host {
        Host {
            inner: self.inner.clone(),
            lease: Some(lease),
        }
    }

    /// The simulation, if this is one.
    pub fn simulation(&self) -> Option<&SimHost> {
        match &self.inner.kind {
            Kind::Real(_) => None,
            Kind::Simulated(simulation) => Some(simulation),
        }
    }

    /// Nanoseconds of a clock that never goes back.
    pub fn monotonic_ns(&self) -> u64 {
        match self.simulation() {
            None => clock::real_monotonic_ns(),
            Some(simulation) => simulation.monotonic_ns(),
        }
    }

    /// The time of day.
    pub fn unix_time(&self) -> UnixTime {
        match self.simulation() {
            None => UnixTime::now(),
            Some(simulation) => simulation.unix_time(),
        }
    }

    /// Fills `bytes` with entropy of the system.
    pub fn fill_random(&self, bytes: &mut [u8]) {
        match self.simulation() {
            None => fill_from_system(bytes),
            Some(simulation) => simulation.fill_random(bytes),
        }
    }

    /// A number of entropy of the system.
    pub fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_random(&mut bytes);
        u64::from_ne_bytes(bytes)
    }

    /// Starts a thread.
    ///
    /// # Panics
    /// If the system cannot start one, or if a simulated thread is started by a thread outside the
    /// simulation.
    pub fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let kind = match self.simulation() {
            None => {
                let thread = std::thread::Builder::new()
                    .name(name.to_owned())
                    .spawn(body);
                ThreadKind::Real(thread.expect("the system can start a thread"))
            }
            Some(simulation) => ThreadKind::Simulated(simulation.member().spawn(name, body)),
        };
        JoinHandle::new(name, kind)
    }

    /// Starts a background thread: other threads that are woken run before it. It keeps the
    /// [pace](crate::background::Pace) of the caller.
    ///
    /// # Panics
    /// As [`Host::spawn`].
    pub fn spawn_background<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let is_real = self.simulation().is_none();
        let pace = background::pace();
        self.spawn(name, move || {
            if is_real {
                background::give_way();
                background::keep_pace(pace);
            }
            body()
        })
    }

    /// Does nothing for a while.
    pub fn sleep(&self, duration: Duration) {
        check_wait("time to pass");
        match self.simulation() {
            None => std::thread::sleep(duration),
            Some(simulation) => simulation.sleep(duration),
        }
    }

    /// All processors at once.
    pub fn compute(&self) -> &Compute {
        &self.inner.compute
    }

    /// Applies `function`, which may wait, to every item, in up to `threads_max` threads, and gives
    /// the results in the order of the items. In a simulation the caller does all of it, in order.
    ///
    /// # Panics
    /// If `function` panics for an item, after the items already begun are done.
    pub fn map_in_threads<T: Send, R: Send>(
        &self,
        items: Vec<T>,
        threads_max: usize,
        function: impl Fn(T) -> R + Sync,
    ) -> Vec<R> {
        match self.is_simulated() {
            true => items.into_iter().map(function).collect(),
            false => in_threads::map(items, threads_max, function),
        }
    }

    /// How many processors there are.
    pub fn processors(&self) -> usize {
        self.inner.processors
    }

    /// Opens a block device or a plain file.
    ///
    /// # Errors
    /// What the system said, or a thing that is neither.
    pub fn open_device(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn Device>, OpenError> {
        let device = match &self.inner.kind {
            Kind::Real(options) => file_device::open(path, mode, options)?,
            Kind::Simulated(simulation) => simulation.open_device(path, mode)?,
        };
        Ok(match &self.lease {
            Some(lease) if mode.may_write() => Arc::new(LeasedDevice {
                device,
                lease: lease.clone(),
                seat: self
                    .simulation()
                    .map(|simulation| simulation.seat().clone()),
            }),
            _ => device,
        })
    }

    /// The name and id of this host.
    pub fn identity(&self) -> &HostIdentity {
        &self.inner.identity
    }

    /// Whether this host is a simulated one.
    pub fn is_simulated(&self) -> bool {
        self.simulation().is_some()
    }

    /// What the machine has counted of its processors, memory, interfaces and disks. Nothing on a
    /// simulated machine.
    pub fn machine_counters(&self) -> MachineCounters {
        match self.simulation() {
            None => machine_counters::read(),
            Some(_) => MachineCounters::default(),
        }
    }

    /// How much memory there is for us.
    pub fn memory_total_bytes(&self) -> u64 {
        self.simulation()
            .map_or_else(memory::total_bytes, |_| SIMULATED_MEMORY_BYTES)
    }

    /// How much memory could be taken without making others swap.
    pub fn memory_available_bytes(&self) -> u64 {
        self.simulation()
            .map_or_else(memory::available_bytes, |_| SIMULATED_MEMORY_BYTES / 2)
    }

    /// The contents of a plain file. Nothing else is read, and nothing that is larger than files of
    /// our own can be.
    ///
    /// # Errors
    /// What the system said.
    pub fn read_file(&self, path: &Path) -> Result<Vec<u8>, FileError> {
        match self.simulation() {
            None => file::read(path),
            Some(simulation) => simulation.read_file(path),
        }
    }

    /// Bytes of a plain file from a place on: fewer where it ends before.
    ///
    /// # Errors
    /// What the system said.
    pub fn read_file_part(
        &self,
        path: &Path,
        offset: u64,
        length: usize,
    ) -> Result<Vec<u8>, FileError> {
        match self.simulation() {
            None => file::read_part(path, offset, length),
            Some(simulation) => simulation.read_file_part(path, offset, length),
        }
    }

    /// How long a plain file is.
    ///
    /// # Errors
    /// What the system said.
    pub fn file_size_bytes(&self, path: &Path) -> Result<u64, FileError> {
        match self.simulation() {
            None => file::size_bytes(path),
            Some(simulation) => Ok(bytes_of(simulation.read_file(path)?.len())),
        }
    }

    /// Appends to a file durably, and makes it if it is not there. After a crash meanwhile it ends
    /// within what was appended.
    ///
    /// # Errors
    /// What the system said; part of the bytes may be in the file then.
    pub fn append_to_file(&self, path: &Path, contents: &[u8]) -> Result<(), FileError> {
        match self.simulation() {
            None => file::append(path, contents),
            Some(simulation) => simulation.append_to_file(path, contents),
        }
    }

    /// Replaces a file, durably and in one step: after a crash there is the old one or the new one.
    ///
    /// # Errors
    /// What the system said; the old contents stand then.
    pub fn write_file_atomically(&self, path: &Path, contents: &[u8]) -> Result<(), FileError> {
        match self.simulation() {
            None => file::write_atomically(path, contents),
            Some(simulation) => simulation.write_file(path, contents),
        }
    }

    /// Removes a file; that it is not there is no error.
    ///
    /// # Errors
    /// What the system said.
    pub fn remove_file(&self, path: &Path) -> Result<(), FileError> {
        match self.simulation() {
            None => file::remove(path),
            Some(simulation) => simulation.remove_file(path),
        }
    }

    /// Makes a file of that size with nothing in it, to be opened as a device. One that exists is
    /// refused.
    pub fn create_sparse_file(&self, path: &Path, size_bytes: u64) -> Result<(), FileError> {
        match self.simulation() {
            None => file::create_sparse(path, size_bytes),
            Some(simulation) => simulation.create_sparse_file(path, size_bytes),
        }
    }

    /// Makes a folder, and those above it.
    ///
    /// # Errors
    /// What the system said.
    pub fn create_directories(&self, path: &Path) -> Result<(), FileError> {
        match self.simulation() {
            None => call_apart(path, file::create_directories),
            Some(_) => Ok(()),
        }
    }

    /// Removes a folder with nothing in it; that it is not there is no error.
    ///
    /// # Errors
    /// What the system said; a folder with something in it stays.
    pub fn remove_directory(&self, path: &Path) -> Result<(), FileError> {
        match self.simulation() {
            None => call_apart(path, file::remove_directory),
            Some(_) => Ok(()),
        }
    }

    /// The names in a folder, in their order.
    ///
    /// # Errors
    /// What the system said.
    pub fn list_directory(&self, path: &Path) -> Result<Vec<DirectoryEntry>, FileError> {
        match self.simulation() {
            None => call_apart(path, file::list_directory),
            Some(simulation) => simulation.list_directory(path),
        }
    }

    /// What a path leads to, links followed.
    pub fn file_kind(&self, path: &Path) -> FileKind {
        match self.simulation() {
            None => call_apart(path, file::kind_of),
            Some(simulation) => simulation.file_kind(path),
        }
    }

    /// Whether only root and the effective user of this process can make a path name another
    /// folder, by links or by renaming. A simulated machine says no.
    pub fn is_guarded(&self, path: &Path) -> bool {
        match self.simulation() {
            None => call_apart(path, |path| file::is_guarded(path, &trusted_users())),
            Some(_) => false,
        }
    }

    /// Whether only root and the effective user of this process can replace the folder that a path
    /// names when the file system on it is unmounted. A simulated machine says no.
    pub fn is_guarded_above(&self, path: &Path) -> bool {
        match self.simulation() {
            None => call_apart(path, |path| file::is_guarded_above(path, &trusted_users())),
            Some(_) => false,
        }
    }

    /// Where a path leads, with all links resolved as far as it goes; what is not there has its
    /// name. None where a link leads nowhere.
    pub fn leads_to(&self, path: &Path) -> Option<PathBuf> {
        match self.simulation() {
            None => call_apart(path, file::leads_to),
            Some(_) => Some(path.to_owned()),
        }
    }

    /// What a link says; none where there is no link. A simulated machine has none.
    pub fn link_target(&self, path: &Path) -> Option<PathBuf> {
        match self.simulation() {
            None => call_apart(path, file::link_target),
            Some(_) => None,
        }
    }

    /// Whether only root and the effective user of this process can have made this link. A
    /// simulated machine says no.
    pub fn is_guarded_link(&self, path: &Path) -> bool {
        match self.simulation() {
            None => call_apart(path, |path| file::is_guarded_link(path, &trusted_users())),
            Some(_) => false,
        }
    }

    /// Whether a name is a link. A simulated machine has none.
    pub fn is_link(&self, path: &Path) -> bool {
        self.simulation().is_none() && call_apart(path, file::is_link)
    }

    /// All devices on which what a path leads to is stored, itself included if it is one. None on a
    /// simulated machine.
    pub fn devices_below(&self, path: &Path) -> Vec<DeviceNumber> {
        match self.simulation() {
            None => layers::devices_below(path),
            Some(_) => Vec::new(),
        }
    }

    /// Locks a file, which is made if it is not there. A simulated machine has one process, and
    /// locks nothing.
    ///
    /// # Errors
    /// What the system said; [`FileError::is_locked`] while another process has it locked.
    pub fn lock_file(&self, path: &Path) -> Result<FileLock, FileError> {
        match self.simulation() {
            None => file_lock::lock(path),
            Some(_) => Ok(FileLock::SIMULATED),
        }
    }

    /// The process that has locked this file, as pools lock their files. None where the system does
    /// not tell, or the machine is simulated.
    pub fn lock_holder(&self, path: &Path) -> Option<LockHolder> {
        match self.simulation() {
            None => lock_holder::lock_holder(path),
            Some(_) => None,
        }
    }

    /// The path with all links resolved; as it is if that fails.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        match self.simulation() {
            None => std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()),
            Some(_) => path.to_owned(),
        }
    }
}

fn bytes_of(length: usize) -> u64 {
    u64::try_from(length).expect("a length in memory")
}

/// What a simulated machine has.
const SIMULATED_PROCESSORS: usize = 4;
const SIMULATED_MEMORY_BYTES: u64 = 8 << 30;

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.simulation().is_some() {
            "simulated"
        } else {
            "real"
        };
        write!(f, "Host({kind}, {})", self.inner.identity.hostname)
    }
}

fn fill_from_system(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[filled..], flags) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => panic!("the system has no entropy: {errno}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(variables: &[(&str, &str)]) -> Result<RealOptions, BadOption> {
        let get = |name: &str| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        };
        RealOptions::from_variables(&get)
    }

    #[test]
    fn the_environment_can_make_another_host() {
        let options = options(&[("TARN_HOSTNAME", "left"), ("TARN_HOSTID", "0000abcd")]).unwrap();
        let host = Host::real(options);
        let expected = HostIdentity {
            hostname: "left".to_owned(),
            hostid: 0xabcd,
        };
        assert_eq!(*host.identity(), expected);
    }

    #[test]
    fn an_environment_that_makes_no_sense_is_refused_with_its_variable() {
        let refused = options(&[("TARN_HOSTID", "seven")]).unwrap_err();
        assert!(refused.to_string().starts_with("TARN_HOSTID=seven: "));
        assert!(options(&[("TARN_DEVICE_BACKEND", "fast")]).is_err());
        assert!(options(&[("TARN_SLOW_DEVICES", "slow")]).is_err());
    }
}
