//! `zpool split`.

use crate::assignments::Assignments;
use crate::vdevs::Names;
use tarn_administration::messages::pool::{Split, SplitPool};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "gLR:lno:P",
    long: &[],
};

/// A command line, understood.
#[derive(Debug, Default, PartialEq)]
struct Request {
    split: Split,
    names: Names,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let (is_dry, name) = (request.split.dry_run, request.split.new_name.clone());
    let split = session.connect()?.pool_split(request.split)?;
    if is_dry {
        output::say(&layout(&name, &split, request.names));
    }
    split.warnings.iter().for_each(complain);
    Ok(u8::from(!split.warnings.is_empty()))
}

/// What `-n` prints.
fn layout(name: &str, split: &SplitPool, names: Names) -> String {
    let devices = split.layout.iter();
    let lines: String = devices
        .map(|vdev| format!("\t  {}\n", names.of(vdev)))
        .collect();
    format!("would create '{name}' with the following layout:\n\n\t{name}\n{lines}\n")
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut request = Request::default();
    let mut properties = Assignments::of_pool();
    let mut mount_options = None;
    let mut options = Options::new(GRAMMAR, arguments);
    let mut loads_keys = false;
    while let Some((option, value)) = options.take()? {
        match option {
            "R" => {
                properties.add("altroot", &value)?;
                properties.add_default("cachefile", "none");
            }
            "l" => loads_keys = true,
            "n" => request.split.dry_run = true,
            "o" => match value.split_once('=') {
                Some((name, value)) => properties.add(name, value)?,
                None => mount_options = Some(value),
            },
            naming => _ = request.names.take(naming),
        }
    }
    request.split.altroot = properties.take("altroot");
    request.split.properties = properties.into_pairs();
    let is_imported = request.split.altroot.is_some();
    if !is_imported && mount_options.is_some() {
        let text = "setting mntopts is only valid when importing the pool";
        return Err(Failure::usage(text));
    }
    if !is_imported && loads_keys {
        let text = "loading keys is only valid when importing the pool";
        return Err(Failure::usage(text));
    }
    if loads_keys {
        let text = "zpool split -l: not supported by this version of Tarn";
        return Err(Failure::error(text));
    }
    let properties = &mut request.split.properties;
    properties.extend(mount_options.map(|words| (words, String::new())));
    let mut operands = options.operands().into_iter();
    request.split.name = operands
        .next()
        .ok_or_else(|| Failure::usage("Missing pool name"))?;
    request.split.new_name = operands
        .next()
        .ok_or_else(|| Failure::usage("Missing new pool name"))?;
    request.split.devices = operands.collect();
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn devices_of_a_pool_become_another() {
        let request = parsed("-n -R /mnt tank half sda sdc").unwrap();
        let split = request.split;
        assert_eq!((&*split.name, &*split.new_name), ("tank", "half"));
        assert_eq!(split.devices, ["sda", "sdc"]);
        assert_eq!(split.altroot.as_deref(), Some("/mnt"));
        assert!(split.dry_run);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_usage() {
        for (line, text) in [
            ("", "Missing pool name"),
            ("tank", "Missing new pool name"),
            (
                "-o ro tank half",
                "setting mntopts is only valid when importing the pool",
            ),
            (
                "-l tank half",
                "loading keys is only valid when importing the pool",
            ),
            ("-x tank half", "invalid option 'x'"),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(text)), "{line}");
        }
    }
}
