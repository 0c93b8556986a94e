//! `zfs wait`.
//!
//! # Mechanism
//! The daemon is asked until nothing goes on any more of what was asked for. A file system that is
//! gone meanwhile has nothing going on.

use std::time::Duration;
use tarn_administration::messages::RefusalKind;
use tarn_administration::messages::dataset::{Activities, ListActivities};
use tarn_api::client::CallError;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "t:",
    long: &[],
};

/// How often it is asked.
const INTERVAL: Duration = Duration::from_millis(50);

/// What can be waited for.
const DELETE_QUEUE: &str = "deleteq";

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let client = session.connect()?;
    let mut has_waited = false;
    loop {
        match client.dataset_list_activities(request.clone()) {
            Ok(Activities {
                delete_queue: false,
            }) => return Ok(0),
            Ok(_) => std::thread::sleep(INTERVAL),
            Err(CallError::Refused(refusal))
                if has_waited && refusal.kind == RefusalKind::NotFound =>
            {
                return Ok(0);
            }
            Err(error) => return Err(error.into()),
        }
        has_waited = true;
    }
}

fn parse(arguments: &[String]) -> Result<ListActivities, Failure> {
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((_, list)) = options.take()? {
        // There is one, and without `-t` all are waited for.
        if let Some(unknown) = list.split(',').find(|name| *name != DELETE_QUEUE) {
            return Err(Failure::usage(format!("invalid activity '{unknown}'")));
        }
    }
    match options.operands().as_slice() {
        [name] => Ok(ListActivities { name: name.clone() }),
        [] => Err(Failure::usage("missing 'filesystem' argument")),
        _ => Err(Failure::usage("too many arguments")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_system_is_waited_for() {
        let parsed = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
            parse(&words)
        };
        assert_eq!(parsed("tank/a").unwrap().name, "tank/a");
        assert_eq!(parsed("-t deleteq,deleteq tank/a").unwrap().name, "tank/a");
        for (line, told) in [
            ("-t scrub tank/a", "invalid activity 'scrub'"),
            ("-t deleteq, tank/a", "invalid activity ''"),
            ("", "missing 'filesystem' argument"),
            ("a b", "too many arguments"),
            ("-t", "invalid option 't'"),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(told)));
        }
    }
}
