//! The locks of this layer, in the order in which they are taken.

use tarn_host::lock::Rank;
use tarn_host::ranks::SPACE;

/// All metaslabs of a pool.
pub(crate) const STATE: Rank = Rank::new(SPACE, "space state");
/// Why metaslabs could not be loaded.
pub(crate) const FAILED_LOADS: Rank = Rank::new(SPACE + 1, "space failed loads");
