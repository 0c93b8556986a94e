//! `zpool labelclear`.

use crate::device_path;
use crate::paths;
use std::path::Path;
use tarn_administration::messages::pool::LabelClear;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "f",
    long: &[],
};

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let mut request = parse(arguments)?;
    request.device = find(&request.device)?;
    session.connect()?.pool_label_clear(request)?;
    Ok(0)
}

/// The whole path of a device: of what stands in this folder, or of what has a short name.
fn find(given: &str) -> Result<String, Failure> {
    if given.starts_with('/') || Path::new(given).exists() {
        return Ok(paths::absolute(given));
    }
    device_path::resolve(given).ok_or_else(|| {
        Failure::error(format!(
            "failed to find device {given}, try specifying absolute path instead"
        ))
    })
}

fn parse(arguments: &[String]) -> Result<LabelClear, Failure> {
    let mut request = LabelClear::default();
    let mut options = Options::new(GRAMMAR, arguments);
    while options.take()?.is_some() {
        request.force = true;
    }
    match options.operands().as_slice() {
        [device] => request.device = device.clone(),
        [] => return Err(Failure::usage("missing vdev name")),
        _ => return Err(Failure::usage("too many arguments")),
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<LabelClear, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn one_device_is_named() {
        let request = parsed("-f /dev/sda1").unwrap();
        assert!(request.force && request.device == "/dev/sda1");
        assert_eq!(parsed(""), Err(Failure::usage("missing vdev name")));
        assert_eq!(parsed("a b"), Err(Failure::usage("too many arguments")));
    }

    #[test]
    fn a_device_is_found_by_its_path_or_short_name() {
        assert_eq!(find("/nosuch"), Ok("/nosuch".to_string()));
        assert_eq!(find("null"), Ok("/dev/null".to_string()));
        assert!(find("Cargo.toml").unwrap().ends_with("/Cargo.toml"));
        assert_eq!(
            find("nosuch"),
            Err(Failure::error(
                "failed to find device nosuch, try specifying absolute path instead"
            ))
        );
    }
}
