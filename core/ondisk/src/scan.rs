//! How far a scrub or resilver has come, or how the last one ended.
//!
//! An array of words in the pool directory, under `scan`.

use crate::bookmark::TraversalMark;
use crate::on_disk;
use crate::units::{ObjectId, Txg};

on_disk! {
    /// A scrub or resilver.
    #[doc(alias = "dsl_scan_phys_t")]
    #[derive(Copy, Default)]
    pub struct Scan [192 bytes] {
        /// 1 for a scrub, 2 for a resilver.
        0   => function: u64,
        /// 1 while running, 2 when finished, 3 when cancelled.
        8   => state: u64,
        /// ZAP: datasets still to scan.
        16  => queue: ObjectId,
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
