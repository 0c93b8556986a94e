//! `zpool scrub -e`: only the blocks of the error log are read, with all their copies.
//!
//! # Mechanism
//! It runs in the sync thread, a slice of bounded time in each txg, so that no block is freed while
//! it is read. An entry names a file system and the birth of the block: the block is read there,
//! and once more for each snapshot and clone that has it. What cannot be read is logged again. At
//! the end the new log takes the place of the old one, so that errors which are gone are forgotten.
//!
//! The state ([`ErrorScrub`]) is OpenZFS's. Its cursor is kept at the start of the log: either
//! program begins with that again after an import.
//!
//! What has no object of its own, and what leads to it cannot be read, stays in the log.

use super::state::KnownErrors;
use crate::error::PoolError;
use crate::error_log;
use crate::events::class;
use crate::find_block::{FoundBlock, find_block};
use crate::pool::Pool;
use crate::sync_scope::SyncScope;
use std::collections::BTreeSet;
use tarn_block::ScanItem;
use tarn_dataset::contents;
use tarn_dataset::task::{FeatureCounts, InternalEvent};
use tarn_object::zap::ZapValue;
use tarn_ondisk::block_pointer::PointerKind;
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::declare::widen;
use tarn_ondisk::error_log::HeadErrorPlace;
use tarn_ondisk::error_scrub::{CANCELED, ERROR_SCRUB, ERROR_SCRUBBING, ErrorScrub, FINISHED};
use tarn_ondisk::features::Feature;
use tarn_ondisk::nvlist::NvList;
use tarn_ondisk::pool_directory::{self, POOL_DIRECTORY};
use tarn_ondisk::units::{ObjectId, Txg};
use tarn_probe::{Operation, OperationKind};
use tarn_vdev::ScanPurpose;

/// How long a slice reads, in nanoseconds, as that of a walk.
const SLICE_NS: u64 = 200_000_000;

/// No more datasets are searched for one block: a bound on the time of a crafted pool.
const DATASETS_MAX: usize = 1 << 16;

impl Pool {
    /// Loads what the MOS has, when the pool is opened.
    pub(crate) fn load_error_scrub(&self, operation: &Operation) -> Result<(), PoolError> {
        let stored = self
            .directory(operation)
            .value(pool_directory::ERROR_SCRUB)?;
        let stored = stored.and_then(|stored| ErrorScrub::from_words(&stored.to_words()));
        let Some(now) = stored else { return Ok(()) };
        let now_s = u64::try_from(self.host().unix_time().seconds).unwrap_or(0);
        *self.scans.known_errors.lock() = KnownErrors {
            now,
            left: None,
            paused_since_s: if now.is_paused() { now_s } else { 0 },
        };
        Ok(())
    }

    /// The scrub of known errors that runs, or the last one, and since when it is paused.
    pub fn error_scrub(&self) -> (ErrorScrub, u64) {
        let known = self.scans.known_errors.lock();
        (known.now, known.paused_since_s)
    }

    pub(super) fn has_error_scrub_work(&self) -> bool {
        let now = self.scans.known_errors.lock().now;
        now.is_running() && !now.is_paused()
    }

    /// Begins one. Nothing begins where no errors are known.
    #[doc(alias = "dsl_errorscrub_setup_sync")]
    pub(super) fn begin_error_scrub(&self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        let is_by_head = scope.features.is_enabled(Feature::HeadErrlog);
        let directory = scope.writer.directory();
        let to_examine = widen(error_log::last_errors(directory, is_by_head)?.len());
        if to_examine == 0 {
            return Ok(());
        }
        error_log::keep_left(scope)?;
        let now = ErrorScrub {
            function: ERROR_SCRUB,
            state: ERROR_SCRUBBING,
            start_time_s: scope.context.now_s,
            to_examine,
            ..ErrorScrub::default()
        };
        *self.scans.known_errors.lock() = KnownErrors {
            now,
            ..KnownErrors::default()
        };
        put(scope, &now)?;
        self.post_event(class::ERROR_SCRUB_START, None, NvList::new());
        scope.context.record(InternalEvent {
            name: "error scrub setup",
            dataset: None,
            text: format!(
                "func={ERROR_SCRUB} mintxg=0 maxtxg={}",
                scope.writer.tx.txg()
            ),
        });
        self.txgs().kick();
        Ok(())
    }

    /// Pauses the one that runs, or resumes it.
    #[doc(alias = "dsl_errorscrub_pause_resume_sync")]
    pub(super) fn pause_error_scrub(
        &self,
        scope: &SyncScope<'_>,
        is_paused: bool,
    ) -> Result<(), PoolError> {
        let now = {
            let mut known = self.scans.known_errors.lock();
            assert!(known.now.is_running(), "what is paused runs");
            known.now.paused = u64::from(is_paused);
            known.paused_since_s = if is_paused { scope.context.now_s } else { 0 };
            known.now
        };
        put(scope, &now)?;
        let event = match is_paused {
            true => class::ERROR_SCRUB_PAUSED,
            false => class::ERROR_SCRUB_RESUME,
        };
        self.post_event(event, None, NvList::new());
        self.txgs().kick();
        Ok(())
    }

    /// Ends the one that runs, if any. Errors that it has not come to stay known.
    #[doc(alias = "dsl_errorscrub_done")]
    pub(super) fn end_error_scrub(
        &self,
        scope: &SyncScope<'_>,
        is_complete: bool,
    ) -> Result<(), PoolError> {
        let now = {
            let mut known = self.scans.known_errors.lock();
            if !known.now.is_running() {
                return Ok(());
            }
            known.left = None;
            known.paused_since_s = 0;
            known.now = ErrorScrub {
                state: if is_complete { FINISHED } else { CANCELED },
                end_time_s: scope.context.now_s,
                paused: 0,
                ..known.now
            };
            known.now
        };
        error_log::end_scan(scope, is_complete)?;
        let is_by_head = scope.features.is_enabled(Feature::HeadErrlog);
        let errors = error_log::count(scope.writer.directory(), is_by_head).unwrap_or(0);
        let (name, event) = match is_complete {
            true => ("error scrub done", class::ERROR_SCRUB_FINISH),
            false => ("error scrub canceled", class::ERROR_SCRUB_ABORT),
        };
        scope.context.record(InternalEvent {
            name,
            dataset: None,
            text: format!("errors={errors}"),
        });
        self.post_event(event, None, NvList::new());
        put(scope, &now)
    }

    /// Forgets the last one: a scrub of all blocks begins.
    pub(super) fn forget_error_scrub(&self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        let before = std::mem::take(&mut *self.scans.known_errors.lock());
        match before.now == ErrorScrub::default() {
            true => Ok(()),
            false => put(scope, &ErrorScrub::default()),
        }
    }

    /// Reads on, in the first pass of a txg, after all changes of datasets.
    #[doc(alias = "dsl_errorscrub_sync")]
    pub(super) fn sync_error_scrub(&self, scope: &SyncScope<'_>) -> Result<(), PoolError> {
        if !self.has_error_scrub_work() {
            return Ok(());
        }
        let left = self.scans.known_errors.lock().left.take();
        let mut left = match left {
            Some(left) => left,
            None => {
                let is_by_head = scope.features.is_enabled(Feature::HeadErrlog);
                let all = error_log::last_errors(scope.writer.directory(), is_by_head)?;
                let mut known = self.scans.known_errors.lock();
                known.now.to_examine = widen(all.len());
                known.now.examined = 0;
                known.now.error_count = 0;
                all.into()
            }
        };
        let end_ns = self.host().monotonic_ns() + SLICE_NS;
        // The txg waits for it.
        let hurried = self.vdevs().hurry_scrubs();
        let operation = Operation::internal(tarn_host::monotonic_ns, OperationKind::Scan);
        while let Some((dataset, place)) = left.pop_front() {
            let is_damaged = self.scrub_known(scope, dataset, &place, &operation);
            let mut known = self.scans.known_errors.lock();
            known.now.examined += 1;
            known.now.to_examine = widen(left.len());
            known.now.error_count += u64::from(is_damaged);
            drop(known);
            if self.host().monotonic_ns() >= end_ns {
                break;
            }
        }
        operation.finish();
        drop(hurried);
        if left.is_empty() {
            return self.end_error_scrub(scope, true);
        }
        let now = {
            let mut known = self.scans.known_errors.lock();
            known.left = Some(left);
            known.now
        };
        self.txgs().kick();
        put(scope, &now)
    }

    /// Reads the block of an entry wherever it is. Gives whether it is damaged.
    #[doc(alias = "scrub_filesystem")]
    fn scrub_known(
        &self,
        scope: &SyncScope<'_>,
        head: ObjectId,
        place: &HeadErrorPlace,
        operation: &Operation,
    ) -> bool {
        if place.object.is_zero() || place.level < 0 {
            self.log_error(place.in_dataset(head), place.birth);
            return true;
        }
        let block = (place.level, place.block);
        if head.is_zero() {
            let found = find_block(self.mos(), place.object, block, operation);
            return self.scrub_found(head, place, found, operation);
        }
        let view = scope.context.view();
        let (mut is_damaged, mut seen) = (false, BTreeSet::new());
        let mut waiting = vec![head];
        while let Some(id) = waiting.pop() {
            if !seen.insert(id) || seen.len() > DATASETS_MAX {
                continue;
            }
            let Ok(dataset) = view.dataset_by_id(id) else {
                continue;
            };
            let found = match contents::objset(&dataset) {
                Ok(set) => find_block(&set, place.object, block, operation),
                Err(_) => FoundBlock::Unreadable,
            };
            is_damaged |= self.scrub_found(id, place, found, operation);
            // A log without births names each dataset.
            if place.birth.is_zero() {
                continue;
            }
            for snapshot in dataset.snapshots().unwrap_or_default() {
                let stored = snapshot.stored();
                if stored.is_ok_and(|stored| stored.creation_txg >= place.birth) {
                    waiting.push(snapshot.id());
                    waiting.extend(snapshot.clone_ids().unwrap_or_default());
                }
            }
        }
        is_damaged
    }

    /// Reads all copies of a block, and repairs them. Gives whether it is damaged.
    #[doc(alias = "read_by_block_level")]
    fn scrub_found(
        &self,
        dataset: ObjectId,
        place: &HeadErrorPlace,
        found: FoundBlock,
        operation: &Operation,
    ) -> bool {
        let pointer = match found {
            FoundBlock::At(pointer) => pointer,
            FoundBlock::Absent => return false,
            FoundBlock::Unreadable => {
                self.log_error(place.in_dataset(dataset), place.birth);
                return true;
            }
        };
        let is_other = place.birth != Txg::ZERO && pointer.logical_birth != place.birth;
        if is_other || pointer.kind() != PointerKind::Stored {
            return false;
        }
        let copies = match pointer.is_gang() {
            true => 1,
            false => pointer.dva_count(),
        };
        let mark = TraversalMark {
            objset: dataset,
            object: place.object,
            level: place.level,
            block: place.block.get(),
        };
        let items: Vec<ScanItem> = (0..copies)
            .map(|copy| ScanItem {
                pointer,
                copy,
                mark,
            })
            .collect();
        // The txg that is being stored is not done: no place is allocated anew meanwhile.
        let outcomes = self.io().scan(&items, ScanPurpose::Scrub, operation);
        let error = outcomes.iter().find_map(|outcome| outcome.error.as_ref());
        if let Some(error) = error {
            self.log_error(place.in_dataset(dataset), pointer.logical_birth);
            let errno = error.errno();
            self.vdevs().report_unreadable(mark, errno, operation);
        }
        error.is_some()
    }
}

fn put(scope: &SyncScope<'_>, now: &ErrorScrub) -> Result<(), PoolError> {
    let words = ZapValue::Words(now.to_words());
    scope
        .writer
        .put(POOL_DIRECTORY, pool_directory::ERROR_SCRUB, &words)
}
