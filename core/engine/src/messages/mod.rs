//! Requests and replies of the control interface.
//!
//! # Mechanism
//! Each administrative operation is a pair of plain values, named for the command it serves
//! (`zpool create` is [`pool::Create`] and [`pool::Created`]). Numbers are exact (bytes, counts,
//! unix seconds); nothing is formatted for people here, since `-p`, `-H` and JSON output need the
//! exact values. A refusal is a [`Refusal`], whose text is the text OpenZFS prints after the
//! command's name.
//!
//! # Compatibility
//! Fields are only added, with `#[serde(default)]`; unknown fields are ignored.

pub mod condition;
pub mod dataset;
pub mod delegation;
mod escape;
pub mod pool;
pub mod statistics;

pub use escape::{escape, unescape};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The caller: taken from the control socket's peer credentials, never from the message itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Caller {
    /// User id of the peer process.
    pub uid: u32,
    /// Group id of the peer process.
    pub gid: u32,
    /// Other groups of the peer process.
    #[serde(default)]
    pub groups: Vec<u32>,
    /// Process id of the peer.
    pub pid: u32,
    /// The user's name where it is known; for `zpool history -l`.
    pub user: Option<String>,
}

/// A request as it travels: what the user typed, and the operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Envelope<T> {
    /// The command line as `zpool history` shall show it (`zfs create tank/a`); recorded when the
    /// operation changed a pool.
    #[serde(default)]
    pub command: String,
    /// The ticket of the descriptor that the caller handed over, for operations that read or write
    /// a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// The operation's request.
    pub request: T,
}

/// Why an operation was refused or failed, in OpenZFS's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Refusal {
    /// What kind of refusal it is: programs branch on this and not on the text.
    pub kind: RefusalKind,
    /// The headline: `cannot create 'tank'`. Empty when OpenZFS prints none.
    pub action: String,
    /// The reason: `pool already exists`. Printed as `action: reason`.
    pub reason: String,
    /// Further lines, printed as they are (hints, `use '-f' to override ...`).
    #[serde(default)]
    pub hints: Vec<String>,
}

impl Refusal {
    /// A refusal without hints.
    pub fn new(kind: RefusalKind, action: impl Into<String>, reason: impl Into<String>) -> Self {
        Refusal {
            kind,
            action: action.into(),
            reason: without_error_numbers(&reason.into()),
            hints: Vec::new(),
        }
    }

    /// The same with one more line for people.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(without_error_numbers(&hint.into()));
        self
    }
}

/// A text without the numbers that the standard library appends to the system's errors:
/// ` (os error 2)`.
pub fn without_error_numbers(text: &str) -> String {
    const BEGINNING: &str = " (os error ";
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(BEGINNING) {
        let (before, number) = (&rest[..at], &rest[at + BEGINNING.len()..]);
        kept.push_str(before);
        let end =
            number.trim_start_matches(|letter: char| letter == '-' || letter.is_ascii_digit());
        rest = match end.strip_prefix(')') {
            Some(after) if end.len() < number.len() => after,
            _ => {
                kept.push_str(BEGINNING);
                number
            }
        };
    }
    kept.push_str(rest);
    kept
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.action.is_empty(), self.reason.is_empty()) {
            (false, false) => write!(f, "{}: {}", self.action, self.reason)?,
            (false, true) => write!(f, "{}", self.action)?,
            (true, _) => write!(f, "{}", self.reason)?,
        }
        for hint in &self.hints {
            write!(f, "\n{hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}

/// Kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RefusalKind {
    /// No such pool, dataset, property or vdev.
    NotFound,
    /// The name is taken.
    Exists,
    /// A name, number or option that cannot be.
    Invalid,
    /// Mounted, in use, has children, has clones.
    Busy,
    /// The caller may not.
    Denied,
    /// No room: pool full, quota, reservation.
    NoSpace,
    /// The pool was imported read-only.
    ReadOnly,
    /// A device could not be read or written.
    Device,
    /// The pool is suspended.
    Suspended,
    /// Contents that make no sense on disk.
    Corrupt,
    /// Tarn cannot do this; the text says what.
    Unsupported,
    /// Last used by another host.
    OtherHost,
}

/// Where the value of a property comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", tag = "type", content = "from")]
pub enum Source {
    /// `-`: a computed value.
    None,
    /// `default`.
    Default,
    /// `local`.
    Local,
    /// `inherited from NAME`.
    Inherited(String),
    /// `temporary`: a mount or import option.
    Temporary,
    /// `received`.
    Received,
}

/// The value of one property, exact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "value")]
pub enum Value {
    /// A number: bytes, counts, seconds. Ratios are times 100 (`176` is `1.76x`), percentages
    /// whole.
    Number(u64),
    /// A word or text, as it is shown.
    Text(String),
    /// `-`: the property has no value here.
    Absent,
}

/// A property of one dataset or pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PropertyValue {
    /// Its value.
    pub value: Value,
    /// Where it comes from.
    pub source: Source,
    /// The value that was received with a stream, where it differs (`zfs get -o received`).
    #[serde(default)]
    pub received: Option<String>,
}

/// Properties by name, in no particular order: commands know the order to print.
pub type Properties = BTreeMap<String, PropertyValue>;

/// Reply of changes that were made, of which there may be something to say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// Warnings for people: what could not be mounted where it belongs now, and what has no effect.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Reply of operations that have nothing to say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Done {}
