//! A leaf: one device of the pool, with its standing and its dirty time log.
//!
//! # Mechanism
//! A leaf has a *window* on a device: all of it, or the partition of a disk that was given whole.
//! Offsets count from the start of the window. Behind the two front labels and the boot area the
//! data starts, which is where a block pointer's offset 0 is on a vdev of one device.
//!
//! A leaf that fails is taken out of use (its [`Standing`]), and its [dirty time log](Dtl) grows. A
//! leaf that is in use again is written to. A block whose birth is in its log is read from it only
//! when no other device has it; the checksum then shows whether the leaf has the block.
//!
//! All writes since the last flush of the tree are in memory. A leaf that was taken out of use
//! since then can become whole again when these are written to it
//! ([`suspension`](crate::suspension)).
//!
//! # Invariants
//! - A leaf with unflushed writes is marked, and flushed before an uberblock is written.
//! - After a failed flush a leaf is never used again before it is opened anew.
//! - The dirty time log of a leaf that is taken out of use has the births of all writes that it may
//!   not have.

use crate::config::{VdevConfig, VdevKind};
use crate::dtl::Dtl;
use crate::error::{LeafFailure, LeafFailureKind};
use crate::gpt;
use crate::health::{ErrorCounters, Reason, Standing, VdevState};
use crate::probes::LeafProbes;
use crate::queue::classes::is_waited_for;
use crate::queue::depth::Depth;
use crate::queue::gaps::Gaps;
use crate::queue::room::Room;
use crate::queue::sweeps::Sweeps;
use crate::ranks;
use crate::reports::{Report, ReportKind, ReportedIo, Reports};
use crate::sizes::DEVICE_BYTES_MIN;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tarn_host::{Device, DeviceError, DeviceInfo, Host, Mutex, OpenError, OpenMode, RwLock};
use tarn_ondisk::declare::narrow;
use tarn_ondisk::nvlist::Text;
use tarn_ondisk::units::{AllocatedSize, Guid, Txg};
use tarn_probe::IoPriority;

/// So long after a request for an application or txg, others give way.
const ASKED_NS: u64 = 100_000_000;

/// How much is read to find out whether a device answers.
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

    /// The window of a pool on a device: all of it, or, in a file that is the image of a whole
    /// disk, the partition that OpenZFS made there. Partitions of real disks have devices of their
    /// own.
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

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The description of the device.
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
/// The error of the system.
pub fn open_window(host: &Host, path: &Path, mode: OpenMode) -> Result<Window, OpenError> {
    host.open_device(path, mode).map(Window::of_pool)
}

/// One device of the pool.
#[derive(Debug)]
pub struct Leaf {
    /// Its name for good.
    pub guid: Guid,
    /// Whether it is a file or a disk.
    pub kind: VdevKind,
    /// Where it is.
    pub path: Text,
    /// The sectors of its device may not be larger: blocks begin at any multiple of this.
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
    /// It failed and stays in use, because the other leaves of its vdev do not have all its blocks.
    has_failed: AtomicBool,
    /// What the last scan, and the last rebuild, has written to it, in bytes.
    scan_written_bytes: AtomicU64,
    rebuild_written_bytes: AtomicU64,
    /// Its device, when it was last opened, could be told that ranges are free.
    #[doc(alias = "vdev_has_trim")]
    pub(crate) can_discard: AtomicBool,
    /// Its standing is stored, and holds when the pool is opened again (not `zpool offline -t`).
    is_lasting: AtomicBool,
    /// The newest uberblock that was written to it, and the one that was tried last.
    written_uberblock: AtomicU64,
    tried_uberblock: AtomicU64,
    /// How many requests of each class its device has.
    pub(crate) room: Room,
    /// How many requests its device has at most.
    pub(crate) depth: Depth,
    /// What applications and txgs ask of its device, and the gaps between.
    pub(crate) gaps: Gaps,
    /// Calls of scans that have requests to its device.
    pub(crate) sweeps: Sweeps,
    /// When an application or txg last asked its device.
    last_asked_ns: AtomicU64,
    /// Held during requests to its free space. True when it has left the pool.
    pub(crate) free_space_access: Mutex<bool>,
    /// Where it reports errors and changes of its state, once it is in a tree.
    reports: OnceLock<Arc<Reports>>,
    /// Its error counters.
    pub errors: ErrorCounters,
    /// Its I/O statistics.
    pub probes: LeafProbes,
}

#[derive(Debug)]
struct LeafState {
    window: Option<Window>,
    standing: Standing,
    dtl: Dtl,
    /// The first birth in its log that the MOS may not have.
    unsaved_dtl: Option<Txg>,
    /// All writes that it missed are in memory, if this is still the number of the last flush.
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

    /// Empties the dirty time log.
    fn forget_missed(&mut self) {
        self.dtl = Dtl::new();
        self.unsaved_dtl = None;
        self.kept_since = None;
    }
}

impl Leaf {
    /// A leaf that is not open yet, of a vdev with sectors of this size.
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
            can_discard: AtomicBool::new(false),
            scan_written_bytes: AtomicU64::new(0),
            rebuild_written_bytes: AtomicU64::new(0),
            is_lasting: AtomicBool::new(true),
            written_uberblock: AtomicU64::new(0),
            tried_uberblock: AtomicU64::new(0),
            room: Room::new(),
            depth: Depth::new(),
            gaps: Gaps::new(),
            sweeps: Sweeps::new(),
            last_asked_ns: AtomicU64::new(0),
            free_space_access: Mutex::new(ranks::FREE_SPACE, false),
            reports: OnceLock::new(),
            errors: ErrorCounters::default(),
        }
    }

    /// The same device under the guid of this configuration. Its statistics start anew.
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
        leaf.depth.set(self.depth.fixed());
        Leaf {
            has_failed: AtomicBool::new(self.has_failed.load(Ordering::Relaxed)),
            can_discard: AtomicBool::new(self.can_discard.load(Ordering::Relaxed)),
            scan_written_bytes: load(&self.scan_written_bytes),
            rebuild_written_bytes: load(&self.rebuild_written_bytes),
            is_lasting: AtomicBool::new(self.is_lasting()),
            unflushed_birth: load(&self.unflushed_birth),
            newest_birth: load(&self.newest_birth),
            written_uberblock: load(&self.written_uberblock),
            tried_uberblock: load(&self.tried_uberblock),
            ..leaf
        }
    }

    /// Opens the device, unless it is stored as faulted or offline. The standing has the result.
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

    /// Whether the sectors of the device are small enough for the vdev.
    fn has_right_sectors(&self, window: &Window) -> bool {
        u64::from(window.info().logical_sector_bytes) <= self.sector_bytes_max
    }

    fn open_window(&self, host: &Host, mode: OpenMode) -> Result<Window, OpenError> {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(self.path.as_bytes()));
        open_window(host, path, mode)
    }

    /// Whether its path still leads to the device that is open.
    pub(crate) fn is_at_path(&self, host: &Host) -> bool {
        let Some(window) = self.window() else {
            return false;
        };
        let found = self.open_window(host, OpenMode::ReadOnly);
        found.is_ok_and(|found| found.info().identity == window.info().identity)
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

    /// What the scan that runs, or else the last one since the pool was opened, has written to it,
    /// in bytes.
    #[doc(alias = "vs_scan_processed")]
    pub fn scan_written_bytes(&self) -> u64 {
        self.scan_written_bytes.load(Ordering::Relaxed)
    }

    /// What the rebuild of its vdev that runs, or else the last one since the pool was opened, has
    /// written to it, in bytes.
    #[doc(alias = "vs_rebuild_processed")]
    pub fn rebuild_written_bytes(&self) -> u64 {
        self.rebuild_written_bytes.load(Ordering::Relaxed)
    }

    /// A scan has written to it.
    pub(crate) fn note_scan_written(&self, bytes: u64) {
        self.scan_written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A rebuild has written to it.
    pub(crate) fn note_rebuild_written(&self, bytes: u64) {
        self.rebuild_written_bytes
            .fetch_add(bytes, Ordering::Relaxed);
    }

    /// A scan begins.
    #[doc(alias = "vdev_scan_stat_init")]
    pub fn forget_scan_written(&self) {
        self.scan_written_bytes.store(0, Ordering::Relaxed);
    }

    /// A rebuild of its vdev begins.
    pub fn forget_rebuild_written(&self) {
        self.rebuild_written_bytes.store(0, Ordering::Relaxed);
    }

    /// Counts bytes that do not verify, and reports them.
    pub(crate) fn note_mismatch(&self, request: ReportedIo) {
        self.errors.count_checksum();
        self.report(ReportKind::Checksum { request });
    }

    /// True if it is usable and its dirty time log is empty.
    pub fn is_whole(&self) -> bool {
        let state = self.state.read();
        state.window.is_some() && state.standing.state.is_usable() && state.dtl.is_empty()
    }

    /// Its dirty time log.
    pub fn dtl(&self) -> Dtl {
        self.state.read().dtl.clone()
    }

    /// True if its dirty time log has this birth.
    #[doc(alias = "vdev_dtl_contains")]
    pub fn misses(&self, birth: Txg) -> bool {
        self.state.read().dtl.contains(birth)
    }

    /// Adds births to its dirty time log, of blocks that are not in memory any more. Gives whether
    /// the log was empty.
    pub fn add_to_dtl(&self, births: RangeInclusive<Txg>) -> bool {
        let mut state = self.state.write();
        state.kept_since = None;
        state.miss(births)
    }

    /// Empties its dirty time log. Gives whether the log had any birth.
    pub fn clear_dtl(&self) -> bool {
        let mut state = self.state.write();
        let had_missed = !state.dtl.is_empty();
        state.forget_missed();
        had_missed
    }

    /// Removes births after `after` and before `end` from its dirty time log, and adds those that
    /// it lacks all the same. Only while it is usable, and has no later births in its log: those
    /// came after the scan had begun. Gives whether the log changed.
    pub(crate) fn end_scan(&self, (after, end): (Txg, Txg), lacking: &Dtl) -> bool {
        let mut state = self.state.write();
        let is_usable = state.window.is_some() && state.standing.state.is_usable();
        let newest = state.dtl.bounds().map(|bounds| *bounds.end());
        if !is_usable || newest.is_some_and(|newest| newest >= end) {
            return false;
        }
        let before = state.dtl.clone();
        let (first, last) = (after.next(), Txg::new(end.get().saturating_sub(1)));
        if first <= last {
            state.dtl.remove(first..=last);
        }
        state.dtl.merge(lacking);
        debug_assert!(
            lacking.first_beyond(&state.dtl).is_none(),
            "what a device lacks stays in its log"
        );
        let is_changed = state.dtl != before;
        if is_changed {
            state.kept_since = None;
            state.unsaved_dtl = state.dtl.first_beyond(&before);
        }
        is_changed
    }

    /// Adds the dirty time log that the MOS has. Gives whether the log was empty and is not any
    /// more.
    pub(crate) fn load_dtl(&self, stored: &Dtl) -> bool {
        let mut state = self.state.write();
        let was_empty = state.dtl.is_empty();
        state.dtl.merge(stored);
        was_empty && !state.dtl.is_empty()
    }

    /// The first birth in its dirty time log that the MOS may not have.
    pub(crate) fn unsaved_dtl(&self) -> Option<Txg> {
        self.state.read().unsaved_dtl
    }

    /// Notes that the MOS has this much of its dirty time log.
    pub fn note_saved_dtl(&self, saved: &Dtl) {
        let mut state = self.state.write();
        state.unsaved_dtl = state.dtl.first_beyond(saved);
        debug_assert!(
            state
                .unsaved_dtl
                .is_none_or(|first| state.dtl.contains(first)),
            "an unsaved birth is in the log"
        );
    }

    /// Ends its dirty time log at the newest txg of the pool: no block has a later birth. A log
    /// that is not empty keeps at least that txg.
    pub(crate) fn end_dtl(&self, newest: Txg) {
        let mut state = self.state.write();
        if state.dtl.is_empty() {
            return;
        }
        state.dtl = state.dtl.until(newest);
        if state.dtl.is_empty() {
            state.dtl.add(newest..=newest);
        }
        debug_assert!(
            state
                .dtl
                .bounds()
                .is_some_and(|bounds| *bounds.end() <= newest),
            "a log that is ended has a birth, and none beyond the newest txg"
        );
        state.unsaved_dtl = state.unsaved_dtl.map(|known| known.min(newest));
    }

    /// Whether its standing is stored.
    pub(crate) fn is_lasting(&self) -> bool {
        self.is_lasting.load(Ordering::Relaxed)
    }

    /// Sets whether its standing is stored.
    pub(crate) fn set_lasting(&self, is_lasting: bool) {
        self.is_lasting.store(is_lasting, Ordering::Relaxed);
    }

    /// Changes its standing. A device that is not usable any more is closed.
    pub(crate) fn set_standing(&self, standing: Standing) {
        let mut state = self.state.write();
        let before = std::mem::replace(&mut state.standing, standing);
        if !standing.state.is_usable() {
            state.window = None;
        }
        drop(state);
        self.report_state(before, standing);
    }

    fn set_window(&self, window: Window, standing: Standing) {
        let can_discard = window.info().can_discard;
        self.can_discard.store(can_discard, Ordering::Relaxed);
        let mut state = self.state.write();
        state.window = Some(window);
        let before = std::mem::replace(&mut state.standing, standing);
        drop(state);
        self.report_state(before, standing);
    }

    /// Has it report to the queue of the tree that it is in.
    pub(crate) fn report_to(&self, reports: &Arc<Reports>) {
        self.reports.get_or_init(|| reports.clone());
    }

    /// Whether its errors are reported.
    pub(crate) fn has_reports(&self) -> bool {
        self.reports.get().is_some()
    }

    /// Reports an error. Its device counts it besides.
    pub(crate) fn report(&self, what: ReportKind) {
        if let Some(reports) = self.reports.get() {
            reports.post(Report {
                vdev: self.guid,
                what,
            });
        }
    }

    /// Changes its standing, if it is this one. The device stays open.
    pub(crate) fn change_standing(&self, from: Standing, to: Standing) -> bool {
        debug_assert!(
            to.state.is_usable(),
            "a device that is taken out of use is closed"
        );
        let mut state = self.state.write();
        if state.standing != from || state.window.is_none() {
            return false;
        }
        state.standing = to;
        drop(state);
        self.report_state(from, to);
        true
    }

    fn report_state(&self, before: Standing, now: Standing) {
        if before.state != now.state {
            let before = before.state;
            self.report(ReportKind::State { before, now });
        }
    }

    /// Takes over the open device of another leaf of the same guid, or why it is not usable.
    pub(crate) fn adopt(&self, opened: &Leaf) {
        assert_eq!(self.guid, opened.guid, "it is the same device");
        let (window, standing) = (opened.window(), opened.standing());
        self.has_failed.store(false, Ordering::Relaxed);
        if window.is_some() {
            self.can_discard
                .store(opened.can_discard(), Ordering::Relaxed);
        }
        let mut state = self.state.write();
        state.window = window;
        state.standing = standing;
    }

    /// Notes that it failed, and stays in use because the other leaves do not have all its blocks.
    pub(crate) fn note_failed(&self) {
        self.has_failed.store(true, Ordering::Relaxed);
    }

    /// The births of unflushed writes to it, and `next`, the txg that is stored next.
    fn doubtful(&self, next: Txg) -> RangeInclusive<Txg> {
        let first = self.unflushed_birth.load(Ordering::Relaxed).min(next.get());
        let last = self.newest_birth.load(Ordering::Relaxed).max(next.get());
        Txg::new(first)..=Txg::new(last)
    }

    /// Takes it out of use, as faulted, offline or removed: its dirty time log grows from here.
    /// `kept_since` is the number of the flush since which writes are in memory, if they are. It
    /// counts only if the log was empty: earlier writes that it missed are not in memory.
    pub(crate) fn retire(&self, standing: Standing, kept_since: Option<u64>, next: Txg) {
        self.has_failed.store(false, Ordering::Relaxed);
        let doubtful = self.doubtful(next);
        let mut state = self.state.write();
        if state.miss(doubtful) {
            state.kept_since = kept_since;
        }
        let before = std::mem::replace(&mut state.standing, standing);
        state.window = None;
        assert!(
            !state.dtl.is_empty(),
            "a device out of use misses the next txg"
        );
        drop(state);
        self.report_state(before, standing);
    }

    /// Adds unflushed births to the log of a leaf that is out of use already, when another request
    /// to it failed.
    pub(crate) fn note_failed_again(&self, next: Txg) {
        let doubtful = self.doubtful(next);
        self.state.write().miss(doubtful);
    }

    /// Adds the birth of a block whose write to it failed, while the other leaves of its vdev have
    /// the block.
    pub(crate) fn note_missed(&self, birth: Txg) {
        self.state.write().miss(birth..=birth);
    }

    /// If it is not in use, adds the births of blocks that are written to its vdev. Gives whether
    /// the log was empty. It misses all blocks since it was taken out of use, so the log gets no
    /// gaps between births.
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

    /// If it is not in use, adds the births of blocks that were written to its vdev and are not
    /// kept in memory. Gives whether the log was empty.
    pub(crate) fn note_not_kept(&self, births: &[Txg]) -> bool {
        if self.is_usable() {
            return false;
        }
        self.has_failed.store(false, Ordering::Relaxed);
        let is_first = self.note_skipped(births);
        self.state.write().kept_since = None;
        is_first
    }

    /// Whether it may be opened again while the pool is suspended: it failed and stayed in use, or
    /// all writes that it missed are in memory. `generation` is the number of the last flush.
    pub(crate) fn wants_reopening(&self, generation: u64) -> bool {
        let failed = self.has_failed.load(Ordering::Relaxed);
        failed || self.state.read().kept_since == Some(generation)
    }

    /// Opens the device anew. Until it [is back](Self::note_back) its dirty time log has all births
    /// since the last flush, whose number is `generation`.
    pub(crate) fn reopen(&self, host: &Host, generation: u64, next: Txg) {
        let doubtful = self.doubtful(next);
        let before = {
            let mut state = self.state.write();
            if state.miss(doubtful) {
                state.kept_since = Some(generation);
                // The pool may go on without it: then the other leaves have all its blocks.
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
        // A device is opened exclusively: the old handle is closed first.
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

    /// Notes that its labels and newest uberblock are as expected. Empties its log if all writes
    /// that it missed are in memory: the caller writes them to it before the pool goes on.
    /// `generation` is the number of the last flush.
    pub(crate) fn note_back(&self, generation: u64) {
        self.has_failed.store(false, Ordering::Relaxed);
        let mut state = self.state.write();
        if state.kept_since == Some(generation) {
            state.forget_missed();
        }
    }

    /// Notes that it is back on a vdev that holds no blocks: empties its log.
    pub(crate) fn note_back_empty(&self) {
        self.has_failed.store(false, Ordering::Relaxed);
        self.clear_dtl();
    }

    /// Notes the newest uberblock that was found on it when it was opened.
    pub(crate) fn note_found_uberblock(&self, txg: Txg) {
        self.written_uberblock.store(txg.get(), Ordering::Relaxed);
        self.tried_uberblock.store(txg.get(), Ordering::Relaxed);
    }

    /// Notes the uberblock that is being written to it.
    pub(crate) fn note_tried_uberblock(&self, txg: Txg) {
        self.tried_uberblock.store(txg.get(), Ordering::Relaxed);
    }

    /// Notes that this uberblock is durable.
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

    /// For how long its device has not answered, with requests under way.
    pub(crate) fn silent_ns(&self) -> u64 {
        let state = self.state.read();
        let window = state.window.as_ref();
        window.map_or(0, |window| window.device().silent_ns())
    }

    /// Makes requests to its device fail instead of waiting for it.
    pub(crate) fn give_up(&self) {
        let state = self.state.read();
        if let Some(window) = &state.window {
            window.device().give_up();
        }
    }

    /// Closes the device. Later requests fail.
    pub(crate) fn close(&self) {
        self.set_standing(not_open());
    }

    /// Takes over the room that its device has gained since it was opened. In the image of a whole
    /// disk the partition stays as it is.
    pub(crate) fn grow(&self) {
        let size_now = self.window().and_then(|window| {
            let is_whole = window.start_bytes == 0;
            is_whole
                .then(|| window.device.size_bytes_now().ok())
                .flatten()
        });
        let mut state = self.state.write();
        if let (Some(window), Some(size)) = (&mut state.window, size_now) {
            window.size_bytes = window.size_bytes.max(size);
        }
    }

    /// Its size without labels and boot area.
    pub fn data_size(&self) -> Option<AllocatedSize> {
        let window = self.window()?;
        tarn_ondisk::label::data_size(window.size_bytes)
    }

    /// True if it has unflushed writes.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.has_unflushed.load(Ordering::Acquire)
    }

    pub(crate) fn set_unflushed(&self, has_unflushed: bool) {
        self.has_unflushed.store(has_unflushed, Ordering::Release);
    }

    /// Notes the births of blocks that are being written.
    pub(crate) fn note_written(&self, births: RangeInclusive<Txg>) {
        let (first, last) = (births.start().get(), births.end().get());
        assert!(first <= last, "a range of births is not empty");
        self.unflushed_birth.fetch_min(first, Ordering::AcqRel);
        self.newest_birth.fetch_max(last, Ordering::AcqRel);
    }

    /// Marks it as flushed, when its flush begins. Gives what [`flush_failed`](Self::flush_failed)
    /// needs to take that back.
    pub(crate) fn begin_flush(&self) -> Unflushed {
        // Before the flush, not after: writes during the flush are not covered by it.
        self.set_unflushed(false);
        Unflushed(self.unflushed_birth.swap(u64::MAX, Ordering::AcqRel))
    }

    /// Takes [`begin_flush`](Self::begin_flush) back: writes before the failed flush are not
    /// durable.
    pub(crate) fn flush_failed(&self, before: Unflushed) {
        self.unflushed_birth.fetch_min(before.0, Ordering::AcqRel);
        self.set_unflushed(true);
    }

    /// Sets how many requests its device has at most; none has that found from what the device
    /// does.
    pub fn set_queue_depth(&self, depth: Option<u32>) {
        self.depth.set(depth);
    }

    /// How many requests its device has at most, and whether an administrator has set that.
    pub fn queue_depth(&self) -> (u32, bool) {
        (self.depth.get(), self.depth.fixed().is_some())
    }

    /// Notes a request of this class. Gives whether an application or txg has asked the device
    /// lately. Only direct devices have limits that depend on it.
    pub(crate) fn note_asked(&self, class: IoPriority, is_direct: bool) -> bool {
        if !is_direct {
            return false;
        }
        let now_ns = tarn_host::monotonic_ns();
        match is_waited_for(class) {
            true => {
                self.last_asked_ns.store(now_ns, Ordering::Relaxed);
                true
            }
            false => {
                let last_ns = self.last_asked_ns.load(Ordering::Relaxed);
                last_ns != 0 && now_ns.saturating_sub(last_ns) < ASKED_NS
            }
        }
    }

    /// The bytes of requests under way.
    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn begin(&self, bytes: u64, end: u64) {
        self.in_flight.fetch_add(bytes, Ordering::Relaxed);
        self.last_end.store(end, Ordering::Relaxed);
    }

    pub(crate) fn end(&self, bytes: u64) {
        let before = self.in_flight.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "a request that ends was begun");
    }

    /// The distance of an offset from the end of its last request.
    pub(crate) fn distance(&self, offset: u64) -> u64 {
        self.last_end.load(Ordering::Relaxed).abs_diff(offset)
    }

    /// The failure of a leaf that is not in use.
    pub(crate) fn not_usable(&self) -> LeafFailure {
        self.failure(LeafFailureKind::NotUsable(self.standing()))
    }

    /// The failure of a device that reported an error.
    pub(crate) fn device_failure(&self, error: DeviceError) -> LeafFailure {
        self.failure(LeafFailureKind::Device(error))
    }

    /// The failure of a device whose bytes did not verify.
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

/// The smallest unflushed birth when a flush began.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unflushed(u64);

fn not_open() -> Standing {
    Standing::because(VdevState::Unavailable, Reason::OpenFailed)
}
