//! `zfs share` and `zfs unshare`.

use tarn_administration::messages::dataset::{Share, Unshare};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;

const SHARE: Grammar = Grammar {
    short: ":al",
    long: &[],
};
const UNSHARE: Grammar = Grammar {
    short: "a",
    long: &[],
};

/// Runs `zfs share`.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn share(session: &Session, arguments: &[String]) -> Outcome {
    let missing = "missing filesystem argument (specify -a for all)";
    let name = parse(SHARE, arguments, missing)?;
    let refused = session.connect()?.dataset_share(Share { name })?.refused;
    refused.iter().for_each(complain);
    Ok(u8::from(!refused.is_empty()))
}

/// Runs `zfs unshare`.
///
/// # Errors
/// As [`share`].
pub fn unshare(session: &Session, arguments: &[String]) -> Outcome {
    let name = parse(UNSHARE, arguments, "missing filesystem argument")?;
    let refused = session
        .connect()?
        .dataset_unshare(Unshare { name })?
        .refused;
    refused.iter().for_each(complain);
    Ok(u8::from(!refused.is_empty()))
}

/// The file system that is named; none for all.
fn parse(grammar: Grammar, arguments: &[String], missing: &str) -> Result<Option<String>, Failure> {
    let mut is_all = false;
    let mut options = Options::new(grammar, arguments);
    while let Some((option, _)) = options.take()? {
        match option {
            "a" => is_all = true,
            "l" => {
                return Err(Failure::error(
                    "zfs share -l: not supported by this version of Tarn",
                ));
            }
            _ => {}
        }
    }
    let operands = options.operands();
    match (is_all, operands.as_slice()) {
        (true, []) => Ok(None),
        (true, [protocol]) => match protocol.as_str() {
            "nfs" => Ok(None),
            "smb" => Err(Failure::error(
                "sharing over SMB: not supported by this version of Tarn",
            )),
            _ => Err(Failure::usage("share type must be one of: nfs, smb")),
        },
        (false, [name]) => Ok(Some(name.clone())),
        (false, []) => Err(Failure::usage(missing)),
        _ => Err(Failure::usage("too many arguments")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Option<String>, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(SHARE, &words, "missing")
    }

    #[test]
    fn one_or_all_are_shared() {
        assert_eq!(parsed("-a"), Ok(None));
        assert_eq!(parsed("-a nfs"), Ok(None));
        assert_eq!(parsed("tank/a"), Ok(Some("tank/a".to_string())));
        assert_eq!(parsed(""), Err(Failure::usage("missing")));
        assert_eq!(parsed("a b"), Err(Failure::usage("too many arguments")));
        assert!(parsed("-a smb").is_err() && parsed("-a x").is_err() && parsed("-l a").is_err());
    }
}
