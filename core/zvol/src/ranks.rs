//! The order in which this crate takes its locks.

use tarn_host::Rank;
use tarn_host::ranks::POSIX;

/// The ranges of a volume that are being changed; taken for a moment.
pub(crate) const CHANGES: Rank = Rank::new(POSIX + 10, "volume changes");
