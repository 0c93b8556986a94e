//! Pseudonyms: the same client is the same word as long as the daemon runs, and the word does not
//! tell which client it is.

use std::hash::{BuildHasher, RandomState};

/// Makes pseudonyms with a random key.
pub(crate) struct Pseudonyms(RandomState);

impl Pseudonyms {
    /// With a new key.
    pub(crate) fn new() -> Pseudonyms {
        Pseudonyms(RandomState::new())
    }

    /// The pseudonym of a name: what it is a name of, and eight hexadecimal digits.
    pub(crate) fn of(&self, kind: &str, name: &str) -> String {
        let hash = self.0.hash_one((kind, name));
        format!("{kind}-{:08x}", hash >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_pseudonym_under_one_key() {
        let pseudonyms = Pseudonyms::new();
        let word = pseudonyms.of("client", "kiowa");
        assert_eq!(word, pseudonyms.of("client", "kiowa"));
        assert_ne!(word, pseudonyms.of("client", "deimos"));
        assert!(word.starts_with("client-") && !word.contains("kiowa"));
        assert_ne!(word, Pseudonyms::new().of("client", "kiowa"));
    }
}
