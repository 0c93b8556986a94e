//! `zpool attach` and `zpool replace`.

use crate::assignments::Assignments;
use crate::pools;
use crate::vdev_grammar;
use crate::wait;
use tarn_administration::messages::pool::{Activity, Attach, VdevKind};
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "fo:sw",
    long: &[],
};

/// Runs `zpool attach`.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn attach(session: &Session, arguments: &[String]) -> Outcome {
    let (request, waits) = parse(arguments, false)?;
    run(session, request, waits)
}

/// Runs `zpool replace`.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn replace(session: &Session, arguments: &[String]) -> Outcome {
    let (request, waits) = parse(arguments, true)?;
    run(session, request, waits)
}

fn run(session: &Session, mut request: Attach, waits: bool) -> Outcome {
    let client = session.connect()?;
    let found = pools::find(&client, std::slice::from_ref(&request.name), false)?;
    if found.pools.is_empty() {
        return Ok(1);
    }
    let words = std::slice::from_ref(&request.new_device);
    let vdevs = vdev_grammar::parse(words).map_err(Failure::Error)?;
    match vdevs.as_slice() {
        [one] if one.kind == VdevKind::Leaf => {
            request.new_device = one.path.clone().unwrap_or_default();
        }
        _ => {
            let (old, new) = (&request.device, &request.new_device);
            let action = match request.replaces {
                true => format!("cannot replace {old} with {new}"),
                false => format!("cannot attach {new} to {old}"),
            };
            let text = format!("{action}: new device must be a single disk");
            return Err(Failure::error(text));
        }
    }
    let name = request.name.clone();
    let activity = match request.replaces {
        true => Activity::Replace,
        false => Activity::Resilver,
    };
    client.pool_attach(request)?;
    if waits {
        wait::wait(&client, &name, &[activity], &[])?;
    }
    Ok(0)
}

/// Gives the request, and whether the command waits until the new device is filled (`-w`).
fn parse(arguments: &[String], replaces: bool) -> Result<(Attach, bool), Failure> {
    let mut waits = false;
    let mut request = Attach {
        replaces,
        ..Attach::default()
    };
    let mut properties = Assignments::of_pool();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "f" => request.force = true,
            "o" => properties.add_ashift(&value)?,
            "s" => request.sequential = true,
            _ => waits = true,
        }
    }
    let operands = options.operands();
    match operands.as_slice() {
        [] => return Err(Failure::usage("missing pool name argument")),
        [_] => return Err(Failure::usage("missing <device> specification")),
        [_, _] if !replaces => return Err(Failure::usage("missing <new_device> specification")),
        [pool, device, rest @ ..] if rest.len() <= 1 => {
            request.name = pool.clone();
            request.device = device.clone();
            request.new_device = rest.first().unwrap_or(device).clone();
        }
        _ => return Err(Failure::usage("too many arguments")),
    }
    request.properties = properties.into_pairs();
    Ok((request, waits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str, replaces: bool) -> Result<(Attach, bool), Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words, replaces)
    }

    #[test]
    fn a_device_joins_another_or_takes_its_place() {
        let (request, _) = parsed("-f -o ashift=12 tank a b", false).unwrap();
        assert_eq!(
            (&*request.name, &*request.device, &*request.new_device),
            ("tank", "a", "b")
        );
        assert!(request.force && !request.replaces);
        assert_eq!(
            request.properties,
            [("ashift".to_string(), "12".to_string())]
        );
        let (request, waits) = parsed("-sw tank a", true).unwrap();
        assert!(request.sequential && waits);
        assert_eq!((&*request.device, &*request.new_device), ("a", "a"));
        assert!(request.replaces);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_usage() {
        for (line, replaces, text) in [
            ("", false, "missing pool name argument"),
            ("tank", false, "missing <device> specification"),
            ("tank a", false, "missing <new_device> specification"),
            ("tank a b c", true, "too many arguments"),
            ("-o ashift tank a b", true, "missing '=' for -o option"),
            ("-o comment=x tank a b", true, ""),
            ("-x tank a b", true, "invalid option 'x'"),
        ] {
            assert_eq!(parsed(line, replaces), Err(Failure::usage(text)), "{line}");
        }
    }
}
