//! Names of files: which are allowed, and which are the same.
//!
//! # Mechanism
//! A dataset may treat names as the same that differ in case (`casesensitivity`) or in Unicode form
//! (`normalization`). The directory then hashes and compares names in one form, and stores them as
//! given. That form decides where a name is found, so it must be OpenZFS's: of Unicode 5.0, with
//! case changed character by character (a character has one capital or stays) before decomposition
//! and composition. Characters of later versions stay as they are.
//!
//! Bytes that are not UTF-8 stay as they are too, each for itself.

use std::sync::Arc;
use tarn_object::zap::Normalize;
use unicode_normalization::UnicodeNormalization;

use crate::error::PosixError;

/// Changes to capitals.
const UPPER: u64 = 0x2;
/// Canonical decomposition.
const DECOMPOSE_CANONICAL: u64 = 0x10;
/// Compatibility decomposition.
const DECOMPOSE_COMPATIBLE: u64 = 0x20;
/// Composition after decomposition.
const COMPOSE: u64 = 0x40;

/// Whether case matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaseSensitivity {
    /// It does.
    Sensitive,
    /// It does not.
    Insensitive,
    /// It does for POSIX, and not for Windows clients.
    Mixed,
}

impl CaseSensitivity {
    /// From the number in the master node.
    pub fn from_number(number: u64) -> Option<CaseSensitivity> {
        match number {
            0 => Some(CaseSensitivity::Sensitive),
            1 => Some(CaseSensitivity::Insensitive),
            2 => Some(CaseSensitivity::Mixed),
            _ => None,
        }
    }

    /// The number in the master node.
    pub const fn number(self) -> u64 {
        match self {
            CaseSensitivity::Sensitive => 0,
            CaseSensitivity::Insensitive => 1,
            CaseSensitivity::Mixed => 2,
        }
    }
}

/// How a file system treats names.
#[derive(Clone)]
pub struct Naming {
    /// How directories normalise names, as they store it; zero for not at all.
    pub form: u64,
    /// Whether names must be UTF-8.
    pub is_utf8_only: bool,
    /// Whether case matters.
    pub case: CaseSensitivity,
    normalize: Option<Normalize>,
    compare: Option<Normalize>,
}

impl Naming {
    /// From the values in the master node. `normalization` is without the bit for case.
    pub fn new(normalization: u64, is_utf8_only: bool, case: CaseSensitivity) -> Naming {
        let form = match case {
            CaseSensitivity::Sensitive => normalization,
            CaseSensitivity::Insensitive | CaseSensitivity::Mixed => normalization | UPPER,
        };
        let to = |form| -> Normalize { Arc::new(move |name: &[u8]| normalized(name, form)) };
        Naming {
            form,
            is_utf8_only,
            case,
            normalize: (form != 0).then(|| to(form)),
            compare: (case == CaseSensitivity::Mixed).then(|| to(normalization)),
        }
    }

    /// The function that directories need.
    pub fn normalize(&self) -> Option<Normalize> {
        self.normalize.clone()
    }

    /// The function by which a directory compares names of the same hash, where the hash ignores
    /// case and the file system does not.
    pub fn compare(&self) -> Option<Normalize> {
        self.compare.clone()
    }

    /// Refuses a name that a new entry cannot have.
    pub fn check_new(&self, name: &[u8], bytes_max: usize) -> Result<(), PosixError> {
        check(name, bytes_max)?;
        if name == b"." || name == b".." {
            return Err(PosixError::Exists);
        }
        if self.is_utf8_only && std::str::from_utf8(name).is_err() {
            return Err(PosixError::NotUtf8);
        }
        Ok(())
    }
}

/// Refuses a name that no entry can have.
pub fn check(name: &[u8], bytes_max: usize) -> Result<(), PosixError> {
    if name.is_empty() {
        return Err(PosixError::NotFound);
    }
    if name.len() > bytes_max {
        return Err(PosixError::NameTooLong);
    }
    if name.contains(&b'/') || name.contains(&0) {
        return Err(PosixError::Invalid("a name has a slash or a zero in it"));
    }
    Ok(())
}

/// A name in the given form.
fn normalized(name: &[u8], form: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        bytes.extend(normalized_text(chunk.valid(), form).into_bytes());
        bytes.extend(chunk.invalid());
    }
    bytes
}

fn normalized_text(text: &str, form: u64) -> String {
    if text.is_ascii() {
        return if form & UPPER != 0 {
            text.to_ascii_uppercase()
        } else {
            text.to_owned()
        };
    }
    let text: String = match form & UPPER {
        0 => text.to_owned(),
        _ => text.chars().map(capital).collect(),
    };
    let mut result = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let end = rest.find(decomposes_since_later).unwrap_or(rest.len());
        result.push_str(&transformed(&rest[..end], form));
        rest = &rest[end..];
        let mut later = rest.chars();
        result.extend(later.next());
        rest = later.as_str();
    }
    result
}

fn transformed(text: &str, form: u64) -> String {
    let (canonical, compatible) = (form & DECOMPOSE_CANONICAL, form & DECOMPOSE_COMPATIBLE);
    match (canonical, compatible, form & COMPOSE) {
        (0, 0, _) => text.to_owned(),
        (_, 0, 0) => text.nfd().collect(),
        (_, 0, _) => text.nfc().collect(),
        (_, _, 0) => text.nfkd().collect(),
        (..) => text.nfkc().collect(),
    }
}

/// The one capital that a character has in Unicode 5.0, or the character.
fn capital(character: char) -> char {
    if in_ranges(u32::from(character), CAPITALS_SINCE_LATER) {
        return character;
    }
    let number = u32::from(character);
    let shifted = |by| char::from_u32(number + by).unwrap_or(character);
    match number {
        // Greek with iota subscript: the simple case mapping leads to title case characters.
        0x1f80..=0x1f87 | 0x1f90..=0x1f97 | 0x1fa0..=0x1fa7 => shifted(8),
        0x1fb3 | 0x1fc3 | 0x1ff3 => shifted(9),
        _ => {
            let mut capitals = character.to_uppercase();
            match (capitals.next(), capitals.next()) {
                (Some(only), None) => only,
                _ => character,
            }
        }
    }
}

fn decomposes_since_later(character: char) -> bool {
    in_ranges(u32::from(character), DECOMPOSITIONS_SINCE_LATER)
}

fn in_ranges(number: u32, ranges: &[(u32, u32)]) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= number);
    after
        .checked_sub(1)
        .is_some_and(|index| number <= ranges[index].1)
}

/// Characters with a capital that had none in Unicode 5.0. Ranges may include some that never had
/// one.
const CAPITALS_SINCE_LATER: &[(u32, u32)] = &[
    (0x19b, 0x19b),
    (0x23f, 0x240),
    (0x250, 0x252),
    (0x25c, 0x25c),
    (0x261, 0x261),
    (0x264, 0x266),
    (0x26a, 0x26a),
    (0x26c, 0x26c),
    (0x271, 0x271),
    (0x282, 0x282),
    (0x287, 0x287),
    (0x29d, 0x29e),
    (0x371, 0x377),
    (0x3d7, 0x3d7),
    (0x3f3, 0x3f3),
    (0x515, 0x52f),
    (0x10d0, 0x10ff),
    (0x13f8, 0x13fd),
    (0x1c80, 0x1c8a),
    (0x1d79, 0x1d79),
    (0x1d8e, 0x1d8e),
    (0x1efb, 0x1eff),
    (0x2c5f, 0x2c5f),
    (0x2c73, 0x2c73),
    (0x2cec, 0x2cf3),
    (0x2d27, 0x2d2d),
    (0xa641, 0xabbf),
    (0x104d8, 0x104fb),
    (0x10597, 0x105bc),
    (0x10cc0, 0x10cf2),
    (0x10d50, 0x10d85),
    (0x118c0, 0x118df),
    (0x16e60, 0x16e7f),
    (0x1e922, 0x1e943),
];

/// Characters with a decomposition that had none in Unicode 5.0.
const DECOMPOSITIONS_SINCE_LATER: &[(u32, u32)] = &[
    (0x2095, 0x209c),
    (0x2150, 0x2152),
    (0x2189, 0x2189),
    (0x2c7c, 0x2c7d),
    (0x3244, 0x3247),
    (0x32ff, 0x32ff),
    (0xa69c, 0xa69d),
    (0xa770, 0xa770),
    (0xa7f1, 0xa7f9),
    (0xab5c, 0xab69),
    (0xfa2e, 0xfa2f),
    (0xfa6b, 0xfa6d),
    (0x105c9, 0x105e4),
    (0x10781, 0x107ba),
    (0x1109a, 0x110ab),
    (0x1112e, 0x1112f),
    (0x1134b, 0x1134c),
    (0x11383, 0x113c8),
    (0x114bb, 0x114be),
    (0x115ba, 0x115bb),
    (0x11938, 0x11938),
    (0x16121, 0x16128),
    (0x16d68, 0x16d6a),
    (0x1ccd6, 0x1ccf9),
    (0x1e030, 0x1e06d),
    (0x1ee00, 0x1eebb),
    (0x1f100, 0x1f251),
    (0x1fbf0, 0x1fbf9),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn naming(normalization: u64, case: CaseSensitivity) -> Naming {
        Naming::new(normalization, false, case)
    }

    #[test]
    fn a_sensitive_dataset_without_normalisation_takes_names_as_they_are() {
        let naming = naming(0, CaseSensitivity::Sensitive);
        assert_eq!(naming.form, 0);
        assert!(naming.normalize().is_none());
    }

    #[test]
    fn case_and_form_are_folded_as_the_dataset_says() {
        let insensitive = naming(DECOMPOSE_CANONICAL, CaseSensitivity::Insensitive);
        let normalize = insensitive.normalize().expect("it normalises");
        assert_eq!(normalize("naïve".as_bytes()), "NAI\u{308}VE".as_bytes());
        assert_eq!(
            normalize("NAI\u{308}VE".as_bytes()),
            "NAI\u{308}VE".as_bytes()
        );
        // A sharp s has no capital of one character, and Georgian had none in Unicode 5.0.
        assert_eq!(normalize("straße".as_bytes()), "STRAßE".as_bytes());
        assert_eq!(normalize("ა".as_bytes()), "ა".as_bytes());
        assert_eq!(normalize(b"a\xffb"), b"A\xffB");
        let composed = naming(DECOMPOSE_COMPATIBLE | COMPOSE, CaseSensitivity::Sensitive);
        let normalize = composed.normalize().expect("it normalises");
        assert_eq!(normalize("ﬁe\u{301}".as_bytes()), "fié".as_bytes());
    }

    #[test]
    fn a_mixed_dataset_folds_case_and_still_tells_it_apart() {
        let mixed = naming(DECOMPOSE_CANONICAL, CaseSensitivity::Mixed);
        let hashed = mixed.normalize().expect("it normalises");
        assert_eq!(hashed("Né".as_bytes()), hashed("NE\u{301}".as_bytes()));
        let compared = mixed.compare().expect("it compares otherwise");
        assert_eq!(compared("né".as_bytes()), compared("ne\u{301}".as_bytes()));
        assert_ne!(compared("né".as_bytes()), compared("NE\u{301}".as_bytes()));
        let insensitive = naming(0, CaseSensitivity::Insensitive);
        assert!(insensitive.compare().is_none());
    }

    #[test]
    fn names_that_no_file_can_have_are_refused() {
        let naming = Naming::new(0, true, CaseSensitivity::Sensitive);
        assert!(matches!(
            naming.check_new(&[b'n'; 256], 255),
            Err(PosixError::NameTooLong)
        ));
        assert!(naming.check_new(&[b'n'; 255], 255).is_ok());
        assert!(matches!(
            naming.check_new(b"\xff", 255),
            Err(PosixError::NotUtf8)
        ));
        assert!(matches!(
            naming.check_new(b"a/b", 255),
            Err(PosixError::Invalid(_))
        ));
        assert!(matches!(
            naming.check_new(b"..", 255),
            Err(PosixError::Exists)
        ));
    }
}
