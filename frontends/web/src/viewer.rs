//! What a viewer may call, and what of the answers is hidden.
//!
//! # Mechanism
//! A viewer calls a few operations that change nothing. Names and numbers of clients, users and
//! files are replaced by pseudonyms in answers of Analytics, so a breakdown still shows that one of
//! them does most. A filter by such a name would tell whether a guess is right: it is refused.
//!
//! # Invariants
//! - An operation that is not listed here is refused, so a new one shows nothing by accident.

use crate::pseudonyms::Pseudonyms;
use serde_json::{Value, json};

/// Fields of Analytics that name clients, users and files, with their other names, and the word for
/// what they name.
const HIDDEN: [(&str, &str); 8] = [
    ("client", "client"),
    ("initiator", "client"),
    ("host", "client"),
    ("user", "user"),
    ("uid", "user"),
    ("file", "file"),
    ("filename", "file"),
    ("path", "file"),
];

/// Properties of datasets that may name clients or users. Those of users, which have a colon, may
/// say anything.
const HIDDEN_PROPERTIES: [&str; 4] = ["sharenfs", "sharesmb", "mlslabel", "keylocation"];

/// Whether a viewer may call an operation.
pub(crate) fn may_call(path: &str) -> bool {
    matches!(
        path,
        "pool/describe"
            | "pool/iostat"
            | "pool/list-activities"
            | "dataset/describe"
            | "statistics/metrics"
            | "analytics/query"
            | "analytics/operations"
            | "analytics/state"
            | "analytics/catalogue"
            | "analytics/events"
    )
}

/// Refuses what a viewer may not ask, and leaves out what is not told.
pub(crate) fn restrict(path: &str, request: &mut Value) -> Result<(), &'static str> {
    if path == "pool/describe" && request.is_object() {
        // They list damaged files.
        request["with_errors"] = json!(false);
    }
    if path.starts_with("analytics/") {
        let statement = request["statement"].as_str().unwrap_or_default();
        if filters_by_name(statement) || compares_names(&request["filter"]) {
            return Err(
                "a viewer cannot filter by client, user or file: break down by them instead, or \
                 log in as administrator",
            );
        }
    }
    Ok(())
}

/// Whether a statement mentions a hidden field but as a breakdown: `[client]` or `:client`.
fn filters_by_name(statement: &str) -> bool {
    let is_word = |text: &str| {
        text.trim()
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_/".contains(&byte))
    };
    let mut rest = statement;
    let mut outside = String::new();
    while let Some(open) = rest.find('[') {
        outside.push_str(&rest[..open]);
        outside.push(' ');
        let inner = &rest[open + 1..];
        match inner.find(']') {
            Some(close) if is_word(&inner[..close]) => rest = &inner[close + 1..],
            // A filter, whose values may have brackets: all of what follows counts.
            _ => rest = inner,
        }
    }
    outside.push_str(rest);
    let words =
        outside.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
    words.into_iter().any(is_hidden_field)
}

/// Whether a predicate compares a hidden field: the first of a list in it.
fn compares_names(filter: &Value) -> bool {
    // Its depth is bounded: serde_json reads at most 128 levels.
    match filter {
        Value::Array(parts) => {
            let names = parts
                .first()
                .and_then(Value::as_str)
                .is_some_and(is_hidden_field);
            names || parts.iter().any(compares_names)
        }
        Value::Object(members) => members.values().any(compares_names),
        _ => false,
    }
}

fn is_hidden_field(word: &str) -> bool {
    HIDDEN
        .iter()
        .any(|(field, _)| word.eq_ignore_ascii_case(field))
}

/// Hides names in an answer.
pub(crate) fn hide(path: &str, reply: &mut Value, pseudonyms: &Pseudonyms) {
    match path {
        "dataset/describe" => hide_properties(reply),
        "analytics/operations" => hide_operations(reply, pseudonyms),
        "analytics/events" => hide_events(reply),
        _ => hide_groups(reply, pseudonyms),
    }
}

fn hide_properties(reply: &mut Value) {
    let datasets = reply["datasets"].as_array_mut();
    for dataset in datasets.into_iter().flatten() {
        let properties = dataset["properties"].as_object_mut();
        for (name, property) in properties.into_iter().flatten() {
            if HIDDEN_PROPERTIES.contains(&name.as_str()) || name.contains(':') {
                property["value"] = json!({"kind": "text", "value": "hidden"});
                property["received"] = Value::Null;
            }
        }
    }
}

fn hide_operations(reply: &mut Value, pseudonyms: &Pseudonyms) {
    let operations = reply["operations"].as_array_mut();
    for operation in operations.into_iter().flatten() {
        let members = operation.as_object_mut();
        for (name, value) in members.into_iter().flatten() {
            let is_object = name == "object" && !value.is_null();
            let hidden = HIDDEN.iter().find(|(field, _)| field == name);
            match hidden {
                Some((_, kind)) if !value.is_null() => *value = pseudonym(pseudonyms, kind, value),
                None if is_object => *value = pseudonym(pseudonyms, "file", value),
                _ => {}
            }
        }
    }
}

/// The text of the history and of notes is what people typed.
fn hide_events(reply: &mut Value) {
    let events = reply["events"].as_array_mut();
    for event in events.into_iter().flatten() {
        if matches!(event["kind"].as_str(), Some("history" | "note" | "alert")) {
            event["text"] = json!("hidden");
        }
    }
}

/// Keys of a breakdown, by the fields that it is by.
fn hide_groups(reply: &mut Value, pseudonyms: &Pseudonyms) {
    let by = reply["by"].as_array().into_iter().flatten();
    let kinds: Vec<Option<&str>> = by
        .map(|field| {
            let hidden = HIDDEN.iter().find(|(name, _)| field == name);
            hidden.map(|(_, kind)| *kind)
        })
        .collect();
    let groups = reply["groups"].as_array_mut();
    for group in groups.into_iter().flatten() {
        for member in ["key", "ids"] {
            let values = group[member].as_array_mut().into_iter().flatten();
            for (value, kind) in values.zip(&kinds) {
                if let Some(kind) = kind {
                    *value = pseudonym(pseudonyms, kind, value);
                }
            }
        }
    }
}

fn pseudonym(pseudonyms: &Pseudonyms, kind: &str, value: &Value) -> Value {
    let name = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    Value::String(pseudonyms.of(kind, &name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_viewer_breaks_down_by_names_and_does_not_filter_by_them() {
        let asked = |statement: &str, filter: Value| {
            let mut request = json!({"statement": statement, "filter": filter});
            restrict("analytics/query", &mut request)
        };
        for statement in [
            "nfs.ops[client]:latency",
            "nfs.ops[ file ]",
            "nfs.ops[op=read][client][file]",
            "nfs.ops[hit/miss]",
            "",
        ] {
            assert_eq!(asked(statement, Value::Null), Ok(()), "{statement}");
        }
        for statement in [
            "nfs.ops[client=kiowa]",
            "nfs.ops[op=read and CLIENT = kiowa]",
            "nfs.ops[op=\"]\" or client=x][file]",
            "nfs.ops[not(path prefix /home)]",
            "nfs.ops[user>5]",
            "nfs.ops[client",
        ] {
            assert!(asked(statement, Value::Null).is_err(), "{statement}");
        }
        let allowed = json!({"and": [{"eq": ["op", "read"]}, {"gt": ["latency", 1000]}]});
        assert_eq!(asked("nfs.ops", allowed), Ok(()));
        let nested = json!({"or": [{"not": {"in": ["initiator", "a", "b"]}}]});
        assert!(asked("nfs.ops", nested).is_err());
    }

    #[test]
    fn names_of_clients_and_files_are_hidden_and_their_sums_are_not() {
        let pseudonyms = Pseudonyms::new();
        let mut reply = json!({
            "by": ["client", "op"],
            "groups": [{"key": ["kiowa", "read"], "ids": ["17", "1"], "sum": 5}],
        });
        hide("analytics/query", &mut reply, &pseudonyms);
        assert_eq!(
            reply["groups"][0]["key"],
            json!([pseudonyms.of("client", "kiowa"), "read"])
        );
        assert_eq!(
            reply["groups"][0]["ids"][0],
            json!(pseudonyms.of("client", "17"))
        );
        assert_eq!(reply["groups"][0]["sum"], 5);
        let mut reply = json!({"operations": [
            {"client": "kiowa", "user": 1000, "file": "/tank/home/a", "object": 9, "offset": 4096},
        ]});
        hide("analytics/operations", &mut reply, &pseudonyms);
        let text = reply.to_string();
        for secret in ["kiowa", "1000", "home", ":9"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert_eq!(reply["operations"][0]["offset"], 4096);
        let value = |text| json!({"value": {"kind": "text", "value": text}, "received": null});
        let mut reply = json!({"datasets": [{"properties": {
            "sharenfs": value("rw=10.0.0.1"), "org:owner": value("ann"), "compression": value("lz4"),
        }}]});
        hide("dataset/describe", &mut reply, &pseudonyms);
        let text = reply.to_string();
        assert!(!text.contains("10.0.0.1") && !text.contains("ann") && text.contains("lz4"));
        let mut reply = json!({"events": [{"kind": "history", "text": "zfs allow ann"}]});
        hide("analytics/events", &mut reply, &pseudonyms);
        assert_eq!(reply["events"][0]["text"], "hidden");
    }

    #[test]
    fn only_listed_operations_are_for_viewers() {
        assert!(may_call("pool/describe"));
        for path in [
            "pool/scrub",
            "dataset/list-owners",
            "statistics/kstat",
            "analytics/instrument",
            "",
        ] {
            assert!(!may_call(path), "{path}");
        }
        let mut request = json!({"names": [], "with_errors": true});
        restrict("pool/describe", &mut request).unwrap();
        assert_eq!(request["with_errors"], false);
    }
}
