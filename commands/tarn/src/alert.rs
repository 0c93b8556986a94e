//! `tarn alert`: conditions on statistics that are looked at all the time.

use crate::asked_operations::{connect, duration_of};
use serde_json::json;
use tarn_administration::messages::analytics::{
    AddAlert, Alert, AlertMeasure, AlertSide, AlertState, AlertStatus, ListAlerts, RemoveAlert,
};
use tarn_exports::PostTarget;
use tarn_terminal::failure::{Failure, Outcome};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::program::Session;
use tarn_terminal::table::{Align, Table};
use tarn_terminal::{json, output, timestamp};

/// The usage.
pub const USAGE: &str = "\talert add [-w window] [-d duration] [-c clear] [-C duration]\n\
\t    [-r duration] [-u url] [-x program] [-S duration] [-o statement]\n\
\t    name measure statement '>'|'<' threshold\n\
\talert list [-Hj]\n\
\talert show [-j] name\n\
\talert remove name\n";

/// What follows it.
pub const NOTES: &str = "\n\
\t-w window    the value is of so long; 1m unless given\n\
\t-d duration  it fires when the value was bad for so long\n\
\t-c clear     it ends within this value, not at the threshold\n\
\t-C duration  it ends when the value was good for so long\n\
\t-r duration  it is told again while it lasts\n\
\t-u url       each notice is posted there as JSON, by http\n\
\t-x program   is run for each notice, with ALERT_NAME, ALERT_CHANGE, ALERT_TEXT and more in\n\
\t             its environment\n\
\t-S duration  of share: operations that took longer are counted\n\
\t-o statement of ratio: what is divided by\n\
\t-H           tabs, and no heading\n\
\t-j           JSON\n\
\nMeasures: rate (a second), mean, p50, p90, p99, p999, max (of :latency or :size), share (of\n\
operations slower than -S), ratio (to -o), value (of a sampled statistic).\n\
Thresholds: 10ms, 1.5s, 64K, 0.01.\n\
\n\ttarn alert add -d 30s slow-reads p99 'nfs.ops[op=read]:latency' '>' 10ms\n\
\nRoot and the user of tarnd may use it.\n\
\nExit codes: 0 done, 1 not done, 2 wrong usage.\n";

const GRAMMAR: Grammar = Grammar {
    short: ":w:d:c:C:r:u:x:S:o:Hj",
    long: &[("json", "j")],
};

/// What the options say.
#[derive(Debug, Clone, Default)]
struct Asked {
    window_s: Option<u32>,
    for_s: u32,
    clear: Option<String>,
    clear_for_s: u32,
    repeat_s: u32,
    webhook: Option<String>,
    program: Option<String>,
    slower_ns: Option<u64>,
    of: Option<String>,
    is_scripted: bool,
    is_json: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why it was not done.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let (asked, operands) = parse(arguments)?;
    let operands: Vec<&str> = operands.iter().map(String::as_str).collect();
    match operands.as_slice() {
        ["add", name, measure, statement, side, threshold] => {
            let alert = alert_of(&asked, [name, measure, statement, side, threshold])?;
            connect(session)?.analytics_add_alert(AddAlert { alert })?;
            Ok(0)
        }
        ["add", ..] => Err(Failure::usage(
            "an alert has a name, a measure, a statement, '>' or '<', and a threshold",
        )),
        ["list"] => list(session, &asked),
        ["show", name] => show(session, &asked, name),
        ["remove", name] => {
            let name = (*name).to_owned();
            connect(session)?.analytics_remove_alert(RemoveAlert { name })?;
            Ok(0)
        }
        ["show" | "remove"] => Err(Failure::usage("missing name")),
        ["list" | "show" | "remove", ..] => Err(Failure::usage("too many arguments")),
        [] => Err(Failure::usage("missing subcommand")),
        [other, ..] => Err(Failure::usage(format!("unknown subcommand '{other}'"))),
    }
}

fn parse(arguments: &[String]) -> Result<(Asked, Vec<String>), Failure> {
    let mut options = Options::new(GRAMMAR, arguments);
    let mut asked = Asked::default();
    while let Some((name, value)) = options.take()? {
        match name {
            "w" => asked.window_s = Some(seconds(&value)?),
            "d" => asked.for_s = seconds(&value)?,
            "C" => asked.clear_for_s = seconds(&value)?,
            "r" => asked.repeat_s = seconds(&value)?,
            "c" => asked.clear = Some(value),
            "u" => {
                let wrong = |error: tarn_exports::BadUrl| Failure::usage(error.to_string());
                PostTarget::parse(&value).map_err(wrong)?;
                asked.webhook = Some(value);
            }
            "x" => asked.program = Some(value),
            "S" => asked.slower_ns = Some(nanoseconds(&value)?),
            "o" => asked.of = Some(value),
            "H" => asked.is_scripted = true,
            _ => asked.is_json = true,
        }
    }
    Ok((asked, options.operands()))
}

/// Whole seconds of a duration.
fn seconds(text: &str) -> Result<u32, Failure> {
    let seconds = duration_of(text)?;
    let wrong = || Failure::usage(format!("'{text}' is not whole seconds"));
    if seconds.fract() != 0.0 {
        return Err(wrong());
    }
    let seconds = std::time::Duration::try_from_secs_f64(seconds).map_err(|_| wrong())?;
    u32::try_from(seconds.as_secs()).map_err(|_| wrong())
}

fn nanoseconds(text: &str) -> Result<u64, Failure> {
    let number = number_of(text)?;
    let duration = std::time::Duration::try_from_secs_f64(number / 1e9).ok();
    let nanoseconds = duration.and_then(|duration| u64::try_from(duration.as_nanos()).ok());
    nanoseconds.ok_or_else(|| Failure::usage(format!("'{text}' is no duration, as 10ms is")))
}

/// A threshold: `10ms` in nanoseconds, `64K` in bytes, or a number.
fn number_of(text: &str) -> Result<f64, Failure> {
    const UNITS: [(&str, f64); 9] = [
        ("ns", 1.0),
        ("us", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("K", 1024.0),
        ("M", 1_048_576.0),
        ("G", 1_073_741_824.0),
        ("T", 1_099_511_627_776.0),
        ("%", 0.01),
    ];
    let unit = UNITS
        .into_iter()
        .find_map(|(unit, size)| Some((text.strip_suffix(unit)?, size)));
    let (number, size) = unit.unwrap_or((text, 1.0));
    let number = number.parse::<f64>().ok().map(|number| number * size);
    let number = number.filter(|number| number.is_finite());
    number.ok_or_else(|| {
        Failure::usage(format!(
            "'{text}' is no threshold, as 10ms, 64K and 0.01 are"
        ))
    })
}

fn alert_of(asked: &Asked, operands: [&str; 5]) -> Result<Alert, Failure> {
    let [name, measure, statement, side, threshold] = operands;
    let measure = serde_json::from_value::<AlertMeasure>(json!(measure)).map_err(|_| {
        Failure::usage(format!(
            "unknown measure '{measure}': rate, mean, p50, p90, p99, p999, max, share, ratio or value"
        ))
    })?;
    let side = match side {
        ">" => AlertSide::Above,
        "<" => AlertSide::Below,
        other => return Err(Failure::usage(format!("'{other}' is neither '>' nor '<'"))),
    };
    let program = asked.program.as_deref().map(|program| {
        let absolute = std::path::absolute(program);
        let absolute = absolute.map_err(|error| Failure::error(format!("'{program}': {error}")));
        absolute.map(|path| path.display().to_string())
    });
    Ok(Alert {
        name: name.to_owned(),
        statement: statement.to_owned(),
        measure,
        slower_ns: asked.slower_ns,
        of: asked.of.clone(),
        side,
        threshold: number_of(threshold)?,
        clear: asked.clear.as_deref().map(number_of).transpose()?,
        window_s: asked.window_s.unwrap_or(60),
        for_s: asked.for_s,
        clear_for_s: asked.clear_for_s,
        repeat_s: asked.repeat_s,
        webhook: asked.webhook.clone(),
        program: program.transpose()?,
    })
}

fn state_word(state: AlertState) -> &'static str {
    match state {
        AlertState::Quiet => "quiet",
        AlertState::Pending => "pending",
        AlertState::Firing => "firing",
    }
}

fn since(status: &AlertStatus) -> String {
    status.since_ms.map_or("-".to_owned(), |since_ms| {
        let seconds = i64::try_from(since_ms / 1000).unwrap_or(0);
        timestamp::local(seconds, "%Y-%m-%d %H:%M:%S")
    })
}

fn value(status: &AlertStatus) -> String {
    status
        .value
        .map_or("-".to_owned(), |value| status.alert.shown(value))
}

fn list(session: &Session, asked: &Asked) -> Outcome {
    let alerts = connect(session)?
        .analytics_list_alerts(ListAlerts {})?
        .alerts;
    if asked.is_json {
        let mut out = json::frame(session);
        out.insert("alerts".into(), json!(alerts));
        json::print(out);
        return Ok(0);
    }
    let columns = ["NAME", "STATE", "VALUE", "SINCE", "CONDITION"];
    let columns = columns.map(|name| (name.to_owned(), Align::Left)).to_vec();
    let mut table = Table::new(columns);
    for status in &alerts {
        table.push(vec![
            status.alert.name.clone(),
            state_word(status.state).to_owned(),
            value(status),
            since(status),
            status.alert.condition(),
        ]);
    }
    output::say(&table.render(asked.is_scripted, 2));
    Ok(0)
}

fn show(session: &Session, asked: &Asked, name: &str) -> Outcome {
    let alerts = connect(session)?
        .analytics_list_alerts(ListAlerts {})?
        .alerts;
    let status = alerts.into_iter().find(|status| status.alert.name == name);
    let status = status.ok_or_else(|| Failure::error(format!("no alert '{name}'")))?;
    if asked.is_json {
        let mut out = json::frame(session);
        out.insert("alert".into(), json!(status));
        json::print(out);
        return Ok(0);
    }
    let alert = &status.alert;
    let seconds = |seconds: u32| format!("{seconds} s");
    let mut lines = vec![
        ("name", alert.name.clone()),
        ("condition", alert.condition()),
        ("state", state_word(status.state).to_owned()),
        ("since", since(&status)),
        ("value", value(&status)),
        ("window", seconds(alert.window_s)),
        ("fires after", seconds(alert.for_s)),
        (
            "ends within",
            alert.shown(alert.clear.unwrap_or(alert.threshold)),
        ),
        ("ends after", seconds(alert.clear_for_s)),
        ("told again after", seconds(alert.repeat_s)),
    ];
    lines.extend(alert.webhook.clone().map(|webhook| ("webhook", webhook)));
    lines.extend(alert.program.clone().map(|program| ("program", program)));
    lines.extend(status.problem.clone().map(|problem| ("problem", problem)));
    let mut table = Table::new(vec![("".into(), Align::Left), ("".into(), Align::Left)]);
    for (name, value) in lines {
        table.push(vec![name.to_owned(), value]);
    }
    output::say(&table.render(true, 2));
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_is_made_of_words() {
        let words = [
            "-d",
            "30s",
            "-C2m",
            "-c",
            "5ms",
            "-S",
            "1s",
            "-x",
            "/bin/true",
            "add",
        ];
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let (asked, operands) = parse(&words).unwrap();
        assert_eq!(operands, ["add"]);
        let alert = alert_of(&asked, ["slow", "p99", "nfs.ops:latency", ">", "10ms"]).unwrap();
        assert_eq!(
            (alert.for_s, alert.clear_for_s, alert.window_s),
            (30, 120, 60)
        );
        assert_eq!((alert.threshold, alert.clear), (1e7, Some(5e6)));
        assert_eq!(alert.slower_ns, Some(1_000_000_000));
        assert_eq!(alert.program.as_deref(), Some("/bin/true"));
        assert!(alert_of(&asked, ["a", "p98", "nfs.ops", ">", "1"]).is_err());
        assert!(alert_of(&asked, ["a", "p99", "nfs.ops", "=", "1"]).is_err());
    }

    #[test]
    fn thresholds_have_units() {
        assert_eq!(number_of("64K"), Ok(65_536.0));
        assert_eq!(number_of("1%"), Ok(0.01));
        assert_eq!(number_of("-3"), Ok(-3.0));
        for wrong in ["", "ms", "10parsec", "nan", "inf"] {
            assert!(number_of(wrong).is_err(), "{wrong}");
        }
        assert!(seconds("1.5").is_err());
    }
}
