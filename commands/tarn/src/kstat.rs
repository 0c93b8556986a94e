//! `tarn kstat`: what the daemon has counted.
//!
//! Counters only grow from the start of the daemon (those of a pool from its import), so a rate is
//! the difference of two outputs. Nothing is counted where no daemon runs: this command starts
//! none, unlike `zpool` and `zfs`.
//!
//! Options and exit codes are those of illumos' kstat(8).

use crate::asked::{self, Asked, Form};
use crate::shown;
use std::collections::BTreeMap;
use tarn_administration::messages::statistics::{Kstat, KstatGroup};
use tarn_api::client::{CallError, Client};
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::program::Session;
use tarn_terminal::{connection, output};

/// Nothing was found.
const NOT_FOUND: u8 = 1;

/// There is no daemon to ask, or no answer.
const FATAL: u8 = 3;

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why there is no answer.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let asked = asked::parse(arguments)?;
    let client = connect(session)?;
    let mut done = 0;
    loop {
        let groups = take(&client, &asked).map_err(|error| fatal(&error.to_string()))?;
        if groups.is_empty() {
            return Ok(NOT_FOUND);
        }
        output::say(&match asked.form {
            Form::Blocks => shown::blocks(&groups),
            Form::Lines => shown::lines(&groups),
            Form::Json => shown::json(&groups),
            Form::Names => shown::names(&groups),
            Form::Nothing => String::new(),
        });
        done += 1;
        if !asked.interval.wait(done) {
            return Ok(0);
        }
    }
}

/// A way to the daemon, if it runs.
fn connect(session: &Session) -> Result<Client, Failure> {
    let instance = connection::instance().map_err(|failure| match failure {
        Failure::Error(text) => fatal(&text),
        other => other,
    })?;
    let client = Client::new(&instance.socket(), &session.command_line);
    if !client.is_reachable() {
        let socket = instance.socket();
        return Err(fatal(&format!(
            "tarnd does not run: nobody answers at {}",
            socket.display()
        )));
    }
    Ok(client)
}

fn fatal(text: &str) -> Failure {
    output::complain(text);
    Failure::Silent(FATAL)
}

/// All groups that one of the patterns means, each once, in the order of their names.
fn take(client: &Client, asked: &Asked) -> Result<Vec<KstatGroup>, CallError> {
    let mut groups = Vec::new();
    for pattern in &asked.patterns {
        let request = Kstat {
            pattern: pattern.clone(),
        };
        groups.extend(client.statistics_kstat(request)?.groups);
    }
    if let Some(class) = &asked.class {
        groups.retain(|group| group.class == *class);
    }
    Ok(merged(groups))
}

fn merged(groups: Vec<KstatGroup>) -> Vec<KstatGroup> {
    let mut all: BTreeMap<(String, u32, String), KstatGroup> = BTreeMap::new();
    for group in groups {
        let key = (group.module.clone(), group.instance, group.name.clone());
        match all.entry(key) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(group);
            }
            std::collections::btree_map::Entry::Occupied(mut known) => {
                known.get_mut().data.extend(group.data);
            }
        }
    }
    all.into_values().map(sorted).collect()
}

/// Statistics by name, those whose names are numbers by number.
fn sorted(mut group: KstatGroup) -> KstatGroup {
    let mut data: Vec<_> = std::mem::take(&mut group.data).into_iter().collect();
    data.sort_by(|(left, _), (right, _)| {
        let number = |name: &str| name.parse::<u64>().ok();
        (number(left), left).cmp(&(number(right), right))
    });
    group.data = data.into_iter().collect();
    group
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn group(name: &str, statistics: &[&str]) -> KstatGroup {
        KstatGroup {
            module: "zfs".into(),
            name: name.into(),
            data: statistics
                .iter()
                .map(|statistic| (statistic.to_string(), json!(1)))
                .collect(),
            ..KstatGroup::default()
        }
    }

    #[test]
    fn what_two_patterns_find_is_shown_once_and_in_order() {
        let found = merged(vec![
            group("txgs", &["10", "9"]),
            group("arcstats", &["size"]),
            group("arcstats", &["hits", "size"]),
        ]);
        let names: Vec<Vec<&str>> = found
            .iter()
            .map(|group| group.data.keys().map(String::as_str).collect())
            .collect();
        assert_eq!(found[0].name, "arcstats");
        assert_eq!(names, [vec!["hits", "size"], vec!["9", "10"]]);
    }
}
