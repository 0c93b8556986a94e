//! Log devices: emptying them, and when blocks may be allocated on them.
//!
//! # Problem
//! A log device may be removed, taken offline, or mirrored. Its log blocks were promised to
//! applications, and new ones are written at any moment.
//!
//! # Mechanism
//! A log's records are also in memory until their txg is stored. So a log device needs no copying.
//! From some moment on nothing new is allocated on it (it is *held*), and every log ends its
//! present chain; when the txg is stored that was open then, no log has a block there. Logs that
//! begin anew meanwhile take blocks of other log vdevs, or of data vdevs. While the device is empty
//! the vdev tree can be changed; the hold ends when that is stored, and not before: an import after
//! a crash must find log blocks there.
//!
//! Logs of a crash that are not replayed yet cannot be ended. A device with such a block stays as
//! it is; mounting the dataset replays the log.
//!
//! Space that is still allocated when no log has a block there was leaked by a log that could not
//! be read to its end. It goes with the device.
//!
//! # Invariants
//! - From the moment when a held device is empty to the end of the hold nothing is allocated there.
//! - Nothing is allocated on a log vdev that cannot be used, or on a vdev that is being emptied.

use crate::error::{PoolError, VdevChangeError};
use crate::log_holds::LogHold;
use crate::pool::Pool;
use std::ops::ControlFlow;
use tarn_dataset::dataset::Dataset;
use tarn_object::{AssignError, read_head};
use tarn_ondisk::block_pointer::BlockPointer;
use tarn_ondisk::objset::IntentLogHead;
use tarn_ondisk::units::VdevId;
use tarn_probe::Operation;
use tarn_zil::chain::{ChainEnd, Found, walk};

impl Pool {
    /// Ends all logs' chains on a log vdev. Nothing is allocated there until the hold ends.
    ///
    /// # Errors
    /// A log that is not replayed has a block there, or the pool stores nothing.
    #[doc(alias("spa_reset_logs", "metaslab_group_passivate"))]
    pub(crate) fn empty_log(
        &self,
        vdev: VdevId,
        operation: &Operation,
    ) -> Result<LogHold, VdevChangeError> {
        self.require_writable()?;
        let hold = self.log_holds.hold(vdev);
        let vacated = self.namespace().vacate_logs(operation);
        vacated.map_err(|error| match error {
            AssignError::Suspended => self.suspended(),
            AssignError::Stopped => crate::error::TaskError::Stopped,
        })?;
        self.sync_all(operation)?;
        let datasets = self.logs_on(vdev, operation)?;
        if !datasets.is_empty() {
            return Err(VdevChangeError::UnplayedLogs { datasets });
        }
        self.vdevs().note_empty(vdev);
        Ok(hold)
    }

    /// Notes the log vdevs without allocations when the pool is opened: a device that was absent
    /// for a while misses nothing there.
    pub(crate) fn note_empty_logs(&self) {
        let totals = self.space().group_totals();
        for top in self.vdevs().top_levels().iter().filter(|top| top.is_log) {
            let mut own = totals.iter().filter(|group| group.vdev == top.id);
            if own.all(|group| group.totals.allocated.is_zero()) {
                self.vdevs().note_empty(top.id);
            }
        }
    }

    /// The datasets whose stored logs have a block on this vdev, or may have one.
    fn logs_on(&self, vdev: VdevId, operation: &Operation) -> Result<Vec<String>, PoolError> {
        let view = self.namespace().view(operation);
        let mut found = Vec::new();
        let mut pending = vec![view.root()?];
        while let Some(directory) = pending.pop() {
            pending.extend(directory.children()?);
            let Some(head) = directory.head()? else {
                continue;
            };
            let log = self.log_of(&head, operation)?;
            if self.is_log_on(vdev, &log, operation) {
                found.push(directory.name().to_string());
            }
        }
        Ok(found)
    }

    fn is_log_on(&self, vdev: VdevId, log: &IntentLogHead, operation: &Operation) -> bool {
        let is_there = |pointer: &BlockPointer| pointer.dvas().any(|dva| dva.vdev() == vdev);
        if log.claim_txg.is_zero() {
            // The log is written now, and its chain was ended: blocks after its first were
            // allocated after that.
            return is_there(&log.first);
        }
        let mut is_found = false;
        let end = walk(self.io(), log, operation, &mut |found| match found {
            Found::Block(pointer) if is_there(pointer) => {
                is_found = true;
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        });
        let is_known = !matches!(
            end,
            ChainEnd::Unreadable { .. } | ChainEnd::Encrypted { .. }
        );
        is_found || !is_known
    }

    /// The stored header of a dataset's log.
    pub(crate) fn log_of(
        &self,
        head: &Dataset<'_>,
        operation: &Operation,
    ) -> Result<IntentLogHead, PoolError> {
        let root = head.stored()?.root;
        if root.is_hole() {
            return Ok(IntentLogHead::default());
        }
        let objset = read_head(self.cache(), head.id(), &root, operation);
        let objset = objset.map_err(|cause| PoolError::Object {
            object: head.id(),
            cause,
        })?;
        Ok(objset.intent_log)
    }
}
