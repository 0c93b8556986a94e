//! `zfs holds`.

use tarn_administration::messages::dataset::{ListHolds, SnapshotHolds};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;
use tarn_terminal::timestamp::local;

const GRAMMAR: Grammar = Grammar {
    short: "rHp",
    long: &[],
};

/// How times are shown.
#[doc(alias = "STRFTIME_FMT_STR")]
const TIME: &str = "%a %b %e %H:%M %Y";

/// A command line, understood.
#[derive(Debug, Clone, Default, PartialEq)]
struct Request {
    names: Vec<String>,
    recursive: bool,
    is_scripted: bool,
    is_parsable: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let client = session.connect()?;
    let (mut found, mut code) = (Vec::new(), 0);
    for name in &request.names {
        let list = ListHolds {
            name: name.clone(),
            recursive: request.recursive,
        };
        let holds = match name.contains('@') {
            true => client
                .dataset_list_holds(list)
                .map_err(|error| error.to_string()),
            false => Err(format!("'{name}' is not a snapshot")),
        };
        match holds {
            Ok(holds) => found.extend(holds.snapshots),
            Err(error) => {
                complain(error);
                code = 1;
            }
        }
    }
    output::say(&table(&request, &found));
    if found.is_empty() {
        complain("no datasets available");
    }
    Ok(code)
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut request = Request::default();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, _)) = options.take()? {
        match option {
            "r" => request.recursive = true,
            "H" => request.is_scripted = true,
            _ => request.is_parsable = true,
        }
    }
    request.names = options.operands().to_vec();
    match request.names.is_empty() {
        true => Err(Failure::usage("")),
        false => Ok(request),
    }
}

/// The table, in OpenZFS's columns: as wide as what is in them.
fn table(request: &Request, snapshots: &[SnapshotHolds]) -> String {
    let names = snapshots
        .iter()
        .map(|one| one.name.len())
        .max()
        .unwrap_or(0);
    let tags = snapshots.iter().flat_map(|one| &one.holds);
    let tags = tags.map(|(tag, _)| tag.len()).max().unwrap_or(0);
    let mut text = String::new();
    if !request.is_scripted {
        text.push_str(&format!(
            "{:<names$}  {:<tags$}  TIMESTAMP\n",
            "NAME", "TAG"
        ));
    }
    for snapshot in snapshots {
        for (tag, made_s) in &snapshot.holds {
            let name = &snapshot.name;
            let time = match request.is_parsable {
                true => made_s.to_string(),
                false => local(i64::try_from(*made_s).unwrap_or(i64::MAX), TIME),
            };
            text.push_str(&match request.is_scripted {
                true => format!("{name}\t{tag}\t{time}\n"),
                false => format!("{name:<names$}  {tag:<tags$}  {time}\n"),
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let found = [SnapshotHolds {
            name: "tank/a@one".to_string(),
            holds: vec![("keep".to_string(), 5), ("x".to_string(), 6)],
        }];
        let request = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
            parse(&words).unwrap()
        };
        assert_eq!(
            table(&request("-p tank/a@one"), &found),
            "NAME        TAG   TIMESTAMP\ntank/a@one  keep  5\ntank/a@one  x     6\n"
        );
        assert_eq!(
            table(&request("-Hp tank/a@one"), &found),
            "tank/a@one\tkeep\t5\ntank/a@one\tx\t6\n"
        );
        assert_eq!(parse(&[]), Err(Failure::usage("")));
    }
}
