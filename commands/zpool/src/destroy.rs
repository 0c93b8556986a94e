//! `zpool destroy`.

use tarn_administration::messages::pool::Destroy;
use tarn_administration::messages::{Refusal, RefusalKind};
use tarn_api::client::CallError;
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
    let request = parse(arguments)?;
    let name = request.name.clone();
    match session.connect()?.pool_destroy(request) {
        Ok(_) => Ok(0),
        Err(CallError::Refused(refusal)) => Err(Failure::Error(refused(&name, &refusal))),
        Err(other) => Err(other.into()),
    }
}

/// The name of a dataset is refused with a hint to `zfs destroy`.
fn refused(name: &str, refusal: &Refusal) -> String {
    match refusal.kind == RefusalKind::NotFound && name.contains('/') {
        true => format!("{refusal}\nuse 'zfs destroy' to destroy a dataset"),
        false => refusal.to_string(),
    }
}

fn parse(arguments: &[String]) -> Result<Destroy, Failure> {
    let mut request = Destroy::default();
    let mut options = Options::new(GRAMMAR, arguments);
    while options.take()?.is_some() {
        request.force = true;
    }
    match options.operands().as_slice() {
        [name] => request.name = name.clone(),
        [] => return Err(Failure::usage("missing pool argument")),
        _ => return Err(Failure::usage("too many arguments")),
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Destroy, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn one_pool_is_named() {
        let request = parsed("-f tank").unwrap();
        assert!(request.force && request.name == "tank");
        assert_eq!(parsed(""), Err(Failure::usage("missing pool argument")));
        assert_eq!(parsed("a b"), Err(Failure::usage("too many arguments")));
    }

    #[test]
    fn a_dataset_is_destroyed_by_the_other_command() {
        let refusal = Refusal::new(
            RefusalKind::NotFound,
            "cannot open 'tank/a'",
            "no such pool",
        );
        assert_eq!(
            refused("tank/a", &refusal),
            "cannot open 'tank/a': no such pool\nuse 'zfs destroy' to destroy a dataset"
        );
        assert_eq!(
            refused("tank", &refusal),
            "cannot open 'tank/a': no such pool"
        );
    }
}
