//! `replacing` and `spare` vdevs whose new device is whole.

use crate::error::PoolError;
use crate::sync_scope::SyncScope;

/// Gives `replacing` and `spare` vdevs whose new device is whole their final shape. Called in the
/// sync thread when a resilver has ended. No such vdev can be made by this version, and a pool that
/// has one keeps it.
///
/// # Errors
/// The configuration cannot be stored.
#[doc(alias = "spa_vdev_resilver_done")]
pub(crate) fn finish(_scope: &SyncScope<'_>) -> Result<(), PoolError> {
    Ok(())
}
