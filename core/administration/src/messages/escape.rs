//! File names as text, for names of any bytes.
//!
//! Bytes that are not printable ASCII, blanks and backslashes are written as a backslash and four
//! octal digits, as `zfs diff` does. The text can be decoded again.

/// Bytes as text.
#[doc(alias = "stream_bytes")]
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'!'..=b'~' if *byte != b'\\' => text.push(char::from(*byte)),
            byte => text.push_str(&format!("\\{byte:04o}")),
        }
    }
    text
}

/// The bytes that were written as a text. What was not written by [`escape`] stays as it is.
pub fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..4).filter(|_| *first == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[4..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_openzfs_shows_them() {
        assert_eq!(escape(b"/tank/a b"), "/tank/a\\0040b");
        assert_eq!(escape("ü\\\n".as_bytes()), "\\0303\\0274\\0134\\0012");
    }

    #[test]
    fn escaped_names_decode_to_any_bytes() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(unescape(&escape(&all)), all);
        assert_eq!(unescape("\\99"), b"\\99");
    }
}
