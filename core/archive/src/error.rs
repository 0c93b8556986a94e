//! What can go wrong with an archive, and what is skipped.

use std::path::PathBuf;

use tarn_analytics::AnswerTooLarge;
use tarn_host::{FileError, LockHolder};

/// The archive cannot be opened or written.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The system refused.
    #[error("{0}")]
    File(#[from] FileError),
    /// Another process writes it.
    #[error(
        "{} archives in {} already: give each tarnd a directory of its own (--archive)",
        .holder.as_ref().map_or("another process".to_owned(), LockHolder::to_string),
        .directory.display()
    )]
    InUse {
        /// Where.
        directory: PathBuf,
        /// Which process, if the system tells.
        holder: Option<LockHolder>,
    },
    /// The cap is less than an archive works with.
    #[error("an archive of {cap_bytes} bytes holds too little: give it at least {least_bytes}")]
    CapTooSmall {
        /// What was asked for.
        cap_bytes: u64,
        /// What an archive needs.
        least_bytes: u64,
    },
    /// It was opened to be read.
    #[error(
        "{directory}: opened to be read: only the process that opened it to be written adds to it"
    )]
    ReadOnly {
        /// Where.
        directory: PathBuf,
    },
    /// The second is in a block already, as after a clock that was set back.
    #[error("second {second} is archived already")]
    Late {
        /// Which.
        second: u64,
    },
    /// More series than a column has.
    #[error("{series} series are more than a second has ({series_max})")]
    TooManySeries {
        /// How many.
        series: usize,
        /// The bound.
        series_max: usize,
    },
    /// One second, or the seconds of a block together, take more than the cap allows.
    #[error(
        "{bytes} bytes of seconds that are in no block yet are more than the cap of the archive allows"
    )]
    NoRoom {
        /// How many.
        bytes: u64,
    },
}

/// A file in the directory of the archive that is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub why: WhySkipped,
}

/// Why a file is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WhySkipped {
    /// Its name is none of the archive's.
    #[error("its name is none of the archive's: move it elsewhere")]
    Foreign,
    /// It is shorter than it says.
    #[error("it is cut off: its time counts as not collected; remove it")]
    Truncated,
    /// Its checksums do not match, or it makes no sense.
    #[error("it is damaged: its time counts as not collected; remove it")]
    Damaged,
    /// Its end is damaged: seconds before that are used.
    #[error("it is damaged or cut off at its end: what is before that is used")]
    DamagedEnd,
    /// The system does not let it be read.
    #[error("it cannot be read: its time counts as not collected")]
    Unreadable,
}

/// A question that the archive does not answer. The sender's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveQueryError {
    /// The time ends before it begins.
    #[error("the time range is empty")]
    EmptyRange,
    /// An answer of that size is not made.
    #[error("{0}")]
    TooLarge(#[from] AnswerTooLarge),
    /// It is kept by other fields only.
    #[error(
        "the archive does not keep {asked}: it keeps {}. Older times than the flight recorder \
         holds are known by these fields only", .kept.join(", ")
    )]
    NotKept {
        /// What was asked for.
        asked: String,
        /// Statements that it keeps.
        kept: Vec<&'static str>,
    },
    /// A name of a sampled statistic, with a part that makes no sense.
    #[error("{text:?}: {wrong}")]
    BadSampled {
        /// The statement.
        text: String,
        /// What is wrong with it, and the cure.
        wrong: String,
    },
}
