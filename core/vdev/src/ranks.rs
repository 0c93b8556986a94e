//! The locks of this layer, in the order in which they are taken.

use tarn_host::lock::Rank;
use tarn_host::ranks::VDEV;

/// Held while all devices are flushed: one flush of the pool follows the other.
pub(crate) const FLUSHING: Rank = Rank::new(VDEV, "flush of a pool").across_waits();
/// The tree's configuration and list of top-level vdevs.
pub(crate) const TREE: Rank = Rank::new(VDEV + 1, "vdev tree");
/// A leaf's state.
pub(crate) const LEAF: Rank = Rank::new(VDEV + 2, "vdev leaf");
/// Calls that wait for devices that are gone.
pub(crate) const SUSPENSION: Rank = Rank::new(VDEV + 3, "suspension");
/// Calls that wait for room at a device.
pub(crate) const ROOM: Rank = Rank::new(VDEV + 5, "room at a device");
/// Requests to the free space of a device, which leaves the pool after them.
pub(crate) const FREE_SPACE: Rank = Rank::new(VDEV, "free space of a device").across_waits();
/// Reports that wait for the pool.
pub(crate) const REPORTS: Rank = Rank::new(VDEV + 6, "reports of devices");
/// Writes that are not flushed yet.
pub(crate) const UNFLUSHED_WRITES: Rank = Rank::new(VDEV + 4, "unflushed writes");
