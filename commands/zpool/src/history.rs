//! `zpool history`.
//!
//! A record is a command, an internal event (which `-i` shows), or a call with what it was given.
//! With `-l` each is followed by user and host.

use crate::pools;
use tarn_administration::messages::pool::{History, HistoryRecord};
use tarn_api::client::CallError;
use tarn_terminal::failure::{Failure, Outcome, complain};
use tarn_terminal::options::{Grammar, Options};
use tarn_terminal::output;
use tarn_terminal::program::Session;
use tarn_terminal::timestamp;
use tarn_terminal::users;

const GRAMMAR: Grammar = Grammar {
    short: "li",
    long: &[],
};

/// Names of the internal events of pools before version 28, by their numbers.
const OLD_EVENTS: [&str; 41] = [
    "invalid event",
    "pool create",
    "vdev add",
    "pool remove",
    "pool destroy",
    "pool export",
    "pool import",
    "vdev attach",
    "vdev replace",
    "vdev detach",
    "vdev online",
    "vdev offline",
    "vdev upgrade",
    "pool clear",
    "pool scrub",
    "pool property set",
    "create",
    "clone",
    "destroy",
    "destroy_begin_sync",
    "inherit",
    "property set",
    "quota set",
    "permission update",
    "permission remove",
    "permission who remove",
    "promote",
    "receive",
    "rename",
    "reservation set",
    "replay_inc_sync",
    "replay_full_sync",
    "rollback",
    "snapshot",
    "filesystem version upgrade",
    "refquota set",
    "refreservation set",
    "pool scrub done",
    "user hold",
    "user release",
    "pool split",
];

/// A command line, understood.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request {
    pools: Vec<String>,
    /// `-l`.
    is_long: bool,
    /// `-i`.
    has_internal: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// What is wrong with the command line, or why nothing could be asked.
pub fn run(session: &Session, arguments: &[String]) -> Outcome {
    let request = parse(arguments)?;
    let client = session.connect()?;
    let (names, mut has_failed) = pools::names(&client, &request.pools)?;
    if names.is_empty() && request.pools.is_empty() {
        complain("no pools available");
    }
    for name in names {
        output::say(&format!("History for '{name}':\n"));
        match client.pool_history(History { name }) {
            Ok(history) => {
                let mut texts: Vec<String> = Vec::new();
                let records = history.records.iter();
                texts.extend(records.map(|record| text(&request, record, users::name)));
                output::say(&(texts.concat() + "\n"));
            }
            Err(CallError::Refused(refusal)) => {
                complain(refusal);
                has_failed = true;
            }
            Err(other) => return Err(other.into()),
        }
    }
    Ok(u8::from(has_failed))
}

fn parse(arguments: &[String]) -> Result<Request, Failure> {
    let mut request = Request::default();
    let mut options = Options::new(GRAMMAR, arguments);
    while let Some((option, _)) = options.take()? {
        match option {
            "l" => request.is_long = true,
            _ => request.has_internal = true,
        }
    }
    request.pools = options.operands();
    Ok(request)
}

/// What is printed of a record; nothing for an internal one without `-i`.
fn text(
    request: &Request,
    record: &HistoryRecord,
    user_name: impl Fn(u64) -> Option<String>,
) -> String {
    let time = time(record);
    let Some(what) = what(record, request.has_internal) else {
        return String::new();
    };
    let who = match request.is_long {
        true => who(record, user_name),
        false => String::new(),
    };
    format!("{time} {what}{who}\n")
}

fn time(record: &HistoryRecord) -> String {
    let mut text = timestamp::local(record.time_s, "%Y-%m-%d.%H:%M:%S");
    if let Some(elapsed) = record.elapsed_ns {
        text.push_str(&format!(" ({}ms)", elapsed / 1_000_000));
    }
    text
}

/// The record without its time.
fn what(record: &HistoryRecord, has_internal: bool) -> Option<String> {
    if let Some(command) = &record.command {
        return Some(command.clone());
    }
    if !has_internal {
        return None;
    }
    let txg = record.txg.unwrap_or_default();
    let said = record.internal_text.as_deref().unwrap_or_default();
    if let Some(number) = record.internal_event {
        let name = usize::try_from(number).ok();
        return Some(match name.and_then(|number| OLD_EVENTS.get(number)) {
            Some(name) => format!("[internal {name} txg:{txg}] {said}"),
            None => unrecognized(record),
        });
    }
    if let Some(name) = &record.internal_name {
        let dataset = match &record.dataset {
            Some(dataset) => format!(" {dataset} ({})", record.dataset_id.unwrap_or_default()),
            None => String::new(),
        };
        return Some(format!("[txg:{txg}] {name}{dataset} {said}"));
    }
    match &record.ioctl {
        Some(name) => Some(call(name, record)),
        None => Some(unrecognized(record)),
    }
}

/// A call, what it was given, and what it gave back.
fn call(name: &str, record: &HistoryRecord) -> String {
    let mut text = format!("ioctl {name}\n");
    if let Some(input) = &record.input {
        text.push_str(&format!("    input:\n{input}"));
    }
    if let Some(output) = &record.output {
        text.push_str(&format!("    output:\n{output}"));
    }
    if let Some(bytes) = record.output_bytes {
        text.push_str(&format!(
            "    output nvlist omitted; original size: {}KB\n",
            bytes / 1024
        ));
    }
    if let Some(number) = record.error_number {
        text.push_str(&format!("    errno: {number}\n"));
    }
    text
}

fn unrecognized(record: &HistoryRecord) -> String {
    let contents = record.contents.as_deref().unwrap_or_default();
    format!("unrecognized record:\n{contents}")
}

/// The user, and the host.
fn who(record: &HistoryRecord, user_name: impl Fn(u64) -> Option<String>) -> String {
    let mut text = " [".to_string();
    if let Some(id) = record.user_id {
        text.push_str(&format!("user {id} "));
        if let Some(name) = record.user.clone().or_else(|| user_name(id)) {
            text.push_str(&format!("({name}) "));
        }
    }
    if let Some(host) = &record.host {
        text.push_str(&format!("on {host}"));
    }
    if let Some(zone) = &record.zone {
        text.push_str(&format!(":{zone}"));
    }
    text + "]"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str, record: &HistoryRecord) -> String {
        let words: Vec<String> = line.split_whitespace().map(str::to_string).collect();
        let request = parse(&words).unwrap();
        let text = text(&request, record, |id| (id == 0).then(|| "root".to_string()));
        // The time is local; tests may run anywhere.
        match text.split_once(' ') {
            Some((_, behind)) => behind.to_string(),
            None => text,
        }
    }

    fn event() -> HistoryRecord {
        HistoryRecord {
            internal_name: Some("set".to_string()),
            internal_text: Some("ashift=12".to_string()),
            txg: Some(4),
            host: Some("host".to_string()),
            ..HistoryRecord::default()
        }
    }

    #[test]
    fn commands_are_shown_with_their_user_on_request() {
        let record = HistoryRecord {
            command: Some("zpool create tank a".to_string()),
            user_id: Some(0),
            host: Some("host".to_string()),
            zone: Some("linux".to_string()),
            ..HistoryRecord::default()
        };
        assert_eq!(shown("", &record), "zpool create tank a\n");
        assert_eq!(
            shown("-l", &record),
            "zpool create tank a [user 0 (root) on host:linux]\n"
        );
        let stranger = HistoryRecord {
            user_id: Some(4711),
            ..record
        };
        assert_eq!(
            shown("-l", &stranger),
            "zpool create tank a [user 4711 on host:linux]\n"
        );
    }

    #[test]
    fn internal_events_are_shown_on_request() {
        assert_eq!(shown("", &event()), "");
        assert_eq!(shown("-i", &event()), "[txg:4] set ashift=12\n");
        assert_eq!(shown("-il", &event()), "[txg:4] set ashift=12 [on host]\n");
        let of_dataset = HistoryRecord {
            dataset: Some("tank/a".to_string()),
            dataset_id: Some(160),
            internal_text: Some(" ".to_string()),
            ..event()
        };
        assert_eq!(
            shown("-il", &of_dataset),
            "[txg:4] set tank/a (160)   [on host]\n"
        );
        let old = HistoryRecord {
            internal_event: Some(33),
            ..event()
        };
        assert_eq!(shown("-i", &old), "[internal snapshot txg:4] ashift=12\n");
    }

    #[test]
    fn calls_are_shown_with_what_they_were_given() {
        let record = HistoryRecord {
            ioctl: Some("create".to_string()),
            elapsed_ns: Some(125_900_000),
            input: Some("        type: 2\n        props:\n".to_string()),
            user_id: Some(0),
            host: Some("host".to_string()),
            ..HistoryRecord::default()
        };
        assert_eq!(
            shown("-il", &record),
            "(125ms) ioctl create\n    input:\n        type: 2\n        props:\n [user 0 (root) on host]\n"
        );
        assert_eq!(shown("-l", &record), "");
    }
}
