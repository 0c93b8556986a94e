//! `zpool scrub` and `zpool resilver`.

use crate::pools;
use crate::wait;
use tarn_administration::messages::pool::Activity;
use tarn_administration::messages::scan::{Resilver, Scrub, ScrubAction};
use tarn_api::client::{CallError, Client};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;

const SCRUB: Grammar = Grammar {
    short: "aspweCE:S:",
    long: &[],
};

const RESILVER: Grammar = Grammar {
    short: "",
    long: &[],
};

/// A command line, understood.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    action: ScrubAction,
    waits: bool,
    pools: Vec<String>,
}

/// Runs `zpool scrub`.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn scrub(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let client = session.connect()?;
    let mut pools = request.pools;
    if pools.is_empty() {
        let all = pools::find(&client, &[], false)?.pools.into_iter();
        pools = all.map(|pool| pool.name).collect();
    }
    let has_failed = for_each(&client, &pools, |name| {
        let scrub = Scrub {
            name: name.to_string(),
            action: request.action,
        };
        let scrubbed = client.pool_scrub(scrub)?;
        if scrubbed.has_checkpoint {
            output::say(&format!(
                "warning: will not scrub state that belongs to the checkpoint of pool '{name}'\n"
            ));
        }
        Ok(())
    })?;
    if !has_failed && request.waits {
        for name in &pools {
            wait::wait(&client, name, &[Activity::Scrub], &[])?;
        }
    }
    Ok(u8::from(has_failed))
}

/// Runs `zpool resilver`.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn resilver(session: &Session, arguments: &[String]) -> Outcome {
    let pools = parse_resilver(arguments)?;
    let client = session.connect()?;
    let has_failed = for_each(&client, &pools, |name| {
        let name = name.to_string();
        client.pool_resilver(Resilver { name }).map(drop)
    })?;
    Ok(u8::from(has_failed))
}

/// Asks for each pool; a refusal is said, and the others follow. Gives whether there was one.
fn for_each(
    client: &Client,
    names: &[String],
    ask: impl Fn(&str) -> Result<(), CallError>,
) -> Result<bool, Failure> {
    let found = pools::find(client, names, false)?;
    let mut has_failed = found.has_failed;
    let is_found = |name: &&String| found.pools.iter().any(|pool| pool.name == **name);
    for name in names.iter().filter(is_found) {
        match ask(name) {
            Ok(()) => {}
            Err(CallError::Refused(refusal)) => {
                complain(refusal);
                has_failed = true;
            }
            Err(other) => return Err(other.into()),
        }
    }
    Ok(has_failed)
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let (mut stops, mut pauses, mut waits, mut continues) = (false, false, false, false);
    let (mut errors_only, mut all) = (false, false);
    let mut options = Options::new(SCRUB, arguments);
    while let Some((option, _)) = options.take()? {
        match option {
            "s" => stops = true,
            "p" => pauses = true,
            "w" => waits = true,
            "C" => continues = true,
            "e" => errors_only = true,
            "a" => all = true,
            _ => {
                let text = "zpool scrub -S and -E: not supported by this version of Tarn";
                return Err(Failure::error(text));
            }
        }
    }
    for (is_first, is_second, names) in [
        (pauses, stops, "-s and -p"),
        (pauses, continues, "-p and -C"),
        (stops, continues, "-s and -C"),
        (errors_only, continues, "-e and -C"),
    ] {
        if is_first && is_second {
            let text = format!("invalid option combination: {names} are mutually exclusive");
            return Err(Failure::usage(text));
        }
    }
    if waits && (stops || pauses) {
        let text = "invalid option combination: -w cannot be used with -p or -s";
        return Err(Failure::usage(text));
    }
    Ok(Request {
        action: match (stops, pauses, continues, errors_only) {
            (true, ..) => ScrubAction::Stop,
            (_, true, ..) => ScrubAction::Pause,
            (_, _, true, _) => ScrubAction::StartFromLast,
            (.., true) => ScrubAction::StartErrors,
            _ => ScrubAction::Start,
        },
        waits,
        pools: match all {
            true => options.operands(),
            false => named(options)?,
        },
    })
}

fn parse_resilver(arguments: &[String]) -> Result<Vec<String>, Failure> {
    let mut options = Options::new(RESILVER, arguments);
    while options.take()?.is_some() {}
    named(options)
}

fn named(options: Options<'_>) -> Result<Vec<String>, Failure> {
    let pools = options.operands();
    match pools.is_empty() {
        true => Err(Failure::usage("missing pool name argument")),
        false => Ok(pools),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_string).collect()
    }

    #[test]
    fn a_scrub_is_begun_paused_or_stopped() {
        for (line, action, waits) in [
            ("a b", ScrubAction::Start, false),
            ("-w a b", ScrubAction::Start, true),
            ("-C a b", ScrubAction::StartFromLast, false),
            ("-p a b", ScrubAction::Pause, false),
            ("-s a b", ScrubAction::Stop, false),
            ("-e a b", ScrubAction::StartErrors, false),
            ("-e -p a b", ScrubAction::Pause, false),
        ] {
            let pools = words("a b");
            let expected = Request {
                action,
                waits,
                pools,
            };
            assert_eq!(parse(&words(line)), Ok(expected), "{line}");
        }
        assert_eq!(parse_resilver(&words("a b")), Ok(words("a b")));
    }

    #[test]
    fn what_makes_no_sense_or_is_missing_is_refused() {
        for (line, text) in [
            ("", "missing pool name argument"),
            (
                "-s -p a",
                "invalid option combination: -s and -p are mutually exclusive",
            ),
            (
                "-p -C a",
                "invalid option combination: -p and -C are mutually exclusive",
            ),
            (
                "-w -p a",
                "invalid option combination: -w cannot be used with -p or -s",
            ),
        ] {
            assert_eq!(parse(&words(line)), Err(Failure::usage(text)), "{line}");
        }
        let refused = Failure::usage("missing pool name argument");
        assert_eq!(parse_resilver(&[]), Err(refused));
    }
}
