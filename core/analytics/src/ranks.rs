//! The locks of this crate, in the order in which they are taken. Nothing of another layer is
//! called under them.

use tarn_host::Rank;
use tarn_host::ranks::LEAF;

/// The segments of the flight recorder.
pub(crate) const HELD: Rank = Rank::new(LEAF + 42, "flight recorder");
