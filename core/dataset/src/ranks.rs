//! The order in which this crate takes its locks.

use tarn_host::lock::Rank;
use tarn_host::ranks::DATASET as FIRST;

/// What writers have leave for.
pub(crate) const PROMISED: Rank = Rank::new(FIRST, "promised room");
