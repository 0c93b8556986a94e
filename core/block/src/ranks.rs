//! The locks of this layer, in the order in which they are taken.

use tarn_host::lock::Rank;
use tarn_host::ranks::BLOCK;

/// Frees that wait for the next txg.
pub(crate) const DEFERRED_FREES: Rank = Rank::new(BLOCK, "block deferred frees");
/// What is known of the vdevs.
pub(crate) const SHAPES: Rank = Rank::new(BLOCK + 1, "block shapes");
/// Blocks that could not be read.
pub(crate) const UNREADABLE: Rank = Rank::new(BLOCK + 3, "unreadable blocks");
/// What a scan has found and not verified yet.
pub(crate) const SCAN_QUEUE: Rank = Rank::new(BLOCK + 2, "scan queue");
