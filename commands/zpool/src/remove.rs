//! `zpool remove`.

use tarn_administration::messages::pool::{Remove, Removed};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::number;
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "npsw",
    long: &[],
};

/// A command line, understood.
#[derive(Debug, Default, PartialEq)]
struct Request {
    remove: Remove,
    is_exact: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let client = session.connect()?;
    if request.remove.cancel && request.remove.dry_run {
        complain("stop request ignored");
        return Ok(0);
    }
    let is_dry = request.remove.dry_run;
    let removed = client.pool_remove(request.remove)?;
    if is_dry {
        output::say(&sizes(&removed, request.is_exact));
    }
    removed.refused.iter().for_each(complain);
    Ok(u8::from(!removed.refused.is_empty()))
}

/// What `-n` prints.
fn sizes(removed: &Removed, is_exact: bool) -> String {
    let line = |(device, bytes): (&str, u64)| match is_exact {
        true => format!("{device} {bytes}\n"),
        false => format!(
            "Memory that will be used after removing {device}: {}\n",
            number::nice_count(bytes)
        ),
    };
    let devices = removed.devices.iter();
    devices
        .map(|removed| line((&removed.device, removed.memory_bytes)))
        .collect()
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut request = Request::default();
    let mut waits = false;
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, _)) = options.take()? {
        match option {
            "n" => request.remove.dry_run = true,
            "p" => request.is_exact = true,
            "s" => request.remove.cancel = true,
            // What is removed here is removed when the command ends.
            _ => waits = true,
        }
    }
    let mut operands = options.operands();
    if operands.is_empty() {
        return Err(Failure::usage("missing pool name argument"));
    }
    request.remove.name = operands.remove(0);
    let is_ignored = request.remove.cancel && request.remove.dry_run;
    match (request.remove.cancel, operands.is_empty()) {
        _ if is_ignored => {}
        (true, false) => return Err(Failure::usage("too many arguments")),
        (true, true) if waits => {
            let text = "invalid option combination: -w cannot be used with -s";
            return Err(Failure::usage(text));
        }
        (false, true) => return Err(Failure::usage("missing device")),
        _ => {}
    }
    request.remove.devices = operands;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_administration::messages::pool::RemovedDevice;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn devices_are_named_behind_their_pool() {
        let request = parsed("-w tank mirror-1 /dev/sdb").unwrap();
        assert_eq!(request.remove.name, "tank");
        assert_eq!(request.remove.devices, ["mirror-1", "/dev/sdb"]);
        assert!(!request.remove.dry_run && !request.remove.cancel);
        assert!(parsed("-s tank").unwrap().remove.cancel);
        assert!(parsed("-s -n tank a").is_ok());
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_usage() {
        for (line, text) in [
            ("", "missing pool name argument"),
            ("tank", "missing device"),
            ("-s tank a", "too many arguments"),
            (
                "-s -w tank",
                "invalid option combination: -w cannot be used with -s",
            ),
            ("-x tank a", "invalid option 'x'"),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(text)), "{line}");
        }
    }

    #[test]
    fn a_rehearsal_says_how_much_memory_it_takes() {
        let removed = Removed {
            devices: vec![RemovedDevice {
                device: "/dev/sdb".to_string(),
                memory_bytes: 0,
            }],
            refused: Vec::new(),
        };
        assert_eq!(sizes(&removed, true), "/dev/sdb 0\n");
        assert_eq!(
            sizes(&removed, false),
            "Memory that will be used after removing /dev/sdb: 0\n"
        );
    }
}
