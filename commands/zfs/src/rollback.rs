//! `zfs rollback`.

use tarn_administration::messages::dataset::Rollback;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "rRf",
    long: &[],
};

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    session.connect()?.dataset_rollback(request)?;
    Ok(0)
}

fn parse(arguments: &[String]) -> Result<Rollback, Failure> {
    let mut request = Rollback::default();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, _)) = options.take()? {
        match option {
            "r" => request.newer = true,
            "R" => (request.newer, request.clones) = (true, true),
            _ => request.force = true,
        }
    }
    request.name = match options.operands().as_slice() {
        [name] => name.clone(),
        [] => return Err(Failure::usage("missing dataset argument")),
        _ => return Err(Failure::usage("too many arguments")),
    };
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Rollback, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn clones_are_more_than_newer_snapshots() {
        let request = parsed("-R tank@a").unwrap();
        assert!(request.newer && request.clones && !request.force);
        assert!(!parsed("-rf tank@a").unwrap().clones);
        assert_eq!(parsed(""), Err(Failure::usage("missing dataset argument")));
        assert_eq!(parsed("a b"), Err(Failure::usage("too many arguments")));
    }
}
