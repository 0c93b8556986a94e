//! How far the sequential rebuild of a top-level vdev has come, or how the last one ended.
//!
//! An array of words in the ZAP of the vdev, under
//! [`VDEV_REBUILD`](crate::pool_directory::VDEV_REBUILD).

use crate::declare::{ByteOrder, Stored};
use crate::on_disk;
use crate::units::Txg;

/// It runs, or goes on at the next import, as [`Rebuild::state`] has it.
#[doc(alias = "VDEV_REBUILD_ACTIVE")]
pub const ACTIVE: u64 = 1;
/// It was ended, as [`Rebuild::state`] has it.
#[doc(alias = "VDEV_REBUILD_CANCELED")]
pub const CANCELED: u64 = 2;
/// It came to its end, as [`Rebuild::state`] has it.
#[doc(alias = "VDEV_REBUILD_COMPLETE")]
pub const COMPLETE: u64 = 3;

const WORD_BYTES: usize = 8;

/// How many words a rebuild has.
#[doc(alias = "REBUILD_PHYS_ENTRIES")]
const WORDS: usize = Rebuild::SIZE / WORD_BYTES;

on_disk! {
    /// A sequential rebuild.
    #[doc(alias = "vdev_rebuild_phys_t")]
    #[derive(Copy, Default)]
    pub struct Rebuild [96 bytes] {
        /// Zero for none, [`ACTIVE`], [`CANCELED`] or [`COMPLETE`].
        0   => state: u64,
        /// What lies before this offset of the vdev was copied.
        8   => last_offset: u64,
        /// The new devices miss births after `txg_min` and before `txg_max`.
        16  => txg_min: Txg,
        24  => txg_max: Txg,
        /// Seconds since 1970, UTC.
        32  => start_time_s: u64,
        40  => end_time_s: u64,
        /// How long it ran, over all imports.
        48  => scan_time_ms: u64,
        /// Allocated bytes that it came to.
        56  => scanned_bytes: u64,
        /// Bytes that were read.
        64  => issued_bytes: u64,
        /// Bytes that were written.
        72  => rebuilt_bytes: u64,
        /// Allocated bytes of the vdev, about.
        80  => estimated_bytes: u64,
        /// Ranges that could not be copied.
        88  => error_count: u64,
    }
}

impl Rebuild {
    /// From the array that is stored. None of one that is longer, or makes no sense.
    pub fn from_words(words: &[u64]) -> Option<Rebuild> {
        if words.len() > WORDS {
            return None;
        }
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(Rebuild::SIZE, 0);
        let rebuild = Rebuild::from_short_bytes(&bytes, ByteOrder::Little).ok()?;
        (rebuild.state <= COMPLETE).then_some(rebuild)
    }

    /// The array that is stored.
    pub fn to_words(&self) -> Vec<u64> {
        let bytes = self.to_bytes();
        let words = bytes.as_chunks::<WORD_BYTES>().0;
        assert_eq!(words.len(), WORDS, "it is stored as whole words");
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        debug_assert!(
            *self == Rebuild::default() || Rebuild::from_words(&words).as_ref() == Some(self),
            "what is stored is read as it was"
        );
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuild_survives_as_words_and_nonsense_is_none() {
        let rebuild = Rebuild {
            state: ACTIVE,
            last_offset: 1 << 20,
            txg_max: Txg::new(77),
            error_count: 3,
            ..Rebuild::default()
        };
        let mut words = rebuild.to_words();
        assert_eq!(words.len(), WORDS);
        assert_eq!((words[1], words[3], words[11]), (1 << 20, 77, 3));
        assert_eq!(Rebuild::from_words(&words), Some(rebuild));
        words.push(0);
        assert_eq!(Rebuild::from_words(&words), None);
        words.truncate(2);
        let short = Rebuild::from_words(&words).unwrap();
        assert_eq!((short.state, short.txg_max), (ACTIVE, Txg::ZERO));
        assert_eq!(Rebuild::from_words(&[9]), None);
    }
}
