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

pub mod activities;
pub mod alerts;
pub mod analytics;
pub mod checkpoint;
pub mod condition;
pub mod dataset;
pub mod delegation;
mod escape;
pub mod events;
pub mod free_space;
pub mod metrics;
pub mod pool;
pub mod scan;
pub mod statistics;
pub mod vdev_properties;

pub use escape::{escape, unescape};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
pub use tarn_engine::refusals::{Refusal, RefusalKind, without_error_numbers};
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
