//! Paths of the machine a file was written on, which mean nothing on any other.
//!
//! # Mechanism
//! No committed text may contain the folder of this checkout, the folder around it, or the home of
//! the user that runs this. Folders that every machine has are no finding.

use std::fs;
use std::path::Path;

use crate::workspace::{Outcome, checkout};

/// Folders that exist everywhere, so that naming them tells nothing.
const EVERYWHERE: [&str; 12] = [
    "/", "/tmp", "/usr", "/usr/src", "/home", "/srv", "/opt", "/root", "/var", "/mnt", "/var/tmp",
    "/build",
];

/// What is wrong, a sentence each.
pub fn check(files: &[String]) -> Outcome<Vec<String>> {
    let home = std::env::var("HOME").unwrap_or_default();
    let here = forbidden(&checkout(), &home);
    let mut wrong = Vec::new();
    for path in files {
        let Ok(bytes) = fs::read(checkout().join(path)) else {
            continue;
        };
        // Binary files hold what they hold.
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        for (number, line) in text.lines().enumerate() {
            if let Some(found) = find(line, &here) {
                wrong.push(format!(
                    "{path}:{}: names {found}, a folder of this machine",
                    number + 1
                ));
            }
        }
    }
    Ok(wrong)
}

fn forbidden(checkout: &Path, home: &str) -> Vec<String> {
    let around = checkout.parent().map(|parent| parent.display().to_string());
    let folders = [
        Some(checkout.display().to_string()),
        around,
        Some(home.to_string()),
    ];
    let mut folders: Vec<String> = folders.into_iter().flatten().collect();
    folders.retain(|folder| !folder.is_empty() && !EVERYWHERE.contains(&folder.as_str()));
    folders
}

fn find<'a>(line: &'a str, folders: &[String]) -> Option<&'a str> {
    folders.iter().find_map(|folder| {
        let at = line.find(folder.as_str())?;
        let ends = line[at + folder.len()..].chars().next();
        // `/place` is in `/places` only by chance, and in `/net/place` at another place.
        let is_whole =
            ends.is_none_or(|next| !next.is_alphanumeric() && next != '-' && next != '_');
        let begins = line[..at].chars().next_back();
        let is_root = begins.is_none_or(|before| !before.is_alphanumeric() && before != '.');
        (is_whole && is_root).then(|| &line[at..at + folder.len()])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The canary.
    #[test]
    fn a_path_of_this_machine_is_caught() {
        let folders = forbidden(Path::new("/place/of/tarn"), "/root");
        assert_eq!(folders, ["/place/of/tarn", "/place/of"]);
        assert!(find("see /place/of/tarn/docs", &folders).is_some());
        assert!(find("see /place/of", &folders).is_some());
        assert!(find("see /place/often", &folders).is_none());
        assert!(find("see some/place/of", &folders).is_none());
    }
}
