//! Block devices and plain files as devices.
//!
//! # Mechanism
//! Block devices are opened with `O_DIRECT`: the page cache would keep a second copy of what our
//! own cache holds, and lie about when things are written. Plain files go through the page cache,
//! and `fdatasync` is their flush, unless the options ask for `O_DIRECT` there too. Direct devices
//! get an io_uring where the kernel has it; buffered files get threads, because the kernel would
//! serve their writes from threads of its own, one at a time for each file.
//!
//! A single read ([`Device::read_at`]) is one call in the calling thread. Reads in batches on
//! buffered files are first tried without waiting: what is in memory is answered at once. A small
//! batch of writes to a buffered file only copies into memory, which takes less time than waking a
//! thread, so it too is carried out on the spot.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};

use crate::batch::{Batch, BatchState, Job, Times};
use crate::buffer::Buffer;
use crate::clock;
use crate::device::{Device, DeviceIdentity, DeviceInfo, OpenMode, Request, WriteData};
use crate::device_threads::{self, DeviceThreads};
use crate::error::{Action, DeviceError, Errno, OpenError};
use crate::flushes::Flushes;
use crate::lock::check_wait;
use crate::plan;
use crate::slow::{Arm, SlowDevices};
use crate::system;
use crate::uring::Ring;
use crate::waiting::about_to_wait;
use crate::write_turns::WriteTurns;

/// Which way requests take to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Backend {
    /// What suits the device.
    #[default]
    Automatic,
    /// io_uring, for all devices; threads where the kernel refuses.
    Ring,
    /// Threads, for all devices.
    Threads,
}

/// A batch of writes of no more than this goes into the page cache on the spot. As long as two
/// threads take to be woken and to report, on the machines this was measured on.
const INLINE_WRITE_BYTES_MAX: u64 = 256 << 10;

/// How long a dropped device is waited for. Only one that hangs takes longer, and then its owner
/// must not.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// How devices are opened; from [`crate::RealOptions`].
#[derive(Clone, Debug, Default)]
pub(crate) struct DeviceOptions {
    pub(crate) backend: Backend,
    pub(crate) direct_files: bool,
    pub(crate) slow: Option<SlowDevices>,
}

/// A block device or a plain file.
#[derive(Debug)]
pub(crate) struct FileDevice {
    flow: Arc<Flow>,
    ring: Option<Ring>,
    /// Threads; beside a ring for what rings do not do.
    threads: DeviceThreads,
    /// One thread that writes through the page cache: a file system lets only one write to a file
    /// at a time, and others would spin until it is their turn.
    writer: Option<DeviceThreads>,
    inline: Inline,
}

/// What the threads that carry out jobs need of a device.
#[derive(Debug)]
pub(crate) struct Flow {
    file: OwnedFd,
    info: DeviceInfo,
    size_bytes: AtomicU64,
    /// The error of the flush that failed; 0 if none.
    retired: AtomicI32,
    turns: WriteTurns,
    flushes: Flushes,
    /// It is slowed.
    arm: Option<Arm>,
    /// Calls to the system that have not come back.
    owed: AtomicU64,
    /// When the last one came back, or the first of them was made.
    answered_ns: AtomicU64,
    given_up: Arc<AtomicBool>,
}

/// Which reads the submitting thread carries out itself.
#[derive(Debug)]
struct Inline(AtomicU8);

impl Inline {
    /// None.
    const NEVER: u8 = 0;
    /// Those that find all in memory.
    const IF_IN_MEMORY: u8 = 1;
    /// All: the file is in memory.
    const ALWAYS: u8 = 2;

    fn choice(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }

    fn give_up(&self) {
        self.0.store(Inline::NEVER, Ordering::Relaxed);
    }
}

/// Opens a device.
pub(crate) fn open(
    path: &Path,
    mode: OpenMode,
    options: &DeviceOptions,
) -> Result<Arc<dyn Device>, OpenError> {
    let refused = |errno| OpenError::from_errno(path, errno);
    let status = rustix::fs::stat(path).map_err(refused)?;
    let is_block_device = match FileType::from_raw_mode(status.st_mode) {
        FileType::BlockDevice => true,
        FileType::RegularFile => false,
        _ => {
            return Err(OpenError::WrongKind {
                path: path.to_owned(),
            });
        }
    };
    let wants_direct = is_block_device || options.direct_files;
    let (file, is_direct) = open_file(path, mode, is_block_device, wants_direct)?;
    if mode == OpenMode::ReadWriteExclusive && !is_block_device {
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(refused)?;
    }
    let info = describe(path, mode, &file, &status, is_direct).map_err(refused)?;
    let slow = options.slow.as_ref();
    let arm = slow.and_then(|slow| slow.arm_of(path));
    Ok(Arc::new(FileDevice::new(file, info, options.backend, arm)))
}

fn widen(bytes: usize) -> u64 {
    u64::try_from(bytes).expect("less than 2^64")
}

/// Opens the file, without `O_DIRECT` where the file system does not have it.
fn open_file(
    path: &Path,
    mode: OpenMode,
    is_block: bool,
    wants_direct: bool,
) -> Result<(OwnedFd, bool), OpenError> {
    let mut flags = OFlags::CLOEXEC;
    flags |= if mode.may_write() {
        OFlags::RDWR
    } else {
        OFlags::RDONLY
    };
    if is_block && mode == OpenMode::ReadWriteExclusive {
        flags |= OFlags::EXCL;
    }
    let attempt = |flags| rustix::fs::open(path, flags, Mode::empty());
    let opened = match wants_direct {
        true => match attempt(flags | OFlags::DIRECT) {
            Err(rustix::io::Errno::INVAL) => attempt(flags).map(|file| (file, false)),
            opened => opened.map(|file| (file, true)),
        },
        false => attempt(flags).map(|file| (file, false)),
    };
    opened.map_err(|errno| OpenError::from_errno(path, errno))
}

fn describe(
    path: &Path,
    mode: OpenMode,
    file: &OwnedFd,
    status: &rustix::fs::Stat,
    is_direct: bool,
) -> rustix::io::Result<DeviceInfo> {
    let is_block_device = FileType::from_raw_mode(status.st_mode) == FileType::BlockDevice;
    let queue = match is_block_device {
        true => QueueFacts::of(status.st_rdev),
        false => QueueFacts::default(),
    };
    let identity = match is_block_device {
        true => DeviceIdentity::Block(status.st_rdev),
        false => DeviceIdentity::File(status.st_dev, status.st_ino),
    };
    let logical_sector_bytes = queue.logical_sector_bytes.unwrap_or(512);
    Ok(DeviceInfo {
        path: path.into(),
        size_bytes: system::size_of_file(file, is_block_device)?,
        logical_sector_bytes,
        physical_sector_bytes: queue.physical_sector_bytes.unwrap_or(logical_sector_bytes),
        is_block_device,
        is_rotational: queue.is_rotational,
        can_discard: !is_block_device || queue.discard_bytes_max.is_some_and(|max| max > 0),
        is_direct,
        merged_bytes_max: match is_direct && queue.is_rotational != Some(true) {
            true => widen(plan::MERGED_BYTES_MAX_OF_FLASH),
            false => widen(plan::MERGED_BYTES_MAX),
        },
        mode,
        identity,
    })
}

/// What the system says about a block device's queue.
#[derive(Debug, Default)]
struct QueueFacts {
    logical_sector_bytes: Option<u32>,
    physical_sector_bytes: Option<u32>,
    discard_bytes_max: Option<u64>,
    is_rotational: Option<bool>,
}

impl QueueFacts {
    /// A partition has no queue of its own but lies in the folder of its disk.
    fn of(device: u64) -> QueueFacts {
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let folder = format!("/sys/dev/block/{major}:{minor}");
        let read = |name: &str| {
            let own = std::fs::read_to_string(format!("{folder}/queue/{name}"));
            let text =
                own.or_else(|_| std::fs::read_to_string(format!("{folder}/../queue/{name}")));
            text.ok()?.trim().parse::<u64>().ok()
        };
        let read_u32 = |name| read(name).and_then(|value| u32::try_from(value).ok());
        QueueFacts {
            logical_sector_bytes: read_u32("logical_block_size"),
            physical_sector_bytes: read_u32("physical_block_size"),
            discard_bytes_max: read("discard_max_bytes"),
            is_rotational: read("rotational").map(|value| value != 0),
        }
    }
}

impl FileDevice {
    fn new(file: OwnedFd, info: DeviceInfo, backend: Backend, arm: Option<Arm>) -> FileDevice {
        let wants_ring = match backend {
            _ if arm.is_some() => false,
            Backend::Automatic => info.is_direct,
            Backend::Ring => true,
            Backend::Threads => false,
        };
        let inline = match () {
            () if info.is_direct || arm.is_some() => Inline::NEVER,
            () if is_in_memory(&file) => Inline::ALWAYS,
            () => Inline::IF_IN_MEMORY,
        };
        let flow = Arc::new(Flow {
            file,
            size_bytes: AtomicU64::new(info.size_bytes),
            info,
            retired: AtomicI32::new(0),
            turns: WriteTurns::default(),
            flushes: Flushes::default(),
            arm,
            owed: AtomicU64::new(0),
            answered_ns: AtomicU64::new(0),
            given_up: Arc::new(AtomicBool::new(false)),
        });
        let ring = if wants_ring { Ring::start(&flow) } else { None };
        let threads = DeviceThreads::new(&flow, device_threads::THREADS_MAX);
        let writer =
            (!flow.info.is_direct && ring.is_none()).then(|| DeviceThreads::in_background(&flow));
        FileDevice {
            flow,
            ring,
            threads,
            writer,
            inline: Inline(AtomicU8::new(inline)),
        }
    }

    /// Whether the jobs only copy a little into the page cache: what the calling thread, which may
    /// hold locks, does in one call.
    fn are_small_writes(&self, jobs: &[Job]) -> bool {
        let is_write = |job: &Job| job.action == Action::Write;
        let bytes = || jobs.iter().map(|job| job.length).sum::<u64>();
        let call_bytes = || u64::try_from(system::call_bytes_max()).expect("less than 2^64");
        let bytes_max = || INLINE_WRITE_BYTES_MAX.min(call_bytes());
        !self.flow.info.is_direct && jobs.iter().all(is_write) && bytes() <= bytes_max()
    }

    /// Carries a job out on the spot if it is a read that need not wait.
    fn try_inline(&self, job: Job) -> Option<Job> {
        if job.action != Action::Read {
            return Some(job);
        }
        match self.inline.choice() {
            Inline::ALWAYS => {
                system::carry_out(job, &self.flow);
                None
            }
            Inline::IF_IN_MEMORY => self.try_without_waiting(job),
            _ => Some(job),
        }
    }

    fn try_without_waiting(&self, job: Job) -> Option<Job> {
        let started_ns = clock::real_monotonic_ns();
        match system::read_without_waiting(&job, &self.flow) {
            Ok(true) => {
                let queue_ns = started_ns.saturating_sub(job.submitted_ns());
                let service_ns = clock::real_monotonic_ns() - started_ns;
                job.end(
                    Times {
                        queue_ns,
                        service_ns,
                    },
                    None,
                );
                None
            }
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                self.inline.give_up();
                Some(job)
            }
            Ok(false) | Err(_) => Some(job),
        }
    }

    /// Gives jobs to the ring, or to threads what rings do not do.
    fn dispatch(&self, jobs: Vec<Job>) {
        let (jobs, writes) = match &self.writer {
            Some(_) => jobs
                .into_iter()
                .partition(|job| job.action != Action::Write),
            None => (jobs, Vec::new()),
        };
        if let Some(writer) = &self.writer {
            writer.take(writes);
        }
        match &self.ring {
            None => self.threads.take(jobs),
            Some(ring) => {
                let by_ring = |job: &Job| match job.action {
                    Action::Read | Action::Write => true,
                    Action::Flush => !self.flow.shares_errors(),
                    _ => false,
                };
                let (ring_jobs, thread_jobs) = jobs.into_iter().partition(by_ring);
                ring.take(ring_jobs);
                self.threads.take(thread_jobs);
            }
        }
    }
}

impl Device for FileDevice {
    fn describe(&self) -> &DeviceInfo {
        &self.flow.info
    }

    fn size_bytes_now(&self) -> Result<u64, DeviceError> {
        self.flow.measure()
    }

    fn submit(&self, requests: Vec<Request>) -> Batch {
        let flow = &self.flow;
        let (path, now_ns) = (&flow.info.path, clock::real_monotonic_ns());
        let batch = BatchState::new(path, &flow.given_up, now_ns, requests);
        let jobs = plan::plan(&batch, flow);
        if self.are_small_writes(&jobs) {
            self.about_to(Action::Write);
            for job in jobs {
                system::carry_out(job, flow);
            }
            return Batch::under_way(batch);
        }
        let jobs = jobs
            .into_iter()
            .filter_map(|job| self.try_inline(job))
            .collect();
        self.dispatch(jobs);
        Batch::under_way(batch)
    }

    fn read_at(&self, offset: u64, length: usize) -> Result<Buffer, DeviceError> {
        check_wait("a device");
        let buffer = self.carry_out_here(Request::read(offset, length))?;
        Ok(buffer.expect("a read gives its buffer back"))
    }

    fn write_at(&self, offset: u64, data: WriteData) -> Result<(), DeviceError> {
        check_wait("a device");
        self.carry_out_here(Request::Write { offset, data })
            .map(|_| ())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        check_wait("a device");
        self.carry_out_here(Request::Flush).map(|_| ())
    }

    fn is_retired(&self) -> bool {
        self.flow.retirement().is_some()
    }

    fn silent_ns(&self) -> u64 {
        self.flow.silent_ns(clock::real_monotonic_ns())
    }

    fn give_up(&self) {
        self.flow.given_up.store(true, Ordering::Release);
    }
}

impl FileDevice {
    /// This thread asks the system for this now: tells that it is about to wait, where it may have
    /// to.
    fn about_to(&self, action: Action) {
        let is_in_memory = self.inline.choice() == Inline::ALWAYS;
        let may_wait = match action {
            // Copies into memory, unless others write to the file, or nothing is in between.
            Action::Write => {
                self.flow.info.is_direct || self.flow.arm.is_some() || self.flow.turns.is_busy()
            }
            Action::Measure => false,
            _ => !is_in_memory,
        };
        if may_wait {
            about_to_wait();
        }
    }

    /// Carries a request out in the calling thread.
    fn carry_out_here(&self, request: Request) -> Result<Option<Buffer>, DeviceError> {
        let now_ns = clock::real_monotonic_ns();
        let flow = &self.flow;
        let batch = BatchState::new(&flow.info.path, &flow.given_up, now_ns, vec![request]);
        for job in crate::plan::plan(&batch, &self.flow) {
            let left = match job.action == Action::Read && self.inline.choice() != Inline::ALWAYS {
                true => self.try_inline(job),
                false => Some(job),
            };
            if let Some(job) = left {
                self.about_to(job.action);
                system::carry_out(job, &self.flow);
            }
        }
        let mut completions = Batch::under_way(batch).wait();
        completions
            .pop()
            .expect("one request, one completion")
            .result
    }
}

impl Flow {
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    pub(crate) fn arm(&self) -> Option<&Arm> {
        self.arm.as_ref()
    }

    pub(crate) fn turns(&self) -> &WriteTurns {
        &self.turns
    }

    pub(crate) fn flushes(&self) -> &Flushes {
        &self.flushes
    }

    /// Whether an error of writing may be told to one flush only, of several that run.
    pub(crate) fn shares_errors(&self) -> bool {
        !(self.info.is_block_device && self.info.is_direct)
    }

    pub(crate) fn is_block_device(&self) -> bool {
        self.info.is_block_device
    }

    /// The system is asked for something.
    pub(crate) fn asked(&self, now_ns: u64) {
        if self.owed.fetch_add(1, Ordering::AcqRel) == 0 {
            self.answered_ns.store(now_ns, Ordering::Relaxed);
        }
    }

    /// The system has answered.
    pub(crate) fn answered(&self, now_ns: u64) {
        self.answered_ns.store(now_ns, Ordering::Relaxed);
        self.owed.fetch_sub(1, Ordering::AcqRel);
    }

    fn silent_ns(&self, now_ns: u64) -> u64 {
        match self.owed.load(Ordering::Acquire) {
            0 => 0,
            _ => now_ns.saturating_sub(self.answered_ns.load(Ordering::Relaxed)),
        }
    }

    /// Whether no thread waits for it any more.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.load(Ordering::Acquire)
    }

    /// How long dropping it waits for its threads.
    pub(crate) fn close_max(&self) -> Duration {
        match self.is_given_up() {
            true => Duration::ZERO,
            false => CLOSE_MAX,
        }
    }

    /// The error of the flush that failed, if one did.
    pub(crate) fn retirement(&self) -> Option<Errno> {
        Some(Errno(self.retired.load(Ordering::Acquire))).filter(|errno| errno.0 != 0)
    }

    /// A flush failed: nothing written since the one before it can be believed.
    pub(crate) fn retire(&self, errno: Errno) {
        self.retired.store(errno.0, Ordering::Release);
    }

    /// Whether the range is in the device, which is measured again if it was too small.
    pub(crate) fn check_range(
        &self,
        action: Action,
        offset: u64,
        length: u64,
    ) -> Result<(), DeviceError> {
        let is_inside = |size| offset.checked_add(length).is_some_and(|end| end <= size);
        if is_inside(self.size_bytes.load(Ordering::Relaxed)) {
            return Ok(());
        }
        let size_bytes = self.measure()?;
        if is_inside(size_bytes) {
            return Ok(());
        }
        let path = self.info.path.clone();
        Err(DeviceError::OutOfRange {
            path,
            action,
            offset,
            length,
            size_bytes,
        })
    }

    fn measure(&self) -> Result<u64, DeviceError> {
        let measured = system::size_of_file(&self.file, self.info.is_block_device);
        let size_bytes = measured.map_err(|errno| DeviceError::Io {
            path: self.info.path.clone(),
            action: Action::Measure,
            offset: 0,
            length: 0,
            errno: errno.into(),
        })?;
        self.size_bytes.store(size_bytes, Ordering::Relaxed);
        Ok(size_bytes)
    }
}

/// Whether a file lies in a file system that has no disk, where a read never waits.
fn is_in_memory(file: &OwnedFd) -> bool {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    let kind = rustix::fs::fstatfs(file).map(|status| status.f_type);
    kind.is_ok_and(|kind| kind == TMPFS_MAGIC || kind == RAMFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::background::{self, Pace};

    #[test]
    fn after_a_failed_flush_nothing_is_written_and_everything_can_be_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8192).unwrap();
        let opened = open_file(file.path(), OpenMode::ReadWrite, false, false).unwrap();
        let status = rustix::fs::stat(file.path()).unwrap();
        let info = describe(
            file.path(),
            OpenMode::ReadWrite,
            &opened.0,
            &status,
            opened.1,
        )
        .unwrap();
        let device = FileDevice::new(opened.0, info, Backend::Automatic, None);
        device.flush().unwrap();
        device.flow.retire(Errno::IO);
        assert!(device.is_retired());
        assert!(matches!(
            device.flush(),
            Err(DeviceError::Retired {
                errno: Errno::IO,
                ..
            })
        ));
        assert!(device.write_at(0, Buffer::zeroed(512).into()).is_err());
        let batch = vec![
            Request::read(0, 512),
            Request::write(0, Buffer::zeroed(512)),
        ];
        let done = device.submit(batch).wait();
        assert!(done[0].result.is_ok() && done[1].result.is_err());
    }

    /// The thread that stores a group may hold locks when it submits, and gives to the device's own
    /// what is more than it does without a rest.
    #[test]
    fn writes_that_have_time_are_small_only_as_long_as_they_are_one_call() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let opened = open_file(file.path(), OpenMode::ReadWrite, false, false).unwrap();
        let status = rustix::fs::fstat(&opened.0).unwrap();
        let info = describe(file.path(), OpenMode::ReadWrite, &opened.0, &status, false).unwrap();
        let device = FileDevice::new(opened.0, info, Backend::Threads, None);
        let is_small = |length| {
            let flow = &device.flow;
            let requests = vec![Request::write(0, Buffer::zeroed(length))];
            let batch = BatchState::new(&flow.info.path, &flow.given_up, 0, requests);
            device.are_small_writes(&plan::plan(&batch, flow))
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                background::give_way();
                assert!(is_small(256 << 10) && !is_small((256 << 10) + 512));
                let pace = Arc::new(Pace::default());
                pace.ease_until(u64::MAX);
                background::keep_pace(Some(pace.clone()));
                assert!(is_small(64 << 10) && !is_small((64 << 10) + 512));
                pace.hurry();
                assert!(is_small(256 << 10));
            });
        });
    }

    #[test]
    fn others_are_let_in_before_a_call_that_may_wait_and_not_before_one_that_only_copies() {
        static WAITS: AtomicU64 = AtomicU64::new(0);
        crate::waiting::call_before_waits(|| _ = WAITS.fetch_add(1, Ordering::Relaxed));
        let waits = || WAITS.swap(0, Ordering::Relaxed);
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        let device = open(file.path(), OpenMode::ReadWrite, &DeviceOptions::default()).unwrap();
        let device = device.as_ref();
        device.write_at(0, Buffer::zeroed(512).into()).unwrap();
        assert_eq!(waits(), 0, "into memory");
        let opened = open_file(file.path(), OpenMode::ReadWrite, false, false).unwrap();
        let status = rustix::fs::fstat(&opened.0).unwrap();
        let info = describe(file.path(), OpenMode::ReadWrite, &opened.0, &status, false).unwrap();
        let device = FileDevice::new(opened.0, info, Backend::Threads, None);
        // As on a disk.
        device.inline.give_up();
        device.flush().unwrap();
        assert_eq!(waits(), 1);
        device.read_at(0, 512).unwrap();
        assert_eq!(waits(), 1);
        device.flow.turns.large(|| {
            device.write_at(0, Buffer::zeroed(512).into()).unwrap();
        });
        assert_eq!(waits(), 1, "for its turn");
    }
}
