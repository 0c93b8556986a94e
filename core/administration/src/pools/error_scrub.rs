//! The lines of `zpool status` about a scrub of known errors.

use crate::messages::scan::ErrorScrubStats;
use tarn_engine::importing::dates::{date, duration};
use tarn_ondisk::error_scrub::{CANCELED, ERROR_SCRUB, ERROR_SCRUBBING, ErrorScrub, FINISHED};

/// A day has so many seconds.
const DAY_S: u64 = 24 * 60 * 60;

/// The `scrub:` text, in OpenZFS's words; further lines begin with a tab.
#[doc(alias = "print_err_scrub_status")]
pub(super) fn text((scrub, paused_since_s): (ErrorScrub, u64)) -> Option<String> {
    if scrub.function != ERROR_SCRUB {
        return None;
    }
    let took_s = scrub.end_time_s.saturating_sub(scrub.start_time_s);
    let examined = scrub.examined;
    Some(match scrub.state {
        FINISHED => format!(
            "scrubbed {examined} error blocks in {} days {} on {}",
            took_s / DAY_S,
            duration(took_s % DAY_S),
            date(scrub.end_time_s)
        ),
        CANCELED => format!("error scrub canceled on {}", date(scrub.end_time_s)),
        ERROR_SCRUBBING => {
            let began = date(scrub.start_time_s);
            let begin = match scrub.is_paused() {
                true => format!(
                    "error scrub paused since {}\n\terror scrub started on {began}",
                    date(paused_since_s)
                ),
                false => format!("error scrub in progress since {began}"),
            };
            let all = u128::from(examined) + u128::from(scrub.to_examine);
            // Hundredths of a percent.
            let done = u128::from(examined) * 10_000 / all.max(1);
            format!(
                "{begin}\n\t{}.{:02}% done, issued I/O for {examined} error blocks",
                done / 100,
                done % 100
            )
        }
        _ => return None,
    })
}

/// The numbers.
pub(super) fn stats((scrub, paused_since_s): (ErrorScrub, u64)) -> Option<ErrorScrubStats> {
    if scrub.function != ERROR_SCRUB {
        return None;
    }
    Some(ErrorScrubStats {
        state: match scrub.state {
            FINISHED => "FINISHED",
            CANCELED => "CANCELED",
            ERROR_SCRUBBING => "ERRORSCRUBBING",
            _ => return None,
        }
        .to_string(),
        start_time_s: scrub.start_time_s,
        end_time_s: scrub.end_time_s,
        examined: scrub.examined,
        to_examine: scrub.to_examine,
        paused_since_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_of_errors_is_told_as_openzfs_tells_it() {
        let scrub = ErrorScrub {
            function: ERROR_SCRUB,
            state: ERROR_SCRUBBING,
            start_time_s: 1_000,
            end_time_s: 1_000 + DAY_S + 61,
            examined: 1,
            to_examine: 3,
            ..ErrorScrub::default()
        };
        let running = text((scrub, 0)).unwrap();
        assert!(
            running.starts_with("error scrub in progress since "),
            "{running}"
        );
        let end = "\n\t25.00% done, issued I/O for 1 error blocks";
        assert!(running.ends_with(end), "{running}");
        let paused = ErrorScrub { paused: 1, ..scrub };
        let paused = text((paused, 1_001)).unwrap();
        assert!(
            paused.starts_with("error scrub paused since ") && paused.ends_with(end),
            "{paused}"
        );
        let finished = ErrorScrub {
            state: FINISHED,
            ..scrub
        };
        let finished = text((finished, 0)).unwrap();
        let start = "scrubbed 1 error blocks in 1 days 00:01:01 on ";
        assert!(finished.starts_with(start), "{finished}");
        assert_eq!(text((ErrorScrub::default(), 0)), None);
    }
}
