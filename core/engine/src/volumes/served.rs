//! The table of served volumes: one [`Volume`] for each, with its holders.
//!
//! # Mechanism
//! The table has an entry for each held volume or snapshot, by the object of the dataset in the
//! MOS. While it is there the dataset is in use, so that the sync thread refuses to destroy it, to
//! roll it back and to receive into it. Holds begin and end in order under the pool's turn. A hold
//! that is only dropped leaves the intent log open, until the next hold or until a command needs it
//! closed ([`ServedVolumes::take_left`]).
//!
//! # Invariants
//! - Of one object set there is one [`Volume`] at a time. While its contents are replaced (a
//!   rollback, a receive) there is none, and operations wait for the next one.
//! - No volume operation is begun after its pool was closed in order.

use crate::files::{NewContents, ObjectId, Operation, OperationKind, ReadData, What, Who};
use crate::lock_waits::lock_waits;
use crate::log_counts::counters;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use tarn_host::lock::{Condvar, Mutex, Rank};
use tarn_host::operation_clock_ns;
use tarn_ondisk::units::Guid;
use tarn_pool::Pool;
use tarn_probe::{DatasetPlace, DatasetStatistics};
use tarn_zvol::{Copied, Durable, Volume, VolumeError, VolumeProperties};

/// The table.
const VOLUMES: Rank = Rank::new(tarn_host::ranks::ENGINE + 44, "served volumes");
/// The contents of a volume.
const CONTENTS: Rank = Rank::new(tarn_host::ranks::ENGINE + 47, "contents of a volume");
/// The watchers of a volume.
const WATCHERS: Rank = Rank::new(tarn_host::ranks::ENGINE + 45, "watchers of a volume");

/// How much is copied at once from a volume of another pool.
const COPIED_TOGETHER: u64 = 1 << 20;

/// Whether a holder writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumeAccess {
    /// It only reads: changes are refused.
    ReadOnly,
    /// It writes, where the volume can be written.
    ReadWrite,
}

/// Hears what happens to a held volume. Called by the thread of the command that changes it, which
/// holds the pool's turn: it must not hold or release volumes in the call.
pub trait VolumeWatcher: Send + Sync {
    /// `volsize` was set, to so many bytes.
    fn size_changed(&self, size_bytes: u64);

    /// `readonly` was set.
    fn read_only_changed(&self, _is_read_only: bool) {}

    /// The volume, or a dataset above it, was renamed.
    fn renamed(&self, _name: &str) {}

    /// It is not served any more: its pool was closed. All operations fail from here on.
    fn ended(&self);
}

/// A volume that is served.
pub(crate) struct ServedVolume {
    pool: Arc<Pool>,
    id: ObjectId,
    guid: Guid,
    /// None while its contents are replaced.
    open: Mutex<Option<Arc<Volume>>>,
    opened: Condvar,
    statistics: Arc<DatasetStatistics>,
    is_snapshot: bool,
    is_ended: AtomicBool,
    watchers: Mutex<BTreeMap<u64, Vec<Arc<dyn VolumeWatcher>>>>,
}

impl ServedVolume {
    pub(super) fn new(
        pool: &Arc<Pool>,
        (id, guid, name): (ObjectId, Guid, &str),
        volume: Arc<Volume>,
    ) -> Arc<ServedVolume> {
        let registry = tarn_probe::registry();
        let place = DatasetPlace {
            pool: pool.name().to_string(),
            pool_guid: pool.facts().guid.get(),
            object: id.get(),
            guid: guid.get(),
        };
        let statistics = DatasetStatistics::register(registry, &place, name, Arc::default());
        let served = Arc::new(ServedVolume {
            pool: pool.clone(),
            id,
            guid,
            open: Mutex::new(CONTENTS, Some(volume)),
            opened: Condvar::new(),
            statistics,
            is_snapshot: name.contains('@'),
            is_ended: AtomicBool::new(false),
            watchers: Mutex::new(WATCHERS, BTreeMap::new()),
        });
        let of_log = Arc::downgrade(&served);
        served.statistics.show_also(move || {
            let volume = of_log
                .upgrade()
                .and_then(|served| served.open.lock().clone());
            let counted = volume.map(|volume| volume.counted_of_log());
            counters(counted.unwrap_or_default())
        });
        served
    }

    pub(super) fn id(&self) -> ObjectId {
        self.id
    }

    pub(super) fn name(&self) -> String {
        self.statistics.name()
    }

    /// The volume; waits while its contents are replaced.
    pub(super) fn volume(&self) -> Arc<Volume> {
        let mut open = self.open.lock();
        self.opened.wait_while(&mut open, |open| open.is_none());
        open.clone().expect("it was waited for")
    }

    /// Takes the volume away: operations that begin wait from here on, and others may still be
    /// under way, with the volume.
    pub(super) fn begin_replacing(&self) -> Arc<Volume> {
        let taken = self.open.lock().take();
        taken.expect("one command at a time has the pool's turn")
    }

    /// Gives the volume with its new contents, and operations go on.
    pub(super) fn end_replacing(&self, volume: Arc<Volume>) {
        let before = self.open.lock().replace(volume);
        assert!(before.is_none(), "the volume was taken away");
        self.opened.notify_all();
    }

    /// All operations fail from here on.
    pub(super) fn end(&self) {
        self.is_ended.store(true, Ordering::SeqCst);
    }

    pub(super) fn is_snapshot(&self) -> bool {
        self.is_snapshot
    }

    /// Calls all watchers, without the lock.
    pub(super) fn tell(&self, tell: impl Fn(&dyn VolumeWatcher)) {
        let table = self.watchers.lock();
        let watchers: Vec<_> = table.values().flatten().cloned().collect();
        drop(table);
        watchers.iter().for_each(|watcher| tell(watcher.as_ref()));
    }

    pub(super) fn set_properties(&self, properties: VolumeProperties) {
        if self.volume().set_properties(properties) {
            self.tell(|watcher| watcher.read_only_changed(properties.is_read_only));
        }
    }
}

/// The volumes of one pool that are served.
pub struct ServedVolumes {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    entries: BTreeMap<ObjectId, Entry>,
    /// Heads whose last hold was dropped: their intent logs are open.
    left: BTreeSet<ObjectId>,
    last_number: u64,
}

struct Entry {
    served: Arc<ServedVolume>,
    holders: BTreeSet<u64>,
}

impl ServedVolumes {
    pub(crate) fn nothing() -> Arc<ServedVolumes> {
        Arc::new(ServedVolumes {
            table: Mutex::new(VOLUMES, Table::default()),
        })
    }

    /// Joins the holders of a volume that is served.
    pub(super) fn join(
        self: &Arc<Self>,
        dataset: ObjectId,
        access: VolumeAccess,
    ) -> Option<Arc<HeldVolume>> {
        let mut table = self.table.lock();
        let number = table.last_number + 1;
        table.last_number = number;
        let entry = table.entries.get_mut(&dataset)?;
        entry.holders.insert(number);
        Some(self.held(entry.served.clone(), number, access))
    }

    /// Serves a volume that was just opened; `pool` has it in use already.
    pub(super) fn serve(
        self: &Arc<Self>,
        served: Arc<ServedVolume>,
        access: VolumeAccess,
    ) -> Arc<HeldVolume> {
        let mut table = self.table.lock();
        let number = table.last_number + 1;
        table.last_number = number;
        table.left.remove(&served.id);
        let entry = Entry {
            served: served.clone(),
            holders: BTreeSet::from([number]),
        };
        let before = table.entries.insert(served.id, entry);
        assert!(before.is_none(), "volumes are opened one after the other");
        self.held(served, number, access)
    }

    fn held(
        self: &Arc<Self>,
        served: Arc<ServedVolume>,
        number: u64,
        access: VolumeAccess,
    ) -> Arc<HeldVolume> {
        Arc::new(HeldVolume {
            served,
            table: Arc::downgrade(self),
            number,
            access,
        })
    }

    /// The name of a held volume, if any is held.
    pub(crate) fn first_name(&self) -> Option<String> {
        let table = self.table.lock();
        table
            .entries
            .values()
            .next()
            .map(|entry| entry.served.name())
    }

    /// Whether this dataset is in use only because it is served.
    pub fn is_served(&self, dataset: ObjectId) -> bool {
        self.table.lock().entries.contains_key(&dataset)
    }

    /// A served volume.
    pub(super) fn find(&self, dataset: ObjectId) -> Option<Arc<ServedVolume>> {
        let table = self.table.lock();
        table
            .entries
            .get(&dataset)
            .map(|entry| entry.served.clone())
    }

    /// All that are served.
    pub(super) fn all(&self) -> Vec<Arc<ServedVolume>> {
        let table = self.table.lock();
        let served = table.entries.values().map(|entry| entry.served.clone());
        served.collect()
    }

    /// The heads whose intent logs dropped holds have left open.
    pub(super) fn take_left(&self) -> BTreeSet<ObjectId> {
        std::mem::take(&mut self.table.lock().left)
    }

    /// A dataset was renamed, or a snapshot: the volumes at and below it have other names.
    pub fn rename(&self, from: &str, to: &str) {
        for served in self.all() {
            let name = served.name();
            let Some(rest) = name.strip_prefix(from) else {
                continue;
            };
            if rest.is_empty() || rest.starts_with(['/', '@']) {
                let name = format!("{to}{rest}");
                served.statistics.rename(&name);
                served.tell(|watcher| watcher.renamed(&name));
            }
        }
    }

    /// Takes a volume out of the table whose contents were to be replaced, and ends it: its dataset
    /// is not in use any more. Operations that wait fail; `before` is what it was.
    pub(super) fn end_one(&self, served: &ServedVolume, before: Arc<Volume>) {
        self.table.lock().entries.remove(&served.id);
        served.end();
        served.end_replacing(before);
        served.tell(|watcher| watcher.ended());
    }

    /// Ends all: the pool is about to be closed.
    pub(crate) fn end_all(&self) {
        let entries = std::mem::take(&mut self.table.lock().entries);
        for entry in entries.into_values() {
            entry.served.end();
            entry.served.pool.namespace().end_use(entry.served.id);
            entry.served.tell(|watcher| watcher.ended());
        }
    }

    /// Removes a hold. Returns the volume when that was the last: it is still in use.
    fn leave(&self, held: &HeldVolume) -> Option<Arc<ServedVolume>> {
        let mut table = self.table.lock();
        let entry = table.entries.get_mut(&held.served.id)?;
        let is_last = entry.holders.remove(&held.number) && entry.holders.is_empty();
        let removed = is_last.then(|| table.entries.remove(&held.served.id));
        Some(removed??.served)
    }
}

/// A hold on a volume or on a snapshot of one. It is to be ended by
/// [`Engine::release_volume`](crate::engine::Engine::release_volume); a hold that is only dropped
/// stores nothing.
pub struct HeldVolume {
    served: Arc<ServedVolume>,
    table: Weak<ServedVolumes>,
    number: u64,
    access: VolumeAccess,
}

impl HeldVolume {
    /// The full name of the volume or snapshot, as it is now.
    pub fn name(&self) -> String {
        self.served.name()
    }

    /// The guid of the dataset, which stays when it is renamed, exported and imported.
    pub fn guid(&self) -> u64 {
        self.served.guid.get()
    }

    /// The guid of the pool.
    pub fn pool_guid(&self) -> u64 {
        self.served.pool.facts().guid.get()
    }

    /// The name of the pool.
    pub fn pool_name(&self) -> &str {
        self.served.pool.name()
    }

    /// `volsize`, in bytes, as it is now.
    pub fn size_bytes(&self) -> u64 {
        self.served.volume().size_bytes()
    }

    /// `volblocksize`, in bytes.
    pub fn block_size(&self) -> u64 {
        self.served.volume().block_size()
    }

    /// Whether it refuses changes now: it is a snapshot, is held or set read-only, or is in a pool
    /// that is.
    pub fn is_read_only(&self) -> bool {
        self.access == VolumeAccess::ReadOnly || self.served.volume().is_read_only()
    }

    /// Whether it can be changed, if its properties let it be: it is no snapshot, is not held
    /// read-only, and its pool is not.
    pub fn is_changeable(&self) -> bool {
        self.access == VolumeAccess::ReadWrite && self.served.volume().is_changeable()
    }

    /// Whether the pool is suspended. Changes and flushes then wait until it is resumed, or fail,
    /// as its `failmode` says.
    pub fn is_suspended(&self) -> bool {
        self.served.volume().is_suspended()
    }

    /// Whether the volume is not served any more.
    pub fn is_ended(&self) -> bool {
        self.served.is_ended.load(Ordering::SeqCst)
    }

    /// Begins the record of a request for a range: its offset and length in bytes.
    pub fn begin(&self, who: Who, kind: OperationKind, range: (u64, u64)) -> Operation {
        let what = What {
            kind,
            dataset: self.served.statistics.id(),
            object: tarn_dataset::contents::VOLUME_DATA.get(),
            offset: range.0,
            size: range.1,
        };
        Operation::begin(operation_clock_ns, who, what).after_lock_waits(lock_waits())
    }

    /// Ends the record of a request, and counts it for the volume.
    pub fn finish(&self, operation: Operation) {
        operation.add_lock_waits(lock_waits());
        let _ = operation.finish_with(self.served.statistics.operations());
    }

    /// Reads bytes, as blocks of the cache, uncopied. Holes read as zeros.
    ///
    /// # Errors
    /// `OutOfRange`, `Gone`, or the block that cannot be read.
    pub fn read(
        &self,
        offset: u64,
        length: usize,
        operation: &Operation,
    ) -> Result<ReadData, VolumeError> {
        self.open()?.read(offset, length, operation)
    }

    /// Writes bytes. When it fails, a part of them may be written.
    ///
    /// # Errors
    /// `OutOfRange`, `ReadOnly`, `NoSpace`, `QuotaExceeded`, `Suspended`, `Gone`, or what could not
    /// be read to be changed in part.
    pub fn write(
        &self,
        offset: u64,
        contents: NewContents<'_>,
        durable: Durable,
        operation: &Operation,
    ) -> Result<(), VolumeError> {
        let volume = self.open_for_changes()?;
        volume.write(offset, contents, durable, operation)
    }

    /// Makes a range read as zeros: its whole blocks are freed, the parts of blocks at its edges
    /// zeroed.
    ///
    /// # Errors
    /// As [`write`](Self::write); a full pool refuses it only when hardly any room is left.
    pub fn discard(
        &self,
        offset: u64,
        length: u64,
        durable: Durable,
        operation: &Operation,
    ) -> Result<(), VolumeError> {
        let volume = self.open_for_changes()?;
        volume.discard(offset, length, durable, operation)
    }

    /// Makes a range read as zeros: as [`discard`](Self::discard) where `may_free`, else by writing
    /// zeros.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_zeros(
        &self,
        offset: u64,
        length: u64,
        may_free: bool,
        durable: Durable,
        operation: &Operation,
    ) -> Result<(), VolumeError> {
        let volume = self.open_for_changes()?;
        volume.write_zeros(offset, length, may_free, durable, operation)
    }

    /// Copies a range of a volume here, which may be this one: by references to the same blocks
    /// where that is possible, as within a pool, else by reading and writing.
    ///
    /// # Errors
    /// As [`write`](Self::write), and what cannot be read.
    pub fn copy_from(
        &self,
        (source, from): (&HeldVolume, u64),
        to: u64,
        length: u64,
        operation: &Operation,
    ) -> Result<Copied, VolumeError> {
        let (target, source_volume) = (self.open_for_changes()?, source.open()?);
        if Arc::ptr_eq(self.pool(), source.pool()) {
            let source = (&*source_volume, from);
            return target.copy_from(source, to, length, Durable::Later, operation);
        }
        let mut done = 0;
        while done < length {
            let part = COPIED_TOGETHER.min(length - done);
            let size = usize::try_from(part).expect("a MiB");
            let bytes = source_volume.read(from + done, size, operation)?.to_vec();
            let contents = NewContents::Bytes(&bytes);
            target.write(to + done, contents, Durable::Later, operation)?;
            done += part;
        }
        Ok(Copied {
            cloned_bytes: 0,
            written_bytes: length,
        })
    }

    /// Returns when all changes that returned before are durable.
    ///
    /// # Errors
    /// `Suspended` and `Gone`: whether the changes will be stored is unknown.
    pub fn flush(&self, operation: &Operation) -> Result<(), VolumeError> {
        self.open()?.flush(operation)
    }

    /// The extents of a range in order, each with its length in bytes and whether it is allocated.
    /// They cover the range, or its beginning where they would be thousands.
    ///
    /// # Errors
    /// `OutOfRange`, `Gone`, or what cannot be read.
    pub fn allocated(
        &self,
        offset: u64,
        length: u64,
        operation: &Operation,
    ) -> Result<Vec<(u64, bool)>, VolumeError> {
        self.open()?.allocated(offset, length, operation)
    }

    /// Has a watcher hear what happens to the volume, until this hold ends.
    pub fn watch(&self, watcher: Arc<dyn VolumeWatcher>) {
        let mut watchers = self.served.watchers.lock();
        watchers.entry(self.number).or_default().push(watcher);
    }

    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.served.pool
    }

    pub(super) fn id(&self) -> ObjectId {
        self.served.id
    }

    /// Ends the hold. The last one returns the volume, which is still in use, to be closed.
    pub(super) fn begin_leaving(&self) -> Option<Arc<ServedVolume>> {
        let watchers = self.served.watchers.lock().remove(&self.number);
        drop(watchers);
        self.table.upgrade()?.leave(self)
    }

    /// The volume, unless it has ended, also while it was waited for.
    fn open(&self) -> Result<Arc<Volume>, VolumeError> {
        let volume = self.served.volume();
        match self.is_ended() {
            true => Err(VolumeError::Gone),
            false => Ok(volume),
        }
    }

    fn open_for_changes(&self) -> Result<Arc<Volume>, VolumeError> {
        let volume = self.open()?;
        match self.access {
            VolumeAccess::ReadOnly => Err(VolumeError::ReadOnly),
            VolumeAccess::ReadWrite => Ok(volume),
        }
    }
}

impl Drop for HeldVolume {
    fn drop(&mut self) {
        let Some(last) = self.begin_leaving() else {
            return;
        };
        if let Some(table) = self.table.upgrade()
            && !last.is_snapshot
        {
            table.table.lock().left.insert(last.id);
        }
        last.pool.namespace().end_use(last.id);
    }
}

impl std::fmt::Debug for HeldVolume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HeldVolume({}, {:?})", self.name(), self.access)
    }
}
