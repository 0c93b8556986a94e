//! `zpool clear`.

use tarn_administration::messages::pool::Clear;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "FnX",
    long: &[("power", "power")],
};

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    session.connect()?.pool_clear(request)?;
    Ok(0)
}

fn parse(arguments: &[String]) -> Result<Clear, Failure> {
    let mut flags: Vec<&str> = Vec::new();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, _)) = options.take()? {
        flags.push(option);
    }
    let has = |flag: &str| flags.contains(&flag);
    if (has("n") || has("X")) && !has("F") {
        return Err(Failure::usage("-n or -X only meaningful with -F"));
    }
    let request = match options.operands().as_slice() {
        [] => return Err(Failure::usage("missing pool name")),
        [pool] => Clear {
            name: pool.clone(),
            device: None,
        },
        [pool, device] => Clear {
            name: pool.clone(),
            device: Some(device.clone()),
        },
        _ => return Err(Failure::usage("too many arguments")),
    };
    match flags.first() {
        None => Ok(request),
        Some(flag) => {
            let dashes = if flag.len() == 1 { "-" } else { "--" };
            Err(Failure::error(format!(
                "zpool clear {dashes}{flag}: not supported by this version of Tarn"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Clear, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn a_pool_or_one_of_its_devices_is_cleared() {
        assert_eq!(parsed("tank").unwrap().device, None);
        assert_eq!(parsed("tank sda").unwrap().device.as_deref(), Some("sda"));
    }

    #[test]
    fn what_makes_no_sense_or_is_missing_is_refused() {
        for (line, failure) in [
            ("", Failure::usage("missing pool name")),
            ("a b c", Failure::usage("too many arguments")),
            (
                "-n tank",
                Failure::usage("-n or -X only meaningful with -F"),
            ),
            (
                "-Fn tank",
                Failure::error("zpool clear -F: not supported by this version of Tarn"),
            ),
            (
                "--power tank",
                Failure::error("zpool clear --power: not supported by this version of Tarn"),
            ),
        ] {
            assert_eq!(parsed(line), Err(failure), "{line}");
        }
    }
}
