//! The order in which this crate takes its locks.

use tarn_host::lock::Rank;
use tarn_host::ranks::DATASET as FIRST;

/// What writers were admitted for.
pub(crate) const IN_FLIGHT: Rank = Rank::new(FIRST, "admitted writes");
/// Leave that was given in advance.
pub(crate) const ADVANCES: Rank = Rank::new(FIRST + 1, "leave given in advance");
