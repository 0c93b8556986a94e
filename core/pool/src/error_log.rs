//! The error logs of a pool, as far as who stores groups has to do with them.
//!
//! There are two, of the errors that the last scrub found and of those that one finds that runs: see [`tarn_ondisk::error_log`].
//! Nothing is added to them here; scrubs do that.

use crate::directory::Directory;
use crate::error::PoolError;
use tarn_ondisk::pool_directory::{ERROR_LOG_LAST, ERROR_LOG_SCRUB};
use tarn_ondisk::units::ObjectId;

/// The names of both logs in the pool's directory.
const LOGS: [&str; 2] = [ERROR_LOG_LAST, ERROR_LOG_SCRUB];

/// How many errors are known; where they are listed by head (feature `head_errlog`) one that several datasets share counts for each.
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
