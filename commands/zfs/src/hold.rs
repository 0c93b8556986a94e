//! `zfs hold` and `zfs release`.

use tarn_administration::messages::dataset::Hold;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

/// OpenZFS accepts `-t`, without effect.
const HOLD: Grammar = Grammar {
    short: "rt",
    long: &[],
};

const RELEASE: Grammar = Grammar {
    short: "r",
    long: &[],
};

/// Runs `hold`.
///
/// # Errors
/// What is wrong with the command line; or refusals, which were told.
pub fn hold(session: &Session, arguments: &[String]) -> Outcome {
    let requests = parse(HOLD, arguments)?;
    if requests.iter().any(|request| request.tag.starts_with('.')) {
        return Err(Failure::usage("tag may not start with '.'"));
    }
    let client = session.connect()?;
    each(&requests, |request| {
        client
            .dataset_hold(request)
            .map_err(|error| error.to_string())
    })
}

/// Runs `release`.
///
/// # Errors
/// As [`hold`].
pub fn release(session: &Session, arguments: &[String]) -> Outcome {
    let requests = parse(RELEASE, arguments)?;
    let client = session.connect()?;
    each(&requests, |request| {
        client
            .dataset_release(request)
            .map_err(|error| error.to_string())
    })
}

/// Asks for each; what is refused is told, and the others go on.
fn each<T>(requests: &[Hold], ask: impl Fn(Hold) -> Result<T, String>) -> Outcome {
    let mut code = 0;
    for request in requests {
        let outcome = match request.name.contains('@') {
            true => ask(request.clone()).map(|_| ()),
            false => Err(format!("'{}' is not a snapshot", request.name)),
        };
        if let Err(error) = outcome {
            complain(error);
            code = 1;
        }
    }
    Ok(code)
}

fn parse(grammar: Grammar, arguments: &[String]) -> Result<Vec<Hold>, Failure> {
    let mut recursive = false;
    let mut options = Options::new(grammar, arguments);
    while let Some((option, _)) = options.take()? {
        recursive |= option == "r";
    }
    match options.operands().as_slice() {
        [tag, names @ ..] if !names.is_empty() => Ok(names
            .iter()
            .map(|name| Hold {
                name: name.clone(),
                tag: tag.clone(),
                recursive,
            })
            .collect()),
        _ => Err(Failure::usage("")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_put_on_each_snapshot() {
        let words =
            |line: &str| -> Vec<String> { line.split_whitespace().map(str::to_string).collect() };
        let requests = parse(HOLD, &words("-r keep tank@a tank@b")).unwrap();
        assert_eq!(requests.len(), 2);
        assert!(
            requests
                .iter()
                .all(|one| one.recursive && one.tag == "keep")
        );
        assert_eq!(parse(RELEASE, &words("keep")), Err(Failure::usage("")));
        assert_eq!(
            parse(RELEASE, &words("-t a b")),
            Err(Failure::usage("invalid option 't'"))
        );
    }

    #[test]
    fn one_that_is_no_snapshot_keeps_no_other_from_being_held() {
        let of = |name: &str| Hold {
            name: name.to_string(),
            ..Hold::default()
        };
        let asked = std::cell::Cell::new(0);
        let outcome = each(&[of("tank"), of("tank@a")], |_| {
            asked.set(asked.get() + 1);
            Ok(())
        });
        assert_eq!((outcome, asked.get()), (Ok(1), 1));
    }
}
