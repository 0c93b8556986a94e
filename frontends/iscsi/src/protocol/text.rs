//! Text keys: `KEY=VALUE`, each ended by a zero byte.

/// Longest text of one login or text request, over all of its PDUs. A guess: what initiators send
/// has some hundred bytes.
pub const TEXT_BYTES_MAX: usize = 32 << 10;

/// Most keys of one request.
pub const KEYS_MAX: usize = 128;

/// Longest name of a key (RFC 7143, 6.1).
const KEY_BYTES_MAX: usize = 63;

/// Why a text is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// A part has no `=`, or no key before it.
    #[error("a text key has no value")]
    NoValue,
    /// It is not in the characters of text.
    #[error("a text key or value is not UTF-8")]
    NotText,
    /// A key is too long, there are too many keys, or too much text.
    #[error("there is more text than any initiator needs")]
    TooMuch,
    /// A key comes twice.
    #[error("a text key comes twice")]
    Twice,
}

/// Keys with their values, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys {
    pairs: Vec<(String, String)>,
}

impl Keys {
    /// Those of a text.
    ///
    /// # Errors
    /// See [`TextError`].
    pub fn parse(text: &[u8]) -> Result<Keys, TextError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(TextError::TooMuch);
        }
        let mut keys = Keys::default();
        for part in text.split(|byte| *byte == 0) {
            if part.is_empty() {
                continue;
            }
            let part = std::str::from_utf8(part).map_err(|_| TextError::NotText)?;
            let (key, value) = part.split_once('=').ok_or(TextError::NoValue)?;
            if key.is_empty() {
                return Err(TextError::NoValue);
            }
            if key.len() > KEY_BYTES_MAX || keys.pairs.len() == KEYS_MAX {
                return Err(TextError::TooMuch);
            }
            if keys.value(key).is_some() {
                return Err(TextError::Twice);
            }
            keys.add(key, value);
        }
        Ok(keys)
    }

    /// The value of a key.
    pub fn value(&self, key: &str) -> Option<&str> {
        let found = self.pairs.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    /// One more.
    pub fn add(&mut self, key: &str, value: impl Into<String>) {
        self.pairs.push((key.to_string(), value.into()));
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.pairs.iter();
        pairs.map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// As text.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (key, value) in &self.pairs {
            text.extend_from_slice(key.as_bytes());
            text.push(b'=');
            text.extend_from_slice(value.as_bytes());
            text.push(0);
        }
        text
    }
}

/// A binary value: `0x` and hexadecimal digits, or `0b` and base64.
pub fn binary(value: &str) -> Option<Vec<u8>> {
    let (prefix, digits) = value.split_at_checked(2)?;
    match prefix {
        "0x" | "0X" => hexadecimal(digits),
        "0b" | "0B" => base64(digits),
        _ => None,
    }
}

fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|digit| u8::try_from(digit).ok())
    };
    let padded = match digits.len() % 2 {
        0 => digits.to_string(),
        _ => format!("0{digits}"),
    };
    let pairs = padded.as_bytes().chunks_exact(2);
    pairs
        .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
        .collect()
}

fn base64(digits: &str) -> Option<Vec<u8>> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0_u32, 0_u32);
    for digit in digits.trim_end_matches('=').bytes() {
        let value = ALPHABET.iter().position(|letter| *letter == digit)?;
        bits = (bits << 6 | u32::try_from(value).ok()?) & 0xffff;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).ok()?);
        }
    }
    Some(bytes)
}

/// A binary value as text.
pub fn hexadecimal_of(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    format!("0x{}", digits.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_and_wrong_text_is_refused() {
        let mut keys = Keys::default();
        keys.add("InitiatorName", "iqn.2026-01.example:a=b");
        keys.add("X-empty", "");
        assert_eq!(Keys::parse(&keys.encode()), Ok(keys));
        assert_eq!(Keys::parse(b"a=1\0a=2\0"), Err(TextError::Twice));
        assert_eq!(Keys::parse(b"a\0"), Err(TextError::NoValue));
        assert_eq!(Keys::parse(b"=a\0"), Err(TextError::NoValue));
        assert_eq!(Keys::parse(b"\xff=a\0"), Err(TextError::NotText));
    }

    #[test]
    fn binary_values_have_two_forms() {
        assert_eq!(binary("0x00fF"), Some(vec![0, 0xff]));
        assert_eq!(binary("0xf00"), Some(vec![0x0f, 0]));
        assert_eq!(binary("0bSGVsbG8="), Some(b"Hello".to_vec()));
        assert_eq!(binary("0xzz"), None);
        assert_eq!(binary("0"), None);
        assert_eq!(binary("17"), None);
    }
}
