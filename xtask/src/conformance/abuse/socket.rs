//! Requests straight to the control socket: hostile programs do not use our commands.
//!
//! # Mechanism
//! The daemon describes its operations (`/v1/openapi.json`); requests are made from that
//! description, so that none is missing. Strings are sound or hostile words by the names of their
//! fields, numbers come from the edges of their types. Then some requests are broken as such: cut,
//! of wrong types, very large, nested very deep, with a wrong length, or no HTTP at all.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tarn_workload::twister::Twister;

use super::words::{Kind, Words};
use crate::workspace::Outcome;

/// How deep values are nested that are made of a description.
const DEPTH_MAX: usize = 12;

/// What the daemon answered.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The status; none where it hung up without one.
    pub status: Option<u16>,
    /// What follows the headers.
    pub body: String,
}

/// Bytes that go over the socket, and whether the caller says that there are no more.
pub struct Request {
    bytes: Vec<u8>,
    is_all: bool,
}

/// Sends bytes to a socket and reads until the daemon hangs up, or for as long as `limit`.
pub fn send(socket: &Path, request: &Request, limit: Duration) -> Outcome<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    // It may refuse before it has read everything.
    let written = stream.write_all(&request.bytes);
    if request.is_all {
        drop(stream.shutdown(std::net::Shutdown::Write));
    }
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
            ) => {}
        Err(error) => return Err(format!("no answer: {error} ({written:?})").into()),
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok(Answer {
        status,
        body: body.to_string(),
    })
}

/// A request as HTTP has it.
pub fn http(method: &str, path: &str, body: &[u8]) -> Request {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: tarn\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    Request {
        bytes: [head.as_bytes(), body].concat(),
        is_all: false,
    }
}

/// Asks an operation, and gives the value it answers with.
pub fn ask(socket: &Path, operation: &str, request: Value, limit: Duration) -> Outcome<Value> {
    let body = json!({ "request": request }).to_string();
    let request = http("POST", &format!("/v1/{operation}"), body.as_bytes());
    let answer = send(socket, &request, limit)?;
    match answer.status {
        Some(200) => Ok(serde_json::from_str(&answer.body)?),
        _ => Err(format!("{operation}: {answer:?}").into()),
    }
}

/// The daemon's description of its operations.
pub struct Description {
    all: Value,
    paths: Vec<String>,
}

impl Description {
    /// Asks for it.
    pub fn read(socket: &Path, limit: Duration) -> Outcome<Description> {
        let answer = send(socket, &http("GET", "/v1/openapi.json", b""), limit)?;
        let all: Value = serde_json::from_str(&answer.body)?;
        let paths = all["paths"].as_object().ok_or("no paths")?.keys();
        let paths = paths.filter(|path| path.starts_with("/v1/")).cloned();
        Ok(Description {
            paths: paths.collect(),
            all,
        })
    }

    /// The operations, as paths.
    pub fn paths(&self) -> &[String] {
        &self.paths
    }

    /// A request for an operation.
    pub fn request(&self, path: &str, words: &mut Words) -> Value {
        let operation = &self.all["paths"][path]["post"];
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        self.value(schema, "", words, 0)
    }

    fn value(&self, schema: &Value, field: &str, words: &mut Words, depth: usize) -> Value {
        if depth > DEPTH_MAX {
            return Value::Null;
        }
        if let Some(name) = schema["$ref"].as_str() {
            let name = name.trim_start_matches("#/components/schemas/");
            return self.value(
                &self.all["components"]["schemas"][name],
                field,
                words,
                depth + 1,
            );
        }
        for choice in ["oneOf", "anyOf", "allOf"] {
            if let Some(of) = schema[choice].as_array().filter(|of| !of.is_empty()) {
                let chosen = &of[words.chance.index(of.len())];
                return self.value(chosen, field, words, depth + 1);
            }
        }
        if let Some(of) = schema["enum"].as_array().filter(|of| !of.is_empty()) {
            return of[words.chance.index(of.len())].clone();
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::String(one) => vec![one],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ => return Value::Null,
        };
        match types[words.chance.index(types.len())] {
            "object" => self.object(schema, words, depth),
            "array" => self.array(schema, field, words, depth),
            "string" => Value::String(text(field, words)),
            "integer" | "number" => number(&mut words.chance),
            "boolean" => Value::Bool(words.chance.below(2) == 0),
            _ => Value::Null,
        }
    }

    fn object(&self, schema: &Value, words: &mut Words, depth: usize) -> Value {
        let mut made = Map::new();
        let required: Vec<&str> = match schema["required"].as_array() {
            Some(names) => names.iter().filter_map(Value::as_str).collect(),
            None => Vec::new(),
        };
        for (name, of) in schema["properties"].as_object().into_iter().flatten() {
            let is_there = match required.contains(&name.as_str()) {
                true => words.chance.below(40) != 0,
                false => words.chance.below(5) < 2,
            };
            // A stream is one that was handed over before.
            if is_there && name != "stream" {
                made.insert(name.clone(), self.value(of, name, words, depth + 1));
            }
        }
        Value::Object(made)
    }

    fn array(&self, schema: &Value, field: &str, words: &mut Words, depth: usize) -> Value {
        if let Some(each) = schema["prefixItems"].as_array() {
            let several = each.iter().enumerate().map(|(at, of)| {
                let part = if at == 0 { "property" } else { "value" };
                self.value(of, part, words, depth + 1)
            });
            return Value::Array(several.collect());
        }
        let count = words.chance.below(4);
        let of = &schema["items"];
        (0..count)
            .map(|_| self.value(of, field, words, depth + 1))
            .collect()
    }
}

/// A text for a field of this name.
fn text(field: &str, words: &mut Words) -> String {
    let kind = match field {
        "name" | "names" => {
            const NAMED: [Kind; 4] = [
                Kind::Pool,
                Kind::Dataset,
                Kind::Snapshot,
                Kind::NewFilesystem,
            ];
            NAMED[words.chance.index(NAMED.len())]
        }
        "tag" => Kind::Tag,
        "property" | "properties" | "excluded" => Kind::Property,
        "value" => Kind::Size,
        "origin" | "snapshot" | "from" | "base" => Kind::Snapshot,
        "to" | "target" => Kind::NewFilesystem,
        "device" | "devices" | "path" | "paths" | "folders" | "cache_file" | "directories"
        | "search" => Kind::Device,
        "permissions" => Kind::Permission,
        "token" => Kind::Token,
        _ => Kind::Word,
    };
    let word = match words.chance.below(3) {
        0 => words.sound(kind),
        _ => words.hostile(kind),
    };
    let mut text = String::from_utf8_lossy(&word).into_owned();
    if words.chance.below(12) == 0 {
        text.insert(text.floor_char_boundary(text.len() / 2), '\0');
    }
    text
}

fn number(chance: &mut Twister) -> Value {
    const EDGES: [u64; 10] = [
        0,
        1,
        2,
        511,
        512,
        1 << 17,
        1 << 32,
        1 << 62,
        (1 << 63) - 1,
        u64::MAX,
    ];
    match chance.below(8) {
        0 => json!(-1),
        1 => json!(i64::MIN),
        2 => json!(1.5),
        3 => json!(1e300),
        _ => json!(EDGES[chance.index(EDGES.len())]),
    }
}

/// A request for an operation, whole or broken, as it goes over the socket.
pub fn request_of(path: &str, body: &Value, chance: &mut Twister) -> Request {
    let text = body.to_string();
    let post = |body: &[u8]| http("POST", path, body);
    let broken = |bytes: Vec<u8>| Request {
        bytes,
        is_all: true,
    };
    match chance.below(24) {
        0 => post(&text.as_bytes()[..chance.index(text.len().max(1))]),
        1 => post("[".repeat(200_000).as_bytes()),
        2 => post(format!("{{\"request\":{}1{}}}", "[".repeat(100), "]".repeat(100)).as_bytes()),
        3 => post(
            format!(
                "{{\"command\":\"{}\",\"request\":{}}}",
                "x".repeat(1 << 20),
                body["request"]
            )
            .as_bytes(),
        ),
        4 => post(&vec![b' '; 4 << 20]),
        5 => post(text.replace(':', ":[").as_bytes()),
        6 => post(text.replace('"', "'").as_bytes()),
        7 => post(text.replace("\":\"", "\":\"\\ud800").as_bytes()),
        8 => post(&[text.as_bytes(), &[0xff, 0xfe, 0]].concat()),
        9 => post(
            format!(
                "{{\"nosuch\":1,\"request\":{},\"request\":{}}}",
                body["request"], body["request"]
            )
            .as_bytes(),
        ),
        10 => http("GET", path, b""),
        11 => http("DELETE", path, text.as_bytes()),
        12 => http(
            "POST",
            &format!("{path}/../../{}", "x".repeat(9000)),
            text.as_bytes(),
        ),
        13 => {
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: tarn\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 18446744073709551615\r\n\r\n"
            );
            broken([head.as_bytes(), text.as_bytes()].concat())
        }
        14 => broken(
            [
                b"POST ",
                path.as_bytes(),
                b" HTTP/1.1\r\nhost: tarn\r\nconnection: close\r\n\r\n",
                text.as_bytes(),
            ]
            .concat(),
        ),
        15 => broken(chance.bytes(300)),
        _ => post(text.as_bytes()),
    }
}
