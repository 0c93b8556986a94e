//! What a client of version 4 calls itself.

use std::fmt::Write;

/// Marks the line of a client of version 4.0 in the list of clients.
const MARK: &str = "0:";

/// The name of a client. One that uses version 4.0 is another client than one of the same name that
/// has sessions, as neither can use the other's state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClientName {
    /// Whether it uses version 4.1 or 4.2.
    pub(crate) has_sessions: bool,
    /// The `id` of `nfs_client_id4`, or `co_ownerid`.
    pub(crate) owner: Vec<u8>,
}

impl ClientName {
    /// As a line of text, without its end.
    pub(crate) fn line(&self) -> String {
        let mut line = String::from(if self.has_sessions { "" } else { MARK });
        for byte in &self.owner {
            write!(line, "{byte:02x}").expect("a string takes everything");
        }
        line
    }

    /// From such a line.
    pub(crate) fn parse(line: &str) -> Option<ClientName> {
        let (has_sessions, digits) = match line.strip_prefix(MARK) {
            Some(digits) => (false, digits),
            None => (true, line),
        };
        let byte = |pair: &[u8; 2]| {
            let are_digits = pair.iter().all(u8::is_ascii_hexdigit);
            let text = std::str::from_utf8(pair).ok().filter(|_| are_digits)?;
            u8::from_str_radix(text, 16).ok()
        };
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        let owner: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        let owner = owner.filter(|owner| rest.is_empty() && !owner.is_empty())?;
        Some(ClientName {
            has_sessions,
            owner,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_other_lines_name_no_client() {
        for has_sessions in [false, true] {
            let name = ClientName {
                has_sessions,
                owner: b"a\n\xff".to_vec(),
            };
            assert_eq!(ClientName::parse(&name.line()), Some(name));
        }
        for line in ["", "0:", "6", "zz", "+1", "0:6", "1:61", "61 "] {
            assert_eq!(ClientName::parse(line), None, "{line}");
        }
    }
}
