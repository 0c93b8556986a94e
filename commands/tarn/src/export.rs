//! `tarn export`: what is counted, in the forms of other programs.

use crate::analytics::{filter_of, milliseconds};
use crate::analytics_tables::columns_csv;
use crate::asked_operations::{connect, note_time};
use serde_json::json;
use std::io::BufRead;
use std::time::{SystemTime, UNIX_EPOCH};
use tarn_administration::messages::analytics::{Query, When};
use tarn_administration::messages::pool::Describe;
use tarn_administration::messages::statistics::{IoSample, Metrics};
use tarn_api::client::{CallError, Client};
use tarn_exports::{
    LineOptions, ScrapeForm, answer_lines, line_tags, metric_lines, pool_lines, prometheus_text,
};
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;

/// The usage.
pub const USAGE: &str = "\texport [-f prometheus|openmetrics|influx|json] [-t tags] [--execd]\n\
\t    [--no-histograms] [--sum-histogram-buckets] [--signed-int]\n\
\texport [-f csv|json|influx] [-k keys] [-i interval] [-w filter] [-t tags]\n\
\t    [--last duration | --since time] [--until time] [--signed-int] statement\n";

/// What follows it.
pub const NOTES: &str = "\n\
Without a statement: all metrics, as they are now.\n\n\
\t-f prometheus   Prometheus' text, unless another form is given\n\
\t-f openmetrics  the same by the rules of OpenMetrics\n\
\t-f influx       InfluxDB's line protocol: the measurements of zpool_influxdb, then all\n\
\t                metrics\n\
\t-f json         the reply of the control interface\n\
\t-t tags         tags of each line of InfluxDB: host=nas1,site=north\n\
\t--execd         print them once for each line of the input, as telegraf's execd asks\n\
\t--no-histograms\n\
\t                no lines for buckets\n\
\t--sum-histogram-buckets\n\
\t                each bucket has what is in those below it, too\n\
\t--signed-int    whole numbers have an i, not a u: InfluxDB 1 takes no other\n\
\nWith a statement: columns of time, as 'analytics query' asks for them.\n\n\
\t-f csv          a line for each column of time and key, unless another form is given\n\
\t-f influx       a point for each of them\n\
\t-f json         the reply of the control interface\n\
\t-k keys, -i interval, --last, --since, --until\n\
\t                as for 'analytics query'; -w filter is its -f\n\
\nWho may list pools may export metrics; statements are for root and the user of tarnd.\n\
Prometheus scrapes http://127.0.0.1:8470/metrics with the token of 'tarn web token -v'.\n\
\nExit codes: 0 done, 1 not done, 2 wrong usage.\n";

const GRAMMAR: Grammar = Grammar {
    short: ":f:t:k:i:w:l:s:u:enbI",
    long: &[
        ("format", "f"),
        ("tags", "t"),
        ("keys", "k"),
        ("interval", "i"),
        ("filter", "w"),
        ("last", "l"),
        ("since", "s"),
        ("until", "u"),
        ("execd", "e"),
        ("no-histograms", "n"),
        ("sum-histogram-buckets", "b"),
        ("signed-int", "I"),
    ],
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Prometheus,
    OpenMetrics,
    Influx,
    Csv,
    Json,
}

/// What the command line says.
#[derive(Debug, Clone)]
struct Asked {
    form: Option<Form>,
    lines: LineOptions,
    repeats: bool,
    when: Option<When>,
    keys: Option<u32>,
    column_ms: Option<u64>,
    filter: Option<serde_json::Value>,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why there is nothing to print.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let (asked, operands) = parse(arguments)?;
    match operands.as_slice() {
        [] => metrics(session, &asked),
        [statement] => answer(session, statement, &asked),
        _ => Err(Failure::usage("too many arguments: quote the statement")),
    }
}

fn parse(arguments: &[String]) -> Result<(Asked, Vec<String>), Failure> {
    let mut options = Options::new(GRAMMAR, arguments);
    let mut asked = Asked {
        form: None,
        lines: LineOptions::default(),
        repeats: false,
        when: None,
        keys: None,
        column_ms: None,
        filter: None,
    };
    while let Some((name, value)) = options.take()? {
        match name {
            "f" => asked.form = Some(form_of(&value)?),
            "t" => asked.lines.tags = tags_of(&value)?,
            "e" => asked.repeats = true,
            "n" => asked.lines.has_histograms = false,
            "b" => asked.lines.sums_buckets = true,
            "I" => asked.lines.is_signed = true,
            "l" => note_time(asked.when.get_or_insert_default(), "last", &value)?,
            "s" => note_time(asked.when.get_or_insert_default(), "since", &value)?,
            "u" => note_time(asked.when.get_or_insert_default(), "until", &value)?,
            "i" => asked.column_ms = Some(milliseconds(&value)?),
            "k" => {
                let keys = value.parse();
                let wrong = |_| Failure::usage(format!("'{value}' is no count"));
                asked.keys = Some(keys.map_err(wrong)?);
            }
            _ => asked.filter = Some(filter_of(&value)?),
        }
    }
    Ok((asked, options.operands()))
}

fn form_of(name: &str) -> Result<Form, Failure> {
    match name {
        "prometheus" => Ok(Form::Prometheus),
        "openmetrics" => Ok(Form::OpenMetrics),
        "influx" => Ok(Form::Influx),
        "csv" => Ok(Form::Csv),
        "json" => Ok(Form::Json),
        other => Err(Failure::usage(format!(
            "unknown form '{other}': prometheus, openmetrics, influx, csv or json"
        ))),
    }
}

/// Tags as they are written into each line.
pub fn tags_of(text: &str) -> Result<String, Failure> {
    line_tags(text)
        .ok_or_else(|| Failure::usage(format!("'{text}' are no tags, as host=nas1,site=north are")))
}

fn metrics(session: &Session, asked: &Asked) -> Outcome {
    let of_statements = asked.when.is_some()
        || asked.keys.is_some()
        || asked.column_ms.is_some()
        || asked.filter.is_some();
    if of_statements {
        return Err(Failure::usage(
            "-k, -i, -w and times are of a statement: 'tarn export -f csv --last 1h nfs.ops'",
        ));
    }
    let form = asked.form.unwrap_or(Form::Prometheus);
    if form == Form::Csv {
        return Err(Failure::usage("csv is a form of a statement's columns"));
    }
    if !asked.repeats {
        output::say(&metrics_text(&connect(session)?, form, &asked.lines)?);
        return Ok(0);
    }
    for line in std::io::stdin().lock().lines() {
        line.map_err(|error| Failure::error(format!("cannot read the input: {error}")))?;
        output::say(&metrics_text(&connect(session)?, form, &asked.lines)?);
    }
    Ok(0)
}

fn metrics_text(client: &Client, form: Form, lines: &LineOptions) -> Result<String, CallError> {
    let metrics = client.statistics_metrics(Metrics {})?;
    Ok(match form {
        Form::OpenMetrics => prometheus_text(&metrics, ScrapeForm::OpenMetrics),
        Form::Influx => {
            let mut text = lines_of_pools(client, None, lines)?;
            text.push_str(&metric_lines(&metrics, lines, now_ns()));
            text
        }
        Form::Json => format!("{}\n", json!(metrics)),
        Form::Prometheus | Form::Csv => prometheus_text(&metrics, ScrapeForm::Text),
    })
}

/// What `zpool_influxdb` prints of one pool, or of all.
pub fn lines_of_pools(
    client: &Client,
    pool: Option<&str>,
    lines: &LineOptions,
) -> Result<String, CallError> {
    let described = client.pool_describe(Describe::default())?;
    let sampled = client.pool_iostat(IoSample::default())?;
    let mut text = String::new();
    for described in &described.pools {
        let is_meant = pool.is_none_or(|pool| pool == described.name);
        let sample = sampled
            .pools
            .iter()
            .find(|sample| sample.name == described.name);
        // One that was exported between the two calls is left out.
        if let (true, Some(sample)) = (is_meant, sample) {
            text.push_str(&pool_lines(described, sample, lines, now_ns()));
        }
    }
    Ok(text)
}

/// Nanoseconds since 1970.
fn now_ns() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

fn answer(session: &Session, statement: &str, asked: &Asked) -> Outcome {
    let form = asked.form.unwrap_or(Form::Csv);
    if matches!(form, Form::Prometheus | Form::OpenMetrics) {
        return Err(Failure::usage(
            "Prometheus takes metrics as they are now, and no columns of time: csv, json or influx",
        ));
    }
    if asked.repeats {
        return Err(Failure::usage(
            "--execd is for metrics, not for a statement",
        ));
    }
    let mut request = Query::of(statement, asked.when.unwrap_or_default());
    request.filter = asked.filter.clone();
    request.column_ms = asked.column_ms.unwrap_or(request.column_ms);
    request.keys = asked.keys.unwrap_or(request.keys);
    let answer = connect(session)?.analytics_query(request)?;
    output::say(&match form {
        Form::Influx => answer_lines(&answer, &asked.lines),
        Form::Json => format!("{}\n", json!(answer)),
        Form::Csv | Form::Prometheus | Form::OpenMetrics => columns_csv(&answer),
    });
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_metrics_and_of_statements_are_told_apart() {
        let parsed = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            parse(&words)
        };
        let words = ["-f", "influx", "--signed-int", "--no-hist", "--tags=host=a"];
        let (asked, operands) = parsed(&words).unwrap();
        assert_eq!((asked.form, operands.len()), (Some(Form::Influx), 0));
        assert!(asked.lines.is_signed && !asked.lines.has_histograms);
        assert_eq!(asked.lines.tags, "host=a");
        let (asked, operands) = parsed(&["--last", "5m", "-i10s", "nfs.ops"]).unwrap();
        assert_eq!(asked.when.and_then(|when| when.last), Some(300.0));
        assert_eq!(
            (asked.column_ms, operands),
            (Some(10_000), vec!["nfs.ops".to_owned()])
        );
        assert!(parsed(&["-f", "parquet"]).is_err());
    }
}
