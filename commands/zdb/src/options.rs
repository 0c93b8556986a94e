//! The command line.
//!
//! Most options only count how often they are given: `-bb` prints more than `-b`, and `-v` raises
//! all others. The letters, long names and the rules for combinations are those of OpenZFS 2.3. An
//! option that this version does not support is refused by name.

use crate::dedup::Signatures;
use lexopt::{Arg, Parser};
use std::ffi::OsString;
use std::path::PathBuf;

/// The long name of each option.
const LONG: &[(&str, char)] = &[
    ("ignore-assertions", 'A'),
    ("block-stats", 'b'),
    ("backup", 'B'),
    ("checksum", 'c'),
    ("config", 'C'),
    ("datasets", 'd'),
    ("dedup-stats", 'D'),
    ("exported", 'e'),
    ("embedded-block-pointer", 'E'),
    ("automatic-rewind", 'F'),
    ("dump-debug-msg", 'G'),
    ("history", 'h'),
    ("intent-logs", 'i'),
    ("inflight", 'I'),
    ("checkpointed-state", 'k'),
    ("key", 'K'),
    ("label", 'l'),
    ("disable-leak-tracking", 'L'),
    ("metaslabs", 'm'),
    ("metaslab-groups", 'M'),
    ("numeric", 'N'),
    ("option", 'o'),
    ("object-lookups", 'O'),
    ("path", 'p'),
    ("parseable", 'P'),
    ("skip-label", 'q'),
    ("copy-object", 'r'),
    ("read-block", 'R'),
    ("io-stats", 's'),
    ("simulate-dedup", 'S'),
    ("txg", 't'),
    ("brt-stats", 'T'),
    ("uberblock", 'u'),
    ("cachefile", 'U'),
    ("verbose", 'v'),
    ("verbatim", 'V'),
    ("dump-blocks", 'x'),
    ("extreme-rewind", 'X'),
    ("livelist", 'y'),
    ("all-reconstruction", 'Y'),
    ("zstd-headers", 'Z'),
];

/// Options that choose parts to print.
const SHOWING: &str = "bBcCdDEGhilmMNOrRsSTuyZ";

/// Options of OpenZFS that this version does not support.
const NOT_BUILT: &str = "BDEFGKoOrRstTVxXyYZ";

/// The parts that are printed by default, as far as they are built.
const EVERYTHING: &str = "CudmMbch";

/// A part of an object set: a range of object numbers, and types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRange {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
    /// Which types, as bits of [`kind`]. None for all.
    pub kinds: Option<u64>,
}

/// Kinds of objects in a range.
pub mod kind {
    /// Plain files.
    pub const FILE: u64 = 1;
    /// Directories.
    pub const DIRECTORY: u64 = 2;
    /// Space maps.
    pub const SPACE_MAP: u64 = 4;
    /// ZAPs of new types.
    pub const ZAP: u64 = 8;
    /// All of these.
    pub const NAMED: u64 = 15;
    /// Every object.
    pub const ALL: u64 = u64::MAX;
}

/// Why a command line is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadUsage {
    /// It is malformed: this text, then the usage.
    Usage(String),
    /// It has an option that this version does not support.
    NotBuilt(String),
}

/// The parsed command line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// How often each letter was given, raised by `-v`.
    counts: Vec<(char, u32)>,
    /// Folders and devices to search (`-p`).
    pub places: Vec<PathBuf>,
    /// Another cache file (`-U`).
    pub cache_file: Option<PathBuf>,
    /// The signatures to be shown (`-S user:all`).
    pub signatures: Option<Signatures>,
    /// The arguments that are not options.
    pub operands: Vec<String>,
    /// Whether no part was chosen, so that all are printed.
    pub is_everything: bool,
}

impl Options {
    /// The detail of a letter's part; zero for none.
    pub fn level(&self, letter: char) -> u32 {
        let count = self.counts.iter().find(|(known, _)| *known == letter);
        count.map_or(0, |(_, count)| *count)
    }

    /// Whether a letter was given.
    pub fn has(&self, letter: char) -> bool {
        self.level(letter) > 0
    }

    /// A number in human-readable form, or exactly with `-P`.
    pub fn nice(&self, number: u64) -> String {
        match self.has('P') {
            true => number.to_string(),
            false => tarn_terminal::number::nice_count(number),
        }
    }

    /// Parses a command line without the program's name.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Options, BadUsage> {
        let mut options = Options::default();
        let mut verbose = 0;
        let mut parser = Parser::from_args(words);
        let usage = |error: lexopt::Error| BadUsage::Usage(error.to_string());
        while let Some(argument) = parser.next().map_err(usage)? {
            let letter = match argument {
                Arg::Short(letter) => letter,
                Arg::Long(name) => letter_of(name)?,
                Arg::Value(value) => {
                    options.operands.push(value.to_string_lossy().into_owned());
                    continue;
                }
            };
            match letter {
                'p' => options.places.push(parser.value().map_err(usage)?.into()),
                'U' => {
                    let path = PathBuf::from(parser.value().map_err(usage)?);
                    if !path.is_absolute() {
                        return Err(BadUsage::Usage(
                            "cachefile must be an absolute path (i.e. start with a slash)".into(),
                        ));
                    }
                    options.cache_file = Some(path);
                }
                // The number of parallel reads is chosen here.
                'I' => {
                    let bytes = parser.value().map_err(usage)?;
                    if !is_positive(&bytes.to_string_lossy()) {
                        let text = "maximum number of inflight bytes must be greater than 0";
                        return Err(BadUsage::Usage(text.into()));
                    }
                }
                'v' => verbose += 1,
                _ if NOT_BUILT.contains(letter) => {
                    return Err(BadUsage::NotBuilt(format!("-{letter}")));
                }
                _ if LONG.iter().any(|(_, known)| *known == letter) => options.count(letter),
                _ => return Err(BadUsage::Usage(format!("invalid option -- '{letter}'"))),
            }
        }
        options.finish(verbose)
    }

    fn count(&mut self, letter: char) {
        match self.counts.iter_mut().find(|(known, _)| *known == letter) {
            Some((_, count)) => *count += 1,
            None => self.counts.push((letter, 1)),
        }
    }

    /// Applies the effects of options on others.
    fn finish(mut self, mut verbose: u32) -> Result<Options, BadUsage> {
        if !self.has('e') && !self.places.is_empty() {
            return Err(BadUsage::Usage("-p option requires use of -e".into()));
        }
        if !self
            .counts
            .iter()
            .any(|(letter, _)| SHOWING.contains(*letter))
        {
            self.is_everything = true;
            verbose = verbose.max(1);
            EVERYTHING.chars().for_each(|letter| self.count(letter));
        }
        for (_, count) in &mut self.counts {
            *count += verbose;
        }
        if self.has('S')
            && self.operands.len() > 1
            && let Some(signatures) = Signatures::parse(&self.operands[0])
        {
            self.signatures = Some(signatures);
            self.operands.remove(0);
        }
        if self.has('N') && !self.has('d') {
            self.counts.push(('d', self.level('N')));
        }
        Ok(self)
    }
}

/// The letter of a long option: its whole name, or an unambiguous beginning.
fn letter_of(name: &str) -> Result<char, BadUsage> {
    if let Some((_, letter)) = LONG.iter().find(|(known, _)| *known == name) {
        return Ok(*letter);
    }
    let candidates: Vec<char> = LONG
        .iter()
        .filter(|(known, _)| known.starts_with(name))
        .map(|(_, letter)| *letter)
        .collect();
    match candidates.as_slice() {
        [letter] => Ok(*letter),
        [] => match ["bin", "class", "allocated-map"].contains(&name) {
            true => Err(BadUsage::NotBuilt(format!("--{name}"))),
            false => Err(BadUsage::Usage(format!("unrecognized option '--{name}'"))),
        },
        _ => Err(BadUsage::Usage(format!("option '--{name}' is ambiguous"))),
    }
}

/// A number in C's notation: `12`, `0x1f`, `017`; `-1` for the largest.
pub fn number(text: &str) -> Option<u64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let number = u64::from_str_radix(digits, radix).ok()?;
    Some(if is_negative {
        number.wrapping_neg()
    } else {
        number
    })
}

impl ObjectRange {
    /// An object's number, or `first:last[:kinds]`. The message is OpenZFS's.
    pub fn parse(text: &str) -> Result<ObjectRange, &'static str> {
        if text.starts_with(':') {
            return Err("Invalid leading colon");
        }
        if text.ends_with(':') {
            return Err("Invalid trailing colon");
        }
        let mut parts = text.split(':').filter(|part| !part.is_empty());
        let (first, last, kinds) = (parts.next().unwrap_or(""), parts.next(), parts.next());
        let Some(last) = last else {
            let id = number(first).ok_or("Invalid characters in object ID")?;
            return Ok(ObjectRange {
                first: id,
                last: id,
                kinds: None,
            });
        };
        let first = number(first).ok_or("Invalid characters in start object ID")?;
        let last = number(last).ok_or("Invalid characters in end object ID")?;
        if first > last {
            return Err("Start object ID may not exceed end object ID");
        }
        if kinds.is_some() && parts.next().is_some() {
            return Err("Invalid colon-delimited field after flags");
        }
        let kinds = kinds.map(parse_kinds).transpose()?;
        Ok(ObjectRange { first, last, kinds })
    }

    /// The same for a set that numbers its accounting objects from the end, which users count as
    /// -1, -2, -3.
    pub fn is_single(&self) -> bool {
        self.first == self.last
    }
}

fn parse_kinds(text: &str) -> Result<u64, &'static str> {
    let mut kinds = 0;
    let mut letters = text.chars();
    while let Some(mut letter) = letters.next() {
        let takes_away = letter == '-';
        if takes_away {
            letter = letters.next().ok_or("Invalid trailing negation operator")?;
        }
        let bits = match letter {
            'A' => kind::ALL,
            'd' => kind::DIRECTORY,
            'f' => kind::FILE,
            'm' => kind::SPACE_MAP,
            'z' => kind::ZAP,
            _ => return Err("Invalid flag"),
        };
        kinds = match takes_away {
            true => kinds & !bits,
            false => kinds | bits,
        };
    }
    Ok(kinds)
}

/// Whether a text begins with a number above zero, as `strtoull` reads it.
fn is_positive(text: &str) -> bool {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let mut digits = digits.chars().map_while(|digit| digit.to_digit(radix));
    digits.any(|digit| digit > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Options, BadUsage> {
        Options::parse(words.iter().map(OsString::from))
    }

    #[test]
    fn letters_are_counted_and_raised_by_v() {
        let options = parsed(&["-ddv", "-e", "-p", "/dev", "tank", "5"]).unwrap();
        assert_eq!((options.level('d'), options.level('b')), (3, 0));
        assert_eq!(options.operands, ["tank", "5"]);
        assert_eq!(options.places, [PathBuf::from("/dev")]);
    }

    #[test]
    fn without_a_choice_everything_is_shown() {
        let options = parsed(&["tank"]).unwrap();
        assert!(options.is_everything);
        assert_eq!((options.level('d'), options.level('l')), (2, 0));
    }

    #[test]
    fn bytes_in_flight_are_a_number_above_zero() {
        for taken in ["1", "0x10", "100M"] {
            assert!(parsed(&["-I", taken, "tank"]).is_ok(), "{taken}");
        }
        for refused in ["0", "0x0", "tank", ""] {
            let parsed = parsed(&["-I", refused]);
            assert!(matches!(parsed, Err(BadUsage::Usage(_))), "{refused}");
        }
    }

    #[test]
    fn long_names_may_be_shortened() {
        assert_eq!(parsed(&["--block-stats", "--dat"]).unwrap().level('b'), 1);
        assert!(matches!(parsed(&["--c"]), Err(BadUsage::Usage(_))));
    }

    #[test]
    fn signatures_are_asked_for_before_the_pool() {
        let options = parsed(&["-S", "user:all", "tank"]).unwrap();
        assert!(options.signatures.is_some());
        assert_eq!(options.operands, ["tank"]);
        let options = parsed(&["-S", "user:all"]).unwrap();
        assert_eq!((options.signatures, options.operands.len()), (None, 1));
    }

    #[test]
    fn unsupported_options_are_refused_by_name() {
        assert_eq!(parsed(&["-R"]), Err(BadUsage::NotBuilt("-R".into())));
        assert_eq!(parsed(&["-O"]), Err(BadUsage::NotBuilt("-O".into())));
        assert_eq!(
            parsed(&["--bin=lsize", "t"]),
            Err(BadUsage::NotBuilt("--bin".into()))
        );
    }

    #[test]
    fn searching_needs_exported_pools_and_cache_files_are_absolute() {
        assert!(matches!(
            parsed(&["-p", "x", "-d"]),
            Err(BadUsage::Usage(_))
        ));
        assert!(matches!(
            parsed(&["-U", "x", "-d"]),
            Err(BadUsage::Usage(_))
        ));
    }

    #[test]
    fn ranges_of_objects_have_ends_and_kinds() {
        let whole = ObjectRange::parse("0:-1:A-f").unwrap();
        assert_eq!((whole.first, whole.last), (0, u64::MAX));
        assert_eq!(whole.kinds, Some(kind::ALL & !kind::FILE));
        assert_eq!(ObjectRange::parse("0x10").unwrap().first, 16);
        assert_eq!(
            ObjectRange::parse("5:2"),
            Err("Start object ID may not exceed end object ID")
        );
        assert_eq!(
            ObjectRange::parse("x"),
            Err("Invalid characters in object ID")
        );
        assert_eq!(ObjectRange::parse("1:2:q"), Err("Invalid flag"));
    }
}
