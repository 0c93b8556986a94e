//! `zpool reopen`.

use crate::pools;
use tarn_administration::messages::pool::Reopen;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "n",
    long: &[],
};

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let (no_resilver, names) = parse(arguments)?;
    let client = session.connect()?;
    let found = pools::find(&client, &names, false)?;
    for pool in &found.pools {
        client.pool_reopen(Reopen {
            name: pool.name.clone(),
            no_resilver,
        })?;
    }
    Ok(u8::from(found.has_failed))
}

/// Whether no resilver starts, and the pools: none for all.
fn parse(arguments: &[String]) -> Result<(bool, Vec<String>), Failure> {
    let mut no_resilver = false;
    let mut options = Options::new(GRAMMAR, arguments);
    while options.take()?.is_some() {
        no_resilver = true;
    }
    Ok((no_resilver, options.operands()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_reopened_with_or_without_a_resilver() {
        let parsed = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
            parse(&words)
        };
        assert_eq!(parsed(""), Ok((false, Vec::new())));
        assert_eq!(parsed("-n tank"), Ok((true, vec!["tank".to_string()])));
        assert_eq!(parsed("-x tank"), Err(Failure::usage("invalid option 'x'")));
    }
}
