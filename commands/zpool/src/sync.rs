//! `zpool sync`.

use crate::pools;
use tarn_administration::messages::pool::Sync;
use tarn_api::client::CallError;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

/// `-f` asks for a txg and new labels even when nothing is dirty.
const GRAMMAR: Grammar = Grammar {
    short: "f",
    long: &[],
};

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let (names, force) = parse(arguments)?;
    let client = session.connect()?;
    let (names, mut has_failed) = pools::names(&client, &names)?;
    for name in names {
        let names = vec![name];
        match client.pool_sync(Sync { names, force }) {
            Ok(_) => {}
            Err(CallError::Refused(refusal)) => {
                complain(refusal);
                has_failed = true;
            }
            Err(other) => return Err(other.into()),
        }
    }
    Ok(u8::from(has_failed))
}

/// The pools, all when none is named; and whether a txg is stored in any case.
fn parse(arguments: &[String]) -> Result<(Vec<String>, bool), Failure> {
    let mut options = Options::new(GRAMMAR, arguments);
    let mut force = false;
    while options.take()?.is_some() {
        force = true;
    }
    Ok((options.operands(), force))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_pools_may_be_named() {
        let words =
            |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_string).collect() };
        assert_eq!(parse(&words("-f a b")), Ok((words("a b"), true)));
        assert_eq!(parse(&[]), Ok((Vec::new(), false)));
        assert_eq!(
            parse(&words("-x")),
            Err(Failure::usage("invalid option 'x'"))
        );
    }
}
