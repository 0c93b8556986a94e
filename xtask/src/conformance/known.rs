//! Tests of a foreign suite that do not pass, each with its class and its reason, so that a new
//! failure stands out.
//!
//! # Mechanism
//! A table of three columns separated by tabs: the test, its class, the reason. A line that begins
//! with `#` is a comment. A test that fails without a line in the table fails the run; one that has
//! a line and passes is told, so that its line is removed.

use std::collections::BTreeMap;

use crate::workspace::Outcome;

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ended {
    /// As it should.
    Passed,
    /// It says itself that it cannot run here.
    NotRun,
    /// It found something, or could not be finished.
    Failed,
    /// It took longer than it may.
    Hung,
}

/// A test and its end.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The name in the suite, as `known.tsv` has it.
    pub test: String,
    /// How it ended.
    pub ended: Ended,
    /// Seconds it took.
    pub seconds: u64,
    /// What the test said of it, in a line.
    pub note: String,
}

/// The tests that are known not to pass.
pub struct Known {
    by_test: BTreeMap<String, (String, String)>,
}

impl Known {
    /// Reads a table.
    pub fn parse(table: &str) -> Outcome<Known> {
        let mut by_test = BTreeMap::new();
        let lines = table.lines().map(str::trim_end);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let mut columns = line.splitn(3, '\t');
            let (Some(test), Some(class), Some(reason)) =
                (columns.next(), columns.next(), columns.next())
            else {
                return Err(format!(
                    "the table of known failures has a line without three columns: {line:?}"
                )
                .into());
            };
            let known = (class.to_string(), reason.to_string());
            if by_test.insert(test.to_string(), known).is_some() {
                return Err(format!("the table of known failures has {test} twice").into());
            }
        }
        Ok(Known { by_test })
    }

    /// The class of a test that is in the table.
    pub fn class(&self, test: &str) -> Option<&str> {
        self.by_test.get(test).map(|(class, _)| class.as_str())
    }

    /// Prints the count of each class and fails for every failure that is not in the table.
    pub fn judge(&self, suite: &str, verdicts: &[Verdict]) -> Outcome {
        let count = |ended| verdicts.iter().filter(|one| one.ended == ended).count();
        println!(
            "{suite}: {} tests: {} passed, {} failed, {} hung, {} not run",
            verdicts.len(),
            count(Ended::Passed),
            count(Ended::Failed),
            count(Ended::Hung),
            count(Ended::NotRun)
        );
        let mut classes: BTreeMap<&str, usize> = BTreeMap::new();
        let mut unknown = Vec::new();
        for verdict in verdicts {
            match (verdict.ended, self.by_test.get(&verdict.test)) {
                (Ended::Passed, Some(_)) => {
                    println!(
                        "  {} passes: remove it from the table of known failures",
                        verdict.test
                    );
                }
                (Ended::Passed, None) | (Ended::NotRun, _) => {}
                (_, Some((class, _))) => *classes.entry(class).or_default() += 1,
                (_, None) => unknown.push(format!("  {}: {}", verdict.test, verdict.note)),
            }
        }
        for (class, tests) in classes {
            println!("  known: {class}: {tests}");
        }
        match unknown.is_empty() {
            true => Ok(()),
            false => Err(format!("failed, and in no table:\n{}", unknown.join("\n")).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Ended, Known, Verdict};

    fn verdict(test: &str, ended: Ended) -> Verdict {
        Verdict {
            test: test.to_string(),
            ended,
            seconds: 0,
            note: "diff".to_string(),
        }
    }

    #[test]
    fn a_failure_fails_the_run_unless_the_table_has_it() {
        let known = Known::parse("# test\tclass\treason\nacl/off\tenv\tno Samba here\n").unwrap();
        let listed = verdict("acl/off", Ended::Failed);
        known.judge("suite", std::slice::from_ref(&listed)).unwrap();
        known
            .judge("suite", &[verdict("atime/root", Ended::Passed)])
            .unwrap();
        known
            .judge("suite", &[verdict("atime/root", Ended::NotRun)])
            .unwrap();
        for ended in [Ended::Failed, Ended::Hung] {
            let refused = known.judge("suite", &[listed.clone(), verdict("atime/root", ended)]);
            assert!(refused.unwrap_err().to_string().contains("atime/root"));
        }
    }

    #[test]
    fn a_table_has_three_columns_and_each_test_once() {
        assert!(Known::parse("acl/off\tenv\n").is_err());
        assert!(Known::parse("acl/off\tenv\twhy\nacl/off\tenv\twhy\n").is_err());
    }
}
