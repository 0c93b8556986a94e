//! CHAP (RFC 1994, RFC 7143 12.1.3): responses to challenges.

use md5::Md5;
use sha2::{Digest, Sha256};

/// An algorithm, with its number of the key `CHAP_A`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// MD5, which every initiator has.
    Md5,
    /// SHA-256.
    Sha256,
}

/// Length of challenges, in bytes.
pub const CHALLENGE_BYTES: usize = 24;

/// Longest challenge of an initiator that is answered (RFC 7143, 12.1.3).
pub const CHALLENGE_BYTES_MAX: usize = 1024;

impl Algorithm {
    /// The strongest of a list of numbers.
    pub fn choose(offered: &str) -> Option<Algorithm> {
        let has = |number: &str| offered.split(',').any(|one| one.trim() == number);
        if has("7") {
            return Some(Algorithm::Sha256);
        }
        has("5").then_some(Algorithm::Md5)
    }

    /// Its number.
    pub fn number(self) -> &'static str {
        match self {
            Algorithm::Md5 => "5",
            Algorithm::Sha256 => "7",
        }
    }

    /// The response to a challenge.
    pub fn response(self, identifier: u8, secret: &str, challenge: &[u8]) -> Vec<u8> {
        let parts = [&[identifier][..], secret.as_bytes(), challenge].concat();
        match self {
            Algorithm::Md5 => Md5::digest(parts).to_vec(),
            Algorithm::Sha256 => Sha256::digest(parts).to_vec(),
        }
    }
}

/// Compares without telling by the time it takes where they differ.
pub fn is_same(a: &[u8], b: &[u8]) -> bool {
    let differs = a.iter().zip(b).fold(0, |all, (x, y)| all | (x ^ y));
    a.len() == b.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_those_of_the_algorithms() {
        // MD5 of "abc": identifier 'a', secret "b", challenge "c" (RFC 1321).
        let response = Algorithm::Md5.response(b'a', "b", b"c");
        assert_eq!(response[..4], [0x90, 0x01, 0x50, 0x98]);
        let response = Algorithm::Sha256.response(b'a', "b", b"c");
        assert_eq!(response[..4], [0xba, 0x78, 0x16, 0xbf]);
        assert_eq!(Algorithm::choose("5,7"), Some(Algorithm::Sha256));
        assert_eq!(Algorithm::choose("6,5"), Some(Algorithm::Md5));
        assert_eq!(Algorithm::choose("6"), None);
    }
}
