//! `zpool checkpoint`.

use crate::pools;
use crate::wait;
use tarn_administration::messages::pool::{Activity, Checkpoint, CheckpointAction};
use tarn_api::client::CallError;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: ":dw",
    long: &[("discard", "d"), ("wait", "w")],
};

/// Behind the message that a name has no pool's form.
const NOT_A_POOL: &str = "'zpool checkpoint' doesn't work on datasets. To save the state of a \
     dataset from a specific point in time please use 'zfs snapshot'";

/// A command line, understood.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    checkpoint: Checkpoint,
    waits: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let Request { checkpoint, waits } = parse(arguments)?;
    let client = session.connect()?;
    let name = checkpoint.name.clone();
    if pools::find(&client, std::slice::from_ref(&name), false)?.has_failed {
        if name.contains('/') {
            complain(NOT_A_POOL);
        }
        return Ok(1);
    }
    match client.pool_checkpoint(checkpoint) {
        Ok(_) => {}
        Err(CallError::Refused(refusal)) => {
            complain(refusal);
            return Ok(1);
        }
        Err(other) => return Err(other.into()),
    }
    if waits {
        wait::wait(&client, &name, &[Activity::Discard], &[])?;
    }
    Ok(0)
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let (mut action, mut waits) = (CheckpointAction::Create, false);
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, _)) = options.take()? {
        match option {
            "d" => action = CheckpointAction::Discard,
            _ => waits = true,
        }
    }
    if waits && action == CheckpointAction::Create {
        let text = "--wait only valid when --discard also specified";
        return Err(Failure::usage(text));
    }
    match options.operands().as_slice() {
        [] => Err(Failure::usage("missing pool argument")),
        [name] => Ok(Request {
            checkpoint: Checkpoint {
                name: name.clone(),
                action,
            },
            waits,
        }),
        _ => Err(Failure::usage("too many arguments")),
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
    fn a_checkpoint_is_created_or_discarded() {
        for (line, action, waits) in [
            ("tank", CheckpointAction::Create, false),
            ("-d tank", CheckpointAction::Discard, false),
            ("--discard tank", CheckpointAction::Discard, false),
            ("-dw tank", CheckpointAction::Discard, true),
            ("--wait --discard tank", CheckpointAction::Discard, true),
        ] {
            let name = "tank".to_string();
            let checkpoint = Checkpoint { name, action };
            assert_eq!(parsed(line), Ok(Request { checkpoint, waits }), "{line}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, text) in [
            ("", "missing pool argument"),
            ("a b", "too many arguments"),
            ("-w a", "--wait only valid when --discard also specified"),
            ("-x a", "invalid option 'x'"),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(text)), "{line}");
        }
    }
}
