//! `zfs bookmark`.

use tarn_administration::messages::dataset::MakeBookmark;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "r",
    long: &[],
};

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    session
        .connect()?
        .dataset_bookmark(request)
        .map_err(Failure::usage_if_not_there)?;
    Ok(0)
}

fn parse(arguments: &[String]) -> Result<MakeBookmark, Failure> {
    let mut request = MakeBookmark::default();
    let mut options = Options::new(GRAMMAR, arguments);
    while options.take()?.is_some() {
        request.recursive = true;
    }
    (request.origin, request.name) = match options.operands().as_slice() {
        [] => return Err(Failure::usage("missing source argument")),
        [_] => return Err(Failure::usage("missing bookmark argument")),
        [origin, name, ..] => (origin.clone(), name.clone()),
    };
    let (origin, name) = (&request.origin, &request.name);
    let Some(origin_short) = origin.find(['@', '#']) else {
        let text = format!("invalid source name '{origin}': must contain a '@' or '#'");
        return Err(Failure::usage(text));
    };
    let Some(name_short) = name.find('#') else {
        let text = format!("invalid bookmark name '{name}': must contain a '#'");
        return Err(Failure::usage(text));
    };
    // One of them may be a short name.
    match (origin_short, name_short) {
        (0, 0) => {
            let text = "either source or bookmark must be specified as full dataset paths";
            return Err(Failure::usage(text));
        }
        (0, end) => request.origin = format!("{}{origin}", &name[..end]),
        (end, 0) => request.name = format!("{}{name}", &origin[..end]),
        _ => {}
    }
    if request.recursive && !request.origin.contains('@') {
        let text = "recursive bookmarks (-r) can only be created from a snapshot source";
        return Err(Failure::usage(text));
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<MakeBookmark, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn either_name_may_be_short() {
        for line in ["tank/a@x tank/a#y", "@x tank/a#y", "tank/a@x #y"] {
            let request = parsed(line).unwrap();
            assert_eq!(request.origin, "tank/a@x", "{line}");
            assert_eq!(request.name, "tank/a#y", "{line}");
        }
        assert!(parsed("-r tank@x tank#x").unwrap().recursive);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (line, text) in [
            ("", "missing source argument"),
            ("tank@a", "missing bookmark argument"),
            (
                "@a #b",
                "either source or bookmark must be specified as full dataset paths",
            ),
            (
                "tank tank#b",
                "invalid source name 'tank': must contain a '@' or '#'",
            ),
            (
                "tank@a tank@b",
                "invalid bookmark name 'tank@b': must contain a '#'",
            ),
            (
                "-r tank#a tank#b",
                "recursive bookmarks (-r) can only be created from a snapshot source",
            ),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(text)), "{line}");
        }
    }
}
