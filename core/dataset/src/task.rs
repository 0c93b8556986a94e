//! Sync tasks: changes of the tree of datasets that run in the sync thread.
//!
//! # Mechanism
//! Any thread can submit a [`SyncTask`], which runs in the pool's sync thread, in the first pass of
//! a txg. `check` may refuse; it runs twice: at once, for a quick answer, and again right before
//! `apply`. `apply` works with a [`TaskContext`]: the tree, the permission to change it, feature
//! counts, the time that all changes of one txg share, and a place for records of the pool's
//! internal history.
//!
//! # Invariants
//! - `check` changes nothing.
//! - A change that a pool has no room for is refused before `check` ([`SyncTask::room`]): it would
//!   use up the room that storing needs.
//! - After `check` has agreed, `apply` fails only when the MOS cannot be read or grown; the pool
//!   then stops before the txg is stored.

use crate::error::DatasetError;
use crate::namespace::{Namespace, View};
use std::cell::RefCell;
use std::sync::Arc;
use tarn_block::BlockIo;
use tarn_object::{ObjectSet, SyncTx};
use tarn_ondisk::declare::widen;
use tarn_ondisk::features::Feature;
use tarn_ondisk::units::ObjectId;
use tarn_probe::Operation;

/// Counts how much features are in use. The pool keeps the counts; they are stored with the txg.
pub trait FeatureCounts {
    /// Whether the feature may be used.
    fn is_enabled(&self, feature: Feature) -> bool;

    /// Whether it is in use.
    fn is_active(&self, feature: Feature) -> bool;

    /// One more use.
    ///
    /// # Errors
    /// When the counts cannot be read or grown.
    #[doc(alias = "spa_feature_incr")]
    fn increment(&self, feature: Feature) -> Result<(), DatasetError>;

    /// One use less.
    ///
    /// # Errors
    /// When the counts cannot be read.
    #[doc(alias = "spa_feature_decr")]
    fn decrement(&self, feature: Feature) -> Result<(), DatasetError>;
}

/// A record for the pool's internal history, which the pool writes at the end of the txg.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InternalEvent {
    /// What happened, as OpenZFS names it: `create`, `set`, `destroy`.
    pub name: &'static str,
    /// The dataset's full name and object, where it concerns one.
    pub dataset: Option<(String, ObjectId)>,
    /// The rest, as OpenZFS words it.
    pub text: String,
}

/// What a task works with, in the sync thread.
pub struct TaskContext<'a> {
    /// The tree.
    pub namespace: &'a Namespace,
    /// Leave to change.
    pub tx: &'a SyncTx,
    /// For freeing blocks.
    pub io: &'a Arc<BlockIo>,
    /// Counts of features.
    pub features: &'a dyn FeatureCounts,
    /// The time of this txg, in seconds since 1970.
    pub now_s: u64,
    /// On whose behalf.
    pub operation: &'a Operation,
    /// Records for the internal history, in order.
    pub events: &'a RefCell<Vec<InternalEvent>>,
}

impl<'a> TaskContext<'a> {
    /// The tree as the task sees it.
    pub fn view(&self) -> View<'a> {
        self.namespace.view(self.operation).in_sync()
    }

    /// The MOS.
    pub fn mos(&self) -> &'a Arc<ObjectSet> {
        self.namespace.mos()
    }

    /// Adds a record to the internal history.
    pub fn record(&self, event: InternalEvent) {
        self.events.borrow_mut().push(event);
    }
}

/// Why a change was refused. What it means to a user depends on the command; each case names its
/// system error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskRefusal {
    /// Something of that name is there already (`EEXIST`).
    #[error("dataset already exists")]
    Exists {
        /// Its name.
        name: String,
    },
    /// Nothing has that name (`ENOENT`).
    #[error("dataset does not exist")]
    NotFound {
        /// The name.
        name: String,
    },
    /// The parent is missing (`ENOENT`).
    #[error("parent does not exist")]
    NoParent {
        /// The name of the parent.
        name: String,
    },
    /// The parent cannot have children: it is a volume.
    #[error("parent is not a filesystem")]
    ParentNotFilesystem {
        /// The name of the parent.
        name: String,
    },
    /// It has children, snapshots, clones, holds, or is in use (`EBUSY`, `EEXIST`).
    #[error("{why}")]
    Busy {
        /// Which, in OpenZFS's words.
        why: String,
    },
    /// There is no room, or a quota leaves none (`ENOSPC`, `EDQUOT`).
    #[error("{why}")]
    NoSpace {
        /// Which, in OpenZFS's words.
        why: String,
    },
    /// There may be no more file systems or snapshots below a dataset (`EDQUOT`).
    #[error("out of space")]
    LimitReached,
    /// The name would be too long, or too deep (`ENAMETOOLONG`).
    #[error("{why}")]
    NameTooLong {
        /// Which.
        why: String,
    },
    /// A value cannot be set (`EINVAL`, `ENOTSUP`, `ERANGE`).
    #[error("{why}")]
    BadValue {
        /// The property, where it is one.
        property: String,
        /// Why, in OpenZFS's words.
        why: String,
    },
    /// A feature is needed that the pool does not have enabled (`ENOTSUP`).
    #[error("pool must be upgraded to set this property or value")]
    FeatureDisabled {
        /// The feature.
        feature: Feature,
    },
    /// A command names two snapshots of the same dataset (`EXDEV`).
    #[error("multiple snapshots of same fs not allowed")]
    SameHead,
    /// It has clones (`EEXIST`).
    #[error("snapshot is cloned")]
    Cloned,
    /// A snapshot or bookmark is newer than the one that was named (`EEXIST`).
    #[error("{why}")]
    NotNewest {
        /// In OpenZFS's words.
        why: String,
    },
    /// What a stream goes on from is not there (`ENODEV`).
    #[error("most recent snapshot does not match incremental source")]
    NoBase,
    /// What a stream goes on from was changed since (`ETXTBSY`).
    #[error("destination has been modified since most recent snapshot")]
    Modified,
    /// What a stream goes on from has larger blocks than the stream can have.
    #[doc(alias = "ZFS_ERR_STREAM_LARGE_BLOCK_MISMATCH")]
    #[error("incremental send stream requires -L (--large-block), to match previous receive")]
    SmallBlocks,
    /// What is encrypted, and what a stream has of it, do not belong together (`EACCES`, `EINVAL`).
    #[error("{why}")]
    BadKey {
        /// In OpenZFS's words.
        why: String,
    },
    /// Two names would be the same (`EEXIST`).
    #[error("{why}")]
    Conflict {
        /// Which, in OpenZFS's words.
        why: String,
    },
    /// A bookmark would be of something that is not in the past of its dataset.
    #[error("source is not an ancestor of the new bookmark's dataset")]
    NotAnAncestor,
    /// The name of a hold is too long (`E2BIG`).
    #[error("tag too long")]
    TagTooLong,
    /// The snapshot has such a hold (`EEXIST`).
    #[error("tag already exists on this dataset")]
    TagExists,
    /// The snapshot has no such hold (`ESRCH`).
    #[error("no such tag on this dataset")]
    NoSuchTag,
    /// The change has to wait for the next group (`EAGAIN`). The sync thread runs it again.
    #[error("dataset is busy")]
    NotInThisGroup,
    /// A change of several datasets, which happens for all of them or for none: those it cannot
    /// happen for, and why.
    #[error("{}", named(.0))]
    Several(Vec<(String, TaskRefusal)>),
    /// This is not built.
    #[error("{what} is not supported by this version")]
    NotSupported {
        /// What.
        what: String,
    },
    /// The tree could not be read (`EIO`).
    #[error(transparent)]
    Dataset(#[from] DatasetError),
}

/// Each by its name, with why.
fn named(refused: &[(String, TaskRefusal)]) -> String {
    let told = refused.iter().map(|(name, why)| format!("'{name}': {why}"));
    told.collect::<Vec<String>>().join("; ")
}

impl TaskRefusal {
    /// Whether a change of several datasets can happen, in spite of what was found against some of
    /// them.
    ///
    /// # Errors
    /// It cannot.
    pub(crate) fn of_several(found: Vec<(String, TaskRefusal)>) -> Result<(), TaskRefusal> {
        let waits =
            |(_, refusal): &(_, TaskRefusal)| matches!(refusal, TaskRefusal::NotInThisGroup);
        match found {
            found if found.is_empty() => Ok(()),
            found if found.iter().all(waits) => Err(TaskRefusal::NotInThisGroup),
            mut found => {
                found.retain(|refused| !waits(refused));
                assert!(!found.is_empty(), "a refused task has a reason");
                Err(TaskRefusal::Several(found))
            }
        }
    }
}

/// What a change takes of the MOS, and whether a full pool keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// About how many blocks of the MOS it changes.
    pub blocks: u64,
    /// How far it may go into the slop.
    pub slop: SlopUse,
}

impl Room {
    /// Of a change that many others would follow: it happens only where datasets may be written.
    pub fn normal(blocks: usize) -> Room {
        Room::of(blocks, SlopUse::Nothing)
    }

    /// Of a change that may be needed to make room, or does little harm.
    pub fn reserved(blocks: usize) -> Room {
        Room::of(blocks, SlopUse::Half)
    }

    /// Of a change that makes room.
    pub fn freeing() -> Room {
        Room::of(0, SlopUse::ThreeQuarters)
    }

    /// Of what has to happen.
    pub fn any() -> Room {
        Room::of(0, SlopUse::All)
    }

    fn of(blocks: usize, slop: SlopUse) -> Room {
        Room {
            blocks: widen(blocks),
            slop,
        }
    }
}

/// How much of the slop a change may use.
#[doc(alias = "zfs_space_check_t")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlopUse {
    /// None of it (`ZFS_SPACE_CHECK_NORMAL`).
    Nothing,
    /// `ZFS_SPACE_CHECK_RESERVED`.
    Half,
    /// `ZFS_SPACE_CHECK_EXTRA_RESERVED`.
    ThreeQuarters,
    /// It is not asked for room (`ZFS_SPACE_CHECK_NONE`).
    All,
}

/// A change of the tree.
pub trait SyncTask: Send + 'static {
    /// What the caller gets.
    type Output: Send + 'static;

    /// What it takes, and whether a full pool keeps it.
    fn room(&self) -> Room {
        Room::reserved(3)
    }

    /// May refuse. Changes nothing.
    ///
    /// # Errors
    /// Why not.
    fn check(&self, view: View<'_>, features: &dyn FeatureCounts) -> Result<(), TaskRefusal>;

    /// Makes the change.
    ///
    /// # Errors
    /// When the MOS cannot be read or grown: the pool stops.
    fn apply(self, context: &TaskContext<'_>) -> Result<Self::Output, DatasetError>;
}
