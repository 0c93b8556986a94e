//! How far a scrub or resilver has come, or how the last one ended.
//!
//! An array of words in the pool directory, under `scan`.

use crate::bookmark::TraversalMark;
use crate::declare::{ByteOrder, Stored};
use crate::on_disk;
use crate::units::{ObjectId, Txg};

/// A scrub, as [`Scan::function`] has it.
pub const SCRUB: u64 = 1;
/// A resilver, as [`Scan::function`] has it.
pub const RESILVER: u64 = 2;

/// It runs, or is paused, as [`Scan::state`] has it.
pub const SCANNING: u64 = 1;
/// It came to its end, as [`Scan::state`] has it.
pub const FINISHED: u64 = 2;
/// It was ended, as [`Scan::state`] has it.
pub const CANCELED: u64 = 3;

/// The object set of [`Scan::mark`] when no dataset is being scanned: the next is to be taken from
/// the queue.
#[doc(alias = "ZB_DESTROYED_OBJSET")]
pub const NO_DATASET: ObjectId = ObjectId::new(u64::MAX);

const WORD_BYTES: usize = 8;

/// How many words a scan has; some versions wrote one more before the last.
const WORDS: usize = Scan::SIZE / WORD_BYTES;

on_disk! {
    /// A scrub or resilver.
    #[doc(alias = "dsl_scan_phys_t")]
    #[derive(Copy, Default)]
    pub struct Scan [192 bytes] {
        /// [`SCRUB`] or [`RESILVER`].
        0   => function: u64,
        /// [`SCANNING`], [`FINISHED`] or [`CANCELED`].
        8   => state: u64,
        /// ZAP: datasets still to scan.
        16  => queue: ObjectId,
        /// Only blocks born after `txg_min` and before `txg_max` are scanned.
        24  => txg_min: Txg,
        32  => txg_max: Txg,
        40  => current_txg_min: Txg,
        48  => current_txg_max: Txg,
        /// Seconds since 1970, UTC.
        56  => start_time_s: u64,
        64  => end_time_s: u64,
        72  => to_examine_bytes: u64,
        80  => examined_bytes: u64,
        88  => skipped_bytes: u64,
        /// Bytes repaired, for a scrub; resilvered, for a resilver.
        96  => processed_bytes: u64,
        104 => error_count: u64,
        112 => dedup_class_max: u64,
        /// Class, type, checksum and cursor in the dedup tables.
        120 => dedup_cursor: [u64; 4],
        152 => mark: TraversalMark,
        184 => flags: u64,
    }
}

impl Scan {
    /// In [`Scan::flags`]: the snapshot that was being scanned was destroyed, so the dataset behind
    /// it, which is being scanned now, has to be scanned once more.
    #[doc(alias = "DSF_VISIT_DS_AGAIN")]
    pub const VISIT_AGAIN: u64 = 1 << 0;

    /// In [`Scan::flags`]: a scrub is paused.
    #[doc(alias = "DSF_SCRUB_PAUSED")]
    pub const PAUSED: u64 = 1 << 1;

    /// From the array that is stored. None of one that makes no sense.
    #[doc(alias = "ZPOOL_ERRATA_ZOL_2094_SCRUB")]
    pub fn from_words(words: &[u64]) -> Option<Scan> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let scan = Scan::from_short_bytes(&bytes, ByteOrder::Little).ok()?;
        let flags = words.get(WORDS).copied().unwrap_or(scan.flags);
        Some(Scan { flags, ..scan })
    }

    /// The array that is stored.
    pub fn to_words(&self) -> Vec<u64> {
        let bytes = self.to_bytes();
        let words = bytes.as_chunks::<WORD_BYTES>().0.iter();
        words.map(|word| u64::from_le_bytes(*word)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_survives_as_words() {
        let scan = Scan {
            function: RESILVER,
            state: SCANNING,
            queue: ObjectId::new(77),
            flags: Scan::PAUSED,
            ..Scan::default()
        };
        let mut words = scan.to_words();
        assert_eq!(words.len(), WORDS);
        assert_eq!(Scan::from_words(&words), Some(scan));
        // With a word too many before the last, as version 0.6.3 wrote it.
        words.insert(WORDS - 1, 0);
        assert_eq!(Scan::from_words(&words), Some(scan));
        // An early version had no flags.
        words.truncate(WORDS - 1);
        assert_eq!(Scan::from_words(&words).map(|scan| scan.flags), Some(0));
    }
}
