//! `tarn analytics`: what is kept of operations, what can be asked, and questions.

use crate::analytics_tables::{columns_csv, keys_table, state_text};
use crate::asked_operations::{connect, note_time};
use serde_json::json;
use tarn_administration::messages::analytics::{Catalogue, Known, Query, State, When};
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;
use tarn_terminal::table::{Align, Table};
use tarn_terminal::{json, output};

/// The usage.
pub const USAGE: &str = "\tanalytics state | catalogue [-j]\n\
\tanalytics query [-cHjp] [-k keys] [-i interval] [-f filter]\n\
\t    [--last duration | --since time] [--until time] statement\n";

/// What follows it.
pub const NOTES: &str = "\n\
\t-c           CSV: a line for each column of time and key, and for each bucket of a heat map\n\
\t-f filter    a predicate as JSON, besides those of the statement:\n\
\t             '{\"ge\": [\"latency\", \"10ms\"]}'\n\
\t-H           tabs, and no heading\n\
\t-i interval  how long a column of time is: 1s unless given; 100ms and 10ms, too\n\
\t-j           JSON\n\
\t-k keys      so many keys are told apart; 20 unless given. The others are in 'other'\n\
\t-p           exact numbers\n\
\t--last 10m   of the last ten minutes; of the last minute unless a time is given\n\
\t--since time, --until time\n\
\t             unix seconds, HH:MM, HH:MM:SS or \"YYYY-MM-DD HH:MM\"\n\
\nA statement is a statistic, filters and breakdowns: 'nfs.ops[op=read][client]:latency' are\n\
reads over NFS by client, with how long they took. 'catalogue' lists statistics and fields.\n\
Operations are held as they come, so any question can be asked afterwards; 'state' tells\n\
how far back.\n\
\nRoot and the user of tarnd may query; others get the state and the catalogue.\n\
\nExit codes: 0 done, 1 not done, 2 wrong usage.\n";

const GRAMMAR: Grammar = Grammar {
    short: ":cHjpk:i:f:l:s:u:",
    long: &[
        ("csv", "c"),
        ("json", "j"),
        ("keys", "k"),
        ("interval", "i"),
        ("filter", "f"),
        ("last", "l"),
        ("since", "s"),
        ("until", "u"),
    ],
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Form {
    is_csv: bool,
    is_scripted: bool,
    is_exact: bool,
    is_json: bool,
}

/// What the command line says.
#[derive(Debug, Clone)]
struct Asked {
    form: Form,
    when: When,
    keys: u32,
    column_ms: u64,
    filter: Option<serde_json::Value>,
    operands: Vec<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why there is no answer.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let asked = parse(arguments)?;
    let operands: Vec<&str> = asked.operands.iter().map(String::as_str).collect();
    match operands.as_slice() {
        ["state"] => state(session, asked.form),
        ["catalogue"] => catalogue(session, asked.form),
        ["query", statement] => query(session, statement, &asked),
        ["query"] => Err(Failure::usage("missing statement")),
        ["query", ..] => Err(Failure::usage("too many arguments: quote the statement")),
        ["state" | "catalogue", ..] => Err(Failure::usage("too many arguments")),
        [] => Err(Failure::usage("missing subcommand")),
        [other, ..] => Err(Failure::usage(format!("unknown subcommand '{other}'"))),
    }
}

fn parse(arguments: &[String]) -> Result<Asked, Failure> {
    let mut options = Options::new(GRAMMAR, arguments);
    let mut asked = Asked {
        form: Form::default(),
        when: When::default(),
        keys: 20,
        column_ms: 1000,
        filter: None,
        operands: Vec::new(),
    };
    while let Some((name, value)) = options.take()? {
        match name {
            "c" => asked.form.is_csv = true,
            "H" => asked.form.is_scripted = true,
            "p" => asked.form.is_exact = true,
            "j" => asked.form.is_json = true,
            "l" => note_time(&mut asked.when, "last", &value)?,
            "s" => note_time(&mut asked.when, "since", &value)?,
            "u" => note_time(&mut asked.when, "until", &value)?,
            "k" => {
                let keys = value.parse();
                asked.keys = keys.map_err(|_| Failure::usage(format!("'{value}' is no count")))?;
            }
            "i" => asked.column_ms = milliseconds(&value)?,
            _ => asked.filter = Some(filter_of(&value)?),
        }
    }
    let forms = [
        asked.form.is_csv,
        asked.form.is_json,
        asked.form.is_scripted,
    ];
    if forms.into_iter().filter(|form| *form).count() > 1 {
        return Err(Failure::usage("-c, -j and -H exclude each other"));
    }
    asked.operands = options.operands();
    Ok(asked)
}

/// A predicate as JSON.
pub fn filter_of(text: &str) -> Result<serde_json::Value, Failure> {
    serde_json::from_str(text).map_err(|error: serde_json::Error| {
        let told = error.to_string();
        // The parser adds where it is, by lines.
        let what = told.split(" at line ").next().unwrap_or(&told);
        let place = error.column();
        Failure::usage(format!(
            "the filter is no JSON, at its character {place}: {what}"
        ))
    })
}

/// Milliseconds of `1s`, `100ms` or `1m`.
pub fn milliseconds(text: &str) -> Result<u64, Failure> {
    let number = |text: &str, unit_ms: u64| text.parse::<u64>().ok()?.checked_mul(unit_ms);
    let found = match text {
        text if text.ends_with("ms") => number(text.trim_end_matches("ms"), 1),
        text if text.ends_with('m') => number(text.trim_end_matches('m'), 60_000),
        text => number(text.strip_suffix('s').unwrap_or(text), 1000),
    };
    let found = found.filter(|milliseconds| *milliseconds > 0);
    found.ok_or_else(|| Failure::usage(format!("'{text}' is no interval, as 1s and 100ms are")))
}

fn state(session: &Session, form: Form) -> Outcome {
    let state = connect(session)?.analytics_state(State {})?;
    if form.is_json {
        let mut out = json::frame(session);
        out.insert("analytics".into(), json!(state));
        json::print(out);
    } else {
        output::say(&state_text(&state, form.is_exact));
    }
    Ok(0)
}

fn catalogue(session: &Session, form: Form) -> Outcome {
    let known = connect(session)?.analytics_catalogue(Catalogue {})?;
    if form.is_json {
        let mut out = json::frame(session);
        out.insert("catalogue".into(), json!(known));
        json::print(out);
    } else {
        output::say(&catalogue_text(&known, form.is_scripted));
    }
    Ok(0)
}

fn query(session: &Session, statement: &str, asked: &Asked) -> Outcome {
    let request = Query {
        filter: asked.filter.clone(),
        column_ms: asked.column_ms,
        keys: asked.keys,
        ..Query::of(statement, asked.when)
    };
    let answer = connect(session)?.analytics_query(request)?;
    if asked.form.is_json {
        let mut out = json::frame(session);
        out.insert("answer".into(), json!(answer));
        json::print(out);
    } else if asked.form.is_csv {
        output::say(&columns_csv(&answer));
    } else {
        output::say(&keys_table(
            &answer,
            asked.form.is_scripted,
            asked.form.is_exact,
        ));
    }
    Ok(0)
}

fn catalogue_text(known: &Known, is_scripted: bool) -> String {
    let mut statistics = table(&["STATISTIC", "UNIT", "TITLE"]);
    for one in &known.statistics {
        statistics.push(vec![one.name.clone(), one.unit.clone(), one.title.clone()]);
    }
    let mut fields = table(&["FIELD", "KIND", "VALUES"]);
    for field in &known.fields {
        let values = match &field.values {
            Some(values) => values.join(" "),
            None => "-".to_owned(),
        };
        fields.push(vec![field.name.clone(), field.kind.clone(), values]);
    }
    let gap = if is_scripted { "" } else { "\n" };
    statistics.render(is_scripted, 2) + gap + &fields.render(is_scripted, 2)
}

fn table(names: &[&str]) -> Table {
    let columns = names.iter().map(|name| ((*name).to_owned(), Align::Left));
    Table::new(columns.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> Result<Asked, Failure> {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        parse(&words)
    }

    #[test]
    fn a_filter_that_is_no_json_is_told_in_plain_words() {
        let refused = asked(&["query", "-f", "%s", "nfs.ops"]).err().unwrap();
        let words = format!("{refused:?}");
        let expected = "the filter is no JSON, at its character 1: expected value";
        assert!(
            words.contains(expected) && !words.contains("line"),
            "{words}"
        );
    }

    #[test]
    fn the_command_line_of_a_query() {
        let query = ["query", "-i100ms", "-k", "5", "-c", "--last=1h", "nfs.ops"];
        let query = asked(&query).unwrap();
        assert_eq!((query.column_ms, query.keys), (100, 5));
        assert_eq!(query.operands, ["query", "nfs.ops"]);
        assert_eq!(query.when.last, Some(3600.0));
        assert!(query.form.is_csv);
        let filter = asked(&["query", "-f", r#"{"eq": ["op", "read"]}"#, "all.ops"]).unwrap();
        assert_eq!(filter.filter.unwrap()["eq"][1], "read");
        for wrong in [
            &["-cj"][..],
            &["-k", "x"],
            &["-i", "0"],
            &["-f", "{"],
            &["-i", "x"],
        ] {
            assert!(matches!(asked(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }

    #[test]
    fn intervals_are_milliseconds() {
        assert_eq!(milliseconds("1s"), Ok(1000));
        assert_eq!(milliseconds("10"), Ok(10_000));
        assert_eq!(milliseconds("10ms"), Ok(10));
        assert_eq!(milliseconds("2m"), Ok(120_000));
    }
}
