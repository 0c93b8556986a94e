//! Owner accounting of old file systems: where the features `userobj_accounting` and
//! `project_quota` were enabled later, objects and projects are counted when the file system is
//! mounted, or when something is made in it.
//!
//! # Mechanism
//! A background thread counts the objects in parts and takes the pool's turn for each part. So no
//! destroy, rollback or receive changes the file system under it, and no command waits for more
//! than one part. Unmounting does not stop it. Exporting the pool does; the next mount goes on with
//! the objects that are not counted.

use crate::engine::OpenPool;
use crate::tree::internal;
use crate::turns::turn_of;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tarn_dataset::error::DatasetError;
use tarn_dataset::ops::count_owners::{BeginCounting, EndCounting, countable, is_current};
use tarn_object::CountError;
use tarn_ondisk::units::ObjectId;
use tarn_pool::{Mode, TaskError};
use tarn_probe::Operation;

/// Pause between two parts, in which commands get the pool's turn.
const PAUSE: Duration = Duration::from_millis(1);

/// Brings the owner counts of one mounted file system up to date.
pub(crate) struct OwnerCounts {
    open: Weak<OpenPool>,
    head: ObjectId,
    is_running: AtomicBool,
    /// The txg in which the file system was last checked for uncounted objects.
    looked_in: AtomicU64,
}

/// How counting gets the pool's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Counting takes it for each part.
    Taken,
    /// The caller holds it.
    Held,
}

/// Why counting stopped early. The next mount goes on.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error(transparent)]
    Task(#[from] TaskError),
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error(transparent)]
    Count(#[from] CountError),
    #[error("the file system is being sent, or another by now")]
    Changed,
    #[error("the pool does not answer")]
    NoTurn,
    #[error("the pool was exported")]
    Exported,
}

impl OwnerCounts {
    pub(crate) fn new(open: &Arc<OpenPool>, head: ObjectId) -> Arc<OwnerCounts> {
        Arc::new(OwnerCounts {
            open: Arc::downgrade(open),
            head,
            is_running: AtomicBool::new(false),
            looked_in: AtomicU64::new(0),
        })
    }

    /// Counts in the background, if anything is uncounted. It checks at most once in each txg,
    /// however often it is called.
    pub(crate) fn bring_up(self: &Arc<Self>) {
        let Some(open) = self.open.upgrade() else {
            return;
        };
        let group = open.pool.txgs().open_txg().get();
        if self.looked_in.swap(group, Ordering::Relaxed) == group
            || !has_uncounted(&open, self.head)
            || self.is_running.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let itself = self.clone();
        let host = open.pool.host().clone();
        drop(open);
        let run = move || {
            // An error stops the counting; the next mount begins again.
            drop(count(&itself.open, itself.head, Turn::Taken));
            itself.is_running.store(false, Ordering::Release);
        };
        drop(host.spawn_background("tarn-count", run));
    }

    /// Returns when projects are counted, if the file system can count them.
    pub(crate) fn bring_up_projects(self: &Arc<Self>) {
        if let Some(open) = self
            .open
            .upgrade()
            .filter(|open| has_uncounted(open, self.head))
        {
            drop(
                open.pool
                    .run(BeginCounting { head: self.head }, &internal()),
            );
        }
        self.looked_in.store(0, Ordering::Relaxed);
        self.bring_up();
    }
}

fn has_uncounted(open: &OpenPool, head: ObjectId) -> bool {
    if open.pool.mode() == Mode::ReadOnly {
        return false;
    }
    let operation = internal();
    let Ok(set) = open.pool.namespace().head_set(head, &operation) else {
        return false;
    };
    let uncounted = set.uncounted(countable(&open.pool.features()));
    uncounted.objects || uncounted.projects
}

/// Counts all uncounted objects of a file system, and returns when the counts are stored.
pub fn count_all(open: &Arc<OpenPool>, head: ObjectId) {
    if has_uncounted(open, head) {
        drop(count(&Arc::downgrade(open), head, Turn::Held));
    }
}

/// Takes the pool's turn for one part at a time, so that an export does not wait for all of them.
fn count(open: &Weak<OpenPool>, head: ObjectId, turn: Turn) -> Result<(), Stopped> {
    let operation: Operation = internal();
    let pool = || open.upgrade().ok_or(Stopped::Exported);
    // The counts are kept with this object set. While it is open, all holders get the same one.
    let set = pool()?.pool.namespace().head_set(head, &operation)?;
    if !pool()?.pool.run(BeginCounting { head }, &operation)? {
        return Ok(());
    }
    let mut at = Some(ObjectId::ZERO);
    while let Some(after) = at {
        let open = pool()?;
        let part = match turn {
            Turn::Held => None,
            Turn::Taken => Some(turn_of(&open).ok_or(Stopped::NoTurn)?),
        };
        let namespace = open.pool.namespace();
        // A head that is being sent must not change.
        if namespace.is_in_use(head) || !is_current(namespace.view(&operation), &set) {
            return Err(Stopped::Changed);
        }
        at = set.count_objects(after, &operation)?;
        drop(part);
        if turn == Turn::Taken {
            let host = open.pool.host().clone();
            drop(open);
            // Lets commands that wait for the turn have it.
            host.sleep(PAUSE);
        }
    }
    let txgs = &set.env().txgs;
    let last = txgs.open_txg();
    txgs.wait_stored(last, &operation)
        .map_err(CountError::from)?;
    pool()?.pool.run(EndCounting { head }, &operation)?;
    Ok(())
}
