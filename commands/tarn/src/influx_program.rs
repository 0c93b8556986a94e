//! `zpool_influxdb`: this program under that name, with the options and the output of OpenZFS's.
//! Telegraf's `inputs.exec` and `inputs.execd` call it.

use crate::export::{lines_of_pools, tags_of};
use std::io::BufRead;
use std::path::Path;
use tarn_api::client::Client;
use tarn_exports::LineOptions;
use tarn_terminal::failure::{Failure, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::{connection, output};

const NAME: &str = "zpool_influxdb";

const GRAMMAR: Grammar = Grammar {
    short: "ehinst:",
    long: &[
        ("execd", "e"),
        ("help", "h"),
        ("no-histograms", "n"),
        ("signed-int", "i"),
        ("sum-histogram-buckets", "s"),
        ("tags", "t"),
    ],
};

/// What the command line says.
#[derive(Debug, Default)]
struct Asked {
    lines: LineOptions,
    repeats: bool,
    pool: Option<String>,
}

/// Whether this program was called by that name.
pub fn is_called(arguments: &[String]) -> bool {
    let program = arguments.first().map(Path::new);
    let name = program.and_then(Path::file_name);
    name.is_some_and(|name| name == NAME)
}

/// Runs it. Exit codes are those of OpenZFS's: 0, or 1 when it cannot ask or the command line is
/// wrong.
pub fn run(arguments: &[String]) -> u8 {
    let Ok(asked) = parse(arguments.get(1..).unwrap_or_default()) else {
        complain(format!(
            "usage: {NAME} [--execd][--no-histograms][--sum-histogram-buckets] [--signed-int] \
             [poolname]"
        ));
        return 1;
    };
    let sampled = match asked.repeats {
        false => sample(&asked),
        true => {
            let lines = std::io::stdin().lock().lines();
            lines.map_while(Result::ok).try_for_each(|_| sample(&asked))
        }
    };
    match sampled {
        Ok(()) => 0,
        Err(Failure::Usage(why) | Failure::Error(why)) => {
            complain(format!("error: {why}"));
            1
        }
        Err(_) => 1,
    }
}

fn sample(asked: &Asked) -> Result<(), Failure> {
    let instance = connection::instance()?;
    let client = Client::new(&instance.socket(), NAME);
    let pool = asked.pool.as_deref();
    output::say(&lines_of_pools(&client, pool, &asked.lines)?);
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Asked, Failure> {
    let mut options = Options::new(GRAMMAR, arguments);
    let mut asked = Asked::default();
    while let Some((name, value)) = options.take()? {
        match name {
            "e" => asked.repeats = true,
            "i" => asked.lines.is_signed = true,
            "n" => asked.lines.has_histograms = false,
            "s" => asked.lines.sums_buckets = true,
            "t" => asked.lines.tags = tags_of(&value)?,
            _ => return Err(Failure::usage("help")),
        }
    }
    asked.pool = options.operands().into_iter().next();
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn it_is_called_by_the_name_of_its_link() {
        assert!(is_called(&words(&["/usr/libexec/zpool_influxdb", "-n"])));
        assert!(!is_called(&words(&["/usr/sbin/tarn", "zpool_influxdb"])));
        assert!(!is_called(&[]));
    }

    #[test]
    fn options_are_those_of_openzfs() {
        let asked = parse(&words(&["-eis", "--no-hist", "-t", "a=b", "tank"])).unwrap();
        assert!(asked.repeats && asked.lines.is_signed && asked.lines.sums_buckets);
        assert!(!asked.lines.has_histograms);
        assert_eq!(asked.lines.tags, "a=b");
        assert_eq!(asked.pool.as_deref(), Some("tank"));
        assert!(parse(&words(&["-x"])).is_err());
        assert!(parse(&words(&["--help"])).is_err());
        assert_eq!(run(&words(&["zpool_influxdb", "--help"])), 1);
    }
}
