//! The lines of `zpool status` about scrubs, resilvers and the checkpoint.

use tarn_engine::engine::OpenPool;
use tarn_engine::importing::dates::{date, duration, nice};
use tarn_ondisk::pool_directory as name;
use tarn_ondisk::scan::{CANCELED, FINISHED, RESILVER, SCANNING, SCRUB, Scan};
use tarn_pool::{Pool, PoolError};
use tarn_probe::Operation;

/// The word of an uberblock that has its time.
const UBERBLOCK_TIME_WORD: usize = 4;

/// The `scan:` text, where a scan ever ran.
pub(super) fn text(pool: &Pool, operation: &Operation) -> Result<Option<String>, PoolError> {
    let directory = pool.directory(operation);
    let Some(value) = directory.value(name::SCAN)? else {
        return Ok(None);
    };
    let scan = Scan::from_words(&value.to_words());
    Ok(scan.and_then(|scan| describe(&scan)))
}

fn describe(scan: &Scan) -> Option<String> {
    let what = match scan.function {
        SCRUB => "scrub",
        RESILVER => "resilver",
        _ => return None,
    };
    let took = duration(scan.end_time_s.saturating_sub(scan.start_time_s));
    let (processed, errors) = (nice(scan.processed_bytes), scan.error_count);
    let (begun, ended) = (date(scan.start_time_s), date(scan.end_time_s));
    Some(match (scan.state, scan.function) {
        (FINISHED, SCRUB) => {
            let processed = with_unit(&processed);
            format!("scrub repaired {processed} in {took} with {errors} errors on {ended}")
        }
        (FINISHED, _) => {
            let processed = with_unit(&processed);
            format!("resilvered {processed} in {took} with {errors} errors on {ended}")
        }
        (CANCELED, _) => format!("{what} canceled on {ended}"),
        (SCANNING, _) => format!("{what} in progress since {begun}"),
        _ => return None,
    })
}

/// Bytes below a kilobyte are shown with their unit.
fn with_unit(nice: &str) -> String {
    match nice.ends_with(|c: char| c.is_ascii_digit()) {
        true => format!("{nice}B"),
        false => nice.to_string(),
    }
}

/// Other sections of the status.
pub(super) fn sections(
    open: &OpenPool,
    operation: &Operation,
) -> Result<Vec<(String, String)>, PoolError> {
    let Some(bytes) = open.checkpoint_bytes else {
        return Ok(Vec::new());
    };
    let stored = open.pool.directory(operation).value(name::CHECKPOINT)?;
    let words = stored.map(|value| value.to_words()).unwrap_or_default();
    let text = match words.get(UBERBLOCK_TIME_WORD) {
        Some(time) => format!("created {}, consumes {}", date(*time), nice(bytes)),
        None => format!("discarding, {} remaining.", nice(bytes)),
    };
    Ok(vec![("checkpoint".to_string(), text)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finished_scrub_says_what_it_repaired() {
        let scan = Scan {
            function: SCRUB,
            state: FINISHED,
            start_time_s: 1_000,
            end_time_s: 1_003,
            ..Scan::default()
        };
        let text = describe(&scan).unwrap();
        assert!(text.starts_with("scrub repaired 0B in 00:00:03 with 0 errors on "));
    }
}
