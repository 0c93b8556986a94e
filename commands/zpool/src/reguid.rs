//! `zpool reguid`.

use tarn_administration::messages::pool::Reguid;
use tarn_api::client::CallError;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "g:",
    long: &[],
};

/// The exit code of a refusal: OpenZFS's command returns -1.
const REFUSED: u8 = 255;

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    match session.connect()?.pool_reguid(request) {
        Ok(_) => Ok(0),
        Err(CallError::Refused(refusal)) if refusal.action.starts_with("cannot reguid") => {
            complain(refusal);
            Ok(REFUSED)
        }
        Err(error) => Err(error.into()),
    }
}

/// A number as `strtoull` reads it: a negative one counts from the end.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix('-') {
        Some(digits) => digits.parse::<u64>().ok().map(u64::wrapping_neg),
        None => text.parse().ok(),
    }
}

fn parse(arguments: &[String]) -> Result<Reguid, Failure> {
    let mut options = Options::new(GRAMMAR, arguments);
    let mut guid = None;
    while let Some((_, value)) = options.take()? {
        let number = number(&value);
        guid = Some(number.ok_or_else(|| Failure::usage(format!("invalid GUID: {value}")))?);
    }
    match options.operands().as_slice() {
        [] => Err(Failure::usage("missing pool name")),
        [name] => Ok(Reguid {
            name: name.clone(),
            guid,
        }),
        _ => Err(Failure::usage("too many arguments")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_is_a_number_of_64_bits() {
        let parsed = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
            parse(&words)
        };
        assert_eq!(parsed("tank").unwrap().guid, None);
        assert_eq!(parsed("-g 007 tank").unwrap().guid, Some(7));
        assert_eq!(parsed("-g -1 tank").unwrap().guid, Some(u64::MAX));
        for (line, told) in [
            (
                "-g 18446744073709551616 tank",
                "invalid GUID: 18446744073709551616",
            ),
            ("-g 7x tank", "invalid GUID: 7x"),
            ("", "missing pool name"),
            ("a b", "too many arguments"),
            ("-x tank", "invalid option 'x'"),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(told)), "{line}");
        }
    }
}
