//! The locks of this crate, in the order in which they are taken.

use tarn_host::Rank;
use tarn_host::ranks::LEAF;

/// The writer of an archive. It is held while files are written: only the thread that archives
/// wants it, once a second.
pub(crate) const WRITER: Rank = Rank::new(LEAF + 44, "archive writer").across_waits();
/// What questions are answered from. Nothing is read or written under it.
pub(crate) const SHOWN: Rank = Rank::new(LEAF + 45, "archive shown");
/// Which files were skipped.
pub(crate) const SKIPPED: Rank = Rank::new(LEAF + 46, "archive skipped files");
