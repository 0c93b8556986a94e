//! The files of a dataset or snapshot, as front ends get them.
//!
//! A file system asks its pool how much room its dataset has, and for its snapshots. Both change
//! while it is open, as its name does, so they are looked up at each call.
//!
//! Only the table of [served](crate::served) file systems opens a [`ServedTree`].

use crate::count_owners::OwnerCounts;
use crate::engine::OpenPool;
use crate::files::{FileSystem, ObjectId, PosixError, Tree};
use crate::lock_waits::lock_waits;
use crate::log_counts::counters;
use crate::served::{HoldPurpose, ServedFiles};
use crate::snapshot_directory::SnapshotDirectory;
use std::any::Any;
use std::sync::{Arc, Weak};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::error::DatasetError;
use tarn_dataset::intent_log::ForgetLog;
use tarn_dataset::limits::AdmitRefusal;
use tarn_dataset::space_door::{SpaceDoor, SpaceRefusal, SpaceTotals, Uncounted};
use tarn_dataset::task::FeatureCounts;
use tarn_host::lock::{Mutex, Rank};
use tarn_host::operation_clock_ns;
use tarn_ondisk::features::Feature;
use tarn_pool::{Mode, Pool};
use tarn_posix::MountProperties;
use tarn_posix::{FileSystemParts, MountError, Unlinked};
use tarn_probe::{DatasetPlace, DatasetStatistics, Operation, OperationKind, What, Who};
use tarn_zil::{Durability, IntentLog};

/// Entered snapshots of a head, while they get properties.
const ENTERED: Rank = Rank::new(tarn_host::ranks::ENGINE + 42, "entered snapshots");

/// The files of one dataset or snapshot.
pub struct ServedTree {
    pool: Arc<Pool>,
    id: ObjectId,
    guid: u64,
    files: Arc<FileSystem>,
    statistics: Arc<DatasetStatistics>,
    /// None for a snapshot.
    head: Option<Head>,
}

/// The parts of a tree that only a head has.
struct Head {
    served: Arc<ServedFiles>,
    /// Snapshots entered below its `.zfs`: they follow its properties.
    entered: Mutex<Vec<Weak<ServedTree>>>,
    counts: Arc<OwnerCounts>,
}

/// How a dataset's file system is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeChoices {
    /// Intent log records that cannot be replayed may be discarded.
    pub(crate) discards_log: bool,
    /// mkdir, rmdir and rename in `.zfs/snapshot` are refused.
    pub(crate) fixes_snapshot_names: bool,
    /// What happens to unlinked files that a crash left.
    pub(crate) unlinked: Unlinked,
}

/// Why a dataset cannot be mounted.
pub(crate) struct TreeError {
    /// The reason as text.
    pub(crate) why: String,
    /// Its intent log cannot be replayed to its end.
    pub(crate) is_log: bool,
}

impl<E: std::error::Error> From<E> for TreeError {
    fn from(error: E) -> TreeError {
        TreeError {
            why: error.to_string(),
            is_log: false,
        }
    }
}

impl ServedTree {
    /// Opens a dataset's file system and replays its intent log. Records that cannot be replayed
    /// may be discarded where `choices` say so.
    ///
    /// # Errors
    /// Why the dataset cannot be mounted, as text.
    pub(crate) fn open(
        open: &Arc<OpenPool>,
        dataset: &Dataset<'_>,
        properties: MountProperties,
        choices: TreeChoices,
        operation: &Operation,
    ) -> Result<Arc<ServedTree>, TreeError> {
        let head = dataset.id();
        match ServedTree::open_once(open, dataset, properties, choices, operation) {
            Err(error) if error.is_log && choices.discards_log => {
                open.pool.run(ForgetLog { head }, operation)?;
                ServedTree::open_once(open, dataset, properties, choices, operation)
            }
            opened => opened,
        }
    }

    fn open_once(
        open: &Arc<OpenPool>,
        dataset: &Dataset<'_>,
        properties: MountProperties,
        choices: TreeChoices,
        operation: &Operation,
    ) -> Result<Arc<ServedTree>, TreeError> {
        let (pool, head) = (&open.pool, dataset.id());
        let is_writable = pool.mode() == Mode::ReadWrite;
        let set = match is_writable {
            true => pool.namespace().head_set(head, operation),
            false => tarn_dataset::contents::objset(dataset),
        };
        let set = set?;
        let counts = OwnerCounts::new(open, head);
        let parts = FileSystemParts {
            log: is_writable.then(|| pool.namespace().open_log(&set, Durability::ByLog)),
            set,
            txgs: is_writable.then(|| pool.txgs().clone()),
            properties,
            host: pool.host().clone(),
            space: {
                let counts = counts.clone();
                space_of(pool, head, move |uncounted| count(&counts, uncounted))
            },
            snapshots: Some(Arc::new(SnapshotDirectory {
                pool: pool.clone(),
                head,
                served: open.served_files.clone(),
                is_fixed: choices.fixes_snapshot_names,
            })),
            unlinked: choices.unlinked,
        };
        if let Some(log) = &parts.log
            && pool.features().is_enabled(Feature::Zilsaxattr)
        {
            log.allow_xattrs();
        }
        let log = parts.log.clone();
        let files = FileSystem::open(parts, operation).map_err(|error| {
            pool.namespace().forget_log(head);
            TreeError {
                is_log: matches!(error, MountError::Replay(_)),
                why: error.to_string(),
            }
        })?;
        if is_writable && !files.object_set().phys().intent_log.claim_txg.is_zero() {
            // The log is replayed, or was empty.
            if let Err(error) = pool.run(ForgetLog { head }, operation) {
                pool.namespace().forget_log(head);
                return Err(error.into());
            }
        }
        let registry = tarn_probe::registry();
        let name = dataset.name();
        let guid = dataset.stored()?.guid.get();
        let place = place_of(pool, head, guid);
        let unlinked = files.unlinked_counts().clone();
        let statistics = DatasetStatistics::register(registry, &place, name.as_str(), unlinked);
        show_log(&statistics, log.as_ref());
        Ok(Arc::new(ServedTree {
            pool: pool.clone(),
            id: head,
            guid,
            files,
            statistics,
            head: Some(Head {
                served: open.served_files.clone(),
                entered: Mutex::new(ENTERED, Vec::new()),
                counts,
            }),
        }))
    }

    /// Opens the file system of a snapshot, read-only.
    ///
    /// # Errors
    /// Why the snapshot cannot be read, as text.
    pub(crate) fn open_snapshot(
        pool: &Arc<Pool>,
        snapshot: &Dataset<'_>,
        properties: MountProperties,
        operation: &Operation,
    ) -> Result<Arc<ServedTree>, TreeError> {
        if !snapshot.stored()?.is_snapshot() {
            return Err(TreeError {
                why: "it is no snapshot".to_string(),
                is_log: false,
            });
        }
        let parts = FileSystemParts {
            set: tarn_dataset::contents::objset(snapshot)?,
            txgs: None,
            log: None,
            properties: MountProperties {
                is_read_only: true,
                ..properties
            },
            host: pool.host().clone(),
            space: space_of_snapshot(pool, snapshot.id()),
            snapshots: None,
            unlinked: Unlinked::Kept,
        };
        let (id, guid) = (snapshot.id(), snapshot.stored()?.guid.get());
        let name = snapshot.name();
        let place = place_of(pool, id, guid);
        Ok(Arc::new(ServedTree {
            pool: pool.clone(),
            id,
            guid,
            files: FileSystem::open(parts, operation)?,
            statistics: DatasetStatistics::of_snapshot(&place, name.as_str()),
            head: None,
        }))
    }

    /// Sets the properties of the dataset, and of the snapshots entered from it.
    pub(crate) fn set_properties(&self, properties: MountProperties) {
        let Some(head) = &self.head else {
            self.files.set_properties(properties);
            return;
        };
        let mut entered = head.entered.lock();
        self.files.set_properties(properties);
        entered.retain(|tree| tree.strong_count() > 0);
        let followers: Vec<_> = entered.iter().filter_map(Weak::upgrade).collect();
        for snapshot in &followers {
            snapshot.files.set_properties(properties);
        }
        drop(entered);
    }

    /// Called when it was mounted: counts in the background what was not counted for owners when
    /// features were enabled. A read-only mount counts nothing.
    pub(crate) fn bring_up_counts(&self) {
        if let Some(head) = &self.head
            && !self.files.properties().is_read_only
        {
            head.counts.bring_up();
        }
    }

    /// The dataset was renamed.
    pub fn rename(&self, name: &str) {
        let Some(head) = &self.head else { return };
        self.statistics.rename(name);
        let entered: Vec<_> = head
            .entered
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        for snapshot in entered {
            if let Some((_, own)) = snapshot.statistics.name().split_once('@') {
                snapshot.statistics.rename(&format!("{name}@{own}"));
            }
        }
    }

    /// The dataset's name; none of a snapshot.
    pub fn name(&self) -> Option<String> {
        self.head.as_ref().map(|_| self.statistics.name())
    }

    /// The object of the dataset or snapshot in the MOS.
    pub(crate) fn id(&self) -> ObjectId {
        self.id
    }

    /// Whether it is a head, not a snapshot.
    pub(crate) fn is_head(&self) -> bool {
        self.head.is_some()
    }

    /// The pool it is in.
    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The snapshot of this name.
    fn find_snapshot(&self, name: &str, operation: &Operation) -> Result<ObjectId, PosixError> {
        let view = self.pool.namespace().view(operation);
        let found = view.dataset_without_name(self.id);
        let found = found.and_then(|head| head.snapshot(name));
        let found = found.map_err(|_| PosixError::NotFound)?;
        found.map(|found| found.id()).ok_or(PosixError::NotFound)
    }
}

impl ServedTree {
    /// The name of the snapshot with this dataset, without the head's.
    fn snapshot_name(
        &self,
        dataset: ObjectId,
        operation: &Operation,
    ) -> Result<String, PosixError> {
        let view = self.pool.namespace().view(operation);
        let found = view.dataset_by_id(dataset);
        let found = found.map_err(|_| PosixError::NotFound)?.name();
        let name = found
            .as_str()
            .split_once('@')
            .map(|(_, name)| name.to_string());
        name.ok_or(PosixError::NotFound)
    }
}

/// Shows what an intent log counts with the statistics of its dataset.
fn show_log(statistics: &DatasetStatistics, log: Option<&Arc<IntentLog>>) {
    let Some(log) = log.map(Arc::downgrade) else {
        return;
    };
    statistics.show_also(move || {
        let counted = log.upgrade().map(|log| log.counted());
        counters(counted.unwrap_or_default())
    });
}

/// Where a dataset or snapshot is, for records.
fn place_of(pool: &Pool, id: ObjectId, guid: u64) -> DatasetPlace {
    DatasetPlace {
        pool: pool.name().to_string(),
        pool_guid: pool.facts().guid.get(),
        object: id.get(),
        guid,
    }
}

/// Has owners counted.
fn count(counts: &Arc<OwnerCounts>, uncounted: Uncounted) {
    match uncounted {
        Uncounted::Something => counts.bring_up(),
        Uncounted::Projects => counts.bring_up_projects(),
    }
}

/// The space door of a head.
pub(crate) fn space_of(
    pool: &Arc<Pool>,
    head: ObjectId,
    count_owners: impl Fn(Uncounted) + Send + Sync + 'static,
) -> SpaceDoor {
    let totals = {
        let pool = pool.clone();
        move || {
            let space = space_facts(&pool, head, &internal()).unwrap_or_default();
            SpaceTotals {
                total_bytes: space.referenced.saturating_add(space.available),
                available_bytes: space.available,
            }
        }
    };
    let may_write = {
        let pool = pool.clone();
        move |bytes, space_use| {
            let asked = pool
                .namespace()
                .admit(head, bytes, space_use, &Operation::unmeasured());
            match asked {
                Ok(leave) => Ok(leave
                    .is_to_be_kept()
                    .then(|| -> Box<dyn Any + Send> { Box::new(leave) })),
                Err(AdmitRefusal::QuotaExceeded) => Err(SpaceRefusal::QuotaExceeded),
                Err(AdmitRefusal::NoSpace) => Err(SpaceRefusal::NoSpace),
                // The pool is suspended; the transaction reports it.
                Err(_) => Ok(None),
            }
        }
    };
    SpaceDoor {
        totals: Arc::new(totals),
        may_write: Arc::new(may_write),
        count_owners: Arc::new(count_owners),
    }
}

/// The space door of a snapshot, where nothing is written.
fn space_of_snapshot(pool: &Arc<Pool>, snapshot: ObjectId) -> SpaceDoor {
    let pool = pool.clone();
    let totals = move || {
        let operation = internal();
        let view = pool.namespace().view(&operation);
        let found = view.dataset_without_name(snapshot);
        let space = found.and_then(|snapshot| tarn_dataset::space_used::snapshot_space(&snapshot));
        let space = space.unwrap_or_default();
        SpaceTotals {
            total_bytes: space.referenced.saturating_add(space.available),
            available_bytes: space.available,
        }
    };
    SpaceDoor {
        totals: Arc::new(totals),
        ..SpaceDoor::unlimited()
    }
}

fn space_facts(
    pool: &Pool,
    head: ObjectId,
    operation: &Operation,
) -> Result<tarn_dataset::space_used::HeadSpace, DatasetError> {
    let head = pool
        .namespace()
        .view(operation)
        .dataset_without_name(head)?;
    tarn_dataset::space_used::head_space(&head)
}

/// An operation of the daemon itself.
pub(crate) fn internal() -> Operation {
    Operation::internal(tarn_host::monotonic_ns, OperationKind::Assembly)
}

impl Tree for ServedTree {
    fn files(&self) -> &Arc<FileSystem> {
        &self.files
    }

    fn snapshot(&self, name: &[u8], operation: &Operation) -> Result<Arc<dyn Tree>, PosixError> {
        let name = std::str::from_utf8(name).map_err(|_| PosixError::NotFound)?;
        let head = self.head.as_ref().ok_or(PosixError::NotFound)?;
        let id = self.find_snapshot(name, operation)?;
        let open = || {
            let view = self.pool.namespace().view(operation);
            let snapshot = view.dataset_without_name(id)?;
            let properties = *self.files.properties();
            ServedTree::open_snapshot(&self.pool, &snapshot, properties, operation)
        };
        let purpose = HoldPurpose::SnapshotEntry;
        let held = head.served.hold(id, purpose, open);
        let (held, _) = held.map_err(|_: TreeError| PosixError::NotFound)?;
        // A snapshot that was destroyed since the lookup has no name; its object number may be
        // another dataset's.
        if held.files().is_ending() || self.find_snapshot(name, operation)? != id {
            return Err(PosixError::NotFound);
        }
        // It may have been entered before by another name, or with the head's former one.
        held.tree()
            .statistics
            .rename(&format!("{}@{name}", self.statistics.name()));
        let mut entered = head.entered.lock();
        held.files().set_properties(*self.files.properties());
        entered.retain(|tree| tree.strong_count() > 0);
        entered.push(held.weak_tree());
        drop(entered);
        Ok(held)
    }

    fn guid(&self) -> u64 {
        self.guid
    }

    fn snapshot_numbered(
        &self,
        dataset: ObjectId,
        operation: &Operation,
    ) -> Result<Arc<dyn Tree>, PosixError> {
        let name = self.snapshot_name(dataset, operation)?;
        let found = self.snapshot(name.as_bytes(), operation)?;
        // The name may be another snapshot's by now.
        match found.files().object_set().id() == dataset {
            true => Ok(found),
            false => Err(PosixError::NotFound),
        }
    }

    fn is_suspended(&self) -> bool {
        self.pool.txgs().is_suspended()
    }

    fn begin(
        &self,
        who: Who,
        kind: OperationKind,
        object: ObjectId,
        range: (u64, u64),
    ) -> Operation {
        let what = What {
            kind,
            dataset: self.statistics.id(),
            object: object.get(),
            offset: range.0,
            size: range.1,
        };
        Operation::begin(operation_clock_ns, who, what).after_lock_waits(lock_waits())
    }

    fn finish(&self, operation: Operation) {
        operation.add_lock_waits(lock_waits());
        let _ = operation.finish_with(self.statistics.operations());
    }
}
