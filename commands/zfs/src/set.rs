//! `zfs set`.

use crate::assignments::Assignments;
use crate::each;
use tarn_administration::messages::dataset::Set;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "u",
    long: &[],
};

/// What OpenZFS exits with when a property could not be set: -1.
const FAILED: u8 = 255;

/// A command line, understood.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    assignments: Assignments,
    names: Vec<String>,
    no_mount: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    each::dataset(session, &request.names, FAILED, |client, name| {
        let set = Set {
            name: name.to_string(),
            properties: request.assignments.0.clone(),
            no_mount: request.no_mount,
        };
        let changed = client.dataset_set(set)?;
        changed.warnings.iter().for_each(complain);
        Ok(())
    })
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut no_mount = false;
    let mut options = Options::new(GRAMMAR, arguments);
    while options.take()?.is_some() {
        no_mount = true;
    }
    let operands = options.operands();
    match operands.as_slice() {
        [] => return Err(Failure::usage("missing arguments")),
        [one] if one.contains('=') => return Err(Failure::usage("missing dataset name(s)")),
        [_] => return Err(Failure::usage("missing property=value argument(s)")),
        _ => {}
    }
    let Some(first_name) = operands.iter().position(|word| !word.contains('=')) else {
        return Err(Failure::usage("missing dataset name(s)"));
    };
    let (texts, names) = operands.split_at(first_name);
    if first_name > 0 && names.iter().any(|word| word.contains('=')) {
        return Err(Failure::usage("invalid argument order"));
    }
    let mut assignments = Assignments::default();
    for text in texts {
        assignments.add(text, FAILED)?;
    }
    Ok(Request {
        assignments,
        names: names.to_vec(),
        no_mount,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn properties_come_before_datasets() {
        let request = parsed("-u atime=off quota=1G tank/a tank/b").unwrap();
        assert_eq!(request.assignments.0.len(), 2);
        assert_eq!(request.names, ["tank/a", "tank/b"]);
        assert!(request.no_mount);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, text) in [
            ("", "missing arguments"),
            ("tank", "missing property=value argument(s)"),
            ("atime=off", "missing dataset name(s)"),
            ("atime=off exec=on", "missing dataset name(s)"),
            ("atime=off tank exec=on", "invalid argument order"),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(text)), "{line}");
        }
        assert_eq!(parsed("atime=off atime=on tank"), Err(Failure::Silent(255)));
    }
}
