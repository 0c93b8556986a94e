//! `zpool export`.

use crate::pools;
use tarn_administration::messages::pool::Export;
use tarn_api::client::CallError;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "afF",
    long: &[],
};

/// A command line, understood.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    /// All when empty.
    pools: Vec<String>,
    is_forced: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let client = session.connect()?;
    let (names, mut has_failed) = pools::names(&client, &request.pools)?;
    for name in names {
        let export = Export {
            name,
            force: request.is_forced,
        };
        match client.pool_export(export) {
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

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let (mut is_all, mut is_forced) = (false, false);
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, _)) = options.take()? {
        match option {
            "a" => is_all = true,
            "f" => is_forced = true,
            _ => {
                let text = "zpool export -F: not supported by this version of Tarn";
                return Err(Failure::error(text));
            }
        }
    }
    let pools = options.operands();
    match (is_all, pools.is_empty()) {
        (true, false) => Err(Failure::usage("too many arguments")),
        (false, true) => Err(Failure::usage("missing pool argument")),
        _ => Ok(Request { pools, is_forced }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn pools_are_named_or_all() {
        let request = |pools: &[&str], is_forced| Request {
            pools: pools.iter().map(|name| name.to_string()).collect(),
            is_forced,
        };
        assert_eq!(parsed("-f a b"), Ok(request(&["a", "b"], true)));
        assert_eq!(parsed("-a"), Ok(request(&[], false)));
        assert_eq!(parsed("-a b"), Err(Failure::usage("too many arguments")));
        assert_eq!(parsed(""), Err(Failure::usage("missing pool argument")));
    }
}
