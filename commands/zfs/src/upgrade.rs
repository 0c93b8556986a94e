//! `zfs upgrade`.

use crate::answers;
use crate::asked::Asked;
use crate::walk::Walk;
use tarn_administration::messages::dataset::{DatasetDescription, DatasetKind, Upgrade, Upgraded};
use tarn_engine::properties::table::find;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;
use tarn_terminal::show::Exactness;

const GRAMMAR: Grammar = Grammar {
    short: "rvV:a",
    long: &[],
};

/// The newest version of file systems.
const NEWEST: u64 = 5;

const VERSIONS: &str = "The following filesystem versions are supported:\n\n\
VER  DESCRIPTION\n\
---  --------------------------------------------------------\n \
1   Initial ZFS filesystem version\n \
2   Enhanced directory entries\n \
3   Case insensitive and filesystem user identifier (FUID)\n \
4   userquota, groupquota properties\n \
5   System attributes\n\
\nFor more information on a particular version, including supported releases,\n\
see the ZFS Administration Guide.\n\n";

const OLDER: &str = "The following filesystems are out of date, and can be upgraded.  After being\n\
upgraded, these filesystems (and any 'zfs send' streams generated from\n\
subsequent snapshots) will no longer be accessible by older software versions.\n\n\n";

const NEWER: &str = "The following filesystems are formatted using a newer software version and\n\
cannot be accessed on the current system.\n\n\n";

/// A command line, understood.
#[derive(Debug, PartialEq)]
enum Request {
    /// `-v`.
    Versions,
    /// Nothing: what is old.
    Survey,
    /// The others.
    Upgrade(Upgrade),
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    match parse(arguments)? {
        Request::Versions => output::say(VERSIONS),
        Request::Survey => {
            let walk = Walk {
                kinds: vec![DatasetKind::Filesystem],
                ..Walk::default()
            };
            let found = walk.run(&session.connect()?, vec!["version".to_string()], &[])?;
            output::say(&survey(&found.datasets)?);
            return Ok(u8::from(found.has_failed));
        }
        Request::Upgrade(request) => {
            let version = request.version.unwrap_or(NEWEST);
            let upgraded = session.connect()?.dataset_upgrade(request)?;
            upgraded.refused.iter().for_each(complain);
            let (text, has_failed) = told(&upgraded, version);
            output::say(&text);
            return Ok(u8::from(has_failed));
        }
    }
    Ok(0)
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut upgrade = Upgrade::default();
    let (mut wants_versions, mut is_all) = (false, false);
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "r" => upgrade.recursive = true,
            "v" => wants_versions = true,
            "V" => upgrade.version = Some(version(&value)?),
            _ => is_all = true,
        }
    }
    upgrade.names = options.operands();
    let has_names = !upgrade.names.is_empty();
    let is_qualified = upgrade.recursive || upgrade.version.is_some();
    if (!is_all && !has_names && is_qualified)
        || (wants_versions && (is_all || has_names || is_qualified))
        || (is_all && has_names)
    {
        return Err(Failure::usage(""));
    }
    Ok(match (wants_versions, is_all || has_names) {
        (true, _) => Request::Versions,
        (false, true) => Request::Upgrade(upgrade),
        (false, false) => Request::Survey,
    })
}

/// A version that `-V` names: a number, or `current`.
fn version(text: &str) -> Result<u64, Failure> {
    find("version")
        .and_then(|property| property.number_of(text))
        .ok_or_else(|| Failure::usage(format!("invalid version {text}")))
}

/// Which file systems are older or newer than this program.
fn survey(datasets: &[DatasetDescription]) -> Result<String, Failure> {
    let Some(asked) = Asked::find("version") else {
        return Err(Failure::error("internal error: 'version' is no property"));
    };
    let version = |dataset: &DatasetDescription| {
        answers::text(dataset, &asked, Exactness::Exact)?
            .parse::<u64>()
            .ok()
    };
    let lines = |is_meant: fn(u64) -> bool| -> Vec<String> {
        datasets
            .iter()
            .filter_map(|dataset| Some((version(dataset)?, &dataset.name)))
            .filter(|(version, _)| is_meant(*version))
            .map(|(version, name)| format!("{version:2}   {name}\n"))
            .collect()
    };
    let mut text = format!("This system is currently running ZFS filesystem version {NEWEST}.\n\n");
    let (older, newer) = (
        lines(|version| version < NEWEST),
        lines(|version| version > NEWEST),
    );
    if older.is_empty() && newer.is_empty() {
        text.push_str("All filesystems are formatted with the current version.\n");
    }
    for (head, lines) in [(OLDER, older), (NEWER, newer)] {
        if !lines.is_empty() {
            text.push_str(head);
            text.push_str("VER  FILESYSTEM\n---  ------------\n");
            text.extend(lines);
        }
    }
    Ok(text)
}

/// What was done, and whether anything failed.
fn told(upgraded: &Upgraded, version: u64) -> (String, bool) {
    let (mut text, mut raised, mut same, mut failed) = (String::new(), 0, 0, 0);
    for (name, before, now) in &upgraded.datasets {
        if *before > version {
            text.push_str(&format!(
                "{name}: can not be downgraded; it is already at version {before}\n"
            ));
            failed += 1;
        } else if now > before {
            raised += 1;
        } else {
            same += 1;
        }
    }
    text.push_str(&format!("{raised} filesystems upgraded\n"));
    if same > 0 {
        text.push_str(&format!("{same} filesystems already at this version\n"));
    }
    (text, failed > 0 || !upgraded.refused.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use tarn_administration::messages::Value;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn some_options_do_not_go_together() {
        for line in ["-r", "-V 4", "-v tank", "-av", "-a tank", "-rv"] {
            assert_eq!(parsed(line), Err(Failure::usage("")), "{line}");
        }
        assert_eq!(
            parsed("-V 9 tank"),
            Err(Failure::usage("invalid version 9"))
        );
        assert_eq!(parsed("-v"), Ok(Request::Versions));
        assert_eq!(parsed(""), Ok(Request::Survey));
    }

    #[test]
    fn a_version_is_a_number_or_current() {
        let version = |line| match parsed(line) {
            Ok(Request::Upgrade(upgrade)) => upgrade.version,
            other => panic!("{other:?}"),
        };
        assert_eq!(version("-V 4 tank"), Some(4));
        assert_eq!(version("-V current -a"), Some(5));
        assert_eq!(version("tank"), None);
    }

    #[test]
    fn old_file_systems_are_listed() {
        let of = |name: &str, version: &str| {
            samples::dataset(name, &[("version", Value::Text(version.to_string()))])
        };
        let text = survey(&[of("tank", "5"), of("tank/old", "4")]).unwrap();
        assert!(text.starts_with("This system is currently running ZFS filesystem version 5.\n\n"));
        assert!(
            text.ends_with("\n\nVER  FILESYSTEM\n---  ------------\n 4   tank/old\n"),
            "{text}"
        );
        assert!(
            survey(&[of("tank", "5")])
                .unwrap()
                .ends_with("All filesystems are formatted with the current version.\n")
        );
    }

    #[test]
    fn what_was_raised_is_counted() {
        let upgraded = Upgraded {
            datasets: vec![("a".into(), 3, 4), ("b".into(), 4, 4), ("c".into(), 5, 5)],
            refused: Vec::new(),
        };
        assert_eq!(
            told(&upgraded, 4),
            (
                "c: can not be downgraded; it is already at version 5\n\
                 1 filesystems upgraded\n1 filesystems already at this version\n"
                    .to_string(),
                true
            )
        );
    }

    #[test]
    fn the_versions_are_those_of_openzfs() {
        assert!(VERSIONS.contains("\n 1   Initial ZFS filesystem version\n 2   Enhanced"));
    }
}
