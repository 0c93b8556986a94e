//! The lines of `zpool status` about sequential rebuilds.

use super::scan::{ESTIMATE_RATE_MIN, bytes};
use crate::messages::scan::RebuildStats;
use tarn_engine::importing::dates::{date, duration};
use tarn_ondisk::rebuild::{ACTIVE, CANCELED, COMPLETE};
use tarn_pool::RebuildStatus;
use tarn_vdev::{VdevConfig, VdevKind};

/// The `scan:` text of the rebuild of this vdev, in OpenZFS's words; further lines begin with a
/// tab.
#[doc(alias = "print_rebuild_status_impl")]
pub(super) fn text(status: &RebuildStatus, name: &str) -> Option<String> {
    let rebuild = &status.rebuild;
    let rebuilt = bytes(rebuild.rebuilt_bytes);
    Some(match rebuild.state {
        COMPLETE => format!(
            "resilvered ({name}) {rebuilt} in {} with {} errors on {}",
            duration(rebuild.scan_time_ms / 1000),
            rebuild.error_count,
            date(rebuild.end_time_s)
        ),
        CANCELED => format!("resilver ({name}) canceled on {}", date(rebuild.end_time_s)),
        ACTIVE => in_progress(status, name),
        _ => return None,
    })
}

fn in_progress(status: &RebuildStatus, name: &str) -> String {
    let rebuild = &status.rebuild;
    let (scanned, estimated) = (rebuild.scanned_bytes, rebuild.estimated_bytes);
    let per_second = |bytes: u64| bytes / (status.pass_ms + 1) * 1000;
    let scan_rate = per_second(status.pass_scanned_bytes);
    let issue_rate = per_second(status.pass_issued_bytes);
    let rate = |rate: u64| match rate {
        0 => String::new(),
        rate => format!(" at {}/s", bytes(rate)),
    };
    // Hundredths of a percent.
    let done = u128::from(scanned) * 10_000 / (u128::from(estimated) + 1);
    let done = done.min(10_000);
    let left = match estimated.checked_sub(scanned) {
        Some(left) if scan_rate >= ESTIMATE_RATE_MIN => {
            format!("{} to go", duration(left / scan_rate))
        }
        _ => "no estimated completion time".to_string(),
    };
    format!(
        "resilver ({name}) in progress since {}\n\t{} / {estimate} scanned{}, {} / {estimate} issued{}\n\t\
         {} resilvered, {}.{:02}% done, {left}",
        date(rebuild.start_time_s),
        bytes(scanned),
        rate(scan_rate),
        bytes(rebuild.issued_bytes),
        rate(issue_rate),
        bytes(rebuild.rebuilt_bytes),
        done / 100,
        done % 100,
        estimate = bytes(estimated),
    )
}

/// The numbers of a rebuild.
pub(super) fn stats(status: &RebuildStatus, name: &str, vdev: &VdevConfig) -> Option<RebuildStats> {
    let rebuild = &status.rebuild;
    let path = vdev.path.as_ref().filter(|_| vdev.kind.is_leaf());
    Some(RebuildStats {
        name: name.to_string(),
        kind: vdev.kind.name().to_string(),
        guid: vdev.guid.get(),
        path: path.map(ToString::to_string),
        state: match rebuild.state {
            ACTIVE => "ACTIVE",
            CANCELED => "CANCELED",
            COMPLETE => "COMPLETE",
            _ => return None,
        }
        .to_string(),
        start_time_s: rebuild.start_time_s,
        end_time_s: rebuild.end_time_s,
        scan_time_ms: rebuild.scan_time_ms,
        scanned_bytes: rebuild.scanned_bytes,
        issued_bytes: rebuild.issued_bytes,
        rebuilt_bytes: rebuild.rebuilt_bytes,
        estimated_bytes: rebuild.estimated_bytes,
        errors: rebuild.error_count,
        pass_ms: status.pass_ms,
        pass_scanned_bytes: status.pass_scanned_bytes,
        pass_issued_bytes: status.pass_issued_bytes,
    })
}

/// The name of a top-level vdev in these lines.
pub(super) fn name_of(vdev: &VdevConfig) -> String {
    let path = vdev.path.as_ref().filter(|_| vdev.kind.is_leaf());
    let file = path
        .and_then(|path| path.as_str())
        .map(|path| match vdev.kind {
            VdevKind::Disk => path.rsplit('/').next().unwrap_or(path),
            _ => path,
        });
    let name = file.map(str::to_string);
    name.unwrap_or_else(|| format!("{}-{}", vdev.kind.name(), vdev.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_ondisk::rebuild::Rebuild;
    use tarn_ondisk::units::VdevId;

    fn status(rebuild: Rebuild) -> RebuildStatus {
        RebuildStatus {
            vdev: VdevId::ZERO,
            rebuild,
            pass_ms: 9_999,
            pass_scanned_bytes: 1 << 30,
            pass_issued_bytes: 1 << 30,
        }
    }

    #[test]
    fn a_rebuild_is_told_as_openzfs_tells_it() {
        let rebuild = Rebuild {
            state: ACTIVE,
            scanned_bytes: 1 << 30,
            issued_bytes: 1 << 30,
            rebuilt_bytes: 1 << 29,
            estimated_bytes: 4 << 30,
            scan_time_ms: 61_000,
            error_count: 2,
            ..Rebuild::default()
        };
        let text = |state| {
            let rebuild = Rebuild { state, ..rebuild };
            super::text(&status(rebuild), "mirror-0")
        };
        let active = text(ACTIVE).unwrap();
        let lines: Vec<&str> = active.lines().collect();
        assert!(
            lines[0].starts_with("resilver (mirror-0) in progress since "),
            "{active}"
        );
        assert_eq!(
            lines[1],
            "\t1G / 4G scanned at 102M/s, 1G / 4G issued at 102M/s"
        );
        assert_eq!(lines[2], "\t512M resilvered, 24.99% done, 00:00:30 to go");
        let complete = text(COMPLETE).unwrap();
        let start = "resilvered (mirror-0) 512M in 00:01:01 with 2 errors on ";
        assert!(complete.starts_with(start), "{complete}");
        let canceled = text(CANCELED).unwrap();
        assert!(canceled.starts_with("resilver (mirror-0) canceled on "));
        assert_eq!(text(0), None);
    }
}
