//! Counts for owners, brought up: file systems from before the features `userobj_accounting` and `project_quota` were enabled count objects and
//! projects when they are mounted anew, or when something is made in them.
//!
//! # Mechanism
//! A thread of its own goes through the objects, some at a time, and takes the pool's turn for each part: so nothing is destroyed, rolled back or received meanwhile, and no
//! command waits for more than one part. When it is unmounted meanwhile, that goes on; when the pool is exported it ends, and the next mount begins with what is not counted.

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

/// How long others have between two parts.
const PAUSE: Duration = Duration::from_millis(1);

/// Brings up the counts of one mounted file system.
pub(crate) struct OwnerCounts {
    open: Weak<OpenPool>,
    head: ObjectId,
    is_running: AtomicBool,
    /// The group in which it was looked last whether there is something to count.
    looked_in: AtomicU64,
}

/// Whose the pool's turn is while objects are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It is taken for each part.
    Taken,
    /// The caller has it.
    Held,
}

/// Why counting has ended before its end. The next mount goes on.
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

    /// Counts in the background what is not counted, if there is such. It is looked once in a group, however often it is asked for.
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
            // What stops it lets the next mount begin again.
            drop(count(&itself.open, itself.head, Turn::Taken));
            itself.is_running.store(false, Ordering::Release);
        };
        drop(host.spawn_background("tarn-count", run));
    }

    /// Has projects counted when this returns, if they can be.
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

/// Counts all that is not counted of a file system, and returns when that is stored.
pub(crate) fn count_all(open: &Arc<OpenPool>, head: ObjectId) {
    if has_uncounted(open, head) {
        drop(count(&Arc::downgrade(open), head, Turn::Held));
    }
}

/// The pool is held for one part at a time: whoever exports it does not wait for the others.
fn count(open: &Weak<OpenPool>, head: ObjectId, turn: Turn) -> Result<(), Stopped> {
    let operation: Operation = internal();
    let pool = || open.upgrade().ok_or(Stopped::Exported);
    // Its counts are those of this object set: as long as it is held, everybody has this one.
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
        // What is sent as it is stays so.
        if namespace.is_in_use(head) || !is_current(namespace.view(&operation), &set) {
            return Err(Stopped::Changed);
        }
        at = set.count_objects(after, &operation)?;
        drop(part);
        if turn == Turn::Taken {
            let host = open.pool.host().clone();
            drop(open);
            // Whoever waits for the turn gets it.
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
