//! The error logs of a pool, as far as a sync changes them.
//!
//! There are two, one for the last scrub and one for a running scrub: see
//! [`tarn_ondisk::error_log`]. Only scrubs add errors, so nothing here does.

use crate::directory::Directory;
use crate::error::PoolError;
use crate::mos_writer::MosWriter;
use std::collections::BTreeMap;
use tarn_object::zap::ZapValue;
use tarn_ondisk::error_log::{ErrorPlace, HeadErrorPlace};
use tarn_ondisk::object_type::ObjectType;
use tarn_ondisk::pool_directory::{ERROR_LOG_LAST, ERROR_LOG_SCRUB};
use tarn_ondisk::units::{ObjectId, Txg};

/// The entries of both logs in the pool directory.
const LOGS: [&str; 2] = [ERROR_LOG_LAST, ERROR_LOG_SCRUB];

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
