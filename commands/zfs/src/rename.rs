//! `zfs rename`.

use tarn_administration::messages::dataset::Rename;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "pruf",
    long: &[],
};

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let renamed = session.connect()?.dataset_rename(request)?;
    renamed.warnings.iter().for_each(complain);
    Ok(0)
}

fn parse(arguments: &[String]) -> Result<Rename, Failure> {
    let mut request = Rename::default();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, _)) = options.take()? {
        match option {
            "p" if request.parents => request.parents_no_mount = true,
            "p" => request.parents = true,
            "r" => request.recursive = true,
            "u" => request.no_mount = true,
            _ => request.force = true,
        }
    }
    let operands = options.operands();
    (request.from, request.to) = match operands.as_slice() {
        [from, to] => (from.clone(), to.clone()),
        [] => return Err(Failure::usage("missing source dataset argument")),
        [_] => return Err(Failure::usage("missing target dataset argument")),
        _ => return Err(Failure::usage("too many arguments")),
    };
    if request.recursive && request.parents {
        return Err(Failure::usage("-p and -r options are mutually exclusive"));
    }
    if request.no_mount && request.parents {
        return Err(Failure::usage("-u and -p options are mutually exclusive"));
    }
    let is_snapshot = request.from.contains('@');
    if request.recursive && !is_snapshot {
        let text = "source dataset for recursive rename must be a snapshot";
        return Err(Failure::usage(text));
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Rename, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn a_rename_has_two_names() {
        let request = parsed("-pf tank/a tank/b/c").unwrap();
        assert_eq!(
            (request.from.as_str(), request.to.as_str()),
            ("tank/a", "tank/b/c")
        );
        assert!(request.parents && request.force && !request.no_mount);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, text) in [
            ("", "missing source dataset argument"),
            ("a", "missing target dataset argument"),
            ("a b c", "too many arguments"),
            ("-pr a b", "-p and -r options are mutually exclusive"),
            ("-pu a b", "-u and -p options are mutually exclusive"),
            (
                "-r a b",
                "source dataset for recursive rename must be a snapshot",
            ),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(text)), "{line}");
        }
    }

    #[test]
    fn snapshots_of_a_tree_are_renamed_together() {
        let request = parsed("-r tank@a @b").unwrap();
        assert!(request.recursive);
        assert_eq!(request.to, "@b");
    }
}
