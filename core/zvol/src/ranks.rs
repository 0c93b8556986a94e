//! The order in which this crate takes its locks.

use tarn_host::Rank;
use tarn_host::ranks::{LEAF, POSIX};

/// One change of a volume at a time.
pub(crate) const CHANGE: Rank = Rank::new(POSIX + 10, "volume change").across_waits();
/// The properties, as they are now.
pub(crate) const PROPERTIES: Rank = Rank::new(LEAF + 13, "volume properties");
