//! The error logs of a pool, as far as syncing a txg changes them.
//!
//! There are two, of the errors that the last scrub found and of those that one finds that runs:
//! see [`tarn_ondisk::error_log`]. Nothing is added to them here; scrubs do that.

use crate::directory::Directory;
use crate::error::PoolError;
use crate::mos_writer::MosWriter;
use std::collections::BTreeMap;
use tarn_object::zap::ZapValue;
use tarn_ondisk::error_log::{ErrorPlace, HeadErrorPlace};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::{ERROR_LOG_LAST, ERROR_LOG_SCRUB};
use tarn_ondisk::units::{ObjectId, Txg};

/// The names of both logs in the pool's directory.
const LOGS: [&str; 2] = [ERROR_LOG_LAST, ERROR_LOG_SCRUB];

/// How many errors are known; where they are listed by head (feature `head_errlog`) one that
/// several datasets share counts for each.
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

/// Lists errors by head, as logs do from the moment the feature `head_errlog` is enabled. Taking a
/// log of one form for the other would free what it does not own.
///
/// `head_of` gives the head of the file system or volume that a dataset belongs to, if it is there.
/// Entries that make no sense say nothing, and go.
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
        // What cannot be read is found again by the next scrub.
        for (entry, what) in writer.directory().entries(old).unwrap_or_default() {
            let Ok(place) = ErrorPlace::from_name(entry.as_bytes()) else {
                continue;
            };
            // Of the MOS, and of what is not there any more, the number itself is kept.
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
                // When the block was written is not in the old log. Zero says so: the head is shown
                // then.
                birth: Txg::ZERO,
            };
            writer.put(zap, &place.to_string(), &what)?;
        }
        writer.link(name, new)?;
        let object = writer.directory().object(old);
        // An object of another type is not an error log, whatever the disk says.
        if object.is_ok_and(|object| object.object_type() == ObjectType::ErrorLog) {
            writer.free(old)?;
        }
    }
    Ok(())
}

/// Those that are there.
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
