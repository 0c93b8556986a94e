//! Suspension of a pool whose devices are gone; resuming it, and giving it up.
//!
//! # Mechanism
//! The sync thread waits in `vdev` for the lost devices ([`tarn_vdev::suspension`]). This module
//! suspends the rest: writers wait or fail as `failmode` says, jobs are refused, and a thread that
//! waits for a txg gets an error or waits, too. When devices are back the sync thread goes on where
//! it was: no txg is lost.
//!
//! An error that keeps a txg from being stored and is no fault of devices (damaged metadata, or a
//! bug in Tarn) suspends the pool for good: only exporting and importing it helps, which opens the
//! txg before.
//!
//! A pool is *given up* when an administrator exports it by force. All threads that wait for it, or
//! for its devices, get an error; nothing more is written; then it can be closed at once. The next
//! import finds the last stored txg, and the intent logs of later commits.
//!
//! # Invariants
//! - A change that failed with a suspension was not reported as stored. It may be stored later.
//! - After a pool was given up, only writes that the system already has are still done.

use crate::error::PoolError;
use crate::events::class;
use crate::failure::{Cure, Failure};
use crate::job_queue::{Closed, Taken};
use crate::pool::Pool;
use std::sync::{Arc, Weak};
use tarn_probe::Operation;
use tarn_vdev::{ResumeError, SuspensionDoor};

/// Why a suspended pool does not resume.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeRefusal {
    /// Its devices are not back.
    #[error(transparent)]
    Devices(#[from] ResumeError),
    /// This host did not write its heartbeat in time, and another host has, or may have, imported
    /// the pool. Exporting by force gives it up here.
    #[error("another host has imported the pool, or is about to")]
    OtherHost,
    /// The error is no fault of devices. Exporting by force and importing opens the last stored
    /// txg.
    #[error("{why}")]
    ForGood {
        /// The error.
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
        pool.post_pool_error(class::IO_FAILURE);
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
    /// Lets the loss of devices suspend the pool from now on.
    pub(crate) fn begin_suspension(self: &Arc<Self>) {
        self.vdevs().begin(Arc::new(Door(Arc::downgrade(self))));
    }

    /// Suspends the pool for good.
    pub(crate) fn suspend_for_good(&self, error: &PoolError, jobs: Taken) {
        let why = error.to_string();
        let failure = Failure {
            why: why.clone(),
            cure: Cure::Import,
        };
        // Errors after giving up follow from that.
        if !self.is_given_up() {
            *self.failure.lock() = Some(failure);
        }
        self.txgs().suspend(self.fail_mode());
        let closed = Closed::Suspended(why);
        jobs.failed(&closed);
        self.jobs.close(&closed);
    }

    /// Whether nothing is written since no heartbeat was written in time.
    pub fn is_lease_expired(&self) -> bool {
        self.vdevs().lease().has_expired()
    }

    /// Why the pool is suspended, if it is.
    pub fn failure(&self) -> Option<String> {
        let failure = self.failure.lock();
        failure.as_ref().map(|failure| failure.why.clone())
    }

    /// Reopens lost devices, and resumes the pool. Does nothing when it is not suspended.
    ///
    /// # Errors
    /// Devices are not back, or the error was another: it stays suspended.
    pub fn resume(&self, operation: &Operation) -> Result<(), ResumeRefusal> {
        let failure = self.failure.lock().clone();
        match failure {
            Some(Failure { why, cure }) if cure != Cure::Devices => {
                Err(ResumeRefusal::ForGood { why })
            }
            _ => {
                if self.vdevs().lease().has_expired() {
                    self.take_back()?;
                }
                Ok(self.vdevs().resume(operation)?)
            }
        }
    }

    /// The longest time for which any device with unanswered requests has answered none, in
    /// nanoseconds.
    pub fn silent_ns(&self) -> u64 {
        self.vdevs().silent_ns()
    }

    /// Gives the pool up: all threads that wait for it or its devices get errors, and nothing more
    /// is stored. The caller closes it then.
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
