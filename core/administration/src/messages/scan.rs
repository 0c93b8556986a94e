//! Requests and replies of `zpool scrub` and `zpool resilver`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// `zpool scrub`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scrub {
    /// The pool.
    pub name: String,
    /// What becomes of its scrub.
    #[serde(default)]
    pub action: ScrubAction,
}

/// What `zpool scrub` does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScrubAction {
    /// It begins, or is resumed.
    #[default]
    Start,
    /// `-C`: it begins with the blocks born since the last one.
    StartFromLast,
    /// `-S` and `-E`: it begins with the blocks born between these times, in seconds since 1970.
    /// Zero for no bound.
    StartBetween {
        /// From when.
        #[serde(default)]
        start_s: u64,
        /// Until when.
        #[serde(default)]
        end_s: u64,
    },
    /// `-e`: only the blocks of the error log are scrubbed, or that is resumed.
    StartErrors,
    /// `-p`.
    Pause,
    /// `-s`.
    Stop,
}

/// Reply to [`Scrub`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Scrubbed {
    /// The pool has a checkpoint, whose state is not scrubbed.
    #[serde(default)]
    pub has_checkpoint: bool,
}

/// `zpool resilver`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Resilver {
    /// The pool.
    pub name: String,
}

/// The numbers of the last scrub of known errors, or of the one that runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorScrubStats {
    /// `ERRORSCRUBBING`, `FINISHED` or `CANCELED`.
    pub state: String,
    /// Seconds since 1970, UTC.
    pub start_time_s: u64,
    /// Seconds since 1970, UTC; zero while it runs.
    pub end_time_s: u64,
    /// Blocks that were read.
    pub examined: u64,
    /// Blocks that are left.
    pub to_examine: u64,
    /// Since when it is paused, in seconds since 1970; zero if it is not.
    pub paused_since_s: u64,
}

/// The numbers of the last sequential rebuild of a top-level vdev, or of the one that runs.
#[doc(alias = "vdev_rebuild_stat_t")]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RebuildStats {
    /// The name of the vdev.
    pub name: String,
    /// Its kind.
    pub kind: String,
    /// Its guid.
    pub guid: u64,
    /// The path of a vdev that is a device.
    #[serde(default)]
    pub path: Option<String>,
    /// `ACTIVE`, `CANCELED` or `COMPLETE`.
    pub state: String,
    /// Seconds since 1970, UTC.
    pub start_time_s: u64,
    /// Seconds since 1970, UTC; zero while it runs.
    pub end_time_s: u64,
    /// How long it ran.
    pub scan_time_ms: u64,
    /// Allocated bytes that it came to.
    pub scanned_bytes: u64,
    /// Bytes that were read.
    pub issued_bytes: u64,
    /// Bytes that were written.
    pub rebuilt_bytes: u64,
    /// Allocated bytes of the vdev, about.
    pub estimated_bytes: u64,
    /// Ranges that could not be copied.
    pub errors: u64,
    /// How long it ran since it began or was taken over by this import.
    pub pass_ms: u64,
    /// Bytes that it came to since then.
    pub pass_scanned_bytes: u64,
    /// Bytes that were read since then.
    pub pass_issued_bytes: u64,
}

/// The numbers of the last scrub or resilver of a pool, or of the one that runs.
#[doc(alias = "pool_scan_stat_t")]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScanStats {
    /// `SCRUB` or `RESILVER`.
    pub function: String,
    /// `SCANNING`, `FINISHED` or `CANCELED`.
    pub state: String,
    /// Seconds since 1970, UTC.
    pub start_time_s: u64,
    /// Seconds since 1970, UTC; zero while it runs.
    pub end_time_s: u64,
    /// Allocated bytes of the pool when it began.
    pub to_examine_bytes: u64,
    /// Bytes that the walk came to.
    pub examined_bytes: u64,
    /// Bytes that need not be read.
    pub skipped_bytes: u64,
    /// Bytes repaired or resilvered.
    pub processed_bytes: u64,
    /// Blocks that could not be read.
    pub errors: u64,
    /// Bytes that the walk came to since it began or was taken over by this import.
    pub pass_examined_bytes: u64,
    /// When that was, in seconds since 1970, UTC.
    pub pass_start_s: u64,
    /// Since when it is paused, in seconds since 1970; zero if it is not.
    pub paused_since_s: u64,
    /// How long it was paused since `pass_start_s`, in seconds.
    pub spent_paused_s: u64,
    /// Bytes that were read and verified since `pass_start_s`.
    pub pass_issued_bytes: u64,
    /// Bytes that were read and verified.
    pub issued_bytes: u64,
}
