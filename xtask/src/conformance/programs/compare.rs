//! Comparing what a program did on ext4 with what it did on us.

use std::collections::{BTreeMap, BTreeSet};

use super::account::{Account, Seen};

/// How many lines of a difference are shown.
const SHOWN_LINES_MAX: usize = 24;

/// A difference that is right, and why.
pub struct Tolerated {
    /// The program's name.
    pub program: &'static str,
    /// The title of its step; `manifest` for what is left.
    pub step: &'static str,
    /// Lines that contain this are not compared in that step.
    pub line: &'static str,
    /// What imposes it: a line of the kernel or of a document.
    pub reason: &'static str,
}

/// What a comparison found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// For people, a text for each step that differs.
    pub differences: Vec<String>,
    /// The reasons of what differed and may.
    pub tolerated: BTreeSet<&'static str>,
}

/// Compares two accounts of one program.
pub fn compare(name: &str, ext4: &Account, ours: &Account, tolerated: &[Tolerated]) -> Found {
    let mut found = Found::default();
    if ext4.steps.len() != ours.steps.len() {
        let (expected, seen) = (ext4.steps.len(), ours.steps.len());
        let text = format!("  {expected} steps on ext4, {seen} on us");
        found.differences.push(text);
    }
    let mut look = |step: &str, expected: &[String], seen: &[String]| {
        let (expected, seen) = without_tolerated(name, step, expected, seen, tolerated, &mut found);
        if expected != seen {
            found.differences.push(show(step, &expected, &seen));
        }
    };
    for (expected, seen) in ext4.steps.iter().zip(&ours.steps) {
        look(&expected.title, &lines(expected), &lines(seen));
    }
    for (expected, seen) in ext4.trees.iter().zip(&ours.trees) {
        look("manifest", expected, seen);
    }
    found
}

/// What a step printed, and its end as one more line.
fn lines(seen: &Seen) -> Vec<String> {
    let printed = seen.output.lines().map(str::to_string);
    printed
        .chain([format!("exit code {}", seen.ending)])
        .collect()
}

/// Takes the lines out of both sides that may differ, and remembers the reason where they do.
fn without_tolerated(
    program: &str,
    step: &str,
    expected: &[String],
    seen: &[String],
    tolerated: &[Tolerated],
    found: &mut Found,
) -> (Vec<String>, Vec<String>) {
    let (mut expected, mut seen) = (expected.to_vec(), seen.to_vec());
    for one in tolerated {
        if one.program != program || one.step != step {
            continue;
        }
        let take = |lines: &mut Vec<String>| -> Vec<String> {
            lines
                .extract_if(.., |line| line.contains(one.line))
                .collect()
        };
        if take(&mut expected) != take(&mut seen) {
            found.tolerated.insert(one.reason);
        }
    }
    (expected, seen)
}

/// The lines that only one side has, or where that is none, those between what is the same before
/// and after.
fn show(step: &str, expected: &[String], seen: &[String]) -> String {
    let before = expected
        .iter()
        .zip(seen)
        .take_while(|(a, b)| a == b)
        .count();
    let (expected, seen) = (&expected[before..], &seen[before..]);
    let after = expected.iter().rev().zip(seen.iter().rev());
    let after = after.take_while(|(a, b)| a == b).count();
    let [expected, seen] = [expected, seen].map(|lines| &lines[..lines.len() - after]);
    let mut shown = [lacking(expected, seen), lacking(seen, expected)];
    if shown.iter().all(Vec::is_empty) {
        // The same lines in another order.
        shown = [expected, seen].map(|lines| lines.iter().collect());
    }
    let mut text = format!("  {step}: from line {}", before + 1);
    for (who, lines) in ["ext4", "ours"].into_iter().zip(shown) {
        for line in lines.iter().take(SHOWN_LINES_MAX) {
            text += &format!("\n    {who}: {line}");
        }
        if lines.len() > SHOWN_LINES_MAX {
            text += &format!(
                "\n    {who}: and {} lines more",
                lines.len() - SHOWN_LINES_MAX
            );
        }
    }
    text
}

/// The lines that are not in the other list as often.
fn lacking<'a>(lines: &'a [String], others: &[String]) -> Vec<&'a String> {
    let mut left: BTreeMap<&String, usize> = BTreeMap::new();
    for line in others {
        *left.entry(line).or_default() += 1;
    }
    let is_lacking = |line: &&String| match left.get_mut(*line) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    lines.iter().filter(is_lacking).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Account {
        let seen = |title: &str, output: &str| Seen {
            title: title.into(),
            ending: "0".into(),
            output: output.into(),
        };
        Account {
            steps: vec![seen("make", "a\nb\n"), seen("look", "c\n")],
            trees: vec![vec!["file".into()], vec![]],
        }
    }

    fn differences(change: impl FnOnce(&mut Account)) -> Vec<String> {
        let mut changed = account();
        change(&mut changed);
        compare("p", &account(), &changed, &[]).differences
    }

    /// The canary: each thing that can be observed, changed by itself, must be found.
    #[test]
    fn every_change_is_found() {
        assert_eq!(differences(|_| {}), Vec::<String>::new());
        let found = [
            differences(|account| account.steps[0].output = "a\nB\n".into()),
            differences(|account| account.steps[1].ending = "1".into()),
            differences(|account| account.steps[1].output.clear()),
            differences(|account| account.trees[0][0].push('!')),
            differences(|account| account.trees[1].push("one more".into())),
            differences(|account| drop(account.steps.pop())),
        ];
        assert!(found.iter().all(|texts| texts.len() == 1), "{found:?}");
        assert_eq!(found[0][0], "  make: from line 2\n    ext4: b\n    ours: B");
    }

    #[test]
    fn what_both_have_is_not_shown_but_an_order_is() {
        let lines = |text: &str| -> Vec<String> { text.split(' ').map(str::to_string).collect() };
        let shown = show("s", &lines("a b c d e f"), &lines("a c x d f"));
        assert_eq!(
            shown,
            "  s: from line 2\n    ext4: b\n    ext4: e\n    ours: x"
        );
        let shown = show("s", &lines("a b c"), &lines("a c b"));
        assert_eq!(
            shown,
            "  s: from line 2\n    ext4: b\n    ext4: c\n    ours: c\n    ours: b"
        );
    }

    #[test]
    fn only_the_lines_that_are_named_may_differ() {
        let tolerated = [Tolerated {
            program: "p",
            step: "make",
            line: "b",
            reason: "because",
        }];
        let with = |output: &str| {
            let mut changed = account();
            changed.steps[0].output = output.into();
            compare("p", &account(), &changed, &tolerated)
        };
        let other_b = with("a\nbb\n");
        assert!(other_b.differences.is_empty());
        assert_eq!(other_b.tolerated, BTreeSet::from(["because"]));
        assert_eq!(with("A\nb\n").differences.len(), 1);
        assert!(with("a\nb\n").tolerated.is_empty());
    }
}
