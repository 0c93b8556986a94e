//! How far a scrub of known errors (`zpool scrub -e`) has come, or how the last one ended.
//!
//! An array of words in the pool directory, under
//! [`ERROR_SCRUB`](crate::pool_directory::ERROR_SCRUB).

use crate::declare::{ByteOrder, Stored};
use crate::on_disk;

/// A scrub of known errors, as [`ErrorScrub::function`] has it.
#[doc(alias = "POOL_SCAN_ERRORSCRUB")]
pub const ERROR_SCRUB: u64 = 3;
/// It came to its end, as [`ErrorScrub::state`] has it.
pub const FINISHED: u64 = 2;
/// It was ended, as [`ErrorScrub::state`] has it.
pub const CANCELED: u64 = 3;
/// It runs or is paused, as [`ErrorScrub::state`] has it.
#[doc(alias = "DSS_ERRORSCRUBBING")]
pub const ERROR_SCRUBBING: u64 = 4;

const WORD_BYTES: usize = 8;
const WORDS: usize = ErrorScrub::SIZE / WORD_BYTES;

on_disk! {
    /// A scrub of known errors.
    #[doc(alias = "dsl_errorscrub_phys_t")]
    #[derive(Copy, Default)]
    pub struct ErrorScrub [72 bytes] {
        /// Zero for none, or [`ERROR_SCRUB`].
        0  => function: u64,
        /// [`ERROR_SCRUBBING`], [`FINISHED`] or [`CANCELED`].
        8  => state: u64,
        /// Where OpenZFS goes on in the ZAP of the error log; zero for its start.
        16 => cursor: u64,
        /// Seconds since 1970, UTC.
        24 => start_time_s: u64,
        32 => end_time_s: u64,
        /// Blocks that are left.
        40 => to_examine: u64,
        48 => examined: u64,
        56 => error_count: u64,
        /// Not zero: it is paused.
        64 => paused: u64,
    }
}

impl ErrorScrub {
    /// From the array that is stored. None of one that makes no sense.
    pub fn from_words(words: &[u64]) -> Option<ErrorScrub> {
        if words.len() != WORDS {
            return None;
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let scrub = ErrorScrub::from_short_bytes(&bytes, ByteOrder::Little).ok()?;
        (scrub.function == ERROR_SCRUB).then_some(scrub)
    }

    /// The array that is stored.
    pub fn to_words(&self) -> Vec<u64> {
        let bytes = self.to_bytes();
        let words = bytes.as_chunks::<WORD_BYTES>().0;
        assert_eq!(words.len(), WORDS, "it is stored as whole words");
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        debug_assert!(
            *self == ErrorScrub::default() || ErrorScrub::from_words(&words).as_ref() == Some(self),
            "what is stored is read as it was"
        );
        words
    }

    /// Whether it runs or is paused.
    #[doc(alias = "dsl_errorscrubbing")]
    pub fn is_running(&self) -> bool {
        self.function == ERROR_SCRUB && self.state == ERROR_SCRUBBING
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.is_running() && self.paused != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_of_errors_survives_as_words() {
        let scrub = ErrorScrub {
            function: ERROR_SCRUB,
            state: ERROR_SCRUBBING,
            to_examine: 7,
            paused: 1,
            ..ErrorScrub::default()
        };
        let words = scrub.to_words();
        assert_eq!((words.len(), words[5], words[8]), (9, 7, 1));
        assert_eq!(ErrorScrub::from_words(&words), Some(scrub));
        assert!(scrub.is_paused());
        assert_eq!(ErrorScrub::from_words(&words[1..]), None);
        assert_eq!(ErrorScrub::from_words(&[0; 9]), None);
    }
}
