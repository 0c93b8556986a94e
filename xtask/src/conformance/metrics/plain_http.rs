//! Requests of HTTP to servers of this machine, one connection each.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::workspace::Outcome;

/// A server that says nothing for so long is one that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks, and gives the body of an answer that is no error.
pub fn ask(port: u16, method: &str, path: &str, headers: &[String], body: &str) -> Outcome<String> {
    let (status, answer) = answer_of(port, method, path, headers, body)?;
    match status {
        200..300 => Ok(answer),
        _ => Err(format!("{method} {path} at port {port}: {status} {answer}").into()),
    }
}

/// Asks, and gives the status and the body.
pub fn answer_of(
    port: u16,
    method: &str,
    path: &str,
    headers: &[String],
    body: &str,
) -> Outcome<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let headers: String = headers
        .iter()
        .map(|header| format!("{header}\r\n"))
        .collect();
    // Version 1.0 has no answers in chunks.
    let request = format!(
        "{method} {path} HTTP/1.0\r\nhost: 127.0.0.1:{port}\r\n{headers}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(request.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer is cut")?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    Ok((status.ok_or("the answer has no status")?, body.to_owned()))
}

/// A text as it stands in a query of a path.
pub fn in_path(text: &str) -> String {
    let escaped = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    });
    escaped.collect()
}
