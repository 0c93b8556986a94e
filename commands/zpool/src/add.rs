//! `zpool add`.

use crate::assignments::Assignments;
use crate::planned;
use crate::pools;
use crate::vdev_grammar;
use crate::vdevs::Names;
use tarn_administration::messages::Source;
use tarn_administration::messages::Value;
use tarn_administration::messages::pool::{Add, PoolDescription};
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;

const GRAMMAR: Grammar = Grammar {
    short: "fgLno:P",
    long: &[
        ("allow-in-use", "allow-in-use"),
        ("allow-replication-mismatch", "allow-replication-mismatch"),
        ("allow-ashift-mismatch", "allow-ashift-mismatch"),
    ],
};

/// A command line, understood but for its vdevs.
#[derive(Debug, Default, PartialEq)]
struct Request {
    add: Add,
    names: Names,
    vdevs: Vec<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let mut request = parse(arguments)?;
    let client = session.connect()?;
    let found = pools::find(&client, std::slice::from_ref(&request.add.name), false)?;
    let Some(pool) = found.pools.into_iter().next() else {
        return Ok(1);
    };
    request.add.vdevs = vdev_grammar::parse(&request.vdevs).map_err(Failure::Error)?;
    if request.add.properties.is_empty() {
        request.add.properties.extend(chosen_ashift(&pool));
    }
    let is_dry = request.add.dry_run;
    let shown = dry_run_text(&request, &pool);
    let added = client.pool_add(request.add)?;
    if is_dry {
        output::say(&shown);
    }
    added.notes.iter().for_each(complain);
    added.warnings.iter().for_each(complain);
    Ok(0)
}

/// The pool's own `ashift`, where it was set.
pub(crate) fn chosen_ashift(pool: &PoolDescription) -> Option<(String, String)> {
    let ashift = pool.properties.get("ashift")?;
    match (&ashift.value, &ashift.source) {
        (_, Source::Default) => None,
        (Value::Number(number), _) => Some(("ashift".to_string(), number.to_string())),
        _ => None,
    }
}

/// What `-n` prints.
fn dry_run_text(request: &Request, pool: &PoolDescription) -> String {
    format!(
        "would update '{}' to the following configuration:\n\n{}",
        pool.name,
        planned::tree(&pool.name, &pool.layout, &request.add.vdevs, request.names)
    )
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut request = Request::default();
    let mut properties = Assignments::of_pool();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, value)) = options.take()? {
        match option {
            "f" => request.add.force = true,
            "n" => request.add.dry_run = true,
            "o" => properties.add_ashift(&value)?,
            "allow-in-use" => request.add.allow_in_use = true,
            "allow-replication-mismatch" => request.add.allow_replication_mismatch = true,
            "allow-ashift-mismatch" => request.add.allow_ashift_mismatch = true,
            naming => _ = request.names.take(naming),
        }
    }
    let mut operands = options.operands();
    match operands.len() {
        0 => return Err(Failure::usage("missing pool name argument")),
        1 => return Err(Failure::usage("missing vdev specification")),
        _ => request.add.name = operands.remove(0),
    }
    let add = &request.add;
    let allows = add.allow_in_use || add.allow_replication_mismatch || add.allow_ashift_mismatch;
    if add.force && allows {
        return Err(Failure::usage(
            "'-f' option is not allowed with '--allow-replication-mismatch', \
             '--allow-ashift-mismatch', or '--allow-in-use'",
        ));
    }
    request.add.properties = properties.into_pairs();
    request.vdevs = operands;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;
    use tarn_administration::messages::pool::{VdevKind, VdevRole, VdevSpec};

    fn parsed(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    #[test]
    fn a_pool_gets_vdevs() {
        let request = parsed("-nP -o ashift=12 --allow-in-use tank mirror a b").unwrap();
        assert_eq!(request.add.name, "tank");
        assert_eq!(request.vdevs, ["mirror", "a", "b"]);
        assert_eq!(
            request.add.properties,
            [("ashift".to_string(), "12".to_string())]
        );
        assert!(request.add.dry_run && request.add.allow_in_use && request.names.are_whole);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_usage() {
        for (line, text) in [
            ("", "missing pool name argument"),
            ("tank", "missing vdev specification"),
            ("-o ashift tank a", "missing '=' for -o option"),
            ("-o comment=x tank a", ""),
            ("-a tank a", "invalid option 'a'"),
            (
                "-f --allow-in-use tank a",
                "'-f' option is not allowed with '--allow-replication-mismatch', \
                 '--allow-ashift-mismatch', or '--allow-in-use'",
            ),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(text)), "{line}");
        }
    }

    #[test]
    fn the_sectors_chosen_for_the_pool_hold_for_new_vdevs() {
        let mut pool = samples::basic();
        assert_eq!(
            chosen_ashift(&pool),
            Some(("ashift".to_string(), "12".to_string()))
        );
        let natural = samples::answer(Value::Number(0), Source::Default);
        pool.properties.insert("ashift".to_string(), natural);
        assert_eq!(chosen_ashift(&pool), None);
    }

    #[test]
    fn a_rehearsal_shows_the_whole_pool() {
        let mut request = parsed("-n fxbasic /nosuch/disk").unwrap();
        request.add.vdevs = vec![VdevSpec {
            kind: VdevKind::Leaf,
            path: Some("/nosuch/disk".to_string()),
            children: Vec::new(),
            role: VdevRole::Log,
        }];
        assert_eq!(
            dry_run_text(&request, &samples::basic()),
            "would update 'fxbasic' to the following configuration:\n\n\
             \tfxbasic\n\t  /run/0.img\n\tlogs\n\t  disk\n"
        );
    }
}
