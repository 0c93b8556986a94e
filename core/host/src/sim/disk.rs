//! Simulated disks: they remember what was flushed, and fail as they are told.
//!
//! # Mechanism
//! A disk has two images: what a reader sees now, and what would certainly survive a power cut. A
//! write changes the first and is kept in a list; when a flush ends, the part of the list that was
//! complete before it began is applied to the second. After a power cut the seed decides, for each
//! write that is still in the list, whether it survives whole, in part (torn at sectors of 512 or
//! 4096 bytes), or not at all; and for overlapping writes, which of them came last.
//!
//! Data moves when requests are submitted; the time it takes is then waited for. A write that has
//! not completed counts as not flushed, and so does one whose flush has not, so a power cut finds
//! it in any state.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use parking_lot::{Mutex, MutexGuard};

use super::baton::{self, Scheduler};
use super::disk_model::{ArmUse, Arms, DiskModel};
use super::image::Image;
use super::machine::{Machine, SimWrite};
use super::random::Random;
use crate::batch::{Batch, Completion, Lateness};
use crate::buffer::Buffer;
use crate::device::{Device, DeviceInfo, Request};
use crate::error::{Action, DeviceError, Errno};

/// Something that goes wrong with a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The `nth` request of this kind from now on fails (0 is the next one).
    FailNth {
        /// Which kind.
        action: Action,
        /// How many succeed before.
        nth: u64,
        /// With which error.
        errno: Errno,
    },
    /// Requests of this kind that touch this range fail.
    FailRange {
        /// Which kind.
        action: Action,
        /// Where, in bytes.
        range: Range<u64>,
        /// With which error.
        errno: Errno,
    },
    /// The `nth` write from now on is reported as done and is not.
    LoseWrite {
        /// How many are done before.
        nth: u64,
    },
    /// The `nth` write from now on goes elsewhere.
    MisdirectWrite {
        /// How many are done before.
        nth: u64,
        /// Where it goes, in bytes.
        to: u64,
    },
    /// Flushes are reported as done and are not.
    IgnoreFlushes,
    /// The power of the whole machine is cut when the `nth` flush from now on is done, before its
    /// caller gets the result.
    CutAfterFlush {
        /// How many are done before.
        nth: u64,
    },
    /// Everything takes so many times as long.
    Slow {
        /// How many times.
        factor: u32,
    },
    /// Some writes take longer, and what comes later is done first, as when a disk tries a sector
    /// again.
    Late {
        /// One in so many.
        one_in: u64,
        /// By how much at most, in nanoseconds; a tenth of it, a hundredth and so on are as likely.
        by_ns_max: u64,
    },
    /// It is gone, as if pulled: whatever is asked fails.
    Vanish,
    /// It does not answer any more, neither well nor ill, until its faults are cleared.
    Hang,
}

/// A simulated disk, as tests see it.
#[derive(Clone)]
pub struct SimDisk {
    pub(super) disk: Arc<Disk>,
    pub(super) scheduler: Arc<Scheduler>,
}

impl SimDisk {
    /// Something goes wrong from now on.
    pub fn inject(&self, fault: Fault) {
        self.disk.state.lock().faults.push(fault);
    }

    /// From now on it takes as long as a disk with arms.
    pub fn set_model(&self, model: DiskModel) {
        self.disk.state.lock().arms = Some(Arms::new(model));
    }

    /// What its arms have done since it got a model.
    pub fn arm_use(&self) -> ArmUse {
        let state = self.disk.state.lock();
        state
            .arms
            .as_ref()
            .map(Arms::use_so_far)
            .unwrap_or_default()
    }

    /// Nothing goes wrong any more; what was lost stays lost.
    pub fn clear_faults(&self) {
        let now_ns = self.scheduler.time_ns();
        let mut state = self.disk.state.lock();
        state.faults.clear();
        state.hung_since_ns = None;
        // What it owes is done now.
        let done = |ns: u64| if ns == NEVER { now_ns } else { ns };
        for write in &mut state.unflushed {
            write.completes_ns = done(write.completes_ns);
            write.durable_ns = write.durable_ns.map(done);
        }
        state.settles_ns = state.settles_ns.min(now_ns);
    }

    /// Its state as of now.
    fn state(&self) -> MutexGuard<'_, DiskState> {
        let now_ns = self.scheduler.time_ns();
        let mut state = self.disk.state.lock();
        state.settle(now_ns);
        state
    }

    /// Damages bytes where they lie, on the medium: each becomes another one.
    pub fn rot(&self, range: Range<u64>) {
        let length =
            usize::try_from(range.end.saturating_sub(range.start)).expect("it fits memory");
        let mut bytes = vec![0; length];
        let state = &mut *self.state();
        for image in [&mut state.current, &mut state.durable] {
            image.read(range.start, &mut bytes);
            bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
            image.write(range.start, &bytes);
        }
    }

    /// What a reader would see, whatever is wrong with the disk.
    pub fn peek(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.disk.state.lock().current.read(offset, &mut bytes);
        bytes
    }

    /// Changes bytes without a write, as decay does.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        let mut state = self.state();
        state.current.write(offset, bytes);
        state.durable.write(offset, bytes);
    }

    /// A copy of what would certainly survive a power cut now.
    pub fn keep(&self) -> DiskCopy {
        DiskCopy(self.state().durable.clone())
    }

    /// It is again as it was when this copy was taken, as a disk that was away for a while.
    pub fn put_back(&self, copy: &DiskCopy) {
        let mut state = self.disk.state.lock();
        state.current = copy.0.clone();
        state.durable = copy.0.clone();
        state.unflushed.clear();
    }

    /// Gives all pages that a reader would see, with their offsets; what is between them is zero.
    pub fn for_each_page(&self, mut each: impl FnMut(u64, &[u8])) {
        let image = self.disk.state.lock().current.clone();
        for (offset, bytes) in image.pages() {
            each(offset, bytes);
        }
    }

    /// How large it is.
    pub fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    /// Makes it larger.
    pub fn grow(&self, size_bytes: u64) {
        let mut state = self.disk.state.lock();
        state.size_bytes = state.size_bytes.max(size_bytes);
    }

    /// Its cache is lost, as when only the disk is without power for a moment: what was not flushed
    /// is gone.
    pub fn lose_unflushed(&self) {
        let mut state = self.state();
        state.unflushed.clear();
        state.current = state.durable.clone();
    }

    /// How many writes a power cut could lose now.
    pub fn unflushed_writes(&self) -> usize {
        self.state().unflushed.len()
    }

    /// How many requests of each kind it was given: reads, writes, flushes.
    pub fn requests(&self) -> (u64, u64, u64) {
        self.disk.state.lock().requests
    }
}

/// What was on a disk at some moment.
#[derive(Clone)]
pub struct DiskCopy(Image);

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDisk({})", self.disk.path.display())
    }
}

/// A disk of a simulated machine.
pub(super) struct Disk {
    pub(super) path: Arc<Path>,
    pub(super) number: u64,
    /// The hosts that have opened it exclusively.
    taken_by: Mutex<BTreeSet<u64>>,
    state: Mutex<DiskState>,
}

struct DiskState {
    size_bytes: u64,
    current: Image,
    durable: Image,
    unflushed: Vec<Unflushed>,
    /// When the first flush under way ends.
    settles_ns: u64,
    faults: Vec<Fault>,
    /// Requests are served one after the other, unless there is a model of its arms.
    busy_until_ns: u64,
    arms: Option<Arms>,
    requests: (u64, u64, u64),
    /// Since when it owes an answer that does not come.
    hung_since_ns: Option<u64>,
}

/// When a request to a disk that does not answer is done.
const NEVER: u64 = u64::MAX;

/// How often a thread that waits for such a disk looks again.
const LOOK_INTERVAL_NS: u64 = 50_000_000;

/// A write that is not durable yet.
struct Unflushed {
    offset: u64,
    data: Vec<u8>,
    completes_ns: u64,
    /// When the flush ends that covers it. Until then it is unknown how much of it is on the
    /// medium.
    durable_ns: Option<u64>,
}

/// What a fault does to one request.
enum Effect {
    None,
    Fail(Errno),
    Lose,
    Misdirect(u64),
    CutPower,
}

impl Disk {
    pub(super) fn new(path: &Path, number: u64, size_bytes: u64) -> Disk {
        Disk::with_image(path.into(), number, size_bytes, Image::default())
    }

    fn with_image(path: Arc<Path>, number: u64, size_bytes: u64, image: Image) -> Disk {
        let state = DiskState {
            size_bytes,
            durable: image.clone(),
            current: image,
            unflushed: Vec::new(),
            settles_ns: NEVER,
            faults: Vec::new(),
            busy_until_ns: 0,
            arms: None,
            requests: (0, 0, 0),
            hung_since_ns: None,
        };
        Disk {
            path,
            number,
            taken_by: Mutex::new(BTreeSet::new()),
            state: Mutex::new(state),
        }
    }

    /// Opens it exclusively for a host. False if a program of that host has it.
    pub(super) fn take(&self, seat: u64) -> bool {
        self.taken_by.lock().insert(seat)
    }

    /// Closes it for a host that had it exclusively.
    pub(super) fn leave(&self, seat: u64) {
        self.taken_by.lock().remove(&seat);
    }

    fn has_arms(&self) -> bool {
        self.state.lock().arms.is_some()
    }

    fn is_hung(&self) -> bool {
        self.state.lock().faults.contains(&Fault::Hang)
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.state.lock().size_bytes
    }

    /// The disk as it may look after power was cut and came back. Its faults stay with it.
    pub(super) fn after_power_cut(&self, cut_ns: u64, random: &mut Random) -> Disk {
        let mut state = self.state.lock();
        state.settle(cut_ns);
        let mut image = state.durable.clone();
        for (offset, bytes) in survivors(&state.unflushed, random) {
            image.write(offset, bytes);
        }
        let disk = Disk::with_image(self.path.clone(), self.number, state.size_bytes, image);
        disk.state.lock().faults.clone_from(&state.faults);
        disk
    }
}

/// How much of what was not flushed survives a power cut, in eighths.
const FATES: [u64; 5] = [0, 1, 4, 7, 8];

/// The pieces of writes that survive, in the order they reach the medium.
fn survivors<'a>(unflushed: &'a [Unflushed], random: &mut Random) -> Vec<(u64, &'a [u8])> {
    let eighths = FATES[random.index(FATES.len())];
    let sector: usize = if random.chance(1, 2) { 512 } else { 4096 };
    let in_order = random.chance(1, 2);
    let mut pieces = Vec::new();
    for write in unflushed {
        let survives = random.chance(eighths, 8);
        let is_torn = random.chance(1, 4);
        for (index, piece) in write.data.chunks(sector).enumerate() {
            let survives = if is_torn {
                random.chance(eighths, 8)
            } else {
                survives
            };
            if survives {
                let start = u64::try_from(index * sector).expect("less than 2^64");
                pieces.push((write.offset + start, piece));
            }
        }
    }
    if !in_order {
        random.shuffle(&mut pieces);
    }
    pieces
}

impl DiskState {
    fn effect_on(&mut self, action: Action, offset: u64, length: u64) -> Effect {
        let mut effect = Effect::None;
        self.faults.retain_mut(|fault| {
            if !matches!(effect, Effect::None) {
                return true;
            }
            let (found, keeps) = fault.effect_on(action, offset, length);
            effect = found;
            keeps
        });
        effect
    }

    fn slowness(&self) -> u64 {
        let factor = |fault: &Fault| match fault {
            Fault::Slow { factor } => Some(u64::from(*factor)),
            _ => None,
        };
        self.faults.iter().filter_map(factor).max().unwrap_or(1)
    }

    /// When a request begins that comes now, and how long it takes.
    fn schedule(
        &mut self,
        (action, offset, length): (Action, u64, u64),
        now_ns: u64,
        random: &mut Random,
    ) -> (u64, u64) {
        let slowness = self.slowness();
        if let Some(arms) = self.arms.as_mut().filter(|_| action != Action::Flush) {
            let (begin_ns, service_ns) = arms.serve(offset, length, now_ns);
            return (begin_ns, service_ns * slowness);
        }
        let service_ns = service_ns(length, random) * slowness;
        let begin_ns = self.busy_until_ns.max(now_ns);
        self.busy_until_ns = begin_ns + service_ns;
        (begin_ns, service_ns)
    }

    /// By how much a write is late.
    fn lateness_ns(&self, random: &mut Random) -> u64 {
        let late = self.faults.iter().find_map(|fault| match fault {
            Fault::Late { one_in, by_ns_max } => Some((*one_in, *by_ns_max)),
            _ => None,
        });
        match late {
            Some((one_in, by_ns_max)) if random.below(one_in.max(1)) == 0 => {
                random.magnitude(by_ns_max)
            }
            _ => 0,
        }
    }

    /// Makes durable at `end_ns` what was complete at `now_ns`.
    fn flush(&mut self, now_ns: u64, end_ns: u64) {
        if self.faults.contains(&Fault::IgnoreFlushes) {
            return;
        }
        for write in &mut self.unflushed {
            if write.completes_ns <= now_ns {
                let durable_ns = write.durable_ns.unwrap_or(NEVER);
                write.durable_ns = Some(durable_ns.min(end_ns));
            }
        }
        self.settles_ns = self.settles_ns.min(end_ns);
    }

    /// What flushes have made durable that ended by `now_ns`.
    fn settle(&mut self, now_ns: u64) {
        if self.settles_ns > now_ns {
            return;
        }
        let is_durable = |write: &Unflushed| write.durable_ns.is_some_and(|ns| ns <= now_ns);
        let (durable, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unflushed)
            .into_iter()
            .partition(is_durable);
        for write in durable {
            self.durable.write(write.offset, &write.data);
        }
        let left = others.iter().filter_map(|write| write.durable_ns);
        self.settles_ns = left.min().unwrap_or(NEVER);
        self.unflushed = others;
    }

    fn write(&mut self, offset: u64, data: Vec<u8>, completes_ns: u64) {
        self.current.write(offset, &data);
        self.unflushed.push(Unflushed {
            offset,
            data,
            completes_ns,
            durable_ns: None,
        });
    }
}

impl Fault {
    /// What it does to a request, and whether it stays for the next.
    fn effect_on(&mut self, action: Action, offset: u64, length: u64) -> (Effect, bool) {
        let counted = |nth: &mut u64, effect| match nth.checked_sub(1) {
            None => (effect, false),
            Some(left) => {
                *nth = left;
                (Effect::None, true)
            }
        };
        match self {
            Fault::FailNth {
                action: wanted,
                nth,
                errno,
            } if *wanted == action => {
                let errno = *errno;
                counted(nth, Effect::Fail(errno))
            }
            Fault::FailRange {
                action: wanted,
                range,
                errno,
            } => {
                let touches = offset < range.end && range.start < offset + length;
                let fails = *wanted == action && touches;
                (
                    if fails {
                        Effect::Fail(*errno)
                    } else {
                        Effect::None
                    },
                    true,
                )
            }
            Fault::LoseWrite { nth } if action == Action::Write => counted(nth, Effect::Lose),
            Fault::MisdirectWrite { nth, to } if action == Action::Write => {
                let to = *to;
                counted(nth, Effect::Misdirect(to))
            }
            Fault::CutAfterFlush { nth } if action == Action::Flush => {
                counted(nth, Effect::CutPower)
            }
            Fault::Vanish => (Effect::Fail(Errno::NO_DEVICE), true),
            _ => (Effect::None, true),
        }
    }
}

/// A simulated disk that was opened.
pub(super) struct SimDevice {
    pub(super) disk: Arc<Disk>,
    pub(super) machine: Arc<Machine>,
    /// The host that opened it.
    pub(super) seat: u64,
    pub(super) info: DeviceInfo,
    /// The error of the flush that failed; 0 if none.
    pub(super) retired: AtomicI32,
    pub(super) given_up: Arc<AtomicBool>,
}

impl fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimDevice({})", self.info.path.display())
    }
}

impl Drop for SimDevice {
    fn drop(&mut self) {
        if self.info.mode == crate::device::OpenMode::ReadWriteExclusive {
            self.disk.leave(self.seat);
        }
    }
}

impl Device for SimDevice {
    fn describe(&self) -> &DeviceInfo {
        &self.info
    }

    fn size_bytes_now(&self) -> Result<u64, DeviceError> {
        Ok(self.disk.size_bytes())
    }

    fn submit(&self, requests: Vec<Request>) -> Batch {
        if let Some(me) = baton::current() {
            me.may_switch();
        }
        let scheduler = self.machine.scheduler();
        let mut random = scheduler.with_random(Random::fork);
        let now_ns = scheduler.now_ns();
        let actions = requests.iter().map(|request| shape(request).0).collect();
        let mut order: Vec<(usize, Request)> = requests.into_iter().enumerate().collect();
        match self.disk.has_arms() {
            // A disk with arms serves what it has by place: neighbours cost one seek.
            true => order.sort_by_key(|(place, request)| (shape(request).1, *place)),
            false => random.shuffle(&mut order),
        }
        let mut done: Vec<(usize, Completion)> = Vec::with_capacity(order.len());
        for (place, request) in order {
            done.push((place, self.serve(request, now_ns, &mut random)));
        }
        done.sort_by_key(|(place, _)| *place);
        let took =
            |(_, completion): &(usize, Completion)| completion.queue_ns + completion.service_ns;
        let ready_ns = now_ns + done.iter().map(took).max().unwrap_or(0);
        Batch::simulated(SimulatedBatch {
            completions: done.into_iter().map(|(_, completion)| completion).collect(),
            actions,
            disk: self.disk.clone(),
            given_up: self.given_up.clone(),
            ready_ns,
            scheduler: scheduler.clone(),
        })
    }

    fn is_retired(&self) -> bool {
        self.retirement().is_some()
    }

    fn silent_ns(&self) -> u64 {
        let since_ns = self.disk.state.lock().hung_since_ns;
        let now_ns = self.machine.scheduler().now_ns();
        since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns))
    }

    fn give_up(&self) {
        self.given_up.store(true, Ordering::Release);
    }
}

impl SimDevice {
    fn serve(&self, request: Request, now_ns: u64, random: &mut Random) -> Completion {
        let (action, offset, length) = shape(&request);
        self.machine
            .scheduler()
            .note(offset ^ length << 32 ^ self.disk.number << 56);
        let mut state = self.disk.state.lock();
        state.settle(now_ns);
        let (begin_ns, mut service_ns) = state.schedule((action, offset, length), now_ns, random);
        if action == Action::Write {
            service_ns += state.lateness_ns(random);
        }
        let mut end_ns = begin_ns + service_ns;
        if state.faults.contains(&Fault::Hang) {
            state.hung_since_ns.get_or_insert(now_ns);
            end_ns = NEVER;
        }
        let mut is_last = false;
        let result = match self.check(&state, action, offset, length) {
            Err(error) => Err(error),
            Ok(()) => {
                let effect = state.effect_on(action, offset, length);
                is_last = matches!(effect, Effect::CutPower);
                self.carry_out(&mut state, request, effect, (now_ns, end_ns))
            }
        };
        drop(state);
        if is_last {
            self.machine.cut_power();
        }
        if action != Action::Read {
            self.machine.count_write();
        }
        if !matches!(action, Action::Read | Action::Flush) {
            self.machine.note_write(SimWrite {
                at_ns: now_ns,
                host: self.seat,
                offset,
                length,
            });
        }
        Completion {
            result,
            queue_ns: begin_ns - now_ns,
            service_ns,
        }
    }

    fn check(
        &self,
        state: &DiskState,
        action: Action,
        offset: u64,
        length: u64,
    ) -> Result<(), DeviceError> {
        let path = || self.info.path.clone();
        if !self.machine.has_power() {
            let errno = Errno::NO_DEVICE;
            return Err(DeviceError::Io {
                path: path(),
                action,
                offset,
                length,
                errno,
            });
        }
        if self.given_up.load(Ordering::Acquire) {
            let path = path();
            return Err(DeviceError::GivenUp { path, action });
        }
        if action != Action::Read {
            if !self.info.mode.may_write() {
                return Err(DeviceError::ReadOnly {
                    path: path(),
                    action,
                });
            }
            if let Some(errno) = self.retirement() {
                return Err(DeviceError::Retired {
                    path: path(),
                    action,
                    errno,
                });
            }
        }
        let size_bytes = state.size_bytes;
        if offset
            .checked_add(length)
            .is_none_or(|end| end > size_bytes)
        {
            return Err(DeviceError::OutOfRange {
                path: path(),
                action,
                offset,
                length,
                size_bytes,
            });
        }
        let sector = u64::from(self.info.logical_sector_bytes);
        assert_eq!(
            (offset % sector, length % sector),
            (0, 0),
            "requests are whole sectors"
        );
        Ok(())
    }

    fn carry_out(
        &self,
        state: &mut DiskState,
        request: Request,
        effect: Effect,
        (now_ns, end_ns): (u64, u64),
    ) -> Result<Option<Buffer>, DeviceError> {
        let (action, offset, length) = shape(&request);
        let counts = &mut state.requests;
        match action {
            Action::Read => counts.0 += 1,
            Action::Flush => counts.2 += 1,
            _ => counts.1 += 1,
        }
        if let Effect::Fail(errno) = effect {
            if action == Action::Flush {
                self.retired.store(errno.0, Ordering::Relaxed);
            }
            let path = self.info.path.clone();
            return Err(DeviceError::Io {
                path,
                action,
                offset,
                length,
                errno,
            });
        }
        match request {
            Request::Read { offset, mut buffer } => {
                state.current.read(offset, &mut buffer);
                return Ok(Some(buffer));
            }
            Request::Write { offset, data } => match effect {
                Effect::Lose => {}
                Effect::Misdirect(to) => state.write(to, data.to_vec(), end_ns),
                _ => state.write(offset, data.to_vec(), end_ns),
            },
            Request::Flush => {
                let is_done = matches!(effect, Effect::CutPower) || baton::current().is_none();
                state.flush(now_ns, if is_done { now_ns } else { end_ns });
            }
            // What was given up reads as zeroes, the cruellest of what is allowed.
            Request::Discard { offset, length } | Request::WriteZeroes { offset, length } => {
                let zeroes = vec![0; usize::try_from(length).expect("a range fits memory")];
                state.write(offset, zeroes, end_ns);
            }
        }
        Ok(None)
    }

    fn retirement(&self) -> Option<Errno> {
        Some(Errno(self.retired.load(Ordering::Relaxed))).filter(|errno| errno.0 != 0)
    }
}

fn shape(request: &Request) -> (Action, u64, u64) {
    let long = |length: usize| u64::try_from(length).expect("less than 2^64");
    match request {
        Request::Read { offset, buffer } => (Action::Read, *offset, long(buffer.len())),
        Request::Write { offset, data } => (Action::Write, *offset, long(data.len())),
        Request::Flush => (Action::Flush, 0, 0),
        Request::Discard { offset, length } => (Action::Discard, *offset, *length),
        Request::WriteZeroes { offset, length } => (Action::WriteZeroes, *offset, *length),
    }
}

/// 20 to 120 µs, and 1 ns a byte: an SSD of no great speed.
fn service_ns(length: u64, random: &mut Random) -> u64 {
    20_000 + random.below(100_000) + length
}

/// A batch that is done when its time has come.
pub(crate) struct SimulatedBatch {
    completions: Vec<Completion>,
    actions: Vec<Action>,
    disk: Arc<Disk>,
    given_up: Arc<AtomicBool>,
    ready_ns: u64,
    scheduler: Arc<Scheduler>,
}

impl fmt::Debug for SimulatedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimulatedBatch({})", self.completions.len())
    }
}

impl SimulatedBatch {
    /// Waits, if the caller lives in virtual time.
    pub(crate) fn wait(self, lateness: Lateness, late: &mut dyn FnMut(u64)) -> Vec<Completion> {
        if let Some(me) = baton::current().filter(|me| me.is_of(&self.scheduler)) {
            let began_ns = self.scheduler.now_ns();
            let mut late_ns = began_ns.saturating_add(lateness.first_ns);
            let mut look = |now_ns: u64| {
                if now_ns >= late_ns {
                    let waited_ns = now_ns - began_ns;
                    late_ns = began_ns.saturating_add(lateness.next_ns(waited_ns));
                    late(waited_ns);
                }
                late_ns
            };
            let mut next_ns = look(began_ns);
            while next_ns < self.ready_ns {
                me.sleep_until(next_ns, "a device");
                next_ns = look(self.scheduler.now_ns());
            }
            me.sleep_until(self.ready_ns, "a device");
            while self.disk.is_hung() {
                if self.given_up.load(Ordering::Acquire) {
                    return self.nothing_came();
                }
                let later_ns = self.scheduler.now_ns() + LOOK_INTERVAL_NS;
                me.sleep_until(later_ns, "a device that does not answer");
                look(self.scheduler.now_ns());
            }
        }
        self.completions
    }

    /// What waiting threads get when the disk was given up.
    fn nothing_came(self) -> Vec<Completion> {
        let given_up = |(completion, action): (Completion, Action)| {
            let path = self.disk.path.clone();
            let result = Err(DeviceError::GivenUp { path, action });
            Completion {
                result,
                ..completion
            }
        };
        let asked = self.completions.into_iter().zip(self.actions);
        asked.map(given_up).collect()
    }
}
