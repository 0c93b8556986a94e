//! `zfs clone`.

use crate::assignments::Assignments;
use tarn_administration::messages::dataset::MakeClone;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "o:pu",
    long: &[],
};

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let created = session.connect()?.dataset_clone(request)?;
    created.warnings.iter().for_each(complain);
    Ok(0)
}

fn parse(arguments: &[String]) -> Result<MakeClone, Failure> {
    let mut request = MakeClone::default();
    let mut assignments = Assignments::default();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "o" => assignments.add(&value, 1)?,
            "p" if request.parents => request.parents_no_mount = true,
            "p" => request.parents = true,
            _ => request.no_mount = true,
        }
    }
    (request.origin, request.name) = match options.operands().as_slice() {
        [origin, name] => (origin.clone(), name.clone()),
        [] => return Err(Failure::usage("missing source dataset argument")),
        [_] => return Err(Failure::usage("missing target dataset argument")),
        _ => return Err(Failure::usage("too many arguments")),
    };
    request.properties = assignments.0;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<MakeClone, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn a_clone_has_an_origin_and_a_name() {
        let request = parsed("-pu -o atime=off tank/a@x tank/b/c").unwrap();
        assert_eq!(
            (request.origin.as_str(), request.name.as_str()),
            ("tank/a@x", "tank/b/c")
        );
        assert!(request.parents && request.no_mount && !request.parents_no_mount);
        assert!(parsed("-p -p a@x b").unwrap().parents_no_mount);
        assert_eq!(request.properties.len(), 1);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, text) in [
            ("", "missing source dataset argument"),
            ("a@x", "missing target dataset argument"),
            ("a@x b c", "too many arguments"),
            ("-q a@x b", "invalid option 'q'"),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(text)), "{line}");
        }
    }
}
