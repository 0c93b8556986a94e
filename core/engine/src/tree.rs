//! A mounted dataset as front ends get it.
//!
//! A file system asks its pool for two things: how much room its dataset has, and which snapshots. Both are looked up
//! when they are asked for, since they change while it is mounted; so does its name.

use crate::count_owners::OwnerCounts;
use crate::engine::OpenPool;
use crate::files::{FileSystem, ObjectId, PosixError, Tree};
use crate::snapshot_directory::{Entered, SnapshotDirectory};
use std::any::Any;
use std::sync::{Arc, Weak};
use tarn_dataset::dataset::Dataset;
use tarn_dataset::error::DatasetError;
use tarn_dataset::intent_log::ForgetLog;
use tarn_dataset::limits::{AdmitRefusal, Wish};
use tarn_dataset::task::FeatureCounts;
use tarn_host::lock::{Mutex, Rank};
use tarn_ondisk::features::Feature;
use tarn_pool::{Mode, Pool};
use tarn_posix::MountProperties;
use tarn_posix::space::{SpaceDoor, SpaceRefusal, SpaceUse, Uncounted};
use tarn_posix::types::SpaceFacts;
use tarn_posix::{FileSystemParts, MountError, Unlinked};
use tarn_probe::{DatasetStatistics, Operation, OperationKind, What, Who};
use tarn_zil::Durability;

/// Snapshots of one mount, while they get properties.
const BELOW: Rank = Rank::new(tarn_host::ranks::ENGINE + 42, "snapshots below a mount");

/// One mounted dataset.
pub(crate) struct MountedTree {
    pool: Arc<Pool>,
    head: ObjectId,
    files: Arc<FileSystem>,
    statistics: Arc<DatasetStatistics>,
    entered: Arc<Entered>,
    /// Snapshots that were entered below `.zfs`: they follow its properties.
    below: Mutex<Vec<Weak<FileSystem>>>,
    counts: Arc<OwnerCounts>,
}

/// How a dataset's files are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TreeChoices {
    /// What of the intent log cannot be replayed may be given up.
    pub(crate) discards_log: bool,
    /// Names in `.zfs/snapshot` cannot be changed.
    pub(crate) fixes_snapshot_names: bool,
    /// What becomes of files that were left without a name.
    pub(crate) unlinked: Unlinked,
}

/// Why a dataset cannot be mounted.
pub(crate) struct TreeError {
    /// For people.
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

impl MountedTree {
    /// Opens a dataset's files. Where its intent log cannot be replayed to its end, what is left of it may be given up.
    ///
    /// # Errors
    /// Why it cannot be mounted, for people.
    pub(crate) fn open(
        open: &Arc<OpenPool>,
        dataset: &Dataset<'_>,
        properties: MountProperties,
        choices: TreeChoices,
        operation: &Operation,
    ) -> Result<Arc<MountedTree>, TreeError> {
        let head = dataset.id();
        match MountedTree::open_once(open, dataset, properties, choices, operation) {
            Err(error) if error.is_log && choices.discards_log => {
                open.pool.run(ForgetLog { head }, operation)?;
                MountedTree::open_once(open, dataset, properties, choices, operation)
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
    ) -> Result<Arc<MountedTree>, TreeError> {
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
            space: space_of(pool, head, counts.clone()),
            snapshots: Some(Arc::new(SnapshotDirectory {
                pool: pool.clone(),
                head,
                entered: open.entered.clone(),
                is_fixed: choices.fixes_snapshot_names,
            })),
            unlinked: choices.unlinked,
        };
        if let Some(log) = &parts.log
            && pool.features().is_enabled(Feature::Zilsaxattr)
        {
            log.allow_xattrs();
        }
        let files = FileSystem::open(parts, operation).map_err(|error| {
            pool.namespace().forget_log(head);
            TreeError {
                is_log: matches!(error, MountError::Replay(_)),
                why: error.to_string(),
            }
        })?;
        if is_writable && !files.object_set().phys().intent_log.claim_txg.is_zero() {
            // It was replayed, or there was nothing in it.
            if let Err(error) = pool.run(ForgetLog { head }, operation) {
                pool.namespace().forget_log(head);
                return Err(error.into());
            }
        }
        let registry = tarn_probe::registry();
        let name = dataset.name();
        let statistics = DatasetStatistics::register(
            registry,
            pool.name(),
            head.get(),
            name.as_str(),
            files.unlinked_counts().clone(),
        );
        Ok(Arc::new(MountedTree {
            pool: pool.clone(),
            head,
            files,
            statistics,
            entered: open.entered.clone(),
            below: Mutex::new(BELOW, Vec::new()),
            counts,
        }))
    }

    /// The dataset has other properties now, and so have its snapshots.
    pub(crate) fn set_properties(&self, properties: MountProperties) {
        let mut below = self.below.lock();
        self.files.set_properties(properties);
        below.retain(|files| files.strong_count() > 0);
        for files in below.iter().filter_map(Weak::upgrade) {
            files.set_properties(properties);
        }
    }

    /// A snapshot was entered, which has the properties that the dataset has now.
    fn follow(&self, files: &Arc<FileSystem>) {
        let mut below = self.below.lock();
        files.set_properties(*self.files.properties());
        below.retain(|files| files.strong_count() > 0);
        below.push(Arc::downgrade(files));
    }

    /// It was mounted: what is not counted for owners and can be by now is counted in the background. A mount that changes nothing counts nothing.
    pub(crate) fn bring_up_counts(&self) {
        if !self.files.properties().is_read_only {
            self.counts.bring_up();
        }
    }

    /// The dataset has another name now.
    pub(crate) fn rename(&self, name: &str) {
        self.statistics.rename(name);
    }

    /// The object of the dataset.
    pub(crate) fn head(&self) -> ObjectId {
        self.head
    }

    fn find_snapshot(
        &self,
        name: &str,
        operation: &Operation,
    ) -> Result<Option<Arc<tarn_object::ObjectSet>>, DatasetError> {
        let view = self.pool.namespace().view(operation);
        let Some(snapshot) = view.dataset_without_name(self.head)?.snapshot(name)? else {
            return Ok(None);
        };
        tarn_dataset::contents::objset(&snapshot).map(Some)
    }
}

/// How much room the dataset has.
fn space_of(pool: &Arc<Pool>, head: ObjectId, counts: Arc<OwnerCounts>) -> SpaceDoor {
    let facts = {
        let pool = pool.clone();
        move || {
            let space = space_facts(&pool, head, &internal()).unwrap_or_default();
            SpaceFacts {
                total_bytes: space.referenced.saturating_add(space.available),
                available_bytes: space.available,
                id: head.get(),
                ..SpaceFacts::default()
            }
        }
    };
    let may_write = {
        let pool = pool.clone();
        move |bytes, space_use| {
            let wish = match space_use {
                SpaceUse::Divisible => Wish::Divisible,
                SpaceUse::Whole => Wish::Whole,
                SpaceUse::Freeing => Wish::Freeing,
            };
            let asked = pool
                .namespace()
                .admit(head, bytes, wish, &Operation::unmeasured());
            match asked {
                Ok(leave) => Ok(leave
                    .is_to_be_kept()
                    .then(|| -> Box<dyn Any + Send> { Box::new(leave) })),
                Err(AdmitRefusal::QuotaExceeded) => Err(SpaceRefusal::QuotaExceeded),
                Err(AdmitRefusal::NoSpace) => Err(SpaceRefusal::NoSpace),
                // Of a pool that does not store anything now, the transaction tells.
                Err(_) => Ok(None),
            }
        }
    };
    SpaceDoor {
        facts: Arc::new(facts),
        may_write: Arc::new(may_write),
        count_owners: Arc::new(move |uncounted| match uncounted {
            Uncounted::Something => counts.bring_up(),
            Uncounted::Projects => counts.bring_up_projects(),
        }),
    }
}

/// How much room there is where a snapshot is. Nothing is written there.
fn space_of_snapshot(pool: &Arc<Pool>, snapshot: ObjectId) -> SpaceDoor {
    let pool = pool.clone();
    let facts = move || {
        let operation = internal();
        let view = pool.namespace().view(&operation);
        let found = view.dataset_without_name(snapshot);
        let space = found.and_then(|snapshot| tarn_dataset::space_used::snapshot_space(&snapshot));
        let space = space.unwrap_or_default();
        SpaceFacts {
            total_bytes: space.referenced.saturating_add(space.available),
            available_bytes: space.available,
            id: snapshot.get(),
            ..SpaceFacts::default()
        }
    };
    SpaceDoor {
        facts: Arc::new(facts),
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

/// An operation of our own.
pub(crate) fn internal() -> Operation {
    Operation::internal(tarn_host::monotonic_ns, OperationKind::Assembly)
}

impl Tree for MountedTree {
    fn files(&self) -> &Arc<FileSystem> {
        &self.files
    }

    fn snapshot(&self, name: &[u8], operation: &Operation) -> Result<Arc<FileSystem>, PosixError> {
        let name = std::str::from_utf8(name).map_err(|_| PosixError::NotFound)?;
        let entering = self.entered.begin();
        let found = self.find_snapshot(name, operation);
        let set = found.map_err(|_| PosixError::NotFound)?;
        let set = set.ok_or(PosixError::NotFound)?;
        let id = set.id();
        let parts = FileSystemParts {
            set,
            txgs: None,
            log: None,
            properties: MountProperties {
                is_read_only: true,
                ..*self.files.properties()
            },
            host: self.pool.host().clone(),
            space: space_of_snapshot(&self.pool, id),
            snapshots: None,
            unlinked: Unlinked::Kept,
        };
        let files = FileSystem::open(parts, operation).map_err(|_| PosixError::NotFound)?;
        match entering.enter(id, &files) {
            true => {
                self.follow(&files);
                Ok(files)
            }
            false => Err(PosixError::NotFound),
        }
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
        Operation::begin(tarn_host::monotonic_ns, who, what)
    }

    fn finish(&self, operation: Operation) {
        operation.finish_with(self.statistics.operations());
    }
}
