//! What `tarn slow`, `tarn top` and `tarn analytics` are asked for: a statement, and a time.

use tarn_administration::messages::analytics::When;
use tarn_api::client::Client;
use tarn_terminal::failure::Failure;
use tarn_terminal::program::Session;
use tarn_terminal::{connection, timestamp};

/// Operations that clients wait for: neither Tarn's own nor commands.
pub const OF_CLIENTS: &str = "all.ops[protocol!=internal][protocol!=control]";

/// A way to the daemon, if it runs: these commands start none, as nothing was counted then.
///
/// # Errors
/// It does not run.
pub fn connect(session: &Session) -> Result<Client, Failure> {
    let instance = connection::instance()?;
    let client = Client::new(&instance.socket(), &session.command_line);
    match client.is_reachable() {
        true => Ok(client),
        false => Err(Failure::error(format!(
            "tarnd does not run: nobody answers at {}",
            instance.socket().display()
        ))),
    }
}

/// The statement that an operand means: `nfs.ops[op=read]`, or a condition alone, such as
/// `op=read and latency>10ms`, which means operations of clients.
pub fn statement_of(operand: Option<&str>) -> String {
    let is_condition = |text: &str| {
        let statistic = text.split(['[', ':']).next().unwrap_or_default();
        !statistic.contains('.') || statistic.contains(['=', '<', '>', ' ', '"', '('])
    };
    match operand.map(str::trim) {
        None | Some("") => OF_CLIENTS.to_owned(),
        Some(condition) if is_condition(condition) => format!("{OF_CLIENTS}[{condition}]"),
        Some(statement) => statement.to_owned(),
    }
}

/// Notes an option of a time: `since`, `until` or `last`.
///
/// # Errors
/// The value is no time.
pub fn note_time(when: &mut When, option: &str, value: &str) -> Result<(), Failure> {
    match option {
        "last" => when.last = Some(duration_of(value)?),
        "since" => when.from = Some(time_of(value)?),
        _ => when.until = Some(time_of(value)?),
    }
    match (when.from, when.last) {
        (Some(_), Some(_)) => Err(Failure::usage("--since and --last exclude each other")),
        _ => Ok(()),
    }
}

/// Seconds of `90`, `90s`, `10m`, `2h` or `1d`.
pub fn duration_of(text: &str) -> Result<f64, Failure> {
    let (number, unit_s) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        None => (text, 1.0),
        Some(number) if text.ends_with('s') => (number, 1.0),
        Some(number) if text.ends_with('m') => (number, 60.0),
        Some(number) if text.ends_with('h') => (number, 3600.0),
        Some(number) => (number, 86_400.0),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * unit_s);
    let seconds = seconds.filter(|seconds| *seconds > 0.0 && *seconds < 1e10);
    seconds.ok_or_else(|| Failure::usage(format!("'{text}' is no duration, as 90s, 10m or 2h is")))
}

/// Unix seconds of a number of them, of a date, or of a time of today.
fn time_of(text: &str) -> Result<f64, Failure> {
    if let Ok(seconds) = text.parse::<f64>()
        && (0.0..1e12).contains(&seconds)
    {
        return Ok(seconds);
    }
    let (minute, second) = match text.matches(':').count() {
        2 => text.rsplit_once(':').unwrap_or((text, "0")),
        _ => (text, "0"),
    };
    let today = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now_s = now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(0));
        format!("{} {minute}", timestamp::local(now_s, "%Y-%m-%d"))
    };
    let begin = timestamp::of_date(minute).or_else(|| timestamp::of_date(&today()));
    let second = second.parse::<u32>().ok().filter(|second| *second < 60);
    match (begin, second) {
        (Some((begin_s, _)), Some(second)) => {
            let time = std::time::Duration::from_secs(begin_s.saturating_add(second.into()));
            Ok(time.as_secs_f64())
        }
        _ => Err(Failure::usage(format!(
            "'{text}' is no time: write unix seconds, HH:MM, HH:MM:SS or \"YYYY-MM-DD HH:MM\""
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_alone_means_operations_of_clients() {
        assert_eq!(statement_of(None), OF_CLIENTS);
        assert_eq!(statement_of(Some("nfs.ops[op=read]")), "nfs.ops[op=read]");
        assert_eq!(
            statement_of(Some(" file=/tank/a.txt ")),
            format!("{OF_CLIENTS}[file=/tank/a.txt]")
        );
        assert_eq!(
            statement_of(Some("latency>10.5ms")),
            format!("{OF_CLIENTS}[latency>10.5ms]")
        );
    }

    #[test]
    fn times_and_durations_are_read_or_refused() {
        assert_eq!(duration_of("10m"), Ok(600.0));
        assert_eq!(duration_of("1.5h"), Ok(5400.0));
        assert_eq!(duration_of("90"), Ok(90.0));
        for wrong in ["", "m", "-1s", "0", "1w", "nan", "inf"] {
            assert!(duration_of(wrong).is_err(), "{wrong}");
        }
        let mut when = When::default();
        note_time(&mut when, "since", "1764200000.5").unwrap();
        note_time(&mut when, "until", "2026-11-20 12:00:30").unwrap();
        assert_eq!(when.from, Some(1_764_200_000.5));
        let noon = timestamp::of_date("2026-11-20 12:00").unwrap().0;
        let expected = std::time::Duration::from_secs(noon + 30).as_secs_f64();
        assert_eq!(when.until, Some(expected));
        assert!(note_time(&mut when, "last", "5m").is_err());
        assert!(time_of("12:61").is_err() && time_of("yesterday").is_err());
        assert!(time_of("12:30").is_ok() && time_of("12:30:15").is_ok());
    }
}
