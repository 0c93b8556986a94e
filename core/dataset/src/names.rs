//! Names of pools and datasets: the rules, and the refusals.
//!
//! The rules are OpenZFS's, and so are the texts of refusals: they are printed after the name
//! (`cannot create 'tank/a%b': invalid character '%' in name`).

use std::fmt;

/// Longest full name in bytes, as the format's fixed buffers have it (256 with the final zero).
pub const NAME_BYTES_MAX: usize = 255;

/// The last component of a head that an increment is received into. No dataset of that name can be
/// made.
#[doc(alias = "recv_clone_name")]
pub const RECEIVE_COMPONENT: &str = "%recv";

/// Levels a name may have; deeper ones can still be opened, not created.
pub const NESTING_MAX: usize = 50;

/// Why a name cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadName {
    /// Over [`NAME_BYTES_MAX`].
    TooLong,
    /// `/tank`.
    LeadingSlash,
    /// `tank//a`, `tank@`, or `@` and `#` where they may not be.
    EmptyComponent,
    /// `tank/`.
    TrailingSlash,
    /// A character outside letters, digits, `-_.: `.
    Character(char),
    /// Two of `@` and `#`.
    MultipleDelimiters,
    /// A pool that does not begin with a letter.
    NoLetter,
    /// A word that means something in a vdev list, or a name for internal use.
    Reserved,
    /// `c0t0d0`-like names of disks.
    DiskLike,
    /// A component `.`.
    SelfReference,
    /// A component `..`.
    ParentReference,
    /// A `%` where no temporary name may be.
    Percent,
    /// A snapshot's or bookmark's delimiter in the name of a file system or volume.
    Delimiter(char),
    /// Deeper than [`NESTING_MAX`].
    TooDeep,
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadName::TooLong => f.write_str("name is too long"),
            BadName::LeadingSlash => f.write_str("leading slash in name"),
            BadName::EmptyComponent => {
                f.write_str("empty component or misplaced '@' or '#' delimiter in name")
            }
            BadName::TrailingSlash => f.write_str("trailing slash in name"),
            BadName::Character(character) => write!(f, "invalid character '{character}' in name"),
            BadName::MultipleDelimiters => {
                f.write_str("multiple '@' and/or '#' delimiters in name")
            }
            BadName::NoLetter => f.write_str("pool doesn't begin with a letter"),
            BadName::Reserved => f.write_str("name is reserved"),
            BadName::DiskLike => f.write_str("reserved disk name"),
            BadName::SelfReference => f.write_str("self reference, '.' is found in name"),
            BadName::ParentReference => f.write_str("parent reference, '..' is found in name"),
            BadName::Percent => f.write_str("invalid character '%' in name"),
            BadName::Delimiter('@') => f.write_str("snapshot delimiter '@' is not expected here"),
            BadName::Delimiter(_) => f.write_str("bookmark delimiter '#' is not expected here"),
            BadName::TooDeep => write!(f, "name has more than {NESTING_MAX} levels"),
        }
    }
}

impl std::error::Error for BadName {}

/// Why a pool cannot have this name; the words differ a little from those for datasets.
pub fn pool_reason(bad: BadName) -> String {
    match bad {
        BadName::Character(character) => format!("invalid character '{character}' in pool name"),
        BadName::NoLetter => "name must begin with a letter".to_string(),
        BadName::DiskLike => "pool name is reserved".to_string(),
        BadName::EmptyComponent => "empty component in name".to_string(),
        other => other.to_string(),
    }
}

/// A full name taken apart. The parts are checked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DatasetName {
    /// The whole name.
    text: String,
    /// Where the delimiter stands, when there is one.
    delimiter: Option<usize>,
}

/// What a name is a name of, as far as the name itself shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// A file system or a volume.
    Head,
    /// `…@…`.
    Snapshot,
    /// `…#…`.
    Bookmark,
}

impl DatasetName {
    /// Checks a full name of any kind.
    ///
    /// # Errors
    /// The first rule that the name breaks.
    pub fn parse(text: &str) -> Result<Self, BadName> {
        if text.len() > NAME_BYTES_MAX {
            return Err(BadName::TooLong);
        }
        if text.starts_with('/') {
            return Err(BadName::LeadingSlash);
        }
        if text.is_empty() {
            return Err(BadName::EmptyComponent);
        }
        let delimiter = text.find(['@', '#']);
        let (path, tail) = match delimiter {
            Some(at) => (&text[..at], Some(&text[at + 1..])),
            None => (text, None),
        };
        check_path(path)?;
        if let Some(tail) = tail {
            if tail.contains(['@', '#']) {
                return Err(BadName::MultipleDelimiters);
            }
            if tail.contains('/') {
                return Err(BadName::TrailingSlash);
            }
            check_component(tail)?;
        }
        assert!(
            delimiter.is_none_or(|at| at > 0 && at + 1 < text.len()),
            "a valid name has something before its delimiter, and behind it"
        );
        Ok(DatasetName {
            text: text.to_string(),
            delimiter,
        })
    }

    /// Checks the name of a file system or volume that is to be made.
    ///
    /// # Errors
    /// As [`DatasetName::parse`]; also a delimiter, or too many levels.
    pub fn parse_new_head(text: &str) -> Result<Self, BadName> {
        let name = DatasetName::parse(text)?;
        if let Some(at) = name.delimiter {
            return Err(BadName::Delimiter(char::from(name.text.as_bytes()[at])));
        }
        if name.text.split('/').count() > NESTING_MAX {
            return Err(BadName::TooDeep);
        }
        if name.text.contains('%') {
            return Err(BadName::Percent);
        }
        Ok(name)
    }

    /// The whole name.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What it is a name of.
    pub fn kind(&self) -> NameKind {
        match self.delimiter.map(|at| self.text.as_bytes()[at]) {
            None => NameKind::Head,
            Some(b'@') => NameKind::Snapshot,
            Some(_) => NameKind::Bookmark,
        }
    }

    /// The file system or volume: the name up to the delimiter.
    pub fn head(&self) -> &str {
        &self.text[..self.delimiter.unwrap_or(self.text.len())]
    }

    /// The short name of a snapshot or bookmark.
    pub fn tail(&self) -> Option<&str> {
        self.delimiter.map(|at| &self.text[at + 1..])
    }

    /// The pool: the first component.
    pub fn pool(&self) -> &str {
        let pool = self.head().split('/').next().unwrap_or_default();
        debug_assert!(!pool.is_empty(), "a valid name has no empty component");
        pool
    }

    /// The components below the pool.
    pub fn below_pool(&self) -> impl Iterator<Item = &str> {
        self.head().split('/').skip(1)
    }

    /// The parent of a file system or volume, and its own last component.
    pub fn parent(&self) -> Option<(&str, &str)> {
        self.head().rsplit_once('/')
    }
}

impl fmt::Display for DatasetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Checks the components of a path.
fn check_path(path: &str) -> Result<(), BadName> {
    if path.ends_with('/') {
        return Err(BadName::TrailingSlash);
    }
    path.split('/').try_for_each(check_component)
}

/// Checks one component.
fn check_component(component: &str) -> Result<(), BadName> {
    match component {
        "" => return Err(BadName::EmptyComponent),
        "." => return Err(BadName::SelfReference),
        ".." => return Err(BadName::ParentReference),
        RECEIVE_COMPONENT => return Ok(()),
        _ => {}
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.: ".contains(c);
    match component.chars().find(|&c| !allowed(c)) {
        Some('%') => Err(BadName::Percent),
        Some(character) => Err(BadName::Character(character)),
        None => Ok(()),
    }
}

/// Checks the name of a pool; `is_new` adds the rules for pools that are to be made.
///
/// # Errors
/// The first rule that the name breaks; [`pool_reason`] has the words.
pub fn check_pool_name(name: &str, is_new: bool) -> Result<(), BadName> {
    const VDEV_WORDS: [&str; 6] = ["mirror", "raidz", "draid", "spare", "cache", "log"];
    if is_new && VDEV_WORDS.iter().any(|word| name.starts_with(word)) {
        return Err(BadName::Reserved);
    }
    if is_new && (name == "special" || name == "dedup") {
        return Err(BadName::Reserved);
    }
    // A pool's own objects ("$ORIGIN@$ORIGIN") must fit below it.
    if name.len() > NAME_BYTES_MAX - 2 - 2 * "$ORIGIN".len() {
        return Err(BadName::TooLong);
    }
    if name.is_empty() {
        return Err(BadName::EmptyComponent);
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.: ".contains(c);
    if let Some(character) = name.chars().find(|&c| !allowed(c)) {
        return Err(BadName::Character(character));
    }
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Err(BadName::NoLetter);
    }
    if matches!(name, "mirror" | "raidz" | "draid") {
        return Err(BadName::Reserved);
    }
    Ok(())
}

/// True for the name of a user property: it has a colon, and only lower-case letters, digits and
/// `:+._-`.
pub fn is_user_property(name: &str) -> bool {
    name.contains(':')
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || ":+._-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_name_is_taken_apart() {
        let name = DatasetName::parse("tank/home/ann@monday").unwrap();
        assert_eq!(name.kind(), NameKind::Snapshot);
        assert_eq!(name.head(), "tank/home/ann");
        assert_eq!(name.tail(), Some("monday"));
        assert_eq!(name.pool(), "tank");
        assert_eq!(name.below_pool().collect::<Vec<_>>(), ["home", "ann"]);
        assert_eq!(name.parent(), Some(("tank/home", "ann")));
    }

    #[test]
    fn a_bad_name_is_refused_with_its_reason() {
        for (name, reason) in [
            ("tank//a", BadName::EmptyComponent),
            ("/tank", BadName::LeadingSlash),
            ("tank/", BadName::TrailingSlash),
            ("tank/a%b", BadName::Percent),
            ("tank/a*", BadName::Character('*')),
            ("tank@a@b", BadName::MultipleDelimiters),
            ("tank/./a", BadName::SelfReference),
            ("tank/../a", BadName::ParentReference),
            ("tank@", BadName::EmptyComponent),
        ] {
            assert_eq!(DatasetName::parse(name).unwrap_err(), reason, "{name}");
        }
        assert_eq!(
            DatasetName::parse(&"a".repeat(256)).unwrap_err(),
            BadName::TooLong
        );
        assert_eq!(
            DatasetName::parse_new_head("tank@a").unwrap_err(),
            BadName::Delimiter('@')
        );
    }

    #[test]
    fn pools_have_rules_of_their_own() {
        assert_eq!(check_pool_name("tank", true), Ok(()));
        assert_eq!(check_pool_name("mirror1", true), Err(BadName::Reserved));
        assert_eq!(check_pool_name("mirror1", false), Ok(()));
        assert_eq!(check_pool_name("1tank", true), Err(BadName::NoLetter));
        assert_eq!(check_pool_name("ta/nk", true), Err(BadName::Character('/')));
        assert_eq!(
            check_pool_name("tank@x", true),
            Err(BadName::Character('@'))
        );
        assert_eq!(check_pool_name("log", true), Err(BadName::Reserved));
    }

    #[test]
    fn user_properties_have_a_colon() {
        assert!(is_user_property("com.example:note"));
        assert!(!is_user_property("note"));
        assert!(!is_user_property("Com:note"));
    }
}
