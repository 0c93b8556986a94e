//! `tarn slow`: the slowest operations that are held, each with what its time went to.

use crate::asked_operations::{connect, note_time, statement_of};
use serde_json::json;
use tarn_administration::messages::analytics::{OperationList, Operations, Order, Told, When};
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::number::{nice_bytes, nice_time};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;
use tarn_terminal::{json, output, timestamp};

/// The usage.
pub const USAGE: &str = "\tslow [-Hjp] [-n count] [--last duration | --since time] [--until time]\n\
\t    [statement | condition]\n";

/// What follows it.
pub const NOTES: &str = "\n\
\t-H              a line for each operation, with tabs and without a heading\n\
\t-j              JSON\n\
\t-n count        so many operations; 10 unless given\n\
\t-p              exact numbers: nanoseconds, bytes, unix milliseconds\n\
\t--last 10m      of the last ten minutes; of all that are held unless a time is given\n\
\t--since time, --until time\n\
\t                unix seconds, HH:MM, HH:MM:SS or \"YYYY-MM-DD HH:MM\"\n\
\nA condition is such as 'op=read and latency>10ms' or 'client=kiowa', a statement such as\n\
'nfs.ops[op=write][file=/tank/a]'; 'tarn analytics catalogue' lists what they are made of.\n\
Without a statement operations of clients are meant, 'all.ops' means Tarn's own, too.\n\
\nThe times of the stages and 'other' add up to the latency, unless several threads worked\n\
for the operation at once.\n\
\nExit codes: 0 done, 1 not done, 2 wrong usage.\n";

const GRAMMAR: Grammar = Grammar {
    short: ":Hjpn:l:s:u:",
    long: &[
        ("json", "j"),
        ("count", "n"),
        ("last", "l"),
        ("since", "s"),
        ("until", "u"),
    ],
};

const USUAL_COUNT: u32 = 10;

/// The stages in the order in which a request comes by them.
const STAGES: [&str; 9] = [
    "protocol",
    "tx_wait",
    "cache",
    "log",
    "device_queue",
    "device",
    "transform",
    "reply",
    "lock",
];

#[derive(Clone, Copy, Debug, Default)]
struct Form {
    is_scripted: bool,
    is_exact: bool,
    is_json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why there is no answer.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let (request, form) = parse(arguments)?;
    let list = connect(session)?.analytics_operations(request)?;
    if form.is_json {
        let mut out = json::frame(session);
        out.insert("slow".into(), json!(list));
        json::print(out);
    } else if form.is_scripted {
        output::say(&lines(&list, form.is_exact));
    } else {
        output::say(&stories(&list, form.is_exact));
    }
    Ok(0)
}

fn parse(arguments: &[String]) -> Result<(Operations, Form), Failure> {
    let mut options = Options::new(GRAMMAR, arguments);
    let (mut form, mut when, mut limit) = (Form::default(), When::default(), USUAL_COUNT);
    while let Some((name, value)) = options.take()? {
        match name {
            "H" => form.is_scripted = true,
            "p" => form.is_exact = true,
            "j" => form.is_json = true,
            "l" => note_time(&mut when, "last", &value)?,
            "s" => note_time(&mut when, "since", &value)?,
            "u" => note_time(&mut when, "until", &value)?,
            _ => {
                let count = value.parse().ok().filter(|count| *count > 0);
                limit = count.ok_or_else(|| Failure::usage(format!("'{value}' is no count")))?;
            }
        }
    }
    let operands = options.operands();
    let statement = match operands.as_slice() {
        [] => statement_of(None),
        [one] => statement_of(Some(one)),
        _ => return Err(Failure::usage("too many arguments: quote the condition")),
    };
    let request = Operations {
        statement,
        filter: None,
        when,
        order: Order::Slowest,
        limit,
        with_stages: false,
    };
    Ok((request, form))
}

/// Operations for people: a line and its story each.
fn stories(list: &OperationList, is_exact: bool) -> String {
    let time = |nanoseconds: u64| match is_exact {
        true => format!("{nanoseconds}ns"),
        false => nice_time(nanoseconds),
    };
    let spread = &list.percentiles;
    let mut text = match list.count {
        0 => "no such operations are held\n".to_owned(),
        count => format!(
            "{count} operations: half within {}, 99% within {}, 99.9% within {}, all within {}\n",
            time(spread.p50),
            time(spread.p99),
            time(spread.p999),
            time(spread.max)
        ),
    };
    for told in &list.operations {
        text += &story(told, is_exact, &time);
    }
    text
}

fn story(told: &Told, is_exact: bool, time: &dyn Fn(u64) -> String) -> String {
    let bytes = |bytes: u64| match is_exact {
        true => bytes.to_string(),
        false => nice_bytes(bytes),
    };
    let mut head = format!(
        "\n{}  {}  {} {}  {}",
        time_of(told.ended_ms, is_exact),
        time(told.latency_ns),
        told.protocol,
        told.operation,
        told.client
    );
    if let Some(file) = &told.file {
        head += &format!("  {}", printable(file));
    }
    if told.size > 0 {
        head += &format!("  {} at {}", bytes(told.size), bytes(told.offset));
    }
    let mut about = format!("cause {}", told.cause);
    if let Some(error) = &told.error {
        about += &format!(" {error}");
    }
    if !told.outcomes.is_empty() {
        about += &format!(" ({})", told.outcomes.join(", "));
    }
    about += &format!(", user {}", told.user);
    if !told.dataset.is_empty() {
        about += &format!(", dataset {}", told.dataset);
    }
    let stages = STAGES.iter().filter_map(|name| {
        let took = told.stages.get(*name)?;
        Some(format!("{name} {}", time(*took)))
    });
    let mut stages: Vec<String> = stages.collect();
    stages.push(format!("other {}", time(told.unaccounted_ns)));
    format!("{head}\n    {about}\n    {}\n", stages.join(", "))
}

/// A line for each operation, with tabs.
fn lines(list: &OperationList, is_exact: bool) -> String {
    let time = |nanoseconds: u64| match is_exact {
        true => nanoseconds.to_string(),
        false => nice_time(nanoseconds),
    };
    let bytes = |bytes: u64| match is_exact {
        true => bytes.to_string(),
        false => nice_bytes(bytes),
    };
    let of = |told: &Told| {
        let or_dash = |text: &str| match text {
            "" => "-".to_owned(),
            text => printable(text),
        };
        let mut cells = vec![
            time_of(told.ended_ms, is_exact),
            time(told.latency_ns),
            told.protocol.clone(),
            told.operation.clone(),
            or_dash(&told.client),
            or_dash(&told.user),
            or_dash(&told.dataset),
            told.object.to_string(),
            or_dash(told.file.as_deref().unwrap_or("")),
            bytes(told.offset),
            bytes(told.size),
            told.cause.clone(),
            or_dash(&told.outcomes.join(",")),
        ];
        let stages = STAGES.iter();
        cells.extend(stages.map(|name| time(told.stages.get(*name).copied().unwrap_or(0))));
        cells.push(time(told.unaccounted_ns));
        cells.push(or_dash(told.error.as_deref().unwrap_or("")));
        cells.join("\t") + "\n"
    };
    list.operations.iter().map(of).collect()
}

/// The time of day with milliseconds; exact: unix milliseconds.
fn time_of(unix_ms: f64, is_exact: bool) -> String {
    if is_exact {
        return format!("{unix_ms:.3}");
    }
    let time = std::time::Duration::try_from_secs_f64(unix_ms / 1000.0).unwrap_or_default();
    let seconds = i64::try_from(time.as_secs()).unwrap_or(0);
    let day = timestamp::local(seconds, "%Y-%m-%d %H:%M:%S");
    format!("{day}.{:03}", time.subsec_millis())
}

/// Text without what would move the cursor.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|character| match character.is_control() {
            true => '?',
            false => character,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &[&str]) -> Result<(Operations, Form), Failure> {
        let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
        parse(&words)
    }

    fn told() -> OperationList {
        let told = Told {
            ended_ms: 1_764_200_000_123.0,
            latency_ns: 103_000_000,
            operation: "write".into(),
            protocol: "nfs3".into(),
            client: "kiowa (10.0.0.1)".into(),
            user: "ann".into(),
            dataset: "tank/home".into(),
            object: 42,
            file: Some("/tank/home/a\nb".into()),
            offset: 8192,
            size: 131_072,
            error: Some("EDQUOT".into()),
            cause: "throttled".into(),
            outcomes: vec!["disk".into(), "throttled".into()],
            stages: [("tx_wait".into(), 80_000_000), ("log".into(), 20_000_000)].into(),
            unaccounted_ns: 3_000_000,
        };
        OperationList {
            count: 7,
            operations: vec![told],
            ..OperationList::default()
        }
    }

    #[test]
    fn the_command_line_is_a_time_a_count_and_a_condition() {
        let (request, form) = asked(&["-n5", "--last", "10m", "op=read and size>4k"]).unwrap();
        assert_eq!((request.limit, request.when.last), (5, Some(600.0)));
        assert!(request.statement.ends_with("[op=read and size>4k]"));
        assert!(!form.is_json);
        for wrong in [
            &["-n0"][..],
            &["-x"],
            &["op=read", "and"],
            &["--last", "soon"],
        ] {
            assert!(matches!(asked(wrong), Err(Failure::Usage(_))), "{wrong:?}");
        }
    }

    #[test]
    fn a_story_names_client_and_file_and_its_stages_add_up() {
        let text = stories(&told(), false);
        assert!(text.starts_with("7 operations: "), "{text}");
        let line = "103ms  nfs3 write  kiowa (10.0.0.1)  /tank/home/a?b  128K at 8K\n";
        assert!(text.contains(line), "{text}");
        let about = "    cause throttled EDQUOT (disk, throttled), user ann, dataset tank/home\n";
        assert!(text.contains(about), "{text}");
        assert!(
            text.ends_with("    tx_wait 80ms, log 20ms, other 3ms\n"),
            "{text}"
        );
    }

    #[test]
    fn scripts_get_one_line_of_exact_numbers() {
        let text = lines(&told(), true);
        let mut cells: Vec<&str> = text.trim_end().split('\t').collect();
        assert_eq!(cells.len(), 13 + STAGES.len() + 2);
        assert_eq!(cells.pop(), Some("EDQUOT"));
        assert_eq!(cells[..3], ["1764200000123.000", "103000000", "nfs3"]);
        assert_eq!(cells[12], "disk,throttled");
        let stages = cells[13..].iter().map(|cell| cell.parse::<u64>().unwrap());
        assert_eq!(stages.sum::<u64>(), 103_000_000);
    }
}
