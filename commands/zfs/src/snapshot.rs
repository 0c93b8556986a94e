//! `zfs snapshot`.

use crate::assignments::Assignments;
use tarn_administration::messages::dataset::Snapshot;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "ro:",
    long: &[],
};

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    session
        .connect()?
        .dataset_snapshot(request)
        .map_err(Failure::usage_if_not_there)?;
    Ok(0)
}

fn parse(arguments: &[String]) -> Result<Snapshot, Failure> {
    let mut request = Snapshot::default();
    let mut assignments = Assignments::default();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "o" => assignments.add(&value, 1)?,
            _ => request.recursive = true,
        }
    }
    request.names = options.operands().to_vec();
    request.properties = assignments.0;
    if request.names.is_empty() {
        return Err(Failure::usage("missing snapshot argument"));
    }
    if request.names.iter().any(|name| !name.contains('@')) {
        return Err(Failure::usage(""));
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Snapshot, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn several_snapshots_are_taken_together() {
        let request = parsed("-r -o a:b=c tank@x tank/d@x").unwrap();
        assert_eq!(request.names, ["tank@x", "tank/d@x"]);
        assert_eq!(request.properties, [("a:b".to_string(), "c".to_string())]);
        assert!(request.recursive);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, failure) in [
            ("", Failure::usage("missing snapshot argument")),
            ("tank", Failure::usage("")),
            ("-x tank@a", Failure::usage("invalid option 'x'")),
            ("-o a:b tank@a", Failure::Silent(1)),
        ] {
            assert_eq!(parsed(line).unwrap_err(), failure, "{line}");
        }
    }
}
