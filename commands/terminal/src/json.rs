//! The frame of JSON output: the command's name and version, and one object by name.
//!
//! Output is one line. Numbers are texts unless `--json-int` asks for numbers.

use crate::output;
use crate::program::Session;
use serde_json::{Map, Value, json};
use tarn_administration::messages::Source;

/// An object whose members keep their order.
pub type Object = Map<String, Value>;

/// How numbers are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// As text.
    Text,
    /// As numbers: `--json-int`.
    Integers,
}

impl Numbers {
    /// A number.
    pub fn number(self, number: u64) -> Value {
        match self {
            Numbers::Text => Value::String(number.to_string()),
            Numbers::Integers => json!(number),
        }
    }

    /// A text that may be a number: only digits, and it fits.
    pub fn value(self, text: &str) -> Value {
        let number = text
            .parse::<u64>()
            .ok()
            .filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
        match (self, number) {
            (Numbers::Integers, Some(number)) => json!(number),
            _ => Value::String(text.to_string()),
        }
    }
}

/// A frame that says which command made it.
pub fn frame(session: &Session) -> Object {
    let mut frame = Object::new();
    frame.insert(
        "output_version".into(),
        json!({ "command": session.name(), "vers_major": 0, "vers_minor": 1 }),
    );
    frame
}

/// One property: its value and where it comes from.
pub fn property(value: &str, source: &Source, received: Option<&str>, numbers: Numbers) -> Value {
    let (kind, data) = match source {
        Source::None => ("NONE", "-"),
        Source::Default => ("DEFAULT", "-"),
        Source::Local => ("LOCAL", "-"),
        Source::Temporary => ("TEMPORARY", "-"),
        Source::Inherited(from) => ("INHERITED", from.as_str()),
        Source::Received => ("RECEIVED", received.unwrap_or("-")),
    };
    json!({ "value": numbers.value(value), "source": { "type": kind, "data": data } })
}

/// Prints the whole output.
pub fn print(frame: Object) {
    output::say(&format!("{}\n", Value::Object(frame)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_numbers_become_numbers() {
        assert_eq!(Numbers::Integers.value("512"), json!(512));
        assert_eq!(Numbers::Integers.value("1.76"), json!("1.76"));
        assert_eq!(Numbers::Integers.value(""), json!(""));
        assert_eq!(Numbers::Text.value("512"), json!("512"));
    }

    #[test]
    fn a_property_says_where_it_comes_from() {
        let source = Source::Inherited("tank".into());
        assert_eq!(
            property("on", &source, None, Numbers::Text).to_string(),
            r#"{"value":"on","source":{"type":"INHERITED","data":"tank"}}"#
        );
    }
}
