//! The error logs of a pool: the places of blocks that cannot be read.
//!
//! # Mechanism
//! There are two, one for the last scrub and what was found since, and one for a scan that runs:
//! see [`tarn_ondisk::error_log`]. Errors are noted in memory, and stored in the next txg. When a
//! scan is complete, its log takes the place of the last one, so an error that it did not find
//! again is gone. When a scan is canceled, its errors join the last log.

use crate::directory::Directory;
use crate::error::PoolError;
use crate::mos_writer::MosWriter;
use crate::pool::Pool;
use crate::sync_scope::SyncScope;
use std::collections::BTreeMap;
use tarn_dataset::task::FeatureCounts;
use tarn_object::zap::ZapValue;
use tarn_ondisk::bookmark::TraversalMark;
use tarn_ondisk::error_log::{ErrorPlace, HeadErrorPlace};
use tarn_ondisk::features::Feature;
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::{ERROR_LOG_LAST, ERROR_LOG_SCRUB};
use tarn_ondisk::units::{BlockId, ObjectId, Txg};
use tarn_probe::Operation;

/// No more errors are kept in memory: others are found again by the next scan.
const FOUND_MAX: usize = 1 << 16;

impl Pool {
    /// Notes a block that cannot be read.
    #[doc(alias = "spa_log_error")]
    pub(crate) fn log_error(&self, place: ErrorPlace, birth: Txg) {
        let mut found = self.found_errors.0.lock();
        if found.len() < FOUND_MAX {
            found.insert(place, birth);
        }
    }

    /// Whether errors wait to be stored.
    pub(crate) fn has_found_errors(&self) -> bool {
        self.io().has_unreadable() || !self.found_errors.0.lock().is_empty()
    }

    /// The errors that are not stored yet, those of readers included: the places, with the births
    /// of the blocks.
    pub fn unstored_errors(&self) -> Vec<(ErrorPlace, Txg)> {
        self.note_unreadable();
        let found = self.found_errors.0.lock();
        found
            .iter()
            .map(|(place, birth)| (*place, *birth))
            .collect()
    }

    /// Takes over the blocks that readers could not read.
    fn note_unreadable(&self) {
        for (mark, birth) in self.io().take_unreadable() {
            self.log_error(place_of(&mark), birth);
        }
    }
}

/// The place of a block in the error log.
pub(crate) fn place_of(mark: &TraversalMark) -> ErrorPlace {
    ErrorPlace {
        dataset: mark.objset,
        object: mark.object,
        level: mark.level,
        block: BlockId::new(mark.block),
    }
}

/// Stores the errors that were found: in the log of the scan that runs, or in the last one.
#[doc(alias = "spa_errlog_sync")]
pub(crate) fn store(scope: &SyncScope<'_>) -> Result<(), PoolError> {
    scope.pool.note_unreadable();
    let found = std::mem::take(&mut *scope.pool.found_errors.0.lock());
    if found.is_empty() {
        return Ok(());
    }
    let runs = scope.pool.scans.running().is_some() || scope.pool.error_scrub().0.is_running();
    let name = match runs {
        true => ERROR_LOG_SCRUB,
        false => ERROR_LOG_LAST,
    };
    add(scope, name, &found)
}

/// Ends the log of a scan. That of a complete one is the last log from now on; the errors of
/// another are added to the last log.
#[doc(alias = "spa_errlog_rotate")]
pub(crate) fn end_scan(scope: &SyncScope<'_>, is_complete: bool) -> Result<(), PoolError> {
    let writer = scope.writer;
    let found = std::mem::take(&mut *scope.pool.found_errors.0.lock());
    if !found.is_empty() {
        add(scope, ERROR_LOG_SCRUB, &found)?;
    }
    if !is_complete {
        return keep_left(scope);
    }
    let by_head = is_by_head(scope);
    let (last, scrub) = (find(scope, ERROR_LOG_LAST)?, find(scope, ERROR_LOG_SCRUB)?);
    if let Some(last) = last {
        free(writer, last, by_head)?;
    }
    if last.is_some() || scrub.is_some() {
        writer.link(ERROR_LOG_LAST, scrub.unwrap_or(ObjectId::ZERO))?;
        writer.link(ERROR_LOG_SCRUB, ObjectId::ZERO)?;
    }
    Ok(())
}

/// Adds the errors of a scan that was not complete to the last log.
pub(crate) fn keep_left(scope: &SyncScope<'_>) -> Result<(), PoolError> {
    let writer = scope.writer;
    let Some(scrub) = find(scope, ERROR_LOG_SCRUB)? else {
        return Ok(());
    };
    let by_head = is_by_head(scope);
    // What cannot be read is found again by the next scan.
    let entries = writer.directory().entries(scrub).unwrap_or_default();
    if !entries.is_empty() {
        let last = log_at(writer, ERROR_LOG_LAST)?;
        for (name, value) in entries {
            match (by_head, value.as_word()) {
                (false, _) => writer.put(last, &name, &value)?,
                (true, Some(errors)) => {
                    let of_head = log_of_head(writer, last, &name)?;
                    let errors = writer.directory().entries(ObjectId::new(errors));
                    for (place, value) in errors.unwrap_or_default() {
                        writer.put(of_head, &place, &value)?;
                    }
                }
                (true, None) => {}
            }
        }
    }
    free(writer, scrub, by_head)?;
    writer.link(ERROR_LOG_SCRUB, ObjectId::ZERO)
}

fn is_by_head(scope: &SyncScope<'_>) -> bool {
    scope.features.is_enabled(Feature::HeadErrlog)
}

fn find(scope: &SyncScope<'_>, name: &str) -> Result<Option<ObjectId>, PoolError> {
    let found = scope.writer.directory().find(name)?;
    Ok(found.filter(|log| !log.is_zero()))
}

/// Adds errors to a log.
#[doc(alias = "sync_error_list")]
fn add(
    scope: &SyncScope<'_>,
    name: &str,
    found: &BTreeMap<ErrorPlace, Txg>,
) -> Result<(), PoolError> {
    let writer = scope.writer;
    let log = log_at(writer, name)?;
    let nothing = ZapValue::text("");
    for (place, birth) in found {
        if !is_by_head(scope) {
            writer.put(log, &place.to_string(), &nothing)?;
            continue;
        }
        // For the MOS, and for destroyed datasets, the number itself is kept.
        let head = head_of(writer.directory(), place.dataset).unwrap_or(place.dataset);
        let of_head = log_of_head(writer, log, &format!("{head:x}"))?;
        let place = HeadErrorPlace {
            object: place.object,
            level: place.level,
            block: place.block,
            birth: *birth,
        };
        writer.put(of_head, &place.to_string(), &nothing)?;
    }
    Ok(())
}

/// The log of this name, which is created if there is none.
fn log_at(writer: MosWriter<'_>, name: &str) -> Result<ObjectId, PoolError> {
    let found = writer.directory().find(name)?;
    match found.filter(|log| !log.is_zero()) {
        Some(log) => Ok(log),
        None => {
            let log = writer.create_zap(ObjectType::ErrorLog)?;
            writer.link(name, log)?;
            Ok(log)
        }
    }
}

/// The part of a log that has the errors of one head, which is created if there is none.
fn log_of_head(writer: MosWriter<'_>, log: ObjectId, head: &str) -> Result<ObjectId, PoolError> {
    let found = writer.directory().value_in(log, head)?;
    match found.and_then(|value| value.as_word()) {
        Some(zap) => Ok(ObjectId::new(zap)),
        None => {
            let zap = writer.create_zap(ObjectType::ErrorLog)?;
            writer.put(log, head, &ZapValue::word(zap.get()))?;
            Ok(zap)
        }
    }
}

/// The head of the file system or volume that a dataset belongs to.
#[doc(alias = "get_head_ds")]
fn head_of(directory: Directory<'_>, dataset: ObjectId) -> Option<ObjectId> {
    if dataset.is_zero() {
        return None;
    }
    let object = directory.object(dataset).ok()?;
    if object.info().bonus_type != ObjectType::DslDataset {
        return None;
    }
    let dataset: tarn_ondisk::dataset::Dataset = directory.bonus(dataset).ok()?;
    let of: tarn_ondisk::dataset_dir::DatasetDirectory = directory.bonus(dataset.directory).ok()?;
    Some(of.head_dataset)
}

/// Frees a log, with its parts. An object of another type is not an error log, whatever leads to
/// it.
fn free(writer: MosWriter<'_>, log: ObjectId, is_by_head: bool) -> Result<(), PoolError> {
    let is_log = |id: ObjectId| {
        let object = writer.directory().object(id);
        object.is_ok_and(|object| object.object_type() == ObjectType::ErrorLog)
    };
    if !is_log(log) {
        return Ok(());
    }
    if is_by_head {
        for (_, value) in writer.directory().entries(log).unwrap_or_default() {
            let part = value.as_word().map(ObjectId::new);
            if let Some(part) = part.filter(|part| *part != log && is_log(*part)) {
                writer.free(part)?;
            }
        }
    }
    writer.free(log)
}

/// The errors of the last log: each with the dataset that was read, or its head. One of a log
/// without heads has no birth. Malformed entries are left out.
pub(crate) fn last_errors(
    directory: Directory<'_>,
    is_by_head: bool,
) -> Result<Vec<(ObjectId, HeadErrorPlace)>, PoolError> {
    let mut errors = Vec::new();
    let Some(log) = directory.find(ERROR_LOG_LAST)?.filter(|log| !log.is_zero()) else {
        return Ok(errors);
    };
    for (entry, value) in directory.entries(log)? {
        if !is_by_head {
            let place = ErrorPlace::from_name(entry.as_bytes());
            errors.extend(place.map(|place| {
                let of_head = HeadErrorPlace {
                    object: place.object,
                    level: place.level,
                    block: place.block,
                    birth: Txg::ZERO,
                };
                (place.dataset, of_head)
            }));
            continue;
        }
        let head = u64::from_str_radix(&entry, 16).map(ObjectId::new);
        let (Ok(head), Some(part)) = (head, value.as_word().map(ObjectId::new)) else {
            continue;
        };
        for (entry, _) in directory.entries(part)? {
            errors.extend(HeadErrorPlace::from_name(entry.as_bytes()).map(|place| (head, place)));
        }
    }
    Ok(errors)
}

/// The entries of both logs in the pool directory.
const LOGS: [&str; 2] = [ERROR_LOG_LAST, ERROR_LOG_SCRUB];

/// Number of known errors of a pool.
///
/// # Errors
/// The logs cannot be read.
pub fn error_log_count(pool: &Pool, operation: &Operation) -> Result<u64, PoolError> {
    let is_by_head = pool.features().is_active(Feature::HeadErrlog.guid());
    count(pool.directory(operation), is_by_head)
}

/// Number of known errors. Where they are listed by head (feature `head_errlog`), one that several
/// datasets share counts for each.
#[doc(alias = "spa_approx_errlog_size")]
pub(crate) fn count(directory: Directory<'_>, is_by_head: bool) -> Result<u64, PoolError> {
    let mut count = 0_u64;
    for log in logs(directory)? {
        if !is_by_head {
            count = count.saturating_add(count_in(directory, log)?);
            continue;
        }
        for (_, value) in directory.entries(log)? {
            if let Some(errors) = value.as_word() {
                count = count.saturating_add(count_in(directory, ObjectId::new(errors))?);
            }
        }
    }
    Ok(count)
}

/// Converts the error logs to lists by head, which they are once the feature `head_errlog` is
/// enabled. A log taken for the other form would have the wrong objects freed.
///
/// `head_of` returns the head of a dataset, if the dataset exists. Malformed entries are dropped.
#[doc(alias = "spa_upgrade_errlog")]
pub(crate) fn list_by_head(
    writer: MosWriter<'_>,
    head_of: impl Fn(ObjectId) -> Option<ObjectId>,
) -> Result<(), PoolError> {
    for name in LOGS {
        let log = writer.directory().find(name)?;
        let Some(old) = log.filter(|log| !log.is_zero()) else {
            continue;
        };
        let new = writer.create_zap(ObjectType::ErrorLog)?;
        let mut zaps: BTreeMap<ObjectId, ObjectId> = BTreeMap::new();
        // The next scrub finds again what cannot be read here.
        for (entry, what) in writer.directory().entries(old).unwrap_or_default() {
            let Ok(place) = ErrorPlace::from_name(entry.as_bytes()) else {
                continue;
            };
            // For the MOS, and for destroyed datasets, the number itself is kept.
            let head = head_of(place.dataset).unwrap_or(place.dataset);
            let zap = match zaps.get(&head) {
                Some(zap) => *zap,
                None => {
                    let zap = writer.create_zap(ObjectType::ErrorLog)?;
                    writer.put(new, &format!("{head:x}"), &ZapValue::word(zap.get()))?;
                    zaps.insert(head, zap);
                    zap
                }
            };
            let place = HeadErrorPlace {
                object: place.object,
                level: place.level,
                block: place.block,
                // The old log does not have the block's birth. With zero, the head is shown.
                birth: Txg::ZERO,
            };
            writer.put(zap, &place.to_string(), &what)?;
        }
        writer.link(name, new)?;
        let object = writer.directory().object(old);
        // An object of another type is not an error log, whatever the directory says.
        if object.is_ok_and(|object| object.object_type() == ObjectType::ErrorLog) {
            writer.free(old)?;
        }
    }
    Ok(())
}

/// The logs that exist.
fn logs(directory: Directory<'_>) -> Result<Vec<ObjectId>, PoolError> {
    let mut found = Vec::new();
    for name in LOGS {
        found.extend(directory.find(name)?.filter(|log| !log.is_zero()));
    }
    Ok(found)
}

fn count_in(directory: Directory<'_>, zap: ObjectId) -> Result<u64, PoolError> {
    let counted = directory.zap(zap)?.count();
    counted.map_err(|cause| PoolError::Zap { object: zap, cause })
}
