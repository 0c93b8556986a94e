//! Partly received heads, which no other task may change.

use super::receiver::busy;
use crate::dataset::Dataset;
use crate::error::DatasetError;
use crate::task::TaskRefusal;
use tarn_ondisk::dataset::{DatasetFlags, RESUME_TO_GUID};

/// Refuses a head that is half received.
pub(in crate::ops) fn check_whole(head: &Dataset<'_>) -> Result<(), TaskRefusal> {
    let flags = head.stored()?.flags;
    match flags.contains(DatasetFlags::INCONSISTENT) || resumes(head)? {
        true => Err(busy("dataset is busy")),
        false => Ok(()),
    }
}

/// Whether a head waits for a stream that was cut.
pub(super) fn resumes(head: &Dataset<'_>) -> Result<bool, DatasetError> {
    Ok(head.extension(RESUME_TO_GUID)?.is_some())
}
