//! The lines of `zpool status` about scrubs, resilvers and the checkpoint.

use super::rebuild;
use crate::messages::scan::ScanStats;
use tarn_engine::engine::OpenPool;
use tarn_engine::importing::dates::{date, duration, nice};
use tarn_ondisk::scan::{CANCELED, FINISHED, RESILVER, SCANNING, SCRUB};
use tarn_pool::checkpoint::CheckpointState;
use tarn_pool::{RebuildStatus, ScanStatus};

/// Below this rate, in bytes a second, no end is estimated.
pub(super) const ESTIMATE_RATE_MIN: u64 = 10 << 20;

/// The `scan:` text, in OpenZFS's words; further lines begin with a tab. `now_s` is the time in
/// seconds since 1970.
#[doc(alias = "print_scan_scrub_resilver_status")]
pub(super) fn text(status: &ScanStatus, now_s: u64) -> Option<String> {
    let scan = &status.scan;
    let what = match scan.function {
        SCRUB => "scrub",
        RESILVER => "resilver",
        _ => return None,
    };
    let took = duration(scan.end_time_s.saturating_sub(scan.start_time_s));
    let (processed, errors) = (bytes(scan.processed_bytes), scan.error_count);
    let ended = date(scan.end_time_s);
    Some(match (scan.state, scan.function) {
        (FINISHED, SCRUB) => {
            format!("scrub repaired {processed} in {took} with {errors} errors on {ended}")
        }
        (FINISHED, _) => {
            format!("resilvered {processed} in {took} with {errors} errors on {ended}")
        }
        (CANCELED, _) => format!("{what} canceled on {ended}"),
        (SCANNING, _) => in_progress(status, what, now_s),
        _ => return None,
    })
}

/// The `scan:` texts of a pool: a scrub's always, and that of a resilver or of rebuilds, whichever
/// runs or ended last. A scrub gives way to one of known errors that began later.
#[doc(alias = "print_scan_status")]
pub(super) fn lines(
    scan: Option<&ScanStatus>,
    rebuilds: &[(RebuildStatus, String)],
    error_scrub_s: u64,
    now_s: u64,
) -> Vec<String> {
    let mut lines = Vec::new();
    let of_scan = scan.and_then(|scan| text(scan, now_s));
    if scan.is_some_and(|scan| scan.is_scrub() && scan.scan.start_time_s > error_scrub_s) {
        lines.extend(of_scan.clone());
    }
    let resilver = scan.filter(|scan| scan.is_resilver());
    let is_resilvering = resilver.is_some_and(ScanStatus::is_running);
    let is_rebuilding = rebuilds.iter().any(|(status, _)| status.is_active());
    let resilvered_s = resilver.map_or(0, |scan| scan.scan.end_time_s);
    let ended = rebuilds.iter().map(|(status, _)| status.rebuild.end_time_s);
    let rebuilt_s = ended.max().unwrap_or(0);
    if is_resilvering || (!is_rebuilding && resilvered_s > rebuilt_s) {
        lines.extend(of_scan);
    } else if is_rebuilding || rebuilt_s > resilvered_s {
        let texts = rebuilds
            .iter()
            .map(|(status, name)| rebuild::text(status, name));
        lines.extend(texts.flatten());
    }
    lines
}

/// The lines of a scan that runs or is paused.
fn in_progress(status: &ScanStatus, what: &str, now_s: u64) -> String {
    let (scan, pass) = (&status.scan, &status.pass);
    let is_paused = status.is_paused();
    let begun = date(scan.start_time_s);
    let mut text = match is_paused {
        true => format!(
            "scrub paused since {}\n\tscrub started on {begun}\n",
            date(pass.paused_since_s)
        ),
        false => format!("{what} in progress since {begun}\n"),
    };
    let issued = status.issued_bytes();
    let to_issue = scan.to_examine_bytes.saturating_sub(scan.skipped_bytes);
    let elapsed_s = now_s
        .saturating_sub(pass.start_time_s)
        .saturating_sub(pass.spent_paused_s)
        .max(1);
    let scan_rate = pass.examined_bytes / elapsed_s;
    let issue_rate = pass.issued_bytes / elapsed_s;
    let rate = |rate: u64| match is_paused || rate == 0 {
        true => String::new(),
        false => format!(" at {}/s", bytes(rate)),
    };
    text.push_str(&format!(
        "\t{} / {} scanned{}, {} / {} issued{}\n",
        bytes(scan.examined_bytes),
        bytes(scan.to_examine_bytes),
        rate(scan_rate),
        bytes(issued),
        bytes(to_issue),
        rate(issue_rate)
    ));
    let verb = match status.is_resilver() {
        true => "resilvered",
        false => "repaired",
    };
    // Hundredths of a percent.
    let done = u128::from(issued) * 10_000 / u128::from(to_issue.max(1));
    text.push_str(&format!(
        "\t{} {verb}, {}.{:02}% done",
        bytes(scan.processed_bytes),
        done / 100,
        done % 100
    ));
    let has_begun = match status.is_resilver() {
        true => scan.processed_bytes > 0,
        false => issued > 0,
    };
    if is_paused {
        return text;
    }
    match to_issue.checked_sub(issued) {
        Some(left) if issue_rate >= ESTIMATE_RATE_MIN && has_begun => {
            text.push_str(&format!(", {} to go", duration(left / issue_rate)));
        }
        _ => text.push_str(", no estimated completion time"),
    }
    text
}

/// The numbers of a scan.
pub(super) fn stats(status: &ScanStatus) -> Option<ScanStats> {
    let (scan, pass) = (&status.scan, &status.pass);
    Some(ScanStats {
        function: match scan.function {
            SCRUB => "SCRUB",
            RESILVER => "RESILVER",
            _ => return None,
        }
        .to_string(),
        state: match scan.state {
            SCANNING => "SCANNING",
            FINISHED => "FINISHED",
            CANCELED => "CANCELED",
            _ => return None,
        }
        .to_string(),
        start_time_s: scan.start_time_s,
        end_time_s: scan.end_time_s,
        to_examine_bytes: scan.to_examine_bytes,
        examined_bytes: scan.examined_bytes,
        skipped_bytes: scan.skipped_bytes,
        processed_bytes: scan.processed_bytes,
        errors: scan.error_count,
        pass_examined_bytes: pass.examined_bytes,
        pass_start_s: pass.start_time_s,
        paused_since_s: pass.paused_since_s,
        spent_paused_s: pass.spent_paused_s,
        pass_issued_bytes: pass.issued_bytes,
        issued_bytes: status.issued_bytes(),
    })
}

pub(super) fn bytes(number: u64) -> String {
    with_unit(&nice(number))
}

/// Bytes below a kilobyte are shown with their unit.
fn with_unit(nice: &str) -> String {
    match nice.ends_with(|c: char| c.is_ascii_digit()) {
        true => format!("{nice}B"),
        false => nice.to_string(),
    }
}

/// Other sections of the status.
pub(super) fn sections(open: &OpenPool) -> Vec<(String, String)> {
    let Some(checkpoint) = open.pool.checkpoint_status() else {
        return Vec::new();
    };
    let bytes = nice(checkpoint.bytes);
    let text = match checkpoint.state {
        CheckpointState::Exists => {
            format!("created {}, consumes {bytes}", date(checkpoint.created_s))
        }
        CheckpointState::Discarding => format!("discarding, {bytes} remaining."),
    };
    vec![("checkpoint".to_string(), text)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_ondisk::scan::Scan;
    use tarn_pool::ScanPass;

    fn status(scan: Scan, pass: ScanPass) -> ScanStatus {
        ScanStatus { scan, pass }
    }

    #[test]
    fn a_finished_scrub_says_what_it_repaired() {
        let scan = Scan {
            function: SCRUB,
            state: FINISHED,
            start_time_s: 1_000,
            end_time_s: 1_003,
            ..Scan::default()
        };
        let text = super::text(&status(scan, ScanPass::default()), 2_000).unwrap();
        assert!(text.starts_with("scrub repaired 0B in 00:00:03 with 0 errors on "));
    }

    #[test]
    fn a_running_scrub_says_how_far_it_is_and_a_paused_one_estimates_nothing() {
        let scan = Scan {
            function: SCRUB,
            state: SCANNING,
            start_time_s: 1_000,
            to_examine_bytes: 4 << 30,
            examined_bytes: 2 << 30,
            ..Scan::default()
        };
        let pass = ScanPass {
            start_time_s: 1_000,
            examined_bytes: 2 << 30,
            issued_bytes: 1 << 30,
            ..ScanPass::default()
        };
        let text = super::text(&status(scan, pass), 1_010).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("scrub in progress since "), "{text}");
        assert_eq!(
            lines[1],
            "\t2G / 4G scanned at 205M/s, 1G / 4G issued at 102M/s"
        );
        assert_eq!(lines[2], "\t0B repaired, 25.00% done, 00:00:30 to go");
        let (scan, pass) = (
            Scan {
                flags: Scan::PAUSED,
                ..scan
            },
            ScanPass {
                paused_since_s: 1_005,
                ..pass
            },
        );
        let text = super::text(&status(scan, pass), 1_010).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("scrub paused since "), "{text}");
        assert!(lines[1].starts_with("\tscrub started on "), "{text}");
        assert_eq!(lines[2], "\t2G / 4G scanned, 1G / 4G issued");
        assert_eq!(lines[3], "\t0B repaired, 25.00% done");
    }

    #[test]
    fn rebuilds_and_the_scrub_after_them_are_told_and_a_later_resilver_alone() {
        let of = |function, end_time_s| Scan {
            function,
            state: FINISHED,
            start_time_s: 1,
            end_time_s,
            ..Scan::default()
        };
        let rebuild = tarn_ondisk::rebuild::Rebuild {
            state: tarn_ondisk::rebuild::COMPLETE,
            end_time_s: 1_000,
            ..Default::default()
        };
        let rebuilds = [(
            RebuildStatus {
                vdev: tarn_ondisk::units::VdevId::ZERO,
                rebuild,
                pass_ms: 0,
                pass_scanned_bytes: 0,
                pass_issued_bytes: 0,
            },
            "mirror-0".to_string(),
        )];
        let told = |scan: Option<Scan>| {
            let scan = scan.map(|scan| status(scan, ScanPass::default()));
            let lines = super::lines(scan.as_ref(), &rebuilds, 0, 5_000);
            let words = lines.iter().filter_map(|line| line.split(' ').nth(1));
            words.map(str::to_string).collect::<Vec<_>>()
        };
        assert_eq!(told(None), ["(mirror-0)"]);
        assert_eq!(told(Some(of(SCRUB, 1_200))), ["repaired", "(mirror-0)"]);
        assert_eq!(told(Some(of(RESILVER, 900))), ["(mirror-0)"]);
        assert_eq!(told(Some(of(RESILVER, 1_200))), ["0B"]);
    }

    #[test]
    fn a_resilver_without_repairs_has_no_estimate() {
        let scan = Scan {
            function: RESILVER,
            state: SCANNING,
            to_examine_bytes: 1 << 20,
            ..Scan::default()
        };
        let text = super::text(&status(scan, ScanPass::default()), 5).unwrap();
        assert!(text.starts_with("resilver in progress since "), "{text}");
        let end = "\t0B resilvered, 0.00% done, no estimated completion time";
        assert!(text.ends_with(end), "{text}");
    }
}
