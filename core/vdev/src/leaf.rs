//! A leaf: one device of the pool, as the pool uses it.
//!
//! # Mechanism
//! A leaf has a *window* on a device: all of it, or the partition of a disk that was given whole.
//! Offsets count from the start of the window. Behind the two front labels and the boot area the
//! data starts, which is where a block pointer's offset 0 is on a vdev of one device.
//!
//! A leaf that fails is not used any more (its [`Standing`]), and its [dirty time log](Dtl) grows.
//! One that is in use again is written; blocks whose birth is in its log are read from it only when
//! nothing else has them, for a checksum tells whether what it has is the block.
//!
//! What a leaf missed may still be in memory, to be written again while the pool is suspended: all
//! that was written through the tree since the last flush, if it was taken out of use since then.
//! Such a leaf can become whole again ([`suspension`](crate::suspension)).
//!
//! # Invariants
//! - What was written and not flushed is known: a leaf with such writes is flushed before an
//!   uberblock.
//! - After a failed flush a leaf is never used again before it is opened anew.
//! - A leaf is taken out of use with the births of all that it was sent and may not have.

use crate::config::{VdevConfig, VdevKind};
use crate::dtl::Dtl;
use crate::error::{LeafFailure, LeafFailureKind};
use crate::gpt;
use crate::health::{ErrorCounters, Reason, Standing, VdevState};
use crate::probes::LeafProbes;
use crate::queue::room::Room;
use crate::ranks;
use crate::sizes::DEVICE_BYTES_MIN;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tarn_host::{Device, DeviceError, DeviceInfo, Host, OpenError, OpenMode, RwLock};
use tarn_ondisk::declare::narrow;
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::units::{AllocatedSize, Guid, Txg};

/// How much is read to see whether a device answers.
const PROBE_BYTES: u64 = 8192;

/// A device, or the part of it that is the pool's.
#[derive(Debug, Clone)]
pub struct Window {
    device: Arc<dyn Device>,
    start_bytes: u64,
    size_bytes: u64,
}

impl Window {
    /// The whole of a device.
    pub fn whole(device: Arc<dyn Device>) -> Window {
        let size_bytes = device.describe().size_bytes;
        Window {
            device,
            start_bytes: 0,
            size_bytes,
        }
    }

    /// What a pool has of a device: all of it, or, in a file that is the image of a disk given to a
    /// pool whole, the partition that OpenZFS made there. Partitions of real disks have devices of
    /// their own.
    pub fn of_pool(device: Arc<dyn Device>) -> Window {
        let whole = Window::whole(device);
        if whole.info().is_block_device {
            return whole;
        }
        let length = gpt::START_BYTES.min(narrow(whole.size_bytes));
        let Ok(start) = whole.device.read_at(0, length) else {
            return whole;
        };
        match gpt::find_zfs_partition(&start, whole.size_bytes) {
            Some(partition) => Window {
                start_bytes: partition.start_bytes,
                size_bytes: partition.size_bytes,
                ..whole
            },
            None => whole,
        }
    }

    /// How large it is, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// What it is on.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        self.device.describe()
    }

    /// Fails if the device cannot even be read where its first label is.
    fn probe(&self) -> Result<(), DeviceError> {
        let length = narrow(PROBE_BYTES.min(self.size_bytes));
        self.device.read_at(self.start_bytes, length).map(|_| ())
    }

    /// Where on the device an offset of the window is.
    pub fn device_offset(&self, offset: u64) -> u64 {
        self.start_bytes + offset
    }
}

/// Opens the device at a path, for a pool.
///
/// # Errors
/// What the system said.
pub fn open_window(host: &Host, path: &Path, mode: OpenMode) -> Result<Window, OpenError> {
    host.open_device(path, mode).map(Window::of_pool)
}

/// One device of the pool.
#[derive(Debug)]
pub struct Leaf {
    /// Its name for good.
    pub guid: Guid,
    /// File or disk.
    pub kind: VdevKind,
    /// Where it is.
    pub path: Text,
    /// Sectors of its device may not be larger: blocks begin at any multiple of it.
    sector_bytes_max: u64,
    state: RwLock<LeafState>,
    has_unflushed: AtomicBool,
    /// The smallest birth of blocks that were written and not flushed; `u64::MAX` when there are
    /// none.
    unflushed_birth: AtomicU64,
    /// The largest birth of blocks that were ever written.
    newest_birth: AtomicU64,
    in_flight: AtomicU64,
    last_end: AtomicU64,
    /// It failed, and was not taken out of use, because nothing covers what it has.
    has_failed: AtomicBool,
    /// Its standing is stored, and holds when the pool is opened again.
    is_lasting: AtomicBool,
    /// The newest uberblock that was written to it, and the one that was tried last.
    written_uberblock: AtomicU64,
    tried_uberblock: AtomicU64,
    /// How many requests of each class its device has.
    pub(crate) room: Room,
    /// How often it erred.
    pub errors: ErrorCounters,
    /// What it did.
    pub probes: LeafProbes,
}

#[derive(Debug)]
struct LeafState {
    window: Option<Window>,
    standing: Standing,
    dtl: Dtl,
    /// From this birth on the log has txgs that the MOS may not have.
    unsaved_dtl: Option<Txg>,
    /// All that it missed is in memory, if this is still the number of the last flush.
    kept_since: Option<u64>,
}

impl LeafState {
    /// Adds to the dirty time log. Gives whether it was empty.
    fn miss(&mut self, births: RangeInclusive<Txg>) -> bool {
        let was_empty = self.dtl.is_empty();
        let first = *births.start();
        if self.dtl.add(births) {
            self.unsaved_dtl = Some(self.unsaved_dtl.map_or(first, |known| known.min(first)));
        }
        was_empty
    }

    /// It has all that it ever missed.
    fn forget_missed(&mut self) {
        self.dtl = Dtl::new();
        self.unsaved_dtl = None;
        self.kept_since = None;
    }
}

impl Leaf {
    /// A leaf that is not open yet, of a vdev whose blocks begin at multiples of so many bytes.
    pub(crate) fn new(config: &VdevConfig, sector_bytes_max: u64) -> Leaf {
        let path = config.path.clone().unwrap_or_default();
        Leaf {
            guid: config.guid,
            kind: config.kind,
            probes: LeafProbes::new(config.guid, &path),
            path,
            sector_bytes_max,
            state: RwLock::new(
                ranks::LEAF,
                LeafState {
                    window: None,
                    standing: not_open(),
                    dtl: Dtl::new(),
                    unsaved_dtl: None,
                    kept_since: None,
                },
            ),
            has_unflushed: AtomicBool::new(false),
            unflushed_birth: AtomicU64::new(u64::MAX),
            newest_birth: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            last_end: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
            is_lasting: AtomicBool::new(true),
            written_uberblock: AtomicU64::new(0),
            tried_uberblock: AtomicU64::new(0),
            room: Room::new(),
            errors: ErrorCounters::default(),
        }
    }

    /// The same device under the name of this configuration. It is counted anew.
    pub(crate) fn renamed(&self, config: &VdevConfig) -> Leaf {
        let load = |from: &AtomicU64| AtomicU64::new(from.load(Ordering::Relaxed));
        let leaf = Leaf::new(config, self.sector_bytes_max);
        let state = {
            let state = self.state.read();
            LeafState {
                window: state.window.clone(),
                dtl: state.dtl.clone(),
                ..*state
            }
        };
        *leaf.state.write() = state;
        // Writes under the old name may still be under way.
        leaf.set_unflushed(true);
        Leaf {
            has_failed: AtomicBool::new(self.has_failed.load(Ordering::Relaxed)),
            is_lasting: AtomicBool::new(self.is_lasting()),
            unflushed_birth: load(&self.unflushed_birth),
            newest_birth: load(&self.newest_birth),
            written_uberblock: load(&self.written_uberblock),
            tried_uberblock: load(&self.tried_uberblock),
            ..leaf
        }
    }

    /// Opens the device, if its stored condition allows. What comes of it is in the standing.
    pub(crate) fn open(&self, host: &Host, config: &VdevConfig, mode: OpenMode) {
        let condition = config.condition;
        let reason = condition.reason.map(Reason::from);
        let standing = if condition.faulted {
            let reason = reason.unwrap_or(Reason::ErrorsExceeded);
            Some(Standing::because(VdevState::Faulted, reason))
        } else if condition.offline {
            Some(Standing {
                state: VdevState::Offline,
                reason: None,
            })
        } else {
            None
        };
        if let Some(standing) = standing {
            return self.set_standing(standing);
        }
        match self.open_window(host, mode) {
            Ok(window) if window.size_bytes < DEVICE_BYTES_MIN => {
                self.set_standing(Standing::because(VdevState::Unavailable, Reason::TooSmall));
            }
            Ok(window) if !self.has_right_sectors(&window) => {
                self.set_standing(Standing::because(VdevState::Unavailable, Reason::BadAshift));
            }
            Ok(window) if window.probe().is_err() => {
                self.set_standing(Standing::because(
                    VdevState::Faulted,
                    Reason::ErrorsExceeded,
                ));
            }
            Ok(window) => {
                let standing = match condition.degraded {
                    true => Standing {
                        state: VdevState::Degraded,
                        reason,
                    },
                    false => Standing::ONLINE,
                };
                self.set_window(window, standing);
            }
            Err(_) if condition.removed => {
                self.set_standing(Standing {
                    state: VdevState::Removed,
                    reason: None,
                });
            }
            Err(_) => self.set_standing(not_open()),
        }
    }

    /// Whether its device can be asked for each block.
    fn has_right_sectors(&self, window: &Window) -> bool {
        u64::from(window.info().logical_sector_bytes) <= self.sector_bytes_max
    }

    fn open_window(&self, host: &Host, mode: OpenMode) -> Result<Window, OpenError> {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(self.path.as_bytes()));
        open_window(host, path, mode)
    }

    /// The device, if it can be used.
    pub fn window(&self) -> Option<Window> {
        let state = self.state.read();
        state
            .window
            .clone()
            .filter(|_| state.standing.state.is_usable())
    }

    /// How it is, and why.
    pub fn standing(&self) -> Standing {
        self.state.read().standing
    }

    /// True if it can be read and written.
    pub fn is_usable(&self) -> bool {
        let state = self.state.read();
        state.window.is_some() && state.standing.state.is_usable()
    }

    /// True if it can be relied on: usable, and its dirty time log is empty.
    pub fn is_whole(&self) -> bool {
        let state = self.state.read();
        state.window.is_some() && state.standing.state.is_usable() && state.dtl.is_empty()
    }

    /// The txgs whose blocks it misses.
    pub fn dtl(&self) -> Dtl {
        self.state.read().dtl.clone()
    }

    /// True if it misses blocks of this birth.
    #[doc(alias = "vdev_dtl_contains")]
    pub fn misses(&self, birth: Txg) -> bool {
        self.state.read().dtl.contains(birth)
    }

    /// It misses blocks of these births, which are not in memory any more. Gives whether it missed
    /// none before.
    pub fn add_to_dtl(&self, births: RangeInclusive<Txg>) -> bool {
        let mut state = self.state.write();
        state.kept_since = None;
        state.miss(births)
    }

    /// It has all that it ever missed. Gives whether it missed anything.
    pub fn clear_dtl(&self) -> bool {
        let mut state = self.state.write();
        let had_missed = !state.dtl.is_empty();
        state.forget_missed();
        had_missed
    }

    /// Adds what the MOS says that it misses. Gives whether it missed nothing before.
    pub(crate) fn load_dtl(&self, stored: &Dtl) -> bool {
        let mut state = self.state.write();
        let was_empty = state.dtl.is_empty();
        state.dtl.merge(stored);
        was_empty && !state.dtl.is_empty()
    }

    /// From which birth on its dirty time log has txgs that the MOS may not have.
    pub(crate) fn unsaved_dtl(&self) -> Option<Txg> {
        self.state.read().unsaved_dtl
    }

    /// The MOS has this of its dirty time log.
    pub fn note_saved_dtl(&self, saved: &Dtl) {
        let mut state = self.state.write();
        state.unsaved_dtl = state.dtl.first_beyond(saved);
    }

    /// Nothing was ever stored that was born later: the dirty time log ends there. One that says
    /// that something is missed goes on saying so.
    pub(crate) fn end_dtl(&self, newest: Txg) {
        let mut state = self.state.write();
        if state.dtl.is_empty() {
            return;
        }
        state.dtl = state.dtl.until(newest);
        if state.dtl.is_empty() {
            state.dtl.add(newest..=newest);
        }
        state.unsaved_dtl = state.unsaved_dtl.map(|known| known.min(newest));
    }

    /// Whether it stays as it is when the pool is opened again.
    pub(crate) fn is_lasting(&self) -> bool {
        self.is_lasting.load(Ordering::Relaxed)
    }

    /// Says whether it stays as it is when the pool is opened again.
    pub(crate) fn set_lasting(&self, is_lasting: bool) {
        self.is_lasting.store(is_lasting, Ordering::Relaxed);
    }

    /// Changes how it is. A device that is not usable any more is let go.
    pub(crate) fn set_standing(&self, standing: Standing) {
        let mut state = self.state.write();
        state.standing = standing;
        if !standing.state.is_usable() {
            state.window = None;
        }
    }

    fn set_window(&self, window: Window, standing: Standing) {
        let mut state = self.state.write();
        state.window = Some(window);
        state.standing = standing;
    }

    /// It failed, and nothing covers what it has.
    pub(crate) fn note_failed(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// The births of blocks that it was sent and may not have, and `next`, the txg that is stored
    /// next.
    fn doubtful(&self, next: Txg) -> RangeInclusive<Txg> {
        let first = self.unflushed_birth.load(Ordering::Relaxed).min(next.get());
        let last = self.newest_birth.load(Ordering::Relaxed).max(next.get());
        Txg::new(first)..=Txg::new(last)
    }

    /// Faulted, offline or gone: its dirty time log grows from here, since others cover what it
    /// has. What it misses is in memory since the flush of this number, or not at all; what it
    /// missed before is not.
    pub(crate) fn retire(&self, standing: Standing, kept_since: Option<u64>, next: Txg) {
        self.has_failed.store(false, Ordering::Relaxed);
        let doubtful = self.doubtful(next);
        let mut state = self.state.write();
        if state.miss(doubtful) {
            state.kept_since = kept_since;
        }
        state.standing = standing;
        state.window = None;
        assert!(
            !state.dtl.is_empty(),
            "a device out of use misses the next txg"
        );
    }

    /// It is out of use already, and something that it was sent has failed.
    pub(crate) fn note_failed_again(&self, next: Txg) {
        let doubtful = self.doubtful(next);
        self.state.write().miss(doubtful);
    }

    /// A write of a block of this birth has failed on it, and the others of its vdev have the
    /// block.
    pub(crate) fn note_missed(&self, birth: Txg) {
        self.state.write().miss(birth..=birth);
    }

    /// Blocks of these births are written to its vdev without it, if it is not in use. Gives
    /// whether these are the first that it misses. What it missed before may still be in memory.
    /// Since it was taken out of use it misses all that is born, so that its log needs no gaps.
    pub(crate) fn note_skipped(&self, births: &[Txg]) -> bool {
        if self.is_usable() {
            return false;
        }
        let mut state = self.state.write();
        let was_whole = state.dtl.is_empty();
        for birth in births {
            let newest = state.dtl.bounds().map(|bounds| *bounds.end());
            let first = newest.filter(|newest| newest < birth).unwrap_or(*birth);
            state.miss(first..=*birth);
        }
        was_whole && !state.dtl.is_empty()
    }

    /// Blocks of these births were written to its vdev that are not in memory any more. Gives
    /// whether it missed them, and none before.
    pub(crate) fn note_not_kept(&self, births: &[Txg]) -> bool {
        if self.is_usable() {
            return false;
        }
        self.has_failed.store(false, Ordering::Relaxed);
        let is_first = self.note_skipped(births);
        self.state.write().kept_since = None;
        is_first
    }

    /// Whether it may be taken back while the pool is suspended: it failed and nothing covers it,
    /// or all that it missed is in memory, as this is the number of the last flush.
    pub(crate) fn wants_reopening(&self, generation: u64) -> bool {
        let failed = self.has_failed.load(Ordering::Relaxed);
        failed || self.state.read().kept_since == Some(generation)
    }

    /// Opens the device anew. Until it [is back](Self::note_back) it may lack whatever was written
    /// since this flush, the last one.
    pub(crate) fn reopen(&self, host: &Host, generation: u64, next: Txg) {
        let doubtful = self.doubtful(next);
        let before = {
            let mut state = self.state.write();
            if state.miss(doubtful) {
                state.kept_since = Some(generation);
                // If the pool goes on without it, it is no longer one that nothing covers.
                self.has_failed.store(false, Ordering::Relaxed);
            }
            state.window.take()
        };
        let mode = before.as_ref().map(|window| window.info().mode);
        let mode = mode.unwrap_or(OpenMode::ReadWriteExclusive);
        if let Some(window) = &before
            && window.device().silent_ns() > 0
        {
            window.device().give_up();
        }
        // Only then it is free to be opened.
        drop(before);
        let opened = self.open_window(host, mode);
        let opened = opened.ok().filter(|window| {
            window.size_bytes >= DEVICE_BYTES_MIN
                && self.has_right_sectors(window)
                && window.probe().is_ok()
        });
        let Some(window) = opened else {
            return self.set_standing(not_open());
        };
        self.set_unflushed(true);
        self.set_window(window, Standing::ONLINE);
    }

    /// It is what it was. It is whole if all that it missed is in memory, as this is the number of
    /// the last flush: that is to be written to it before the pool goes on.
    pub(crate) fn note_back(&self, generation: u64) {
        self.has_failed.store(false, Ordering::Relaxed);
        let mut state = self.state.write();
        if state.kept_since == Some(generation) {
            state.forget_missed();
        }
    }

    /// It is what it was, and its vdev holds nothing that it could have missed.
    pub(crate) fn note_back_empty(&self) {
        self.has_failed.store(false, Ordering::Relaxed);
        self.clear_dtl();
    }

    /// The newest uberblock on it, as it was found when it was opened.
    pub(crate) fn note_found_uberblock(&self, txg: Txg) {
        self.written_uberblock.store(txg.get(), Ordering::Relaxed);
        self.tried_uberblock.store(txg.get(), Ordering::Relaxed);
    }

    /// An uberblock is on its way to it.
    pub(crate) fn note_tried_uberblock(&self, txg: Txg) {
        self.tried_uberblock.store(txg.get(), Ordering::Relaxed);
    }

    /// That uberblock is durable.
    pub(crate) fn note_written_uberblock(&self) {
        let tried = self.tried_uberblock.load(Ordering::Relaxed);
        self.written_uberblock.store(tried, Ordering::Relaxed);
    }

    /// Whether all uberblocks that were written to it are older.
    pub(crate) fn has_only_before(&self, txg: Txg) -> bool {
        self.written_uberblock.load(Ordering::Relaxed) < txg.get()
    }

    /// Whether this can be the newest uberblock on it.
    pub(crate) fn is_newest_uberblock(&self, txg: Txg) -> bool {
        let known = [&self.written_uberblock, &self.tried_uberblock];
        known
            .iter()
            .any(|known| known.load(Ordering::Relaxed) == txg.get())
    }

    /// How long its device has given no answer, though it owes some.
    pub(crate) fn silent_ns(&self) -> u64 {
        let state = self.state.read();
        let window = state.window.as_ref();
        window.map_or(0, |window| window.device().silent_ns())
    }

    /// Requests to its device fail instead of waiting for it.
    pub(crate) fn give_up(&self) {
        let state = self.state.read();
        if let Some(window) = &state.window {
            window.device().give_up();
        }
    }

    /// Lets the device go. Nothing that it is asked for then is done.
    pub(crate) fn close(&self) {
        self.set_standing(not_open());
    }

    /// The room it has for data.
    pub fn data_size(&self) -> Option<AllocatedSize> {
        let window = self.window()?;
        tarn_ondisk::label::data_size(window.size_bytes)
    }

    /// True if something was written that is not flushed.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.has_unflushed.load(Ordering::Acquire)
    }

    pub(crate) fn set_unflushed(&self, has_unflushed: bool) {
        self.has_unflushed.store(has_unflushed, Ordering::Release);
    }

    /// Blocks of these births are being written, or were.
    pub(crate) fn note_written(&self, births: RangeInclusive<Txg>) {
        let (first, last) = (births.start().get(), births.end().get());
        self.unflushed_birth.fetch_min(first, Ordering::AcqRel);
        self.newest_birth.fetch_max(last, Ordering::AcqRel);
    }

    /// It is about to be flushed. Gives what it takes to [take that back](Self::flush_failed).
    pub(crate) fn begin_flush(&self) -> Unflushed {
        // Before, not after: what is written meanwhile is not covered.
        self.set_unflushed(false);
        Unflushed(self.unflushed_birth.swap(u64::MAX, Ordering::AcqRel))
    }

    /// The flush has failed: what was written before it is not durable.
    pub(crate) fn flush_failed(&self, before: Unflushed) {
        self.unflushed_birth.fetch_min(before.0, Ordering::AcqRel);
        self.set_unflushed(true);
    }

    /// How many bytes it is reading or writing.
    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn begin(&self, bytes: u64, end: u64) {
        self.in_flight.fetch_add(bytes, Ordering::Relaxed);
        self.last_end.store(end, Ordering::Relaxed);
    }

    pub(crate) fn end(&self, bytes: u64) {
        self.in_flight.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// How far from where its last request ended.
    pub(crate) fn distance(&self, offset: u64) -> u64 {
        self.last_end.load(Ordering::Relaxed).abs_diff(offset)
    }

    /// What goes into an error when it cannot be used.
    pub(crate) fn not_usable(&self) -> LeafFailure {
        self.failure(LeafFailureKind::NotUsable(self.standing()))
    }

    /// What goes into an error when the device reported one.
    pub(crate) fn device_failure(&self, error: DeviceError) -> LeafFailure {
        self.failure(LeafFailureKind::Device(error))
    }

    /// What goes into an error when its bytes did not verify.
    pub(crate) fn checksum_failure(&self) -> LeafFailure {
        self.failure(LeafFailureKind::Checksum)
    }

    fn failure(&self, why: LeafFailureKind) -> LeafFailure {
        LeafFailure {
            guid: self.guid,
            path: self.path.clone(),
            why,
        }
    }
}

/// What was not flushed when a flush began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unflushed(u64);

fn not_open() -> Standing {
    Standing::because(VdevState::Unavailable, Reason::OpenFailed)
}
