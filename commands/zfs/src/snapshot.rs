//! `zfs snapshot`.

use crate::assignments::Assignments;
use tarn_api::client::CallError;
use tarn_engine::messages::RefusalKind;
use tarn_engine::messages::dataset::Snapshot;
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
        .map_err(failure)?;
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

/// As OpenZFS, which takes a dataset that is not there for a wrong command line.
fn failure(error: CallError) -> Failure {
    match &error {
        CallError::Refused(refusal)
            if refusal.kind == RefusalKind::NotFound
                && refusal.action.starts_with("cannot open") =>
        {
            Failure::usage(refusal.to_string())
        }
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_engine::messages::Refusal;

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

    #[test]
    fn a_dataset_that_is_not_there_is_a_wrong_command_line() {
        let refusal = |kind, action| CallError::Refused(Refusal::new(kind, action, "no"));
        assert!(matches!(
            failure(refusal(RefusalKind::NotFound, "cannot open 'x'")),
            Failure::Usage(_)
        ));
        assert!(matches!(
            failure(refusal(RefusalKind::Exists, "cannot create snapshot 'x@a'")),
            Failure::Error(_)
        ));
    }
}
