//! `zfs promote`.

use tarn_administration::messages::dataset::Promote;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "",
    long: &[],
};

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    session.connect()?.dataset_promote(request)?;
    Ok(0)
}

fn parse(arguments: &[String]) -> Result<Promote, Failure> {
    let mut options = Options::new(GRAMMAR, arguments);
    // There are none, so any is refused.
    options.take()?;
    match options.operands().as_slice() {
        [name] => Ok(Promote { name: name.clone() }),
        [] => Err(Failure::usage("missing clone filesystem argument")),
        _ => Err(Failure::usage("too many arguments")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_clone_is_promoted() {
        let parsed = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
            parse(&words)
        };
        assert_eq!(parsed("tank/c").unwrap().name, "tank/c");
        let missing = "missing clone filesystem argument";
        assert_eq!(parsed(""), Err(Failure::usage(missing)));
        assert_eq!(parsed("a b"), Err(Failure::usage("too many arguments")));
        assert_eq!(parsed("-x a"), Err(Failure::usage("invalid option 'x'")));
    }
}
