//! `zfs unmount`.

use tarn_administration::messages::dataset::Unmount;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "afu",
    long: &[],
};

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let refused = session.connect()?.dataset_unmount(request)?.refused;
    refused.iter().for_each(complain);
    Ok(u8::from(!refused.is_empty()))
}

fn parse(arguments: &[String]) -> Result<Unmount, Failure> {
    let mut request = Unmount::default();
    let mut is_all = false;
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, _)) = options.take()? {
        match option {
            "a" => is_all = true,
            "f" => request.force = true,
            // `-u` unloads keys, and no key is ever loaded.
            _ => {}
        }
    }
    request.name = match (is_all, options.operands().as_slice()) {
        (true, []) => None,
        (false, [name]) => Some(name.clone()),
        (false, []) => return Err(Failure::usage("missing filesystem argument")),
        _ => return Err(Failure::usage("too many arguments")),
    };
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Unmount, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn one_or_all_are_unmounted() {
        let request = parsed("-f /tank/a").unwrap();
        assert_eq!(request.name.as_deref(), Some("/tank/a"));
        assert!(request.force);
        assert_eq!(parsed("-a").unwrap().name, None);
        assert_eq!(
            parsed(""),
            Err(Failure::usage("missing filesystem argument"))
        );
        assert_eq!(parsed("-a tank"), Err(Failure::usage("too many arguments")));
        assert_eq!(parsed("a b"), Err(Failure::usage("too many arguments")));
    }
}
