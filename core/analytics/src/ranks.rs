//! The locks of this crate, in the order in which they are taken. Nothing of another layer is
//! called under them.

use tarn_host::Rank;
use tarn_host::ranks::LEAF;

/// What the collector has of its last pass.
pub(crate) const PASS: Rank = Rank::new(LEAF + 40, "analytics pass");
/// The live instrumentations.
pub(crate) const LIVE: Rank = Rank::new(LEAF + 41, "analytics live");
/// The segments of the flight recorder.
pub(crate) const HELD: Rank = Rank::new(LEAF + 42, "flight recorder");
/// The states of a query under way.
pub(crate) const STATES: Rank = Rank::new(LEAF + 44, "analytics query");
/// Totals since the collector began.
pub(crate) const TOTALS: Rank = Rank::new(LEAF + 45, "operation totals");
