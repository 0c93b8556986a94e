//! `zpool detach`.

use tarn_administration::messages::pool::Detach;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "",
    long: &[],
};

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    session.connect()?.pool_detach(request)?;
    Ok(0)
}

/// What follows the device is ignored, as OpenZFS does.
fn parse(arguments: &[String]) -> Result<Detach, Failure> {
    let mut options = Options::new(GRAMMAR, arguments);
    while options.take()?.is_some() {}
    match options.operands().as_slice() {
        [] => Err(Failure::usage("missing pool name argument")),
        [_] => Err(Failure::usage("missing <device> specification")),
        [name, device, ..] => Ok(Detach {
            name: name.clone(),
            device: device.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Detach, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn a_device_of_a_pool_is_named() {
        let request = parsed("tank sda").unwrap();
        assert_eq!((&*request.name, &*request.device), ("tank", "sda"));
        for (line, text) in [
            ("", "missing pool name argument"),
            ("tank", "missing <device> specification"),
            ("-f tank a", "invalid option 'f'"),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(text)), "{line}");
        }
    }
}
