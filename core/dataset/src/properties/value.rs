//! One row of a property table, and the conversion between text and stored number.

/// What a property may be asked of.
///
/// A set of dataset kinds, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// File systems.
    pub const FILESYSTEM: Kinds = Kinds(1);
    /// Snapshots.
    pub const SNAPSHOT: Kinds = Kinds(2);
    /// Volumes.
    pub const VOLUME: Kinds = Kinds(4);
    /// Bookmarks.
    pub const BOOKMARK: Kinds = Kinds(8);
    /// Pools.
    pub const POOL: Kinds = Kinds(16);
    /// File systems and volumes.
    pub const HEADS: Kinds = Kinds(1 | 4);
    /// File systems, volumes and snapshots.
    pub const DATASETS: Kinds = Kinds(1 | 2 | 4);

    /// The kinds of both sets.
    pub const fn or(self, other: Kinds) -> Kinds {
        Kinds(self.0 | other.0)
    }

    /// True when the sets have a kind in common.
    pub const fn meets(self, other: Kinds) -> bool {
        self.0 & other.0 != 0
    }
}

/// How a value is stored and parsed.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    /// A number; sizes take suffixes (`10G`).
    Number,
    /// Free text.
    Text,
    /// One of these words. Where two words store one number, the first is shown.
    Word(&'static [(&'static str, u64)]),
}

/// Whether and how a property may be changed, and whether children inherit it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Never: it is computed.
    ReadOnly,
    /// Settable; children do not inherit it.
    Local,
    /// Settable; children inherit it.
    Inherit,
    /// Settable when the dataset is created, then fixed.
    Once,
    /// As `Once`, and a default is shown where it was not set.
    OnceDefault,
}

/// The value of a property that was never set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    /// A number, also for words.
    Number(u64),
    /// Text.
    Text(&'static str),
    /// None: shown as `-`, or not at all.
    None,
}

/// One native property.
#[derive(Debug, Clone, Copy)]
pub struct Property {
    /// The name users type.
    pub name: &'static str,
    /// The heading of its column in `zfs list` and `zpool list`.
    pub column: &'static str,
    /// Form of the value.
    pub form: Form,
    /// Whether and how it may be changed.
    pub change: Change,
    /// What it may be asked of.
    pub kinds: Kinds,
    /// Its default.
    pub default: Default,
    /// The values, as help shows them.
    pub values: &'static str,
    /// Shown by `get all`.
    pub visible: bool,
}

impl Property {
    /// True for columns that are aligned to the right: numbers, but for dates.
    pub fn aligns_right(&self) -> bool {
        matches!(self.form, Form::Number) && !matches!(self.name, "creation" | "snapshots_changed")
    }

    /// The stored number of a word, or `None` when it is none of the property's words.
    pub fn number_of(&self, word: &str) -> Option<u64> {
        match self.form {
            Form::Word(words) => words
                .iter()
                .find(|(name, _)| *name == word)
                .map(|(_, n)| *n),
            Form::Number | Form::Text => None,
        }
    }

    /// The word a stored number is shown as.
    pub fn word_of(&self, number: u64) -> Option<&'static str> {
        match self.form {
            Form::Word(words) => words
                .iter()
                .find(|(_, n)| *n == number)
                .map(|(name, _)| *name),
            Form::Number | Form::Text => None,
        }
    }

    /// True when it may be set after creation.
    pub fn is_settable(&self) -> bool {
        matches!(self.change, Change::Local | Change::Inherit)
    }

    /// True when children see a parent's value.
    pub fn is_inheritable(&self) -> bool {
        matches!(self.change, Change::Inherit)
    }
}
