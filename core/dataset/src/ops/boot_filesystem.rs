//! The pool property `bootfs`, which is cleared when its dataset is destroyed.

use crate::error::DatasetError;
use crate::writing::Writing;
use tarn_ondisk::pool_directory::{self, POOL_DIRECTORY};
use tarn_ondisk::units::ObjectId;

/// The property of the pool that names the dataset it boots from.
const BOOT_FILESYSTEM: &str = "bootfs";

/// A pool does not boot from what is not there.
#[doc(alias = "spa_prop_clear_bootfs")]
pub(super) fn clear_boot_filesystem(
    writing: Writing<'_>,
    head: ObjectId,
) -> Result<(), DatasetError> {
    let properties = writing
        .reading()
        .number(POOL_DIRECTORY, pool_directory::PROPERTIES)?;
    let Some(properties) = properties.map(ObjectId::new) else {
        return Ok(());
    };
    if writing.reading().number(properties, BOOT_FILESYSTEM)? == Some(head.get()) {
        writing.remove(properties, BOOT_FILESYSTEM)?;
    }
    Ok(())
}
