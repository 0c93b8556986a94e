//! `zpool events`.
//!
//! # Mechanism
//! The daemon gives events behind a number, some hundred at a time; with `-f` an answer waits for
//! the next event, and the command asks until it is ended.

use tarn_administration::messages::pool::{
    ClearEvents, EventPair, EventRecord, EventValue, ListEvents,
};
use tarn_engine::names::check_pool_name;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;
use tarn_terminal::timestamp;

const GRAMMAR: Grammar = Grammar {
    short: "vHfc",
    long: &[],
};

/// Where the values of an event begin, and by how much those of a list in it are moved in.
const INDENT: usize = 8;

/// A command line, understood.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    /// `-v`.
    has_values: bool,
    /// `-H`.
    is_scripted: bool,
    /// `-f`.
    follows: bool,
    /// `-c`.
    clears: bool,
    pool: Option<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or the refusal.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let client = session.connect()?;
    if request.clears {
        let cleared = client.pool_clear_events(ClearEvents {})?;
        output::say(&format!("cleared {} events\n", cleared.count));
        return Ok(0);
    }
    if !request.is_scripted {
        output::say(&format!("{:<30} CLASS\n", "TIME"));
    }
    let mut after = 0;
    loop {
        let wait = request.follows;
        let answer = client.pool_list_events(ListEvents { after, wait })?;
        let Some(last) = answer.events.last() else {
            match request.follows {
                true => continue,
                false => return Ok(0),
            }
        };
        // A command that begins at the oldest event has missed none.
        if after > 0 && answer.dropped > 0 {
            output::say(&format!("dropped {} events\n", answer.dropped));
        }
        after = last.id;
        let is_meant = |event: &&EventRecord| match (&request.pool, text_of(event, "pool")) {
            (Some(asked), Some(pool)) => asked == pool,
            _ => true,
        };
        let events = answer.events.iter().filter(is_meant);
        let texts: Vec<String> = events.map(|event| text(event, &request)).collect();
        output::say(&texts.concat());
    }
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut request = Request::default();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, _)) = options.take()? {
        match option {
            "v" => request.has_values = true,
            "H" => request.is_scripted = true,
            "f" => request.follows = true,
            _ => request.clears = true,
        }
    }
    match options.operands().as_slice() {
        [] => {}
        [pool] if check_pool_name(pool, false).is_err() => {
            return Err(Failure::usage(format!("invalid pool name '{pool}'")));
        }
        [pool] => request.pool = Some(pool.clone()),
        _ => return Err(Failure::usage("too many arguments")),
    }
    let Request {
        has_values,
        is_scripted,
        follows,
        ..
    } = request;
    if request.clears && (has_values || is_scripted || follows || request.pool.is_some()) {
        return Err(Failure::usage("invalid options combined with -c"));
    }
    Ok(request)
}

/// An event as it is printed.
fn text(event: &EventRecord, request: &Request) -> String {
    let separator = if request.is_scripted { '\t' } else { ' ' };
    let class = text_of(event, "class").unwrap_or_default();
    let mut text = format!("{}{separator}{class}\n", time(event));
    if request.has_values {
        text.push_str(&values(&event.values, INDENT));
        text.push('\n');
    }
    text
}

/// When it happened: `Jun 30 1993 21:49:08.123456789`.
fn time(event: &EventRecord) -> String {
    let time = event.values.iter().find(|pair| pair.name == "time");
    let (seconds, nanoseconds) = match time.map(|pair| &pair.value) {
        Some(EventValue::Numbers(parts)) if parts.len() == 2 => (parts[0], parts[1]),
        _ => (0, 0),
    };
    let second = timestamp::local(seconds.cast_signed(), "%b %e %Y %H:%M:%S");
    format!("{second}.{nanoseconds:09}")
}

fn text_of<'a>(event: &'a EventRecord, name: &str) -> Option<&'a str> {
    let pair = event.values.iter().find(|pair| pair.name == name)?;
    match &pair.value {
        EventValue::Text(text) => Some(text),
        _ => None,
    }
}

/// The values of an event or of a list in it, a line each.
fn values(pairs: &[EventPair], indent: usize) -> String {
    let line = |pair: &EventPair| {
        let name = &pair.name;
        match &pair.value {
            EventValue::List(list) => format!(
                "{:indent$}{name} = (embedded nvlist)\n{}{:indent$}(end {name})\n",
                "",
                values(list, indent + INDENT),
                ""
            ),
            other => format!("{:indent$}{name} = {}\n", "", value(name, other)),
        }
    };
    pairs.iter().map(line).collect()
}

fn value(name: &str, value: &EventValue) -> String {
    let each =
        |texts: Vec<String>| -> String { texts.iter().map(|text| format!("{text} ")).collect() };
    match value {
        EventValue::Flag(flag) => u8::from(*flag).to_string(),
        EventValue::Number(number) => match name {
            "vdev_state" | "vdev_laststate" => format!("\"{}\" ({number:#x})", state(*number)),
            "zio_priority" => format!("{number:#x} [{}]", priority(*number)),
            _ => format!("{number:#x}"),
        },
        EventValue::Numbers(numbers) => each(
            numbers
                .iter()
                .map(|number| format!("{number:#x}"))
                .collect(),
        ),
        EventValue::Text(text) => format!("\"{text}\""),
        EventValue::Texts(texts) => each(texts.iter().map(|text| format!("\"{text}\"")).collect()),
        EventValue::List(_) | EventValue::Unknown => "<unknown>".to_string(),
    }
}

/// The state of a vdev by its number.
#[doc(alias = "zpool_state_to_name")]
const fn state(number: u64) -> &'static str {
    match number {
        0 | 1 => "OFFLINE",
        2 => "OFFLINE",
        3 => "REMOVED",
        4 => "UNAVAIL",
        5 => "FAULTED",
        6 => "DEGRADED",
        7 => "ONLINE",
        _ => "UNKNOWN",
    }
}

/// An I/O class by its number.
#[doc(alias = "zfs_valstr_zio_priority")]
fn priority(number: u64) -> &'static str {
    const NAMES: [&str; 9] = [
        "SYNC_READ",
        "SYNC_WRITE",
        "ASYNC_READ",
        "ASYNC_WRITE",
        "SCRUB",
        "REMOVAL",
        "INITIALIZING",
        "TRIM",
        "REBUILD",
    ];
    let index = usize::try_from(number).ok();
    index
        .and_then(|index| NAMES.get(index))
        .unwrap_or(&"UNKNOWN")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, Failure> {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        parse(&words)
    }

    fn pair(name: &str, value: EventValue) -> EventPair {
        EventPair {
            name: name.to_string(),
            value,
        }
    }

    fn event() -> EventRecord {
        EventRecord {
            id: 3,
            values: vec![
                pair(
                    "class",
                    EventValue::Text("ereport.fs.zfs.checksum".to_string()),
                ),
                pair(
                    "detector",
                    EventValue::List(vec![pair("version", EventValue::Number(0))]),
                ),
                pair("pool", EventValue::Text("tank".to_string())),
                pair("vdev_state", EventValue::Number(7)),
                pair("zio_err", EventValue::Number(52)),
                pair("zio_priority", EventValue::Number(4)),
                pair(
                    "vdev_spare_paths",
                    EventValue::Texts(vec!["/a".to_string(), "/b".to_string()]),
                ),
                pair("vdev_spare_guids", EventValue::Numbers(Vec::new())),
                pair("time", EventValue::Numbers(vec![741_476_948, 12_345])),
                pair("eid", EventValue::Number(3)),
            ],
        }
    }

    #[test]
    fn an_event_is_a_line_and_its_values_are_lines_on_request() {
        let line = text(&event(), &Request::default());
        // The time is local; tests may run anywhere.
        assert!(line.contains(" 1993 "), "{line}");
        assert!(
            line.ends_with(".000012345 ereport.fs.zfs.checksum\n"),
            "{line}"
        );
        let request = Request {
            has_values: true,
            is_scripted: true,
            ..Request::default()
        };
        let text = text(&event(), &request);
        let (line, rest) = text.split_once('\n').unwrap();
        assert!(
            line.ends_with(".000012345\tereport.fs.zfs.checksum"),
            "{line}"
        );
        let expected = concat!(
            "        class = \"ereport.fs.zfs.checksum\"\n",
            "        detector = (embedded nvlist)\n",
            "                version = 0x0\n",
            "        (end detector)\n",
            "        pool = \"tank\"\n",
            "        vdev_state = \"ONLINE\" (0x7)\n",
            "        zio_err = 0x34\n",
            "        zio_priority = 0x4 [SCRUB]\n",
            "        vdev_spare_paths = \"/a\" \"/b\" \n",
            "        vdev_spare_guids = \n",
            "        time = 0x2c320a54 0x3039 \n",
            "        eid = 0x3\n",
            "\n",
        );
        assert_eq!(rest, expected);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert_eq!(parsed("-vf tank").unwrap().pool.as_deref(), Some("tank"));
        assert!(parsed("-c").unwrap().clears);
        for (line, told) in [
            ("-cH", "invalid options combined with -c"),
            ("-c tank", "invalid options combined with -c"),
            ("tank/fs", "invalid pool name 'tank/fs'"),
            ("/tmp", "invalid pool name '/tmp'"),
            ("a b", "too many arguments"),
            ("-x", "invalid option 'x'"),
        ] {
            assert_eq!(parsed(line), Err(Failure::usage(told)), "{line}");
        }
    }
}
