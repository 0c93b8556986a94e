//! `zfs receive`. The stream does not come through here: the daemon reads the command's standard input itself.

use crate::assignments::Assignments;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use tarn_engine::messages::dataset::{AbortReceive, Receive, ReceiveEvent, ReceiveNames};
use tarn_terminal::connection::hand_over;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::number::nice_bytes;
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output::say;
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: ":o:x:dehMnuvFsAc",
    long: &[],
};

/// What the command line asks for.
#[derive(Debug, PartialEq)]
enum Asked {
    Receive { request: Receive, verbose: bool },
    Abort(AbortReceive),
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let (request, verbose) = match parse(arguments)? {
        Asked::Abort(request) => {
            session.connect()?.dataset_abort_receive(request)?;
            return Ok(0);
        }
        Asked::Receive { request, verbose } => (request, verbose),
    };
    let stream = std::io::stdin();
    if stream.is_terminal() {
        let text = "Error: Backup stream can not be read from a terminal.\n\
                    You must redirect standard input.";
        return Err(Failure::error(text));
    }
    let client = session.connect()?;
    let (client, line) = hand_over(&client, stream.as_fd())?;
    let dry_run = request.dry_run;
    let received = client.dataset_receive(request)?;
    drop(line);
    if verbose {
        received
            .events
            .iter()
            .for_each(|event| tell(event, dry_run));
    }
    received.warnings.iter().for_each(complain);
    Ok(0)
}

fn tell(event: &ReceiveEvent, dry_run: bool) {
    match event {
        ReceiveEvent::Receiving {
            sent,
            snapshot,
            incremental,
            origin,
        } => {
            if let Some(origin) = origin {
                say(&format!("found clone origin {origin}\n"));
            }
            let verb = if dry_run {
                "would receive"
            } else {
                "receiving"
            };
            let kind = if *incremental { "incremental" } else { "full" };
            say(&format!("{verb} {kind} stream of {sent} into {snapshot}\n"));
        }
        ReceiveEvent::Exists { snapshot } => {
            say(&format!("snap {snapshot} already exists; ignoring\n"));
        }
        ReceiveEvent::Received { bytes, nanoseconds } => {
            let nanoseconds = u128::from((*nanoseconds).max(1));
            let rate = u128::from(*bytes) * 1_000_000_000 / nanoseconds;
            let rate = u64::try_from(rate).unwrap_or(u64::MAX);
            let hundredths = (nanoseconds + 5_000_000) / 10_000_000;
            say(&format!(
                "received {} stream in {}.{:02} seconds ({}/sec)\n",
                nice_bytes(*bytes),
                hundredths / 100,
                hundredths % 100,
                nice_bytes(rate)
            ));
        }
    }
}

fn parse(arguments: &[String]) -> Result<Asked, Failure> {
    let mut request = Receive::default();
    let (mut verbose, mut aborts) = (false, false);
    let mut assignments = Assignments::default();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "o" => add(&mut assignments, &request.excluded, &value)?,
            "x" => exclude(&mut request.excluded, &assignments, value)?,
            "d" => choose(&mut request.names, ReceiveNames::AllButPool)?,
            "e" => choose(&mut request.names, ReceiveNames::Last)?,
            "h" => request.skip_holds = true,
            "M" => request.force_unmount = true,
            "n" => request.dry_run = true,
            "u" => request.no_mount = true,
            "v" => verbose = true,
            "F" => request.force = true,
            "s" => request.resumable = true,
            "A" => aborts = true,
            _ => {
                let text = "corrective receive ('-c') is not supported by this version";
                return Err(Failure::error(text));
            }
        }
    }
    request.target = match options.operands().as_slice() {
        [target] => target.clone(),
        [] => return Err(Failure::usage("missing snapshot argument")),
        _ => return Err(Failure::usage("too many arguments")),
    };
    if aborts {
        let is_named = request.names != ReceiveNames::AsGiven;
        if is_named || request.dry_run || request.resumable || request.no_mount {
            return Err(Failure::usage("invalid option"));
        }
        let name = request.target;
        return Ok(Asked::Abort(AbortReceive { name }));
    }
    request.properties = assignments.0;
    Ok(Asked::Receive { request, verbose })
}

fn add(assignments: &mut Assignments, excluded: &[String], text: &str) -> Result<(), Failure> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(Failure::usage("missing '=' for property=value argument"));
    };
    is_first(assignments, excluded, name)?;
    assignments.0.push((name.to_string(), value.to_string()));
    Ok(())
}

fn exclude(
    excluded: &mut Vec<String>,
    assignments: &Assignments,
    name: String,
) -> Result<(), Failure> {
    if name.contains('=') {
        return Err(Failure::usage("invalid character '=' in property argument"));
    }
    is_first(assignments, excluded, &name)?;
    excluded.push(name);
    Ok(())
}

fn is_first(assignments: &Assignments, excluded: &[String], name: &str) -> Result<(), Failure> {
    let is_known = excluded.iter().any(|other| other == name);
    match is_known || assignments.find(name).is_some() {
        true => Err(Failure::usage(format!(
            "property '{name}' specified multiple times"
        ))),
        false => Ok(()),
    }
}

fn choose(names: &mut ReceiveNames, chosen: ReceiveNames) -> Result<(), Failure> {
    if *names != ReceiveNames::AsGiven && *names != chosen {
        let text = "invalid option combination: -d and -e are mutually exclusive";
        return Err(Failure::usage(text));
    }
    *names = chosen;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Asked, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn options_say_where_a_stream_goes_and_what_it_may_change() {
        let asked = parsed("-vFsud -o atime=off -x mountpoint tank/b").unwrap();
        let expected = Receive {
            target: "tank/b".to_string(),
            names: ReceiveNames::AllButPool,
            force: true,
            no_mount: true,
            resumable: true,
            properties: vec![("atime".to_string(), "off".to_string())],
            excluded: vec!["mountpoint".to_string()],
            ..Receive::default()
        };
        let verbose = true;
        assert_eq!(
            asked,
            Asked::Receive {
                request: expected,
                verbose
            }
        );
        let name = "tank/b".to_string();
        assert_eq!(parsed("-A tank/b"), Ok(Asked::Abort(AbortReceive { name })));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, text) in [
            ("", "missing snapshot argument"),
            ("a b", "too many arguments"),
            (
                "-d -e a",
                "invalid option combination: -d and -e are mutually exclusive",
            ),
            ("-q a", "invalid option 'q'"),
            ("a -o", "missing argument for 'o' option"),
            ("-A -s a", "invalid option"),
            ("-o atime a", "missing '=' for property=value argument"),
            (
                "-x atime=on a",
                "invalid character '=' in property argument",
            ),
            (
                "-x atime -o atime=on a",
                "property 'atime' specified multiple times",
            ),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(text)), "{line}");
        }
        assert!(matches!(parsed("-c a"), Err(Failure::Error(_))));
    }
}
