//! `zpool status -v` of a damaged pool equals what OpenZFS saw.
//!
//! # Mechanism
//! The fixture `damaged` is imported and scrubbed as its truth was: one of its file systems is
//! unmounted before, so that its file has no path. Then everything that status shows is compared,
//! except for times and for the folders of the images and mounts.

use crate::golden::import;
use crate::workspace::{Outcome, programs, scratch};
use std::fs;
use std::time::Duration;
use tarn_golden::Fixtures;
use tarn_oracle::instance::Instance;

/// The fixture with damaged files.
pub const DAMAGED: &str = "damaged";

/// It takes no longer than this.
const LIMIT: Duration = Duration::from_secs(120);

/// Scrubs the fixture, and compares what `zpool status -v` shows.
pub fn scrub_fixture(fixtures: &Fixtures, keep: bool) -> Outcome {
    let fixture = fixtures.unpack(DAMAGED)?;
    let pool = fixture.pool();
    let folder = scratch("golden-damaged");
    let images = folder.join("images");
    let instance = Instance::new(&programs(), &folder)?;
    fixture.working_copy(&images)?;
    let _watchdog = instance.watchdog("golden damaged", LIMIT);

    import(&instance, &fixture, &images, &[])?;
    instance.must("zfs", &["mount", "-a"])?;
    instance.must("zfs", &["unmount", &format!("{pool}/ghost")])?;
    instance.must("zpool", &["scrub", "-w", &pool])?;
    let seen = instance.must("zpool", &["status", "-v", &pool])?.stdout;
    instance.must("zpool", &["export", &pool])?;
    let (images, root) = (images.display().to_string(), instance.root());
    drop(instance);
    let seen = seen.replace(&images, "/run");
    let seen = comparable(&seen.replace(&root.display().to_string(), ""));
    let truth = fixture.folder().join("truth/zpool-status.txt");
    let truth = comparable(&fs::read_to_string(truth)?);
    if seen != truth {
        let (seen, truth) = (seen.join("\n"), truth.join("\n"));
        return Err(format!("OpenZFS showed\n{truth}\nand we show\n{seen}").into());
    }
    println!("zpool status -v: {} lines as recorded", truth.len());
    if !keep {
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}

/// The lines without times, and with one space between words: columns are as wide as paths.
fn comparable(status: &str) -> Vec<String> {
    let is_time = |word: &&str| word.len() == 8 && word.matches(':').count() == 2;
    let line = |line: &str| {
        let is_scan = line.trim_start().starts_with("scan:");
        let line = match line.rsplit_once(" on ") {
            Some((start, _)) if is_scan => start,
            _ => line,
        };
        let words = line.split_whitespace();
        let words: Vec<&str> = words.filter(|word| !(is_scan && is_time(word))).collect();
        words.join(" ")
    };
    status.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_widths_of_columns_are_left_out() {
        let of = |time, date| {
            let scan = format!("  scan: scrub repaired 0B in {time} with 3 errors on {date}");
            comparable(&format!("{scan}\n\t  /run/0.img   ONLINE  0\n"))
        };
        let words = [
            "scan: scrub repaired 0B in with 3 errors",
            "/run/0.img ONLINE 0",
        ];
        assert_eq!(of("00:00:00", "Fri Nov 20 16:03:34 2026"), words);
        assert_eq!(of("01:02:03", "Sat Nov 21 06:03:34 2026"), words);
    }
}
