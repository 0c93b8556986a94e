//! `zfs create`.

use crate::assignments::Assignments;
use tarn_administration::messages::dataset::{Create, Created};
use tarn_engine::properties::size::size;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{BadOption, Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: ":PV:b:nso:puv",
    long: &[],
};

/// How the command tells what it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Report {
    Silent,
    Verbose,
    /// `-P`.
    Parsable,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let (request, report) = parse(arguments)?;
    let (has_parents, is_dry) = (request.parents, request.dry_run);
    let name = request.name.clone();
    let created = session.connect()?.dataset_create(request)?;
    output::say(&told(&name, has_parents, is_dry, report, &created));
    created.warnings.iter().for_each(complain);
    Ok(0)
}

fn parse(arguments: &[String]) -> Result<(Create, Report), Failure> {
    let mut request = Create::default();
    let mut assignments = Assignments::default();
    let mut has_block_size = false;
    let mut report = Report::Silent;
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take().map_err(bad_option)? {
        match option {
            "V" => request.volume_bytes = Some(number("volume size", &value)?),
            "P" => report = Report::Parsable,
            "p" if request.parents => request.parents_no_mount = true,
            "p" => request.parents = true,
            "b" => {
                let bytes = number("volume block size", &value)?;
                assignments.replace("volblocksize", bytes.to_string());
                has_block_size = true;
            }
            "n" => request.dry_run = true,
            "o" => assignments.add(&value, 1)?,
            "s" => request.sparse = true,
            "u" => request.no_mount = true,
            _ if report == Report::Silent => report = Report::Verbose,
            _ => {}
        }
    }
    let is_volume = request.volume_bytes.is_some();
    if (has_block_size || request.sparse) && !is_volume {
        return Err(Failure::usage(
            "'-s' and '-b' can only be used when creating a volume",
        ));
    }
    if request.no_mount && is_volume {
        return Err(Failure::usage(
            "'-u' can only be used when creating a filesystem",
        ));
    }
    let operands = options.operands();
    request.name = match operands.as_slice() {
        [name] => name.clone(),
        [] if is_volume => return Err(Failure::usage("missing volume argument")),
        [] => return Err(Failure::usage("missing filesystem argument")),
        _ => return Err(Failure::usage("too many arguments")),
    };
    request.properties = assignments.0;
    Ok((request, report))
}

fn bad_option(bad: BadOption) -> Failure {
    match bad {
        BadOption::NoValue(_) => Failure::usage("missing size argument"),
        unknown => unknown.into(),
    }
}

fn number(what: &str, text: &str) -> Result<u64, Failure> {
    size(text).map_err(|bad| Failure::error(format!("bad {what} '{text}': {}", bad.reason)))
}

/// What `-v` and `-P` print. A dataset that was there already is no failure with `-p`, and nothing
/// to tell.
fn told(name: &str, has_parents: bool, is_dry: bool, report: Report, created: &Created) -> String {
    if report == Report::Silent || created.names.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    let would = if is_dry { "would " } else { "" };
    if has_parents {
        text.push_str(&match report {
            Report::Parsable => format!("create_ancestors\t{name}\n"),
            _ => format!("{would}create ancestors of {name}\n"),
        });
    }
    text.push_str(&match report {
        Report::Parsable => format!("create\t{name}\n"),
        _ => format!("{would}create {name}\n"),
    });
    for (property, value) in &created.properties {
        text.push_str(&match report {
            Report::Parsable => format!("property\t{property}\t{value}\n"),
            _ => format!("\t{property}={value}\n"),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<(Create, Report), Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn a_volume_has_a_size_and_maybe_a_block_size() {
        let (request, report) = parsed("-sv -b 8K -V 1.5G -o compression=off tank/v").unwrap();
        assert_eq!(request.volume_bytes, Some(3 << 29));
        assert!(request.sparse);
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        assert_eq!(
            request.properties,
            [pair("volblocksize", "8192"), pair("compression", "off")]
        );
        assert_eq!(report, Report::Verbose);
    }

    #[test]
    fn parents_may_be_made_without_being_mountable() {
        let (request, _) = parsed("-p tank/a/b").unwrap();
        assert!(request.parents && !request.parents_no_mount);
        assert!(parsed("-pp tank/a/b").unwrap().0.parents_no_mount);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, failure) in [
            ("-V", Failure::usage("missing size argument")),
            (
                "-s tank/a",
                Failure::usage("'-s' and '-b' can only be used when creating a volume"),
            ),
            (
                "-u -V 1M tank/a",
                Failure::usage("'-u' can only be used when creating a filesystem"),
            ),
            ("", Failure::usage("missing filesystem argument")),
            ("-V 1M", Failure::usage("missing volume argument")),
            ("a b", Failure::usage("too many arguments")),
            (
                "-V x tank/v",
                Failure::error("bad volume size 'x': bad numeric value 'x'"),
            ),
            (
                "-V 1q tank/v",
                Failure::error("bad volume size '1q': invalid numeric suffix 'q'"),
            ),
            ("-Q tank/v", Failure::usage("invalid option 'Q'")),
            ("-o a=b -o a=c tank/v", Failure::Silent(1)),
        ] {
            assert_eq!(parsed(line).unwrap_err(), failure, "{line}");
        }
    }

    #[test]
    fn what_was_done_is_told_for_people_or_programs() {
        let created = Created {
            names: vec!["tank/a/b".to_string()],
            properties: vec![("atime".to_string(), "off".to_string())],
            warnings: Vec::new(),
        };
        let text = |is_dry, report| told("tank/a/b", true, is_dry, report, &created);
        assert_eq!(
            text(true, Report::Verbose),
            "would create ancestors of tank/a/b\nwould create tank/a/b\n\tatime=off\n"
        );
        assert_eq!(
            text(false, Report::Parsable),
            "create_ancestors\ttank/a/b\ncreate\ttank/a/b\nproperty\tatime\toff\n"
        );
        assert_eq!(text(false, Report::Silent), "");
        assert_eq!(
            told("tank/a", true, false, Report::Verbose, &Created::default()),
            ""
        );
    }
}
