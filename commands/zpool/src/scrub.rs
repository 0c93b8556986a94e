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
use tarn_terminal::timestamp;

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
    let (mut start_s, mut end_s) = (0, 0);
    let mut options = Options::new(SCRUB, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "s" => stops = true,
            "p" => pauses = true,
            "w" => waits = true,
            "C" => continues = true,
            "e" => errors_only = true,
            "a" => all = true,
            "S" => start_s = date(&value)?.0,
            _ => {
                // The minute or day of the date is part of the range.
                let (begin_s, length_s) = date(&value)?;
                end_s = begin_s + length_s;
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
    refuse_range(
        (start_s, end_s),
        stops || pauses || continues || errors_only,
    )?;
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
            _ if start_s != 0 || end_s != 0 => ScrubAction::StartBetween { start_s, end_s },
            _ => ScrubAction::Start,
        },
        waits,
        pools: match all {
            true => options.operands(),
            false => named(options)?,
        },
    })
}

/// A date of `-S` or `-E`: see [`timestamp::of_date`].
fn date(value: &str) -> Result<(u64, u64), Failure> {
    timestamp::of_date(value).ok_or_else(|| Failure::usage("Failed to parse the date."))
}

/// Refuses the dates of anything but a plain scrub, and an end before the start.
fn refuse_range((start_s, end_s): (u64, u64), is_other: bool) -> Result<(), Failure> {
    if (start_s != 0 || end_s != 0) && is_other {
        return Err(Failure::usage(
            "invalid option combination: start/end date is available only with normal scrub",
        ));
    }
    if start_s != 0 && end_s != 0 && start_s > end_s {
        return Err(Failure::usage(
            "invalid arguments: end date has to be later than start date",
        ));
    }
    Ok(())
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
    fn dates_bound_what_is_scrubbed_and_the_end_is_part_of_it() {
        let parse = |line: &[&str]| {
            let words: Vec<String> = line.iter().map(ToString::to_string).collect();
            parse(&words)
        };
        let (start_s, _) = timestamp::of_date("2026-01-02 03:04").unwrap();
        let (day_s, _) = timestamp::of_date("2026-01-03").unwrap();
        let end_s = day_s + 86_400;
        for (line, start_s, end_s) in [
            (["-S", "2026-01-02 03:04", "-w"], start_s, 0),
            (["-E", "2026-01-03", "-w"], 0, end_s),
            (["-E2026-01-03", "-S2026-01-02 03:04", "-w"], start_s, end_s),
        ] {
            let line = [line.as_slice(), &["a"]].concat();
            let action = ScrubAction::StartBetween { start_s, end_s };
            assert_eq!(parse(&line).map(|request| request.action), Ok(action));
        }
        for (line, text) in [
            (["-S", "today"], "Failed to parse the date."),
            (
                ["-S2026-01-04", "-E2026-01-02"],
                "invalid arguments: end date has to be later than start date",
            ),
            (
                ["-E2026-01-02", "-e"],
                "invalid option combination: start/end date is available only with normal scrub",
            ),
        ] {
            let line = [line.as_slice(), &["a"]].concat();
            assert_eq!(parse(&line), Err(Failure::usage(text)), "{line:?}");
        }
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
