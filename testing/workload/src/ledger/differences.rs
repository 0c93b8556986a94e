//! The report of a directory that is not as it can be: what differs, and what was done to it.

use super::call::{Call, Contents, Entry, change};
use super::guess::{Guess, Named};
use super::history::FileNumber;

/// So many differences are told.
const DIFFERENCES_MAX: usize = 12;

impl Guess<'_> {
    pub(super) fn differences(&self) -> Vec<String> {
        let entry = |path: &String| {
            Some(match self.names.get(path)? {
                Named::Directory => Entry::Directory,
                Named::Link(target) => Entry::Link(target.clone()),
                Named::File(number) => Entry::File(self.least(*number)),
            })
        };
        let paths = self.differing.iter().take(DIFFERENCES_MAX);
        paths
            .map(|path| match (entry(path), self.found.get(path)) {
                (Some(expected), Some(found)) => {
                    format!(
                        "{path}: {}{}",
                        difference(&expected, found),
                        self.story(path, found)
                    )
                }
                (Some(_), None) => format!("{path} is missing"),
                (None, _) => format!("{path} should not be there"),
            })
            .collect()
    }

    /// All that was done to a file, and how far it is what was found after each call.
    fn story(&self, path: &str, found: &Entry) -> String {
        let (Some(Named::File(number)), Entry::File(found)) = (self.names.get(path), found) else {
            return String::new();
        };
        let promised = self.limits.promised.get(number).copied().unwrap_or(0);
        let mut told = format!(
            "\n    promised up to call {promised}; more may be there up to call {}",
            self.limits.names
        );
        let mut contents = (*self.first[number]).clone();
        for index in self.own.get(number).into_iter().flatten() {
            change(&mut contents, &self.calls[*index]);
            let pairs = contents.bytes.iter().zip(&found.bytes);
            let same = pairs.take_while(|(ours, theirs)| ours == theirs).count();
            let what = match &self.calls[*index] {
                Call::Write { at, bytes, .. } => format!("write {at} + {}", bytes.len()),
                Call::SetSize { size, .. } => format!("size {size}"),
                Call::PunchHole { at, length, .. } => format!("hole {at} + {length}"),
                Call::SetMode { mode, .. } => format!("mode {mode:o}"),
                Call::SetAttribute { .. } => "attribute".to_string(),
                _ => "sync".to_string(),
            };
            told += &format!(
                "\n    call {index}: {what}; {same} bytes as found, of {}",
                contents.bytes.len()
            );
        }
        told
    }

    /// What a file is at least.
    fn least(&self, number: FileNumber) -> Contents {
        let promised = self.limits.promised.get(&number).copied().unwrap_or(0);
        let mut contents = (*self.first[&number]).clone();
        let own = self.own.get(&number).into_iter().flatten();
        for index in own.take_while(|index| **index < self.moment.max(promised)) {
            change(&mut contents, &self.calls[*index]);
        }
        contents
    }
}

fn difference(expected: &Entry, found: &Entry) -> String {
    let (Entry::File(expected), Entry::File(found)) = (expected, found) else {
        return format!("{found:?} instead of {expected:?}");
    };
    let pairs = expected.bytes.iter().zip(&found.bytes);
    let same = pairs
        .take_while(|(expected, found)| expected == found)
        .count();
    let mut told = format!(
        "mode {:o} instead of {:o}, {} bytes instead of {}",
        found.mode,
        expected.mode,
        found.bytes.len(),
        expected.bytes.len()
    );
    if expected.bytes != found.bytes {
        told += &format!(", the first {same} bytes are right");
    }
    if expected.attribute != found.attribute {
        told += ", another attribute";
    }
    told
}
