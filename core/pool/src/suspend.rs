//! Suspension: a pool whose devices are gone, how it resumes, and how it is given up.
//!
//! # Mechanism
//! The sync thread waits in `vdev` for the devices that are gone ([`tarn_vdev::suspension`]). This
//! module suspends the rest: writers wait or fail as `failmode` says, jobs are refused, and a
//! thread that waits for a txg gets an error or waits, too. When devices are back the thread goes
//! on where it was: no group is lost.
//!
//! What keeps a group from being stored and is no fault of devices (the disk lied, or we are wrong)
//! suspends the pool for good: only exporting and importing it helps, which finds the group before.
//!
//! A pool is *given up* when an administrator will not wait any longer. All threads that wait for
//! it, or for its devices, get an error; nothing more is written; then it can be closed at once.
//! The next import finds the last whole group, and the intent logs of what was committed since.
//!
//! # Invariants
//! - A change that failed with a suspension was not reported as stored. It may be stored later.
//! - Nothing is written after a pool was given up, but what was handed to the system before.

use crate::error::PoolError;
use crate::failure::{Cure, Failure};
use crate::job_queue::{Closed, Taken};
use crate::pool::Pool;
use std::sync::{Arc, Weak};
use tarn_probe::Operation;
use tarn_vdev::{ResumeError, SuspensionDoor};

/// Why a suspended pool does not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeRefusal {
    /// Its devices are not back.
    #[error(transparent)]
    Devices(#[from] ResumeError),
    /// What failed is no fault of devices. Exporting by force and importing finds the last whole
    /// group.
    #[error("{why}")]
    ForGood {
        /// What failed.
        why: String,
    },
}

/// Tells a pool about its devices.
struct Door(Weak<Pool>);

impl SuspensionDoor for Door {
    fn suspended(&self, why: &str) {
        let Some(pool) = self.0.upgrade() else { return };
        let failure = Failure {
            why: why.to_string(),
            cure: Cure::Devices,
        };
        pool.failure.lock().get_or_insert(failure);
        pool.txgs().suspend(pool.fail_mode());
        pool.jobs.close(&Closed::Suspended(why.to_string()));
    }

    fn resumed(&self) {
        let Some(pool) = self.0.upgrade() else { return };
        {
            let mut failure = pool.failure.lock();
            if failure
                .as_ref()
                .is_some_and(|failure| failure.cure != Cure::Devices)
            {
                return;
            }
            *failure = None;
        }
        pool.jobs.open();
        pool.txgs().resume();
    }
}

impl Pool {
    /// From now on the pool is suspended when devices are gone.
    pub(crate) fn begin_suspension(self: &Arc<Self>) {
        self.vdevs().begin(Arc::new(Door(Arc::downgrade(self))));
    }

    /// Nothing is stored any more.
    pub(crate) fn suspend_for_good(&self, error: &PoolError, jobs: Taken) {
        let why = error.to_string();
        let failure = Failure {
            why: why.clone(),
            cure: Cure::Import,
        };
        // What was given up fails because of that.
        if !self.is_given_up() {
            *self.failure.lock() = Some(failure);
        }
        self.txgs().suspend(self.fail_mode());
        let closed = Closed::Suspended(why);
        jobs.failed(&closed);
        self.jobs.close(&closed);
    }

    /// Why the pool is suspended, if it is.
    pub fn failure(&self) -> Option<String> {
        let failure = self.failure.lock();
        failure.as_ref().map(|failure| failure.why.clone())
    }

    /// Opens devices again that were gone, and goes on where the pool was suspended. Nothing, when
    /// it is not.
    ///
    /// # Errors
    /// Devices are not back, or it was something else that failed: it stays suspended.
    pub fn resume(&self, operation: &Operation) -> Result<(), ResumeRefusal> {
        let failure = self.failure.lock().clone();
        match failure {
            Some(Failure { why, cure }) if cure != Cure::Devices => {
                Err(ResumeRefusal::ForGood { why })
            }
            _ => Ok(self.vdevs().resume(operation)?),
        }
    }

    /// How long any device has given no answer at all, though it owes some.
    pub fn silent_ns(&self) -> u64 {
        self.vdevs().silent_ns()
    }

    /// Gives the pool up: all threads that wait for it or its devices get errors, and nothing more
    /// is stored. Then it is to be closed.
    pub fn give_up(&self) {
        {
            let mut failure = self.failure.lock();
            let why = match failure.take() {
                Some(failure) => failure.why,
                None => "the pool was given up".to_string(),
            };
            let cure = Cure::None;
            *failure = Some(Failure { why, cure });
        }
        self.txgs().stop();
        self.vdevs().give_up();
        self.jobs.close(&Closed::Stopped);
    }

    /// Whether it was given up.
    pub(crate) fn is_given_up(&self) -> bool {
        let failure = self.failure.lock();
        failure
            .as_ref()
            .is_some_and(|failure| failure.cure == Cure::None)
    }
}
