//! One request of HTTP with a body, to a server that may be slow, wrong or away.
//!
//! # Invariants
//! - Each step has a limit of time, and of the answer at most [`ANSWER_MAX`] bytes are read.
//! - TLS is not built: a URL with `https` is refused by name.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Bytes of an answer that are read: its status, and what it says is wrong.
const ANSWER_MAX: u64 = 4096;
/// What is shown of that.
const SHOWN_MAX: usize = 200;
/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;

/// Where a body is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostTarget {
    host: String,
    port: u16,
    /// With what is asked behind it.
    path: String,
}

/// Why a text is no place to send to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadUrl(String);

impl std::fmt::Display for BadUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadUrl {}

/// Why a body was not taken.
#[derive(Debug)]
pub enum PostError {
    /// The server was not reached, or gave no answer in time.
    Away(std::io::Error),
    /// It cannot take it now (5xx, 429).
    Later(u16),
    /// It will never take it (4xx and others), and what it says.
    Refused(u16, String),
}

impl std::fmt::Display for PostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PostError::Away(error) => {
                let words = error.to_string();
                let words = words.split(" (os error").next().unwrap_or_default();
                write!(f, "no answer: {words}")
            }
            PostError::Later(status) => write!(f, "the server answered {status}"),
            PostError::Refused(status, said) => write!(f, "refused with {status}: {said}"),
        }
    }
}

impl std::error::Error for PostError {}

impl PostTarget {
    /// The place of a URL.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(url: &str) -> Result<PostTarget, BadUrl> {
        let bad = |why: &str| BadUrl(format!("'{url}' {why}"));
        if url.starts_with("https://") {
            return Err(bad(
                "asks for TLS, which is not built: send to a proxy by http",
            ));
        }
        let rest = url.strip_prefix("http://");
        let rest = rest.ok_or_else(|| bad("is no URL, as http://host:8086/write?db=tarn is"))?;
        if url.len() > 2048 || !rest.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad("has characters that a URL has not, or is too long"));
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err(bad("has a user, which is not sent: use a token"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()),
            _ => (authority, Some(80)),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match (host.is_empty(), port) {
            (false, Some(port)) if port > 0 => Ok(PostTarget {
                host: host.to_owned(),
                port,
                path: match path.starts_with('/') {
                    true => path.to_owned(),
                    false => format!("/{path}"),
                },
            }),
            _ => Err(bad("has no host and port")),
        }
    }

    /// Sends a body. Each step takes `limit` at most.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn post(
        &self,
        headers: &[(&str, &str)],
        body: &[u8],
        limit: Duration,
    ) -> Result<(), PostError> {
        let mut stream = self.connect(limit).map_err(PostError::Away)?;
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        let mut head = format!(
            "POST {} HTTP/1.1\r\nhost: {host}:{}\r\nconnection: close\r\ncontent-length: {}\r\n",
            self.path,
            self.port,
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut exchange = || {
            stream.set_read_timeout(Some(limit))?;
            stream.set_write_timeout(Some(limit))?;
            stream.write_all(head.as_bytes())?;
            stream.write_all(body)?;
            let mut answer = Vec::new();
            // A server that closes early has answered, if it has.
            match (&mut stream).take(ANSWER_MAX).read_to_end(&mut answer) {
                Err(error) if answer.is_empty() => Err(error),
                _ => Ok(answer),
            }
        };
        verdict(&exchange().map_err(PostError::Away)?)
    }

    fn connect(&self, limit: Duration) -> std::io::Result<TcpStream> {
        let addresses = (self.host.as_str(), self.port).to_socket_addrs()?;
        let addresses: Vec<SocketAddr> = addresses.take(ADDRESSES_MAX).collect();
        let mut last = std::io::Error::new(ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            match TcpStream::connect_timeout(&address, limit) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// What an answer means.
fn verdict(answer: &[u8]) -> Result<(), PostError> {
    let text = String::from_utf8_lossy(answer);
    let status = text.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5));
    let status = status.and_then(|status| status.parse::<u16>().ok());
    match status {
        Some(200..300) => Ok(()),
        Some(status @ (429 | 500..600)) => Err(PostError::Later(status)),
        Some(status) => {
            let (_, said) = text.split_once("\r\n\r\n").unwrap_or_default();
            let plain = |character: &char| !character.is_control();
            let said = said.chars().filter(plain).take(SHOWN_MAX).collect();
            Err(PostError::Refused(status, said))
        }
        None => {
            let why = "the answer is none of HTTP";
            Err(PostError::Away(std::io::Error::new(
                ErrorKind::InvalidData,
                why,
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn urls_are_read_or_refused_by_name() {
        let target = PostTarget::parse("http://[::1]:8086/write?db=tarn").unwrap();
        assert_eq!((target.host.as_str(), target.port), ("::1", 8086));
        assert_eq!(target.path, "/write?db=tarn");
        let target = PostTarget::parse("http://nas").unwrap();
        assert_eq!((target.port, target.path.as_str()), (80, "/"));
        for (wrong, why) in [
            ("https://a/", "TLS"),
            ("ftp://a/", "no URL"),
            ("http://", "no host"),
            ("http://a:0/", "no host"),
            ("http://a:b/", "no host"),
            ("http://u:p@a/", "token"),
            ("http://a/b c", "characters"),
            ("http://a/\r\nx: y", "characters"),
        ] {
            let told = PostTarget::parse(wrong).unwrap_err().to_string();
            assert!(told.contains(why), "{told}");
        }
    }

    /// Answers one request with this text; gives what was sent.
    fn answered(answer: &'static str) -> (Result<(), PostError>, String) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut sent = vec![0; 4096];
            let mut length = 0;
            while !sent[..length].ends_with(b"a=1") {
                length += stream.read(&mut sent[length..]).unwrap();
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8_lossy(&sent[..length]).into_owned()
        });
        let target = PostTarget::parse(&format!("http://127.0.0.1:{port}/x?y")).unwrap();
        let limit = Duration::from_secs(20);
        let posted = target.post(&[("authorization", "Token t")], b"a=1", limit);
        (posted, server.join().unwrap())
    }

    #[test]
    fn answers_say_whether_it_was_taken() {
        let (posted, sent) = answered("HTTP/1.1 204 No Content\r\n\r\n");
        assert!(posted.is_ok());
        assert!(
            sent.starts_with("POST /x?y HTTP/1.1\r\nhost: 127.0.0.1:"),
            "{sent}"
        );
        assert!(sent.contains("\r\nauthorization: Token t\r\n"), "{sent}");
        assert!(sent.contains("\r\ncontent-length: 3\r\n"), "{sent}");
        let (refused, _) = answered("HTTP/1.1 400 Bad\r\n\r\nbad\x07 line");
        assert_eq!(
            refused.unwrap_err().to_string(),
            "refused with 400: bad line"
        );
        let (later, _) = answered("HTTP/1.1 503 Busy\r\n\r\n");
        assert!(matches!(later, Err(PostError::Later(503))));
        let (none, _) = answered("SSH-2.0\r\n");
        assert!(matches!(none, Err(PostError::Away(_))));
    }
}
