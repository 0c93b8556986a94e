//! The verdict of OpenZFS's `zdb` on an exported pool.
//!
//! # Problem
//! `zdb -bcc` walks every block pointer, reads and verifies every block, and holds the sum against
//! the space maps. It exits with 0 on some of what it finds, so its words decide.
//!
//! # Mechanism
//! A pool is clean when `zdb` ended well, said `No leaks`, and said none of the words it uses for a
//! finding. Each word is a constant below, with its meaning. Then every object of every dataset is
//! opened (`-dddd`), which a walk by pointers does not do.

use std::path::Path;
use std::time::Duration;

use crate::program::Spoken;
use crate::tools::{ToolsError, Unpacked};

/// What `zdb` says when something is wrong, whatever its exit code.
const FINDINGS: [&str; 6] = [
    // A block could not be read or did not verify.
    "Got error",
    // Allocated in a space map and reached by no pointer.
    "leaked space",
    // The sum of all blocks is not what the space maps say.
    "block traversal size",
    // A feature's count of uses is not what was found.
    "feature refcount mismatch",
    // Two pointers reach one block, or what was read made no sense.
    "Assertion",
    "ASSERT",
];

/// What `zdb -dddd` says when an object cannot be opened.
const OBJECT_FINDINGS: [&str; 6] = [
    "failed, errno",
    "Assertion",
    "ASSERT",
    "can't open",
    "zdb: ",
    "corrupt",
];

/// Long enough for pools of a few GiB under load.
const LIMIT: Duration = Duration::from_secs(900);

/// A clean pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clean {
    /// How many block pointers were followed.
    pub block_count: u64,
}

/// Why a pool is not clean.
#[derive(Debug, thiserror::Error)]
pub enum Verdict {
    /// `zdb` found something.
    #[error("{pool} is NOT clean ({how}):\n{}", findings.join("\n"))]
    NotClean {
        /// The pool.
        pool: String,
        /// Which examination, and how it ended.
        how: String,
        /// The lines that say so.
        findings: Vec<String>,
    },
    /// `zdb` could not be asked.
    #[error("{0}")]
    Tools(#[from] ToolsError),
}

/// Walks every block of the exported `pool` whose images are in `images`.
///
/// # Errors
/// [`Verdict::NotClean`] with what was found.
pub fn judge(tools: &Unpacked, images: &Path, pool: &str) -> Result<Clean, Verdict> {
    let folder = images.display().to_string();
    let spoken = tools.run("zdb", &["-e", "-p", &folder, "-bcc", pool], LIMIT)?;
    read_walk(pool, &spoken)
}

/// Opens every object of every dataset of the exported `pool`; `datasets` are those that must be
/// there.
///
/// # Errors
/// [`Verdict::NotClean`] with what was found.
pub fn open_objects(
    tools: &Unpacked,
    images: &Path,
    pool: &str,
    datasets: &[String],
) -> Result<Clean, Verdict> {
    let folder = images.display().to_string();
    let spoken = tools.run("zdb", &["-e", "-p", &folder, "-dddd", pool], LIMIT)?;
    read_objects(pool, &spoken, datasets)
}

/// What a `zdb -bcc` means, ours or theirs.
///
/// # Errors
/// [`Verdict::NotClean`] with what was found.
pub fn read_walk(pool: &str, spoken: &Spoken) -> Result<Clean, Verdict> {
    let text = format!("{}\n{}", spoken.stdout, spoken.stderr);
    let block_count = text.lines().find_map(|line| {
        line.trim()
            .strip_prefix("bp count:")?
            .split_whitespace()
            .next()?
            .parse()
            .ok()
    });
    let clean =
        spoken.succeeded() && text.contains("No leaks") && lines_with(&text, &FINDINGS).is_empty();
    match (clean, block_count) {
        (true, Some(block_count)) => Ok(Clean { block_count }),
        _ => Err(not_clean(pool, spoken, &text, &FINDINGS)),
    }
}

fn read_objects(pool: &str, spoken: &Spoken, datasets: &[String]) -> Result<Clean, Verdict> {
    let text = format!("{}\n{}", spoken.stdout, spoken.stderr);
    let missing = datasets.iter().find(|name| {
        !text
            .lines()
            .any(|line| line.starts_with(&format!("Dataset {name} [")))
    });
    // Names in directories and attributes may hold any words, and are indented by tabs.
    let own_lines: String = text
        .lines()
        .filter(|line| !line.starts_with('\t'))
        .map(|line| format!("{line}\n"))
        .collect();
    let found = lines_with(&own_lines, &OBJECT_FINDINGS);
    if let Some(name) = missing.filter(|_| spoken.succeeded() && found.is_empty()) {
        let findings = vec![format!("zdb did not list the dataset {name}")];
        return Err(Verdict::NotClean {
            pool: pool.to_string(),
            how: spoken.command.clone(),
            findings,
        });
    }
    // Objects are listed below a header that is repeated for each.
    let block_count = text
        .lines()
        .filter(|line| line.trim_start().starts_with("Object  lvl"))
        .count();
    match spoken.succeeded() && found.is_empty() && block_count > 0 {
        true => Ok(Clean {
            block_count: block_count as u64,
        }),
        false => Err(not_clean(pool, spoken, &own_lines, &OBJECT_FINDINGS)),
    }
}

fn lines_with(text: &str, words: &[&str]) -> Vec<String> {
    let finding = |line: &&str| words.iter().any(|word| line.contains(word));
    text.lines().filter(finding).map(str::to_string).collect()
}

fn not_clean(pool: &str, spoken: &Spoken, text: &str, words: &[&str]) -> Verdict {
    let mut findings = lines_with(text, words);
    if findings.is_empty() {
        // It ended without the words we know: its last words, then, are the finding.
        let last: Vec<String> = text.lines().rev().take(12).map(str::to_string).collect();
        findings = last.into_iter().rev().collect();
    }
    findings.truncate(24);
    let ended = spoken
        .code
        .map_or("killed".to_string(), |code| format!("exit code {code}"));
    Verdict::NotClean {
        pool: pool.to_string(),
        how: format!("{}: {ended}", spoken.command),
        findings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spoken(code: i32, stdout: &str) -> Spoken {
        Spoken {
            command: "zdb".to_string(),
            code: Some(code),
            stdout: stdout.to_string(),
            stderr: String::new(),
            duration: Duration::ZERO,
        }
    }

    const CLEAN: &str = "Traversing all blocks ...\n\n\tNo leaks (block sum matches space maps exactly)\n\n\
                         \tbp count:                  1201\n";

    #[test]
    fn a_clean_walk_gives_its_count_of_blocks() {
        let clean = read_walk("p", &spoken(0, CLEAN)).unwrap();
        assert_eq!(clean.block_count, 1201);
    }

    /// The canary: each word of a finding makes an otherwise clean walk not clean, at exit code 0.
    #[test]
    fn every_finding_is_heard_even_at_exit_code_zero() {
        for word in FINDINGS {
            let text = format!("{CLEAN}{word} here\n");
            let error = read_walk("p", &spoken(0, &text)).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
        assert!(read_walk("p", &spoken(2, CLEAN)).is_err());
        assert!(read_walk("p", &spoken(0, "")).is_err());
    }

    #[test]
    fn a_dataset_that_zdb_does_not_list_is_missed() {
        let text = "Dataset p/a [ZPL], ID 54\n    Object  lvl   iblk\n";
        let names = ["p/a".to_string()];
        assert_eq!(
            read_objects("p", &spoken(0, text), &names)
                .unwrap()
                .block_count,
            1
        );
        let names = ["p/b".to_string()];
        assert!(read_objects("p", &spoken(0, text), &names).is_err());
    }

    #[test]
    fn words_inside_listed_names_are_no_findings() {
        let text = "Dataset p [ZPL]\n    Object  lvl\n\t\tcorrupt = 12 (type: Regular File)\n";
        assert!(read_objects("p", &spoken(0, text), &[]).is_ok());
        let text = format!("{text}dmu_bonus_hold(2) failed, errno 52\n");
        assert!(read_objects("p", &spoken(0, &text), &[]).is_err());
    }
}
