//! `zfs destroy`.
//!
//! With `-v` the datasets are told before they go: the same request is made twice, first as a dry
//! run. Of snapshots, what comes free is told as well.

use tarn_administration::messages::dataset::{Destroy, Destroyed};
use tarn_api::client::{CallError, Client};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::number::nice_bytes;
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "vpndfrR",
    long: &[],
};

/// A command line, understood.
#[derive(Debug, Clone, Default, PartialEq)]
struct Request {
    destroy: Destroy,
    is_verbose: bool,
    is_parsable: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let client = session.connect()?;
    if request.is_verbose {
        let rehearsed = rehearse(&client, &request)?;
        output::say(&told(&request, &rehearsed));
    }
    if !(request.is_verbose && request.destroy.dry_run) {
        client.dataset_destroy(request.destroy)?;
    }
    Ok(0)
}

fn rehearse(client: &Client, request: &Request) -> Result<Destroyed, CallError> {
    client.dataset_destroy(Destroy {
        dry_run: true,
        ..request.destroy.clone()
    })
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut request = Request::default();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, _)) = options.take()? {
        match option {
            "v" => request.is_verbose = true,
            "p" => (request.is_verbose, request.is_parsable) = (true, true),
            "n" => request.destroy.dry_run = true,
            "d" => request.destroy.defer = true,
            "f" => request.destroy.force = true,
            "r" => request.destroy.recursive = true,
            _ => (request.destroy.recursive, request.destroy.dependents) = (true, true),
        }
    }
    let operands = options.operands();
    request.destroy.name = match operands.as_slice() {
        [name] => name.clone(),
        [] => return Err(Failure::usage("missing dataset argument")),
        _ => return Err(Failure::usage("too many arguments")),
    };
    let name = &request.destroy.name;
    if name.contains('@') {
        return Ok(request);
    }
    if name.contains('#') {
        let asked = &request.destroy;
        let refused = [
            (asked.dry_run, "dryrun"),
            (asked.defer, "defer destroy"),
            (asked.recursive, "recursive"),
        ];
        return match refused.iter().find(|(is_asked, _)| *is_asked) {
            Some((_, what)) => {
                complain(format!("{what} is not supported with bookmark"));
                Err(Failure::Silent(255))
            }
            None => Ok(Request {
                is_verbose: false,
                ..request
            }),
        };
    }
    if request.destroy.defer {
        return Err(Failure::error(format!(
            "cannot open '{name}': missing '@' delimiter in snapshot name"
        )));
    }
    Ok(request)
}

/// What `-v` and `-p` print.
fn told(request: &Request, destroyed: &Destroyed) -> String {
    let line = |name: &String| match (request.is_parsable, request.destroy.dry_run) {
        (true, _) => format!("destroy\t{name}\n"),
        (false, true) => format!("would destroy {name}\n"),
        (false, false) => format!("will destroy {name}\n"),
    };
    let mut text: String = destroyed.names.iter().map(line).collect();
    if let Some(bytes) = destroyed.reclaimed_bytes {
        let nice = nice_bytes(bytes);
        text.push_str(&match (request.is_parsable, request.destroy.dry_run) {
            (true, _) => format!("reclaim\t{bytes}\n"),
            (false, true) => format!("would reclaim {nice}\n"),
            (false, false) => format!("will reclaim {nice}\n"),
        });
    }
    if !request.destroy.dry_run {
        text.extend(destroyed.clones.iter().map(line));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn dependents_are_more_than_children() {
        let destroy = parsed("-R tank/a").unwrap().destroy;
        assert!(destroy.recursive && destroy.dependents);
        assert!(!parsed("-r tank/a").unwrap().destroy.dependents);
    }

    #[test]
    fn what_goes_is_told_as_openzfs_does() {
        let destroyed = Destroyed {
            names: vec!["tank/a/b".to_string(), "tank/a".to_string()],
            ..Destroyed::default()
        };
        let text = |line| told(&parsed(line).unwrap(), &destroyed);
        assert_eq!(
            text("-rvn tank/a"),
            "would destroy tank/a/b\nwould destroy tank/a\n"
        );
        assert_eq!(
            text("-rv tank/a"),
            "will destroy tank/a/b\nwill destroy tank/a\n"
        );
        assert_eq!(text("-rpn tank/a"), "destroy\ttank/a/b\ndestroy\ttank/a\n");
    }

    #[test]
    fn what_comes_free_with_snapshots_is_told() {
        let destroyed = Destroyed {
            names: vec!["tank@a".to_string()],
            reclaimed_bytes: Some(1536),
            clones: vec!["tank/c".to_string()],
        };
        let text = |line| told(&parsed(line).unwrap(), &destroyed);
        assert_eq!(
            text("-vn tank@a"),
            "would destroy tank@a\nwould reclaim 1.50K\n"
        );
        assert_eq!(
            text("-Rv tank@a"),
            "will destroy tank@a\nwill reclaim 1.50K\nwill destroy tank/c\n"
        );
        assert_eq!(text("-np tank@a"), "destroy\ttank@a\nreclaim\t1536\n");
    }

    #[test]
    fn bookmarks_are_destroyed_one_by_one() {
        assert!(parsed("tank#a").is_ok());
        for line in ["-n tank#a", "-d tank#a", "-r tank#a"] {
            assert_eq!(parsed(line), Err(Failure::Silent(255)), "{line}");
        }
    }

    #[test]
    fn only_snapshots_can_be_destroyed_later() {
        assert!(parsed("-d tank@a").unwrap().destroy.defer);
        assert_eq!(
            parsed("-d tank"),
            Err(Failure::error(
                "cannot open 'tank': missing '@' delimiter in snapshot name"
            ))
        );
    }

    #[test]
    fn one_dataset_must_be_named() {
        assert_eq!(
            parsed("-r"),
            Err(Failure::usage("missing dataset argument"))
        );
        assert_eq!(parsed("a b"), Err(Failure::usage("too many arguments")));
    }
}
